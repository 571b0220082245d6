//! A path by which calls that take a path reach what a descriptor is open on.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

/// A path that leads to what `fd` holds open, a symbolic link included.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The path of what `fd` holds open, as the kernel shows it (proc_pid_fd(5)): for messages, since names change.
///
/// # Errors
/// Those of readlink(2).
pub fn shown_path(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    std::fs::read_link(proc_path(fd))
}
