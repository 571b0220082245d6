//! What the spill suite found, for a terminal, and the goals it is held against.

use crate::disk::Model;
use crate::nbw::goals::{Goal, Measured};
use crate::nbw::names::{groups, or_dash, rate, times};
use crate::nbw::results::{Case, Experiment, Phases, Results};
use crate::nbw::table::aligned;

/// What is to be reached until the log is full, times ext4.
const UNTIL_FULL: f64 = 100.0;
/// What is to be reached after, share of the bound.
const AFTER: f64 = 0.5;

/// The table: a row for each contestant on each disk. Rates are writes a second; ratios are to
/// ext4's over the whole run.
pub fn table(results: &Results) -> String {
    let head = ["case", "contestant", "whole run", "until full", "x ext4", "after", "x ext4"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(groups(results, Experiment::Spill).into_iter().flatten().map(row));
    aligned(&rows)
}

fn row(case: &Case) -> Vec<String> {
    let phases = case.phases.as_ref();
    let until_full = phases.map(|phases| &phases.until_full);
    let after = phases.and_then(|phases| phases.after.as_ref());
    let mut row = vec![
        case.name.clone(),
        case.contestant.clone(),
        format!("{}/s ({}x)", rate(case.ops_per_s), times(case.ratio_to_blocking)),
    ];
    for phase in [until_full, after] {
        row.push(or_dash(phase, |phase| {
            format!("{}/s in {:.1} s", rate(phase.ops_per_s), phase.seconds)
        }));
        row.push(or_dash(phase, |phase| format!("{}x", times(phase.ratio_to_blocking))));
    }
    row
}

/// A line for each case that has a bound: how much of it was reached.
pub fn shares(results: &Results) -> Vec<String> {
    let bounded = results.cases.iter().filter_map(|case| {
        let phases = case.phases.as_ref()?;
        let bound = rate(phases.after_bound_ops_per_s?);
        let reached = or_dash(share_of_bound(phases), times);
        let (name, who) = (&case.name, &case.contestant);
        Some(format!("{name}, {who}, after: reached {reached} of the bound of {bound}/s"))
    });
    bounded.collect()
}

/// How much of the bound the rest of a load reached.
fn share_of_bound(phases: &Phases) -> Option<f64> {
    let bound = phases.after_bound_ops_per_s.filter(|bound| *bound > 0.0)?;
    Some(phases.after.as_ref()?.ops_per_s / bound)
}

/// The goals of contestants with a log.
pub fn goals(results: &Results) -> Vec<Goal> {
    let on_hdd = || results.cases.iter().filter(|case| case.disk == Model::Hdd);
    let find = |get: &dyn Fn(&Phases) -> Option<f64>| {
        on_hdd().find_map(|case| {
            let value = get(case.phases.as_ref()?)?;
            let parts = vec![(case.name.clone(), value)];
            Some(Measured { value, decided_by: Some(case.name.clone()), parts })
        })
    };
    let until_full = find(&|phases| Some(phases.until_full.ratio_to_blocking));
    vec![
        Goal::times("hdd, until the log is full: times ext4", UNTIL_FULL, until_full),
        Goal::times("hdd, after: share of the bound", AFTER, find(&share_of_bound)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::results::Phase;
    use crate::nbw::sample;

    fn results(after: Option<f64>) -> Results {
        let mut results = sample::results();
        results.cases.retain(|case| case.name == "hdd/random-write/128");
        results.cases.retain(|case| ["ext4", "weir-auto"].contains(&case.contestant.as_str()));
        let phase =
            |ops_per_s: f64| Phase { seconds: 3.0, ops_per_s, ratio_to_blocking: ops_per_s / 97.0 };
        for case in &mut results.cases {
            case.experiment = Experiment::Spill;
        }
        results.cases[1].contestant = "weir-log".into();
        results.cases[1].phases = Some(Phases {
            until_full: phase(19_400.0),
            after: after.map(phase),
            after_bound_ops_per_s: Some(8000.0),
        });
        results
    }

    #[test]
    fn goals_are_held_against_both_parts() {
        let results = results(Some(2000.0));
        let goals = goals(&results);
        assert_eq!(goals[0].measured.as_ref().map(|found| found.value), Some(200.0));
        assert_eq!(goals.iter().map(Goal::reached).collect::<Vec<_>>(), [Some(true), Some(false)]);
        assert!(shares(&results)[0].contains("reached 0.250 of the bound of 8,000/s"));
        let table = table(&results);
        assert!(table.lines().nth(2).unwrap().contains("19,400/s in 3.0 s"), "{table}");
    }

    #[test]
    fn a_log_that_was_never_full_is_held_against_the_first_alone() {
        let results = results(None);
        assert_eq!(goals(&results)[1].reached(), None);
        assert!(shares(&results)[0].contains("reached – of"));
    }
}
