//! stub: signatures are settled, bodies are being written
#![allow(unused_variables, missing_docs)]
use crate::*;

/// The write path of one shard.
pub struct Engine {}

impl Engine {
    /// An engine with nothing attached. `pool` needs at least `config.memory_bytes_max / 4096`
    /// frames; some more (a few MiB) for frames in flight outside.
    pub fn new(config: Config, pool: FramePool) -> Result<Engine, ConfigError> {
        todo!()
    }
    pub fn config(&self) -> &Config {
        todo!()
    }

    /// Makes a file known, or keeps it if it is (its home attributes are then not looked at, except
    /// that `readable` may become true).
    pub fn attach(&mut self, file: FileId, home: HomeAttributes) {
        todo!()
    }
    pub fn is_attached(&self, file: FileId) -> bool {
        todo!()
    }
    /// Lets a file go: at once if clean and idle, else when its dirty data is home. Either way
    /// `Output::Detached` follows; attaching it again before that cancels it.
    pub fn detach(&mut self, file: FileId, now: Time) {
        todo!()
    }
    /// The file has no name and no open description any more: what is dirty is dropped, without
    /// fetch or destage. (To be followed by `detach`.)
    pub fn discard(&mut self, file: FileId) {
        todo!()
    }
    /// Drops clean cached data of a file (it changed at home behind our back). Dirty pages stay.
    pub fn drop_clean(&mut self, file: FileId) {
        todo!()
    }

    /// Size as programs see it.
    pub fn size(&self, file: FileId) -> Option<u64> {
        todo!()
    }
    pub fn has_dirty(&self, file: FileId) -> bool {
        todo!()
    }
    pub fn error_cursor(&self, file: FileId) -> ErrorCursor {
        todo!()
    }
    /// The latest write-back error since `cursor`, if any; advances the cursor.
    pub fn take_error(&self, file: FileId, cursor: &mut ErrorCursor) -> Option<ErrorKind> {
        todo!()
    }

    pub fn write(
        &mut self,
        request: RequestId,
        file: FileId,
        offset: u64,
        data: &[u8],
        durability: Durability,
        now: Time,
    ) -> Outcome<()> {
        todo!()
    }
    pub fn read(
        &mut self,
        request: RequestId,
        file: FileId,
        offset: u64,
        len: usize,
        now: Time,
    ) -> Outcome<ReadData> {
        todo!()
    }
    /// fsync/fdatasync: everything written to the file before this is home and durable.
    pub fn sync(
        &mut self,
        request: RequestId,
        file: FileId,
        durability: Durability,
        now: Time,
    ) -> Outcome<()> {
        todo!()
    }
    /// Everything dirty, of all files, is home (each file synced). Error: the first one met.
    pub fn sync_all(&mut self, request: RequestId, now: Time) -> Outcome<()> {
        todo!()
    }
    /// Waits until nothing of the file is in flight and freezes it (other events on it queue), so
    /// that the caller may change the file at home: truncate, fallocate, copy_file_range, seek.
    /// `flush`: byte range whose dirty data goes home first.
    pub fn begin_exclusive(
        &mut self,
        request: RequestId,
        file: FileId,
        flush: Option<(u64, u64)>,
        now: Time,
    ) -> Outcome<()> {
        todo!()
    }
    /// Ends it; queued events go on.
    pub fn end_exclusive(&mut self, file: FileId, end: ExclusiveEnd, now: Time) {
        todo!()
    }

    pub fn complete(&mut self, io: IoId, completion: Completion, now: Time) {
        todo!()
    }
    /// Ageing, thresholds, retries. Call at `next_tick` or later.
    pub fn tick(&mut self, now: Time) {
        todo!()
    }
    /// When `tick` should next be called; `None` while nothing is dirty or waiting.
    pub fn next_tick(&self) -> Option<Time> {
        todo!()
    }
    pub fn next_output(&mut self) -> Option<Output> {
        todo!()
    }

    pub fn stats(&self, now: Time) -> Stats {
        todo!()
    }
    pub fn page_state(&self, file: FileId, page: u64) -> PageState {
        todo!()
    }
    /// Panics, saying which, if an invariant of the engine does not hold. For tests: O(pages).
    pub fn check_invariants(&self) {
        todo!()
    }
}
