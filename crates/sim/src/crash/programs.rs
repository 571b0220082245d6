//! Programs, the engine, and the devices under it, from one power cut to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_engine::{
    Command, Completion, Config, Durability, Engine, ExclusiveEnd, FetchPolicy, FileId, FramePool,
    HomeAttributes, LogCommand, Outcome, Output, PAGE_BYTES, Reply, RequestId, Time,
    WriteBackPolicy,
};
use weir_log::{BLOCK_BYTES, Commit, DATA_START, Lsn, Superblock, Writer, replay};

use super::Tally;
use super::files::Redo;
use super::files::{HomeFile, Recovering, identity};
use super::history::{Broken, History};
use super::log_disk::LogDisk;
use crate::rng::Rng;

const FILES: usize = 3;
/// Largest file, bytes.
const FILE_BYTES_MAX: u64 = 192 << 10;
/// The log: small, so that it is full now and then.
const LOG_BYTES: u64 = DATA_START + (256 << 10);

/// The devices, the engine above them, and what programs were promised.
pub struct Life {
    homes: Vec<HomeFile>,
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
    /// Of these, those with a write.
    writing: Vec<bool>,
    /// How often what is done: writes, syncs, changes of size, zeroing, syncs of everything, reads.
    weights: [u32; 6],
    cuts: u64,
}

/// A command under way.
enum Flight {
    Home { command: Command, change: u64, covered: Vec<u64> },
    Log { io: weir_engine::IoId, commit: Commit },
    SyncHome { io: weir_engine::IoId, covered: Vec<Vec<u64>> },
    ReadLog { io: weir_engine::IoId, places: Vec<u64> },
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
    },
}

#[derive(Clone, Copy)]
enum Section {
    Size(usize),
    Zero(usize, usize),
}

fn file_id(file: usize) -> FileId {
    FileId(100 + file as u64)
}

impl Life {
    /// Files of random content, all of it durable, and an empty log.
    pub fn first(rng: &mut Rng) -> Life {
        let contents = (0..FILES)
            .map(|_| {
                let len = rng.below(FILE_BYTES_MAX) as usize;
                rng.bytes(len)
            })
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
        Life::begin(contents, log_disk, superblock, rng)
    }

    fn begin(
        contents: Vec<Vec<u8>>,
        log_disk: LogDisk,
        superblock: Superblock,
        rng: &mut Rng,
    ) -> Life {
        // In half of the lives patches are left alone and have little memory: they spill.
        let spilling = rng.chance(500);
        let lazy = [FetchPolicy::Lazy, FetchPolicy::Auto];
        let config = Config {
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
        let frames = (config.memory_bytes_max / PAGE_BYTES as u64) as u32 + 512;
        let pool = FramePool::new(frames).expect("memory for the frames");
        let mut engine = Engine::new(config, pool).expect("the configuration is valid");
        engine.start_log(Writer::new(superblock));
        for (file, content) in contents.iter().enumerate() {
            let home = HomeAttributes {
                size: content.len() as u64,
                dense: true,
                write_unit: 512,
                readable: true,
            };
            engine.attach(file_id(file), home);
            engine.identify(file_id(file), &identity(file));
        }
        Life {
            homes: contents.iter().cloned().map(HomeFile::new).collect(),
            log_disk,
            histories: contents.into_iter().map(History::new).collect(),
            engine,
            now: Time::from_nanos(1_000_000_000),
            flight: BTreeMap::new(),
            next_flight: 0,
            next_request: 0,
            waiting: BTreeMap::new(),
            busy: vec![false; FILES],
            writing: vec![false; FILES],
            weights: if spilling { [70, 4, 2, 2, 1, 10] } else { [50, 25, 6, 4, 2, 10] },
            cuts: 0,
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

    /// The power goes in earnest; what is recovered is where the next life begins.
    ///
    /// # Errors
    /// A promise that was not kept.
    pub fn reborn(mut self, rng: &mut Rng, tally: &mut Tally) -> Result<Life, Broken> {
        let (contents, mut log_disk, end) = self.cut(rng, tally)?;
        let superblock = log_disk.superblock().next_use(end);
        log_disk.write(&as_commit(&superblock));
        Ok(Life::begin(contents, log_disk, superblock, rng))
    }

    fn maybe_cut(&mut self, sparse: u64, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        if rng.below(sparse) == 0 {
            self.cut(rng, tally)?;
        }
        Ok(())
    }

    /// Cuts the power in thought, recovers, and compares. What recovery left, and where the log ended.
    fn cut(
        &mut self,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(Vec<Vec<u8>>, LogDisk, Lsn), Broken> {
        self.cuts += 1;
        tally.cuts += 1;
        let cut = self.cuts;
        let mut contents: Vec<Vec<u8>> = self.homes.iter().map(|home| home.cut(rng)).collect();
        let mut log_disk = self.log_disk.clone();
        for flight in self.flight.values() {
            if let Flight::Log { commit, .. } = flight {
                log_disk.tear(commit, rng);
            }
        }
        let superblock = log_disk.superblock();
        loop {
            let mut recovering = Recovering::new(contents);
            if rng.chance(300) {
                recovering.writes_left = Some(rng.below(20));
            }
            match replay(&mut log_disk, superblock, Some(&mut recovering)) {
                Ok(report) => {
                    let contents: Vec<Vec<u8>> =
                        recovering.files.iter().map(HomeFile::content).collect();
                    for (file, content) in contents.iter().enumerate() {
                        self.histories[file].check(file, content, cut)?;
                        tally.bytes += content.len() as u64;
                    }
                    return Ok((contents, log_disk, report.end));
                }
                Err(_) if recovering.writes_left == Some(0) => {
                    tally.recovery_cuts += 1;
                    tally.cuts += 1;
                    contents = recovering.files.iter().map(|file| file.cut(rng)).collect();
                }
                Err(error) => return Err(Broken::Log { error: error.to_string(), cut }),
            }
        }
    }

    fn request(&mut self, waiting: Waiting) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.waiting.insert(request, waiting);
        request
    }

    fn operate(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        let file = rng.below(FILES as u64) as usize;
        let size = self.histories[file].content().len() as u64;
        match rng.weighted(&self.weights) {
            Some(0) if !self.busy[file] => {
                let offset = match rng.below(4) {
                    0 => size.min(FILE_BYTES_MAX - 9000),
                    _ => rng.below(FILE_BYTES_MAX - 9000),
                };
                let len = *rng.pick(&[1, 64, 64, 200, 512, 4096, 8192]);
                let data = rng.bytes(len);
                let durability = match rng.below(12) {
                    0 => Durability::Data,
                    1 => Durability::All,
                    _ => Durability::None,
                };
                self.histories[file].write(offset as usize, &data);
                self.busy[file] = true;
                let position = self.histories[file].position();
                let position = (durability != Durability::None).then_some(position);
                self.writing[file] = true;
                let request = self.request(Waiting::Write { file, position });
                let outcome =
                    self.engine.write(request, file_id(file), offset, &data, durability, self.now);
                self.answered(request, outcome, tally)?;
            }
            Some(1) => {
                let position = self.position(file);
                let durability = *rng.pick(&[Durability::Data, Durability::All]);
                let request = self.request(Waiting::Sync { file, position });
                let outcome = self.engine.sync(request, file_id(file), durability, self.now);
                self.answered(request, outcome, tally)?;
            }
            Some(2) if !self.busy[file] => {
                let to = match rng.below(3) {
                    0 => 0,
                    _ => rng.below(FILE_BYTES_MAX) as usize,
                };
                self.section(file, Section::Size(to), None, tally)?;
            }
            Some(3) if !self.busy[file] && size > 0 => {
                let from = rng.below(size) as usize;
                let to = from + rng.below(size - from as u64) as usize + 1;
                let flush = Some((from as u64, to as u64));
                self.section(file, Section::Zero(from, to), flush, tally)?;
            }
            Some(4) => {
                let positions = (0..FILES).map(|file| self.position(file)).collect();
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
            _ => {}
        }
        Ok(())
    }

    fn section(
        &mut self,
        file: usize,
        section: Section,
        flush: Option<(u64, u64)>,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        self.busy[file] = true;
        let request = self.request(Waiting::Section { file, section });
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

    /// Where a sync of the file that begins now stands: what is being written is not in it.
    fn position(&self, file: usize) -> usize {
        self.histories[file].position() - usize::from(self.writing[file])
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
        if !fine {
            return Err(failed("nothing fails here"));
        }
        match (waiting, &reply) {
            (Waiting::Write { file, position }, _) => {
                self.busy[file] = false;
                self.writing[file] = false;
                if let Some(position) = position {
                    tally.syncs += 1;
                    self.histories[file].wrote_durably(position);
                }
            }
            (Waiting::Sync { file, position }, _) => {
                tally.syncs += 1;
                self.histories[file].synced(position);
            }
            (Waiting::SyncAll { positions }, _) => {
                tally.syncs += 1;
                // To be followed by a sync of the back end as a whole.
                for (file, position) in positions.into_iter().enumerate() {
                    let covered = self.homes[file].begin_sync();
                    self.homes[file].end_sync(&covered);
                    self.histories[file].synced(position);
                }
            }
            (Waiting::Read { file, offset, expected }, Reply::Read(Ok(data))) => {
                self.busy[file] = false;
                if data.to_vec() != expected {
                    return Err(Broken::Answer(format!("file {file} read wrongly at {offset}")));
                }
            }
            (Waiting::Section { file, section }, _) => {
                self.busy[file] = false;
                let end = match section {
                    Section::Size(size) => {
                        self.homes[file].set_size(size);
                        self.histories[file].set_size(size);
                        ExclusiveEnd { discard: None, size: Some(size as u64) }
                    }
                    Section::Zero(from, to) => {
                        self.homes[file].zero(from, to);
                        self.histories[file].zero(from, to);
                        ExclusiveEnd { discard: Some((from as u64, to as u64)), size: None }
                    }
                };
                self.engine.end_exclusive(file_id(file), end, self.now);
            }
            (Waiting::Read { .. }, _) => return Err(failed("a read is answered by a read")),
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
                    let covered = self.homes.iter().map(HomeFile::begin_sync).collect();
                    self.fly(Flight::SyncHome { io, covered });
                }
                Output::Log(LogCommand::Read { io, places }) => {
                    self.fly(Flight::ReadLog { io, places });
                }
                Output::Redo { file, from, .. } => {
                    let nth = (file.0 - 100) as usize;
                    let mut redo = Redo { file: nth, home: &mut self.homes[nth] };
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
        let home = &mut self.homes[(command.file().0 - 100) as usize];
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
                change = home.begin_write(*offset as usize, bytes);
            }
            Command::Sync { .. } => covered = home.begin_sync(),
            Command::Fetch { .. } | Command::Reserve { .. } | Command::Map { .. } => {}
        }
        self.fly(Flight::Home { command, change, covered });
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
                for (home, covered) in self.homes.iter_mut().zip(&covered) {
                    home.end_sync(covered);
                }
                self.engine.log_completed(io, Ok(()), self.now);
            }
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
                        home.end_sync(&covered);
                        (io, Completion::Synced { result: Ok(()) })
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
