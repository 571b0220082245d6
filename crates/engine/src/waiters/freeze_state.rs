//! Whether events on a file run now, and the events that wait for a thaw.

use crate::command::{Durability, FreezeScope, RequestId};

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Offset(u64),
    /// The end of the file at the moment when the write is applied, which may be later.
    End,
}

/// An event that must wait its turn, with its arguments.
#[derive(Debug)]
pub(crate) enum Event {
    Write { target: Target, data: Box<[u8]>, durability: Durability },
    Read { offset: u64, len: usize },
    Freeze { scope: FreezeScope },
}

/// Whether events on a file run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreezeState {
    Thawed,
    /// A freeze waits for requests and I/O in progress; newer events queue behind it.
    Freezing {
        /// The request for the freeze; `None` for a repair.
        request: Option<RequestId>,
        scope: FreezeScope,
        /// Dirty data is going home, or records are being revoked, before the freeze.
        flushing: bool,
    },
    /// The freeze was granted and has not ended.
    Frozen,
}
