//! The kernel's caches of names, attributes, pages and listings: telling it to drop from them.
//!
//! For the reclaimer's thread only: every call may wait for a lock that is held while a request of ours is being
//! answered.

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
    /// Those behind `device`. `requests` counts what the kernel is told.
    pub(crate) fn new(device: File, requests: Arc<Requests>) -> KernelCache {
        KernelCache { device, requests }
    }

    /// Has the kernel drop a name, and the inode with it if nobody uses that.
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

    /// Has the kernel drop an inode's attributes and data, which of a directory is its listing.
    pub(crate) fn drop_pages(&self, node: NodeId) {
        self.tell(&notice::inode(node, 0, 0));
    }

    /// What the kernel does not cache need not be dropped; and when the mount is gone, nothing is cached.
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
