//! What sweeps promise, mostly on a rotational disk: few seeks, short waits for readers, writers served in order, and old
//! data goes home.

use std::time::Duration;

use weir_engine::{Config, FetchPolicy, PAGE_BYTES, PageState, Urgency, WriteBackPolicy};
use weir_sim::{Action, FILE, Home, Latency, Load, Rng};

const PAGE: u64 = PAGE_BYTES as u64;

/// 32 MB, twice what has a place in memory.
const PAGES: u64 = 8192;

/// A file on a disk with a seek time of 10 ms that transfers 100 MB/s.
fn on_rotational(pages: u64, set: impl FnOnce(&mut Config)) -> Load {
    on_drive(Latency::OneArm(10_000_000, 40_000), pages, set)
}

/// A file on a disk of this kind.
fn on_drive(latency: Latency, pages: u64, set: impl FnOnce(&mut Config)) -> Load {
    let bytes = Rng::new(7).bytes((pages * PAGE) as usize);
    Load::over(Home::new(bytes, &[], 512, true), |world| {
        world.device.latency = latency;
        world.engine.fetch_policy = FetchPolicy::Lazy;
        world.engine.patch_bytes_max = 256 << 10;
        world.check_every = 100;
        set(&mut world.engine);
    })
}

/// Random small writes, each begun when the one before is taken; how long they took.
fn scribble(load: &mut Load, writes: u64, rng: &mut Rng) -> Duration {
    let begun = load.world.now();
    for _ in 0..writes {
        load.write(rng.below(PAGES) * PAGE + rng.below(3900), 128);
        load.drain();
    }
    load.world.now().since(begun)
}

#[test]
fn random_small_writes_seldom_move_the_arm() {
    const WRITES: u64 = 4000;
    let mut rng = Rng::new(1);
    let mut blocking = on_rotational(PAGES, |config| config.fetch_policy = FetchPolicy::Blocking);
    let waited = scribble(&mut blocking, WRITES, &mut rng);
    for policy in [FetchPolicy::Lazy, FetchPolicy::Auto, FetchPolicy::AsyncBackground] {
        let mut load = on_rotational(PAGES, |config| config.fetch_policy = policy);
        let took = scribble(&mut load, WRITES, &mut Rng::new(1));
        let (moved, moved_blocking) =
            (load.world.device().arm_moved(), blocking.world.device().arm_moved());
        assert!(10 * moved <= moved_blocking, "{policy:?}: {moved} moves, not {moved_blocking}");
        assert!(10 * took <= waited, "{policy:?}: {took:?}, not {waited:?}");
        let stats = load.stats();
        assert_eq!(stats.writers_blocked_fetch, 0);
        assert!(stats.gap_pages > 0);
        load.finish();
    }
    blocking.finish();
}

/// Patch memory is large, as by default in a small memory, and adds much to what is dirty.
#[test]
fn adaptive_write_back_takes_random_small_writes_no_more_slowly_than_static() {
    for (latency, rotational) in
        [(Latency::OneArm(10_000_000, 40_000), true), (Latency::Flash(100_000, 10_000_000), false)]
    {
        let took = |policy| {
            let mut load = on_drive(latency, PAGES, |config| {
                config.rotational = rotational;
                config.patch_bytes_max = 4 << 20;
                config.write_back = policy;
                if policy == WriteBackPolicy::Adaptive {
                    config.dirty_hard_percent = Config::DIRTY_HARD_PERCENT_ADAPTIVE;
                }
            });
            scribble(&mut load, 100_000, &mut Rng::new(3))
        };
        let (fixed, adaptive) = (took(WriteBackPolicy::Static), took(WriteBackPolicy::Adaptive));
        assert!(adaptive <= fixed, "rotational {rotational}: {adaptive:?} instead of {fixed:?}");
    }
}

#[test]
fn whole_units_are_fetched_where_that_frees_patch_memory_sooner_than_writing_them() {
    const WRITES: u64 = 1500;
    let mut load = on_drive(Latency::Flash(75_000, 300_000), PAGES, |_| {});
    let mut rng = Rng::new(6);
    let begun = load.world.now();
    for _ in 0..WRITES {
        load.write(rng.below(PAGES) * PAGE + 512 * rng.below(7), 512);
        load.drain();
    }
    let took = load.world.now().since(begun);
    assert!(took < Duration::from_micros(WRITES * 300 / 2), "{took:?}: as slow as the writes");
    load.finish();
}

#[test]
fn a_sync_of_scattered_patches_reads_through_the_gaps() {
    let mut load = on_rotational(PAGES, |_| {});
    // Shows the device's ways.
    for page in [PAGES - 1, PAGES / 2] {
        load.read(page * PAGE, 1);
        load.drain();
    }
    let before = load.stats().fetch_commands;
    for page in (0..1000).step_by(10) {
        load.write(page * PAGE + 100, 100);
    }
    load.act(Action::Sync { file: FILE, durability: weir_engine::Durability::All });
    let fetches = load.fetches();
    assert!(fetches.iter().all(|&(_, urgency)| urgency == Urgency::Waited), "{fetches:?}");
    let commands = load.stats().fetch_commands - before;
    assert!(commands <= 12, "100 pages in {commands} requests");
    load.drain();
    assert_eq!(load.stats().fetched_pages, 102, "what lies between is counted apart");
    load.finish();
}

#[test]
fn a_reader_waits_for_little_more_than_its_own_page() {
    let mut load = on_rotational(PAGES, |_| {});
    let mut rng = Rng::new(2);
    let mut longest = Duration::ZERO;
    let mut total = Duration::ZERO;
    scribble(&mut load, 1500, &mut rng);
    const READS: u32 = 200;
    for _ in 0..READS {
        // Writers that wait keep sweeps going.
        for _ in 0..4 {
            load.write(rng.below(PAGES) * PAGE + rng.below(3900), 128);
        }
        let page = loop {
            let page = rng.below(PAGES);
            if load.state(page) == PageState::Absent {
                break page;
            }
        };
        let begun = load.world.now();
        load.read(page * PAGE, 10);
        while load.state(page) != PageState::UpToDate {
            load.act(Action::Advance { events: 1 });
        }
        let took = load.world.now().since(begun);
        longest = longest.max(took);
        total += took;
    }
    assert!(longest <= Duration::from_millis(150), "a reader waited {longest:?}");
    assert!(total / READS <= Duration::from_millis(40), "readers waited {:?}", total / READS);
    load.finish();
}

#[test]
fn writers_that_wait_for_patch_memory_are_served_in_order() {
    let mut load = on_rotational(PAGES, |_| {});
    let mut rng = Rng::new(3);
    let mut waited = 0;
    for _ in 0..3000 {
        load.write(rng.below(PAGES) * PAGE + rng.below(2000), 1000);
        waited = load.waiting().max(waited);
    }
    assert!(waited > 1000, "{waited} writers wait");
    let mut oldest = load.world.oldest_waiting();
    while let Some(request) = oldest {
        let before = load.waiting();
        load.act(Action::Advance { events: 1 });
        let answered = before - load.waiting();
        oldest = load.world.oldest_waiting();
        // Those answered are the oldest ones, without an exception.
        let expected = request.0 + answered as u64;
        assert!(oldest.is_none_or(|oldest| oldest.0 == expected), "{oldest:?} after {request:?}");
    }
    load.finish();
}

#[test]
fn what_is_old_goes_home_however_much_is_written_elsewhere() {
    // All over the file with memory to spare; and mostly to a few pages, where little may be dirty.
    for (hard, pause_ms, hot) in [(50, 20, 0), (6, 3, 900)] {
        let mut load = on_rotational(PAGES, |config| {
            config.dirty_expire = Duration::from_secs(5);
            config.patch_bytes_max = 256 << 10;
            config.dirty_background_percent = hard / 2;
            config.dirty_hard_percent = hard;
        });
        let mut rng = Rng::new(4);
        let end = load.world.now() + Duration::from_secs(60);
        let mut oldest_ms = 0;
        while load.world.now() < end {
            let page = if rng.chance(hot) { rng.below(200) } else { rng.below(PAGES) };
            load.write(page * PAGE + rng.below(3900), 100);
            load.drain();
            load.sleep(pause_ms);
            oldest_ms = oldest_ms.max(load.stats().oldest_dirty_ms);
        }
        // One sweep through everything that became dirty meanwhile: to fetch it, and to write it.
        assert!((5_000..10_000).contains(&oldest_ms), "something was dirty for {oldest_ms} ms");
        load.finish();
    }
}

#[test]
fn pages_between_patched_ones_are_dropped_when_frames_are_short() {
    let mut load = on_rotational(PAGES, |_| {});
    let mut rng = Rng::new(5);
    // What programs use fills memory.
    let hot: Vec<u64> = (0..2500).collect();
    for _ in 0..2 {
        for chunk in hot.chunks(50) {
            load.read(chunk[0] * PAGE, 50 * PAGE);
            load.drain();
        }
    }
    for _ in 0..2000 {
        load.write((4000 + rng.below(4000)) * PAGE + rng.below(3900), 128);
        load.drain();
    }
    assert!(load.stats().gap_pages > 1000);
    let kept = hot.iter().filter(|&&page| load.state(page) == PageState::UpToDate).count();
    assert!(kept > 1000, "{kept} of {} pages are left", hot.len());
    load.finish();
}

#[test]
fn clean_pages_between_dirty_ones_go_home_with_them_but_holes_stay_holes() {
    for hole in [false, true] {
        let mut bytes = Rng::new(5).bytes(5 * PAGE as usize);
        if hole {
            bytes[PAGE as usize..2 * PAGE as usize].fill(0);
        }
        let holes: &[u64] = if hole { &[1] } else { &[] };
        let mut load = Load::over(Home::new(bytes, holes, 512, true), |world| {
            world.engine.fetch_policy = FetchPolicy::Lazy;
            world.engine.rotational = true;
        });
        load.read(0, 5 * PAGE);
        load.drain();
        load.write(10, 20);
        load.write(2 * PAGE + 10, 20);
        load.drain();
        assert_eq!(load.sync(), Ok(()));
        let stats = load.finish();
        let expected = if hole { (2, 0) } else { (1, 1) };
        assert_eq!((stats.destage_commands, stats.gap_pages_written), expected, "hole {hole}");
        assert_eq!(
            (stats.dirtied_pages, stats.cleaned_pages),
            (2, 2),
            "no program wrote the others"
        );
    }
}

/// Whole pages at random places, so many that a third of the file is dirty, and how many requests bring them home.
fn requests_for_scattered_pages(opportunistic: bool) -> u64 {
    const STRETCH: u64 = 2048;
    let mut load = on_rotational(STRETCH, |config| {
        (config.rotational, config.opportunistic) = (true, opportunistic);
        config.dirty_expire = Duration::from_secs(2);
    });
    // Shows the device's ways: what an access costs, and what a page.
    for page in [STRETCH - 1, STRETCH / 2] {
        load.read(page * PAGE, 1);
        load.drain();
    }
    load.read(0, 64 * PAGE);
    load.drain();
    let mut rng = Rng::new(5);
    for _ in 0..STRETCH * 2 / 5 {
        load.write(rng.below(STRETCH) * PAGE, PAGE);
        load.drain();
    }
    let before = load.stats();
    while load.stats().dirty_pages > 0 {
        load.sleep(100);
    }
    let after = load.stats();
    assert_eq!(after.windows > 0, opportunistic);
    assert!(after.fetch_errors + after.destage_errors == 0);
    load.finish();
    (after.fetch_commands - before.fetch_commands)
        + (after.destage_commands - before.destage_commands)
}

#[test]
fn a_window_with_many_dirty_pages_is_read_and_written_whole() {
    let (alone, together) =
        (requests_for_scattered_pages(false), requests_for_scattered_pages(true));
    assert!(10 * together <= alone, "{together} requests instead of {alone}");
}

#[test]
fn dirty_pages_that_the_arm_passes_are_written_too() {
    let mut load =
        on_rotational(PAGES, |config| (config.rotational, config.opportunistic) = (true, true));
    // Where the file is gets known; the device of this load has it in small pieces.
    load.read((PAGES - 1) * PAGE, 1);
    load.drain();
    for page in 0..200 {
        load.write(page * 17 % PAGES * PAGE, PAGE);
    }
    for nth in 0..200 {
        load.read((3 + nth * 41) % PAGES * PAGE, 1);
        load.drain();
    }
    let stats = load.stats();
    assert!(stats.destages_along > 0 && stats.pages_along >= stats.destages_along);
    assert_eq!(stats.destages_aged + stats.destages_pressed, 0, "nothing was due");
    load.finish();
}

/// A file with a hole whose place is not known: clean pages between dirty ones must not be written.
#[test]
fn a_window_that_must_not_be_written_whole_goes_home_in_pieces() {
    const STRETCH: u64 = 64;
    let mut bytes = Rng::new(7).bytes((PAGES * PAGE) as usize);
    bytes[((PAGES - 1) * PAGE) as usize..].fill(0);
    let mut load = Load::over(Home::new(bytes, &[PAGES - 1], 512, true), |world| {
        world.device.latency = Latency::OneArm(10_000_000, 40_000);
        (world.engine.rotational, world.engine.opportunistic) = (true, true);
        world.engine.dirty_expire = Duration::from_secs(1);
    });
    for page in [PAGES - 2, PAGES / 2] {
        load.read(page * PAGE, 1);
        load.drain();
    }
    load.read(0, STRETCH * PAGE);
    load.drain();
    for page in (0..STRETCH).step_by(2) {
        load.write(page * PAGE, PAGE);
        load.drain();
    }
    load.sleep(10_000);
    let stats = load.stats();
    assert_eq!(stats.dirty_pages, 0, "all of it came home");
    assert_eq!(stats.gap_pages_written, 0);
    load.finish();
}
