//! Power cuts under many seeds.

use weir_sim::crash::{self, Tally};

/// A seed's run, or where it failed and how to run it again.
fn run(seed: u64, lives: u32, operations: u32, sparse: u64) -> Tally {
    crash::run(seed, lives, operations, sparse)
        .unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))
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
