//! Which files' requests waited, and how long: a bounded account of late answers, by file, and what waits now.
//!
//! An answer is late if its request waited: for a page, for memory, for its turn on a file, or for a sync. An answer that was
//! known at once is not accounted, so that the account costs nothing where nobody waits. Nor is a posted write, since its
//! program goes on.
//!
//! The account is the summary of Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
//! Streams" (2005), Space-Saving, with times instead of counts. A file that is not in a full account takes the place of the
//! one with the least time, and inherits that time as what it may have waited before.
//!
//! Owns the entries and which of them is replaced. Does not own names of files, nor the requests that wait.
//!
//! Invariants:
//! - at most [`FILES_MAX`] files;
//! - a file's time, what it inherited included, is at least what its requests waited; without what it inherited, at most;
//! - so a file with more than 1/`FILES_MAX` of all time that requests waited is in the account.

use std::cmp::Reverse;
use std::time::Duration;

use weir_engine::{FileId, Time};

use crate::latency::Measured;
use crate::pending::{Continuation, Pending};

/// Files in the account.
pub const FILES_MAX: usize = 64;

/// Late answers of one kind on one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateAnswers {
    /// How many.
    pub count: u64,
    /// How long all of them together took, nanoseconds.
    pub total_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

impl LateAnswers {
    fn add(&mut self, latency_ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }
}

/// How requests on one file waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowFile {
    /// The file.
    pub file: FileId,
    /// Late answers to writes since the file is in the account.
    pub write: LateAnswers,
    /// To reads.
    pub read: LateAnswers,
    /// To syncs.
    pub sync: LateAnswers,
    /// At most so long its requests waited before that.
    pub unseen_ns: u64,
    /// Its requests that wait now.
    pub waiting: u64,
    /// How long the oldest of them has waited.
    pub oldest_ns: u64,
}

impl SlowFile {
    fn new(file: FileId) -> SlowFile {
        let none = LateAnswers::default();
        SlowFile {
            file,
            write: none,
            read: none,
            sync: none,
            unseen_ns: 0,
            waiting: 0,
            oldest_ns: 0,
        }
    }

    /// How long its requests waited since it is in the account.
    pub fn total_ns(&self) -> u64 {
        let kinds = [self.write, self.read, self.sync];
        kinds.iter().fold(0, |sum, kind| kind.total_ns.saturating_add(sum))
    }

    /// The most that its requests can have waited: the entry with the least is replaced first.
    fn bound_ns(&self) -> u64 {
        self.total_ns().saturating_add(self.unseen_ns)
    }

    fn kind(&mut self, kind: Measured) -> &mut LateAnswers {
        match kind {
            Measured::Write => &mut self.write,
            Measured::Read => &mut self.read,
            Measured::Sync => &mut self.sync,
        }
    }
}

/// Requests that wait for their answers now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingNow {
    /// Writes.
    pub writes: u64,
    /// Reads.
    pub reads: u64,
    /// Syncs of one file or of everything.
    pub syncs: u64,
    /// Posted writes, and changes of a file's size or ranges.
    pub others: u64,
    /// How long the oldest has waited.
    pub oldest_ns: u64,
}

/// What waited and what waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Requests that wait now.
    pub now: WaitingNow,
    /// The files of the account, and at most as many others on which requests wait now; those whose requests waited longest
    /// come first.
    pub files: Vec<SlowFile>,
}

/// The account.
#[derive(Default)]
pub(crate) struct SlowFiles {
    entries: Vec<SlowFile>,
}

impl SlowFiles {
    /// Accounts a late answer.
    pub(crate) fn record(&mut self, file: FileId, kind: Measured, latency: Duration) {
        let latency_ns = nanos(latency);
        let entry = match self.entries.iter().position(|entry| entry.file == file) {
            Some(index) => &mut self.entries[index],
            None => self.admit(file),
        };
        entry.kind(kind).add(latency_ns);
    }

    fn admit(&mut self, file: FileId) -> &mut SlowFile {
        if self.entries.len() < FILES_MAX {
            self.entries.push(SlowFile::new(file));
            return self.entries.last_mut().expect("it was pushed just now");
        }
        let least = self.entries.iter_mut().min_by_key(|entry| entry.bound_ns());
        let least = least.expect("a full account has entries");
        *least = SlowFile { unseen_ns: least.bound_ns(), ..SlowFile::new(file) };
        least
    }

    /// What waited, and what of `pending` waits at `now`.
    pub(crate) fn waits(&self, pending: &Pending, now: Time) -> Waits {
        let mut waits = Waits { now: WaitingNow::default(), files: self.entries.clone() };
        for request in pending.iter() {
            let age_ns = nanos(now.since(request.since));
            let of = &mut waits.now;
            let (count, is_of_file) = match &request.continuation {
                Continuation::Write(_) => (&mut of.writes, true),
                Continuation::Read(_) => (&mut of.reads, true),
                Continuation::Sync(_) => (&mut of.syncs, true),
                Continuation::Posted(_) | Continuation::Freeze(..) => (&mut of.others, false),
            };
            *count += 1;
            of.oldest_ns = of.oldest_ns.max(age_ns);
            let Some(file) = request.file.filter(|_| is_of_file) else { continue };
            let known = waits.files.iter().position(|entry| entry.file == file);
            let index = match known {
                Some(index) => index,
                None if waits.files.len() < 2 * FILES_MAX => {
                    waits.files.push(SlowFile::new(file));
                    waits.files.len() - 1
                }
                None => continue,
            };
            let entry = &mut waits.files[index];
            entry.waiting += 1;
            entry.oldest_ns = entry.oldest_ns.max(age_ns);
        }
        waits.files.sort_by_key(|entry| Reverse(entry.total_ns().saturating_add(entry.oldest_ns)));
        waits
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::pending;

    const MS: u64 = 1_000_000;

    fn record(account: &mut SlowFiles, file: u64, ms: u64) {
        account.record(FileId(file), Measured::Write, Duration::from_millis(ms));
    }

    fn entry(account: &SlowFiles, file: u64) -> Option<&SlowFile> {
        account.entries.iter().find(|entry| entry.file == FileId(file))
    }

    #[test]
    fn late_answers_are_summed_by_file_and_kind() {
        let mut account = SlowFiles::default();
        record(&mut account, 1, 10);
        record(&mut account, 1, 30);
        account.record(FileId(1), Measured::Sync, Duration::from_millis(5));
        account.record(FileId(2), Measured::Read, Duration::from_millis(100));
        let waits = account.waits(&Pending::default(), Time::ZERO);
        let files: Vec<u64> = waits.files.iter().map(|entry| entry.file.0).collect();
        assert_eq!(files, [2, 1], "the one that waited longer comes first");
        let first = waits.files[1];
        assert_eq!(first.write, LateAnswers { count: 2, total_ns: 40 * MS, max_ns: 30 * MS });
        assert_eq!(first.sync, LateAnswers { count: 1, total_ns: 5 * MS, max_ns: 5 * MS });
        assert_eq!((first.total_ns(), first.unseen_ns, first.waiting), (45 * MS, 0, 0));
        assert_eq!(waits.now, WaitingNow::default());
    }

    #[test]
    fn of_a_full_account_the_file_with_the_least_time_gives_way() {
        let mut account = SlowFiles::default();
        for file in 0..FILES_MAX as u64 {
            record(&mut account, file, 10 + file);
        }
        record(&mut account, 1000, 1);
        assert_eq!(entry(&account, 0), None);
        let newcomer = entry(&account, 1000).unwrap();
        assert_eq!((newcomer.total_ns(), newcomer.unseen_ns), (MS, 10 * MS));
        // It has 11 ms at most, as file 1 has: either may be replaced, and the new entry starts from 11 ms.
        record(&mut account, 1001, 1);
        assert_eq!(entry(&account, 1001).unwrap().unseen_ns, 11 * MS);
        assert_eq!(account.entries.len(), FILES_MAX);
    }

    #[test]
    fn what_waits_now_is_told_with_its_file_even_without_a_late_answer() {
        let mut pending = Pending::default();
        let waiting = |file, since_ms: u64, continuation| pending::Waiting {
            since: Time::from_nanos(since_ms * MS),
            file,
            continuation,
        };
        let write = || Continuation::Write(Box::new(|_| {}));
        pending.insert(waiting(Some(FileId(7)), 10, write()));
        pending.insert(waiting(Some(FileId(7)), 40, write()));
        pending.insert(waiting(None, 30, Continuation::Sync(Box::new(|_| {}))));
        pending.insert(waiting(Some(FileId(8)), 20, Continuation::Posted(Box::new(|_| {}))));
        let waits = SlowFiles::default().waits(&pending, Time::from_nanos(50 * MS));
        let now = WaitingNow { writes: 2, reads: 0, syncs: 1, others: 1, oldest_ns: 40 * MS };
        assert_eq!(waits.now, now);
        assert_eq!(waits.files.len(), 1);
        let file = waits.files[0];
        assert_eq!((file.file, file.waiting, file.oldest_ns), (FileId(7), 2, 40 * MS));
        assert_eq!(file.total_ns(), 0);
    }

    proptest::proptest! {
        #[test]
        fn times_are_bounded_from_both_sides(
            answers in proptest::collection::vec((0u64..200, 1u64..50), 0..2000)
        ) {
            let mut account = SlowFiles::default();
            let mut truth: HashMap<u64, u64> = HashMap::new();
            for &(file, ms) in &answers {
                record(&mut account, file, ms);
                *truth.entry(file).or_default() += ms * MS;
            }
            let all: u64 = truth.values().sum();
            proptest::prop_assert!(account.entries.len() <= FILES_MAX);
            for entry in &account.entries {
                let true_ns = truth[&entry.file.0];
                proptest::prop_assert!(entry.total_ns() <= true_ns);
                proptest::prop_assert!(entry.bound_ns() >= true_ns);
            }
            for (&file, &true_ns) in &truth {
                let is_heavy = true_ns > all / FILES_MAX as u64;
                proptest::prop_assert!(!is_heavy || entry(&account, file).is_some());
            }
        }
    }
}
