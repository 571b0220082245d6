//! Weir's redo log: its format on disk, its writer and its replay, sans-I/O.
//!
//! The log is a ring of 4 KiB blocks behind two superblocks. Records (bytes written to a file, a truncation,
//! the revocation of a file's older records, a change of names) are collected in *groups*; one write makes a group
//! durable, and it is replayed whole or not at all. docs/LOG_FORMAT.md describes the layout for authors of other programs.
//!
//! Owns the bytes: what is written where, and the meaning of bytes that were read. Reads and writes nothing
//! itself: `writer` returns blocks and their places, `scan` asks a [`ReadLog`] for bytes, [`replay`] changes
//! files through a [`Home`]. The engine decides what is logged, and when.
//!
//! Bytes read from a log are never trusted: the result is a record, or an error that names the place.
//!
//! ```
//! use weir_log::{BLOCK_BYTES, newest};
//!
//! // Blocks that are no superblocks are an error, whatever they hold.
//! let nothing = [0; BLOCK_BYTES];
//! assert!(newest([&nothing, &nothing]).is_err());
//! ```

#![forbid(unsafe_code)]

mod block;
mod group;
mod name_bytes;
mod name_record;
mod record;
mod record_error;
mod replay;
mod rows;
mod scan;
mod superblock;
mod writer;

pub use block::{BLOCK_BYTES, Block};
pub use group::{GroupHeader, name_record_bytes_max};
pub use name_record::{
    Entry, FileType, IDENTITY_BYTES_MAX, LOGGED_NAME_BYTES_MAX, LOGGED_TARGET_BYTES_MAX,
    LOGGED_XATTR_BYTES_MAX, LoggedAttributes, LoggedTime, NameRecord, NewNode, Stage,
};
pub use record::{RECORD_OVERHEAD_BYTES, Record};
pub use record_error::RecordError;
pub use replay::{Home, Left, Needed, ReplayError, Report, replay, replay_before};
pub use scan::{End, Group, ReadLog, Scan, ScanError};
pub use superblock::{
    DATA_START, FEATURES, GROUP_BYTES_MAX, Identity, LOG_BYTES_MIN, NODE_FIRST, ROW_BLOCKS_MAX,
    Superblock, SuperblockError, VERSION, VERSION_BY_DEVICE, VERSION_WITHOUT_NODES, newest,
};
pub use writer::{Commit, Full, Writer};

/// A position in the log's endless stream of bytes (log sequence number). Its place in the file depends on the
/// group that contains it: see [`Writer::place`] and [`Group::place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
