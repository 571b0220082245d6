//! Who waits for a file.

use std::collections::VecDeque;

use crate::command::RequestId;
use crate::waiters::gate::{Event, Gate};
use crate::waiters::sync::{SyncFor, SyncWaiter};

/// Requests on one file, and whether they run now.
#[derive(Debug)]
pub(crate) struct FileWaiters {
    pub(crate) gate: Gate,
    /// The gate while a repair interrupts the flush of a freeze, as it is to be afterwards.
    pub(crate) interrupted: Option<Gate>,
    /// Events behind the gate, in order.
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
            gate: Gate::Open,
            interrupted: None,
            queue: VecDeque::new(),
            syncs: Vec::new(),
            active: 0,
            starved: 0,
        }
    }
}

impl FileWaiters {
    /// Nobody waits, and events run.
    pub(crate) fn is_idle(&self) -> bool {
        self.active == 0
            && self.starved == 0
            && self.syncs.is_empty()
            && self.queue.is_empty()
            && self.gate == Gate::Open
    }

    /// A sync waits for dirty data of this file to come home.
    pub(crate) fn is_urgent(&self) -> bool {
        self.syncs.iter().any(|sync| sync.remaining > 0)
    }

    /// A program waits for dirty data of this file to come home, not only the log.
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
    fn a_file_whose_gate_closes_is_not_idle() {
        let waiters = FileWaiters { gate: Gate::Frozen, ..FileWaiters::default() };
        assert!(!waiters.is_idle());
    }
}
