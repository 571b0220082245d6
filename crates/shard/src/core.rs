//! The shard's lock, the state under it, and the work after it is released.
//!
//! Every event runs the same way. The engine is called under the lock. Its outputs are taken as [`Work`] before
//! the lock is released. The work is performed without the lock: commands go to the back end, continuations are
//! run. A command that the back end completes at once is a new event, in a loop and not by recursion. Work that
//! may block (frozen actions, the closing of files, times) is left to the back end's workers, unless the
//! calling thread asked for it.
//!
//! Invariants:
//! - no system call on a file, and no continuation, under the lock;
//! - a file is in `files` exactly while the engine may have it: from before its attach until its
//!   `Detached` is taken out;
//! - a panic under the lock ends the process: the data in memory may be inconsistent.
//!
//! Lock order: the shard's lock is taken before that of the back end's list of losses. Besides, nothing is called under it but the
//! engine and what a [`HomeFile`] knows of itself: whether it is bound, and its node and inode in the log. The inode's lock is the last one.

use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use weir_backend::{
    Directory, Failures, Given, HomeFile, LogRead, LogThread, Patience, Sink, SyncFailed, WholeSync,
};
use weir_engine::{
    Command, Completion, Engine, Error, FileId, FramePool, FreezeEnd, IoId, LogCommand, Output,
    ReadData, Reply, Time,
};

use weir_log::{Lsn, Superblock};

use crate::latency::{Measured, Recorder};
use crate::pending::{Answer, Continuation, FrozenAction, Pending, Waiting};
use crate::posted::Posted;
use crate::slow_files::SlowFiles;
use crate::ticker::{Deadline, Doorbell};
use crate::trampoline;

pub(crate) struct Core {
    me: Weak<Core>,
    state: Mutex<State>,
    /// The engine's frames.
    frames: FramePool,
    pub(crate) directory: Directory,
    pub(crate) doorbell: Doorbell,
    /// Executes commands on the redo log, if there is one.
    pub(crate) log: OnceLock<LogThread>,
    origin: Instant,
}

pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) files: HashMap<FileId, Attached>,
    pub(crate) pending: Pending,
    pub(crate) recorder: Recorder,
    pub(crate) slow_files: SlowFiles,
    pub(crate) posted: Posted,
    pub(crate) deadline: Deadline,
}

/// A file that the engine has.
pub(crate) struct Attached {
    pub(crate) home: Arc<HomeFile>,
    /// Run when the file is detached.
    pub(crate) detached: Vec<Answer>,
}

/// Device commands that bring a small file home, one after the other: aligned pages, an unaligned end, and the sync.
const SYNC_COMMANDS: u32 = 3;

/// What an event left to do without the lock. Allocates only if it is not empty.
#[derive(Default)]
pub(crate) struct Work {
    commands: Vec<(Command, Arc<HomeFile>)>,
    log: Vec<LogCommand>,
    redos: Vec<Redo>,
    cleaned: Vec<Arc<HomeFile>>,
    answers: VecDeque<Ready>,
    ring_doorbell: bool,
}

/// A file whose records in the log are to be written to it again.
struct Redo {
    file: FileId,
    home: Arc<HomeFile>,
    identity: Box<[u8]>,
    node: u64,
    from: Superblock,
    until: Lsn,
    refused: Vec<Lsn>,
}

/// The kind of thread that performs work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// The thread of a call: it may block for what it asked for.
    Caller,
    /// The thread of a call that asked for a sync.
    Syncer,
    /// The thread of a call that may hold locks of the caller, which continuations may take.
    Holding,
    /// A thread that completes requests of others: it must not block.
    Completion,
}

/// A continuation with its answer.
enum Ready {
    Done(Box<dyn FnOnce(Result<(), Error>) + Send>, Result<(), Error>),
    Read(Box<dyn FnOnce(Result<ReadData, Error>) + Send>, Result<ReadData, Error>),
    Frozen(FileId, FrozenAction, Result<(), Error>),
    Detached(Answer),
}

impl Core {
    pub(crate) fn new(engine: Engine, directory: Directory) -> Arc<Core> {
        let frames = engine.frames().clone();
        let state = State {
            engine,
            files: HashMap::new(),
            pending: Pending::default(),
            recorder: Recorder::new(),
            slow_files: SlowFiles::default(),
            posted: Posted::default(),
            deadline: Deadline::new(),
        };
        Arc::new_cyclic(|me| Core {
            me: Weak::clone(me),
            state: Mutex::new(state),
            frames,
            directory,
            doorbell: Doorbell::default(),
            log: OnceLock::new(),
            origin: Instant::now(),
        })
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        match self.state.lock() {
            Ok(guard) => Locked { guard },
            // The panicking thread aborts the process; this thread may get here first.
            Err(_) => abort("the engine panicked"),
        }
    }

    /// Calls the engine with one event and performs the work that it leaves.
    pub(crate) fn event<T>(&self, thread: Thread, event: impl FnOnce(&mut State, Time) -> T) -> T {
        let now = self.now();
        let mut work = Work::default();
        let result = {
            let mut state = self.lock();
            let result = event(&mut state, now);
            state.take_work(&mut work, now);
            result
        };
        self.perform(work, thread);
        result
    }

    /// Performs the work of an event, and of the events that follow from it at once.
    pub(crate) fn perform(&self, mut work: Work, thread: Thread) {
        self.frames.prepare();
        let mut completions = Vec::new();
        // Bounded: a thread that wrote the log for others again and again would not answer its own request.
        let mut may_write_log = thread == Thread::Syncer && !trampoline::is_nested();
        let mut syncs_home = if may_write_log { SYNC_COMMANDS } else { 0 };
        while !work.is_empty() {
            if std::mem::take(&mut work.ring_doorbell) {
                self.doorbell.ring();
            }
            // Before the log's commands: the device executes them while this thread writes the log.
            if !work.commands.is_empty() {
                let patience = match thread {
                    Thread::Completion => Patience::None,
                    Thread::Syncer if syncs_home > 0 && work.is_for_sync_alone() => Patience::Sync,
                    Thread::Caller | Thread::Holding | Thread::Syncer => Patience::Read,
                };
                syncs_home = syncs_home.saturating_sub(1);
                self.directory.execute(&mut work.commands, &mut completions, patience);
            }
            if !work.log.is_empty() {
                self.log(&mut work, std::mem::take(&mut may_write_log));
            }
            for redo in work.redos.drain(..) {
                let core = self.me.upgrade().expect("its methods are called through an Arc");
                self.directory.defer(Box::new(move || core.redo(&redo)));
            }
            if !completions.is_empty() {
                self.complete(&mut completions, &mut work);
            }
            // After the commands: a sync among them restores its file's times.
            if work.commands.is_empty() {
                for home in work.cleaned.drain(..).filter(|home| home.times().is_disturbed()) {
                    self.directory.defer(Box::new(move || restore_times(&home)));
                }
            }
            if let Some(ready) = work.answers.pop_front() {
                let here = match thread {
                    Thread::Caller | Thread::Syncer => true,
                    Thread::Holding => false,
                    Thread::Completion => !ready.may_block(),
                };
                if here {
                    self.answer(ready, &mut work);
                } else {
                    self.answer_on_worker(ready);
                }
            }
        }
    }

    /// Executes the log's commands; one that completes at once is a new event.
    fn log(&self, work: &mut Work, may_block: bool) {
        let log = self.log.get().expect("the engine uses a log it was given");
        for command in std::mem::take(&mut work.log) {
            match log.execute(command, may_block) {
                Given::Taken => {}
                Given::Ended(io, result) => self.log_ended(io, result, work),
                Given::Read(read) => {
                    let core = self.me.upgrade().expect("its methods are called through an Arc");
                    self.directory.defer(Box::new(move || core.read_log(&read)));
                }
            }
        }
    }

    /// Syncs home as a whole, by no command on the log, and tells the engine. Blocks.
    ///
    /// # Errors
    /// As [`WholeSync::sync`].
    pub(crate) fn sync_home(
        &self,
        whole: &WholeSync,
        failures: Failures,
    ) -> Result<(), SyncFailed> {
        let changes = self.lock().engine.changes_at_home();
        whole.sync(failures, |failed| {
            self.event(Thread::Completion, |state, now| {
                let known = state.engine.home_sync_failed(failed.kind, failed.files(), now);
                self.losses_are_told(failed, &known);
            });
        })?;
        self.lock().engine.home_is_synced(changes);
        Ok(())
    }

    /// The engine knows what home has lost of these files.
    fn losses_are_told(&self, failed: &SyncFailed, known: &[FileId]) {
        if let Some(lost) = &failed.lost {
            self.directory.are_told(lost, known);
        }
    }

    fn log_ended(&self, io: IoId, result: Result<(), SyncFailed>, work: &mut Work) {
        let mut state = self.lock();
        let now = self.now();
        match &result {
            Err(failed) if failed.lost.is_some() => {
                let known = state.engine.log_lost(io, failed.kind, failed.files(), now);
                self.losses_are_told(failed, &known);
            }
            _ => state.engine.log_completed(io, result.map_err(|failed| failed.kind), now),
        }
        state.take_work(work, now);
    }

    fn answer_on_worker(&self, ready: Ready) {
        let core = self.me.upgrade().expect("its methods are called through an Arc");
        self.directory.defer(Box::new(move || {
            let mut work = Work::default();
            core.answer(ready, &mut work);
            core.perform(work, Thread::Caller);
        }));
    }

    fn complete(&self, completions: &mut Vec<(IoId, Completion)>, work: &mut Work) {
        let mut state = self.lock();
        let now = self.now();
        for (io, completion) in completions.drain(..) {
            state.engine.complete(io, completion, now);
        }
        state.take_work(work, now);
    }

    fn answer(&self, ready: Ready, work: &mut Work) {
        match ready {
            Ready::Done(continuation, result) => trampoline::run(move || continuation(result)),
            Ready::Read(continuation, result) => trampoline::run(move || continuation(result)),
            Ready::Detached(continuation) => trampoline::run(continuation),
            Ready::Frozen(file, action, result) => {
                let answer = self.run_frozen(file, action, result, work);
                trampoline::run(answer);
            }
        }
    }

    /// Runs `action` in a freeze that was granted or failed, then thaws the file. Adds to `work` the requests
    /// that waited for the thaw.
    pub(crate) fn run_frozen<T>(
        &self,
        file: FileId,
        action: impl FnOnce(Result<(), Error>) -> (FreezeEnd, T),
        granted: Result<(), Error>,
        work: &mut Work,
    ) -> T {
        let guard = AbortOnPanic("a thread panicked while a file was frozen");
        let (end, answer) = action(granted);
        drop(guard);
        if granted.is_ok() {
            let mut state = self.lock();
            let now = self.now();
            state.engine.thaw(file, end, now);
            state.take_work(work, now);
        }
        answer
    }

    /// A command on the log ended.
    pub(crate) fn log_completed(&self, io: IoId, result: Result<(), SyncFailed>) {
        let mut work = Work::default();
        self.log_ended(io, result, &mut work);
        self.perform(work, Thread::Completion);
    }

    fn read_log(&self, read: &LogRead) {
        let result = read.run();
        let mut work = Work::default();
        {
            let mut state = self.lock();
            let now = self.now();
            state.engine.log_read(read.io, result, now);
            state.take_work(&mut work, now);
        }
        self.perform(work, Thread::Completion);
    }

    fn redo(&self, redo: &Redo) {
        let log = self.log.get().expect("the engine uses a log it was given");
        let file = (redo.node, &*redo.identity);
        let result = log.redo(redo.from, redo.until, &redo.refused, file, &redo.home);
        let mut work = Work::default();
        {
            let mut state = self.lock();
            let now = self.now();
            state.engine.redone(redo.file, result, now);
            state.take_work(&mut work, now);
        }
        self.perform(work, Thread::Completion);
    }

    /// Executes the commands that were held until a file was bound. May be called under locks that continuations
    /// take.
    pub(crate) fn release(&self, home: &Arc<HomeFile>) {
        let held = home.take_held().into_iter();
        let commands = held.map(|command| (command, Arc::clone(home))).collect();
        self.perform(Work { commands, ..Work::default() }, Thread::Holding);
    }

    /// Ends commands that will not be executed. May be called under locks that continuations take.
    pub(crate) fn end_all(&self, mut completions: Vec<(IoId, Completion)>) {
        let mut work = Work::default();
        self.complete(&mut completions, &mut work);
        self.perform(work, Thread::Holding);
    }

    /// The body of the ticking thread: ticks when a tick is due.
    pub(crate) fn run_ticker(&self) {
        let _guard = AbortOnPanic("the ticking thread panicked");
        loop {
            let mut work = Work::default();
            let sleep = {
                let mut state = self.lock();
                let now = self.now();
                if state.engine.next_tick(now).is_some_and(|next| next <= now) {
                    state.engine.tick(now);
                    state.take_work(&mut work, now);
                    work.ring_doorbell = false;
                }
                let next_tick = state.engine.next_tick(now);
                state.deadline.sleep(next_tick, now)
            };
            self.perform(work, Thread::Completion);
            if !self.doorbell.sleep(sleep) {
                return;
            }
        }
    }
}

impl Sink for Core {
    fn completed(&self, completions: &mut Vec<(IoId, Completion)>) {
        let mut work = Work::default();
        self.complete(completions, &mut work);
        self.perform(work, Thread::Completion);
    }
}

impl State {
    /// Keeps a request, on a file or on none, that was made at `since` and waits for its answer.
    pub(crate) fn wait(&mut self, since: Time, file: Option<FileId>, continuation: Continuation) {
        self.pending.insert(Waiting { since, file, continuation });
    }

    /// Whether the engine has the file, as this one at home.
    pub(crate) fn has(&self, file: FileId, home: &Arc<HomeFile>) -> bool {
        self.files.get(&file).is_some_and(|attached| Arc::ptr_eq(&attached.home, home))
    }

    /// Takes the engine's outputs of an event at `now`.
    pub(crate) fn take_work(&mut self, work: &mut Work, now: Time) {
        self.engine.dispatch();
        while let Some(output) = self.engine.next_output() {
            match output {
                Output::Command(command) => {
                    let file = self.files.get(&command.file());
                    let home = &file.expect("the engine commands files it has").home;
                    work.commands.push((command, Arc::clone(home)));
                }
                Output::Log(command) => work.log.push(command),
                Output::Redo { file, identity, node, from, until, refused } => {
                    let of_file = self.files.get(&file).expect("the engine repairs files it has");
                    let home = Arc::clone(&of_file.home);
                    work.redos.push(Redo { file, home, identity, node, from, until, refused });
                }
                Output::Reply { request, reply } => {
                    let waiting = self.pending.remove(request);
                    let ready = self.ready(waiting, reply, now);
                    work.answers.push_back(ready);
                }
                Output::Cleaned(file) => {
                    if let Some(file) = self.files.get(&file) {
                        work.cleaned.push(Arc::clone(&file.home));
                    }
                }
                Output::Detached(file) => {
                    let gone = self.files.remove(&file).expect("a file is detached once");
                    work.answers.extend(gone.detached.into_iter().map(Ready::Detached));
                }
            }
        }
        work.ring_doorbell |= self.deadline.event(self.engine.next_tick(now));
    }

    fn ready(&mut self, waiting: Waiting, reply: Reply, now: Time) -> Ready {
        let latency = now.since(waiting.since);
        match (waiting.continuation, reply) {
            (Continuation::Write(continuation), Reply::Written(result)) => {
                self.record_late(waiting.file, Measured::Write, latency);
                Ready::Done(continuation, result)
            }
            (Continuation::Posted(continuation), Reply::Written(result)) => {
                Ready::Done(continuation, result)
            }
            (Continuation::Read(continuation), Reply::Read(result)) => {
                self.record_late(waiting.file, Measured::Read, latency);
                Ready::Read(continuation, result)
            }
            (Continuation::Sync(continuation), Reply::Synced(result)) => {
                self.record_late(waiting.file, Measured::Sync, latency);
                Ready::Done(continuation, result)
            }
            (Continuation::Freeze(file, action), Reply::Frozen(result)) => {
                Ready::Frozen(file, action, result)
            }
            (_, reply) => panic!("{reply:?} answers a request of another kind"),
        }
    }

    fn record_late(&mut self, file: Option<FileId>, kind: Measured, latency: Duration) {
        self.recorder.record(kind, latency);
        if let Some(file) = file {
            self.slow_files.record(file, kind, latency);
        }
    }
}

impl Ready {
    /// Frozen actions change files at home; the continuation of a detach closes the file.
    fn may_block(&self) -> bool {
        match self {
            Ready::Done(..) | Ready::Read(..) => false,
            Ready::Frozen(..) | Ready::Detached(_) => true,
        }
    }
}

impl Work {
    /// Whether no answer and no group of the log waits until the commands were executed.
    fn is_for_sync_alone(&self) -> bool {
        self.log.is_empty() && self.answers.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.commands.is_empty()
            && self.log.is_empty()
            && self.redos.is_empty()
            && self.cleaned.is_empty()
            && self.answers.is_empty()
            && !self.ring_doorbell
    }
}

/// The locked state. A panic of the thread that holds it ends the process.
pub(crate) struct Locked<'a> {
    guard: MutexGuard<'a, State>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.guard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort("the engine panicked");
        }
    }
}

/// Ends the process if it is dropped by a panic.
struct AbortOnPanic(&'static str);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort(self.0);
        }
    }
}

fn abort(why: &str) -> ! {
    tracing::error!("{why}: aborting, since data in memory may be inconsistent");
    std::process::abort();
}

pub(crate) fn restore_times(home: &HomeFile) {
    if let Err(error) = home.restore_times() {
        tracing::warn!(%error, "a modification time was not restored at home");
    }
}
