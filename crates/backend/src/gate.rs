//! Keeps a file's direct and buffered writes apart in time.
//!
//! A direct write drops the pages it replaces from the kernel's page cache, before and after. If a
//! buffered write dirties one of those pages, or another page of the same large folio, in between,
//! the kernel finds a page it cannot drop and reports EIO by the file's next fsync. So at any
//! moment one file has writes of one mode in flight only; the others queue here, first come, first
//! served.
//!
//! Invariants:
//! - `in_flight` counts writes of `mode` alone;
//! - what waits at the front could not start now, unless nothing waits.

use std::collections::VecDeque;

/// How bytes reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `O_DIRECT`, by the device's alignment.
    Direct,
    /// Through the kernel's page cache, at any byte.
    Buffered,
}

/// Who may write now, and who waits. Not synchronised: lives under its file's lock.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    mode: Mode,
    in_flight: u32,
    waiting: VecDeque<(Mode, T)>,
}

impl<T> Default for Gate<T> {
    fn default() -> Gate<T> {
        Gate { mode: Mode::Direct, in_flight: 0, waiting: VecDeque::new() }
    }
}

impl<T> Gate<T> {
    /// Lets `write` through, giving it back, or keeps it until its turn comes. Whatever goes
    /// through must [`Gate::leave`].
    pub(crate) fn enter(&mut self, mode: Mode, write: T) -> Option<T> {
        if self.waiting.is_empty() && self.admits(mode) {
            self.mode = mode;
            self.in_flight += 1;
            return Some(write);
        }
        self.waiting.push_back((mode, write));
        None
    }

    /// A write that went through is over. Puts into `next` those whose turn has come; they have
    /// gone through.
    pub(crate) fn leave(&mut self, mode: Mode, next: &mut Vec<T>) {
        assert!(self.in_flight > 0 && self.mode == mode, "leaving a gate that was not entered");
        self.in_flight -= 1;
        while self.waiting.front().is_some_and(|(mode, _)| self.admits(*mode)) {
            let Some((mode, write)) = self.waiting.pop_front() else { break };
            self.mode = mode;
            self.in_flight += 1;
            next.push(write);
        }
    }

    fn admits(&self, mode: Mode) -> bool {
        self.in_flight == 0 || self.mode == mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_never_overlap_and_the_order_is_kept() {
        let mut gate = Gate::default();
        let mut next = Vec::new();
        assert_eq!(gate.enter(Mode::Direct, 1), Some(1));
        assert_eq!(gate.enter(Mode::Direct, 2), Some(2));
        assert_eq!(gate.enter(Mode::Buffered, 3), None);
        // Would fit what is in flight, but must not overtake the buffered one for ever.
        assert_eq!(gate.enter(Mode::Direct, 4), None);
        assert_eq!(gate.enter(Mode::Direct, 5), None);
        gate.leave(Mode::Direct, &mut next);
        assert!(next.is_empty());
        gate.leave(Mode::Direct, &mut next);
        assert_eq!(next, [3]);
        next.clear();
        gate.leave(Mode::Buffered, &mut next);
        assert_eq!(next, [4, 5]);
    }
}
