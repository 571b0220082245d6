//! How results are shown: the order of contestants and cases, and figures as people read them.
//!
//! Owns no result. What is missing is a [`DASH`], here and wherever results are shown.

use super::results::{Case, Experiment, Results};
use crate::measure::{show_count, show_us};

/// The contestant that is held against the goals.
pub const ADAPTIVE: &str = "weir-adaptive";
/// The one it is to be better than.
pub const STATIC: &str = "weir-static";
/// The kernel's blocking writes: what the others are measured by.
pub const BASELINE: &str = "ext4";
/// Weir as it is by default: what the goals are held against.
pub const DEFAULT: &str = "weir-auto";
/// A figure that is not there.
pub const DASH: &str = "–";
/// The personalities, as the paper orders them; the read-only ones are last.
pub const PERSONALITIES: [&str; 5] =
    ["sequential-write", "random-write", "random-readwrite", "sequential-read", "random-read"];
/// How many of [`PERSONALITIES`] write.
const WRITING: usize = 3;

/// The order in which contestants are shown; others come after them.
const CONTESTANTS: [&str; 8] = [
    BASELINE,
    "weir-blocking",
    "weir-async-fg",
    "weir-async-bg",
    "weir-lazy",
    DEFAULT,
    "weir-static",
    "weir-adaptive",
];

/// Whether the personality writes at all.
pub fn writes(workload: &str) -> bool {
    PERSONALITIES[..WRITING].contains(&workload)
}

/// Whether a trace was replayed without its fsyncs.
pub fn without_fsync(workload: &str) -> bool {
    workload.ends_with("-no-fsync")
}

fn rank(list: &[&str], name: &str) -> usize {
    list.iter().position(|known| *known == name).unwrap_or(list.len())
}

/// The contestants that have any case, in the order they are shown.
pub fn contestants(results: &Results) -> Vec<&str> {
    contestants_of(&results.cases)
}

/// Those of some cases.
pub fn contestants_of<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Vec<&'a str> {
    let mut found = each_once(cases.into_iter().map(|case| case.contestant.as_str()));
    found.sort_by_key(|name| (rank(&CONTESTANTS, name), *name));
    found
}

/// What there is, in the order it was met.
pub fn each_once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    all.for_each(|one| {
        if !found.contains(&one) {
            found.push(one);
        }
    });
    found
}

/// The cases of an experiment, those of one name together, in the order they are shown.
pub fn groups(results: &Results, experiment: Experiment) -> Vec<Vec<&Case>> {
    let mut groups: Vec<Vec<&Case>> = Vec::new();
    for case in results.cases.iter().filter(|case| case.experiment == experiment) {
        match groups.iter_mut().find(|group| group[0].name == case.name) {
            Some(group) => group.push(case),
            None => groups.push(vec![case]),
        }
    }
    for group in &mut groups {
        group.sort_by_key(|case| rank(&CONTESTANTS, &case.contestant));
    }
    groups.sort_by_key(|group| {
        let case = group[0];
        (case.disk, rank(&PERSONALITIES, &case.workload), case.size_bytes, case.memory_bytes)
    });
    groups
}

/// The workloads of an experiment in the order they are shown, those without fsync last.
pub fn workloads(results: &Results, experiment: Experiment) -> Vec<&str> {
    let cases = results.cases.iter().filter(|case| case.experiment == experiment);
    let mut found = each_once(cases.map(|case| case.workload.as_str()));
    found.sort_by_key(|name| (rank(&PERSONALITIES, name), without_fsync(name)));
    found
}

/// The sizes of an experiment, each once, ascending, by what `of` says of a case.
pub fn sizes(results: &Results, experiment: Experiment, of: fn(&Case) -> u64) -> Vec<u64> {
    let cases = results.cases.iter().filter(|case| case.experiment == experiment);
    let mut sizes: Vec<u64> = cases.map(of).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// `128 B`, `2 KiB`, `64 MiB`: in the largest unit it is a whole number of.
pub fn bytes(count: u64) -> String {
    for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if count >= size && count.is_multiple_of(size) {
            return format!("{} {unit}", show_count(count / size));
        }
    }
    format!("{} B", show_count(count))
}

/// How many times: `45.4`; three digits, or as many as the whole part has.
pub fn times(value: f64) -> String {
    match value {
        value if !value.is_finite() => DASH.to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 2.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// Operations a second.
pub fn rate(value: f64) -> String {
    match value {
        value if !value.is_finite() => DASH.to_owned(),
        value if value >= 100.0 => show_count(value.round() as u64),
        value => format!("{value:.1}"),
    }
}

/// A latency, given in microseconds.
pub fn latency(us: f64) -> String {
    if us.is_finite() { show_us(us) } else { DASH.to_owned() }
}

/// A change, in percent, with its sign.
pub fn percent(value: f64) -> String {
    let sign = match value.round() {
        0.0 => "±",
        rounded if rounded < 0.0 => "−",
        _ => "+",
    };
    format!("{sign}{:.0} %", value.round().abs())
}

/// `shown` of a figure that may be missing.
pub fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| DASH.to_owned(), shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::sample;

    #[test]
    fn figures_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(2048), "2 KiB");
        assert_eq!(bytes(1500), "1,500 B");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(times(0.9494), "0.949");
        assert_eq!(times(45.36), "45.4");
        assert_eq!(times(f64::NAN), DASH);
        assert_eq!(rate(97.04), "97.0");
        assert_eq!(percent(-0.2), "±0 %");
        assert_eq!(percent(-79.6), "−80 %");
        assert_eq!(rate(4400.6), "4,401");
    }

    #[test]
    fn the_order_is_the_papers_not_the_files() {
        let mut results = sample::results();
        results.cases.reverse();
        assert_eq!(contestants(&results), ["ext4", "weir-async-bg", "weir-lazy", "weir-auto"]);
        let groups = groups(&results, Experiment::Personality);
        let names: Vec<&str> = groups.iter().map(|group| group[0].name.as_str()).collect();
        assert_eq!(names[0], "hdd/sequential-write/2048");
        assert_eq!(groups[0][0].contestant, BASELINE);
        assert!(names.contains(&"hdd/random-write/128"));
        assert_eq!(workloads(&results, Experiment::Trace), ["facebook", "facebook-no-fsync"]);
    }
}
