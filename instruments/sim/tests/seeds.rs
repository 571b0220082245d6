//! The simulator over many seeds: no run may diverge from the model, and none may differ from
//! itself. `WEIR_SEEDS=A..B` chooses other seeds.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use weir_sim::{Options, run};

/// Seeds of an ordinary run.
const SEEDS: Range<u64> = 0..2500;

/// One seed in so many is run twice.
const TWICE: u64 = 16;

fn chosen() -> Range<u64> {
    let Ok(text) = std::env::var("WEIR_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("WEIR_SEEDS is written A..B");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn no_seed_diverges_from_the_model() {
    let seeds = chosen();
    let (next, operations) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let (paced, ghost_hits, ghost_misses) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let lane_hits = AtomicU64::new(0);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let first = run(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
            operations.fetch_add(u64::from(first.operations), Ordering::Relaxed);
            paced.fetch_add(first.stats.writers_paced, Ordering::Relaxed);
            ghost_hits.fetch_add(first.stats.ghost_hits, Ordering::Relaxed);
            ghost_misses.fetch_add(first.stats.ghost_misses, Ordering::Relaxed);
            lane_hits.fetch_add(first.lane_hits, Ordering::Relaxed);
            if seed.is_multiple_of(TWICE) {
                let second = run(seed, Options::default());
                let second =
                    second.unwrap_or_else(|failure| panic!("not the first time: {failure}"));
                assert_eq!(first.hash, second.hash, "seed {seed} is not deterministic");
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (count, operations) = (seeds.end - seeds.start, operations.into_inner());
    // Not through the test harness, which would keep it to itself.
    writeln!(io::stderr(), "{count} seeds, {operations} operations, no divergence").unwrap();
    let reached = [paced, ghost_hits, ghost_misses].map(AtomicU64::into_inner);
    if count >= 1000 {
        let hits = lane_hits.into_inner();
        assert!(hits > 100 * count, "programs found {hits} pages in the lane");
        assert!(reached.iter().all(|&times| times > 100), "adaptive write-back did {reached:?}");
    }
    assert!(operations >= 150 * count, "a run is a few hundred operations");
}
