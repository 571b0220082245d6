//! What sessions were to reach, held against ext4 with and without syncs.

use super::side::Side;
use crate::lane::results::{Case, Results};
use crate::report::Goal;

/// Cases, and how many times as fast as on ext4 they are to be at least.
const AGAINST_EXT4: [(&str, f64); 17] = [
    ("disk/sqlite-delete", 5.0),
    ("disk/sqlite-wal", 3.0),
    ("hdd/sqlite-delete", 30.0),
    ("hdd/sqlite-wal", 30.0),
    ("disk/pgbench-inside", 2.5),
    ("hdd/pgbench-inside", 10.0),
    ("disk/pgbench-4-outside", 1.0),
    ("hdd/pgbench-4-outside", 3.0),
    ("disk/pgbench-16-outside", 1.0),
    ("hdd/pgbench-16-outside", 3.0),
    ("disk/redis-50-outside", 1.5),
    ("hdd/redis-50-outside", 5.0),
    ("disk/mariadb-inside", 3.0),
    ("disk/git-commit", 3.0),
    ("hdd/git-commit", 3.0),
    ("disk/script", 3.0),
    ("hdd/script", 3.0),
];
/// How cases' names begin on any home, and what share at least of the speed without syncs they are to have.
const AGAINST_NO_SYNCS: [(&str, f64); 2] = [("sqlite", 0.7), ("dpkg", 0.85)];
/// Postmark, which never syncs, with every write a promise: its time, of that on ext4.
const EVERY_WRITE_TIME: f64 = 1.07;
/// What holding may add to the 99th percentile of a web server's replies, milliseconds.
const HELD_MS: f64 = 5.0;

/// The goals of what was measured.
pub fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for case in &results.cases {
        let ratio = |than: Side| case.ratio(Side::External.name(), than.name());
        let at_least = AGAINST_EXT4.iter().find(|(name, _)| *name == case.name);
        if let (Some((_, at_least)), Some(ratio)) = (at_least, ratio(Side::Ext4)) {
            goals.push(Goal::at_least(case.name.clone(), ratio, *at_least, "times"));
        }
        let (_, program) = case.name.split_once('/').unwrap_or_default();
        let at_least = AGAINST_NO_SYNCS.iter().find(|(name, _)| program.starts_with(name));
        if let (Some((_, at_least)), Some(ratio)) = (at_least, ratio(Side::Eatmydata)) {
            let name = format!("{}, against eatmydata", case.name);
            goals.push(Goal::at_least(name, ratio, *at_least, "times"));
        }
        goals.extend(match program {
            "postmark-every-write" => every_write(case),
            "web" => held(case),
            _ => None,
        });
    }
    goals
}

fn every_write(case: &Case) -> Option<Goal> {
    let times = case.ratio(Side::Ext4.name(), Side::External.name())?;
    let name = format!("{}: time, of that on ext4", case.name);
    Some(Goal::at_most(name, times, EVERY_WRITE_TIME, "times"))
}

/// Against the same server without syncs.
fn held(case: &Case) -> Option<Goal> {
    let (held, plain) = (case.value(Side::External.name())?, case.value(Side::Eatmydata.name())?);
    let name = format!("{}: added to the 99th percentile", case.name);
    Some(Goal::at_most(name, (held - plain) / 1e3, HELD_MS, "ms"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::results::Figure;
    use crate::lane::results::tests::case;

    #[test]
    fn sqlite_is_held_against_both() {
        let sides: [(&str, &[f64]); 3] =
            [("ext4", &[4000.0]), ("eatmydata", &[40.0]), ("external", &[100.0])];
        let cases = ["hdd/sqlite-wal", "ssd/sqlite-wal", "hdd/script", "ssd/script"];
        let cases = cases.map(|name| case(name, Figure::Mean, &sides)).to_vec();
        let results = Results { cases, ..Results::default() };
        let found: Vec<_> = goals(&results).iter().map(|goal| (goal.goal, goal.reached)).collect();
        assert_eq!(found, [(30.0, true), (0.7, false), (0.7, false), (3.0, true)]);
    }
    #[test]
    fn time_and_latency_that_are_added_are_bounded() {
        let sides: [(&str, &[f64]); 3] =
            [("ext4", &[900.0]), ("eatmydata", &[1000.0]), ("external", &[950.0])];
        let postmark = case("disk/postmark-every-write", Figure::Mean, &sides);
        // Made with a 99th percentile of three times the value.
        let web =
            case("ssd/web", Figure::P99, &[("eatmydata", &[1000.0]), ("external", &[3000.0])]);
        let dpkg =
            case("ssd/dpkg", Figure::Mean, &[("eatmydata", &[80.0]), ("external", &[100.0])]);
        let results = Results { cases: vec![postmark, web, dpkg], ..Results::default() };
        let found = goals(&results);
        let found: Vec<_> = found.iter().map(|goal| (goal.measured, goal.reached)).collect();
        assert_eq!(found, [(950.0 / 900.0, true), (6.0, false), (0.8, false)]);
    }
}
