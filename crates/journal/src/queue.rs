//! A queue of waiters, each for the log to be durable beyond a position.

use std::collections::VecDeque;

use weir_log::Lsn;

/// Waiters, in order of arrival.
#[derive(Debug)]
pub struct AfterLsn<T> {
    waiting: VecDeque<(Lsn, T)>,
}

impl<T> Default for AfterLsn<T> {
    fn default() -> AfterLsn<T> {
        AfterLsn { waiting: VecDeque::new() }
    }
}

impl<T> AfterLsn<T> {
    /// There is no waiter.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a waiter for the record at `lsn` to be durable.
    pub fn push(&mut self, lsn: Lsn, waiter: T) {
        self.waiting.push_back((lsn, waiter));
    }

    /// Whether a waiter waits for a record at or beyond `durable`.
    pub fn waits_beyond(&self, durable: Lsn) -> bool {
        self.waiting.iter().any(|&(lsn, _)| lsn >= durable)
    }

    /// Removes the waiters for records before `durable`, in order.
    pub fn ready(&mut self, durable: Lsn) -> Vec<T> {
        self.take(|lsn, _| lsn < durable)
    }

    /// Removes all waiters.
    pub fn take_all(&mut self) -> Vec<T> {
        self.take(|_, _| true)
    }

    /// Removes the waiters that satisfy a condition, in order.
    pub fn take(&mut self, wanted: impl Fn(Lsn, &T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for (lsn, waiter) in std::mem::take(&mut self.waiting) {
            match wanted(lsn, &waiter) {
                true => taken.push(waiter),
                false => self.waiting.push_back((lsn, waiter)),
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_ready_in_order_of_arrival_when_their_records_are_durable() {
        let mut queue = AfterLsn::default();
        for (lsn, name) in [(30, "c"), (10, "a"), (20, "b"), (10, "d")] {
            queue.push(Lsn(lsn), name);
        }
        assert_eq!(
            queue.ready(Lsn(10)),
            [""; 0],
            "a position is not durable before what follows it begins"
        );
        assert_eq!(queue.ready(Lsn(11)), ["a", "d"]);
        assert!(queue.waits_beyond(Lsn(30)) && !queue.waits_beyond(Lsn(31)));
        assert_eq!(queue.take_all(), ["c", "b"]);
        assert!(queue.is_empty());
    }
}
