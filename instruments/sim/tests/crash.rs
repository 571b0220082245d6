//! Power cuts under many seeds.

use weir_sim::crash::{self, Broken, Homes, Plan, Tally, Undo};

/// A seed's run, or where it failed and how to run it again.
fn run(seed: u64, lives: u32, operations: u32, sparse: u64) -> Tally {
    run_plan(seed, &Plan::new(lives, operations, sparse))
}

fn run_plan(seed: u64, plan: &Plan) -> Tally {
    let mut tally = Tally::default();
    match crash::run(seed, plan, &mut tally) {
        Ok(()) => tally,
        Err(broken) => panic!("seed {seed}, after {} crashes: {broken}", tally.cuts),
    }
}

#[test]
fn what_was_synced_survives_a_cut_at_any_request() {
    let mut tally = Tally::default();
    for seed in 0..16 {
        tally.add(&run(seed, 3, 150, 1));
    }
    println!("{tally:?}");
    assert!(tally.cuts > 20_000, "{tally:?}");
    assert!(tally.recovery_cuts > 500, "{tally:?}");
    assert!(tally.syncs > 1_000 && tally.checkpoints > 20, "{tally:?}");
}

#[test]
fn what_spilled_is_not_lost_either() {
    let mut tally = Tally::default();
    for seed in 1000..1030 {
        tally.add(&run(seed, 8, 500, 40));
    }
    println!("{tally:?}");
    assert!(tally.cuts > 2_000 && tally.syncs > 2_000, "{tally:?}");
    assert!(tally.spilled > 2_000 && tally.log_reads > 500, "{tally:?}");
}

/// What `weir-bucket` promises: a failed sync loses nothing, and later ones succeed, whatever is in the log.
#[test]
fn where_home_keeps_what_it_could_not_sync_syncs_succeed_when_it_works_again() {
    let mut tally = Tally::default();
    for (seed, lives, operations, sparse) in [(4000, 3, 150, 1), (4100, 8, 500, 40)] {
        for seed in seed..seed + 12 {
            let plan = Plan { homes: Homes::Keep, ..Plan::new(lives, operations, sparse) };
            tally.add(&run_plan(seed, &plan));
        }
    }
    println!("{tally:?}");
    assert!(tally.cuts > 10_000 && tally.failed_home_syncs > 500, "{tally:?}");
    assert!(tally.later_syncs > 300, "{tally:?}");
}

/// Violations come from the log: without a log, on homes that work, there are none.
#[test]
fn the_model_finds_no_violation_without_a_log() {
    let mut tally = Tally::default();
    for seed in 2000..2004 {
        let plan =
            Plan { logged: false, homes: Homes::Work, logs_fail: false, ..Plan::new(3, 150, 1) };
        tally.add(&run_plan(seed, &plan));
    }
    println!("{tally:?}");
    assert!(tally.groups == 0 && tally.syncs > 100, "{tally:?}");
    assert!(tally.kills > 1_000 && tally.cuts - tally.kills > 1_000, "{tally:?}");
    assert!(tally.idle_cuts > 10, "{tally:?}");
}

/// The first seed with a violation of the wanted kind, among those of 10,000 crashes.
fn found(undone: Undo, is_wanted: impl Fn(&Broken) -> bool) -> Option<u64> {
    let plan = Plan { undone: vec![undone], ..Plan::new(3, 150, 1) };
    let mut tally = Tally::default();
    for seed in 3000.. {
        let result = crash::run(seed, &plan, &mut tally);
        if tally.cuts > 10_000 {
            break;
        }
        if let Err(broken) = result
            && is_wanted(&broken)
        {
            println!(
                "without {}: seed {seed}, after {} crashes: {broken}",
                undone.name(),
                tally.cuts
            );
            return Some(seed);
        }
    }
    None
}

#[test]
fn the_absence_of_each_safeguard_is_detected() {
    for undone in [Undo::Supersede, Undo::Cut] {
        assert!(found(undone, Broken::is_taken_back).is_some(), "{}", undone.name());
    }
    assert!(found(Undo::HomeSync, Broken::is_lost).is_some(), "{}", Undo::HomeSync.name());
}
