//! A file's and an open description's standing in the lane: the lease and the counts under one lock, and beside it what other
//! threads read of them without the lock.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lane::lease::Lease;
use crate::lane::opens::{ClientId, Kind, Opens};

/// A file's standing in the lane.
#[derive(Debug, Default)]
pub(crate) struct InodeLane {
    /// [`Lease::holder`]; 0: nobody.
    poster: AtomicU32,
    /// The place on the board, plus 1; 0: none.
    slot: AtomicU32,
    /// [`Lease::is_volatile`].
    volatile: AtomicBool,
    /// [`Lease::is_stale`].
    stale: AtomicBool,
    /// A client held the lease: where the file ends the kernel does not always know since.
    was_posted_to: AtomicBool,
    standing: Mutex<Standing>,
}

/// What the lock protects.
#[derive(Default)]
pub(super) struct Standing {
    pub(super) opens: Opens,
    pub(super) lease: Lease,
    /// To be run when no revocation is under way.
    pub(super) waiting: Vec<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Standing({:?}, {:?})", self.lease, self.opens)
    }
}

/// How an open description stands. Its lock is taken before the inode's.
#[derive(Debug, Default)]
pub(crate) struct OfDescription {
    kind: Mutex<Kind>,
}

impl InodeLane {
    /// Of a file that is out of the lane; whether a client held its lease before.
    pub(crate) fn resumed(posted: bool) -> InodeLane {
        InodeLane { was_posted_to: AtomicBool::new(posted), ..InodeLane::default() }
    }

    /// Whether the file is out of the lane, and nothing of it under way: then only whether it was posted to
    /// need be remembered of it.
    pub(crate) fn is_out(&self) -> bool {
        let standing = self.standing();
        let lease = &standing.lease;
        let in_use = lease.mode().is_some() || lease.is_being_revoked() || standing.opens.any();
        let left = self.poster().is_some() || self.slot().is_some();
        !in_use && !left && !self.is_volatile() && !self.is_stale()
    }

    /// Who may have posted to the file.
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

    /// Whether the file's attributes change without the kernel.
    pub(crate) fn is_volatile(&self) -> bool {
        self.volatile.load(Ordering::Acquire)
    }

    /// Whether the kernel may hold pages that are not what they were.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Whether the kernel need not know where the file ends.
    pub(crate) fn was_posted_to(&self) -> bool {
        self.was_posted_to.load(Ordering::Acquire)
    }

    pub(super) fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_slot(&self, slot: Option<u32>) {
        self.slot.store(slot.map_or(0, |slot| slot + 1), Ordering::Release);
    }

    /// Makes a change of the lease known to who does not take the lock. Under the lock; before a client is told that it may
    /// post.
    pub(super) fn publish(&self, lease: &Lease) {
        self.volatile.store(lease.is_volatile(), Ordering::Release);
        self.stale.store(lease.is_stale(), Ordering::Release);
        if lease.holder().is_some() {
            self.was_posted_to.store(true, Ordering::Release);
        }
        self.poster.store(lease.holder().unwrap_or(0), Ordering::Release);
    }
}

impl OfDescription {
    pub(super) fn kind(&self) -> MutexGuard<'_, Kind> {
        self.kind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether programs may post to the file while this description is used by the kernel.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(*self.kind(), Kind::Direct)
    }
}
