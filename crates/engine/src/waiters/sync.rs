//! Syncs under way.

use weir_journal::Counts;
use weir_log::Lsn;

use crate::command::{Durability, RequestId};
use crate::error::ErrorKind;
use crate::journal::logged::Full;
use crate::time::Time;

/// What the end of a sync completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncFor {
    Sync(RequestId),
    Write(RequestId),
    All(RequestId),
    /// The freeze that the file is about to enter.
    Freeze {
        /// Records of the file are also revoked.
        revokes: bool,
    },
    /// A checkpoint: the log is to be freed of the file's records.
    Checkpoint,
    /// The log is to be freed of the records of what is home already.
    Freeing,
}

impl SyncFor {
    /// Whether a program waits for it, to know that its data is durable.
    pub(crate) fn is_for_program(self) -> bool {
        matches!(self, SyncFor::Sync(_) | SyncFor::Write(_))
    }
}

/// A sync in progress: first its dirty data goes home, then, for a program, the back end is synced.
#[derive(Debug)]
pub(crate) struct SyncWaiter {
    /// Names the waiter while a sync command is in flight for it.
    pub(crate) id: u64,
    /// The sync covers data that became dirty up to this point in the engine's order.
    pub(crate) seq: u64,
    /// Page contents that still have to go home.
    pub(crate) remaining: usize,
    pub(crate) error: Option<ErrorKind>,
    pub(crate) durability: Durability,
    pub(crate) done: SyncFor,
    /// The sync command is in flight.
    pub(crate) syncing_home: bool,
    /// Home is synced after the repair has rewritten what home may have lost (`repair`).
    pub(crate) awaits_repair: bool,
    /// The log retention that ends when the sync succeeds.
    pub(crate) covered: Counts,
    /// The last epoch of the file that the sync covers; 0 if none (`repair`).
    pub(crate) epoch: u32,
    pub(crate) home_sync_began: Time,
    /// Set if the sync brings all of the file home; it then frees the log of the file's older records.
    pub(crate) full: Option<Full>,
    /// The position up to which the log must be durable.
    pub(crate) lsn: Option<Lsn>,
}

impl SyncWaiter {
    /// See [`SyncFor::is_for_program`].
    pub(crate) fn is_for_program(&self) -> bool {
        self.done.is_for_program()
    }

    /// Whether a freeze waits only for the record of the file's new size.
    pub(crate) fn is_for_logged_size(&self) -> bool {
        self.done == SyncFor::Freeze { revokes: false } && self.lsn.is_some()
    }
}
