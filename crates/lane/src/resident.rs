//! Counts how much of the clients' regions is resident in the daemon, so that it can be bounded.
//!
//! A page of shared memory counts as resident in every process that has touched it. The daemon reads each client's ring
//! from one end to the other, so after a mebibyte of writes the whole ring is resident, although the daemon
//! does not need it any more.
//!
//! Memory is counted in windows of [`WINDOW_BYTES`], for the kernel maps as much around a page that faults. A window is counted
//! once, by the first touch after it was last let go.
//!
//! Invariant: a window that is resident is counted, but for those that were touched since [`Windows::touch`] was last called:
//! threads touch first and count then, and [`Windows::forget`] is called before the memory is let go.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What one fault makes resident at most: the kernel's default (`fault_around_bytes`).
pub(crate) const WINDOW_BYTES: usize = 64 << 10;

/// Rings of all clients are let go when more of them is resident.
const RINGS_BYTES_MAX: usize = 8 << 20;
/// The same for the rest of the regions. With fewer than a hundred clients it is less, and stays.
const WORDS_BYTES_MAX: usize = 16 << 20;

/// What a part of a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The rings' bytes.
    Rings,
    /// All before them: words that both sides write, counters and marks.
    Words,
}

/// What is resident of all regions of one lane, bytes.
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

    /// The part of which too much is resident.
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

/// Which windows of one region are counted.
#[derive(Debug)]
pub(crate) struct Windows {
    counted: Box<[AtomicU64]>,
    /// The first window that has rings' bytes alone.
    rings_from: usize,
    sum: Arc<Resident>,
}

impl Windows {
    /// Of a region whose rings begin at `rings_at`; none is counted.
    pub(crate) fn new(len: usize, rings_at: usize, sum: Arc<Resident>) -> Windows {
        let words = len.div_ceil(WINDOW_BYTES).div_ceil(u64::BITS as usize);
        let counted = (0..words).map(|_| AtomicU64::new(0)).collect();
        Windows { counted, rings_from: rings_at.div_ceil(WINDOW_BYTES), sum }
    }

    /// Bytes of the region were touched.
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

    /// Counts nothing of a part any more. Returns where it lies, bytes, if any of it was counted: it must be let go now.
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
    fn a_window_is_counted_once_until_it_is_let_go() {
        let sum = Arc::new(Resident::default());
        let windows = Windows::new(LEN, RINGS_AT, Arc::clone(&sum));
        windows.touch(0..1);
        windows.touch(100..4096);
        assert_eq!(sum.bytes(), WINDOW_BYTES);
        // The first ring's beginning shares a window with what is before it.
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
    fn there_is_too_much_when_all_regions_together_have_more_than_the_bound() {
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
