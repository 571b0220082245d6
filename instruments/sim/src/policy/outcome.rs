//! The results of a run.

use hdrhistogram::Histogram;
use serde::Serialize;
use weir_drive::Counts;
use weir_engine::Stats;

/// The results of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Its length in virtual seconds: that of the load, or until its last answer.
    pub seconds: f64,
    /// Reads, if there was a reader.
    pub reads: Option<Class>,
    /// Writes, if there were any.
    pub writes: Option<Class>,
    /// The share of pages found in memory by reads; 1 without readers.
    pub hit_rate: f64,
    /// Writes after which the next one was delayed.
    pub writers_paced: u64,
    /// Writers that waited for memory.
    pub writers_blocked: u64,
    /// The drive's statistics at that time.
    pub device: Counts,
    /// Second by second.
    pub samples: Vec<Sample>,
}

/// Operations of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Their number.
    pub operations: u64,
    /// Operations per second.
    pub rate: f64,
    /// Their median, microseconds.
    pub p50_us: f64,
    /// The 98th percentile, microseconds.
    pub p99_us: f64,
    /// The longest, microseconds.
    pub longest_us: f64,
}

impl Class {
    /// Operations of all programs of a kind; `None` if there was none.
    pub(super) fn of(latencies: &Histogram<u64>, seconds: f64) -> Option<Class> {
        let us = |at: f64| latencies.value_at_quantile(at) as f64 / 1e3;
        (!latencies.is_empty()).then(|| Class {
            operations: latencies.len(),
            rate: latencies.len() as f64 / seconds,
            p50_us: us(0.5),
            p99_us: us(0.99),
            longest_us: us(1.0),
        })
    }
}

/// The state of the engine at one moment, and counts since the moment before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Virtual seconds since the beginning.
    pub at: f64,
    /// h(t), pages.
    pub high: u64,
    /// l(t).
    pub low: u64,
    /// h_max(t).
    pub max: u64,
    /// d(t).
    pub dirtied: u64,
    /// c(t).
    pub cleaned: u64,
    /// Dirty memory, pages.
    pub dirty: u64,
    /// The share of pages found in memory by reads since then; 1 if there were no reads.
    pub hit_rate: f64,
    /// Of these pages, the share that a memory of the size of h_max would have held.
    pub ghost_hits: u64,
    /// Pages not found because they had been evicted for written ones.
    pub ghost_misses: u64,
    /// Writers waiting.
    pub waiting: u64,
}

impl Sample {
    pub(super) fn of(at: f64, now: &Stats, before: &Stats) -> Sample {
        Sample {
            at,
            high: now.watermark_high_pages,
            low: now.watermark_low_pages,
            max: now.watermark_max_pages,
            dirtied: now.dirtied_last_interval,
            cleaned: now.cleaned_last_interval,
            dirty: now.dirty_memory_pages,
            hit_rate: hit_rate(now, before),
            ghost_hits: now.ghost_hits - before.ghost_hits,
            ghost_misses: now.ghost_misses - before.ghost_misses,
            waiting: now.writers_waiting,
        }
    }
}

/// The share of pages found in memory by reads between the two.
pub(super) fn hit_rate(now: &Stats, before: &Stats) -> f64 {
    let hits = now.read_hits.saturating_sub(before.read_hits);
    let all = hits + (now.read_misses - before.read_misses);
    if all == 0 { 1.0 } else { hits as f64 / all as f64 }
}
