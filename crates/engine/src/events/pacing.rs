//! When write-back begins and ends, and how writers are paced (the policy's state is `write_back`'s).

use std::time::Duration;

use weir_frames::PAGE_BYTES;

use crate::config::WriteBackPolicy;
use crate::engine::Engine;
use crate::place::FileIx;
use crate::time::Time;
use crate::write_back::pressure_point;
use crate::write_back::throttle::pause;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// When a sample is to be taken; `None` while nothing is dirty in memory.
    pub(crate) fn write_back_tick(&self) -> Option<Time> {
        let wanted = self.write_back.is_adaptive() && self.cache.census.unclean > 0;
        let begun = self.write_back.sampled_at;
        wanted.then(|| begun.map_or(Time::ZERO, |begun| begun + self.write_back.interval))
    }

    /// The pressure point: the number of dirty frames above which adaptive write-back paces writers. Patches do not count:
    /// readers cannot use their memory, and it has its own bound, at which writers wait in turn.
    pub(crate) fn pressure(&self) -> usize {
        let bound = self.dirty_bound();
        pressure_point(self.write_back.max.min(bound), self.cache.frames_bound(), bound)
    }

    /// Whether sweeps are to write pages home that are not due yet. To be asked before each step of a sweep.
    ///
    /// Adaptive: from the time when dirty memory that is not in transfer reaches the high watermark, until it is below the
    /// low one by at most one transfer. It begins only if at least the pages between the two watermarks could be written
    /// ("the amount of data to destage upon activation", section 3.1). Otherwise, while patches wait for the log, every
    /// frame would be written as soon as it becomes dirty.
    pub(crate) fn write_back_is_on(&mut self) -> bool {
        if !self.write_back.is_adaptive() {
            return self.cache.census.unclean_frames >= self.write_back.background;
        }
        let (high, low) = (self.write_back.marks.high(), self.write_back.marks.low());
        let dirty = self.cache.dirty_frames() - self.cache.census.homebound;
        let sweepable = match self.sweeps_take_patches() {
            true => dirty,
            false => self.cache.census.unclean_frames - self.cache.census.homebound,
        };
        self.write_back.on = match self.write_back.on {
            true => dirty >= low && sweepable > 0,
            false => dirty >= high && sweepable >= (high - low).max(1),
        };
        self.write_back.on
    }

    /// Whether write-back fetches patched pages to write them home, instead of leaving them to the log or to their own
    /// bound: if fetches are fast, or no log takes the patches.
    pub(crate) fn sweeps_take_patches(&self) -> bool {
        !self.fetches_are_slow() || !self.can_spill()
    }

    /// Whether write-back takes patched pages now: if there is no resident page to write.
    pub(crate) fn write_back_takes_patches(&mut self) -> bool {
        self.write_back.is_adaptive()
            && self.cache.dirty.resident.pages().is_empty()
            && self.cache.census.homebound == 0
            && self.sweeps_take_patches()
            && self.write_back_is_on()
    }

    /// The number of dirty frames above which destages go before everything but readers' own fetches. It is below the
    /// numbers at which writers are paced, or wait.
    pub(crate) fn pressing_frames(&self) -> usize {
        match self.write_back.policy {
            WriteBackPolicy::Static => (self.write_back.background + self.write_back.hard) / 2,
            WriteBackPolicy::Adaptive => (self.write_back.max + self.pressure()) / 2,
        }
    }

    /// The number of dirty frames up to which sweeps may fetch patched pages, so that this causes no writer to be paced.
    pub(crate) fn converted_max(&self) -> usize {
        match self.write_back.policy {
            WriteBackPolicy::Static => self.write_back.hard,
            WriteBackPolicy::Adaptive => self.pressure(),
        }
    }

    /// Whether a write has to wait because of the pauses of earlier writes.
    pub(crate) fn is_held(&self, file: FileIx, offset: u64, end: u64, now: Time) -> bool {
        self.paces_writers()
            && self.write_back.throttle.holds(now)
            && self.is_paced(file, offset, end)
    }

    /// Whether writers are paced at all. Not while every write home fails, or home refused lately to make files: then writers should reach
    /// the bound soon, where they get the error.
    pub(crate) fn paces_writers(&self) -> bool {
        let failures = &self.device.failures;
        let (patience, now) = (self.refusal_patience(), self.clock);
        let refuses_files = || failures.no_files.is_some_and(|no| no.is_recent(patience, now));
        self.write_back.is_adaptive() && failures.in_a_row == 0 && !refuses_files()
    }

    /// Whether this write is paced: dirty frames are above the pressure point, and the write makes more pages dirty.
    pub(crate) fn is_paced(&self, file: FileIx, offset: u64, end: u64) -> bool {
        let is_clean = |number| {
            self.cache.pages.find(file, number).is_none_or(|ix| self.cache.pages[ix].dirty_seq == 0)
        };
        self.paces_writers()
            && self.cache.census.unclean_frames > self.pressure()
            && (offset / PAGE..end.div_ceil(PAGE)).any(is_clean)
    }

    /// The number of times that pages became dirty by being written, since the start.
    pub(crate) fn pages_dirtied(&self) -> u64 {
        self.cache.turnover.dirtied
    }

    /// A write was admitted. The pages that became dirty since `dirtied_before` are charged to it.
    pub(crate) fn pace_writers(&mut self, dirtied_before: u64, now: Time) {
        if !self.paces_writers() {
            return;
        }
        let dirty = self.cache.census.unclean_frames;
        let (pressure, bound) = (self.pressure(), self.dirty_bound());
        // The common case.
        if dirty <= pressure {
            return;
        }
        let cleaned = self.cache.turnover.cleaned - self.write_back.sampled.cleaned;
        let pages = self.cache.turnover.dirtied - dirtied_before;
        let state = &mut self.write_back;
        // In an interval in which little was to go home, little did: the rate is at least that of an earlier interval.
        let rate = state.marks.cleaned().max(Some(cleaned));
        let interval = state.interval;
        let pause = pause(pages, rate, interval, dirty, pressure, bound);
        if pause > Duration::ZERO {
            state.throttle.admit(pause, now);
            state.paced += 1;
        }
    }
}
