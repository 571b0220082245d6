//! The state of spilling: patches that are leaving memory for the log, that are in the log only, and that are being
//! read back.
//!
//! Owns the index of patches that are in the log only (`spilled`), the spill in progress and the reads of the log. The
//! events `spill` and `unspill` decide what leaves and what comes back.
//!
//! Invariants:
//! - one spill is in progress at a time;
//! - a page is in `reading` exactly while a read for it is in flight whose result will be used.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use weir_log::Lsn;

use crate::cache::spilled::{LogExtents, Spilled};
use crate::command::IoId;
use crate::place::{FIRST, FileIx, Place};
use crate::time::Time;

/// Most pages looked at for one spill, or one window.
pub(crate) const LOOKED_AT_MAX: usize = 8192;

/// Patch memory divided by this is kept for patches that are read back.
pub(crate) const RETURN_SHARE: usize = 2;

/// The state of spilling.
#[derive(Debug)]
pub(crate) struct Spill {
    pub(crate) index: Spilled,
    /// Where the next spill begins.
    pub(crate) next: Place,
    /// The spill number of the last page that was appended.
    pub(crate) last: u32,
    /// Pages whose patches may leave memory when their records are durable, in the log's order.
    pub(crate) leaving: VecDeque<Leaving>,
    /// The end of the spill in progress.
    pub(crate) spill_end: Option<Lsn>,
    pub(crate) rest_until: Time,
    pub(crate) reads: HashMap<IoId, Return>,
    pub(crate) reading: HashMap<Place, IoId>,
    /// The most patch memory that reads in flight will take.
    pub(crate) returning_bytes: usize,
    /// Windows being read: one at a time, since two would need two scans of the log.
    pub(crate) windows: usize,
    /// The last window.
    pub(crate) window: Option<Window>,
    /// Where the sweep that brings patches back continues.
    pub(crate) swept_to: Place,
    /// Reads of the log that failed since one succeeded.
    pub(crate) failed_in_a_row: usize,
    /// No window is read before this time.
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

    /// Whether a spill is being written to the log.
    pub(crate) fn is_under_way(&self) -> bool {
        self.spill_end.is_some()
    }

    /// Whether a window is being read back: its reads need the log's disk, and will give the sweep more to do.
    pub(crate) fn awaits_window(&self) -> bool {
        self.windows > 0
    }

    /// Whether reads of the log are in flight.
    pub(crate) fn is_reading(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Whether the log cannot be read.
    pub(crate) fn is_stuck(&self) -> bool {
        self.failed_in_a_row > 0 && self.reads.is_empty()
    }

    /// When a window that failed is retried.
    pub(crate) fn retry_tick(&self) -> Option<Time> {
        (self.failed_in_a_row > 0 && !self.index.is_empty()).then_some(self.retry_at)
    }
}

/// A page whose patches were appended to the log.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) place: Place,
    pub(crate) extents: LogExtents,
    /// The page's `spilling`, if its patches have not changed since.
    pub(crate) number: u32,
    /// The position up to which the log must be durable.
    pub(crate) end: Lsn,
}

/// A range of a file whose spilled pages were brought back together.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) file: FileIx,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// A large share of the range's pages came back.
    pub(crate) is_dense: bool,
}

/// A read of the log in flight.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) file: FileIx,
    pub(crate) numbers: Vec<u64>,
    pub(crate) places: Vec<u64>,
    pub(crate) bytes: usize,
    pub(crate) window: bool,
}
