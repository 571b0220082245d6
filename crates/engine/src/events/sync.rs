//! Syncs: everything written before goes home, then the back end makes it durable.
//!
//! A sync counts the contents that are dirty or in transfer when it begins, by their number in the order of dirtying, and
//! waits for only these: later writes do not delay it. It gets the errors of contents that fail, and does not wait for
//! their retries.

use weir_journal::Counts;
use weir_log::Lsn;

use crate::command::{Durability, FileId, Outcome, Reply, RequestId};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::journal::settled::Settled;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::request::{Pending, Step};
use crate::waiters::sync::{SyncFor, SyncWaiter};

/// The byte range of a whole file.
pub(crate) const WHOLE: (u64, u64) = (0, u64::MAX);

impl Engine {
    /// Makes everything written to the file before this durable at home (fsync(2), or fdatasync(2)
    /// with [`Durability::Data`]). Answered as [`Reply::Synced`] unless there is nothing to do.
    ///
    /// # Errors
    /// The first error of writing the data home, or of syncing it there. The data stays dirty and is retried; a later
    /// sync reports the result.
    pub fn sync(
        &mut self,
        request: RequestId,
        file: FileId,
        durability: Durability,
        now: Time,
    ) -> Outcome<()> {
        let Some(file) = self.cache.files.find(file) else {
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
    /// The first error of writing the data home.
    pub fn sync_all(&mut self, request: RequestId, now: Time) -> Outcome<()> {
        self.clock = now;
        let concerned: Vec<FileIx> = self
            .cache
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
        self.waiters.pending.insert(request, Pending::SyncAll { remaining, error: None });
        for file in concerned {
            let done = SyncFor::All(request);
            match self.undurable_record(file) {
                // A replay without the last records would undo newer data at home: they must be durable first.
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
        let broken = self.cache.files[file].settled.failure().is_some();
        if let Some(kind) = self.journal.as_ref().and_then(|log| log.failed)
            && self.cache.files[file].is_unbound()
            && durability != Durability::None
        {
            return Step::Done(Err(Error::Home(kind)));
        }
        if durability != Durability::None
            && !broken
            && let Some(step) = self.sync_by_log(file, range, durability, done, now)
        {
            return step;
        }
        let of_file = &self.cache.files[file];
        if !of_file.is_unclean() && !broken && !self.is_home_ahead(file) {
            let durable = !of_file.home.needs_sync(durability) && self.undurable_name().is_none();
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
        let for_program = done.is_for_program();
        if for_program && durability != Durability::None {
            self.wait_for_names(file, id);
        }
        if self.cache.files[file].is_unclean() {
            self.pump(now);
        } else {
            self.all_home(file, id);
        }
    }

    /// Makes a sync wait for the names before it, which are in the log alone.
    fn wait_for_names(&mut self, file: FileIx, id: u64) {
        if self.is_ordered() {
            if let Some(lsn) = self.append_for_names() {
                self.wait_for_log(lsn, file, id);
            }
            return;
        }
        let failed = self.journal.as_ref().and_then(|log| log.failed);
        match (self.undurable_name(), failed) {
            (None, _) => {}
            (Some(lsn), None) => self.wait_for_log(lsn, file, id),
            (Some(_), Some(kind)) => self.waiter(file, id).error = Some(kind),
        }
    }

    /// Registers a waiter for records of the log, and for the sync of home that may follow.
    pub(crate) fn add_log_waiter(
        &mut self,
        file: FileIx,
        durability: Durability,
        done: SyncFor,
        lsn: Option<Lsn>,
    ) -> u64 {
        self.waiters.last_sync += 1;
        let id = self.waiters.last_sync;
        self.cache.files[file].waiters.syncs.push(SyncWaiter {
            id,
            seq: self.cache.seq,
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
        self.waiters.last_sync += 1;
        let id = self.waiters.last_sync;
        let full = match done {
            SyncFor::Freeze { revokes: false } => None,
            _ if self.cache.files[file].discarded => None,
            SyncFor::All(_) if !self.has_records(file) => None,
            _ => self.full_sync_begins(file),
        };
        let of_file = &mut self.cache.files[file];
        of_file.waiters.syncs.push(SyncWaiter {
            id,
            seq: self.cache.seq,
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
        if of_file.waiters.is_urgent() {
            self.write_back.sweeps.urgent.insert(file);
            if self.cache.files[file].waiters.is_awaited() {
                self.hurry(file);
            }
        }
        id
    }

    /// A page's content is home, has failed to get there, or was dropped: syncs that counted it wait for one content less.
    pub(crate) fn settle(&mut self, file: FileIx, seq: u64, result: Result<(), ErrorKind>) {
        let mut home: Vec<u64> = Vec::new();
        for sync in &mut self.cache.files[file].waiters.syncs {
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

    /// All contents that a waiter counted have settled.
    pub(crate) fn all_home(&mut self, file: FileIx, id: u64) {
        let Settled { broken, gone, .. } = self.cache.files[file].settled;
        let sync = self.waiter(file, id);
        let for_program = sync.is_for_program();
        let for_all = matches!(sync.done, SyncFor::All(_));
        if sync.error.is_none() {
            // No sync of home counts until the data that home may have lost is rewritten.
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
            self.advance_sync(file, id);
        }
    }

    /// Nothing of the file is dirty, and home has lost nothing: everything that is not durable is
    /// in the log.
    pub(crate) fn has_only_records(&self, file: FileIx) -> bool {
        let of_file = &self.cache.files[file];
        !of_file.is_unclean() && of_file.settled.failure().is_none() && !self.is_home_ahead(file)
    }

    pub(crate) fn is_of_all(&mut self, file: FileIx, id: u64) -> bool {
        matches!(self.waiter(file, id).done, SyncFor::All(_))
    }

    pub(crate) fn waiter(&mut self, file: FileIx, id: u64) -> &mut SyncWaiter {
        let syncs = &mut self.cache.files[file].waiters.syncs;
        syncs.iter_mut().find(|sync| sync.id == id).expect("a waiter stays")
    }

    /// Ends a sync unless it still waits for something.
    pub(crate) fn advance_sync(&mut self, file: FileIx, id: u64) {
        let sync = self.waiter(file, id);
        let busy = sync.remaining > 0 || sync.syncing_home || sync.awaits_repair;
        let lsn = sync.lsn;
        if !busy && lsn.is_none_or(|lsn| self.is_durable(lsn)) {
            self.finish_sync(file, id);
        }
    }

    /// The log failed to write a sync's records.
    pub(crate) fn fail_sync(&mut self, file: FileIx, id: u64, kind: ErrorKind) {
        let sync = self.waiter(file, id);
        sync.error.get_or_insert(kind);
        sync.lsn = None;
        self.advance_sync(file, id);
    }

    fn finish_sync(&mut self, file: FileIx, id: u64) {
        let syncs = &mut self.cache.files[file].waiters.syncs;
        let at = syncs.iter().position(|sync| sync.id == id).expect("a waiter stays");
        let sync = syncs.remove(at);
        let result = sync.error.map_or(Ok(()), |kind| Err(Error::Home(kind)));
        match sync.done {
            SyncFor::Sync(request) => self.reply(request, Reply::Synced(result)),
            SyncFor::Write(request) => self.reply(request, Reply::Written(result)),
            SyncFor::All(request) => self.one_file_synced(request, sync.error),
            SyncFor::Freeze { .. } => self.flushed_for_freeze(file, result),
            SyncFor::Checkpoint => self.checkpointed(file, sync.error),
            SyncFor::Freeing => self.freed(file, sync.error),
        }
    }

    pub(crate) fn one_file_synced(&mut self, request: RequestId, failed: Option<ErrorKind>) {
        let Some(Pending::SyncAll { remaining, error }) = self.waiters.pending.get_mut(&request)
        else {
            panic!("a sync of everything is pending until its last file");
        };
        *remaining -= 1;
        *error = error.or(failed);
        if *remaining == 0 {
            let result = error.map_or(Ok(()), |kind| Err(Error::Home(kind)));
            self.waiters.pending.remove(&request);
            self.reply(request, Reply::Synced(result));
        }
    }
}
