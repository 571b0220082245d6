//! The positions of the sweeps through dirty pages.

use std::collections::BTreeSet;

use crate::place::{FileIx, Place};

/// The sweeps of all files.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    /// Files with dirty data that a sync waits for.
    pub(crate) urgent: BTreeSet<FileIx>,
    /// The file of these whose turn is next, or the first one after it.
    pub(crate) urgent_next: FileIx,
    /// Files whose patched pages are to be fetched soon.
    pub(crate) wanted: BTreeSet<FileIx>,
    /// A window is being read: a part of a file that is then written in one transfer, because much of it is dirty.
    pub(crate) window_under_way: bool,
    /// Where the last window begins, until a sweep has continued from there.
    pub(crate) window_read: Option<Place>,
    /// Fetches that sweeps and syncs issued.
    pub(crate) fetches: u64,
}

/// The sweeps for the syncs of one file, by page numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileSweeps {
    /// The next page of each sweep: through patched pages, and through resident ones.
    pub(crate) synced_to: [u64; 2],
    /// Whether the sweep through resident pages is next.
    pub(crate) resident_next: bool,
    /// The next page of the sweep that brings back spilled pages.
    pub(crate) returned_to: u64,
}
