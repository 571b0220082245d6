//! Syncs by the log: written bytes that are not in the log are appended to the open group.
//!
//! Bytes of frames and patches are appended as they are, without a fetch. A sync of much data brings everything home
//! instead (a *full* sync), and then revokes the file's records, which are not needed any more.

use std::time::Duration;

use weir_frames::PAGE_BYTES;
use weir_log::Lsn;

use crate::command::Durability;
use crate::engine::Engine;
use crate::error::Error;
use crate::events::records::unlogged_bytes;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;
use crate::waiters::request::Step;
use crate::waiters::sync::SyncFor;

const PAGE: u64 = PAGE_BYTES as u64;

/// A sync of no more than this is logged, at any cost.
const LOGGED_BYTES_MIN: usize = 256 << 10;

/// A sync of no more than this goes home where home is to be synced anyway.
const ALONG_BYTES_MAX: usize = 64 << 10;

/// While the costs of logging and of going home are not known, a sync of more than this goes home directly: it is then
/// written once and not twice.
const LOGGED_BYTES_UNKNOWN: usize = 1 << 20;

/// A sync is logged if that takes at most this share of the time of going home, since logged data still has to go home.
const LOGGED_COST_SHARE: u32 = 2;

/// The amount of unlogged data in a part of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unlogged {
    /// The most bytes that it takes in the log, including the file's name.
    pub(crate) bytes: usize,
    pub(crate) pages: u32,
    /// Runs of adjacent pages.
    pub(crate) runs: u32,
    /// Pages without a frame.
    pub(crate) patched: u32,
}

impl Engine {
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
        let log = self.journal.as_ref()?;
        if let Some(kind) = log.failed {
            return Some(Step::Done(Err(Error::Home(kind))));
        }
        if self.is_ordered() {
            return self.sync_in_order(file, durability, done, now);
        }
        // A freeze in progress may cut what would be logged.
        let held = self.cache.files[file].waiters.freeze != FreezeState::Thawed;
        if held || !self.may_log(file) || self.is_home_ahead(file) {
            return None;
        }
        let unlogged = self.unlogged_in(file, range);
        if !self.has_room_for(unlogged.bytes)
            || !self.is_worth_logging(unlogged)
            || self.goes_along_home(file, unlogged, durability)
        {
            return None;
        }
        self.log_unlogged(file, range);
        let durable = self.journal_mut().shared.durable();
        let of_file = &self.cache.files[file];
        // The names before this sync are durable with it.
        let wait = of_file.logged.last.filter(|&last| last >= durable).max(self.undurable_name());
        Some(self.await_log(file, wait, durability, done, now))
    }

    /// Has a sync of a file wait until the log is durable up to a position, and home is synced if it has what the log does not.
    pub(crate) fn await_log(
        &mut self,
        file: FileIx,
        wait: Option<Lsn>,
        durability: Durability,
        done: SyncFor,
        now: Time,
    ) -> Step<()> {
        let home = self.cache.files[file].home.needs_sync(durability);
        if wait.is_none() && !home {
            return Step::Done(Ok(()));
        }
        let id = self.add_log_waiter(file, durability, done, wait);
        if home {
            self.sync_home(file, id);
        }
        self.pump_log(now);
        Step::Pending
    }

    /// The unlogged data of the pages of a file that a byte range touches. Stops when it exceeds the size of a group.
    pub(crate) fn unlogged_in(&self, file: FileIx, (from, to): (u64, u64)) -> Unlogged {
        let most = self.journal.as_ref().map_or(0, |log| log.shared.writer().group_bytes_max());
        let mut unlogged = Unlogged { bytes: self.name_bytes(file), ..Unlogged::default() };
        let mut at = from / PAGE;
        while let Some(number) =
            self.cache.dirty.unlogged.next_of(file, at).filter(|&next| next * PAGE < to)
        {
            let ix = self.cache.pages.find(file, number).expect("an unlogged page is in the table");
            let page = &self.cache.pages[ix];
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

    /// Whether logging is much faster than going home at once, as far as the costs are known.
    pub(crate) fn is_worth_logging(&self, unlogged: Unlogged) -> bool {
        let Unlogged { bytes, pages, runs, patched } = unlogged;
        if bytes <= LOGGED_BYTES_MIN {
            return true;
        }
        let log = self.journal.as_ref().expect("there is a log");
        let (Some(group), Some(home)) = (log.cost.cost(), self.device.costs.destage.cost()) else {
            return bytes <= LOGGED_BYTES_UNKNOWN;
        };
        let logging = group + log.cost.page() * (bytes / PAGE_BYTES) as u32;
        // Patched pages are fetched first. They are assumed to be spread like the other pages.
        let fetching = match self.device.costs.fetch.cost() {
            Some(fetch) if patched > 0 => {
                (fetch * runs + self.device.costs.fetch.page() * pages) * patched / pages
            }
            _ => Duration::ZERO,
        };
        let writing = home * runs + self.device.costs.destage.page() * pages;
        logging * LOGGED_COST_SHARE <= fetching + writing + self.device.costs.home_sync
    }

    /// Whether a sync brings the file's data home instead of logging it. True if home must be synced anyway (for example
    /// for a new file's name), and the unlogged data is small and is all the dirty data of the file.
    fn goes_along_home(&self, file: FileIx, unlogged: Unlogged, durability: Durability) -> bool {
        let of_file = &self.cache.files[file];
        of_file.home.is_unsynced(durability)
            && !of_file.is_unbound()
            && !self.has_records(file)
            && unlogged.pages > 0
            && unlogged.pages as usize == of_file.dirty_pages + of_file.destaging_pages
            && unlogged.patched == 0
            && unlogged.runs <= 1
            && unlogged.bytes <= ALONG_BYTES_MAX
    }

    /// Appends the unlogged bytes of the pages of a file that a byte range touches. The log must have room for them.
    pub(crate) fn log_unlogged(&mut self, file: FileIx, (from, to): (u64, u64)) {
        let mut at = from / PAGE;
        while let Some(number) =
            self.cache.dirty.unlogged.next_of(file, at).filter(|&next| next * PAGE < to)
        {
            at = number + 1;
            let ix = self.cache.pages.find(file, number).expect("an unlogged page is in the table");
            let may_leave = self.logged_may_leave(ix);
            let extents = self.log_page(ix);
            if may_leave {
                self.logged_to_leave(ix, extents);
            }
        }
    }

    /// Whether the log may serve syncs of a file.
    pub(crate) fn may_log(&self, file: FileIx) -> bool {
        self.logs(file) && !self.cache.files[file].logged.paused
    }

    /// Whether writes to a file are to be noted as not logged.
    pub(crate) fn logs(&self, file: FileIx) -> bool {
        self.journal.is_some() && self.cache.files[file].logged.is_identified()
    }
}
