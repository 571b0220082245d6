//! How far the sweeps through dirty pages are.

use std::collections::BTreeSet;

use crate::place::{FileIx, Place};

/// The sweeps of all files.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    /// Files with dirty data that a sync waits for.
    pub(crate) urgent: BTreeSet<FileIx>,
    /// Files whose patched pages are to be fetched soon.
    pub(crate) wanted: BTreeSet<FileIx>,
    /// A stretch of a file is being read so that what is dirty in it can be written in one go.
    pub(crate) window_under_way: bool,
    /// Where the last one begins, until a sweep went on from there.
    pub(crate) window_read: Option<Place>,
    /// Fetches that sweeps and syncs issued.
    pub(crate) fetches: u64,
}

/// The sweeps for the syncs of one file, by page numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileSweeps {
    /// Where they go on: through patched pages, and through resident ones.
    pub(crate) synced_to: [u64; 2],
    /// Which of the two goes on next.
    pub(crate) resident_next: bool,
    /// Where bringing back spilled pages goes on.
    pub(crate) returned_to: u64,
}
