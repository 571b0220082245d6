//! The adaptive watermarks of write-back (AWOL, FAST'08, sections 3.1 and 3.2).
//!
//! Write-back starts when dirty memory reaches the *high* watermark h(t) and stops below the *low* one,
//! l(t). Both follow the rates at which pages become dirty, d(t), and clean, c(t), from one sample to
//! the next:
//!
//! ```text
//! h(t) = h(t-1) d(t-1)/d(t)
//! l(t) = l(t-1) d(t-1)/d(t) c(t)/c(t-1)
//! ```
//!
//! The *ceiling* h_max(t) keeps them off the memory that readers use; see [`Sample`] for the counts:
//!
//! ```text
//! h_max(t) = h_max (1 - (C(t) - GH(t) + GM(t)) / reads(t))
//! ```
//!
//! Has no clock: the caller gives counts, and the time in which they arose. What the paper leaves open:
//! - *Start*: h(0) is the static policy's background ratio, or h_max if that is less, and l(0) half
//!   of it. The first rates are only remembered, since there are no earlier ones to compare them with.
//! - *d(t) = 0*: the formula grows without bound, so the rate limit counts: a doubling, also if
//!   d(t-1) was 0. An idle system thus ends with h(t) = h_max(t), ready for the next burst.
//! - *d(t-1) = 0 < d(t)*: d(t) is compared with the last d that was not 0. The formula gives 0, and the rate limit
//!   a halving. But a burst that spans two intervals would then cause two halvings and, at its end, only one doubling,
//!   so that a series of equal bursts would end at the floor.
//! - *c(t) = 0*: an interval in which nothing went home does not show the device's speed: either nothing was to go
//!   home, or the device stalled. The factor is 1, and the next c is compared with the last one that was not 0. So a
//!   stall has no lasting effect.
//! - *reads(t) = 0*: the target is h_max, rate-limited like every other.
//! - *Floor*: a watermark at 0 would never rise again by doubling, and one page would be written at
//!   a time. Nothing falls below [`FLOOR_SHARE`] of the cache; from there h_max is a few samples away.
//! - *A gap*: rates are in pages per interval, whatever time the counts cover, and less than a page is a rate of 0.
//!   Counts that cover several intervals (no tick came, or the clock jumped) are taken as that many samples of their
//!   average.
//!
//! Invariants, after every sample:
//! - floor <= l(t) <= h(t) <= h_max(t) <= h_max;
//! - none of l, h, h_max(t) is less than half or more than twice what it was before.

use std::time::Duration;

/// No watermark is less than the cache divided by this.
const FLOOR_SHARE: usize = 100;

/// Most intervals of a gap that count as samples: after 7 doublings from the floor, every watermark is at its ceiling.
const GAP_MAX: u128 = 8;

/// Pages counted in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Pages that became dirty: d(t).
    pub(crate) dirtied: u64,
    /// Pages that went home: c(t).
    pub(crate) cleaned: u64,
    /// Pages that programs read: reads(t).
    pub(crate) reads: u64,
    /// Pages read that were in memory: C(t).
    pub(crate) hits: u64,
    /// Pages read that were in the ghost hit cache: GH(t), at most C(t).
    pub(crate) ghost_hits: u64,
    /// Pages read that were not in memory because written pages had replaced them: GM(t).
    pub(crate) ghost_misses: u64,
}

impl Sample {
    /// The sample scaled from `elapsed` to one interval. Counts of reads are not scaled, since only their shares are
    /// used.
    fn in_interval(self, elapsed: Duration, interval: Duration) -> Sample {
        let rate = |count: u64| {
            let rate = u128::from(count) * interval.as_nanos() / elapsed.as_nanos();
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Sample { dirtied: rate(self.dirtied), cleaned: rate(self.cleaned), ..self }
    }

    /// The share of reads that write buffering makes miss, or soon would; 0 without reads.
    fn reserved_share(&self) -> f64 {
        let reserved = self.hits.saturating_sub(self.ghost_hits) + self.ghost_misses;
        match self.reads {
            0 => 0.0,
            // Pages read ahead are misses before they are reads.
            reads => (reserved as f64 / reads as f64).min(1.0),
        }
    }
}

/// h(t), l(t) and h_max(t), pages. Fractions of pages are kept, so that small steps add up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watermarks {
    high: f64,
    low: f64,
    ceiling: f64,
    /// h_max, which h_max(t) never exceeds.
    max: f64,
    floor: f64,
    /// The last d that was not 0; 0 before the first.
    dirtied: u64,
    /// The last c that was not 0; 0 before the first.
    cleaned: u64,
}

impl Watermarks {
    /// Watermarks for a cache of `cache` pages, with h_max = `max`; h(0) is `first`, or `max` if that is less.
    pub(crate) fn new(cache: usize, max: usize, first: usize) -> Watermarks {
        let max = max.max(1) as f64;
        let floor = ((cache / FLOOR_SHARE).max(1) as f64).min(max);
        let high = (first as f64).clamp(floor, max);
        let low = (high / 2.0).max(floor);
        Watermarks { high, low, ceiling: max, max, floor, dirtied: 0, cleaned: 0 }
    }

    /// Takes the counts of the time `elapsed` since the last sample. `elapsed` is at least `interval`, and neither is
    /// zero.
    pub(crate) fn sample(&mut self, sample: Sample, elapsed: Duration, interval: Duration) {
        let sample = sample.in_interval(elapsed, interval);
        let intervals = elapsed.as_nanos() / interval.as_nanos();
        for _ in 0..intervals.clamp(1, GAP_MAX) {
            self.step(&sample);
        }
    }

    fn step(&mut self, sample: &Sample) {
        let wanted = self.max * (1.0 - sample.reserved_share());
        self.ceiling = limited(self.ceiling, wanted).clamp(self.floor, self.max);
        let slower = match (self.dirtied, sample.dirtied) {
            (_, 0) => 2.0,
            (0, _) => 1.0,
            (before, dirtied) => before as f64 / dirtied as f64,
        };
        let cleaner = match (self.cleaned, sample.cleaned) {
            (0, _) | (_, 0) => 1.0,
            (before, cleaned) => cleaned as f64 / before as f64,
        };
        self.high = limited(self.high, self.high * slower);
        self.low = limited(self.low, self.low * slower * cleaner);
        if sample.dirtied > 0 {
            self.dirtied = sample.dirtied;
        }
        if sample.cleaned > 0 {
            self.cleaned = sample.cleaned;
        }
        self.high = self.high.clamp(self.floor, self.ceiling);
        self.low = self.low.clamp(self.floor, self.high);
    }

    /// h(t), pages.
    pub(crate) fn high(&self) -> usize {
        self.high as usize
    }

    /// l(t), pages.
    pub(crate) fn low(&self) -> usize {
        self.low as usize
    }

    /// h_max(t), pages.
    pub(crate) fn ceiling(&self) -> usize {
        self.ceiling as usize
    }

    /// Pages that went home in the last interval in which any did; `None` before the first.
    pub(crate) fn cleaned(&self) -> Option<u64> {
        (self.cleaned > 0).then_some(self.cleaned)
    }
}

/// `wanted`, but at least half and at most twice what was `before`.
fn limited(before: f64, wanted: f64) -> f64 {
    wanted.clamp(before / 2.0, before * 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CACHE: usize = 100_000;
    const MAX: usize = 40_000;
    const FIRST: usize = 20_000;

    fn new() -> Watermarks {
        Watermarks::new(CACHE, MAX, FIRST)
    }

    const INTERVAL: Duration = Duration::from_secs(1);

    impl Watermarks {
        fn take(&mut self, sample: Sample, intervals: u32) {
            self.sample(sample, INTERVAL * intervals, INTERVAL);
        }
    }

    fn written(dirtied: u64, cleaned: u64) -> Sample {
        Sample { dirtied, cleaned, ..Sample::default() }
    }

    fn read(reads: u64, hits: u64, ghost_hits: u64, ghost_misses: u64) -> Sample {
        Sample { reads, hits, ghost_hits, ghost_misses, ..written(1000, 1000) }
    }

    fn assert_bounds(marks: &Watermarks, before: &Watermarks) {
        assert!(marks.floor <= marks.low && marks.low <= marks.high, "{marks:?}");
        assert!(marks.high <= marks.ceiling && marks.ceiling <= marks.max, "{marks:?}");
        for (after, before) in
            [(marks.high, before.high), (marks.low, before.low), (marks.ceiling, before.ceiling)]
        {
            // Halving and doubling a float is exact.
            assert!(before / 2.0 <= after && after <= before * 2.0, "{before} to {after}");
        }
    }

    /// The paper's formulas as printed, with rate limits and bounds, for rates that are not 0.
    #[derive(Debug)]
    struct Paper {
        h: f64,
        l: f64,
        h_max_t: f64,
        h_max: f64,
        d: f64,
        c: f64,
    }

    impl Paper {
        fn step(&mut self, d: f64, c: f64, reads: f64, hits: f64, gh: f64, gm: f64) {
            let mut h_max_t = self.h_max * (1.0 - (hits - gh + gm) / reads);
            if h_max_t < self.h_max_t / 2.0 {
                h_max_t = self.h_max_t / 2.0;
            }
            if h_max_t > self.h_max_t * 2.0 {
                h_max_t = self.h_max_t * 2.0;
            }
            let mut h = self.h * self.d / d;
            if h < self.h / 2.0 {
                h = self.h / 2.0;
            }
            if h > self.h * 2.0 {
                h = self.h * 2.0;
            }
            if h > h_max_t {
                h = h_max_t;
            }
            let mut l = self.l * (self.d / d) * (c / self.c);
            if l < self.l / 2.0 {
                l = self.l / 2.0;
            }
            if l > self.l * 2.0 {
                l = self.l * 2.0;
            }
            if l > h {
                l = h;
            }
            *self = Paper { h, l, h_max_t, d, c, ..*self };
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_paper_where_its_formulas_are_defined(
            samples in prop::collection::vec(
                (1u64..5_000, 1u64..5_000, 1u64..1000, 0u64..=1000, 0u64..=1000, 0u64..=1000),
                1..60,
            ),
        ) {
            let mut marks = new();
            let first = samples[0];
            marks.take(written(first.0, first.1), 1);
            let mut paper = Paper {
                h: marks.high,
                l: marks.low,
                h_max_t: marks.ceiling,
                h_max: MAX as f64,
                d: first.0 as f64,
                c: first.1 as f64,
            };
            for (dirtied, cleaned, reads, hits, ghost_hits, ghost_misses) in samples {
                let hits = reads * hits / 1000;
                let ghost_hits = hits * ghost_hits / 1000;
                let ghost_misses = (reads - hits) * ghost_misses / 1000;
                let sample = Sample { dirtied, cleaned, reads, hits, ghost_hits, ghost_misses };
                let before = marks;
                marks.take(sample, 1);
                assert_bounds(&marks, &before);
                paper.step(
                    dirtied as f64, cleaned as f64, reads as f64,
                    hits as f64, ghost_hits as f64, ghost_misses as f64,
                );
                // The paper has no floor: from there on its values differ.
                if paper.h <= marks.floor || paper.l <= marks.floor || paper.h_max_t <= marks.floor {
                    break;
                }
                for (ours, papers) in
                    [(marks.high, paper.h), (marks.low, paper.l), (marks.ceiling, paper.h_max_t)]
                {
                    prop_assert!((ours - papers).abs() <= papers * 1e-9, "{:?} {:?}", marks, paper);
                }
            }
        }

        #[test]
        fn any_counts_keep_the_bounds(
            cache in 0usize..100_000,
            max in 0usize..100_000,
            first in 0usize..200_000,
            samples in prop::collection::vec(
                (any::<[u32; 6]>(), prop_oneof![4 => Just(0u32), 4 => Just(u32::MAX)]), 0..40,
            ),
        ) {
            let mut marks = Watermarks::new(cache, max, first);
            assert_bounds(&marks, &marks);
            for (counts, mask) in samples {
                let [dirtied, cleaned, reads, hits, ghost_hits, ghost_misses] =
                    counts.map(|count| u64::from(count & mask));
                let before = marks;
                let sample = Sample { dirtied, cleaned, reads, hits, ghost_hits, ghost_misses };
                marks.take(sample, 1);
                assert_bounds(&marks, &before);
            }
        }

        #[test]
        fn a_gap_counts_as_several_samples_of_its_average(
            rates in (0u64..5000, 0u64..5000),
            intervals in 1u32..100,
        ) {
            let mut gap = new();
            gap.take(written(500, 500), 1);
            let mut steps = gap;
            gap.take(written(rates.0 * u64::from(intervals), rates.1 * u64::from(intervals)), intervals);
            for _ in 0..intervals {
                steps.take(written(rates.0, rates.1), 1);
            }
            prop_assert_eq!(
                (gap.high(), gap.low(), gap.ceiling()),
                (steps.high(), steps.low(), steps.ceiling())
            );
        }
    }

    #[test]
    fn the_first_sample_moves_nothing() {
        let mut marks = new();
        marks.take(written(1_000_000, 1), 1);
        assert_eq!((marks.high(), marks.low(), marks.ceiling()), (FIRST, FIRST / 2, MAX));
    }

    #[test]
    fn a_sample_taken_late_has_the_same_rates() {
        let mut marks = new();
        for millis in [1000, 1900, 1010, 1000, 5500] {
            marks.sample(written(millis, millis), Duration::from_millis(millis), INTERVAL);
        }
        assert_eq!((marks.high(), marks.low()), (FIRST, FIRST / 2));
    }

    #[test]
    fn a_steady_load_leaves_them_where_they_are() {
        let mut marks = new();
        for _ in 0..1000 {
            marks.take(written(700, 700), 1);
        }
        assert_eq!((marks.high(), marks.low()), (FIRST, FIRST / 2));
    }

    #[test]
    fn more_writing_lowers_and_less_raises() {
        let mut marks = new();
        marks.take(written(1000, 1000), 1);
        marks.take(written(1600, 1000), 1);
        assert_eq!((marks.high(), marks.low()), (12_500, 6_250));
        marks.take(written(800, 1000), 1);
        assert_eq!((marks.high(), marks.low()), (25_000, 12_500));
        // A device that cleans faster lets write-back stop sooner.
        marks.take(written(800, 1500), 1);
        assert_eq!((marks.high(), marks.low()), (25_000, 18_750));
    }

    #[test]
    fn an_idle_system_ends_at_its_ceiling_and_a_greater_burst_halves() {
        let mut marks = new();
        marks.take(written(1000, 1000), 1);
        marks.take(Sample::default(), 3600);
        assert_eq!((marks.high(), marks.low()), (MAX, MAX));
        marks.take(written(1000, 0), 1);
        assert_eq!((marks.high(), marks.low()), (MAX, MAX));
        marks.take(written(3000, 0), 1);
        assert_eq!((marks.high(), marks.low()), (MAX / 2, MAX / 2));
        // If these few pages counted as a rate, the next rate would be compared with it.
        let mut nearly = new();
        nearly.take(written(1000, 1000), 1);
        nearly.take(written(3, 0), 3600);
        assert_eq!(nearly.high(), MAX);
    }

    #[test]
    fn equal_bursts_do_not_lower_the_watermarks_for_good() {
        let mut marks = new();
        for _ in 0..100 {
            for rate in [10, 1000, 1000, 3, 0] {
                marks.take(written(rate, rate), 1);
            }
        }
        assert_eq!(marks.high(), MAX);
    }

    #[test]
    fn a_stall_has_no_lasting_effect() {
        let mut marks = new();
        for _ in 0..5 {
            marks.take(written(1000, 1000), 1);
        }
        let before = marks;
        for _ in 0..10 {
            marks.take(written(1000, 0), 1);
        }
        marks.take(written(1000, 1000), 1);
        assert_eq!((marks.high(), marks.low()), (before.high(), before.low()));
    }

    #[test]
    fn from_the_floor_it_is_a_few_samples_to_the_ceiling() {
        let mut marks = new();
        for rate in 0..20 {
            marks.take(written(1 << rate, 1), 1);
        }
        assert_eq!((marks.high(), marks.low()), (CACHE / 100, CACHE / 100));
        for _ in 0..6 {
            marks.take(Sample::default(), 1);
        }
        assert_eq!(marks.high(), MAX);
    }

    #[test]
    fn readers_in_the_reserve_lower_the_ceiling_and_its_watermarks() {
        let mut marks = new();
        marks.take(read(0, 0, 0, 0), 1);
        // A quarter of the reads would be misses soon, or already are because of writes.
        marks.take(read(1000, 700, 500, 50), 1);
        assert_eq!((marks.ceiling(), marks.high()), (30_000, FIRST));
        marks.take(read(1000, 1000, 0, 0), 1);
        assert_eq!((marks.ceiling(), marks.high()), (15_000, 15_000), "at most a halving");
        for _ in 0..10 {
            marks.take(read(1000, 0, 0, 1000), 1);
        }
        assert_eq!(marks.ceiling(), CACHE / 100);
        for _ in 0..6 {
            marks.take(read(0, 0, 0, 0), 1);
        }
        assert_eq!(marks.ceiling(), MAX, "no reads");
        // Everything that is read fits the memory that writes leave.
        marks.take(read(1000, 1000, 1000, 0), 1);
        assert_eq!(marks.ceiling(), MAX);
    }
}
