//! Invalidating the kernel's caches of names, attributes, pages and listings.
//!
//! Only for the reclaimer's thread: each call may wait for a kernel lock that is held until a request to the daemon has been
//! answered. Two calls do not: dropping attributes waits for nothing that is held so long; and while a request that changes the
//! names in a directory is served, the kernel holds the lock of the directory, so that no program reads its listing, and the
//! thread that serves the request can have the listing dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use crate::inode::NodeId;
use crate::requests::Requests;
use crate::transport::wire::notice;

/// The caches behind one connection.
pub(crate) struct KernelCache {
    device: File,
    requests: Arc<Requests>,
}

impl KernelCache {
    /// The caches behind `device`. `requests` counts the notifications.
    pub(crate) fn new(device: File, requests: Arc<Requests>) -> KernelCache {
        KernelCache { device, requests }
    }

    /// Has the kernel drop a name, and its inode if that is not in use.
    pub(crate) fn drop_name(&self, parent: NodeId, name: &OsStr) {
        self.tell(&notice::entry(parent, name));
    }

    /// Has the kernel drop an inode's attributes, but not its data.
    pub(crate) fn drop_attributes(&self, node: NodeId) {
        self.tell(&notice::inode(node, -1, 0));
    }

    /// Has the kernel drop an inode's attributes, and the pages that a range of bytes touches.
    pub(crate) fn drop_range(&self, node: NodeId, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
            return self.drop_pages(node);
        };
        self.tell(&notice::inode(node, offset, len));
    }

    /// Has the kernel drop an inode's attributes and data; for a directory, the data is its listing.
    pub(crate) fn drop_pages(&self, node: NodeId) {
        self.tell(&notice::inode(node, 0, 0));
    }

    /// Sends a notification. Errors are ignored: they mean that the kernel does not cache the object, or that the mount
    /// has ended.
    fn tell(&self, message: &[u8]) {
        self.requests.count_notification();
        match (&self.device).write(message) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                tracing::debug!("the kernel did not drop a cache entry: {error}");
            }
            _ => {}
        }
    }
}
