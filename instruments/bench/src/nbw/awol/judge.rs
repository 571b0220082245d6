//! What the suite found, for a terminal, and the goals it is held against.
//!
//! Pure: results in, text out. Ratios are between two contestants of one round, and figures are
//! medians over the rounds. Of an equal amount of reading and writing by two programs the reader is
//! done last, for its reads wait and writes do not: so where there is a reader its rate stands for
//! the paper's execution times. In VRVW it is the mean time of a read, as in the paper's Figure 19:
//! how much clients read depends on their schedule.

use std::fmt::Write;

use crate::disk::Model;
use crate::measure::show_us;
use crate::nbw::awol::ratios::{against, called, find, speed, times_baseline};
use crate::nbw::awol::{macrobench, optimum};
use crate::nbw::goals::{Goal, Measured, SLOWER, Unit, worst};
use crate::nbw::names::{ADAPTIVE, BASELINE, STATIC, contestants, groups, or_dash, rate, times};
use crate::nbw::results::{Case, Class, Experiment, Results, Round};
use crate::nbw::table::aligned;

/// What is asked of a workload on the hard disk: the paper's gains over static write-back, as
/// ratios of rates. Elsewhere nothing is to be lost.
const GAINS: [(&str, f64); 3] = [("srsw", 1.10), ("rrrw", 1.35), ("zrzw", 1.35)];
/// How many requests fewer than static write-back RRRW is to need, percent.
const FEWER_REQUESTS: f64 = 20.0;
/// How much shorter than ext4's the 99th percentile of reads is to be, times.
const READ_TAIL: f64 = 2.0;

/// What was found.
pub fn tables(results: &Results) -> String {
    let mut text = aligned(&rates(results));
    text += "(x ext4 of reads in vrvw: by their mean time)\n\n";
    text += &aligned(&costs(results));
    for (heading, rows) in [
        ("Whole programs", macrobench::rows(results)),
        ("Best static settings", optimum::rows(results)),
    ] {
        if rows.len() > 1 {
            let _ = write!(text, "\n{heading}\n{}", aligned(&rows));
        }
    }
    text
}

/// The goals, and everything that fell short of ext4.
pub fn verdict(results: &Results) -> String {
    let mut text = "Goals, adaptive write-back\n".to_owned();
    for goal in goals(results) {
        let _ = writeln!(text, "  {goal}");
    }
    for short in below_baseline(results) {
        let _ = writeln!(text, "  below ext4: {short}");
    }
    text
}

/// Rates and latencies: headings, then a row for each contestant in each case. The first two columns
/// are text.
pub fn rates(results: &Results) -> Vec<Vec<String>> {
    let head = [
        "case",
        "contestant",
        "reads/s",
        "x ext4",
        "p50",
        "p99",
        "max",
        "writes/s",
        "x ext4",
        "p50",
        "p99",
        "max",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for group in shown(results) {
        for case in &group {
            let mut row = vec![case.name.clone(), case.contestant.clone()];
            row.extend(side(results, case, "read"));
            row.extend(side(results, case, "write"));
            rows.push(row);
        }
    }
    rows
}

/// The cases of readers and writers, those over the values of a setting last.
fn shown(results: &Results) -> Vec<Vec<&Case>> {
    [Experiment::SideBySide, Experiment::Setting].map(|of| groups(results, of)).concat()
}

/// Rate, ratio and latencies of one side.
fn side(results: &Results, case: &Case, class: &str) -> [String; 5] {
    let found = find(&case.classes, class);
    let against = times_baseline(results, &case.name, &case.contestant, class);
    [
        or_dash(found, |found| rate(found.ops_per_s)),
        or_dash(against, |ratios| ratios.show()),
        or_dash(found, |found| show_us(found.p50_us)),
        or_dash(found, |found| show_us(found.p99_us)),
        or_dash(found, |found| show_us(found.max_us)),
    ]
}

/// The same of what it cost the disk.
pub fn costs(results: &Results) -> Vec<Vec<String>> {
    let head = [
        "case",
        "contestant",
        "disk reads",
        "MiB",
        "disk writes",
        "MiB",
        "left: writes",
        "MiB",
        "requests for 1000 operations",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mib = |bytes: f64| format!("{:.0}", bytes / f64::from(1 << 20));
    for case in shown(results).into_iter().flatten() {
        let Some(cost) = case.disk_use else { continue };
        rows.push(vec![
            case.name.clone(),
            case.contestant.clone(),
            rate(case.device_reads as f64),
            mib(cost.read_bytes),
            rate(case.device_writes as f64),
            mib(cost.written_bytes),
            rate(cost.left_writes),
            mib(cost.left_bytes),
            times(cost.requests_a_thousand),
        ]);
    }
    rows
}

/// The goals, in the order they are shown.
pub fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for group in groups(results, Experiment::SideBySide) {
        goals.push(to_static(results, group[0]));
    }
    let requests = against(results, "hdd/rrrw", ADAPTIVE, STATIC, &|round| {
        Some(round.disk_use?.requests_a_thousand)
    });
    goals.push(Goal {
        name: "hdd/rrrw, adaptive to static: disk requests for equal work, fewer by".into(),
        need: FEWER_REQUESTS,
        unit: Unit::Percent,
        measured: requests.map(|ratios| Measured::single((1.0 - ratios.median) * 100.0)),
        best: None,
    });
    for (class, name) in [("read", "reads"), ("write", "writes")] {
        let measure = |who: &str| worst(to_baseline(results, who, class).into_iter());
        goals.push(Goal {
            name: format!("no rate of {name} below ext4's"),
            need: SLOWER,
            unit: Unit::Times,
            measured: measure(ADAPTIVE),
            best: measure(STATIC).map(|found| (STATIC.to_owned(), found)),
        });
    }
    let groups = groups(results, Experiment::SideBySide);
    let on_hdd = groups.iter().map(|group| group[0]).filter(|case| case.disk == Model::Hdd);
    goals.extend(on_hdd.filter_map(|case| tail(results, case)));
    let name = "adaptive to the best static setting, found by search, in each workload";
    goals.push(Goal::times(name, SLOWER, optimum::farthest(results)));
    goals.extend(macrobench::goals(results));
    goals
}

/// What adaptive write-back gains over static in the workload of `case`.
fn to_static(results: &Results, case: &Case) -> Goal {
    let class = Class::leading(&case.classes).map_or("write", |class| &class.class);
    let gain = GAINS.iter().find(|(name, _)| case.disk == Model::Hdd && *name == case.workload);
    let ratios = against(results, &case.name, ADAPTIVE, STATIC, &speed(&case.name, class));
    let name = format!("{}, adaptive to static: {}", case.name, called(&case.name, class));
    let measured = ratios.map(|ratios| Measured::single(ratios.median));
    Goal::times(name, gain.map_or(SLOWER, |(_, gain)| *gain), measured)
}

/// How much shorter the longest waits of readers are than ext4's; `None` where nobody reads. Each
/// workload has its own: where a file is read in order, what was read ahead answers most reads, and
/// of those that waited one percent knows nothing.
fn tail(results: &Results, case: &Case) -> Option<Goal> {
    find(&case.classes, "read")?;
    let tail = |round: &Round| Some(1.0 / find(&round.classes, "read")?.p99_us);
    let measure = |who: &str| {
        Some(Measured::single(against(results, &case.name, who, BASELINE, &tail)?.median))
    };
    Some(Goal {
        name: format!("{}, p99 of reads beside a writer: ext4's to adaptive's", case.name),
        need: READ_TAIL,
        unit: Unit::Times,
        measured: measure(ADAPTIVE),
        best: measure(STATIC).map(|found| (STATIC.to_owned(), found)),
    })
}

/// Each rate of a contestant other than ext4 that is below ext4's, worst first.
pub fn below_baseline(results: &Results) -> Vec<String> {
    let mut found = Vec::new();
    for who in contestants(results).into_iter().filter(|who| *who != BASELINE) {
        for class in ["read", "write"] {
            for (name, ratio) in to_baseline(results, who, class) {
                if ratio < SLOWER {
                    found.push((
                        ratio,
                        format!("{name}, {who}: {} {} x", called(&name, class), times(ratio)),
                    ));
                }
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    found.into_iter().map(|(_, text)| text).collect()
}

/// For each case, how fast `who`'s operations of a class are, times ext4's.
fn to_baseline(results: &Results, who: &str, class: &str) -> Vec<(String, f64)> {
    let groups = groups(results, Experiment::SideBySide);
    let names = groups.iter().map(|group| &group[0].name);
    names
        .filter_map(|name| {
            let ratios = times_baseline(results, name, who, class)?;
            Some((name.clone(), ratios.median))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::names::DASH;
    use crate::nbw::results::DiskUse;
    use crate::nbw::sample;

    /// One case by three contestants, with so many reads and writes a second and so long reads.
    fn results(name: &str, of: [(f64, f64, f64); 3]) -> Results {
        let case = |(who, (reads, writes, p99_us)): (&str, (f64, f64, f64))| {
            let both = [("read", reads), ("write", writes)];
            let classes: Vec<_> = both.into_iter().filter(|(_, rate)| *rate > 0.0).collect();
            let mut case = sample::case_of(name, Experiment::SideBySide, who, &classes);
            case.disk = if name.starts_with("ssd") { Model::Ssd } else { Model::Hdd };
            case.disk_use = Some(DiskUse { requests_a_thousand: writes, ..DiskUse::default() });
            for round in &mut case.rounds {
                round.disk_use = case.disk_use;
                round.classes.iter_mut().for_each(|class| class.p99_us = p99_us);
            }
            case
        };
        let cases = [BASELINE, STATIC, ADAPTIVE].into_iter().zip(of).map(case);
        Results { cases: cases.collect(), ..sample::results() }
    }

    fn reached(results: &Results, name: &str) -> Option<bool> {
        let goals = goals(results);
        goals.iter().find(|goal| goal.name.contains(name)).expect("a goal of that name").reached()
    }

    #[test]
    fn each_goal_is_held_against_its_two_contestants() {
        let run = results("hdd/rrrw", [(100.0, 50.0, 9e4), (100.0, 90.0, 8e4), (140.0, 60.0, 4e4)]);
        assert_eq!(reached(&run, "hdd/rrrw, adaptive to static: reads"), Some(true));
        assert_eq!(reached(&run, "fewer by"), Some(true), "60 to 90 is a third fewer");
        assert_eq!(reached(&run, "no rate of reads"), Some(true));
        assert_eq!(reached(&run, "p99 of reads"), Some(true));
        assert!(below_baseline(&run).is_empty());
        let mut run =
            results("hdd/rrrw", [(100.0, 50.0, 9e4), (100.0, 40.0, 8e4), (130.0, 40.0, 5e4)]);
        for goal in ["adaptive to static: reads", "fewer by", "no rate of writes", "p99 of"] {
            assert_eq!(reached(&run, goal), Some(false), "{goal}");
        }
        assert_eq!(below_baseline(&run).len(), 2, "the writes of both");
        run.cases[2].contestant = "weir-dirty-10".into();
        let below = below_baseline(&run).join("\n");
        assert!(below.contains("weir-dirty-10: writes/s 0.800"), "whoever it is: {below}");
        run.cases[2].contestant = ADAPTIVE.into();
        assert!(verdict(&run).contains("MISSED") && tables(&run).contains("0.800!"));
    }

    #[test]
    fn without_a_reader_writes_count_and_other_disks_need_no_gain() {
        let run = results("ssd/nrzw", [(0.0, 50.0, 1e3), (0.0, 100.0, 1e3), (0.0, 97.0, 1e3)]);
        assert_eq!(reached(&run, "ssd/nrzw, adaptive to static: writes"), Some(true));
        assert_eq!(reached(&run, "no rate of reads"), None);
        assert!(goals(&run).iter().all(|goal| !goal.name.contains("p99")));
        assert!(tables(&run).contains(DASH));
    }

    #[test]
    fn who_did_not_run_is_not_measured() {
        let mut run = results("hdd/zrzw", [(1.0, 1.0, 1.0); 3]);
        run.cases.retain(|case| case.contestant != ADAPTIVE);
        assert!(goals(&run).iter().all(|goal| goal.reached().is_none()));
        run.cases.clear();
        assert!(verdict(&run).contains("not measured"));
    }
}
