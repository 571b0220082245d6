//! What names were to reach, held against the same home without Weir.

use super::side::{DIRECT, LOG};
use crate::lane::results::{Case, Results};
use crate::report::Goal;

/// Cases, and how many times as fast as directly they are to be at least.
const RATIOS: [(&str, f64); 19] = [
    ("sshfs/untar", 30.0),
    ("sshfs/create-fsync", 30.0),
    ("sshfs/save-by-rename", 30.0),
    ("sshfs/maildir", 30.0),
    ("sshfs/rm", 30.0),
    ("sshfs/sqlite", 40.0),
    ("sshfs/git-clone", 5.0),
    ("hdd/create-fsync", 4.0),
    ("hdd/maildir", 4.0),
    ("hdd/sqlite", 4.0),
    ("hdd/untar", 1.0),
    ("hdd/rm", 1.0),
    ("hdd/cp", 1.0),
    ("disk/maildir", 1.2),
    ("disk/sqlite", 1.2),
    ("disk/untar", 0.5),
    ("disk/rm", 0.5),
    ("disk/cp", 0.5),
    // Of no other case of sshfs more is asked.
    ("sshfs/", 1.0),
];
/// The time until all is home, of untar's on sshfs directly.
const HOME_SHARE: f64 = 0.5;
const HOME_CASE: &str = "sshfs/untar";

/// The goals of what was measured.
pub fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for case in &results.cases {
        let at_least = RATIOS.iter().find(|(name, _)| {
            case.name == *name || (name.ends_with('/') && case.name.starts_with(name))
        });
        if let Some((_, at_least)) = at_least
            && let Some(ratio) = case.ratio(LOG.name, DIRECT.name)
        {
            goals.push(Goal::at_least(case.name.clone(), ratio, *at_least, "times"));
        }
    }
    goals.extend(results.case(HOME_CASE).and_then(home_goal));
    goals
}

/// From the end of the job until all is home, against the job directly.
fn home_goal(case: &Case) -> Option<Goal> {
    let home = case.median(LOG.name, |round| round.after_seconds)?;
    let direct = case.value(DIRECT.name)? / 1e6;
    let name = format!("{HOME_CASE}: until all is home, of the time directly");
    Some(Goal::at_most(name, home / direct, HOME_SHARE, "times"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::results::Figure;
    use crate::lane::results::tests::case;

    #[test]
    fn a_case_has_its_own_goal_or_that_of_its_home() {
        let measured = |name: &str, log: f64| {
            case(name, Figure::Mean, &[("direct", &[100_000.0]), ("log", &[log])])
        };
        let mut untar = measured("sshfs/untar", 50_000.0);
        untar.sides[1].rounds[0].after_seconds = 0.04;
        let cases = vec![
            untar,
            measured("sshfs/npm", 50_000.0),
            measured("disk/npm", 1.0),
            measured("disk/untar", 150_000.0),
        ];
        let results = Results { cases, ..Results::default() };
        let found: Vec<_> = goals(&results).iter().map(|goal| (goal.goal, goal.reached)).collect();
        assert_eq!(found, [(30.0, false), (1.0, true), (0.5, true), (0.5, true)]);
    }
}
