//! The redo log under a mount: recovered when it is opened, then written by a thread of its own.
//! At most one group is in flight, so one thread is enough. On a fast device a caller that may block writes its
//! group itself: that saves waking the thread and being woken by it. Owns the log file and the thread.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use weir_engine::{ErrorKind, IoId, LogCommand};
use weir_log::{
    Block, Commit, Identity, Left, Lsn, ReplayError, Report, Superblock, VERSION_BY_DEVICE, Writer,
    replay,
};

use crate::at_once::AtOnce;
use crate::flags::set_flags_again;
use crate::home_file::HomeFile;
use crate::identity::{self, Naming};
use crate::jobs::Jobs;
use crate::latency_estimate::{FAST_SYNC, LatencyEstimate};
use crate::log_file::{LogFile, LogFileError};
use crate::partial;
use crate::recovery::{Recovered, RecoveryError};
use crate::recovery_names::{Continuation, Replayed, continuation, forget_recovered_names};
use crate::recovery_progress::{Counted, RecoveryProgress};
use crate::redo;
use crate::unsynced::Unsynced;
use crate::void::{self, without_void};
use crate::whole::{self, SyncFailed};

/// Why a log is not ready for use. It is left as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// The log itself.
    #[error(transparent)]
    File(#[from] LogFileError),
    /// Its contents could not be replayed.
    #[error("cannot recover from the log {}: {why}", path.display())]
    Replay {
        /// The log.
        path: std::path::PathBuf,
        /// Why.
        why: Box<ReplayError<RecoveryError>>,
    },
    /// Some files could not be brought up to date; all others were.
    #[error(
        "some synced data could not be brought home and stays in the log {}:\n{left}remove the causes, \
         then run 'weir recover' on SOURCE; everything else is home",
        path.display()
    )]
    Left {
        /// The log.
        path: std::path::PathBuf,
        /// The files that could not.
        left: Lefts,
    },
    /// Files that were made writable for recovery still are.
    #[error(transparent)]
    Flags(RecoveryError),
    /// Another call of the system failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

const READ_NOTES: &str = "read the notes about the log in '.weir'";

/// The `mount` of a log that was formatted and has not been used.
pub const NOBODY: Identity = [0; 16];

/// The SOURCE identity of version 2: its file system's number and its directory's handle. It changes with the
/// device's number on some file systems, so version 3 does not use it.
fn identity_by_device(source: BorrowedFd<'_>) -> io::Result<Identity> {
    let handle = identity::handle_of(source)?;
    let mut mount = [0; 16];
    let system = rustix::fs::fstatvfs(source)?.f_fsid;
    mount[..8].copy_from_slice(&system.to_le_bytes());
    for (nth, part) in mount[8..].chunks_mut(4).enumerate() {
        let crc = crc32c::crc32c_append(nth as u32, &handle);
        part.copy_from_slice(&crc.to_le_bytes());
    }
    Ok(mount)
}

/// The SOURCE that a log belongs to, according to its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOwner {
    /// The SOURCE with this identity.
    Source(Identity),
    /// None: it was formatted, and not used yet.
    None,
    /// A SOURCE that an earlier build identified by its device.
    ByDevice {
        /// Whether the SOURCE that was asked about still has that identity.
        same: bool,
    },
}

/// What a log's superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// The log's own name, generated when the log was made.
    pub name: Identity,
    /// The SOURCE it belongs to.
    pub owner: LogOwner,
    /// Whether there is something to replay, unless SOURCE records the log as void.
    pub has_changes: bool,
    /// The lowest node number that is not used in it.
    pub unused_node: u64,
}

/// Inspects a log for a SOURCE; `None` if the file or device is blank.
///
/// # Errors
/// See [`LogFileError`].
pub fn look(log: &LogFile, source: BorrowedFd<'_>) -> Result<Option<LogState>, LogFileError> {
    let Some((superblock, version)) = log.superblock_and_version()? else { return Ok(None) };
    let owner = match version {
        VERSION_BY_DEVICE => {
            // Where there are no handles, earlier builds made no logs.
            let same = identity_by_device(source).is_ok_and(|mount| mount == superblock.mount);
            LogOwner::ByDevice { same }
        }
        _ if superblock.mount == NOBODY => LogOwner::None,
        _ => LogOwner::Source(superblock.mount),
    };
    let left = without_void(source, superblock).map_err(|source| LogFileError::Io {
        doing: "read the notes in '.weir' about",
        path: log.path().to_owned(),
        source,
    })?;
    let has_changes = !left.clean;
    let unused_node = superblock.unused_node();
    Ok(Some(LogState { name: superblock.log, owner, has_changes, unused_node }))
}

/// Whether recovery can find the files below SOURCE.
///
/// # Errors
/// Those of fstatfs(2).
pub fn can_be_logged(source: BorrowedFd<'_>) -> io::Result<()> {
    Naming::of(source).map(drop)
}

/// What tells a directory from a copy of it, where file handles last: its handle.
///
/// # Errors
/// Those of fstatfs(2) and name_to_handle_at(2).
pub fn lasting_identity(directory: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let naming = Naming::of(directory)?;
    (!naming.is_by_path()).then(|| naming.identity(directory)).transpose()
}

/// What a recovery did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RecoveredLog {
    /// The replay.
    pub report: Report,
    /// How SOURCE differs from what was seen through the mount, since somebody else changed it, in sentences.
    pub told: Vec<String>,
}

/// Replays a log to the files of SOURCE and reports what it did. Then marks the log as empty and as belonging
/// to the SOURCE with identity `mount`. If `dry`, only reports what it would do. The caller checks that the
/// log is that SOURCE's.
///
/// # Errors
/// See [`OpenLogError`].
pub fn recover(
    log: &LogFile,
    mount: Identity,
    source: BorrowedFd<'_>,
    dry: bool,
) -> Result<RecoveredLog, OpenLogError> {
    recover_watched(log, mount, source, dry, &Arc::default())
}

/// As [`recover`]; `progress` tells how far it is.
///
/// # Errors
/// See [`OpenLogError`].
pub fn recover_watched(
    log: &LogFile,
    mount: Identity,
    source: BorrowedFd<'_>,
    dry: bool,
    progress: &Arc<RecoveryProgress>,
) -> Result<RecoveredLog, OpenLogError> {
    let Some(superblock) = log.superblock()? else { return Ok(RecoveredLog::default()) };
    let (recovered, left) = replay_to(log, superblock, source, dry, progress)?;
    if let Some(left) = left {
        return Err(OpenLogError::Left { path: log.path().to_owned(), left });
    }
    if !dry {
        let next = Superblock { clean: true, mount, ..superblock.next_use(recovered.report.end) };
        use_again(log, next, source)?;
    }
    Ok(recovered)
}

fn replay_to(
    log: &LogFile,
    superblock: Superblock,
    source: BorrowedFd<'_>,
    dry: bool,
    progress: &Arc<RecoveryProgress>,
) -> Result<(RecoveredLog, Option<Lefts>), OpenLogError> {
    let system = |doing| move |source| OpenLogError::System { doing, source };
    let superblock = without_void(source, superblock).map_err(system(READ_NOTES))?;
    let done = partial::done(source, &superblock)
        .map_err(system("read which files an earlier recovery finished"))?;
    let home = Recovered::new(source, done)
        .and_then(|files| Replayed::new(&superblock, source, files, progress.clone()));
    let mut home = home.map_err(system("open SOURCE"))?;
    let mut reader = Counted { log, progress };
    let replayed = replay(&mut reader, superblock, (!dry).then_some(&mut home));
    let told = home.told();
    drop(home);
    // Also if the replay failed, but before the log is marked as empty.
    let set_again = if dry { Ok(()) } else { set_flags_again(source) };
    if replayed.is_err() || set_again.is_err() {
        // These errors do not say it.
        told.iter().for_each(|told| tracing::warn!("recovery: {told}"));
    }
    let report = replayed
        .map_err(|why| OpenLogError::Replay { path: log.path().to_owned(), why: Box::new(why) })?;
    set_again.map_err(OpenLogError::Flags)?;
    let mut left = if dry { None } else { Lefts::of(&report) };
    if let Some(left) = &mut left {
        left.told.clone_from(&told);
        // A full disk may have no room for the note either.
        left.unnoted = partial::note(source, &superblock, &report.done).err();
    }
    Ok((RecoveredLog { report, told }, left))
}

/// Writes a superblock by which the log is used again, `next` or a later one, and returns it. Removes earlier
/// notes about the log.
fn use_again(
    file: &LogFile,
    superblock: Superblock,
    source: BorrowedFd<'_>,
) -> Result<Superblock, OpenLogError> {
    let system = |doing| move |source| OpenLogError::System { doing, source };
    let superblock = void::beyond_notes(source, superblock).map_err(system(READ_NOTES))?;
    // What a mount went on with after the log had failed must not be taken for this use's.
    let superblock = match continuation(source, &superblock) {
        Ok(Some(continued)) => void::beyond(continued.generation, superblock),
        Ok(None) => superblock,
        // No recovery takes it for anything.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => superblock,
        Err(error) => return Err(system(READ_NOTES)(error)),
    };
    let superblock = file.set_superblock(superblock).map_err(system("write the log"))?;
    void::forget(source, &superblock.log)
        .map_err(system("remove the note in '.weir' that the log was void"))?;
    partial::forget(source, &superblock);
    forget_recovered_names(source)
        .map_err(system("remove '.weir/recovered', which an earlier recovery left"))?;
    Ok(superblock)
}

/// Files that could not be brought up to date, for messages.
#[derive(Debug)]
pub struct Lefts {
    /// Files with data in the log.
    pub files: Vec<Left>,
    /// Names, each with the reason.
    pub names: Vec<String>,
    /// Why it could not be noted which files are finished: the next recovery writes these once more.
    pub unnoted: Option<io::Error>,
    /// What else people are to know of the files, in sentences.
    pub told: Vec<String>,
}

impl Lefts {
    fn of(report: &Report) -> Option<Lefts> {
        let (files, names) = (report.left.clone(), report.names_left.clone());
        let is_some = !files.is_empty() || !names.is_empty();
        is_some.then_some(Lefts { files, names, unnoted: None, told: Vec::new() })
    }
}

impl fmt::Display for Lefts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The path for messages.
        const NAMED_MAX: usize = 10;
        for left in self.files.iter().take(NAMED_MAX) {
            writeln!(f, "  {} ({} bytes that were synced)", left.why, left.needed.bytes)?;
        }
        for name in self.names.iter().take(NAMED_MAX) {
            writeln!(f, "  {name}")?;
        }
        let more = |all: usize| all.saturating_sub(NAMED_MAX);
        match more(self.files.len()) + more(self.names.len()) {
            0 => {}
            more => writeln!(f, "  and {more} more")?,
        }
        if let Some(error) = &self.unnoted {
            writeln!(
                f,
                "what is home now could not be noted ({error}), and is written once more by the next \
                 recovery: change no file in SOURCE before that"
            )?;
        }
        for told in &self.told {
            writeln!(f, "also: {told}")?;
        }
        Ok(())
    }
}

/// A log that is ready for use: nothing in it is left to replay.
#[derive(Debug)]
pub struct RedoLog {
    file: Arc<LogFile>,
    superblock: Superblock,
    source: OwnedFd,
    /// The result of the replay.
    pub recovered: Report,
}

impl RedoLog {
    /// Opens a log for the files below `source`, a SOURCE with identity `mount`, and replays it. A blank log is
    /// formatted. The caller checks that the log is that SOURCE's. Nodes get numbers from `node_first` on, or
    /// higher ones if the log has used those.
    ///
    /// # Errors
    /// See [`OpenLogError`]. The log is kept as it was.
    pub fn open(
        file: LogFile,
        mount: Identity,
        source: BorrowedFd<'_>,
        node_first: u64,
    ) -> Result<RedoLog, OpenLogError> {
        let system = |doing| move |source| OpenLogError::System { doing, source };
        can_be_logged(source).map_err(system("name the files of SOURCE for a log"))?;
        let superblock = match file.superblock()? {
            Some(superblock) => superblock,
            None => file.format(mount)?,
        };
        let (recovered, left) = replay_to(&file, superblock, source, false, &Arc::default())?;
        let RecoveredLog { report: recovered, told } = recovered;
        if let Some(left) = left {
            return Err(OpenLogError::Left { path: file.path().to_owned(), left });
        }
        told.iter().for_each(|told| tracing::warn!("recovery: {told}"));
        let next = superblock.next_use(recovered.end);
        let superblock = Superblock { mount, nodes: next.nodes.max(node_first), ..next };
        let superblock = use_again(&file, superblock, source)?;
        let source = whole::reopen(source).map_err(system("open SOURCE"))?;
        Ok(RedoLog { file: Arc::new(file), superblock, source, recovered })
    }

    /// Its name.
    pub fn name(&self) -> Identity {
        self.superblock.log
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The engine's writer for this log.
    pub fn writer(&self) -> Writer {
        Writer::new(self.superblock)
    }

    /// Starts the thread that executes commands. What home was given `at_once` is durable there before a group is written,
    /// whose records may be of later changes. A sync of home syncs what is `unsynced`, too.
    ///
    /// # Errors
    /// Those of thread creation.
    pub fn start(
        self,
        at_once: Option<Arc<AtOnce>>,
        unsynced: Option<Arc<Unsynced>>,
        ended: Box<dyn Fn(IoId, Result<(), SyncFailed>) + Send>,
    ) -> io::Result<LogThread> {
        let log = Arc::new(Log {
            name: self.superblock.log,
            generation: AtomicU64::new(self.superblock.generation),
            file: self.file,
            source: self.source,
            unsynced,
            at_once,
            turn: Mutex::new(()),
            queued: AtomicUsize::new(0),
            latency: LatencyEstimate::new(FAST_SYNC),
        });
        let jobs = Arc::new(Jobs::default());
        let (work, of_thread) = (Arc::clone(&jobs), Arc::clone(&log));
        let thread = thread::Builder::new().name("weir-log".to_owned()).spawn(move || {
            while let Some(command) = work.pop() {
                let turn = of_thread.turn.lock().unwrap_or_else(PoisonError::into_inner);
                let (io, result) = of_thread.execute(command, false);
                drop(turn);
                of_thread.queued.fetch_sub(1, Ordering::AcqRel);
                ended(io, result);
            }
        })?;
        let thread = Mutex::new(Some(thread));
        Ok(LogThread { jobs, log, thread, continuation: Mutex::default() })
    }
}

/// Groups of at most this many blocks count for the latency estimate.
const SMALL_BLOCKS: usize = 16;

/// Executes commands.
#[derive(Debug)]
struct Log {
    name: Identity,
    /// Generation of the newest superblock submitted for writing.
    generation: AtomicU64,
    file: Arc<LogFile>,
    /// A description of its own, for syncfs(2) ([`whole`]).
    source: OwnedFd,
    unsynced: Option<Arc<Unsynced>>,
    at_once: Option<Arc<AtOnce>>,
    /// Held by the thread that executes a command.
    turn: Mutex<()>,
    /// Number of commands queued for the thread and not executed yet.
    queued: AtomicUsize,
    /// Latency of small writes, by any thread.
    latency: LatencyEstimate,
}

impl Log {
    fn execute(&self, command: LogJob, busy_poll: bool) -> (IoId, Result<(), SyncFailed>) {
        let (io, result) = match command {
            LogJob::Write(io, commit) => {
                self.sync_at_once();
                let start = Instant::now();
                let written = self.file.write_by(&commit, busy_poll);
                // Long writes are slow on any device.
                if commit.blocks.len() <= SMALL_BLOCKS {
                    self.latency.learn(start.elapsed());
                }
                (io, written)
            }
            LogJob::SyncHome(io) => {
                let synced = whole::sync_home(&self.source, self.unsynced.as_deref());
                if let Err(failed) = &synced {
                    let why = weir_engine::Error::Home(failed.kind);
                    tracing::error!("cannot sync the file system of SOURCE: {why}");
                }
                return (io, synced);
            }
        };
        if let Err(error) = &result {
            let log = self.file.path().display();
            tracing::error!("the log {log} failed: {error}; no fsync succeeds any more");
        }
        (io, result.map_err(|_| SyncFailed::of_all(ErrorKind::Io)))
    }

    fn has_unsynced(&self) -> bool {
        self.at_once.as_ref().is_some_and(|at_once| at_once.needs_sync())
    }

    /// Home is synced before the log is written, if it was changed at once and what is written needs that.
    fn sync_at_once(&self) {
        if let Some(at_once) = self.at_once.as_ref().filter(|at_once| at_once.needs_sync()) {
            // If that fails, what is in the group is written all the same. No sync is acknowledged until home was synced.
            let _ = at_once.sync(at_once.failures());
        }
    }
}

/// A command for the thread.
#[derive(Debug)]
enum LogJob {
    Write(IoId, Commit),
    SyncHome(IoId),
}

/// A read of the log, for a thread that may block.
#[derive(Debug)]
pub struct LogRead {
    /// The number of its command.
    pub io: IoId,
    file: Arc<LogFile>,
    places: Vec<u64>,
}

impl LogRead {
    /// Reads the blocks, in the command's order. May block.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&self) -> Result<Vec<Block>, ErrorKind> {
        self.file.read_blocks(&self.places).map_err(|error| {
            tracing::error!("the log {} cannot be read: {error}", self.file.path().display());
            ErrorKind::Io
        })
    }
}

/// The outcome of giving a command to the log.
#[derive(Debug)]
pub enum Given {
    /// It will be executed.
    Taken,
    /// It was executed. Of a write, the error is of the log.
    Ended(IoId, Result<(), SyncFailed>),
    /// A thread that may block must run it; other commands may run meanwhile.
    Read(LogRead),
}

/// The thread that writes a log.
#[derive(Debug)]
pub struct LogThread {
    jobs: Arc<Jobs<LogJob>>,
    log: Arc<Log>,
    thread: Mutex<Option<JoinHandle<()>>>,
    continuation: Mutex<Continuation>,
}

impl LogThread {
    /// Executes a command after all earlier ones. With `may_block`, a write is executed at once by this thread
    /// if no other command is in flight and the device is fast.
    pub fn execute(&self, command: LogCommand, may_block: bool) -> Given {
        let job = match command {
            LogCommand::Write { io, commit } => {
                if let Some(generation) = commit.generation() {
                    self.log.generation.fetch_max(generation, Ordering::AcqRel);
                }
                LogJob::Write(io, commit)
            }
            LogCommand::SyncHome { io } => LogJob::SyncHome(io),
            LogCommand::Read { io, places } => {
                return Given::Read(LogRead { io, file: Arc::clone(&self.log.file), places });
            }
        };
        if may_block
            && matches!(job, LogJob::Write(..))
            // Home is synced first, which may take long.
            && !self.log.has_unsynced()
            && let Ok(_turn) = self.log.turn.try_lock()
            && self.log.queued.load(Ordering::Acquire) == 0
            && self.log.latency.should_wait()
        {
            let (io, result) = self.log.execute(job, true);
            return Given::Ended(io, result);
        }
        self.log.queued.fetch_add(1, Ordering::AcqRel);
        self.jobs.push(job);
        Given::Taken
    }

    /// Writes to a file, in order, its records in the log from `from` on, up to `until`, without those of sizes that home refused. Blocks. No
    /// other I/O on the file may be under way.
    ///
    /// # Errors
    /// The log's when reading it, or home's.
    pub fn redo(
        &self,
        from: Superblock,
        until: Lsn,
        refused: &[Lsn],
        file: (u64, &[u8]),
        home: &HomeFile,
    ) -> Result<(), ErrorKind> {
        let mut reader = &*self.log.file;
        redo::redo(&mut reader, from, (until, refused), file, home).map_err(|error| {
            let log = self.log.file.path().display();
            tracing::error!("cannot rewrite a file of SOURCE from the log {log}: {error}");
            redo::kind_of(&error)
        })
    }

    /// Records in `source`, the SOURCE of this log, that everything in the log is home and durable: for a log
    /// that failed and so cannot record that itself.
    ///
    /// # Errors
    /// Those of creating a file in `.weir`.
    pub fn note_void(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        void::note(source, &self.log.name, self.newest_generation())
    }

    /// Goes on with the names of this log, which has failed, in `source`, its SOURCE: adds records, with their positions, which are
    /// replayed instead of those that the log may have from `from` on. They are durable after that. Blocks.
    ///
    /// # Errors
    /// Those of writing in `.weir`. None of the records counts; they may be added again.
    pub fn continue_names(
        &self,
        source: BorrowedFd<'_>,
        from: Lsn,
        records: Vec<(Lsn, Vec<u8>)>,
    ) -> io::Result<()> {
        let mut continuation = self.continuation.lock().unwrap_or_else(PoisonError::into_inner);
        continuation.add(source, &self.log.name, (self.newest_generation(), from), records)
    }

    /// The highest generation that the superblock on disk can have.
    fn newest_generation(&self) -> u64 {
        // The write of one more superblock may be in flight.
        self.log.generation.load(Ordering::Acquire) + 1
    }

    /// Ends the thread after all queued commands. Does not wait if it is called by that thread.
    pub fn shutdown(&self) {
        self.jobs.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // A thread that panicked has aborted the process.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc;
    use std::time::Duration;

    use weir_log::{LOG_BYTES_MIN, NODE_FIRST};

    use super::*;
    use crate::log_file::LogPlace;

    /// A directory with a log, and a counter of its replays.
    struct Fixture {
        directory: tempfile::TempDir,
        source: std::fs::File,
    }

    impl Fixture {
        fn new() -> Fixture {
            let directory = tempfile::tempdir().unwrap();
            let source = std::fs::File::open(directory.path()).unwrap();
            Fixture { directory, source }
        }

        fn place(&self) -> LogPlace {
            LogPlace::at(&self.directory.path().join("log")).unwrap()
        }

        fn path(&self) -> std::path::PathBuf {
            self.directory.path().join("log")
        }

        /// Writes a superblock of version 2 at the log's start.
        fn write_earlier(&self, mount: Identity, clean: bool) {
            let (log, superblock) = LogFile::create(&self.place(), LOG_BYTES_MIN, mount).unwrap();
            drop(log);
            let mut block = Superblock { clean, ..superblock }.encode().0;
            block[8..12].copy_from_slice(&VERSION_BY_DEVICE.to_le_bytes());
            let crc = crc32c::crc32c(&block[..508]);
            block[508..512].copy_from_slice(&crc.to_le_bytes());
            let file = std::fs::OpenOptions::new().write(true).open(self.path()).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &block, 0).unwrap();
        }

        fn look(&self) -> LogState {
            let log = LogFile::open(&self.place()).unwrap().unwrap();
            look(&log, self.source.as_fd()).unwrap().unwrap()
        }
    }

    #[test]
    fn a_version_2_log_is_identified_by_device_and_then_gets_an_identity() {
        let fixture = Fixture::new();
        fixture.write_earlier(identity_by_device(fixture.source.as_fd()).unwrap(), false);
        let found = fixture.look();
        assert_eq!((found.owner, found.has_changes), (LogOwner::ByDevice { same: true }, true));
        let log = LogFile::open(&fixture.place()).unwrap().unwrap();
        recover(&log, [9; 16], fixture.source.as_fd(), false).unwrap();
        drop(log);
        let found = fixture.look();
        assert_eq!((found.owner, found.has_changes), (LogOwner::Source([9; 16]), false));

        std::fs::remove_file(fixture.path()).unwrap();
        fixture.write_earlier([1; 16], true);
        let found = fixture.look();
        assert_eq!((found.owner, found.has_changes), (LogOwner::ByDevice { same: false }, false));
    }

    #[test]
    fn a_log_must_belong_to_this_user_and_be_writable_by_no_other() {
        use std::os::unix::fs::PermissionsExt;
        let fixture = Fixture::new();
        drop(LogFile::create(&fixture.place(), LOG_BYTES_MIN, NOBODY).unwrap());
        assert_eq!(fixture.look().owner, LogOwner::None);
        let refused = || match LogFile::open(&fixture.place()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it was opened"),
        };
        let set_mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(fixture.path(), mode).unwrap();
        };
        set_mode(0o666);
        assert!(refused().contains("others may write it (mode 0666)"), "{}", refused());
        set_mode(0o644);
        assert!(refused().contains("others may read it"), "{}", refused());
        set_mode(0o600);
        let other = fixture.directory.path().join("other");
        std::fs::hard_link(fixture.path(), &other).unwrap();
        assert!(refused().contains("has 2 names"), "{}", refused());
        std::fs::remove_file(&other).unwrap();
        assert!(LogFile::open(&fixture.place()).is_ok());
        std::fs::rename(fixture.path(), &other).unwrap();
        std::os::unix::fs::symlink("other", fixture.path()).unwrap();
        let within = LogPlace::within(fixture.source.as_fd(), "log", fixture.path()).unwrap();
        assert!(matches!(LogFile::open(&within), Err(LogFileError::Kind(_))));
    }

    #[test]
    fn a_full_disk_keeps_the_log_and_it_is_recovered_when_there_is_room() {
        let images: [&[u8]; 2] = [
            include_bytes!("../../log/tests/images/version-2"),
            include_bytes!("../../log/tests/images/version-4"),
        ];
        for image in images {
            let fixture = Fixture::new();
            let source = fixture.source.as_fd();
            drop(LogFile::create(&fixture.place(), LOG_BYTES_MIN, NOBODY).unwrap());
            let mut before = image.to_vec();
            before.resize(LOG_BYTES_MIN as usize, 0);
            std::fs::write(fixture.path(), &before).unwrap();
            let letter = fixture.directory.path().join("letter");
            std::fs::write(&letter, "Before the checkpoint.").unwrap();
            let file = || LogFile::open(&fixture.place()).unwrap().unwrap();
            for refused in [
                RedoLog::open(file().on_full_disk(), [7; 16], source, NODE_FIRST).map(drop),
                recover(&file().on_full_disk(), [7; 16], source, false).map(drop),
            ] {
                let error = refused.unwrap_err().to_string();
                assert!(error.contains("cannot write the log"), "{error}");
                assert!(std::fs::read(fixture.path()).unwrap() == before);
            }
            let log = RedoLog::open(file(), [7; 16], source, NODE_FIRST).unwrap();
            assert_eq!(log.recovered.groups, 2);
            assert_eq!(std::fs::read(&letter).unwrap(), b"Before a crash,\0\0\0\0\0the end");
        }
    }

    #[test]
    fn contents_that_are_neither_a_log_nor_blank_are_left_alone() {
        let fixture = Fixture::new();
        let write = |at: usize| {
            let mut bytes = vec![0; 66 << 20];
            bytes[at] = 1;
            let _ = std::fs::remove_file(fixture.path());
            drop(LogFile::create(&fixture.place(), LOG_BYTES_MIN, NOBODY).unwrap());
            std::fs::write(fixture.path(), &bytes).unwrap();
            let log = LogFile::open(&fixture.place()).unwrap().unwrap();
            log.superblock()
        };
        for at in [0, 9000, 70 << 10, (1 << 20) - 1, (64 << 20) + 64, (66 << 20) - 1] {
            assert!(matches!(write(at), Err(LogFileError::Occupied { .. })), "{at}");
        }
        // Without any signature: data that was deleted.
        assert!(matches!(write(2 << 20), Ok(None)));
        let log = LogFile::open(&fixture.place()).unwrap().unwrap();
        log.erase().unwrap();
        log.format([3; 16]).unwrap();
        assert_eq!(log.superblock().unwrap().unwrap().mount, [3; 16]);
    }

    #[test]
    fn a_note_restored_by_a_crash_does_not_void_newer_records() {
        let fixture = Fixture::new();
        let own = fixture.directory.path().join(".weir");
        std::fs::create_dir(&own).unwrap();
        let open = || {
            let file = LogFile::open(&fixture.place()).unwrap().unwrap();
            RedoLog::open(file, [7; 16], fixture.source.as_fd(), NODE_FIRST).unwrap()
        };
        drop(LogFile::create(&fixture.place(), LOG_BYTES_MIN, [7; 16]).unwrap());
        let failed = open().start(None, None, Box::new(|_, _| {})).unwrap();
        // A checkpoint that the log may or may not have.
        let superblock = failed.log.file.superblock().unwrap().unwrap();
        let next = Superblock { generation: superblock.generation + 1, ..superblock };
        let pieces = vec![(next.own_place(), 1)];
        let commit = Commit { blocks: vec![next.encode()], pieces };
        failed.execute(LogCommand::Write { io: IoId(1), commit }, false);
        failed.note_void(fixture.source.as_fd()).unwrap();
        failed.shutdown();
        drop(failed);
        assert!(!fixture.look().has_changes);
        let notes = || std::fs::read_dir(&own).unwrap().map(|note| note.unwrap().path());
        let before: Vec<_> = notes().collect();
        assert_eq!(before.len(), 1);
        drop(open());
        assert_eq!(notes().count(), 0);
        for note in before {
            std::fs::write(note, "").unwrap();
        }
        assert!(fixture.look().has_changes, "the log was opened for use, and is void");
    }

    #[test]
    fn a_caller_that_may_block_writes_itself_and_commands_keep_their_order() {
        let place = tempfile::tempdir().unwrap();
        let source = std::fs::File::open(place.path()).unwrap();
        std::fs::create_dir(place.path().join(".weir")).unwrap();
        let path = LogPlace::at(&place.path().join(".weir/log")).unwrap();
        let (file, _) = LogFile::create(&path, LOG_BYTES_MIN, [7; 16]).unwrap();
        let log = RedoLog::open(file, [7; 16], source.as_fd(), NODE_FIRST).unwrap();
        let (sender, ended) = mpsc::channel();
        let log = log
            .start(None, None, Box::new(move |io, result| sender.send((io, result)).unwrap()))
            .unwrap();
        // At a place that no test reads.
        let write = |io| LogCommand::Write {
            io: IoId(io),
            commit: Commit {
                blocks: vec![Block::default()],
                pieces: vec![(LOG_BYTES_MIN - weir_log::BLOCK_BYTES as u64, 1)],
            },
        };
        let given = log.execute(write(1), true);
        assert!(matches!(given, Given::Ended(IoId(1), Ok(()))), "{given:?}");
        assert!(matches!(log.execute(write(2), false), Given::Taken));
        let wait = || ended.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(wait(), (IoId(2), Ok(())));

        // Queued commands come first, however fast the device is.
        let turn = log.log.turn.lock().unwrap();
        assert!(matches!(log.execute(LogCommand::SyncHome { io: IoId(3) }, true), Given::Taken));
        assert!(matches!(log.execute(write(4), true), Given::Taken));
        drop(turn);
        assert_eq!((wait(), wait()), ((IoId(3), Ok(())), (IoId(4), Ok(()))));
        log.shutdown();
    }
}
