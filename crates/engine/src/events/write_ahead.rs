//! Write ahead of superseding: data that supersedes records of the log goes home only when newer records of
//! that data are durable. Otherwise a replay after a crash would put the older bytes over the newer ones.
//!
//! Owns the commands that wait for such records, and the log space reserved for them. When a page with
//! records goes home and its newest bytes are not logged, they are logged first; its destage is sent when
//! that record is durable. A freeze under which a file is truncated or rearranged at home first has the file's
//! records revoked (`freeze`).
//!
//! If the log has no room for that, the page stays dirty and is retried when there is room. The log may then
//! be full of records that no page going home can free, for example because the pages held back occupy all
//! frames that spilled patches would need. In that case the back end writes the records home from the log
//! (`repair`).
//!
//! Invariants:
//! - a destage is given to the back end only when every record of its pages is durable;
//! - a full log is freed even if no page can go home.

use std::time::Duration;

use weir_frames::PAGE_BYTES;
use weir_log::Lsn;

use crate::command::{Command, FileId};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::events::records::unlogged_bytes;
use crate::journal::FileJournal;
use crate::place::{FIRST, FileIx, PageIx};
use crate::time::Time;

/// Approximate log space of a whole page's record, with its head and its file's name.
const RECORD_BYTES: u64 = PAGE_BYTES as u64 + 512;

/// How long a full log waits for destages in flight to free it.
const PATIENCE: Duration = Duration::from_millis(100);

impl Engine {
    /// Whether a replay might write records over a page's content at home.
    pub(crate) fn may_be_replayed(&self, file: FileIx, number: u64) -> bool {
        let Some(log) = &self.journal else { return false };
        self.has_records(file) && log.recorded.may_hold((file, number))
    }

    /// Called when a page is about to go home: logs those of its bytes that supersede records. False if there
    /// is no room: the page must stay, and is retried when the log was freed.
    pub(crate) fn log_superseding(&mut self, ix: PageIx, now: Time) -> bool {
        if self.is_ordered() {
            return self.log_ahead(ix, now);
        }
        let page = &self.cache.pages[ix];
        let (file, number) = (page.file, page.number);
        if page.unlogged.is_empty()
            || self.config.undone.supersede
            || self.cache.files[file].discarded
            || !self.journal.as_ref().is_some_and(FileJournal::is_usable)
            || !self.may_be_replayed(file, number)
        {
            return true;
        }
        let bytes = self.name_bytes(file) + unlogged_bytes(page);
        let log = self.journal.as_ref().expect("it is usable");
        if !log.shared.has_room(bytes) || !log.has_space_to_supersede(bytes as u64) {
            self.hold_back(ix, now);
            return false;
        }
        self.log_page(ix);
        if self.journal_mut().shared.is_open_group_long() {
            self.commit_group();
        }
        true
    }

    pub(crate) fn hold_back(&mut self, ix: PageIx, now: Time) {
        if self.cache.dirty.retry.is_empty() {
            self.device.failures.retry_at = now + self.config.retry_delay;
        }
        self.update(ix, |page| page.retrying = true);
        self.journal_mut().behind.lacks_room.get_or_insert(now);
        self.commit_group();
    }

    /// Groups were written or the tail advanced: retries pages that were held back, if there is room now.
    pub(crate) fn room_in_log(&mut self, now: Time) {
        let log = self.journal_mut();
        if log.behind.lacks_room.is_some() && log.has_space_to_supersede(RECORD_BYTES) {
            log.behind.lacks_room = None;
            self.device.failures.retry_at = self.device.failures.retry_at.min(now);
            self.revive_failed(now);
        }
    }

    /// Starts to write a file home from the log, if pages are held back, no I/O in flight will free the log, and
    /// the file needs the log's oldest segment.
    pub(crate) fn free_by_replay(&mut self, now: Time) {
        let log = self.journal.as_ref().expect("there is a log");
        let Some(since) = log.behind.lacks_room else { return };
        if log.shared.is_under_way() || log.has_space_to_supersede(RECORD_BYTES) {
            return;
        }
        let Some(file) = log.shared.first_holder() else { return };
        let of_file = &self.cache.files[file];
        if of_file.is_unbound() {
            // There is nothing to write to.
            return;
        }
        if of_file.spilled_pages > 0 && !self.has_records(file) {
            // It has no name, and its records were revoked: none would be written, and what has left memory would be lost.
            return;
        }
        let retention = &of_file.logged.retention;
        let awaits_pages = retention.first() == retention.away.first();
        let is_going_home = of_file.destaging_pages > 0 && now < since + PATIENCE;
        if awaits_pages && !is_going_home && of_file.home.syncs_in_flight == 0 {
            self.journal_mut().repairs.insert(file);
            self.start_repair(file, now);
        }
    }

    /// The log is not freed now: syncs do not wait any longer for the pages that are held back. These stay dirty.
    pub(crate) fn fail_held_back(&mut self, kind: ErrorKind) {
        if self.journal_mut().behind.lacks_room.is_none() {
            return;
        }
        let mut at = FIRST;
        while let Some((file, number)) = self.cache.dirty.retry.next(at) {
            at = (file, number + 1);
            let ix = self.cache.pages.find(file, number).expect("a dirty page is in the table");
            let seq = self.cache.next_seq();
            let before = self.update(ix, |page| std::mem::replace(&mut page.dirty_seq, seq));
            self.settle(file, before, Err(kind));
        }
    }

    /// The record that must be durable before a file's page is written home; `None` if all are.
    pub(crate) fn superseded_by(&self, file: FileIx, number: u64) -> Option<Lsn> {
        let log = self.journal.as_ref().filter(|log| log.is_usable())?;
        let logged = &self.cache.files[file].logged;
        let last = match self.is_ordered() || self.may_be_replayed(file, number) {
            true if self.is_ordered() && self.config.undone.ahead => None,
            true => logged.last,
            // All records are void once the revocation is durable.
            false => logged.revoked,
        };
        last.filter(|&lsn| lsn >= log.shared.durable() && !self.config.undone.supersede)
    }

    /// Executes a command when the log is durable beyond a position.
    pub(crate) fn issue_behind(&mut self, lsn: Option<Lsn>, command: Command) {
        let Some(lsn) = lsn else { return self.issue(command) };
        self.count_issued(&command);
        self.journal_mut().behind.commands.push(lsn, command);
        self.commit_group();
    }

    /// The log is durable up to `durable`: sends the commands that waited for that.
    pub(crate) fn send_behind(&mut self, durable: Lsn) {
        for command in self.journal_mut().behind.commands.ready(durable) {
            self.submit(command);
        }
    }

    /// Removes and returns the commands on a file that wait for the log.
    pub(crate) fn cancel_behind(&mut self, file: FileId) -> Vec<Command> {
        let Some(log) = &mut self.journal else { return Vec::new() };
        log.behind.commands.take(|_, command| command.file() == file)
    }
}
