//! Faults under the policies: a device that is suddenly ten times slower, one that stalls, a clock that jumps. Memory
//! stays bounded, reads of pages in memory are answered, every write is answered and goes home, and the policy soon
//! works as before.

use weir_drive::Model;
use weir_drive::parameters::{MS, Ns, SECOND};
use weir_engine::{FileId, PageState, WriteBackPolicy};
use weir_sim::policy::{self, Setup, Simulation, TRIP, Trouble};
use weir_sim::side_by_side::{Access, Side, SideBySide};

/// When trouble begins and ends.
const FROM: Ns = 4 * SECOND;
const UNTIL: Ns = 14 * SECOND;
/// The load's end.
const END: Ns = 22 * SECOND;

const STALL: Trouble = Trouble::Stall { from: FROM, until: UNTIL };
const SLOW: Trouble = Trouble::Slow { from: FROM, until: UNTIL, times: 10 };
const JUMP: Trouble = Trouble::ClockJump { at: FROM, by: 3600 * SECOND };

fn setup(
    model: Model,
    (reader, writer): (Option<Access>, Access),
    write_back: WriteBackPolicy,
    trouble: Option<Trouble>,
) -> Setup {
    let load = SideBySide {
        reader,
        writer,
        file_bytes: 64 << 20,
        seconds: END as f64 / SECOND as f64,
        change_seconds: 1.0,
        seed: 11,
    };
    let engine = policy::engine(write_back, model, 32 << 20, 2 << 20);
    Setup { load, model, engine, trouble }
}

/// Clean pages that are written home with the dirty ones around them, for a moment, count as dirty.
const BETWEEN: u64 = 256;

/// A run that is looked at.
struct Watched {
    simulation: Simulation,
    seconds: u64,
    /// Writes answered in each second so far.
    writes: Vec<u64>,
}

impl Watched {
    fn new(setup: &Setup) -> Watched {
        let simulation = Simulation::new(setup).expect("a setup that can be run");
        Watched { simulation, seconds: 0, writes: Vec::new() }
    }

    /// Runs until then, and looks at memory ten times a second.
    fn run_until(&mut self, at: Ns) {
        while self.seconds * SECOND < at {
            let before = self.simulation.answered(Side::Writes);
            for tenth in 1..=10 {
                self.simulation.run_until(self.seconds * SECOND + tenth * 100 * MS);
                let stats = self.simulation.stats();
                assert!(stats.memory_bytes <= stats.memory_bytes_max, "{stats:?}");
                assert!(stats.dirty_memory_pages <= stats.dirty_bound_pages + BETWEEN, "{stats:?}");
            }
            self.simulation.engine().check_invariants();
            self.seconds += 1;
            self.writes.push(self.simulation.answered(Side::Writes) - before);
        }
    }

    /// Writes a second from then until then.
    fn rate(&self, from: Ns, until: Ns) -> f64 {
        let seconds = &self.writes[(from / SECOND) as usize..(until / SECOND) as usize];
        seconds.iter().sum::<u64>() as f64 / seconds.len() as f64
    }

    /// Writers and watermarks have recovered: writers a second after `since`, watermarks within three samples. The speed
    /// of writers in that first second depends on where in an interval it begins, since they are paced by the pages that
    /// went home in the last interval.
    fn assert_recovered(&self, since: Ns) {
        let before = self.rate(FROM - 2 * SECOND, FROM);
        assert!(self.rate(since, since + SECOND) > 0.5 * before, "{:?}", self.writes);
        assert!(self.rate(since + SECOND, END) > 0.9 * before, "{:?}", self.writes);
        let high = |at: Ns| self.simulation.samples()[(at / SECOND) as usize - 1].high;
        let (was, is) = (high(FROM), high(since + 3 * SECOND));
        assert!(4 * is >= was && is <= 4 * was, "a high watermark of {is} pages, {was} before");
    }

    /// Every write was answered, and its page came home.
    fn assert_nothing_lost(mut self) {
        self.simulation.bring_home();
        let stats = self.simulation.stats();
        assert_eq!(self.simulation.answered(Side::Writes), stats.writes);
        assert_eq!((stats.dirty_pages, self.simulation.pages_not_home()), (0, 0));
    }
}

/// The load goes through it under both policies, with a writer alone and with a reader beside it.
fn through(trouble: Trouble, check: impl Fn(&Watched, WriteBackPolicy)) {
    let both = (Some(Access::Zipf), Access::Zipf);
    for sides in [(None, Access::Sequential), both] {
        for write_back in WriteBackPolicy::ALL {
            let mut run = Watched::new(&setup(Model::Ssd, sides, write_back, Some(trouble)));
            run.run_until(END);
            check(&run, write_back);
            run.assert_nothing_lost();
        }
    }
}

#[test]
fn a_device_that_is_ten_times_slower_slows_writers_and_stops_nobody() {
    through(SLOW, |run, write_back| {
        let usual = run.rate(FROM - 2 * SECOND, FROM);
        let slow = run.rate(FROM + SECOND, UNTIL);
        assert!((0.05 * usual..0.2 * usual).contains(&slow), "{:?}", run.writes);
        assert!(run.writes.iter().all(|writes| *writes > 0), "{:?}", run.writes);
        let paced = run.simulation.stats().writers_paced > 0;
        assert_eq!(paced, write_back == WriteBackPolicy::Adaptive);
        run.assert_recovered(UNTIL);
    });
}

#[test]
fn a_device_that_stalls_has_writers_wait_and_go_on() {
    through(STALL, |run, _| {
        assert!(run.rate(FROM + SECOND, UNTIL) == 0.0, "{:?}", run.writes);
        let sample = &run.simulation.samples()[(UNTIL / SECOND) as usize - 2];
        assert_eq!((sample.waiting, sample.dirty), (1, run.simulation.stats().dirty_bound_pages));
        run.assert_recovered(UNTIL);
    });
}

#[test]
fn a_clock_that_jumps_by_an_hour_is_not_noticed() {
    through(JUMP, |run, _| run.assert_recovered(FROM));
}

#[test]
fn an_arm_that_stalls_or_is_slow_loses_nothing() {
    let variable = (Some(Access::Variable), Access::Variable);
    for trouble in [STALL, SLOW, JUMP] {
        for write_back in WriteBackPolicy::ALL {
            let mut run = Watched::new(&setup(Model::Hdd, variable, write_back, Some(trouble)));
            run.run_until(END);
            run.assert_nothing_lost();
        }
    }
}

#[test]
fn what_is_in_memory_is_read_while_the_device_stalls() {
    let (file, both) = (FileId(1), (Some(Access::Zipf), Access::Zipf));
    for write_back in WriteBackPolicy::ALL {
        let mut run = Simulation::new(&setup(Model::Ssd, both, write_back, Some(STALL))).unwrap();
        run.run_until(FROM - SECOND);
        let in_memory = |run: &Simulation, page: &u64| {
            run.engine().page_state(file, *page) == PageState::UpToDate
        };
        // What is read again and again is what readers need. Backwards, so that nothing is read ahead.
        let pages = (0..16_384).rev().filter(|page| in_memory(&run, page));
        let mut pages: Vec<u64> = pages.take(200).collect();
        for tenth in 0..10 {
            run.run_until(FROM - SECOND + tenth * 100 * MS);
            pages.retain(|page| in_memory(&run, page));
            assert!(pages.iter().all(|page| run.reads_at_once(file, *page)));
        }
        assert!(pages.len() >= 100, "{} pages stayed", pages.len());
        for tenth in 0..100 {
            run.run_until(FROM + tenth * 100 * MS);
            let missed = pages.iter().filter(|page| !run.reads_at_once(file, **page)).count();
            assert_eq!(missed, 0, "{} ms into the stall", tenth * 100);
        }
        assert!(run.stats().writers_waiting > 0, "it is a stall that writers notice");
    }
}

#[test]
fn a_lone_writer_is_as_fast_as_its_drive_or_its_trips() {
    let rate = |writer, file_bytes| {
        let mut setup = setup(Model::Ssd, (None, writer), WriteBackPolicy::Adaptive, None);
        (setup.load.seconds, setup.load.file_bytes) = (5.0, file_bytes);
        policy::run(&setup).unwrap().writes.unwrap().rate
    };
    // 170 MB/s, once memory is full.
    let sequential = rate(Access::Sequential, 64 << 20);
    assert!((sequential / 41_500.0 - 1.0).abs() < 0.05, "{sequential}");
    let in_memory = rate(Access::Zipf, 4 << 20);
    assert!((in_memory / (SECOND / TRIP) as f64 - 1.0).abs() < 0.01, "{in_memory}");
}

#[test]
fn one_setup_has_one_outcome() {
    let variable = (Some(Access::Variable), Access::Variable);
    let mut setup = setup(Model::Ssd, variable, WriteBackPolicy::Adaptive, None);
    setup.load.seconds = 2.0;
    let first = policy::run(&setup).unwrap();
    assert!(first.reads.is_some() && first.samples.len() >= 2 && first.device.reads > 0);
    assert_eq!(first, policy::run(&setup).unwrap());
    setup.load.seed += 1;
    assert_ne!(first, policy::run(&setup).unwrap());
}

/// Requests that the drive served for a thousand operations of the programs.
fn requests_in_rrrw(opportunistic: bool) -> f64 {
    let mut setup =
        setup(Model::Hdd, (Some(Access::Random), Access::Random), WriteBackPolicy::Adaptive, None);
    setup.engine.opportunistic = opportunistic;
    let outcome = policy::run(&setup).expect("a setup that can be run");
    let operations = [&outcome.reads, &outcome.writes]
        .map(|class| class.as_ref().expect("both did something").operations);
    let requests = outcome.device.reads + outcome.device.writes;
    requests as f64 * 1e3 / operations.iter().sum::<u64>() as f64
}

#[test]
fn rrrw_takes_a_fifth_fewer_disk_operations_with_the_opportunistic_queue() {
    let (without, with) = (requests_in_rrrw(false), requests_in_rrrw(true));
    assert!(with <= 0.8 * without, "{with} requests for 1000 operations, not {without}");
}
