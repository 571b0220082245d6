//! The doorbell: whether a client that posts must wake the daemon.
//!
//! A client reads the doorbell after it published an entry; the daemon sets the doorbell to [`ASLEEP`] before it looks
//! at the rings a last time. So either the client sees that the daemon sleeps, or the daemon sees the entry. The client
//! that changes the doorbell to [`RUNG`] wakes the daemon.
//!
//! That client may be killed before it wakes the daemon, and the client's other processes then do not ring again. So a
//! sleeping daemon still looks at the rings at long intervals.

use crate::sync::{AtomicU32, Ordering, store_before_load};

/// The daemon sleeps until it is woken.
const ASLEEP: u32 = 0;
/// The daemon looks at the rings at its interval.
const POLLING: u32 = 1;
/// A client is waking the daemon.
const RUNG: u32 = 2;

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Doorbell(AtomicU32);

impl Doorbell {
    #[cfg(loom)]
    pub(crate) fn new() -> Doorbell {
        Doorbell(AtomicU32::new(POLLING))
    }

    /// Client, after it published an entry: whether it must wake the daemon. `is_filling`: the ring is more than half
    /// full, and the daemon should not wait for its interval.
    #[inline]
    pub(crate) fn must_wake(&self, is_filling: bool) -> bool {
        store_before_load();
        match self.0.load(Ordering::SeqCst) {
            POLLING if is_filling => self.ring(POLLING),
            ASLEEP => self.ring(ASLEEP),
            _ => false,
        }
    }

    /// Whether this call rang.
    #[cold]
    fn ring(&self, from: u32) -> bool {
        self.0.compare_exchange(from, RUNG, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Daemon: it looks at the rings at its interval from now on.
    #[cfg_attr(loom, expect(dead_code))]
    pub(crate) fn start_polling(&self) {
        self.0.store(POLLING, Ordering::SeqCst);
    }

    /// Daemon: it must be woken from now on. It must look at the rings once more after this call.
    pub(crate) fn stop_polling(&self) {
        self.0.store(ASLEEP, Ordering::SeqCst);
        store_before_load();
    }
}
