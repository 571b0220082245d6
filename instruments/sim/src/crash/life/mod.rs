//! Programs, the engine, and the devices under it, from one crash to the next.
//!
//! What programs do is in `programs`, what the devices do for the engine in `devices`, and what a crash leaves in
//! `crashes`.

mod crashes;
mod devices;
mod programs;

use std::collections::BTreeMap;
use std::time::Duration;

use weir_engine::{
    Command, Config, Durability, Engine, FetchPolicy, FileId, FramePool, HomeAttributes,
    PAGE_BYTES, RequestId, Time, WriteBackPolicy,
};
use weir_log::{BLOCK_BYTES, Commit, DATA_START, Lsn, NODE_FIRST, Superblock, Writer};

use super::broken::Broken;
use super::files::{HomeFile, identity};
use super::history::History;
use super::log_disk::LogDisk;
use super::plan::{Homes, Plan};
use super::tally::Tally;
use crate::rng::Rng;

const FILES: usize = 3;
/// Largest file, bytes.
const FILE_BYTES_MAX: u64 = 192 << 10;
/// The log's size: small, so that the log is full now and then.
const LOG_BYTES: u64 = DATA_START + (256 << 10);

/// The devices, the engine above them, and what programs were promised.
pub struct Life {
    homes: Vec<HomeFile>,
    /// For each file, the state of its name.
    names: Vec<Name>,
    log_disk: LogDisk,
    histories: Vec<History>,
    engine: Engine,
    now: Time,
    flight: BTreeMap<u64, Flight>,
    next_flight: u64,
    next_request: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    /// Files with an unanswered change or read.
    busy: Vec<bool>,
    /// Files with an unanswered change.
    changing: Vec<bool>,
    /// Weights of the operations: writes, syncs, changes of size, zeroing, syncs of everything, reads, rests,
    /// removals and creations.
    weights: [u32; 8],
    /// Number of writes over all lives: each write's bytes follow from its number.
    writes: u64,
    /// Probability that a sync of home fails, in thousandths.
    failing: u32,
    /// Probability that a write of the log fails, in thousandths. After the first failure all fail.
    log_failing: u32,
    /// The log is void: it failed, and everything was made durable at home since.
    void: bool,
    /// Syncs of the whole of home by programs that have failed.
    system_failures: u64,
    /// Failures are suspended.
    healthy: bool,
    plan: Plan,
    /// Everything came to rest, and no request was made since.
    idle: bool,
    crashes: u64,
}

/// State of a file's name at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    There,
    /// Removed; a power cut may bring it back.
    Removed,
    /// Removed for good.
    Gone,
}

/// What a sync of the whole file system covers.
struct Covered {
    /// For each file.
    changes: Vec<Vec<u64>>,
    removed: Vec<usize>,
}

/// A command in flight.
enum Flight {
    Home {
        command: Command,
        change: u64,
        covered: Vec<u64>,
    },
    Log {
        io: weir_engine::IoId,
        commit: Commit,
    },
    SyncHome {
        io: weir_engine::IoId,
        covered: Covered,
    },
    ReadLog {
        io: weir_engine::IoId,
        places: Vec<u64>,
    },
    /// A file's records are being written to home from the log.
    Redo {
        file: usize,
        from: Superblock,
        until: Lsn,
    },
    /// A frozen action. `at_home` says whether it has changed home.
    Frozen {
        file: usize,
        action: FrozenAction,
        version: u32,
        at_home: bool,
    },
    /// The sync of the file system at the end of a sync of everything.
    SyncSystem {
        positions: Vec<usize>,
        voids: bool,
        failures: u64,
        covered: Covered,
    },
}

/// A request under way.
enum Waiting {
    /// If the write is synchronous, everything up to `position` is durable when it is answered.
    Write {
        file: usize,
        position: Option<usize>,
    },
    Sync {
        file: usize,
        position: usize,
    },
    SyncAll {
        positions: Vec<usize>,
        /// The log had failed when it began.
        voids: bool,
        /// What `system_failures` was when it began.
        failures: u64,
    },
    Read {
        file: usize,
        offset: usize,
        expected: Vec<u8>,
    },
    Freeze {
        file: usize,
        action: FrozenAction,
        version: u32,
    },
}

#[derive(Clone, Copy)]
enum FrozenAction {
    /// The new size; then this many bytes are written at the beginning and not synced, or none if 0.
    Size(usize, u64),
    Zero(usize, usize),
}

/// The bytes of write `nth`: never zero, and at each offset different from those of the next 255 writes.
fn bytes_of(nth: u64, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64)
        .map(|at| ((nth * 7 + at * 31 + at / 255) % 255) as u8 + 1)
        .collect()
}

fn file_id(file: usize) -> FileId {
    FileId(100 + file as u64)
}

impl Life {
    /// Files of some content, all of it durable, and an empty log.
    pub fn first(plan: &Plan, rng: &mut Rng) -> Life {
        let homes = (0..FILES as u64)
            .map(|file| HomeFile::new(&bytes_of(file, 0, rng.below(FILE_BYTES_MAX) as usize)))
            .collect();
        let superblock = Superblock {
            log: [7; 16],
            mount: [8; 16],
            bytes: LOG_BYTES,
            generation: 1,
            checkpoint: Lsn(0),
            clean: false,
            row_blocks: *rng.pick(&[1, 1, 5, 16]),
            nodes: NODE_FIRST,
            features: 0,
        };
        let mut log_disk = LogDisk::default();
        log_disk.write(&as_commit(&superblock));
        Life::begin(homes, log_disk, superblock, plan.clone(), FILES as u64, rng)
    }

    fn begin(
        mut homes: Vec<HomeFile>,
        log_disk: LogDisk,
        superblock: Superblock,
        plan: Plan,
        writes: u64,
        rng: &mut Rng,
    ) -> Life {
        let histories: Vec<History> = homes.iter_mut().map(HomeFile::begin_history).collect();
        // In half of the lives patches are left alone and have little memory: they spill.
        let spilling = rng.chance(500);
        let lazy = [FetchPolicy::Lazy, FetchPolicy::Auto];
        let mut config = Config {
            memory_bytes_max: Config::MEMORY_BYTES_MIN,
            patch_bytes_max: if spilling { rng.between(2 << 10, 24 << 10) } else { 4 << 20 },
            fetch_policy: *rng.pick(if spilling { &lazy } else { &FetchPolicy::ALL }),
            dirty_expire: Duration::from_millis(rng.between(5, 2000)),
            rotational: rng.chance(500),
            write_back: *rng.pick(&WriteBackPolicy::ALL),
            opportunistic: true,
            requests_in_flight_max: if spilling { 4 } else { 1024 },
            ..Config::default()
        };
        config.keeps_unsynced = plan.homes == Homes::Keep;
        plan.undone.iter().for_each(|undo| undo.apply(&mut config));
        let frames = (config.memory_bytes_max / PAGE_BYTES as u64) as u32 + 512;
        let pool = FramePool::new(frames).expect("memory for the frames");
        let mut engine = Engine::new(config, pool).expect("the configuration is valid");
        engine.start_log(Writer::new(superblock));
        let files = homes.len();
        let mut life = Life {
            homes,
            names: vec![Name::There; files],
            log_disk,
            histories,
            engine,
            now: Time::from_nanos(1_000_000_000),
            flight: BTreeMap::new(),
            next_flight: 0,
            next_request: 0,
            waiting: BTreeMap::new(),
            busy: vec![false; files],
            changing: vec![false; files],
            weights: if spilling {
                [70, 4, 2, 2, 1, 10, 1, 1]
            } else {
                [50, 25, 6, 4, 2, 10, 2, 3]
            },
            writes,
            failing: *rng.pick(if plan.homes == Homes::Work { &[0] } else { &[0, 0, 250] }),
            log_failing: *rng.pick(if plan.logs_fail { &[0, 0, 0, 0, 0, 20] } else { &[0] }),
            void: false,
            system_failures: 0,
            healthy: false,
            plan,
            idle: false,
            crashes: 0,
        };
        (0..files).for_each(|file| life.attach(file));
        life
    }

    fn attach(&mut self, file: usize) {
        let home = HomeAttributes {
            size: self.homes[file].content().len() as u64,
            dense: true,
            write_unit: 512,
            readable: true,
        };
        self.engine.attach(file_id(file), home);
        if self.plan.logged {
            self.engine.identify(file_id(file), &identity(file));
        }
    }

    /// Performs a number of operations, with crashes on copies of the devices.
    ///
    /// # Errors
    /// A violated promise.
    pub fn live(
        &mut self,
        operations: u32,
        sparse: u64,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        let checkpoint = self.log_disk.superblock().generation;
        for _ in 0..operations {
            self.now = self.now + Duration::from_micros(rng.below(3000));
            self.operate(rng, tally)?;
            self.drain(tally)?;
            self.maybe_cut(sparse, rng, tally)?;
            for _ in 0..rng.below(6) {
                self.end_one(rng, tally)?;
                self.maybe_cut(sparse, rng, tally)?;
            }
            if self.engine.next_tick(self.now).is_some_and(|due| due <= self.now) {
                self.engine.tick(self.now);
                self.drain(tally)?;
            }
            self.engine.check_invariants();
        }
        let stats = self.engine.stats(self.now);
        tally.groups += stats.log_groups;
        tally.spilled += stats.spilled;
        tally.log_reads += stats.log_reads;
        tally.checkpoints += self.log_disk.superblock().generation - checkpoint;
        Ok(())
    }

    /// Whether syncs of home fail now.
    fn home_fails(&self, rng: &mut Rng) -> bool {
        !self.healthy && rng.chance(self.failing)
    }

    /// Whether anything may fail in this life.
    fn may_fail(&self) -> bool {
        self.failing > 0 || self.log_failing > 0
    }

    /// Home works and has kept everything: after each error has been reported once, syncs succeed. Not after a failure of the log.
    fn expect_syncs(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        for _ in 0..3 {
            let failed = tally.failed_syncs;
            let there = (0..self.names.len()).filter(|&file| self.names[file] == Name::There);
            for file in there.collect::<Vec<_>>() {
                let position = self.position(file);
                let request = self.request(Waiting::Sync { file, position });
                let outcome = self.engine.sync(request, file_id(file), Durability::All, self.now);
                self.answered(request, outcome, tally)?;
            }
            self.drain(tally)?;
            while !self.flight.is_empty() {
                self.end_one(rng, tally)?;
            }
            if self.engine.log_has_failed() {
                return Ok(());
            }
            if tally.failed_syncs == failed {
                tally.later_syncs += 1;
                return Ok(());
            }
        }
        Err(Broken::Answer("syncs fail although home has kept everything and works again".into()))
    }

    /// No request is made for a long time, in which the engine brings everything home and the kernel makes it
    /// durable there.
    fn rest(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        for round in 0..20 {
            self.healthy = round >= 10;
            let mut left = 1000;
            while !self.flight.is_empty() && left > 0 {
                self.end_one(rng, tally)?;
                left -= 1;
            }
            let soon = self.now + Duration::from_millis(rng.below(8000));
            let due = self.engine.next_tick(self.now).unwrap_or(soon);
            self.now = self.now.max(if rng.chance(500) { soon } else { due });
            self.engine.tick(self.now);
            self.drain(tally)?;
        }
        if self.plan.homes == Homes::Keep {
            self.expect_syncs(rng, tally)?;
        }
        self.healthy = false;
        if !self.waiting.is_empty() {
            let left = format!("{} requests are not answered after a rest", self.waiting.len());
            return Err(Broken::Answer(left));
        }
        let failing = self.failing;
        for home in &mut self.homes {
            if rng.chance(failing) {
                home.fail(self.plan.homes, rng);
            } else if rng.chance(800) {
                // The kernel's own write-back reports no error: it stays for the next sync.
                home.written_back();
            }
        }
        self.idle = true;
        tally.rests += 1;
        Ok(())
    }
}

fn as_commit(superblock: &Superblock) -> Commit {
    Commit { blocks: vec![superblock.encode()], pieces: vec![(superblock.own_place(), 1)] }
}

const _: () = assert!(LOG_BYTES.is_multiple_of(BLOCK_BYTES as u64));
