//! A load over its time: its steps, and its two parts, until the redo log was full and after.
//!
//! Pure: what the load counted and what was seen of the log go in, figures come out.

use crate::nbw::results::{Phase, Phases, Step};
use crate::nbw::spill::watch::Reading;
use crate::workload::Timeline;

/// A log counts as full at this share of its capacity: some of it is always kept free, for what
/// must never wait for room.
const FULL_SHARE: f64 = 0.75;

/// When the log was full for the first time, seconds after `began_ns`; `None` if it never was.
fn full_at(began_ns: u64, log: &[Reading]) -> Option<f64> {
    log.iter().find(|reading| is_full(reading)).map(|reading| since(began_ns, reading))
}

fn is_full(reading: &Reading) -> bool {
    reading.capacity_bytes > 0
        && reading.used_bytes as f64 >= reading.capacity_bytes as f64 * FULL_SHARE
}

fn since(began_ns: u64, reading: &Reading) -> f64 {
    (reading.at_ns as f64 - began_ns as f64) / 1e9
}

/// The two parts of a load of `seconds`; `None` if nobody saw a log. A rest too short for one step
/// is none.
pub fn split(writes: &Timeline, seconds: f64, log: &[Reading]) -> Option<Phases> {
    if log.iter().all(|reading| reading.capacity_bytes == 0) {
        return None;
    }
    let full = full_at(writes.began_ns, log)
        .filter(|full| *full > 0.0 && seconds - full >= writes.step_seconds());
    let split = full.unwrap_or(seconds);
    Some(Phases {
        until_full: phase(writes, 0.0, split),
        after: full.map(|_| phase(writes, split, seconds)),
        after_bound_ops_per_s: None,
    })
}

fn phase(writes: &Timeline, from: f64, to: f64) -> Phase {
    let seconds = to - from;
    let ops = writes.ended_by(to) - writes.ended_by(from);
    let ops_per_s = if seconds > 0.0 { ops / seconds } else { 0.0 };
    Phase { seconds, ops_per_s, ratio_to_blocking: 0.0 }
}

/// The steps of a load of `seconds`, the last one as short as it was.
pub fn steps(writes: &Timeline, seconds: f64, log: &[Reading]) -> Vec<Step> {
    let known: Vec<(f64, u64)> = log
        .iter()
        .filter(|reading| reading.capacity_bytes > 0)
        .map(|reading| (since(writes.began_ns, reading), reading.used_bytes))
        .collect();
    let ends = (1..=writes.ended.len()).map(|step| step as f64 * writes.step_seconds());
    let mut from = 0.0;
    ends.map(|end| {
        let end = end.min(seconds);
        let writes_per_s = phase(writes, from, end).ops_per_s;
        from = end;
        let newest = known.partition_point(|(at, _)| *at <= end).checked_sub(1);
        Step { seconds: end, writes_per_s, log_used_bytes: newest.map(|newest| known[newest].1) }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN_NS: u64 = 5_000_000_000;

    /// 1000 writes in each step of the first second, 10 in those after.
    fn writes() -> Timeline {
        Timeline {
            began_ns: BEGAN_NS,
            step_ms: 250,
            ended: [[1000; 4], [10; 4]].concat(),
            seconds: 2.0,
        }
    }

    fn reading(seconds: f64, used_bytes: u64) -> Reading {
        let at_ns = BEGAN_NS + (seconds * 1e9) as u64;
        Reading { at_ns, used_bytes, capacity_bytes: 100 }
    }

    #[test]
    fn the_first_full_log_parts_a_load() {
        let log = [reading(0.3, 40), reading(1.0, 75), reading(1.5, 20), reading(1.8, 90)];
        let phases = split(&writes(), 2.0, &log).unwrap();
        let rate = |phase: &Phase| (phase.seconds, phase.ops_per_s);
        assert_eq!(rate(&phases.until_full), (1.0, 4000.0));
        assert_eq!(rate(&phases.after.unwrap()), (1.0, 40.0));
    }

    #[test]
    fn a_log_that_was_never_full_leaves_one_part() {
        let phases = split(&writes(), 2.0, &[reading(1.0, 74)]).unwrap();
        assert_eq!((phases.until_full.seconds, phases.after), (2.0, None));
        assert_eq!(phases.until_full.ops_per_s, 2020.0);
        let late = split(&writes(), 2.0, &[reading(1.9, 80)]).unwrap();
        assert_eq!(late.after, None, "less than a step is left");
    }

    #[test]
    fn without_a_log_there_are_no_parts() {
        let none = Reading { capacity_bytes: 0, ..reading(1.0, 0) };
        assert_eq!(split(&writes(), 2.0, &[none]), None);
        assert_eq!(split(&writes(), 2.0, &[]), None);
        assert!(steps(&writes(), 2.0, &[none]).iter().all(|step| step.log_used_bytes.is_none()));
    }

    #[test]
    fn steps_have_what_was_seen_last() {
        let mut writes = writes();
        writes.ended.push(5);
        writes.seconds = 2.125;
        let steps = steps(&writes, 2.125, &[reading(0.4, 7), reading(2.1, 8)]);
        assert_eq!(steps.len(), 9);
        assert_eq!((steps[0].writes_per_s, steps[0].log_used_bytes), (4000.0, None));
        assert_eq!(steps[1].log_used_bytes, Some(7));
        let last = &steps[8];
        assert_eq!((last.seconds, last.log_used_bytes), (2.125, Some(8)));
        assert_eq!(last.writes_per_s, 40.0, "all of a step that was cut short");
    }
}
