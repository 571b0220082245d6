//! Space in the log: files are brought home in time so that the tail can advance.

use std::time::Duration;

use crate::command::{Durability, LogCommand, Output};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::journal::logged::Logged;
use crate::journal::refused::Refused;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::sync::SyncFor;

/// The log's size divided by this is freed at a time.
const FREED_SHARE: u64 = 16;

/// Files brought home at once to free the log.
const CHECKPOINTS_MAX: usize = 8;

/// For how long home may refuse what would free the log before syncs stop waiting for it, in pauses between two tries. A lost
/// connection has mostly come back by then.
const PATIENCE_PAUSES: u32 = 20;

impl Engine {
    /// Whether a file that is being detached has records that must be freed first; starts to free them.
    pub(crate) fn must_release(&mut self, file: FileIx, now: Time) -> bool {
        if !self.has_records(file) {
            self.change_retention(file, std::mem::take);
            return false;
        }
        if self.cache.files[file].logged.checkpointing {
            return true;
        }
        let log = self.journal.as_mut().expect("records are in a log");
        if self.cache.files[file].discarded || log.failed.is_some() {
            // Programs have removed the file, but its removal may not be durable at home. If a crash undoes the
            // removal, the synced data must come back with the file.
            let logged = &mut self.cache.files[file].logged;
            logged.first = None;
            log.shared.orphan(file, &mut logged.retention);
            return false;
        }
        if now < log.retry_at {
            log.leaving.insert(file);
        } else {
            self.start_checkpoint(file, now);
        }
        true
    }

    /// A file left the engine.
    pub(crate) fn left_log(&mut self, file: FileIx) {
        if let Some(log) = &mut self.journal {
            log.leaving.remove(&file);
            log.voiding.remove(&file);
            log.repairs.remove(&file);
            log.not_served.remove(&file);
        }
    }

    pub(crate) fn start_checkpoint(&mut self, file: FileIx, now: Time) {
        self.cache.files[file].logged.checkpointing = true;
        self.start_full_sync(file, Durability::Data, SyncFor::Checkpoint, now);
    }

    /// A checkpoint's sync of a file ended.
    pub(crate) fn checkpointed(&mut self, file: FileIx, failed: Option<ErrorKind>) {
        self.cache.files[file].logged.checkpointing = false;
        if let Some(kind) = failed {
            self.not_freed(kind);
        }
        let retry_at = self.clock + self.config.retry_delay;
        let of_file = &self.cache.files[file];
        let is_void = of_file.logged.refused_sizes.is_empty() || of_file.discarded;
        if let Some(log) = self.journal.as_mut().filter(|_| !is_void) {
            // A recovery would cut the file.
            log.voiding.insert(file);
            log.void_at = retry_at;
        }
    }

    /// Checkpoints again the files that have records of sizes that home refused.
    fn void_refused_sizes(&mut self, now: Time) {
        let log = self.journal_mut();
        if now < log.void_at {
            return;
        }
        for file in std::mem::take(&mut log.voiding) {
            let logged = &self.cache.files[file].logged;
            if !logged.refused_sizes.is_empty() && !logged.checkpointing {
                self.start_checkpoint(file, now);
            }
        }
    }

    /// Home refused what would have freed the log: it is asked again after a pause.
    pub(crate) fn not_freed(&mut self, kind: ErrorKind) {
        let (now, patience) = (self.clock, self.refusal_patience());
        let retry_at = now + self.config.retry_delay;
        let log = self.journal_mut();
        log.retry_at = retry_at;
        log.refused = Refused::again(log.refused, kind, now, patience);
    }

    /// For how long home may refuse something before nothing waits for it any more.
    pub(crate) fn refusal_patience(&self) -> Duration {
        self.config.retry_delay * PATIENCE_PAUSES
    }

    /// As [`Engine::not_freed`], where nothing else is tried in this pause. Syncs do not wait any longer for room in the log if
    /// home has refused for long. A home that is away for a moment is waited for; that it is full is said at once, and that somebody
    /// is over quota not to others.
    pub(crate) fn cannot_be_freed(&mut self, kind: ErrorKind) {
        self.not_freed(kind);
        let patience = self.refusal_patience();
        let refused = self.journal_mut().refused;
        let is_lasting = |refused: Refused| refused.lasting(patience, self.clock).is_some();
        if kind == ErrorKind::NoSpace || refused.is_some_and(is_lasting) {
            self.fail_held_back(kind);
        }
    }

    /// The error of a home that has long refused (20 s, by default) what would have freed the log; `None` also if home was not
    /// asked lately, has no space, or somebody is over quota.
    pub fn log_is_refused(&self, now: Time) -> Option<ErrorKind> {
        self.journal.as_ref()?.refused?.lastingly_broken(self.refusal_patience(), now)
    }

    /// Frees the log before a request waits for its space.
    pub(crate) fn pump_log(&mut self, now: Time) {
        let Some(log) = &mut self.journal else { return };
        if !log.is_usable() {
            return;
        }
        let worthwhile = match log.behind.lacks_room {
            Some(_) => 1,
            None => log.shared.writer().capacity_bytes() / FREED_SHARE,
        };
        self.advance_tail(worthwhile);
        let log = self.journal_mut();
        if now < log.retry_at {
            return;
        }
        for file in std::mem::take(&mut log.leaving) {
            self.progress(file, now);
        }
        self.start_repairs(now);
        let log = self.journal_mut();
        if log.shared.is_half_full() {
            self.free_log(now);
        }
        self.void_refused_sizes(now);
    }

    /// Advances the tail if that frees `bytes` or more. Data of removed files is freed when home was synced; where names are in
    /// the log, their removals are not home by that, and must be durable in the log.
    pub(crate) fn advance_tail(&mut self, bytes: u64) {
        let log = self.journal_mut();
        if log.names.freed_after.is_some_and(|last| !log.shared.is_durable(last)) {
            return self.commit_group();
        }
        if !log.names.needs.is_empty() && log.shared.is_half_full() {
            self.commit_group();
        }
        if let Some(commit) = self.journal_mut().shared.checkpoint(bytes) {
            let io = self.log_command(commit);
            self.journal_mut().superblock = Some(io);
        }
    }

    /// Has home get what keeps the log's tail where it is.
    pub(crate) fn free_log(&mut self, now: Time) {
        let log = self.journal_mut();
        if now < log.retry_at {
            return;
        }
        if log.shared.begin_home_sync() {
            let io = self.device.next_log_io();
            let log = self.journal_mut();
            (log.home, log.names.freed_after) = (Some(io), log.names.last);
            log.at_home.syncing = log.at_home.changes;
            self.outputs.push_back(Output::Log(LogCommand::SyncHome { io }));
        }
        let held: Vec<FileIx> = self.journal_mut().shared.holders().take(CHECKPOINTS_MAX).collect();
        for file in held {
            if !self.cache.files[file].logged.checkpointing {
                self.start_checkpoint(file, now);
            } else if self.home_sync_frees(file) {
                self.start_freeing(file);
            }
        }
        self.free_by_replay(now);
    }

    /// Syncs a file's home, and nothing else, to free the log.
    pub(crate) fn start_freeing(&mut self, file: FileIx) {
        if !std::mem::replace(&mut self.cache.files[file].logged.freeing, true) {
            let id = self.add_log_waiter(file, Durability::Data, SyncFor::Freeing, None);
            self.sync_home(file, id);
        }
    }

    /// Whether a sync of home alone would free a large part of the log. While a checkpoint is in progress, older records
    /// of the file are at home already.
    pub(crate) fn home_sync_frees(&self, file: FileIx) -> bool {
        let Logged { retention, freeing, .. } = &self.cache.files[file].logged;
        let Some(log) = &self.journal else { return false };
        let Some(settling) = retention.settling.first() else { return false };
        let held = retention.away.first().is_some_and(|away| away <= settling);
        if *freeing || held || !retention.syncing.is_empty() {
            return false;
        }
        let left =
            retention.away.first().map_or(log.shared.durable(), |away| log.shared.start_of(away));
        let worthwhile = match log.behind.lacks_room {
            Some(_) => 1,
            None => 2 * log.shared.writer().capacity_bytes() / FREED_SHARE,
        };
        left.0.saturating_sub(log.shared.tail().0) >= worthwhile
    }

    /// A sync of home to free the log ended.
    pub(crate) fn freed(&mut self, file: FileIx, failed: Option<ErrorKind>) {
        self.cache.files[file].logged.freeing = false;
        if let Some(kind) = failed {
            self.cannot_be_freed(kind);
        }
    }

    /// When the log next has something to do without an event.
    pub(crate) fn log_tick(&self) -> Option<Time> {
        let log = self.journal.as_ref()?;
        let wanted =
            log.shared.is_half_full() || !log.leaving.is_empty() || !log.repairs.is_empty();
        let due = wanted && log.is_usable();
        let voids =
            (!log.voiding.is_empty() && log.is_usable()).then(|| log.void_at.max(log.retry_at));
        due.then_some(log.retry_at).into_iter().chain(voids).chain(self.commit_tick()).min()
    }
}
