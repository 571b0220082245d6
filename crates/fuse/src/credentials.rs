//! Acting at home for the program that asked.
//!
//! The kernel has checked what the program may do (`default_permissions`) by the time a request
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
use weir_backend::{allocate_as, keep_capabilities};

/// The program a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// File-system user.
    pub(crate) uid: u32,
    /// File-system group.
    pub(crate) gid: u32,
    /// Process, 0 if it is in no PID namespace the daemon sees.
    pub(crate) pid: u32,
}

/// CAP_FSETID, linux/capability.h.
const CAP_FSETID: u32 = 4;

impl Caller {
    /// Whether the program may write to setuid and setgid files without these bits being taken
    /// away (CAP_FSETID).
    pub(crate) fn keeps_privileges(&self) -> bool {
        if self.uid == 0 {
            return true;
        }
        let effective = self.status("CapEff:");
        let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        effective.is_some_and(|effective| effective & 1 << CAP_FSETID != 0)
    }

    /// Whether the program belongs to a group.
    pub(crate) fn is_in_group(&self, gid: u32) -> bool {
        if self.gid == gid {
            return true;
        }
        let Some(groups) = self.status("Groups:") else {
            return false;
        };
        groups.split_ascii_whitespace().any(|group| group.parse() == Ok(gid))
    }

    /// A line of /proc/PID/status, without its key. `None` also if the process is not seen.
    fn status(&self, key: &str) -> Option<String> {
        if self.pid == 0 {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        status.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned)
    }
}

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
    pub(crate) fn create_as<T>(&self, caller: &Caller, mask: u32, create: impl FnOnce() -> T) -> T {
        let prepared = self.prepare_thread();
        let _shared = (prepared == Prepared::SharedUmask)
            .then(|| self.shared_umask.lock().unwrap_or_else(PoisonError::into_inner));
        umask(Mode::from_raw_mode(mask & 0o777));
        if !self.switches || (caller.uid == 0 && caller.gid == 0) {
            return create();
        }
        // `allocate_as` changes the user, so that quotas apply to the program.
        let _group = Group::assume(caller.gid);
        allocate_as(caller.uid, create)
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
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn caller() -> Caller {
        Caller { uid: 4321, gid: 8765, pid: std::process::id() }
    }

    #[test]
    fn a_file_is_created_with_the_callers_identity_and_umask() {
        let directory =
            std::env::temp_dir().join(format!("weir-credentials-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let credentials = Credentials::new();
        let path = directory.join("file");
        let created = credentials.create_as(&caller(), 0o027, || {
            rustix::fs::open(
                &path,
                rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
                Mode::from_raw_mode(0o666),
            )
        });
        created.unwrap();
        let seen = std::fs::metadata(&path).unwrap();
        assert_eq!(seen.mode() & 0o777, 0o640);
        if geteuid().is_root() {
            assert_eq!((seen.uid(), seen.gid()), (4321, 8765));
        } else {
            assert_eq!(seen.uid(), geteuid().as_raw());
        }
        let own = directory.join("own");
        std::fs::write(&own, b"").unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().uid(), geteuid().as_raw());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn groups_and_capabilities_come_from_the_process() {
        assert!(caller().is_in_group(8765));
        assert!(!caller().is_in_group(999_999));
        let effective = caller().status("CapEff:").unwrap();
        let effective = u64::from_str_radix(effective.trim(), 16).unwrap();
        assert_eq!(caller().keeps_privileges(), effective & 1 << CAP_FSETID != 0);
        assert!(!Caller { pid: 0, ..caller() }.keeps_privileges());
        assert!(Caller { uid: 0, gid: 0, pid: 0 }.keeps_privileges());
    }
}
