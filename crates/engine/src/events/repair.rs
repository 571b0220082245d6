//! Repair: what happens after a sync of home failed.
//!
//! A failed sync makes nothing clean. The kernel may have dropped what it could not write; it reports that
//! once, and its next sync succeeds without having written it. Therefore everything of the file that was
//! given to home and is not known to be durable is rewritten before another sync of the file counts. Pages in
//! memory become dirty again, also those that were on their way when the sync failed: home may have taken them before. Contents that need the log are replayed to the file by the back end, while the
//! file is frozen. Every sync of the file waits for that, and the log keeps the file's records until a sync
//! has succeeded.
//!
//! The same procedure frees a log that is full of records whose pages cannot go home (`write_ahead`):
//! afterwards they are home.
//!
//! Where home keeps what it could not make durable ([`crate::Config::keeps_unsynced`]), nothing has to be rewritten: the syncs that
//! waited fail, and a later one covers all of it.
//!
//! Data that was never in the log and has left memory cannot be rewritten, nor can data that was at home before
//! the file was attached, or was written at home itself (copies within home, the edges of holes that are no whole pages, what ranges that were taken out or put in have moved, what
//! somebody else has changed): it is *gone*. Every sync of the file fails from then on, until the file is truncated to zero bytes or detached.

use weir_frames::PAGE_BYTES;
use weir_journal::{Counts, Retention};

use crate::cache::page::PageIo;
use crate::command::{FileId, FreezeScope, Output};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::{FileIx, Span};
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;

/// Files that are written from the log at a time. For each the log is read from its beginning, by a thread of the back end.
const REDOS_MAX: usize = 2;

impl Engine {
    /// A sync of SOURCE's whole file system failed (syncfs(2)): what came home since each file's last sync
    /// may not be durable; of these files alone, if it is known which home has `lost` something of. Says which of them are attached.
    pub fn home_sync_failed(
        &mut self,
        kind: ErrorKind,
        lost: Option<&[FileId]>,
        now: Time,
    ) -> Vec<FileId> {
        self.clock = now;
        let known = self.files_at_home(lost);
        self.lose_home(kind, lost);
        self.pump(now);
        self.pump_log(now);
        known.into_iter().map(|(_, id)| id).collect()
    }

    /// The files at home, of these if they are given.
    pub(crate) fn files_at_home(&self, of: Option<&[FileId]>) -> Vec<(FileIx, FileId)> {
        let at_home = self.cache.files.iter().filter(|(_, file)| !file.is_unbound());
        let known = at_home.map(|(ix, file)| (ix, file.id));
        known.filter(|(_, id)| of.is_none_or(|of| of.contains(id))).collect()
    }

    /// A sync of home as a whole failed. Of files that are not at home it covered nothing.
    pub(crate) fn lose_home(&mut self, kind: ErrorKind, lost: Option<&[FileId]>) {
        for (file, _) in self.files_at_home(lost) {
            self.home_lost(file, kind);
        }
    }

    /// A sync of a file's home failed.
    pub(crate) fn home_lost(&mut self, file: FileIx, kind: ErrorKind) {
        self.cache.files[file].home.attributes_changed();
        let loses = !(self.config.keeps_unsynced || self.config.undone.home_sync);
        if self.cache.files[file].discarded || !loses {
            let covered = |retention: &mut Retention| {
                retention.lose();
                retention.rewritten();
            };
            if self.journal.is_some() {
                self.change_retention(file, covered);
            }
        } else {
            if self.journal.is_some() {
                self.change_retention(file, |retention| retention.lose());
            }
            self.dirty_unsettled(file);
            let settled = &mut self.cache.files[file].settled;
            settled.losses += 1;
            settled.lost_by = Some(kind);
            if settled.evicted > settled.until {
                settled.gone = Some(kind);
            }
            if !self.cache.files[file].logged.retention.lost.is_empty() {
                let failed = self.log_has_failed();
                let settled = &mut self.cache.files[file].settled;
                if failed {
                    // Home is newer than a failed log.
                    settled.gone = Some(kind);
                } else {
                    settled.broken = Some(kind);
                    self.journal_mut().repairs.insert(file);
                }
            }
        }
        // Syncs under way began before: what they cover may be dirty again, or lost.
        let syncs = self.cache.files[file].waiters.syncs.iter_mut();
        for sync in syncs.filter(|sync| !sync.is_for_logged_size()) {
            sync.covered = Counts::default();
            sync.epoch = 0;
            if !self.config.undone.home_sync {
                sync.error.get_or_insert(kind);
            }
        }
    }

    /// Makes pages dirty again that are in memory and not known to be durable at home. Bytes of them that
    /// were not in the log are logged by the next sync, even if the page has newer bytes.
    pub(crate) fn dirty_unsettled(&mut self, file: FileIx) {
        let until = self.cache.files[file].settled.until;
        // If everything is logged, the log has all of them.
        let (logs, ordered) = (self.logs(file), self.is_ordered());
        let now = self.clock;
        for ix in self.cache.pages_of(file) {
            let page = &self.cache.pages[ix];
            if page.frame.is_none() || page.home_epoch <= until {
                continue;
            }
            let is_clean = page.io == PageIo::None && page.dirty_seq == 0;
            if !(is_clean || page.home_unlogged && page.is_unclean()) {
                continue;
            }
            let seq = if is_clean { self.cache.next_seq() } else { 0 };
            self.update(ix, |page| {
                if is_clean {
                    page.dirtied(seq, now);
                }
                if logs && !ordered {
                    page.unlogged = Span { from: 0, to: PAGE_BYTES as u16 };
                    page.spilling = 0;
                }
            });
        }
    }

    /// Starts the repairs, if the pause after the last failure is over.
    pub(crate) fn start_repairs(&mut self, now: Time) {
        if self.journal_mut().repairs.is_empty() {
            return;
        }
        for file in self.journal_mut().repairs.iter().copied().collect::<Vec<_>>() {
            self.start_repair(file, now);
        }
    }

    /// As above for one file, without the pause: a request waits for it.
    pub(crate) fn start_repair(&mut self, file: FileIx, now: Time) {
        if self.undurable_record(file).is_some() {
            self.commit_group();
        }
        let is_repaired = self.is_repaired(file);
        match self.cache.files[file].waiters.freeze {
            FreezeState::Freezing { request: None, .. } => self.try_freeze(file, now),
            _ if is_repaired => {}
            FreezeState::Thawed => {
                if self.begin_freeze(None, file, FreezeScope::unchanging(None), now) {
                    self.repair(file);
                }
            }
            // The flush before a freeze may wait for the repair.
            closing @ FreezeState::Freezing { flushing: true, .. } if self.is_quiet(file, true) => {
                self.cache.files[file].waiters.interrupted = Some(closing);
                self.cache.files[file].waiters.freeze = FreezeState::Frozen;
                self.repair(file);
            }
            FreezeState::Freezing { .. } | FreezeState::Frozen => {}
        }
    }

    /// Whether the file needs nothing of the log any more, because its data has gone home in the usual way. Then it need
    /// not be repaired.
    pub(crate) fn is_repaired(&mut self, file: FileIx) -> bool {
        let is_repaired = self.cache.files[file].logged.retention.first().is_none();
        if is_repaired && self.journal_mut().repairs.remove(&file) {
            self.cache.files[file].settled.broken = None;
            self.end_waits_for_repair(file, None);
        }
        is_repaired
    }

    /// The log failed: home is newer than its contents, so nothing is rewritten from it.
    pub(crate) fn abandon_repairs(&mut self) {
        for file in std::mem::take(&mut self.journal_mut().repairs) {
            let settled = &mut self.cache.files[file].settled;
            let failed = settled.gone.or(settled.broken.take());
            settled.gone = failed;
            if let FreezeState::Freezing { request: None, .. } =
                self.cache.files[file].waiters.freeze
            {
                self.cache.files[file].waiters.freeze = FreezeState::Thawed;
                self.waiters.abandoned_freezes.push(file);
            }
            self.end_waits_for_repair(file, failed);
        }
    }

    /// Continues or fails the syncs that wait for a file's repair.
    pub(crate) fn end_waits_for_repair(&mut self, file: FileIx, failed: Option<ErrorKind>) {
        let waiting =
            self.cache.files[file].waiters.syncs.iter_mut().filter(|sync| sync.awaits_repair);
        let waiting: Vec<u64> = waiting
            .map(|sync| {
                sync.awaits_repair = false;
                sync.error = sync.error.or(failed);
                sync.id
            })
            .collect();
        for id in waiting {
            self.all_home(file, id);
        }
    }

    /// Starts the repair of a file that was just frozen, when it is its turn.
    pub(crate) fn repair(&mut self, file: FileIx) {
        let log = self.journal_mut();
        if log.redos < REDOS_MAX {
            self.start_redo(file);
        } else {
            log.redos_next.push_back(file);
        }
    }

    /// Starts the repairs of frozen files whose turn it is. Some may not need theirs any more, or the log has failed.
    fn start_next_redos(&mut self, now: Time) {
        while self.journal_mut().redos < REDOS_MAX
            && let Some(file) = self.journal_mut().redos_next.pop_front()
        {
            if !self.is_repaired(file) && self.journal_mut().repairs.contains(&file) {
                self.start_redo(file);
            } else {
                self.cache.files[file].waiters.end_repair();
                self.continue_after_repair(file, None, now);
            }
        }
    }

    fn start_redo(&mut self, file: FileIx) {
        self.journal_mut().redos += 1;
        let log = self.journal.as_ref().expect("only files with a log are repaired");
        // The segments from there on are kept while they are needed.
        let lost = self.cache.files[file]
            .logged
            .retention
            .first()
            .expect("a file is repaired because it needs the log");
        let from = log.shared.writer().from_group(log.shared.start_of(lost));
        let until = log.shared.durable();
        let settled = &mut self.cache.files[file].settled;
        settled.repaired = settled.losses;
        self.cache.files[file].logged.redone_until = until;
        let of_file = &self.cache.files[file];
        let (id, identity) = (of_file.id, of_file.logged.identity.clone());
        let node = of_file.logged.node();
        // Home may refuse a size that it does not have yet; otherwise the file gets it afterwards.
        let mut refused = of_file.logged.refused_sizes.clone();
        refused.extend(of_file.logged.resizing.map(|resizing| resizing.lsn));
        self.stats.log_redos += 1;
        self.outputs.push_back(Output::Redo { file: id, identity, node, from, until, refused });
    }

    /// The back end's answer to [`Output::Redo`].
    pub fn redone(&mut self, file: FileId, result: Result<(), ErrorKind>, now: Time) {
        self.clock = now;
        let file = self.cache.files.find(file).expect("a frozen file stays attached");
        let settled = &self.cache.files[file].settled;
        let again = settled.losses != settled.repaired;
        self.journal_mut().redos -= 1;
        self.cache.files[file].waiters.end_repair();
        match result {
            // Another sync of home failed in the meantime, or the log did.
            Ok(()) if again || !self.journal_mut().repairs.contains(&file) => {}
            Ok(()) => {
                self.journal_mut().repairs.remove(&file);
                self.cache.files[file].settled.broken = None;
                self.cache.files[file].home.unsynced = true;
                self.cache.files[file].home.layout.stale = true;
                self.change_retention(file, |retention| retention.rewritten());
                // A commit of everything may have logged more of it meanwhile.
                let logged = &self.cache.files[file].logged;
                if logged.last.is_none_or(|last| last < logged.redone_until) {
                    self.logged_is_home(file);
                }
                // The times of what was written again are to be restored.
                self.report_clean(file);
                if self.journal_mut().behind.lacks_room.is_some() {
                    self.start_freeing(file);
                }
            }
            Err(kind) => {
                self.stats.sync_errors += 1;
                self.cannot_be_freed(kind);
            }
        }
        self.continue_after_repair(file, result.err(), now);
        self.start_next_redos(now);
        self.pump_log(now);
    }

    /// A file is not frozen any more for its repair: what waited for that goes on.
    fn continue_after_repair(&mut self, file: FileIx, failed: Option<ErrorKind>, now: Time) {
        self.end_waits_for_repair(file, failed);
        if self.cache.files[file].waiters.freeze == FreezeState::Thawed {
            self.run_queued(file, now);
            return;
        }
        if self.cache.files[file].waiters.is_urgent() {
            self.write_back.sweeps.urgent.insert(file);
        }
        self.progress(file, now);
        self.pump(now);
        self.feed_starved(now);
    }

    /// All of the file's records are at home, though not durable there.
    pub(crate) fn logged_is_home(&mut self, file: FileIx) {
        for ix in self.cache.pages_of(file) {
            if let Some(segment) = self.update(ix, |page| page.rec.take()) {
                self.change_retention(file, |retention| retention.settle(segment));
            }
        }
        self.drop_spilled(file, 0, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use weir_frames::FramePool;

    use super::*;
    use crate::command::{
        Command, Completion, Durability, HomeAttributes, LogCommand, Outcome, Reply, RequestId,
    };
    use crate::config::Config;
    use crate::testing::empty_log;

    const FILES: u64 = 5;

    /// An engine with files whose data is logged and at home, where a sync failed. Returns those of which the repair is under way.
    fn all_lost(now: Time) -> (Engine, Vec<FileId>) {
        let config =
            Config { memory_bytes_max: 16 << 20, patch_bytes_max: 1 << 20, ..Config::default() };
        let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
        engine.start_log(empty_log(1 << 20));
        for file in (0..FILES).map(FileId) {
            let home = HomeAttributes { size: 0, dense: true, write_unit: 4096, readable: true };
            engine.attach(file, home);
            engine.identify(file, &file.0.to_le_bytes());
            // The first sync brings the data home.
            for _ in 0..2 {
                let page = [7; PAGE_BYTES];
                let _ = engine.write(RequestId(1), file, 0, &page, Durability::None, now);
                let _ = engine.sync(RequestId(2), file, Durability::Data, now);
                assert_eq!(run(&mut engine, now), []);
            }
        }
        let later = now + engine.config.dirty_expire * 2;
        engine.tick(later);
        assert_eq!(run(&mut engine, later), []);
        engine.home_sync_failed(ErrorKind::Io, None, later);
        let redos = run(&mut engine, later);
        (engine, redos)
    }

    /// Ends all that the engine wants at once, but for what is to be written from the log: returns those files.
    fn run(engine: &mut Engine, now: Time) -> Vec<FileId> {
        let mut redos = Vec::new();
        loop {
            engine.dispatch();
            let (io, completion) = match engine.next_output() {
                None => break,
                Some(Output::Redo { file, .. }) => {
                    redos.push(file);
                    continue;
                }
                Some(Output::Log(LogCommand::Write { io, .. } | LogCommand::SyncHome { io })) => {
                    engine.log_completed(io, Ok(()), now);
                    continue;
                }
                Some(Output::Command(command)) => {
                    let io = command.io();
                    let completion = match command {
                        Command::Write { .. } => Completion::Written { result: Ok(()) },
                        Command::Sync { .. } => Completion::Synced { result: Ok(()) },
                        Command::Reserve { .. } => Completion::Reserved { result: Ok(()) },
                        Command::Map { .. } => Completion::Mapped { extents: Vec::new() },
                        Command::Fetch { frames, .. } => {
                            Completion::Fetched { frames, result: Ok(0) }
                        }
                    };
                    (io, completion)
                }
                Some(Output::Reply { reply: Reply::Read(result), .. }) => {
                    assert!(result.is_ok());
                    continue;
                }
                Some(_) => continue,
            };
            engine.complete(io, completion, now);
        }
        engine.check_invariants();
        redos
    }

    #[test]
    fn what_went_home_after_as_many_syncs_as_are_counted_is_written_again() {
        let config =
            Config { memory_bytes_max: 16 << 20, patch_bytes_max: 1 << 20, ..Config::default() };
        let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
        let (file, mut now) = (FileId(0), Time::from_millis(1));
        let home = HomeAttributes { size: 0, dense: true, write_unit: 4096, readable: true };
        engine.attach(file, home);
        let ix = engine.cache.files.find(file).unwrap();
        engine.cache.files[ix].settled.epoch = u32::MAX - 1;
        for _ in 0..4 {
            for is_synced in [true, false] {
                let page = [7; PAGE_BYTES];
                let _ = engine.write(RequestId(1), file, 0, &page, Durability::None, now);
                if is_synced {
                    let _ = engine.sync(RequestId(2), file, Durability::Data, now);
                }
                for _ in 0..3 {
                    now = now + engine.config.dirty_expire * 2;
                    engine.tick(now);
                    run(&mut engine, now);
                }
                assert!(!engine.has_dirty(file));
            }
            engine.home_sync_failed(ErrorKind::Io, None, now);
            assert!(engine.has_dirty(file), "home may have lost what was written after the sync");
        }
    }

    #[test]
    fn few_files_are_written_from_the_log_at_a_time() {
        let now = Time::from_millis(1);
        let (mut engine, mut under_way) = all_lost(now);
        let (now, mut repaired) = (engine.clock, Vec::new());
        while let Some(file) = under_way.pop() {
            assert!(under_way.len() < REDOS_MAX);
            repaired.push(file);
            engine.redone(file, Ok(()), now);
            under_way.extend(run(&mut engine, now));
        }
        repaired.sort_unstable_by_key(|file| file.0);
        assert_eq!(repaired, (0..FILES).map(FileId).collect::<Vec<_>>());
        for file in repaired {
            let page = [8; PAGE_BYTES];
            let written = engine.write(RequestId(3), file, 0, &page, Durability::None, now);
            assert_eq!(written, Outcome::Done(Ok(())));
        }
    }

    #[test]
    fn a_log_that_fails_meanwhile_is_not_written_to_files() {
        let (mut engine, under_way) = all_lost(Time::from_millis(1));
        let now = engine.clock;
        let page = [8; PAGE_BYTES];
        let waiting = FileId(FILES - 1);
        assert!(!under_way.contains(&waiting));
        let written = engine.write(RequestId(3), waiting, 0, &page, Durability::None, now);
        assert_eq!(written, Outcome::Pending);
        engine.log_failed(ErrorKind::Io, now);
        for file in under_way {
            engine.redone(file, Ok(()), now);
            assert_eq!(run(&mut engine, now), []);
        }
        let written = engine.write(RequestId(4), waiting, 0, &page, Durability::None, now);
        assert_eq!(written, Outcome::Done(Ok(())));
    }
}
