//! Which pieces of the redo log are needed: by what of each file is not durable at home yet.
//!
//! A page whose content is in the log and not at home needs the log from its oldest such record on
//! (ARIES' *recLSN*). That is counted for each file, by *segments* of the log: few numbers, so that
//! a page needs four bytes for it and a file little more, however much of it is in the log.
//!
//! A content is *away* until it is home, *settling* until a sync of home begins that makes it
//! durable there, and *syncing* until that ends. A content that is dropped, by truncate for
//! example, settles at once: the operation that dropped it is done at home already. A failed sync
//! of home makes everything *lost* that was settling or syncing: home may have dropped it, and a later
//! successful sync does not cover it. It stays needed until it is rewritten at home (`repair`).
//!
//! Invariant: a segment begins where a group does, which names the files of its records.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use smallvec::SmallVec;
use weir_log::Lsn;

/// The log's share that is one segment.
const SEGMENT_SHARE: u64 = 64;

/// A segment of the log, by its number. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogSegment(NonZeroU32);

/// Where the segments begin.
#[derive(Debug)]
pub(crate) struct Segments {
    /// The number of the first of `starts`.
    first: u32,
    starts: VecDeque<Lsn>,
    bytes_min: u64,
}

impl Segments {
    /// Of a log that holds `capacity` bytes and whose next group begins at `head`.
    pub(crate) fn new(capacity: u64, head: Lsn) -> Segments {
        Segments { first: 1, starts: [head].into(), bytes_min: capacity / SEGMENT_SHARE }
    }

    /// The segment of the group that begins at `head`, the log's last.
    pub(crate) fn of_group(&mut self, head: Lsn) -> LogSegment {
        let last = *self.starts.back().expect("there is a segment");
        if head.0 - last.0 >= self.bytes_min.max(1) {
            self.starts.push_back(head);
        }
        self.nth(self.starts.len() - 1)
    }

    /// The segment a position that is still needed is in.
    pub(crate) fn of(&self, lsn: Lsn) -> LogSegment {
        let next = self.starts.partition_point(|&start| start <= lsn);
        self.nth(next.checked_sub(1).expect("what is needed is kept"))
    }

    /// Where a segment that is still needed begins.
    pub(crate) fn start(&self, segment: LogSegment) -> Lsn {
        self.starts[(segment.0.get() - self.first) as usize]
    }

    /// Nothing before this position is needed any more.
    pub(crate) fn freed(&mut self, tail: Lsn) {
        while self.starts.get(1).is_some_and(|&next| next <= tail) {
            self.starts.pop_front();
            self.first += 1;
        }
    }

    fn nth(&self, nth: usize) -> LogSegment {
        let number = self.first + nth as u32;
        LogSegment(NonZeroU32::new(number).expect("segments are counted from 1"))
    }
}

/// How many contents need the log from which segment on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(SmallVec<[(LogSegment, u32); 2]>);

impl Counts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn first(&self) -> Option<LogSegment> {
        self.0.first().map(|&(segment, _)| segment)
    }

    pub(crate) fn add(&mut self, segment: LogSegment) {
        self.add_many(segment, 1);
    }

    fn add_many(&mut self, segment: LogSegment, count: u32) {
        match self.0.binary_search_by_key(&segment, |&(segment, _)| segment) {
            Ok(at) => self.0[at].1 += count,
            Err(at) => self.0.insert(at, (segment, count)),
        }
    }

    pub(crate) fn remove(&mut self, segment: LogSegment) {
        self.remove_many(segment, 1);
    }

    fn remove_many(&mut self, segment: LogSegment, count: u32) {
        let at = self.0.binary_search_by_key(&segment, |&(segment, _)| segment);
        let at = at.expect("what goes was counted");
        self.0[at].1 -= count;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    pub(crate) fn add_all(&mut self, others: &Counts) {
        for &(segment, count) in &others.0 {
            self.add_many(segment, count);
        }
    }

    pub(crate) fn remove_all(&mut self, others: &Counts) {
        for &(segment, count) in &others.0 {
            self.remove_many(segment, count);
        }
    }
}

/// What a file needs of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retention {
    /// Not at home, or on its way there.
    pub(crate) away: Counts,
    /// At home, or done there, and no sync of home has begun since.
    pub(crate) settling: Counts,
    /// Covered by syncs of home under way.
    pub(crate) syncing: Counts,
    /// A sync of home failed, so home may have dropped it.
    pub(crate) lost: Counts,
}

impl Retention {
    /// The first segment needed.
    pub(crate) fn first(&self) -> Option<LogSegment> {
        let all = [&self.away, &self.settling, &self.syncing, &self.lost];
        all.into_iter().filter_map(Counts::first).min()
    }

    /// A content is home, or dropped.
    pub(crate) fn settle(&mut self, segment: LogSegment) {
        self.away.remove(segment);
        self.settling.add(segment);
    }

    /// A sync of home begins; answers what it covers.
    pub(crate) fn begin_sync(&mut self) -> Counts {
        let covered = std::mem::take(&mut self.settling);
        self.syncing.add_all(&covered);
        covered
    }

    /// The sync succeeded.
    pub(crate) fn end_sync(&mut self, covered: &Counts) {
        self.syncing.remove_all(covered);
    }

    /// A sync of home failed: contents at home that are not known to be durable may be lost. Syncs
    /// under way cover nothing any more.
    pub(crate) fn lose(&mut self) {
        self.lost.add_all(&std::mem::take(&mut self.settling));
        self.lost.add_all(&std::mem::take(&mut self.syncing));
    }

    /// Lost contents were rewritten at home.
    pub(crate) fn rewritten(&mut self) {
        self.settling.add_all(&std::mem::take(&mut self.lost));
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

    #[test]
    fn what_settles_during_a_sync_of_home_waits_for_the_next() {
        let mut segments = segments();
        let first = segments.of_group(Lsn(1000));
        let second = segments.of_group(Lsn(1100));
        let mut needs = Retention::default();
        needs.away.add(first);
        needs.away.add(second);
        needs.away.add(second);
        needs.settle(first);
        let covered = needs.begin_sync();
        needs.settle(second);
        assert_eq!(needs.first(), Some(first), "not durable yet");
        needs.end_sync(&covered);
        assert_eq!(needs.first(), Some(second), "one of its contents is away");
        needs.away.remove(second);
        let covered = needs.begin_sync();
        needs.end_sync(&covered);
        assert_eq!(needs.first(), None);
    }

    #[test]
    fn what_a_failed_sync_covered_is_needed_until_it_was_written_anew_and_synced() {
        let mut segments = segments();
        let first = segments.of_group(Lsn(1000));
        let mut needs = Retention::default();
        needs.away.add(first);
        needs.settle(first);
        needs.begin_sync();
        needs.lose();
        let covered = needs.begin_sync();
        assert!(covered.is_empty(), "a sync that begins before it was written anew covers nothing");
        needs.end_sync(&covered);
        assert_eq!(needs.first(), Some(first));
        needs.rewritten();
        let covered = needs.begin_sync();
        needs.end_sync(&covered);
        assert_eq!(needs.first(), None);
    }
}
