//! Asking home for extended attributes. Access control lists are among them.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{getxattr, getxattr_query, listxattr, listxattr_query};
use rustix::io::Errno;

use crate::proc_path::proc_path;

/// A value, or how long it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Value {
    /// Bytes it has: no more was asked for.
    Len(u32),
    /// The value.
    Bytes(Vec<u8>),
}

/// lgetxattr(2) of what is held by `inode` (`O_PATH` does); `len_max` 0 asks for the length alone.
///
/// # Errors
/// Those of lgetxattr(2): ERANGE if the value is longer than `len_max`.
pub fn get_xattr(inode: BorrowedFd<'_>, name: &OsStr, len_max: u32) -> io::Result<Value> {
    let path = proc_path(inode);
    if len_max == 0 {
        return value_len(getxattr_query(&path, name)?);
    }
    let mut value = vec![0; len_max as usize];
    let len = getxattr(&path, name, &mut value[..])?;
    value.truncate(len);
    Ok(Value::Bytes(value))
}

/// llistxattr(2), each name with a zero after it; `len_max` 0 asks for the length alone.
///
/// # Errors
/// Those of llistxattr(2): ERANGE if the list is longer than `len_max`.
pub fn list_xattrs(inode: BorrowedFd<'_>, len_max: u32) -> io::Result<Value> {
    let path = proc_path(inode);
    if len_max == 0 {
        return value_len(listxattr_query(&path)?);
    }
    let mut names = vec![0; len_max as usize];
    let len = listxattr(&path, &mut names[..])?;
    names.truncate(len);
    Ok(Value::Bytes(names))
}

fn value_len(len: usize) -> io::Result<Value> {
    Ok(Value::Len(u32::try_from(len).map_err(|_| Errno::RANGE)?))
}
