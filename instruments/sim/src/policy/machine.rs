//! The engine and its commands in flight on the device.
//!
//! Commands are submitted at the moment when the engine gives them. Files are written in whole pages, and nothing
//! fails: an error is a defect of the engine or of this module, and panics.

use std::collections::{BTreeMap, VecDeque};

use weir_drive::Counts;
use weir_drive::parameters::Ns;
use weir_engine::{
    Command, Completion, Durability, Engine, FileId, Frame, FramePool, IoId, Outcome, Output,
    PAGE_BYTES, Part, ReadData, Reply, RequestId, Stats, Time,
};

use super::device::Device;
use super::files::{Files, number_in, put_number};
use super::setup::{Setup, SetupError, Trouble};

const PAGE: u64 = PAGE_BYTES as u64;

/// What a command of the engine is completed with.
enum UnderWay {
    Fetch { io: IoId, frames: Vec<Frame>, read: usize },
    Write { io: IoId, file: FileId, offset: u64, parts: Vec<Part> },
    Sync { io: IoId },
}

/// A machine with files on its drive.
pub struct Machine {
    engine: Engine,
    device: Device,
    files: Files,
    /// By the number of the drive's request.
    under_way: BTreeMap<u64, UnderWay>,
    /// The pages of reads that will be answered late.
    reading: BTreeMap<RequestId, (FileId, u64)>,
    /// Requests answered late, in their order.
    answers: VecDeque<RequestId>,
    now: Ns,
    trouble: Option<Trouble>,
    /// When the engine is to be called without an event.
    tick_at: Option<Ns>,
    page: Box<[u8; PAGE_BYTES]>,
}

impl Machine {
    /// A machine with files of `pages` pages each, none of them in memory.
    ///
    /// # Errors
    /// The error of the engine for its configuration.
    pub fn new(setup: &Setup, pages: impl Iterator<Item = u64>) -> Result<Machine, SetupError> {
        let config = setup.engine.clone();
        let transfer_bytes = config.transfer_pages_max as usize * PAGE_BYTES;
        let frames = u32::try_from(config.memory_bytes_max / PAGE).unwrap_or(u32::MAX);
        let mut engine = Engine::new(config, FramePool::new(frames)?)?;
        let files = Files::new(pages);
        for file in files.ids() {
            engine.attach(file, files.attributes(file));
        }
        Ok(Machine {
            engine,
            device: Device::new(setup.model, files.bytes(), transfer_bytes, setup.trouble),
            files,
            under_way: BTreeMap::new(),
            reading: BTreeMap::new(),
            answers: VecDeque::new(),
            now: 0,
            trouble: setup.trouble,
            tick_at: None,
            page: Box::new([0; PAGE_BYTES]),
        })
    }

    /// The engine, for reading.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine's statistics.
    pub fn stats(&self) -> Stats {
        self.engine.stats(self.engine_time())
    }

    /// The drive's statistics.
    pub fn counts(&self) -> Counts {
        self.device.counts()
    }

    /// Pages whose last write is not home.
    pub fn pages_not_home(&self) -> usize {
        self.files.pages_not_home()
    }

    /// The time of the engine's clock.
    fn engine_time(&self) -> Time {
        Time::from_nanos(self.now + self.ahead(self.now))
    }

    /// How far the engine's clock is ahead.
    fn ahead(&self, now: Ns) -> Ns {
        match self.trouble {
            Some(Trouble::ClockJump { at, by }) if now >= at => by,
            _ => 0,
        }
    }

    /// Writes a page; returns whether it was answered at once.
    pub fn write(&mut self, request: RequestId, file: FileId, page: u64) -> bool {
        put_number(&mut *self.page, self.files.write(file, page));
        let now = self.engine_time();
        let bytes = &self.page[..];
        let taken = self.engine.write(request, file, page * PAGE, bytes, Durability::None, now);
        self.settle();
        match taken {
            Outcome::Done(result) => result.map(|()| true).expect("nothing fails here"),
            Outcome::Pending => false,
        }
    }

    /// Reads a page; returns whether it was answered at once.
    pub fn read(&mut self, request: RequestId, file: FileId, page: u64) -> bool {
        let now = self.engine_time();
        let answered = match self.engine.read(request, file, page * PAGE, PAGE_BYTES, now) {
            Outcome::Done(result) => {
                self.compare(file, page, &result.expect("nothing fails here"));
                true
            }
            Outcome::Pending => {
                self.reading.insert(request, (file, page));
                false
            }
        };
        self.settle();
        answered
    }

    /// Begins to bring everything home; returns whether all was home already.
    pub fn sync_all(&mut self, request: RequestId) -> bool {
        let now = self.engine_time();
        let synced = self.engine.sync_all(request, now);
        self.settle();
        synced == Outcome::Done(Ok(()))
    }

    /// When the next event happens by itself.
    pub fn next_event(&self) -> Option<Ns> {
        [self.device.next_event(), self.tick_at].into_iter().flatten().min()
    }

    /// Advances time, at most to the next event, which then happens.
    pub fn pass(&mut self, now: Ns) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
        while let Some(id) = self.device.take_due(now) {
            let ended = self.under_way.remove(&id).expect("a request is complete once");
            self.end(ended);
        }
        if self.tick_at.is_some_and(|at| at <= now) {
            let now = self.engine_time();
            self.engine.tick(now);
            self.settle();
        }
    }

    /// A request that was answered late.
    pub fn take_answer(&mut self) -> Option<RequestId> {
        self.answers.pop_front()
    }

    fn end(&mut self, ended: UnderWay) {
        let (io, completion) = match ended {
            UnderWay::Fetch { io, frames, read } => {
                (io, Completion::Fetched { frames, result: Ok(read) })
            }
            UnderWay::Write { io, file, offset, parts } => {
                for (part, page) in parts.iter().zip(offset / PAGE..) {
                    self.files.came_home(file, page, number_in(part.frame.bytes()));
                }
                (io, Completion::Written { result: Ok(()) })
            }
            UnderWay::Sync { io } => (io, Completion::Synced { result: Ok(()) }),
        };
        self.complete(io, completion);
    }

    fn complete(&mut self, io: IoId, completion: Completion) {
        let now = self.engine_time();
        self.engine.complete(io, completion, now);
        self.settle();
    }

    /// Executes the engine's outputs until there are none.
    fn settle(&mut self) {
        self.engine.dispatch();
        while let Some(output) = self.engine.next_output() {
            match output {
                Output::Reply { request, reply } => {
                    self.check(request, reply);
                    self.answers.push_back(request);
                }
                Output::Command(command) => self.submit(command),
                Output::Cleaned(_) | Output::Detached(_) => {}
                Output::Redo { file, .. } => panic!("no sync of {file:?} fails here"),
                Output::Log(command) => panic!("{command:?} without a log"),
            }
        }
        let due = self.engine.next_tick(self.engine_time());
        self.tick_at = due.map(|due| self.host_time(due).max(self.now));
    }

    /// The first moment at which the engine's clock shows `at` or more.
    fn host_time(&self, at: Time) -> Ns {
        let at = at.as_nanos();
        match self.trouble {
            Some(Trouble::ClockJump { at: jump, by }) if at >= jump => {
                at.saturating_sub(by).max(jump)
            }
            _ => at,
        }
    }

    fn submit(&mut self, command: Command) {
        let now = self.now;
        let (id, under_way) = match command {
            Command::Fetch { io, file, offset, mut frames, .. } => {
                let found = self.files.fetched(file, offset, frames.len());
                for (frame, number) in frames.iter_mut().zip(found) {
                    put_number(frame.bytes_mut().expect("a frame of a fetch is unshared"), *number);
                }
                let read = found.len() * PAGE_BYTES;
                let id = self.device.read(now, self.files.place(file, offset), read);
                (id, UnderWay::Fetch { io, frames, read })
            }
            Command::Write { io, file, offset, parts } => {
                let whole = |part: &Part| part.start == 0 && usize::from(part.len) == PAGE_BYTES;
                assert!(parts.iter().all(whole), "nothing but whole pages was written");
                let bytes = parts.len() * PAGE_BYTES;
                let id = self.device.write(now, self.files.place(file, offset), bytes);
                (id, UnderWay::Write { io, file, offset, parts })
            }
            Command::Sync { io, .. } => (self.device.flush(now), UnderWay::Sync { io }),
            Command::Reserve { io, .. } => panic!("{io:?} reserves what the files have"),
            Command::Map { io, file } => {
                let extents = vec![self.files.extent(file)];
                self.engine.complete(io, Completion::Mapped { extents }, self.engine_time());
                return;
            }
        };
        self.under_way.insert(id, under_way);
    }

    fn check(&mut self, request: RequestId, reply: Reply) {
        match reply {
            Reply::Written(result) | Reply::Synced(result) | Reply::Frozen(result) => {
                result.expect("nothing fails here");
            }
            Reply::Read(result) => {
                let (file, page) = self.reading.remove(&request).expect("a read that waits");
                self.compare(file, page, &result.expect("nothing fails here"));
            }
        }
    }

    fn compare(&self, file: FileId, page: u64, data: &ReadData) {
        let first = data.segments.first().expect("a page inside of the file is not nothing");
        let found = number_in(first.as_slice());
        assert_eq!(found, self.files.seen(file, page), "{file:?} page {page}");
    }
}
