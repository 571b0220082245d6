//! How many threads bring names home: a few, and more where home is slow and much is to be done.

use std::thread;
use std::time::Duration;

/// Threads where home is quick: one that waits for home, and one that does not.
const QUICK: usize = 2;
/// Threads at most.
const MOST: usize = 64;
/// One thread more for each of this that home takes for a command.
const SHARE: Duration = Duration::from_micros(100);
/// Weight of one command in the estimate of what home takes: one part in this many.
const WEIGHT: u32 = 8;

/// The threads.
#[derive(Debug, Default)]
pub(super) struct Crew {
    pub(super) threads: usize,
    pub(super) idle: usize,
    /// Idle ones that sleep no longer than until what was changed is to be committed.
    pub(super) watching: usize,
    /// Idle ones that look whether the log needs room.
    pub(super) looking: usize,
    /// What home takes for a command, about.
    command: Duration,
    pub(super) stopped: bool,
    pub(super) handles: Vec<thread::JoinHandle<()>>,
}

impl Crew {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn most(&self) -> usize {
        let slow = self.command.as_micros() / SHARE.as_micros();
        usize::try_from(slow).unwrap_or(MOST).clamp(QUICK, MOST)
    }

    pub(super) fn learn(&mut self, took: Duration) {
        self.command = (self.command * (WEIGHT - 1) + took) / WEIGHT;
    }
}
