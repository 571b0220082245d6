//! Counts of what programs posted by the lane.

/// What programs posted since the shard's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// Writes.
    pub writes: u64,
    /// Bytes of these.
    pub bytes: u64,
}
