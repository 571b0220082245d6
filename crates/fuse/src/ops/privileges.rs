//! Privileges a file must lose when it is changed: the setuid and setgid bits, and capabilities. And a modification time that
//! a program set, in the log: a change of attributes makes the next write come by here.
//!
//! The kernel leaves this to the file system (FUSE_HANDLE_KILLPRIV_V2), or it would ask for an
//! extended attribute before each write. The rules are those of the kernel's own file systems
//! (setattr_should_drop_suidgid): capabilities always go; the bits go unless the program may keep
//! them (CAP_FSETID), and set-group-ID without group execute stays for members of the file's group.
//! A change of owner takes the bits too, set-user-ID also from programs that may keep it otherwise; home's file system takes
//! capabilities itself.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::fs::FileType;
use weir_backend::home_names::get_xattr;
use weir_names::command::NameCommand;
use weir_names::tree;

use crate::attr::{self, Attributes};
use crate::credentials::Caller;
use crate::errno::Errno;
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
    /// A failure is not reported to the writer: the next write tries again. If the daemon may not change the mode, home clears the
    /// bits itself when the daemon writes, and it clears capabilities when data arrives.
    pub(crate) fn drop_privileges(&self, inode: &Inode, caller: &Caller, bits: bool) {
        if inode.is_unprivileged() {
            return;
        }
        let before = inode.privileges();
        self.log_mtime_of_write(inode);
        let Ok(Permissions { mut mode, gid, is_behind }) = self.permissions(inode) else { return };
        let (mut changed, mut at_home_changed) = (false, false);
        let wanted = if bits { unprivileged(mode, || caller.is_in_group(gid)) } else { mode };
        if wanted != mode {
            let set = match is_behind {
                true => self.set_mode_behind(inode, wanted),
                false => self.set_mode_at_home(inode, wanted),
            };
            match set {
                Ok(()) => (mode, changed, at_home_changed) = (wanted, true, !is_behind),
                // Home takes them with the data.
                Err(error) if [libc::EPERM, libc::EACCES].contains(&error.code()) => mode = wanted,
                Err(error) => tracing::warn!("cannot take setuid from a written file: {error:?}"),
            }
        }
        let name = OsStr::new(CAPABILITIES);
        // What home does not have has no capabilities.
        if let Ok(at_home) = inode.path_fd()
            && get_xattr(at_home, name, 0).is_ok()
        {
            let _changing = self.shard.change_home();
            let remove = NameCommand::RemoveXattr { inode: at_home, name };
            at_home_changed |= self.home.execute(remove).is_ok();
        }
        if at_home_changed {
            // The next fsync makes that durable, too: what is written now must not have them after a power cut.
            self.note_attributes_changed(inode);
            changed = true;
        }
        if mode & (SETUID | SETGID) == 0 {
            inode.set_unprivileged(before);
        }
        if changed {
            note_change(inode);
            // The kernel does not know that the answer to a write changed the mode.
            self.reclaimer.drop_attributes(inode.node());
        }
    }

    /// The permission bits of anything but a directory after a change of its owner by a program, if they are others then (chown(2)).
    pub(crate) fn mode_after_chown(
        self: &Arc<Self>,
        caller: &Caller,
        inode: &Inode,
    ) -> Result<Option<u32>, Errno> {
        if inode.kind() == FileType::Directory {
            return Ok(None);
        }
        let Attributes { mode, gid, .. } = self.attributes(inode)?;
        let mode = mode & 0o7777;
        let without = unprivileged(mode, || caller.keeps_privileges() || caller.is_in_group(gid));
        Ok((without != mode).then_some(without))
    }

    /// The permissions that programs see, which home may not have yet.
    fn permissions(&self, inode: &Inode) -> Result<Permissions, Errno> {
        let Some(behind) = &self.write_behind else {
            let status = inode.status()?;
            return Ok(Permissions { mode: status.mode, gid: status.gid, is_behind: false });
        };
        let (shown, status) = behind.shown_with(inode.node(), || inode.status())?;
        let tree::Attributes { mode, gid, .. } = shown.attributes.unwrap_or_default();
        Ok(Permissions {
            mode: mode.map_or(status.mode, |mode| status.mode & !0o7777 | mode),
            gid: gid.unwrap_or(status.gid),
            is_behind: mode.is_some() || !inode.is_at_home() || behind.is_logged(),
        })
    }

    /// If the log has a modification time that a program set, it gets a later one: recovery sets it after it wrote the
    /// file's data.
    fn log_mtime_of_write(&self, inode: &Inode) {
        let (Some(behind), Some(home)) = (&self.write_behind, inode.file()) else { return };
        if home.times().take_logged_mtime() && behind.is_logged() {
            let now = attr::now();
            let attributes =
                tree::Attributes { mtime: Some(attr::moment(now)), ..Default::default() };
            if let Err(error) = behind.set(&self.inodes, inode, now, attributes) {
                tracing::debug!("the time of a write was not logged: {error:?}");
            }
        }
    }

    fn set_mode_at_home(&self, inode: &Inode, mode: u32) -> Result<(), Errno> {
        self.home.execute(NameCommand::SetMode { inode: inode.path_fd()?, mode })?;
        Ok(())
    }

    /// Home gets the mode after the one that it does not have yet.
    fn set_mode_behind(&self, inode: &Inode, mode: u32) -> Result<(), Errno> {
        let Some(behind) = &self.write_behind else { return Ok(()) };
        let (now, mode) = (attr::now(), mode & 0o7777);
        inode.change_made(|status| status.mode = status.mode & libc::S_IFMT | mode);
        inode.note_changed(now);
        let attributes = tree::Attributes { mode: Some(mode), ..Default::default() };
        Ok(behind.set(&self.inodes, inode, now, attributes)?)
    }
}

/// What decides which privileges a file has.
struct Permissions {
    /// Type and permission bits.
    mode: u32,
    gid: u32,
    /// Home does not have this mode yet.
    is_behind: bool,
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
