//! How many trees have joined a session, and whether more may.
//!
//! Invariant: a session does not end while a tree is in it, and none joins a session that has ended.

use std::sync::{Mutex, MutexGuard};

/// Joined trees at once: each has a thread and descriptors of the supervisor.
const TREES_MAX: usize = 64;

/// Whether trees may join.
#[derive(Default)]
pub(crate) struct Admission(Mutex<Admitted>);

#[derive(Default)]
struct Admitted {
    trees: usize,
    is_closed: bool,
}

impl Admission {
    /// Lets nobody join any more, unless a tree is there; returns whether it does.
    pub(crate) fn close(&self) -> bool {
        let mut admitted = self.lock();
        admitted.is_closed |= admitted.trees == 0;
        admitted.is_closed
    }

    pub(crate) fn enter(&self) -> Result<(), Refusal> {
        let mut admitted = self.lock();
        if admitted.is_closed {
            return Err(Refusal::Ending);
        }
        if admitted.trees >= TREES_MAX {
            return Err(Refusal::Because(format!("there are {TREES_MAX} programs in it already")));
        }
        admitted.trees += 1;
        Ok(())
    }

    pub(crate) fn leave(&self) {
        self.lock().trees -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, Admitted> {
        self.0.lock().expect("no thread panics")
    }
}

/// Why a tree cannot join.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The session is ending.
    Ending,
    /// For this reason.
    Because(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_no_tree_is_left_and_then_none_joins() {
        let admission = Admission::default();
        admission.enter().unwrap();
        assert!(!admission.close());
        admission.enter().unwrap();
        admission.leave();
        admission.leave();
        assert!(admission.close());
        assert_eq!(admission.enter(), Err(Refusal::Ending));
    }

    #[test]
    fn trees_are_bounded() {
        let admission = Admission::default();
        for _ in 0..TREES_MAX {
            admission.enter().unwrap();
        }
        assert!(matches!(admission.enter(), Err(Refusal::Because(_))));
        admission.leave();
        admission.enter().unwrap();
    }
}
