//! The journal itself: the log's writer, which holder needs which segment, and what is in flight.

use std::collections::BTreeSet;

use weir_log::{BLOCK_BYTES, Commit, Lsn, Record, Writer};

use crate::retention::{Counts, Retention};
use crate::segment::{Segment, Segments};

/// Share of the log that is reserved for records that void earlier ones, and in part for those without which it is not freed.
const SLACK_SHARE: u64 = 16;

/// The group that names a holder: records name their holder once in each group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named(Option<Lsn>);

/// One log and its holders, which are told apart by `Holder`.
#[derive(Debug)]
pub struct Journal<Holder> {
    writer: Writer,
    segments: Segments,
    /// Each holder that needs a part of the log, under the first segment that it needs.
    held: BTreeSet<(Segment, Holder)>,
    /// The retention of files that are detached here and may still exist at home.
    orphans: Counts,
    /// The part of `orphans` that the sync of home in flight will free.
    orphans_syncing: Counts,
    /// Everything from here on is needed, beside what the holders need.
    kept_from: Option<Lsn>,
    /// Everything before this position is free, or will be by the advance of the tail in flight.
    freed_to: Lsn,
    group_in_flight: bool,
    superblock_in_flight: bool,
    home_sync_in_flight: bool,
    closing: bool,
    failed: bool,
}

impl<Holder: Copy + Ord> Journal<Holder> {
    /// Of a log in which nothing is to be replayed.
    pub fn new(writer: Writer) -> Journal<Holder> {
        Journal {
            segments: Segments::new(writer.capacity_bytes(), writer.head()),
            freed_to: writer.tail(),
            writer,
            held: BTreeSet::new(),
            orphans: Counts::default(),
            orphans_syncing: Counts::default(),
            kept_from: None,
            group_in_flight: false,
            superblock_in_flight: false,
            home_sync_in_flight: false,
            closing: false,
            failed: false,
        }
    }

    /// The log's writer, read-only.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Everything before this position is durable.
    pub fn durable(&self) -> Lsn {
        self.writer.durable()
    }

    /// Whether the record at a position is durable.
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        lsn < self.writer.durable()
    }

    /// Everything before this position is free.
    pub fn tail(&self) -> Lsn {
        self.writer.tail()
    }

    /// Records can still be added.
    pub fn is_usable(&self) -> bool {
        !self.failed && !self.closing
    }

    /// A write of the log has failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// A write of the log, or a sync of home for it, is in flight.
    pub fn is_under_way(&self) -> bool {
        self.group_in_flight || self.superblock_in_flight || self.home_sync_in_flight
    }
}

/// Records.
impl<Holder: Copy + Ord> Journal<Holder> {
    /// A number for a file or directory, unique in this log for ever. `None` if none is available now.
    pub fn new_node(&mut self) -> Option<u64> {
        self.writer.new_node()
    }

    /// Appends a record to the open group. If the group does not name the record's holder yet, appends `name` first.
    ///
    /// # Panics
    /// If there is no room for both: call [`Journal::has_room`] before.
    pub fn append(&mut self, named: &mut Named, name: &Record<'_>, record: &Record<'_>) -> Lsn {
        self.name(named, name);
        self.append_unnamed(record)
    }

    /// Whether the open group names this holder.
    pub fn is_named(&self, named: Named) -> bool {
        named.0 == Some(self.writer.head())
    }

    /// Appends `name` to the open group if the group does not have it yet. For a record that names several, before it:
    /// nothing is committed between.
    ///
    /// # Panics
    /// If there is no room: call [`Journal::has_room`] for all of them before.
    pub fn name(&mut self, named: &mut Named, name: &Record<'_>) {
        if !self.is_named(*named) {
            self.append_unnamed(name);
            named.0 = Some(self.writer.head());
        }
    }

    /// Appends a record that needs no name, or whose names are in the open group.
    ///
    /// # Panics
    /// If there is no room: call [`Journal::has_room`] before.
    pub fn append_unnamed(&mut self, record: &Record<'_>) -> Lsn {
        self.writer.append(record).expect("the caller checked that there is room")
    }

    /// Whether records of `bytes` in all fit the open group, and leave the reserve for records that void others.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.is_usable() && self.writer.has_room(bytes) && self.has_space(bytes as u64)
    }

    /// Whether `bytes` bytes are free, plus a reserve for records that void others.
    pub fn has_space(&self, bytes: u64) -> bool {
        self.writer.has_space(bytes + self.writer.capacity_bytes() / SLACK_SHARE)
    }

    /// The same for a record without which the log is not freed: of that reserve it leaves half, at least a block.
    pub fn has_last_space(&self, bytes: u64) -> bool {
        let left = self.writer.capacity_bytes() / SLACK_SHARE / 2;
        self.writer.has_space(bytes + left.max(BLOCK_BYTES as u64))
    }

    /// More than half of the log is used: data should go home to free it.
    pub fn is_half_full(&self) -> bool {
        self.writer.used_bytes() > self.writer.capacity_bytes() / 2
    }

    /// The segment of the open group.
    pub fn open_segment(&mut self) -> Segment {
        self.segments.of_group(self.writer.head())
    }

    /// The segment that contains a position that is still needed.
    pub fn segment_of(&self, lsn: Lsn) -> Segment {
        self.segments.of(lsn)
    }

    /// Where a segment that is still needed begins.
    pub fn start_of(&self, segment: Segment) -> Lsn {
        self.segments.start(segment)
    }

    /// The open group is long enough to be written although no sync waits for it, so that the next sync finds room.
    pub fn is_open_group_long(&self) -> bool {
        let bytes = (self.writer.position().0 - self.writer.head().0) as usize;
        bytes >= self.writer.group_bytes_max() / 4
    }
}

/// Retention.
impl<Holder: Copy + Ord> Journal<Holder> {
    /// Changes a holder's retention. A holder that needs nothing takes no memory here.
    pub fn change<T>(
        &mut self,
        holder: Holder,
        retention: &mut Retention,
        change: impl FnOnce(&mut Retention) -> T,
    ) -> T {
        let before = retention.first();
        let result = change(retention);
        let after = retention.first();
        if before != after {
            if let Some(segment) = before {
                self.held.remove(&(segment, holder));
            }
            if let Some(segment) = after {
                self.held.insert((segment, holder));
            }
        }
        result
    }

    /// A file is detached here and may still exist at home: its part of the log is kept until a sync of all of home.
    ///
    /// # Panics
    /// If data of the file is on its way home.
    pub fn orphan(&mut self, holder: Holder, retention: &mut Retention) {
        let needed = self.change(holder, retention, std::mem::take);
        assert!(needed.away.is_empty() && needed.syncing.is_empty(), "the holder is idle");
        self.orphans.add_all(&needed.settling);
        self.orphans.add_all(&needed.lost);
    }

    /// Keeps everything from a position on, beside what the holders need; `None` keeps nothing more. For a part of the program
    /// that knows the position of the first record it needs, and counts no contents. The position replaces the one before;
    /// tell each change of it before the next [`Journal::checkpoint`].
    ///
    /// # Panics
    /// If that part of the log is free already, or is being freed.
    pub fn keep_from(&mut self, from: Option<Lsn>) {
        assert!(
            from.is_none_or(|from| from >= self.freed_to),
            "the log is needed before it is freed"
        );
        self.kept_from = from;
    }

    /// Everything before this position is free, or will be by the advance of the tail in flight.
    pub fn freed_to(&self) -> Lsn {
        self.freed_to
    }

    /// The position of [`Journal::keep_from`].
    pub fn kept_from(&self) -> Option<Lsn> {
        self.kept_from
    }

    /// The holders, ordered by the first segment that each needs.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.held.iter().map(|&(_, holder)| holder)
    }

    /// The first segment that is needed.
    pub fn first_needed(&self) -> Option<Segment> {
        let kept = self.kept_from.map(|from| self.segments.of(from));
        [self.first_counted(), kept].into_iter().flatten().min()
    }

    /// The first segment that a holder or an orphan needs.
    fn first_counted(&self) -> Option<Segment> {
        let held = self.held.first().map(|&(segment, _)| segment);
        [held, self.orphans.first(), self.orphans_syncing.first()].into_iter().flatten().min()
    }

    /// The holder that needs the first needed segment; `None` if only orphans need it, or whoever told
    /// [`Journal::keep_from`].
    pub fn first_holder(&self) -> Option<Holder> {
        let &(segment, holder) = self.held.first()?;
        (self.first_needed() == Some(segment)).then_some(holder)
    }

    /// Panics unless these are all holders and their retention.
    pub fn check_invariants<'a>(&self, holders: impl Iterator<Item = (Holder, &'a Retention)>) {
        let mut held = 0;
        for (holder, retention) in holders {
            if let Some(first) = retention.first() {
                assert!(
                    self.held.contains(&(first, holder)),
                    "a holder is listed under the first segment that it needs"
                );
                held += 1;
            }
        }
        assert_eq!(held, self.held.len(), "no other holder is listed");
    }
}

/// Groups and the tail.
impl<Holder: Copy + Ord> Journal<Holder> {
    /// Closes the open group and returns it, unless it is empty, another one is in flight or the log has failed.
    /// [`Journal::committed`] or [`Journal::commit_failed`] follows.
    pub fn commit(&mut self) -> Option<Commit> {
        if self.failed {
            return None;
        }
        let commit = self.writer.commit()?;
        self.group_in_flight = true;
        Some(commit)
    }

    /// The group in flight is durable.
    pub fn committed(&mut self) {
        self.group_in_flight = false;
        self.writer.committed();
    }

    /// The group in flight was not written: nothing more is written to the log.
    pub fn commit_failed(&mut self) {
        (self.group_in_flight, self.failed) = (false, true);
    }

    /// The advance of the tail in flight was not written: nothing more is written to the log.
    pub fn checkpoint_failed(&mut self) {
        (self.superblock_in_flight, self.failed) = (false, true);
    }

    /// Advances the tail to the first needed segment, if that frees `bytes` or more and no advance is in flight.
    /// [`Journal::checkpointed`] or [`Journal::checkpoint_failed`] follows.
    pub fn checkpoint(&mut self, bytes: u64) -> Option<Commit> {
        let durable = self.writer.durable();
        let counted = self.first_counted().map(|first| self.start_of(first));
        let kept = self.kept_from.map(|from| self.writer.group_of(from));
        let needed = [counted, kept].into_iter().flatten().fold(durable, Lsn::min);
        if self.superblock_in_flight || needed.0.saturating_sub(self.tail().0) < bytes {
            return None;
        }
        let commit = self.writer.checkpoint(needed)?;
        (self.superblock_in_flight, self.freed_to) = (true, needed);
        Some(commit)
    }

    /// Closes the log with nothing to replay: call it when everything is home and durable there. `None` if the
    /// log has failed, is closing, or something is in flight.
    pub fn close(&mut self) -> Option<Commit> {
        if !self.is_usable() || self.is_under_way() {
            return None;
        }
        (self.closing, self.superblock_in_flight) = (true, true);
        Some(self.writer.close())
    }

    /// The advance of the tail in flight is durable: what is before the tail is free.
    pub fn checkpointed(&mut self) {
        self.superblock_in_flight = false;
        self.writer.checkpointed();
        self.segments.freed(self.writer.tail());
    }

    /// Starts a sync of all of home if orphans prevent the tail from advancing. Says whether to do one now;
    /// [`Journal::home_synced`] follows.
    pub fn begin_home_sync(&mut self) -> bool {
        let first = self.first_needed();
        if self.home_sync_in_flight || first.is_none() || self.orphans.first() != first {
            return false;
        }
        self.orphans_syncing = std::mem::take(&mut self.orphans);
        self.home_sync_in_flight = true;
        true
    }

    /// The sync of all of home ended. After a failure, what it covered is still needed.
    pub fn home_synced(&mut self, succeeded: bool) {
        self.home_sync_in_flight = false;
        let covered = std::mem::take(&mut self.orphans_syncing);
        if !succeeded {
            self.orphans.add_all(&covered);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_log::{DATA_START, Superblock};

    use super::*;

    /// Two kinds of holders of one log.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Kind {
        File(u32),
        Directory(u64),
    }

    fn journal() -> Journal<Kind> {
        Journal::new(Writer::new(Superblock {
            log: [1; 16],
            mount: [2; 16],
            bytes: DATA_START + (1 << 20),
            generation: 1,
            checkpoint: Lsn(0),
            clean: true,
            row_blocks: 1,
            nodes: weir_log::NODE_FIRST,
            features: 0,
        }))
    }

    /// Logs 8 KiB for a holder and makes them durable.
    fn log(journal: &mut Journal<Kind>, number: u64, named: &mut Named) -> (Lsn, Segment) {
        let name = Record::File { file: number, identity: b"somebody" };
        let record = Record::Write { file: number, offset: 0, data: &[7; 8192] };
        let lsn = journal.append(named, &name, &record);
        let segment = journal.open_segment();
        journal.commit().unwrap();
        journal.committed();
        (lsn, segment)
    }

    fn checkpoint(journal: &mut Journal<Kind>) -> bool {
        let Some(_) = journal.checkpoint(1) else { return false };
        journal.checkpointed();
        true
    }

    #[test]
    fn the_tail_waits_for_the_slowest_holder_of_any_kind() {
        let mut journal = journal();
        let (file, directory) = (Kind::File(1), Kind::Directory(9));
        let (mut of_file, mut of_directory) = (Retention::default(), Retention::default());
        let (_, first) = log(&mut journal, 1, &mut Named::default());
        journal.change(file, &mut of_file, |retention| retention.away.add(first));
        // Long enough for another segment to begin.
        let (mut named, mut last) = (Named::default(), first);
        while last == first {
            last = log(&mut journal, 9, &mut named).1;
        }
        journal.change(directory, &mut of_directory, |retention| retention.away.add(last));
        assert!(!checkpoint(&mut journal), "the file needs the log's first segment");
        assert_eq!(journal.first_holder(), Some(file));
        assert_eq!(journal.holders().collect::<Vec<_>>(), [file, directory]);

        journal.change(file, &mut of_file, |retention| retention.settle(first));
        assert!(!checkpoint(&mut journal), "what is home may not be durable there");
        let covered = journal.change(file, &mut of_file, Retention::begin_sync);
        journal.change(file, &mut of_file, |retention| retention.end_sync(&covered));
        assert!(checkpoint(&mut journal));
        assert_eq!(journal.tail(), journal.start_of(last));
        assert_eq!(journal.first_holder(), Some(directory));

        journal.change(directory, &mut of_directory, std::mem::take);
        assert!(checkpoint(&mut journal));
        assert_eq!((journal.tail(), journal.first_needed()), (journal.durable(), None));
        journal.check_invariants([(file, &of_file), (directory, &of_directory)].into_iter());
    }

    #[test]
    fn a_record_that_frees_the_log_takes_half_of_what_is_reserved_for_voids() {
        let mut journal = journal();
        while journal.has_space(1) {
            log(&mut journal, 1, &mut Named::default());
        }
        let reserve = journal.writer.capacity_bytes() / SLACK_SHARE;
        let free = journal.writer.capacity_bytes() - journal.writer.used_bytes();
        assert!(free <= reserve);
        assert!(journal.has_last_space(free - reserve / 2));
        assert!(!journal.has_last_space(free - reserve / 2 + 1));
        assert!(journal.writer.has_space(free), "the rest is for voids");
    }

    #[test]
    fn what_an_orphan_needs_is_kept_until_all_of_home_is_synced() {
        let mut journal = journal();
        let (holder, mut retention) = (Kind::Directory(3), Retention::default());
        let (_, segment) = log(&mut journal, 3, &mut Named::default());
        journal.change(holder, &mut retention, |retention| retention.away.add(segment));
        assert!(!journal.begin_home_sync(), "the holder can be synced itself");
        journal.change(holder, &mut retention, |retention| retention.settle(segment));
        journal.orphan(holder, &mut retention);
        assert_eq!((journal.first_holder(), journal.first_needed()), (None, Some(segment)));
        assert!(journal.begin_home_sync() && !journal.begin_home_sync(), "one at a time");
        journal.home_synced(false);
        assert!(!checkpoint(&mut journal), "a sync that failed frees nothing");
        assert!(journal.begin_home_sync());
        journal.home_synced(true);
        assert!(checkpoint(&mut journal));
    }

    #[test]
    fn holders_share_groups_and_are_named_once_in_each() {
        let mut journal = journal();
        let (mut one, mut other) = (Named::default(), Named::default());
        let name = |file| Record::File { file, identity: b"x" };
        let record = |file| Record::Truncate { file, size: 0 };
        let first = journal.append(&mut one, &name(1), &record(1));
        let second = journal.append(&mut other, &name(2), &record(2));
        let before = journal.writer().position();
        let third = journal.append(&mut one, &name(1), &record(1));
        assert_eq!(third, before, "no name between");
        assert!(first < second && second < third);
        assert!(journal.commit().is_some() && journal.commit().is_none());
        assert!(!journal.is_durable(first));
        let fourth = journal.append(&mut one, &name(1), &record(1));
        assert!(fourth > journal.writer().head(), "the next group names it again");
        journal.committed();
        assert!(journal.is_durable(third) && !journal.is_durable(fourth));
    }

    #[test]
    fn the_tail_waits_for_a_position_that_is_kept() {
        let mut journal = journal();
        let (file, mut retention) = (Kind::File(1), Retention::default());
        let (start, first) = log(&mut journal, 1, &mut Named::default());
        journal.keep_from(Some(start));
        assert_eq!((journal.first_needed(), journal.first_holder()), (Some(first), None));
        assert!(!checkpoint(&mut journal) && !journal.begin_home_sync());
        let (mut named, mut last) = (Named::default(), (start, first));
        while last.1 == first {
            last = log(&mut journal, 1, &mut named);
        }
        journal.change(file, &mut retention, |retention| retention.away.add(last.1));
        assert!(!checkpoint(&mut journal), "the first segment is kept");
        journal.keep_from(Some(last.0));
        assert_eq!(journal.first_holder(), Some(file));
        assert!(checkpoint(&mut journal));
        assert_eq!(journal.tail(), journal.start_of(last.1), "the group of the position is whole");

        journal.change(file, &mut retention, std::mem::take);
        assert!(!checkpoint(&mut journal), "the position is kept without any holder");
        journal.keep_from(None);
        assert!(checkpoint(&mut journal));
        assert_eq!(journal.tail(), journal.durable());
        // A new record is kept before it is durable, and while an advance of the tail is in flight.
        let (mut named, name) = (Named::default(), Record::File { file: 1, identity: b"x" });
        let lsn = journal.append(&mut named, &name, &Record::Truncate { file: 1, size: 0 });
        journal.keep_from(Some(lsn));
        assert!(journal.commit().is_some());
        journal.committed();
        assert!(!checkpoint(&mut journal));
    }

    #[test]
    #[should_panic(expected = "needed before it is freed")]
    fn a_position_that_is_being_freed_is_not_kept() {
        let mut journal = journal();
        let (lsn, _) = log(&mut journal, 1, &mut Named::default());
        assert!(journal.checkpoint(1).is_some());
        journal.keep_from(Some(lsn));
    }

    #[test]
    fn a_record_that_names_several_has_each_name_once_in_its_group() {
        let mut journal = journal();
        let (mut one, mut other) = (Named::default(), Named::default());
        let name = |file| Record::File { file, identity: b"x" };
        let record = Record::Truncate { file: 1, size: 0 };
        let len = |record: &Record<'_>| record.padded_bytes() as u64;
        journal.name(&mut one, &name(1));
        journal.name(&mut other, &name(2));
        let first = journal.append_unnamed(&record);
        assert_eq!(first, Lsn(64 + len(&name(1)) + len(&name(2))));
        journal.name(&mut one, &name(1));
        assert_eq!(journal.append_unnamed(&record), Lsn(first.0 + len(&record)));
        journal.commit().unwrap();
        journal.name(&mut one, &name(1));
        let next = journal.append_unnamed(&record);
        assert_eq!(next, Lsn(journal.writer().head().0 + 64 + len(&name(1))));
    }

    #[test]
    fn nothing_is_written_to_a_log_that_failed() {
        let mut journal = journal();
        let name = Record::File { file: 1, identity: b"x" };
        let record = Record::Truncate { file: 1, size: 0 };
        journal.append(&mut Named::default(), &name, &record);
        assert!(journal.commit().is_some() && journal.close().is_none());
        journal.commit_failed();
        assert!(journal.has_failed() && !journal.is_usable() && !journal.has_room(8));
        assert!(journal.commit().is_none() && journal.close().is_none());
    }

    #[test]
    fn a_log_is_closed_when_nothing_is_under_way() {
        let mut journal = journal();
        log(&mut journal, 1, &mut Named::default());
        assert!(journal.close().is_some());
        assert!(!journal.is_usable() && journal.close().is_none());
        journal.checkpointed();
        assert!(!journal.is_under_way());
    }
}
