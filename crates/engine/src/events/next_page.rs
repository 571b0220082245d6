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

    fn next_urgent_of(&mut self, awaited: bool) -> Option<PageIx> {
        let first = self.write_back.sweeps.urgent_next;
        let after = self.next_urgent_in(first, FileIx(u32::MAX), awaited);
        after.or_else(|| self.next_urgent_in(FileIx(0), first, awaited))
    }

    /// As above, of the files from one on, and before another one.
    fn next_urgent_in(&mut self, first: FileIx, end: FileIx, awaited: bool) -> Option<PageIx> {
        let mut at = first;
        while let Some(&file) = self.write_back.sweeps.urgent.range(at..end).next() {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use weir_frames::{FramePool, PAGE_BYTES};

    use super::*;
    use crate::command::{
        Command, Completion, Durability, FileId, HomeAttributes, IoId, Outcome, Output, RequestId,
    };
    use crate::config::Config;

    const BUSY: FileId = FileId(1);
    const OTHER: FileId = FileId(2);

    /// The writes that are given to home; all else ends at once.
    fn take_writes(engine: &mut Engine, now: Time, writes: &mut VecDeque<(IoId, FileId)>) {
        engine.dispatch();
        while let Some(output) = engine.next_output() {
            let (io, completion) = match output {
                Output::Command(Command::Write { io, file, .. }) => {
                    writes.push_back((io, file));
                    continue;
                }
                Output::Command(Command::Sync { io, .. }) => {
                    (io, Completion::Synced { result: Ok(()) })
                }
                Output::Command(Command::Reserve { io, .. }) => {
                    (io, Completion::Reserved { result: Ok(()) })
                }
                _ => continue,
            };
            engine.complete(io, completion, now);
            engine.dispatch();
        }
    }

    #[test]
    fn a_file_that_is_synced_all_the_time_leaves_room_for_syncs_of_others() {
        let config = Config {
            memory_bytes_max: 16 << 20,
            patch_bytes_max: 1 << 20,
            destages_in_flight_max: 1,
            ..Config::default()
        };
        let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
        let now = Time::from_millis(1);
        for file in [BUSY, OTHER] {
            let home = HomeAttributes { size: 0, dense: true, write_unit: 4096, readable: true };
            engine.attach(file, home);
        }
        let (mut writes, mut requests) = (VecDeque::new(), 0);
        let mut write_and_sync = |engine: &mut Engine, writes: &mut _, file, number: u64| {
            let page = [7; PAGE_BYTES];
            let offset = number * PAGE_BYTES as u64;
            let _ = engine.write(RequestId(requests), file, offset, &page, Durability::None, now);
            take_writes(engine, now, writes);
            let synced = engine.sync(RequestId(requests + 1), file, Durability::Data, now);
            assert_eq!(synced, Outcome::Pending);
            requests += 2;
            take_writes(engine, now, writes);
        };
        // Single pages, with gaps, so that each is a write of its own.
        for nth in 0..4 {
            write_and_sync(&mut engine, &mut writes, BUSY, 2 * nth);
        }
        write_and_sync(&mut engine, &mut writes, OTHER, 0);
        let first = (4..).position(|nth| {
            assert!(nth < 100, "the other file's sync waits for ever");
            write_and_sync(&mut engine, &mut writes, BUSY, 2 * nth);
            let (io, file) = writes.pop_front().expect("something is on its way");
            engine.complete(io, Completion::Written { result: Ok(()) }, now);
            take_writes(&mut engine, now, &mut writes);
            file == OTHER
        });
        assert!(first.is_some_and(|nth| nth <= 2));
    }
}
