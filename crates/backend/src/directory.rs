//! Executes device commands on the files of one directory tree.
//!
//! The thread that brings a command submits it to an io_uring, so that no other thread has to wake up first;
//! the ring's own thread delivers completions. Work that may block is left to workers: writes through the page
//! cache (the kernel may throttle them), restoring times before a sync, and jobs given to [`Directory::defer`].
//! Background fetches are submitted by a thread of their own. Where io_uring is not available, workers do
//! everything by blocking calls. On a fast device a thread that brings the only command, and waits for it,
//! executes it itself ([`Patience`]).
//!
//! The kernel reports a transfer's completion in the context of the thread that submitted it, as soon as that
//! thread is not blocked uninterruptibly in another system call. Submitting everything on the ring's own thread
//! would avoid that delay, but a single cold read then takes 80 instead of 56 microseconds, and no CPU is saved.
//!
//! Owns the ring, the threads and every transfer under way. Lock order: no lock is held while another module or
//! the sink is called.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{self, Mode as FileMode, OFlags};
use weir_engine::{Command, Completion, FileId, IoId, Urgency};

use crate::binding::Intake;
use crate::busy_poll;
use crate::exclusion::{Exclusion, Mode};
use crate::home_file::HomeFile;
use crate::jobs::Jobs;
use crate::latency_estimate::{FAST_READ, FAST_SYNC, LatencyEstimate};
use crate::reservations::Reservations;
use crate::ring::Ring;
use crate::transfer::{Next, Payload, Started, Transfer};
use crate::unsynced::{Begun, Lost, Unsynced};

/// Workers beside a ring: some for writes that the kernel throttles, some for the rest.
const WORKERS_BESIDE_RING: usize = 4;

/// Workers without a ring: transfers in flight at once.
const WORKERS_ALONE: usize = 16;

/// Largest write that a thread executes itself before the sync that it waits for, bytes.
const SMALL_WRITE: u64 = 64 * 1024;

/// Pause before the next submission after the kernel had no resources for one.
const SUBMIT_RETRY: Duration = Duration::from_millis(1);

/// Where a [`Directory`] delivers completions.
pub trait Sink: Send + Sync {
    /// Takes the completions out of `completions`, which is not empty. Called on the back end's
    /// own threads, under no lock of the back end; it may execute further commands. It should not block, since
    /// that delays all other completions.
    fn completed(&self, completions: &mut Vec<(IoId, Completion)>);
}

/// For which transfers a thread that brings commands may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Patience {
    /// None: the thread completes requests of others.
    None,
    /// A reservation, and a read that its request waits for.
    Read,
    /// Also a sync that its request waits for, and the small writes before it.
    Sync,
}

/// How data is transferred, chosen by the back end itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// io_uring.
    Ring,
    /// Blocking calls on worker threads: io_uring is not available.
    Threads,
}

/// The back end of one SOURCE: an io_uring, its completion thread, and a few workers.
pub struct Directory {
    shared: Arc<Shared>,
    /// `None` if it could not be determined how recovery finds files.
    reservations: Option<Reservations>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    ring: Option<Ring>,
    workers: Jobs<Job>,
    background: Jobs<Background>,
    direct: AtomicBool,
    exclusion: Exclusion<HomeFile, Transfer>,
    unsynced: Option<Arc<Unsynced>>,
    /// Latency of reads.
    reads: LatencyEstimate,
    /// Latency of syncs.
    syncs: LatencyEstimate,
    /// Transfers not yet delivered.
    under_way: UnderWay,
    stopping: AtomicBool,
}

/// Work for a worker.
enum Job {
    /// Move a transfer's next bytes.
    Move(Transfer),
    /// Restore the file's times, which a sync is to make durable, and sync what was written by other descriptors; then sync.
    PrepareSync(Transfer),
    /// Wait for others that sync the file, which its own sync has done.
    FindOut(Transfer),
    /// Sync by a new descriptor: the former failed.
    RenewSync(Transfer, io::Error),
    /// Sync some files of many.
    SyncSome(Arc<Unsynced>),
    /// Execute a command that may block.
    Execute(Command, Arc<HomeFile>),
    Run(Box<dyn FnOnce() + Send>),
}

/// Work for the thread that submits in the background.
enum Background {
    Fetch(Transfer),
    /// Submit again: the kernel had no resources for entries on the submission queue.
    Resubmit,
}

#[derive(Default)]
struct UnderWay {
    count: AtomicUsize,
    waiting: Mutex<()>,
    none_left: Condvar,
}

impl Directory {
    /// Sets up the transfers for the files below `source`; what is written is noted in `unsynced`, if syncfs(2) does not reach it.
    /// Nothing runs before [`Directory::start`].
    pub fn new(source: BorrowedFd<'_>, unsynced: Option<Arc<Unsynced>>) -> Directory {
        let ring = match Ring::new() {
            Ok(ring) => Some(ring),
            Err(error) => {
                tracing::warn!(%error, "io_uring is not available; worker threads transfer data");
                None
            }
        };
        Directory::with_ring(source, ring, unsynced)
    }

    /// As [`Directory::new`], with the given ring, if any.
    pub(crate) fn with_ring(
        source: BorrowedFd<'_>,
        ring: Option<Ring>,
        unsynced: Option<Arc<Unsynced>>,
    ) -> Directory {
        let shared = Shared {
            ring,
            workers: Jobs::default(),
            background: Jobs::default(),
            direct: AtomicBool::new(takes_direct(source)),
            exclusion: Exclusion::default(),
            unsynced,
            reads: LatencyEstimate::new(FAST_READ),
            syncs: LatencyEstimate::new(FAST_SYNC),
            under_way: UnderWay::default(),
            stopping: AtomicBool::new(false),
        };
        let reservations = Reservations::new(source).ok();
        Directory { shared: Arc::new(shared), reservations, threads: Mutex::default() }
    }

    /// Starts the threads. Completions go to `sink` until [`Directory::shutdown`].
    ///
    /// # Errors
    /// Those of thread creation.
    pub fn start(&self, sink: Arc<dyn Sink>) -> io::Result<()> {
        let workers = match self.method() {
            Method::Ring => {
                self.spawn("weir-ring", &sink, Shared::run_ring)?;
                self.spawn("weir-submit", &sink, Shared::run_background)?;
                WORKERS_BESIDE_RING
            }
            Method::Threads => WORKERS_ALONE,
        };
        for _ in 0..workers {
            self.spawn("weir-worker", &sink, Shared::run_worker)?;
        }
        Ok(())
    }

    /// Whether files are transferred with `O_DIRECT`, as far as is known.
    pub fn is_direct(&self) -> bool {
        self.shared.direct.load(Ordering::Relaxed)
    }

    /// How data is transferred.
    pub fn method(&self) -> Method {
        if self.shared.ring.is_some() { Method::Ring } else { Method::Threads }
    }

    /// Starts every command, emptying `commands`. Commands that complete in this thread are answered in `done`,
    /// all others through the sink. Waits only for transfers that `patience` allows, on a fast device, and if
    /// no other one is in flight. With [`Patience::None`] a worker executes reservations; a worker always looks
    /// up extents.
    ///
    /// Writes and syncs of an unbound file are held and not answered until it is bound ([`HomeFile::bind`]) or
    /// abandoned; its other commands are answered at once. What is held is not in flight: no call waits for it.
    pub fn execute(
        &self,
        commands: &mut Vec<(Command, Arc<HomeFile>)>,
        done: &mut Vec<(IoId, Completion)>,
        patience: Patience,
    ) {
        if self.shared.stopping.load(Ordering::Acquire) {
            commands.clear();
            return;
        }
        if commands.iter().any(|(_, file)| !file.is_bound()) {
            take_in(commands, done);
        }
        let mut submit = false;
        let alone = commands.len() == 1 && self.shared.under_way.is_none();
        for (command, file) in commands.drain(..) {
            if let Command::Reserve { offset, len, .. } = &command
                && let Some(reservations) = &self.reservations
            {
                reservations.note(&file, offset.saturating_add(*len));
            }
            let blocks = match command {
                Command::Reserve { .. } => patience == Patience::None,
                // Extents may have to be read.
                Command::Map { .. } => true,
                _ => false,
            };
            if blocks {
                self.shared.under_way.begin();
                self.shared.workers.push(Job::Execute(command, file));
                continue;
            }
            match Transfer::start(command, file) {
                Started::Done(io, completion) => done.push((io, completion)),
                Started::Transfer(mut transfer) => {
                    self.shared.under_way.begin();
                    self.shared.begin_sync(&mut transfer);
                    if transfer.is_direct() {
                        self.shared.direct.store(true, Ordering::Relaxed);
                    }
                    submit |= if alone && self.shared.should_wait(&transfer, patience) {
                        self.shared.move_here(transfer, done)
                    } else {
                        self.shared.dispatch(transfer)
                    };
                }
            }
        }
        if submit {
            self.shared.submit();
        }
    }

    /// Home loses a name of a file ([`Unsynced::leave_name`]).
    pub fn leave_name(&self, file: FileId) {
        if let Some(unsynced) = &self.shared.unsynced {
            unsynced.leave_name(file);
        }
    }

    /// The engine knows that home has lost something of these files, which are some of those that were lost.
    pub fn are_told(&self, lost: &Lost, files: &[FileId]) {
        if let Some(unsynced) = &self.shared.unsynced {
            unsynced.are_told(lost, files);
        }
    }

    /// fsync(2) of a directory opened for reading, then `done`: in this thread if the device is fast and no
    /// transfer is in flight, otherwise on a worker. After [`Directory::shutdown`] a worker does nothing.
    pub fn sync_directory(
        &self,
        directory: OwnedFd,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        match self.sync_here(directory.as_fd()) {
            Some(synced) => done(synced),
            None => self.defer(Box::new(move || done(fs::fsync(directory).map_err(Into::into)))),
        }
    }

    /// fsync(2) in this thread. `None`: a worker should do it.
    fn sync_here(&self, fd: BorrowedFd<'_>) -> Option<io::Result<()>> {
        let shared = &self.shared;
        if !shared.under_way.is_none() || !shared.syncs.should_wait() {
            return None;
        }
        let started = Instant::now();
        let synced = busy_poll::sync(fd, false).unwrap_or_else(|| Ok(fs::fsync(fd)?));
        shared.syncs.learn(started.elapsed());
        Some(synced)
    }

    /// Runs `job` on a worker, for a thread that must not block. Dropped without being run after
    /// [`Directory::shutdown`].
    pub fn defer(&self, job: Box<dyn FnOnce() + Send>) {
        self.shared.workers.push(Job::Run(job));
    }

    /// Waits for transfers in flight, stops the threads and drops the sink. Later commands are not executed.
    /// Does not wait if the sink calls it on one of the threads: they then end by themselves after the last
    /// transfer. Idempotent.
    pub fn shutdown(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        let threads = std::mem::take(&mut *lock(&self.threads));
        let current = thread::current().id();
        let waits = threads.iter().all(|thread| thread.thread().id() != current);
        if waits && !threads.is_empty() {
            self.shared.under_way.wait();
        }
        self.shared.workers.close();
        self.shared.background.close();
        self.shared.wake_ring();
        for thread in threads {
            if waits {
                // A thread that panicked has aborted the process.
                let _ = thread.join();
            }
        }
    }

    fn spawn(
        &self,
        name: &str,
        sink: &Arc<dyn Sink>,
        body: fn(&Shared, &dyn Sink),
    ) -> io::Result<()> {
        let (shared, sink) = (Arc::clone(&self.shared), Arc::clone(sink));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _guard = AbortOnPanic;
            body(&shared, &*sink);
        })?;
        lock(&self.threads).push(thread);
        Ok(())
    }
}

#[cfg(test)]
impl Directory {
    /// Transfers not yet delivered.
    pub(crate) fn transfers_under_way(&self) -> usize {
        self.shared.under_way.count.load(Ordering::Acquire)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Shared {
    /// Starts a transfer, or its next stage, once direct-I/O exclusion admits it. Says whether
    /// the ring has something to submit.
    fn dispatch(&self, transfer: Transfer) -> bool {
        self.admit(transfer).is_some_and(|transfer| self.move_bytes(transfer))
    }

    /// Returns the transfer if it is admitted; otherwise it waits for its turn.
    fn admit(&self, transfer: Transfer) -> Option<Transfer> {
        match transfer.write_mode() {
            None => Some(transfer),
            Some(mode) => {
                let file = Arc::clone(transfer.file());
                self.exclusion.enter(&file, mode, transfer)
            }
        }
    }

    /// Gives a transfer's next bytes to the ring or to a worker. Says whether the ring has something to submit.
    fn move_bytes(&self, transfer: Transfer) -> bool {
        self.note_write(&transfer);
        if transfer.wants_times_restored() || self.has_others(&transfer) {
            self.workers.push(Job::PrepareSync(transfer));
            return false;
        }
        let Some(ring) = &self.ring else {
            self.workers.push(Job::Move(transfer));
            return false;
        };
        if transfer.write_mode() == Some(Mode::Buffered) {
            self.workers.push(Job::Move(transfer));
            return false;
        }
        if let Payload::Fetch { urgency: Urgency::Background, .. } = transfer.payload()
            && transfer.is_untouched()
        {
            self.background.push(Background::Fetch(transfer));
            return false;
        }
        ring.push(transfer);
        true
    }

    /// Whether a caller with this patience should move a transfer's bytes itself, if no other one is in flight.
    fn should_wait(&self, transfer: &Transfer, patience: Patience) -> bool {
        match transfer.payload() {
            Payload::Fetch { urgency: Urgency::Waited, .. } => {
                patience >= Patience::Read && self.reads.should_wait()
            }
            Payload::Fetch { .. } => false,
            Payload::Write { .. } => {
                patience == Patience::Sync
                    && transfer.payload().len() <= SMALL_WRITE
                    && self.syncs.is_fast()
            }
            Payload::Sync { .. } => patience == Patience::Sync && self.syncs.should_wait(),
        }
    }

    /// Moves a transfer's bytes in this thread, which waits for them. Says whether the ring has something to submit.
    fn move_here(&self, transfer: Transfer, done: &mut Vec<(IoId, Completion)>) -> bool {
        let Some(mut transfer) = self.admit(transfer) else { return false };
        // fdatasync(2) promises nothing about times, but they must be restored once the file is clean.
        if matches!(transfer.payload(), Payload::Sync { .. })
            && transfer.file().times().is_disturbed()
        {
            restore_times(&transfer);
        }
        let kind = match transfer.payload() {
            Payload::Fetch { .. } => Some(&self.reads),
            Payload::Write { .. } => None,
            Payload::Sync { .. } => Some(&self.syncs),
        };
        self.note_write(&transfer);
        let started = Instant::now();
        let result = match self.sync_others(&transfer) {
            Ok(()) => transfer.call(true),
            Err(error) => {
                transfer.has_failed();
                Err(error)
            }
        };
        match kind {
            Some(kind) => kind.learn(started.elapsed()),
            // A write to the page cache is fast, unless the kernel throttles it.
            None if started.elapsed() >= FAST_SYNC => self.syncs.learn(started.elapsed()),
            None => {}
        }
        let before = done.len();
        let submit = self.moved(transfer, result, done);
        let none_left = self.under_way.end(done.len() - before);
        if none_left && self.stopping.load(Ordering::Acquire) {
            self.wake_ring();
        }
        submit
    }

    fn submit(&self) {
        let Some(ring) = &self.ring else { return };
        if let Err(error) = ring.submit() {
            tracing::debug!(%error, "the kernel took no submission; trying again");
            self.background.push(Background::Resubmit);
        }
    }

    /// Takes the result of moving a transfer's bytes. Says whether the ring has something to
    /// submit.
    fn moved(
        &self,
        transfer: Transfer,
        result: io::Result<usize>,
        done: &mut Vec<(IoId, Completion)>,
    ) -> bool {
        match self.look_again(transfer, result) {
            Some((transfer, result)) => self.ended(transfer, result, done),
            None => false,
        }
    }

    /// As [`Shared::moved`], of a result that is known.
    fn ended(
        &self,
        transfer: Transfer,
        result: io::Result<usize>,
        done: &mut Vec<(IoId, Completion)>,
    ) -> bool {
        self.note_unsynced(&transfer, &result);
        let admitted_as = transfer.write_mode().map(|mode| (Arc::clone(transfer.file()), mode));
        let next = transfer.advance(result);
        if let Next::Again(transfer) = next {
            return self.move_bytes(transfer);
        }
        let mut submit = false;
        if let Some((file, mode)) = admitted_as {
            let mut admitted = Vec::new();
            self.exclusion.leave(&file, mode, &mut admitted);
            for transfer in admitted {
                submit |= self.move_bytes(transfer);
            }
        }
        match next {
            Next::Again(transfer) | Next::Stage(transfer) => submit |= self.dispatch(transfer),
            Next::Done(io, completion) => done.push((io, completion)),
        }
        submit
    }

    /// What was written and not synced, if that is of interest to a transfer.
    fn unsynced_of(&self, transfer: &Transfer) -> Option<(&Arc<Unsynced>, Begun)> {
        self.unsynced.as_ref().zip(transfer.begun)
    }

    fn begin_sync(&self, transfer: &mut Transfer) {
        if let Some(all) = self.unsynced.as_ref().filter(|_| transfer.is_sync()) {
            transfer.begun = Some(all.begin(transfer.id(), transfer.descriptor()));
        }
    }

    /// Whether a sync has to sync more than its own descriptor.
    fn has_others(&self, transfer: &Transfer) -> bool {
        let unsynced = self.unsynced_of(transfer);
        unsynced.is_some_and(|(all, _)| all.has_others(transfer.id(), transfer.descriptor()))
    }

    /// The result of a sync, if that is known. A worker finds it out where others sync the file, too, or have found that home does not
    /// have all of it; and where the descriptor failed by which nothing was written.
    fn look_again(
        &self,
        transfer: Transfer,
        result: io::Result<usize>,
    ) -> Option<(Transfer, io::Result<usize>)> {
        let Some((all, begun)) = self.unsynced_of(&transfer) else {
            return Some((transfer, result));
        };
        match result {
            Ok(_) if all.has_news(transfer.id(), &begun) => {
                self.workers.push(Job::FindOut(transfer))
            }
            Err(error)
                if transfer.can_be_renewed()
                    && all.is_unused(&begun, transfer.id(), transfer.descriptor()) =>
            {
                self.workers.push(Job::RenewSync(transfer, error));
            }
            result => return Some((transfer, result)),
        }
        None
    }

    fn sync_others(&self, transfer: &Transfer) -> io::Result<()> {
        match self.unsynced_of(transfer) {
            Some((all, begun)) => all.sync_others(transfer.id(), transfer.descriptor(), &begun),
            None => Ok(()),
        }
    }

    /// Waits for others that sync the file.
    fn find_out(&self, transfer: &mut Transfer) -> io::Result<usize> {
        let Some((all, begun)) = self.unsynced_of(transfer) else { return Ok(0) };
        let found = all.find(transfer.id(), &begun);
        if found.is_err() {
            transfer.has_failed();
        }
        found.map(|()| 0)
    }

    /// Notes what is written, or was.
    fn note_write(&self, transfer: &Transfer) {
        let Some(all) = self.unsynced.as_ref().filter(|_| transfer.is_write()) else { return };
        if all.written(transfer.id(), transfer.descriptor()) {
            self.workers.push(Job::SyncSome(Arc::clone(all)));
        }
    }

    /// Notes what was written, and what a sync has told.
    fn note_unsynced(&self, transfer: &Transfer, result: &io::Result<usize>) {
        let Some(all) = &self.unsynced else { return };
        self.note_write(transfer);
        if let Err(error) = result
            && transfer.is_sync()
            && !transfer.is_repeated(error)
        {
            all.was_told(transfer.id(), transfer.descriptor(), error);
        }
    }

    fn deliver(&self, done: &mut Vec<(IoId, Completion)>, sink: &dyn Sink) {
        if !done.is_empty() {
            let count = done.len();
            sink.completed(done);
            done.clear();
            let none_left = self.under_way.end(count);
            if none_left && self.stopping.load(Ordering::Acquire) {
                self.wake_ring();
            }
        }
    }

    /// Makes the ring's thread check whether it should stop.
    fn wake_ring(&self) {
        let Some(ring) = &self.ring else { return };
        while ring.wake().is_err() {
            thread::sleep(SUBMIT_RETRY);
        }
    }

    fn run_ring(&self, sink: &dyn Sink) {
        let ring = self.ring.as_ref().expect("the ring's thread runs only with a ring");
        let (mut ended, mut done) = (Vec::new(), Vec::new());
        loop {
            if let Err(error) = ring.wait(&mut ended) {
                tracing::debug!(%error, "the kernel took no submission; trying again");
                thread::sleep(SUBMIT_RETRY);
            }
            let mut submit = false;
            for (transfer, result) in ended.drain(..) {
                submit |= self.moved(transfer, result, &mut done);
            }
            if submit {
                self.submit();
            }
            self.deliver(&mut done, sink);
            if self.stopping.load(Ordering::Acquire) && self.under_way.is_none() {
                return;
            }
        }
    }

    fn run_worker(&self, sink: &dyn Sink) {
        let mut done = Vec::new();
        while let Some(job) = self.workers.pop() {
            let submit = match job {
                Job::Move(transfer) => self.call(transfer, &mut done),
                Job::PrepareSync(mut transfer) => {
                    if transfer.wants_times_restored() {
                        restore_times(&transfer);
                    }
                    match (self.sync_others(&transfer), &self.ring) {
                        (Err(error), _) => {
                            transfer.has_failed();
                            self.moved(transfer, Err(error), &mut done)
                        }
                        (Ok(()), Some(ring)) => {
                            ring.push(transfer);
                            true
                        }
                        (Ok(()), None) => self.call(transfer, &mut done),
                    }
                }
                Job::FindOut(mut transfer) => {
                    let found = self.find_out(&mut transfer);
                    self.ended(transfer, found, &mut done)
                }
                Job::RenewSync(mut transfer, error) => match transfer.renew(&error) {
                    true => self.move_bytes(transfer),
                    false => self.moved(transfer, Err(error), &mut done),
                },
                Job::SyncSome(unsynced) => {
                    unsynced.sync_some();
                    false
                }
                Job::Execute(command, file) => match Transfer::start(command, file) {
                    Started::Done(io, completion) => {
                        done.push((io, completion));
                        false
                    }
                    Started::Transfer(transfer) => self.dispatch(transfer),
                },
                Job::Run(job) => {
                    job();
                    false
                }
            };
            if submit {
                self.submit();
            }
            self.deliver(&mut done, sink);
        }
    }

    /// Moves a transfer's next bytes in this thread. Says whether the ring has something to submit.
    fn call(&self, mut transfer: Transfer, done: &mut Vec<(IoId, Completion)>) -> bool {
        let result = transfer.call(false);
        self.moved(transfer, result, done)
    }

    fn run_background(&self, _sink: &dyn Sink) {
        let ring = self.ring.as_ref().expect("background submission is to a ring");
        while let Some(work) = self.background.pop() {
            match work {
                Background::Fetch(transfer) => ring.push(transfer),
                Background::Resubmit => thread::sleep(SUBMIT_RETRY),
            }
            self.submit();
        }
    }
}

/// Leaves those commands that are on files at home. The others are held or answered in `done`.
fn take_in(commands: &mut Vec<(Command, Arc<HomeFile>)>, done: &mut Vec<(IoId, Completion)>) {
    for (command, file) in std::mem::take(commands) {
        match file.take_in(command) {
            Intake::Execute(command) => commands.push((command, file)),
            Intake::Held => {}
            Intake::Done(io, completion) => done.push((io, completion)),
        }
    }
}

fn restore_times(transfer: &Transfer) {
    if let Err(error) = transfer.file().restore_times() {
        tracing::warn!(%error, "a modification time was not restored at home");
    }
}

impl UnderWay {
    fn is_none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// `count` transfers are delivered. Says whether none is left.
    fn end(&self, count: usize) -> bool {
        let none_left = self.count.fetch_sub(count, Ordering::AcqRel) == count;
        if none_left {
            // Under the lock: otherwise the waiter could check before this and sleep after it.
            let _guard = lock(&self.waiting);
            self.none_left.notify_all();
        }
        none_left
    }

    fn wait(&self) {
        let mut guard = lock(&self.waiting);
        while !self.is_none() {
            guard = self.none_left.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends the process if its thread panics: transfers would never be answered, and programs would hang.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a thread of the back end panicked: aborting");
            std::process::abort();
        }
    }
}

/// Whether files below `source` can be opened with `O_DIRECT`, tried with an unnamed file; `false` if none can
/// be made.
pub fn takes_direct(source: BorrowedFd<'_>) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    match fs::openat(source, ".", flags, FileMode::RUSR | FileMode::WUSR) {
        Ok(file) => HomeFile::new(file).takes_direct(),
        Err(_) => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
