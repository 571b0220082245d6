//! The figures of one piece of work, done straight on the directory and through the mount.

use crate::measure::{Latencies, median};

/// Rounds of each side, in turn.
pub const ROUNDS: u32 = 5;

/// One side of a comparison.
#[derive(Default)]
pub struct Side {
    pub operations: Latencies,
    /// Seconds of the sync after each round.
    pub syncs: Vec<f64>,
    /// Pages that were fetched while a program waited for them.
    pub waited: u64,
    /// Pages that were written in part while not in memory and never had to be fetched.
    pub avoided: u64,
}

impl Side {
    pub fn sync_us(&self) -> f64 {
        median(&self.syncs) * 1e6
    }

    /// A round's operations and its sync together.
    pub fn round_us(&self) -> f64 {
        let summary = self.operations.summary();
        let operations_us = summary.mean_us * summary.count as f64;
        let syncs_us = self.syncs.iter().sum::<f64>() * 1e6;
        (operations_us + syncs_us) / f64::from(ROUNDS)
    }
}

/// The same work on both sides.
#[derive(Default)]
pub struct Comparison {
    pub straight: Side,
    pub through: Side,
    /// Writers that waited for a page on Weir's side.
    pub blocked: u64,
}

/// A program that syncs, on either side.
pub struct Session {
    /// Rows of either side.
    pub rows: u64,
    /// Rows per second straight on the directory.
    pub straight: f64,
    /// Rows per second in the session.
    pub session: f64,
    /// Syncs that the program made, the same on both sides.
    pub syncs: u64,
    /// Commits that lines of the session waited for.
    pub commits: u64,
    /// Lines that were printed in the sessions, up to the kill.
    pub printed: u64,
    /// Rows in the database after the recovery.
    pub kept: u64,
}
