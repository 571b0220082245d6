//! Which thread has a ring, said so that processes in different PID namespaces mean the same (pid_namespaces(7)).
//!
//! A thread's number is one of its namespace. So the namespace is said with it, by the number of its inode, and only a thread of
//! the same namespace may judge whether another one is still there. If that number was given to a new namespace, the
//! former one has no processes any more; then a thread of it may be taken for one that lives, never the reverse.

use rustix::fs::{stat, statfs};

/// Where the namespace of the process is told. Of no meaning if it is not on nsfs: something else is mounted there.
const PATH: &std::ffi::CStr = c"/proc/self/ns/pid";

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// No thread.
    pub const NOBODY: Owner = Owner(0);

    /// The thread `tid` (gettid(2)), not 0, of a PID namespace ([`namespace`]).
    pub fn new(namespace: u32, tid: u32) -> Owner {
        Owner(u64::from(namespace) << u32::BITS | u64::from(tid))
    }

    /// The thread `tid` of this process's namespace.
    pub fn here(tid: u32) -> Owner {
        Owner::new(namespace(), tid)
    }

    /// Its number in its namespace.
    pub fn tid(self) -> u32 {
        self.0 as u32
    }

    /// Whether its number means the same to a thread of `other`'s namespace.
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

/// The PID namespace of this process, as the number of its inode; 0 if it is not known, for want of /proc. Allocates nothing.
pub fn namespace() -> u32 {
    let is_namespace = statfs(PATH).is_ok_and(|statfs| statfs.f_type == libc::NSFS_MAGIC);
    let inode = stat(PATH).map_or(0, |stat| stat.st_ino);
    if is_namespace { u32::try_from(inode).unwrap_or(0) } else { 0 }
}
