//! Storage across a network: a round trip for everything, many at a time, one line each way, and so
//! many requests a second as the volume was granted.
//!
//! The server has what it is asked for in memory, and keeps what it is sent there until it is told
//! to make it durable or its cache is full.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::backlog::{Done, Job};
use super::parameters::remote::{QUEUE, RATE, REQUESTS_A_SECOND, ROUND_TRIP};
use super::parameters::{Ns, SECOND, time_at};

/// A line to a server.
#[derive(Default)]
pub struct Remote {
    up_free: Ns,
    down_free: Ns,
    /// When the grant allows the next request.
    granted: Ns,
    /// When the requests under way are over.
    under_way: BinaryHeap<Reverse<Ns>>,
}

impl Remote {
    /// Takes in a read.
    pub fn read(&mut self, job: Job) -> Done {
        let asked = self.begin(job.arrived) + ROUND_TRIP / 2;
        self.down_free = self.down_free.max(asked) + time_at(RATE, job.bytes);
        self.over(job.id, self.down_free + ROUND_TRIP / 2)
    }

    /// Takes in a write.
    pub fn write(&mut self, job: Job) -> Done {
        let begin = self.begin(job.arrived);
        self.up_free = self.up_free.max(begin) + time_at(RATE, job.bytes);
        self.over(job.id, self.up_free + ROUND_TRIP)
    }

    /// Takes in a flush; no grant is spent on it.
    pub fn flush(&mut self, job: Job) -> Done {
        let begin = self.place(job.arrived);
        self.over(job.id, begin + ROUND_TRIP)
    }

    /// When a request that came at `now` is sent: one that finds the queue full waits for a place,
    /// one beyond the grant until it is granted.
    fn begin(&mut self, now: Ns) -> Ns {
        let begin = self.place(now).max(self.granted);
        self.granted = begin + SECOND / REQUESTS_A_SECOND;
        begin
    }

    fn place(&mut self, now: Ns) -> Ns {
        while self.under_way.peek().is_some_and(|Reverse(over)| *over <= now) {
            self.under_way.pop();
        }
        if self.under_way.len() < QUEUE {
            return now;
        }
        self.under_way.pop().map_or(now, |Reverse(over)| over)
    }

    fn over(&mut self, id: u64, at: Ns) -> Done {
        self.under_way.push(Reverse(at));
        Done { id, at }
    }
}
