//! Replacing what a descriptor in use is open on.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Has `descriptor` be open on what `by` is open on, in one step: calls that other threads make by it concern the former or the
/// latter.
///
/// # Errors
/// Those of dup3(2).
pub fn replace(descriptor: BorrowedFd<'_>, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both are open. `descriptor` stays open under its number, as its owner expects.
    let replaced = unsafe { libc::dup3(by.as_raw_fd(), descriptor.as_raw_fd(), libc::O_CLOEXEC) };
    if replaced < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

    use super::*;

    #[test]
    fn a_path_descriptor_leads_to_the_other_file_and_closes_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, name).unwrap();
            openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
        };
        let (one, other) = (open("one"), open("the other"));
        replace(one.as_fd(), other.as_fd()).unwrap();
        drop(other);
        assert_eq!(fstat(&one).unwrap().st_size, 9);
        let path = format!("/proc/self/fd/{}", one.as_raw_fd());
        assert!(File::open(path).is_ok());
        assert!(rustix::io::fcntl_getfd(&one).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}
