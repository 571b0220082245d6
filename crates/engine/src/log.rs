//! The redo log's side of the engine: what is logged when, who waits for it, and when the log's
//! tail may go on.
//!
//! A sync by the log appends what was written to the file and is not in the log yet to the open
//! group: bytes of frames and patches as they are, without a fetch. One group is under way at a
//! time; what is appended meanwhile shares the next one (group commit). A sync of much data, or of
//! a file whose home went past its records, brings everything home instead (a *full* sync) and then
//! revokes the file's records: replayed over newer data they would do harm.
//!
//! Invariants:
//! - `unlogged` holds exactly the pages whose span of unlogged bytes is not empty;
//! - a file stands in `held` under the oldest of its records that may have to be replayed, and
//!   the tail never passes it;
//! - a revoke is appended only when everything of its file that is older is home and durable
//!   there, or was made void by what is durable;
//! - once a write of the log has failed, no sync of a file succeeds any more; a sync of everything
//!   does, and its caller sees to it that the log is not replayed.

use std::collections::BTreeSet;

use weir_log::{Commit, Lsn, Record, Writer};

use crate::command::{Durability, FileId, IoId, LogCommand, Output};
use crate::engine::{Engine, Step};
use crate::error::{Error, ErrorKind};
use crate::file::{File, SyncFor};
use crate::page::{FileIx, Page};
use crate::patch::Run;
use crate::spilled::{Extent, Extents};
use crate::time::Time;
use crate::{PAGE_BYTES, Stats};

const PAGE: u64 = PAGE_BYTES as u64;

/// A sync of more than this goes home directly: written once, not twice.
const DIRECT_BYTES_MIN: usize = 1 << 20;

/// The log's share that is left for records that void what must not be replayed.
const SLACK_SHARE: u64 = 16;

/// Files brought home at once to free the log.
const CHECKPOINTS_MAX: usize = 8;

/// What the engine knows of a file's records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Logged {
    /// The group that names the file, by its position.
    named_in: Option<Lsn>,
    /// Oldest record that may have to be replayed.
    oldest: Option<Lsn>,
    /// The last record that changes the file.
    last_change: Option<Lsn>,
    /// The last record of all.
    last: Option<Lsn>,
    /// The last event by which home went past the records: it has newer bytes that are in no
    /// record, or was rearranged. 0 if it is not ahead.
    ahead: u64,
    /// A full sync is under way to free the log.
    checkpointing: bool,
}

/// Where a full sync of a file began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    /// What is before this position will be void.
    before: Lsn,
    /// The group that was open, or the next one: what came since is not before it.
    group: Lsn,
    /// What was the last event by which home was ahead.
    ahead: u64,
}

/// The log of one engine.
pub(crate) struct Log {
    pub(crate) writer: Writer,
    failed: Option<ErrorKind>,
    held: BTreeSet<(Lsn, FileIx)>,
    /// Oldest records of files that are gone from the engine, and perhaps not yet from home.
    orphans: BTreeSet<Lsn>,
    /// Of these, those that the sync of home under way frees.
    orphans_syncing: BTreeSet<Lsn>,
    /// Syncs that wait for a position to be durable.
    waiting: Vec<(Lsn, FileIx, u64)>,
    group: Option<IoId>,
    superblock: Option<IoId>,
    home: Option<IoId>,
    /// Events by which home went past the records of a file.
    ahead_events: u64,
    closing: bool,
    /// No checkpoint is tried before.
    retry_at: Time,
}

impl Log {
    fn oldest_needed(&self) -> Lsn {
        let held = self.held.first().map(|&(lsn, _)| lsn);
        let orphans = self.orphans.first().copied();
        let syncing = self.orphans_syncing.first().copied();
        [held, orphans, syncing].into_iter().flatten().min().unwrap_or(self.writer.head())
    }

    /// Appends a record about a file to the open group, which names the file first if it does not yet.
    /// There is room for both.
    pub(crate) fn append(&mut self, file: &mut File, record: &Record<'_>) -> Lsn {
        let head = self.writer.head();
        if file.logged.named_in != Some(head) {
            let name = Record::File { file: file.id.0, identity: &file.identity };
            self.writer.append(&name).expect("room was looked for");
            file.logged.named_in = Some(head);
        }
        self.writer.append(record).expect("room was looked for")
    }

    /// Records can still be added to it.
    pub(crate) fn is_usable(&self) -> bool {
        self.failed.is_none() && !self.closing
    }

    fn is_half_full(&self) -> bool {
        self.writer.used_bytes() > self.writer.capacity_bytes() / 2
    }
}

impl Engine {
    /// Gives the engine a redo log, before anything is attached.
    pub fn start_log(&mut self, writer: Writer) {
        self.log = Some(Log {
            writer,
            failed: None,
            held: BTreeSet::new(),
            orphans: BTreeSet::new(),
            orphans_syncing: BTreeSet::new(),
            waiting: Vec::new(),
            group: None,
            superblock: None,
            home: None,
            ahead_events: 0,
            closing: false,
            retry_at: Time::ZERO,
        });
    }

    /// Says by which bytes recovery finds an attached file again. A file without them is not
    /// logged: its syncs bring it home.
    pub fn identify(&mut self, file: FileId, identity: &[u8]) {
        if let Some(file) = self.files.find(file)
            && self.log.is_some()
        {
            self.files[file].identity = identity.into();
        }
    }

    /// The file's owner, mode, names or other attributes changed at home: its next sync is to make
    /// that durable as well.
    pub fn attributes_changed(&mut self, file: FileId) {
        if let Some(file) = self.files.find(file) {
            self.files[file].home_unsynced = true;
        }
    }

    /// A command on the log ended.
    pub fn log_completed(&mut self, io: IoId, result: Result<(), ErrorKind>, now: Time) {
        self.clock = now;
        let log = self.log.as_mut().expect("there is a log");
        if log.group == Some(io) {
            log.group = None;
            self.group_ended(result, now);
        } else if log.superblock == Some(io) {
            log.superblock = None;
            match result {
                Ok(()) => log.writer.checkpointed(),
                Err(kind) => self.log_failed(kind, now),
            }
        } else {
            assert_eq!(log.home, Some(io), "a command is completed once");
            log.home = None;
            let mut syncing = std::mem::take(&mut log.orphans_syncing);
            if result.is_err() {
                log.orphans.append(&mut syncing);
                log.retry_at = now + self.config.retry_delay;
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
        let Some(log) = &mut self.log else { return false };
        let idle = log.group.is_none() && log.superblock.is_none() && log.home.is_none();
        if log.failed.is_some() || log.closing || !idle {
            return false;
        }
        log.closing = true;
        let commit = log.writer.close();
        let io = self.log_command(commit);
        self.log_mut().superblock = Some(io);
        true
    }

    /// Whether a write of the log has failed: no sync of a file succeeds any more, and only
    /// [`Engine::sync_all`] does. What the log holds must then not be replayed over what that brought
    /// home.
    pub fn log_has_failed(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.failed.is_some())
    }

    /// Whether commands on the log are under way.
    pub fn log_is_busy(&self) -> bool {
        self.log.as_ref().is_some_and(|log| {
            log.group.is_some()
                || log.superblock.is_some()
                || log.home.is_some()
                || self.spill.is_reading()
        })
    }

    /// Whether writes to a file are to be noted as not logged.
    pub(crate) fn logs(&self, file: FileIx) -> bool {
        self.log.is_some() && !self.files[file].identity.is_empty()
    }

    /// Starts a sync by the log, if that is possible and worth it.
    pub(crate) fn sync_by_log(
        &mut self,
        file: FileIx,
        durability: Durability,
        done: SyncFor,
        now: Time,
    ) -> Option<Step<()>> {
        let log = self.log.as_ref()?;
        if let Some(kind) = log.failed {
            return Some(Step::Done(Err(Error::Home(kind))));
        }
        let logged = self.files[file].logged;
        if !self.logs(file) || (logged.ahead != 0 && logged.oldest.is_some()) {
            return None;
        }
        let bytes = self.unlogged_bytes(file)?;
        let writer = &self.log_mut().writer;
        let slack = writer.capacity_bytes() / SLACK_SHARE;
        if !writer.has_room(bytes) || !writer.has_space(bytes as u64 + slack) {
            return None;
        }
        self.log_unlogged(file);
        let durable = self.log_mut().writer.durable();
        let of_file = &self.files[file];
        let wait = of_file.logged.last.filter(|&last| last >= durable);
        let home = of_file.home_unsynced || of_file.home_syncs_in_flight > 0;
        if wait.is_none() && !home {
            return Some(Step::Done(Ok(())));
        }
        let id = self.add_log_waiter(file, durability, done, wait);
        if home {
            self.sync_home(file, id);
        }
        self.pump_log(now);
        Some(Step::Pending)
    }

    /// Bytes that logging what is unlogged of a file takes, names counted; `None` if it had better
    /// go home directly.
    fn unlogged_bytes(&self, file: FileIx) -> Option<usize> {
        let mut bytes = 2 * weir_log::RECORD_OVERHEAD_BYTES + self.files[file].identity.len();
        let mut at = 0;
        while let Some(number) = self.unlogged.next_of(file, at) {
            let ix = self.pages.find(file, number).expect("an unlogged page is in the table");
            for (_, data) in unlogged_of(&self.pages[ix]) {
                bytes += weir_log::RECORD_OVERHEAD_BYTES + data.len().next_multiple_of(8);
            }
            if bytes > DIRECT_BYTES_MIN {
                return None;
            }
            at = number + 1;
        }
        Some(bytes)
    }

    /// Appends what is unlogged of a file; there is room.
    fn log_unlogged(&mut self, file: FileIx) {
        let id = self.files[file].id.0;
        let size = self.files[file].size;
        let mut at = 0;
        while let Some(number) = self.unlogged.next_of(file, at) {
            at = number + 1;
            let ix = self.pages.find(file, number).expect("an unlogged page is in the table");
            let may_leave = self.logged_may_leave(ix);
            let mut extents = Extents::new();
            let mut last = None;
            for (start, data) in unlogged_of(&self.pages[ix]) {
                let offset = number * PAGE + start as u64;
                let len = data.len().min(size.saturating_sub(offset) as usize);
                if len == 0 {
                    continue;
                }
                let log = self.log.as_mut().expect("there is a log");
                let record = Record::Write { file: id, offset, data: &data[..len] };
                let lsn = log.append(&mut self.files[file], &record);
                last = Some(lsn);
                if may_leave {
                    let run = Run { start: start as u16, len: len as u16 };
                    extents.push(Extent::of_record(lsn, run));
                }
                self.stats.log_bytes += len as u64;
                self.stats.log_records += 1;
            }
            if let Some(lsn) = last {
                self.changed_in_log(file, lsn);
            }
            self.update(ix, |page| page.unlogged = Default::default());
            if may_leave {
                self.logged_to_leave(ix, extents);
            }
        }
    }

    /// A record that changes the file was appended.
    pub(crate) fn changed_in_log(&mut self, file: FileIx, lsn: Lsn) {
        let logged = &mut self.files[file].logged;
        logged.last = Some(lsn);
        logged.last_change = Some(lsn);
        if logged.oldest.is_none() {
            // The whole group is kept, its name for the file with it.
            let log = self.log.as_mut().expect("there is a log");
            let head = log.writer.head();
            logged.oldest = Some(head);
            // What went home before is older than any record now.
            logged.ahead = 0;
            log.held.insert((head, file));
        }
    }

    /// Appends a record about a file, naming it; `None` if the log is full or has failed.
    fn append(&mut self, file: FileIx, record: &Record<'_>) -> Option<Lsn> {
        let log = self.log.as_mut()?;
        let of_file = &mut self.files[file];
        let name = Record::File { file: of_file.id.0, identity: &of_file.identity };
        if log.failed.is_some() || !log.writer.has_room(name.padded_bytes() + record.padded_bytes())
        {
            return None;
        }
        self.stats.log_records += 1;
        Some(log.append(of_file, record))
    }

    /// The file got a size at home. What the log has of it is to be cut at replay, too.
    pub(crate) fn log_truncation(&mut self, file: FileIx, size: u64) {
        if self.files[file].logged.oldest.is_none() {
            return;
        }
        let record = Record::Truncate { file: self.files[file].id.0, size };
        match self.append(file, &record) {
            Some(lsn) => self.changed_in_log(file, lsn),
            None => self.home_is_ahead(file),
        }
    }

    /// Home has what no record has: bytes that went there unlogged, or a new arrangement.
    pub(crate) fn home_is_ahead(&mut self, file: FileIx) {
        if let Some(log) = &mut self.log {
            log.ahead_events += 1;
            self.files[file].logged.ahead = log.ahead_events;
        }
    }

    /// Whether the next sync of a file must bring it home.
    pub(crate) fn is_home_ahead(&self, file: FileIx) -> bool {
        let logged = &self.files[file].logged;
        logged.oldest.is_some() && logged.ahead != 0
    }

    /// What a full sync that begins now will free.
    pub(crate) fn full_sync_begins(&self, file: FileIx) -> Option<Full> {
        let log = self.log.as_ref().filter(|_| self.logs(file))?;
        let ahead = self.files[file].logged.ahead;
        Some(Full { before: log.writer.position(), group: log.writer.head(), ahead })
    }

    /// The file's last record, if it is not durable yet.
    pub(crate) fn undurable_record(&self, file: FileIx) -> Option<Lsn> {
        let last = self.files[file].logged.last?;
        let log = self.log.as_ref().filter(|log| log.failed.is_none())?;
        (last >= log.writer.durable()).then_some(last)
    }

    /// Whether records of the file may have to be replayed.
    pub(crate) fn has_records(&self, file: FileIx) -> bool {
        self.files[file].logged.oldest.is_some()
    }

    /// A full sync of the file ended well: records from before it are void. Answers the position of
    /// the record that says so, if one is needed.
    ///
    /// # Errors
    /// The log is full or has failed: the sync must not be said to have succeeded.
    pub(crate) fn release(&mut self, file: FileIx, full: Full) -> Result<Option<Lsn>, ErrorKind> {
        if let Some(kind) = self.log.as_ref().and_then(|log| log.failed) {
            return Err(kind);
        }
        let Full { before, group, ahead } = full;
        let logged = self.files[file].logged;
        let oldest = logged.oldest.filter(|&oldest| oldest < before);
        let Some(oldest) = oldest else {
            self.caught_up(file, ahead);
            return Ok(logged.last);
        };
        let record = Record::Revoke { file: self.files[file].id.0, before };
        let Some(lsn) = self.append(file, &record) else {
            self.home_is_ahead(file);
            return Err(ErrorKind::NoSpace);
        };
        let rest = logged.last_change.filter(|&last| last >= before).map(|_| group);
        let logged = &mut self.files[file].logged;
        logged.last = Some(lsn);
        logged.oldest = rest;
        let log = self.log_mut();
        log.held.remove(&(oldest, file));
        if let Some(rest) = rest {
            log.held.insert((rest, file));
        }
        self.caught_up(file, ahead);
        Ok(Some(lsn))
    }

    /// The records agree with home again, unless it went past them once more.
    fn caught_up(&mut self, file: FileIx, ahead: u64) {
        let logged = &mut self.files[file].logged;
        if logged.ahead == ahead {
            logged.ahead = 0;
        }
    }

    /// Whether a position is durable, or nobody need wait for it.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        self.log.as_ref().is_none_or(|log| lsn < log.writer.durable())
    }

    /// Whether a sync waits for the log.
    pub(crate) fn log_is_awaited(&self) -> bool {
        self.log.as_ref().is_some_and(|log| !log.waiting.is_empty())
    }

    /// Makes a sync wait for a position.
    pub(crate) fn wait_for_log(&mut self, lsn: Lsn, file: FileIx, id: u64) {
        let syncs = &mut self.files[file].syncs;
        let sync = syncs.iter_mut().find(|sync| sync.id == id).expect("a waiter stays");
        sync.lsn = Some(lsn);
        self.log_mut().waiting.push((lsn, file, id));
        self.commit_group();
    }

    /// Whether a file on its way out of the engine has records to be freed first; starts that.
    pub(crate) fn must_release(&mut self, file: FileIx, now: Time) -> bool {
        let logged = self.files[file].logged;
        let Some(oldest) = logged.oldest else { return false };
        let log = self.log.as_ref().expect("records are in a log");
        if logged.checkpointing {
            return true;
        }
        if self.files[file].discarded || log.failed.is_some() || now < log.retry_at {
            // Gone for programs. Its removal may not be durable at home yet: if it comes back,
            // so must what was synced of it.
            self.files[file].logged.oldest = None;
            let log = self.log_mut();
            log.held.remove(&(oldest, file));
            log.orphans.insert(oldest);
            return false;
        }
        self.start_checkpoint(file, now);
        true
    }

    fn start_checkpoint(&mut self, file: FileIx, now: Time) {
        self.files[file].logged.checkpointing = true;
        self.start_full_sync(file, Durability::Data, SyncFor::Checkpoint, now);
    }

    /// A checkpoint's sync of a file ended.
    pub(crate) fn checkpointed(&mut self, file: FileIx, failed: bool) {
        self.files[file].logged.checkpointing = false;
        if failed {
            let retry_at = self.clock + self.config.retry_delay;
            self.log_mut().retry_at = retry_at;
        }
    }

    /// Has the log freed, in time before somebody waits for its space.
    pub(crate) fn pump_log(&mut self, now: Time) {
        let Some(log) = &mut self.log else { return };
        if log.failed.is_some() || log.closing {
            return;
        }
        let needed = log.oldest_needed();
        let freed = needed.0.saturating_sub(log.writer.tail().0);
        if log.superblock.is_none()
            && freed >= log.writer.capacity_bytes() / 16
            && let Some(commit) = log.writer.checkpoint(needed)
        {
            let io = self.log_command(commit);
            self.log_mut().superblock = Some(io);
        }
        let log = self.log_mut();
        if !log.is_half_full() || now < log.retry_at {
            return;
        }
        if log.home.is_none() && log.orphans.first().is_some_and(|&lsn| lsn == needed) {
            log.orphans_syncing = std::mem::take(&mut log.orphans);
            let io = self.next_log_io();
            self.log_mut().home = Some(io);
            self.outputs.push_back(Output::Log(LogCommand::SyncHome { io }));
        }
        let held: Vec<FileIx> =
            self.log_mut().held.iter().take(CHECKPOINTS_MAX).map(|&(_, file)| file).collect();
        for file in held {
            if !self.files[file].logged.checkpointing {
                self.start_checkpoint(file, now);
            }
        }
    }

    /// When the log has something to do though nothing happens.
    pub(crate) fn log_tick(&self) -> Option<Time> {
        let log = self.log.as_ref()?;
        let due = log.is_half_full() && log.failed.is_none() && !log.closing;
        due.then_some(log.retry_at)
    }

    /// Closes the open group and sends it, unless another one is under way.
    pub(crate) fn commit_group(&mut self) {
        let log = self.log_mut();
        if log.failed.is_some() {
            return;
        }
        if let Some(commit) = log.writer.commit() {
            self.stats.log_groups += 1;
            self.stats.log_blocks += commit.blocks.len() as u64;
            let io = self.log_command(commit);
            self.log_mut().group = Some(io);
        }
    }

    fn group_ended(&mut self, result: Result<(), ErrorKind>, now: Time) {
        if let Err(kind) = result {
            return self.log_failed(kind, now);
        }
        let log = self.log_mut();
        log.writer.committed();
        let durable = log.writer.durable();
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut log.waiting).into_iter().partition(|&(lsn, ..)| lsn < durable);
        log.waiting = waiting;
        let wanted = !log.waiting.is_empty();
        self.finish_spill(durable);
        if wanted || self.spill.is_under_way() {
            self.commit_group();
        }
        for (_, file, id) in ready {
            self.advance_sync(file, id);
            self.progress(file, now);
        }
    }

    /// No sync succeeds from now on. Reads and writes go on, and data goes home as ever.
    fn log_failed(&mut self, kind: ErrorKind, now: Time) {
        let log = self.log_mut();
        log.failed.get_or_insert(kind);
        let waiting = std::mem::take(&mut log.waiting);
        self.fail_spill();
        self.stats.log_errors += 1;
        for (_, file, id) in waiting {
            self.fail_sync(file, id, kind);
            self.progress(file, now);
        }
    }

    fn log_command(&mut self, commit: Commit) -> IoId {
        let io = self.next_log_io();
        self.outputs.push_back(Output::Log(LogCommand::Write { io, commit }));
        io
    }

    pub(crate) fn next_log_io(&mut self) -> IoId {
        self.last_io += 1;
        IoId(self.last_io)
    }

    pub(crate) fn log_mut(&mut self) -> &mut Log {
        self.log.as_mut().expect("there is a log")
    }

    pub(crate) fn log_stats(&self, stats: &mut Stats) {
        if let Some(log) = &self.log {
            stats.log_used_bytes = log.writer.used_bytes();
            stats.log_capacity_bytes = log.writer.capacity_bytes();
        }
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check_log(&self) {
        let Some(log) = &self.log else {
            assert!(self.unlogged.is_empty(), "without a log nothing is to be logged");
            return;
        };
        let mut held = 0;
        for (ix, file) in self.files.iter() {
            if let Some(oldest) = file.logged.oldest {
                assert!(log.held.contains(&(oldest, ix)), "{:?} is held", file.id);
                held += 1;
            }
        }
        assert_eq!(held, log.held.len());
    }
}

/// The unlogged bytes of a page, each piece with where in the page it begins.
fn unlogged_of(page: &Page) -> impl Iterator<Item = (usize, &[u8])> {
    let (from, to) = (usize::from(page.unlogged.from), usize::from(page.unlogged.to));
    let resident = page.frame.as_ref().map(|frame| (from, &frame.bytes()[from..to]));
    let patches = page.patches.iter().filter_map(move |(run, bytes)| {
        let (start, end) = (usize::from(run.start), usize::from(run.start + run.len));
        let (first, last) = (start.max(from), end.min(to));
        (first < last).then(|| (first, &bytes[first - start..last - start]))
    });
    resident.into_iter().chain(patches)
}
