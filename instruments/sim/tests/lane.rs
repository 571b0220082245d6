//! The lane, as the engine sees it: what programs read by themselves stays in memory, and what the board
//! says of a file follows it.

#![allow(clippy::unwrap_used)] // What is missing fails the test.

use std::sync::Arc;

use weir_engine::{
    Command, Completion, Config, Durability, Engine, ErrorKind, FileId, FramePool, FreezeEnd,
    HomeAttributes, Outcome, Output, PAGE_BYTES, PageState, RequestId, Time, WriteBackPolicy,
};
use weir_lane::board::View;
use weir_lane::region::Region;

const PAGE: u64 = PAGE_BYTES as u64;
const FILE: FileId = FileId(1);
const SLOT: u32 = 3;

/// An engine with a file in the lane, over a device that answers at once.
struct Rig {
    engine: Engine,
    view: View,
    region: Arc<Region>,
    now: Time,
    /// Whether space can be reserved, and how.
    reserved: Result<(), ErrorKind>,
    refused: u64,
}

impl Rig {
    fn new(home: HomeAttributes) -> Rig {
        let config = Config {
            memory_bytes_max: Config::MEMORY_BYTES_MIN,
            patch_bytes_max: 2 << 20,
            readahead_pages_max: 0,
            write_back: WriteBackPolicy::Adaptive,
            ..Config::default()
        };
        let frames = (config.memory_bytes_max / PAGE) as u32 + 64;
        let pool = FramePool::shared(frames).unwrap();
        let board = Arc::clone(pool.board().unwrap());
        let view = View::map(board.fd(), pool.fd().unwrap()).unwrap();
        let region = Arc::new(Region::create(frames).unwrap().0);
        board.add_client(Arc::clone(&region));
        let mut engine = Engine::new(config, pool).unwrap();
        engine.attach(FILE, home);
        let now = Time::from_millis(1000);
        assert!(engine.share(FILE, SLOT, now));
        Rig { engine, view, region, now, reserved: Ok(()), refused: 0 }
    }

    fn settle(&mut self) {
        self.engine.dispatch();
        while let Some(output) = self.engine.next_output() {
            let (io, completion) = match output {
                Output::Command(Command::Fetch { io, mut frames, .. }) => {
                    for frame in &mut frames {
                        frame.bytes_mut().unwrap().fill(1);
                    }
                    let result = Ok(frames.len() * PAGE_BYTES);
                    (io, Completion::Fetched { frames, result })
                }
                Output::Command(Command::Reserve { io, .. }) => {
                    (io, Completion::Reserved { result: self.reserved })
                }
                Output::Command(Command::Write { io, .. }) => {
                    (io, Completion::Written { result: Ok(()) })
                }
                _ => continue,
            };
            self.engine.complete(io, completion, self.now);
            self.engine.dispatch();
            self.engine.check_invariants();
        }
    }

    fn read(&mut self, page: u64) {
        let _ = self.engine.read(RequestId(1), FILE, page * PAGE, 1, self.now);
        self.settle();
    }

    fn write(&mut self, offset: u64, len: usize) {
        let data = vec![2; len];
        let written =
            self.engine.write(RequestId(2), FILE, offset, &data, Durability::None, self.now);
        self.refused += u64::from(matches!(written, Outcome::Done(Err(_))));
        self.settle();
    }

    /// A program reads a page by itself; says whether it could.
    fn look(&self, page: u64) -> bool {
        let frame = self.view.read_into(SLOT, page, 0, &mut [0; 8]);
        frame.inspect(|&frame| self.region.set_referenced(frame)).is_some()
    }

    fn freeze(&mut self, end: FreezeEnd) {
        let begun = self.engine.freeze(RequestId(3), FILE, None, self.now);
        assert_eq!(begun, Outcome::Done(Ok(())));
        assert_eq!(self.view.grant(SLOT), 0, "a freeze may take space away");
        self.engine.thaw(FILE, end, self.now);
        self.settle();
    }

    fn resident(&self, pages: std::ops::Range<u64>) -> usize {
        let is_here = |&page: &u64| self.engine.page_state(FILE, page) == PageState::UpToDate;
        pages.filter(is_here).count()
    }
}

fn home(pages: u64) -> HomeAttributes {
    HomeAttributes { size: pages * PAGE, dense: true, write_unit: 4096, readable: true }
}

/// Reads `0..100` by the engine, then many other pages; programs look at the first ones as often as `looks`
/// says, at even intervals.
fn after_a_scan(looks: u64) -> (usize, u64) {
    const SCANNED: u64 = 16_000;
    let mut rig = Rig::new(home(SCANNED + 100));
    for page in 0..100 {
        rig.read(page);
    }
    let mut hits = 0;
    for page in 0..SCANNED {
        if looks > 0 && page.is_multiple_of(SCANNED / looks) {
            for page in 0..100 {
                match rig.look(page) {
                    true => hits += 1,
                    false => rig.read(page),
                }
            }
        }
        rig.read(100 + page);
    }
    (rig.resident(0..100), hits)
}

#[test]
fn pages_that_programs_read_repeatedly_stay() {
    let (resident, hits) = after_a_scan(40);
    assert_eq!(resident, 100);
    // But for a few that went because so many were spared for each.
    assert!(hits > 40 * 100 - 10, "{hits} times they did not have to ask");
}

#[test]
fn pages_that_programs_stop_reading_are_evicted() {
    assert_eq!(after_a_scan(0), (0, 0));
    // Once, soon after it came: it goes round once more, and then goes.
    assert_eq!(after_a_scan(1).0, 0);
}

#[test]
fn programs_that_read_everything_do_not_stop_replacement() {
    let mut rig = Rig::new(home(20_000));
    for page in 0..20_000 {
        rig.read(page);
        assert!(rig.look(page), "what was just read is there");
    }
    assert!(rig.engine.stats(rig.now).evictions > 10_000);
}

#[test]
fn the_grant_is_what_needs_no_reservation() {
    let mut rig = Rig::new(home(4));
    assert_eq!(rig.view.grant(SLOT), 4 * PAGE);
    rig.write(4 * PAGE, 100);
    assert_eq!((rig.view.size(SLOT), rig.view.grant(SLOT)), (4 * PAGE + 100, 5 * PAGE));
    // Past a hole.
    rig.write(10 * PAGE, 100);
    assert_eq!(rig.view.grant(SLOT), 5 * PAGE);
    rig.write(5 * PAGE, 5 * PAGE_BYTES);
    assert_eq!(rig.view.grant(SLOT), 11 * PAGE);
    rig.freeze(FreezeEnd { discard: Some((2 * PAGE, 3 * PAGE)), size: None, written: false });
    assert_eq!(rig.view.grant(SLOT), 2 * PAGE);
    rig.freeze(FreezeEnd { discard: None, size: Some(PAGE + 1), written: false });
    assert_eq!((rig.view.size(SLOT), rig.view.grant(SLOT)), (PAGE + 1, 2 * PAGE));
    // A longer file has more in store, until that is given back.
    rig.write(PAGE, 100 * PAGE_BYTES);
    assert!(rig.view.grant(SLOT) > 101 * PAGE);
    rig.engine.forget_reserved_past_end(FILE);
    assert_eq!(rig.view.grant(SLOT), 101 * PAGE);
    rig.reserved = Err(ErrorKind::Unsupported);
    rig.write(200 * PAGE, 1);
    assert!(rig.view.grant(SLOT) > 1 << 60);
    assert_eq!(rig.refused, 0);
}

#[test]
fn a_number_given_to_another_file_shows_nothing_of_the_first() {
    let mut rig = Rig::new(home(4));
    for page in 0..4 {
        rig.read(page);
    }
    rig.engine.unshare(FILE, SLOT);
    let other = FileId(2);
    rig.engine.attach(other, home(2));
    assert!(rig.engine.share(other, SLOT, rig.now));
    assert_eq!(rig.view.size(SLOT), 2 * PAGE);
    assert!((0..4).all(|page| !rig.look(page)));
    assert!(rig.engine.share(FILE, SLOT + 1, rig.now), "its pages are back where it is now");
    rig.engine.check_invariants();
    let mut bytes = [0; PAGE_BYTES];
    assert!(rig.view.read_into(SLOT + 1, 3, 0, &mut bytes).is_some());
}

/// Writes over a dirty page ask for no space, and programs may post only where space is known to be.
#[test]
fn a_file_written_before_home_had_it_may_be_posted_to_when_it_enters_the_lane_after() {
    let mut rig = Rig::new(home(0));
    rig.engine.unshare(FILE, SLOT);
    let (dense, holed) = (FileId(2), FileId(3));
    for (file, offset) in [(dense, 0), (holed, 2 * PAGE)] {
        rig.engine.attach(file, home(0));
        rig.engine.set_unbound(file);
        let written =
            rig.engine.write(RequestId(9), file, offset, b"start", Durability::None, rig.now);
        assert!(matches!(written, Outcome::Pending | Outcome::Done(Ok(()))));
        rig.settle();
        rig.engine.bound(file, rig.now);
        assert!(rig.engine.has_dirty(file));
    }
    assert!(rig.engine.share(dense, SLOT, rig.now));
    assert!(rig.engine.share(holed, SLOT + 1, rig.now));
    rig.settle();
    assert_eq!(rig.view.grant(SLOT), PAGE);
    assert_eq!(rig.view.grant(SLOT + 1), 0, "holes stay holes");
}
