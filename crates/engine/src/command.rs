//! The engine's interface types: identifiers, answers, and device commands.

use smallvec::SmallVec;
use weir_frames::Frame;
use weir_log::{Commit, Lsn, Superblock};

use crate::error::{Error, ErrorKind};

/// A file the engine serves. Chosen by the caller, unique among attached files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// How far a file's data is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataState {
    /// Home has all of it.
    Home,
    /// Home does not, but a crash loses nothing: the rest is durable in the log.
    Logged,
    /// Some of it is in memory only.
    Dirty,
}

/// A request that may be answered later. Chosen by the caller, unique among pending requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A device command in flight. Chosen by the engine, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Attributes of a file at home when it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeAttributes {
    /// Size of the file at home, bytes.
    pub size: u64,
    /// Whether every block below `size` is allocated (no holes), so that writing there needs no
    /// reservation of space.
    pub dense: bool,
    /// Smallest aligned unit that the back end writes without reading first, bytes: a power of two
    /// from 512 to 4096, or 1. Patches that cover whole units are destaged without a fetch; of 1 byte,
    /// if a page has few.
    pub write_unit: u32,
    /// Whether the file can be read at home. If not (the daemon may only write it), patches
    /// are destaged byte-exact and never wait for a fetch.
    pub readable: bool,
}

/// What must be true before a write is acknowledged (open(2), O_DSYNC and O_SYNC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing beyond being visible to later reads.
    None,
    /// The data, and what is needed to read it back, is durable at home.
    Data,
    /// The data and all of the file's attributes are durable at home.
    All,
}

/// Whether an event was answered at once.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Answered.
    Done(Result<T, Error>),
    /// The answer comes as [`Output::Reply`].
    Pending,
}

/// A late answer, by the kind of event it answers.
#[derive(Debug)]
pub enum Reply {
    /// A write was taken.
    Written(Result<(), Error>),
    /// A read was satisfied.
    Read(Result<ReadData, Error>),
    /// A sync of a file or of everything ended. The error, if any, is the first of this sync; errors for open
    /// descriptions come from [`crate::Engine::take_error`].
    Synced(Result<(), Error>),
    /// [`crate::Engine::freeze`] was granted: no I/O on the file is in flight, and none starts until
    /// [`crate::Engine::thaw`]. An error means that the flush failed; the file is not frozen then.
    Frozen(Result<(), Error>),
}

/// How urgent a fetch is, and which thread submits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A request waits for it.
    Waited,
    /// No request waits; submit it now, in the context of the event that caused it.
    Foreground,
    /// No request waits; submit it from a worker, not in the context of the event.
    Background,
}

/// A piece of a destage: bytes of a frame, contiguous in the file with the pieces before and after.
#[derive(Debug)]
pub struct Part {
    /// The frame, shared with the engine, which does not change it but writes to a copy.
    pub frame: Frame,
    /// First byte in the frame.
    pub start: u16,
    /// Bytes; at most the frame's rest.
    pub len: u16,
}

/// A command for the back end. It carries the [`IoId`] with which it must be completed exactly once, through
/// [`crate::Engine::complete`].
///
/// The engine never has two commands in flight that touch the same page, so commands may be executed in any order and
/// at the same time.
#[derive(Debug)]
pub enum Command {
    /// Read whole pages from `offset` (page-aligned) into `frames`, which are unshared. Bytes past
    /// the end of the file need not be touched: the engine zeroes what was not read.
    Fetch {
        /// Answer with [`Completion::Fetched`].
        io: IoId,
        /// The file.
        file: FileId,
        /// First byte in the file; a multiple of the page size.
        offset: u64,
        /// One frame a page.
        frames: Vec<Frame>,
        /// How soon.
        urgency: Urgency,
    },
    /// Write the parts, in order, at `offset`. If they end past the end of the file, the file
    /// grows to exactly there. Neither `offset` nor the length need be aligned.
    Write {
        /// Answer with [`Completion::Written`].
        io: IoId,
        /// The file.
        file: FileId,
        /// First byte in the file.
        offset: u64,
        /// What to write.
        parts: Vec<Part>,
    },
    /// Make the file's written data durable: fdatasync(2) if `datasync`, else fsync(2).
    Sync {
        /// Answer with [`Completion::Synced`].
        io: IoId,
        /// The file.
        file: FileId,
        /// Only the data and what is needed to read it back.
        datasync: bool,
    },
    /// Allocate the range without changing the file's size or content (fallocate(2),
    /// FALLOC_FL_KEEP_SIZE), so that a later write there cannot fail because the disk is full. A writer waits for it.
    Reserve {
        /// Answer with [`Completion::Reserved`].
        io: IoId,
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Report where on the device the file's content is, as far as that is known (FIEMAP). No request waits for it.
    Map {
        /// Answer with [`Completion::Mapped`].
        io: IoId,
        /// The file.
        file: FileId,
    },
}

/// Consecutive bytes of a file that are consecutive on their device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// First byte on the device.
    pub place: u64,
}

impl Command {
    /// The command's identifier.
    pub fn io(&self) -> IoId {
        match self {
            Command::Fetch { io, .. }
            | Command::Write { io, .. }
            | Command::Sync { io, .. }
            | Command::Reserve { io, .. }
            | Command::Map { io, .. } => *io,
        }
    }

    /// The file it concerns.
    pub fn file(&self) -> FileId {
        match self {
            Command::Fetch { file, .. }
            | Command::Write { file, .. }
            | Command::Sync { file, .. }
            | Command::Reserve { file, .. }
            | Command::Map { file, .. } => *file,
        }
    }
}

/// A command for the redo log, to be completed through [`crate::Engine::log_completed`].
#[derive(Debug)]
pub enum LogCommand {
    /// Write the blocks to the log and make them durable.
    Write {
        /// Answer with this.
        io: IoId,
        /// The blocks and their places.
        commit: Commit,
    },
    /// Make everything at home durable, names and removals too (syncfs(2)).
    SyncHome {
        /// Answer with this.
        io: IoId,
    },
    /// Read blocks of the log, to be completed through [`crate::Engine::log_read`]. May be executed in any order with the
    /// other commands of the log.
    Read {
        /// Answer with this.
        io: IoId,
        /// Where each block begins, ascending, bytes.
        places: Vec<u64>,
    },
}

/// The completion of a command. It gives back the frames of its command.
#[derive(Debug)]
pub enum Completion {
    /// Of [`Command::Fetch`]: the same frames, and how many bytes from its offset were read.
    /// Fewer than asked for means that the file ends there.
    Fetched {
        /// The command's frames, unshared.
        frames: Vec<Frame>,
        /// Bytes read.
        result: Result<usize, ErrorKind>,
    },
    /// Of [`Command::Write`].
    Written {
        /// All was written; on error, any part may have been.
        result: Result<(), ErrorKind>,
    },
    /// Of [`Command::Sync`].
    Synced {
        /// Durable, or not known to be.
        result: Result<(), ErrorKind>,
    },
    /// Of [`Command::Reserve`]. [`ErrorKind::Unsupported`] means that the back end cannot reserve: the
    /// engine then writes without a reservation.
    Reserved {
        /// Reserved, or why not.
        result: Result<(), ErrorKind>,
    },
    /// Of [`Command::Map`]. Empty if nothing is known.
    Mapped {
        /// Extents in any order, which do not overlap in the file.
        extents: Vec<Extent>,
    },
}

/// An output of an event, for the caller to execute.
#[derive(Debug)]
pub enum Output {
    /// Answer a request that was pending.
    Reply {
        /// The request.
        request: RequestId,
        /// Its answer.
        reply: Reply,
    },
    /// Execute a device command.
    Command(Command),
    /// Execute a command on the redo log.
    Log(LogCommand),
    /// Write a file's records in the redo log to the file at home, in order: home may have lost their data, or the
    /// log is full. No other I/O on the file is in flight. Complete it through [`crate::Engine::redone`].
    Redo {
        /// The file.
        file: FileId,
        /// The file's name in the log.
        identity: Box<[u8]>,
        /// The file's number in the log: in groups that were written before it had that name, it has this alone.
        node: u64,
        /// Where to read the log from: its tail.
        from: Superblock,
        /// Read the log up to here: it is durable, and has all records of the file.
        until: Lsn,
        /// The records of sizes that home refused, or does not have yet, in order: they are not replayed.
        refused: Vec<Lsn>,
    },
    /// The file has no dirty data left at this moment. The caller may restore its modification
    /// time at home, which destaging disturbed.
    Cleaned(FileId),
    /// The engine has detached a file given to [`crate::Engine::detach`].
    Detached(FileId),
}

/// What a freeze flushes, and what may change while the file is frozen; see [`crate::Engine::freeze`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeScope {
    /// Byte range `[from, to)` whose dirty data must be home before the file is frozen.
    pub flush: Option<(u64, u64)>,
    /// The caller truncates or rearranges the file at home from this byte on. Before the file is frozen, its
    /// log records from there on are written home, synced, and durably revoked. `None` if the caller changes
    /// no written data.
    pub changes_from: Option<u64>,
    /// The size that the caller gives the file, if it gives it one and changes nothing else: it can be logged. If
    /// `changes_from` is `None`, the file only grows to it.
    pub size: Option<u64>,
}

impl FreezeScope {
    /// A freeze under which no written data changes: for a lookup, or to reserve space.
    pub fn unchanging(flush: Option<(u64, u64)>) -> FreezeScope {
        FreezeScope { flush, changes_from: None, size: None }
    }

    /// A freeze under which the file may change from byte `from` on.
    pub fn changing(flush: Option<(u64, u64)>, from: u64) -> FreezeScope {
        FreezeScope { flush, changes_from: Some(from), size: None }
    }

    /// A freeze under which the file gets this size (ftruncate(2)).
    pub fn resizing(size: u64) -> FreezeScope {
        FreezeScope { flush: None, changes_from: Some(size), size: Some(size) }
    }

    /// A freeze under which the file gets this size unless it is longer.
    pub fn growing(size: u64) -> FreezeScope {
        FreezeScope { flush: None, changes_from: None, size: Some(size) }
    }
}

/// A freeze under which the whole file may change.
impl From<Option<(u64, u64)>> for FreezeScope {
    fn from(flush: Option<(u64, u64)>) -> FreezeScope {
        FreezeScope::changing(flush, 0)
    }
}

/// What changed while a file was frozen; see [`crate::Engine::thaw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeEnd {
    /// Cached data in `[from, to)`, which the freeze has flushed, is invalid and is dropped; the file's data is at home.
    pub discard: Option<(u64, u64)>,
    /// The file's size now, at home and as programs see it; `None` if unchanged. Cached data past
    /// it is dropped, and the rest of its last page reads as zeros.
    pub size: Option<u64>,
    /// With `discard`: home has bytes there that memory does not have, and no sync has made them durable. Not so only where all
    /// that was there is gone (a hole of whole pages), or is durable.
    pub written: bool,
}

/// Bytes of a read's answer, in file order.
#[derive(Debug)]
pub enum Segment {
    /// Bytes `start .. start + len` of a frame.
    Frame {
        /// The frame; it does not change while this handle is held.
        frame: Frame,
        /// First byte.
        start: u16,
        /// Bytes.
        len: u16,
    },
    /// Bytes copied out of patches.
    Bytes(Vec<u8>),
}

impl Segment {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Segment::Frame { frame, start, len } => {
                &frame.bytes()[usize::from(*start)..usize::from(*start) + usize::from(*len)]
            }
            Segment::Bytes(bytes) => bytes,
        }
    }
}

/// The answer to a read: less than was asked for only at the end of the file.
#[derive(Debug, Default)]
pub struct ReadData {
    /// Consecutive pieces, none empty.
    pub segments: SmallVec<[Segment; 2]>,
}

impl ReadData {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.as_slice().len()).sum()
    }

    /// Whether nothing was read: the offset was at or past the end of the file.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The pieces as slices.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.iter().map(Segment::as_slice)
    }

    /// All bytes in one new buffer.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        for slice in self.slices() {
            bytes.extend_from_slice(slice);
        }
        bytes
    }
}
