//! A path by which calls that take a path reach what a descriptor is open on.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A path that leads to what `fd` holds open, a symbolic link included.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
