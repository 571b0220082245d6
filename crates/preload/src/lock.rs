//! The lock for putting descriptions into the lane and taking them out, and for connecting to daemons.
//!
//! Its holder is known by its thread number, so that a signal handler below its holder finds that out, and a forked
//! child, which does not have the thread that held it, can release it.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// A lock: the thread (gettid(2)) that attaches a description, revokes it, or leaves the lane; 0 if none.
/// Reads and writes try to take it once or a few times at most; calls that change credentials wait for it.
static ATTACHING: AtomicU32 = AtomicU32::new(0);

/// Tries to take [`ATTACHING`]. False if a thread holds it, possibly this one, below a signal handler.
pub(crate) fn try_lock() -> bool {
    let tid = sys::gettid();
    ATTACHING.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Takes [`ATTACHING`], waiting at most 5 s for its holder: longer than a connection takes. False if the time
/// is over, or if this thread holds it, below a signal handler.
pub(crate) fn lock() -> bool {
    const YIELDS: i64 = 100;
    const SLEEP_NS: i64 = 200_000;
    let tid = sys::gettid();
    for turn in 0..YIELDS + 5_000_000_000 / SLEEP_NS {
        match ATTACHING.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(holder) if holder == tid => return false,
            Err(_) if turn < YIELDS => sys::sched_yield(),
            Err(_) => sys::sleep(SLEEP_NS),
        }
    }
    false
}

/// Releases [`ATTACHING`]. Also in a forked child, which does not have the thread that held it.
pub(crate) fn unlock() {
    ATTACHING.store(0, Ordering::Release);
}

/// Whether this thread holds [`ATTACHING`].
pub(crate) fn is_held_here() -> bool {
    ATTACHING.load(Ordering::Relaxed) == sys::gettid()
}
