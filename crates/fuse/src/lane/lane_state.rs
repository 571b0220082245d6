//! A file's and an open description's state in the lane: the lease and the counts under one lock, and copies of some of them
//! that other threads read without the lock.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lane::lease::Lease;
use crate::lane::opens::{ClientId, Kind, Opens};

/// A file's state in the lane.
#[derive(Debug, Default)]
pub(crate) struct InodeLane {
    /// [`Lease::holder`]; 0: none.
    poster: AtomicU32,
    /// The place on the board, plus 1; 0: none.
    slot: AtomicU32,
    /// [`Lease::is_volatile`].
    volatile: AtomicBool,
    /// [`Lease::is_stale`].
    stale: AtomicBool,
    /// A client held the lease at some time: since then the kernel does not always know the file's size.
    was_posted_to: AtomicBool,
    state: Mutex<LaneState>,
}

/// The state under the lock.
#[derive(Default)]
pub(super) struct LaneState {
    pub(super) opens: Opens,
    pub(super) lease: Lease,
    /// Callbacks to run when no revocation is under way.
    pub(super) waiting: Vec<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for LaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneState({:?}, {:?})", self.lease, self.opens)
    }
}

/// An open description's state in the lane. Its lock is taken before the inode's.
#[derive(Debug, Default)]
pub(crate) struct DescriptionLane {
    kind: Mutex<Kind>,
}

impl InodeLane {
    /// The state of a file that is out of the lane. `posted`: a client held its lease before.
    pub(crate) fn resumed(posted: bool) -> InodeLane {
        InodeLane { was_posted_to: AtomicBool::new(posted), ..InodeLane::default() }
    }

    /// Whether the file is out of the lane and nothing is under way: then [`InodeLane::was_posted_to`] is all that must be
    /// kept of this state.
    pub(crate) fn is_out(&self) -> bool {
        let state = self.state();
        let lease = &state.lease;
        let in_use = lease.mode().is_some() || lease.is_being_revoked() || state.opens.any();
        let left = self.poster().is_some() || self.slot().is_some();
        !in_use && !left && !self.is_volatile() && !self.is_stale()
    }

    /// The client that may have posted to the file.
    pub(crate) fn poster(&self) -> Option<ClientId> {
        match self.poster.load(Ordering::Acquire) {
            0 => None,
            client => Some(client),
        }
    }

    /// The file's place on the board.
    pub(crate) fn slot(&self) -> Option<u32> {
        self.slot.load(Ordering::Acquire).checked_sub(1)
    }

    /// Whether the file's attributes may change without the kernel's knowledge.
    pub(crate) fn is_volatile(&self) -> bool {
        self.volatile.load(Ordering::Acquire)
    }

    /// Whether the kernel may hold outdated pages.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Whether a client held the file's lease at some time, so that the kernel may not know the file's size.
    pub(crate) fn was_posted_to(&self) -> bool {
        self.was_posted_to.load(Ordering::Acquire)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_slot(&self, slot: Option<u32>) {
        self.slot.store(slot.map_or(0, |slot| slot + 1), Ordering::Release);
    }

    /// Copies a change of the lease to where threads read it without the lock. Call it under the lock, and before a client is
    /// told that it may post.
    pub(super) fn publish(&self, lease: &Lease) {
        self.volatile.store(lease.is_volatile(), Ordering::Release);
        self.stale.store(lease.is_stale(), Ordering::Release);
        if lease.holder().is_some() {
            self.was_posted_to.store(true, Ordering::Release);
        }
        self.poster.store(lease.holder().unwrap_or(0), Ordering::Release);
    }
}

impl DescriptionLane {
    pub(super) fn kind(&self) -> MutexGuard<'_, Kind> {
        self.kind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the description is a direct one: used by the kernel, bypassing its page cache, so that programs may post to
    /// the file meanwhile.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(*self.kind(), Kind::Direct)
    }
}
