//! From what each repetition found to the figures of a case: medians, ratios within a round,
//! spread.

use crate::error::{Error, Result};
use crate::measure::{median, spread};
use crate::nbw::plan::Cell;
use crate::nbw::results::{Case, Class, DiskUse, Experiment, Phase, Phases, Round};
use crate::stage::{Contestant, Observed};
use crate::workload::{ALL, ClassOutcome, Outcome};

/// One repetition of one contestant, its ratios still to be filled in.
///
/// # Errors
/// The load ended without a single operation: there is nothing to compare.
pub fn round(outcome: &Outcome, observed: &Observed) -> Result<Round> {
    let all = outcome
        .class(ALL)
        .ok_or_else(|| Error::answer("the load", "it did not get through a single operation"))?;
    let weir = observed.weir.unwrap_or_default();
    Ok(Round {
        seconds: outcome.seconds,
        ops_per_s: all.ops_per_s,
        mean_us: all.mean_us,
        p50_us: all.p50_us,
        p99_us: all.p99_us,
        fetches: weir.fetched_pages,
        blocked_writes: weir.blocked_writes(),
        device_reads: observed.device.reads,
        device_writes: observed.device.writes,
        device_seeks: observed.device.seeks,
        classes: outcome.classes.iter().filter(|one| one.class != ALL).map(class).collect(),
        ratio_to_blocking: f64::NAN,
        ..Round::default()
    })
}

fn class(outcome: &ClassOutcome) -> Class {
    Class {
        class: outcome.class.clone(),
        ops: outcome.ops,
        ops_per_s: outcome.ops_per_s,
        mean_us: outcome.mean_us,
        p50_us: outcome.p50_us,
        p99_us: outcome.p99_us,
        max_us: outcome.max_us,
        ratio_to_blocking: f64::NAN,
    }
}

/// The cases of a cell from the repetitions of its contestants, ext4's first: `rounds[i]` are those
/// of `cell.contestants[i]`, as many for each.
pub fn cases(cell: &Cell, mut rounds: Vec<Vec<Round>>) -> Vec<Case> {
    assert_eq!(rounds.len(), cell.contestants.len());
    assert_eq!(cell.contestants[0], Contestant::Ext4);
    let baseline = rounds[0].clone();
    for of_contestant in &mut rounds {
        assert_eq!(of_contestant.len(), baseline.len(), "every contestant runs in every round");
        for (own, ext4) in of_contestant.iter_mut().zip(&baseline) {
            compare(cell.experiment, own, ext4);
        }
    }
    cell.contestants.iter().zip(rounds).map(|(who, rounds)| case(cell, *who, rounds)).collect()
}

fn compare(experiment: Experiment, own: &mut Round, ext4: &Round) {
    own.ratio_to_blocking = match experiment {
        Experiment::Personality | Experiment::Memory | Experiment::Spill => {
            ratio(own.ops_per_s, ext4.ops_per_s)
        }
        Experiment::FileServer | Experiment::Trace => ratio(ext4.mean_us, own.mean_us),
        Experiment::SideBySide | Experiment::Setting | Experiment::Macro => {
            let rate =
                |round: &Round| Class::leading(&round.classes).map_or(0.0, |it| it.ops_per_s);
            ratio(rate(own), rate(ext4))
        }
    };
    for class in &mut own.classes {
        let theirs = ext4.classes.iter().find(|theirs| theirs.class == class.class);
        class.ratio_to_blocking = theirs.map_or(0.0, |theirs| ratio(theirs.mean_us, class.mean_us));
    }
    if let Some(phases) = &mut own.phases {
        for phase in std::iter::once(&mut phases.until_full).chain(&mut phases.after) {
            phase.ratio_to_blocking = ratio(phase.ops_per_s, ext4.ops_per_s);
        }
    }
}

/// Zero where there is nothing to compare: JSON has no NaN.
fn ratio(above: f64, below: f64) -> f64 {
    if below > 0.0 { above / below } else { 0.0 }
}

fn case(cell: &Cell, contestant: Contestant, mut rounds: Vec<Round>) -> Case {
    // One shows how it goes, and all of them would be most of the file.
    rounds.iter_mut().skip(1).for_each(|round| round.over_time = None);
    let of = |get: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(get).collect::<Vec<_>>());
    let count = |get: &dyn Fn(&Round) -> u64| of(&|round| get(round) as f64).round() as u64;
    let ratios = spread(rounds.iter().map(|round| round.ratio_to_blocking));
    let classes = rounds[0].classes.iter().map(|first| {
        let of_class = |get: &dyn Fn(&Class) -> f64| {
            let same = |round: &Round| {
                round.classes.iter().find(|class| class.class == first.class).map(get)
            };
            median(&rounds.iter().filter_map(same).collect::<Vec<_>>())
        };
        Class {
            class: first.class.clone(),
            ops: of_class(&|class| class.ops as f64).round() as u64,
            ops_per_s: of_class(&|class| class.ops_per_s),
            mean_us: of_class(&|class| class.mean_us),
            p50_us: of_class(&|class| class.p50_us),
            p99_us: of_class(&|class| class.p99_us),
            max_us: of_class(&|class| class.max_us),
            ratio_to_blocking: of_class(&|class| class.ratio_to_blocking),
        }
    });
    Case {
        name: cell.name.clone(),
        experiment: cell.experiment,
        workload: cell.label.clone(),
        disk: cell.disk,
        size_bytes: cell.size_bytes,
        memory_bytes: cell.memory_bytes,
        contestant: contestant.name(),
        ops_per_s: of(&|round| round.ops_per_s),
        mean_us: of(&|round| round.mean_us),
        p50_us: of(&|round| round.p50_us),
        p99_us: of(&|round| round.p99_us),
        fetches: count(&|round| round.fetches),
        blocked_writes: count(&|round| round.blocked_writes),
        device_reads: count(&|round| round.device_reads),
        device_writes: count(&|round| round.device_writes),
        ratio_to_blocking: of(&|round| round.ratio_to_blocking),
        ratio_spread: ratios.map_or([f64::INFINITY, 0.0], |(least, most)| [least, most]),
        bound_ops_per_s: None,
        phases: phases(&rounds),
        disk_use: disk_use(&rounds),
        classes: classes.collect(),
        rounds,
    }
}

/// The medians of what the rounds had the disk do.
fn disk_use(rounds: &[Round]) -> Option<DiskUse> {
    let all: Vec<&DiskUse> = rounds.iter().filter_map(|round| round.disk_use.as_ref()).collect();
    let of = |get: fn(&DiskUse) -> f64| median(&all.iter().map(|one| get(one)).collect::<Vec<_>>());
    (!all.is_empty()).then(|| DiskUse {
        read_bytes: of(|one| one.read_bytes),
        written_bytes: of(|one| one.written_bytes),
        left_writes: of(|one| one.left_writes),
        left_bytes: of(|one| one.left_bytes),
        requests_a_thousand: of(|one| one.requests_a_thousand),
    })
}

/// The medians of the rounds' phases, each over the rounds that had it.
fn phases(rounds: &[Round]) -> Option<Phases> {
    let all: Vec<&Phases> = rounds.iter().filter_map(|round| round.phases.as_ref()).collect();
    let first = all.first()?;
    let until_full = all.iter().map(|phases| &phases.until_full).collect::<Vec<_>>();
    let after: Vec<&Phase> = all.iter().filter_map(|phases| phases.after.as_ref()).collect();
    Some(Phases {
        until_full: phase(&until_full),
        after: (!after.is_empty()).then(|| phase(&after)),
        after_bound_ops_per_s: first.after_bound_ops_per_s,
    })
}

fn phase(rounds: &[&Phase]) -> Phase {
    let of = |get: &dyn Fn(&Phase) -> f64| {
        median(&rounds.iter().map(|phase| get(phase)).collect::<Vec<_>>())
    };
    Phase {
        seconds: of(&|phase| phase.seconds),
        ops_per_s: of(&|phase| phase.ops_per_s),
        ratio_to_blocking: of(&|phase| phase.ratio_to_blocking),
    }
}

/// What a round had the disk do.
pub fn disk_use_of(outcome: &Outcome, observed: &Observed) -> DiskUse {
    let (device, left) = (&observed.device, &observed.left);
    let operations = outcome.class(ALL).map_or(0, |all| all.ops).max(1);
    let requests = device.reads + device.writes + left.writes;
    DiskUse {
        read_bytes: device.read_bytes as f64,
        written_bytes: device.written_bytes as f64,
        left_writes: left.writes as f64,
        left_bytes: left.written_bytes as f64,
        requests_a_thousand: requests as f64 * 1e3 / operations as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::plan::{self, Filter};
    use crate::nbw::profile::Form;

    fn round_of(ops_per_s: f64, mean_us: f64) -> Round {
        let class =
            Class { class: "write".into(), ops: 10, ops_per_s, mean_us, ..Class::default() };
        Round { seconds: 1.0, ops_per_s, mean_us, classes: vec![class], ..Round::default() }
    }

    fn cell(name: &str) -> Cell {
        let filter = Filter { names: vec![name.into()], ..Filter::default() };
        let form = Form::Quick;
        let mut cell = plan::cells(form, &form.profile(), &filter).remove(0);
        cell.contestants.truncate(2);
        cell
    }

    #[test]
    fn a_ratio_is_of_one_round_and_the_case_has_their_median() {
        let ext4 = [100.0, 50.0, 100.0].map(|ops| round_of(ops, 1e4));
        let weir = [1000.0, 1000.0, 4000.0].map(|ops| round_of(ops, 1e3));
        let cases = cases(&cell("hdd/random-write/128"), vec![ext4.into(), weir.into()]);
        assert_eq!(cases[0].ratio_to_blocking, 1.0);
        assert_eq!(cases[1].ratio_to_blocking, 20.0);
        assert_eq!(cases[1].ratio_spread, [10.0, 40.0]);
        assert_eq!(cases[1].ops_per_s, 1000.0);
        assert_eq!(cases[1].classes[0].ratio_to_blocking, 10.0);
    }

    #[test]
    fn a_paced_load_is_judged_by_its_latency() {
        let rounds = vec![vec![round_of(100.0, 300.0)], vec![round_of(100.0, 100.0)]];
        let cases = cases(&cell("hdd/file-server"), rounds);
        assert_eq!(cases[1].ratio_to_blocking, 3.0);
    }
}
