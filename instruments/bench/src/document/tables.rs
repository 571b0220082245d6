//! The tables of a run: goals, ratios at a glance, and every figure of every case.

use super::markdown::Table;
use crate::disk::Model;
use crate::measure::show_count;
use crate::nbw::goals::{SLOWER, goals, percent_less, share_of_bound, slower};
use crate::nbw::names::{
    BASELINE, DASH, DEFAULT, bytes, contestants, each_once, groups, latency, or_dash, percent,
    rate, times,
};
use crate::nbw::results::{Case, Experiment, Results};

/// The goals, what was measured, and whether they were reached.
pub fn of_goals(results: &Results) -> String {
    let columns = ["goal", "", "decided by", "at least", DEFAULT, "best other policy"];
    let mut table = Table::new(&columns, 3);
    for goal in goals(results) {
        let measured = goal.measured.as_ref();
        let decided = measured.map(|found| match &found.decided_by {
            Some(case) => case.clone(),
            None => format!("{} cases", found.parts.len()),
        });
        let best = or_dash(goal.best.as_ref(), |(policy, best)| {
            format!("{} ({policy})", goal.show(best.value))
        });
        table.row(vec![
            goal.name.clone(),
            goal.state("**missed**").to_owned(),
            or_dash(decided, |decided| decided),
            goal.show(goal.need),
            or_dash(measured, |found| goal.show(found.value)),
            best,
        ]);
    }
    table.text()
}

/// The cases in which the default policy is slower than ext4, in a sentence.
pub fn slower_cases(results: &Results) -> String {
    let cases = slower(results, DEFAULT);
    if cases.is_empty() {
        return String::new();
    }
    let list: Vec<String> =
        cases.iter().map(|(name, ratio)| format!("`{name}` ({} x)", times(*ratio))).collect();
    format!("Slower than {SLOWER} of ext4 by default: {}.\n", list.join(", "))
}

/// Columns of which the first are `fixed`, then one for each contestant.
fn columns<'a>(results: &'a Results, fixed: &[&'a str]) -> Vec<&'a str> {
    fixed.iter().copied().chain(contestants(results)).collect()
}

/// For each case of `experiment` on `disk`, ext4's operations a second and the others' ratios.
pub fn at_a_glance(results: &Results, experiment: Experiment, disk: Model) -> String {
    let memory = experiment == Experiment::Memory;
    let size = if memory { "memory" } else { "I/O size" };
    let mut table = Table::new(&columns(results, &["personality", size]), 2);
    for group in groups(results, experiment).iter().filter(|group| group[0].disk == disk) {
        let case = group[0];
        let size = if memory { case.memory_bytes } else { case.size_bytes };
        let mut row = vec![case.workload.clone(), bytes(size)];
        for name in contestants(results) {
            let case = group.iter().find(|case| case.contestant == name);
            row.push(or_dash(case, |case| match name {
                BASELINE => format!("{}/s", rate(case.ops_per_s)),
                _ => ratio(case.ratio_to_blocking),
            }));
        }
        table.row(row);
    }
    table.text()
}

/// A ratio to ext4; what is slower stands out.
fn ratio(value: f64) -> String {
    if value < SLOWER { format!("**{} x**", times(value)) } else { format!("{} x", times(value)) }
}

/// For each size of random-write on `disk`, its bound, and the share of it that was reached by
/// default and by the best other policy. Nothing where no size has a bound.
pub fn bounds(results: &Results, disk: Model) -> String {
    let columns =
        ["I/O size", "ext4, ops/s", "bound, ops/s", "bound to ext4", DEFAULT, "best other policy"];
    let mut table = Table::new(&columns, 1);
    let groups = groups(results, Experiment::Personality);
    let random = |group: &&Vec<&Case>| group[0].disk == disk && group[0].workload == "random-write";
    for group in groups.iter().filter(random) {
        let Some(bound) = group.iter().rev().find_map(|case| case.bound_ops_per_s) else {
            continue;
        };
        let find = |name: &str| group.iter().find(|case| case.contestant == name);
        let share = |case: &Case| Some((share_of_bound(case)?.1, case.contestant.clone()));
        let shown = |share: f64| format!("{:.0} %", share * 100.0);
        let others = group.iter().filter(|case| case.contestant != DEFAULT);
        let best = others
            .filter_map(|case| share(case))
            .max_by(|(one, _), (other, _)| one.total_cmp(other));
        let ext4 = find(BASELINE).map(|case| case.ops_per_s);
        table.row(vec![
            bytes(group[0].size_bytes),
            or_dash(ext4, rate),
            rate(bound),
            or_dash(ext4, |ext4| format!("{} x", times(bound / ext4))),
            or_dash(find(DEFAULT).and_then(|case| share(case)), |(share, _)| shown(share)),
            or_dash(best, |(share, name)| format!("{} ({name})", shown(share))),
        ]);
    }
    table.text()
}

/// Everything measured of one personality on one disk. The random writes have their bound, too.
pub fn in_full(results: &Results, experiment: Experiment, disk: Model, workload: &str) -> String {
    let groups = groups(results, experiment);
    let cases: Vec<&Case> = groups
        .into_iter()
        .flatten()
        .filter(|case| case.disk == disk && case.workload == workload)
        .collect();
    let bounded = workload == "random-write" && experiment == Experiment::Personality;
    let memory = experiment == Experiment::Memory;
    let mut columns = vec![
        if memory { "memory" } else { "I/O size" },
        "contestant",
        "ops/s",
        "to ext4",
        "least to most",
        "p50",
        "p99",
        "fetches",
        "blocked writes",
        "device reads",
        "device writes",
    ];
    if bounded {
        columns.extend(["bound, ops/s", "of it"]);
    }
    let mut table = Table::new(&columns, 2);
    for case in cases {
        let baseline = case.contestant == BASELINE;
        let size = if memory { case.memory_bytes } else { case.size_bytes };
        let counted = |count: u64| if baseline { DASH.to_owned() } else { show_count(count) };
        let [least, most] = case.ratio_spread;
        let mut row = vec![
            bytes(size),
            case.contestant.clone(),
            rate(case.ops_per_s),
            if baseline { DASH.to_owned() } else { ratio(case.ratio_to_blocking) },
            if baseline { DASH.to_owned() } else { format!("{} to {}", times(least), times(most)) },
            latency(case.p50_us),
            latency(case.p99_us),
            counted(case.fetches),
            counted(case.blocked_writes),
            show_count(case.device_reads),
            show_count(case.device_writes),
        ];
        if bounded {
            row.push(or_dash(case.bound_ops_per_s, rate));
            row.push(or_dash(share_of_bound(case), |(_, share)| format!("{:.0} %", share * 100.0)));
        }
        table.row(row);
    }
    table.text()
}

/// Mean latencies by class of operation, and how much less than ext4's they are.
pub fn latencies(results: &Results, experiment: Experiment, disk: Model) -> String {
    let mut table = Table::new(&columns(results, &["workload", "class"]), 2);
    for group in groups(results, experiment).iter().filter(|group| group[0].disk == disk) {
        let classes = group.iter().flat_map(|case| &case.classes).filter(|class| class.ops > 0);
        let classes = classes.map(|class| Some(class.class.as_str()));
        for class in each_once(std::iter::once(None).chain(classes)) {
            let mut row = vec![group[0].workload.clone(), class.unwrap_or("overall").to_owned()];
            for name in contestants(results) {
                let case = group.iter().find(|case| case.contestant == name);
                row.push(or_dash(case.and_then(|case| mean(case, class)), |(us, ratio)| {
                    let less = -percent_less(ratio);
                    match name {
                        _ if name == BASELINE || !less.is_finite() => latency(us),
                        _ => format!("{} ({})", latency(us), percent(less)),
                    }
                }));
            }
            table.row(row);
        }
    }
    table.text()
}

/// Mean latency of a class, or of all, microseconds, and how many times better than ext4's.
fn mean(case: &Case, class: Option<&str>) -> Option<(f64, f64)> {
    let Some(class) = class else { return Some((case.mean_us, case.ratio_to_blocking)) };
    let class = case.classes.iter().find(|found| found.class == class && found.ops > 0)?;
    Some((class.mean_us, class.ratio_to_blocking))
}

/// The disks on which `experiment` has cases.
pub fn disks(results: &Results, experiment: Experiment) -> Vec<Model> {
    let cases = results.cases.iter().filter(|case| case.experiment == experiment);
    let mut disks: Vec<Model> = cases.map(|case| case.disk).collect();
    disks.sort_unstable();
    disks.dedup();
    disks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::sample;

    #[test]
    fn goals_say_what_was_missed_and_where() {
        let results = sample::results();
        let text = of_goals(&results);
        let row = text.lines().find(|line| line.contains("share of the bound")).expect("a row");
        assert!(row.contains("**missed** | hdd/random-write/2048 | 0.800 x | 0.750 x"), "{row}");
        assert!(text.contains("not measured | – | 3.00 x | – | – |"), "{text}");
        assert!(slower_cases(&results).contains("`hdd/random-write/4096` (0.900 x)"));
    }

    #[test]
    fn glance_and_full() {
        let results = sample::results();
        let text = at_a_glance(&results, Experiment::Personality, Model::Hdd);
        assert!(
            text.contains("| random-write | 128 B | 97.0/s | 29.5 x | 45.4 x | 50.0 x |"),
            "{text}"
        );
        assert!(text.contains("**0.900 x**"), "{text}");
        let text = at_a_glance(&results, Experiment::Personality, Model::Ssd);
        assert!(text.contains("| 97.0/s | 1.000 x | – | 1.000 x |"), "{text}");
        let full = in_full(&results, Experiment::Personality, Model::Hdd, "random-write");
        assert!(full.contains("| 1,293 | 75 % |"), "{full}");
        let row = full.lines().find(|line| line.contains("| ext4 |")).expect("a row");
        assert!(row.contains("| – | – | 9.0 ms |") || row.contains("| – | – | 9000 us |"), "{row}");
        assert_eq!(in_full(&results, Experiment::Memory, Model::Ssd, "random-write"), "");
        let bounds_text = bounds(&results, Model::Hdd);
        assert!(
            bounds_text.contains("| 2 KiB | 97.0 | 1,293 | 13.3 x | 75 % | 53 % (weir-lazy) |"),
            "{bounds_text}"
        );
        assert_eq!(bounds(&results, Model::Ssd), "");
    }

    #[test]
    fn latencies_by_class() {
        let text = latencies(&sample::results(), Experiment::FileServer, Model::Hdd);
        assert!(text.contains("| 18-10-72 | overall | 10.0 ms |"), "{text}");
        assert!(text.contains("(−90 %)"), "{text}");
    }
}
