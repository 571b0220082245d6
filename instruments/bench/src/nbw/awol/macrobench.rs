//! AWOL's macro-benchmarks (paper 002, section 5.5): a C project unpacked and built, and TPC-C's
//! transactions on PostgreSQL. What is run, what is shown, and the goals.

use std::path::{Path, PathBuf};

use crate::disk::Model;
use crate::error::Result;
use crate::nbw::awol::ratios::{Ratios, against, speed, times_baseline};
use crate::nbw::goals::{Goal, Measured};
use crate::nbw::names::{ADAPTIVE, STATIC, groups, latency, or_dash, rate};
use crate::nbw::plan::{Cell, Filter};
use crate::nbw::results::{Class, Experiment, Profile, Results};
use crate::stage::Contestant;
use crate::workload::{Build, Tpcc, WAREHOUSE_BYTES, Workload, require_build, require_postgres};

/// What the names of these cells have in them, and others do not.
const MARK: &str = "macro/";
/// Where `scripts/setup` puts the sources, from the directory of this program.
const SOURCES: &str = "../tools/sources.tar";
/// Memory of a contestant that builds: the compiler needs most of it.
const BUILD_MEMORY_BYTES: u64 = 256 << 20;
/// Trees that are built, one after the other: more than the rest of it holds.
pub const TREES: u32 = 6;
/// A build's length, seconds, about.
const BUILD_SECONDS: f64 = 15.0;
/// The size of the database over that of the memory: the paper's memory was 20 to 30 % of the working set.
const DATABASE_TO_MEMORY: u64 = 4;
/// Clients of the database.
const CLIENTS: u32 = 4;
/// How many times as long its load is on the hard disk, which does a new order a second.
const LONGER_ON_HDD: f64 = 4.0;

/// The paper's gains over its default, of each on the hard disk, as ratios to static write-back.
const GAINS: [(&str, &str, &str, f64); 2] = [
    ("build", "job", "unpacking and building a C project: static's time to adaptive's", 1.27),
    (
        "tpcc",
        "new-order",
        "adaptive to static: new orders of TPC-C's transactions on PostgreSQL",
        1.25,
    ),
];

/// Whether they are run: in the long form, and where somebody names them.
pub fn is_wanted(quick: bool, filter: &Filter) -> bool {
    !quick || filter.names.iter().any(|name| name.contains(MARK.trim_end_matches('/')))
}

/// The archive of sources that is built, if nobody says where it is.
pub fn default_sources() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().unwrap_or(Path::new(".")).join(SOURCES)
}

/// The cells, and why those that lack something are passed over.
pub fn cells(
    profile: &Profile,
    contestants: &[Contestant],
    sources: &Path,
    filter: &Filter,
) -> (Vec<Cell>, Vec<String>) {
    let mut found = Vec::new();
    for &disk in &filter.disks {
        for (workload, label, memory_bytes, seconds) in workloads(disk, profile, sources) {
            found.push(Cell {
                name: format!("{disk}/{MARK}{label}"),
                experiment: Experiment::Macro,
                label: label.into(),
                disk,
                size_bytes: 0,
                memory_bytes,
                workload,
                contestants: contestants.to_vec(),
                rounds: 1,
                seconds,
            });
        }
    }
    found.retain(|cell| filter.wants(cell));
    let passed_over = |label: &str, needed: Result<()>, found: &mut Vec<Cell>| {
        let why = needed.err().filter(|_| found.iter().any(|cell| cell.label == label))?;
        found.retain(|cell| cell.label != label);
        Some(format!("passed over: {label}: {why}"))
    };
    let why = [
        passed_over("build", require_build(sources), &mut found),
        passed_over("tpcc", require_postgres(), &mut found),
    ];
    (found, why.into_iter().flatten().collect())
}

/// What is run, its name, the memory of a contestant and the length.
fn workloads(
    disk: Model,
    profile: &Profile,
    sources: &Path,
) -> [(Workload, &'static str, u64, f64); 2] {
    let longer = if disk == Model::Hdd { LONGER_ON_HDD } else { 1.0 };
    let seconds = (profile.seconds * longer).ceil();
    let warehouses = profile.memory_bytes * DATABASE_TO_MEMORY / WAREHOUSE_BYTES;
    let build = Build { archive: sources.to_owned(), trees: TREES };
    let tpcc = Tpcc { clients: CLIENTS, warehouses: warehouses as u32, seconds: seconds as u64 };
    [
        (Workload::Build(build), "build", BUILD_MEMORY_BYTES, BUILD_SECONDS),
        (Workload::Tpcc(tpcc), "tpcc", profile.memory_bytes, seconds),
    ]
}

/// What one of them is judged by, as a person reads it.
pub fn figure(class: &Class) -> String {
    match class.class.as_str() {
        "new-order" => format!("{} new orders/min", rate(class.ops_per_s * 60.0)),
        _ => latency(class.mean_us),
    }
}

/// Headings, then a row for each contestant in each case. The first two columns are text.
pub fn rows(results: &Results) -> Vec<Vec<String>> {
    let head = ["case", "contestant", "figure", "x ext4", "disk reads", "disk writes"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for case in groups(results, Experiment::Macro).into_iter().flatten() {
        let class = Class::leading(&case.classes);
        let ratios = class
            .and_then(|class| times_baseline(results, &case.name, &case.contestant, &class.class));
        rows.push(vec![
            case.name.clone(),
            case.contestant.clone(),
            or_dash(class, figure),
            or_dash(ratios, |ratios| ratios.show()),
            rate(case.device_reads as f64),
            rate(case.device_writes as f64),
        ]);
    }
    rows
}

/// Adaptive write-back's figure over another's; `build` or `tpcc` on the hard disk.
pub fn gain(results: &Results, label: &str, other: &str) -> Option<Ratios> {
    let (label, class, ..) = GAINS.iter().find(|(known, ..)| *known == label)?;
    let name = format!("{}/{MARK}{label}", Model::Hdd);
    against(results, &name, ADAPTIVE, other, &speed(&name, class))
}

/// The goals.
pub fn goals(results: &Results) -> Vec<Goal> {
    let goal = |(label, _, name, need): (&str, &str, &str, f64)| {
        let measured = gain(results, label, STATIC).map(|ratios| Measured::single(ratios.median));
        Goal::times(format!("{}, {name}", Model::Hdd), need, measured)
    };
    GAINS.map(goal).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::awol::plan;
    use crate::nbw::sample;

    #[test]
    fn the_database_is_four_times_the_memory_and_what_is_missing_is_passed_over() {
        let profile = plan::profile(false, None);
        let filter = Filter { disks: vec![Model::Hdd], names: vec!["macro".into()] };
        let (cells, why) = cells(&profile, &[Contestant::Ext4], Path::new("/nonexistent"), &filter);
        assert!(cells.iter().all(|cell| cell.label != "build"));
        assert!(why[0].contains("build") && why[0].contains("/nonexistent"), "{why:?}");
        for (workload, ..) in workloads(Model::Hdd, &profile, Path::new("/nonexistent")) {
            if let Workload::Tpcc(tpcc) = workload {
                let bytes = u64::from(tpcc.warehouses) * WAREHOUSE_BYTES;
                let share = profile.memory_bytes as f64 / bytes as f64;
                assert!((0.2..0.3).contains(&share), "{share}");
            }
        }
        assert!(is_wanted(true, &filter) && is_wanted(false, &Filter::default()));
        assert!(!is_wanted(true, &Filter::default()));
    }

    #[test]
    fn figures_are_a_time_and_a_rate_a_minute() {
        let mut run = sample::results();
        let case = |who: &str, per_s: f64| {
            let classes = [("new-order", per_s), ("transaction", per_s)];
            sample::case_of("hdd/macro/tpcc", Experiment::Macro, who, &classes)
        };
        run.cases = vec![case("ext4", 4.0), case(STATIC, 4.0), case(ADAPTIVE, 6.0)];
        let goals = goals(&run);
        assert_eq!(goals.iter().map(Goal::reached).collect::<Vec<_>>(), [None, Some(true)]);
        assert_eq!(rows(&run)[3][2], "360 new orders/min");
        let job = Class { class: "job".into(), mean_us: 2.5e6, ..Class::default() };
        assert!(
            figure(&job).contains("2500 ms") || figure(&job).contains("2.5"),
            "{}",
            figure(&job)
        );
    }
}
