//! FUSE's messages as they are laid out in memory (include/uapi/linux/fuse.h): [`request`] parses requests, [`answer`]
//! builds answers, [`greeting`] handles FUSE_INIT, and [`notice`] builds notifications.
//!
//! Numbers are in the machine's byte order. A message that is too short, or has a name without an end, is an error: no
//! bytes from the kernel cause a panic here.

pub(crate) mod answer;
mod fields;
pub(crate) mod greeting;
pub(crate) mod notice;
pub(crate) mod request;

use crate::errno::Errno;

/// A request that does not have the form of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<Malformed> for Errno {
    fn from(_: Malformed) -> Errno {
        Errno::EIO
    }
}

/// The kinds of requests that are served, `enum fuse_opcode`.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;

    /// Bytes of the structure that follows a request's header, before names and data, in the negotiated protocol.
    pub(crate) fn fixed_bytes(opcode: u32) -> usize {
        match opcode {
            FORGET | MKDIR | RENAME | LINK | OPEN | OPENDIR | SETXATTR | GETXATTR | LISTXATTR
            | INTERRUPT | BATCH_FORGET => 8,
            GETATTR | MKNOD | CREATE | TMPFILE | FSYNC | FSYNCDIR | RENAME2 => 16,
            RELEASE | RELEASEDIR | FLUSH | LSEEK => 24,
            IOCTL | FALLOCATE => 32,
            READ | WRITE | READDIR | READDIRPLUS => 40,
            COPY_FILE_RANGE | COPY_FILE_RANGE_64 => 56,
            SETATTR => 88,
            _ => 0,
        }
    }
}
