//! Atomics: those of the standard library, or those of the model checker.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Stands between a store and a load, both sequentially consistent, of which one in two threads must see the
/// other's store. That they are so is enough; the model checker knows only fences to be.
#[inline(always)]
pub(crate) fn store_before_load() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
