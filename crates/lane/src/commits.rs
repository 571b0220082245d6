//! Why a session's commits on a mount were made, and how long output waited for them: counted in memory that daemon, supervisor and
//! members share ([`crate::promises`]), for reports alone.

use std::sync::atomic::{AtomicU64, Ordering};

/// Four for each doubling, up to 2^24 us.
const WAITS: usize = 4 * 24;

/// Why a commit was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Something waited to leave the session.
    Output,
    /// It took as long to judge whether calls leave.
    Judging,
    /// A promise was 5 s old.
    Time,
    /// A program had ended.
    End,
    /// A sync of a member that output would probably follow.
    Sync,
    /// Somebody outside looked at the mount.
    Outside,
}

/// How many reasons there are.
const REASONS: usize = 6;

/// The counts of one session on one mount.
#[repr(C)]
#[derive(Debug)]
pub struct Commits {
    by_reason: [AtomicU64; REASONS],
    /// How many waits took how long.
    waits: [AtomicU64; WAITS],
    longest_us: AtomicU64,
}

impl Commits {
    /// Counts a commit.
    pub fn count(&self, reason: Reason) {
        self.by_reason[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn made(&self, reason: Reason) -> u64 {
        self.by_reason[reason as usize].load(Ordering::Relaxed)
    }

    /// Counts a wait for a commit, in microseconds.
    pub fn count_wait(&self, us: u64) {
        let us = us.max(1);
        let doublings = us.ilog2();
        let quarter = if doublings < 2 { 0 } else { us >> (doublings - 2) & 3 };
        let index = 4 * doublings as usize + quarter as usize;
        self.waits[index.min(WAITS - 1)].fetch_add(1, Ordering::Relaxed);
        self.longest_us.fetch_max(us, Ordering::Relaxed);
    }
}

/// Commits by their reasons, of one mount or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// [`Reason::Output`].
    pub for_output: u64,
    /// [`Reason::Judging`].
    pub for_judging: u64,
    /// [`Reason::Time`].
    pub by_time: u64,
    /// [`Reason::End`].
    pub at_end: u64,
    /// [`Reason::Sync`].
    pub by_syncs: u64,
    /// [`Reason::Outside`].
    pub for_outsiders: u64,
}

impl Made {
    /// Adds those that were counted.
    pub fn add(&mut self, commits: &Commits) {
        let add = |sum: &mut u64, reason| *sum = sum.saturating_add(commits.made(reason));
        add(&mut self.for_output, Reason::Output);
        add(&mut self.for_judging, Reason::Judging);
        add(&mut self.by_time, Reason::Time);
        add(&mut self.at_end, Reason::End);
        add(&mut self.by_syncs, Reason::Sync);
        add(&mut self.for_outsiders, Reason::Outside);
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        let Made { for_output, for_judging, by_time, at_end, by_syncs, for_outsiders } = *self;
        [for_output, for_judging, by_time, at_end, by_syncs, for_outsiders]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// Waits, of one mount or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// From the shortest on: the upper bound in microseconds, which is at most a quarter too much, and how many there were.
    by_length: Vec<(u64, u64)>,
    longest_us: u64,
}

impl Waits {
    /// Adds those that were counted.
    pub fn add(&mut self, commits: &Commits) {
        for (index, count) in commits.waits.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count == 0 {
                continue;
            }
            let us = at_most(index);
            match self.by_length.binary_search_by_key(&us, |(us, _)| *us) {
                Ok(at) => self.by_length[at].1 = self.by_length[at].1.saturating_add(count),
                Err(at) => self.by_length.insert(at, (us, count)),
            }
        }
        self.longest_us = self.longest_us.max(commits.longest_us.load(Ordering::Relaxed));
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.by_length.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The time within which this share of the waits was over, in microseconds; 0 without waits.
    pub fn percentile_us(&self, percent: u64) -> u64 {
        let wanted = u128::from(self.count()) * u128::from(percent);
        let mut sum = 0_u128;
        for (us, count) in &self.by_length {
            sum += u128::from(*count);
            if sum * 100 >= wanted {
                return (*us).min(self.longest_us);
            }
        }
        self.longest_us
    }

    /// All together, in microseconds; at most a quarter too much, as each is.
    pub fn total_us(&self) -> u64 {
        self.by_length.iter().fold(0, |sum, (us, count)| {
            sum.saturating_add((*us).min(self.longest_us).saturating_mul(*count))
        })
    }

    /// The longest, in microseconds.
    pub fn longest_us(&self) -> u64 {
        self.longest_us
    }
}

/// The longest wait that has this place, in microseconds.
fn at_most(index: usize) -> u64 {
    let (doublings, quarter) = (index as u32 / 4, index as u64 % 4);
    let end = if doublings < 2 { 2 << doublings } else { (5 + quarter) << (doublings - 2) };
    end - 1
}

#[cfg(test)]
mod tests {
    use crate::promises::{Promises, Side};

    use super::*;

    #[test]
    fn waits_are_counted_within_a_quarter() {
        for us in [0, 1, 2, 3, 4, 5, 7, 8, 100, 333, 1 << 20, 12_345_678] {
            let (promises, _fd) = Promises::create().unwrap();
            promises.commits().count_wait(us);
            promises.commits().count_wait(us);
            let mut waits = Waits::default();
            waits.add(promises.commits());
            let [(at_most, 2)] = waits.by_length[..] else { panic!("{waits:?}") };
            assert!(at_most >= us && at_most <= us + us / 4 + 2, "{us}: {at_most}");
            assert_eq!((waits.count(), waits.longest_us()), (2, us.max(1)));
            assert_eq!(waits.percentile_us(50), us.max(1));
            assert_eq!(waits.total_us(), 2 * us.max(1));
        }
    }

    #[test]
    fn all_sides_see_what_was_counted() {
        let (daemon, fd) = Promises::create().unwrap();
        let member = Promises::open(&fd, Side::Member).unwrap();
        member.commits().count(Reason::Output);
        (0..99).for_each(|_| member.commits().count_wait(10));
        member.commits().count_wait(5000);
        daemon.commits().count(Reason::Outside);
        let mut made = Made::default();
        made.add(daemon.commits());
        assert_eq!(made, Made { for_output: 1, for_outsiders: 1, ..Made::default() });
        assert_eq!(made.total(), 2);
        let mut waits = Waits::default();
        assert_eq!(waits.percentile_us(99), 0);
        waits.add(daemon.commits());
        waits.add(daemon.commits());
        assert_eq!((waits.count(), waits.longest_us()), (200, 5000));
        assert!((10..13).contains(&waits.percentile_us(99)));
        assert_eq!(waits.percentile_us(100), 5000);
    }
}
