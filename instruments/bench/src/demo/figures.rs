//! What a scene found out, for the terminal ([`super::screen`]) and for the report ([`super::page`]).

use std::time::Duration;

use crate::measure::Latencies;

/// Rounds of each side, in turn.
pub const ROUNDS: u32 = 5;

/// The same work, directly and through Weir.
#[derive(Default)]
pub struct Sides {
    pub straight: Latencies,
    pub through: Latencies,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds: less is better.
    Us,
    /// A rate: more is better.
    PerSecond,
    /// How often somebody waited: less is better.
    Count,
}

/// One figure of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub name: String,
    pub unit: Unit,
    pub straight: f64,
    pub through: f64,
}

impl Pair {
    pub fn new(name: impl Into<String>, unit: Unit, straight: f64, through: f64) -> Pair {
        Pair { name: name.into(), unit, straight, through }
    }

    /// Which part of the longer of the two bars each has, from 0 to 1.
    pub fn parts(&self) -> [f64; 2] {
        let longest = self.straight.max(self.through);
        [self.straight, self.through]
            .map(|figure| if longest > 0.0 { figure / longest } else { 0.0 })
    }

    /// How much better Weir is, in words; nothing of counts.
    pub fn verdict(&self) -> String {
        let times = match self.unit {
            Unit::Us => self.straight / self.through.max(1e-9),
            Unit::PerSecond => self.through / self.straight.max(1e-9),
            Unit::Count => return String::new(),
        };
        if times >= 1.0 {
            format!("{} times faster", plain(times))
        } else {
            format!("{} times slower", plain(1.0 / times.max(1e-9)))
        }
    }
}

fn plain(times: f64) -> String {
    if times < 10.0 { format!("{times:.1}") } else { format!("{times:.0}") }
}

impl Sides {
    /// Median and 99th percentile of the operation.
    pub fn pairs(&self, operation: &str) -> [Pair; 2] {
        let (left, right) = (self.straight.summary(), self.through.summary());
        let pair =
            |name, left, right| Pair::new(format!("{operation}, {name}"), Unit::Us, left, right);
        [
            pair("median", left.median_us, right.median_us),
            pair("99th percentile", left.p99_us, right.p99_us),
        ]
    }
}

/// What a scene shows.
pub struct Shown {
    pub title: String,
    /// What is compared.
    pub what: String,
    pub pairs: Vec<Pair>,
    /// What was checked at the end.
    pub proof: String,
    pub took: Duration,
}

/// A scene's end.
pub enum Outcome {
    Shown(Shown),
    /// The machine or the user lacks something.
    LeftOut {
        title: String,
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_and_worse_are_told_by_the_unit() {
        let said = |unit, straight, through| Pair::new("x", unit, straight, through).verdict();
        assert_eq!(said(Unit::Us, 100.0, 10.0), "10 times faster");
        assert_eq!(said(Unit::Us, 10.0, 25.0), "2.5 times slower");
        assert_eq!(said(Unit::PerSecond, 100.0, 350.0), "3.5 times faster");
        assert_eq!(said(Unit::PerSecond, 100.0, 50.0), "2.0 times slower");
        assert_eq!(said(Unit::Count, 5.0, 0.0), "");
        assert!(said(Unit::Us, 5.0, 0.0).contains("faster"));
    }

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(Pair::new("x", Unit::Us, 4.0, 1.0).parts(), [1.0, 0.25]);
        assert_eq!(Pair::new("x", Unit::Count, 0.0, 0.0).parts(), [0.0, 0.0]);
    }
}
