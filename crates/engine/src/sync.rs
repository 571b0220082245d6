//! Syncs: everything written before is home, then the back end is told to make it durable.
//!
//! A sync counts the contents that are dirty or on their way home when it begins, by their place
//! in the engine's order of dirtying, and waits for those alone: writers that go on do not hold it
//! up. Contents that fail are reported to it and do not hold it up either.

use std::time::Duration;

use crate::command::{Command, Durability, FileId, Outcome, Reply, RequestId};
use crate::engine::{Engine, Io, Pending, Step};
use crate::error::{Error, ErrorKind};
use crate::file::{Gate, SyncFor, SyncWaiter};
use crate::needs::Counts;
use crate::page::FileIx;
use crate::repair::Settled;
use crate::time::Time;
use weir_log::Lsn;

/// All of a file.
const WHOLE: (u64, u64) = (0, u64::MAX);

impl Engine {
    /// Makes everything written to the file before this durable at home (fsync(2), or fdatasync(2)
    /// with [`Durability::Data`]). Answered as [`Reply::Synced`] unless there is nothing to do.
    ///
    /// # Errors
    /// The first that bringing the data home, or syncing it there, met. The data stays dirty and
    /// is tried again; a later sync says how that went.
    pub fn sync(
        &mut self,
        request: RequestId,
        file: FileId,
        durability: Durability,
        now: Time,
    ) -> Outcome<()> {
        let Some(file) = self.files.find(file) else {
            return Outcome::Done(Err(Error::NotAttached));
        };
        self.clock = now;
        match self.start_sync(file, WHOLE, durability, SyncFor::Sync(request), now) {
            Step::Done(result) => Outcome::Done(result),
            _ => Outcome::Pending,
        }
    }

    /// Brings everything dirty of every file home. Answered as [`Reply::Synced`]. To make it
    /// durable the caller then syncs the back end as a whole (syncfs(2)).
    ///
    /// # Errors
    /// The first that bringing the data home met.
    pub fn sync_all(&mut self, request: RequestId, now: Time) -> Outcome<()> {
        self.clock = now;
        let concerned: Vec<FileIx> = self
            .files
            .iter()
            .filter_map(|(ix, file)| {
                let concerned = file.is_unclean()
                    || file.settled.failure().is_some()
                    || self.is_home_ahead(ix)
                    || self.undurable_record(ix).is_some();
                concerned.then_some(ix)
            })
            .collect();
        if concerned.is_empty() {
            return Outcome::Done(Ok(()));
        }
        let remaining = concerned.len();
        self.pending.insert(request, Pending::SyncAll { remaining, error: None });
        for file in concerned {
            let done = SyncFor::All(request);
            match self.undurable_record(file) {
                // What home has must not be undone by records that lack those after them.
                Some(lsn) if self.has_only_records(file) => {
                    self.add_log_waiter(file, Durability::None, done, Some(lsn));
                }
                _ => self.start_full_sync(file, Durability::None, done, now),
            }
        }
        Outcome::Pending
    }

    /// Starts a sync for a program, or as the end of its durable write to a byte range.
    pub(crate) fn start_sync(
        &mut self,
        file: FileIx,
        range: (u64, u64),
        durability: Durability,
        done: SyncFor,
        now: Time,
    ) -> Step<()> {
        let broken = self.files[file].settled.failure().is_some();
        if durability != Durability::None
            && !broken
            && let Some(step) = self.sync_by_log(file, range, durability, done, now)
        {
            return step;
        }
        let of_file = &self.files[file];
        if !of_file.is_unclean() && !broken && !self.is_home_ahead(file) {
            let durable = !of_file.home_unsynced && of_file.home_syncs_in_flight == 0;
            if durability == Durability::None || (durability == Durability::Data && durable) {
                return Step::Done(Ok(()));
            }
        }
        self.start_full_sync(file, durability, done, now);
        Step::Pending
    }

    /// Starts a sync that brings everything home.
    pub(crate) fn start_full_sync(
        &mut self,
        file: FileIx,
        durability: Durability,
        done: SyncFor,
        now: Time,
    ) {
        let id = self.add_waiter(file, durability, done);
        if self.files[file].is_unclean() {
            self.pump(now);
        } else {
            self.all_home(file, id);
        }
    }

    /// Registers a waiter for what is in the log, and for what it then asks home for.
    pub(crate) fn add_log_waiter(
        &mut self,
        file: FileIx,
        durability: Durability,
        done: SyncFor,
        lsn: Option<Lsn>,
    ) -> u64 {
        self.last_sync += 1;
        let id = self.last_sync;
        self.files[file].syncs.push(SyncWaiter {
            id,
            seq: self.seq,
            remaining: 0,
            error: None,
            durability,
            done,
            syncing_home: false,
            awaits_repair: false,
            covered: Counts::default(),
            epoch: 0,
            home_sync_began: Time::ZERO,
            full: None,
            lsn: None,
        });
        if let Some(lsn) = lsn {
            self.wait_for_log(lsn, file, id);
        }
        id
    }

    /// Registers a waiter for all that is unclean in the file now.
    pub(crate) fn add_waiter(
        &mut self,
        file: FileIx,
        durability: Durability,
        done: SyncFor,
    ) -> u64 {
        self.revive_failed_of(file);
        self.last_sync += 1;
        let id = self.last_sync;
        let full = match done {
            SyncFor::Exclusive { revokes: false } => None,
            _ if self.files[file].discarded => None,
            SyncFor::All(_) if !self.has_records(file) => None,
            _ => self.full_sync_begins(file),
        };
        let of_file = &mut self.files[file];
        of_file.syncs.push(SyncWaiter {
            id,
            seq: self.seq,
            remaining: of_file.dirty_pages + of_file.destaging_pages,
            error: None,
            durability,
            done,
            syncing_home: false,
            awaits_repair: false,
            covered: Counts::default(),
            epoch: 0,
            home_sync_began: Time::ZERO,
            full,
            lsn: None,
        });
        if of_file.is_urgent() {
            self.urgent.insert(file);
            if self.files[file].is_awaited() {
                self.hurry(file);
            }
        }
        id
    }

    /// A page's content is home, has failed to get there, or was dropped: whoever waits for it
    /// counts it off.
    pub(crate) fn settle(&mut self, file: FileIx, seq: u64, result: Result<(), ErrorKind>) {
        let mut home: Vec<u64> = Vec::new();
        for sync in &mut self.files[file].syncs {
            if sync.syncing_home || sync.awaits_repair || sync.seq < seq || sync.remaining == 0 {
                continue;
            }
            sync.remaining -= 1;
            sync.error = sync.error.or(result.err());
            if sync.remaining == 0 {
                home.push(sync.id);
            }
        }
        for id in home {
            self.all_home(file, id);
        }
    }

    /// All a waiter counted is settled.
    pub(crate) fn all_home(&mut self, file: FileIx, id: u64) {
        let Settled { broken, gone, .. } = self.files[file].settled;
        let sync = self.waiter(file, id);
        let for_program = matches!(sync.done, SyncFor::Sync(_) | SyncFor::Write(_));
        let for_all = matches!(sync.done, SyncFor::All(_));
        if sync.error.is_none() {
            // No sync counts until what home may have lost is rewritten.
            sync.error = gone.filter(|_| for_program || for_all);
        }
        if broken.is_some() && sync.error.is_none() {
            sync.awaits_repair = true;
            self.start_repair(file, self.clock);
            return;
        }
        if (for_program || sync.full.is_some()) && sync.error.is_none() {
            self.sync_home(file, id);
        } else {
            self.finish_sync(file, id);
        }
    }

    /// Has a file's home synced for a sync, after the sync of home that is under way: Linux reports an error of
    /// write-back to one of several syncs, and the success of another one would say nothing.
    pub(crate) fn sync_home(&mut self, file: FileIx, id: u64) {
        self.waiter(file, id).syncing_home = true;
        self.files[file].home_sync_next.push(id);
        self.start_home_sync(file);
    }

    fn start_home_sync(&mut self, file: FileIx) {
        let of_file = &self.files[file];
        if of_file.home_syncs_in_flight > 0 || of_file.home_sync_next.is_empty() {
            return;
        }
        let covered = self.home_sync_begins(file);
        let clock = self.clock;
        let of_file = &mut self.files[file];
        let epoch = of_file.settled.begin_sync();
        let ids = std::mem::take(&mut of_file.home_sync_next);
        let mut datasync = true;
        for sync in of_file.syncs.iter_mut().filter(|sync| ids.contains(&sync.id)) {
            sync.home_sync_began = clock;
            sync.epoch = epoch;
            datasync &= sync.durability != Durability::All;
        }
        let first = ids[0];
        of_file.home_sync_for = ids;
        of_file.home_unsynced = false;
        of_file.home_syncs_in_flight += 1;
        let of_id = of_file.id;
        self.waiter(file, first).covered = covered;
        let io = self.next_io(Io::Sync { file, waiter: first });
        self.issue(Command::Sync { io, file: of_id, datasync });
    }

    /// The back end's own sync ended.
    pub(crate) fn home_synced(&mut self, file: FileIx, id: u64, result: Result<(), ErrorKind>) {
        let of_file = &mut self.files[file];
        of_file.io_in_flight -= 1;
        of_file.home_syncs_in_flight -= 1;
        let mut ended = std::mem::take(&mut of_file.home_sync_for);
        match result {
            Ok(()) => {
                let sync = self.waiter(file, id);
                let (covered, epoch) = (std::mem::take(&mut sync.covered), sync.epoch);
                self.home_sync_ended(file, &covered);
                let settled = &mut self.files[file].settled;
                settled.until = settled.until.max(epoch);
            }
            Err(kind) => {
                of_file.record_error(kind);
                // They have failed, too: what they count on may be lost.
                ended.append(&mut of_file.home_sync_next);
                self.stats.sync_errors += 1;
                for &id in &ended {
                    self.waiter(file, id).error.get_or_insert(kind);
                }
                self.home_lost(file, kind);
            }
        }
        let took = self.clock.since(self.waiter(file, id).home_sync_began);
        self.home_sync_cost = match self.home_sync_cost {
            Duration::ZERO => took,
            average => average * 7 / 8 + took / 8,
        };
        for id in ended {
            self.home_is_synced_for(file, id);
        }
        self.start_home_sync(file);
    }

    /// The sync of home that a sync waited for ended.
    fn home_is_synced_for(&mut self, file: FileIx, id: u64) {
        let sync = self.waiter(file, id);
        sync.syncing_home = false;
        if let (Some(full), None) = (sync.full.take(), sync.error) {
            match self.release(file, full) {
                Ok(Some(lsn)) if !self.is_durable(lsn) => self.wait_for_log(lsn, file, id),
                Ok(_) => {}
                // Everything is home: whoever asked for that sees to it that a log that failed is not
                // replayed any more.
                Err(_) if self.log_has_failed() && self.is_of_all(file, id) => {}
                Err(kind) => {
                    self.waiter(file, id).error = Some(kind);
                }
            }
        }
        self.advance_sync(file, id);
    }

    /// Nothing of the file is dirty, and home has lost nothing: everything that is not durable is
    /// in the log.
    fn has_only_records(&self, file: FileIx) -> bool {
        let of_file = &self.files[file];
        !of_file.is_unclean() && of_file.settled.failure().is_none() && !self.is_home_ahead(file)
    }

    fn is_of_all(&mut self, file: FileIx, id: u64) -> bool {
        matches!(self.waiter(file, id).done, SyncFor::All(_))
    }

    fn waiter(&mut self, file: FileIx, id: u64) -> &mut SyncWaiter {
        let syncs = &mut self.files[file].syncs;
        syncs.iter_mut().find(|sync| sync.id == id).expect("a waiter stays")
    }

    /// Ends a sync unless something of it is outstanding.
    pub(crate) fn advance_sync(&mut self, file: FileIx, id: u64) {
        let sync = self.waiter(file, id);
        let busy = sync.remaining > 0 || sync.syncing_home || sync.awaits_repair;
        let lsn = sync.lsn;
        if !busy && lsn.is_none_or(|lsn| self.is_durable(lsn)) {
            self.finish_sync(file, id);
        }
    }

    /// The log does not get a sync's records to disk.
    pub(crate) fn fail_sync(&mut self, file: FileIx, id: u64, kind: ErrorKind) {
        let sync = self.waiter(file, id);
        sync.error.get_or_insert(kind);
        sync.lsn = None;
        self.advance_sync(file, id);
    }

    fn finish_sync(&mut self, file: FileIx, id: u64) {
        let syncs = &mut self.files[file].syncs;
        let at = syncs.iter().position(|sync| sync.id == id).expect("a waiter stays");
        let sync = syncs.remove(at);
        let result = sync.error.map_or(Ok(()), |kind| Err(Error::Home(kind)));
        match sync.done {
            SyncFor::Sync(request) => self.reply(request, Reply::Synced(result)),
            SyncFor::Write(request) => self.reply(request, Reply::Written(result)),
            SyncFor::All(request) => self.one_file_synced(request, sync.error),
            SyncFor::Exclusive { .. } => self.flushed_for_exclusive(file, result),
            SyncFor::Checkpoint => self.checkpointed(file, result.is_err()),
            SyncFor::Freeing => self.freed(file, result.is_err()),
        }
    }

    fn one_file_synced(&mut self, request: RequestId, failed: Option<ErrorKind>) {
        let Some(Pending::SyncAll { remaining, error }) = self.pending.get_mut(&request) else {
            panic!("a sync of everything is pending until its last file");
        };
        *remaining -= 1;
        *error = error.or(failed);
        if *remaining == 0 {
            let result = error.map_or(Ok(()), |kind| Err(Error::Home(kind)));
            self.pending.remove(&request);
            self.reply(request, Reply::Synced(result));
        }
    }

    /// The flush an exclusive section asked for is over.
    fn flushed_for_exclusive(&mut self, file: FileIx, result: Result<(), Error>) {
        let interrupted = self.files[file].interrupted;
        let Gate::Closing { request, section, .. } = interrupted.unwrap_or(self.files[file].gate)
        else {
            panic!("only a closing gate flushes");
        };
        let next = match result {
            Ok(()) => Gate::Closing { request, section, flushing: false },
            Err(_) => {
                let request = request.expect("a repair flushes nothing");
                self.reply(request, Reply::Exclusive(result));
                Gate::Open
            }
        };
        if interrupted.is_some() {
            // When the repair is over.
            self.files[file].interrupted = Some(next);
            return;
        }
        self.files[file].gate = next;
        if next == Gate::Open {
            self.reopened.push(file);
        }
    }
}
