//! Write-back: when dirty data starts to go home, and when it stops (AWOL, FAST'08, section 3).
//!
//! Under the *static* policy, sweeps run while dirty frames are at the background ratio or above, as in a kernel. Under
//! the *adaptive* policy, sweeps begin when dirty memory reaches the high watermark and run until the dirty memory that
//! is not yet in transfer is below the low one. The watermarks follow the load (`watermarks`), below a ceiling that
//! follows readers (`ghost`). Writers above the pressure point are paced (`throttle`). Under both policies `sweep`
//! chooses the next page, and old data goes home.
//!
//! All counts here are in frames of the cache, which is the memory for frames. Patches have memory of their own and are
//! counted as the frames that would fit it, because they become frames when they go home.
//!
//! Owns the state of the policy. Counts come from [`Engine::update`], which sees every page change; samples are taken
//! at ticks.
//!
//! Invariants:
//! - no tick is asked for while nothing is dirty in memory: reads in the meantime are part of the sample after the
//!   next write;
//! - under the static policy nothing is sampled, no writer is paced and no evicted page is remembered.

pub(crate) mod need;
pub(crate) mod sweeps;
pub(crate) mod throttle;
pub(crate) mod watermarks;

use std::time::Duration;

use crate::cache::ghost::{GHOST_BYTES_MAX, GhostMisses};
use crate::cache::turnover::Turnover;
use crate::config::{Config, WriteBackPolicy};
use crate::time::Time;
use crate::write_back::sweeps::Sweeps;
use crate::write_back::throttle::Throttle;
use crate::write_back::watermarks::{Sample, Watermarks};

/// The state of the write-back policy.
#[derive(Debug)]
pub(crate) struct WriteBack {
    pub(crate) policy: WriteBackPolicy,
    pub(crate) interval: Duration,
    /// Dirty frames at which static write-back begins.
    pub(crate) background: usize,
    /// Dirty frames at which writers wait.
    pub(crate) hard: usize,
    pub(crate) sweeps: Sweeps,
    pub(crate) marks: Watermarks,
    /// h_max, frames: the size of the ghost hit cache.
    pub(crate) max: usize,
    /// Sweeps are on: the high watermark was reached, and the low one has not been reached since.
    pub(crate) on: bool,
    /// Since the last sample.
    pub(crate) sample: Sample,
    /// The turnover at the last sample.
    pub(crate) sampled: Turnover,
    /// When that was; `None` before the first interval.
    pub(crate) sampled_at: Option<Time>,
    /// The last sample's d(t) and c(t).
    pub(crate) last: Sample,
    pub(crate) throttle: Throttle,
    pub(crate) ghost_hits: u64,
    pub(crate) ghost_misses: u64,
    pub(crate) paced: u64,
}

impl WriteBack {
    /// The policy for a cache of `frames` frames.
    pub(crate) fn new(config: &Config, frames: usize) -> WriteBack {
        let background = frames * usize::from(config.dirty_background_percent) / 100;
        let hard = frames * usize::from(config.dirty_hard_percent) / 100;
        // Under the static policy `dirty_max_percent` is neither checked nor used.
        let max = (frames * usize::from(config.dirty_max_percent) / 100).min(hard);
        WriteBack {
            policy: config.write_back,
            interval: config.write_back_interval,
            background,
            hard,
            sweeps: Sweeps::default(),
            marks: Watermarks::new(frames, max, background),
            max,
            on: false,
            sample: Sample::default(),
            sampled_at: None,
            last: Sample::default(),
            throttle: Throttle::default(),
            ghost_hits: 0,
            ghost_misses: 0,
            sampled: Turnover::default(),
            paced: 0,
        }
    }

    /// The ghost miss cache for a cache of `frames` frames.
    pub(crate) fn ghosts(config: &Config, frames: usize) -> GhostMisses {
        GhostMisses::new(match config.write_back {
            WriteBackPolicy::Static => 0,
            WriteBackPolicy::Adaptive => frames / GHOST_MISSES_SHARE,
        })
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

    /// Takes a sample if an interval has passed. The first interval begins at the first tick.
    pub(crate) fn tick(&mut self, turnover: Turnover, now: Time) {
        let elapsed = now.since(*self.sampled_at.get_or_insert(now));
        if !self.is_adaptive() || elapsed < self.interval {
            return;
        }
        self.last = Sample {
            dirtied: turnover.dirtied - self.sampled.dirtied,
            cleaned: turnover.cleaned - self.sampled.cleaned,
            ..std::mem::take(&mut self.sample)
        };
        self.sampled = turnover;
        self.marks.sample(self.last, elapsed, self.interval);
        self.sampled_at = Some(now);
    }
}

/// The dirty pages above which writers are paced: midway between h_max (`max`) and the cache, or, if that is not below
/// the bound at which writers wait, midway between h_max and `bound`.
///
/// The paper's formula, (cache - h_max) / 2, is less than h_max itself for every h_max above a third of the cache:
/// writers would be stopped before write-back begins. The paper's text (section 3.2) puts the point above h_max, where
/// more aggressive write-back was not enough.
pub(crate) fn pressure_point(max: usize, cache: usize, bound: usize) -> usize {
    match (max + cache) / 2 {
        pressure if pressure < bound => pressure,
        _ => (max + bound) / 2,
    }
}

/// The ghost miss cache has one name for this many pages of the cache: what 20 % more memory would hold (AWOL,
/// section 3.2).
const GHOST_MISSES_SHARE: usize = 5;

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
