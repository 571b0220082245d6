//! The I/O in flight at a file's home, and what is known of the file there.

use crate::command::Durability;
use crate::time::Time;

/// What is known of where a file is on its device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mapped {
    /// The back end is being asked.
    pub(crate) asked: bool,
    /// When it was asked last.
    pub(crate) at: Option<Time>,
    /// The file may have been laid out differently since.
    pub(crate) stale: bool,
}

/// Reserving ahead of a file's writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) in_flight: bool,
    /// Home had no room for it: each writer reserves only what it needs.
    pub(crate) refused: bool,
    /// Counts how often space past the end was given back. A reservation of an earlier epoch does not count.
    pub(crate) epoch: u32,
}

/// A file's home, as far as the device is concerned.
#[derive(Debug)]
pub(crate) struct Home {
    /// Commands in flight.
    pub(crate) io_in_flight: usize,
    pub(crate) syncs_in_flight: usize,
    /// Syncs that are answered by the sync of home in flight.
    pub(crate) sync_for: Vec<u64>,
    /// Syncs that wait for the next one.
    pub(crate) sync_next: Vec<u64>,
    /// Something changed at home since the last sync of it was issued.
    pub(crate) unsynced: bool,
    /// A name or attributes did since the last sync was issued that makes them durable, too: one with [`Durability::Data`] does not.
    pub(crate) attributes_unsynced: bool,
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
            attributes_unsynced: true,
            layout: Mapped::default(),
            ahead: Ahead::default(),
        }
    }
}

impl Home {
    /// Names or attributes changed at home, or it is not known whether they did.
    pub(crate) fn attributes_changed(&mut self) {
        (self.unsynced, self.attributes_unsynced) = (true, true);
    }

    /// A sync of home is issued, which makes attributes durable unless it is a `datasync`.
    pub(crate) fn sync_begins(&mut self, datasync: bool) {
        self.unsynced = false;
        self.attributes_unsynced &= datasync;
    }

    /// Whether something that a sync with this durability is to make durable changed at home since the last sync of it was issued.
    pub(crate) fn is_unsynced(&self, durability: Durability) -> bool {
        self.unsynced || durability == Durability::All && self.attributes_unsynced
    }

    /// As [`Home::is_unsynced`], or the outcome of a sync under way is not known.
    pub(crate) fn needs_sync(&self, durability: Durability) -> bool {
        self.is_unsynced(durability) || self.syncs_in_flight > 0
    }
}
