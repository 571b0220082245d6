//! The redo log of an engine: its start and end, its groups, and who waits for them.
//!
//! One group is under way at a time; what is appended meanwhile shares the next one (group commit). Once a write of the
//! log has failed, no sync of a file succeeds any more; a sync of everything does, and its caller sees to it that the
//! log is not replayed.

use std::collections::BTreeSet;

use weir_log::{Commit, Lsn, Writer};

use crate::command::{IoId, LogCommand, Output};
use crate::device::cost_model::{CostModel, Ended};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::journal::Journal;
use crate::journal::behind::Behind;
use crate::journal::recorded::Recorded;
use crate::journal::retention::{Counts, Segments};
use crate::place::FileIx;
use crate::time::Time;

impl Engine {
    /// Gives the engine a redo log, before anything is attached.
    pub fn start_log(&mut self, writer: Writer) {
        let capacity = writer.capacity_bytes();
        self.journal = Some(Journal {
            repairs: BTreeSet::new(),
            segments: Segments::new(capacity, writer.head()),
            recorded: Recorded::new(capacity, writer.position()),
            writer,
            failed: None,
            behind: Behind::default(),
            held: BTreeSet::new(),
            orphans: Counts::default(),
            orphans_syncing: Counts::default(),
            leaving: BTreeSet::new(),
            waiting: Vec::new(),
            group: None,
            group_sent: (0, Time::ZERO),
            pace: CostModel::new(1, 1),
            superblock: None,
            home: None,
            ahead_events: 0,
            closing: false,
            retry_at: Time::ZERO,
        });
    }

    /// A command on the log ended.
    pub fn log_completed(&mut self, io: IoId, result: Result<(), ErrorKind>, now: Time) {
        self.clock = now;
        let log = self.journal.as_mut().expect("there is a log");
        if log.group == Some(io) {
            log.group = None;
            self.group_ended(result, now);
        } else if log.superblock == Some(io) {
            log.superblock = None;
            match result {
                Ok(()) => {
                    log.writer.checkpointed();
                    let tail = log.writer.tail();
                    log.segments.freed(tail);
                    log.recorded.freed(tail, log.writer.position());
                    self.room_in_log(now);
                }
                Err(kind) => self.log_failed(kind, now),
            }
        } else {
            assert_eq!(log.home, Some(io), "a command is completed once");
            log.home = None;
            let syncing = std::mem::take(&mut log.orphans_syncing);
            if let Err(kind) = result {
                log.orphans.add_all(&syncing);
                log.retry_at = now + self.config.retry_delay;
                self.home_sync_failed(kind, now);
            }
        }
        self.reopen_gates(now);
        self.pump(now);
        self.pump_log(now);
        self.feed_starved(now);
    }

    /// Everything is home and durable there: says so in the log, which then has nothing to replay.
    /// The last command on the log; false if there is none to wait for.
    pub fn close_log(&mut self) -> bool {
        let Some(log) = &mut self.journal else { return false };
        if log.failed.is_some() || log.closing || log.is_under_way() {
            return false;
        }
        log.closing = true;
        let commit = log.writer.close();
        let io = self.log_command(commit);
        self.journal_mut().superblock = Some(io);
        true
    }

    /// Whether a write of the log has failed: no sync of a file succeeds any more, and only
    /// [`Engine::sync_all`] does. What the log holds must then not be replayed over what that brought
    /// home.
    pub fn log_has_failed(&self) -> bool {
        self.journal.as_ref().is_some_and(|log| log.failed.is_some())
    }

    /// Whether commands on the log are under way.
    pub fn log_is_busy(&self) -> bool {
        self.journal.as_ref().is_some_and(|log| log.is_under_way() || self.cache.spill.is_reading())
    }

    /// Whether a position is durable, or nobody need wait for it.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        self.journal.as_ref().is_none_or(|log| lsn < log.writer.durable())
    }

    /// Whether a sync waits for the log.
    pub(crate) fn log_is_awaited(&self) -> bool {
        self.journal.as_ref().is_some_and(|log| !log.waiting.is_empty())
    }

    /// Makes a sync wait for a position.
    pub(crate) fn wait_for_log(&mut self, lsn: Lsn, file: FileIx, id: u64) {
        let syncs = &mut self.cache.files[file].waiters.syncs;
        let sync = syncs.iter_mut().find(|sync| sync.id == id).expect("a waiter stays");
        sync.lsn = Some(lsn);
        self.journal_mut().waiting.push((lsn, file, id));
        self.commit_group();
    }

    /// Closes the open group and sends it, unless another one is under way.
    pub(crate) fn commit_group(&mut self) {
        let log = self.journal_mut();
        if log.failed.is_some() {
            return;
        }
        if let Some(commit) = log.writer.commit() {
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
            return self.log_failed(kind, now);
        }
        let log = self.journal_mut();
        let (pages, sent) = log.group_sent;
        let took = now.since(sent);
        log.pace.ended(Ended { pages, took, service: took, ahead: 0 });
        log.writer.committed();
        let durable = log.writer.durable();
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut log.waiting).into_iter().partition(|&(lsn, ..)| lsn < durable);
        log.waiting = waiting;
        let awaited = !log.waiting.is_empty() || log.behind.waits_beyond(durable);
        let wanted = awaited || log.is_open_group_long();
        let wanted = wanted || !self.journal_mut().repairs.is_empty();
        self.send_behind(durable);
        self.room_in_log(now);
        self.finish_spill(durable);
        if wanted || self.cache.spill.is_under_way() {
            self.commit_group();
        }
        for (_, file, id) in ready {
            self.advance_sync(file, id);
            self.progress(file, now);
        }
    }

    /// No sync succeeds from now on. Reads and writes go on, and data goes home as ever.
    pub(crate) fn log_failed(&mut self, kind: ErrorKind, now: Time) {
        let log = self.journal_mut();
        log.failed.get_or_insert(kind);
        let waiting = std::mem::take(&mut log.waiting);
        let leaving = std::mem::take(&mut log.leaving);
        self.fail_spill();
        self.send_behind(Lsn(u64::MAX));
        self.abandon_repairs();
        self.stats.log_errors += 1;
        for file in leaving {
            self.progress(file, now);
        }
        for (_, file, id) in waiting {
            self.fail_sync(file, id, kind);
            self.progress(file, now);
        }
    }

    pub(crate) fn log_command(&mut self, commit: Commit) -> IoId {
        let io = self.next_log_io();
        self.outputs.push_back(Output::Log(LogCommand::Write { io, commit }));
        io
    }

    pub(crate) fn next_log_io(&mut self) -> IoId {
        self.device.last_io += 1;
        IoId(self.device.last_io)
    }

    pub(crate) fn journal_mut(&mut self) -> &mut Journal {
        self.journal.as_mut().expect("there is a log")
    }
}
