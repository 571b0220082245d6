//! The state of spilling: which patches are leaving memory for the log, which are in it, which are on their way back.
//!
//! Owns the index of what is in the log alone (`spilled`), the spill under way and the reads of the log. The events
//! `spill` and `unspill` decide what leaves and what comes back.
//!
//! Invariants:
//! - one spill is under way at a time;
//! - a page is in `reading` exactly while a read for it is under way whose outcome counts.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use weir_log::Lsn;

use crate::cache::spilled::{LogExtents, Spilled};
use crate::command::IoId;
use crate::place::{FIRST, FileIx, Place};
use crate::time::Time;

/// Pages looked at for one spill, or one window.
pub(crate) const LOOKED_AT_MAX: usize = 8192;

/// Share of patch memory that is kept for patches on their way back.
pub(crate) const RETURN_SHARE: usize = 2;

/// What is spilled, leaves, or comes back.
#[derive(Debug)]
pub(crate) struct Spill {
    pub(crate) index: Spilled,
    /// Where the next spill goes on.
    pub(crate) next: Place,
    /// The number of the last page that was appended.
    pub(crate) last: u32,
    /// Pages that may leave when the log is durable up to where they were appended, in its order.
    pub(crate) leaving: VecDeque<Leaving>,
    /// The spill under way ends here.
    pub(crate) spill_end: Option<Lsn>,
    pub(crate) rest_until: Time,
    pub(crate) reads: HashMap<IoId, Return>,
    pub(crate) reading: HashMap<Place, IoId>,
    /// Patch memory that reads under way will take at most.
    pub(crate) returning_bytes: usize,
    /// Windows being read: one at a time, since two would be two passes over the log.
    pub(crate) windows: usize,
    /// The last one.
    pub(crate) window: Option<Window>,
    /// Where the sweep that brings back goes on.
    pub(crate) swept_to: Place,
    /// Reads of the log that failed since one succeeded.
    pub(crate) failed_in_a_row: usize,
    /// No window is read before.
    pub(crate) retry_at: Time,
}

impl Spill {
    pub(crate) fn new(dirty_expire: Duration) -> Spill {
        Spill {
            index: Spilled::new(dirty_expire),
            next: FIRST,
            last: 0,
            leaving: VecDeque::new(),
            spill_end: None,
            rest_until: Time::ZERO,
            reads: HashMap::new(),
            reading: HashMap::new(),
            returning_bytes: 0,
            windows: 0,
            window: None,
            swept_to: FIRST,
            failed_in_a_row: 0,
            retry_at: Time::ZERO,
        }
    }

    /// A spill is on its way to the log.
    pub(crate) fn is_under_way(&self) -> bool {
        self.spill_end.is_some()
    }

    /// A window is on its way back: its reads need the log's disk, and then there is more to sweep.
    pub(crate) fn awaits_window(&self) -> bool {
        self.windows > 0
    }

    /// Reads of the log are under way.
    pub(crate) fn is_reading(&self) -> bool {
        !self.reads.is_empty()
    }

    /// The log cannot be read.
    pub(crate) fn is_stuck(&self) -> bool {
        self.failed_in_a_row > 0 && self.reads.is_empty()
    }

    /// When a window that failed is tried again.
    pub(crate) fn retry_tick(&self) -> Option<Time> {
        (self.failed_in_a_row > 0 && !self.index.is_empty()).then_some(self.retry_at)
    }
}

/// A page whose patches were appended to the log.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) place: Place,
    pub(crate) extents: LogExtents,
    /// The page's `spilling`, if its patches are still those.
    pub(crate) number: u32,
    /// The log is to be durable up to here.
    pub(crate) end: Lsn,
}

/// Pages of a file that were brought back together, and those between them.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) file: FileIx,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// A good part of these pages came back.
    pub(crate) is_dense: bool,
}

/// A read of the log under way.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) file: FileIx,
    pub(crate) numbers: Vec<u64>,
    pub(crate) places: Vec<u64>,
    pub(crate) bytes: usize,
    pub(crate) window: bool,
}
