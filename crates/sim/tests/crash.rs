//! Power cuts under many seeds.

use weir_sim::crash::{self, Plan, Tally};

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
    for seed in 1000..1024 {
        tally.add(&run(seed, 8, 500, 40));
    }
    println!("{tally:?}");
    assert!(tally.cuts > 2_000 && tally.syncs > 2_000, "{tally:?}");
    assert!(tally.spilled > 2_000 && tally.log_reads > 500, "{tally:?}");
}

/// What is found is the log's: without one, on homes that work, nothing is ever taken back, lost or invented.
#[test]
fn the_model_finds_nothing_where_nothing_is_logged() {
    let mut tally = Tally::default();
    for seed in 2000..2012 {
        let plan = Plan { logged: false, homes_fail: false, ..Plan::new(3, 150, 1) };
        tally.add(&run_plan(seed, &plan));
    }
    println!("{tally:?}");
    assert!(tally.groups == 0 && tally.syncs > 300, "{tally:?}");
    assert!(tally.kills > 3_000 && tally.cuts - tally.kills > 3_000, "{tally:?}");
    assert!(tally.idle_cuts > 20, "{tally:?}");
}
