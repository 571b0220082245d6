//! Freezes: no I/O on a file is in flight while the caller changes the file at home.
//!
//! Truncate, fallocate, copy_file_range and seeks for holes act on the file at home. The caller asks for a *freeze*. The
//! engine flushes what the caller names, waits until no I/O on the file is in flight, and grants the freeze. The caller
//! changes the file at home, then thaws it and says what changed. Events on the file that arrive in between queue, in
//! order.

use weir_frames::PAGE_BYTES;

use crate::command::{Durability, FileId, FreezeEnd, FreezeScope, Outcome, Reply, RequestId};
use crate::engine::Engine;
use crate::error::Error;
use crate::journal::FileJournal;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::freeze_state::{Event, FreezeState};
use crate::waiters::sync::SyncFor;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// Freezes a file. When the freeze is granted (at once, or as [`Reply::Frozen`]), no I/O on the file is in
    /// flight, and none starts until [`Engine::thaw`]; other events on the file queue.
    ///
    /// # Errors
    /// Those of the flush before the freeze; the file is not frozen then.
    pub fn freeze(
        &mut self,
        request: RequestId,
        file: FileId,
        scope: impl Into<FreezeScope>,
        now: Time,
    ) -> Outcome<()> {
        let scope = scope.into();
        let Some(file) = self.cache.files.find(file) else {
            return Outcome::Done(Err(Error::NotAttached));
        };
        self.clock = now;
        if self.cache.files[file].waiters.freeze != FreezeState::Thawed {
            self.cache.files[file].waiters.queue.push_back((request, Event::Freeze { scope }));
            return Outcome::Pending;
        }
        if self.begin_freeze(Some(request), file, scope, now) {
            Outcome::Done(Ok(()))
        } else {
            Outcome::Pending
        }
    }

    /// Begins to freeze a thawed file; true if the file is frozen at once.
    pub(crate) fn begin_freeze(
        &mut self,
        request: Option<RequestId>,
        file: FileIx,
        scope: FreezeScope,
        now: Time,
    ) -> bool {
        self.cache.files[file].waiters.freeze =
            FreezeState::Freezing { request, scope, flushing: false };
        self.cache.files[file].tell_grant();
        self.hurry(file);
        self.continue_freeze(file, now)
    }

    /// Freezes a file whose freeze has begun, or starts the flush that must come first; true if the file is
    /// now frozen.
    pub(crate) fn continue_freeze(&mut self, file: FileIx, now: Time) -> bool {
        let FreezeState::Freezing { request, scope, flushing: false } =
            self.cache.files[file].waiters.freeze
        else {
            return false;
        };
        let FreezeScope { flush, changes_from, .. } = scope;
        // Checked again after a flush: a write that was waiting for space when the freeze began may have been
        // applied since.
        let flushes = flush.is_some_and(|(from, to)| self.cache.has_unclean(file, from, to));
        let revokes = !self.logs_size(file, scope)
            && changes_from.is_some_and(|from| self.must_revoke_from(file, from));
        if flushes || revokes {
            self.cache.files[file].waiters.freeze =
                FreezeState::Freezing { request, scope, flushing: true };
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
        match self.log_size(file, scope) {
            Ok(false) => {}
            Ok(true) => return false,
            Err(kind) => {
                self.flushed_for_freeze(file, Err(Error::Home(kind)));
                return false;
            }
        }
        let of_file = &mut self.cache.files[file];
        of_file.waiters.freeze = FreezeState::Frozen;
        of_file.settled.at_freeze = of_file.settled.losses;
        true
    }

    /// Whether a replay after a crash would write the file's records over changes at home from byte `from` on.
    pub(crate) fn must_revoke_from(&self, file: FileIx, from: u64) -> bool {
        let usable = self.journal.as_ref().is_some_and(FileJournal::is_usable);
        usable && !self.config.undone.cut && self.has_records_from(file, from)
    }

    /// Whether no request or I/O of the file is in progress. Syncs that wait for its repair do not count. For a
    /// repair, syncs that wait for pages to go home do not count either, and all of the file's records must be
    /// durable in the log.
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

    /// Grants a freeze that has begun, if the file is quiet.
    pub(crate) fn try_freeze(&mut self, file: FileIx, now: Time) {
        if let FreezeState::Freezing { request: None, .. } = self.cache.files[file].waiters.freeze
            && self.is_repaired(file)
        {
            self.cache.files[file].waiters.freeze = FreezeState::Thawed;
            return self.run_queued(file, now);
        }
        if let FreezeState::Freezing { request, .. } = self.cache.files[file].waiters.freeze
            && self.continue_freeze(file, now)
        {
            match request {
                Some(request) => self.reply(request, Reply::Frozen(Ok(()))),
                None => self.repair(file),
            }
        }
    }

    /// Ends a freeze. Cached pages that `end.discard` touches are dropped. The freeze has flushed them: those that are dirty
    /// are so because a sync of home failed since. Queued events run.
    pub fn thaw(&mut self, file: FileId, end: FreezeEnd, now: Time) {
        self.clock = now;
        let file = self.cache.files.find(file).expect("a frozen file stays attached");
        assert_eq!(
            self.cache.files[file].waiters.freeze,
            FreezeState::Frozen,
            "the freeze was granted"
        );
        if let Some((from, to)) = end.discard {
            // First: dropping ends waits of syncs. And before the size: of a file that is empty nothing is missing.
            if end.written {
                self.cache.files[file].settled.written_while_frozen();
            }
            self.drop_range(file, from, to);
            let (first, last) = (from / PAGE * PAGE, to.saturating_add(PAGE - 1) / PAGE * PAGE);
            self.cache.files[file].set_free(first, last);
        }
        if let Some(size) = end.size {
            self.resize(file, size);
        }
        let of_file = &mut self.cache.files[file];
        of_file.home.layout.stale = true;
        // The log has a size that was logged.
        let is_logged = of_file.logged.resizing.is_some();
        of_file.home.unsynced |= end.discard.is_some() || end.size.is_some() && !is_logged;
        if of_file.home.unsynced && !self.may_log(file) {
            self.is_not_served(file);
        }
        self.size_is_home(file, end.size.is_some());
        self.cache.files[file].waiters.freeze = FreezeState::Thawed;
        self.run_queued(file, now);
    }

    /// Runs the events that queued while the file was frozen, up to the next freeze.
    pub(crate) fn run_queued(&mut self, file: FileIx, now: Time) {
        self.cache.files[file].tell_grant();
        if self.cache.files[file].waiters.is_urgent() {
            self.write_back.sweeps.urgent.insert(file);
        }
        while self.cache.files[file].waiters.freeze == FreezeState::Thawed {
            let Some((request, event)) = self.cache.files[file].waiters.queue.pop_front() else {
                break;
            };
            self.run(request, file, event, now);
        }
        self.progress(file, now);
        self.pump(now);
        self.feed_starved(now);
    }

    /// Runs the queues of files whose freeze failed before it was granted.
    pub(crate) fn end_abandoned_freezes(&mut self, now: Time) {
        while let Some(file) = self.waiters.abandoned_freezes.pop() {
            self.run_queued(file, now);
        }
    }

    /// The flush before a freeze has ended.
    pub(crate) fn flushed_for_freeze(&mut self, file: FileIx, result: Result<(), Error>) {
        let interrupted = self.cache.files[file].waiters.interrupted;
        let FreezeState::Freezing { request, scope, .. } =
            interrupted.unwrap_or(self.cache.files[file].waiters.freeze)
        else {
            panic!("only a freeze that has begun flushes");
        };
        let next = match result {
            Ok(()) => FreezeState::Freezing { request, scope, flushing: false },
            Err(_) => {
                self.size_is_home(file, false);
                let request = request.expect("a repair flushes nothing");
                self.reply(request, Reply::Frozen(result));
                FreezeState::Thawed
            }
        };
        if interrupted.is_some() {
            // Takes effect when the repair has ended.
            self.cache.files[file].waiters.interrupted = Some(next);
            return;
        }
        self.cache.files[file].waiters.freeze = next;
        if next == FreezeState::Thawed {
            self.waiters.abandoned_freezes.push(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_frames::FramePool;

    use super::*;
    use crate::command::{Command, Completion, HomeAttributes, Output};
    use crate::config::Config;
    use crate::error::ErrorKind;

    const FILE: FileId = FileId(7);
    const FREEZE: RequestId = RequestId(1);

    /// The answers, as text, when home does at once what it is given.
    fn answers(engine: &mut Engine, now: Time) -> Vec<String> {
        let mut answers = Vec::new();
        loop {
            engine.dispatch();
            match engine.next_output() {
                None => return answers,
                Some(Output::Command(Command::Write { io, .. })) => {
                    engine.complete(io, Completion::Written { result: Ok(()) }, now);
                }
                Some(Output::Command(Command::Sync { io, .. })) => {
                    engine.complete(io, Completion::Synced { result: Ok(()) }, now);
                }
                Some(Output::Command(Command::Reserve { io, .. })) => {
                    engine.complete(io, Completion::Reserved { result: Ok(()) }, now);
                }
                Some(Output::Reply { reply, .. }) => answers.push(format!("{reply:?}")),
                Some(_) => {}
            }
        }
    }

    fn synced(engine: &mut Engine, now: Time) -> Result<(), ErrorKind> {
        let outcome = engine.sync(RequestId(9), FILE, Durability::Data, now);
        let said = match outcome {
            Outcome::Done(result) => vec![format!("Synced({result:?})")],
            Outcome::Pending => answers(engine, now),
        };
        match said.concat().as_str() {
            "Synced(Ok(()))" => Ok(()),
            "Synced(Err(Home(Io)))" => Err(ErrorKind::Io),
            other => panic!("{other}"),
        }
    }

    /// What syncs say after a sync of home as a whole failed while the first page of a file was changed at home: one that arrived in
    /// between, and one after it.
    fn after_a_loss(written: bool) -> (String, Result<(), ErrorKind>) {
        let config =
            Config { memory_bytes_max: 16 << 20, patch_bytes_max: 1 << 20, ..Config::default() };
        let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
        let now = Time::from_millis(1);
        let home = HomeAttributes { size: 4 * PAGE, dense: true, write_unit: 512, readable: true };
        engine.attach(FILE, home);
        assert_eq!(synced(&mut engine, now), Ok(()));
        let data = vec![1; PAGE as usize];
        let _ = engine.write(RequestId(2), FILE, 0, &data, Durability::None, now);
        let scope = FreezeScope::changing(Some((0, PAGE)), 0);
        assert_eq!(engine.freeze(FREEZE, FILE, scope, now), Outcome::Pending);
        assert_eq!(answers(&mut engine, now), ["Frozen(Ok(()))"]);
        engine.home_sync_failed(ErrorKind::Io, None, now);
        let between = engine.sync(RequestId(3), FILE, Durability::Data, now);
        assert_eq!(between, Outcome::Pending);
        engine.thaw(FILE, FreezeEnd { discard: Some((0, PAGE)), size: None, written }, now);
        let said = answers(&mut engine, now).concat();
        engine.check_invariants();
        (said, synced(&mut engine, now))
    }

    #[test]
    fn bytes_that_home_wrote_while_a_sync_failed_are_gone() {
        assert_eq!(after_a_loss(true), ("Synced(Err(Home(Io)))".into(), Err(ErrorKind::Io)));
        // A hole of whole pages has no bytes.
        assert_eq!(after_a_loss(false), ("Synced(Ok(()))".into(), Ok(())));
    }
}
