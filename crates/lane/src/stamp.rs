//! Stamps: in which order the writes of a client's threads were made.
//!
//! A write takes its stamp before it is published. The server reads what the next stamp is, the *cut*, before it
//! looks at any ring: a write that another one follows was published before that one took its stamp, so whoever
//! sees a cut above the later one's stamp sees the earlier one in its ring. What is stamped at or above the cut is
//! left to the next pass.

use crate::sync::{AtomicU64, Ordering};

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Stamps(AtomicU64);

impl Stamps {
    #[cfg(loom)]
    pub(crate) fn new() -> Stamps {
        Stamps(AtomicU64::new(0))
    }

    /// Client: the stamp of a write that is about to be published.
    #[inline]
    pub(crate) fn take(&self) -> u64 {
        // Release, for the server: what this thread knows to be published is. Acquire, for the next to take one.
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Puts it anywhere.
    #[cfg(any(all(test, not(loom)), fuzzing))]
    pub(crate) fn set(&self, next: u64) {
        self.0.store(next, Ordering::SeqCst);
    }

    /// Server: above all stamps taken so far.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
