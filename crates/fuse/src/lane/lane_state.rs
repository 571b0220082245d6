//! A file's and an open description's state in the lane: the lease and the counts under one lock, and copies of some of them
//! that other threads read without the lock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
    direct_writes: Mutex<VecDeque<DirectWrite>>,
    state: Mutex<LaneState>,
}

/// Most requests of writes that are remembered of a file, of all threads; and for how long. The kernel sets a size right after the answer, or not at all.
const WRITES_MAX: usize = 256;
const WRITES_AGE: Duration = Duration::from_secs(30);

/// A request of a write(2) past the kernel's page cache, by the range that the kernel has given it.
#[derive(Clone, Copy, Debug)]
struct DirectWrite {
    /// The thread, and the description's handle.
    by: (u32, u64),
    from: u64,
    to: u64,
    appends: bool,
    /// The file's size before it.
    size: u64,
    failed: bool,
    at: Instant,
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

    /// A request of a write by the kernel past its page cache has come, or has failed, when the file had this size. If one of a call fails, and the call
    /// would have extended the file, the kernel next sets, in the same call, the size that the file had before (fuse_do_truncate): the one that it
    /// knows, which lacks what was posted.
    pub(crate) fn direct_write(
        &self,
        by: (u32, u64),
        (from, to): (u64, u64),
        appends: bool,
        size: u64,
        failed: bool,
    ) {
        // One that extends nothing leaves nothing that is to be taken back.
        if !self.was_posted_to() || (!failed && (appends || to <= size)) {
            return;
        }
        let mut writes = self.direct_writes();
        if writes.len() == WRITES_MAX {
            let least = writes.iter().position(|write| !write.failed).unwrap_or(0);
            writes.remove(least);
        }
        let at = Instant::now();
        writes.push_back(DirectWrite { by, from, to, appends, size, failed, at });
    }

    /// A thread has made another call than a write. 0: it is not known which.
    pub(crate) fn write_is_over(&self, thread: u32) {
        if self.was_posted_to() && thread != 0 {
            self.direct_writes().retain(|write| write.by.0 != thread);
        }
    }

    /// A thread sets the size of the file, which has the size `now`, by this handle, and nothing else. If that is what the kernel does after a write that failed: the
    /// size that the file is to have instead.
    pub(crate) fn size_after_failure(&self, by: (u32, u64), set: u64, now: u64) -> Option<u64> {
        if !self.was_posted_to() {
            return None;
        }
        let mut writes = self.direct_writes();
        let own = writes.iter().filter(|write| write.by == by);
        let own: Vec<DirectWrite> = own.copied().collect();
        // Whoever sets a size ends what the kernel knows of sizes before.
        writes.retain(|write| write.by.0 != by.0 && write.failed);
        drop(writes);
        let last = own.iter().rfind(|write| write.failed)?;
        // The kernel sends a long write as several requests at once.
        let end = own.iter().map(|write| write.to).max()?;
        let appended_at = own.iter().filter(|write| write.failed).map(|write| write.from).min();
        let is_kernels = match last.appends {
            // The kernel appends at the size that it knows.
            true => appended_at == Some(set),
            false => set < end,
        };
        if !is_kernels || set >= now || last.at.elapsed() > WRITES_AGE {
            return None;
        }
        // What the other requests of the call have added goes, unless more was added since.
        let is_of_call = |write: &&DirectWrite| !write.appends && write.to > set;
        let has_failed =
            |range| own.iter().any(|other| other.failed && (other.from, other.to) == range);
        let of_call = own.iter().filter(is_of_call);
        let added = of_call.clone().filter(|write| !has_failed((write.from, write.to)));
        match (of_call.map(|write| write.size).min(), added.map(|write| write.to).max()) {
            (Some(before), Some(end)) if end == now => Some(before.max(set)),
            _ => Some(now),
        }
    }

    /// The size of the file is set: what was written before says nothing of the size that a write finds.
    pub(crate) fn size_is_set(&self) {
        if self.was_posted_to() {
            self.direct_writes().retain(|write| write.failed);
        }
    }

    fn direct_writes(&self) -> MutexGuard<'_, VecDeque<DirectWrite>> {
        self.direct_writes.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;

    const BY: (u32, u64) = (7, 1);

    #[test]
    fn a_size_that_the_kernel_sets_after_a_failed_write_is_told_from_others() {
        let lane = InodeLane::resumed(true);
        let comes = |range| lane.direct_write(BY, range, false, 1000, false);
        let fails = |range, appends| lane.direct_write(BY, range, appends, 1000, true);
        let sets = |by, size, now| lane.size_after_failure(by, size, now);
        // The kernel appends at the size that it knows.
        fails((100, 200), true);
        assert_eq!(sets((8, 1), 100, 1000), None, "another thread");
        assert_eq!(sets((7, 2), 100, 1000), None, "by another description");
        fails((100, 200), true);
        assert_eq!(sets(BY, 100, 1000), Some(1000));
        assert_eq!(sets(BY, 100, 1000), None, "the program's own, after the kernel's");
        fails((100, 200), true);
        assert_eq!(sets(BY, 150, 1000), None);
        // A place that the program has chosen: three requests of one call, of which the first fails.
        for range in [(900, 1100), (1100, 1300), (1300, 1500)] {
            comes(range);
        }
        fails((900, 1100), false);
        assert_eq!(sets(BY, 500, 1500), Some(1000), "the others are taken back");
        for range in [(900, 1100), (1100, 1300)] {
            comes(range);
        }
        fails((1100, 1300), false);
        assert_eq!(sets(BY, 500, 2000), Some(2000), "somebody has appended since");
        fails((100, 200), false);
        assert_eq!(sets(BY, 200, 1000), None, "it would not have been extended");
        fails((100, 200), false);
        lane.write_is_over(7);
        assert_eq!(sets(BY, 50, 1000), None);
        comes((900, 1100));
        assert_eq!(sets(BY, 0, 1100), None, "nothing has failed");
        let known = InodeLane::default();
        known.direct_write(BY, (100, 200), true, 100, true);
        assert_eq!(known.size_after_failure(BY, 100, 150), None, "the kernel knows its size");
    }
}
