//! The mounts that a session's programs use: which of them let a sync wait for the commit, and how they are committed.
//!
//! A file's mount is known by the number that the kernel gives every mount and does not give again (statx(2),
//! STATX_MNT_ID_UNIQUE; before Linux 6.8 it may be given again after an unmount). The commit opens the mount by its path and
//! compares the device, so a session holds no mount back from being unmounted.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use weir_lane::wire::{COMMIT, MESSAGE_BYTES, ORDER};

use crate::task::{Device, MOUNT_ID_UNIQUE, Place};

/// A mount whose changes become durable in the order in which they were made, so that a sync may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// `st_dev` of its files: major and minor number.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub path: PathBuf,
}

/// What a mount is to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mount {
    /// A sync of its files is a promise.
    Ordered(Ordered),
    /// It is served by Weir, but its syncs are done at once, for this reason.
    Unordered(String),
    /// It is served by Weir, and its daemon does not answer, for this reason: what it would promise is not known.
    Unknown(String),
    /// Weir does not serve it.
    Other,
}

/// Finds mounts: what this crate does not know itself.
pub trait FindMounts: Send {
    /// The mount with this device.
    fn of_device(&self, device: (u32, u32)) -> Mount;
    /// All mounts that Weir serves.
    fn all(&self) -> Vec<Mount>;
    /// Has the daemon of a mount count what it promises to the processes that come from this one.
    ///
    /// # Errors
    /// It cannot be asked, or does not do that: then it makes no promises.
    fn join(&self, mount: &Ordered, promised: Promised) -> io::Result<Joined>;
}

/// What is promised to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promised {
    /// Syncs.
    Syncs,
    /// Every change of data or names.
    Changes,
}

/// A daemon that counts what it promises.
#[derive(Debug)]
pub struct Joined {
    /// It counts as long as this is open.
    pub connection: OwnedFd,
    /// The counts ([`weir_lane::promises`]).
    pub memory: OwnedFd,
}

impl Ordered {
    /// Makes all that was changed so far durable.
    pub(crate) fn commit(&self) -> io::Result<()> {
        self.ask(COMMIT)
    }

    /// Asks the daemon by an ioctl of Weir's own on the root.
    #[allow(unsafe_code, reason = "ioctl(2) with a command of Weir's own")]
    fn ask(&self, command: u32) -> io::Result<()> {
        let mut message = [0_u8; MESSAGE_BYTES];
        // Opened only when it is known to be Weir's: a member's server may be mounted over it, and answer when what waits for this commit goes on.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(self.root()?, ".", flags, Mode::empty())?;
        // SAFETY: the message has the size that the command's number says.
        match unsafe { libc::ioctl(root.as_raw_fd(), command.into(), message.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether the mount is still there but its daemon does not serve it any more: requests fail with ENOTCONN or ECONNABORTED. The request that is made
    /// needs nothing from home.
    pub(crate) fn is_cut_off(&self) -> bool {
        let asked = self.ask(ORDER);
        asked.is_err_and(|error| {
            matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
        })
    }

    /// The kernel's number for the mount, which no other one will have; 0 if the kernel has none (before Linux 6.8). Needs
    /// nothing from the daemon.
    pub(crate) fn number(&self) -> io::Result<u64> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(self.root()?, "", flags, MOUNT_ID_UNIQUE)?;
        let is_unique = found.stx_mask & MOUNT_ID_UNIQUE.bits() != 0;
        Ok(if is_unique { found.stx_mnt_id } else { 0 })
    }

    /// The root directory, without access to it, if it is still the same mount's.
    fn root(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let found = rustix::fs::statx(
            &root,
            "",
            AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC,
            StatxFlags::INO,
        )?;
        if (found.stx_dev_major, found.stx_dev_minor) != self.device {
            return Err(io::Error::other(format!("{} is another mount now", self.path.display())));
        }
        Ok(root)
    }
}

/// Mounts found so far.
pub(crate) struct Mounts {
    finder: Box<dyn FindMounts>,
    known: HashMap<(Device, u64), Mount>,
    promised: Promised,
}

impl Mounts {
    pub(crate) fn new(finder: Box<dyn FindMounts>, promised: Promised) -> Mounts {
        Mounts { finder, known: HashMap::new(), promised }
    }

    /// What is promised to the session.
    pub(crate) fn promised(&self) -> Promised {
        self.promised
    }

    /// Has the daemon of a mount count what it promises.
    ///
    /// # Errors
    /// It makes no promises, for this reason.
    pub(crate) fn join(&self, mount: &Ordered) -> io::Result<Joined> {
        self.finder.join(mount, self.promised)
    }

    /// The mount that a file is on. No file system is asked: its server may be a member, and wait for the supervisor.
    pub(crate) fn of(&mut self, place: Place) -> Mount {
        let number = (place.device, place.mount);
        if let Some(mount) = self.known.get(&number) {
            return mount.clone();
        }
        let mount = self.finder.of_device(place.device);
        // Next time it may answer.
        if !matches!(mount, Mount::Unknown(_)) {
            self.known.insert(number, mount.clone());
        }
        mount
    }

    /// All that Weir serves.
    pub(crate) fn all(&self) -> Vec<Mount> {
        self.finder.all()
    }

    /// All on which sync(2) is a promise.
    pub(crate) fn ordered(&self) -> Vec<Ordered> {
        let ordered = |mount| match mount {
            Mount::Ordered(mount) => Some(mount),
            _ => None,
        };
        self.all().into_iter().filter_map(ordered).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::fs::inotify;

    use super::*;

    #[test]
    fn another_mount_at_the_path_is_not_opened() {
        let directory = std::env::temp_dir().join(format!("weir-mounts-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        // No file system has this number.
        let mount = Ordered { device: (0, u32::MAX), path: directory.clone() };
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let notified = inotify::init(flags).unwrap();
        inotify::add_watch(&notified, &directory, inotify::WatchFlags::OPEN).unwrap();
        let is_opened = || {
            let mut buffer = [MaybeUninit::uninit(); 1024];
            inotify::Reader::new(&notified, &mut buffer).next().is_ok()
        };
        std::fs::read_dir(&directory).unwrap();
        assert!(is_opened());
        assert!(mount.commit().is_err() && !mount.is_cut_off());
        assert!(!is_opened());
        std::fs::remove_dir(&directory).unwrap();
    }
}
