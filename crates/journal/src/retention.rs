//! Retention: which segments of the log a holder needs, counted by its contents that are not durable at home yet.
//!
//! A *content* is the data that a record holds, such as bytes of a page. A content that is in the log and not at home
//! needs the log from its oldest such record on (ARIES' *recLSN*). Contents are counted by the segment of that
//! record.
//!
//! A content is *away* until it is home, *settling* until a sync of home begins that makes it durable there,
//! and *syncing* until that sync ends. A content that is dropped, by truncate for example, settles at once,
//! since the operation that dropped it is already done at home. A failed sync of home makes all settling and
//! syncing contents *lost*: home may have dropped them, and a later successful sync does not cover them. The
//! log is needed for them until they are rewritten at home.

use smallvec::SmallVec;

use crate::segment::Segment;

/// The number of contents that need the log from each segment on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(SmallVec<[(Segment, u32); 2]>);

impl Counts {
    /// Nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first segment with a content.
    pub fn first(&self) -> Option<Segment> {
        self.0.first().map(|&(segment, _)| segment)
    }

    /// One more content needs the log from this segment on.
    pub fn add(&mut self, segment: Segment) {
        self.add_many(segment, 1);
    }

    fn add_many(&mut self, segment: Segment, count: u32) {
        match self.0.binary_search_by_key(&segment, |&(segment, _)| segment) {
            Ok(at) => self.0[at].1 += count,
            Err(at) => self.0.insert(at, (segment, count)),
        }
    }

    /// One content less needs the log from this segment on.
    pub fn remove(&mut self, segment: Segment) {
        self.remove_many(segment, 1);
    }

    fn remove_many(&mut self, segment: Segment, count: u32) {
        let at = self.0.binary_search_by_key(&segment, |&(segment, _)| segment);
        let at = at.expect("a content is removed that was counted");
        self.0[at].1 -= count;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    /// Adds the counts of `others`.
    pub fn add_all(&mut self, others: &Counts) {
        for &(segment, count) in &others.0 {
            self.add_many(segment, count);
        }
    }

    /// Subtracts the counts of `others`, which are all contained here.
    pub fn remove_all(&mut self, others: &Counts) {
        for &(segment, count) in &others.0 {
            self.remove_many(segment, count);
        }
    }
}

/// One holder's contents by state, each with the segment that it needs.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    /// Not at home yet.
    pub away: Counts,
    /// At home, and no sync of home has begun since.
    pub settling: Counts,
    /// Covered by a sync of home in flight.
    pub syncing: Counts,
    /// A sync of home failed, so home may have dropped it.
    pub lost: Counts,
}

impl Retention {
    /// The first segment needed.
    pub fn first(&self) -> Option<Segment> {
        let all = [&self.away, &self.settling, &self.syncing, &self.lost];
        all.into_iter().filter_map(Counts::first).min()
    }

    /// A content is home, or dropped.
    pub fn settle(&mut self, segment: Segment) {
        self.away.remove(segment);
        self.settling.add(segment);
    }

    /// A sync of home begins; returns the contents that it covers.
    pub fn begin_sync(&mut self) -> Counts {
        let covered = std::mem::take(&mut self.settling);
        self.syncing.add_all(&covered);
        covered
    }

    /// The sync succeeded.
    pub fn end_sync(&mut self, covered: &Counts) {
        self.syncing.remove_all(covered);
    }

    /// A sync of home failed: contents at home that are not known to be durable may be lost. Syncs in flight no
    /// longer cover any content.
    pub fn lose(&mut self) {
        self.lost.add_all(&std::mem::take(&mut self.settling));
        self.lost.add_all(&std::mem::take(&mut self.syncing));
    }

    /// Lost contents were rewritten at home.
    pub fn rewritten(&mut self) {
        self.settling.add_all(&std::mem::take(&mut self.lost));
    }
}

#[cfg(test)]
mod tests {
    use weir_log::Lsn;

    use super::*;
    use crate::segment::Segments;

    fn segments() -> Segments {
        Segments::new(64 * 100, Lsn(1000))
    }

    #[test]
    fn what_settles_during_a_sync_of_home_waits_for_the_next() {
        let mut segments = segments();
        let first = segments.of_group(Lsn(1000));
        let second = segments.of_group(Lsn(1100));
        let mut retention = Retention::default();
        retention.away.add(first);
        retention.away.add(second);
        retention.away.add(second);
        retention.settle(first);
        let covered = retention.begin_sync();
        retention.settle(second);
        assert_eq!(retention.first(), Some(first), "not durable yet");
        retention.end_sync(&covered);
        assert_eq!(retention.first(), Some(second), "one of its contents is away");
        retention.away.remove(second);
        let covered = retention.begin_sync();
        retention.end_sync(&covered);
        assert_eq!(retention.first(), None);
    }

    #[test]
    fn what_a_failed_sync_covered_is_needed_until_it_is_rewritten_and_synced() {
        let mut segments = segments();
        let first = segments.of_group(Lsn(1000));
        let mut retention = Retention::default();
        retention.away.add(first);
        retention.settle(first);
        retention.begin_sync();
        retention.lose();
        let covered = retention.begin_sync();
        assert!(covered.is_empty(), "a sync that begins before the rewrite covers nothing");
        retention.end_sync(&covered);
        assert_eq!(retention.first(), Some(first));
        retention.rewritten();
        let covered = retention.begin_sync();
        retention.end_sync(&covered);
        assert_eq!(retention.first(), None);
    }
}
