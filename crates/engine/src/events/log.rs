//! The redo log of an engine: its start and end, its groups, and the requests that wait for them.
//!
//! One group is in flight at a time; records appended in the meantime share the next one (group commit). Once a write of
//! the log has failed, no sync of a file succeeds any more. A sync of everything still does, and its caller makes sure
//! that the log is not replayed.

use weir_log::{Commit, Lsn, Writer};

use crate::command::{FileId, IoId, LogCommand, Output};
use crate::config::Order;
use crate::device::cost_model::Ended;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::journal::FileJournal;
use crate::journal::refused::Refused;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::sync::{SyncFor, SyncWaiter};

impl Engine {
    /// Gives the engine a redo log, before anything is attached.
    pub fn start_log(&mut self, writer: Writer) {
        self.journal = Some(FileJournal::new(writer));
        self.cache.unlogged.are_counted = self.config.order == Order::All;
    }

    /// A command on the log ended.
    pub fn log_completed(&mut self, io: IoId, result: Result<(), ErrorKind>, now: Time) {
        self.log_ended(io, result, None, now);
    }

    /// As [`Engine::log_completed`], of a sync of home that failed: it may be known which files home has `lost` something of. Says which of
    /// them are attached.
    pub fn log_lost(
        &mut self,
        io: IoId,
        kind: ErrorKind,
        lost: Option<&[FileId]>,
        now: Time,
    ) -> Vec<FileId> {
        let known = self.files_at_home(lost);
        self.log_ended(io, Err(kind), lost, now);
        known.into_iter().map(|(_, id)| id).collect()
    }

    fn log_ended(
        &mut self,
        io: IoId,
        result: Result<(), ErrorKind>,
        lost: Option<&[FileId]>,
        now: Time,
    ) {
        self.clock = now;
        let log = self.journal.as_mut().expect("there is a log");
        if log.group == Some(io) {
            log.group = None;
            self.group_ended(result, now);
        } else if log.superblock == Some(io) {
            log.superblock = None;
            match result {
                Ok(()) => {
                    log.shared.checkpointed();
                    log.refused = None;
                    log.recorded.freed(log.shared.tail(), log.shared.writer().position());
                    self.room_in_log(now);
                }
                Err(kind) => {
                    log.shared.checkpoint_failed();
                    self.log_failed(kind, now);
                }
            }
        } else {
            assert_eq!(log.home, Some(io), "a command is completed once");
            log.home = None;
            log.shared.home_synced(result.is_ok());
            if result.is_ok() {
                log.at_home.synced(log.at_home.syncing);
            }
            if let Err(kind) = result {
                self.cannot_be_freed(kind);
                self.lose_home(kind, lost);
            }
        }
        self.end_abandoned_freezes(now);
        self.pump(now);
        self.pump_log(now);
        self.feed_starved(now);
    }

    /// Everything is home and durable there: marks the log as empty. This is the last command on the log; false if there
    /// is none to wait for.
    pub fn close_log(&mut self) -> bool {
        let Some(log) = &mut self.journal else { return false };
        let Some(commit) = log.shared.close() else { return false };
        let io = self.log_command(commit);
        self.journal_mut().superblock = Some(io);
        true
    }

    /// Whether a write of the log has failed. Then no sync of a file succeeds any more, only [`Engine::sync_all`], and the
    /// log must not be replayed over the data which that brought home.
    pub fn log_has_failed(&self) -> bool {
        self.journal.as_ref().is_some_and(|log| log.failed.is_some())
    }

    /// Whether commands on the log are in flight.
    pub fn log_is_busy(&self) -> bool {
        self.journal
            .as_ref()
            .is_some_and(|log| log.shared.is_under_way() || self.cache.spill.is_reading())
    }

    /// Whether a position is durable, or there is no log to wait for.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        self.journal.as_ref().is_none_or(|log| log.shared.is_durable(lsn))
    }

    /// Whether a sync waits for the log.
    pub(crate) fn log_is_awaited(&self) -> bool {
        self.journal.as_ref().is_some_and(|log| !log.waiting.is_empty())
    }

    /// Makes a sync wait for a position.
    pub(crate) fn wait_for_log(&mut self, lsn: Lsn, file: FileIx, id: u64) {
        let syncs = &mut self.cache.files[file].waiters.syncs;
        let sync = syncs.iter_mut().find(|sync| sync.id == id).expect("a waiter stays");
        // It may wait for names already, of which the last record may be a later one.
        sync.lsn = sync.lsn.max(Some(lsn));
        self.journal_mut().waiting.push(lsn, (file, id));
        self.commit_group();
    }

    /// Closes the open group and sends it, unless another one is in flight. If everything is logged, it takes everything.
    pub(crate) fn commit_group(&mut self) {
        if self.is_ordered() && self.journal_mut().group.is_none() {
            if !self.config.undone.moment {
                self.log_everything();
            }
            self.journal_mut().unlogged_since = None;
        }
        if let Some(commit) = self.journal_mut().shared.commit() {
            self.stats.log_groups += 1;
            let blocks = commit.blocks.len();
            self.stats.log_blocks += blocks as u64;
            let io = self.log_command(commit);
            let sent = self.clock;
            let log = self.journal_mut();
            log.group = Some(io);
            log.group_sent = (blocks, sent);
        }
    }

    pub(crate) fn group_ended(&mut self, result: Result<(), ErrorKind>, now: Time) {
        if let Err(kind) = result {
            self.journal_mut().shared.commit_failed();
            return self.log_failed(kind, now);
        }
        let log = self.journal_mut();
        let (pages, sent) = log.group_sent;
        let took = now.since(sent);
        log.cost.ended(Ended { pages, took, service: took, ahead: 0 });
        log.shared.committed();
        let durable = log.shared.durable();
        let ready = each_once(log.waiting.ready(durable));
        let awaited = !log.waiting.is_empty()
            || log.behind.commands.waits_beyond(durable)
            || log.names.waiting.waits_beyond(durable);
        let wanted = awaited || log.shared.is_open_group_long() || !log.repairs.is_empty();
        self.send_behind(durable);
        self.names_committed(durable);
        self.room_in_log(now);
        self.finish_spill(durable);
        if wanted || self.cache.spill.is_under_way() || self.commit_is_due() {
            self.commit_group();
        }
        for (file, id) in ready {
            self.advance_sync(file, id);
            self.progress(file, now);
        }
    }

    /// No sync succeeds from now on. Reads and writes go on, and data still goes home.
    pub(crate) fn log_failed(&mut self, kind: ErrorKind, now: Time) {
        let log = self.journal_mut();
        log.failed.get_or_insert(kind);
        let waiting = each_once(log.waiting.take_all());
        let leaving = std::mem::take(&mut log.leaving);
        self.cache.fail_spill();
        self.send_behind(Lsn(u64::MAX));
        self.abandon_repairs();
        self.fail_names(kind);
        self.stats.log_errors += 1;
        for file in leaving {
            self.progress(file, now);
        }
        for (file, id) in waiting {
            self.fail_sync(file, id, kind);
            self.progress(file, now);
        }
        self.fail_unbound_syncs(kind, now);
    }

    /// The log has failed: programs do not wait for files that home may never have. Their syncs fail. Nothing need be freed of
    /// the log any more: what is to be done to a file does not wait for that, either.
    fn fail_unbound_syncs(&mut self, kind: ErrorKind, now: Time) {
        self.end_unbound_syncs(now, |sync| match sync.done {
            SyncFor::Freeze { revokes: true } => Some(Ok(())),
            SyncFor::Sync(_) | SyncFor::Write(_) | SyncFor::Checkpoint | SyncFor::Freeing => {
                Some(Err(kind))
            }
            // Home may be well, and have the file soon. Otherwise `home_refuses_files` follows.
            SyncFor::All(_) | SyncFor::Freeze { revokes: false } => None,
        });
    }

    /// Home refuses to make files, and it is not known that this will change: nothing waits any longer for those that it does
    /// not have. The data stays dirty, and goes home if home has the file after all. If this is said for a while and home makes no file, writers
    /// do not wait for the memory of those files either ([`Engine::write`]).
    pub fn home_refuses_files(&mut self, kind: ErrorKind, now: Time) {
        self.clock = now;
        let patience = self.refusal_patience();
        let failures = &mut self.device.failures;
        failures.no_files = Refused::again(failures.no_files, kind, now, patience);
        self.end_unbound_syncs(now, |sync| {
            let awaits_home = sync.remaining > 0 || sync.syncing_home || sync.awaits_repair;
            awaits_home.then_some(Err(kind))
        });
        self.end_abandoned_freezes(now);
        self.pump(now);
        self.feed_starved(now);
    }

    /// Home does not have the unbound files, and was asked for them: the syncs of everything ([`Engine::sync_all`]) that have begun
    /// do not wait for those files, and fail.
    pub fn sync_all_without_unbound(&mut self, kind: ErrorKind, now: Time) {
        self.clock = now;
        self.end_unbound_syncs(now, |sync| {
            let awaits_home = sync.remaining > 0 || sync.syncing_home || sync.awaits_repair;
            (awaits_home && matches!(sync.done, SyncFor::All(_))).then_some(Err(kind))
        });
        self.pump(now);
        self.feed_starved(now);
    }

    /// Ends the syncs of unbound files for which `end` says so, with the result that it gives.
    fn end_unbound_syncs(
        &mut self,
        now: Time,
        end: impl Fn(&SyncWaiter) -> Option<Result<(), ErrorKind>>,
    ) {
        let files = self.cache.files.iter().filter(|(_, file)| file.is_unbound());
        let unbound: Vec<FileIx> = files.map(|(ix, _)| ix).collect();
        for file in unbound {
            let of_file = &mut self.cache.files[file];
            let mut ended = Vec::new();
            for sync in &mut of_file.waiters.syncs {
                if let Some(result) = end(sync) {
                    (sync.remaining, sync.syncing_home, sync.awaits_repair) = (0, false, false);
                    ended.push((sync.id, result));
                }
            }
            if ended.is_empty() {
                continue;
            }
            of_file.home.sync_next.retain(|id| ended.iter().all(|(ended, _)| ended != id));
            for (id, result) in ended {
                match result {
                    Ok(()) => self.advance_sync(file, id),
                    Err(kind) => self.fail_sync(file, id, kind),
                }
            }
            self.progress(file, now);
        }
    }

    pub(crate) fn log_command(&mut self, commit: Commit) -> IoId {
        let io = self.device.next_log_io();
        self.outputs.push_back(Output::Log(LogCommand::Write { io, commit }));
        io
    }

    pub(crate) fn journal_mut(&mut self) -> &mut FileJournal {
        self.journal.as_mut().expect("there is a log")
    }
}

/// Syncs that wait for the log, each once: one may wait for names first, and then for what its end logs.
fn each_once(mut syncs: Vec<(FileIx, u64)>) -> Vec<(FileIx, u64)> {
    syncs.sort_unstable_by_key(|&(_, id)| id);
    syncs.dedup_by_key(|&mut (_, id)| id);
    syncs
}
