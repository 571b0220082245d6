//! Whether one directory is below another, by any path.
//!
//! Two mounts whose SOURCEs share files would overwrite each other's pages. Three checks are needed, because
//! each misses some cases: the parent directories (device and inode), the mount table (bind mounts of one
//! file system in several places), and the locks of parent directories (mounts in other mount namespaces).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use weir_control::own;

use crate::control::client::Daemon;
use crate::control::protocol::{Reply, Request};
use crate::mounts::{Mount, MountTable, absolute};

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
    /// In /tmp, where any user could make one, only those of root, this user and the directory's owner count.
    pub fn locked(&self) -> Option<PathBuf> {
        self.0.iter().skip(1).find(|directory| is_locked(directory.as_fd())).map(|directory| {
            let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(directory));
            std::fs::read_link(link).unwrap_or_else(|_| "a directory above".into())
        })
    }
}

/// As its `.weir` says, or the directory itself if the lock is another user's. What cannot be inspected counts as not locked.
fn is_locked(directory: BorrowedFd<'_>) -> bool {
    own::of(directory)
        .is_some_and(|own| own.is_locked.unwrap_or_else(|| own::is_directory_locked(directory)))
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
/// directory does not count: its lock is checked. Neither do mounts of other users that do not have their SOURCE locked: any user can make
/// one that shows any directory.
pub fn find(
    directory: BorrowedFd<'_>,
    path: &Path,
    mounts: &MountTable,
) -> io::Result<Option<Nested>> {
    let above = Ancestors::of(directory)?;
    for mount in mounts.weir() {
        let Some(source) = source_of(mount) else { continue };
        let Some(is_above) = relation(directory, path, &above, &source, mounts)? else { continue };
        if is_believed(mount, &source, mounts) {
            return Ok(Some(Nested { source, mount_point: mount.mount_point.clone(), is_above }));
        }
    }
    Ok(None)
}

/// Whether the directory `source` is above the directory `path`, or below it; `None` if it is neither.
fn relation(
    directory: BorrowedFd<'_>,
    path: &Path,
    above: &Ancestors,
    source: &Path,
    mounts: &MountTable,
) -> io::Result<Option<bool>> {
    if source == path {
        return Ok(None);
    }
    if is_below(mounts, path, source) {
        return Ok(Some(true));
    }
    if is_below(mounts, source, path) {
        return Ok(Some(false));
    }
    // Only for SOURCE's own file system, which is known to answer.
    if mounts.containing(source).map(|at| at.device) != mounts.containing(path).map(|at| at.device)
    {
        return Ok(None);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(other) = rustix::fs::open(source, flags, Mode::empty()) else { return Ok(None) };
    if key(other.as_fd())? == key(directory)? {
        return Ok(None);
    }
    if above.contain(other.as_fd())? {
        return Ok(Some(true));
    }
    let is_below = Ancestors::of(other.as_fd())?.contain(directory)?;
    Ok(is_below.then_some(false))
}

/// Whether a mount is believed to serve `source`. A FUSE file system of another user is not looked at, since it may never answer: everything
/// in it is that user's.
///
/// Who cannot make a `.weir` in a SOURCE can still serve what is below, and has the directory locked. Others could lock it, too: that refuses
/// a mount, but no data is lost. A mount point is never in its SOURCE, so that this is not believed of `/`.
fn is_believed(mount: &Mount, source: &Path, mounts: &MountTable) -> bool {
    match mounts.containing(source) {
        Some(at) if !at.is_trusted() => mount.is_trusted() || mount.owner() == at.owner(),
        _ => {
            mount.may_serve(source)
                || !mount.mount_point.starts_with(source) && is_directory_locked(source)
        }
    }
}

fn is_directory_locked(path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .is_ok_and(|directory| own::is_directory_locked(directory.as_fd()))
}

/// The SOURCE of a mount: from the mount table, or from its daemon if the table shows another name. Clean, whatever was said.
fn source_of(mount: &Mount) -> Option<PathBuf> {
    let source = match mount.source.is_absolute() {
        true => mount.source.clone(),
        false => match Daemon::connect(mount).ok()?.ask(&Request::Status).ok()? {
            Reply::Status { status } => status.source.into(),
            _ => return None,
        },
    };
    // A bucket's address is no path.
    source.is_absolute().then(|| absolute(&source).ok())?
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
    fn only_who_may_serve_a_directory_is_believed_to_do_so() {
        let scratch = tempfile_directory("claims").canonicalize().unwrap();
        let path = scratch.join("served/below");
        std::fs::create_dir_all(&path).unwrap();
        let directory = std::fs::File::open(&path).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let found = |owner: u32, source: &Path| {
            let source = source.display();
            let table = format!(
                "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / /mnt rw - fuse.weir {source} rw,user_id={owner}\n"
            );
            let table = MountTable::parse(table.as_bytes());
            find(directory.as_fd(), &path, &table).unwrap().map(|nested| nested.is_above)
        };
        let other = own + 1234;
        let served = scratch.join("served");
        for trusted in [0, own] {
            assert_eq!(found(trusted, Path::new("/")), Some(true));
            assert_eq!(found(trusted, &path.join("x")), Some(false));
        }
        for claimed in [Path::new("/"), &served, &path.join("x")] {
            assert_eq!(found(other, claimed), None, "{}", claimed.display());
        }
        let open = std::fs::File::open(&served).unwrap();
        open.lock().unwrap();
        assert_eq!(found(other, &served), Some(true), "what it cannot make a file in");
        open.unlock().unwrap();
        assert_eq!(found(other, &served), None);
        if own == 0 {
            std::os::unix::fs::chown(&served, Some(other), None).unwrap();
            assert_eq!(found(other, &served), Some(true));
            let around = path.join("../../served");
            assert_eq!(found(other, &around), Some(true), "it is not below");
        }
        std::fs::remove_dir_all(&scratch).unwrap();
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
        lock.lock().unwrap();
        assert_eq!(ancestors.locked(), Some(scratch.canonicalize().unwrap()));
        if rustix::process::geteuid().is_root() {
            let other = Some(1234);
            std::os::unix::fs::chown(scratch.join(".weir"), other, None).unwrap();
            assert_eq!(ancestors.locked(), Some(scratch.canonicalize().unwrap()), "another user's");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
            std::fs::set_permissions(&scratch, mode).unwrap();
            assert_eq!(ancestors.locked(), None, "anybody can make one");
        }
        std::fs::remove_dir_all(&scratch).unwrap();
    }

    fn tempfile_directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-nesting-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}
