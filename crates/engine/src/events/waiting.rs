//! Requests that wait for pages, for memory or for their turn, and how they continue.

use crate::cache::page::PageIo;
use crate::command::{Reply, RequestId};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::{FileIx, PageIx};
use crate::time::Time;
use crate::waiters::freeze_state::{Event, FreezeState};
use crate::waiters::request::{Pending, Step, Waited};

/// Number of consecutive failed fetches after which writers that wait for patch memory fail.
pub(crate) const FETCHES_FAILED_MAX: usize = 16;

impl Engine {
    /// Wakes the requests that wait for a page. With an error, requests that needed the page fail.
    pub(crate) fn wake(&mut self, ix: PageIx, error: Option<ErrorKind>, now: Time) {
        if !self.cache.pages[ix].awaited {
            return;
        }
        let waiters = self.waiters.of_pages.remove(&ix).expect("an awaited page has waiters");
        // The pin keeps the page in the table while the woken requests run.
        self.cache.pages[ix].awaited = false;
        self.update(ix, |page| page.pins += 1);
        for request in waiters {
            let Some(
                Pending::Read { remaining, failed, .. } | Pending::Write { remaining, failed, .. },
            ) = self.waiters.pending.get_mut(&request)
            else {
                panic!("only reads and writes wait for pages");
            };
            *remaining -= 1;
            *failed = failed.or(error);
            if *remaining == 0 {
                self.resume(request, now);
            }
        }
        self.update(ix, |page| page.pins -= 1);
    }

    pub(crate) fn wait_for(&mut self, ix: PageIx, request: RequestId) {
        self.cache.pages[ix].awaited = true;
        if self.cache.pages[ix].io != PageIo::None {
            self.hurry(self.cache.pages[ix].file);
        }
        self.waiters.of_pages.entry(ix).or_default().push(request);
    }

    pub(crate) fn resume(&mut self, request: RequestId, now: Time) {
        match self.waiters.pending.remove(&request) {
            Some(Pending::Read { file, offset, len, pinned, failed, .. }) => {
                self.resume_read(request, file, offset, len, &pinned, failed, now);
            }
            Some(Pending::Write {
                file,
                partial_pages,
                patch_bytes,
                failed,
                range,
                durability,
                ..
            }) => {
                self.waiters.blocked_patch_bytes -= patch_bytes;
                let waited = Waited { partial_pages, range, durability };
                self.resume_write(request, file, waited, failed, now);
            }
            other => panic!("only reads and writes are resumed, not {other:?}"),
        }
    }

    /// Runs an event that had to wait; it may have to wait again.
    pub(crate) fn run(&mut self, request: RequestId, file: FileIx, event: Event, now: Time) {
        match event {
            Event::Write { target, data, durability } => {
                match self.try_write(request, file, target, &data, durability, now) {
                    Step::Done(result) => self.reply(request, Reply::Written(result)),
                    Step::Pending => {}
                    Step::Starved => {
                        self.starve(request, file, Event::Write { target, data, durability });
                    }
                }
            }
            Event::Read { offset, len } => match self.try_read(request, file, offset, len, now) {
                Step::Done(result) => self.reply(request, Reply::Read(result)),
                Step::Pending => {}
                Step::Starved => self.starve(request, file, event),
            },
            Event::Freeze { scope } => {
                if self.begin_freeze(Some(request), file, scope, now) {
                    self.reply(request, Reply::Frozen(Ok(())));
                }
            }
        }
    }

    pub(crate) fn starve(&mut self, request: RequestId, file: FileIx, event: Event) {
        self.cache.files[file].waiters.starved += 1;
        self.waiters.starved.push_back((request, file, event));
    }

    /// Tries starved requests again, in order, until one is starved again.
    pub(crate) fn feed_starved(&mut self, now: Time) {
        self.fail_hopeless(now);
        for _ in 0..self.waiters.starved.len() {
            let Some((request, file, event)) = self.waiters.starved.pop_front() else { return };
            let waiting = self.waiters.starved.len();
            self.cache.files[file].waiters.starved -= 1;
            if self.cache.files[file].waiters.freeze == FreezeState::Thawed {
                self.run(request, file, event, now);
            } else {
                self.cache.files[file].waiters.queue.push_back((request, event));
            }
            if self.waiters.starved.len() > waiting {
                // Starved again: it keeps its place at the front.
                let last = self.waiters.starved.pop_back().expect("it was just pushed");
                self.waiters.starved.push_front(last);
                return;
            }
            self.progress(file, now);
        }
    }

    /// Fails writers that wait for dirty data to go home if it cannot: every dirty page has failed since the last success, or is of a
    /// file that home refuses to make; or they wait for patches whose pages cannot be fetched, or for a log of which home refuses what would
    /// free it. Their data was not taken.
    pub(crate) fn fail_hopeless(&mut self, now: Time) {
        let Some((_, file, event)) = self.waiters.starved.front() else { return };
        let patches_full = self.lacks_patch_memory(*file, event);
        let full = self.cache.census.unclean_frames >= self.dirty_bound() || patches_full;
        // Patches over spilled ones cannot be tried before the spilled ones are read back.
        let (no_files, refused) = self.refused_files(now);
        let tried = self.cache.census.unclean - self.cache.dirty.over.len() - refused;
        let least = tried.max(usize::from(refused == 0));
        let all_failed = full && self.device.failures.in_a_row >= least;
        let none_left = self.cache.dirty.patched.pages().is_empty()
            && self.cache.dirty.returned.is_empty()
            && self.device.in_flight.sweep_fetches == 0;
        let unfetched = patches_full
            && !self.cache.dirty.retry.is_empty()
            && self.device.failures.fetches > if none_left { 0 } else { FETCHES_FAILED_MAX };
        // The patches lie over spilled ones in a log that cannot be read.
        let stuck = patches_full && none_left && self.cache.spill.is_stuck();
        // Every frame holds a page that failed: readers cannot get one either.
        let no_frames =
            all_failed && self.cache.frames_in_flight == 0 && self.cache.replacement.len() == 0;
        let no_patches = unfetched || stuck;
        let no_log = self.log_is_refused(now);
        if !all_failed && !no_patches && no_log.is_none() {
            return;
        }
        let last = self.device.failures.last;
        let of_memory = if tried == 0 { no_files.unwrap_or(last) } else { last };
        for (request, file, event) in std::mem::take(&mut self.waiters.starved) {
            let hopeless = match &event {
                Event::Write { .. } if all_failed => Some(of_memory),
                Event::Write { .. } if no_patches && self.lacks_patch_memory(file, &event) => {
                    Some(last)
                }
                Event::Write { target, data, .. } => {
                    no_log.filter(|_| self.awaits_log_space(file, *target, data.len()))
                }
                Event::Read { .. } => no_frames.then_some(of_memory),
                Event::Freeze { .. } => None,
            };
            if let Some(kind) = hopeless {
                self.cache.files[file].waiters.starved -= 1;
                self.reply(
                    request,
                    match event {
                        Event::Read { .. } => Reply::Read(Err(kind.into())),
                        _ => Reply::Written(Err(kind.into())),
                    },
                );
            } else {
                self.waiters.starved.push_back((request, file, event));
            }
        }
    }

    /// Why home has long refused to make files, and the number of dirty pages that wait for that; they are on no list of those that go
    /// home.
    fn refused_files(&self, now: Time) -> (Option<ErrorKind>, usize) {
        let patience = self.refusal_patience();
        let Some(kind) = self.device.failures.no_files.and_then(|no| no.lasting(patience, now))
        else {
            return (None, 0);
        };
        let unbound = self.cache.files.iter().filter(|(_, file)| file.is_unbound());
        // Spilled pages are not in the table.
        (Some(kind), unbound.map(|(_, file)| file.dirty_pages - file.spilled_pages).sum())
    }
}
