//! A small load whose commands can be counted: one file, and a device that takes a millisecond for each command.
//! Nothing happens until time is advanced, so that a test can count the commands in flight.
//!
//! For tests of one behaviour each. Every answer is also compared with the model, and every divergence panics.

use std::ops::Range;
use std::time::Duration;

use weir_engine::{
    Command, Config, Durability, Error, FetchPolicy, FileId, PAGE_BYTES, PageState, Stats, Urgency,
};

use crate::action::Action;
use crate::device::{DeviceConfig, Faults, Latency};
use crate::home::Home;
use crate::rng::Rng;
use crate::world::{World, WorldConfig};

const PAGE: u64 = PAGE_BYTES as u64;

/// The file.
pub const FILE: FileId = FileId(1);

/// A world with one file, none of it cached.
pub struct Load {
    /// The world, for actions without a method here.
    pub world: World,
}

impl Load {
    /// One dense file of this many pages.
    pub fn new(policy: FetchPolicy, pages: u64) -> Load {
        Load::with(pages, 512, |config| config.fetch_policy = policy)
    }

    /// As [`Load::new`], over a back end that writes units of this many bytes, with other bounds.
    pub fn with(pages: u64, write_unit: u32, set: impl FnOnce(&mut Config)) -> Load {
        let bytes = Rng::new(7).bytes((pages * PAGE) as usize);
        Load::over(Home::new(bytes, &[], write_unit, true), |world| set(&mut world.engine))
    }

    /// Any file, any world.
    pub fn over(home: Home, set: impl FnOnce(&mut WorldConfig)) -> Load {
        let engine = Config {
            memory_bytes_max: Config::MEMORY_BYTES_MIN,
            patch_bytes_max: 4 << 20,
            readahead_pages_max: 0,
            ..Config::default()
        };
        let device = DeviceConfig {
            latency: Latency::Fixed(1_000_000),
            faults: Faults::default(),
            free_pages: None,
            can_reserve: true,
            loses: true,
            transfer_pages_max: 0,
            writes_in_flight_max: 0,
        };
        let mut config = WorldConfig {
            engine,
            device,
            check_every: 1,
            reads_held_max: 0,
            inode_lock: false,
            frames_spare: 0,
            ages: false,
            print: false,
        };
        set(&mut config);
        config.device.transfer_pages_max = config.engine.transfer_pages_max;
        config.device.writes_in_flight_max = config.engine.destages_in_flight_max;
        let mut world = World::new(config, Rng::new(8)).expect("bounds the engine takes");
        world.create(FILE, home);
        Load { world }
    }

    /// Does one step, which must make sense.
    pub fn act(&mut self, action: Action) {
        match self.world.apply(&action) {
            Ok(done) => assert!(done, "{action:?} makes no sense now"),
            Err(violation) => panic!("{violation}"),
        }
    }

    /// Writes, without durability.
    pub fn write(&mut self, offset: u64, len: u64) {
        let len = len as usize;
        self.act(Action::Write { file: FILE, offset, len, durability: Durability::None });
    }

    /// Reads.
    pub fn read(&mut self, offset: u64, len: u64) {
        self.act(Action::Read { file: FILE, offset, len: len as usize });
    }

    /// One partial write to each page, at a place of its own.
    pub fn write_to_each(&mut self, pages: Range<u64>) {
        for page in pages {
            self.write(page * PAGE + page * 37 % 3000, 64);
        }
    }

    /// Lets a sync begin and end, and gives its answer.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.act(Action::Sync { file: FILE, durability: Durability::All });
        self.drain();
        self.world.last_answer().expect("a sync was answered")
    }

    /// Lets time pass until no request waits, a minute at most.
    pub fn drain(&mut self) {
        let deadline = self.world.now() + Duration::from_secs(60);
        while self.world.requests_waiting() > 0 {
            assert!(self.world.now() < deadline, "{} requests wait", self.waiting());
            self.act(Action::Advance { events: 1 });
        }
    }

    /// Lets time pass.
    pub fn sleep(&mut self, millis: u64) {
        self.act(Action::Sleep(Duration::from_millis(millis)));
    }

    /// What the engine counts.
    pub fn stats(&self) -> Stats {
        self.world.engine().stats(self.world.now())
    }

    /// The state of a page.
    pub fn state(&self, page: u64) -> PageState {
        self.world.engine().page_state(FILE, page)
    }

    /// Requests not answered yet.
    pub fn waiting(&self) -> usize {
        self.world.requests_waiting()
    }

    /// How commands fail from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.act(Action::SetFaults(faults));
    }

    /// Pages of the fetches in flight, by command.
    pub fn fetches(&self) -> Vec<(usize, Urgency)> {
        let fetch = |command: &Command| match command {
            Command::Fetch { frames, urgency, .. } => Some((frames.len(), *urgency)),
            _ => None,
        };
        self.world.device().in_flight().filter_map(fetch).collect()
    }

    /// Parts of the destages in flight, by command.
    pub fn destages(&self) -> Vec<usize> {
        let destage = |command: &Command| match command {
            Command::Write { parts, .. } => Some(parts.len()),
            _ => None,
        };
        self.world.device().in_flight().filter_map(destage).collect()
    }

    /// Everything comes home and is what was written.
    pub fn finish(mut self) -> Stats {
        if let Err(violation) = self.world.finish() {
            panic!("{violation}");
        }
        self.stats()
    }
}
