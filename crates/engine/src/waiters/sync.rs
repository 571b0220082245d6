//! Syncs under way.

use weir_journal::Counts;
use weir_log::Lsn;

use crate::command::{Durability, RequestId};
use crate::error::ErrorKind;
use crate::journal::logged::Full;
use crate::time::Time;

/// Whom the end of a sync is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncFor {
    Sync(RequestId),
    Write(RequestId),
    All(RequestId),
    /// The freeze the gate is closing for.
    Freeze {
        /// Records of the file are also revoked.
        revokes: bool,
    },
    /// The log, which is to be freed of the file's records.
    Checkpoint,
    /// The log, of what is home already.
    Freeing,
}

/// A sync under way: first its dirty data goes home, then, for a program, the back end is synced.
#[derive(Debug)]
pub(crate) struct SyncWaiter {
    /// Names the waiter while a sync command is under way for it.
    pub(crate) id: u64,
    /// What became dirty up to this point in the engine's order is its business.
    pub(crate) seq: u64,
    /// Pages' contents still to come home.
    pub(crate) remaining: usize,
    pub(crate) error: Option<ErrorKind>,
    pub(crate) durability: Durability,
    pub(crate) done: SyncFor,
    /// The sync command is under way.
    pub(crate) syncing_home: bool,
    /// Home is synced after the repair has rewritten what home may have lost (`repair`).
    pub(crate) awaits_repair: bool,
    /// What of the log it then frees.
    pub(crate) covered: Counts,
    /// The last epoch of the file that the sync covers; 0 if none (`repair`).
    pub(crate) epoch: u32,
    pub(crate) home_sync_began: Time,
    /// It brings everything home, and so frees the log of older records of the file.
    pub(crate) full: Option<Full>,
    /// The log is to be durable beyond this position.
    pub(crate) lsn: Option<Lsn>,
}
