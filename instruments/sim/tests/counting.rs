//! Tests that count: how many fetches, waits and transfers a load costs, to the one.
//!
//! What a [`Load`] is explains how counting works; every answer is compared with the model too.

use std::time::Duration;

use weir_engine::{Config, Durability, ErrorKind, FetchPolicy, PAGE_BYTES, PageState, Urgency};
use weir_sim::{Action, FILE, Fault, Faults, FrozenAction, Load};

const PAGE: u64 = PAGE_BYTES as u64;

fn always(kind: ErrorKind) -> Option<Fault> {
    Some(Fault { kind, per_mille: 1000, sticky: Duration::ZERO })
}

#[test]
fn lazy_writes_to_cold_pages_fetch_nothing_and_block_no_writer() {
    const N: u64 = 500;
    let mut load = Load::new(FetchPolicy::Lazy, N);
    load.write_to_each(0..N);
    let stats = load.stats();
    assert_eq!((stats.fetch_commands, stats.fetched_pages), (0, 0));
    assert_eq!((stats.writers_blocked_fetch, stats.writers_throttled), (0, 0));
    assert_eq!(load.waiting(), 0);
    assert_eq!((stats.patch_writes, stats.patched_pages), (N, N));
    assert!(load.world.device().in_flight().next().is_none());
    assert_eq!(load.sync(), Ok(()));
    assert_eq!(load.stats().fetched_pages, N, "the sync fetched each page once");
    load.finish();
}

#[test]
fn foreground_fetches_are_all_in_flight_together() {
    const N: u64 = 300;
    let mut load = Load::new(FetchPolicy::AsyncForeground, N);
    load.write_to_each(0..N);
    assert_eq!(load.fetches(), vec![(1, Urgency::Foreground); N as usize]);
    assert_eq!(load.stats().fetches_in_flight, N);
    assert_eq!((load.waiting(), load.stats().writers_blocked_fetch), (0, 0));
    load.sleep(1);
    assert!((0..N).all(|page| load.state(page) == PageState::UpToDate));
    assert_eq!(load.finish().fetched_pages, N);
}

#[test]
fn background_fetches_are_bounded_and_go_on_by_themselves() {
    const N: u64 = 300;
    let mut load = Load::new(FetchPolicy::AsyncBackground, N);
    load.write_to_each(0..N);
    let fetches = load.fetches();
    assert!((2..=32).contains(&fetches.len()), "{} fetches in flight", fetches.len());
    assert!(fetches.iter().all(|&(_, urgency)| urgency == Urgency::Background));
    assert_eq!((load.waiting(), load.stats().writers_blocked_fetch), (0, 0));
    load.sleep(100);
    assert!((0..N).all(|page| load.state(page) == PageState::UpToDate));
    assert_eq!(load.finish().fetched_pages, N);
}

#[test]
fn blocking_writes_to_cold_pages_wait_once_each() {
    const N: u64 = 100;
    let mut load = Load::new(FetchPolicy::Blocking, N);
    for page in 0..N {
        load.write(page * PAGE + 10, 64);
        assert_eq!(load.waiting(), 1, "the writer of page {page} waits");
        load.drain();
        // The page is up to date now: nobody waits for it again.
        load.write(page * PAGE + 100, 64);
        assert_eq!(load.waiting(), 0);
    }
    assert_eq!(load.stats().writers_blocked_fetch, N);
    assert_eq!(load.finish().fetched_pages, N);
}

#[test]
fn a_page_overwritten_in_pieces_is_never_fetched() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    for page in 0..64 {
        for piece in [2, 0, 3, 1] {
            assert_ne!(load.state(page), PageState::UpToDate);
            load.write(page * PAGE + piece * 1024, 1024);
        }
        assert_eq!(load.state(page), PageState::UpToDate);
    }
    assert_eq!(load.sync(), Ok(()));
    let stats = load.stats();
    assert_eq!((stats.fetched_pages, stats.fetches_avoided), (0, 64));
    assert_eq!(stats.destage_bytes, 64 * PAGE);
    load.finish();
}

#[test]
fn an_unlinked_file_is_neither_fetched_nor_destaged() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    load.write_to_each(0..64);
    load.act(Action::Discard { file: FILE });
    assert!(load.world.device().in_flight().next().is_none());
    let stats = load.stats();
    assert_eq!((stats.fetched_pages, stats.destage_commands), (0, 0));
    assert_eq!((stats.fetches_avoided, stats.pages, stats.patch_bytes), (64, 0, 0));
    assert_eq!(load.finish().fetched_pages, 0);
}

#[test]
fn what_a_truncation_cuts_off_is_not_fetched() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    load.write_to_each(0..64);
    load.act(Action::Freeze { file: FILE, action: FrozenAction::Truncate { size: 4 * PAGE } });
    load.act(Action::Thaw { file: FILE });
    assert_eq!(load.stats().fetches_avoided, 60);
    assert_eq!(load.finish().fetched_pages, 4, "of the pages that are left, for the last sync");
}

#[test]
fn a_read_inside_patches_fetches_nothing() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    for page in 0..64 {
        load.write(page * PAGE + 100, 200);
        load.read(page * PAGE + 100, 200);
        load.read(page * PAGE + 150, 1);
    }
    assert_eq!((load.stats().fetched_pages, load.waiting()), (0, 0));
    assert_eq!(load.stats().read_misses, 0);
    load.read(99, 2);
    assert_eq!((load.fetches().len(), load.waiting()), (1, 1), "one byte is outside the patch");
    load.finish();
}

#[test]
fn whole_write_units_go_home_without_a_fetch() {
    let mut load = Load::new(FetchPolicy::Lazy, 32);
    for page in 0..32 {
        load.write(page * PAGE + 512, 1024);
        load.write(page * PAGE + 3072, 512);
    }
    assert_eq!(load.sync(), Ok(()));
    let stats = load.stats();
    assert_eq!((stats.fetched_pages, stats.fetches_avoided), (0, 32));
    assert_eq!(stats.destage_bytes, 32 * 1536, "only what was written goes home");
    load.finish();

    // The same bytes on a back end that writes whole pages need the pages.
    let mut load = Load::with(32, 4096, |config| config.fetch_policy = FetchPolicy::Lazy);
    load.write(512, 1024);
    assert_eq!(load.sync(), Ok(()));
    assert_eq!(load.stats().fetched_pages, 1);

    // And so does a part of a unit.
    let mut load = Load::new(FetchPolicy::Lazy, 32);
    load.write(512, 1023);
    assert_eq!(load.sync(), Ok(()));
    assert_eq!(load.stats().fetched_pages, 1);
}

#[test]
fn adjacent_dirty_pages_go_out_as_one_request() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    // Out of order, and one page apart from the rest.
    for page in [5, 3, 4, 7, 6, 20] {
        load.write(page * PAGE, PAGE);
    }
    load.act(Action::Sync { file: FILE, durability: Durability::All });
    let mut destages = load.destages();
    destages.sort_unstable();
    assert_eq!(destages, [1, 5]);
    load.finish();
}

#[test]
fn adjacent_patched_pages_are_fetched_as_one_request_for_a_sync() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    load.write_to_each(10..30);
    load.act(Action::Sync { file: FILE, durability: Durability::All });
    assert_eq!(load.fetches(), [(20, Urgency::Waited)]);
    load.finish();
}

#[test]
fn the_missing_pages_of_a_read_are_fetched_together() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    load.read(8 * PAGE + 1, 1);
    load.drain();
    load.read(10, 16 * PAGE);
    // Pages 0 to 7 and 9 to 16: two commands, both before either ends.
    assert_eq!(load.fetches(), [(8, Urgency::Waited), (8, Urgency::Waited)]);
    assert_eq!(load.waiting(), 1);
    load.sleep(1);
    assert_eq!(load.waiting(), 0, "one round trip");
    load.finish();
}

#[test]
fn full_patch_memory_holds_its_bound_and_writers_wait_for_any_of_it() {
    const BOUND: u64 = 64 << 10;
    for policy in [FetchPolicy::Lazy, FetchPolicy::Auto, FetchPolicy::AsyncForeground] {
        let mut load = Load::with(1000, 512, |config| {
            config.fetch_policy = policy;
            config.patch_bytes_max = BOUND;
        });
        let mut waited = 0;
        for page in 0..1000 {
            load.write(page * 709 % 1000 * PAGE + 5, 500);
            waited += u64::from(load.waiting() > 0);
            assert!(load.stats().patch_bytes <= BOUND, "a write that waits takes no memory");
            load.drain();
        }
        assert!(waited > 0, "1000 patches of 500 bytes do not fit {BOUND} bytes");
        assert_eq!(load.stats().writers_throttled, waited, "{policy:?}");
        assert_eq!(load.stats().writers_blocked_fetch, 0, "nobody waits for a page of its own");
        load.finish();
    }
}

#[test]
fn without_patch_memory_every_policy_blocks() {
    for policy in FetchPolicy::ALL {
        let mut load = Load::with(50, 512, |config| {
            config.fetch_policy = policy;
            config.patch_bytes_max = 0;
        });
        for page in 0..50 {
            load.write(page * PAGE + 1, 10);
            assert_eq!(load.waiting(), 1);
            load.drain();
        }
        assert_eq!(load.stats().writers_blocked_fetch, 50);
        assert_eq!(load.finish().patch_bytes, 0);
    }
}

#[test]
fn writers_wait_at_the_hard_ratio_and_go_on_when_data_is_home() {
    let mut load = Load::with(1000, 512, |config| {
        config.dirty_background_percent = 1;
        config.dirty_hard_percent = 2;
        config.destages_in_flight_max = 1;
        config.transfer_pages_max = 8;
    });
    let frames = (Config::MEMORY_BYTES_MIN - (4 << 20)) / PAGE;
    let hard = frames * 2 / 100;
    let mut throttled = 0;
    for page in 0..1000 {
        load.write(page * PAGE, PAGE);
        throttled += u64::from(load.waiting() > 0);
        assert!(load.stats().dirty_pages <= hard, "{} pages are dirty", load.stats().dirty_pages);
        load.drain();
    }
    assert!(throttled > 0);
    assert_eq!(load.stats().writers_throttled, throttled);
    assert_eq!(load.stats().writers_blocked_fetch, 0);
    load.finish();
}

#[test]
fn more_data_than_memory_stays_within_memory() {
    // The world checks the bound after every event; this makes sure it is reached.
    const PAGES: u64 = 6000;
    let mut load = Load::new(FetchPolicy::Lazy, PAGES);
    let mut most = 0;
    for at in (0..PAGES).step_by(64) {
        load.read(at * PAGE, 64 * PAGE);
        load.drain();
        load.write((PAGES - at).saturating_sub(64) * PAGE + 7, 63 * PAGE);
        load.drain();
        most = most.max(load.stats().memory_bytes);
    }
    assert!(most > Config::MEMORY_BYTES_MIN / 2 && most <= Config::MEMORY_BYTES_MIN);
    assert!(load.stats().evictions > 0);
    load.finish();
}

#[test]
fn a_scan_does_not_push_out_what_is_used_again_and_again() {
    const HOT: u64 = 500;
    const PAGES: u64 = 9000;
    let mut load = Load::with(PAGES, 512, |_| {});
    let use_hot = |load: &mut Load| {
        let before = load.stats().read_misses;
        for page in 0..HOT {
            load.read(page * PAGE, 8);
            load.drain();
        }
        load.stats().read_misses - before
    };
    let scan = |load: &mut Load, pages: std::ops::Range<u64>| {
        for page in pages.step_by(32) {
            load.read(page * PAGE, 32 * PAGE);
            load.drain();
        }
    };
    assert_eq!(use_hot(&mut load), HOT);
    scan(&mut load, HOT..2 * HOT);
    assert_eq!(use_hot(&mut load), 0);
    let before = load.stats().evictions;
    // Nearly three times what memory holds.
    scan(&mut load, 2 * HOT..PAGES);
    assert!(load.stats().evictions - before > 4000);
    assert_eq!(use_hot(&mut load), 0, "hot pages were pushed out by a scan");
    load.finish();
}

#[test]
fn a_writer_gets_the_error_of_a_full_disk() {
    let mut load = Load::new(FetchPolicy::Lazy, 4);
    load.act(Action::SetFreePages(Some(0)));
    load.write(4 * PAGE, 100);
    load.drain();
    assert_eq!(load.world.last_answer(), Some(Err(ErrorKind::NoSpace.into())));
    assert_eq!(load.world.engine().size(FILE), Some(4 * PAGE), "nothing was taken");
    assert!(!load.world.engine().has_dirty(FILE));
    // What has space already is still taken.
    load.write(100, 100);
    assert_eq!(load.world.last_answer(), Some(Ok(())));
    load.act(Action::SetFreePages(Some(1)));
    load.write(4 * PAGE, 100);
    load.drain();
    assert_eq!(load.world.last_answer(), Some(Ok(())));
    assert_eq!(load.sync(), Ok(()), "what was taken has space at home");
    load.finish();
}

#[test]
fn a_write_past_the_largest_file_is_refused() {
    let mut load = Load::new(FetchPolicy::Lazy, 1);
    // The world expects the refusal; nothing may be left of the write.
    load.write(i64::MAX as u64, 1);
    load.write(u64::MAX - 5, 10);
    assert_eq!((load.waiting(), load.stats().pages), (0, 0));
    load.finish();
}

#[test]
fn only_the_first_writer_past_the_end_waits_for_space() {
    let mut load = Load::new(FetchPolicy::Lazy, 64);
    let mut waited = 0;
    for nth in 0..256 {
        load.write((64 + nth) * PAGE, PAGE);
        waited += load.waiting();
        load.drain();
        // The device keeps up: what was asked for ahead is there by the next write.
        load.sleep(1);
    }
    assert_eq!(waited, 1);
    load.finish();
}

#[test]
fn a_failed_destage_is_reported_once_each_and_tried_again() {
    let mut load = Load::new(FetchPolicy::Lazy, 16);
    let engine_cursor = |load: &Load| load.world.engine().error_cursor(FILE);
    let (mut first, mut second) = (engine_cursor(&load), engine_cursor(&load));
    load.set_faults(Faults { write: always(ErrorKind::Io), ..Faults::default() });
    load.write(0, 2 * PAGE);
    assert_eq!(load.sync(), Err(ErrorKind::Io.into()));
    load.set_faults(Faults::default());
    let mut late = engine_cursor(&load);
    let engine = load.world.engine();
    assert!(engine.has_dirty(FILE), "nothing becomes clean because an error was reported");
    for cursor in [&mut first, &mut second] {
        assert_eq!(engine.take_error(FILE, cursor), Some(ErrorKind::Io));
        assert_eq!(engine.take_error(FILE, cursor), None);
    }
    assert_eq!(engine.take_error(FILE, &mut late), None, "it happened before the open");
    // The data is read as written, and goes home after the pause, by itself.
    load.read(0, 2 * PAGE);
    assert_eq!((load.waiting(), load.stats().fetched_pages), (0, 0));
    load.sleep(1_100);
    assert!(!load.world.engine().has_dirty(FILE));
    assert_eq!(load.world.engine().take_error(FILE, &mut first), None);
    load.finish();
}

#[test]
fn a_failed_fetch_behind_a_write_is_reported_once_and_tried_again() {
    let mut load = Load::new(FetchPolicy::AsyncForeground, 16);
    let mut cursor = load.world.engine().error_cursor(FILE);
    load.set_faults(Faults { fetch: always(ErrorKind::Io), ..Faults::default() });
    load.write(100, 50);
    assert_eq!(load.world.last_answer(), Some(Ok(())));
    load.sleep(1);
    assert_eq!(load.world.engine().take_error(FILE, &mut cursor), Some(ErrorKind::Io));
    assert_eq!(load.world.engine().take_error(FILE, &mut cursor), None);
    assert_eq!(load.state(0), PageState::Patched, "the patch stays");
    load.set_faults(Faults::default());
    assert_eq!(load.sync(), Ok(()));
    assert_eq!(load.world.engine().take_error(FILE, &mut cursor), None);
    load.finish();
}

#[test]
fn only_the_reader_gets_the_error_of_its_failed_fetch() {
    let mut load = Load::new(FetchPolicy::Lazy, 16);
    let mut cursor = load.world.engine().error_cursor(FILE);
    load.set_faults(Faults { fetch: always(ErrorKind::Io), ..Faults::default() });
    load.read(0, 10);
    load.drain();
    assert_eq!(load.world.last_answer(), Some(Err(ErrorKind::Io.into())));
    assert_eq!(load.world.engine().take_error(FILE, &mut cursor), None);
    load.finish();
}

#[test]
fn dirty_data_goes_home_by_itself_when_it_is_old() {
    let mut load = Load::with(16, 512, |config| {
        config.dirty_expire = Duration::from_secs(5);
    });
    load.write(0, PAGE);
    load.sleep(4_900);
    assert_eq!(load.stats().destage_commands, 0);
    assert_eq!(load.stats().oldest_dirty_ms, 4_900);
    load.sleep(200);
    assert_eq!((load.stats().destage_commands, load.stats().dirty_pages), (1, 0));
    load.finish();
}

#[test]
fn destaging_starts_at_the_background_ratio_without_a_wait() {
    let mut load = Load::with(400, 512, |config| config.dirty_background_percent = 5);
    let frames = (Config::MEMORY_BYTES_MIN - (4 << 20)) / PAGE;
    let background = frames * 5 / 100;
    let mut first = None;
    for page in 0..400 {
        load.write(page * PAGE, PAGE);
        assert_eq!(load.waiting(), 0);
        if first.is_none() && load.stats().destage_commands > 0 {
            first = Some(page + 1);
        }
    }
    let first = first.expect("400 pages are more than the background ratio");
    assert!((background * 9 / 10..=background).contains(&first), "{first} of {background}");
    load.finish();
}

#[test]
fn rewriting_a_patch_takes_no_more_memory() {
    let mut load = Load::new(FetchPolicy::Lazy, 1);
    load.write(1000, 500);
    let once = load.stats().patch_bytes;
    for nth in 0..100 {
        load.write(1000 + nth, 400);
    }
    assert_eq!(load.stats().patch_bytes, once);
    assert!(once <= 500 + 64 + 200, "{once} bytes for a patch of 500 and its page's descriptor");
    load.finish();
}

#[test]
fn a_sequential_reader_finds_its_pages_fetched() {
    let mut load = Load::with(256, 512, |config| config.readahead_pages_max = 32);
    let mut waits = 0;
    for page in 0..256 {
        load.read(page * PAGE, PAGE);
        waits += load.waiting();
        load.drain();
        load.sleep(2);
    }
    assert!(waits <= 4, "{waits} waits");
    assert_eq!(load.finish().fetched_pages, 256, "nothing is fetched twice");
}
