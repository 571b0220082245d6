//! What a run of the suite found, every round of every side: the JSON that `weir-bench run lane --json` writes and
//! `weir-bench report` reads.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::json;
use crate::measure::median;
use crate::workload::Outcome;

/// The name of the suite in its JSON.
pub const SUITE: &str = "lane";

/// The transport of requests by /dev/fuse.
pub const DEVICE: &str = "device";
/// The transport of requests by io_uring.
pub const IO_URING: &str = "io-uring";

/// One run, or what of it is done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// [`SUITE`].
    pub suite: String,
    /// The command that made it.
    pub command: String,
    /// What it ran on.
    pub machine: Value,
    /// `quick` or `full`.
    pub profile: String,
    /// How the mounts got their requests, but those that compare just that.
    #[serde(default = "by_device")]
    pub transport: String,
    /// What `weir --version` said, and a checksum of the program.
    pub weir: String,
    /// Whether all that was asked for is in.
    pub complete: bool,
    /// Seconds it took.
    pub took_seconds: f64,
    /// What could not be run, and why.
    pub passed_over: Vec<String>,
    /// What was measured.
    pub cases: Vec<Case>,
}

/// What nothing was said of when there was nothing else.
fn by_device() -> String {
    DEVICE.into()
}

/// What of a round is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Operations a second: more is better.
    Rate,
    /// The median time of an operation: less is better.
    Median,
    /// The mean time of an operation: less is better.
    Mean,
    /// The 99th percentile of the times of operations: less is better.
    P99,
}

/// One comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// What is compared.
    pub figure: Figure,
    /// Bytes of an operation, where all have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_bytes: Option<u64>,
    /// Files that it is about, where that is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Who was compared.
    pub sides: Vec<SideRounds>,
}

/// All rounds of a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SideRounds {
    /// `ext4`, `fuse`, `lane`, or what else is compared.
    pub side: String,
    /// One after the other; the rounds of all sides took turns.
    pub rounds: Vec<Round>,
}

/// One round of one side. Times of operations in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Operations that this is the rate of.
    pub ops: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Longest.
    pub max_us: f64,
    /// How long it took until everything was on the disk, after the load: seconds.
    pub after_seconds: f64,
    /// Writes that the daemon took from memory it shares with the load, by its own count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posted_writes: Option<u64>,
    /// The most memory that the daemon held, MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_peak_mib: Option<f64>,
    /// Descriptors that the daemon had open at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_descriptors: Option<u64>,
    /// Bytes that crossed the network until all was home, in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_bytes: Option<u64>,
    /// Requests that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
}

impl Round {
    fn figure(&self, figure: Figure) -> f64 {
        match figure {
            Figure::Rate => self.ops_per_s,
            Figure::Median => self.p50_us,
            Figure::Mean => self.mean_us,
            Figure::P99 => self.p99_us,
        }
    }
}

impl Case {
    /// Of these sides, with no round yet.
    pub fn new<'a>(
        name: impl Into<String>,
        figure: Figure,
        sides: impl IntoIterator<Item = &'a str>,
    ) -> Case {
        let sides = sides.into_iter();
        let sides = sides.map(|side| SideRounds { side: side.into(), rounds: Vec::new() });
        Case { name: name.into(), figure, io_bytes: None, files: None, sides: sides.collect() }
    }

    /// Adds a side's next round, one class of a load's operations.
    pub fn note(
        &mut self,
        side: usize,
        outcome: &Outcome,
        class: &str,
        after_seconds: f64,
    ) -> Result<&mut Round> {
        let found = outcome.class(class).ok_or_else(|| {
            Error::answer("the load", format!("{}: it has no '{class}'", self.name))
        })?;
        Ok(self.sides[side].rounds.push_mut(Round {
            ops_per_s: found.ops_per_s,
            ops: found.ops,
            mean_us: found.mean_us,
            p50_us: found.p50_us,
            p99_us: found.p99_us,
            max_us: found.max_us,
            after_seconds,
            ..Round::default()
        }))
    }

    fn rounds(&self, side: &str) -> &[Round] {
        self.sides.iter().find(|found| found.side == side).map_or(&[], |found| &found.rounds)
    }

    /// A side's median over its rounds; `None` if it has none.
    pub fn median(&self, side: &str, of: impl Fn(&Round) -> f64) -> Option<f64> {
        let rounds: Vec<f64> = self.rounds(side).iter().map(of).collect();
        (!rounds.is_empty()).then(|| median(&rounds))
    }

    /// What is compared, of one side.
    pub fn value(&self, side: &str) -> Option<f64> {
        self.median(side, |round| round.figure(self.figure))
    }

    /// How many times better one side is than the other: the median of the rounds' ratios.
    pub fn ratio(&self, side: &str, than: &str) -> Option<f64> {
        let ratios: Vec<f64> = self
            .rounds(side)
            .iter()
            .zip(self.rounds(than))
            .map(|(one, other)| {
                let (one, other) = (one.figure(self.figure), other.figure(self.figure));
                if self.figure == Figure::Rate { one / other } else { other / one }
            })
            .filter(|ratio| ratio.is_finite())
            .collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }
}

impl Results {
    /// Reads it.
    pub fn load(path: &Path) -> Result<Results> {
        json::load(path)
    }

    /// Writes it.
    pub fn save(&self, path: &Path) -> Result<()> {
        json::save(path, self)
    }

    /// One of the cases.
    pub fn case(&self, name: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.name == name)
    }

    /// Those whose names begin like this.
    pub fn cases<'a>(&'a self, begin: &'a str) -> impl Iterator<Item = &'a Case> {
        self.cases.iter().filter(move |case| case.name.starts_with(begin))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A case with these rates, or times in microseconds, round by round.
    pub fn case(name: &str, figure: Figure, sides: &[(&str, &[f64])]) -> Case {
        let round = |value: &f64| Round {
            ops_per_s: *value,
            mean_us: *value,
            p50_us: *value,
            p99_us: *value * 3.0,
            ..Round::default()
        };
        let mut case = Case::new(name, figure, sides.iter().map(|(side, _)| *side));
        for (side, (_, values)) in case.sides.iter_mut().zip(sides) {
            side.rounds = values.iter().map(round).collect();
        }
        case
    }

    #[test]
    fn ratios_are_of_rounds_that_belong_together_and_better_is_more() {
        let sides: [(&str, &[f64]); 2] =
            [("ext4", &[10.0, 20.0, 100.0]), ("lane", &[20.0, 20.0, 50.0])];
        let rate = case("a", Figure::Rate, &sides);
        assert_eq!(rate.ratio("lane", "ext4"), Some(1.0));
        assert_eq!(rate.value("lane"), Some(20.0));
        let time = case("a", Figure::Median, &[("ext4", &[30.0]), ("lane", &[10.0])]);
        assert_eq!(time.ratio("lane", "ext4"), Some(3.0));
        assert_eq!(time.ratio("lane", "fuse"), None);
    }
}
