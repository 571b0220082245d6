//! The process that holds the lock on a SOURCE.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::mounts::{Mount, MountTable};
use crate::{namespaces, own_directory};

/// A daemon that holds the lock on SOURCE.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// The mount point of SOURCE, now or formerly.
    pub mountpoint: PathBuf,
}

/// The process that has locked `source` without having it mounted anywhere.
pub fn unmounted_holder(source: &Path) -> Option<Holder> {
    let holder = holder(source)?;
    let user = fs::metadata(format!("/proc/{}", holder.pid)).ok().map(|process| process.uid());
    let is_it = |mount: &Mount| {
        mount.is_weir()
            && (mount.source == source || mount.mount_point == holder.mountpoint)
            && (mount.owner().is_some() && mount.owner() == user || mount.may_serve(source))
    };
    let mounted = MountTable::read().is_ok_and(|table| table.iter().any(is_it))
        || !namespaces::holders_where(is_it).is_empty();
    (!mounted).then_some(holder)
}

/// The process that has locked `source`: the one named in the lock file, if it has that file open.
pub fn holder(source: &Path) -> Option<Holder> {
    let path = source.join(own_directory::WEIR_DIRECTORY).join(own_directory::LOCK_FILE);
    let mut text = String::new();
    // Bounded, without waiting, and not through a link: SOURCE's owner may have put anything there.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
    File::from(file).take(8192).read_to_string(&mut text).ok()?;
    let (pid, mountpoint) = text.trim_end_matches('\n').split_once(' ')?;
    let pid: u32 = pid.parse().ok()?;
    let mut open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let has_it =
        open.any(|fd| fd.is_ok_and(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path)));
    has_it.then(|| Holder { pid, mountpoint: mountpoint.into() })
}
