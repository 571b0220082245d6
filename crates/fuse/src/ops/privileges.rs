//! Privileges a file must lose when it is changed: the setuid and setgid bits, and capabilities.
//!
//! The kernel leaves this to the file system (FUSE_HANDLE_KILLPRIV_V2), or it would ask for an
//! extended attribute before each write. The rules are those of the kernel's own file systems
//! (setattr_should_drop_suidgid): capabilities always go; the bits go unless the program may keep
//! them (CAP_FSETID), and set-group-ID without group execute stays for members of the file's group.
//! A change of owner needs nothing here: home's file system removes both itself.

use std::ffi::OsStr;

use weir_backend::home_names::get_xattr;
use weir_names::command::NameCommand;

use crate::credentials::Caller;
use crate::file_system::FileSystem;
use crate::inode::Inode;
use crate::ops::names::note_change;

const SETUID: u32 = libc::S_ISUID;
const SETGID: u32 = libc::S_ISGID;
const GROUP_EXECUTE: u32 = libc::S_IXGRP;
pub(crate) const CAPABILITIES: &str = "security.capability";

/// The mode of a regular file after a change by a program that may not keep privileges. `is_member`
/// tells whether the program is in the file's group: for members, the set-group-ID bit of a file
/// without group execute is no privilege.
fn unprivileged(mode: u32, is_member: impl FnOnce() -> bool) -> u32 {
    let without = mode & !SETUID;
    if mode & SETGID != 0 && (mode & GROUP_EXECUTE != 0 || !is_member()) {
        without & !SETGID
    } else {
        without
    }
}

impl FileSystem {
    /// Takes a file's privileges before it is changed for `caller`.
    pub(crate) fn drop_privileges_for(&self, inode: &Inode, caller: &Caller) {
        if !inode.is_unprivileged() {
            self.drop_privileges(inode, caller, !caller.keeps_privileges());
        }
    }

    /// Takes a file's capabilities, and its bits too if `bits`, unless it is known to have none.
    ///
    /// A failure is not reported to the writer. If the daemon may not change the mode, home clears the bits itself when
    /// the daemon writes, and it clears capabilities when data arrives.
    pub(crate) fn drop_privileges(&self, inode: &Inode, caller: &Caller, bits: bool) {
        if inode.is_unprivileged() {
            return;
        }
        // What home does not have has no capabilities, and bits only if they were set since.
        if self.wait_until_at_home(inode).is_err() {
            return;
        }
        let (Ok(status), Ok(at_home)) = (inode.status(), inode.path_fd()) else {
            return;
        };
        let mut mode = status.mode;
        let mut changed = false;
        let wanted =
            if bits { unprivileged(mode, || caller.is_in_group(status.gid)) } else { mode };
        if wanted != mode {
            mode = wanted;
            match self.home.execute(NameCommand::SetMode { inode: at_home, mode }) {
                Ok(_) => changed = true,
                Err(error) => tracing::warn!("cannot take setuid from a written file: {error}"),
            }
        }
        let name = OsStr::new(CAPABILITIES);
        if get_xattr(at_home, name, 0).is_ok() {
            let remove = NameCommand::RemoveXattr { inode: at_home, name };
            changed |= self.home.execute(remove).is_ok();
        }
        inode.set_unprivileged(mode & (SETUID | SETGID) == 0);
        if changed {
            note_change(inode);
            // The kernel does not know that the answer to a write changed the mode.
            self.reclaimer.drop_attributes(inode.node());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setgid_is_dropped_with_group_execute_or_for_non_members() {
        let member = || true;
        assert_eq!(unprivileged(0o6755, member), 0o755);
        assert_eq!(unprivileged(0o6745, member), 0o2745);
        assert_eq!(unprivileged(0o6745, || false), 0o745);
        assert_eq!(unprivileged(0o2666, || false), 0o666);
        assert_eq!(unprivileged(0o644, || panic!("not asked")), 0o644);
    }
}
