//! What a disk did, as its server counts it.

use std::ops::Sub;

use serde::{Deserialize, Serialize};

use super::parameters::Ns;

/// Totals since the disk was started; the difference of two is what happened between them. Times
/// are microseconds of the disk's own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Requests to make durable what was written. A write with FUA reaches the disk as a write and
    /// one of these, as it does with SATA drives under Linux.
    pub flushes: u64,
    /// Requests to discard, or to zero without data.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads answered from the drive's memory: from cached writes or from what was read ahead.
    pub cache_hits: u64,
    /// Writes of the drive's cache to its medium.
    pub write_backs: u64,
    /// Moves of the arm.
    pub seeks: u64,
    /// Time the arm moved.
    pub seek_us: f64,
    /// Time it waited for a block to come round.
    pub rotation_us: f64,
    /// Time blocks passed under the head for a request or a write-back.
    pub transfer_us: f64,
    /// Time at least one request was under way.
    pub busy_us: f64,
    /// The sum over time of the number of requests under way.
    pub depth_us: f64,
    /// The most requests that were ever under way. Not a total: a difference keeps the later one.
    pub depth_max: u64,
}

impl Counts {
    /// The mean number of requests under way while there were any.
    pub fn depth_mean(&self) -> f64 {
        if self.busy_us > 0.0 { self.depth_us / self.busy_us } else { 0.0 }
    }

    /// `depth` requests were under way for `time`.
    pub(super) fn pass(&mut self, depth: u64, time: Ns) {
        if depth > 0 {
            self.busy_us += us(time);
            self.depth_us += us(time) * depth as f64;
        }
    }
}

/// In microseconds.
pub(super) fn us(time: Ns) -> f64 {
    time as f64 / 1000.0
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, earlier: Counts) -> Counts {
        Counts {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            discards: self.discards - earlier.discards,
            read_bytes: self.read_bytes - earlier.read_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            cache_hits: self.cache_hits - earlier.cache_hits,
            write_backs: self.write_backs - earlier.write_backs,
            seeks: self.seeks - earlier.seeks,
            seek_us: self.seek_us - earlier.seek_us,
            rotation_us: self.rotation_us - earlier.rotation_us,
            transfer_us: self.transfer_us - earlier.transfer_us,
            busy_us: self.busy_us - earlier.busy_us,
            depth_us: self.depth_us - earlier.depth_us,
            depth_max: self.depth_max,
        }
    }
}
