//! What a load measured, and the little that must be kept of what it did to check it afterwards.
//!
//! A [`Tally`] is one thread's; an [`Outcome`] is the whole load's.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::error::Result;
use crate::measure::Latencies;
use crate::workload::timeline::Timeline;

/// The name of all classes together.
pub const ALL: &str = "all";

/// What kind of operation a latency is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Class {
    /// Reads of file data.
    Read,
    /// Writes of file data.
    Write,
    /// fsync(2) and fdatasync(2).
    Sync,
    /// Everything about names and attributes.
    Other,
    /// New orders, the transactions that TPC-C counts.
    NewOrder,
    /// Transactions of a database, each with its own reads, writes and syncs.
    Transaction,
    /// Whole jobs of several programs.
    Job,
}

/// The latencies one thread saw.
pub struct Tally {
    classes: [Latencies; Class::VARIANTS.len()],
    /// From the start of the load to the end of the thread's last operation, seconds.
    pub seconds: f64,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Tally {
        Tally { classes: std::array::from_fn(|_| Latencies::new()), seconds: 0.0 }
    }

    /// Adds one operation.
    pub fn note(&mut self, class: Class, latency: Duration) {
        self.classes[class as usize].note(latency);
    }
}

/// One class of a load's operations. Latencies in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassOutcome {
    /// `read`, `write`, `sync`, `other`, `new-order`, `transaction` or `job`; `all` for all of them
    /// together.
    pub class: String,
    /// Operations.
    pub ops: u64,
    /// Operations a second: the sum over the threads of each one's own rate, so that a thread
    /// whose last operation takes long does not make another look slow.
    pub ops_per_s: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Longest.
    pub max_us: f64,
}

/// What a load measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// From the start to the end of the last operation, seconds.
    pub seconds: f64,
    /// The classes the load has, then all together.
    pub classes: Vec<ClassOutcome>,
    /// How many operations each stream of them got through. What they did follows from the
    /// workload and these numbers.
    pub done: Vec<u64>,
    /// Reads whose every byte was compared with what may stand there.
    pub checked_reads: u64,
    /// Writes over time, where the load keeps count of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_over_time: Option<Timeline>,
}

impl Outcome {
    /// Sums up the threads' tallies. `done` is for checking, see [`Outcome::done`].
    pub fn new(tallies: &[Tally], done: Vec<u64>, checked_reads: u64) -> Outcome {
        let mut classes: Vec<ClassOutcome> =
            Class::VARIANTS.iter().filter_map(|class| sum_up(tallies, &[*class])).collect();
        classes.extend(sum_up(tallies, Class::VARIANTS));
        let seconds = tallies.iter().map(|tally| tally.seconds).fold(0.0, f64::max);
        Outcome { seconds, classes, done, checked_reads, writes_over_time: None }
    }

    /// Does one thing as a whole, a job.
    pub fn of_job(act: impl FnOnce() -> Result<()>) -> Result<Outcome> {
        let mut act = Some(act);
        Outcome::of_each(Class::Job, 1, |_| act.take().map_or(Ok(()), |act| act()))
    }

    /// Does `count` things one after the other, each told its number.
    pub fn of_each(
        class: Class,
        count: u64,
        mut act: impl FnMut(u64) -> Result<()>,
    ) -> Result<Outcome> {
        let mut tally = Tally::new();
        let start = Instant::now();
        for number in 0..count {
            let before = Instant::now();
            act(number)?;
            tally.note(class, before.elapsed());
        }
        tally.seconds = start.elapsed().as_secs_f64();
        Ok(Outcome::new(&[tally], vec![count], 0))
    }

    /// One class by its name, `all` for all together. `None` if the load has no such operation.
    pub fn class(&self, name: &str) -> Option<&ClassOutcome> {
        self.classes.iter().find(|class| class.class == name)
    }
}

/// The classes of `wanted` as one, if there is any such operation.
fn sum_up(tallies: &[Tally], wanted: &[Class]) -> Option<ClassOutcome> {
    let mut latencies = Latencies::new();
    let mut ops_per_s = 0.0;
    for tally in tallies {
        let mut ops = 0;
        for own in wanted.iter().map(|class| &tally.classes[*class as usize]) {
            ops += own.summary().count;
            latencies.add(own);
        }
        if tally.seconds > 0.0 {
            ops_per_s += ops as f64 / tally.seconds;
        }
    }
    let summary = latencies.summary();
    let name = if let [class] = wanted { class.into() } else { ALL };
    (summary.count > 0).then(|| ClassOutcome {
        class: name.into(),
        ops: summary.count,
        ops_per_s,
        mean_us: summary.mean_us,
        p50_us: summary.median_us,
        p99_us: summary.p99_us,
        max_us: summary.max_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_threads_add_up_and_classes_without_operations_are_left_out() {
        let mut reader = Tally::new();
        let mut writer = Tally::new();
        for _ in 0..10 {
            reader.note(Class::Read, Duration::from_micros(100));
            writer.note(Class::Write, Duration::from_micros(10));
            writer.note(Class::Write, Duration::from_micros(10));
        }
        (reader.seconds, writer.seconds) = (2.0, 1.0);
        let outcome = Outcome::new(&[reader, writer], vec![20], 10);
        let names: Vec<_> = outcome.classes.iter().map(|class| class.class.as_str()).collect();
        assert_eq!(names, ["read", "write", "all"]);
        let all = outcome.class("all").unwrap();
        assert_eq!(all.ops, 30);
        assert!((all.ops_per_s - 25.0).abs() < 1e-9);
        assert!((all.mean_us - 40.0).abs() < 0.1, "{all:?}");
        assert!((outcome.class("write").unwrap().p99_us - 10.0).abs() < 0.1);
        assert_eq!(outcome.seconds, 2.0);
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}
