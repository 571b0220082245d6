//! Weir's write path, sans-I/O.
//!
//! The engine makes decisions and does no I/O. It keeps pages, patches and write-back state for a set of files, takes
//! *events* (writes, reads, syncs, I/O completions, ticks) and leaves *outputs* (replies and device commands) in a queue
//! for its caller. It starts no thread, reads no clock, makes no system call on a file, and does not depend on paths,
//! errno or FUSE. The same engine runs in the daemon, and in the simulator under a seed and virtual time.
//!
//! Use: call an event method, then [`Engine::dispatch`], then drain [`Engine::next_output`]. An event that can be answered
//! at once returns [`Outcome::Done`]. Otherwise it returns [`Outcome::Pending`], and the answer comes later as
//! [`Output::Reply`] with the caller's [`RequestId`].
//!
//! Architecture invariant: nothing here depends on FUSE, threads, wall time or host paths.
//!
//! ```
//! use weir_engine::{
//!     Config, Durability, Engine, FetchPolicy, FileId, FramePool, HomeAttributes, Outcome, PAGE_BYTES,
//!     RequestId, Time,
//! };
//!
//! let config = Config {
//!     memory_bytes_max: 16 << 20,
//!     patch_bytes_max: 2 << 20,
//!     fetch_policy: FetchPolicy::Lazy,
//!     ..Config::default()
//! };
//! let pool = FramePool::new((config.memory_bytes_max / PAGE_BYTES as u64) as u32)?;
//! let mut engine = Engine::new(config, pool)?;
//! let file = FileId(1);
//! engine.attach(file, HomeAttributes { size: 1 << 20, dense: true, write_unit: 512, readable: true });
//!
//! // A few bytes of a page that is not in memory: answered at once, as a patch, without a fetch.
//! let written = engine.write(RequestId(1), file, 5000, b"hello", Durability::None, Time::ZERO);
//! assert!(matches!(written, Outcome::Done(Ok(()))));
//! let stats = engine.stats(Time::ZERO);
//! assert_eq!((stats.patched_pages, stats.fetches_in_flight), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod cache;
mod command;
mod config;
mod device;
mod engine;
mod error;
mod events;
mod journal;
mod place;
mod stats;
#[cfg(test)]
mod testing;
mod time;
mod waiters;
mod write_back;

pub use cache::page::{DESCRIPTOR_BYTES, PageState};
pub use cache::two_lists::TwoLists;
pub use command::{
    Command, Completion, DataState, Durability, Extent, FileId, FreezeEnd, FreezeScope,
    HomeAttributes, IoId, LogCommand, Outcome, Output, Part, ReadData, Reply, RequestId, Segment,
    Urgency,
};
pub use config::{
    Config, ConfigError, FetchPolicy, Order, REQUEST_BYTES_MAX, Undone, WriteBackPolicy,
};
pub use engine::Engine;
pub use error::{Error, ErrorCursor, ErrorKind};
pub use events::names::{NotLogged, RecordOf};
pub use stats::Stats;
pub use time::Time;
pub use weir_frames::{Frame, FramePool, PAGE_BYTES};
