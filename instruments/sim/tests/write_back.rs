//! What adaptive write-back promises: it begins at the high watermark and stops at the low one, leaves
//! readers their memory, paces writers instead of stopping them, and recovers from a device that
//! stalls.

use std::time::Duration;

use weir_engine::{Config, ErrorKind, FetchPolicy, PAGE_BYTES, Stats, WriteBackPolicy};
use weir_sim::{Action, Fault, Faults, Home, Latency, Load, Rng};

const PAGE: u64 = PAGE_BYTES as u64;

/// A file of 8 MiB, half of what has a place in memory, and room to grow.
const PAGES: u64 = 2048;

/// Adaptive write-back over a device with these times.
fn adaptive(latency: Latency, set: impl FnOnce(&mut Config)) -> Load {
    let bytes = Rng::new(7).bytes((PAGES * PAGE) as usize);
    Load::over(Home::new(bytes, &[], 512, true), |world| {
        world.device.latency = latency;
        world.engine.write_back = WriteBackPolicy::Adaptive;
        world.engine.dirty_hard_percent = Config::DIRTY_HARD_PERCENT_ADAPTIVE;
        world.engine.fetch_policy = FetchPolicy::Lazy;
        world.engine.dirty_expire = Duration::from_secs(3600);
        world.check_every = 100;
        set(&mut world.engine);
    })
}

/// As far as is known then, the device writes a few pages a second.
fn write_home_slowly(load: &mut Load) {
    for page in 0..5 {
        load.write(page * PAGE, PAGE);
    }
    assert_eq!(load.sync(), Ok(()));
    load.write(0, PAGE);
    load.sleep(1100);
    assert_eq!(load.stats().cleaned_last_interval, 5);
}

/// Whole pages, so many a second, in order from `from` on; then the second is over.
fn write_for_a_second(load: &mut Load, from: u64, pages: u64) {
    const SLICES: u64 = 20;
    for slice in 0..SLICES {
        for page in from + slice * pages / SLICES..from + (slice + 1) * pages / SLICES {
            load.write(page % (4 * PAGES) * PAGE, PAGE);
        }
        load.sleep(1000 / SLICES);
    }
}

fn marks(stats: &Stats) -> (u64, u64, u64) {
    (stats.watermark_low_pages, stats.watermark_high_pages, stats.watermark_max_pages)
}

#[test]
fn write_back_begins_at_the_high_watermark_and_stops_at_the_low_one() {
    let mut load = adaptive(Latency::Fixed(1_000_000), |config| config.transfer_pages_max = 8);
    let (low, high, _) = marks(&load.stats());
    assert!(0 < low && low < high);
    // Nothing is sampled yet: the watermarks stay.
    for page in 0..high - 1 {
        load.write(page * PAGE, PAGE);
    }
    assert_eq!(load.stats().destage_commands, 0, "below the high watermark");
    load.write(high * PAGE, PAGE);
    assert!(load.stats().destage_commands > 0, "at the high watermark");
    load.sleep(500);
    let stats = load.stats();
    assert_eq!(stats.destages_in_flight, 0);
    assert!((low - 8..low).contains(&stats.dirty_memory_pages), "{stats:?}");
    // Nor does it begin again before the high one.
    for page in 0..high - low - 8 {
        load.write((2 * high + page) * PAGE, PAGE);
    }
    assert_eq!(load.stats().destages_in_flight, 0);
    load.finish();
}

#[test]
fn a_steady_load_keeps_its_watermarks_and_goes_home_in_batches() {
    let mut load = adaptive(Latency::Fixed(1_000_000), |_| {});
    let (_, high, max) = marks(&load.stats());
    for second in 0..20 {
        write_for_a_second(&mut load, second * 500, 500);
        let stats = load.stats();
        // Samples begin and end between slices.
        assert!(
            (high * 9 / 10..=high * 11 / 10).contains(&stats.watermark_high_pages),
            "{stats:?}"
        );
        assert!(stats.dirty_memory_pages <= high * 11 / 10, "{stats:?}");
        assert_eq!(stats.watermark_max_pages, max);
    }
    let stats = load.stats();
    // 10,000 pages in transfers of what lies between the watermarks, or of the most one takes.
    let (low, high, _) = marks(&stats);
    let batch = (high - low).min(256);
    assert!(stats.destage_commands <= 3 * 10_000 / batch, "{stats:?}");
    assert_eq!((stats.writers_throttled, stats.writers_paced), (0, 0));
    load.finish();
}

#[test]
fn a_burst_lowers_the_watermarks_and_quiet_raises_them() {
    let mut load = adaptive(Latency::Fixed(1_000_000), |config| config.transfer_pages_max = 8);
    write_for_a_second(&mut load, 0, 100);
    write_for_a_second(&mut load, 100, 100);
    let calm = load.stats().watermark_high_pages;
    write_for_a_second(&mut load, 200, 1000);
    load.sleep(10);
    let busy = load.stats().watermark_high_pages;
    assert_eq!(busy, calm / 2, "ten times the rate: a halving");
    load.sleep(10_000);
    let stats = load.stats();
    assert!(stats.dirty_memory_pages > 0);
    assert_eq!(stats.watermark_high_pages, stats.watermark_max_pages, "nothing is written");
    // With nothing dirty nobody looks: the next write finds what time has done.
    write_for_a_second(&mut load, 1200, 1000);
    assert_eq!(load.sync(), Ok(()));
    load.sleep(1_000_000);
    load.write(0, PAGE);
    load.sleep(10);
    let stats = load.stats();
    assert_eq!(stats.watermark_high_pages, stats.watermark_max_pages);
    load.finish();
}

#[test]
fn an_idle_engine_asks_for_no_tick() {
    for policy in WriteBackPolicy::ALL {
        let mut load = adaptive(Latency::Fixed(1_000_000), |config| config.write_back = policy);
        assert_eq!(load.world.engine().next_tick(load.world.now()), None);
        load.write(0, PAGE);
        load.read(100 * PAGE, 10);
        assert_eq!(load.sync(), Ok(()));
        load.sleep(5000);
        let now = load.world.now();
        assert_eq!(load.world.engine().next_tick(now), None, "{policy:?}");
        // A look at it long after: one tick, and rest again.
        load.sleep(3_600_000);
        load.read(0, 10);
        load.sleep(5000);
        assert_eq!(load.world.engine().next_tick(load.world.now()), None, "{policy:?}");
        load.finish();
    }
}

/// Reads all of the first pages of the file once, eight pages at a time, backwards: nothing is read ahead.
fn read_through(load: &mut Load, pages: u64) {
    for group in (0..pages / 8).rev() {
        load.read(8 * group * PAGE, 8 * PAGE);
        load.drain();
    }
}

#[test]
fn readers_that_need_the_memory_lower_the_ceiling() {
    let mut load = adaptive(Latency::Fixed(100_000), |_| {});
    let (_, _, max) = marks(&load.stats());
    let cache = load.stats().cache_pages;
    // All of it read in turn: what is read next is what was read longest ago, outside of the ghost hit
    // cache.
    let working_set = PAGES.min(cache * 9 / 10) / 8 * 8;
    assert!(working_set > max);
    // While something is dirty samples are taken every second.
    load.write(PAGES * PAGE, PAGE);
    for _ in 0..4 {
        read_through(&mut load, working_set);
        load.sleep(1000);
    }
    let stats = load.stats();
    assert!(stats.read_hits > 0 && stats.ghost_hits < stats.read_hits, "{stats:?}");
    assert!(stats.watermark_max_pages < max, "{stats:?}");
    assert!(stats.watermark_high_pages <= stats.watermark_max_pages);
    // They stop: writers may have it all again, a few samples later.
    load.sleep(7_000);
    assert_eq!(load.stats().watermark_max_pages, max);

    // A working set inside of it takes nothing from anybody.
    let mut load = adaptive(Latency::Fixed(100_000), |_| {});
    load.write(PAGES * PAGE, PAGE);
    for _ in 0..6 {
        read_through(&mut load, max / 2 / 8 * 8);
        load.sleep(1000);
    }
    let stats = load.stats();
    assert_eq!((stats.watermark_max_pages, stats.ghost_hits), (max, stats.read_hits));
    load.finish();
}

#[test]
fn dirty_pages_take_the_room_of_clean_ones_in_the_ghost_hit_cache() {
    let mut load = adaptive(Latency::Fixed(100_000), |_| {});
    let (_, high, max) = marks(&load.stats());
    let read = max * 3 / 4 / 8 * 8;
    assert!(max - high < read && read < max);
    let mut hits_outside = || {
        let before = load.stats();
        read_through(&mut load, read);
        let after = load.stats();
        let hits = after.read_hits - before.read_hits;
        let outside = hits - (after.ghost_hits - before.ghost_hits);
        for page in 0..if before.reads == 0 { 0 } else { high - 1 } {
            load.write((PAGES + page) * PAGE, PAGE);
            load.drain();
        }
        (hits, outside)
    };
    assert_eq!(hits_outside(), (0, 0));
    assert_eq!(hits_outside(), (read, 0), "nothing is dirty");
    let (hits, outside) = hits_outside();
    assert!(hits == read && outside > 0, "{outside} of {hits}");
    load.finish();
}

#[test]
fn pages_that_made_room_for_writes_are_known_when_they_are_missed() {
    let mut load = adaptive(Latency::Fixed(100_000), |_| {});
    let cache = load.stats().cache_pages;
    let read = cache / 2 / 8 * 8;
    read_through(&mut load, read);
    assert_eq!(load.stats().ghost_misses, 0);
    // A stream of writes through all of the cache, elsewhere.
    for page in 0..cache {
        load.write((PAGES + page) * PAGE, PAGE);
        load.drain();
    }
    assert!(load.stats().evictions > 0);
    read_through(&mut load, read);
    let stats = load.stats();
    assert!(stats.ghost_misses > 0, "{stats:?}");
    assert!(stats.ghost_misses <= cache / 5, "no more names than a fifth of the cache");
    load.finish();
}

#[test]
fn writers_are_paced_above_the_pressure_point_and_never_stopped() {
    // 25 MB/s on one channel, and writers that would do any number.
    let mut load = adaptive(Latency::Flash(100_000, 10_000_000), |config| {
        config.transfer_pages_max = 64;
        config.destages_in_flight_max = 4;
    });
    let stats = load.stats();
    let (pressure, bound) = (stats.pressure_pages, stats.dirty_bound_pages);
    assert!(stats.watermark_max_pages < pressure && pressure < bound);
    let mut longest = Duration::ZERO;
    let mut most = 0;
    for page in 0..3 * stats.cache_pages {
        let begun = load.world.now();
        load.write(page % (4 * PAGES) * PAGE, PAGE);
        load.drain();
        longest = longest.max(load.world.now().since(begun));
        most = most.max(load.stats().dirty_memory_pages);
    }
    let stats = load.stats();
    assert!(stats.writers_paced > 0, "{stats:?}");
    assert!(most > pressure && most < bound, "{most}, not between {pressure} and {bound}");
    assert!(longest < Duration::from_millis(50), "a writer waited {longest:?}");
    load.finish();
}

#[test]
fn a_paced_writer_may_rewrite_what_is_dirty_already() {
    // With a pressure point inside the file, where no space has to be reserved.
    let mut load = adaptive(Latency::Fixed(1_000_000), |config| config.dirty_max_percent = 20);
    write_home_slowly(&mut load);
    load.world.device_mut().set_latency(Latency::Fixed(10_000_000_000));
    let mut pages = 0;
    while load.waiting() == 0 {
        load.write(pages * PAGE, PAGE);
        pages += 1;
    }
    let stats = load.stats();
    assert!(stats.dirty_memory_pages > stats.pressure_pages, "{stats:?}");
    assert!(stats.dirty_memory_pages < stats.dirty_bound_pages, "{stats:?}");
    let dirtied = stats.dirtied_pages;
    assert!(pages < PAGES && stats.writers_waiting == 1, "{stats:?}");
    // The last pages are not on their way home yet.
    for page in pages - 10..pages - 5 {
        load.write(page * PAGE + 100, 2 * PAGE);
    }
    assert_eq!((load.waiting(), load.stats().dirtied_pages), (1, dirtied));
    // Another page's writer waits, and passes over nobody.
    load.write((pages + 100) * PAGE, PAGE);
    assert_eq!(load.waiting(), 2);
    load.finish();
}

#[test]
fn a_stalled_device_bounds_memory_paces_writers_and_leaves_readers_alone() {
    let usual = Latency::Flash(100_000, 2_000_000);
    let mut load = adaptive(usual, |config| config.transfer_pages_max = 64);
    let mut at = 0;
    for _ in 0..5 {
        write_for_a_second(&mut load, at, 1000);
        at += 1000;
    }
    let before = load.stats();
    // Ten seconds in which every command takes as long.
    load.world.device_mut().set_latency(Latency::Flash(10_000_000_000, 10_000_000_000));
    let cached = (at - 1) % (4 * PAGES) * PAGE;
    let mut hits = 0;
    for _ in 0..100 {
        for _ in 0..100 {
            if load.waiting() == 0 {
                load.write(at % (4 * PAGES) * PAGE, PAGE);
                at += 1;
            }
        }
        let waiting = load.waiting();
        load.read(cached, 100);
        hits += u64::from(load.waiting() == waiting);
        load.sleep(100);
        let stats = load.stats();
        assert!(stats.memory_bytes <= stats.memory_bytes_max);
        assert!(stats.dirty_memory_pages <= stats.dirty_bound_pages, "{stats:?}");
    }
    assert_eq!(hits, 100, "what is in memory is read at once");
    assert!(load.stats().writers_paced > 0);
    load.world.device_mut().set_latency(usual);
    load.sleep(60_000);
    load.drain();
    for _ in 0..5 {
        write_for_a_second(&mut load, at, 1000);
        at += 1000;
    }
    let after = load.stats();
    assert!(4 * after.watermark_high_pages >= before.watermark_high_pages, "{before:?} {after:?}");
    assert!(4 * after.watermark_low_pages >= before.watermark_low_pages, "{before:?} {after:?}");
    assert!(after.dirty_memory_pages <= after.pressure_pages);
    load.finish();
}

#[test]
fn patches_count_as_dirty_memory() {
    let mut load = adaptive(Latency::Fixed(100_000), |_| {});
    load.write_to_each(0..PAGES);
    let stats = load.stats();
    assert!(stats.dirty_memory_pages > 0);
    assert_eq!(stats.dirty_memory_pages, stats.patch_bytes.div_ceil(PAGE + descriptor_bytes()));
    assert_eq!(stats.dirtied_pages, PAGES);
    load.finish();
}

#[test]
fn patches_alone_go_home_between_the_watermarks() {
    // Half of patch memory is more than the high watermark.
    let mut load = adaptive(Latency::Fixed(1_000_000), |config| config.patch_bytes_max = 8 << 20);
    let (low, high, _) = marks(&load.stats());
    let mut page = 0;
    while load.stats().fetch_commands == 0 {
        assert!(load.stats().dirty_memory_pages <= high, "nothing was fetched at {high} pages");
        load.write(page * PAGE + 10, 1500);
        page += 1;
    }
    let stats = load.stats();
    assert!(stats.dirty_memory_pages >= high && 2 * stats.patch_bytes < stats.patch_bytes_max);
    load.sleep(900);
    let stats = load.stats();
    assert!(stats.dirty_memory_pages < low, "{stats:?}");
    load.finish();
}

fn descriptor_bytes() -> u64 {
    weir_engine::DESCRIPTOR_BYTES as u64
}

#[test]
fn the_static_policy_samples_nothing() {
    let mut load = adaptive(Latency::Fixed(1_000_000), |config| {
        config.write_back = WriteBackPolicy::Static;
        config.dirty_hard_percent = 50;
    });
    for second in 0..5 {
        write_for_a_second(&mut load, second * 1000, 1000);
    }
    read_through(&mut load, PAGES);
    let stats = load.stats();
    let background = stats.cache_pages * 20 / 100;
    assert_eq!(marks(&stats), (background, background, background));
    assert_eq!((stats.ghost_hits, stats.ghost_misses, stats.writers_paced), (0, 0, 0));
    assert_eq!((stats.dirtied_last_interval, stats.cleaned_last_interval), (0, 0));
    assert!(stats.dirtied_pages >= 5000 && stats.cleaned_pages > 0);
    load.finish();
}

#[test]
fn a_clock_that_stands_still_or_jumps_does_no_harm() {
    let mut load = adaptive(Latency::Fixed(1_000_000), |_| {});
    for page in 0..200 {
        load.write(page * PAGE, PAGE);
    }
    load.sleep(2_500);
    load.act(Action::Stall(Duration::from_secs(1_000_000)));
    let stats = load.stats();
    assert_eq!(
        stats.watermark_high_pages, stats.watermark_max_pages,
        "so long nothing was written"
    );
    load.write(0, PAGE);
    load.finish();
}

#[test]
fn writers_soon_learn_that_home_takes_nothing() {
    let mut load = adaptive(Latency::Fixed(1_000_000), |_| {});
    write_home_slowly(&mut load);
    let fault = Fault { kind: ErrorKind::Io, per_mille: 1000, sticky: Duration::ZERO };
    load.set_faults(Faults { write: Some(fault), ..Faults::default() });
    let (begun, bound) = (load.world.now(), load.stats().dirty_bound_pages);
    let mut page = 0;
    while load.world.last_answer() == Some(Ok(())) {
        assert!(page <= bound, "no writer is told");
        load.write(page * PAGE, PAGE);
        load.drain();
        page += 1;
    }
    assert!(load.stats().dirty_memory_pages > load.stats().pressure_pages);
    let took = load.world.now().since(begun);
    assert!(took < Duration::from_secs(5), "{took:?}");
    load.set_faults(Faults::default());
    load.finish();
}
