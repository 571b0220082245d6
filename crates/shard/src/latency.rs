//! Latencies of requests: from the call of the shard to its answer.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer latencies are recorded as this one.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Percentiles of one kind of request, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// Requests answered.
    pub count: u64,
    /// How long all of them took together.
    pub sum_ns: u64,
    /// Half were answered within this.
    pub p50_ns: u64,
    /// 90 of 100.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1,000.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

/// Latencies by kind of request, since the shard's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Writes.
    pub write: Percentiles,
    /// Reads.
    pub read: Percentiles,
    /// Syncs of one file or of everything.
    pub sync: Percentiles,
}

/// Kinds of request that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    Write,
    Read,
    Sync,
}

/// Records latencies, to two significant digits.
pub(crate) struct Recorder {
    write: Recorded,
    read: Recorded,
    sync: Recorded,
}

/// Of one kind.
struct Recorded {
    histogram: Histogram<u64>,
    sum_ns: u64,
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder { write: nothing(), read: nothing(), sync: nothing() }
    }

    pub(crate) fn record(&mut self, kind: Measured, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let recorded = match kind {
            Measured::Write => &mut self.write,
            Measured::Read => &mut self.read,
            Measured::Sync => &mut self.sync,
        };
        recorded.histogram.saturating_record(nanos);
        recorded.sum_ns = recorded.sum_ns.saturating_add(nanos);
    }

    pub(crate) fn latencies(&self) -> Latencies {
        Latencies {
            write: percentiles(&self.write),
            read: percentiles(&self.read),
            sync: percentiles(&self.sync),
        }
    }
}

fn nothing() -> Recorded {
    let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2);
    Recorded { histogram: histogram.expect("the bounds are constants in order"), sum_ns: 0 }
}

fn percentiles(recorded: &Recorded) -> Percentiles {
    let Recorded { histogram, sum_ns } = recorded;
    Percentiles {
        count: histogram.len(),
        sum_ns: *sum_ns,
        p50_ns: histogram.value_at_quantile(0.5),
        p90_ns: histogram.value_at_quantile(0.9),
        p99_ns: histogram.value_at_quantile(0.99),
        p999_ns: histogram.value_at_quantile(0.999),
        max_ns: histogram.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_recorded() {
        let mut recorder = Recorder::new();
        for micros in 1..=1000 {
            recorder.record(Measured::Write, Duration::from_micros(micros));
        }
        recorder.record(Measured::Sync, Duration::from_secs(1 << 20));
        let latencies = recorder.latencies();
        assert_eq!(latencies.write.count, 1000);
        assert_eq!(latencies.write.sum_ns, 500_500_000);
        assert!(latencies.write.p50_ns.abs_diff(500_000) <= 5_000);
        assert!(latencies.write.p99_ns.abs_diff(990_000) <= 9_900);
        assert_eq!(latencies.read, Percentiles::default());
        assert_eq!(latencies.sync.count, 1);
    }
}
