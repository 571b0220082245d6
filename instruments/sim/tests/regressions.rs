//! Failures that seeds found, each cut down to what it was about.

use std::time::Duration;

use weir_engine::{Config, Durability, ErrorKind, FetchPolicy, PAGE_BYTES};
use weir_sim::{Action, FILE, Fault, Faults, FrozenAction, Home, Load, Rng};

const PAGE: u64 = PAGE_BYTES as u64;

fn always(kind: ErrorKind) -> Option<Fault> {
    Some(Fault { kind, per_mille: 1000, sticky: Duration::ZERO })
}

fn read_only_by_others(pages: u64) -> Home {
    Home::new(Rng::new(7).bytes((pages * PAGE) as usize), &[], 512, false)
}

/// A tick asked for another one at once as long as old data could not start on its way home.
#[test]
fn ticks_do_not_spin_while_destages_are_under_way() {
    let mut load = Load::with(64, 512, |config| {
        config.destages_in_flight_max = 1;
        config.transfer_pages_max = 1;
        config.dirty_expire = Duration::from_millis(5);
    });
    for page in 0..64 {
        load.write(page * PAGE, PAGE);
    }
    // The world fails on a tick that is due again when it has been done.
    load.sleep(200);
    assert_eq!(load.stats().dirty_pages, 0);
    load.finish();
}

/// Runs of one page were sent side by side, through the page cache and past it.
#[test]
fn patches_of_one_page_go_home_one_after_the_other() {
    let mut load = Load::new(FetchPolicy::Lazy, 4);
    for unit in [0, 2, 4, 6] {
        load.write(unit * 512, 512);
    }
    load.act(Action::Sync { file: FILE, durability: Durability::All });
    assert_eq!(load.destages(), [1]);
    load.drain();
    assert_eq!(load.stats().destage_commands, 4);
    load.finish();
}

/// A write that waited for space was applied after the flush and dropped with the freeze's range.
#[test]
fn a_flush_before_a_freeze_misses_no_write_that_waited_for_space() {
    let mut load = Load::new(FetchPolicy::Lazy, 4);
    // Leaves a hole, so that the next write there waits for a reservation.
    load.act(Action::Freeze {
        file: FILE,
        action: FrozenAction::Punch { from: PAGE, to: 2 * PAGE },
    });
    load.act(Action::Thaw { file: FILE });
    load.write(PAGE, 100);
    assert_eq!(load.waiting(), 1);
    // Something to flush first, which comes home before the write is applied.
    load.write(0, PAGE);
    load.act(Action::Freeze {
        file: FILE,
        action: FrozenAction::Punch { from: 200, to: PAGE + 2000 },
    });
    load.drain();
    assert!(!load.world.engine().has_dirty(FILE), "the freeze was granted on a clean range");
    load.act(Action::Thaw { file: FILE });
    load.read(PAGE, 100);
    load.finish();
}

/// Space reserved ahead of the end was counted on after a truncation had given it back.
#[test]
fn a_truncation_to_the_same_size_forgets_what_was_reserved_past_the_end() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    load.write(64 * PAGE, PAGE);
    load.drain();
    load.sleep(2);
    load.write(65 * PAGE, 1);
    assert_eq!(load.waiting(), 0, "space was reserved ahead");
    load.sleep(2);
    let size = 65 * PAGE + 1;
    load.act(Action::Freeze { file: FILE, action: FrozenAction::Truncate { size } });
    load.act(Action::Thaw { file: FILE });
    load.write(66 * PAGE, PAGE);
    assert_eq!(load.waiting(), 1, "the writer reserves again");
    // The device fails on a destage to space that is not there.
    load.finish();
}

/// fdatasync answered at once on a file that had been changed behind the mount.
#[test]
fn fdatasync_makes_durable_what_changed_behind_the_mount() {
    let mut load = Load::new(FetchPolicy::Lazy, 4);
    assert_eq!(load.sync(), Ok(()));
    load.act(Action::ChangeBehind { file: FILE, offset: 4 * PAGE, len: 100 });
    load.act(Action::Sync { file: FILE, durability: Durability::Data });
    load.drain();
    assert_eq!(load.world.last_answer(), Some(Ok(())));
    load.finish();
}

/// Every blocked writer that failed left its patch behind, without a bound.
#[test]
fn patch_memory_is_bounded_while_no_page_can_be_fetched() {
    let mut load = Load::with(2000, 512, |config| config.patch_bytes_max = 64 << 10);
    load.set_faults(Faults { fetch: always(ErrorKind::Io), ..Faults::default() });
    for page in 0..2000 {
        load.write(page * PAGE + 1, 1000);
        load.drain();
    }
    assert!(load.stats().patch_bytes < (64 << 10) + 4096, "{} bytes", load.stats().patch_bytes);
    assert_eq!(load.world.last_answer(), Some(Err(ErrorKind::Io.into())));
    load.finish();
}

/// Files that cannot be read are never fetched, so a full patch memory did not stop their writers.
#[test]
fn patch_memory_is_bounded_for_a_file_that_cannot_be_read() {
    let mut load = Load::over(read_only_by_others(2000), |world| {
        world.engine.patch_bytes_max = 64 << 10;
    });
    for page in 0..2000 {
        load.write(page * PAGE + 1, 1000);
        assert!(load.stats().patch_bytes < (64 << 10) + 4096, "{}", load.stats().patch_bytes);
        load.drain();
    }
    assert!(load.stats().writers_throttled > 0);
    assert_eq!(load.finish().fetched_pages, 0);
}

/// Writers at the hard ratio waited for ever when a round of failures outlasted the retry's pause.
#[test]
fn writers_are_refused_when_everything_dirty_fails() {
    let mut load = Load::with(1000, 512, |config| {
        config.dirty_background_percent = 1;
        config.dirty_hard_percent = 2;
        config.transfer_pages_max = 1;
        config.destages_in_flight_max = 1;
        config.retry_delay = Duration::from_millis(10);
    });
    load.set_faults(Faults { write: always(ErrorKind::NoSpace), ..Faults::default() });
    let mut refused = 0;
    for page in 0..200 {
        load.write(page * PAGE, PAGE);
        load.drain();
        refused += u64::from(load.world.last_answer() == Some(Err(ErrorKind::NoSpace.into())));
    }
    assert!(refused > 50, "{refused} writers were told that the disk is full");
    load.set_faults(Faults::default());
    load.sleep(1000);
    load.write(300 * PAGE, PAGE);
    load.drain();
    assert_eq!(load.world.last_answer(), Some(Ok(())), "the disk is not full any more");
    load.finish();
}

/// With the pool used up by answers not yet consumed, clean pages were kept and requests starved.
#[test]
fn clean_pages_make_room_for_frames_held_outside() {
    const PAGES: u64 = 8000;
    let bytes = Rng::new(7).bytes((PAGES * PAGE) as usize);
    let mut load = Load::over(Home::new(bytes, &[], 512, true), |world| {
        world.engine.patch_bytes_max = 0;
        world.reads_held_max = 1000;
    });
    // Holds on to 800 frames, which then are evicted, and fills memory with others.
    for at in (0..PAGES).step_by(100) {
        load.read(at * PAGE, 10 * PAGE);
        load.drain();
        load.write(at * PAGE + 10 * PAGE, 90 * PAGE);
        load.drain();
    }
    assert!(load.stats().evictions > 0);
    load.finish();
}

/// Writers waiting for space were not counted, and starved readers were.
#[test]
fn every_waiting_writer_counts_and_no_reader_does() {
    let mut load = Load::with(4, 512, |_| {});
    load.read(0, 10);
    assert_eq!((load.waiting(), load.stats().writers_waiting), (1, 0));
    load.write(4 * PAGE, 10);
    assert_eq!((load.waiting(), load.stats().writers_waiting), (2, 1));
    load.finish();
}

/// Memory, patch memory and requests at the limits of each other.
#[test]
fn the_smallest_memory_serves_the_largest_requests() {
    let mut load = Load::with(3000, 512, |config| {
        config.patch_bytes_max = Config::MEMORY_BYTES_MIN / 2;
        config.fetch_policy = FetchPolicy::Blocking;
    });
    for at in (0..2700).step_by(250) {
        load.write(at * PAGE + 1, 256 * PAGE);
        load.read(at * PAGE + 1, 256 * PAGE);
    }
    load.drain();
    load.finish();
}

/// 5,000 pages with a patch each, where there are 2,000 frames.
fn many_patched_pages(policy: FetchPolicy) -> Load {
    let bytes = Rng::new(7).bytes(6000 * PAGE_BYTES);
    let mut load = Load::over(Home::new(bytes, &[], 512, true), |world| {
        world.engine.fetch_policy = policy;
        world.engine.patch_bytes_max = Config::MEMORY_BYTES_MIN / 2;
        world.check_every = 500;
    });
    load.write_to_each(0..5000);
    load
}

/// More patched pages than frames: those that failed on their way home took all frames, and the sync
/// waited for the rest for ever. So did every reader.
#[test]
fn a_sync_of_more_patched_pages_than_frames_ends_when_nothing_comes_home() {
    let mut load = many_patched_pages(FetchPolicy::Lazy);
    assert_eq!(load.stats().writers_blocked_fetch, 0);
    load.set_faults(Faults { write: always(ErrorKind::Io), ..Faults::default() });
    assert_eq!(load.sync(), Err(ErrorKind::Io.into()));
    load.read(5500 * PAGE, PAGE);
    load.drain();
    assert_eq!(load.world.last_answer(), Some(Ok(())), "a reader finds a frame");
    load.set_faults(Faults::default());
    assert_eq!(load.sync(), Ok(()));
    load.finish();
}

/// The same with a device that works.
#[test]
fn a_sync_of_more_patched_pages_than_frames_brings_all_of_them_home() {
    for policy in FetchPolicy::ALL {
        let mut load = many_patched_pages(policy);
        assert_eq!(load.sync(), Ok(()));
        load.finish();
    }
}

/// Patches that failed to go home were tried again and again before anything else of a file, and a
/// sync never came to the pages it waited for.
#[test]
fn a_sync_comes_to_all_pages_while_some_fail_again_and_again() {
    let mut load = Load::with(64, 512, |config| {
        config.fetch_policy = FetchPolicy::Lazy;
        config.destages_in_flight_max = 1;
        config.retry_delay = Duration::from_millis(2);
    });
    load.set_faults(Faults { write: always(ErrorKind::NoSpace), ..Faults::default() });
    for page in 0..8 {
        load.write(page * PAGE, 512);
    }
    for page in (20..40).step_by(2) {
        load.write(page * PAGE, PAGE);
    }
    assert_eq!(load.sync(), Err(ErrorKind::NoSpace.into()));
    assert!(load.stats().destage_commands < 100, "{}", load.stats().destage_commands);
    load.set_faults(Faults::default());
    load.finish();
}
