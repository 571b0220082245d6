//! The owner of a ring: a thread, identified across PID namespaces (pid_namespaces(7)).
//!
//! A thread number is valid in one namespace only. So an owner holds the inode number of the namespace as
//! well, and only a thread of the same namespace may decide whether the owner still exists. If the inode
//! number was reused for a new namespace, the former namespace has no processes any more; a dead owner may
//! then be taken for a live one, never the reverse.

use rustix::fs::{stat, statfs};

/// Names the process's namespace. Invalid if the file is not on nsfs: something else is mounted there.
const PATH: &std::ffi::CStr = c"/proc/self/ns/pid";

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// No thread.
    pub const NONE: Owner = Owner(0);

    /// The thread `tid` (gettid(2)), not 0, in a PID namespace ([`namespace`]).
    pub fn new(namespace: u32, tid: u32) -> Owner {
        Owner(u64::from(namespace) << u32::BITS | u64::from(tid))
    }

    /// The thread `tid` in this process's namespace.
    pub fn here(tid: u32) -> Owner {
        Owner::new(namespace(), tid)
    }

    /// Its number in its namespace.
    pub fn tid(self) -> u32 {
        self.0 as u32
    }

    /// Whether both owners are in the same namespace, and it is known.
    pub fn is_beside(self, other: Owner) -> bool {
        let namespace = self.0 >> u32::BITS;
        namespace != 0 && namespace == other.0 >> u32::BITS
    }

    pub(crate) fn from_word(word: u64) -> Owner {
        Owner(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }
}

/// The inode number of this process's PID namespace; 0 if unknown because /proc is missing. Does not
/// allocate.
pub fn namespace() -> u32 {
    let is_namespace = statfs(PATH).is_ok_and(|statfs| statfs.f_type == libc::NSFS_MAGIC);
    let inode = stat(PATH).map_or(0, |stat| stat.st_ino);
    if is_namespace { u32::try_from(inode).unwrap_or(0) } else { 0 }
}
