//! Direct-I/O exclusion: keeps a file's direct and buffered writes apart in time.
//!
//! A direct write drops the pages it replaces from the kernel's page cache, before and after. If a
//! buffered write dirties one of those pages, or another page of the same large folio, in between,
//! the kernel finds a page it cannot drop and reports EIO by the file's next fsync. So at any
//! moment one file has writes of one mode in flight only; the others queue here, in order of
//! arrival.
//!
//! Owns the queues of all files that have writes in flight. Does not own the files.
//!
//! Invariants:
//! - a file has a queue here exactly while it has a write in flight;
//! - `in_flight` counts writes of `mode` alone;
//! - the write at the front of `waiting` could not start now.

use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// How bytes reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `O_DIRECT`, by the device's alignment.
    Direct,
    /// Through the kernel's page cache, at any byte.
    Buffered,
}

/// The writes of type `W` that are in flight, and those that wait, of all files of type `F`.
#[derive(Debug)]
pub(crate) struct Exclusion<F, W> {
    /// Keyed by the file's address, which is unique while a write holds the file.
    files: Mutex<HashMap<usize, Queue<W>>>,
    of: PhantomData<fn(&F)>,
}

/// One file's writes.
#[derive(Debug)]
struct Queue<W> {
    mode: Mode,
    in_flight: u32,
    waiting: VecDeque<(Mode, W)>,
}

impl<F, W> Default for Exclusion<F, W> {
    fn default() -> Exclusion<F, W> {
        Exclusion { files: Mutex::default(), of: PhantomData }
    }
}

impl<F, W> Exclusion<F, W> {
    /// Admits `write`, which holds `file`, and returns it, or keeps it until its turn comes. An
    /// admitted write must [`Exclusion::leave`].
    pub(crate) fn enter(&self, file: &Arc<F>, mode: Mode, write: W) -> Option<W> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = files.entry(address(file)).or_insert_with(|| Queue {
            mode,
            in_flight: 0,
            waiting: VecDeque::new(),
        });
        if queue.waiting.is_empty() && queue.admits(mode) {
            queue.mode = mode;
            queue.in_flight += 1;
            return Some(write);
        }
        queue.waiting.push_back((mode, write));
        None
    }

    /// An admitted write of `file` ended. Puts into `next` the writes that are admitted now.
    pub(crate) fn leave(&self, file: &Arc<F>, mode: Mode, next: &mut Vec<W>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = files.get_mut(&address(file)).expect("a write in flight has its file's queue");
        assert!(queue.in_flight > 0 && queue.mode == mode, "a write ends that was not admitted");
        queue.in_flight -= 1;
        while queue.waiting.front().is_some_and(|(mode, _)| queue.admits(*mode)) {
            let Some((mode, write)) = queue.waiting.pop_front() else { break };
            queue.mode = mode;
            queue.in_flight += 1;
            next.push(write);
        }
        if queue.in_flight == 0 {
            files.remove(&address(file));
        }
    }
}

impl<W> Queue<W> {
    fn admits(&self, mode: Mode) -> bool {
        self.in_flight == 0 || self.mode == mode
    }
}

fn address<F>(file: &Arc<F>) -> usize {
    Arc::as_ptr(file).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_never_overlap_and_the_order_is_kept() {
        let (file, other) = (Arc::new('a'), Arc::new('b'));
        let exclusion = Exclusion::default();
        let mut next = Vec::new();
        assert_eq!(exclusion.enter(&file, Mode::Direct, 1), Some(1));
        assert_eq!(exclusion.enter(&file, Mode::Direct, 2), Some(2));
        assert_eq!(exclusion.enter(&file, Mode::Buffered, 3), None);
        // Would fit what is in flight, but must not overtake the buffered write for ever.
        assert_eq!(exclusion.enter(&file, Mode::Direct, 4), None);
        assert_eq!(exclusion.enter(&file, Mode::Direct, 5), None);
        assert_eq!(exclusion.enter(&other, Mode::Buffered, 6), Some(6));
        exclusion.leave(&file, Mode::Direct, &mut next);
        assert!(next.is_empty());
        exclusion.leave(&file, Mode::Direct, &mut next);
        assert_eq!(next, [3]);
        next.clear();
        exclusion.leave(&file, Mode::Buffered, &mut next);
        assert_eq!(next, [4, 5]);
        exclusion.leave(&file, Mode::Direct, &mut next);
        exclusion.leave(&file, Mode::Direct, &mut next);
        exclusion.leave(&other, Mode::Buffered, &mut next);
        assert!(exclusion.files.lock().unwrap().is_empty());
    }
}
