//! What waits for the drive's cache: writes for room in it, flushes for it to be written back.
//!
//! Every model with a medium slower than its cache has one. It knows when something may complete,
//! not how long anything takes.

use std::collections::VecDeque;

use super::cache::{Cache, Run};
use super::parameters::Ns;

/// A request as the models see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
    /// When it came.
    pub arrived: Ns,
}

/// A request that is complete, or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number.
    pub id: u64,
    /// When.
    pub at: Ns,
}

/// The writes and flushes that wait, and the run being written back.
pub struct Backlog {
    capacity: u64,
    writes: VecDeque<Job>,
    waiting_bytes: u64,
    /// Number of the flush, and of the last write it must make durable.
    flushes: VecDeque<(u64, u64)>,
    /// The run being written back, and when that is over.
    writing: Option<(Run, Ns)>,
}

impl Backlog {
    /// Of a cache of `capacity` bytes.
    pub fn new(capacity: u64) -> Backlog {
        Backlog {
            capacity,
            writes: VecDeque::new(),
            waiting_bytes: 0,
            flushes: VecDeque::new(),
            writing: None,
        }
    }

    /// Whether the last write taken into `cache` fits; if not, it waits here.
    pub fn fits(&mut self, job: Job, cache: &Cache) -> bool {
        let writing = self.writing.map_or(0, |(run, _)| run.bytes);
        if self.writes.is_empty() && cache.dirty_bytes() + writing <= self.capacity {
            return true;
        }
        self.waiting_bytes += job.bytes;
        self.writes.push_back(job);
        false
    }

    /// Adds a flush; it completes by [`Backlog::settled`] or [`Backlog::settling`].
    pub fn flush(&mut self, id: u64, cache: &Cache) {
        self.flushes.push_back((id, cache.last_write()));
    }

    /// Whether anything waits for a write-back.
    pub fn waits(&self) -> bool {
        !self.flushes.is_empty() || !self.writes.is_empty()
    }

    /// Notes that `run` is being written back until then.
    pub fn begin(&mut self, run: Run, until: Ns) {
        assert!(self.writing.is_none(), "one run at a time is written back");
        self.writing = Some((run, until));
    }

    /// When the write-back under way, if any, is over.
    pub fn writing_until(&self) -> Option<Ns> {
        self.writing.map(|(_, until)| until)
    }

    /// Ends the write-back under way: the writes that fit now, which are still to be transferred.
    pub fn end(&mut self, cache: &Cache) -> Vec<Job> {
        self.writing = None;
        let mut fit = Vec::new();
        while let Some(job) = self.writes.front().copied() {
            // What waits behind it is in the cache's pages and takes no room of the drive's yet.
            let behind = self.waiting_bytes - job.bytes;
            if cache.dirty_bytes().saturating_sub(behind) > self.capacity {
                break;
            }
            self.waiting_bytes = behind;
            self.writes.pop_front();
            fit.push(job);
        }
        fit
    }

    /// The flushes that wait for the run being written back alone: it is known when they are over.
    pub fn settling(&mut self, cache: &mut Cache) -> Vec<Done> {
        self.writing_until().map_or_else(Vec::new, |until| self.over(until, cache))
    }

    /// The flushes that are over `at` that time: all they wait for is written back.
    pub fn settled(&mut self, at: Ns, cache: &mut Cache) -> Vec<Done> {
        if self.writing.is_some() { Vec::new() } else { self.over(at, cache) }
    }

    /// Takes out the flushes of which nothing is left in the cache.
    fn over(&mut self, at: Ns, cache: &mut Cache) -> Vec<Done> {
        let mut over = Vec::new();
        let oldest = cache.oldest().map(|(number, _, _)| number);
        while let Some((id, upto)) = self.flushes.front().copied() {
            if oldest.is_some_and(|oldest| oldest <= upto) {
                break;
            }
            self.flushes.pop_front();
            over.push(Done { id, at });
        }
        over
    }
}
