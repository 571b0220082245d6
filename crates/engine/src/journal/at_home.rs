//! What was changed at home and is neither in the log nor synced.

/// Counts such changes of files that are not attached, or were not any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtHome {
    /// How many there were.
    pub(crate) changes: u64,
    /// How many of them a sync of home has made durable.
    synced: u64,
    /// How many there were when the sync of home in flight began.
    pub(crate) syncing: u64,
}

impl Default for AtHome {
    /// Nobody knows what was changed before.
    fn default() -> AtHome {
        AtHome { changes: 1, synced: 0, syncing: 0 }
    }
}

impl AtHome {
    /// A sync of home has succeeded; `changes`: how many there were when it began.
    pub(crate) fn synced(&mut self, changes: u64) {
        self.synced = self.synced.max(changes);
    }

    /// Whether none is left.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced == self.changes
    }
}
