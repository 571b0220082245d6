//! The write sequence: numbers the writes of a client's threads in the order in which they were made.
//!
//! A write takes its number before it is published. The server reads the next number, the *cut*, before it looks at
//! any ring. If one write follows another, the earlier one was published before the later one took its number. So a
//! server whose cut is above the later write's number finds the earlier write in its ring. Writes whose number is the
//! cut or above are left to the next scan.

use crate::sync::{AtomicU64, Ordering};

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct WriteSequence(AtomicU64);

impl WriteSequence {
    #[cfg(loom)]
    pub(crate) fn new() -> WriteSequence {
        WriteSequence(AtomicU64::new(0))
    }

    /// Client: the number of a write that is about to be published.
    #[inline]
    pub(crate) fn take(&self) -> u64 {
        // Release, for the server: writes that this thread knows to be published are published. Acquire, for the
        // thread that takes the next number.
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Sets the next number to any value.
    #[cfg(any(all(test, not(loom)), fuzzing))]
    pub(crate) fn set(&self, next: u64) {
        self.0.store(next, Ordering::SeqCst);
    }

    /// Server: the next number, above all numbers taken so far.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
