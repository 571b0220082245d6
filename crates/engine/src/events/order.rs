//! Everything in one order ([`Order::All`]): each write and each new size is logged before it goes home, and a commit takes
//! all of it, so that the files after a crash are as at one moment.
//!
//! A commit is one group. It is closed in the same event in which all unlogged bytes of all files were appended to it,
//! behind the records of names and sizes that came before. So recovery, which finds a group whole or not at all, finds
//! the changes up to a moment, and none after it. That it always fits is seen to by the writers: one that would have more
//! unlogged than the open group, or the log, has room for waits until the group in flight is durable.
//!
//! Home gets a page only when nothing of its file is unlogged, and what is logged of the file is durable. A file gets a new
//! size at home when the record of that size is durable.
//!
//! Invariants:
//! - the open group and the log have room for all unlogged bytes;
//! - nothing that is not in a durable group goes home;
//! - while a size is logged that home does not have yet, nothing of the file is unlogged, and its records are not revoked.

use weir_log::{Lsn, Record};

use crate::cache::unlogged::NAME;
use crate::command::{Durability, FreezeScope};
use crate::config::Order;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::events::records::unlogged_bytes;
use crate::events::sync::WHOLE;
use crate::journal::FileJournal;
use crate::journal::logged::Resizing;
use crate::place::{FIRST, FileIx, PageIx, pieces};
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;
use crate::waiters::request::Step;
use crate::waiters::sync::SyncFor;
use weir_frames::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

/// A commit is begun when it fills this share of the longest group.
const COMMIT_SHARE: usize = 2;

impl Engine {
    /// Whether everything is logged before it goes home: not any more when the log has failed.
    #[inline]
    pub(crate) fn is_ordered(&self) -> bool {
        self.config.order == Order::All && self.journal.as_ref().is_some_and(FileJournal::is_usable)
    }

    /// Whether a group of the log holds a write of any length ([`crate::Config::ORDERED_GROUP_MIN`]). Without that, writes
    /// of a mount that logs everything could wait for ever.
    pub fn log_holds_any_write(&self) -> bool {
        self.group_bytes_max() >= crate::Config::ORDERED_GROUP_MIN
    }

    /// The most space that all unlogged bytes take in the log; 0 unless everything is logged.
    pub(crate) fn unlogged_space(&self) -> usize {
        if self.is_ordered() { self.cache.unlogged.bytes } else { 0 }
    }

    /// Whether a write to `[offset, end)` must wait until the log has room for its bytes.
    pub(crate) fn awaits_log_room(&self, file: FileIx, offset: u64, end: u64) -> bool {
        if !self.is_ordered() || !self.logs(file) {
            return false;
        }
        let log = self.journal.as_ref().expect("it is usable");
        let name = if self.cache.files[file].charged_pages == 0 { NAME } else { 0 };
        let charges = pieces(offset, end)
            .map(|piece| self.cache.charge_of_write(file, piece.number, piece.start, piece.len));
        let bytes = self.cache.unlogged.bytes + name + charges.sum::<usize>();
        let space = (bytes + log.reserved_for_home()) as u64;
        !log.shared.writer().has_room(bytes) || !log.shared.has_space(space)
    }

    /// Whether what is unlogged is old, or so much that a commit should begin.
    pub(crate) fn commit_is_due(&self) -> bool {
        if !self.is_ordered() {
            return false;
        }
        let log = self.journal.as_ref().expect("it is usable");
        let writer = log.shared.writer();
        let bytes = (writer.position().0 - writer.head().0) as usize + self.cache.unlogged.bytes;
        let is_old = log.unlogged_since.is_some_and(|since| self.commit_due(since) <= self.clock);
        is_old || bytes > writer.group_bytes_max() / COMMIT_SHARE
    }

    fn commit_due(&self, since: Time) -> Time {
        since + self.config.commit_age
    }

    /// When a commit is due without an event, unless one is under way.
    pub(crate) fn commit_tick(&self) -> Option<Time> {
        let log = self.journal.as_ref().filter(|log| self.is_ordered() && log.group.is_none())?;
        log.unlogged_since.map(|since| self.commit_due(since))
    }

    /// Begins a commit if one is due.
    #[inline]
    pub(crate) fn commit_if_due(&mut self) {
        if self.commit_is_due() {
            self.commit_group();
        }
    }

    /// Bytes were written that are not logged.
    #[inline]
    pub(crate) fn note_age_of_unlogged(&mut self) {
        if self.cache.unlogged.are_counted
            && let Some(log) = &mut self.journal
        {
            log.unlogged_since.get_or_insert(self.clock);
        }
    }

    /// Appends all unlogged bytes of all files to the open group. False if it has no room for them.
    pub(crate) fn log_everything(&mut self) -> bool {
        let mut at = FIRST;
        while let Some((file, number)) = self.cache.dirty.unlogged.next(at) {
            at = (file, number + 1);
            if !self.may_log(file) {
                at = (file.next(), 0);
                continue;
            }
            let ix = self.cache.pages.find(file, number).expect("an unlogged page is in the table");
            let bytes = self.name_bytes(file) + unlogged_bytes(&self.cache.pages[ix]);
            if !self.journal_mut().shared.writer().has_room(bytes) {
                return false;
            }
            self.log_unlogged(file, (number * PAGE, (number + 1) * PAGE));
        }
        true
    }

    /// As [`Engine::log_everything`]. Returns the last position that must be durable for it, if it is not; `None` if there was
    /// no room.
    fn append_everything(&mut self) -> Option<Option<Lsn>> {
        if !self.config.undone.moment && !self.log_everything() {
            return None;
        }
        let writer = self.journal_mut().shared.writer();
        let position = writer.position();
        Some((position > writer.durable()).then(|| Lsn(position.0 - 1)))
    }

    /// Appends everything; returns the position that a sync of names is to wait for.
    pub(crate) fn append_for_names(&mut self) -> Option<Lsn> {
        let last = self.journal.as_ref().and_then(|log| log.names.last);
        self.append_everything().unwrap_or(last)
    }

    /// Starts a sync of a file: a commit of everything. `None` if the file is to be brought home instead.
    pub(crate) fn sync_in_order(
        &mut self,
        file: FileIx,
        durability: Durability,
        done: SyncFor,
        now: Time,
    ) -> Option<Step<()>> {
        if !self.may_log(file) || self.is_home_ahead(file) {
            return None;
        }
        if self.config.undone.moment {
            self.log_unlogged(file, WHOLE);
        }
        let wait = self.append_everything()?;
        let of_file = &self.cache.files[file];
        let home = of_file.home.unsynced || of_file.home.syncs_in_flight > 0;
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

    /// Called when a page is about to go home: sees to it that all its bytes, and the file's size, are in the log. False if there is no room:
    /// the page must stay.
    pub(crate) fn log_ahead(&mut self, ix: PageIx, now: Time) -> bool {
        let file = self.cache.pages[ix].file;
        // A page is written home as far as the file reaches, which other pages say.
        if self.cache.files[file].charged_pages == 0
            || self.config.undone.ahead
            || self.cache.files[file].discarded
            || !self.may_log(file)
            || self.log_everything()
        {
            return true;
        }
        self.hold_back(ix, now);
        false
    }
}

/// New sizes.
impl Engine {
    /// Whether the new size of a file that is about to be frozen is logged. Then its records need not be revoked: a replay
    /// cuts what they wrote.
    pub(crate) fn logs_size(&self, file: FileIx, scope: FreezeScope) -> bool {
        let cuts = scope.changes_from.is_none_or(|from| scope.size == Some(from));
        self.is_ordered() && cuts && scope.size.is_some() && self.may_log(file)
    }

    /// The file is quiet and about to be frozen: appends its new size, if that is to be logged. Says whether the freeze has to
    /// wait for the log.
    ///
    /// # Errors
    /// The log has no room.
    pub(crate) fn log_size(&mut self, file: FileIx, scope: FreezeScope) -> Result<bool, ErrorKind> {
        let of_file = &self.cache.files[file];
        let Some(size) = scope.size.filter(|_| self.logs_size(file, scope)) else {
            return Ok(false);
        };
        let grows_only = scope.changes_from.is_none() && size <= of_file.size();
        if of_file.logged.resizing.is_some() || grows_only {
            return Ok(false);
        }
        let record = Record::Truncate { file: of_file.logged.node(), size };
        let bytes = self.name_bytes(file) + record.padded_bytes() + self.unlogged_space();
        let writer = self.journal_mut().shared.writer();
        if !writer.has_room(bytes) {
            let undurable = (writer.position() > writer.durable())
                .then(|| Lsn(writer.position().0 - 1))
                .ok_or(ErrorKind::NoSpace)?;
            self.wait_to_freeze(file, undurable);
            return Ok(true);
        }
        // What was written before comes before.
        self.log_unlogged(file, WHOLE);
        let lsn = self.append(file, &record).expect("there is room");
        let segment = self.changed_in_log(file, size / PAGE, lsn);
        self.retain(file, segment);
        self.cache.files[file].logged.resizing = Some(Resizing { segment });
        self.wait_to_freeze(file, lsn);
        Ok(true)
    }

    fn wait_to_freeze(&mut self, file: FileIx, lsn: Lsn) {
        let FreezeState::Freezing { flushing, .. } = &mut self.cache.files[file].waiters.freeze
        else {
            panic!("only a freeze that has begun waits");
        };
        *flushing = true;
        let done = SyncFor::Freeze { revokes: false };
        self.add_log_waiter(file, Durability::Data, done, Some(lsn));
    }

    /// Home has got the size that was logged, or has refused it, or nobody will give it.
    pub(crate) fn size_is_home(&mut self, file: FileIx, succeeded: bool) {
        let Some(Resizing { segment }) = self.cache.files[file].logged.resizing.take() else {
            return;
        };
        if succeeded {
            return self.change_retention(file, |retention| retention.settle(segment));
        }
        // The record must not be replayed: everything goes home, and the file's records are revoked.
        self.retain_no_more(file, segment);
        if self.is_ordered() && !self.cache.files[file].logged.checkpointing {
            self.start_checkpoint(file, self.clock);
        }
    }
}
