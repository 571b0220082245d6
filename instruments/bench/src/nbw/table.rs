//! What a run found, for a terminal: a line for each case, a column for each policy's ratio to
//! ext4.

use std::fmt::Write;

use strum::VariantArray;

use super::awol::macrobench;
use super::goals::SLOWER;
use super::names::{BASELINE, contestants, groups, latency, or_dash, rate, times};
use super::results::{Case, Class, Experiment, Results};

/// The table. Ratios are of operations a second for the personalities and of mean latencies for
/// the others: above 1 is better than ext4; a `!` follows those that are slower.
pub fn table(results: &Results) -> String {
    let policies: Vec<&str> =
        contestants(results).into_iter().filter(|name| *name != BASELINE).collect();
    let mut rows = vec![header(&policies)];
    for experiment in Experiment::VARIANTS {
        for group in groups(results, *experiment) {
            rows.push(row(&group, &policies));
        }
    }
    aligned(&rows)
}

/// One case by all its contestants, the baseline's first: a line for while the run goes on.
pub fn line(group: &[Case]) -> String {
    let mut line = String::new();
    for case in group {
        let _ = match case.contestant.as_str() {
            BASELINE => write!(line, "{:<34} {BASELINE} {:>12}", case.name, absolute(case)),
            name => {
                let name = name.strip_prefix("weir-").unwrap_or(name);
                write!(line, "  {name} {}x", times(case.ratio_to_blocking))
            }
        };
    }
    line
}

fn header(policies: &[&str]) -> Vec<String> {
    let mut header = vec!["case".to_owned(), BASELINE.to_owned()];
    header
        .extend(policies.iter().map(|name| name.strip_prefix("weir-").unwrap_or(name).to_owned()));
    header
}

fn row(group: &[&Case], policies: &[&str]) -> Vec<String> {
    let of = |name: &str| group.iter().find(|case| case.contestant == name);
    let mut row = vec![group[0].name.clone(), or_dash(of(BASELINE), |case| absolute(case))];
    for policy in policies {
        row.push(or_dash(of(policy), |case| {
            let mark = if case.ratio_to_blocking < SLOWER { "!" } else { "" };
            format!("{}x{mark}", times(case.ratio_to_blocking))
        }));
    }
    row
}

/// What a case is judged by.
fn absolute(case: &Case) -> String {
    match case.experiment {
        Experiment::Personality | Experiment::Memory | Experiment::Spill => {
            format!("{}/s", rate(case.ops_per_s))
        }
        Experiment::FileServer | Experiment::Trace => latency(case.mean_us),
        Experiment::Macro => or_dash(Class::leading(&case.classes), macrobench::figure),
        Experiment::SideBySide | Experiment::Setting => {
            or_dash(Class::leading(&case.classes), |class| {
                format!("{} {}s/s", rate(class.ops_per_s), class.class)
            })
        }
    }
}

/// Columns as wide as their widest cell, the first to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| wide(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::names::DASH;
    use crate::nbw::sample;

    #[test]
    fn a_line_a_case_with_gaps() {
        let text = table(&sample::results());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("case"), "{text}");
        let words = |name: &str| -> Vec<&str> {
            let line = lines.iter().find(|line| line.starts_with(name)).expect("a line");
            line.split_whitespace().collect()
        };
        assert_eq!(
            words("hdd/random-write/128 "),
            ["hdd/random-write/128", "97.0/s", "29.5x", "45.4x", "50.0x"]
        );
        assert_eq!(words("hdd/random-write/4096")[4], "0.900x!");
        assert_eq!(
            words("hdd/facebook/no-fsync"),
            ["hdd/facebook/no-fsync", "10.0", "ms", DASH, DASH, "2.00x"]
        );
        assert_eq!(lines.len(), 1 + 9);
    }

    #[test]
    fn nothing_run_is_a_header() {
        let mut results = sample::results();
        results.cases.clear();
        assert_eq!(table(&results), "case  ext4\n");
    }
}
