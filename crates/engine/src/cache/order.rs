//! Which dirty page is next in the order of a sweep.

use crate::cache::Cache;
use crate::cache::dirty::{Class, PageSet};
use crate::cache::file::File;
use crate::place::{FIRST, FileIx, PageIx, Place};
use crate::waiters::freeze_state::FreezeState;

/// Most files passed over in search of one that is not frozen.
const FILES_PASSED_MAX: usize = 256;

/// Most clean pages between two dirty ones that are written with them on a slow device. A constant, because a drive's
/// cache hides the cost of a write's seek.
pub(crate) const GAP_WRITTEN_MAX: u64 = 16;

impl Cache {
    pub(crate) fn next_of(
        &self,
        pages: &PageSet,
        mut at: Place,
        wanted: impl Fn(&File) -> bool,
    ) -> Option<Place> {
        if pages.is_empty() {
            return None;
        }
        let mut turned = false;
        for _ in 0..FILES_PASSED_MAX {
            match pages.next(at) {
                Some((file, number)) if wanted(&self.files[file]) => {
                    return Some((file, number));
                }
                Some((file, _)) => at = (file.next(), 0),
                None if turned => return None,
                None => {
                    turned = true;
                    at = FIRST;
                }
            }
        }
        None
    }

    /// The next page whose patches came back from the log for the sweep.
    pub(crate) fn next_returned(&self) -> Option<Place> {
        let swept =
            |file: &File| file.waiters.freeze == FreezeState::Thawed && !file.waiters.is_urgent();
        self.next_of(&self.dirty.returned, self.dirty.patched.swept_to, swept)
    }

    pub(crate) fn next_of_class(
        &self,
        class: &Class,
        wanted: impl Fn(&File) -> bool,
    ) -> Option<Place> {
        self.next_of(class.pages(), class.swept_to, wanted)
    }

    /// The next page of a class in the order of its sweep. Skips files that are frozen, and files that are being synced,
    /// since the sync sweeps them itself.
    pub(crate) fn next_swept(&self, class: &Class) -> Option<Place> {
        self.next_of_class(class, |file| {
            file.waiters.freeze == FreezeState::Thawed && !file.waiters.is_urgent()
        })
    }

    /// The same for all files that are not frozen.
    pub(crate) fn next_open(&self, class: &Class) -> Option<Place> {
        self.next_of_class(class, |file| file.waiters.freeze == FreezeState::Thawed)
    }

    /// Whether a sync's sweep may continue with a patched page. Otherwise it waits for the windows of spilled pages
    /// before it, so that the disk arm passes over all of them once.
    pub(crate) fn goes_with_windows(&self, file: FileIx, number: u64) -> bool {
        let of_file = &self.files[file];
        let (swept, windows) = (of_file.sweeps.synced_to[0], of_file.sweeps.returned_to);
        // Windows that have started again from the file's beginning leave the rest of the file to the sweep.
        let ahead = number < windows || (windows < swept && swept <= number);
        of_file.spilled_pages == 0 || ahead
    }

    /// Whether another dirty page is near enough that the gap between them is written through.
    pub(crate) fn has_dirty_neighbour(&self, ix: PageIx) -> bool {
        let (file, number) = (self.pages[ix].file, self.pages[ix].number);
        let near = |pages: &PageSet| {
            let next =
                |at| pages.next_of(file, at).filter(|&next| next <= number + GAP_WRITTEN_MAX);
            let before = next(number.saturating_sub(GAP_WRITTEN_MAX)).is_some_and(|n| n < number);
            before || next(number + 1).is_some()
        };
        near(self.dirty.patched.pages())
            || near(&self.dirty.returned)
            || near(self.dirty.resident.pages())
    }
}
