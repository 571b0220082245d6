//! The simulated world: the real engine, a device, a model of every file, and virtual time.
//!
//! [`World::apply`] does one [`Action`]: it calls the engine as the daemon would, drains its
//! outputs, hands commands to the device and answers to the model, and checks what can be checked
//! at every step. What the answers must be is in `judge`.
//!
//! Owns the clock, the order of events, the requests not answered yet and the descriptions.
//!
//! Invariants:
//! - `moment` grows with every call of the engine and every output taken from it;
//! - after a call of the engine, sizes are observed first, then outputs are taken until none is
//!   left, before anything else happens.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use weir_engine::{
    Command, Completion, Config, ConfigError, Durability, Engine, Error, ErrorCursor, ErrorKind,
    FileId, FramePool, Output, PAGE_BYTES, PageState, ReadData, RequestId, Time,
};

use crate::action::{Action, FrozenAction};
use crate::device::{Device, DeviceConfig};
use crate::home::{Home, pages};
use crate::lane::Lane;
use crate::model::{ErrorLedger, FileModel, Moment};
use crate::rng::{Rng, checksum};
use crate::trace::Trace;
use crate::violation::Violation;

/// When a world begins: soon after the clock's origin, as after a boot.
const BEGINNING: Time = Time::from_nanos(1_000_000_000);

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// The engine's bounds.
    pub engine: Config,
    /// The device's ways.
    pub device: DeviceConfig,
    /// The engine's invariants are checked once in this many steps.
    pub check_every: u32,
    /// Answers to reads whose frames are held on to for a while.
    pub reads_held_max: usize,
    /// Frames beyond the fewest the engine takes.
    pub frames_spare: u64,
    /// The file descriptors' owner keeps writes and freezes of one file apart, as the kernel's
    /// inode lock does.
    pub inode_lock: bool,
    /// At the end dirty data is left to age before anything is synced.
    pub ages: bool,
    /// Whether lines are printed as they come.
    pub print: bool,
}

/// A file's standing with the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Attached,
    /// Detach was asked for.
    Detaching,
    /// Home only.
    Detached,
    /// Discarded, detach was asked for.
    Discarded,
    /// Nowhere.
    Unlinked,
}

/// An open description.
pub(crate) struct Description {
    pub(crate) cursor: ErrorCursor,
    /// When an error was last reported to it.
    pub(crate) seen: Moment,
}

/// A file as the world knows it.
pub(crate) struct FileState {
    pub(crate) model: FileModel,
    pub(crate) ledger: ErrorLedger,
    /// How a sync of it failed last at home. What that sync covered and what has left memory is gone, and
    /// later syncs may report it.
    pub(crate) sync_failed: Option<ErrorKind>,
    pub(crate) phase: Phase,
    pub(crate) descriptions: Vec<Description>,
    /// The action for which the file is frozen.
    pub(crate) frozen: Option<FrozenAction>,
    /// Where it is on the board, if it is in the lane.
    pub(crate) slot: Option<u32>,
    /// A destage changed home since the engine last said that the file is clean.
    pub(crate) disturbed: bool,
    /// When the file became what it is: identifiers are used again.
    pub(crate) born: Moment,
}

/// A request that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) start: Moment,
    pub(crate) kind: WaitingKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitingKind {
    Write { file: FileId, offset: u64, len: u64, durability: Durability },
    Read { file: FileId, offset: u64, len: u64 },
    Sync { file: FileId },
    SyncAll,
    Freeze { file: FileId, action: FrozenAction },
}

impl Waiting {
    pub(crate) fn file(&self) -> Option<FileId> {
        match self.kind {
            WaitingKind::Write { file, .. }
            | WaitingKind::Read { file, .. }
            | WaitingKind::Sync { file }
            | WaitingKind::Freeze { file, .. } => Some(file),
            WaitingKind::SyncAll => None,
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, WaitingKind::Write { .. })
    }

    /// Takes the inode lock.
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.kind, WaitingKind::Write { .. } | WaitingKind::Freeze { .. })
    }
}

/// The world.
pub struct World {
    pub(crate) config: WorldConfig,
    pub(crate) engine: Engine,
    pub(crate) device: Device,
    pub(crate) files: BTreeMap<FileId, FileState>,
    pub(crate) waiting: BTreeMap<RequestId, Waiting>,
    pub(crate) pool: FramePool,
    pub(crate) lane: Lane,
    pub(crate) now: Time,
    pub(crate) moment: Moment,
    held: VecDeque<(ReadData, u64)>,
    pub(crate) next_request: u64,
    steps: u64,
    /// Most writers that waited at once.
    pub(crate) writers_most: u64,
    pub(crate) last_answer: Option<Result<(), Error>>,
    pub(crate) rng: Rng,
    pub(crate) trace: Trace,
}

impl World {
    /// A world without files.
    ///
    /// # Errors
    /// What the engine has against its configuration.
    pub fn new(config: WorldConfig, mut rng: Rng) -> Result<World, ConfigError> {
        let frames = config.engine.memory_bytes_max / PAGE_BYTES as u64 + config.frames_spare;
        let frames = u32::try_from(frames).expect("simulated memory is small");
        let pool = FramePool::shared(frames).expect("address space for the frames");
        let engine = Engine::new(config.engine.clone(), pool.clone())?;
        let trace = Trace::new(config.print);
        Ok(World {
            engine,
            device: Device::new(config.device, rng.fork()),
            files: BTreeMap::new(),
            waiting: BTreeMap::new(),
            lane: Lane::new(&pool),
            pool,
            now: BEGINNING,
            moment: 0,
            held: VecDeque::new(),
            next_request: 0,
            steps: 0,
            writers_most: 0,
            last_answer: None,
            rng,
            trace,
            config,
        })
    }

    /// Creates a file at home and attaches it.
    pub fn create(&mut self, file: FileId, home: Home) {
        let moment = self.next_moment();
        // A sync of everything may still tell of the failures of an unlinked file.
        let before = self.files.remove(&file);
        let failed = before.as_ref().and_then(|before| before.sync_failed);
        let mut ledger = before.map(|before| before.ledger).unwrap_or_default();
        if let Some(kind) = failed {
            // A sync of everything that began before may still report it.
            ledger.record(moment, kind, false);
        }
        let state = FileState {
            model: FileModel::new(home.bytes().to_vec(), moment),
            ledger,
            sync_failed: None,
            phase: Phase::Attached,
            descriptions: Vec::new(),
            frozen: None,
            slot: None,
            disturbed: false,
            born: moment,
        };
        self.files.insert(file, state);
        self.device.add(file, home);
        let attributes = self.device.attributes(file);
        self.trace.line(format_args!("create {file:?} {attributes:?}"));
        self.engine.attach(file, attributes);
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The device, to look at.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The device, to change its ways.
    pub fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// The virtual clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The record of what happened.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The record, to add to.
    pub fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// How the request answered last ended.
    pub fn last_answer(&self) -> Option<Result<(), Error>> {
        self.last_answer
    }

    /// Requests not answered yet.
    pub fn requests_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The request that has waited longest for its answer.
    pub fn oldest_waiting(&self) -> Option<RequestId> {
        self.waiting.keys().next().copied()
    }

    /// The files that are frozen.
    pub fn frozen_files(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().filter(|(_, state)| state.frozen.is_some()).map(|(&file, _)| file)
    }

    /// Size of a file that can be used now.
    pub fn usable_size(&self, file: FileId) -> Option<u64> {
        self.files
            .get(&file)
            .filter(|state| state.phase == Phase::Attached)
            .map(|state| state.model.size())
    }

    /// Does one step; `false` if it made no sense now and was skipped.
    ///
    /// # Errors
    /// What the engine did wrong.
    pub fn apply(&mut self, action: &Action) -> Result<bool, Violation> {
        let done = match *action {
            Action::Write { file, offset, len, durability } => {
                self.write(file, offset, len, durability)?
            }
            Action::Scatter { file, offset, pages, len } => {
                self.scatter(file, offset, pages, len)?
            }
            Action::Read { file, offset, len } => self.read(file, offset, len)?,
            Action::Sync { file, durability } => self.sync(file, durability)?,
            Action::SyncAll => self.sync_all()?,
            Action::Freeze { file, action } => self.freeze(file, action)?,
            Action::Thaw { file } => self.thaw(file)?,
            Action::Open { file } => self.open(file),
            Action::TakeError { file, description } => self.take_error(file, description, false)?,
            Action::Close { file, description } => self.take_error(file, description, true)?,
            Action::Detach { file } => self.detach(file)?,
            Action::Attach { file } => self.attach(file)?,
            Action::Discard { file } => self.discard(file)?,
            Action::ChangeBehind { file, offset, len } => self.change_behind(file, offset, len)?,
            Action::Share { file } => self.share(file),
            Action::Unshare { file } => self.unshare(file),
            Action::ReleaseReads => self.release_reads()?,
            Action::Advance { events } => self.advance(events)?,
            Action::Sleep(duration) => self.sleep(duration)?,
            Action::Stall(duration) => self.stall(duration)?,
            Action::SetFaults(faults) => {
                self.device.set_faults(faults);
                true
            }
            Action::SetFreePages(free_pages) => {
                self.device.set_free_pages(free_pages);
                true
            }
        };
        self.steps += 1;
        if self.steps.is_multiple_of(u64::from(self.config.check_every)) {
            self.engine.check_invariants();
        }
        self.look_in_lane()?;
        Ok(done)
    }

    pub(crate) fn next_moment(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    pub(crate) fn hold(&mut self, data: ReadData) -> Result<(), Violation> {
        if self.config.reads_held_max == 0 {
            return Ok(());
        }
        let sum = checksum(&data.to_vec());
        self.held.push_back((data, sum));
        while self.held.len() > self.config.reads_held_max {
            self.release_one()?;
        }
        Ok(())
    }

    fn release_one(&mut self) -> Result<(), Violation> {
        match self.held.pop_front() {
            Some((data, sum)) if checksum(&data.to_vec()) != sum => {
                Err(Violation::Output("the answer to a read changed while it was held".into()))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn release_reads(&mut self) -> Result<bool, Violation> {
        let any = !self.held.is_empty();
        while !self.held.is_empty() {
            self.release_one()?;
        }
        Ok(any)
    }

    /// When something happens next by itself.
    pub(crate) fn next_event(&self) -> Option<Time> {
        match (self.device.next_due(), self.engine.next_tick(self.now)) {
            (Some(due), Some(tick)) => Some(due.min(tick)),
            (due, tick) => due.or(tick),
        }
    }

    pub(crate) fn advance(&mut self, events: u32) -> Result<bool, Violation> {
        for done in 0..events {
            let Some(next) = self.next_event() else {
                return Ok(done > 0);
            };
            self.now = self.now.max(next);
            self.happen()?;
        }
        Ok(true)
    }

    fn sleep(&mut self, duration: Duration) -> Result<bool, Violation> {
        let until = self.now + duration;
        while let Some(next) = self.next_event().filter(|&next| next <= until) {
            self.now = self.now.max(next);
            self.happen()?;
        }
        self.now = until;
        Ok(true)
    }

    fn stall(&mut self, duration: Duration) -> Result<bool, Violation> {
        self.now = self.now + duration;
        while self.next_event().is_some_and(|next| next <= self.now) {
            self.happen()?;
        }
        Ok(true)
    }

    /// One completion or tick that is due now.
    fn happen(&mut self) -> Result<(), Violation> {
        let Some(ended) = self.device.end_next(self.now)? else {
            self.next_moment();
            self.engine.tick(self.now);
            self.observe_sizes()?;
            self.settle()?;
            return match self.engine.next_tick(self.now) {
                Some(tick) if tick <= self.now => {
                    Err(Violation::Stuck(format!("a tick at {:?} asks for {tick:?}", self.now)))
                }
                _ => Ok(()),
            };
        };
        let moment = self.next_moment();
        self.trace.line(format_args!(
            "{} ended {:?} {:?} {:?}",
            self.now.as_nanos(),
            ended.io,
            ended.file,
            ended.failure
        ));
        if let Some(state) = self.files.get_mut(&ended.file) {
            state.disturbed |= matches!(ended.completion, Completion::Written { .. });
            if let Some(failure) = ended.failure {
                state.ledger.record(moment, failure.kind, failure.owed);
                if matches!(ended.completion, Completion::Synced { .. }) {
                    state.sync_failed = Some(failure.kind);
                }
            }
        }
        self.engine.complete(ended.io, ended.completion, self.now);
        self.observe_sizes()?;
        self.settle()
    }

    /// Compares the engine's sizes with the models'.
    pub(crate) fn observe_sizes(&mut self) -> Result<(), Violation> {
        let moment = self.moment;
        for (&file, state) in &mut self.files {
            if state.phase != Phase::Attached {
                continue;
            }
            let shown = self
                .engine
                .size(file)
                .ok_or_else(|| Violation::Output(format!("{file:?} is not attached")))?;
            state.model.observe_size(moment, shown).map_err(|expected| Violation::Size {
                file,
                shown,
                expected,
            })?;
        }
        Ok(())
    }

    /// Takes every output there is, and checks the bounds.
    pub(crate) fn settle(&mut self) -> Result<(), Violation> {
        self.engine.dispatch();
        while let Some(output) = self.engine.next_output() {
            self.next_moment();
            match output {
                Output::Command(command) => self.submit(command)?,
                Output::Log(_) | Output::Redo { .. } => unreachable!("there is no log here"),
                Output::Reply { request, reply } => {
                    let waiting = self.waiting.remove(&request).ok_or_else(|| {
                        Violation::Output(format!("{reply:?} to {request:?}, which nobody made"))
                    })?;
                    self.judge_reply(request, waiting, reply)?;
                }
                Output::Cleaned(file) => self.judge_cleaned(file)?,
                Output::Detached(file) => self.judge_detached(file)?,
            }
        }
        self.judge_disturbed()?;
        self.judge_bounds()?;
        self.fold_models();
        Ok(())
    }

    fn submit(&mut self, command: Command) -> Result<(), Violation> {
        match &command {
            Command::Fetch { io, file, offset, frames, urgency } => self.trace.line(format_args!(
                "  {io:?} fetch {file:?} {offset} {} pages {urgency:?}",
                frames.len()
            )),
            Command::Write { io, file, offset, parts } => self.trace.line(format_args!(
                "  {io:?} destage {file:?} {offset} {:?}",
                parts.iter().map(|part| (part.start, part.len)).collect::<Vec<_>>()
            )),
            other => self.trace.line(format_args!("  {other:?}")),
        }
        self.device.submit(command, self.now)?;
        Ok(())
    }

    fn fold_models(&mut self) {
        for (&file, state) in &mut self.files {
            if state.model.is_crowded() {
                let horizon = self
                    .waiting
                    .values()
                    .filter(|waiting| waiting.file().is_none_or(|other| other == file))
                    .map(|waiting| waiting.start)
                    .min()
                    .unwrap_or(self.moment);
                state.model.settle(horizon);
            }
        }
    }

    /// Pages of the range that are in a state.
    pub fn pages_in_state(&self, file: FileId, from: u64, to: u64, state: PageState) -> usize {
        pages(from, to).filter(|&page| self.engine.page_state(file, page) == state).count()
    }
}
