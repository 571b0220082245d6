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
    ExclusiveEnd, FileId, FramePool, Outcome, Output, PAGE_BYTES, PageState, ReadData, RequestId,
    Time,
};

use crate::action::{Action, Section};
use crate::device::{Breach, Device, DeviceConfig};
use crate::home::{Home, pages};
use crate::model::{ErrorLedger, FileModel, Mismatch, Moment};
use crate::rng::{Rng, checksum};
use crate::trace::Trace;

/// When a world begins: soon after the clock's origin, as after a boot.
const BEGINNING: Time = Time::from_nanos(1_000_000_000);

/// Something the engine did that it must not, or did not do that it must.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A promise to the back end was broken.
    #[error(transparent)]
    Breach(#[from] Breach),
    /// Bytes that no history of the file explains.
    #[error(
        "{what} of {file:?} at byte {}: {:#04x}, allowed {:02x?}",
        mismatch.offset,
        mismatch.found,
        mismatch.allowed
    )]
    Content {
        /// Whose bytes.
        what: String,
        /// The file.
        file: FileId,
        /// Which byte.
        mismatch: Mismatch,
    },
    /// A read returned too much or too little, or an image is too long or too short.
    #[error("{what} of {file:?} is {got} bytes long; the file's size is {size}")]
    Length {
        /// Whose length.
        what: String,
        /// The file.
        file: FileId,
        /// How long it is.
        got: u64,
        /// The size last seen.
        size: u64,
    },
    /// A size that no history of the file explains.
    #[error("{file:?} shows a size of {shown}; {expected} was expected")]
    Size {
        /// The file.
        file: FileId,
        /// What the engine says.
        shown: u64,
        /// The model's size.
        expected: u64,
    },
    /// An error answer with no failure of the device behind it.
    #[error("{request:?} ({what}) was answered '{error}' for no reason")]
    UnexplainedError {
        /// The request.
        request: RequestId,
        /// What it was.
        what: &'static str,
        /// The answer.
        error: Error,
    },
    /// A description was told too much or too little of its file's errors.
    #[error("a description of {file:?} was told {told:?}; due was {due:?}")]
    Report {
        /// The file.
        file: FileId,
        /// What it was told.
        told: Option<ErrorKind>,
        /// What it should have been told.
        due: Option<ErrorKind>,
    },
    /// A gauge above its bound.
    #[error("{what} is {value}, above {bound}")]
    Bound {
        /// Which.
        what: &'static str,
        /// The gauge.
        value: u64,
        /// Its bound.
        bound: u64,
    },
    /// An output that answers nothing, or says what is not so.
    #[error("unexpected output: {0}")]
    Output(String),
    /// Nothing goes on although something is to be done.
    #[error("no progress: {0}")]
    Stuck(String),
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// The engine's bounds.
    pub engine: Config,
    /// The device's ways.
    pub device: DeviceConfig,
    /// The engine's invariants are checked every so many steps.
    pub check_every: u32,
    /// Answers to reads whose frames are held on to for a while.
    pub reads_held_max: usize,
    /// Frames beyond the fewest the engine takes.
    pub frames_spare: u64,
    /// The file descriptors' owner keeps writes and sections of one file apart, as the kernel's
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
    cursor: ErrorCursor,
    /// When it was last told of errors.
    seen: Moment,
}

/// A file as the world knows it.
pub(crate) struct FileState {
    pub(crate) model: FileModel,
    pub(crate) ledger: ErrorLedger,
    pub(crate) phase: Phase,
    pub(crate) descriptions: Vec<Description>,
    /// The section granted and not ended yet.
    pub(crate) section: Option<Section>,
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
    Section { file: FileId, section: Section },
}

impl Waiting {
    pub(crate) fn file(&self) -> Option<FileId> {
        match self.kind {
            WaitingKind::Write { file, .. }
            | WaitingKind::Read { file, .. }
            | WaitingKind::Sync { file }
            | WaitingKind::Section { file, .. } => Some(file),
            WaitingKind::SyncAll => None,
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, WaitingKind::Write { .. })
    }

    /// Takes the inode lock.
    fn is_exclusive(&self) -> bool {
        matches!(self.kind, WaitingKind::Write { .. } | WaitingKind::Section { .. })
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
    pub(crate) now: Time,
    pub(crate) moment: Moment,
    held: VecDeque<(ReadData, u64)>,
    next_request: u64,
    steps: u64,
    /// Most writers that waited at once.
    pub(crate) writers_most: u64,
    pub(crate) last_answer: Option<Result<(), Error>>,
    rng: Rng,
    trace: Trace,
}

impl World {
    /// A world without files.
    ///
    /// # Errors
    /// What the engine has against its configuration.
    pub fn new(config: WorldConfig, mut rng: Rng) -> Result<World, ConfigError> {
        let frames = config.engine.memory_bytes_max / PAGE_BYTES as u64 + config.frames_spare;
        let frames = u32::try_from(frames).expect("simulated memory is small");
        let pool = FramePool::new(frames).expect("address space for the frames");
        let engine = Engine::new(config.engine.clone(), pool.clone())?;
        let trace = Trace::new(config.print);
        Ok(World {
            engine,
            device: Device::new(config.device, rng.fork()),
            files: BTreeMap::new(),
            waiting: BTreeMap::new(),
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
        let ledger = self.files.remove(&file).map(|state| state.ledger).unwrap_or_default();
        let state = FileState {
            model: FileModel::new(home.bytes().to_vec(), moment),
            ledger,
            phase: Phase::Attached,
            descriptions: Vec::new(),
            section: None,
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

    /// The files with a section granted and not ended.
    pub fn sections(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().filter(|(_, state)| state.section.is_some()).map(|(&file, _)| file)
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
            Action::Read { file, offset, len } => self.read(file, offset, len)?,
            Action::Sync { file, durability } => self.sync(file, durability)?,
            Action::SyncAll => self.sync_all()?,
            Action::BeginSection { file, section } => self.begin_section(file, section)?,
            Action::EndSection { file } => self.end_section(file)?,
            Action::Open { file } => self.open(file),
            Action::TakeError { file, description } => self.take_error(file, description, false)?,
            Action::Close { file, description } => self.take_error(file, description, true)?,
            Action::Detach { file } => self.detach(file)?,
            Action::Attach { file } => self.attach(file)?,
            Action::Discard { file } => self.discard(file)?,
            Action::ChangeBehind { file, offset, len } => self.change_behind(file, offset, len)?,
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
        Ok(done)
    }

    pub(crate) fn next_moment(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    fn usable(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|state| state.phase == Phase::Attached)
    }

    /// Whether the inode lock, if there is one, is free.
    fn unlocked(&self, file: FileId) -> bool {
        !self.config.inode_lock
            || self.files[&file].section.is_none()
                && !self
                    .waiting
                    .values()
                    .any(|other| other.is_exclusive() && other.file() == Some(file))
    }

    pub(crate) fn new_request(&mut self, kind: WaitingKind) -> (RequestId, Waiting) {
        self.next_request += 1;
        let start = self.next_moment();
        (RequestId(self.next_request), Waiting { start, kind })
    }

    fn write(
        &mut self,
        file: FileId,
        offset: u64,
        len: usize,
        durability: Durability,
    ) -> Result<bool, Violation> {
        if !self.usable(file) || !self.unlocked(file) || len == 0 {
            return Ok(false);
        }
        let data = self.rng.bytes(len);
        let kind = WaitingKind::Write { file, offset, len: len as u64, durability };
        let (request, waiting) = self.new_request(kind);
        self.trace.line(format_args!(
            "{} {request:?} write {file:?} {offset}+{len} {durability:?}",
            self.now.as_nanos()
        ));
        if offset.checked_add(len as u64).is_none_or(|end| end > i64::MAX as u64) {
            return match self.engine.write(request, file, offset, &data, durability, self.now) {
                Outcome::Done(Err(Error::OutOfRange)) => self.settle().map(|()| true),
                other => Err(Violation::Output(format!("{other:?} to a write past any file"))),
            };
        }
        let state = self.files.get_mut(&file).expect("usable");
        state.model.begin_write(request.0, waiting.start, offset, &data);
        let outcome = self.engine.write(request, file, offset, &data, durability, self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_write(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    fn read(&mut self, file: FileId, offset: u64, len: usize) -> Result<bool, Violation> {
        if !self.usable(file) || !self.device.file(file).is_readable() || len == 0 {
            return Ok(false);
        }
        let kind = WaitingKind::Read { file, offset, len: len as u64 };
        let (request, waiting) = self.new_request(kind);
        self.trace
            .line(format_args!("{} {request:?} read {file:?} {offset}+{len}", self.now.as_nanos()));
        let outcome = self.engine.read(request, file, offset, len, self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_read(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    fn sync(&mut self, file: FileId, durability: Durability) -> Result<bool, Violation> {
        if !self.usable(file) {
            return Ok(false);
        }
        let (request, waiting) = self.new_request(WaitingKind::Sync { file });
        self.trace
            .line(format_args!("{} {request:?} sync {file:?} {durability:?}", self.now.as_nanos()));
        let outcome = self.engine.sync(request, file, durability, self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_sync(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    pub(crate) fn sync_all(&mut self) -> Result<bool, Violation> {
        let (request, waiting) = self.new_request(WaitingKind::SyncAll);
        self.trace.line(format_args!("{} {request:?} sync all", self.now.as_nanos()));
        let outcome = self.engine.sync_all(request, self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_sync(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    fn begin_section(&mut self, file: FileId, section: Section) -> Result<bool, Violation> {
        if !self.usable(file) || !self.unlocked(file) {
            return Ok(false);
        }
        let (request, waiting) = self.new_request(WaitingKind::Section { file, section });
        self.trace
            .line(format_args!("{} {request:?} begin {section:?} {file:?}", self.now.as_nanos()));
        let outcome = self.engine.begin_exclusive(request, file, section.flush(), self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_section(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    /// Does at home what the section is for, and tells the engine and the model.
    pub(crate) fn end_section(&mut self, file: FileId) -> Result<bool, Violation> {
        let Some(section) = self.files.get_mut(&file).and_then(|state| state.section.take()) else {
            return Ok(false);
        };
        let moment = self.next_moment();
        let unchanged = ExclusiveEnd { discard: None, size: None };
        let size = self.files[&file].model.size();
        let end = match section {
            Section::Seek => unchanged,
            Section::Truncate { size } => {
                self.device.truncate(file, size);
                self.model(file).truncate(moment, size);
                ExclusiveEnd { size: Some(size), ..unchanged }
            }
            Section::Punch { from, to } => {
                self.device.punch(file, from, to);
                self.model(file).zero(moment, from, to);
                ExclusiveEnd { discard: Some((from, to)), ..unchanged }
            }
            Section::Copy { offset, len } => {
                let data = self.rng.bytes(len);
                let to = offset + len as u64;
                if self.device.overwrite(file, offset, &data).is_err() {
                    unchanged
                } else {
                    self.model(file).replace(moment, offset, &data);
                    if to > size {
                        self.model(file).extend(moment, to);
                    }
                    let size = (to > size).then_some(to);
                    ExclusiveEnd { discard: Some((offset, to)), size }
                }
            }
            Section::Collapse { from, len } if from + len < size => {
                let kept = self.device.file(file).bytes()[(from + len) as usize..].to_vec();
                // What moves must be what the file holds: it was flushed.
                self.judge_image("home to be collapsed", file, moment, from + len, &kept)?;
                self.device.collapse(file, from, len);
                self.model(file).truncate(moment, size - len);
                self.model(file).replace(moment + 1, from, &kept);
                self.moment += 1;
                ExclusiveEnd { discard: Some((from, u64::MAX)), size: Some(size - len) }
            }
            Section::Collapse { .. } => unchanged,
        };
        self.trace.line(format_args!("{} end {section:?} {file:?} {end:?}", self.now.as_nanos()));
        self.device.thaw(file);
        // Whoever changed the file saw to its times.
        self.files.get_mut(&file).expect("found above").disturbed = false;
        self.engine.end_exclusive(file, end, self.now);
        self.observe_sizes()?;
        self.settle().map(|()| true)
    }

    fn model(&mut self, file: FileId) -> &mut FileModel {
        &mut self.files.get_mut(&file).expect("a file that is there").model
    }

    fn open(&mut self, file: FileId) -> bool {
        if !self.usable(file) {
            return false;
        }
        let seen = self.next_moment();
        let cursor = self.engine.error_cursor(file);
        let state = self.files.get_mut(&file).expect("usable");
        state.descriptions.push(Description { cursor, seen });
        true
    }

    fn take_error(
        &mut self,
        file: FileId,
        description: usize,
        close: bool,
    ) -> Result<bool, Violation> {
        if !self.usable(file) || self.files[&file].descriptions.is_empty() {
            return Ok(false);
        }
        let moment = self.next_moment();
        let state = self.files.get_mut(&file).expect("usable");
        let at = description % state.descriptions.len();
        let asked = &mut state.descriptions[at];
        let told = self.engine.take_error(file, &mut asked.cursor);
        let judged = state.ledger.judge(asked.seen, told);
        if told.is_some() || judged.is_ok() {
            asked.seen = moment;
        }
        if close {
            state.descriptions.remove(at);
        }
        self.trace.line(format_args!("errors of {file:?}, description {at}: {told:?}"));
        match judged {
            // A page's patches go home run by run; their failure is known when the last has ended.
            Err(Some(_)) if told.is_none() && self.device.is_busy(file) => Ok(true),
            judged => judged.map(|()| true).map_err(|due| Violation::Report { file, told, due }),
        }
    }

    /// Whether something but a sync of everything waits for the file.
    fn is_waited_for(&self, file: FileId) -> bool {
        self.waiting.values().any(|waiting| waiting.file() == Some(file))
            || self.files[&file].section.is_some()
    }

    pub(crate) fn detach(&mut self, file: FileId) -> Result<bool, Violation> {
        if !self.usable(file) || self.is_waited_for(file) {
            return Ok(false);
        }
        self.trace.line(format_args!("{} detach {file:?}", self.now.as_nanos()));
        let state = self.files.get_mut(&file).expect("usable");
        state.descriptions.clear();
        state.phase = Phase::Detaching;
        self.engine.detach(file, self.now);
        self.settle().map(|()| true)
    }

    fn attach(&mut self, file: FileId) -> Result<bool, Violation> {
        let Some(phase) = self.files.get(&file).map(|state| state.phase) else {
            return Ok(false);
        };
        match phase {
            Phase::Attached | Phase::Discarded => return Ok(false),
            Phase::Unlinked => {
                self.create(file, Home::new(Vec::new(), &[], 512, true));
                return Ok(true);
            }
            Phase::Detached => {
                // What was reserved beyond the end was given back at the last close.
                let size = self.device.file(file).size();
                self.device.truncate(file, size);
            }
            Phase::Detaching => {}
        }
        let attributes = self.device.attributes(file);
        self.trace.line(format_args!("attach {file:?} ({phase:?}) {attributes:?}"));
        self.next_moment();
        self.engine.attach(file, attributes);
        let state = self.files.get_mut(&file).expect("it is there");
        state.phase = Phase::Attached;
        self.observe_sizes()?;
        self.settle().map(|()| true)
    }

    fn discard(&mut self, file: FileId) -> Result<bool, Violation> {
        if !self.usable(file) || self.is_waited_for(file) {
            return Ok(false);
        }
        self.trace.line(format_args!("{} discard {file:?}", self.now.as_nanos()));
        let state = self.files.get_mut(&file).expect("usable");
        state.descriptions.clear();
        state.phase = Phase::Discarded;
        self.device.doom(file);
        self.engine.discard(file);
        self.settle()?;
        self.engine.detach(file, self.now);
        self.settle().map(|()| true)
    }

    /// Changes the file at home behind the engine's back, where nothing of it is cached dirty or
    /// in use, and tells the engine to look again.
    fn change_behind(&mut self, file: FileId, offset: u64, len: usize) -> Result<bool, Violation> {
        if !self.usable(file)
            || self.is_waited_for(file)
            || self.engine.has_dirty(file)
            || self.device.is_busy(file)
        {
            return Ok(false);
        }
        let data = self.rng.bytes(len);
        if self.device.overwrite(file, offset, &data).is_err() {
            return Ok(false);
        }
        self.trace.line(format_args!("changed behind {file:?} {offset}+{len}"));
        let moment = self.next_moment();
        let model = self.model(file);
        model.replace(moment, offset, &data);
        model.extend(moment, model.size().max(offset + len as u64));
        if !self.engine.drop_clean(file, self.device.attributes(file)) {
            return Err(Violation::Output(format!("{file:?} is idle and clean, but not dropped")));
        }
        self.observe_sizes()?;
        self.settle().map(|()| true)
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
        while let Some(output) = self.engine.next_output() {
            self.next_moment();
            match output {
                Output::Command(command) => self.submit(command)?,
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
