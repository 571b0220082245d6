//! Write ahead of superseding: home gets nothing over something that has records in the log before
//! what supersedes those records is durable. Otherwise a replay after a crash would put the older
//! bytes over the newer ones.
//!
//! Owns the commands that wait for that, and the space in the log that is kept for it. A page with
//! records whose newest bytes are not logged is logged when it goes home; its destage is sent when
//! the record is durable. What cuts or rearranges a file at home first has the file's records
//! revoked (`exclusive`).
//!
//! Invariants:
//! - a destage is given to the back end only when every record of its pages is durable;
//! - a page that the log needs always finds room for its newest bytes: writes to such pages wait
//!   while that room cannot be kept, so the log can always be freed;
//! - any other page stays dirty while the log has no room, and is tried again when it has.

use std::collections::VecDeque;

use weir_log::Lsn;

use crate::PAGE_BYTES;
use crate::command::{Command, FileId};
use crate::engine::Engine;
use crate::log::{Log, SLACK_SHARE, unlogged_bytes};
use crate::page::{FileIx, Page, PageIo, PageIx};
use crate::time::Time;

const PAGE: u64 = PAGE_BYTES as u64;

/// What the record of a whole page takes in the log with its head and its file's name, about.
const RECORD_BYTES: u64 = PAGE + 512;

/// Commands that wait for the log.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// In the order they came; each with the record that must be durable before.
    commands: VecDeque<(Lsn, Command)>,
    /// A page was held back because its bytes found no room.
    pub(crate) lacks_room: bool,
}

impl Behind {
    /// Whether a command waits for a record that is not durable yet.
    pub(crate) fn waits_beyond(&self, durable: Lsn) -> bool {
        self.commands.iter().any(|&(lsn, _)| lsn >= durable)
    }

    /// Takes out the commands that satisfy a condition.
    fn take(&mut self, wanted: impl Fn(Lsn, &Command) -> bool) -> Vec<Command> {
        let mut taken = Vec::new();
        for (lsn, command) in std::mem::take(&mut self.commands) {
            match wanted(lsn, &command) {
                true => taken.push(command),
                false => self.commands.push_back((lsn, command)),
            }
        }
        taken
    }
}

impl Page {
    /// The log is needed for what the page holds or sends home, and does not have its newest bytes:
    /// room is kept for them.
    #[inline]
    pub(crate) fn supersedes(&self) -> bool {
        !self.unlogged.is_empty() && self.is_needed_in_log()
    }

    #[inline]
    fn is_needed_in_log(&self) -> bool {
        self.rec.is_some() || matches!(self.io, PageIo::Destage | PageIo::DestagePatches)
    }
}

impl Engine {
    /// Room of the log that is kept for pages that will supersede what it holds of them, bytes.
    pub(crate) fn superseding_bytes(&self) -> u64 {
        self.census.superseding as u64 * RECORD_BYTES
    }

    /// The log is to be freed: more than half of it is used, or spoken for.
    pub(crate) fn log_is_half_full(&self) -> bool {
        self.log.as_ref().is_some_and(|log| {
            log.writer.used_bytes() + self.superseding_bytes() > log.writer.capacity_bytes() / 2
        })
    }

    /// Whether a write has to wait until the log is freed: it changes pages that the log is needed
    /// for, and there is no room for what supersedes their records.
    pub(crate) fn awaits_log_room(&self, file: FileIx, offset: u64, end: u64) -> bool {
        let Some(log) = self.log.as_ref().filter(|log| log.is_usable()) else { return false };
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        let capacity = log.writer.capacity_bytes();
        let wanted = (last - first + 1) * RECORD_BYTES;
        let kept = capacity / SLACK_SHARE + self.superseding_bytes();
        if log.writer.used_bytes() + kept + wanted <= capacity {
            return false;
        }
        (first..=last).filter_map(|number| self.pages.find(file, number)).any(|ix| {
            let page = &self.pages[ix];
            page.unlogged.is_empty() && page.is_needed_in_log()
        })
    }

    /// Whether records might be replayed over what a page has at home.
    fn may_be_replayed(&self, file: FileIx, number: u64) -> bool {
        let Some(log) = &self.log else { return false };
        self.has_records(file) && log.recorded.may_hold((file, number))
    }

    /// A page is about to go home: what of it supersedes records is logged. False if there is no
    /// room: the page must not go, and is tried again when the log was freed.
    pub(crate) fn log_superseding(&mut self, ix: PageIx, now: Time) -> bool {
        let page = &self.pages[ix];
        let (file, number) = (page.file, page.number);
        if page.unlogged.is_empty()
            || self.config.undone.supersede
            || self.files[file].discarded
            || !self.log.as_ref().is_some_and(Log::is_usable)
            || !self.may_be_replayed(file, number)
        {
            return true;
        }
        let bytes = self.name_bytes(file) + unlogged_bytes(page);
        let fits = match page.rec {
            // Room was kept.
            Some(_) => self.log_mut().writer.has_room(bytes),
            None => self.has_room_for(bytes),
        };
        if !fits {
            self.hold_back(ix, now);
            return false;
        }
        self.log_page(ix);
        if self.log_mut().is_open_group_long() {
            self.commit_group();
        }
        true
    }

    fn hold_back(&mut self, ix: PageIx, now: Time) {
        if self.retry.is_empty() {
            self.retry_at = now + self.config.retry_delay;
        }
        self.update(ix, |page| page.retrying = true);
        self.log_mut().behind.lacks_room = true;
        self.commit_group();
    }

    /// Groups were written or the tail went on: what was held back for want of room is tried again.
    pub(crate) fn room_in_log(&mut self, now: Time) {
        if std::mem::take(&mut self.log_mut().behind.lacks_room) {
            self.retry_at = self.retry_at.min(now);
            self.revive_failed(now);
        }
    }

    /// The record that must be durable before a file's page is written home; `None` if all are.
    pub(crate) fn superseded_by(&self, file: FileIx, number: u64) -> Option<Lsn> {
        let log = self.log.as_ref().filter(|log| log.is_usable())?;
        let logged = &self.files[file].logged;
        let last = match self.may_be_replayed(file, number) {
            true => logged.last,
            // Whatever is in the log is void, once the log says so.
            false => logged.revoked,
        };
        last.filter(|&lsn| lsn >= log.writer.durable() && !self.config.undone.supersede)
    }

    /// Has a command executed when the log is durable beyond a position.
    pub(crate) fn issue_behind(&mut self, lsn: Option<Lsn>, command: Command) {
        let Some(lsn) = lsn else { return self.issue(command) };
        self.count_issued(&command);
        self.log_mut().behind.commands.push_back((lsn, command));
        self.commit_group();
    }

    /// The log is durable up to here.
    pub(crate) fn send_behind(&mut self, durable: Lsn) {
        for command in self.log_mut().behind.take(|lsn, _| lsn < durable) {
            self.submit(command);
        }
    }

    /// Takes back the commands on a file that wait for the log.
    pub(crate) fn withdraw_behind(&mut self, file: FileId) -> Vec<Command> {
        let Some(log) = &mut self.log else { return Vec::new() };
        log.behind.take(|_, command| command.file() == file)
    }
}
