//! Which segments of the log a holder needs: by what of it is not durable at home yet.
//!
//! A content that is in the log and not at home needs the log from its oldest such record on (ARIES' *recLSN*). That is
//! counted by segment.
//!
//! A content is *away* until it is home, *settling* until a sync of home begins that makes it durable there, and
//! *syncing* until that ends. A content that is dropped, by truncate for example, settles at once: the operation that
//! dropped it is done at home already. A failed sync of home makes everything *lost* that was settling or syncing: home
//! may have dropped it, and a later successful sync does not cover it. It stays needed until it is rewritten at home.

use smallvec::SmallVec;

use crate::segment::Segment;

/// How many contents need the log from which segment on.
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

    /// One that was counted does not any more.
    pub fn remove(&mut self, segment: Segment) {
        self.remove_many(segment, 1);
    }

    fn remove_many(&mut self, segment: Segment, count: u32) {
        let at = self.0.binary_search_by_key(&segment, |&(segment, _)| segment);
        let at = at.expect("what goes was counted");
        self.0[at].1 -= count;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    /// Adds what others count.
    pub fn add_all(&mut self, others: &Counts) {
        for &(segment, count) in &others.0 {
            self.add_many(segment, count);
        }
    }

    /// Takes off what others count, all of which is counted here.
    pub fn remove_all(&mut self, others: &Counts) {
        for &(segment, count) in &others.0 {
            self.remove_many(segment, count);
        }
    }
}

/// What a file needs of the log.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    /// Not at home, or on its way there.
    pub away: Counts,
    /// At home, or done there, and no sync of home has begun since.
    pub settling: Counts,
    /// Covered by syncs of home under way.
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

    /// A sync of home begins; answers what it covers.
    pub fn begin_sync(&mut self) -> Counts {
        let covered = std::mem::take(&mut self.settling);
        self.syncing.add_all(&covered);
        covered
    }

    /// The sync succeeded.
    pub fn end_sync(&mut self, covered: &Counts) {
        self.syncing.remove_all(covered);
    }

    /// A sync of home failed: contents at home that are not known to be durable may be lost. Syncs
    /// under way cover nothing any more.
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
