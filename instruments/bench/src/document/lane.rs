//! The part of docs/results/lane.md that is made from a run.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::{file_name, publish};
use super::markdown::{Table, escape, wrapped};
use super::section;
use crate::error::{Doing, Error, Result};
use crate::lane::goals;
use crate::lane::results::{Case, IO_URING, Results, Round, SUITE};
use crate::lane::table::show;
use crate::measure::show_us;
use crate::report::number;

const HEADING: &str = "# Programs under `weir run`";

const DASH: &str = "–";

/// Parts of the section: the beginning of their cases' names, their heading, and what is said of them.
const GROUPS: [(&str, &str, &str); 7] = [
    (
        "write/",
        "Writes to pages in memory",
        "One thread calls pwrite(2) at full speed on a file whose pages are in memory. The latencies are of calls \
         timed one by one; they include the cost of reading the clock (some 40 ns).",
    ),
    ("read/", "Reads of pages in memory", "The same with pread(2)."),
    (
        "cold-write/",
        "Writes to pages not in memory",
        "Each call goes to a page that has not been touched since all caches were dropped. The EvFS paper reports \
         0.7 µs for 64 and 128 B, where ext4 took 5 to 20 µs.",
    ),
    ("direct", "O_DIRECT", "4 KiB at random places, one call at a time."),
    ("miss/", "Reads that miss", "The same without O_DIRECT, on pages that are not in memory."),
    (
        "threads/",
        "Several writers",
        "One, two and four threads of a program call pwrite(2) at random places: each on a file of its own, or all \
         on one open description of one file. The files have 64 MiB in all. The rate is the sum over all threads.",
    ),
    (
        "",
        "Programs",
        "Each round starts with nothing in memory and, for Weir, with a new mount. Afterwards the content of the \
         disk is compared with what must be there.",
    ),
];

/// Whether a file is of this suite.
pub fn is_one(file: &Path) -> Result<bool> {
    let text = fs::read(file).doing("read", file)?;
    let value: Value = serde_json::from_slice(&text).unwrap_or_default();
    Ok(value["suite"] == SUITE)
}

/// As [`super::report`].
pub fn report(file: &Path, added: &[PathBuf], out: &Path) -> Result<Vec<PathBuf>> {
    if !added.is_empty() {
        return Err(Error::Missing {
            what: "a run of 'lane' has no runs to be added".into(),
            remedy: "leave out '--add'".into(),
        });
    }
    let results = Results::load(file)?;
    let name = format!("{}.json", file_name(&results.profile, file)?);
    let section = text(&results, &format!("{SUITE}/{name}"));
    publish(out, (SUITE, HEADING, &section), Vec::new(), &[(file, name)])
}

fn text(results: &Results, raw: &str) -> String {
    let mut text = opening(results, raw) + &of_goals(results);
    let mut left: Vec<&Case> = results.cases.iter().collect();
    for (begin, heading, said) in GROUPS {
        let (own, others): (Vec<&Case>, Vec<&Case>) =
            left.into_iter().partition(|case| case.name.starts_with(begin) && has_three(case));
        left = others;
        if !own.is_empty() {
            text += &format!("\n## {heading}\n\n{said}\n\n{}", table(&own));
        }
    }
    if !left.is_empty() {
        text += &format!(
            "\n## Transports and process starts\n\n`transport` is a 64 B write through FUSE, without the lane. `start` is \
             a process from start to end: `true`, and `dd` with 32 writes to a file of the mount. `off-mount` is 64 B \
             writes to a file directly on the disk.\n\n{}",
            others(&left)
        );
    }
    // Nothing in the results may end the part early.
    wrapped(&text.replace("<!--", "&lt;!--"))
}

fn has_three(case: &Case) -> bool {
    case.value("ext4").is_some()
}

fn opening(results: &Results, raw: &str) -> String {
    let machine = |key: &str| match &results.machine[key] {
        Value::String(text) => escape(text),
        other => escape(&other.to_string()),
    };
    let mut text = format!(
        "    {}\n\nmade these figures in {:.0} s. `weir-bench report {raw} --out .` in this directory writes them into \
         this page; [{raw}]({raw}) has every round.\n\nMeasured with {}, on {} CPUs ({}), {}, Linux {}. *ext4* is the disk's \
         own file system; *FUSE* is Weir's mount of it, with its defaults{}; *lane* is the same mount for a program run by \
         `weir run`. The sides take turns on one disk. A figure is the median over the rounds, a ratio the median of the \
         rounds' ratios.\n",
        section::one_line(&results.command),
        results.took_seconds,
        escape(&results.weir),
        machine("cpus"),
        machine("cpu"),
        machine("memory"),
        machine("kernel"),
        if results.transport == IO_URING { " and FUSE over io_uring turned on" } else { "" },
    );
    if !results.complete {
        text += "\n**The run is not complete.**\n";
    }
    for why in &results.passed_over {
        text += &format!("\nPassed over: {}\n", escape(why));
    }
    text
}

fn of_goals(results: &Results) -> String {
    let mut table = Table::new(&["goal", "at", "measured", ""], 1);
    for goal in goals(results) {
        let bound = if goal.at_least { "≥" } else { "≤" };
        table.row(vec![
            goal.name.to_string(),
            format!("{bound} {} {}", number(goal.goal), goal.unit),
            format!("{} {}", number(goal.measured), goal.unit),
            if goal.reached { "reached".into() } else { "**missed**".into() },
        ]);
    }
    format!("\n## Goals, under `weir run`\n\n{}", table.text())
}

fn table(cases: &[&Case]) -> String {
    let mut table =
        Table::new(&["", "ext4", "FUSE", "lane", "× ext4", "× FUSE", "lane: median", "p99"], 1);
    for case in cases {
        let value = |side: &str| case.value(side).map_or(DASH.into(), |value| show(case, value));
        let ratio = |than: &str| case.ratio("lane", than).map_or(DASH.into(), number);
        let us = |of: fn(&Round) -> f64| {
            case.median("lane", of).filter(|us| *us > 0.0).map_or(DASH.into(), show_us)
        };
        table.row(vec![
            case.name.clone(),
            value("ext4"),
            value("fuse"),
            value("lane"),
            ratio("ext4"),
            ratio("fuse"),
            us(|round| round.p50_us),
            us(|round| round.p99_us),
        ]);
    }
    table.text()
}

fn others(cases: &[&Case]) -> String {
    let mut table = Table::new(&["", "side", "measured", "p99"], 2);
    for case in cases {
        for side in &case.sides {
            let us = case.median(&side.side, |round| round.p99_us).filter(|us| *us > 0.0);
            table.row(vec![
                case.name.clone(),
                side.side.clone(),
                case.value(&side.side).map_or(DASH.into(), |value| show(case, value)),
                us.map_or(DASH.into(), show_us),
            ]);
        }
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::super::files::document_of;
    use super::*;
    use crate::lane::results::Figure;
    use crate::lane::results::tests::case;

    #[test]
    fn every_case_has_a_row_and_what_is_missing_a_dash() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("out.json");
        let results = Results {
            suite: SUITE.into(),
            command: "weir-bench run lane --quick".into(),
            machine: serde_json::json!({"cpus": 2, "cpu": "a | b"}),
            profile: "quick".into(),
            transport: IO_URING.into(),
            weir: "weir 1".into(),
            passed_over: vec!["redis: not <!-- installed".into()],
            cases: vec![
                case("write/64/random", Figure::Rate, &[("ext4", &[2e6]), ("lane", &[2e7])]),
                case("sqlite/wal", Figure::Rate, &[("ext4", &[900.0]), ("fuse", &[500.0])]),
                case("start/true", Figure::Median, &[("plain", &[500.0]), ("preloaded", &[700.0])]),
            ],
            ..Results::default()
        };
        results.save(&file).expect("saved");
        assert!(is_one(&file).expect("read"));
        let written = super::super::report(&file, &[], directory.path()).expect("a report");
        assert_eq!(written.len(), 2);
        let text = fs::read_to_string(directory.path().join(document_of(SUITE))).expect("text");
        assert!(
            text.contains("| write/64/random | 2.00 M/s | – | 20.0 M/s | 10.0 | – |"),
            "{text}"
        );
        assert!(
            text.contains("## Programs") && text.contains("| sqlite/wal | 900 /s | 500 /s | – |")
        );
        assert!(text.contains("| start/true | preloaded |") && text.contains("a \\| b"));
        let again = super::super::report(&written[0], &[], directory.path()).expect("a report");
        assert_eq!(again.len(), 1, "the copy is not copied onto itself");
        assert_eq!(
            fs::read_to_string(directory.path().join(document_of(SUITE))).expect("text"),
            text
        );
    }
}
