//! A small made-up run of AWOL's workloads for tests: on the hard disk, with gaps.

use crate::nbw::awol::SUITE;
use crate::nbw::results::{Case, Curves, DiskUse, Experiment, Moment, Requests, Results};
use crate::nbw::sample;

const WHO: [&str; 3] = ["ext4", "weir-static", "weir-adaptive"];

/// Reads a second, writes a second and requests to the disk a second.
type Figures = (f64, f64, f64);

/// Of each workload, by each of [`WHO`].
const RUN: [(&str, [Figures; 3]); 4] = [
    ("nrsw", [(0.0, 1000.0, 90.0), (0.0, 1000.0, 90.0), (0.0, 1000.0, 90.0)]),
    ("rrrw", [(100.0, 500.0, 100.0), (100.0, 900.0, 90.0), (140.0, 600.0, 80.0)]),
    ("zrzw", [(200.0, 900.0, 100.0), (250.0, 900.0, 90.0), (300.0, 900.0, 80.0)]),
    ("vrvw", [(400.0, 800.0, 100.0), (400.0, 800.0, 80.0), (400.0, 800.0, 60.0)]),
];

/// See the module.
pub fn results() -> Results {
    let all = RUN.iter().flat_map(|run| WHO.into_iter().zip(run.1).map(move |who| (run.0, who)));
    let cases = all.map(|(name, (who, figures))| case(name, who, figures)).collect();
    Results { suite: SUITE.into(), cases, ..sample::results() }
}

fn case(name: &str, who: &str, (reads, writes, requests): Figures) -> Case {
    let sides = [("read", reads), ("write", writes)];
    let classes: Vec<_> = sides.into_iter().filter(|side| side.1 > 0.0).collect();
    let like = sample::case_of(&format!("hdd/{name}"), Experiment::SideBySide, who, &classes);
    let disk_use = DiskUse {
        read_bytes: 4096.0 * requests,
        requests_a_thousand: requests,
        ..DiskUse::default()
    };
    let step = |second: u32| Requests {
        seconds: f64::from(second),
        reads_per_s: requests / 2.0,
        writes_per_s: requests / 2.0,
    };
    let moment = |second: u32| Moment {
        seconds: f64::from(second),
        high_percent: if second < 5 { 20.0 } else { 5.0 + f64::from(second % 2) },
        dirty_percent: 10.0,
        ..Moment::default()
    };
    let mut over_time =
        Curves { requests: (1..10).map(step).collect(), moments: (0..10).map(moment).collect() };
    if who == "ext4" {
        over_time.moments.clear();
    }
    let mut round = like.rounds[0].clone();
    round.classes.iter_mut().for_each(|class| class.ops = (class.ops_per_s * 10.0) as u64);
    (round.disk_use, round.over_time) = (Some(disk_use), Some(over_time));
    Case {
        size_bytes: 4096,
        classes: round.classes.clone(),
        disk_use: Some(disk_use),
        rounds: vec![round],
        ..like
    }
}
