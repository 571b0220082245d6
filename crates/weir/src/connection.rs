//! A FUSE connection as the kernel shows it in fusectl: whether it exists, and its end by force.
//!
//! A connection's number is the minor number of its mount's device. fusectl is usually mounted at
//! `/sys/fs/fuse/connections`; where it is not, as in many containers, it is mounted for this
//! process alone, without a place in any namespace (fsmount(2), which needs CAP_SYS_ADMIN).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::mounts::Device;

const MOUNTED_AT: &str = "/sys/fs/fuse/connections";

/// `FUSE_CTL_SUPER_MAGIC` (fs/fuse/control.c).
const MAGIC: rustix::fs::FsWord = 0x6573_5543;

/// The connection of one mount. It is that mount's also when another one has its number by now.
#[derive(Debug)]
pub struct Connection {
    abort: OwnedFd,
    waiting: OwnedFd,
}

impl Connection {
    /// That of the mount with this device number, which must exist.
    ///
    /// # Errors
    /// `NotFound` if there is no such connection, or fusectl is not mounted and this process may not mount it.
    pub fn of(device: Device) -> io::Result<Connection> {
        let directory = open(device)?;
        let opened = |name: &str, access: OFlags| {
            rustix::fs::openat(&directory, name, access | OFlags::CLOEXEC, Mode::empty())
        };
        let (abort, waiting) = (opened("abort", OFlags::WRONLY)?, opened("waiting", OFlags::PATH)?);
        Ok(Connection { abort, waiting })
    }

    /// Whether the kernel has ended it, and so another mount may have its number; false where that cannot be determined. The file is empty
    /// then, which is so before the number is given again (`fuse_ctl_remove_conn`).
    pub fn is_gone(&self) -> bool {
        // It is read from its beginning only when it is opened anew: it has no offsets. Its path may be that of another connection.
        let again = format!("/proc/self/fd/{}", self.waiting.as_raw_fd());
        let read = rustix::fs::open(again, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|file| rustix::io::read(&file, &mut [0_u8; 32]));
        read == Ok(0)
    }

    /// Aborts it: every request under way and every later one fails. Nothing happens if it has ended.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn abort(&self) -> io::Result<()> {
        rustix::io::write(&self.abort, b"1")?;
        Ok(())
    }
}

/// Whether the kernel has no connection of a mount with this device number; false where fusectl is not mounted.
pub fn is_gone(device: Device) -> bool {
    // The whole path at once would also be missing without fusectl.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(all) = rustix::fs::openat(CWD, MOUNTED_AT, flags, Mode::empty()) else { return false };
    let is_fusectl = rustix::fs::fstatfs(&all).is_ok_and(|found| found.f_type == MAGIC);
    let found = || rustix::fs::statat(&all, device.minor.to_string(), AtFlags::empty());
    is_fusectl && found().is_err_and(|errno| errno == Errno::NOENT)
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
        assert_eq!(Connection::of(device).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
