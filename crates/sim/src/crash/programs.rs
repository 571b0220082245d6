//! Programs, the engine, and the devices under it, from one power cut to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_engine::{
    Command, Completion, Config, Durability, Engine, ErrorKind, ExclusiveEnd, FetchPolicy, FileId,
    FramePool, HomeAttributes, LogCommand, Outcome, Output, PAGE_BYTES, Reply, RequestId, Time,
    WriteBackPolicy,
};
use weir_log::{BLOCK_BYTES, Commit, DATA_START, Lsn, Superblock, Writer, replay};

use super::broken::{Broken, Crash};
use super::edit::Edit;
use super::files::{HomeFile, Recovering, Redo, end_sync_of_all, identity};
use super::history::History;
use super::log_disk::LogDisk;
use super::{Plan, Tally};
use crate::rng::Rng;

const FILES: usize = 3;
/// No file is removed when there are no more than so many.
const FILES_MIN: usize = 2;
/// Largest file, bytes.
const FILE_BYTES_MAX: u64 = 192 << 10;
/// What a program writes in place of a file that it has just made empty, bytes at most.
const REWRITTEN_BYTES_MAX: u64 = 600;
/// The log: small, so that it is full now and then.
const LOG_BYTES: u64 = DATA_START + (256 << 10);

/// The devices, the engine above them, and what programs were promised.
pub struct Life {
    homes: Vec<HomeFile>,
    /// Of each file, what became of its name.
    names: Vec<Name>,
    log_disk: LogDisk,
    histories: Vec<History>,
    engine: Engine,
    now: Time,
    flight: BTreeMap<u64, Flight>,
    next_flight: u64,
    next_request: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    /// Files whose last change or read is not answered yet.
    busy: Vec<bool>,
    /// Of these, those with a change.
    changing: Vec<bool>,
    /// How often what is done: writes, syncs, changes of size, zeroing, syncs of everything, reads, rests,
    /// removals and creations.
    weights: [u32; 8],
    /// Writes so far, over all lives: what they write tells of which it is.
    writes: u64,
    /// How often a sync of home fails, in thousandths.
    failing: u32,
    plan: Plan,
    /// Everything came to rest, and nothing was asked for since.
    idle: bool,
    crashes: u64,
}

/// What became of a file's name at home.
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
    /// Of each file.
    changes: Vec<Vec<u64>>,
    removed: Vec<usize>,
}

/// A command under way.
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
    /// A section that was granted, and whether home has been changed by it.
    Section {
        file: usize,
        section: Section,
        version: u32,
        at_home: bool,
    },
    /// The file system is being synced, as a sync of everything ends.
    SyncSystem {
        positions: Vec<usize>,
        covered: Covered,
    },
}

/// A request under way.
enum Waiting {
    /// Durable up to `position` when it is answered, if it is a synchronous one.
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
    },
    Read {
        file: usize,
        offset: usize,
        expected: Vec<u8>,
    },
    Section {
        file: usize,
        section: Section,
        version: u32,
    },
}

#[derive(Clone, Copy)]
enum Section {
    /// Then so many bytes are written at the beginning, for nobody to sync: 0 for none.
    Size(usize, u64),
    Zero(usize, usize),
}

/// What the log's disk and home are after a crash that was recovered from.
struct Left {
    /// The files that have a name.
    homes: Vec<HomeFile>,
    log_disk: LogDisk,
    end: Lsn,
}

/// What write `nth` writes: of each byte, the next 255 writes write something else, and never zero.
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
            one_arm: rng.chance(500),
            write_back: *rng.pick(&WriteBackPolicy::ALL),
            opportunistic: true,
            requests_in_flight_max: if spilling { 4 } else { 1024 },
            ..Config::default()
        };
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
            failing: *rng.pick(if plan.homes_fail { &[0, 0, 250] } else { &[0] }),
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

    /// So many operations, with cuts in thought.
    ///
    /// # Errors
    /// A promise that was not kept.
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

    /// Ends the life by a crash in earnest; what is recovered is where the next one begins.
    ///
    /// # Errors
    /// A promise that was not kept.
    pub fn reborn(mut self, rng: &mut Rng, tally: &mut Tally) -> Result<Life, Broken> {
        let power = rng.chance(650);
        let Left { homes, mut log_disk, end } = self.crash(power, rng, tally)?;
        let superblock = log_disk.superblock().next_use(end);
        log_disk.write(&as_commit(&superblock));
        Ok(Life::begin(homes, log_disk, superblock, self.plan, self.writes, rng))
    }

    fn maybe_cut(&mut self, sparse: u64, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        if rng.below(sparse) == 0 {
            let power = rng.chance(650);
            self.crash(power, rng, tally)?;
        }
        Ok(())
    }

    /// Cuts the power in thought, or kills the daemon; recovers, and compares.
    fn crash(&mut self, power: bool, rng: &mut Rng, tally: &mut Tally) -> Result<Left, Broken> {
        self.crashes += 1;
        let (failing, idle) = (self.failing > 0, self.idle);
        let mut crash = Crash { nth: self.crashes, power, again: false, failing, idle };
        let mut homes: Vec<HomeFile> = self
            .homes
            .iter()
            .map(|home| if power { home.cut(rng) } else { home.kill(rng) })
            .collect();
        let mut log_disk = self.log_disk.clone();
        for flight in self.flight.values() {
            if let Flight::Log { commit, .. } = flight {
                log_disk.tear(commit, rng);
            }
        }
        let superblock = log_disk.superblock();
        let mut gone = self.gone(power, rng);
        loop {
            tally.count(crash);
            let mut recovering = Recovering::new(homes, gone.clone());
            if rng.chance(300) {
                recovering.writes_left = Some(rng.below(20));
            }
            match replay(&mut log_disk, superblock, Some(&mut recovering)) {
                Ok(report) => {
                    let homes = recovering.files;
                    self.check(&homes, &gone, crash, tally)?;
                    // What was recovered is durable before the log is used again.
                    if !homes.iter().all(HomeFile::is_durable) {
                        let cut: Vec<HomeFile> = homes.iter().map(|home| home.cut(rng)).collect();
                        let crash = Crash { power: true, again: true, ..crash };
                        self.check(&cut, &gone, crash, tally)?;
                    }
                    let left = homes.into_iter().zip(gone).filter(|(_, gone)| !gone);
                    let homes = left.map(|(home, _)| home).collect();
                    return Ok(Left { homes, log_disk, end: report.end });
                }
                Err(_) if recovering.writes_left == Some(0) => {
                    tally.recovery_cuts += 1;
                    if !crash.power && rng.chance(500) {
                        crash.power = true;
                        gone = self.gone(true, rng);
                    }
                    let files = recovering.files.iter();
                    homes = files
                        .map(|home| if crash.power { home.cut(rng) } else { home.kill(rng) })
                        .collect();
                }
                Err(error) => return Err(Broken::Log { error: error.to_string(), crash }),
            }
        }
    }

    /// Compares what was recovered with what was promised, and with what home had: after a power cut what was durable
    /// there, after a kill all that it had been given.
    fn check(
        &self,
        homes: &[HomeFile],
        gone: &[bool],
        crash: Crash,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        for (file, (found, had)) in homes.iter().zip(&self.homes).enumerate() {
            if gone[file] {
                continue;
            }
            let home = if crash.power { had.durable() } else { had.seen() };
            self.histories[file].check(file, found.content(), home, crash)?;
            tally.bytes += found.content().len() as u64;
        }
        Ok(())
    }

    /// Which files have no name after a crash: a power cut may undo any removal that is not durable.
    fn gone(&self, power: bool, rng: &mut Rng) -> Vec<bool> {
        let mut is_gone = |&name| match name {
            Name::There => false,
            Name::Removed => !power || rng.chance(500),
            Name::Gone => true,
        };
        self.names.iter().map(&mut is_gone).collect()
    }

    /// What was done to names is durable.
    fn settle_names(&mut self) {
        for name in self.names.iter_mut().filter(|name| **name == Name::Removed) {
            *name = Name::Gone;
        }
    }

    /// Removes a file that nobody has open any more.
    fn remove(&mut self, file: usize, tally: &mut Tally) {
        let in_use = self.waiting.values().any(|waiting| match waiting {
            Waiting::Write { file: of, .. }
            | Waiting::Sync { file: of, .. }
            | Waiting::Read { file: of, .. }
            | Waiting::Section { file: of, .. } => *of == file,
            Waiting::SyncAll { .. } => false,
        });
        if in_use || self.busy[file] {
            return;
        }
        self.names[file] = Name::Removed;
        self.engine.discard(file_id(file));
        self.engine.detach(file_id(file), self.now);
        tally.removals += 1;
    }

    /// Creates an empty file, and syncs its directory.
    fn create(&mut self) {
        self.settle_names();
        let mut home = HomeFile::new(&[]);
        self.histories.push(home.begin_history());
        self.homes.push(home);
        self.names.push(Name::There);
        self.busy.push(false);
        self.changing.push(false);
        self.attach(self.homes.len() - 1);
    }

    /// Nobody asks for anything for a long time, in which everything that goes home by itself does, and the kernel
    /// makes it durable there.
    fn rest(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        for _ in 0..20 {
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
        for home in &mut self.homes {
            if rng.chance(self.failing) {
                home.drop_some(rng);
            } else if rng.chance(800) {
                // Nobody is told by the kernel's own write-back: an error stays for the next sync.
                home.written_back();
            }
        }
        self.idle = true;
        tally.rests += 1;
        Ok(())
    }

    fn request(&mut self, waiting: Waiting) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.waiting.insert(request, waiting);
        request
    }

    fn operate(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        self.idle = false;
        let there: Vec<usize> =
            (0..self.names.len()).filter(|&file| self.names[file] == Name::There).collect();
        let file = *rng.pick(&there);
        let size = self.histories[file].content().len() as u64;
        match rng.weighted(&self.weights) {
            Some(0) if !self.busy[file] => {
                let offset = match rng.below(4) {
                    0 => size.min(FILE_BYTES_MAX - 9000),
                    _ => rng.below(FILE_BYTES_MAX - 9000),
                };
                let len = *rng.pick(&[1, 64, 64, 200, 512, 4096, 8192]);
                let durability = match rng.below(12) {
                    0 => Durability::Data,
                    1 => Durability::All,
                    _ => Durability::None,
                };
                self.write(file, offset, len, durability, tally)?;
            }
            Some(1) => {
                let position = self.position(file);
                let durability = *rng.pick(&[Durability::Data, Durability::All]);
                let request = self.request(Waiting::Sync { file, position });
                let outcome = self.engine.sync(request, file_id(file), durability, self.now);
                self.answered(request, outcome, tally)?;
            }
            Some(2) if !self.busy[file] => {
                let section = match rng.below(4) {
                    // Open with O_TRUNC, and a shorter text.
                    0 => Section::Size(0, rng.between(1, REWRITTEN_BYTES_MAX)),
                    1 => Section::Size(0, 0),
                    _ => Section::Size(rng.below(FILE_BYTES_MAX) as usize, 0),
                };
                self.section(file, section, None, tally)?;
            }
            Some(3) if !self.busy[file] && size > 0 => {
                let from = rng.below(size) as usize;
                let to = from + rng.below(size - from as u64) as usize + 1;
                let flush = Some((from as u64, to as u64));
                self.section(file, Section::Zero(from, to), flush, tally)?;
            }
            Some(4) => {
                let positions = (0..self.homes.len()).map(|file| self.position(file)).collect();
                let request = self.request(Waiting::SyncAll { positions });
                let outcome = self.engine.sync_all(request, self.now);
                self.answered(request, outcome, tally)?;
            }
            Some(5) if !self.busy[file] && size > 0 => {
                let offset = rng.below(size);
                let len = rng.between(1, 9000) as usize;
                let content = self.histories[file].content();
                let end = content.len().min(offset as usize + len);
                let expected = content[offset as usize..end].to_vec();
                let waiting = Waiting::Read { file, offset: offset as usize, expected };
                self.busy[file] = true;
                let request = self.request(waiting);
                match self.engine.read(request, file_id(file), offset, len, self.now) {
                    Outcome::Pending => {}
                    Outcome::Done(result) => {
                        self.take(request, Reply::Read(result), tally)?;
                    }
                }
            }
            Some(6) => self.rest(rng, tally)?,
            Some(7) if there.len() < FILES => self.create(),
            Some(7) if there.len() > FILES_MIN => self.remove(file, tally),
            _ => {}
        }
        Ok(())
    }

    fn write(
        &mut self,
        file: usize,
        offset: u64,
        len: usize,
        durability: Durability,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        self.writes += 1;
        let data = bytes_of(self.writes, offset, len);
        self.histories[file].did(Edit::Write { offset: offset as usize, bytes: data.clone() });
        (self.busy[file], self.changing[file]) = (true, true);
        let position = self.histories[file].position();
        let position = (durability != Durability::None).then_some(position);
        let request = self.request(Waiting::Write { file, position });
        let outcome =
            self.engine.write(request, file_id(file), offset, &data, durability, self.now);
        self.answered(request, outcome, tally)
    }

    fn section(
        &mut self,
        file: usize,
        section: Section,
        flush: Option<(u64, u64)>,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        (self.busy[file], self.changing[file]) = (true, true);
        // From here on: whoever logs a change before it is made may be cut between the two.
        let version = self.histories[file].did(match section {
            Section::Size(size, _) => Edit::Size(size),
            Section::Zero(from, to) => Edit::Zero { from, to },
        });
        let request = self.request(Waiting::Section { file, section, version });
        match self.engine.begin_exclusive(request, file_id(file), flush, self.now) {
            Outcome::Pending => Ok(()),
            Outcome::Done(result) => self.take(request, Reply::Exclusive(result), tally),
        }
    }

    fn answered(
        &mut self,
        request: RequestId,
        outcome: Outcome<()>,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        match outcome {
            Outcome::Done(result) => self.take(request, Reply::Synced(result), tally),
            Outcome::Pending => Ok(()),
        }
    }

    /// Where a sync of the file that begins now stands: a change that is under way is not in it.
    fn position(&self, file: usize) -> usize {
        self.histories[file].position() - usize::from(self.changing[file])
    }

    /// A request was answered.
    fn take(&mut self, request: RequestId, reply: Reply, tally: &mut Tally) -> Result<(), Broken> {
        let waiting = self.waiting.remove(&request).expect("a request is answered once");
        let failed = |what: &str| Broken::Answer(format!("{what}: {reply:?}"));
        let fine = match &reply {
            Reply::Written(result) | Reply::Synced(result) | Reply::Exclusive(result) => {
                result.is_ok()
            }
            Reply::Read(result) => result.is_ok(),
        };
        if !fine && self.failing == 0 {
            return Err(failed("nothing fails here"));
        }
        match (waiting, &reply) {
            (Waiting::Write { file, position }, _) => {
                (self.busy[file], self.changing[file]) = (false, false);
                // One that failed was taken all the same: its sync has failed.
                if let Some(position) = position.filter(|_| fine) {
                    tally.syncs += 1;
                    self.histories[file].wrote_durably(position);
                }
            }
            (Waiting::Sync { file, position }, _) if fine => {
                tally.syncs += 1;
                self.histories[file].synced(position);
            }
            (Waiting::SyncAll { positions }, _) if fine => {
                // To be followed by a sync of the back end as a whole.
                let covered = self.covered();
                self.fly(Flight::SyncSystem { positions, covered });
            }
            (Waiting::Sync { .. } | Waiting::SyncAll { .. }, _) => tally.failed_syncs += 1,
            (Waiting::Read { file, offset, expected }, Reply::Read(Ok(data))) => {
                self.busy[file] = false;
                if data.to_vec() != expected {
                    return Err(Broken::Answer(format!("file {file} read wrongly at {offset}")));
                }
            }
            (Waiting::Section { file, section, version }, _) if fine => {
                self.fly(Flight::Section { file, section, version, at_home: false });
            }
            (Waiting::Section { file, .. }, _) => {
                self.histories[file].withdraw();
                (self.busy[file], self.changing[file]) = (false, false);
            }
            (Waiting::Read { .. }, _) => return Err(failed("a read is answered by a read")),
        }
        Ok(())
    }

    /// A section does what it is for at home.
    fn change_home(&mut self, file: usize, section: Section, version: u32) {
        match section {
            Section::Size(size, _) => self.homes[file].set_size(size, version),
            Section::Zero(from, to) => self.homes[file].zero(from, to, version),
        }
    }

    fn end_section(
        &mut self,
        file: usize,
        section: Section,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        (self.busy[file], self.changing[file]) = (false, false);
        let (end, then) = match section {
            Section::Size(size, then) => {
                (ExclusiveEnd { discard: None, size: Some(size as u64) }, then)
            }
            Section::Zero(from, to) => {
                (ExclusiveEnd { discard: Some((from as u64, to as u64)), size: None }, 0)
            }
        };
        self.engine.end_exclusive(file_id(file), end, self.now);
        if then > 0 {
            self.write(file, 0, then as usize, Durability::None, tally)?;
        }
        Ok(())
    }

    /// Takes the engine's outputs.
    fn drain(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        while let Some(output) = self.engine.next_output() {
            match output {
                Output::Reply { request, reply } => self.take(request, reply, tally)?,
                Output::Command(command) => self.start(command),
                Output::Log(LogCommand::Write { io, commit }) => {
                    self.fly(Flight::Log { io, commit });
                }
                Output::Log(LogCommand::SyncHome { io }) => {
                    let covered = self.covered();
                    self.fly(Flight::SyncHome { io, covered });
                }
                Output::Log(LogCommand::Read { io, places }) => {
                    self.fly(Flight::ReadLog { io, places });
                }
                Output::Redo { file, from, .. } => {
                    let nth = (file.0 - 100) as usize;
                    let history = &self.histories[nth];
                    let mut redo = Redo { file: nth, home: &mut self.homes[nth], history };
                    let result = replay(&mut self.log_disk, from, Some(&mut redo));
                    result.map_err(|error| Broken::Answer(error.to_string()))?;
                    self.engine.redone(file, Ok(()), self.now);
                }
                Output::Cleaned(_) | Output::Detached(_) => {}
            }
        }
        Ok(())
    }

    fn fly(&mut self, flight: Flight) {
        self.next_flight += 1;
        self.flight.insert(self.next_flight, flight);
    }

    fn start(&mut self, command: Command) {
        let file = (command.file().0 - 100) as usize;
        let (history, home) = (&self.histories[file], &mut self.homes[file]);
        let (mut change, mut covered) = (0, Vec::new());
        match &command {
            Command::Write { offset, parts, .. } => {
                let mut bytes = Vec::new();
                for part in parts {
                    let start = usize::from(part.start);
                    bytes.extend_from_slice(
                        &part.frame.bytes()[start..start + usize::from(part.len)],
                    );
                }
                let offset = *offset as usize;
                let versions = history.versions_of(offset, &bytes, home.seen());
                change = home.begin_write(offset, bytes, versions);
            }
            Command::Sync { .. } => covered = home.begin_sync(),
            Command::Fetch { .. } | Command::Reserve { .. } | Command::Map { .. } => {}
        }
        self.fly(Flight::Home { command, change, covered });
    }

    /// What a sync of the whole file system that begins now covers.
    fn covered(&self) -> Covered {
        let names = self.names.iter().enumerate();
        let removed = names.filter(|&(_, &name)| name == Name::Removed);
        Covered {
            changes: self.homes.iter().map(HomeFile::begin_sync).collect(),
            removed: removed.map(|(file, _)| file).collect(),
        }
    }

    /// The end of a sync of the whole file system.
    fn sync_system(
        &mut self,
        covered: &Covered,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(), ErrorKind> {
        if rng.chance(self.failing) {
            let file = rng.below(self.homes.len() as u64) as usize;
            self.homes[file].drop_some(rng);
        }
        let result = end_sync_of_all(&mut self.homes, &covered.changes).map_err(|_| ErrorKind::Io);
        tally.failed_home_syncs += u64::from(result.is_err());
        if result.is_ok() {
            covered.removed.iter().for_each(|&file| self.names[file] = Name::Gone);
        }
        result
    }

    /// Ends one command, any.
    fn end_one(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        if self.flight.is_empty() {
            return Ok(());
        }
        let nth = rng.below(self.flight.len() as u64) as usize;
        let key = *self.flight.keys().nth(nth).expect("there are so many");
        let flight = self.flight.remove(&key).expect("the key was just found");
        self.now = self.now + Duration::from_micros(rng.below(500));
        match flight {
            Flight::Log { io, commit } => {
                self.log_disk.write(&commit);
                self.engine.log_completed(io, Ok(()), self.now);
            }
            Flight::ReadLog { io, places } => {
                // As the log is now: what is spilled must not be written over meanwhile.
                let blocks = places.iter().map(|&place| self.log_disk.block(place)).collect();
                self.engine.log_read(io, Ok(blocks), self.now);
            }
            Flight::SyncHome { io, covered } => {
                let result = self.sync_system(&covered, rng, tally);
                self.engine.log_completed(io, result, self.now);
            }
            Flight::SyncSystem { positions, covered } => {
                match self.sync_system(&covered, rng, tally) {
                    Ok(()) => {
                        tally.syncs += 1;
                        for (file, position) in positions.into_iter().enumerate() {
                            // What of a removed file was not home is dropped.
                            if self.names[file] == Name::There {
                                self.histories[file].synced(position);
                            }
                        }
                    }
                    Err(kind) => self.engine.home_sync_failed(kind, self.now),
                }
            }
            Flight::Section { file, section, version, at_home: false } => {
                self.change_home(file, section, version);
                self.fly(Flight::Section { file, section, version, at_home: true });
            }
            Flight::Section { file, section, .. } => self.end_section(file, section, tally)?,
            Flight::Home { command, change, covered } => {
                let home = &mut self.homes[(command.file().0 - 100) as usize];
                let (io, completion) = match command {
                    Command::Fetch { io, offset, mut frames, .. } => {
                        let content = home.content();
                        let from = content.len().min(offset as usize);
                        let read = (content.len() - from).min(frames.len() * PAGE_BYTES);
                        let bytes = content[from..from + read].chunks(PAGE_BYTES);
                        for (frame, bytes) in frames.iter_mut().zip(bytes) {
                            let frame = frame.bytes_mut().expect("a fetch's frames are unshared");
                            frame[..bytes.len()].copy_from_slice(bytes);
                        }
                        (io, Completion::Fetched { frames, result: Ok(read) })
                    }
                    Command::Write { io, .. } => {
                        home.end_write(change);
                        (io, Completion::Written { result: Ok(()) })
                    }
                    Command::Sync { io, .. } => {
                        if rng.chance(self.failing) {
                            home.drop_some(rng);
                        }
                        let result = home.end_sync(&covered).map_err(|_| ErrorKind::Io);
                        tally.failed_home_syncs += u64::from(result.is_err());
                        (io, Completion::Synced { result })
                    }
                    Command::Reserve { io, .. } => (io, Completion::Reserved { result: Ok(()) }),
                    Command::Map { io, .. } => (io, Completion::Mapped { extents: Vec::new() }),
                };
                self.engine.complete(io, completion, self.now);
            }
        }
        self.drain(tally)
    }
}

fn as_commit(superblock: &Superblock) -> Commit {
    Commit { blocks: vec![superblock.encode()], pieces: vec![(superblock.own_place(), 1)] }
}

const _: () = assert!(LOG_BYTES.is_multiple_of(BLOCK_BYTES as u64));
