//! The redo log's side of the engine: what a sync logs, who waits for it, and when the log's tail may
//! advance. `write_ahead` decides what is logged before home is written.
//!
//! A sync by the log appends what was written to the file and is not in the log yet to the open
//! group: bytes of frames and patches as they are, without a fetch. One group is under way at a
//! time; what is appended meanwhile shares the next one (group commit). A sync of much data brings
//! everything home instead (a *full* sync) and then revokes the file's records, which are not
//! needed any more.
//!
//! Invariants:
//! - `unlogged` holds exactly the pages whose span of unlogged bytes is not empty;
//! - a file stands in `held` under the first segment that its contents need (`needs`), and the tail
//!   never passes that;
//! - a revoke is appended only when everything of its file that is older is home and durable
//!   there, or was made void by what is durable;
//! - once a write of the log has failed, no sync of a file succeeds any more; a sync of everything
//!   does, and its caller sees to it that the log is not replayed.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_log::{Commit, Lsn, RECORD_OVERHEAD_BYTES, Record, Writer};

use crate::command::{Durability, FileId, IoId, LogCommand, Outcome, Output, RequestId};
use crate::engine::{Engine, Io, Step};
use crate::error::{Error, ErrorKind};
use crate::file::{File, Gate, SyncFor};
use crate::needs::{Counts, Needs, Segment, Segments};
use crate::pace::{Ended, Pace};
use crate::page::{FileIx, Page, PageIx};
use crate::patch::Run;
use crate::recorded::Recorded;
use crate::spilled::{Extent, Extents};
use crate::time::Time;
use crate::write_ahead::Behind;
use crate::{PAGE_BYTES, Stats};

const PAGE: u64 = PAGE_BYTES as u64;

/// A sync of no more than this is logged, whatever it costs.
const LOGGED_BYTES_MIN: usize = 256 << 10;

/// A sync of no more than this goes home where home is to be synced anyway.
const ALONG_BYTES_MAX: usize = 64 << 10;

/// A sync of more than this goes home directly, written once and not twice, while the costs of the
/// two are not known.
const LOGGED_BYTES_UNKNOWN: usize = 1 << 20;

/// A sync is logged where that takes no more than this share of the time that going home does: what is
/// logged still has to go there.
const LOGGED_COST_SHARE: u32 = 2;

/// The log's share that is left for records that void what must not be replayed.
const SLACK_SHARE: u64 = 16;

/// The log's share that is freed at once.
const FREED_SHARE: u64 = 16;

/// Files brought home at once to free the log.
const CHECKPOINTS_MAX: usize = 8;

/// What the engine knows of a file's records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logged {
    /// The group that names the file, by its position.
    named_in: Option<Lsn>,
    /// The group of the first record that no revoke made void. The tail may have passed it.
    first: Option<Lsn>,
    /// The last record that changes the file.
    last_change: Option<Lsn>,
    /// The last record of all.
    pub(crate) last: Option<Lsn>,
    /// The last record that revokes others.
    pub(crate) revoked: Option<Lsn>,
    /// No record that may be replayed writes past this byte.
    end: u64,
    /// The last event in which home became newer than the records, because it was changed without Weir. 0 if
    /// home is not newer.
    ahead: u64,
    /// What of it keeps the tail where it is.
    pub(crate) needs: Needs,
    /// A full sync is under way to free the log.
    checkpointing: bool,
    /// A sync of home alone is.
    freeing: bool,
    /// Only what supersedes its records is logged: its name is changing.
    paused: bool,
}

/// What logging some of a file comes to.
#[derive(Clone, Copy, Debug, Default)]
struct Unlogged {
    /// In the log, at most, its name counted.
    bytes: usize,
    pages: u32,
    /// Of neighbouring pages.
    runs: u32,
    /// Pages without a frame.
    patched: u32,
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
    pub(crate) failed: Option<ErrorKind>,
    pub(crate) segments: Segments,
    pub(crate) recorded: Recorded,
    /// Commands that wait until the records superseding older ones are durable.
    pub(crate) behind: Behind,
    held: BTreeSet<(Segment, FileIx)>,
    /// What files need that are gone from the engine, and perhaps not yet from home.
    orphans: Counts,
    /// Of these, those that the sync of home under way frees.
    orphans_syncing: Counts,
    /// Files on their way out of the engine whose checkpoint is to be tried again.
    leaving: BTreeSet<FileIx>,
    /// Syncs that wait for a position to be durable.
    waiting: Vec<(Lsn, FileIx, u64)>,
    group: Option<IoId>,
    /// Its blocks, and when it was sent.
    group_sent: (usize, Time),
    /// What groups have cost.
    pace: Pace,
    superblock: Option<IoId>,
    home: Option<IoId>,
    /// Events by which home went past the records of a file.
    ahead_events: u64,
    closing: bool,
    /// No checkpoint is tried before.
    pub(crate) retry_at: Time,
}

impl Log {
    /// The first segment that is needed.
    fn first_needed(&self) -> Option<Segment> {
        let held = self.held.first().map(|&(segment, _)| segment);
        [held, self.orphans.first(), self.orphans_syncing.first()].into_iter().flatten().min()
    }

    /// Where the tail may go on to.
    fn needed_from(&self) -> Lsn {
        let durable = self.writer.durable();
        self.first_needed().map_or(durable, |segment| self.segments.start(segment).min(durable))
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.group.is_some() || self.superblock.is_some() || self.home.is_some()
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

    /// Whether `bytes` bytes are free, plus a reserve for records that void others.
    pub(crate) fn has_space(&self, bytes: u64) -> bool {
        self.writer.has_space(bytes + self.writer.capacity_bytes() / SLACK_SHARE)
    }

    /// More than half of the log is used, so it is to be freed.
    fn is_half_full(&self) -> bool {
        self.writer.used_bytes() > self.writer.capacity_bytes() / 2
    }

    /// The file that needs the first needed segment, if the engine still has the file.
    pub(crate) fn first_holder(&self) -> Option<FileIx> {
        let &(segment, file) = self.held.first()?;
        (self.first_needed() == Some(segment)).then_some(file)
    }

    /// The open group is long enough to be sent although no sync waits for it, so that the next sync finds
    /// room.
    pub(crate) fn is_open_group_long(&self) -> bool {
        let bytes = (self.writer.position().0 - self.writer.head().0) as usize;
        bytes >= self.writer.group_bytes_max() / 4
    }
}

impl Engine {
    /// Gives the engine a redo log, before anything is attached.
    pub fn start_log(&mut self, writer: Writer) {
        let capacity = writer.capacity_bytes();
        self.log = Some(Log {
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
            pace: Pace::new(1, 1),
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
            self.files[file].logged.named_in = None;
            self.files[file].logged.paused = false;
        }
    }

    /// Makes a file's syncs go home until the file is identified anew: its identity for recovery is about to
    /// change. The file's records in the log must be revoked first, by a section that changes the file or by
    /// [`Engine::revoke`].
    pub fn pause_log(&mut self, file: FileId) {
        if let Some(file) = self.files.find(file) {
            self.files[file].logged.paused = true;
        }
    }

    /// The file has no name any more: its records in the log must not be replayed. Answered as
    /// `Reply::Synced` when that is durable.
    ///
    /// # Errors
    /// The log is full or has failed.
    pub fn revoke(&mut self, request: RequestId, file: FileId, now: Time) -> Outcome<()> {
        self.clock = now;
        let Some(file) = self.files.find(file) else { return Outcome::Done(Ok(())) };
        let usable = self.log.as_ref().is_some_and(Log::is_usable);
        if !usable || !self.has_records(file) {
            return Outcome::Done(Ok(()));
        }
        let log = self.log_mut();
        let full = Full { before: log.writer.position(), group: log.writer.head(), ahead: 0 };
        match self.release(file, full) {
            Ok(Some(lsn)) if !self.is_durable(lsn) => {
                let done = SyncFor::Sync(request);
                self.add_log_waiter(file, Durability::Data, done, Some(lsn));
                Outcome::Pending
            }
            Ok(_) => Outcome::Done(Ok(())),
            Err(kind) => Outcome::Done(Err(Error::Home(kind))),
        }
    }

    /// Whether the log may serve syncs of a file.
    pub(crate) fn may_log(&self, file: FileIx) -> bool {
        self.logs(file) && !self.files[file].logged.paused
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
        let Some(log) = &mut self.log else { return false };
        if log.failed.is_some() || log.closing || log.is_under_way() {
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
        self.log.as_ref().is_some_and(|log| log.is_under_way() || self.spill.is_reading())
    }

    /// Whether writes to a file are to be noted as not logged.
    pub(crate) fn logs(&self, file: FileIx) -> bool {
        self.log.is_some() && !self.files[file].identity.is_empty()
    }

    /// Starts a sync of the pages that a byte range touches by the log, if that is possible and worth
    /// it.
    pub(crate) fn sync_by_log(
        &mut self,
        file: FileIx,
        range: (u64, u64),
        durability: Durability,
        done: SyncFor,
        now: Time,
    ) -> Option<Step<()>> {
        let log = self.log.as_ref()?;
        if let Some(kind) = log.failed {
            return Some(Step::Done(Err(Error::Home(kind))));
        }
        // A section under way may cut what would be logged.
        let held = self.files[file].gate != Gate::Open;
        if held || !self.may_log(file) || self.is_home_ahead(file) {
            return None;
        }
        let unlogged = self.unlogged_in(file, range);
        if !self.has_room_for(unlogged.bytes)
            || !self.is_worth_logging(unlogged)
            || self.goes_along_home(file, unlogged)
        {
            return None;
        }
        self.log_unlogged(file, range);
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

    /// What is unlogged of the pages of a file that a byte range touches; no more than a group takes is
    /// looked at.
    fn unlogged_in(&self, file: FileIx, (from, to): (u64, u64)) -> Unlogged {
        let most = self.log.as_ref().map_or(0, |log| log.writer.group_bytes_max());
        let mut unlogged = Unlogged { bytes: self.name_bytes(file), ..Unlogged::default() };
        let mut at = from / PAGE;
        while let Some(number) = self.unlogged.next_of(file, at).filter(|&next| next * PAGE < to) {
            let ix = self.pages.find(file, number).expect("an unlogged page is in the table");
            let page = &self.pages[ix];
            unlogged.bytes += unlogged_bytes(page);
            unlogged.pages += 1;
            unlogged.patched += u32::from(page.frame.is_none());
            unlogged.runs += u32::from(number != at || unlogged.runs == 0);
            if unlogged.bytes > most {
                break;
            }
            at = number + 1;
        }
        unlogged
    }

    /// Whether to log is much quicker than to go home at once, as far as either is known.
    fn is_worth_logging(&self, unlogged: Unlogged) -> bool {
        let Unlogged { bytes, pages, runs, patched } = unlogged;
        if bytes <= LOGGED_BYTES_MIN {
            return true;
        }
        let log = self.log.as_ref().expect("there is a log");
        let (Some(group), Some(home)) = (log.pace.cost(), self.destage_pace.cost()) else {
            return bytes <= LOGGED_BYTES_UNKNOWN;
        };
        let logging = group + log.pace.page() * (bytes / PAGE_BYTES) as u32;
        // Patched pages are fetched first, and lie as the others do.
        let fetching = match self.fetch_pace.cost() {
            Some(fetch) if patched > 0 => {
                (fetch * runs + self.fetch_pace.page() * pages) * patched / pages
            }
            _ => Duration::ZERO,
        };
        let writing = home * runs + self.destage_pace.page() * pages;
        logging * LOGGED_COST_SHARE <= fetching + writing + self.home_sync_cost
    }

    /// Whether a sync brings the file's data home instead of logging it: home is to be synced anyway, for a new
    /// file's name say, and what is unlogged is little and all that is unclean. It would go home soon in any case.
    fn goes_along_home(&self, file: FileIx, unlogged: Unlogged) -> bool {
        let of_file = &self.files[file];
        of_file.home_unsynced
            && !self.has_records(file)
            && unlogged.pages > 0
            && unlogged.pages as usize == of_file.dirty_pages + of_file.destaging_pages
            && unlogged.patched == 0
            && unlogged.runs <= 1
            && unlogged.bytes <= ALONG_BYTES_MAX
    }

    /// Appends what is unlogged of the pages of a file that a byte range touches; there is room.
    fn log_unlogged(&mut self, file: FileIx, (from, to): (u64, u64)) {
        let mut at = from / PAGE;
        while let Some(number) = self.unlogged.next_of(file, at).filter(|&next| next * PAGE < to) {
            at = number + 1;
            let ix = self.pages.find(file, number).expect("an unlogged page is in the table");
            let may_leave = self.logged_may_leave(ix);
            let extents = self.log_page(ix);
            if may_leave {
                self.logged_to_leave(ix, extents);
            }
        }
    }

    /// Appends what is unlogged of a page; there is room. Where it is.
    pub(crate) fn log_page(&mut self, ix: PageIx) -> Extents {
        let page = &self.pages[ix];
        let (file, number) = (page.file, page.number);
        let (id, size) = (self.files[file].id.0, self.files[file].size());
        let log = self.log.as_mut().expect("there is a log");
        let mut extents = Extents::new();
        for (start, data) in unlogged_of(page) {
            let offset = number * PAGE + start as u64;
            let len = data.len().min(size.saturating_sub(offset) as usize);
            if len == 0 {
                continue;
            }
            let record = Record::Write { file: id, offset, data: &data[..len] };
            let lsn = log.append(&mut self.files[file], &record);
            extents.push(Extent::of_record(lsn, Run { start: start as u16, len: len as u16 }));
            self.stats.log_bytes += len as u64;
            self.stats.log_records += 1;
        }
        self.page_logged(ix, &extents);
        extents
    }

    /// All that was unlogged of a page was appended.
    pub(crate) fn page_logged(&mut self, ix: PageIx, extents: &Extents) {
        let (file, number) = (self.pages[ix].file, self.pages[ix].number);
        let rec = extents.last().map(|last| {
            let segment = self.changed_in_log(file, number, last.record());
            self.log_mut().recorded.insert((file, number));
            segment
        });
        let own = self.pages[ix].rec;
        if let (Some(segment), None) = (rec, own) {
            self.need(file, segment);
        }
        self.update(ix, |page| {
            page.rec = own.or(rec);
            page.unlogged = Default::default();
        });
    }

    /// A record that changes the file was appended to the open group. The group's segment.
    fn changed_in_log(&mut self, file: FileIx, number: u64, lsn: Lsn) -> Segment {
        let replayable = self.has_records(file);
        let log = self.log.as_mut().expect("there is a log");
        let logged = &mut self.files[file].logged;
        let head = log.writer.head();
        logged.last = Some(lsn);
        logged.last_change = Some(lsn);
        if !replayable {
            logged.first = Some(head);
            logged.end = 0;
            // What went home before is older than any record now.
            logged.ahead = 0;
        }
        logged.end = logged.end.max((number + 1) * PAGE);
        log.segments.of_group(head)
    }

    /// A content of a file needs the log from a segment on.
    pub(crate) fn need(&mut self, file: FileIx, segment: Segment) {
        self.change_needs(file, |needs| needs.away.add(segment));
    }

    /// It does not any more: others of the same page do.
    pub(crate) fn need_not(&mut self, file: FileIx, segment: Segment) {
        self.change_needs(file, |needs| needs.away.remove(segment));
    }

    /// Two contents of a page become one: which of the segments that they need it needs.
    pub(crate) fn one_need(
        &mut self,
        file: FileIx,
        a: Option<Segment>,
        b: Option<Segment>,
    ) -> Option<Segment> {
        if let (Some(a), Some(b)) = (a, b) {
            self.need_not(file, a.max(b));
        }
        a.into_iter().chain(b).min()
    }

    pub(crate) fn change_needs<T>(
        &mut self,
        file: FileIx,
        change: impl FnOnce(&mut Needs) -> T,
    ) -> T {
        let needs = &mut self.files[file].logged.needs;
        let before = needs.first();
        let result = change(needs);
        let after = needs.first();
        if before != after {
            let held = &mut self.log.as_mut().expect("records are in a log").held;
            if let Some(segment) = before {
                held.remove(&(segment, file));
            }
            if let Some(segment) = after {
                held.insert((segment, file));
            }
        }
        result
    }

    /// A sync of a file's home begins; returns what it covers. For a removed file it covers nothing: dropped
    /// data is void when the removal is durable, and this sync does not make it so.
    pub(crate) fn home_sync_begins(&mut self, file: FileIx) -> Counts {
        if self.files[file].discarded {
            return Counts::default();
        }
        self.files[file].logged.needs.begin_sync()
    }

    /// The sync succeeded.
    pub(crate) fn home_sync_ended(&mut self, file: FileIx, covered: &Counts) {
        if !covered.is_empty() {
            self.change_needs(file, |needs| needs.end_sync(covered));
        }
    }

    /// Whether records of so many bytes fit, and still leave what is kept for others that void them.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.log.as_ref().is_some_and(|log| {
            log.is_usable() && log.writer.has_room(bytes) && log.has_space(bytes as u64)
        })
    }

    /// At most what naming a file takes.
    pub(crate) fn name_bytes(&self, file: FileIx) -> usize {
        RECORD_OVERHEAD_BYTES + self.files[file].identity.len().next_multiple_of(8)
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

    /// Home was changed without Weir: it is newer than the records.
    pub(crate) fn home_is_ahead(&mut self, file: FileIx) {
        if let Some(log) = &mut self.log {
            log.ahead_events += 1;
            self.files[file].logged.ahead = log.ahead_events;
        }
    }

    /// Whether the next sync of a file must bring it home.
    pub(crate) fn is_home_ahead(&self, file: FileIx) -> bool {
        self.files[file].logged.ahead != 0 && self.has_records(file)
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
        let logged = &self.files[file].logged;
        let Some(log) = &self.log else { return false };
        logged.first.is_some() && logged.last_change.is_some_and(|lsn| lsn >= log.writer.tail())
    }

    /// Whether records of the file may have to be replayed that write past byte `from`.
    pub(crate) fn has_records_from(&self, file: FileIx, from: u64) -> bool {
        self.has_records(file) && self.files[file].logged.end > from
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
        let logged = &self.files[file].logged;
        if !self.has_records(file) || logged.first.is_none_or(|first| first >= before) {
            let last = logged.last;
            self.caught_up(file, ahead);
            return Ok(last);
        }
        let record = Record::Revoke { file: self.files[file].id.0, before };
        let Some(lsn) = self.append(file, &record) else {
            self.home_is_ahead(file);
            return Err(ErrorKind::NoSpace);
        };
        let logged = &mut self.files[file].logged;
        logged.last = Some(lsn);
        logged.revoked = Some(lsn);
        logged.first = logged.last_change.filter(|&last| last >= before).map(|_| group);
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
        if !self.has_records(file) {
            self.change_needs(file, std::mem::take);
            return false;
        }
        if self.files[file].logged.checkpointing {
            return true;
        }
        let log = self.log.as_mut().expect("records are in a log");
        if self.files[file].discarded || log.failed.is_some() {
            // Gone for programs. Its removal may not be durable at home yet: if it comes back,
            // so must what was synced of it.
            self.files[file].logged.first = None;
            let needs = self.change_needs(file, std::mem::take);
            assert!(needs.away.is_empty() && needs.syncing.is_empty(), "the file is idle");
            self.log_mut().orphans.add_all(&needs.settling);
            self.log_mut().orphans.add_all(&needs.lost);
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
        if let Some(log) = &mut self.log {
            log.leaving.remove(&file);
        }
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
        let needed = log.needed_from();
        let freed = needed.0.saturating_sub(log.writer.tail().0);
        let worthwhile = match log.behind.lacks_room {
            Some(_) => 1,
            None => log.writer.capacity_bytes() / FREED_SHARE,
        };
        if log.superblock.is_none()
            && freed >= worthwhile
            && let Some(commit) = log.writer.checkpoint(needed)
        {
            let io = self.log_command(commit);
            self.log_mut().superblock = Some(io);
        }
        let log = self.log_mut();
        if now < log.retry_at {
            return;
        }
        for file in std::mem::take(&mut log.leaving) {
            self.progress(file, now);
        }
        self.start_repairs(now);
        let log = self.log_mut();
        if !log.is_half_full() || now < log.retry_at {
            return;
        }
        let first = log.first_needed();
        if log.home.is_none() && first.is_some() && log.orphans.first() == first {
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
            } else if self.home_sync_frees(file) {
                self.start_freeing(file);
            }
        }
        self.free_by_replay(now);
    }

    /// Syncs a file's home, and nothing else, to free the log.
    pub(crate) fn start_freeing(&mut self, file: FileIx) {
        if !std::mem::replace(&mut self.files[file].logged.freeing, true) {
            let id = self.add_log_waiter(file, Durability::Data, SyncFor::Freeing, None);
            self.sync_home(file, id);
        }
    }

    /// Whether a sync of home alone would free a good part of the log: while a checkpoint goes on, what
    /// was logged long before it passed by is home.
    fn home_sync_frees(&self, file: FileIx) -> bool {
        let Logged { needs, freeing, .. } = &self.files[file].logged;
        let Some(log) = &self.log else { return false };
        let Some(settling) = needs.settling.first() else { return false };
        let held = needs.away.first().is_some_and(|away| away <= settling);
        if *freeing || held || !needs.syncing.is_empty() {
            return false;
        }
        let left = needs.away.first().map_or(log.writer.durable(), |away| log.segments.start(away));
        let worthwhile = match log.behind.lacks_room {
            Some(_) => 1,
            None => 2 * log.writer.capacity_bytes() / FREED_SHARE,
        };
        left.0.saturating_sub(log.writer.tail().0) >= worthwhile
    }

    /// A sync of home to free the log ended.
    pub(crate) fn freed(&mut self, file: FileIx, failed: bool) {
        self.files[file].logged.freeing = false;
        if failed {
            let retry_at = self.clock + self.config.retry_delay;
            self.log_mut().retry_at = retry_at;
        }
    }

    /// When the log has something to do though nothing happens.
    pub(crate) fn log_tick(&self) -> Option<Time> {
        let log = self.log.as_ref()?;
        let wanted = log.is_half_full() || !log.leaving.is_empty() || !self.repairs.is_empty();
        let due = wanted && log.failed.is_none() && !log.closing;
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
            let blocks = commit.blocks.len();
            self.stats.log_blocks += blocks as u64;
            let io = self.log_command(commit);
            let sent = self.clock;
            let log = self.log_mut();
            log.group = Some(io);
            log.group_sent = (blocks, sent);
        }
    }

    fn group_ended(&mut self, result: Result<(), ErrorKind>, now: Time) {
        if let Err(kind) = result {
            return self.log_failed(kind, now);
        }
        let log = self.log_mut();
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
        let wanted = wanted || !self.repairs.is_empty();
        self.send_behind(durable);
        self.room_in_log(now);
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

    /// What the pages of a file need, those on their way home and those in the log alone counted.
    fn contents_away(&self, file: FileIx) -> Counts {
        let mut away = Counts::default();
        let pages = self.pages_of(file).into_iter().filter_map(|ix| self.pages[ix].rec);
        let of_patches = self.patch_destages.iter().filter(|&(&ix, _)| self.pages[ix].file == file);
        let of_frames = self.ios.values().filter_map(|io| match io {
            Io::Destage { file: of, pages, .. } if *of == file => Some(pages),
            _ => None,
        });
        pages
            .chain(of_patches.filter_map(|(_, destage)| destage.content.rec))
            .chain(of_frames.flatten().filter_map(|content| content.rec))
            .chain(self.spill.index.of(file, 0).map(|(_, page)| self.rec_of(page)))
            .for_each(|segment| away.add(segment));
        away
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check_log(&self) {
        let Some(log) = &self.log else {
            assert!(self.unlogged.is_empty(), "without a log nothing is to be logged");
            return;
        };
        let mut held = 0;
        for (ix, file) in self.files.iter() {
            let needs = &file.logged.needs;
            if let Some(first) = needs.first() {
                assert!(log.held.contains(&(first, ix)), "{:?} is held", file.id);
                held += 1;
            }
            assert_eq!(needs.away, self.contents_away(ix), "contents of {:?}", file.id);
        }
        assert_eq!(held, log.held.len());
    }
}

/// At most what a page's unlogged bytes take in the log.
pub(crate) fn unlogged_bytes(page: &Page) -> usize {
    let pieces = unlogged_of(page);
    pieces.map(|(_, data)| RECORD_OVERHEAD_BYTES + data.len().next_multiple_of(8)).sum()
}

/// The unlogged bytes of a page, each piece with where in the page it begins.
fn unlogged_of(page: &Page) -> impl Iterator<Item = (usize, &[u8])> {
    let (from, to) = (usize::from(page.unlogged.from), usize::from(page.unlogged.to));
    let resident = page.frame.as_ref().map(|frame| (from, &frame.frame().bytes()[from..to]));
    let patches = page.patches.iter().filter_map(move |(run, bytes)| {
        let (start, end) = (usize::from(run.start), usize::from(run.start + run.len));
        let (first, last) = (start.max(from), end.min(to));
        (first < last).then(|| (first, &bytes[first - start..last - start]))
    });
    resident.into_iter().chain(patches)
}
