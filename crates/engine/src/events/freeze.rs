//! Freezes: a file is held still while its home is changed under it.
//!
//! Truncate, fallocate, copy_file_range and seeks for holes act on the file at home. Such a *section* asks for the file,
//! waits until nothing of it is under way, acts, and says what changed. Events on the file that come meanwhile queue, in
//! order.

use weir_frames::PAGE_BYTES;

use crate::command::{Durability, FileId, FreezeEnd, Outcome, Reply, RequestId, Section};
use crate::engine::Engine;
use crate::error::Error;
use crate::journal::FileJournal;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::gate::{Event, Gate};
use crate::waiters::sync::SyncFor;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// Asks for the file. When granted (at once, or as [`Reply::Frozen`]) nothing of it is in
    /// transfer and nothing will be until [`Engine::thaw`]; other events on it queue.
    ///
    /// # Errors
    /// Those of bringing data home before the section; the file is not frozen then.
    pub fn freeze(
        &mut self,
        request: RequestId,
        file: FileId,
        section: impl Into<Section>,
        now: Time,
    ) -> Outcome<()> {
        let section = section.into();
        let Some(file) = self.cache.files.find(file) else {
            return Outcome::Done(Err(Error::NotAttached));
        };
        self.clock = now;
        if self.cache.files[file].waiters.gate != Gate::Open {
            self.cache.files[file].waiters.queue.push_back((request, Event::Freeze { section }));
            return Outcome::Pending;
        }
        if self.close_gate(Some(request), file, section, now) {
            Outcome::Done(Ok(()))
        } else {
            Outcome::Pending
        }
    }

    /// Closes an open gate; true if the section may start at once.
    pub(crate) fn close_gate(
        &mut self,
        request: Option<RequestId>,
        file: FileIx,
        section: Section,
        now: Time,
    ) -> bool {
        self.cache.files[file].waiters.gate = Gate::Closing { request, section, flushing: false };
        self.cache.files[file].tell_grant();
        self.hurry(file);
        self.start_section(file, now)
    }

    /// Starts the section a closing gate waits for, or the flush it needs first; true if the
    /// section started.
    pub(crate) fn start_section(&mut self, file: FileIx, now: Time) -> bool {
        let Gate::Closing { request, section, flushing: false } =
            self.cache.files[file].waiters.gate
        else {
            return false;
        };
        let Section { flush, changes_from } = section;
        // Also when a flush is over: a write that was under way when the gate closed, waiting for
        // space, may have been applied since.
        let flushes = flush.is_some_and(|(from, to)| self.cache.has_unclean(file, from, to));
        let revokes = changes_from.is_some_and(|from| self.must_revoke_from(file, from));
        if flushes || revokes {
            self.cache.files[file].waiters.gate =
                Gate::Closing { request, section, flushing: true };
            let done = SyncFor::Freeze { revokes };
            let unclean = self.cache.files[file].is_unclean();
            let id = self.add_waiter(file, Durability::Data, done);
            match unclean {
                true => self.pump(now),
                false => self.all_home(file, id),
            }
            return false;
        }
        if !self.is_quiet(file, request.is_none()) {
            return false;
        }
        self.cache.files[file].waiters.gate = Gate::Frozen;
        true
    }

    /// Whether a replay after a crash would write the file's records over the section's changes from byte
    /// `from` on.
    pub(crate) fn must_revoke_from(&self, file: FileIx, from: u64) -> bool {
        let usable = self.journal.as_ref().is_some_and(FileJournal::is_usable);
        usable && !self.config.undone.cut && self.has_records_from(file, from)
    }

    /// Whether nothing of the file is under way. Syncs that wait for its repair do not count, and for a
    /// repair, neither do syncs that wait for pages to go home. A repair needs all of the file's records to
    /// be durable in the log.
    pub(crate) fn is_quiet(&self, file: FileIx, for_repair: bool) -> bool {
        if for_repair && self.undurable_record(file).is_some() {
            return false;
        }
        let file = &self.cache.files[file];
        let waiting = file.waiters.syncs.iter().all(|sync| match for_repair {
            true => !sync.syncing_home,
            false => sync.awaits_repair,
        });
        file.home.io_in_flight == 0 && file.waiters.active == 0 && waiting
    }

    /// Grants the section a closing gate waits for, if the file is quiet.
    pub(crate) fn try_grant(&mut self, file: FileIx, now: Time) {
        if let Gate::Closing { request: None, .. } = self.cache.files[file].waiters.gate
            && self.is_repaired(file)
        {
            self.cache.files[file].waiters.gate = Gate::Open;
            return self.open_gate(file, now);
        }
        if let Gate::Closing { request, .. } = self.cache.files[file].waiters.gate
            && self.start_section(file, now)
        {
            match request {
                Some(request) => self.reply(request, Reply::Frozen(Ok(()))),
                None => self.repair(file),
            }
        }
    }

    /// The section is over. Cached pages that `end.discard` touches are dropped, dirty or not: the
    /// caller flushed what of them must not be lost. Queued events go on.
    pub fn thaw(&mut self, file: FileId, end: FreezeEnd, now: Time) {
        self.clock = now;
        let file = self.cache.files.find(file).expect("a frozen file stays attached");
        assert_eq!(self.cache.files[file].waiters.gate, Gate::Frozen, "the section was granted");
        if let Some((from, to)) = end.discard {
            self.drop_range(file, from, to);
            let (first, last) = (from / PAGE * PAGE, to.saturating_add(PAGE - 1) / PAGE * PAGE);
            self.cache.files[file].set_free(first, last);
        }
        if let Some(size) = end.size {
            self.resize(file, size);
        }
        self.cache.files[file].home.layout.stale = true;
        self.cache.files[file].home.unsynced |= end.discard.is_some() || end.size.is_some();
        self.cache.files[file].waiters.gate = Gate::Open;
        self.open_gate(file, now);
    }

    /// Runs what queued behind a gate that opened, up to the next section.
    pub(crate) fn open_gate(&mut self, file: FileIx, now: Time) {
        self.cache.files[file].tell_grant();
        if self.cache.files[file].waiters.is_urgent() {
            self.write_back.sweeps.urgent.insert(file);
        }
        while self.cache.files[file].waiters.gate == Gate::Open {
            let Some((request, event)) = self.cache.files[file].waiters.queue.pop_front() else {
                break;
            };
            self.run(request, file, event, now);
        }
        self.progress(file, now);
        self.pump(now);
        self.feed_starved(now);
    }

    /// Opens gates whose section failed before it began.
    pub(crate) fn reopen_gates(&mut self, now: Time) {
        while let Some(file) = self.waiters.reopened.pop() {
            self.open_gate(file, now);
        }
    }

    /// The flush a freeze asked for is over.
    pub(crate) fn flushed_for_freeze(&mut self, file: FileIx, result: Result<(), Error>) {
        let interrupted = self.cache.files[file].waiters.interrupted;
        let Gate::Closing { request, section, .. } =
            interrupted.unwrap_or(self.cache.files[file].waiters.gate)
        else {
            panic!("only a closing gate flushes");
        };
        let next = match result {
            Ok(()) => Gate::Closing { request, section, flushing: false },
            Err(_) => {
                let request = request.expect("a repair flushes nothing");
                self.reply(request, Reply::Frozen(result));
                Gate::Open
            }
        };
        if interrupted.is_some() {
            // When the repair is over.
            self.cache.files[file].waiters.interrupted = Some(next);
            return;
        }
        self.cache.files[file].waiters.gate = next;
        if next == Gate::Open {
            self.waiters.reopened.push(file);
        }
    }
}
