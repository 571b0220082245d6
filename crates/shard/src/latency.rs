//! Latencies of requests as the shard saw them: from the call to its answer.

/// Percentiles of one kind of request, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// Requests answered.
    pub count: u64,
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
