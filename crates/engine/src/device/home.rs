//! What is under way at a file's home, and what is known of the file there.

use crate::time::Time;

/// What is known of where a file is on its device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mapped {
    /// The back end is being asked.
    pub(crate) asked: bool,
    /// When it was asked last.
    pub(crate) at: Option<Time>,
    /// It may have been laid out anew since.
    pub(crate) stale: bool,
}

/// Reserving ahead of a file's writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) in_flight: bool,
    /// There was no room for it: writers ask for what they need.
    pub(crate) refused: bool,
    /// Counts how often space past the end was given back; what was asked for before then is not
    /// to be relied on.
    pub(crate) epoch: u32,
}

/// A file's home, as far as the device is concerned.
#[derive(Debug)]
pub(crate) struct Home {
    /// Commands under way.
    pub(crate) io_in_flight: usize,
    pub(crate) syncs_in_flight: usize,
    /// Syncs that are answered by the sync of home under way.
    pub(crate) sync_for: Vec<u64>,
    /// Syncs that wait for the next one.
    pub(crate) sync_next: Vec<u64>,
    /// Something changed at home since the last sync of it was issued.
    pub(crate) unsynced: bool,
    pub(crate) layout: Mapped,
    pub(crate) ahead: Ahead,
}

impl Default for Home {
    fn default() -> Home {
        Home {
            io_in_flight: 0,
            syncs_in_flight: 0,
            sync_for: Vec::new(),
            sync_next: Vec::new(),
            // What happened before is not known.
            unsynced: true,
            layout: Mapped::default(),
            ahead: Ahead::default(),
        }
    }
}
