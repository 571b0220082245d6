//! Write-back: when dirty data starts to go home, and when it stops (AWOL, FAST'08, section 3).
//!
//! Under the *static* policy sweeps go on while dirty frames are at the background ratio or above, as
//! a kernel's do. Under the *adaptive* one they begin when dirty memory reaches the high watermark
//! and go on until what is not on its way home is below the low one; the watermarks follow the load
//! (`watermarks`), below a ceiling that follows readers (`ghost`), and writers above the pressure
//! point are paced (`throttle`). What goes home next is `sweep`'s under both, and what is old goes home
//! under both.
//!
//! Everything here is in frames of the cache, which is the memory for frames. Patches have memory of
//! their own and are counted as the frames that would fit it: once they go home they are frames.
//!
//! Owns what the policy knows. Counts come from [`Engine::update`], which sees every page change;
//! samples are taken at ticks.
//!
//! Invariants:
//! - no tick is asked for while nothing is dirty in memory: what was read meanwhile is part of the
//!   sample that the next write brings about;
//! - under the static policy nothing is sampled, paced or remembered of evicted pages.

use std::time::Duration;

use crate::PAGE_BYTES;
use crate::config::{Config, WriteBackPolicy};
use crate::engine::{Engine, FRAME_BYTES};
use crate::ghost::{GHOST_BYTES_MAX, GhostMisses};
use crate::page::{FileIx, Page, PageIo, PageIx, Piece, pieces};
use crate::stats::Stats;
use crate::throttle::{self, Throttle};
use crate::time::Time;
use crate::watermarks::{Sample, Watermarks};

const PAGE: u64 = PAGE_BYTES as u64;

/// The ghost miss cache has a name for one in so many pages of the cache: what 20 % more memory would
/// hold (AWOL, section 3.2).
const GHOST_MISSES_SHARE: usize = 5;

/// What a frame is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A program's read, or read-ahead.
    Read,
    /// Data that is written, or on its way home.
    Write,
}

/// What the policy knows.
#[derive(Debug)]
pub(crate) struct WriteBack {
    policy: WriteBackPolicy,
    interval: Duration,
    marks: Watermarks,
    /// h_max, frames: the size of the ghost hit cache.
    max: usize,
    /// Sweeps are on: the high watermark was reached, and the low one not yet.
    on: bool,
    /// Since the last sample.
    sample: Sample,
    /// When that was; `None` before the first interval.
    sampled_at: Option<Time>,
    /// The last sample's d(t) and c(t).
    last: Sample,
    throttle: Throttle,
    ghosts: GhostMisses,
    ghost_hits: u64,
    ghost_misses: u64,
    dirtied: u64,
    cleaned: u64,
    paced: u64,
}

/// What of a page write-back counts, before and after a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    dirty: bool,
    destaging: bool,
    returned: bool,
    between: bool,
}

impl Before {
    pub(crate) fn of(page: &Page) -> Before {
        Before {
            dirty: page.dirty_seq != 0,
            destaging: is_destaging(page),
            returned: page.returned,
            between: page.is_between(),
        }
    }
}

fn is_destaging(page: &Page) -> bool {
    matches!(page.io, PageIo::Destage | PageIo::DestagePatches)
}

impl WriteBack {
    /// For a cache of so many frames, of which `background` start sweeps under the static policy, and
    /// at `bound` of which dirty writers wait.
    pub(crate) fn new(
        config: &Config,
        frames: usize,
        background: usize,
        bound: usize,
    ) -> WriteBack {
        // Under the static policy nobody checked it, and nobody looks at it.
        let max = (frames * usize::from(config.dirty_max_percent) / 100).min(bound);
        let ghosts = match config.write_back {
            WriteBackPolicy::Static => 0,
            WriteBackPolicy::Adaptive => frames / GHOST_MISSES_SHARE,
        };
        WriteBack {
            policy: config.write_back,
            interval: config.write_back_interval,
            marks: Watermarks::new(frames, max, background),
            max,
            on: false,
            sample: Sample::default(),
            sampled_at: None,
            last: Sample::default(),
            throttle: Throttle::default(),
            ghosts: GhostMisses::new(ghosts),
            ghost_hits: 0,
            ghost_misses: 0,
            dirtied: 0,
            cleaned: 0,
            paced: 0,
        }
    }

    /// Most memory a frame takes because of ghosts, bytes.
    pub(crate) fn bytes_a_frame(config: &Config) -> usize {
        match config.write_back {
            WriteBackPolicy::Static => 0,
            WriteBackPolicy::Adaptive => GHOST_BYTES_MAX.div_ceil(GHOST_MISSES_SHARE),
        }
    }

    pub(crate) fn is_adaptive(&self) -> bool {
        self.policy == WriteBackPolicy::Adaptive
    }

    /// Notes what a change of a page was: written anew, come home, or neither. What failed and what came
    /// back from the log is dirty as it was before; what is written home once more, with those around it, is
    /// nothing that came home.
    pub(crate) fn changed(&mut self, before: Before, page: &mut Page) {
        let is_dirty = page.dirty_seq != 0;
        let returned = page.returned && !before.returned;
        let between = before.between || page.is_between();
        let dirtied = !before.dirty && is_dirty && !page.retrying && !returned;
        // A program may have written to it on its way home.
        let dirtied = dirtied && (before.between || !between);
        let ended = before.destaging && page.io == PageIo::None && !page.retrying;
        let cleaned = ended && !between;
        if ended || !page.is_unclean() {
            page.set_between(false);
        }
        self.sample.dirtied += u64::from(dirtied);
        self.sample.cleaned += u64::from(cleaned);
        self.dirtied += u64::from(dirtied);
        self.cleaned += u64::from(cleaned);
    }

    /// Bytes of memory for ghosts.
    pub(crate) fn bytes(&self) -> usize {
        self.ghosts.bytes()
    }

    /// Takes a sample if an interval has passed. The first interval begins at the first tick.
    fn tick(&mut self, now: Time) {
        let elapsed = now.since(*self.sampled_at.get_or_insert(now));
        if !self.is_adaptive() || elapsed < self.interval {
            return;
        }
        self.last = std::mem::take(&mut self.sample);
        self.marks.sample(self.last, elapsed, self.interval);
        self.sampled_at = Some(now);
    }
}

/// Where writers begin to be paced, for an h_max of `max` pages of a cache: midway between the two; or, if
/// writers would not get there because they wait at `bound`, midway between h_max and that.
///
/// The paper prints (cache - h_max) / 2, which is less than h_max itself for every h_max above a third
/// of the cache: writers would be stopped before write-back begins. The text (section 3.2) has the point
/// above h_max, where more aggressive write-back was not enough.
fn pressure_point(max: usize, cache: usize, bound: usize) -> usize {
    match (max + cache) / 2 {
        pressure if pressure < bound => pressure,
        _ => (max + bound) / 2,
    }
}

impl Engine {
    /// Samples, if it is time to.
    pub(crate) fn tick_write_back(&mut self, now: Time) {
        self.write_back.tick(now);
    }

    /// When a sample is to be taken; `None` while nothing is dirty in memory.
    pub(crate) fn write_back_tick(&self) -> Option<Time> {
        let wanted = self.write_back.is_adaptive() && self.census.unclean > 0;
        let begun = self.write_back.sampled_at;
        wanted.then(|| begun.map_or(Time::ZERO, |begun| begun + self.write_back.interval))
    }

    /// Dirty frames at which writers wait. What is in the log alone is dirty, too, and its index takes
    /// frames: with all of the others dirty there would be none for readers.
    pub(crate) fn dirty_bound(&self) -> usize {
        self.hard_frames.min(self.frames_bound().saturating_sub(self.frames_max / 8))
    }

    /// The pressure point: dirty frames above which adaptive write-back paces writers. Patches are no part of
    /// that: readers have no use for their memory, and with or without a log it is made use of to its own
    /// bound, where writers wait in turn.
    fn pressure(&self) -> usize {
        let bound = self.dirty_bound();
        pressure_point(self.write_back.max.min(bound), self.frames_bound(), bound)
    }

    /// Frames that patches would be.
    fn patch_frames(&self) -> usize {
        self.census.patch_bytes.div_ceil(FRAME_BYTES)
    }

    /// Dirty memory, frames.
    pub(crate) fn dirty_frames(&self) -> usize {
        self.census.unclean_frames + self.patch_frames()
    }

    /// The ghost hit cache has room for as many clean pages as dirty ones leave of it.
    pub(crate) fn fit_ghost_hits(&mut self) {
        if self.write_back.is_adaptive() {
            let room = self.write_back.max.saturating_sub(self.dirty_frames());
            self.replacement.set_ghost_room(&mut self.pages, room);
        }
    }

    /// Whether sweeps are to bring home what is not due yet. To be asked before they go on.
    ///
    /// Adaptive: from when dirty memory that is not on its way home is at the high watermark until it is
    /// below the low one, by a transfer at most. It does not begin for less than what lies between the
    /// two ("the amount of data to destage upon activation", section 3.1): patches that wait for the log
    /// would else have every frame written as it becomes dirty.
    pub(crate) fn write_back_is_on(&mut self) -> bool {
        if !self.write_back.is_adaptive() {
            return self.census.unclean_frames >= self.background_frames;
        }
        let (high, low) = (self.write_back.marks.high(), self.write_back.marks.low());
        let dirty = self.dirty_frames() - self.census.homebound;
        let sweepable = match self.sweeps_take_patches() {
            true => dirty,
            false => self.census.unclean_frames - self.census.homebound,
        };
        self.write_back.on = match self.write_back.on {
            true => dirty >= low && sweepable > 0,
            false => dirty >= high && sweepable >= (high - low).max(1),
        };
        self.write_back.on
    }

    /// Whether write-back fetches patched pages to bring them home, rather than leave them to the log or
    /// to their own bound: where a fetch is quick, or no log takes them.
    fn sweeps_take_patches(&self) -> bool {
        !self.fetches_are_slow() || !self.can_spill()
    }

    /// Whether write-back takes patched pages now: when there is nothing it could simply write.
    pub(crate) fn write_back_takes_patches(&mut self) -> bool {
        self.write_back.is_adaptive()
            && self.resident.pages().is_empty()
            && self.census.homebound == 0
            && self.sweeps_take_patches()
            && self.write_back_is_on()
    }

    /// Dirty frames from which on bringing them home goes before everything but readers' own fetches:
    /// before writers are paced, or wait.
    pub(crate) fn pressing_frames(&self) -> usize {
        match self.write_back.policy {
            WriteBackPolicy::Static => (self.background_frames + self.hard_frames) / 2,
            WriteBackPolicy::Adaptive => (self.write_back.max + self.pressure()) / 2,
        }
    }

    /// Dirty frames that sweeps may make of patched pages: no writer is to be paced for that.
    pub(crate) fn converted_max(&self) -> usize {
        match self.write_back.policy {
            WriteBackPolicy::Static => self.hard_frames,
            WriteBackPolicy::Adaptive => self.pressure(),
        }
    }

    /// Whether a write has to wait for those before it to be paid for.
    pub(crate) fn is_held(&self, file: FileIx, offset: u64, end: u64, now: Time) -> bool {
        self.paces_writers()
            && self.write_back.throttle.holds(now)
            && self.is_paced(file, offset, end)
    }

    /// Where home takes nothing, there is no pace to keep: the sooner writers come to their bound, the sooner
    /// they are told.
    fn paces_writers(&self) -> bool {
        self.write_back.is_adaptive() && self.failed_in_a_row == 0
    }

    /// Whether writes like this one are paced: too much is dirty, and it makes more so.
    pub(crate) fn is_paced(&self, file: FileIx, offset: u64, end: u64) -> bool {
        let is_clean =
            |number| self.pages.find(file, number).is_none_or(|ix| self.pages[ix].dirty_seq == 0);
        self.paces_writers()
            && self.census.unclean_frames > self.pressure()
            && (offset / PAGE..end.div_ceil(PAGE)).any(is_clean)
    }

    /// Pages that ever became dirty by being written.
    pub(crate) fn pages_dirtied(&self) -> u64 {
        self.write_back.dirtied
    }

    /// A write was admitted, and made dirty what has become so since [`Engine::pages_dirtied`] was asked.
    pub(crate) fn pace_writers(&mut self, dirtied_before: u64, now: Time) {
        if !self.paces_writers() {
            return;
        }
        let dirty = self.census.unclean_frames;
        let (pressure, bound) = (self.pressure(), self.dirty_bound());
        // Nearly always so.
        if dirty <= pressure {
            return;
        }
        let pages = self.write_back.dirtied - dirtied_before;
        let state = &mut self.write_back;
        // Little came home in an interval in which little was to.
        let rate = state.marks.cleaned().max(Some(state.sample.cleaned));
        let interval = state.interval;
        let pause = throttle::pause(pages, rate, interval, dirty, pressure, bound);
        if pause > Duration::ZERO {
            state.throttle.admit(pause, now);
            state.paced += 1;
        }
    }

    /// A clean page is about to go, because its frame is needed.
    pub(crate) fn note_replaced(&mut self, ix: PageIx, need: Need) {
        if need == Need::Write && self.write_back.is_adaptive() {
            let page = &self.pages[ix];
            self.write_back.ghosts.insert(self.files[page.file].id, page.number);
        }
    }

    /// A program wants to read a range, none of it past the end of the file: counts the pages of it in
    /// memory, in the ghost caches, and in neither.
    pub(crate) fn note_reads(&mut self, file: FileIx, offset: u64, len: usize) {
        if !self.write_back.is_adaptive() {
            return;
        }
        let end = offset.saturating_add(len as u64).min(self.files[file].size());
        for Piece { number, start, len } in pieces(offset, end) {
            let found = self.pages.find(file, number);
            if let Some(ix) = found
                && self.pages[ix].is_ahead()
            {
                // No memory of what was read before answers it: the paper counts references to pages that
                // were there for one.
                self.pages[ix].set_ahead(false);
                continue;
            }
            let hit = match found.map(|ix| (ix, &self.pages[ix])) {
                Some((ix, page)) if page.frame.is_some() => {
                    Some(self.replacement.is_ghost_hit(&self.pages, ix))
                }
                Some((_, page)) => page.patches.get(start, len).map(|_| true),
                // Zeros past the end at home are in no memory, and need none.
                None if number * PAGE >= self.files[file].home_size => continue,
                None => None,
            };
            let state = &mut self.write_back;
            state.sample.reads += 1;
            match hit {
                Some(inside) => {
                    state.sample.hits += 1;
                    state.sample.ghost_hits += u64::from(inside);
                    state.ghost_hits += u64::from(inside);
                }
                None => self.note_miss(file, number),
            }
        }
    }

    /// Programs read a page that is in memory without asking, once or more: as one hit.
    pub(crate) fn note_read_in_lane(&mut self, ix: PageIx) {
        if self.write_back.is_adaptive() {
            let inside = self.replacement.is_ghost_hit(&self.pages, ix);
            let state = &mut self.write_back;
            state.sample.reads += 1;
            state.sample.hits += 1;
            state.sample.ghost_hits += u64::from(inside);
            state.ghost_hits += u64::from(inside);
        }
    }

    /// A page is fetched for a reader, or ahead of one.
    pub(crate) fn note_miss(&mut self, file: FileIx, number: u64) {
        if self.write_back.is_adaptive() && self.write_back.ghosts.take(self.files[file].id, number)
        {
            self.write_back.sample.ghost_misses += 1;
            self.write_back.ghost_misses += 1;
        }
    }

    /// Fills in what of the statistics is known here. Under the static policy the ratios are shown.
    pub(crate) fn write_back_stats(&self, stats: &mut Stats) {
        let state = &self.write_back;
        stats.dirty_memory_pages = self.dirty_frames() as u64;
        stats.cache_pages = self.frames_max as u64;
        stats.dirtied_pages = state.dirtied;
        stats.cleaned_pages = state.cleaned;
        stats.dirtied_last_interval = state.last.dirtied;
        stats.cleaned_last_interval = state.last.cleaned;
        stats.ghost_hits = state.ghost_hits;
        stats.ghost_misses = state.ghost_misses;
        stats.writers_paced = state.paced;
        let (high, low, max, pressure) = match state.policy {
            WriteBackPolicy::Static => {
                let background = self.background_frames;
                (background, background, background, self.dirty_bound())
            }
            WriteBackPolicy::Adaptive => {
                let marks = &state.marks;
                (marks.high(), marks.low(), marks.ceiling(), self.pressure())
            }
        };
        stats.watermark_high_pages = high as u64;
        stats.watermark_low_pages = low as u64;
        stats.watermark_max_pages = max as u64;
        stats.pressure_pages = pressure as u64;
        stats.dirty_bound_pages = self.dirty_bound() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pressure_point_is_above_h_max() {
        assert_eq!(pressure_point(400, 1000, 800), 700);
        assert_eq!(pressure_point(600, 1000, 800), 700);
        for max in 1..500 {
            let pressure = pressure_point(max, 1000, 500);
            assert!(max <= pressure && pressure < 500);
        }
    }
}
