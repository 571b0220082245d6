//! Files that were still dirty when their last descriptor was closed.
//!
//! Their data descriptors at home are needed until the dirty data has been written, which may be half a minute later.
//! A program that makes many small files would use up all descriptors of the daemon. So there are two bounds (enforced
//! in [`crate::ops::closing`]): above the lower one the oldest files are written home at once, above the higher one a
//! program that opens or makes another file waits for that.
//!
//! Owns the queue of these files. Invariant: an inode is in it at most once, and says so in its
//! open state.
//!
//! Lock order: the queue's lock comes after an inode's `open` lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::inode::{Inode, OpenState};

/// The queue, oldest first.
#[derive(Debug)]
pub(crate) struct Closing {
    files: Mutex<VecDeque<Arc<Inode>>>,
    files_max: usize,
}

impl Closing {
    /// An empty queue that should not have more than `files_max` files.
    pub(crate) fn new(files_max: usize) -> Closing {
        Closing { files: Mutex::default(), files_max: files_max.max(2) }
    }

    /// Adds a file whose `state` is locked, unless it is in the queue. Returns whether it is the first.
    pub(crate) fn add(&self, inode: &Arc<Inode>, state: &mut OpenState) -> bool {
        if std::mem::replace(&mut state.closing, true) {
            return false;
        }
        let mut files = self.files();
        files.push_back(Arc::clone(inode));
        files.len() == 1
    }

    /// The most files that the queue should have.
    pub(crate) fn files_max(&self) -> usize {
        self.files_max
    }

    /// Files in the queue.
    pub(crate) fn len(&self) -> usize {
        self.files().len()
    }

    /// Removes and returns the oldest file.
    pub(crate) fn take(&self) -> Option<Arc<Inode>> {
        let inode = self.files().pop_front()?;
        inode.open().closing = false;
        Some(inode)
    }

    fn files(&self) -> MutexGuard<'_, VecDeque<Arc<Inode>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
