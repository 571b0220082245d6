//! Whether one directory is below another, by any path.
//!
//! Two mounts whose SOURCEs share files would overwrite each other's pages. Three checks are needed, because
//! each misses some cases: the parent directories (device and inode), the mount table (bind mounts of one
//! file system in several places), and the locks of parent directories (mounts in other mount namespaces).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::control::client::Daemon;
use crate::control::protocol::{Reply, Request};
use crate::mounts::{Mount, MountTable};
use crate::own_directory::{LOCK_FILE, WEIR_DIRECTORY};

/// Bound on the number of parents; the kernel accepts no path this deep.
const DEPTH_MAX: usize = 4096;

/// A directory and its parents, from it upwards.
pub struct Ancestors(Vec<OwnedFd>);

type FileKey = (u64, u64);

fn key(directory: BorrowedFd<'_>) -> io::Result<FileKey> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl Ancestors {
    /// For a directory, as far up as this process may search.
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Ancestors> {
        let mut above = vec![directory.try_clone_to_owned()?];
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        while above.len() < DEPTH_MAX {
            let last = &above[above.len() - 1];
            let Ok(parent) = rustix::fs::openat(last, "..", flags, Mode::empty()) else { break };
            if key(parent.as_fd())? == key(last.as_fd())? {
                break;
            }
            above.push(parent);
        }
        Ok(Ancestors(above))
    }

    /// Whether a directory is among them.
    pub fn contain(&self, directory: BorrowedFd<'_>) -> io::Result<bool> {
        let wanted = key(directory)?;
        for one in &self.0 {
            if key(one.as_fd())? == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The path of the nearest parent directory that a daemon has locked.
    ///
    /// Only locks count that were made by root, this user or the directory's owner: in /tmp any user could
    /// make one.
    pub fn locked(&self) -> Option<PathBuf> {
        self.0.iter().skip(1).find(|directory| is_locked(directory.as_fd())).map(|directory| {
            let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(directory));
            std::fs::read_link(link).unwrap_or_else(|_| "a directory above".into())
        })
    }
}

fn is_locked(directory: BorrowedFd<'_>) -> bool {
    let is_held = || -> Result<bool, rustix::io::Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = rustix::fs::openat(directory, WEIR_DIRECTORY, flags, Mode::empty())?;
        let made_by = rustix::fs::fstat(&own)?.st_uid;
        let owner = rustix::fs::fstat(directory)?.st_uid;
        if ![0, owner, rustix::process::geteuid().as_raw()].contains(&made_by) {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&own, LOCK_FILE, flags, Mode::empty())?;
        // A shared lock, released at once: it does not disturb others that check.
        let taken = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared);
        Ok(taken == Err(rustix::io::Errno::WOULDBLOCK))
    };
    // A directory whose lock is missing or cannot be inspected counts as not locked.
    is_held().unwrap_or(false)
}

/// A mount whose SOURCE shares files with another directory.
#[derive(Debug, PartialEq, Eq)]
pub struct Nested {
    /// Its SOURCE.
    pub source: PathBuf,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Whether its SOURCE contains the directory; otherwise the directory contains its SOURCE.
    pub is_above: bool,
}

/// The Weir mount, if there is one, whose SOURCE is below the directory `path` or contains it. The same
/// directory does not count: its lock is checked.
pub fn find(
    directory: BorrowedFd<'_>,
    path: &Path,
    mounts: &MountTable,
) -> io::Result<Option<Nested>> {
    let above = Ancestors::of(directory)?;
    for mount in mounts.weir() {
        let Some(source) = source_of(mount) else { continue };
        let nested = |is_above| {
            let mount_point = mount.mount_point.clone();
            Ok(Some(Nested { source: source.clone(), mount_point, is_above }))
        };
        if source == path {
            continue;
        }
        if is_below(mounts, path, &source) {
            return nested(true);
        }
        if is_below(mounts, &source, path) {
            return nested(false);
        }
        // Only for SOURCE's own file system, which is known to answer.
        if mounts.containing(&source).map(|at| at.device)
            != mounts.containing(path).map(|at| at.device)
        {
            continue;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(other) = rustix::fs::open(&source, flags, Mode::empty()) else { continue };
        if key(other.as_fd())? == key(directory)? {
            continue;
        }
        if above.contain(other.as_fd())? {
            return nested(true);
        }
        if Ancestors::of(other.as_fd())?.contain(directory)? {
            return nested(false);
        }
    }
    Ok(None)
}

/// The SOURCE of a mount: from the mount table, or from its daemon if the table shows another name.
fn source_of(mount: &Mount) -> Option<PathBuf> {
    if mount.source.is_absolute() {
        return Some(mount.source.clone());
    }
    match Daemon::connect(mount).ok()?.ask(&Request::Status).ok()? {
        Reply::Status { status } => Some(status.source.into()),
        _ => None,
    }
}

/// Whether a canonical path is below another one, by name or because both are mounted from one file system.
/// Accesses no file system.
pub fn is_below(mounts: &MountTable, path: &Path, above: &Path) -> bool {
    if path != above && path.starts_with(above) {
        return true;
    }
    let place = |path: &Path| {
        let mount = mounts.containing(path)?;
        let rest = path.strip_prefix(&mount.mount_point).ok()?;
        Some((mount.device, mount.root.join(rest)))
    };
    match (place(path), place(above)) {
        (Some((one, path)), Some((other, above))) => {
            one == other && path != above && path.starts_with(&above)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 8:1 /srv/data /bind rw - ext4 /dev/sda1 rw
31 22 0:40 / /other rw - tmpfs none rw
";

    #[test]
    fn bind_mounts_are_seen_through() {
        let mounts = MountTable::parse(TABLE);
        let below = |path: &str, above: &str| is_below(&mounts, Path::new(path), Path::new(above));
        assert!(below("/srv/data", "/srv") && !below("/srv", "/srv/data"));
        assert!(!below("/srv", "/srv") && !below("/srv/database", "/srv/data"));
        assert!(below("/bind", "/srv") && below("/bind/x", "/srv/data"));
        assert!(below("/srv/data/x", "/bind") && !below("/srv/data", "/bind"));
        assert!(below("/other/x", "/other") && below("/other", "/") && !below("/other", "/srv"));
    }

    #[test]
    fn parent_directories_are_compared_by_inode() {
        let scratch = tempfile_directory("ancestors");
        let below = scratch.join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        let open = |path: &Path| std::fs::File::open(path).unwrap();
        let ancestors = Ancestors::of(open(&below).as_fd()).unwrap();
        for path in [&below, &scratch.join("a"), &scratch, Path::new("/")] {
            assert!(ancestors.contain(open(path).as_fd()).unwrap(), "{}", path.display());
        }
        std::fs::create_dir(scratch.join("c")).unwrap();
        assert!(!ancestors.contain(open(&scratch.join("c")).as_fd()).unwrap());
        assert_eq!(ancestors.locked(), None);

        std::fs::create_dir(scratch.join(".weir")).unwrap();
        let lock = std::fs::File::create(scratch.join(".weir/lock")).unwrap();
        assert_eq!(ancestors.locked(), None);
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(ancestors.locked(), Some(scratch.canonicalize().unwrap()));
        std::fs::remove_dir_all(&scratch).unwrap();
    }

    fn tempfile_directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-nesting-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}
