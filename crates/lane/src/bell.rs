//! The bell: whether who posts must wake the daemon.
//!
//! Who posts looks at the bell after it published; the daemon says that it sleeps before it looks at the rings a
//! last time. One of both sees the other. Whoever changes the bell to [`RUNG`] wakes the daemon.
//!
//! Who rang may be killed before the daemon is woken, and other processes of the client then do not ring again.
//! So a sleeping daemon looks once in a while all the same.

use crate::sync::{AtomicU32, Ordering, store_before_load};

/// The daemon sleeps until it is woken.
const ASLEEP: u32 = 0;
/// The daemon looks again within its interval.
const AWAKE: u32 = 1;
/// Somebody is waking the daemon.
const RUNG: u32 = 2;

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    #[cfg(loom)]
    pub(crate) fn new() -> Bell {
        Bell(AtomicU32::new(AWAKE))
    }

    /// Client, after it published: whether it must wake the daemon. `is_filling`: so much is posted that the
    /// daemon should not wait for its interval.
    #[inline]
    pub(crate) fn must_wake(&self, is_filling: bool) -> bool {
        store_before_load();
        match self.0.load(Ordering::SeqCst) {
            AWAKE if is_filling => self.ring(AWAKE),
            ASLEEP => self.ring(ASLEEP),
            _ => false,
        }
    }

    /// Whether it was this call that rang.
    #[cold]
    fn ring(&self, from: u32) -> bool {
        self.0.compare_exchange(from, RUNG, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Daemon: it looks within its interval.
    #[cfg_attr(loom, expect(dead_code))]
    pub(crate) fn stay_awake(&self) {
        self.0.store(AWAKE, Ordering::SeqCst);
    }

    /// Daemon: it must be woken from now on. It looks at the rings a last time after this.
    pub(crate) fn fall_asleep(&self) {
        self.0.store(ASLEEP, Ordering::SeqCst);
        store_before_load();
    }
}
