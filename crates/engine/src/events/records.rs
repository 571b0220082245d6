//! Records of files: appending pages' bytes, names and revocations, and the state of each file's records.

use weir_frames::PAGE_BYTES;
use weir_log::{Lsn, RECORD_OVERHEAD_BYTES, Record};

use crate::cache::page::Page;
use crate::cache::patch::Run;
use crate::cache::spilled::{LogExtent, LogExtents};
use crate::command::{Durability, FileId, Outcome, RequestId};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::journal::FileJournal;
use crate::journal::logged::Full;
use crate::place::{FileIx, PageIx};
use crate::time::Time;
use crate::waiters::sync::SyncFor;
use weir_journal::Segment;

const PAGE: u64 = PAGE_BYTES as u64;

/// The most space that a page's unlogged bytes take in the log.
pub(crate) fn unlogged_bytes(page: &Page) -> usize {
    let pieces = unlogged_of(page);
    pieces.map(|(_, data)| RECORD_OVERHEAD_BYTES + data.len().next_multiple_of(8)).sum()
}

/// The unlogged bytes of a page: pieces, each with its offset in the page.
pub(crate) fn unlogged_of(page: &Page) -> impl Iterator<Item = (usize, &[u8])> {
    let (from, to) = (usize::from(page.unlogged.from), usize::from(page.unlogged.to));
    let resident = page.frame.as_ref().map(|frame| (from, &frame.frame().bytes()[from..to]));
    let patches = page.patches.iter().filter_map(move |(run, bytes)| {
        let (start, end) = (usize::from(run.start), usize::from(run.start + run.len));
        let (first, last) = (start.max(from), end.min(to));
        (first < last).then(|| (first, &bytes[first - start..last - start]))
    });
    resident.into_iter().chain(patches)
}

impl Engine {
    /// Sets the bytes by which recovery finds an attached file. A file without them is not logged: its syncs bring it
    /// home.
    pub fn identify(&mut self, file: FileId, identity: &[u8]) {
        let Some(file) = self.cache.files.find(file) else { return };
        let logged = self.logs(file);
        let Some(log) = &mut self.journal else { return };
        self.cache.files[file].logged.identify(identity, &mut log.shared);
        if !logged && self.logs(file) {
            self.note_all_unlogged(file);
        }
    }

    /// Records of names make an attached file that is not at home yet, as the node with this number: syncs of it are
    /// logged. When it is at home, [`Engine::identify`] follows, where files are identified.
    pub fn made_as(&mut self, file: FileId, node: u64) {
        self.number(file, node);
        if let Some(file) = self.cache.files.find(file).filter(|_| self.journal.is_some()) {
            let logs_sizes = self.is_ordered();
            let file = &mut self.cache.files[file];
            file.logged.made_by_names();
            // Its name and attributes are in the log.
            file.home.unsynced = file.size() > 0 && !logs_sizes;
            file.home.attributes_unsynced = false;
        }
    }

    /// Records of names say where home has an attached file, by this number: recovery finds it so. Syncs of it are logged.
    pub fn number(&mut self, file: FileId, node: u64) {
        let Some(file) = self.cache.files.find(file) else { return };
        if self.journal.is_none() {
            return;
        }
        let logged = self.logs(file);
        self.cache.files[file].logged.number(node);
        if !logged && self.logs(file) {
            self.note_all_unlogged(file);
        }
    }

    /// Until now nobody noted what of a file's pages is not in the log.
    fn note_all_unlogged(&mut self, file: FileIx) {
        for ix in self.cache.pages_of(file) {
            if self.cache.pages[ix].is_unclean() {
                self.note_unlogged(file, ix, 0, PAGE_BYTES);
            }
        }
    }

    /// Makes a file's syncs go home until the file is identified again: its identity for recovery is about to
    /// change. The file's records in the log must be revoked first, by a freeze that changes the file or by
    /// [`Engine::revoke`].
    pub fn pause_log(&mut self, file: FileId) {
        if let Some(file) = self.cache.files.find(file) {
            self.cache.files[file].logged.paused = true;
            self.cache.files[file].home.attributes_changed();
        }
    }

    /// The file has no name any more: its records in the log must not be replayed. Answered as
    /// `Reply::Synced` when that is durable.
    ///
    /// # Errors
    /// The log is full or has failed.
    pub fn revoke(&mut self, request: RequestId, file: FileId, now: Time) -> Outcome<()> {
        self.clock = now;
        let Some(file) = self.cache.files.find(file) else { return Outcome::Done(Ok(())) };
        let usable = self.journal.as_ref().is_some_and(FileJournal::is_usable);
        if !usable || !self.has_records(file) {
            return Outcome::Done(Ok(()));
        }
        let log = self.journal_mut();
        let full = Full {
            before: log.shared.writer().position(),
            group: log.shared.writer().head(),
            ahead: 0,
        };
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

    /// Appends the unlogged bytes of a page, for which there must be room. Returns their positions.
    pub(crate) fn log_page(&mut self, ix: PageIx) -> LogExtents {
        let page = &self.cache.pages[ix];
        let (file, number) = (page.file, page.number);
        let (node, size) = (self.cache.files[file].logged.node(), self.cache.files[file].size());
        let log = self.journal.as_mut().expect("there is a log");
        let mut extents = LogExtents::new();
        for (start, data) in unlogged_of(page) {
            let offset = number * PAGE + start as u64;
            let len = data.len().min(size.saturating_sub(offset) as usize);
            if len == 0 {
                continue;
            }
            let record = Record::Write { file: node, offset, data: &data[..len] };
            let lsn = log.append(&mut self.cache.files[file], &record);
            extents.push(LogExtent::of_record(lsn, Run { start: start as u16, len: len as u16 }));
            self.stats.log_bytes += len as u64;
            self.stats.log_records += 1;
        }
        self.page_logged(ix, &extents);
        extents
    }

    /// All unlogged bytes of a page were appended.
    pub(crate) fn page_logged(&mut self, ix: PageIx, extents: &LogExtents) {
        let (file, number) = (self.cache.pages[ix].file, self.cache.pages[ix].number);
        let rec = extents.last().map(|last| {
            let segment = self.changed_in_log(file, number, last.record());
            self.journal_mut().recorded.insert((file, number));
            segment
        });
        let own = self.cache.pages[ix].rec;
        if let (Some(segment), None) = (rec, own) {
            self.retain(file, segment);
        }
        self.update(ix, |page| {
            page.rec = own.or(rec);
            page.unlogged = Default::default();
        });
    }

    /// A record that changes the file was appended to the open group. Returns the group's segment.
    pub(crate) fn changed_in_log(&mut self, file: FileIx, number: u64, lsn: Lsn) -> Segment {
        let replayable = self.has_records(file);
        let log = self.journal.as_mut().expect("there is a log");
        let logged = &mut self.cache.files[file].logged;
        let head = log.shared.writer().head();
        logged.last = Some(lsn);
        logged.last_change = Some(lsn);
        if !replayable {
            logged.first = Some(head);
            logged.end = 0;
            // Data that went home before is older than this record.
            logged.ahead = 0;
        }
        logged.end = logged.end.max((number + 1) * PAGE);
        log.shared.open_segment()
    }

    /// Whether records of a sync of `bytes` bytes fit, and leave the space reserved for what frees the log.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.journal.as_ref().is_some_and(|log| {
            let space = (bytes + log.reserved_for_home()) as u64;
            log.shared.has_room(bytes) && log.shared.has_space(space)
        })
    }

    /// The most space that a file's name takes in the log.
    pub(crate) fn name_bytes(&self, file: FileIx) -> usize {
        RECORD_OVERHEAD_BYTES + self.cache.files[file].logged.identity.len().next_multiple_of(8)
    }

    /// Appends a record about a file, naming it; `None` if the log is full or has failed.
    pub(crate) fn append(&mut self, file: FileIx, record: &Record<'_>) -> Option<Lsn> {
        let unlogged = self.unlogged_space();
        let log = self.journal.as_mut()?;
        let of_file = &mut self.cache.files[file];
        let name = Record::File { file: record.file(), identity: &of_file.logged.identity };
        let bytes = name.padded_bytes() + record.padded_bytes() + unlogged;
        if log.failed.is_some() || !log.shared.writer().has_room(bytes) {
            return None;
        }
        self.stats.log_records += 1;
        Some(log.append(of_file, record))
    }

    /// Home was changed without Weir: it is newer than the records.
    pub(crate) fn home_is_ahead(&mut self, file: FileIx) {
        if let Some(log) = &mut self.journal {
            log.ahead_events += 1;
            self.cache.files[file].logged.ahead = log.ahead_events;
            self.is_not_served(file);
        }
    }

    /// Whether the next sync of a file must bring it home.
    pub(crate) fn is_home_ahead(&self, file: FileIx) -> bool {
        self.cache.files[file].logged.ahead != 0 && self.has_records(file)
    }

    /// What a full sync that begins now will free; `None` if the file is not logged.
    pub(crate) fn full_sync_begins(&self, file: FileIx) -> Option<Full> {
        // The record of a size that home does not have yet is not void.
        let is_resizing = self.cache.files[file].logged.resizing.is_some();
        let log = self.journal.as_ref().filter(|_| self.logs(file) && !is_resizing)?;
        let ahead = self.cache.files[file].logged.ahead;
        Some(Full {
            before: log.shared.writer().position(),
            group: log.shared.writer().head(),
            ahead,
        })
    }

    /// The file's last record, if it is not durable yet.
    pub(crate) fn undurable_record(&self, file: FileIx) -> Option<Lsn> {
        let last = self.cache.files[file].logged.last?;
        let log = self.journal.as_ref().filter(|log| log.failed.is_none())?;
        (last >= log.shared.writer().durable()).then_some(last)
    }

    /// Whether records of the file may have to be replayed.
    pub(crate) fn has_records(&self, file: FileIx) -> bool {
        let logged = &self.cache.files[file].logged;
        let Some(log) = &self.journal else { return false };
        logged.first.is_some()
            && logged.last_change.is_some_and(|lsn| lsn >= log.shared.writer().tail())
    }

    /// Whether records of the file may have to be replayed that write past byte `from`.
    pub(crate) fn has_records_from(&self, file: FileIx, from: u64) -> bool {
        self.has_records(file) && self.cache.files[file].logged.end > from
    }

    /// A full sync of the file succeeded: records from before it are void. Returns the position of the record that says
    /// so, if one is needed.
    ///
    /// # Errors
    /// The log is full or has failed: the sync must be reported as failed.
    pub(crate) fn release(&mut self, file: FileIx, full: Full) -> Result<Option<Lsn>, ErrorKind> {
        if let Some(kind) = self.journal.as_ref().and_then(|log| log.failed) {
            return Err(kind);
        }
        let Full { before, group, ahead } = full;
        let logged = &self.cache.files[file].logged;
        if !self.has_records(file) || logged.first.is_none_or(|first| first >= before) {
            let last = logged.last;
            self.caught_up(file, before, ahead);
            return Ok(last);
        }
        let record = Record::Revoke { file: self.cache.files[file].logged.node(), before };
        let Some(lsn) = self.append(file, &record) else {
            self.home_is_ahead(file);
            return Err(ErrorKind::NoSpace);
        };
        let logged = &mut self.cache.files[file].logged;
        logged.last = Some(lsn);
        logged.revoked = Some(lsn);
        logged.first = logged.last_change.filter(|&last| last >= before).map(|_| group);
        self.caught_up(file, before, ahead);
        Ok(Some(lsn))
    }

    /// Records from before a position are void. The others are as new as home again, unless home was changed without Weir since.
    fn caught_up(&mut self, file: FileIx, before: Lsn, ahead: u64) {
        let logged = &mut self.cache.files[file].logged;
        logged.void_before(before);
        if logged.ahead == ahead {
            logged.ahead = 0;
        }
    }
}
