//! A sequence lock (Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012).
//!
//! One writer; readers read at any time and write nothing. The number is odd while the guarded data changes, and
//! each change raises it.

use crate::sync::{AtomicU64, Ordering, fence};

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct SequenceLock(AtomicU64);

impl SequenceLock {
    #[cfg(loom)]
    pub(crate) fn new() -> SequenceLock {
        SequenceLock(AtomicU64::new(0))
    }

    /// Writer: the guarded data changes from now on. Pass the result to [`SequenceLock::end`].
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        let number = self.0.load(Ordering::Relaxed);
        assert!(number.is_multiple_of(2), "two changes at once under one sequence lock");
        self.0.store(number + 1, Ordering::Relaxed);
        // Release: a reader that sees what is written next sees that the number is odd.
        fence(Ordering::Release);
        number
    }

    /// Writer: the guarded data is consistent again.
    #[inline]
    pub(crate) fn end(&self, begun: u64) {
        self.0.store(begun + 2, Ordering::Release);
    }

    /// Reader: call before reading; `None` while the guarded data changes.
    #[inline]
    pub(crate) fn read(&self) -> Option<u64> {
        let number = self.0.load(Ordering::Acquire);
        number.is_multiple_of(2).then_some(number)
    }

    /// Reader: whether the data did not change since [`SequenceLock::read`] returned `number`, so that what was read is
    /// consistent.
    #[inline]
    pub(crate) fn is_still(&self, number: u64) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == number
    }
}
