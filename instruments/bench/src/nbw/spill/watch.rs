//! A load with an eye on the redo log: `weir status` is asked again and again while it runs.

use std::time::Duration;

use crate::error::Result;
use crate::mount::Status;
use crate::stage::Arena;
use crate::threads::watched;
use crate::workload::{Outcome, Workload, monotonic_ns};

/// How long to wait between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// What was seen of a log once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// When, by [`monotonic_ns`].
    pub at_ns: u64,
    /// What the log held, bytes.
    pub used_bytes: u64,
    /// What it can hold, bytes; 0 where there is none.
    pub capacity_bytes: u64,
}

impl Reading {
    /// Without what a status does not have.
    fn of(status: &Status) -> Reading {
        let number = |key| status.get(key).unwrap_or(0);
        Reading {
            at_ns: monotonic_ns(),
            used_bytes: number("log_used_bytes"),
            capacity_bytes: number("log_capacity_bytes"),
        }
    }
}

/// Runs `workload` in the contestant's memory; what was seen of its log meanwhile, if it has one.
pub fn load(arena: &Arena<'_>, workload: &Workload) -> Result<(Outcome, Vec<Reading>)> {
    let Some(mount) = arena.mount() else { return Ok((arena.load(workload)?, Vec::new())) };
    // A daemon that does not answer is looked at again later: it is the load that fails if it is gone.
    let look = || mount.status().ok().map(|status| Reading::of(&status));
    let (outcome, readings) = watched(INTERVAL, look, || arena.load(workload));
    Ok((outcome?, readings))
}
