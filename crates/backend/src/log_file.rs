//! The file or block device a redo log is in: made, opened, checked, read and written.
//!
//! A file is opened by its name in an open directory, never through a link, and only if no other user can
//! have written it; a device only if nothing else has claimed it. Contents that are neither a log nor blank
//! are never overwritten with a log.
//!
//! Groups are written with O_DIRECT where the file takes it, and made durable by the same call
//! (RWF_DSYNC): a disk with FUA writes past its cache and need not flush it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use weir_log::{
    BLOCK_BYTES, Block, Commit, Identity, LOG_BYTES_MIN, Lsn, NODE_FIRST, ReadLog, Superblock,
    SuperblockError, VERSION, newest,
};

use crate::busy_poll;
use crate::rotation::is_rotational;

/// Blocks in one call (IOV_MAX).
const BLOCKS_MAX: usize = 1024;
/// How long a log may be in use after the daemon that had it has ended.
const LET_GO: Duration = Duration::from_secs(2);
/// Between two looks at whether it still is.
const PAUSE: Duration = Duration::from_millis(10);

/// Why a log cannot be used. Nothing of it was changed.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    /// It cannot be opened, made or read.
    #[error("cannot {doing} the log {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a directory or the like.
    #[error("the log {} is neither a file nor a block device", .0.display())]
    Kind(PathBuf),
    /// Some other process has it.
    #[error("the log {} is in use by another mount", .0.display())]
    InUse(PathBuf),
    /// Its contents are no log, or a damaged one.
    #[error(
        "{} cannot be used as a log: {why}; it is left as it is: move it away, or name another",
        path.display()
    )]
    NotOurs {
        /// The log.
        path: PathBuf,
        /// What is wrong with it.
        why: SuperblockError,
    },
    /// A newer Weir made it.
    #[error(
        "the log {} was made by a newer Weir: {why}; it may hold synced data and is left as it is: recover \
         with that Weir ('weir recover'), then this one can be used", path.display()
    )]
    Newer {
        /// The log.
        path: PathBuf,
        /// What this build does not know.
        why: SuperblockError,
    },
    /// It holds something else.
    #[error(
        "{} cannot be used as a log: it is not a Weir log, and {what}; it is left as it is: name \
         another, or have it erased by 'weir log --format --force {}'",
        path.display(), path.display()
    )]
    Occupied {
        /// The file or device.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// It belongs to another mount.
    #[error("the log {} belongs to another SOURCE; it is left as it is", .0.display())]
    OtherMount(PathBuf),
    /// Other users could have written it, or can read it.
    #[error("the log {} is not used: {why}", path.display())]
    Insecure {
        /// The log.
        path: PathBuf,
        /// Which check failed, and what to do.
        why: String,
    },
    /// The device is mounted or otherwise claimed.
    #[error(
        "the device {} is mounted, or in use by a mount or by another program: it is left as it is",
        .0.display()
    )]
    Claimed(PathBuf),
    /// It is shorter than its superblock says.
    #[error(
        "the log {} has {found} bytes and its superblock says {expected}: it was cut; it is left as \
         it is", path.display()
    )]
    Cut {
        /// The log.
        path: PathBuf,
        /// Its bytes.
        found: u64,
        /// Its bytes according to its superblock.
        expected: u64,
    },
    /// It would be too small.
    #[error("a log needs at least {LOG_BYTES_MIN} bytes, not {0}")]
    TooSmall(u64),
}

/// A name in an open directory: where a log is, or is to be.
#[derive(Debug)]
pub struct LogPlace {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl LogPlace {
    /// Resolves a path to a place. Links are followed here and not again.
    ///
    /// # Errors
    /// If its directory does not exist.
    pub fn at(path: &Path) -> Result<LogPlace, LogFileError> {
        let fault = |source| LogFileError::Io { doing: "find", path: path.to_owned(), source };
        let nameless = || fault(io::ErrorKind::InvalidInput.into());
        let (parent, name) = match path.canonicalize() {
            Ok(path) => {
                let name = path.file_name().ok_or_else(nameless)?.to_owned();
                (path.parent().ok_or_else(nameless)?.to_owned(), name)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = path.file_name().ok_or_else(nameless)?.to_owned();
                let parent = path.parent().ok_or_else(nameless)?;
                (parent.canonicalize().map_err(fault)?, name)
            }
            Err(error) => return Err(fault(error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&parent, flags, Mode::empty());
        let directory = directory.map_err(|errno| fault(errno.into()))?;
        Ok(LogPlace { directory, name, path: path.to_owned() })
    }

    /// A name in a directory; `path` is for messages.
    ///
    /// # Errors
    /// EMFILE.
    pub fn within(directory: BorrowedFd<'_>, name: &str, path: PathBuf) -> io::Result<LogPlace> {
        Ok(LogPlace { directory: directory.try_clone_to_owned()?, name: name.into(), path })
    }

    /// The directory of the log.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kind of the file; `None` where no file is.
    fn kind(&self) -> Result<Option<FileType>, LogFileError> {
        match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                kind @ (FileType::RegularFile | FileType::BlockDevice) => Ok(Some(kind)),
                _ => Err(LogFileError::Kind(self.path.clone())),
            },
            Err(errno) => Err(self.io("open", errno.into())),
        }
    }

    fn open(&self, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::openat(&self.directory, &self.name, flags, mode).map(File::from)
    }

    fn remove(&self) {
        // A log whose creation failed holds nothing and is reused.
        let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }

    fn io(&self, doing: &'static str, source: io::Error) -> LogFileError {
        LogFileError::Io { doing, path: self.path.clone(), source }
    }

    /// Checks that no other user can have written the file or can read it: a log holds data that root synced,
    /// and recovery writes its contents to files as root.
    fn check_private(&self, file: &File) -> Result<(), LogFileError> {
        let stat = rustix::fs::fstat(file).map_err(|errno| self.io("open", errno.into()))?;
        let (user, mode) = (rustix::process::geteuid().as_raw(), stat.st_mode & 0o7777);
        let path = self.path.display();
        let why = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice if stat.st_uid != user && stat.st_uid != 0 => {
                format!("the device belongs to user {}: have root own it", stat.st_uid)
            }
            FileType::BlockDevice if mode & 0o002 != 0 => {
                format!("any user may write the device (mode {mode:04o}): 'chmod o-rw {path}'")
            }
            FileType::BlockDevice => return Ok(()),
            FileType::RegularFile if stat.st_uid != user => format!(
                "it belongs to user {}, who could have put anything in it: mount or recover as that \
                 user, or move it away",
                stat.st_uid
            ),
            FileType::RegularFile if stat.st_nlink > 1 => {
                format!("it has {} names: move it away, or remove the others", stat.st_nlink)
            }
            FileType::RegularFile if mode & 0o022 != 0 => format!(
                "others may write it (mode {mode:04o}) and could have put anything in it: move it \
                 away, or if you trust it, 'chmod 600 {path}'"
            ),
            FileType::RegularFile if mode & 0o077 != 0 => {
                format!("others may read it (mode {mode:04o}): 'chmod 600 {path}'")
            }
            FileType::RegularFile => return Ok(()),
            _ => return Err(LogFileError::Kind(self.path.clone())),
        };
        Err(LogFileError::Insecure { path: self.path.clone(), why })
    }
}

/// An open log, locked against other mounts.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    /// For groups and superblocks; direct if it can be.
    direct: File,
    /// For reading.
    buffered: File,
}

impl LogFile {
    /// Opens the log at a place; `None` if there is nothing, or an empty file.
    ///
    /// # Errors
    /// See [`LogFileError`]. A device that is mounted is refused, and a file that is not this user's alone.
    pub fn open(place: &LogPlace) -> Result<Option<LogFile>, LogFileError> {
        let io = |doing| move |errno: Errno| place.io(doing, errno.into());
        let Some(kind) = place.kind()? else { return Ok(None) };
        // For a device, O_EXCL claims it: nobody can mount it meanwhile.
        let claim = match kind {
            FileType::BlockDevice => OFlags::EXCL,
            _ => OFlags::empty(),
        };
        let buffered = match patiently(Errno::BUSY, || place.open(OFlags::RDWR | claim)) {
            Err(Errno::BUSY) => return Err(LogFileError::Claimed(place.path.clone())),
            opened => opened.map_err(io("open"))?,
        };
        place.check_private(&buffered)?;
        let lock = || rustix::fs::flock(&buffered, FlockOperation::NonBlockingLockExclusive);
        match patiently(Errno::WOULDBLOCK, lock) {
            Err(Errno::WOULDBLOCK) => return Err(LogFileError::InUse(place.path.clone())),
            locked => locked.map_err(io("lock"))?,
        }
        let direct = match place.open(OFlags::RDWR | OFlags::DIRECT) {
            Err(Errno::INVAL) => buffered.try_clone().map_err(|error| place.io("open", error))?,
            opened => opened.map_err(io("open"))?,
        };
        let id = |file: &File| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
        if id(&direct).map_err(io("open"))? != id(&buffered).map_err(io("open"))? {
            return Err(place.io("open", io::Error::other("it was replaced meanwhile")));
        }
        let log = LogFile { path: place.path.clone(), direct, buffered };
        Ok(if log.bytes()? == 0 { None } else { Some(log) })
    }

    /// Opens the log at a place read-only, even if it is in use by a mount.
    ///
    /// # Errors
    /// See [`LogFileError`]; a log that is missing is one.
    pub fn open_to_look(place: &LogPlace) -> Result<LogFile, LogFileError> {
        if place.kind()?.is_none() {
            return Err(place.io("open", io::ErrorKind::NotFound.into()));
        }
        let opened = place.open(OFlags::RDONLY).map_err(io::Error::from);
        let both = opened.and_then(|file| Ok((file.try_clone()?, file)));
        let (direct, buffered) = both.map_err(|source| place.io("open", source))?;
        Ok(LogFile { path: place.path.clone(), direct, buffered })
    }

    /// Creates a log of `bytes` bytes at a place that is unused or holds an empty file, for the SOURCE of
    /// this identity. The log is empty.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn create(
        place: &LogPlace,
        bytes: u64,
        mount: Identity,
    ) -> Result<(LogFile, Superblock), LogFileError> {
        if bytes < LOG_BYTES_MIN {
            return Err(LogFileError::TooSmall(bytes));
        }
        let io = |doing| move |source| place.io(doing, source);
        let bytes = LogFile::bytes_if_made(bytes);
        let file = place.open(OFlags::WRONLY | OFlags::CREATE);
        let file = file.map_err(|errno| io("create")(errno.into()))?;
        place.check_private(&file)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP) => file.set_len(bytes).map_err(io("size"))?,
            allocated => allocated.map_err(|errno| {
                // Leave no partial log behind.
                place.remove();
                io("allocate")(errno.into())
            })?,
        }
        // Writing the blocks once marks them as written: otherwise the first group in each block would cost the
        // file system a journal commit.
        let written = zero(&file, 0..bytes).and_then(|()| file.sync_all());
        written.map_err(|error| {
            place.remove();
            io("write")(error)
        })?;
        drop(file);
        let log =
            LogFile::open(place)?.ok_or_else(|| io("open")(io::ErrorKind::NotFound.into()))?;
        let superblock = log.format(mount)?;
        // The log's directory entry must survive too.
        rustix::fs::fsync(&place.directory).map_err(|errno| io("sync")(errno.into()))?;
        Ok((log, superblock))
    }

    /// The size that a new log gets for which `bytes` were asked.
    pub fn bytes_if_made(bytes: u64) -> u64 {
        bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64
    }

    /// The log, on a device without room for any block that is written.
    #[cfg(test)]
    pub(crate) fn on_full_disk(self) -> LogFile {
        LogFile {
            direct: File::options().write(true).open("/dev/full").expect("it exists"),
            ..self
        }
    }

    /// Zeroes the signatures of file systems, partition tables and other logs at the places where programs
    /// look for them.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn erase(&self) -> Result<(), LogFileError> {
        let erased = signatures(self.bytes()?)
            .into_iter()
            .try_for_each(|range| zero(&self.buffered, range))
            .and_then(|()| self.buffered.sync_all());
        erased.map_err(|source| self.io("erase", source))
    }

    /// Makes an empty log of a file or device that holds nothing of value.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn format(&self, mount: Identity) -> Result<Superblock, LogFileError> {
        let bytes = self.bytes()?;
        if bytes < LOG_BYTES_MIN {
            return Err(LogFileError::TooSmall(bytes));
        }
        let log = random().map_err(|source| self.io("draw a name for", source))?;
        let row_blocks = match is_rotational(self.buffered.as_fd()) {
            true => Superblock::row_blocks_to_turn(bytes),
            false => 1,
        };
        let superblock = Superblock {
            log,
            mount,
            bytes,
            generation: 2,
            checkpoint: Lsn(0),
            clean: true,
            row_blocks,
            nodes: NODE_FIRST,
            features: 0,
        };
        // Both, so that no earlier superblock counts.
        let blocks = vec![superblock.encode(), Block::default()];
        self.write(&Commit { blocks, pieces: vec![(0, 2)] })
            .map_err(|source| self.io("write", source))?;
        Ok(superblock)
    }

    /// Describes the contents if they are neither a log nor blank; `None` if blank: zeros wherever a file
    /// system, a RAID or a partition table has its signature, and nothing that libblkid knows.
    ///
    /// # Errors
    /// See [`LogFileError`].
    fn occupied_by(&self) -> Result<Option<String>, LogFileError> {
        if let Some(found) = probe(&self.buffered) {
            return Ok(Some(format!("holds {found}")));
        }
        let mut chunk = vec![0; 64 << 10];
        for range in signatures(self.bytes()?) {
            let mut at = range.start;
            while at < range.end {
                let len = chunk.len().min(usize::try_from(range.end - at).unwrap_or(chunk.len()));
                let chunk = &mut chunk[..len];
                let read = self.buffered.read_exact_at(chunk, at);
                read.map_err(|source| self.io("read", source))?;
                if chunk.iter().any(|&byte| byte != 0) {
                    return Ok(Some("is not blank".to_owned()));
                }
                at += len as u64;
            }
        }
        Ok(None)
    }

    fn superblocks(&self) -> Result<[[u8; BLOCK_BYTES]; 2], LogFileError> {
        let mut blocks = [[0; BLOCK_BYTES]; 2];
        if self.bytes()? >= 2 * BLOCK_BYTES as u64 {
            for (nth, block) in blocks.iter_mut().enumerate() {
                self.buffered
                    .read_exact_at(block, (nth * BLOCK_BYTES) as u64)
                    .map_err(|source| self.io("read", source))?;
            }
        }
        Ok(blocks)
    }

    /// The log's own name, if this is a log. Checks nothing else.
    pub fn name(&self) -> Option<Identity> {
        let blocks = self.superblocks().ok()?;
        newest([&blocks[0], &blocks[1]]).ok().map(|superblock| superblock.log)
    }

    /// The log's superblock; `None` if the file or device is blank.
    ///
    /// # Errors
    /// See [`LogFileError`]; also if the file or device holds something else.
    pub fn superblock(&self) -> Result<Option<Superblock>, LogFileError> {
        Ok(self.superblock_and_version()?.map(|(superblock, _)| superblock))
    }

    /// As above, with the format version of the superblock.
    pub(crate) fn superblock_and_version(&self) -> Result<Option<(Superblock, u32)>, LogFileError> {
        let blocks = self.superblocks()?;
        let found = self.bytes()?;
        let superblock = match newest([&blocks[0], &blocks[1]]) {
            Ok(superblock) => superblock,
            Err(SuperblockError::NotALog) => {
                let path = self.path.clone();
                return match self.occupied_by()? {
                    None => Ok(None),
                    Some(what) => Err(LogFileError::Occupied { path, what }),
                };
            }
            Err(why) => {
                let path = self.path.clone();
                return Err(match why.is_newer() {
                    true => LogFileError::Newer { path, why },
                    false => LogFileError::NotOurs { path, why },
                });
            }
        };
        if found < superblock.bytes {
            let (path, expected) = (self.path.clone(), superblock.bytes);
            return Err(LogFileError::Cut { path, found, expected });
        }
        let own = (superblock.own_place() / BLOCK_BYTES as u64) as usize;
        Ok(Some((superblock, Superblock::version(&blocks[own]))))
    }

    /// Writes a superblock durably, and returns the one that counts then. If the other superblock is of an
    /// earlier version of the format, it is replaced by a copy with the next generation, which then counts: an
    /// earlier build would otherwise find a superblock of its own version, and use the log in its former state.
    /// After a crash between the two writes, either build finds the log's contents unchanged.
    ///
    /// # Errors
    /// The device's. It is then unknown what was written.
    pub(crate) fn set_superblock(&self, superblock: Superblock) -> io::Result<Superblock> {
        self.write_superblock(&superblock)?;
        let copy = Superblock { generation: superblock.generation + 1, ..superblock };
        let mut other = [0; BLOCK_BYTES];
        self.buffered.read_exact_at(&mut other, copy.own_place())?;
        let is_earlier =
            Superblock::decode(&other).is_ok() && Superblock::version(&other) < VERSION;
        if !is_earlier {
            return Ok(superblock);
        }
        self.write_superblock(&copy)?;
        Ok(copy)
    }

    fn write_superblock(&self, superblock: &Superblock) -> io::Result<()> {
        let pieces = vec![(superblock.own_place(), 1)];
        self.write(&Commit { blocks: vec![superblock.encode()], pieces })
    }

    /// Writes blocks to their places and makes them durable.
    ///
    /// # Errors
    /// The device's. It is then unknown what was written.
    pub fn write(&self, commit: &Commit) -> io::Result<()> {
        self.write_by(commit, false)
    }

    /// The same. With `busy_poll` the device is fast, and the thread polls for completion if polling is enabled
    /// for it.
    pub(crate) fn write_by(&self, commit: &Commit, busy_poll: bool) -> io::Result<()> {
        let mut blocks = &commit.blocks[..];
        for &(place, count) in &commit.pieces {
            let (piece, rest) = blocks.split_at(count);
            blocks = rest;
            let mut place = place;
            for chunk in piece.chunks(BLOCKS_MAX) {
                self.write_chunk(place, chunk, busy_poll)?;
                place += (chunk.len() * BLOCK_BYTES) as u64;
            }
        }
        Ok(())
    }

    fn write_chunk(&self, place: u64, blocks: &[Block], busy_poll: bool) -> io::Result<()> {
        let mut done = 0;
        let total = blocks.len() * BLOCK_BYTES;
        while done < total {
            // A block that was written in part is written again as a whole.
            let first = done / BLOCK_BYTES;
            let at = place + (first * BLOCK_BYTES) as u64;
            let slices: Vec<IoSlice<'_>> =
                blocks[first..].iter().map(|block| IoSlice::new(&block.0)).collect();
            let polled = || busy_poll::write_durably(self.direct.as_fd(), &slices, at);
            let written = match busy_poll.then(polled).flatten() {
                Some(written) => {
                    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
                }
                None => rustix::io::pwritev2(&self.direct, &slices, at, ReadWriteFlags::DSYNC),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done = first * BLOCK_BYTES + written,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    done = first * BLOCK_BYTES + rustix::io::pwritev(&self.direct, &slices, at)?;
                    rustix::fs::fdatasync(&self.direct)?;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Reads the blocks that begin at `places`, which ascend. Gaps between near blocks are read too: that takes
    /// less time than another request. The pieces are read concurrently, so that a disk reads each one as it
    /// passes it, beside its other requests.
    ///
    /// # Errors
    /// The device's; the end of the log too.
    pub fn read_blocks(&self, places: &[u64]) -> io::Result<Vec<Block>> {
        const PIECES_AT_ONCE: usize = 8;
        let mut blocks = vec![Block::default(); places.len()];
        let pieces = pieces_of(places, &mut blocks);
        let threads = pieces.len().min(PIECES_AT_ONCE);
        let pieces = Mutex::new(pieces);
        let failed = Mutex::new(None);
        let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let work = || {
            while let Some((places, blocks)) = next() {
                if let Err(error) = self.read_piece(places, blocks) {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return;
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // If no thread can be started, reading only takes longer.
                let _ = thread::Builder::new().name("log read".into()).spawn_scoped(scope, work);
            }
            work();
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(blocks),
        }
    }

    /// Reads everything from the first of some places to the last at once, and keeps their blocks.
    fn read_piece(&self, places: &[u64], blocks: &mut [Block]) -> io::Result<()> {
        let nth = |place: u64| ((place - places[0]) / BLOCK_BYTES as u64) as usize;
        let count = nth(places[places.len() - 1]) + 1;
        let mut between = vec![Block::default(); count - places.len()];
        let mut done = 0;
        while done < count * BLOCK_BYTES {
            // A block that was read in part is read again as a whole.
            let first = done / BLOCK_BYTES;
            let at = places[0] + (first * BLOCK_BYTES) as u64;
            let (mut blocks, mut between) = (blocks.iter_mut(), between.iter_mut());
            let mut places = places.iter().map(|&place| nth(place)).peekable();
            let all = (0..count).map(|block| match places.next_if_eq(&block) {
                Some(_) => blocks.next(),
                None => between.next(),
            });
            let mut slices: Vec<IoSliceMut<'_>> = all
                .map(|block| block.expect("a block for each place, and each between"))
                .map(|block| IoSliceMut::new(&mut block.0))
                .skip(first)
                .collect();
            match rustix::io::preadv(&self.direct, &mut slices, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done = first * BLOCK_BYTES + read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size: for a file that of the file, whatever its superblock says.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn bytes(&self) -> Result<u64, LogFileError> {
        (&self.buffered).seek(SeekFrom::End(0)).map_err(|source| self.io("size", source))
    }

    fn io(&self, doing: &'static str, source: io::Error) -> LogFileError {
        LogFileError::Io { doing, path: self.path.clone(), source }
    }
}

/// Tries again while the log is `busy`: the daemon that had it may have ended just now. The kernel lets go of its files when the
/// last of its threads has ended, and of those that its io_uring uses later still.
fn patiently<T>(busy: Errno, attempt: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(errno) if errno == busy && began.elapsed() < LET_GO => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// Divides places, ascending, into pieces that are each read at once, the last piece first; with the blocks of each.
fn pieces_of<'a>(places: &'a [u64], blocks: &'a mut [Block]) -> Vec<(&'a [u64], &'a mut [Block])> {
    const GAP_BYTES_MAX: u64 = 128 << 10;
    let mut pieces = Vec::new();
    let (mut places, mut blocks) = (places, blocks);
    while let Some(&first) = places.first() {
        let near = |pair: &[u64]| {
            pair[1] - pair[0] <= GAP_BYTES_MAX
                && pair[1] - first < (BLOCKS_MAX * BLOCK_BYTES) as u64
        };
        let count = 1 + places.windows(2).take_while(|pair| near(pair)).count();
        let (of_piece, other_places) = places.split_at(count);
        let (its_blocks, other_blocks) = blocks.split_at_mut(count);
        pieces.push((of_piece, its_blocks));
        (places, blocks) = (other_places, other_blocks);
    }
    pieces.reverse();
    pieces
}

impl ReadLog for &LogFile {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.buffered.read_exact_at(buffer, offset)
    }
}

/// Where file systems, RAIDs, encryption, swap and partition tables have their signatures: the first and the
/// last mebibyte, and the second superblock of a btrfs.
fn signatures(bytes: u64) -> Vec<Range<u64>> {
    const ENDS: u64 = 1 << 20;
    const SECOND: u64 = 64 << 20;
    let all = [0..ENDS, SECOND..SECOND + (64 << 10), bytes.saturating_sub(ENDS)..bytes];
    let within = all.map(|range| range.start.min(bytes)..range.end.min(bytes));
    within.into_iter().filter(|range| !range.is_empty()).collect()
}

/// The contents of a file or device according to blkid(8), for messages; `None` if it finds nothing, or is not
/// installed.
fn probe(file: &File) -> Option<String> {
    // By descriptor: the path may lead to another file by now.
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let programs = ["/usr/sbin/blkid", "/sbin/blkid", "/usr/bin/blkid", "blkid"];
    let output = programs.iter().find_map(|program| {
        let mut command = Command::new(program);
        command.args(["-p", "-o", "export", &path]).stdin(Stdio::null()).output().ok()
    })?;
    /// blkid(8)'s exit status if nothing was found. Any other status but 0 means that it found several
    /// signatures.
    const NOTHING: i32 = 2;
    if output.status.code() == Some(NOTHING) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key| text.lines().find_map(|line| line.strip_prefix(key));
    Some(match (value("TYPE="), value("PTTYPE=")) {
        (Some(kind), _) => format!("a file system or the like, of type {kind}"),
        (None, Some(kind)) => format!("a partition table, of type {kind}"),
        (None, None) => "something that blkid knows".to_owned(),
    })
}

/// Writes zeros to a part of a file.
fn zero(file: &File, range: Range<u64>) -> io::Result<()> {
    const CHUNK_BYTES: usize = 1 << 20;
    let zeros = vec![0; CHUNK_BYTES];
    let mut at = range.start;
    while at < range.end {
        let len = CHUNK_BYTES.min(usize::try_from(range.end - at).unwrap_or(CHUNK_BYTES));
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

/// Sixteen random bytes.
///
/// # Errors
/// Those of reading /dev/urandom.
pub fn random() -> io::Result<Identity> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|source| source.read_exact_at(&mut bytes, 0))?;
    Ok(bytes)
}
