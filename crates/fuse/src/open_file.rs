//! One open description of a regular file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_engine::{ErrorCursor, ErrorKind};
use weir_names::tree::{HomeError, RefusalCursor};
use weir_shard::Shard;

use crate::credentials::Caller;
use crate::inode::{DataNode, Inode};
use crate::lane::lane_state::DescriptionLane;
use crate::sessions::Opened;
use crate::write_behind::WriteBehind;

/// One open description of a regular file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file.
    pub(crate) inode: Arc<Inode>,
    /// The kernel does not cache data read or written through this description, and sends no fsync of its own after a
    /// synchronous write.
    pub(crate) uncached: bool,
    /// It can write.
    pub(crate) writes: bool,
    /// The program that opened it.
    pub(crate) opener: Caller,
    /// The session that it was opened in.
    pub(crate) opened: Opened,
    /// Its state in the lane.
    pub(crate) lane: DescriptionLane,
    errors: Mutex<ErrorCursor>,
    refusals: Mutex<RefusalCursor>,
}

impl OpenFile {
    /// A new open description of a file that was acquired for it.
    pub(crate) fn new(
        shard: &Shard,
        behind: Option<&WriteBehind>,
        inode: Arc<Inode>,
        (opener, opened): (Caller, Opened),
        uncached: bool,
        writes: bool,
    ) -> OpenFile {
        let errors = Mutex::new(shard.error_cursor(inode.node().file()));
        let refusals = Mutex::new(behind.map(WriteBehind::refusal_cursor).unwrap_or_default());
        let lane = DescriptionLane::default();
        OpenFile { inode, uncached, writes, opener, opened, lane, errors, refusals }
    }

    /// The write-back error that was not reported to this description yet, if there is one.
    pub(crate) fn take_error(&self, shard: &Shard) -> Option<ErrorKind> {
        shard.take_error(self.inode.node().file(), &mut self.errors())
    }

    /// Why home refused a change of the file's names or attributes, if that was not reported to this description yet.
    pub(crate) fn take_refusal(&self, behind: &WriteBehind) -> Option<HomeError> {
        let mut cursor = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        behind.take_refusal(self.inode.node(), &mut cursor)
    }

    fn errors(&self) -> MutexGuard<'_, ErrorCursor> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
