//! How long the program would take through Weir.
//!
//! The model: a program's time is what it does between its calls, and its calls. What is between them stays as it is. A
//! call takes what calls of its class took when a piece of the program was done again in a scratch directory on the same
//! disk, directly and through Weir. So the model has no constants of a machine; where a class was not in that piece,
//! its cost is estimated from the disk's figures and the requests it makes ([`Class::requests`]).
//!
//! What it does not know: how calls of several processes delay each other, and what goes home after the program has ended.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::call::Group;
use crate::class::Class;
use crate::plan::Measured;

/// A trip through FUSE where none could be measured, microseconds (docs/results/names.md).
const TRIP_US: f64 = 15.0;
/// A call in memory where none could be measured, microseconds.
const IN_MEMORY_US: f64 = 2.0;
/// A random read and a small synced write of a disk that was not tried, microseconds: a flash drive's.
const READ_US: f64 = 100.0;
const SYNC_US: f64 = 1000.0;
/// Where recording took more of the time than this, what is between calls is known roughly; where it took more than the
/// second, hardly.
const RECORDER_SOME: f64 = 0.4;
const RECORDER_MOST: f64 = 0.75;
/// Calls count as not understood if they took this many times as long in the trial as when they were recorded, or the other way round.
const DIFFERS: f64 = 2.0;
/// Fewer calls than these in the sample make a class's mean doubtful.
const SAMPLE_MIN: u64 = 10;

/// A way to use Weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A mount, and the program as it is.
    Mount,
    /// The program under `weir run`.
    Run,
    /// Under `weir run --sync external`, on a mount with `--order all`.
    Session,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Mount, Way::Run, Way::Session];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Mount => "weir mount",
            Way::Run => "weir run",
            Way::Session => "weir run --sync external",
        })
    }
}

/// How sure a prediction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// A guess.
    Low,
    /// Some of it is estimated.
    Medium,
    /// Nearly all of it was measured.
    High,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        })
    }
}

/// What was measured of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disk {
    /// A random read of 4 KiB, microseconds.
    pub read_us: f64,
    /// A random read that nothing else delays, microseconds: a tenth of them are faster.
    pub read_fast_us: f64,
    /// A write of 4 KiB and fdatasync(2), microseconds.
    pub sync_us: f64,
    /// Writing in sequence, bytes a second.
    pub write_rate: f64,
}

/// What one way costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WayCosts {
    /// The piece done again.
    pub measured: Measured,
    /// What starting a program takes longer, microseconds.
    pub start_us: f64,
    /// What is paid once, microseconds.
    pub once_us: f64,
}

/// What predictions are made of.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// The program's time without the recorder, microseconds.
    pub wall_us: f64,
    /// What it spent in the calls that [`Basis::counts`] counts, without the recorder, microseconds. `None`: not recorded.
    pub observed_us: Option<f64>,
    /// How much of the recorded time was the recorder's.
    pub recorder_share: f64,
    /// Processor time in user mode, microseconds.
    pub user_us: f64,
    /// Calls by class.
    pub counts: BTreeMap<Class, u64>,
    /// Programs that it starts.
    pub starts: u64,
    /// Time in which some call ran, of the time of all calls.
    pub overlap: f64,
    /// The disk.
    pub disk: Disk,
    /// The piece done again directly, if it was.
    pub direct: Option<Measured>,
    /// Doubts that lower each confidence.
    pub doubts: Vec<String>,
}

/// What one way would do for the program.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Which.
    pub way: Way,
    /// Time directly, by its time through Weir: above 1 Weir is faster.
    pub ratio: f64,
    /// Directly, microseconds.
    pub direct_us: f64,
    /// Through Weir.
    pub weir_us: f64,
    /// Time in calls, directly and through Weir, by group, microseconds.
    pub groups: BTreeMap<Group, (f64, f64)>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Why not surer.
    pub doubts: Vec<String>,
}

/// A figure of the disk, or what is assumed where it was not tried.
fn known(figure: f64, otherwise: f64) -> f64 {
    if figure > 0.0 { figure } else { otherwise }
}

/// The cost of a call of a class, and whether it was measured.
fn direct_us(class: Class, basis: &Basis) -> (f64, bool) {
    let cost = basis.direct.as_ref().and_then(|measured| measured.costs.get(&class));
    if let Some(cost) = cost {
        return (cost.mean_us(), cost.calls >= SAMPLE_MIN);
    }
    let estimate = match class {
        Class::ReadFirstSmall | Class::ReadFirstLarge | Class::WritePartialFirst => {
            known(basis.disk.read_us, READ_US)
        }
        Class::SyncNothing => IN_MEMORY_US,
        class if class.group() == Group::Syncs => known(basis.disk.sync_us, SYNC_US),
        _ => IN_MEMORY_US,
    };
    (estimate, false)
}

fn weir_us(class: Class, basis: &Basis, way: Way, costs: Option<&WayCosts>) -> (f64, bool) {
    let cost = costs.and_then(|costs| costs.measured.costs.get(&class));
    if let Some(cost) = cost {
        return (cost.mean_us(), cost.calls >= SAMPLE_MIN);
    }
    let trip = class.requests() * TRIP_US;
    let is_data = matches!(class.group(), Group::Reads | Group::Writes);
    let estimate = match class {
        Class::WritePartialFirst if way == Way::Mount => trip,
        _ if way != Way::Mount
            && is_data
            && class != Class::ReadFirstSmall
            && class != Class::ReadFirstLarge =>
        {
            IN_MEMORY_US
        }
        class if way == Way::Session && class.group() == Group::Syncs => IN_MEMORY_US,
        class => direct_us(class, basis).0 + trip,
    };
    (estimate, false)
}

/// The time between calls. Where nearly all of the recorded time is the recorder's, what is left is known badly: it is taken
/// to be the processor's time in user mode instead.
fn between_us(basis: &Basis, calls_us: f64) -> f64 {
    let weight = ((basis.recorder_share - 0.4) / 0.4).clamp(0.0, 1.0);
    let weight = if basis.user_us > 0.0 { weight } else { 0.0 };
    let left = (basis.wall_us - basis.observed_us.unwrap_or(calls_us)).max(0.0);
    left * (1.0 - weight) + basis.user_us * weight
}

/// Predicts one way. Without costs everything is estimated.
pub fn predict(basis: &Basis, way: Way, costs: Option<&WayCosts>) -> Prediction {
    let mut groups: BTreeMap<Group, (f64, f64)> = BTreeMap::new();
    let (mut certain, mut doubtful) = (0.0, 0.0);
    for (class, calls) in &basis.counts {
        let ((direct, direct_known), (weir, weir_known)) =
            (direct_us(*class, basis), weir_us(*class, basis, way, costs));
        // A whole plan in the sample needs no mean.
        let whole = costs.is_some_and(|costs| {
            costs.measured.costs.get(class).is_some_and(|cost| cost.calls >= *calls)
        });
        let calls = *calls as f64;
        let both = groups.entry(class.group()).or_default();
        both.0 += calls * direct;
        both.1 += calls * weir;
        let weight = calls * direct.max(weir);
        if (direct_known && weir_known) || whole { certain += weight } else { doubtful += weight }
    }
    let overlap = if basis.overlap > 0.0 { basis.overlap.min(1.0) } else { 1.0 };
    for both in groups.values_mut() {
        both.0 *= overlap;
        both.1 *= overlap;
    }
    let (calls_direct, calls_weir) =
        groups.values().fold((0.0, 0.0), |(direct, weir), both| (direct + both.0, weir + both.1));
    // Both sums of calls are of the same moments: what the disk took while the program was recorded may differ.
    let between = between_us(basis, calls_direct);
    let direct = (between + calls_direct).max(1.0);
    let starts = costs.map_or(0.0, |costs| costs.start_us * basis.starts as f64 + costs.once_us);
    let weir = between + calls_weir + starts;
    let mut doubts = basis.doubts.clone();
    let share = doubtful / (certain + doubtful).max(1.0);
    let matters = (certain + doubtful) / direct.max(weir);
    if costs.is_none() {
        doubts.push("Weir could not be tried here; its costs are estimated".to_owned());
    } else if share * matters > 0.25 {
        doubts.push(format!(
            "{:.0}% of the time in calls is estimated, or measured a few times only",
            share * 100.0
        ));
    }
    let percent = basis.recorder_share * 100.0;
    if basis.recorder_share > RECORDER_MOST {
        doubts.push(format!(
            "recording took {percent:.0}% of the time; what is between calls is hardly known"
        ));
    } else if basis.recorder_share > RECORDER_SOME {
        doubts.push(format!(
            "recording took {percent:.0}% of the time; what is between calls is known roughly"
        ));
    }
    doubts.extend(differs(basis, calls_direct, direct));
    if overlap < 0.8 {
        doubts.push(
            "calls of several processes overlap; how they delay each other is not modelled"
                .to_owned(),
        );
    }
    let guess = costs.is_none() || basis.recorder_share > RECORDER_MOST;
    let confidence = match (guess, doubts.len()) {
        (true, _) | (_, 3..) => Confidence::Low,
        (_, 0) => Confidence::High,
        _ => Confidence::Medium,
    };
    Prediction {
        way,
        ratio: direct / weir.max(1.0),
        direct_us: direct,
        weir_us: weir,
        groups,
        confidence,
        doubts,
    }
}

/// Whether calls took much longer, or less, when the piece was done again than when they were recorded.
fn differs(basis: &Basis, calls_us: f64, direct_us: f64) -> Option<String> {
    let observed = basis.observed_us.filter(|_| basis.direct.is_some())?;
    let (least, most) = (calls_us.min(observed), calls_us.max(observed));
    let matters = most - least > direct_us / 4.0;
    (matters && most > least * DIFFERS).then(|| {
        format!(
            "its calls took {:.1} ms when they were recorded, and would take {:.1} ms by those that were done again",
            observed / 1e3,
            calls_us / 1e3
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Cost;

    fn measured(costs: &[(Class, u64, f64)]) -> Measured {
        let costs = costs.iter().map(|(class, calls, mean)| {
            (*class, Cost { calls: *calls, total_us: mean * *calls as f64 })
        });
        Measured { costs: costs.collect(), ..Measured::default() }
    }

    fn basis() -> Basis {
        Basis {
            wall_us: 2_000_000.0,
            observed_us: Some(1_000_050.0),
            counts: BTreeMap::from([(Class::WritePartialFirst, 10_000), (Class::OpenFound, 10)]),
            overlap: 1.0,
            disk: Disk { read_us: 100.0, read_fast_us: 90.0, sync_us: 200.0, write_rate: 1e9 },
            direct: Some(measured(&[
                (Class::WritePartialFirst, 1000, 100.0),
                (Class::OpenFound, 10, 5.0),
            ])),
            ..Basis::default()
        }
    }

    #[test]
    fn what_is_between_calls_stays() {
        let costs = WayCosts {
            measured: measured(&[
                (Class::WritePartialFirst, 1000, 10.0),
                (Class::OpenFound, 10, 50.0),
            ]),
            ..WayCosts::default()
        };
        let found = predict(&basis(), Way::Mount, Some(&costs));
        // One second of two is waiting for pages; nine tenths of it go.
        assert_eq!(found.direct_us, 2_000_000.0);
        assert_eq!(found.weir_us, 1_100_450.0);
        assert_eq!(found.confidence, Confidence::High);
        let (direct, weir) = found.groups[&Group::Writes];
        assert_eq!((direct, weir), (1_000_000.0, 100_000.0));
    }

    #[test]
    fn starts_cost_and_estimates_are_doubted() {
        let mut basis = basis();
        basis.starts = 100;
        let costs = WayCosts { start_us: 1000.0, once_us: 500.0, ..WayCosts::default() };
        let found = predict(&basis, Way::Run, Some(&costs));
        assert!(found.weir_us > 1_100_000.0, "{}", found.weir_us);
        assert_eq!(found.confidence, Confidence::Medium);
        assert_eq!(predict(&basis, Way::Run, None).confidence, Confidence::Low);
    }

    #[test]
    fn what_the_recorder_hides_is_doubted() {
        let costs = WayCosts {
            measured: measured(&[
                (Class::WritePartialFirst, 1000, 10.0),
                (Class::OpenFound, 10, 50.0),
            ]),
            ..WayCosts::default()
        };
        for (share, wanted) in
            [(0.3, Confidence::High), (0.5, Confidence::Medium), (0.89, Confidence::Low)]
        {
            let basis = Basis { recorder_share: share, user_us: 1_000_000.0, ..basis() };
            assert_eq!(predict(&basis, Way::Mount, Some(&costs)).confidence, wanted, "{share}");
        }
        // Done again, its calls take one second; recorded, they took a fifth of it.
        let basis = Basis { observed_us: Some(200_000.0), ..basis() };
        let found = predict(&basis, Way::Mount, Some(&costs));
        assert_eq!(found.confidence, Confidence::Medium);
        assert!(found.doubts[0].contains("done again"), "{:?}", found.doubts);
    }

    #[test]
    fn a_program_that_waits_for_nothing_becomes_slower() {
        let basis = Basis {
            wall_us: 30_000.0,
            counts: BTreeMap::from([(Class::OpenNew, 1000)]),
            direct: Some(measured(&[(Class::OpenNew, 1000, 20.0)])),
            ..Basis::default()
        };
        let costs =
            WayCosts { measured: measured(&[(Class::OpenNew, 1000, 90.0)]), ..WayCosts::default() };
        assert!(predict(&basis, Way::Mount, Some(&costs)).ratio < 0.4);
    }
}
