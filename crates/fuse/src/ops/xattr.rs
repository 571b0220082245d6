//! Extended attributes and access control lists, which are extended attributes to FUSE.
//!
//! They are home's; Weir adds nothing. All calls go by way of /proc, because none of those that
//! take a descriptor takes one opened with `O_PATH`; the path leads to the inode itself, also if
//! that is a symbolic link.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::fs::{
    Mode, XattrFlags, chmod, fstat, getxattr, getxattr_query, listxattr, listxattr_query,
    removexattr, setxattr,
};

use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::inode::{Inode, NodeId};
use crate::ops::names::note_change;
use crate::ops::privileges::CAPABILITIES;

/// The access ACL, acl(5).
const ACCESS_ACL: &str = "system.posix_acl_access";

/// A value, or how long it is.
#[derive(Debug)]
pub(crate) enum Value {
    /// Bytes it has: the program asked for no more.
    Len(u32),
    /// The value.
    Bytes(Vec<u8>),
}

impl FileSystem {
    /// getxattr(2); `len_max` 0 asks for the length alone.
    pub(crate) fn get_xattr(
        self: &Arc<Self>,
        node: NodeId,
        name: &OsStr,
        len_max: u32,
    ) -> Result<Value, Errno> {
        let inode = self.inode(node)?;
        let path = inode.proc_path();
        if len_max == 0 {
            return value_len(getxattr_query(&path, name)?);
        }
        let mut value = vec![0; len_max as usize];
        let len = getxattr(&path, name, &mut value[..])?;
        value.truncate(len);
        Ok(Value::Bytes(value))
    }

    /// listxattr(2); `len_max` 0 asks for the length alone.
    pub(crate) fn list_xattrs(
        self: &Arc<Self>,
        node: NodeId,
        len_max: u32,
    ) -> Result<Value, Errno> {
        let inode = self.inode(node)?;
        let path = inode.proc_path();
        if len_max == 0 {
            return value_len(listxattr_query(&path)?);
        }
        let mut names = vec![0; len_max as usize];
        let len = listxattr(&path, &mut names[..])?;
        names.truncate(len);
        Ok(Value::Bytes(names))
    }

    /// setxattr(2).
    ///
    /// Capabilities are set when the file's data is home: home takes them from a file that is
    /// written.
    pub(crate) fn set_xattr(
        self: &Arc<Self>,
        caller: &Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let inode = match self.check_writable().and_then(|()| self.inode(node)) {
            Ok(inode) => inode,
            Err(errno) => return done(Err(errno)),
        };
        if name != CAPABILITIES {
            return done(set_xattr_at_home(&inode, caller, name, value, flags));
        }
        let (caller, value) = (*caller, value.to_owned());
        let name = name.to_owned();
        let of = Arc::clone(&inode);
        self.when_home(&inode, move || {
            done(set_xattr_at_home(&of, &caller, &name, &value, flags));
        });
    }

    /// removexattr(2).
    pub(crate) fn remove_xattr(self: &Arc<Self>, node: NodeId, name: &OsStr) -> Result<(), Errno> {
        self.check_writable()?;
        let inode = self.inode(node)?;
        removexattr(inode.proc_path(), name)?;
        changed(&inode);
        Ok(())
    }
}

fn set_xattr_at_home(
    inode: &Inode,
    caller: &Caller,
    name: &OsStr,
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
    setxattr(inode.proc_path(), name, value, flags)?;
    if name == ACCESS_ACL {
        drop_setgid_of_stranger(inode, caller)?;
    }
    changed(inode);
    Ok(())
}

fn changed(inode: &Inode) {
    // It may have been a capability.
    inode.set_unprivileged(false);
    note_change(inode);
}

/// Setting an ACL is a change of mode, and that takes setgid if its group is not the program's
/// (chmod(2)). Home did not, because the daemon may keep it.
fn drop_setgid_of_stranger(inode: &Inode, caller: &Caller) -> Result<(), Errno> {
    let stat = fstat(inode.path_fd())?;
    let setgid = stat.st_mode & libc::S_ISGID != 0;
    if !setgid || caller.keeps_privileges() || caller.is_in_group(stat.st_gid) {
        return Ok(());
    }
    let mode = stat.st_mode & 0o7777 & !libc::S_ISGID;
    Ok(chmod(inode.proc_path(), Mode::from_raw_mode(mode))?)
}

fn value_len(len: usize) -> Result<Value, Errno> {
    Ok(Value::Len(u32::try_from(len).map_err(|_| Errno::ERANGE)?))
}
