//! The doorbell: whether a client that posts must wake the daemon.
//!
//! A client looks at the doorbell after it published an entry; the daemon says that it sleeps before it looks at the
//! rings a last time. So either the client sees that the daemon sleeps, or the daemon sees the entry. The client that
//! changes the doorbell to [`RUNG`] wakes the daemon.
//!
//! That client may be killed before it does, and other processes of the client then do not ring again. So a sleeping
//! daemon still looks at the rings once in a while.

use crate::sync::{AtomicU32, Ordering, store_before_load};

/// The daemon sleeps until it is woken.
const ASLEEP: u32 = 0;
/// The daemon looks again within its interval.
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

    /// Client, after it published an entry: whether it must wake the daemon. `is_filling`: the ring fills, and the
    /// daemon should not wait for its interval.
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

    /// Daemon: it looks at the rings within its interval.
    #[cfg_attr(loom, expect(dead_code))]
    pub(crate) fn start_polling(&self) {
        self.0.store(POLLING, Ordering::SeqCst);
    }

    /// Daemon: it must be woken from now on. It looks at the rings a last time after this.
    pub(crate) fn fall_asleep(&self) {
        self.0.store(ASLEEP, Ordering::SeqCst);
        store_before_load();
    }
}
