//! Whether the kernel may cache pages of a file, and which pages it must drop after a direct write.
//!
//! The kernel drops the cached pages of a range before it sends a direct write, and after a synchronous one. After an
//! asynchronous one (io_submit(2), io_uring) it does not: a page that was read in between keeps the old bytes. So Weir
//! has the kernel drop the pages before it answers the write. A file that is only used by direct I/O has no cached pages,
//! and this costs nothing; for a file that was used by buffered I/O before, it is done once.
//!
//! Invariant: in the states `NONE` and `NONE_AGAIN` no page is cached whose content is older than the last direct
//! write. Buffered accesses are noted before the engine is asked, direct writes look after it has answered.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// No buffered access so far.
const NONE: u8 = 0;
/// Pages may be cached, for the first time.
const CACHED: u8 = 1;
/// The kernel is dropping all pages, and none was cached since that began.
const DROPPING: u8 = 2;
/// The kernel has dropped all pages.
const NONE_AGAIN: u8 = 3;
/// Pages may be cached; buffered and direct accesses alternate.
const MIXED: u8 = 4;

/// Number of consecutive direct writes after which all pages are dropped again: buffered access has probably ended.
const QUIET: u32 = 256;

/// The pages that the kernel must drop before a direct write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    Nothing,
    /// The pages of the write.
    Range,
    /// All pages of the file; [`KernelPages::all_dropped`] is to follow.
    All,
}

/// One file's state.
#[derive(Debug, Default)]
pub(crate) struct KernelPages {
    state: AtomicU8,
    /// Direct writes since the last buffered access; counted in the state `MIXED`.
    quiet: AtomicU32,
}

impl KernelPages {
    /// The state of a file that was used before; `cached` says whether pages of it may be cached.
    pub(crate) fn resumed(cached: bool) -> KernelPages {
        KernelPages { state: AtomicU8::new(if cached { CACHED } else { NONE }), ..Self::default() }
    }

    /// Whether pages may be cached.
    pub(crate) fn may_be_cached(&self) -> bool {
        !matches!(self.state.load(Ordering::SeqCst), NONE | NONE_AGAIN)
    }

    /// The kernel reads or writes through its page cache. To be called before the data is read or changed.
    #[inline]
    pub(crate) fn buffered_access(&self) {
        let state = self.state.load(Ordering::SeqCst);
        if state == CACHED {
            return;
        }
        self.note(state);
    }

    fn note(&self, mut state: u8) {
        if self.quiet.load(Ordering::Relaxed) != 0 {
            self.quiet.store(0, Ordering::Relaxed);
        }
        while state != CACHED && state != MIXED {
            let next = if state == NONE { CACHED } else { MIXED };
            match self.state.compare_exchange(state, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    /// A direct write was applied.
    pub(crate) fn direct_write(&self) -> Stale {
        let state = self.state.load(Ordering::SeqCst);
        let drops_all = match state {
            NONE | NONE_AGAIN => return Stale::Nothing,
            CACHED => true,
            MIXED => self.quiet.fetch_add(1, Ordering::Relaxed) >= QUIET,
            _ => false,
        };
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        if drops_all && self.state.compare_exchange(state, DROPPING, success, failure).is_ok() {
            return Stale::All;
        }
        Stale::Range
    }

    /// The kernel has dropped all pages it had when [`KernelPages::direct_write`] asked for that.
    pub(crate) fn all_dropped(&self) {
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        // Fails if a page was cached in the meantime.
        let _ = self.state.compare_exchange(DROPPING, NONE_AGAIN, success, failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_buffered_writes_all_pages_are_dropped_once() {
        let pages = KernelPages::default();
        assert_eq!(pages.direct_write(), Stale::Nothing);
        pages.buffered_access();
        assert_eq!(pages.direct_write(), Stale::All);
        // Until they are dropped, another write may have stale pages.
        assert_eq!(pages.direct_write(), Stale::Range);
        pages.all_dropped();
        assert_eq!(pages.direct_write(), Stale::Nothing);
    }

    #[test]
    fn a_page_that_is_cached_while_all_are_dropped_counts() {
        let pages = KernelPages::default();
        pages.buffered_access();
        assert_eq!(pages.direct_write(), Stale::All);
        pages.buffered_access();
        pages.all_dropped();
        assert_eq!(pages.direct_write(), Stale::Range);
    }

    #[test]
    fn alternating_accesses_drop_only_the_range_until_buffered_ones_end() {
        let pages = KernelPages::default();
        pages.buffered_access();
        assert_eq!(pages.direct_write(), Stale::All);
        pages.all_dropped();
        for _ in 0..2 * QUIET {
            pages.buffered_access();
            assert_eq!(pages.direct_write(), Stale::Range);
        }
        let mut stale = (0..2 * QUIET).map(|_| pages.direct_write());
        let nth = stale.position(|stale| stale == Stale::All).unwrap();
        assert!(nth as u32 >= QUIET - 1, "{nth}");
        pages.all_dropped();
        assert_eq!(pages.direct_write(), Stale::Nothing);
    }
}
