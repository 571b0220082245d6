//! Whether events on a file run now, and those that wait until they may.

use crate::command::{Durability, RequestId, Section};

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Offset(u64),
    /// To the end that the file has when the write is applied, however long it waits for that.
    End,
}

/// An event that must wait its turn, with what it needs to run later.
#[derive(Debug)]
pub(crate) enum Event {
    Write { target: Target, data: Box<[u8]>, durability: Durability },
    Read { offset: u64, len: usize },
    Freeze { section: Section },
}

/// Whether events on a file run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// A freeze waits for what is under way; newer events queue behind it.
    Closing {
        /// The request for the section; `None` for a repair.
        request: Option<RequestId>,
        section: Section,
        /// Dirty data is going home first, or records are being revoked.
        flushing: bool,
    },
    /// The section runs.
    Frozen,
}
