//! Promises and commits: what was promised on which mount, what waits for it, and the thread that commits.
//!
//! Owns: the count of promises, and the stopped calls that wait. A call that waits may go on when every promise that was made
//! before it is durable.
//!
//! Invariants:
//! - a commit covers the promises that were counted when it began, and no others;
//! - after a commit has failed no call goes on.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::listener::{Listener, Stopped};
use crate::mounts::Ordered;
use crate::task::Device;

/// Without output, promises become durable after this time at the latest.
const INTERVAL: Duration = Duration::from_secs(5);
/// Longest wait that is told apart from longer ones, in microseconds.
const WAIT_US_MAX: u64 = 600_000_000;

/// Promises that are not durable yet, and the calls that wait for them.
pub(crate) struct Commits {
    state: Mutex<State>,
    /// Something waits, or the session is to end.
    changed: Condvar,
    /// Promises or calls that wait have become fewer.
    progress: Condvar,
}

struct State {
    /// Promises made so far.
    promised: u64,
    /// Mounts with promises that are not durable, each with the number of the last one.
    mounts: Vec<(Ordered, u64)>,
    waiting: Vec<Waiting>,
    /// Somebody waits for everything to be durable.
    is_wanted: bool,
    oldest: Option<Instant>,
    has_failed: bool,
    counts: Counts,
}

impl State {
    /// The first promises are durable: the calls that may go on.
    fn note_durable(&mut self, durable: u64) -> Vec<Waiting> {
        self.mounts.retain(|(_, last)| *last > durable);
        self.oldest = (!self.mounts.is_empty()).then(Instant::now);
        self.is_wanted &= !self.mounts.is_empty();
        let (released, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting: &Waiting| waiting.needs <= durable);
        self.waiting = waiting;
        released
    }
}

struct Waiting {
    stopped: Stopped,
    /// The number of promises that must be durable before it goes on.
    needs: u64,
    since: Instant,
}

/// What a session did.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Calls that were stopped.
    pub calls: u64,
    /// Syncs that returned before what they promised was durable.
    pub promises: u64,
    /// Commits that output waited for.
    pub commits_for_output: u64,
    /// Commits after 5 s without output.
    pub commits_by_time: u64,
    /// Commits because the program ended.
    pub commits_at_end: u64,
    /// How long output waited, in microseconds.
    pub waits_us: Histogram<u64>,
}

impl Counts {
    fn new() -> Counts {
        let waits_us = Histogram::new_with_bounds(1, WAIT_US_MAX, 3).expect("constant bounds");
        Counts {
            calls: 0,
            promises: 0,
            commits_for_output: 0,
            commits_by_time: 0,
            commits_at_end: 0,
            waits_us,
        }
    }
}

impl Commits {
    pub(crate) fn new() -> Commits {
        let state = State {
            promised: 0,
            mounts: Vec::new(),
            waiting: Vec::new(),
            is_wanted: false,
            oldest: None,
            has_failed: false,
            counts: Counts::new(),
        };
        Commits { state: Mutex::new(state), changed: Condvar::new(), progress: Condvar::new() }
    }

    /// Counts a stopped call.
    pub(crate) fn count_call(&self) {
        self.lock().counts.calls += 1;
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Promises that everything changed on the mounts so far will be durable before anybody outside notices.
    pub(crate) fn promise(&self, mounts: Vec<Ordered>) {
        let mut state = self.lock();
        state.promised += 1;
        state.counts.promises += 1;
        let number = state.promised;
        for mount in mounts {
            match state.mounts.iter_mut().find(|(known, _)| known.device == mount.device) {
                Some((_, last)) => *last = number,
                None => state.mounts.push((mount, number)),
            }
        }
        if state.oldest.is_none() {
            state.oldest = Some(Instant::now());
            // The committing thread has a time to wait for now.
            self.changed.notify_one();
        }
    }

    /// The devices of the mounts with promises that are not durable.
    pub(crate) fn promised(&self) -> Vec<Device> {
        self.lock().mounts.iter().map(|(mount, _)| mount.device).collect()
    }

    /// Lets a call go on when all that was promised so far is durable.
    pub(crate) fn wait(&self, listener: &Listener, stopped: Stopped) {
        let mut state = self.lock();
        if state.mounts.is_empty() && !state.has_failed {
            drop(state);
            return listener.pass(&stopped);
        }
        let needs = state.promised;
        state.waiting.push(Waiting { stopped, needs, since: Instant::now() });
        self.changed.notify_one();
    }

    /// Waits until all promises are durable; returns whether they are.
    pub(crate) fn settle(&self) -> bool {
        let mut state = self.lock();
        while !state.mounts.is_empty() && !state.has_failed {
            state.is_wanted = true;
            self.changed.notify_one();
            state = self.progress.wait(state).expect(NOT_POISONED);
        }
        !state.has_failed
    }

    /// Commits whenever somebody waits, and every 5 s. Returns when a commit has failed, with the reason.
    pub(crate) fn run(&self, listener: &Listener) -> (Ordered, io::Error) {
        loop {
            let (until, mounts) = self.next();
            for mount in &mounts {
                if let Err(error) = mount.commit() {
                    self.lock().has_failed = true;
                    self.progress.notify_all();
                    return (mount.clone(), error);
                }
            }
            self.release(listener, until);
        }
    }

    /// Waits until a commit is due: the promises that it covers, and their mounts.
    fn next(&self) -> (u64, Vec<Ordered>) {
        let mut state = self.lock();
        loop {
            let is_for_output = !state.waiting.is_empty();
            let left = state.oldest.map(|oldest| INTERVAL.saturating_sub(oldest.elapsed()));
            let is_late = left.is_some_and(|left| left.is_zero());
            if !state.mounts.is_empty() && (is_for_output || state.is_wanted || is_late) {
                let counts = &mut state.counts;
                match (is_for_output, is_late) {
                    (true, _) => counts.commits_for_output += 1,
                    (false, true) => counts.commits_by_time += 1,
                    (false, false) => counts.commits_at_end += 1,
                }
                let mounts = state.mounts.iter().map(|(mount, _)| mount.clone()).collect();
                return (state.promised, mounts);
            }
            state = match left {
                Some(left) => self.changed.wait_timeout(state, left).expect(NOT_POISONED).0,
                None => self.changed.wait(state).expect(NOT_POISONED),
            };
        }
    }

    /// The first promises are durable: what waited for them goes on.
    fn release(&self, listener: &Listener, durable: u64) {
        let mut state = self.lock();
        let released = state.note_durable(durable);
        for waiting in &released {
            let waited_us = u64::try_from(waiting.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            state.counts.waits_us.saturating_record(waited_us.max(1));
        }
        drop(state);
        self.progress.notify_all();
        for Waiting { stopped, .. } in released {
            listener.pass(&stopped);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NOT_POISONED)
    }
}

const NOT_POISONED: &str = "no thread panics while it holds the lock";

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(minor: u32) -> Ordered {
        Ordered { device: (0, minor), path: "/nowhere".into() }
    }

    #[test]
    fn a_commit_covers_what_was_promised_when_it_began() {
        let commits = Commits::new();
        commits.promise(vec![mount(1)]);
        commits.lock().is_wanted = true;
        let (until, mounts) = commits.next();
        assert_eq!((until, mounts), (1, vec![mount(1)]));
        commits.promise(vec![mount(1), mount(2)]);
        assert_eq!(commits.promised(), [(0, 1), (0, 2)]);
        assert_eq!(commits.lock().note_durable(until).len(), 0);
        assert_eq!(commits.promised(), [(0, 1), (0, 2)]);
        assert_eq!(commits.next().0, 2);
        assert_eq!(commits.lock().note_durable(2).len(), 0);
        assert!(commits.promised().is_empty());
        assert!(!commits.lock().is_wanted);
    }

    #[test]
    fn nothing_settles_after_a_failure() {
        let commits = Commits::new();
        assert!(commits.settle());
        commits.promise(vec![mount(1)]);
        commits.lock().has_failed = true;
        assert!(!commits.settle());
    }
}
