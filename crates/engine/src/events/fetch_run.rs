//! Fetches of sweeps: several patched pages, and the pages between them, by one request.

use std::time::Duration;

use crate::cache::order::GAP_WRITTEN_MAX;
use crate::cache::page::{Listed, PageIo};
use crate::command::Urgency;
use crate::device::transfer::FetchFor;
use crate::engine::Engine;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;
use crate::write_back::need::Need;

/// Most pages of a background fetch while a reader waits for another fetch.
const PAGES_MAX_BEHIND_READERS: u64 = 64;

/// Least number of dirty frames that there should be room for when a sweep fetches: on a rotational device, which needs
/// a seek for each fetch, and on others.
const ROOM_MIN_ARM: usize = 256;

const ROOM_MIN: usize = 64;

/// One in this many fetches of a sweep reads no gap, to measure the cost without one.
const PROBE_EVERY: u64 = 32;

impl Engine {
    /// Fetches a patched page, and the patched pages after it that the same request reaches. Returns the last page read;
    /// `None` if there is no room.
    pub(crate) fn fetch_patched(
        &mut self,
        file: FileIx,
        number: u64,
        urgency: Urgency,
        now: Time,
    ) -> Option<u64> {
        let room = match urgency {
            Urgency::Waited => self.cache.convertible(),
            _ => self
                .cache
                .convertible()
                .min(self.converted_max().saturating_sub(self.unclean_soon())),
        };
        let frames = self.cache.frames_available();
        // Wait until there is room for several pages, instead of fetching page by page.
        let worthwhile = match self.config.rotational {
            true => ROOM_MIN_ARM.min(self.write_back.hard / 4),
            false => ROOM_MIN.min(self.write_back.hard / 8),
        };
        let later = urgency == Urgency::Background
            && room < worthwhile
            && !self.cache.dirty.resident.pages().is_empty();
        if room == 0 || frames == 0 || later {
            return None;
        }
        self.write_back.sweeps.fetches += 1;
        let mut pages_max = u64::from(self.config.transfer_pages_max).min(frames as u64);
        let mut gap = self.device.costs.fetch.gap_pages();
        if self.config.rotational {
            gap = gap.max(GAP_WRITTEN_MAX);
        }
        if self.write_back.sweeps.fetches.is_multiple_of(PROBE_EVERY)
            || 2 * pages_max > frames as u64
        {
            gap = 0;
        } else if urgency == Urgency::Background && self.readers_first(now) {
            pages_max = pages_max.min(PAGES_MAX_BEHIND_READERS);
        }
        if self.writes_gaps() {
            pages_max = pages_max.min(room as u64);
        }
        let (last, wanted) = self.reach(file, number, gap, pages_max, room, urgency);
        let run: Vec<u64> = (number..=last).collect();
        if !self.ensure_frames(run.len(), Need::Write) {
            return None;
        }
        self.issue_fetch(file, &run, urgency, FetchFor::Sweep { patched: wanted }, now);
        Some(last)
    }

    /// The last page of a fetch that begins with the patched page `number`, and the number of patched pages in it: at most
    /// `room`, not more than `gap` pages apart, with no page in transfer between them.
    pub(crate) fn reach(
        &self,
        file: FileIx,
        number: u64,
        gap: u64,
        pages_max: u64,
        room: usize,
        urgency: Urgency,
    ) -> (u64, usize) {
        let mut last = number;
        let mut wanted = 1;
        while wanted < room {
            let patched = self.cache.dirty.patched.pages().next_of(file, last + 1);
            let returned = self.cache.dirty.returned.next_of(file, last + 1);
            let Some(next) = patched.into_iter().chain(returned).min() else { break };
            if next - number >= pages_max || next - last - 1 > gap {
                break;
            }
            let ix = self.cache.listed(file, next);
            if self.cache.patches_go_home_as_they_are(ix) && !self.rather_fetched(ix, urgency) {
                break;
            }
            let busy = |number| {
                let found = self.cache.pages.find(file, number);
                found.is_some_and(|ix| self.cache.pages[ix].io != PageIo::None)
            };
            if (last + 1..next).any(busy) {
                break;
            }
            last = next;
            wanted += 1;
        }
        (last, wanted)
    }

    /// Reads a window of the file that begins with a dirty page, if reading and writing all of it takes a disk arm less
    /// time than a seek to each run of dirty pages. The pages read are made dirty, so that the window is one run.
    pub(crate) fn fetch_window(&mut self, file: FileIx, number: u64, now: Time) -> bool {
        let useful = self.config.opportunistic && self.config.rotational;
        let of_file = &self.cache.files[file];
        let may = !self.write_back.sweeps.window_under_way
            && of_file.readable
            && of_file.waiters.freeze == FreezeState::Thawed;
        // A destage follows each window, also if its fetch failed.
        let again = self.write_back.sweeps.window_read.take() == Some((file, number));
        if !useful || !may || again || self.device.failures.fetches > 0 {
            return false;
        }
        let Some((last, cost)) = self.window(file, number) else { return false };
        let run: Vec<u64> = (number..=last).collect();
        if self.cache.convertible() < run.len() || !self.ensure_frames(run.len(), Need::Write) {
            return false;
        }
        let is_patched = |number: &&u64| {
            let found = self.cache.pages.find(file, **number);
            found.is_some_and(|ix| self.cache.pages[ix].listed == Listed::Patched)
        };
        let patched = run.iter().filter(is_patched).count();
        self.issue_fetch(file, &run, Urgency::Background, FetchFor::Window { patched }, now);
        self.write_back.sweeps.window_under_way = true;
        self.charge_window(cost);
        self.stats.windows += 1;
        true
    }

    /// The last page of the window that begins with `number`, and its cost; `None` if a window is not worth its cost.
    pub(crate) fn window(&self, file: FileIx, number: u64) -> Option<(u64, Duration)> {
        let pages_max = u64::from(self.config.transfer_pages_max);
        // A window ends before a page that cannot be read now, or must not be written.
        let stays = |number: &u64| match self.cache.pages.find(file, *number) {
            None => {
                !self.cache.is_spilled(file, *number) && self.cache.keeps_its_place(file, *number)
            }
            Some(ix) => {
                let page = &self.cache.pages[ix];
                page.io == PageIo::None
                    && !page.spilled
                    && !page.retrying
                    && (page.dirty_seq != 0 || self.cache.keeps_its_place(file, *number))
            }
        };
        let end = (number..number + pages_max).take_while(stays).last()?;
        let (mut runs, mut last, mut at) = (0u32, number, number);
        while let Some(next) =
            self.cache.dirty.resident.pages().next_of(file, at).filter(|&next| next <= end)
        {
            runs += u32::from(runs == 0 || next > last + 1);
            (last, at) = (next, next + 1);
        }
        let access = self.device.costs.fetch.cost()? / 2;
        let whole = (access + self.device.costs.fetch.page() * (last - number + 1) as u32) * 2;
        (access * runs > whole).then_some((last, whole))
    }

    /// The sweep's window was read: its dirty pages may be written.
    pub(crate) fn window_fetched(&mut self, file: FileIx, first: u64) {
        self.write_back.sweeps.window_under_way = false;
        self.write_back.sweeps.window_read = Some((file, first));
        self.cache.dirty.resident.swept_to = (file, first);
    }
}
