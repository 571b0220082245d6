//! A queue of work for a few threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// First in, first out; closed once.
#[derive(Debug)]
pub(crate) struct Jobs<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    closed: bool,
}

impl<T> Default for Jobs<T> {
    fn default() -> Jobs<T> {
        let state = State { queue: VecDeque::new(), closed: false };
        Jobs { state: Mutex::new(state), arrived: Condvar::new() }
    }
}

impl<T> Jobs<T> {
    /// Appends a job; dropped if the queue is closed.
    pub(crate) fn push(&self, job: T) {
        let mut state = self.lock();
        if !state.closed {
            state.queue.push_back(job);
            drop(state);
            self.arrived.notify_one();
        }
    }

    /// Waits for the next job; `None` once the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes no further job.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
