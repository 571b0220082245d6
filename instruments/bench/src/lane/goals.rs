//! The goals of the suite, held against what a run found. Pure: what was not run is not measured, and its goals are left
//! out.

use super::results::{Case, IO_URING, Results};
use super::{startup, transport};
use crate::report::Goal;

/// Slower than this, against ext4, is slower: less is measuring error.
const NOT_SLOWER: f64 = 0.97;
/// Programs that mostly write: they are to be faster.
const WRITE_BOUND: [&str; 6] =
    ["fio/psync", "fio/sync", "fio/libaio", "sqlite/wal", "sqlite/delete", "redis/everysec"];
/// Programs that do not.
const OTHERS: [&str; 3] = ["pgbench/4", "git-status", "build"];

/// All that were measured, in the order they are shown.
pub fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    in_memory(results, &mut goals);
    on_disk(results, &mut goals);
    threads(results, &mut goals);
    transports(results, &mut goals);
    programs(results, &mut goals);
    starts(results, &mut goals);
    goals
}

/// How many times better the lane is than ext4, in the worst of some cases.
fn worst<'a>(cases: impl Iterator<Item = &'a Case>) -> Option<f64> {
    cases.filter_map(|case| case.ratio("lane", "ext4")).min_by(f64::total_cmp)
}

/// What the lane has in a case.
fn lane(results: &Results, case: &str) -> Option<f64> {
    results.case(case)?.value("lane")
}

fn in_memory(results: &Results, goals: &mut Vec<Goal>) {
    for (io_bytes, need) in [(64, 8.0), (128, 8.0), (4096, 2.0)] {
        let name = format!("{io_bytes} B pwrite in memory, rate against ext4");
        let ratio = worst(results.cases(&format!("write/{io_bytes}/")));
        goals.extend(ratio.map(|ratio| Goal::at_least(name, ratio, need, "x")));
    }
    let large = lane(results, "write/65536/sequential").map(|per_second| {
        let gigabytes = per_second * 65536.0 / 1e9;
        Goal::at_least("64 KiB pwrite in memory, one thread", gigabytes, 3.0, "GB/s")
    });
    goals.extend(large);
    for (io_bytes, need) in [(64, 2.0), (4096, 1.3)] {
        let name = format!("{io_bytes} B pread in memory, rate against ext4");
        let ratio = worst(results.cases(&format!("read/{io_bytes}/")));
        goals.extend(ratio.map(|ratio| Goal::at_least(name, ratio, need, "x")));
    }
}

fn on_disk(results: &Results, goals: &mut Vec<Goal>) {
    for io_bytes in [64, 128] {
        let name = format!("{io_bytes} B pwrite to a page not in memory, median");
        let us = lane(results, &format!("cold-write/{io_bytes}"));
        goals.extend(us.map(|us| Goal::at_most(name, us, 0.7, "us")));
    }
    let ext4_direct = |name: &str| {
        results.case(name).and_then(|direct| direct.value("ext4")).filter(|us| *us > 0.0)
    };
    for (case, direct, what) in [
        ("miss/4096", "direct-read/4096", "a read that misses"),
        ("direct-read/4096", "direct-read/4096", "a read with O_DIRECT"),
        ("direct-write/4096", "direct-write/4096", "a write with O_DIRECT"),
    ] {
        if let (Some(lane), Some(ext4)) = (lane(results, case), ext4_direct(direct)) {
            let name = format!("{what}, median against ext4's with O_DIRECT");
            goals.push(Goal::at_most(name, lane / ext4, 1.1, "x"));
        }
    }
}

fn threads(results: &Results, goals: &mut Vec<Goal>) {
    for io_bytes in [64, 4096] {
        for (sharing, files) in [("own", "files of their own"), ("shared", "one file")] {
            let rate =
                |threads: u32| lane(results, &format!("threads/{io_bytes}/{sharing}/{threads}"));
            let more = [2, 4].into_iter().filter_map(rate).min_by(f64::total_cmp);
            if let (Some(one), Some(more)) = (rate(1), more) {
                let name =
                    format!("{io_bytes} B pwrite, 2 and 4 threads, {files}: rate against one's");
                goals.push(Goal::at_least(name, more / one, 1.0, "x"));
            }
        }
    }
}

fn transports(results: &Results, goals: &mut Vec<Goal>) {
    let Some(case) = results.case(transport::NAME) else { return };
    let side = IO_URING;
    let p99 = case.median(side, |round| round.p99_us);
    if let (Some(median), Some(p99)) = (case.value(side), p99) {
        goals.push(Goal::at_most("64 B pwrite by FUSE over io_uring, median", median, 8.0, "us"));
        goals.push(Goal::at_most("... its 99th percentile against that", p99 / median, 2.0, "x"));
    }
}

fn programs(results: &Results, goals: &mut Vec<Goal>) {
    let all = WRITE_BOUND.iter().map(|name| (name, true));
    for (name, write_bound) in all.chain(OTHERS.iter().map(|name| (name, false))) {
        let ratio = results.case(name).and_then(|case| case.ratio("lane", "ext4"));
        let Some(ratio) = ratio else { continue };
        let (need, how) =
            if write_bound { (1.0, "faster than ext4") } else { (NOT_SLOWER, "against ext4") };
        goals.push(Goal::at_least(format!("{name}, {how}"), ratio, need, "x"));
    }
}

fn starts(results: &Results, goals: &mut Vec<Goal>) {
    let more = |name: &str, side: &str, than: &str| {
        let case = results.case(name)?;
        Some(case.value(side)? - case.value(than)?)
    };
    if let Some(us) = more("start/true", startup::PRELOADED, startup::PLAIN) {
        goals.push(Goal::at_most("start of a process that is preloaded", us, 1000.0, "us"));
    }
    if let Some(us) = more("start/copy", "lane", "fuse") {
        let name = "... that uses a file of a mount, all of it";
        goals.push(Goal::at_most(name, us, 1000.0, "us"));
    }
    let case = results.case("off-mount/64");
    let ratio = case.and_then(|case| case.ratio(startup::PRELOADED, startup::PLAIN));
    if let Some(ratio) = ratio {
        let name = "64 B pwrite outside of mounts, rate against not preloaded";
        goals.push(Goal::at_least(name, ratio, NOT_SLOWER, "x"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::Figure;
    use super::super::results::tests::case;
    use super::*;

    fn found(goals: &[Goal], name: &str) -> (f64, bool) {
        let goal = goals.iter().find(|goal| goal.name.contains(name)).expect("a goal of that name");
        (goal.measured, goal.reached)
    }

    #[test]
    fn the_worst_case_decides_and_what_was_not_run_is_left_out() {
        let cases = vec![
            case("write/64/random", Figure::Rate, &[("ext4", &[1.0]), ("lane", &[9.0])]),
            case("write/64/sequential", Figure::Rate, &[("ext4", &[1.0]), ("lane", &[7.5])]),
            case("write/65536/sequential", Figure::Rate, &[("lane", &[50_000.0])]),
            case("miss/4096", Figure::Median, &[("ext4", &[70.0]), ("lane", &[65.0])]),
            case("direct-read/4096", Figure::Median, &[("ext4", &[50.0]), ("lane", &[54.0])]),
            case("threads/64/own/1", Figure::Rate, &[("lane", &[10.0])]),
            case("threads/64/own/2", Figure::Rate, &[("lane", &[12.0])]),
            case("threads/64/own/4", Figure::Rate, &[("lane", &[9.0])]),
            case("transport/64", Figure::Median, &[("device", &[9.0]), ("io-uring", &[7.0])]),
            case("git-status", Figure::Median, &[("ext4", &[99.0]), ("lane", &[100.0])]),
            case("start/true", Figure::Median, &[("plain", &[500.0]), ("preloaded", &[900.0])]),
        ];
        let goals = goals(&Results { cases, ..Results::default() });
        assert_eq!(found(&goals, "64 B pwrite in memory"), (7.5, false));
        assert!(found(&goals, "64 KiB").1);
        assert_eq!(found(&goals, "misses"), (1.3, false));
        assert!(found(&goals, "a read with O_DIRECT").1);
        assert_eq!(found(&goals, "files of their own"), (0.9, false));
        assert!(found(&goals, "io_uring").1);
        assert_eq!(found(&goals, "99th"), (3.0, false));
        assert!(found(&goals, "git-status").1);
        assert_eq!(found(&goals, "is preloaded"), (400.0, true));
        assert_eq!(goals.len(), 9);
    }
}
