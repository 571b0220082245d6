//! Names after the log has failed: the log goes on in SOURCE, in `.weir` ([`weir_shard::Shard::continue_names`]), until nothing of it
//! is to be replayed any more. So home is given nothing that a recovery would not know, as before.
//!
//! Records are of two kinds. *Changes* are what programs did, in their order; home is given a change when it is durable here. What
//! is *of home* says what home has, or is about to do, and is durable before the next thing is done there. Recovery does not ask which
//! of the two kinds came first, so that what is of home does not wait for changes.
//!
//! The data of files is not logged any more. A change by which a file replaces another one waits here, and with it all that follow,
//! until the file's data is home, durably: otherwise the name would lead to a file without its data after a crash.
//!
//! Owns the records that are not durable yet, before the failure too. Does not own the file (`weir_backend`).
//!
//! Invariant: a change is durable after all changes before it.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use weir_log::{Lsn, Record};
use weir_names::NodeId;
use weir_names::tree::{Change, HomeError};

/// Pause before it is tried again to write what could not be written, or waits for data.
const PAUSE: Duration = Duration::from_millis(50);

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A change.
    Change {
        /// The file that replaces another one.
        replacing: Option<NodeId>,
        /// What loses a name by it, and perhaps its data.
        losing: Option<NodeId>,
        /// It removes a name, and does nothing else.
        is_removal: bool,
    },
    /// What home has, or does.
    OfHome,
}

impl Said {
    pub(super) fn of(change: &Change) -> Said {
        let replacing = match change {
            Change::Rename { node, replaced: Some(replaced), .. } if replaced != node => {
                Some(*node)
            }
            _ => None,
        };
        let losing = match change {
            Change::Rename { replaced, .. } => *replaced,
            Change::Remove { node, .. } => Some(*node),
            _ => None,
        };
        Said::Change { replacing, losing, is_removal: matches!(change, Change::Remove { .. }) }
    }
}

/// A record that is not durable, as far as it is known.
#[derive(Debug)]
pub(super) struct Undurable {
    lsn: Lsn,
    /// Records that say which inodes it speaks of.
    named: Vec<Vec<u8>>,
    record: Vec<u8>,
    said: Said,
}

impl Undurable {
    pub(super) fn new(
        lsn: Lsn,
        named: &[Record<'_>],
        record: &Record<'_>,
        said: Said,
    ) -> Undurable {
        let named = named.iter().map(Record::to_bytes).collect();
        Undurable { lsn, named, record: record.to_bytes(), said }
    }

    pub(super) fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn replacing(&self) -> Option<NodeId> {
        match self.said {
            Said::Change { replacing, .. } => replacing,
            Said::OfHome => None,
        }
    }
}

/// The log as it goes on.
#[derive(Debug)]
pub(super) struct Continued {
    /// What the log has from there on does not count.
    pub(super) from: Lsn,
    /// The last record before the failure.
    pub(super) failed_at: Lsn,
    of_home: Vec<Undurable>,
    changes: VecDeque<Undurable>,
    /// What the records say of inodes, so that it need not be said again.
    pub(super) named: HashSet<Vec<u8>>,
    /// What was not durable when the log failed was written, as far as it is of home.
    pub(super) is_begun: bool,
    /// A thread writes.
    is_writing: bool,
    /// No sooner than then.
    pause_until: Option<Instant>,
    /// Why nothing can be written.
    pub(super) refused: Option<HomeError>,
    /// The first change waits for data.
    pub(super) is_blocked: bool,
    /// Programs' changes go home at once, so that this can end.
    pub(super) is_ending: bool,
}

/// A record and its position.
pub(super) type Positioned = (Lsn, Vec<u8>);

/// What is written at once.
#[derive(Debug)]
pub(super) struct Batch {
    of_home: Vec<Undurable>,
    changes: Vec<Undurable>,
    /// The file for whose data the next change waits.
    pub(super) blocked: Option<NodeId>,
}

impl Batch {
    /// Whether a file replaces another one.
    pub(super) fn replaces(&self) -> bool {
        self.changes.iter().any(|change| change.replacing().is_some())
    }
}

impl Continued {
    /// A log goes on that is durable up to `from`, after these records.
    pub(super) fn new(from: Lsn, failed_at: Lsn, undurable: VecDeque<Undurable>) -> Continued {
        let is_durable = |record: &Undurable| record.lsn < from;
        let rest = undurable.into_iter().filter(|record| !is_durable(record));
        let (of_home, changes): (Vec<_>, Vec<_>) =
            rest.partition(|record| record.said == Said::OfHome);
        Continued {
            from,
            failed_at,
            of_home,
            changes: changes.into(),
            named: HashSet::new(),
            is_begun: false,
            is_writing: false,
            pause_until: None,
            refused: None,
            is_blocked: false,
            is_ending: false,
        }
    }

    /// From where on the log is needed for names, if home needs it from `from` on for what it was not given: it must not be void while
    /// there may be more here than home has.
    pub(super) fn needed_from(&self, from: Option<Lsn>) -> Option<Lsn> {
        match self.is_ending {
            true => from.map(|from| from.min(self.failed_at)),
            false => Some(self.failed_at),
        }
    }

    pub(super) fn add(&mut self, record: Undurable) {
        match record.said {
            Said::OfHome => self.of_home.push(record),
            Said::Change { .. } => self.changes.push_back(record),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_home.is_empty() && self.changes.is_empty()
    }

    /// Whether a thread is to write now; if so, it does.
    pub(super) fn begin_writing(&mut self) -> bool {
        let is_paused = self.pause_until.is_some_and(|until| Instant::now() < until);
        let begins = !self.is_writing && !is_paused && !self.is_empty();
        self.is_writing |= begins;
        begins
    }

    /// A thread has written, or `is_done` is false and it cannot be done now.
    pub(super) fn end_writing(&mut self, is_done: bool) {
        self.is_writing = false;
        self.pause_until = (!is_done).then(|| Instant::now() + PAUSE);
    }

    /// How long a thread may sleep until something is to be written.
    pub(super) fn sleep(&self) -> Option<Duration> {
        let until = self
            .pause_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        (!self.is_empty() && !self.is_writing).then_some(until.max(Duration::from_millis(1)))
    }

    /// What can be written, up to the first change that waits for data which is not home.
    pub(super) fn take(&mut self, has_data: impl Fn(NodeId) -> bool) -> Batch {
        let is_blocked = |change: &Undurable| change.replacing().filter(|&node| has_data(node));
        let first = self.changes.iter().position(|change| is_blocked(change).is_some());
        let blocked = first.and_then(|first| is_blocked(&self.changes[first]));
        let rest = self.changes.split_off(self.takeable(first.unwrap_or(self.changes.len())));
        let changes = std::mem::replace(&mut self.changes, rest);
        self.is_blocked = blocked.is_some();
        Batch { of_home: std::mem::take(&mut self.of_home), changes: changes.into(), blocked }
    }

    /// How many of the first `count` changes can be durable without the rest. A file that replaced another one and was removed later has
    /// no data any more: it is removed with what it was to replace, or stands where it was before.
    fn takeable(&self, mut count: usize) -> usize {
        let lost = |change: &Undurable| match change.said {
            Said::Change { losing, .. } => losing,
            Said::OfHome => None,
        };
        let mut lost_later: HashSet<NodeId> =
            self.changes.range(count..).filter_map(lost).collect();
        let mut lost_before = Vec::new();
        for (ix, change) in self.changes.range(..count).enumerate().rev() {
            lost_before.extend(lost(change));
            if change.replacing().is_some_and(|replacing| lost_later.contains(&replacing)) {
                count = ix;
                lost_later.extend(lost_before.drain(..));
            }
        }
        count
    }

    /// The first change that is not durable.
    pub(super) fn first_change(&self) -> Option<Lsn> {
        self.changes.front().map(|change| change.lsn)
    }

    /// The records of a batch, and what they say of inodes that was not said before.
    pub(super) fn records(&self, batch: &Batch) -> (Vec<Positioned>, HashSet<Vec<u8>>) {
        let (mut records, mut named) = (Vec::new(), HashSet::new());
        for undurable in batch.of_home.iter().chain(&batch.changes) {
            for name in &undurable.named {
                if !self.named.contains(name) && named.insert(name.clone()) {
                    records.push((undurable.lsn, name.clone()));
                }
            }
            records.push((undurable.lsn, undurable.record.clone()));
        }
        (records, named)
    }

    /// A batch could not be written.
    pub(super) fn put_back(&mut self, batch: Batch) {
        let later = std::mem::replace(&mut self.of_home, batch.of_home);
        self.of_home.extend(later);
        batch.changes.into_iter().rev().for_each(|change| self.changes.push_front(change));
    }

    /// Up to where there are only removals, which make room.
    pub(super) fn removals(&self) -> Option<Lsn> {
        let is_removal =
            |change: &&Undurable| matches!(change.said, Said::Change { is_removal: true, .. });
        self.changes.iter().take_while(is_removal).last().map(|change| change.lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: Option<NodeId> = Some(NodeId(9));

    fn change(lsn: u64, replacing: Option<u64>, losing: Option<NodeId>) -> Undurable {
        let said = Said::Change { replacing: replacing.map(NodeId), losing, is_removal: false };
        Undurable { lsn: Lsn(lsn), named: Vec::new(), record: Vec::new(), said }
    }

    fn taken(continued: &mut Continued, dirty: &[u64]) -> (Vec<u64>, Option<NodeId>) {
        let batch = continued.take(|node| dirty.contains(&node.0));
        (batch.changes.iter().map(|change| change.lsn.0).collect(), batch.blocked)
    }

    #[test]
    fn what_replaces_waits_for_its_data_and_all_later_changes_with_it() {
        let mut continued = Continued::new(Lsn(1), Lsn(1), VecDeque::new());
        for change in [change(2, None, None), change(3, Some(5), OVER), change(4, None, None)] {
            continued.add(change);
        }
        assert_eq!(taken(&mut continued, &[5]), (vec![2], Some(NodeId(5))));
        assert_eq!(taken(&mut continued, &[]), (vec![3, 4], None));
    }

    #[test]
    fn a_file_whose_data_was_dropped_does_not_replace_before_it_is_removed() {
        let mut continued = Continued::new(Lsn(1), Lsn(1), VecDeque::new());
        // 5 replaces 9, 6 replaces 5, 7 replaces 6: the data of 5 and 6 is not there any more.
        for change in [
            change(2, None, None),
            change(3, Some(5), OVER),
            change(4, Some(6), Some(NodeId(5))),
            change(5, Some(7), Some(NodeId(6))),
        ] {
            continued.add(change);
        }
        assert_eq!(taken(&mut continued, &[7]), (vec![2], Some(NodeId(7))));
        assert_eq!(taken(&mut continued, &[]), (vec![3, 4, 5], None));
    }
}
