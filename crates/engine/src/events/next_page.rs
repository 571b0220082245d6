//! Which dirty page a sweep takes next.

use crate::cache::dirty::{Class, PageSet};
use crate::cache::page::OVERDUE;
use crate::config::FetchPolicy;
use crate::engine::Engine;
use crate::place::{FileIx, PageIx, Place};
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;

/// Most files passed over in search of one that is not frozen.
const FILES_PASSED_MAX: usize = 256;

impl Engine {
    /// The next page that a sync needs home; what a program waits for goes before what only the log
    /// does.
    pub(crate) fn next_urgent(&mut self) -> Option<PageIx> {
        self.next_urgent_of(true).or_else(|| self.next_urgent_of(false))
    }

    pub(crate) fn next_urgent_of(&mut self, awaited: bool) -> Option<PageIx> {
        let mut at = FileIx(0);
        while let Some(&file) = self.write_back.sweeps.urgent.range(at..).next() {
            at = file.next();
            let of_file = &self.cache.files[file];
            if of_file.waiters.is_urgent() && of_file.waiters.is_awaited() != awaited {
                continue;
            }
            if of_file.waiters.freeze != FreezeState::Frozen && of_file.waiters.is_urgent() {
                let next = |pages: &PageSet, at| pages.next_of(file, at).or(pages.next_of(file, 0));
                let patched = next(&self.cache.dirty.returned, of_file.sweeps.synced_to[0])
                    .or_else(|| {
                        next(self.cache.dirty.patched.pages(), of_file.sweeps.synced_to[0])
                            .filter(|&number| self.cache.goes_with_windows(file, number))
                    });
                let resident = next(self.cache.dirty.resident.pages(), of_file.sweeps.synced_to[1]);
                // In turns: writers may keep adding to either set, and pages that fail are listed again.
                let found = match of_file.sweeps.resident_next {
                    true => resident.or(patched),
                    false => patched.or(resident),
                };
                if let Some(number) = found {
                    return Some(self.cache.listed(file, number));
                }
            }
            // The file is listed again when one of its pages becomes ready, or when it thaws.
            if of_file.spilled_pages == 0 || !of_file.waiters.is_urgent() {
                self.write_back.sweeps.urgent.remove(&file);
            }
        }
        None
    }

    pub(crate) fn next_patched(&mut self, now: Time) -> Option<PageIx> {
        let place = if let Some(place) = self.cache.next_returned() {
            place
        } else if self.patches_press()
            || self.is_due(&self.cache.dirty.patched, now)
            || self.write_back_takes_patches()
        {
            self.cache.next_swept(&self.cache.dirty.patched)?
        } else if self.config.fetch_policy == FetchPolicy::Auto && self.readers_first(now) {
            // Do not prefetch for readers while foreground reads are queued.
            return None;
        } else {
            self.next_wanted()?
        };
        Some(self.cache.listed(place.0, place.1))
    }

    pub(crate) fn next_resident(&mut self, now: Time) -> Option<PageIx> {
        if self.write_back.sweeps.window_under_way {
            // The pages of the window go next.
            return None;
        }
        let pressed = self.write_back_is_on() && !self.frames_yield();
        if !pressed && !self.is_due(&self.cache.dirty.resident, now) {
            return None;
        }
        let (file, number) = self.cache.next_swept(&self.cache.dirty.resident)?;
        Some(self.cache.listed(file, number))
    }

    /// The next patched page of the files whose patched pages are to be fetched soon.
    pub(crate) fn next_wanted(&mut self) -> Option<Place> {
        let (at, number) = self.cache.dirty.patched.swept_to;
        let mut held = 0;
        loop {
            let mut files = self
                .write_back
                .sweeps
                .wanted
                .range(at..)
                .chain(self.write_back.sweeps.wanted.range(..at));
            let &file = files.nth(held)?;
            let from = if file == at { number } else { 0 };
            let pages = self.cache.dirty.patched.pages();
            match pages.next_of(file, from).or(pages.next_of(file, 0)) {
                Some(number) if self.cache.files[file].waiters.freeze == FreezeState::Thawed => {
                    return Some((file, number));
                }
                Some(_) => held += 1,
                None => {
                    self.write_back.sweeps.wanted.remove(&file);
                }
            }
            if held > FILES_PASSED_MAX {
                return None;
            }
        }
    }

    pub(crate) fn is_due(&self, class: &Class, now: Time) -> bool {
        self.expires(class).is_some_and(|expires| expires <= now)
    }

    /// When the oldest page of a class is to go home.
    pub(crate) fn expires(&self, class: &Class) -> Option<Time> {
        self.expires_ms(class.oldest_ms())
    }

    /// When data that became dirty at `oldest_ms` is to go home.
    pub(crate) fn expires_ms(&self, oldest_ms: Option<u64>) -> Option<Time> {
        oldest_ms.map(|oldest| match oldest {
            OVERDUE => Time::ZERO,
            oldest => Time::from_millis(oldest) + self.config.dirty_expire,
        })
    }
}
