//! Notifications, which have the kernel drop objects from its caches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::inode::NodeId;

/// Bytes of `struct fuse_out_header`.
const HEADER_BYTES: usize = 16;

/// `enum fuse_notify_code`.
const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;

/// An inode's attributes, and the pages that `len` bytes from `offset` on touch: all of them if `len` is 0, none if
/// `offset` is negative.
pub(crate) fn inode(node: NodeId, offset: i64, len: i64) -> Vec<u8> {
    let numbers = [node.0, offset.cast_unsigned(), len.cast_unsigned()];
    message(INVAL_INODE, &numbers.map(u64::to_ne_bytes).concat())
}

/// A name in a directory.
pub(crate) fn entry(parent: NodeId, name: &OsStr) -> Vec<u8> {
    let name = name.as_bytes();
    // Names are of NAME_MAX bytes at most.
    let len = (name.len() as u32).to_ne_bytes();
    let padding = [0; 4];
    message(INVAL_ENTRY, &[&parent.0.to_ne_bytes()[..], &len, &padding, name, &[0]].concat())
}

/// `struct fuse_out_header` with the kind of notification in place of an error, and 0 as the number of the request.
fn message(kind: i32, body: &[u8]) -> Vec<u8> {
    let len = (HEADER_BYTES + body.len()) as u32;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&len.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&0u64.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_laid_out_as_fuse_h_says() {
        let told = inode(NodeId(0x42), -1, 200);
        assert_eq!(told.len(), 40);
        assert_eq!(told[..8], [40u32.to_ne_bytes(), 2u32.to_ne_bytes()].concat());
        assert_eq!(told[16..24], 0x42u64.to_ne_bytes());
        assert_eq!(told[24..32], (-1i64).to_ne_bytes());
        let told = entry(NodeId(0x42), OsStr::new("abc"));
        assert_eq!(told.len(), 36);
        assert_eq!(told[4..8], 3u32.to_ne_bytes());
        assert_eq!(told[24..], [&3u32.to_ne_bytes()[..], &[0; 4], b"abc\0"].concat());
    }
}
