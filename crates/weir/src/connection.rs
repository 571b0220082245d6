//! A FUSE connection as the kernel shows it in fusectl: whether it exists, and its end by force.
//!
//! A connection's number is the minor number of its mount's device. fusectl is usually mounted at
//! `/sys/fs/fuse/connections`; where it is not, as in many containers, it is mounted for this
//! process alone, without a place in any namespace (fsmount(2), which needs CAP_SYS_ADMIN).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::mounts::Device;

const MOUNTED_AT: &str = "/sys/fs/fuse/connections";

/// Whether the kernel still has the connection of the mount with this device number; false where
/// that cannot be determined.
pub fn exists(device: Device) -> bool {
    open(device).is_ok()
}

/// The end of a connection by force. It is this connection's also when the number belongs to another one by now.
#[derive(Debug)]
pub struct Abort(OwnedFd);

impl Abort {
    /// Of the connection of the mount with this device number, which must exist.
    ///
    /// # Errors
    /// `NotFound` if there is no such connection, or fusectl is not mounted and this process may not mount it.
    pub fn of(device: Device) -> io::Result<Abort> {
        let connection = open(device)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(Abort(rustix::fs::openat(connection, "abort", flags, Mode::empty())?))
    }

    /// Aborts it: every request under way and every later one fails. Nothing happens if it has ended.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn abort(&self) -> io::Result<()> {
        rustix::io::write(&self.0, b"1")?;
        Ok(())
    }
}

/// The connection's directory.
fn open(device: Device) -> io::Result<OwnedFd> {
    let number = device.minor.to_string();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, Path::new(MOUNTED_AT).join(&number), flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        opened => return Ok(opened?),
    }
    let unseen = || -> Result<OwnedFd, Errno> {
        let system = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&system)?;
        let root = rustix::mount::fsmount(
            &system,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        )?;
        rustix::fs::openat(root, &number, flags, Mode::empty())
    };
    unseen().map_err(|_| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_not_there_is_not_found() {
        // Minor numbers have 20 bits.
        let device = Device { major: 0, minor: (1 << 20) + 7 };
        assert!(!exists(device));
        assert_eq!(Abort::of(device).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
