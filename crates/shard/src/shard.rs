//! The shard's calls.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_backend::{Directory, HomeFile};
use weir_engine::{
    Config, ConfigError, Durability, Error, ErrorCursor, ErrorKind, ExclusiveEnd, FileId, ReadData,
    Stats,
};

use crate::latency::Latencies;

/// Why a shard did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine cannot run with this configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Memory for page frames could not be mapped.
    #[error("cannot map {bytes} bytes for page frames: {source}; give less memory")]
    Memory {
        /// What was asked for.
        bytes: u64,
        /// What mmap(2) said.
        source: io::Error,
    },
    /// The back end's ring or threads could not be set up.
    #[error("cannot start the back end: {0}")]
    Backend(#[source] io::Error),
}

/// One engine, its lock, its back end and its clock.
///
/// Every call may be made from any thread, also from inside a continuation. Continuations
/// (`done`, `section`) are run exactly once, under no lock of the shard: before the call returns
/// if the answer is known at once, else by the thread that completed it.
pub struct Shard {
    directory: Directory,
}

impl Shard {
    /// Starts an engine with `config` over the directory `source`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: Config, source: BorrowedFd<'_>) -> Result<Arc<Shard>, StartError> {
        let _ = (config, source);
        todo!()
    }

    /// Makes a file known to the engine, with what home says of it now. If it is attached already
    /// it stays, and a detach under way is called off: that detach's continuation is dropped
    /// without being run. `home` is kept until the file is detached.
    ///
    /// # Errors
    /// What looking up the attributes at home says; the file is then not attached.
    pub fn attach(&self, file: FileId, home: &Arc<HomeFile>) -> io::Result<()> {
        let _ = (file, home);
        todo!()
    }

    /// Lets a file go once its dirty data is home, then runs `done`. Not run if the file is
    /// attached again before; run at once if the file is not attached.
    pub fn detach(&self, file: FileId, done: impl FnOnce() + Send + 'static) {
        let _ = (file, done);
        todo!()
    }

    /// Drops what is dirty of a file that has no name and no open description any more.
    pub fn discard(&self, file: FileId) {
        let _ = file;
        todo!()
    }

    /// Drops clean cached data of a file that was changed at home behind Weir's back.
    pub fn drop_clean(&self, file: FileId) {
        let _ = file;
        todo!()
    }

    /// The file's size as programs see it; `None` if it is not attached.
    pub fn size(&self, file: FileId) -> Option<u64> {
        let _ = file;
        todo!()
    }

    /// Whether something of the file is newer than home.
    pub fn has_dirty(&self, file: FileId) -> bool {
        let _ = file;
        todo!()
    }

    /// The file's error position now, for a new open description.
    pub fn error_cursor(&self, file: FileId) -> ErrorCursor {
        let _ = file;
        todo!()
    }

    /// The latest write-back error since `cursor`, if any; advances the cursor.
    pub fn take_error(&self, file: FileId, cursor: &mut ErrorCursor) -> Option<ErrorKind> {
        let _ = (file, cursor);
        todo!()
    }

    /// Writes `data` at `offset`. `data` is not needed any more when this returns.
    pub fn write(
        &self,
        file: FileId,
        offset: u64,
        data: &[u8],
        durability: Durability,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let _ = (file, offset, data, durability, done);
        todo!()
    }

    /// Reads up to `len` bytes at `offset`.
    pub fn read(
        &self,
        file: FileId,
        offset: u64,
        len: usize,
        done: impl FnOnce(Result<ReadData, Error>) + Send + 'static,
    ) {
        let _ = (file, offset, len, done);
        todo!()
    }

    /// fsync(2) or fdatasync(2): what was written to the file before this is home and durable,
    /// its modification time too.
    pub fn sync(
        &self,
        file: FileId,
        durability: Durability,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let _ = (file, durability, done);
        todo!()
    }

    /// Everything dirty, of all files, is home and durable. The error is the first one met.
    pub fn sync_all(&self, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let _ = done;
        todo!()
    }

    /// Runs `section` while nothing of the file is in flight and other requests on it wait, so
    /// that it may change the file at home (truncate, fallocate, copy_file_range) or look at it
    /// (lseek). `flush` is a byte range `[from, to)` whose dirty data goes home first.
    ///
    /// `section` gets an error if that flush failed: the file is then not frozen, `section` must
    /// not change it, and the [`ExclusiveEnd`] it returns is ignored. The second thing it returns
    /// is the answer to the program: it is run after the requests that waited may go on, so that
    /// the program never sees the state from before.
    ///
    /// `section` must not call the shard for this file, except [`Shard::size`].
    pub fn exclusive<Answer: FnOnce() + Send + 'static>(
        &self,
        file: FileId,
        flush: Option<(u64, u64)>,
        section: impl FnOnce(Result<(), Error>) -> (ExclusiveEnd, Answer) + Send + 'static,
    ) {
        let _ = (file, flush, section);
        todo!()
    }

    /// The engine's counters and gauges.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// How long requests took.
    pub fn latencies(&self) -> Latencies {
        todo!()
    }

    /// The back end, for what a status report says of it.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Stops the threads. To be called after [`Shard::sync_all`]: what is dirty is lost. Requests
    /// still pending are not answered. Idempotent.
    pub fn stop(&self) {
        todo!()
    }
}
