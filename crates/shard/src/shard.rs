//! The shard's calls.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weir_backend::{
    AtOnce, Changing, Directory, HomeFile, Naming, RedoLog, Sink, Unsynced, WholeSync, error_kind,
};
use weir_engine::{
    Config, ConfigError, DataState, Durability, Engine, Error, ErrorCursor, ErrorKind, FileId,
    FramePool, FreezeEnd, FreezeScope, HomeAttributes, Order, Outcome, PAGE_BYTES, ReadData, Stats,
};
use weir_log::Identity;

use crate::core::{Attached, Core, Thread, Work, restore_times};
use crate::latency::{Latencies, Measured};
use crate::pending::{Answer, Continuation};
use crate::slow_files::Waits;
use crate::trampoline;

/// Frames beyond the engine's memory, for answers and destages that the engine no longer counts.
const FRAMES_IN_FLIGHT: u64 = 2048;

/// Locks that serialise attaches of one file. Files with the same remainder share a lock.
const ATTACH_LOCKS: usize = 16;

/// Why a shard did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine cannot run with this configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Memory for page frames could not be mapped.
    #[error("cannot map {bytes} bytes for page frames: {source}; give less memory")]
    Memory {
        /// The bytes that were asked for.
        bytes: u64,
        /// The error of mmap(2).
        source: io::Error,
    },
    /// The back end's threads could not be started.
    #[error("cannot start the back end: {0}")]
    Backend(#[source] io::Error),
}

/// Whether names change by which the log identifies files.
#[derive(Default)]
struct Identifying {
    /// The files to identify once they have changed; `None` if none change.
    later: Option<Vec<FileId>>,
}

/// Whether a file may be identified, until this is dropped.
struct Identifies<'a> {
    allowed: bool,
    _until: Option<MutexGuard<'a, Identifying>>,
}

/// Identifies what was attached while names changed, when it is dropped.
struct IdentifiedAtEnd<'a>(&'a Shard);

impl Drop for IdentifiedAtEnd<'_> {
    fn drop(&mut self) {
        let mut identifying = self.0.lock_identifying();
        for file in identifying.later.take().into_iter().flatten() {
            self.0.identify_again(file);
        }
    }
}

/// Why a change of names was not made.
enum Failed<E> {
    By(E),
    Panicked(Box<dyn Any + Send>),
}

/// The files whose names change; see [`Shard::change_names`].
#[derive(Clone, Copy, Debug)]
pub enum Renamed<'a> {
    /// The names of these files.
    Files(&'a [FileId]),
    /// The only name of this file is removed.
    Removed(FileId),
    /// The name of a directory, and so the paths of all files below it.
    All,
}

/// One engine, its lock, its back end and its clock.
/// Every call may be made from any thread, also from inside a continuation. A continuation is run exactly once,
/// under no lock of the shard. If the answer is known at once, it is run before the call returns (if it is
/// nested deeply, before the outermost continuation returns). Otherwise another thread runs it. For a frozen
/// action and for a detach this is a worker, and they may block. For writes, reads and syncs it is the thread
/// that completes all requests, and they must not block. A call may also run continuations of other requests.
/// Exceptions are [`Shard::attach`], [`Shard::detach`] (of an attached file), [`Shard::discard`],
/// [`Shard::drop_clean`] and calls that only return a state: these may be made under locks that continuations take.
pub struct Shard {
    pub(crate) core: Arc<Core>,
    pub(crate) pool: FramePool,
    pub(crate) source: Arc<OwnedFd>,
    whole: Arc<WholeSync>,
    /// The redo log's name, if there is one.
    log: Option<Identity>,
    /// With a log: changes that home was given at once, without a record.
    pub(crate) at_once: Option<Arc<AtOnce>>,
    /// The requested memory, bytes.
    memory_bytes_max: u64,
    /// How recovery finds files.
    pub(crate) naming: Naming,
    /// See [`Shard::finds_by_number`].
    pub(crate) by_number: AtomicBool,
    /// Held while names change by which the log identifies files.
    names: Mutex<()>,
    /// Held for a moment while such a file is identified. Taken after `names`.
    identifying: Mutex<Identifying>,
    ticker: Mutex<Option<JoinHandle<()>>>,
    /// The log has failed, and SOURCE says that it must not be replayed.
    pub(crate) log_is_void: AtomicBool,
    attaching: [Mutex<()>; ATTACH_LOCKS],
}

impl Shard {
    /// Whether there is a redo log.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    pub(crate) fn whole(&self) -> &WholeSync {
        &self.whole
    }

    /// Starts an engine with `config` over the directory `source`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: Config, source: BorrowedFd<'_>) -> Result<Arc<Shard>, StartError> {
        Shard::start_with(config, source, None, false)
    }

    /// As [`Shard::start`], with a redo log and, for a `lane`, with frames that programs may map and a board
    /// that describes them.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_with(
        config: Config,
        source: BorrowedFd<'_>,
        log: Option<RedoLog>,
        lane: bool,
    ) -> Result<Arc<Shard>, StartError> {
        config.validate()?;
        let asked = config.memory_bytes_max;
        let config = if lane { beside_clients(config) } else { config };
        let bytes = config.memory_bytes_max;
        let too_much = |source| StartError::Memory { bytes, source };
        let frames = bytes.div_ceil(PAGE_BYTES as u64).saturating_add(FRAMES_IN_FLIGHT);
        let frames = u32::try_from(frames).map_err(|error| too_much(io::Error::other(error)))?;
        let pool = if lane { FramePool::shared(frames) } else { FramePool::new(frames) };
        let pool = pool.map_err(too_much)?;
        if let Some(preparer) = pool.preparer() {
            let prepare = move || {
                if let Err(error) = preparer.run() {
                    tracing::debug!("the lane's frames have no huge pages: {error}");
                }
            };
            let thread = thread::Builder::new().name("weir-frames".to_owned());
            thread.spawn(prepare).map_err(StartError::Backend)?;
        }
        let ordered = config.order == Order::All && log.is_some();
        let at_once = log.is_some().then(|| AtOnce::new(source, ordered)).transpose();
        let at_once = at_once.map_err(StartError::Backend)?.map(Arc::new);
        // A bucket has what it was given, and is synced by a sync of a directory.
        let unsynced = match config.keeps_unsynced {
            true => None,
            false => Unsynced::of(source),
        };
        let mut engine = Engine::new(config, pool.clone())?;
        if let Some(log) = &log {
            engine.start_log(log.writer());
        }
        let shard = Shard {
            core: Core::new(engine, Directory::new(source, unsynced.clone())),
            pool,
            source: Arc::new(source.try_clone_to_owned().map_err(StartError::Backend)?),
            whole: Arc::new(WholeSync::new(source, unsynced.clone()).map_err(StartError::Backend)?),
            log: log.as_ref().map(RedoLog::name),
            at_once: at_once.clone(),
            memory_bytes_max: asked,
            naming: Naming::of(source).map_err(StartError::Backend)?,
            by_number: AtomicBool::new(false),
            log_is_void: AtomicBool::new(false),
            names: Mutex::default(),
            identifying: Mutex::default(),
            ticker: Mutex::default(),
            attaching: Default::default(),
        };
        let sink: Arc<dyn Sink> = Arc::<Core>::clone(&shard.core);
        shard.core.directory.start(sink).map_err(StartError::Backend)?;
        if let Some(log) = log {
            let core = Arc::downgrade(&shard.core);
            let ended = move |io, result| {
                if let Some(core) = core.upgrade() {
                    core.log_completed(io, result);
                }
            };
            let thread =
                log.start(at_once, unsynced, Box::new(ended)).map_err(StartError::Backend)?;
            shard.core.log.set(thread).expect("the log is started once");
        }
        let core = Arc::clone(&shard.core);
        let ticker = thread::Builder::new()
            .name("weir-ticker".to_owned())
            .spawn(move || core.run_ticker())
            .map_err(StartError::Backend)?;
        *shard.ticker.lock().unwrap_or_else(PoisonError::into_inner) = Some(ticker);
        Ok(Arc::new(shard))
    }

    /// Makes a file known to the engine, with its attributes at home now. A file that is attached already stays
    /// attached, and a detach under way is cancelled: its continuation is dropped without being run. `home` is
    /// kept until the file is detached.
    ///
    /// # Errors
    /// Those of reading the attributes at home; the file is then not attached.
    pub fn attach(&self, file: FileId, home: &Arc<HomeFile>) -> io::Result<()> {
        self.attach_found(file, home, true)
    }

    /// As [`Shard::attach`]. Where files are found by their numbers, a file that recovery would not find now is not logged.
    ///
    /// # Errors
    /// As there.
    pub fn attach_found(
        &self,
        file: FileId,
        home: &Arc<HomeFile>,
        is_found: bool,
    ) -> io::Result<()> {
        // While the attributes are read, no other thread may attach the file and write to it.
        let _attaching = self.lock_attaching(file);
        if self.attach_again(file, home, is_found) {
            return Ok(());
        }
        let unbound = home.is_unbound();
        let attributes = home.home_attributes()?;
        let identifies = self.identifies(file);
        let is_identified = identifies.allowed && !self.finds_by_number();
        let identity = is_identified.then(|| self.identity_of(home));
        self.core.event(Thread::Holding, |state, _| {
            let attached = Attached { home: Arc::clone(home), detached: Vec::new() };
            state.files.insert(file, attached);
            state.engine.attach(file, attributes);
            if unbound {
                state.engine.set_unbound(file);
            }
            match (home.log_node(), identity) {
                (Some(node), _) if unbound => {
                    state.engine.made_as(file, node);
                    // Read under the lock: the log may name it at any moment until it is bound.
                    if let Some(identity) = home.log_inode() {
                        state.engine.identify(file, &identity);
                    }
                }
                (Some(node), _) if self.finds_by_number() && is_found => {
                    state.engine.number(file, node);
                }
                (_, Some(identity)) => state.engine.identify(file, &identity),
                (_, None) => state.engine.pause_log(file),
            }
        });
        Ok(())
    }

    /// An unbound file is about to be bound: programs may not post to it until it is. What they have posted is to be applied before
    /// [`Shard::bind`], while it needs no space at home.
    pub fn binding(&self, file: FileId) {
        self.core.lock().engine.binding(file, true);
    }

    /// Binds an unbound file to the one that was just made at home ([`HomeFile::bind`]), tells the engine how recovery
    /// finds it, and has the commands executed that were held for it. The file need not be attached. Waits for no
    /// transfer. Not to be called inside [`Shard::change_names`]. If no program has the file open and it is not
    /// attached, its data descriptors are the caller's to close ([`HomeFile::close_data`]).
    ///
    /// # Errors
    /// Those of [`HomeFile::bind`]; the file is still unbound then.
    ///
    /// # Panics
    /// If the file is bound.
    pub fn bind(
        &self,
        file: FileId,
        home: &Arc<HomeFile>,
        path: OwnedFd,
        data: OwnedFd,
    ) -> io::Result<()> {
        {
            // An attach meanwhile would miss the identity.
            let _attaching = self.lock_attaching(file);
            if let Err(error) = home.bind(path, data) {
                self.core.lock().engine.binding(file, false);
                return Err(error);
            }
            let identifies = self.identifies(file);
            let is_identified = identifies.allowed && !self.finds_by_number();
            let identity = is_identified.then(|| self.identity_of(home));
            self.core.event(Thread::Holding, |state, _| {
                if !state.has(file, home) {
                    // Its size was set at home.
                    state.engine.changed_at_home(file);
                } else if let Some(identity) = identity {
                    state.engine.identify(file, &identity);
                }
            });
        }
        self.let_go(file, home);
        self.core.release(home);
        if home.times().is_disturbed() && !self.has_dirty(file) {
            let home = Arc::clone(home);
            self.core.directory.defer(Box::new(move || restore_times(&home)));
        }
        Ok(())
    }

    /// An unbound file will never be at home: its last name is gone, and no program has it open. What was held
    /// for it, and what the engine still asks for, ends as done, so that [`Shard::discard`] and a detach can
    /// finish. Nothing happens if the file was bound meanwhile.
    pub fn abandon(&self, file: FileId, home: &Arc<HomeFile>) {
        let held = {
            let _attaching = self.lock_attaching(file);
            home.abandon()
        };
        self.let_go(file, home);
        self.core.end_all(held);
    }

    /// Lets the engine bring home a file that it had as an unbound one.
    fn let_go(&self, file: FileId, home: &Arc<HomeFile>) {
        self.core.event(Thread::Holding, |state, now| {
            if state.has(file, home) {
                state.engine.bound(file, now);
            }
        });
    }

    fn lock_attaching(&self, file: FileId) -> MutexGuard<'_, ()> {
        let lock = &self.attaching[file.0 as usize % ATTACH_LOCKS];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identity_of(&self, home: &HomeFile) -> Vec<u8> {
        match self.log {
            Some(_) => home.identity(&self.naming, self.source.as_fd()),
            None => Vec::new(),
        }
    }

    /// Whether a file may be identified now. While names change, it is not: [`Shard::change_names`] does so when it ends,
    /// and until then the file's syncs go home. Nobody waits for that: who attaches a file may hold what a change of names
    /// waits for.
    fn identifies(&self, file: FileId) -> Identifies<'_> {
        if !self.finds_by_path() {
            return Identifies { allowed: true, _until: None };
        }
        let mut identifying = self.lock_identifying();
        if let Some(later) = &mut identifying.later {
            later.push(file);
        }
        Identifies { allowed: identifying.later.is_none(), _until: Some(identifying) }
    }

    fn lock_identifying(&self) -> MutexGuard<'_, Identifying> {
        self.identifying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change`, which changes names of files at home. Where recovery finds files by their paths, this
    /// first brings the files' logged data home, and blocks for that. A file that is attached meanwhile is
    /// identified afterwards. Do not call it on a thread that runs continuations.
    ///
    /// # Errors
    /// Those of bringing data home: `change` was not run then.
    pub fn change_names<T, E>(
        &self,
        files: Renamed<'_>,
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, Error> {
        if !self.finds_by_path() {
            return Ok(change());
        }
        let changed = {
            let _names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            self.lock_identifying().later = Some(Vec::new());
            let _identified = IdentifiedAtEnd(self);
            // A change that panics is one that failed. Otherwise its files would not be identified again, and their syncs
            // would go home from then on.
            self.change_names_by_path(files, || match catch_unwind(AssertUnwindSafe(change)) {
                Ok(changed) => changed.map_err(Failed::By),
                Err(panic) => Err(Failed::Panicked(panic)),
            })
        };
        match changed? {
            Ok(changed) => Ok(Ok(changed)),
            Err(Failed::By(error)) => Ok(Err(error)),
            Err(Failed::Panicked(panic)) => resume_unwind(panic),
        }
    }

    fn change_names_by_path<T, E>(
        &self,
        files: Renamed<'_>,
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, Error> {
        let all: Vec<FileId>;
        let (files, removed) = match files {
            Renamed::Files(files) => (files, None),
            Renamed::Removed(file) => (&[][..], Some(file)),
            Renamed::All => {
                all = self.core.lock().files.keys().copied().collect();
                (&all[..], None)
            }
        };
        self.core.event(Thread::Holding, |state, _| {
            files.iter().copied().chain(removed).for_each(|file| state.engine.pause_log(file));
        });
        removed.inspect(|file| self.bring_spilled_home(*file));
        let (sender, ended) = mpsc::channel();
        let attached: Vec<FileId> = {
            let state = self.core.lock();
            // An unbound file has no name at home and nothing in the log, and may wait to be bound.
            let named = |file: &FileId| state.files.get(file).is_some_and(|of| of.home.is_bound());
            files.iter().copied().filter(named).collect()
        };
        // This thread waits for every answer. A send fails only if the thread has stopped waiting.
        for &file in &attached {
            let sender = sender.clone();
            self.freeze(file, FreezeScope::changing(None, 0), move |granted| {
                let unchanged = FreezeEnd { discard: None, size: None, written: false };
                (unchanged, move || sender.send(granted).unwrap_or(()))
            });
        }
        drop(sender);
        // A file that was detached meanwhile has nothing in the log.
        let brought_home = ended.iter().filter(|end| *end != Err(Error::NotAttached));
        let brought_home: Result<Vec<()>, Error> = brought_home.collect();
        let changed = brought_home.map(|_| change());
        let named_again = match &changed {
            Ok(Ok(_)) => None,
            _ => removed,
        };
        if let (Ok(Ok(_)), Some(file)) = (&changed, removed) {
            let (sender, ended) = mpsc::channel();
            self.sync_by(
                None,
                move |revoked| sender.send(revoked).unwrap_or(()),
                |engine, request, now| engine.revoke(request, file, now),
            );
            ended.recv().unwrap_or(Ok(()))?;
        }
        for file in attached.iter().copied().chain(named_again) {
            self.identify_again(file);
        }
        changed
    }

    fn identify_again(&self, file: FileId) {
        let home = self.core.lock().files.get(&file).map(|file| Arc::clone(&file.home));
        let Some(home) = home else { return };
        let identity = self.identity_of(&home);
        self.core.event(Thread::Holding, |state, _| state.engine.identify(file, &identity));
    }

    /// Whether recovery finds files by their paths, so that changes of names may wait for home.
    pub fn finds_by_path(&self) -> bool {
        self.naming.is_by_path() && self.log.is_some() && !self.finds_by_number()
    }

    /// Syncs of an attached file go home until it is attached again: recovery would not find it.
    pub fn pause_log(&self, file: FileId) {
        self.core.event(Thread::Holding, |state, _| state.engine.pause_log(file));
    }

    /// Whether recovery finds files by the numbers that records of names give them: where handles do not last, and names are
    /// logged. Then a change of a name concerns no file's data.
    pub fn finds_by_number(&self) -> bool {
        self.by_number.load(Ordering::Relaxed)
    }

    /// Keeps a file that is attached; says whether it is.
    fn attach_again(&self, file: FileId, home: &Arc<HomeFile>, is_found: bool) -> bool {
        let readable = home.is_readable();
        let cancelled = self.core.event(Thread::Holding, |state, _| {
            let attached = state.files.get_mut(&file)?;
            assert!(Arc::ptr_eq(&attached.home, home), "{file:?} has two home files");
            let cancelled = std::mem::take(&mut attached.detached);
            let known = HomeAttributes { size: 0, dense: false, write_unit: 4096, readable };
            state.engine.attach(file, known);
            if !is_found {
                state.engine.pause_log(file);
            } else if let Some(node) = home.log_node().filter(|_| self.finds_by_number()) {
                // It may have been opened for reading alone before.
                state.engine.number(file, node);
            }
            Some(cancelled)
        });
        cancelled.is_some()
    }

    /// Detaches a file once its dirty data is home, then runs `done` on a worker. `done` is not run if the file
    /// is attached again before, and is run at once if the file is not attached.
    pub fn detach(&self, file: FileId, done: impl FnOnce() + Send + 'static) {
        let not_attached =
            self.core.event(Thread::Holding, |state, now| match state.files.get_mut(&file) {
                Some(attached) => {
                    attached.detached.push(Box::new(done));
                    state.engine.detach(file, now);
                    None
                }
                None => Some(done),
            });
        if let Some(done) = not_attached {
            trampoline::run(done);
        }
    }

    /// Drops the dirty data of a file that has neither a name nor an open description left.
    pub fn discard(&self, file: FileId) {
        self.core.event(Thread::Holding, |state, _| state.engine.discard(file));
    }

    /// The file was changed at home by another program: drops its cached pages and reads its attributes again.
    /// Returns false, and does nothing, if the file is not attached, has dirty data or is in use.
    ///
    /// # Errors
    /// Those of reading the attributes at home; nothing is dropped then.
    pub fn drop_clean(&self, file: FileId) -> io::Result<bool> {
        let attached = self.core.lock().files.get(&file).map(|file| Arc::clone(&file.home));
        let Some(home) = attached else {
            return Ok(false);
        };
        let attributes = home.home_attributes()?;
        Ok(self.core.event(Thread::Holding, |state, _| state.engine.drop_clean(file, attributes)))
    }

    /// The file's size as programs see it; `None` if it is not attached.
    pub fn size(&self, file: FileId) -> Option<u64> {
        self.core.lock().engine.size(file)
    }

    /// How far the file's data is on its way home.
    pub fn data_state(&self, file: FileId) -> DataState {
        self.core.lock().engine.data_state(file)
    }

    /// Whether the file has data newer than home.
    pub fn has_dirty(&self, file: FileId) -> bool {
        self.core.lock().engine.has_dirty(file)
    }

    /// The files that have data newer than home.
    pub fn dirty_files(&self) -> Vec<FileId> {
        self.core.lock().engine.dirty_files()
    }

    /// A file got another name or other attributes at home, not by way of the log: its next sync makes that durable, too.
    pub fn changed_at_home(&self, file: FileId) {
        self.core.lock().engine.changed_at_home(file);
    }

    /// Space reserved past the file's end is about to be given back ([`HomeFile::close_data`]).
    pub fn forget_reserved_past_end(&self, file: FileId) {
        self.core.lock().engine.forget_reserved_past_end(file);
    }

    /// The file's error position now, for a new open description.
    pub fn error_cursor(&self, file: FileId) -> ErrorCursor {
        self.core.lock().engine.error_cursor(file)
    }

    /// The latest write-back error since `cursor`, if any; advances the cursor.
    pub fn take_error(&self, file: FileId, cursor: &mut ErrorCursor) -> Option<ErrorKind> {
        self.core.lock().engine.take_error(file, cursor)
    }

    /// Writes `data` at `offset`. When this returns, `data` has been copied.
    pub fn write(
        &self,
        file: FileId,
        offset: u64,
        data: &[u8],
        durability: Durability,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        self.write_by(file, durability, done, |engine, request, now| {
            engine.write(request, file, offset, data, durability, now)
        });
    }

    fn write_by(
        &self,
        file: FileId,
        durability: Durability,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
        call: impl FnOnce(&mut Engine, weir_engine::RequestId, weir_engine::Time) -> Outcome<()>,
    ) {
        if durability != Durability::None {
            self.note_attributes(file);
        }
        let done = self.after_at_once(durability, done);
        let answered = self.core.event(Thread::Caller, |state, since| {
            let request = state.pending.next_id();
            match call(&mut state.engine, request, since) {
                Outcome::Done(result) => {
                    state.recorder.record(Measured::Write, self.core.now().since(since));
                    Some((done, result))
                }
                Outcome::Pending => {
                    state.wait(since, Some(file), Continuation::Write(Box::new(done)));
                    None
                }
            }
        });
        if let Some((done, result)) = answered {
            trampoline::run(move || done(result));
        }
    }

    /// Writes `data` at the end that the file has when the write is applied. When this returns, `data` has been
    /// copied.
    pub fn append(
        &self,
        file: FileId,
        data: &[u8],
        durability: Durability,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        self.write_by(file, durability, done, |engine, request, now| {
            engine.write_at_end(request, file, data, durability, now)
        });
    }

    /// Reads up to `len` bytes at `offset`.
    pub fn read(
        &self,
        file: FileId,
        offset: u64,
        len: usize,
        done: impl FnOnce(Result<ReadData, Error>) + Send + 'static,
    ) {
        let answered = self.core.event(Thread::Caller, |state, since| {
            let request = state.pending.next_id();
            match state.engine.read(request, file, offset, len, since) {
                Outcome::Done(result) => {
                    state.recorder.record(Measured::Read, self.core.now().since(since));
                    Some((done, result))
                }
                Outcome::Pending => {
                    state.wait(since, Some(file), Continuation::Read(Box::new(done)));
                    None
                }
            }
        });
        if let Some((done, result)) = answered {
            trampoline::run(move || done(result));
        }
    }

    /// fsync(2) or fdatasync(2): makes the file's earlier writes durable, and its modification time.
    pub fn sync(
        &self,
        file: FileId,
        durability: Durability,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        self.note_attributes(file);
        let done = self.after_at_once(durability, done);
        self.sync_by(Some(file), done, |engine, request, now| {
            engine.sync(request, file, durability, now)
        });
    }

    /// Syncs the files of which [`Shard::commit_names`] leaves something that is not durable, as [`Engine::not_committed`], and then runs `done`,
    /// with the first error.
    pub fn sync_not_committed(&self, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let files = self.core.lock().engine.not_committed();
        if files.is_empty() {
            return done(Ok(()));
        }
        let left = Arc::new(Mutex::new((files.len(), Ok(()), Some(done))));
        for file in files {
            let left = Arc::clone(&left);
            self.sync(file, Durability::All, move |synced| {
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                let (count, result, done) = &mut *left;
                *count -= 1;
                // What has left the cache meanwhile is home.
                *result = (*result).and(match synced {
                    Err(Error::NotAttached) => Ok(()),
                    synced => synced,
                });
                let ended = (*count == 0).then(|| (done.take(), *result));
                drop(left);
                if let Some((Some(done), result)) = ended {
                    done(result);
                }
            });
        }
    }

    /// Tells the engine if attributes of the file changed at home: a sync by the log makes them durable there.
    fn note_attributes(&self, file: FileId) {
        if self.log.is_some() {
            let mut state = self.core.lock();
            if state.files.get(&file).is_some_and(|file| file.home.times().take_changed()) {
                state.engine.changed_at_home(file);
            }
        }
    }

    /// Brings all dirty data of all files home. The error is the first one met.
    pub fn sync_all(&self, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        self.sync_by(None, done, |engine, request, now| engine.sync_all(request, now));
    }

    /// As [`Shard::sync_all`], and then SOURCE's file system as a whole is durable (syncfs(2)). If the log has failed, and names do
    /// not need it ([`Shard::names_need`]), it is then noted in SOURCE that it must not be replayed: see [`Shard::has_stale_log`].
    pub fn sync_durably(self: &Arc<Self>, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let shard = Arc::clone(self);
        let failures = self.whole.failures();
        let (had_failed, is_replaceable) = {
            let state = self.core.lock();
            let has_failed = state.engine.log_has_failed();
            (has_failed, has_failed && !state.engine.is_log_needed_for_names())
        };
        self.sync_all(move |synced| {
            if synced.is_err() {
                // A sync of the whole file system would promise nothing, and would load a failing disk.
                return done(synced);
            }
            // The sync may take seconds, and this thread has other requests to answer.
            let core = Arc::clone(&shard.core);
            core.directory.defer(Box::new(move || {
                shard.restore_all_times();
                let home = shard.core.sync_home(&shard.whole, failures);
                let has_failed = shard.core.lock().engine.log_has_failed();
                if home.is_ok() && has_failed && !had_failed {
                    // Replay of the failed log would overwrite what this sync brought home. The log also has
                    // records of syncs that were acknowledged since this sync began.
                    return shard.sync_durably(done);
                }
                let home =
                    home.map_err(|failed| failed.kind).and_then(|()| match shard.core.log.get() {
                        // A failed log cannot record itself that nothing in it is to be replayed.
                        Some(log) if is_replaceable => {
                            log.note_void(shard.source.as_fd())
                                .map_err(|error| error_kind(&error))?;
                            shard.log_is_void.store(true, Ordering::Release);
                            Ok(())
                        }
                        _ => Ok(()),
                    });
                done(home.map_err(Error::Home));
            }));
        });
    }

    /// As [`Shard::sync_all`], with the files' times. Not all of it is durable then.
    pub fn bring_all_home(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) {
        let shard = Arc::clone(self);
        // Who makes it durable is told of errors.
        self.sync_all(move |_| {
            let core = Arc::clone(&shard.core);
            core.directory.defer(Box::new(move || {
                shard.restore_all_times();
                done();
            }));
        });
    }

    /// Home is to lose a name of a file ([`Unsynced::leave_name`]). May wait for home.
    pub fn leave_name(&self, file: FileId) {
        self.core.directory.leave_name(file);
    }

    /// Whether a failed sync of home loses nothing ([`Config::keeps_unsynced`]).
    pub fn home_keeps_unsynced(&self) -> bool {
        self.core.lock().engine.config().keeps_unsynced
    }

    /// Restores the modification times at home of all clean files, which is otherwise done a moment after their data is home.
    fn restore_all_times(&self) {
        let clean: Vec<Arc<HomeFile>> = {
            let state = self.core.lock();
            let files = state.files.iter().filter(|(file, _)| !state.engine.has_dirty(**file));
            files.map(|(_, attached)| Arc::clone(&attached.home)).collect()
        };
        clean.iter().for_each(|home| restore_times(home));
    }

    fn sync_by(
        &self,
        file: Option<FileId>,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
        call: impl FnOnce(&mut Engine, weir_engine::RequestId, weir_engine::Time) -> Outcome<()>,
    ) {
        let answered = self.core.event(Thread::Syncer, |state, since| {
            let request = state.pending.next_id();
            match call(&mut state.engine, request, since) {
                Outcome::Done(result) => {
                    state.recorder.record(Measured::Sync, self.core.now().since(since));
                    Some((done, result))
                }
                Outcome::Pending => {
                    state.wait(since, file, Continuation::Sync(Box::new(done)));
                    None
                }
            }
        });
        if let Some((done, result)) = answered {
            trampoline::run(move || done(result));
        }
    }

    /// Freezes a file: runs `action` while nothing of the file is in flight and other requests on it wait.
    /// `action` may change the file at home (truncate, fallocate, copy_file_range) or inspect it (lseek).
    /// `scope` says what goes home first and what `action` changes. `action` gets an error if bringing data
    /// home failed: the file is then not frozen, `action` must not change it, and the [`FreezeEnd`] that it
    /// returns is ignored. The second value that it returns is the answer to the program. The answer is run
    /// after the thaw, so that the program never sees the state before the change. `action` must not call the
    /// shard for this file, except [`Shard::size`].
    pub fn freeze<Reply: FnOnce() + Send + 'static>(
        &self,
        file: FileId,
        scope: impl Into<FreezeScope>,
        action: impl FnOnce(Result<(), Error>) -> (FreezeEnd, Reply) + Send + 'static,
    ) {
        let scope = scope.into();
        let granted = self.core.event(Thread::Caller, |state, now| {
            let request = state.pending.next_id();
            match state.engine.freeze(request, file, scope, now) {
                Outcome::Done(result) => Some((action, result)),
                Outcome::Pending => {
                    let action = Box::new(move |result| {
                        let (end, reply) = action(result);
                        (end, Box::new(reply) as Answer)
                    });
                    state.wait(now, Some(file), Continuation::Freeze(file, action));
                    None
                }
            }
        });
        if let Some((action, result)) = granted {
            let mut work = Work::default();
            let reply = self.core.run_frozen(file, action, result, &mut work);
            self.core.perform(work, Thread::Caller);
            trampoline::run(reply);
        }
    }

    /// Whether everything is logged before it goes home.
    pub fn is_ordered(&self) -> bool {
        self.at_once.as_ref().is_some_and(|at_once| at_once.is_of_everything())
    }

    /// Home is about to be changed at once, not by way of the log, until the guard is dropped. Where everything is in one order,
    /// what is logged or synced after that is durable only when home was synced.
    pub fn change_home(&self) -> Option<Changing> {
        self.at_once.as_ref().filter(|at_once| at_once.is_of_everything()).map(AtOnce::change)
    }

    /// A name is about to be changed at home at once, until the guard is dropped. A record of a name that is logged after that is
    /// durable only when home was synced, and what is as of [`Shard::change_home`].
    pub fn change_name_at_home(&self) -> Option<Changing> {
        self.at_once.as_ref().map(AtOnce::change)
    }

    /// The continuation of a sync, or durable write, that begins now: it is run when what home was given at once before is
    /// durable, too, if what is synced needs that.
    pub(crate) fn after_at_once(
        &self,
        durability: Durability,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> impl FnOnce(Result<(), Error>) + Send + 'static {
        let at_once = self.at_once.as_ref().filter(|_| durability != Durability::None);
        let waits = at_once
            .filter(|at_once| at_once.needs_sync())
            .map(|at_once| (Arc::clone(at_once), at_once.failures(), Arc::clone(&self.core)));
        let waits =
            move || waits.filter(|(at_once, failures, _)| !at_once.is_synced_since(*failures));
        move |synced: Result<(), Error>| match waits() {
            // The group that the sync waited for was written after a sync of home, unless there was none.
            Some((at_once, failures, core)) if synced.is_ok() => {
                core.directory.defer(Box::new(move || {
                    // Another one of those that wait may have synced home meanwhile.
                    let synced = match at_once.is_synced_since(failures) {
                        true => Ok(()),
                        false => at_once.sync(failures).map_err(Error::Home),
                    };
                    done(synced);
                }));
            }
            _ => done(synced),
        }
    }

    /// The engine's counters and gauges.
    pub fn stats(&self) -> Stats {
        let now = self.core.now();
        let stats = self.core.lock().engine.stats(now);
        Stats { memory_bytes_max: self.memory_bytes_max, ..stats }
    }

    /// How long requests took.
    pub fn latencies(&self) -> Latencies {
        self.core.lock().recorder.latencies()
    }

    /// Which files' requests waited, and what waits now.
    pub fn waits(&self) -> Waits {
        let now = self.core.now();
        let state = self.core.lock();
        state.slow_files.waits(&state.pending, now)
    }

    /// The back end, for status reports.
    pub fn directory(&self) -> &Directory {
        &self.core.directory
    }

    /// To be called when everything is home and durable: records that in the log, or in SOURCE if the log has
    /// failed, so that the next mount replays nothing. Returns false if neither could be written, or if there
    /// is no log.
    pub fn close_log(&self) -> bool {
        let Some(log) = self.core.log.get() else { return false };
        self.await_log();
        let closing = self.core.event(Thread::Caller, |state, _| state.engine.close_log());
        self.await_log();
        if closing && !self.core.lock().engine.log_has_failed() {
            return true;
        }
        log.note_void(self.source.as_fd())
            .inspect_err(|error| {
                tracing::error!("the log failed, and that cannot be noted in SOURCE: {error}; do not use this log again");
            })
            .is_ok()
    }

    /// Waits until nothing is under way on the log. Polls, since this happens only at the end of a mount.
    fn await_log(&self) {
        while self.core.lock().engine.log_is_busy() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the threads. Dirty data is lost: call [`Shard::sync_all`] first. Pending requests are not
    /// answered. Idempotent.
    pub fn stop(&self) {
        self.core.doorbell.stop();
        let ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ticker) = ticker
            && ticker.thread().id() != thread::current().id()
        {
            // A thread that panicked has aborted the process.
            let _ = ticker.join();
        }
        self.core.directory.shutdown();
        if let Some(log) = self.core.log.get() {
            log.shutdown();
        }
    }
}

/// Adjusts the engine's configuration if programs map its frames. Huge pages stay resident once they were used,
/// and posted writes of clients take memory too. So the frames in flight count as part of the requested memory,
/// if that is large enough.
fn beside_clients(config: Config) -> Config {
    let in_flight = FRAMES_IN_FLIGHT * PAGE_BYTES as u64;
    let memory_bytes_max = config.memory_bytes_max.saturating_sub(in_flight);
    let less = Config { memory_bytes_max, ..config.clone() };
    let most_is_left = memory_bytes_max >= config.memory_bytes_max / 4 * 3;
    if most_is_left && less.validate().is_ok() { less } else { config }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.stop();
    }
}
