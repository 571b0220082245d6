//! Counts how much of the clients' regions is resident in the daemon, so that it can be bounded.
//!
//! A page of shared memory counts as resident in every process that has touched it. The daemon reads each
//! client's ring from start to end, so after a mebibyte of writes the whole ring is resident, although the
//! daemon no longer needs it.
//!
//! Memory is counted in windows of `WINDOW_BYTES`, since a page fault maps up to that much around the page.
//! A window is counted once, at the first touch after it was last unmapped.
//!
//! Invariant: every resident window is counted, except those touched since the last call of
//! `Windows::touch`. Threads touch memory before they count it, and `Windows::forget` is called before
//! the memory is unmapped.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Upper bound of what one fault makes resident: the kernel's default (`fault_around_bytes`).
pub(crate) const WINDOW_BYTES: usize = 64 << 10;

/// All clients' rings are unmapped when more of them than this is resident.
const RINGS_BYTES_MAX: usize = 8 << 20;
/// The same bound for the rest of the regions. Fewer than a hundred clients stay below it.
const WORDS_BYTES_MAX: usize = 16 << 20;

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The rings' data.
    Rings,
    /// Everything before that: words that both sides write, counters and marks.
    Words,
}

/// Resident bytes of all regions of one lane.
#[derive(Debug, Default)]
pub struct Resident {
    rings: AtomicUsize,
    words: AtomicUsize,
}

impl Resident {
    fn of(&self, part: Part) -> &AtomicUsize {
        match part {
            Part::Rings => &self.rings,
            Part::Words => &self.words,
        }
    }

    /// The part that exceeds its bound, if any.
    #[inline]
    pub(crate) fn excess(&self) -> Option<Part> {
        if self.rings.load(Ordering::Relaxed) > RINGS_BYTES_MAX {
            return Some(Part::Rings);
        }
        (self.words.load(Ordering::Relaxed) > WORDS_BYTES_MAX).then_some(Part::Words)
    }

    /// Bytes resident.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.rings.load(Ordering::Relaxed) + self.words.load(Ordering::Relaxed)
    }
}

/// The windows of one region that are counted.
#[derive(Debug)]
pub(crate) struct Windows {
    counted: Box<[AtomicU64]>,
    /// The first window that holds only rings' data.
    rings_from: usize,
    sum: Arc<Resident>,
}

impl Windows {
    /// For a region whose rings begin at `rings_at`; no window is counted yet.
    pub(crate) fn new(len: usize, rings_at: usize, sum: Arc<Resident>) -> Windows {
        let words = len.div_ceil(WINDOW_BYTES).div_ceil(u64::BITS as usize);
        let counted = (0..words).map(|_| AtomicU64::new(0)).collect();
        Windows { counted, rings_from: rings_at.div_ceil(WINDOW_BYTES), sum }
    }

    /// Counts bytes of the region that were touched.
    #[inline]
    pub(crate) fn touch(&self, bytes: Range<usize>) {
        for window in bytes.start / WINDOW_BYTES..bytes.end.div_ceil(WINDOW_BYTES) {
            let (word, bit) = (&self.counted[window / 64], 1 << (window % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                self.count(window);
            }
        }
    }

    #[cold]
    fn count(&self, window: usize) {
        let (word, bit) = (&self.counted[window / 64], 1 << (window % 64));
        if word.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            let part = if window < self.rings_from { Part::Words } else { Part::Rings };
            self.sum.of(part).fetch_add(WINDOW_BYTES, Ordering::Relaxed);
        }
    }

    /// Resets a part's count. Returns the part's byte range if any of it was counted: the caller must unmap
    /// it now.
    pub(crate) fn forget(&self, part: Part) -> Option<Range<usize>> {
        let windows = match part {
            Part::Words => 0..self.rings_from,
            Part::Rings => self.rings_from..self.counted.len() * 64,
        };
        let mut forgotten = 0;
        for (at, word) in self.counted.iter().enumerate() {
            let before_rings = match self.rings_from.saturating_sub(at * 64) {
                bits @ 0..64 => (1u64 << bits) - 1,
                _ => u64::MAX,
            };
            let of_part = if part == Part::Words { before_rings } else { !before_rings };
            if word.load(Ordering::Relaxed) & of_part != 0 {
                forgotten += (word.fetch_and(!of_part, Ordering::AcqRel) & of_part).count_ones();
            }
        }
        self.sum.of(part).fetch_sub(forgotten as usize * WINDOW_BYTES, Ordering::Relaxed);
        (forgotten > 0).then(|| windows.start * WINDOW_BYTES..windows.end * WINDOW_BYTES)
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.forget(Part::Rings);
        self.forget(Part::Words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RINGS_AT: usize = WINDOW_BYTES + 4096;
    const LEN: usize = RINGS_AT + (8 << 20);

    #[test]
    fn a_window_is_counted_once_until_it_is_unmapped() {
        let sum = Arc::new(Resident::default());
        let windows = Windows::new(LEN, RINGS_AT, Arc::clone(&sum));
        windows.touch(0..1);
        windows.touch(100..4096);
        assert_eq!(sum.bytes(), WINDOW_BYTES);
        // The first ring's start shares a window with the words before it.
        windows.touch(RINGS_AT..2 * WINDOW_BYTES + 1);
        assert_eq!(sum.bytes(), 3 * WINDOW_BYTES);
        let rings = windows.forget(Part::Rings).expect("one window of rings was counted");
        assert!(rings.start == 2 * WINDOW_BYTES && rings.end >= LEN);
        assert_eq!(windows.forget(Part::Rings), None);
        assert_eq!(sum.bytes(), 2 * WINDOW_BYTES);
        windows.touch(LEN - 1..LEN);
        assert_eq!(sum.bytes(), 3 * WINDOW_BYTES);
        drop(windows);
        assert_eq!(sum.bytes(), 0);
    }

    #[test]
    fn the_bound_applies_to_all_regions_together() {
        let sum = Arc::new(Resident::default());
        let windows: Vec<_> =
            (0..3).map(|_| Windows::new(LEN, RINGS_AT, Arc::clone(&sum))).collect();
        for windows in &windows[..2] {
            windows.touch(2 * WINDOW_BYTES..2 * WINDOW_BYTES + RINGS_BYTES_MAX / 2);
        }
        assert_eq!(sum.excess(), None);
        windows[2].touch(LEN - 1..LEN);
        assert_eq!(sum.excess(), Some(Part::Rings));
        for windows in &windows {
            windows.forget(Part::Rings);
        }
        assert_eq!(sum.excess(), None);
    }
}
