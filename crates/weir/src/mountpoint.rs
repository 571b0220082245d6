//! MOUNTPOINT: checked before anything is changed.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::mounts::{self, MountTable};

/// Why nothing can be mounted there.
#[derive(Debug, thiserror::Error)]
pub enum MountpointError {
    /// It does not exist.
    #[error("MOUNTPOINT {} does not exist: create it with 'mkdir'", .0.display())]
    Missing(PathBuf),
    /// It is not a directory.
    #[error("MOUNTPOINT {} is not a directory: name an empty directory", .0.display())]
    NotDirectory(PathBuf),
    /// It has contents, which the mount would hide.
    #[error("MOUNTPOINT {} is not empty: name an empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// A Weir mount is there already.
    #[error(
        "MOUNTPOINT {} is already a weir mount, of {}: 'weir umount' it first",
        path.display(), source_path.display()
    )]
    AlreadyMounted {
        /// MOUNTPOINT.
        path: PathBuf,
        /// The SOURCE mounted there.
        source_path: PathBuf,
    },
    /// A FUSE mount is there whose daemon is gone.
    #[error(
        "MOUNTPOINT {} is a mount whose daemon has died: unmount it first, \
         with 'weir umount' or 'umount'", .0.display()
    )]
    Dead(PathBuf),
    /// This user may not use it.
    #[error(
        "MOUNTPOINT {}: permission denied: an ordinary user can mount only on a directory \
         that the user may read and write", .0.display()
    )]
    Denied(PathBuf),
    /// Another error.
    #[error("cannot use MOUNTPOINT {}: {error}", path.display())]
    Other {
        /// MOUNTPOINT.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// SOURCE and MOUNTPOINT are the same directory.
    #[error(
        "SOURCE and MOUNTPOINT are the same directory, {}: mount on a directory outside SOURCE",
        .0.display()
    )]
    Same(PathBuf),
    /// MOUNTPOINT lies in SOURCE: the mount would hold itself.
    #[error(
        "MOUNTPOINT {} lies inside SOURCE {}: mount on a directory outside SOURCE",
        mountpoint.display(), source_path.display()
    )]
    InsideSource {
        /// MOUNTPOINT.
        mountpoint: PathBuf,
        /// SOURCE.
        source_path: PathBuf,
    },
    /// SOURCE lies in MOUNTPOINT: the mount would hide its own SOURCE.
    #[error(
        "SOURCE {} lies inside MOUNTPOINT {}: mount on a directory that does not hold SOURCE",
        source_path.display(), mountpoint.display()
    )]
    HoldsSource {
        /// MOUNTPOINT.
        mountpoint: PathBuf,
        /// SOURCE.
        source_path: PathBuf,
    },
}

/// Checks MOUNTPOINT against `source` (canonical) and the mount table; gives its canonical path.
pub fn check(path: &Path, source: &Path, mounts: &MountTable) -> Result<PathBuf, MountpointError> {
    // First, by name only: a system call on a mount whose daemon is stuck would hang.
    let clean = mounts::absolute(path).map_err(|error| fault(path, error))?;
    let is_weir_mount = |path: &Path| mounts.at(path).filter(|mount| mount.is_weir());
    let already = |mount: &mounts::Mount| MountpointError::AlreadyMounted {
        path: path.to_owned(),
        source_path: mount.source.clone(),
    };
    if let Some(mount) = is_weir_mount(&clean) {
        return Err(already(mount));
    }
    let canonical = path.canonicalize().map_err(|error| fault(path, error))?;
    if let Some(mount) = is_weir_mount(&canonical) {
        return Err(already(mount));
    }
    let found = std::fs::metadata(&canonical).map_err(|error| fault(path, error))?;
    if !found.is_dir() {
        return Err(MountpointError::NotDirectory(path.to_owned()));
    }
    check_nesting(&canonical, source)?;
    check_empty(&canonical).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => MountpointError::NotEmpty(path.to_owned()),
        _ => fault(path, error),
    })?;
    if !rustix::process::geteuid().is_root() {
        // fusermount3 demands it.
        rustix::fs::accessat(CWD, &canonical, Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(|errno| fault(path, errno.into()))?;
    }
    Ok(canonical)
}

fn fault(path: &Path, error: io::Error) -> MountpointError {
    let path = path.to_owned();
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => MountpointError::Missing(path),
        Some(Errno::NOTDIR) => MountpointError::NotDirectory(path),
        Some(Errno::ACCESS) => MountpointError::Denied(path),
        Some(Errno::NOTCONN) => MountpointError::Dead(path),
        _ => MountpointError::Other { path, error },
    }
}

/// Neither may lie in the other, by name or by identity: a bind mount shows one directory under
/// two names.
fn check_nesting(mountpoint: &Path, source: &Path) -> Result<(), MountpointError> {
    let same = |a: &Path, b: &Path| {
        a == b || matches!((identity(a), identity(b)), (Some(a), Some(b)) if a == b)
    };
    if same(mountpoint, source) {
        return Err(MountpointError::Same(mountpoint.to_owned()));
    }
    let paths = || (mountpoint.to_owned(), source.to_owned());
    if mountpoint.ancestors().skip(1).any(|ancestor| same(ancestor, source)) {
        let (mountpoint, source_path) = paths();
        return Err(MountpointError::InsideSource { mountpoint, source_path });
    }
    if source.ancestors().skip(1).any(|ancestor| same(ancestor, mountpoint)) {
        let (mountpoint, source_path) = paths();
        return Err(MountpointError::HoldsSource { mountpoint, source_path });
    }
    Ok(())
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::stat(path).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

fn check_empty(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    for entry in Dir::read_from(&directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path =
                std::env::temp_dir().join(format!("weir-mountpoint-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("source/in")).unwrap();
            fs::create_dir_all(path.join("mount")).unwrap();
            Scratch(path.canonicalize().unwrap())
        }

        fn check(&self, mountpoint: &str, source: &str) -> Result<PathBuf, MountpointError> {
            check(&self.0.join(mountpoint), &self.0.join(source), &MountTable::default())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_empty_directory_elsewhere_is_accepted() {
        let scratch = Scratch::new("good");
        assert_eq!(scratch.check("mount", "source").unwrap(), scratch.0.join("mount"));
        assert_eq!(scratch.check("mount/.", "source").unwrap(), scratch.0.join("mount"));
    }

    #[test]
    fn invalid_mount_points_are_named() {
        use MountpointError as E;
        let scratch = Scratch::new("bad");
        fs::write(scratch.0.join("file"), "").unwrap();
        fs::create_dir(scratch.0.join("full")).unwrap();
        fs::write(scratch.0.join("full/.hidden"), "").unwrap();
        assert!(matches!(scratch.check("gone", "source"), Err(E::Missing(_))));
        assert!(matches!(scratch.check("file", "source"), Err(E::NotDirectory(_))));
        assert!(matches!(scratch.check("full", "source"), Err(E::NotEmpty(_))));
        assert!(matches!(scratch.check("source", "source"), Err(E::Same(_))));
        assert!(matches!(scratch.check("source/in", "source"), Err(E::InsideSource { .. })));
        assert!(matches!(scratch.check("source", "source/in"), Err(E::HoldsSource { .. })));
        // A common prefix of two names is no common path.
        fs::create_dir(scratch.0.join("source2")).unwrap();
        assert!(scratch.check("source2", "source").is_ok());
    }

    #[test]
    fn links_are_resolved_before_paths_are_compared() {
        let scratch = Scratch::new("links");
        std::os::unix::fs::symlink(scratch.0.join("source/in"), scratch.0.join("link")).unwrap();
        let error = scratch.check("link", "source").unwrap_err();
        assert!(matches!(error, MountpointError::InsideSource { .. }), "{error}");
    }

    #[test]
    fn an_existing_mount_is_not_accessed() {
        let line = b"9 1 0:9 / /nonexistent/mnt rw - fuse.weir /srv/data rw\n";
        let mounts = MountTable::parse(line);
        let error = check(Path::new("/nonexistent/./mnt/"), Path::new("/srv/x"), &mounts);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("already a weir mount, of /srv/data"), "{text}");
    }
}
