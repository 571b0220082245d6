//! How much of the cache is not in the log, for mounts that log everything.
//!
//! Each page with unlogged bytes is charged the most space that they may take in the log, and each file with such pages
//! that of its name. So it is known at any moment whether a commit of everything fits in one group.
//!
//! Invariants:
//! - the sum is that of the charges of all pages and files;
//! - a page's charge does not grow when its patches are put into a frame.

use std::collections::HashMap;

use weir_log::{IDENTITY_BYTES_MAX, RECORD_OVERHEAD_BYTES};

use crate::place::{PageIx, Span};

/// The most space that a record's head and padding take.
pub(crate) const RECORD: usize = RECORD_OVERHEAD_BYTES + 8;

/// The most space that a file's name takes in a group.
pub(crate) const NAME: usize = RECORD_OVERHEAD_BYTES + IDENTITY_BYTES_MAX;

/// The sum of the charges.
#[derive(Debug, Default)]
pub(crate) struct UnloggedBytes {
    /// Whether they are counted.
    pub(crate) are_counted: bool,
    pub(crate) bytes: usize,
    /// What pages are charged, if that is anything.
    of_pages: HashMap<PageIx, usize>,
}

impl UnloggedBytes {
    /// What a page is charged.
    pub(crate) fn of(&self, page: PageIx) -> usize {
        self.of_pages.get(&page).copied().unwrap_or(0)
    }

    /// Charges a page; gives back what it was charged before. The sum is the caller's.
    pub(crate) fn set(&mut self, page: PageIx, charge: usize) -> usize {
        let before = match charge {
            0 => self.of_pages.remove(&page),
            _ => self.of_pages.insert(page, charge),
        };
        before.unwrap_or(0)
    }
}

/// The most space in the log of bytes of a page, which has `runs` patches or a frame.
pub(crate) fn charge_of(unlogged: Span, runs: usize) -> usize {
    match unlogged.is_empty() {
        true => 0,
        false => usize::from(unlogged.to - unlogged.from) + RECORD * runs.max(1),
    }
}
