//! One reader or writer: its next operation, and the latencies of its operations.

use hdrhistogram::Histogram;
use weir_drive::parameters::{Ns, SECOND};
use weir_engine::FileId;

use crate::side_by_side::{Client, Order, Session, Side};

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// An operation on this page.
    Page(u64),
    /// No operation before this time.
    Wait(Ns),
    /// No operation any more: the load is over.
    End,
}

/// A thread of a client.
pub struct Program {
    /// What it does.
    pub side: Side,
    /// With which file.
    pub file: FileId,
    /// The most operations of a session.
    most: u64,
    sessions: Vec<(Session, Order)>,
    /// The number of operations done in the first of these sessions.
    number: u64,
    /// Latencies of finished operations, ns.
    pub latencies: Histogram<u64>,
    /// When the operation in progress began.
    pub begun: Ns,
}

impl Program {
    /// A program of `client` with this file and at most this many operations in a session.
    pub fn new(client: &Client, side: Side, file: FileId, most: u64) -> Program {
        let mut sessions: Vec<_> = client.orders(side).collect();
        sessions.reverse();
        let latencies = Histogram::new(3).expect("three digits are allowed");
        Program { side, file, most, sessions, number: 0, latencies, begun: 0 }
    }

    /// Its next step at `now`, with no operation in progress.
    pub fn next(&mut self, now: Ns, over: bool) -> Next {
        while let Some((session, order)) = self.sessions.last() {
            if over {
                break;
            }
            let [begin, end] = [session.begin, session.end].map(|at| (at * SECOND as f64) as Ns);
            if now < begin {
                return Next::Wait(begin);
            }
            if now < end && self.number < self.most {
                self.number += 1;
                self.begun = now;
                return Next::Page(order.page(self.number - 1));
            }
            self.sessions.pop();
            self.number = 0;
        }
        Next::End
    }

    /// The operation in progress ended at `now`.
    pub fn note(&mut self, now: Ns) {
        self.latencies.record(now - self.begun).expect("a histogram that grows");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side_by_side::Access;

    #[test]
    fn sessions_follow_each_other_and_each_begins_anew() {
        let session = |begin, end| Session { access: Access::Sequential, begin, end };
        let sessions = vec![session(0.0, 1.0), session(2.0, 3.0)];
        let client = Client { number: 0, pages: 100, sessions, seed: 1 };
        let mut program = Program::new(&client, Side::Reads, FileId(0), 2);
        assert_eq!(program.next(0, false), Next::Page(0));
        assert_eq!(program.next(SECOND / 2, false), Next::Page(1));
        assert_eq!(program.next(SECOND / 2, false), Next::Wait(2 * SECOND), "two at the most");
        assert_eq!(program.next(2 * SECOND, false), Next::Page(0));
        program.note(2 * SECOND + 1000);
        assert_eq!((program.latencies.len(), program.latencies.max()), (1, 1000));
        assert_eq!(program.next(3 * SECOND, false), Next::End, "its time is over");
        let mut program = Program::new(&client, Side::Writes, FileId(0), u64::MAX);
        assert_eq!(program.next(0, true), Next::End);
    }
}
