//! Writing home, and closing, files that were still dirty when their last descriptor was closed.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use weir_engine::{FreezeEnd, FreezeScope};

use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode};

/// Files that one waiting thread has written home together.
const BATCH: usize = 64;
/// Longest wait for them. If home takes longer, it has other problems than descriptors, and the operation that runs into
/// them reports them.
const WAIT_MAX: Duration = Duration::from_secs(5);

impl FileSystem {
    /// Closes files that have become clean. Returns whether files are left.
    pub(crate) fn close_clean(&self) -> bool {
        for _ in 0..self.closing.len() {
            let Some(inode) = self.closing.take() else { break };
            self.close_now_clean(&inode);
        }
        self.closing.len() > 0
    }

    /// Starts to write the oldest files home if there are many.
    pub(crate) fn trim_closing(self: &Arc<Self>) {
        if self.closing.len() > self.closing.files_max() / 2
            && let Some(inode) = self.closing.take()
        {
            let fs = Arc::clone(self);
            self.write_home(inode, move |inode| fs.close_now_clean(&inode));
        }
    }

    /// Waits until some of the oldest files are closed, if there are too many or if `pressed`.
    pub(crate) fn wait_for_descriptors(self: &Arc<Self>, pressed: bool) {
        if !pressed && self.closing.len() <= self.closing.files_max() {
            return;
        }
        let (sender, receiver) = channel();
        for _ in 0..BATCH {
            let Some(inode) = self.closing.take() else { break };
            let sender = sender.clone();
            // After a timeout, the reclaimer closes the files.
            let fs = Arc::clone(self);
            self.write_home(inode, move |inode| {
                fs.close_now_clean(&inode);
                let _ = sender.send(());
            });
        }
        drop(sender);
        while receiver.recv_timeout(WAIT_MAX).is_ok() {}
    }

    /// Writes a file's dirty data home, without making it durable.
    fn write_home(&self, inode: Arc<Inode>, done: impl FnOnce(Arc<Inode>) + Send + 'static) {
        let file = inode.node().file();
        self.shard.freeze(file, FreezeScope::unchanging(Some((0, u64::MAX))), move |_| {
            // A file that could not be written stays dirty, and is queued again.
            (FreezeEnd { discard: None, size: None, written: false }, move || done(inode))
        });
    }
}
