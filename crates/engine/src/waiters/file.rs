//! The requests that wait for a file.

use std::collections::VecDeque;

use crate::command::RequestId;
use crate::waiters::freeze_state::{Event, FreezeState};
use crate::waiters::sync::{SyncFor, SyncWaiter};

/// Requests on one file, and whether they run now.
#[derive(Debug)]
pub(crate) struct FileWaiters {
    pub(crate) freeze: FreezeState,
    /// While a repair interrupts the flush before a freeze: the state to return to after the repair.
    pub(crate) interrupted: Option<FreezeState>,
    /// Events that wait for the file to thaw, in order.
    pub(crate) queue: VecDeque<(RequestId, Event)>,
    pub(crate) syncs: Vec<SyncWaiter>,
    /// Requests that wait for pages or a reservation.
    pub(crate) active: usize,
    /// Requests in the engine's queue of starved ones.
    pub(crate) starved: usize,
}

impl Default for FileWaiters {
    fn default() -> FileWaiters {
        FileWaiters {
            freeze: FreezeState::Thawed,
            interrupted: None,
            queue: VecDeque::new(),
            syncs: Vec::new(),
            active: 0,
            starved: 0,
        }
    }
}

impl FileWaiters {
    /// No request waits, and events run.
    pub(crate) fn is_idle(&self) -> bool {
        self.active == 0
            && self.starved == 0
            && self.syncs.is_empty()
            && self.queue.is_empty()
            && self.freeze == FreezeState::Thawed
    }

    /// The file was frozen for its repair, and that ends.
    pub(crate) fn end_repair(&mut self) {
        self.freeze = self.interrupted.take().unwrap_or(FreezeState::Thawed);
    }

    /// A sync waits for dirty data of this file to go home.
    pub(crate) fn is_urgent(&self) -> bool {
        self.syncs.iter().any(|sync| sync.remaining > 0)
    }

    /// A program, not only the log, waits for dirty data of this file to go home.
    pub(crate) fn is_awaited(&self) -> bool {
        let for_log =
            |sync: &SyncWaiter| matches!(sync.done, SyncFor::Checkpoint | SyncFor::Freeing);
        self.syncs.iter().any(|sync| sync.remaining > 0 && !for_log(sync))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Durability;

    fn sync(done: SyncFor, remaining: usize) -> SyncWaiter {
        SyncWaiter {
            id: 1,
            seq: 0,
            remaining,
            error: None,
            durability: Durability::Data,
            done,
            syncing_home: false,
            awaits_repair: false,
            covered: Default::default(),
            epoch: 0,
            home_sync_began: Default::default(),
            full: None,
            lsn: None,
        }
    }

    #[test]
    fn a_checkpoint_is_urgent_and_no_program_waits_for_it() {
        let mut waiters = FileWaiters::default();
        assert!(waiters.is_idle());
        waiters.syncs.push(sync(SyncFor::Checkpoint, 3));
        assert!(waiters.is_urgent() && !waiters.is_awaited() && !waiters.is_idle());
        waiters.syncs.push(sync(SyncFor::Sync(RequestId(7)), 1));
        assert!(waiters.is_awaited());
        waiters.syncs.retain(|sync| sync.done == SyncFor::Checkpoint);
        waiters.syncs[0].remaining = 0;
        assert!(!waiters.is_urgent(), "its pages are home");
    }

    #[test]
    fn a_frozen_file_is_not_idle() {
        let waiters = FileWaiters { freeze: FreezeState::Frozen, ..FileWaiters::default() };
        assert!(!waiters.is_idle());
    }
}
