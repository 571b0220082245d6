//! Segments: the pieces of a log in which it is freed.
//!
//! A holder needs the log from a segment on. There are few segments, so a page stores the segment of its oldest
//! record in four bytes, and a holder's counts stay short however many records it has. Invariant: a segment
//! begins at the start of a group, so that its first group names the holders of its records.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use weir_log::Lsn;

/// The share of the log that is one segment.
const SEGMENT_SHARE: u64 = 64;

/// A segment of the log, by its number. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment(NonZeroU32);

/// Where the segments begin.
#[derive(Debug)]
pub struct Segments {
    /// The number of the first of `starts`.
    first: u32,
    starts: VecDeque<Lsn>,
    bytes_min: u64,
}

impl Segments {
    /// Of a log that holds `capacity` bytes and whose next group begins at `head`.
    pub fn new(capacity: u64, head: Lsn) -> Segments {
        Segments { first: 1, starts: [head].into(), bytes_min: capacity / SEGMENT_SHARE }
    }

    /// The segment of the log's last group, which begins at `head`.
    pub fn of_group(&mut self, head: Lsn) -> Segment {
        let last = *self.starts.back().expect("there is a segment");
        if head.0 - last.0 >= self.bytes_min.max(1) {
            self.starts.push_back(head);
        }
        self.nth(self.starts.len() - 1)
    }

    /// The segment that contains a position that is still needed.
    pub fn of(&self, lsn: Lsn) -> Segment {
        let next = self.starts.partition_point(|&start| start <= lsn);
        self.nth(next.checked_sub(1).expect("a needed position is in a segment that is kept"))
    }

    /// Where a segment that is still needed begins.
    pub fn start(&self, segment: Segment) -> Lsn {
        self.starts[(segment.0.get() - self.first) as usize]
    }

    /// Nothing before this position is needed any more.
    pub fn freed(&mut self, tail: Lsn) {
        while self.starts.get(1).is_some_and(|&next| next <= tail) {
            self.starts.pop_front();
            self.first += 1;
        }
    }

    fn nth(&self, nth: usize) -> Segment {
        let number = self.first + nth as u32;
        Segment(NonZeroU32::new(number).expect("segments are counted from 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> Segments {
        Segments::new(64 * 100, Lsn(1000))
    }

    #[test]
    fn segments_begin_with_groups_and_are_no_shorter_than_their_share() {
        let mut segments = segments();
        let first = segments.of_group(Lsn(1000));
        assert_eq!(segments.of_group(Lsn(1099)), first);
        let second = segments.of_group(Lsn(1130));
        assert!(second > first);
        assert_eq!(segments.of_group(Lsn(1229)), second);
        assert_eq!((segments.start(first), segments.start(second)), (Lsn(1000), Lsn(1130)));
        assert_eq!((segments.of(Lsn(1129)), segments.of(Lsn(1130))), (first, second));
        assert_eq!(segments.of(Lsn(9999)), second);
    }

    #[test]
    fn freed_segments_are_forgotten_and_numbers_stay() {
        let mut segments = segments();
        let last = (0..10).map(|nth| segments.of_group(Lsn(1000 + 100 * nth))).last().unwrap();
        segments.freed(Lsn(1899));
        assert_eq!(segments.starts.len(), 2);
        assert_eq!((segments.of(Lsn(1950)), segments.start(last)), (last, Lsn(1900)));
        segments.freed(Lsn(9999));
        assert_eq!(segments.start(last), Lsn(1900), "the last one is kept: groups may join it");
    }
}
