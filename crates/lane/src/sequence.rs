//! A sequence lock's word (Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012).
//!
//! One writer; readers at any time, who write nothing. The number is odd while what it guards changes, and never
//! the same twice.

use crate::sync::{AtomicU64, Ordering, fence};

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Sequence(AtomicU64);

impl Sequence {
    #[cfg(loom)]
    pub(crate) fn new() -> Sequence {
        Sequence(AtomicU64::new(0))
    }

    /// Writer: what is guarded changes from now on. To be given to [`Sequence::end`].
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        let number = self.0.load(Ordering::Relaxed);
        assert!(number.is_multiple_of(2), "two changes at once under one sequence lock");
        self.0.store(number + 1, Ordering::Relaxed);
        // Release: who sees what is written next sees that the number is odd.
        fence(Ordering::Release);
        number
    }

    /// Writer: it is whole again.
    #[inline]
    pub(crate) fn end(&self, begun: u64) {
        self.0.store(begun + 2, Ordering::Release);
    }

    /// Reader: to be asked first; `None` while it changes.
    #[inline]
    pub(crate) fn read(&self) -> Option<u64> {
        let number = self.0.load(Ordering::Acquire);
        number.is_multiple_of(2).then_some(number)
    }

    /// Reader: whether what was read since [`Sequence::read`] returned `number` is of one time.
    #[inline]
    pub(crate) fn is_still(&self, number: u64) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == number
    }
}
