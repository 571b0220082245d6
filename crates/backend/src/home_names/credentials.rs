//! Acting at home for the program that asked.
//!
//! The kernel has checked what the program may do (`default_permissions`) by the time a command
//! arrives; home is only to be changed with the right owner. A daemon run by root therefore
//! creates with the program's user and group as its file-system identity (setfsuid(2)), while it
//! keeps its capabilities so that home does not check a second time, with incomplete knowledge:
//! the program's supplementary groups are not part of a request. A daemon run by somebody else
//! creates as itself.
//!
//! The umask is applied by home, so that it yields to a directory's default ACL as it should.
//!
//! Invariant: outside [`Credentials::create_as`] a thread's file-system identity is the daemon's.

#![allow(unsafe_code)] // setfsgid and unshare have no safe binding.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use weir_names::command::Creator;

use crate::allocation::{allocate_as, keep_capabilities};

/// How the daemon acts for programs.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// The daemon may take any file-system identity.
    switches: bool,
    /// Held where a thread could not get an umask of its own and uses the process's.
    shared_umask: Mutex<()>,
}

/// How far a thread is prepared to act for programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prepared {
    No,
    /// It has an umask of its own.
    OwnUmask,
    /// It shares the process's umask.
    SharedUmask,
}

thread_local! {
    static PREPARED: Cell<Prepared> = const { Cell::new(Prepared::No) };
}

impl Credentials {
    /// Of this process.
    pub(crate) fn new() -> Credentials {
        Credentials { switches: geteuid().is_root(), shared_umask: Mutex::new(()) }
    }

    /// Runs `create`, which makes one inode at home, as the program and under its umask.
    pub(crate) fn create_as<T>(&self, creator: &Creator, create: impl FnOnce() -> T) -> T {
        let prepared = self.prepare_thread();
        let _shared = (prepared == Prepared::SharedUmask)
            .then(|| self.shared_umask.lock().unwrap_or_else(PoisonError::into_inner));
        umask(Mode::from_raw_mode(creator.umask & 0o777));
        if !self.switches || (creator.uid == 0 && creator.gid == 0) {
            return create();
        }
        // `allocate_as` changes the user, so that quotas apply to the program.
        let _group = Group::assume(creator.gid);
        allocate_as(creator.uid, create)
    }

    fn prepare_thread(&self) -> Prepared {
        let prepared = PREPARED.get();
        if prepared != Prepared::No {
            return prepared;
        }
        if self.switches {
            keep_capabilities();
        }
        // SAFETY: gives this thread its own umask, root and working directory; descriptors stay
        // shared. The daemon uses no relative path that a later chdir could move.
        let unshared = unsafe { unshare_unsafe(UnshareFlags::FS) };
        let prepared = match unshared {
            Ok(()) => Prepared::OwnUmask,
            Err(_) => Prepared::SharedUmask,
        };
        PREPARED.set(prepared);
        prepared
    }
}

/// The program's file-system group, for as long as this lives.
struct Group;

impl Group {
    fn assume(gid: u32) -> Group {
        // SAFETY: changes the identity of this thread alone and touches no memory.
        unsafe { libc::setfsgid(gid) };
        Group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: as in `assume`. Only a daemon run by root calls `assume`, so root is the identity
        // to restore.
        unsafe { libc::setfsgid(libc::getegid()) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_identity_and_the_umask_are_the_programs_only_while_it_creates() {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::new();
        let creator = Creator { uid: 4321, gid: 8765, umask: 0o027 };
        let path = directory.path().join("file");
        credentials.create_as(&creator, || fs::write(&path, b"")).unwrap();
        let seen = fs::metadata(&path).unwrap();
        assert_eq!(seen.mode() & 0o777, 0o640);
        if geteuid().is_root() {
            assert_eq!((seen.uid(), seen.gid()), (4321, 8765));
        } else {
            assert_eq!(seen.uid(), geteuid().as_raw());
        }
        let own = directory.path().join("own");
        fs::write(&own, b"").unwrap();
        assert_eq!(fs::metadata(&own).unwrap().uid(), geteuid().as_raw());
    }
}
