//! The file or block device a redo log is in: made, opened, checked, read and written.
//!
//! Groups are written with O_DIRECT where the file takes it, and made durable by the same call
//! (RWF_DSYNC): a disk that can writes past its cache (FUA) and need not empty it.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use weir_log::{
    BLOCK_BYTES, Block, Commit, Identity, LOG_BYTES_MIN, Lsn, ReadLog, Superblock, SuperblockError,
    newest,
};

use crate::awake;
use crate::rotation::is_rotational;

/// Blocks in one call (IOV_MAX).
const BLOCKS_MAX: usize = 1024;

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
    /// Something is in it that is no log, or a damaged one.
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
    /// It belongs to another mount.
    #[error("the log {} belongs to another SOURCE; it is left as it is", .0.display())]
    OtherMount(PathBuf),
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
        /// As its superblock says.
        expected: u64,
    },
    /// It would be too small.
    #[error("a log needs at least {LOG_BYTES_MIN} bytes, not {0}")]
    TooSmall(u64),
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
    /// Opens the log at `path`; `None` if there is nothing, or an empty file.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn open(path: &Path) -> Result<Option<LogFile>, LogFileError> {
        let io = |doing| move |source| LogFileError::Io { doing, path: path.to_owned(), source };
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let buffered =
            match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    return Err(LogFileError::Kind(path.to_owned()));
                }
                opened => opened.map_err(io("open"))?,
            };
        let kind = buffered.metadata().map_err(io("open"))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(LogFileError::Kind(path.to_owned()));
        }
        match rustix::fs::flock(&buffered, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(LogFileError::InUse(path.to_owned())),
            locked => locked.map_err(|errno| io("lock")(errno.into()))?,
        }
        let direct = (OFlags::NOFOLLOW | OFlags::DIRECT).bits() as i32;
        let direct = match OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)
        {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                buffered.try_clone()
            }
            opened => opened,
        };
        let direct = direct.map_err(io("open"))?;
        let log = LogFile { path: path.to_owned(), direct, buffered };
        Ok(if log.bytes()? == 0 { None } else { Some(log) })
    }

    /// Opens the log at `path` to look at it, also one that is in use. It cannot be written then.
    ///
    /// # Errors
    /// See [`LogFileError`]; a log that is missing is one.
    pub fn open_to_look(path: &Path) -> Result<LogFile, LogFileError> {
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let both = opened.and_then(|file| Ok((file.try_clone()?, file)));
        let (direct, buffered) = both.map_err(|source| LogFileError::Io {
            doing: "open",
            path: path.to_owned(),
            source,
        })?;
        Ok(LogFile { path: path.to_owned(), direct, buffered })
    }

    /// Makes a log of `bytes` bytes at `path`, where there is nothing or an empty file, for `mount`.
    /// Answers it with the superblock it has.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn create(
        path: &Path,
        bytes: u64,
        mount: Identity,
    ) -> Result<(LogFile, Superblock), LogFileError> {
        if bytes < LOG_BYTES_MIN {
            return Err(LogFileError::TooSmall(bytes));
        }
        let io = |doing| move |source| LogFileError::Io { doing, path: path.to_owned(), source };
        let bytes = bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(io("create"))?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP) => file.set_len(bytes).map_err(io("size"))?,
            allocated => allocated.map_err(|errno| {
                // Leave no half of a log behind.
                let _ = std::fs::remove_file(path);
                io("allocate")(errno.into())
            })?,
        }
        // Written once, the blocks are the file's for good: an unwritten one would cost the file
        // system a commit of its own with the first group in it.
        let written = zero(&file, bytes).and_then(|()| file.sync_all());
        written.map_err(|error| {
            let _ = std::fs::remove_file(path);
            io("write")(error)
        })?;
        drop(file);
        let log = LogFile::open(path)?.ok_or_else(|| io("open")(io::ErrorKind::NotFound.into()))?;
        let superblock = log.format(mount)?;
        Ok((log, superblock))
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
        };
        // Both, so that nothing that stood there before counts.
        let blocks = vec![superblock.encode(), Block::default()];
        self.write(&Commit { blocks, pieces: vec![(0, 2)] })
            .map_err(|source| self.io("write", source))?;
        Ok(superblock)
    }

    /// Whether nothing but zeros stands where superblocks are: a device that was never used.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn is_blank(&self) -> Result<bool, LogFileError> {
        Ok(self.superblocks()?.iter().flatten().all(|&byte| byte == 0))
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

    /// The superblock of a log of `mount`.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn superblock(&self, mount: Option<Identity>) -> Result<Superblock, LogFileError> {
        let blocks = self.superblocks()?;
        let found = self.bytes()?;
        let superblock = newest([&blocks[0], &blocks[1]])
            .map_err(|why| LogFileError::NotOurs { path: self.path.clone(), why })?;
        if mount.is_some_and(|mount| mount != superblock.mount) {
            return Err(LogFileError::OtherMount(self.path.clone()));
        }
        if found < superblock.bytes {
            let (path, expected) = (self.path.clone(), superblock.bytes);
            return Err(LogFileError::Cut { path, found, expected });
        }
        Ok(superblock)
    }

    /// Writes blocks to their places and makes them durable.
    ///
    /// # Errors
    /// The device's. What was written then is not known.
    pub fn write(&self, commit: &Commit) -> io::Result<()> {
        self.write_by(commit, false)
    }

    /// The same; if `awake`, the device is quick and nobody else needs this thread.
    pub(crate) fn write_by(&self, commit: &Commit, awake: bool) -> io::Result<()> {
        let mut blocks = &commit.blocks[..];
        for &(place, count) in &commit.pieces {
            let (piece, rest) = blocks.split_at(count);
            blocks = rest;
            let mut place = place;
            for chunk in piece.chunks(BLOCKS_MAX) {
                self.write_chunk(place, chunk, awake)?;
                place += (chunk.len() * BLOCK_BYTES) as u64;
            }
        }
        Ok(())
    }

    fn write_chunk(&self, place: u64, blocks: &[Block], awake: bool) -> io::Result<()> {
        let mut done = 0;
        let total = blocks.len() * BLOCK_BYTES;
        while done < total {
            // A part of a block written is written again whole.
            let first = done / BLOCK_BYTES;
            let at = place + (first * BLOCK_BYTES) as u64;
            let slices: Vec<IoSlice<'_>> =
                blocks[first..].iter().map(|block| IoSlice::new(&block.0)).collect();
            let by_ring = || awake::write_durably(self.direct.as_fd(), &slices, at);
            let written = match awake.then(by_ring).flatten() {
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

    /// Reads the blocks that begin at `places`, which ascend. What lies between near ones is read
    /// through: that takes less time than another request. The pieces are read side by side, so that
    /// a disk takes them as it passes them, whatever else it is asked for meanwhile.
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
                // Without another thread the pieces take longer.
                let _ = thread::Builder::new().name("log read".into()).spawn_scoped(scope, work);
            }
            work();
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(blocks),
        }
    }

    /// Reads from the first of some places to the last, in one go: their blocks, and what is between.
    fn read_piece(&self, places: &[u64], blocks: &mut [Block]) -> io::Result<()> {
        let nth = |place: u64| ((place - places[0]) / BLOCK_BYTES as u64) as usize;
        let count = nth(places[places.len() - 1]) + 1;
        let mut between = vec![Block::default(); count - places.len()];
        let mut done = 0;
        while done < count * BLOCK_BYTES {
            // A part of a block read is read again whole.
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

    fn bytes(&self) -> Result<u64, LogFileError> {
        (&self.buffered).seek(SeekFrom::End(0)).map_err(|source| self.io("size", source))
    }

    fn io(&self, doing: &'static str, source: io::Error) -> LogFileError {
        LogFileError::Io { doing, path: self.path.clone(), source }
    }
}

/// Places, ascending, in pieces that are each read at once, the last first; with the blocks of each.
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

/// Writes zeros all over a file.
fn zero(file: &File, bytes: u64) -> io::Result<()> {
    const CHUNK_BYTES: usize = 1 << 20;
    let zeros = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < bytes {
        let len = CHUNK_BYTES.min(usize::try_from(bytes - at).unwrap_or(CHUNK_BYTES));
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

/// Sixteen random bytes.
///
/// # Errors
/// What the kernel's source of them says.
pub fn random() -> io::Result<Identity> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|source| source.read_exact_at(&mut bytes, 0))?;
    Ok(bytes)
}
