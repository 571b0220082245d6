//! The goals of the suite, held against what a run found.
//!
//! Pure: results in, goals out, whatever part of the suite the results hold. What was not run is
//! not measured, and a goal that is not measured is neither reached nor missed.
//!
//! A goal over several cases is held against the worst of them, unless its name says average. It
//! is held against Weir's default policy; the policy that would have done best is named beside it.

use std::fmt;

use super::names::{BASELINE, DASH, DEFAULT, contestants, groups, times, without_fsync, writes};
use super::results::{Case, Experiment, Results};
use crate::disk::Model;
use crate::page::PAGE;

/// A ratio to ext4 below this is slower than ext4.
pub const SLOWER: f64 = 0.95;

/// What random-write on the hard disk is to reach where nothing sets it a bound, times ext4.
const HELD: f64 = 45.0;

/// The unit of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A ratio.
    Times,
    /// Percent.
    Percent,
}

/// What one contestant reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// In the goal's unit.
    pub value: f64,
    /// The case that decided; an average has none.
    pub decided_by: Option<String>,
    /// The figure of each case that counted, worst first.
    pub parts: Vec<(String, f64)>,
}

/// One goal. More is better in all of them.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What should be.
    pub name: String,
    /// At least this.
    pub need: f64,
    /// Of `need` and what was measured.
    pub unit: Unit,
    /// By the default policy.
    pub measured: Option<Measured>,
    /// The best of the other policies that ran the same cases, and what it reached.
    pub best: Option<(String, Measured)>,
}

impl Measured {
    /// The figure of one case, which the goal's name has.
    pub fn single(value: f64) -> Measured {
        Measured { value, decided_by: None, parts: Vec::new() }
    }
}

impl Goal {
    /// A ratio that is to be reached, beside which nothing else is shown.
    pub fn times(name: impl Into<String>, need: f64, measured: Option<Measured>) -> Goal {
        Goal { name: name.into(), need, unit: Unit::Times, measured, best: None }
    }

    fn hold(
        results: &Results,
        name: impl Into<String>,
        (need, unit): (f64, Unit),
        measure: impl Fn(&str) -> Option<Measured>,
    ) -> Goal {
        let measured = measure(DEFAULT);
        let others = contestants(results)
            .into_iter()
            .filter(|name| *name != BASELINE && *name != DEFAULT)
            .filter_map(|name| Some((name.to_owned(), measure(name)?)));
        let others: Vec<(String, Measured)> = others.collect();
        let most = others.iter().map(|(_, measured)| measured.parts.len()).max().unwrap_or(0);
        let cases = measured.as_ref().map_or(most, |measured| measured.parts.len());
        let best = others
            .into_iter()
            .filter(|(_, measured)| measured.parts.len() == cases)
            .max_by(|(_, one), (_, other)| one.value.total_cmp(&other.value));
        Goal { name: name.into(), need, unit, measured, best }
    }

    /// Whether it was; `None` where nothing was measured.
    pub fn reached(&self) -> Option<bool> {
        self.measured.as_ref().map(|measured| measured.value >= self.need)
    }

    /// The same for a person; `missed` is what a goal is that was not reached.
    pub fn state(&self, missed: &'static str) -> &'static str {
        self.reached().map_or("not measured", |reached| if reached { "reached" } else { missed })
    }

    /// `value` with this goal's unit.
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Times => format!("{} x", times(value)),
            Unit::Percent if value.is_finite() => format!("{value:.1} %"),
            Unit::Percent => DASH.to_owned(),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state("MISSED");
        let measured = self.measured.as_ref().map_or(f64::NAN, |measured| measured.value);
        let (need, measured) = (self.show(self.need), self.show(measured));
        write!(f, "{state:<12} {measured:>9}  (≥ {need})  {}", self.name)?;
        if let Some(case) = self.measured.as_ref().and_then(|found| found.decided_by.as_ref()) {
            write!(f, ", at {case}")?;
        }
        if let Some((policy, best)) = &self.best {
            write!(f, "; {policy} {}", self.show(best.value))?;
        }
        Ok(())
    }
}

/// All goals, in the order they are shown.
pub fn goals(results: &Results) -> Vec<Goal> {
    use Experiment::{FileServer, Memory, Personality, Trace};
    let mut goals = Vec::new();
    let mut hold = |name: String, need, unit, measure: &dyn Fn(&str) -> Option<Measured>| {
        goals.push(Goal::hold(results, name, (need, unit), measure));
    };
    let cases = |who: &str, what: Experiment| cases(results, who, what);
    hold(
        "hdd, random-write where patch memory holds the writes".into(),
        HELD,
        Unit::Times,
        &|who| {
            let all = partial_random_writes(cases(who, Personality));
            worst(all.filter(|case| is_held(case)).filter_map(ratio))
        },
    );
    hold("hdd, other random-write: share of the bound".into(), 0.8, Unit::Times, &|who| {
        let all = partial_random_writes(cases(who, Personality));
        worst(all.filter(|case| !is_held(case)).filter_map(share_of_bound))
    });
    for (disk, need) in [(Model::Hdd, 10.0), (Model::Ssd, 3.0)] {
        hold(format!("{disk}, write personalities, average"), need, Unit::Times, &|who| {
            let writing = cases(who, Personality).filter(|case| writes(&case.workload));
            average(writing.filter(|case| case.disk == disk).filter_map(ratio))
        });
    }
    hold("no personality slower than ext4".into(), SLOWER, Unit::Times, &|who| {
        worst(cases(who, Personality).chain(cases(who, Memory)).filter_map(ratio))
    });
    for disk in [Model::Hdd, Model::Ssd] {
        let of = |who: &str, class: &'static str| {
            let mixes = cases(who, FileServer).filter(move |case| case.disk == disk);
            mixes.filter_map(move |case| of_class(case, class)).collect::<Vec<_>>().into_iter()
        };
        hold(format!("{disk}, file server: write latency down by"), 80.0, Unit::Percent, &|who| {
            worst(of(who, "write").map(reduction))
        });
        hold(format!("{disk}, file server: reads not worse"), 1.0, Unit::Times, &|who| {
            worst(of(who, "read"))
        });
    }
    for disk in [Model::Hdd, Model::Ssd] {
        for (no_fsync, need) in [(false, 40.0), (true, 60.0)] {
            let kind = if no_fsync { "without fsync" } else { "as recorded" };
            let name = format!("{disk}, MobiBench {kind}: mean latency down by");
            hold(name, need, Unit::Percent, &|who| {
                let traces = cases(who, Trace).filter(|case| case.disk == disk);
                let traces = traces.filter(|case| without_fsync(&case.workload) == no_fsync);
                worst(traces.filter_map(ratio).map(reduction))
            });
        }
    }
    goals
}

/// Every personality's case in which `contestant` is slower than ext4, and its ratio, worst first.
pub fn slower(results: &Results, contestant: &str) -> Vec<(String, f64)> {
    let personalities = cases(results, contestant, Experiment::Personality);
    let all = personalities.chain(cases(results, contestant, Experiment::Memory));
    let parts = worst(all.filter_map(ratio)).map_or_else(Vec::new, |measured| measured.parts);
    parts.into_iter().filter(|(_, ratio)| *ratio < SLOWER).collect()
}

/// How much of its bound a case reached; `None` where none is known.
pub fn share_of_bound(case: &Case) -> Option<(String, f64)> {
    let bound = case.bound_ops_per_s.filter(|bound| *bound > 0.0)?;
    number(&case.name, case.ops_per_s / bound)
}

/// How much less a latency is, percent, that is `ratio` times better.
pub fn percent_less(ratio: f64) -> f64 {
    (1.0 - 1.0 / ratio) * 100.0
}

fn cases<'a>(
    results: &'a Results,
    contestant: &str,
    experiment: Experiment,
) -> impl Iterator<Item = &'a Case> + use<'a> {
    let contestant = contestant.to_owned();
    groups(results, experiment)
        .into_iter()
        .flatten()
        .filter(move |case| case.contestant == contestant)
}

/// The random writes on the hard disk that are not whole pages: those that have something to fetch.
fn partial_random_writes<'a>(
    cases: impl Iterator<Item = &'a Case>,
) -> impl Iterator<Item = &'a Case> {
    cases.filter(|case| {
        case.disk == Model::Hdd
            && case.workload == "random-write"
            && !case.size_bytes.is_multiple_of(PAGE)
    })
}

fn number(name: &str, value: f64) -> Option<(String, f64)> {
    (value.is_finite() && value >= 0.0).then(|| (name.to_owned(), value))
}

fn ratio(case: &Case) -> Option<(String, f64)> {
    number(&case.name, case.ratio_to_blocking)
}

/// Whether patch memory and the device's fetches let a run be as many times faster than ext4 as is
/// asked of it.
fn is_held(case: &Case) -> bool {
    let baseline = case.ops_per_s / case.ratio_to_blocking;
    case.bound_ops_per_s.is_none_or(|bound| bound >= HELD * baseline)
}

fn of_class(case: &Case, class: &str) -> Option<(String, f64)> {
    let class = case.classes.iter().find(|found| found.class == class && found.ops > 0)?;
    number(&case.name, class.ratio_to_blocking)
}

fn reduction((name, ratio): (String, f64)) -> (String, f64) {
    (name, percent_less(ratio))
}

fn sorted(parts: impl Iterator<Item = (String, f64)>) -> Vec<(String, f64)> {
    let mut parts: Vec<(String, f64)> = parts.collect();
    parts.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    parts
}

/// The least of some figures, each of a case.
pub fn worst(parts: impl Iterator<Item = (String, f64)>) -> Option<Measured> {
    let parts = sorted(parts);
    let (name, value) = parts.first().cloned()?;
    Some(Measured { value, decided_by: Some(name), parts })
}

fn average(parts: impl Iterator<Item = (String, f64)>) -> Option<Measured> {
    let parts = sorted(parts);
    if parts.is_empty() {
        return None;
    }
    let sum: f64 = parts.iter().map(|(_, value)| value).sum();
    Some(Measured { value: sum / parts.len() as f64, decided_by: None, parts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::sample;

    fn find<'a>(goals: &'a [Goal], name: &str) -> &'a Goal {
        goals.iter().find(|goal| goal.name.contains(name)).expect("a goal of that name")
    }

    #[test]
    fn the_bound_decides_which_goal_a_size_is_held_against() {
        let mut results = sample::results();
        let goals_before = goals(&results);
        let held = find(&goals_before, "holds the writes");
        assert_eq!(held.measured.as_ref().map(|found| found.value), Some(50.0));
        assert_eq!(held.reached(), Some(true));
        let bounded = find(&goals_before, "share of the bound");
        let measured = bounded.measured.as_ref().expect("measured");
        assert_eq!(measured.decided_by.as_deref(), Some("hdd/random-write/2048"));
        assert!((measured.value - 0.75).abs() < 1e-9);
        assert_eq!(bounded.reached(), Some(false));
        for case in &mut results.cases {
            case.bound_ops_per_s = None;
        }
        assert_eq!(find(&goals(&results), "share of the bound").reached(), None);
    }

    #[test]
    fn averages_worst_cases_and_the_best_policy() {
        let results = sample::results();
        let goals = goals(&results);
        // 1.5, 50, 10 and, for 4 KiB, 0.9; the read-only one does not count.
        let average = find(&goals, "hdd, write personalities").measured.clone().expect("measured");
        assert_eq!(average.parts.len(), 4);
        assert!((average.value - 15.6).abs() < 1e-9, "{average:?}");
        let slower_goal = find(&goals, "slower");
        assert_eq!(slower_goal.reached(), Some(false));
        assert_eq!(slower(&results, DEFAULT), [("hdd/random-write/4096".to_owned(), 0.9)]);
        let (policy, best) = slower_goal.best.clone().expect("other policies ran");
        assert_eq!((policy.as_str(), best.value), ("weir-async-bg", 0.99));
        assert_eq!(find(&goals, "ssd, write").reached(), None);
    }

    #[test]
    fn latencies_are_reductions() {
        let goals = goals(&sample::results());
        let write = find(&goals, "hdd, file server: write");
        let value = write.measured.as_ref().expect("measured").value;
        assert!((value - 90.0).abs() < 1e-9, "{value}");
        assert_eq!(find(&goals, "hdd, file server: reads").reached(), Some(false));
        assert_eq!(find(&goals, "hdd, MobiBench as recorded").reached(), Some(true));
        assert_eq!(find(&goals, "hdd, MobiBench without").reached(), Some(false));
        assert!(write.to_string().contains("reached"), "{write}");
    }

    #[test]
    fn nothing_run_is_nothing_reached_or_missed() {
        let mut results = sample::results();
        results.cases.clear();
        for goal in goals(&results) {
            assert_eq!(goal.reached(), None);
            assert!(goal.to_string().contains(DASH), "{goal}");
        }
    }
}
