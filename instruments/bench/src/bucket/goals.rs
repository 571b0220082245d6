//! What Weir was to reach on buckets, held against the best of those that keep a file as one object.

use super::plan::{APPEND, BUILD, PATCH, READ, SQLITE, UNTAR, WRITE};
use super::side::Side;
use crate::lane::results::{Case, Results, Round};
use crate::report::Goal;

const PEERS: [Side; 2] = [Side::S3fs, Side::Rclone];
/// Of the time until the calls return: how many times less than the best peer.
const RETURNS: [(&str, f64); 5] =
    [(PATCH, 100.0), (UNTAR, 50.0), (SQLITE, 20.0), (APPEND, 100.0), (BUILD, 3.0)];
/// Of the time until all is in the bucket; a read is over when it has returned.
const IN_BUCKET: [(&str, f64); 4] = [(PATCH, 10.0), (UNTAR, 1.5), (WRITE, 1.0), (READ, 1.0)];
/// What may cross the network for small writes into a large object, of what a peer moves.
const MOVED: f64 = 0.05;
/// Requests for each small file.
const REQUESTS_A_FILE: f64 = 1.1;

/// From the beginning until all is in the bucket, seconds.
pub fn whole(round: &Round) -> f64 {
    round.mean_us / 1e6 * round.ops as f64 + round.after_seconds
}

/// The goals of what was measured.
pub fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for case in &results.cases {
        let at_least = |all: &[(&str, f64)]| {
            all.iter().find(|(name, _)| *name == case.name).map(|(_, at_least)| *at_least)
        };
        if let (Some(goal), Some(times)) =
            (at_least(&RETURNS), times_less(case, |round| round.mean_us))
        {
            let name = format!("{}: until it returns, of the best peer", case.name);
            goals.push(Goal::at_least(name, times, goal, "times less"));
        }
        if let (Some(goal), Some(times)) = (at_least(&IN_BUCKET), times_less(case, whole)) {
            let name = format!("{}: until all is in the bucket, of the best peer", case.name);
            goals.push(Goal::at_least(name, times, goal, "times less"));
        }
        if case.name == PATCH {
            goals.extend(PEERS.iter().filter_map(|peer| moved(case, *peer)));
        }
        if case.name == UNTAR {
            goals.extend(requests(case));
        }
    }
    goals
}

/// How many times less Weir has of something than the peer that has the least of it.
fn times_less(case: &Case, of: impl Fn(&Round) -> f64) -> Option<f64> {
    let own = case.median(Side::Weir.name(), &of)?;
    let peers = PEERS.iter().filter_map(|peer| case.median(peer.name(), &of));
    let best = peers.min_by(f64::total_cmp)?;
    (own > 0.0).then(|| best / own)
}

fn bytes(round: &Round) -> f64 {
    round.moved_bytes.unwrap_or_default() as f64
}

fn moved(case: &Case, peer: Side) -> Option<Goal> {
    let (own, other) = (case.median(Side::Weir.name(), bytes)?, case.median(peer.name(), bytes)?);
    let name = format!("{}: bytes moved, of those of {}", case.name, peer.name());
    (other > 0.0).then(|| Goal::at_most(name, own / other, MOVED, "times"))
}

fn requests(case: &Case) -> Option<Goal> {
    let files = case.files? as f64;
    let asked = |round: &Round| round.requests.unwrap_or_default() as f64;
    let asked = case.median(Side::Weir.name(), asked)?;
    let name = format!("{}: requests for each file", case.name);
    Some(Goal::at_most(name, asked / files, REQUESTS_A_FILE, "requests"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::results::Figure;
    use crate::lane::results::tests::case;

    #[test]
    fn weir_is_held_against_the_better_peer() {
        let sides: [(&str, &[f64]); 3] = [("weir", &[1e4]), ("s3fs", &[2e6]), ("rclone", &[5e5])];
        let mut patch = case(PATCH, Figure::Mean, &sides);
        for (side, moved) in patch.sides.iter_mut().zip([10, 1000, 100]) {
            let after_seconds = if side.side == "rclone" { 0.5 } else { 0.09 };
            side.rounds[0] =
                Round { ops: 1, after_seconds, moved_bytes: Some(moved), ..side.rounds[0] };
        }
        let mut untar = case(UNTAR, Figure::Mean, &[("weir", &[1e6])]);
        untar.files = Some(100);
        untar.sides[0].rounds[0].requests = Some(120);
        let results = Results { cases: vec![patch, untar], ..Results::default() };
        let found: Vec<_> = goals(&results)
            .iter()
            .map(|goal| ((goal.measured * 1e6).round() / 1e6, goal.reached))
            .collect();
        assert_eq!(found, [(50.0, false), (10.0, true), (0.01, true), (0.1, false), (1.2, false)]);
    }
}
