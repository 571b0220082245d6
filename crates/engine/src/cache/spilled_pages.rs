//! Pages whose patches are in the log only, and pages whose patches may leave or come back.

use weir_frames::PAGE_BYTES;
use weir_log::RECORD_OVERHEAD_BYTES;

use crate::cache::Cache;
use crate::cache::page::PageIo;
use crate::cache::spill::LOOKED_AT_MAX;
use crate::cache::spilled::SpilledPage;
use crate::place::{FIRST, FileIx, PageIx, Place};
use crate::waiters::freeze_state::FreezeState;

const PAGE: u64 = PAGE_BYTES as u64;

/// Pages directly ahead of the sweep of spilled patches. They are not replaced until the sweep has passed them.
const NEXT_SWEPT_PAGES: u64 = 2048;

impl Cache {
    /// Whether older patches of a page are in the log only.
    pub(crate) fn is_spilled(&self, file: FileIx, number: u64) -> bool {
        !self.spill.index.is_empty() && self.spill.index.contains((file, number))
    }

    /// Removes a page from the index. The caller updates the page itself.
    pub(crate) fn remove_spilled(&mut self, place: Place) -> Option<SpilledPage> {
        let spilled = self.spill.index.remove(place)?;
        self.spill.reading.remove(&place);
        self.files[place.0].dirty_pages -= 1;
        self.files[place.0].spilled_pages -= 1;
        Some(spilled)
    }

    pub(crate) fn may_leave(&self, ix: PageIx, place: Place) -> bool {
        let page = &self.pages[ix];
        !page.awaited
            && page.pins == 0
            && !page.returned
            && !self.spill.reading.contains_key(&place)
            && !self.is_in_window(place)
    }

    /// Whether a sweep is about to write the page home together with its neighbours that came back. If its patches left
    /// now, there would be a gap between these.
    pub(crate) fn is_in_window(&self, (file, number): Place) -> bool {
        let Some(window) = &self.spill.window else { return false };
        let Some(next) = self.dirty.returned.next_of(file, window.first) else {
            return false;
        };
        let ahead = if window.is_dense { u64::MAX } else { next + NEXT_SWEPT_PAGES };
        file == window.file && (next..=window.last.min(ahead)).contains(&number)
    }

    /// The most bytes of the log that a page's patches take.
    pub(crate) fn spill_cost(&self, ix: PageIx) -> usize {
        let page = &self.pages[ix];
        let name = RECORD_OVERHEAD_BYTES + self.files[page.file].logged.identity.len() + 8;
        let records = page.patches.iter().map(|(_, bytes)| RECORD_OVERHEAD_BYTES + bytes.len() + 8);
        name + records.sum::<usize>()
    }

    /// The next spilled page in the sweep's order, of a file that is not frozen.
    pub(crate) fn next_spilled(&self) -> Option<Place> {
        let open = |at| {
            let mut places = self.spill.index.from(at).take(LOOKED_AT_MAX).map(|(place, _)| place);
            places.find(|place| {
                self.files[place.0].waiters.freeze == FreezeState::Thawed
                    && !self.spill.reading.contains_key(place)
            })
        };
        open(self.spill.swept_to).or_else(|| open(FIRST))
    }

    /// The spill in progress failed: its patches stay in memory.
    pub(crate) fn fail_spill(&mut self) {
        self.spill.leaving.clear();
        self.spill.spill_end = None;
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check_spill(&self) {
        self.spill.index.check_invariants();
        let mut spilled = vec![];
        for (place, _) in self.spill.index.from(FIRST) {
            spilled.push(place);
            let home_size = self.files[place.0].home_size;
            assert!(place.1 * PAGE < home_size, "{place:?} is a page at home");
            if let Some(ix) = self.pages.find(place.0, place.1) {
                let page = &self.pages[ix];
                assert!(page.spilled, "{place:?} knows that it is spilled");
                let idle = matches!(page.io, PageIo::None | PageIo::Fetch);
                assert!(page.frame.is_none() && idle, "{place:?} waits");
            }
        }
        for (ix, file) in self.files.iter() {
            let of_file = spilled.iter().filter(|place| place.0 == ix).count();
            assert_eq!(file.spilled_pages, of_file, "spilled pages of {:?}", file.id);
        }
        for place in self.spill.reading.keys() {
            assert!(self.spill.index.contains(*place), "{place:?} is read because it is spilled");
        }
    }
}
