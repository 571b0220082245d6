//! Atomics: those of the standard library, or those of the model checker.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// To be called between a store and a load, both sequentially consistent, where one of two threads must see the
/// other's store. The orderings alone suffice; the model checker supports sequential consistency for fences only.
#[inline(always)]
pub(crate) fn store_before_load() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
