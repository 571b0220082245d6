//! How many operations ended when, in steps.
//!
//! Owns one count for each step of a load, so its size follows the load's length alone.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Length of a step.
const STEP_MS: u64 = 250;

/// CLOCK_MONOTONIC: the same for all processes of a machine, so that what two of them saw can be
/// put side by side.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Operations of a load over its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// When it began, by [`monotonic_ns`].
    pub began_ns: u64,
    /// Length of a step, milliseconds.
    pub step_ms: u64,
    /// How many operations ended in each step from the first on.
    pub ended: Vec<u64>,
    /// When the last of them did, seconds after the beginning: the last step is no longer than that.
    pub seconds: f64,
}

impl Timeline {
    /// Nothing yet, of a load that began at `start`.
    pub fn begun_at(start: Instant) -> Timeline {
        let elapsed_ns = start.elapsed().as_nanos() as u64;
        let began_ns = monotonic_ns() - elapsed_ns;
        Timeline { began_ns, step_ms: STEP_MS, ended: Vec::new(), seconds: 0.0 }
    }

    /// Counts an operation that ended this long after the beginning.
    pub fn note(&mut self, after: Duration) {
        let step = (after.as_millis() / u128::from(self.step_ms)) as usize;
        if step >= self.ended.len() {
            self.ended.resize(step + 1, 0);
        }
        self.ended[step] += 1;
        self.seconds = after.as_secs_f64();
    }

    /// Seconds of a step.
    pub fn step_seconds(&self) -> f64 {
        self.step_ms as f64 / 1e3
    }

    /// How many operations ended up to `seconds` after the beginning; of a step that is cut, in
    /// proportion.
    pub fn ended_by(&self, seconds: f64) -> f64 {
        if seconds >= self.seconds {
            return self.ended.iter().sum::<u64>() as f64;
        }
        let whole = ((seconds / self.step_seconds()).max(0.0) as usize).min(self.ended.len());
        let before: u64 = self.ended[..whole].iter().sum();
        let start = whole as f64 * self.step_seconds();
        let length = self.step_seconds().min(self.seconds - start);
        let part = ((seconds - start) / length).max(0.0);
        before as f64 + self.ended.get(whole).map_or(0.0, |ended| *ended as f64 * part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_in_the_step_they_end_in() {
        let mut timeline = Timeline { began_ns: 0, step_ms: 250, ended: Vec::new(), seconds: 0.0 };
        for ms in [0, 249, 250, 1000, 1002] {
            timeline.note(Duration::from_millis(ms));
        }
        assert_eq!(timeline.ended, [2, 1, 0, 0, 2]);
        assert_eq!(timeline.ended_by(0.125), 1.0);
        assert_eq!(timeline.ended_by(0.5), 3.0);
        let cut = timeline.ended_by(1.001);
        assert!((cut - 4.0).abs() < 1e-6, "half of the 2 ms that the last step has: {cut}");
        assert_eq!(timeline.ended_by(1.002), 5.0);
        assert_eq!(timeline.ended_by(-1.0), 0.0);
    }

    #[test]
    fn the_beginning_is_on_the_clock_of_the_machine() {
        let before = monotonic_ns();
        let start = Instant::now();
        let timeline = Timeline::begun_at(start);
        assert!((before..=monotonic_ns()).contains(&timeline.began_ns));
    }
}
