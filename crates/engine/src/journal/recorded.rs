//! Which pages may have records in the log that would be replayed.
//!
//! If unlogged bytes of such a page went home, recovery would overwrite them with older ones. For all other pages that
//! is safe. Kept as two bitmaps by a hash of the page, one for each half of the log's content: a page that has records is
//! always found, and few of the others are.

use weir_log::Lsn;

use crate::place::Place;

/// Bytes of the log for each bit of a bitmap: a record of a small write takes about 550 bytes.
const LOG_BYTES_PER_BIT: u64 = 64;

/// Bits of a bitmap: 4 MiB of memory, which are set to zero under the engine's lock. In a larger log more of the other pages are found.
const BITS_MAX: u64 = 1 << 25;

#[derive(Debug)]
pub(crate) struct Recorded {
    /// Pages with records before `newer_from`.
    older: Box<[u64]>,
    /// Pages with records from there on.
    newer: Box<[u64]>,
    newer_from: Lsn,
}

impl Recorded {
    /// The pages of a log of `capacity` bytes in which nothing is to be replayed.
    pub(crate) fn new(capacity: u64, position: Lsn) -> Recorded {
        let bits = (capacity / LOG_BYTES_PER_BIT).min(BITS_MAX).next_power_of_two().max(64);
        let words = vec![0; (bits / 64) as usize].into_boxed_slice();
        Recorded { older: words.clone(), newer: words, newer_from: position }
    }

    /// A record of the page was appended.
    pub(crate) fn insert(&mut self, place: Place) {
        let (word, bit) = self.bit(place);
        self.newer[word] |= bit;
    }

    /// Whether records of the page may have to be replayed.
    pub(crate) fn may_hold(&self, place: Place) -> bool {
        let (word, bit) = self.bit(place);
        (self.older[word] | self.newer[word]) & bit != 0
    }

    /// Records before `tail` are not replayed any more; the next record goes to `position`.
    pub(crate) fn freed(&mut self, tail: Lsn, position: Lsn) {
        if tail >= self.newer_from {
            std::mem::swap(&mut self.older, &mut self.newer);
            self.newer.fill(0);
            self.newer_from = position;
        }
    }

    fn bit(&self, (file, number): Place) -> (usize, u64) {
        let key = number ^ (u64::from(file.0) << 40) ^ u64::from(file.0);
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        ((hash / 64) as usize % self.newer.len(), 1 << (hash % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::FileIx;

    #[test]
    fn pages_are_known_until_the_tail_has_passed_their_records() {
        let mut recorded = Recorded::new(1 << 20, Lsn(0));
        let place = |number| (FileIx(3), number);
        recorded.insert(place(1));
        recorded.freed(Lsn(0), Lsn(100));
        recorded.insert(place(2));
        assert!(recorded.may_hold(place(1)) && recorded.may_hold(place(2)));
        recorded.freed(Lsn(99), Lsn(200));
        assert!(recorded.may_hold(place(1)), "its record may be right before the tail's end");
        recorded.freed(Lsn(100), Lsn(200));
        assert!(!recorded.may_hold(place(1)) && recorded.may_hold(place(2)));
        recorded.freed(Lsn(200), Lsn(300));
        assert!(!recorded.may_hold(place(2)));
    }

    #[test]
    fn a_large_log_takes_no_more_memory() {
        let words = |capacity| Recorded::new(capacity, Lsn(0)).newer.len() as u64;
        assert_eq!(words(1 << 20), (1 << 20) / LOG_BYTES_PER_BIT / 64);
        assert_eq!(words(2 << 30), BITS_MAX / 64);
        assert_eq!(words(1 << 36), BITS_MAX / 64);
        let mut recorded = Recorded::new(1 << 36, Lsn(0));
        let place = |number| (FileIx(3), number);
        for number in 0..1000 {
            recorded.insert(place(number << 20));
        }
        assert!((0..1000).all(|number| recorded.may_hold(place(number << 20))));
    }

    #[test]
    fn few_other_pages_are_found() {
        let mut recorded = Recorded::new(64 << 20, Lsn(0));
        for number in 0..100_000 {
            recorded.insert((FileIx(1), 7 * number));
        }
        let wrong = (0..100_000u64).filter(|n| recorded.may_hold((FileIx(2), 7 * n))).count();
        assert!(wrong < 15_000, "{wrong}");
    }
}
