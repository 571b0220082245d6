//! Sweeps: which dirty page is written home, or fetched for that, next.
//!
//! There are two sweeps, one through pages that have to be fetched and one through pages that can be written. Each works
//! like a one-way elevator: it continues where it ended, in ascending order of file and page, and starts again at the
//! first page. A disk arm then passes over all pages once instead of seeking for each, and no page that is due waits for
//! more than one sweep. Pages that a sync waits for go first, in the same order within their file; files take turns.
//!
//! A sweep's fetch covers several patched pages, and reads the pages between them where that costs less than another
//! request (`cost_model`). Pages between them are kept if enough frames are free, and dropped at once otherwise.
//!
//! Sweeps yield to programs: they have only as many transfers in flight as keep the device busy, and few or none while a
//! reader waits for a fetch.

use crate::cache::page::PageIo;
use crate::command::Urgency;
use crate::engine::Engine;
use crate::place::PageIx;
use crate::time::Time;

/// Most background fetches at once while a reader waits for another fetch, where fetches are fast: a device that is not
/// rotational executes several in parallel.
const FAST_BEHIND_READERS: usize = 4;

/// The reason for writing a page home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A sweep has reached it.
    Sweep,
    /// A sync of its file. `awaited` if a program waits for the sync, not only the log.
    Sync { awaited: bool },
}

/// The result of an attempt to start writing a page home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Started,
    /// No frame is free, or too many are dirty.
    NoRoom,
}

impl Engine {
    /// Starts as many transfers as are needed and allowed.
    pub(crate) fn pump(&mut self, now: Time) {
        self.start_spill(now);
        self.return_windows(now);
        self.pump_urgent(now);
        self.sweep_patched(now);
        self.sweep_resident(now);
    }

    /// Starts the transfers that syncs wait for.
    pub(crate) fn pump_urgent(&mut self, now: Time) {
        let destages_max = self.config.destages_in_flight_max as usize;
        while self.device.in_flight.destages < destages_max
            && self.device.in_flight.sweep_fetches < 4 * destages_max
        {
            let Some(ix) = self.next_urgent() else { return };
            let awaited = self.cache.files[self.cache.pages[ix].file].waiters.is_awaited();
            if !awaited && !self.sweeps_may_start(now) {
                return;
            }
            let purpose = Purpose::Sync { awaited };
            if self.start(ix, purpose, now) == Start::NoRoom && !self.make_room_for(ix, now) {
                return;
            }
        }
    }

    /// Starts to bring patched pages home: most have to be fetched first.
    pub(crate) fn sweep_patched(&mut self, now: Time) {
        while self.sweeps_may_start(now) {
            let Some(ix) = self.next_patched(now) else { return };
            if self.start(ix, Purpose::Sweep, now) == Start::NoRoom && !self.make_room_for(ix, now)
            {
                return;
            }
        }
    }

    /// Writes resident pages home.
    pub(crate) fn sweep_resident(&mut self, now: Time) {
        while self.device.in_flight.destages < self.destages_allowed(now)
            && self.device_is_paid(now)
        {
            let Some(ix) = self.next_resident(now) else { return };
            self.start(ix, Purpose::Sweep, now);
        }
    }

    /// Starts to bring a listed page home, together with its neighbours.
    pub(crate) fn start(&mut self, ix: PageIx, purpose: Purpose, now: Time) -> Start {
        let urgency = match purpose {
            Purpose::Sync { awaited: true } => Urgency::Waited,
            _ => Urgency::Background,
        };
        let (file, number) = (self.cache.pages[ix].file, self.cache.pages[ix].number);
        let resident = self.cache.pages[ix].frame.is_some();
        let pressed = self.write_back_is_on();
        if resident && purpose == Purpose::Sweep && self.fetch_window(file, number, now) {
            return Start::Started;
        }
        let last = if resident {
            let reason = match purpose {
                Purpose::Sync { .. } => &mut self.stats.destages_synced,
                Purpose::Sweep if pressed => &mut self.stats.destages_pressed,
                Purpose::Sweep => &mut self.stats.destages_aged,
            };
            *reason += 1;
            // A page held back for lack of room in the log is retried when there is room.
            Some(self.destage_around(file, number, now).map_or(number, |destaged| destaged.last))
        } else if self.cache.patches_go_home_as_they_are(ix) && !self.rather_fetched(ix, urgency) {
            self.destage_patches(ix, now).then_some(number)
        } else {
            self.fetch_patched(file, number, urgency, now)
        };
        let Some(last) = last else { return Start::NoRoom };
        if matches!(purpose, Purpose::Sync { .. }) {
            let of_file = &mut self.cache.files[file];
            of_file.sweeps.synced_to[usize::from(resident)] = last + 1;
            of_file.sweeps.resident_next = !resident;
            self.write_back.sweeps.urgent_next = file.next();
        } else if resident {
            self.cache.dirty.resident.swept_to = (file, last + 1);
        } else {
            self.cache.dirty.patched.swept_to = (file, last + 1);
        }
        Start::Started
    }

    /// Handles a patched page that cannot be fetched because no frame is free. A resident dirty page is written instead.
    /// If all of these have failed, this page fails as well. False if the only thing to do is to wait for transfers in
    /// flight.
    pub(crate) fn make_room_for(&mut self, ix: PageIx, now: Time) -> bool {
        let file = self.cache.pages[ix].file;
        // In the sweep's order. A page of the same file may be taken also while that file is about to freeze.
        let of_file =
            || self.cache.dirty.resident.pages().next_of(file, 0).map(|number| (file, number));
        if let Some((file, number)) =
            self.cache.next_open(&self.cache.dirty.resident).or_else(of_file)
        {
            let resident = self.cache.listed(file, number);
            return self.start(resident, Purpose::Sweep, now) == Start::Started;
        }
        let under_way = self.device.in_flight.destages + self.device.in_flight.fetches > 0;
        if under_way || self.device.failures.in_a_row == 0 {
            return false;
        }
        // As if a fetch had been issued, so that the page leaves its lists.
        self.update(ix, |page| page.io = PageIo::Fetch);
        self.transfer_failed(ix, self.device.failures.last, now);
        true
    }

    pub(crate) fn sweeps_may_start(&self, now: Time) -> bool {
        // On a rotational device, the log is first read in one scan.
        let log_first = self.config.rotational && self.cache.spill.awaits_window();
        !log_first
            && self.device_is_paid(now)
            && self.device.in_flight.sweep_fetches < self.fetches_allowed(now)
            && self.device.in_flight.destages < self.destages_allowed(now)
    }

    pub(crate) fn fetches_allowed(&self, now: Time) -> usize {
        let depth = self.device.costs.fetch.depth();
        let behind_readers = if self.fetches_are_fast() { FAST_BEHIND_READERS } else { 1 };
        if self.readers_first(now) { depth.min(behind_readers) } else { depth }
    }

    pub(crate) fn destages_allowed(&self, now: Time) -> usize {
        let short = self.cache.census.unclean_frames >= self.pressing_frames();
        if self.readers_first(now) && !short { 1 } else { self.device.costs.destage.depth() }
    }

    /// Whether to fetch a page whose patches could be written home without a fetch. Each such page takes a write of its
    /// own. If patch memory is short, a fetch may free it sooner: one fetch covers many pages where it reads through gaps,
    /// and on a drive that writes more slowly than it reads, a fetch costs less than the write that it saves.
    pub(crate) fn rather_fetched(&self, ix: PageIx, urgency: Urgency) -> bool {
        let page = &self.cache.pages[ix];
        if urgency != Urgency::Background || !self.cache.files[page.file].readable {
            return false;
        }
        if self.config.rotational && (page.returned || self.cache.has_dirty_neighbour(ix)) {
            // Pages that lie close together are then written in long runs.
            return true;
        }
        if !(self.patches_press() || page.returned) {
            return false;
        }
        let sooner = match (self.device.costs.fetch.cost(), self.device.costs.destage.cost()) {
            (Some(fetch), Some(destage)) => fetch * 2 < destage,
            // To measure its cost.
            (None, Some(_)) => true,
            (_, None) => false,
        };
        sooner || self.device.costs.fetch.gap_pages() > 1
    }

    /// Whether writing resident pages waits: if patch memory is short, a slow device fetches patched pages first, as long
    /// as enough frames may be dirty.
    pub(crate) fn frames_yield(&self) -> bool {
        let slow = self.fetches_are_slow();
        slow && !self.cache.dirty.patched.pages().is_empty()
            && self.patches_press()
            && self.cache.census.unclean_frames < self.pressing_frames()
    }

    /// Whether sweeps should free patch memory: early, so that no writer has to wait for it. The log frees it sooner than a
    /// slow device.
    pub(crate) fn patches_press(&self) -> bool {
        let quick = self.fetches_are_fast();
        let share = if quick { 4 } else { 2 };
        let high = self.cache.census.patch_bytes > self.config.patch_bytes_max as usize / share;
        (high || !self.waiters.starved.is_empty()) && (quick || !self.can_spill())
    }
}
