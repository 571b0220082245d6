//! Files that were still dirty when their last descriptor was closed.
//!
//! Their data descriptors at home are needed until what is dirty has been written, which may be
//! half a minute later. A program that makes many small files would use up all descriptors of the
//! process; hence the bounds: above the lower one the oldest files are written home at once, above
//! the higher one whoever opens or makes another file waits for that.
//!
//! Owns the queue of these files. Invariant: an inode is in it at most once, and says so in its
//! open state.
//!
//! Lock order: the queue's lock comes after an inode's `open` lock.

use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_engine::{FreezeEnd, Section};

use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode, OpenState};

/// Files written home together by somebody who waits.
const BATCH: usize = 64;
/// Longest wait for them. A home that takes longer has other problems than descriptors, and these
/// are told to whoever meets them.
const WAIT_MAX: Duration = Duration::from_secs(5);

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

    /// Adds a file whose `state` is locked, unless it is there. Says whether it is the first.
    pub(crate) fn add(&self, inode: &Arc<Inode>, state: &mut OpenState) -> bool {
        if std::mem::replace(&mut state.closing, true) {
            return false;
        }
        let mut files = self.files();
        files.push_back(Arc::clone(inode));
        files.len() == 1
    }

    /// Files in the queue.
    pub(crate) fn len(&self) -> usize {
        self.files().len()
    }

    fn take(&self) -> Option<Arc<Inode>> {
        let inode = self.files().pop_front()?;
        inode.open().closing = false;
        Some(inode)
    }

    fn files(&self) -> MutexGuard<'_, VecDeque<Arc<Inode>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileSystem {
    /// Closes what has become clean. Says whether files are left.
    pub(crate) fn close_clean(&self) -> bool {
        for _ in 0..self.closing.len() {
            let Some(inode) = self.closing.take() else { break };
            self.close_now_clean(&inode);
        }
        self.closing.len() > 0
    }

    /// Starts to write the oldest files home if there are many.
    pub(crate) fn trim_closing(self: &Arc<Self>) {
        if self.closing.len() > self.closing.files_max / 2
            && let Some(inode) = self.closing.take()
        {
            let fs = Arc::clone(self);
            self.write_home(inode, move |inode| fs.close_now_clean(&inode));
        }
    }

    /// Waits until some of the oldest files are closed, if there are too many or if `pressed`.
    pub(crate) fn wait_for_descriptors(self: &Arc<Self>, pressed: bool) {
        if !pressed && self.closing.len() <= self.closing.files_max {
            return;
        }
        let (sender, receiver) = channel();
        for _ in 0..BATCH {
            let Some(inode) = self.closing.take() else { break };
            let sender = sender.clone();
            // Whoever waits no longer leaves the closing to the reclaimer.
            let fs = Arc::clone(self);
            self.write_home(inode, move |inode| {
                fs.close_now_clean(&inode);
                let _ = sender.send(());
            });
        }
        drop(sender);
        while receiver.recv_timeout(WAIT_MAX).is_ok() {}
    }

    /// Writes what is dirty of a file home, without making it durable.
    fn write_home(&self, inode: Arc<Inode>, done: impl FnOnce(Arc<Inode>) + Send + 'static) {
        let file = inode.node().file();
        self.shard.freeze(file, Section::unchanging(Some((0, u64::MAX))), move |_| {
            // A file that could not be written stays dirty, and is met again.
            (FreezeEnd { discard: None, size: None }, move || done(inode))
        });
    }
}
