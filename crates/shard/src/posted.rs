//! Counts of writes that programs posted by the lane.

/// Posted writes since the shard's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// Number of writes.
    pub writes: u64,
    /// Bytes in them.
    pub bytes: u64,
}
