//! Which redo log is SOURCE's, and how another one takes its place.
//!
//! The log that counts is the one that `.weir/log-at` has *in use*, or `.weir/log`. It is found from SOURCE
//! alone, whatever options a mount has, and is known by its own name and by SOURCE's identity: device numbers
//! and paths change.
//!
//! Invariant: at most one of a SOURCE's logs holds changes that are to be replayed. Another log takes its
//! place in this order, and a crash between two steps leaves SOURCE with exactly one of them:
//!
//! 1. the old log is replayed, SOURCE's files are synced, and the log says that it is clean;
//! 2. the new log is made, clean; outside SOURCE it gets SOURCE's identity only when it is used;
//! 3. `.weir` records where the new log is, or that the old one is clean;
//! 4. the new log is used.
//!
//! So a log that holds changes and is not the one in use is out of date: it is replayed only by an explicit
//! command.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;
use weir_backend::{
    LogFile, LogFileError, LogOwner, LogPlace, LogState, NOBODY, OpenLogError, RecoveredLog,
    RecoveryProgress, RedoLog, look, recover_watched,
};
use weir_log::{Identity, NODE_FIRST, Report};

use crate::local_log;
use crate::mounts::{Device, MountTable};
use crate::nesting::{self, Ancestors};
use crate::own_directory::{Note, OwnDirectory, OwnDirectoryError, hex};
use crate::shell_word::word;
use crate::source::Source;

/// Why a log cannot be used or replayed. All logs are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum LogPlaceError {
    /// Weir's own directory.
    #[error(transparent)]
    OwnDirectory(#[from] OwnDirectoryError),
    /// A log's file or device.
    #[error(transparent)]
    File(#[from] LogFileError),
    /// Replaying it.
    #[error(transparent)]
    Replay(#[from] OpenLogError),
    /// The log in use is not where it was.
    #[error(
        "what was synced to {} is in the log {}, which cannot be used: {why}; make that file or device \
         available, or name the place it has now with --log (its name is {name}). If the log is lost, and \
         with it what was synced last: remove {}", source_path.display(), path.display(), note.display()
    )]
    Unreachable {
        /// SOURCE.
        source_path: PathBuf,
        /// Where the log was.
        path: PathBuf,
        /// Its own name.
        name: String,
        /// Why it is not used.
        why: String,
        /// The note that names the log.
        note: PathBuf,
    },
    /// Another log than the one in use, with changes in it.
    #[error(
        "the log {} holds changes, and SOURCE {} has used another log since, or has lost its '.weir': what is in \
         the log may be older than what is in SOURCE, and is not replayed. To replay it anyway: 'weir \
         recover --force --log {} {}'; to discard it: 'weir log --format --force {}'", path.display(),
        source_path.display(), word(path), word(source_path), word(path)
    )]
    OutOfDate {
        /// The log.
        path: PathBuf,
        /// SOURCE.
        source_path: PathBuf,
    },
    /// Two logs with changes in them.
    #[error(
        "both {} and {} hold changes of SOURCE, and it is not known which are newer: move away the one that is \
         older ('weir log' shows them), and recover by the other", .0.display(), .1.display()
    )]
    Two(PathBuf, PathBuf),
    /// SOURCE is a copy of the directory whose log holds changes.
    #[error(
        "SOURCE {} was copied from another directory, or restored, while the log {} held changes of the files \
         there, which are not known here: mount the original, or 'weir recover' it, and copy it again; to use \
         the copy without what was synced last, remove {}", source_path.display(), path.display(), own.display()
    )]
    Copied {
        /// SOURCE.
        source_path: PathBuf,
        /// The log.
        path: PathBuf,
        /// Its `.weir`.
        own: PathBuf,
    },
    /// SOURCE cannot be written and a log holds changes.
    #[error(
        "SOURCE {} lacks what was synced last: it is in the log {}, and cannot be brought home because SOURCE \
         cannot be written; make it writable, or mount it as it is with --read-only --no-recovery",
        source_path.display(), path.display()
    )]
    NotWritable {
        /// SOURCE.
        source_path: PathBuf,
        /// The log.
        path: PathBuf,
    },
    /// A log in SOURCE, at another place than `.weir/log`.
    #[error(
        "the log {} would lie in SOURCE {}, and programs could change it through the mount: name a place \
         outside, or '--log source'", path.display(), source_path.display()
    )]
    InSource {
        /// The log.
        path: PathBuf,
        /// SOURCE.
        source_path: PathBuf,
    },
    /// A log in a Weir mount.
    #[error("the log {} would lie in the weir mount {}: name another place", path.display(), mount.display())]
    InMount {
        /// The log.
        path: PathBuf,
        /// The mount.
        mount: PathBuf,
    },
    /// `.weir` cannot be made.
    #[error(
        "a log cannot be used with SOURCE {}: '.weir', which records the log's place, cannot be made there; make \
         SOURCE writable, or give '--log none'", .0.display()
    )]
    NoDirectory(PathBuf),
    /// Something else.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

/// Where a mount's log is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// No log.
    None,
    /// In SOURCE.
    InSource {
        /// Bytes of a new log.
        bytes: u64,
        /// A log of another size is replaced by a new one.
        exactly: bool,
    },
    /// At a path; if it is created, with this many bytes.
    At(&'a Path, u64),
}

/// A log that was brought home.
#[derive(Debug)]
pub struct BroughtHome {
    /// The log.
    pub path: PathBuf,
    /// The result of the replay.
    pub report: Report,
    /// How SOURCE differs from what was seen through the mount, since somebody else changed it, in sentences.
    pub told: Vec<String>,
}

/// A SOURCE that this process has locked, and its logs.
pub struct Logs<'a> {
    source: &'a Source,
    own: Option<&'a OwnDirectory>,
    /// The lowest node number that none of SOURCE's logs has used, of those that were looked at.
    unused_node: Cell<u64>,
    /// How far a replay is.
    progress: Arc<RecoveryProgress>,
    /// Called between any two steps that a crash may separate. An error ends the operation as a crash would.
    step: &'a dyn Fn(&'static str) -> io::Result<()>,
}

/// A log and what its superblock says.
struct Seen {
    file: LogFile,
    state: LogState,
}

impl<'a> Logs<'a> {
    /// For a SOURCE and its `.weir`, if it has one.
    pub fn new(source: &'a Source, own: Option<&'a OwnDirectory>) -> Logs<'a> {
        let progress = Arc::default();
        Logs { source, own, unused_node: Cell::new(NODE_FIRST), progress, step: &|_| Ok(()) }
    }

    /// How far a replay is, for another thread.
    pub fn progress(&self) -> Arc<RecoveryProgress> {
        self.progress.clone()
    }

    fn replay(
        &self,
        log: &LogFile,
        identity: Identity,
        dry: bool,
    ) -> Result<RecoveredLog, OpenLogError> {
        recover_watched(log, identity, self.source(), dry, &self.progress)
    }

    fn step(&self, name: &'static str) -> Result<(), LogPlaceError> {
        (self.step)(name).map_err(|error| LogPlaceError::System { doing: name, error })
    }

    fn source(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }

    fn see(&self, file: LogFile) -> Result<Option<Seen>, LogPlaceError> {
        let Some(state) = look(&file, self.source())? else { return Ok(None) };
        self.unused_node.set(self.unused_node.get().max(state.unused_node));
        Ok(Some(Seen { file, state }))
    }

    /// The lowest node number that no log of SOURCE has used. A log that SOURCE used earlier, and that is out
    /// of reach now, holds nothing: its numbers are not looked for.
    fn unused_node(&self, own: &OwnDirectory) -> Result<u64, LogPlaceError> {
        let mut places = vec![own.log_place()?];
        places.extend(own.note()?.and_then(|note| LogPlace::at(&note.path).ok()));
        let logs = places.iter().filter_map(|place| LogFile::open_to_look(place).ok());
        let superblocks = logs.filter_map(|log| log.superblock().ok().flatten());
        let known = superblocks.map(|superblock| superblock.unused_node()).max();
        Ok(self.unused_node.get().max(known.unwrap_or(NODE_FIRST)))
    }

    /// The identity of SOURCE. If `.weir` has none, because it was lost in a power cut, the identity in
    /// SOURCE's own log; otherwise a new one.
    fn identity(
        &self,
        own: &OwnDirectory,
        log: Option<LogOwner>,
    ) -> Result<Identity, LogPlaceError> {
        if let Err(error) = own.note_directory() {
            // SOURCE may be full. A copy of it is not known as one then.
            tracing::warn!("{error}");
        }
        if let Some(identity) = own.identity()? {
            return Ok(identity);
        }
        let identity = match log {
            Some(LogOwner::Source(identity)) => identity,
            _ => drawn()?,
        };
        own.set_identity(&identity)?;
        Ok(identity)
    }

    /// The log in SOURCE, if it is not blank. Its place makes it SOURCE's, unless its superblock names
    /// another SOURCE.
    fn inside(&self, own: &OwnDirectory) -> Result<Option<Seen>, LogPlaceError> {
        let Some(seen) = own.log()?.map(|file| self.see(file)).transpose()?.flatten() else {
            return Ok(None);
        };
        match (seen.state.owner, own.identity()?) {
            (LogOwner::Source(mount), Some(identity)) if mount != identity => {
                Err(LogFileError::OtherMount(seen.file.path().to_owned()).into())
            }
            _ => Ok(Some(seen)),
        }
    }

    /// The log in use outside SOURCE: at `given`, at its recorded path, or on any block device.
    fn outside(
        &self,
        own: &OwnDirectory,
        given: Option<&Path>,
    ) -> Result<Option<Seen>, LogPlaceError> {
        let Some(note) = own.note()?.filter(|note| note.in_use) else { return Ok(None) };
        let is_it = |path: &Path| -> Result<Option<Seen>, LogPlaceError> {
            let seen = match LogFile::open(&LogPlace::at(path)?)? {
                Some(file) => self.see(file)?,
                None => None,
            };
            Ok(seen.filter(|seen| seen.state.name == note.name))
        };
        let given = given.filter(|given| **given != *note.path);
        // The given path may be that of a new log, which is to replace the one in use: problems with it are
        // reported when it is opened.
        if let Some(Ok(Some(seen))) = given.map(&is_it) {
            return Ok(Some(seen));
        }
        let why = match is_it(&note.path) {
            Ok(Some(seen)) => return Ok(Some(seen)),
            Ok(None) if note.path.exists() => "something else is at that path".to_owned(),
            Ok(None) => "there is nothing at that path".to_owned(),
            Err(error) => error.to_string(),
        };
        let devices = match note.path.starts_with("/dev") {
            true => block_devices(),
            false => Vec::new(),
        };
        for device in devices {
            // The device may have been renumbered.
            let log = LogPlace::at(&device).and_then(|place| LogFile::open_to_look(&place));
            if !log.is_ok_and(|log| log.name() == Some(note.name)) {
                continue;
            }
            if let Some(seen) = is_it(&device)? {
                tracing::info!("the log {} is {} now", note.path.display(), device.display());
                return Ok(Some(seen));
            }
        }
        Err(LogPlaceError::Unreachable {
            source_path: self.source.path().to_owned(),
            path: note.path,
            name: hex(&note.name),
            why,
            note: own.path("log-at"),
        })
    }

    /// Replays the log in use, and marks it clean. `given` is a path at which the log may be
    /// now.
    pub fn bring_home(
        &self,
        given: Option<&Path>,
        dry: bool,
    ) -> Result<Option<BroughtHome>, LogPlaceError> {
        let Some(own) = self.own else { return Ok(None) };
        if !dry && !self.source.is_writable() {
            let source_path = self.source.path().to_owned();
            return match self.left()? {
                Some(path) => Err(LogPlaceError::NotWritable { source_path, path }),
                None => Ok(None),
            };
        }
        if !dry {
            // The flags of an interrupted recovery, even if its log is gone.
            weir_backend::set_flags_again(self.source()).map_err(OpenLogError::Flags)?;
        }
        let inside = self.inside(own)?.filter(|seen| seen.state.has_changes);
        let outside = self.outside(own, given)?;
        let outside = outside.filter(|seen| seen.state.has_changes);
        let seen = match (inside, outside) {
            (Some(one), Some(two)) => {
                return Err(LogPlaceError::Two(one.file.path().into(), two.file.path().into()));
            }
            (None, None) => return Ok(None),
            (Some(seen), None) | (None, Some(seen)) => seen,
        };
        let path = seen.file.path().to_owned();
        self.check_original(own, &path)?;
        self.step("found")?;
        // Not recorded durably here, since SOURCE may be full: a log in SOURCE has the identity too.
        let identity = match (own.identity()?, seen.state.owner) {
            (Some(identity), _) | (None, LogOwner::Source(identity)) => identity,
            (None, _) => drawn()?,
        };
        let RecoveredLog { report, told } = self.replay(&seen.file, identity, dry)?;
        self.step("replayed")?;
        Ok(Some(BroughtHome { path, report, told }))
    }

    /// A log that holds changes is to be replayed: SOURCE is no copy of the directory that it is of.
    fn check_original(&self, own: &OwnDirectory, log: &Path) -> Result<(), LogPlaceError> {
        match own.is_copy()? {
            false => Ok(()),
            true => Err(LogPlaceError::Copied {
                source_path: self.source.path().to_owned(),
                path: log.to_owned(),
                own: own.path(""),
            }),
        }
    }

    /// Releases the space past the ends of files that a killed daemon had reserved.
    pub fn give_back_reserved(&self) {
        if self.own.is_none() || !self.source.is_writable() {
            return;
        }
        match weir_backend::give_back_reserved(self.source()) {
            Ok(0) => {}
            Ok(files) => tracing::info!("released space reserved past the ends of {files} files"),
            Err(error) => {
                tracing::warn!("cannot release space reserved past the ends of files: {error}");
            }
        }
    }

    /// Records that the log in use outside SOURCE, if there is one, is clean. The log's superblock says so
    /// itself; if this fails because SOURCE is full, the next mount needs to read it once more.
    fn settle_note(&self, own: &OwnDirectory) -> Result<(), LogPlaceError> {
        if let Some(note) = own.note()?.filter(|note| note.in_use)
            && let Err(error) = own.set_note(&Note { in_use: false, ..note })
        {
            tracing::warn!("{error}: do not remove the log that was used, though it is clean");
        }
        Ok(())
    }

    /// Call when everything in the log in use is home. Removes a log in SOURCE, and one that was made for it on this machine.
    pub fn put_away(&self) -> Result<(), LogPlaceError> {
        let Some(own) = self.own else { return Ok(()) };
        self.settle_note(own)?;
        own.remove_log();
        if let Some(note) = own.note()?.filter(|note| !note.in_use)
            && local_log::remove(&note.path)
        {
            own.forget_note();
        }
        Ok(own.forget_identity()?)
    }

    /// The log outside SOURCE that was used last, if there was one.
    ///
    /// # Errors
    /// Those of reading the note of it.
    pub fn last_outside(&self) -> Result<Option<Note>, LogPlaceError> {
        Ok(match self.own {
            Some(own) => own.note()?,
            None => None,
        })
    }

    /// The log that a mount is to write, when everything is home. `None` if it is to have none.
    pub fn take(&self, wanted: Wanted<'_>) -> Result<Option<RedoLog>, LogPlaceError> {
        let Some(own) = self.own else {
            return match wanted {
                Wanted::None => Ok(None),
                _ => Err(LogPlaceError::NoDirectory(self.source.path().to_owned())),
            };
        };
        match wanted {
            Wanted::None => {
                self.put_away()?;
                Ok(None)
            }
            Wanted::InSource { bytes, exactly } => {
                self.can_be_logged()?;
                self.settle_note(own)?;
                self.step("settled")?;
                let file = own.log()?;
                let found = match &file {
                    Some(file) => look(file, self.source())?,
                    None => None,
                };
                let identity = self.identity(own, found.map(|found| found.owner))?;
                let node_first = self.unused_node(own)?;
                let file = match file {
                    Some(file)
                        if exactly
                            && found.is_none_or(|found| !found.has_changes)
                            && file.bytes()? != LogFile::bytes_if_made(bytes) =>
                    {
                        drop(file);
                        own.remove_log();
                        self.step("removed")?;
                        None
                    }
                    file => file,
                };
                let file = match file {
                    Some(file) => file,
                    None => LogFile::create(&own.log_place()?, bytes, identity)?.0,
                };
                self.step("made")?;
                Ok(Some(RedoLog::open(file, identity, self.source(), node_first)?))
            }
            Wanted::At(path, bytes) => self.take_at(own, path, bytes).map(Some),
        }
    }

    fn can_be_logged(&self) -> Result<(), LogPlaceError> {
        weir_backend::can_be_logged(self.source()).map_err(|error| LogPlaceError::System {
            doing: "name the files of SOURCE for a log",
            error,
        })
    }

    fn take_at(
        &self,
        own: &OwnDirectory,
        path: &Path,
        bytes: u64,
    ) -> Result<RedoLog, LogPlaceError> {
        let place = self.place_outside(path)?;
        self.can_be_logged()?;
        let in_source = self.inside(own)?.map(|seen| seen.state.owner);
        let identity = self.identity(own, in_source)?;
        let seen = match LogFile::open(&place)? {
            // A blank log is formatted for no particular SOURCE, too.
            Some(file) => match look(&file, self.source())? {
                Some(state) => Some(Seen { file, state }),
                None => {
                    file.format(NOBODY)?;
                    self.see(file)?
                }
            },
            None => {
                let (file, _) = LogFile::create(&place, bytes, NOBODY)?;
                self.see(file)?
            }
        };
        let seen = seen.ok_or(LogFileError::OtherMount(path.to_owned()))?;
        self.step("made")?;
        match seen.state.owner {
            LogOwner::Source(mount) if mount == identity && seen.state.has_changes => {
                return Err(self.out_of_date(path));
            }
            // An earlier build made the log, and a log with a recorded place was used since.
            LogOwner::ByDevice { same: true }
                if seen.state.has_changes && own.note()?.is_some() =>
            {
                return Err(self.out_of_date(path));
            }
            LogOwner::None | LogOwner::ByDevice { same: true } => {}
            LogOwner::Source(mount) if mount == identity => {}
            LogOwner::Source(_) | LogOwner::ByDevice { same: false } => {
                return Err(LogFileError::OtherMount(path.to_owned()).into());
            }
        }
        let node_first = self.unused_node(own)?;
        own.set_note(&Note { in_use: true, name: seen.state.name, path: path.to_owned() })?;
        self.step("noted")?;
        // The log was replayed, and a log outside SOURCE is in use now.
        own.remove_log();
        Ok(RedoLog::open(seen.file, identity, self.source(), node_first)?)
    }

    fn out_of_date(&self, path: &Path) -> LogPlaceError {
        LogPlaceError::OutOfDate {
            path: path.to_owned(),
            source_path: self.source.path().to_owned(),
        }
    }

    /// A place for a log that is neither in SOURCE, by whatever path, nor in a Weir mount.
    fn place_outside(&self, path: &Path) -> Result<LogPlace, LogPlaceError> {
        let place = LogPlace::at(path)?;
        let system = |error| LogPlaceError::System { doing: "find where the log is", error };
        let mounts = MountTable::read().map_err(system)?;
        let directory = place.directory();
        let stat = rustix::fs::fstat(directory).map_err(|errno| system(errno.into()))?;
        let weir = mounts.of_device(Device::from_raw(stat.st_dev)).filter(|mount| mount.is_weir());
        if let Some(mount) = weir {
            let mount = mount.mount_point.clone();
            return Err(LogPlaceError::InMount { path: path.to_owned(), mount });
        }
        let ancestors = Ancestors::of(directory).map_err(system)?;
        let shown = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let shown = shown.unwrap_or_else(|_| path.to_owned());
        if ancestors.contain(self.source()).map_err(system)?
            || shown == self.source.path()
            || nesting::is_below(&mounts, &shown, self.source.path())
        {
            let (path, source_path) = (path.to_owned(), self.source.path().to_owned());
            return Err(LogPlaceError::InSource { path, source_path });
        }
        Ok(place)
    }

    /// The path of a log with data that SOURCE lacks, if there is one; changes nothing. If SOURCE cannot be
    /// written, a log in it cannot be opened for writing.
    pub fn left(&self) -> Result<Option<PathBuf>, LogPlaceError> {
        let Some(own) = self.own else { return Ok(None) };
        let note = own.note()?.filter(|note| note.in_use);
        let mut places = vec![own.log_place()?];
        if let Some(note) = &note {
            match LogPlace::at(&note.path) {
                Ok(place) => places.push(place),
                // Unknown, so it may hold data.
                Err(_) => return Ok(Some(note.path.clone())),
            }
        }
        for (nth, place) in places.iter().enumerate() {
            let looked = LogFile::open_to_look(place).and_then(|log| look(&log, self.source()));
            let has_changes = match (looked, &note) {
                (Ok(Some(found)), Some(note)) if nth > 0 => {
                    found.name != note.name || found.has_changes
                }
                (Ok(found), _) => found.is_some_and(|found| found.has_changes),
                (Err(LogFileError::Io { source, .. }), _)
                    if nth == 0 && source.kind() == io::ErrorKind::NotFound =>
                {
                    false
                }
                (Err(_), _) if nth > 0 => true,
                (Err(error), _) => return Err(error.into()),
            };
            if has_changes {
                return Ok(Some(place.path().to_owned()));
            }
        }
        Ok(None)
    }

    /// Replays the log at a path given by the user; with `force` also one that is not in use, or another
    /// SOURCE's.
    pub fn recover_named(
        &self,
        path: &Path,
        force: bool,
        dry: bool,
    ) -> Result<Option<BroughtHome>, LogPlaceError> {
        let Some(own) = self.own else {
            return Err(LogPlaceError::NoDirectory(self.source.path().to_owned()));
        };
        let note = own.note()?;
        let Some(seen) =
            LogFile::open(&LogPlace::at(path)?)?.map(|file| self.see(file)).transpose()?.flatten()
        else {
            return Ok(None);
        };
        let is_in_use =
            note.as_ref().is_some_and(|note| note.in_use && note.name == seen.state.name);
        let is_ours = match (seen.state.owner, own.identity()?) {
            (LogOwner::Source(mount), Some(identity)) => mount == identity,
            (LogOwner::ByDevice { same }, _) => same,
            (LogOwner::Source(_), None) => false,
            (LogOwner::None, _) => true,
        };
        let is_known =
            is_in_use || matches!(seen.state.owner, LogOwner::ByDevice { .. }) && note.is_none();
        if !force && !is_ours {
            return Err(LogFileError::OtherMount(path.to_owned()).into());
        }
        if !force && !is_known && seen.state.has_changes {
            return Err(self.out_of_date(path));
        }
        if seen.state.has_changes {
            self.check_original(own, path)?;
        }
        if dry {
            let RecoveredLog { report, told } = self.replay(&seen.file, NOBODY, true)?;
            return Ok(Some(BroughtHome { path: path.to_owned(), report, told }));
        }
        let identity = self.identity(own, None)?;
        let RecoveredLog { report, told } = self.replay(&seen.file, identity, false)?;
        // The log has SOURCE's identity now, so the identity is kept.
        if is_in_use || note.is_none() {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            own.set_note(&Note { in_use: false, name: seen.state.name, path })?;
        }
        Ok(Some(BroughtHome { path: path.to_owned(), report, told }))
    }
}

fn drawn() -> Result<Identity, LogPlaceError> {
    weir_backend::random()
        .map_err(|error| LogPlaceError::System { doing: "draw an identity for SOURCE", error })
}

/// Path of a SOURCE's log, for commands that only read it.
pub fn find(source: &Source) -> Result<PathBuf, LogPlaceError> {
    let inside = source.path().join(".weir/log");
    if inside.exists() {
        return Ok(inside);
    }
    let note = match OwnDirectory::open(source.as_fd(), source.path())? {
        Some(own) => own.note()?,
        None => None,
    };
    Ok(note.map_or(inside, |note| note.path))
}

/// Paths of all block devices.
fn block_devices() -> Vec<PathBuf> {
    let Ok(names) = std::fs::read_dir("/sys/class/block") else { return Vec::new() };
    // A `!` stands for a slash.
    let name = |name: std::ffi::OsString| name.to_string_lossy().replace('!', "/");
    names.flatten().map(|entry| Path::new("/dev").join(name(entry.file_name()))).collect()
}

impl Source {
    /// Whether files of SOURCE can be changed: not if its file system is mounted read-only.
    pub fn is_writable(&self) -> bool {
        let access = rustix::fs::accessat(self.as_fd(), ".", Access::WRITE_OK, AtFlags::EACCESS);
        !access.is_err_and(|errno| errno == Errno::ROFS)
    }
}

#[cfg(test)]
mod tests;
