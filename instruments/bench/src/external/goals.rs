//! What sessions were to reach, held against ext4 with and without syncs.

use super::side::Side;
use crate::lane::results::Results;
use crate::report::Goal;

/// Cases, and how many times as fast as on ext4 they are to be at least.
const AGAINST_EXT4: [(&str, f64); 16] = [
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
    ("disk/git-commit", 3.0),
    ("hdd/git-commit", 3.0),
    ("disk/script", 3.0),
    ("hdd/script", 3.0),
];
/// SQLite's speed is to be this share at least of what it has without syncs.
const AGAINST_NO_SYNCS: f64 = 0.7;

/// The goals of what was measured.
pub fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for case in &results.cases {
        let ratio = |than: Side| case.ratio(Side::External.name(), than.name());
        let at_least = AGAINST_EXT4.iter().find(|(name, _)| *name == case.name);
        if let (Some((_, at_least)), Some(ratio)) = (at_least, ratio(Side::Ext4)) {
            goals.push(Goal::at_least(case.name.clone(), ratio, *at_least, "times"));
        }
        if let (true, Some(ratio)) = (case.name.contains("/sqlite"), ratio(Side::Eatmydata)) {
            let name = format!("{}, against eatmydata", case.name);
            goals.push(Goal::at_least(name, ratio, AGAINST_NO_SYNCS, "times"));
        }
    }
    goals
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
}
