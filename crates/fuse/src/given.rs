//! Which threads were given the attributes of directories: the kernel may be about to cache them.
//!
//! After a change of names the kernel drops the attributes of the directory, but does not count that as a change of them
//! (`fuse_dir_changed`, fs/fuse/dir.c). So an answer that was made before the change and is taken after it brings the old
//! attributes back. It does not if the kernel was told to drop them in between. As a thread takes an answer before it sends another
//! request, that is necessary only if another thread was given the attributes.
//!
//! Invariant: attributes that are read before a change of names, and given to another thread than the one that makes the change,
//! are noted here before [`Given::changed`] asks, or are read again, because [`Given::changes`] says so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::inode::NodeId;

/// A thread, as requests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(u32);

impl Thread {
    /// Several threads, or one that is not known.
    pub(crate) const ANY: Thread = Thread(0);

    /// The thread with this number in a request; 0 if it is in a PID namespace that the mount does not see.
    pub(crate) fn of(pid: u32) -> Thread {
        Thread(pid)
    }

    fn is_not(self, other: Thread) -> bool {
        self != other || self == Thread::ANY
    }
}

/// Directories noted before those that the kernel has forgotten are looked for.
const NOTED_MIN: usize = 1 << 12;

#[derive(Debug)]
struct Noted {
    to: HashMap<NodeId, Thread>,
    /// Directories at which to look for forgotten ones.
    look_at: usize,
}

/// The directories of one mount whose attributes were given since the kernel was last told to drop them.
#[derive(Debug)]
pub(crate) struct Given {
    noted: Mutex<Noted>,
    changes: AtomicU64,
}

impl Given {
    /// Nothing is given yet.
    pub(crate) fn new() -> Given {
        let noted = Noted { to: HashMap::new(), look_at: NOTED_MIN };
        Given { noted: Mutex::new(noted), changes: AtomicU64::new(0) }
    }

    /// A directory's attributes are about to be read, to be given to a thread. `is_known` says whether the kernel still knows a
    /// node.
    pub(crate) fn give(&self, directory: NodeId, to: Thread, is_known: impl Fn(NodeId) -> bool) {
        let mut noted = self.noted();
        if noted.to.len() >= noted.look_at {
            noted.to.retain(|&node, _| is_known(node));
            noted.look_at = NOTED_MIN.max(2 * noted.to.len());
        }
        let had = noted.to.entry(directory).or_insert(to);
        if had.is_not(to) {
            *had = Thread::ANY;
        }
    }

    /// A thread has changed names in a directory. Says whether the kernel must be told to drop the directory's attributes before
    /// the thread is answered.
    pub(crate) fn changed(&self, directory: NodeId, by: Thread) -> bool {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut noted = self.noted();
        let is_others = noted.to.get(&directory).is_some_and(|to| to.is_not(by));
        if is_others {
            noted.to.remove(&directory);
        }
        is_others
    }

    /// Counts the changes. What was read of a directory before its attributes were noted as given is to be read again if the
    /// count is not what it was before.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: NodeId = NodeId(7);
    const ONE: Thread = Thread(1);
    const TWO: Thread = Thread(2);

    fn given(to: &[Thread]) -> Given {
        let given = Given::new();
        to.iter().for_each(|&to| given.give(DIRECTORY, to, |_| true));
        given
    }

    #[test]
    fn attributes_that_another_thread_was_given_are_dropped_once() {
        assert!(!given(&[]).changed(DIRECTORY, ONE));
        assert!(!given(&[ONE, ONE]).changed(DIRECTORY, ONE), "it has taken them");
        assert!(!given(&[TWO]).changed(NodeId(8), ONE), "another directory");
        for others in [&[TWO][..], &[ONE, TWO], &[TWO, ONE], &[Thread::ANY], &[ONE, Thread::ANY]] {
            let given = given(others);
            assert!(given.changed(DIRECTORY, ONE), "{others:?}");
            assert!(!given.changed(DIRECTORY, ONE), "{others:?}: they were dropped");
        }
        assert!(given(&[ONE]).changed(DIRECTORY, Thread::ANY), "it may be another one");
    }

    #[test]
    fn changes_are_counted_before_it_is_asked_who_was_given_attributes() {
        let given = given(&[]);
        let before = given.changes();
        assert!(!given.changed(DIRECTORY, ONE));
        assert_ne!(given.changes(), before);
    }

    #[test]
    fn what_the_kernel_has_forgotten_is_not_kept() {
        let given = Given::new();
        for node in 0..3 * NOTED_MIN as u64 {
            given.give(NodeId(node), ONE, |node| node.0 % 4 == 0);
        }
        assert!(given.noted().to.len() < 2 * NOTED_MIN);
        assert!((0..NOTED_MIN as u64).step_by(4).all(|node| given.changed(NodeId(node), TWO)));
    }
}
