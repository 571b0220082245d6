//! Weir's write path, sans-I/O.
//!
//! The engine decides; it never does. It keeps pages, patches and write-back state for a set of
//! files, takes *events* (writes, reads, syncs, I/O completions, ticks) and leaves *outputs*
//! (replies and device commands) in a queue for its caller. It starts no thread, reads no clock,
//! makes no system call on a file and knows no path, no errno and no FUSE. The same engine runs in
//! the daemon, and under one seed and virtual time in the simulator.
//!
//! Use: call an event method, then drain [`Engine::next_output`]. An event that can be answered at
//! once returns [`Outcome::Done`]; otherwise it returns [`Outcome::Pending`] and the answer comes
//! later as [`Output::Reply`] under the [`RequestId`] the caller gave.
//!
//! Architecture invariant: nothing here depends on FUSE, threads, wall time or host paths.

#![deny(unsafe_code)]

mod command;
mod config;
mod destage;
mod dirty;
mod dispatch;
mod engine;
mod error;
mod exclusive;
mod fetch;
mod file;
mod frame;
mod ghost;
mod lane;
mod layout;
mod log;
mod needs;
mod pace;
mod page;
mod patch;
mod ranges;
mod read;
mod recorded;
mod repair;
mod replacement;
mod reserve;
mod resident;
mod schedule;
mod spill;
mod spilled;
mod stats;
mod sweep;
mod sync;
mod throttle;
mod time;
mod two_lists;
mod watermarks;
mod write;
mod write_ahead;
mod write_back;

pub use command::{
    Command, Completion, Durability, ExclusiveEnd, Extent, FileId, HomeAttributes, IoId,
    LogCommand, Outcome, Output, Part, ReadData, Reply, RequestId, Section, Segment, Urgency,
};
pub use config::{Config, ConfigError, FetchPolicy, Undone, WriteBackPolicy};
pub use engine::Engine;
pub use error::{Error, ErrorCursor, ErrorKind};
pub use frame::{Frame, FramePool};
pub use page::{DESCRIPTOR_BYTES, PageState};
pub use stats::Stats;
pub use time::Time;
pub use two_lists::TwoLists;

/// Bytes in a page. Pages are aligned ranges of a file of this size.
pub const PAGE_BYTES: usize = 4096;

/// Most bytes in one read or write: small against the least memory an engine can have.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
