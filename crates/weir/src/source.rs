//! SOURCE: the directory that is served, opened once, checked, and locked against a second mount.
//!
//! The lock is `SOURCE/.weir/lock`, held with flock(2) until the daemon ends. If nothing can be created in
//! SOURCE, the directory itself is locked; to exclude that kind of lock too, the directory's lock is
//! always taken first.
//!
//! A SOURCE is not locked while a directory above or below it is served: the two mounts would overwrite each
//! other's pages.
//!
//! Invariant: `.weir` exists only while a daemon holds the lock, or because other files of Weir's are in
//! it. After taking the lock a daemon checks that the file still has that name, so removing it on release
//! is safe.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use crate::mounts::{Device, MountTable};
use crate::nesting::{self, Ancestors};
use crate::own_directory::{LOCK_FILE, OwnDirectory, OwnDirectoryError, WEIR_DIRECTORY};

/// Why SOURCE cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It does not exist.
    #[error("SOURCE {} does not exist: name an existing directory", .0.display())]
    Missing(PathBuf),
    /// It is not a directory.
    #[error("SOURCE {} is not a directory: name the directory to serve", .0.display())]
    NotDirectory(PathBuf),
    /// This user may not read or search it.
    #[error(
        "SOURCE {}: permission denied: weir needs to read and search it; \
         change its mode or run as its owner or root", .0.display()
    )]
    Denied(PathBuf),
    /// Another error of opening it.
    #[error("cannot open SOURCE {}: {error}", path.display())]
    Open {
        /// SOURCE.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another daemon serves it.
    #[error("SOURCE {} is already mounted{by}: use that mount, or 'weir umount' it first",
        path.display())]
    Locked {
        /// SOURCE.
        path: PathBuf,
        /// ` at /mnt by process 123`, or nothing if that is not known.
        by: String,
    },
    /// It lies in another Weir mount.
    #[error(
        "SOURCE {} lies in the weir mount {}: name the directory behind it, {}",
        path.display(), mount_point.display(), behind.display()
    )]
    InsideWeir {
        /// SOURCE.
        path: PathBuf,
        /// The mount it lies in.
        mount_point: PathBuf,
        /// That mount's SOURCE.
        behind: PathBuf,
    },
    /// A directory above or below it is served.
    #[error("SOURCE {} {how}: two mounts of the same files would write over each other; use that mount, or \
        'weir umount' it first", path.display())]
    Nested {
        /// SOURCE.
        path: PathBuf,
        /// How it is related to the other one, and where that is mounted.
        how: String,
    },
    /// `.weir` does not belong to weir.
    #[error(transparent)]
    OwnDirectory(#[from] OwnDirectoryError),
    /// The lock can be neither created nor taken.
    #[error("cannot lock SOURCE: {}: {error}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// SOURCE, open and fit to be served, but not yet locked.
#[derive(Debug)]
pub struct Source {
    directory: OwnedFd,
    path: PathBuf,
}

impl Source {
    /// Opens and checks SOURCE. Nothing is changed.
    pub fn open(path: &Path, mounts: &MountTable) -> Result<Source, SourceError> {
        let fault = |error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => SourceError::Missing(path.to_owned()),
            Some(Errno::NOTDIR) => SourceError::NotDirectory(path.to_owned()),
            Some(Errno::ACCESS) => SourceError::Denied(path.to_owned()),
            _ => SourceError::Open { path: path.to_owned(), error },
        };
        let canonical = path.canonicalize().map_err(fault)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&canonical, flags, Mode::empty())
            .map_err(|errno| fault(errno.into()))?;
        let access = Access::READ_OK | Access::EXEC_OK;
        rustix::fs::accessat(&directory, ".", access, AtFlags::EACCESS)
            .map_err(|errno| fault(errno.into()))?;
        let stat = rustix::fs::fstat(&directory).map_err(|errno| fault(errno.into()))?;
        let weir = mounts.of_device(Device::from_raw(stat.st_dev)).filter(|mount| mount.is_weir());
        if let Some(mount) = weir {
            return Err(SourceError::InsideWeir {
                path: path.to_owned(),
                mount_point: mount.mount_point.clone(),
                behind: mount.source.clone(),
            });
        }
        Ok(Source { directory, path: canonical })
    }

    /// The canonical path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Locks SOURCE for the mount at `mountpoint`, which is shown to processes that find it locked.
    ///
    /// With `as_it_is`, nothing in `.weir` is used, and it may belong to any user.
    pub fn lock(&self, mountpoint: &Path, as_it_is: bool) -> Result<SourceLock, SourceError> {
        // A descriptor of its own: the lock belongs to the open description.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&self.directory, ".", flags, Mode::empty())
            .map_err(|errno| self.lock_error(errno))?;
        // Network file systems lock only files open for writing: there only the lock file is locked.
        let whole = match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK) => return Err(self.locked()),
            Err(_) => false,
        };
        let (own, file) = match self.lock_file(&directory, mountpoint) {
            Ok(Ok((own, file))) => (Some(own), Some(file)),
            Ok(Err(_)) if whole && as_it_is => (None, None),
            Ok(Err(error)) => return Err(error.into()),
            Err(Errno::WOULDBLOCK) => return Err(self.locked()),
            // Nothing can be created here. Existing files may still be read.
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) if whole => {
                (OwnDirectory::open(directory.as_fd(), &self.path)?, None)
            }
            Err(errno) => return Err(self.lock_error(errno)),
        };
        let lock = SourceLock { directory, own, file };
        self.check_nesting()?;
        Ok(lock)
    }

    /// Checks that no directory above or below SOURCE is served. When two mounts start at the same time, each
    /// checks again when it is in the mount table.
    pub fn check_nesting(&self) -> Result<(), SourceError> {
        let fault = |error| SourceError::Open { path: self.path.clone(), error };
        let refused = |how| Err(SourceError::Nested { path: self.path.clone(), how });
        let mounts = MountTable::read().map_err(fault)?;
        if let Some(other) = nesting::find(self.as_fd(), &self.path, &mounts).map_err(fault)? {
            let (source, at) = (other.source.display(), other.mount_point.display());
            return refused(match other.is_above {
                true => format!("lies in {source}, which is mounted at {at}"),
                false => format!("contains {source}, which is mounted at {at}"),
            });
        }
        match Ancestors::of(self.as_fd()).map_err(fault)?.locked() {
            Some(above) => {
                refused(format!("lies in {}, which another process has mounted", above.display()))
            }
            None => Ok(()),
        }
    }

    /// Creates, opens and locks `.weir/lock`, and records the holder in it. The inner error is for a `.weir`
    /// that does not belong to this user.
    fn lock_file(
        &self,
        directory: &OwnedFd,
        mountpoint: &Path,
    ) -> Result<Result<(OwnDirectory, OwnedFd), OwnDirectoryError>, Errno> {
        // A process that releases the lock removes the file that was just opened: then try again. More often
        // than this it does not happen by chance.
        for _ in 0..16 {
            let own = keeping_times(directory, |directory| {
                OwnDirectory::make(directory.as_fd(), &self.path)
            });
            let own = match own? {
                Ok(own) => own,
                Err(error) => return Ok(Err(error)),
            };
            let file = match try_lock_file(directory, &own)? {
                None => continue,
                Some(Err(error)) => return Ok(Err(error)),
                Some(Ok(file)) => file,
            };
            let mut holder = format!("{} ", std::process::id()).into_bytes();
            holder.extend_from_slice(mountpoint.as_os_str().as_bytes());
            holder.push(b'\n');
            // Only for messages: a full disk must not prevent a mount.
            let _ = rustix::fs::ftruncate(&file, 0);
            let _ = rustix::io::pwrite(&file, &holder, 0);
            return Ok(Ok((own, file)));
        }
        Err(Errno::AGAIN)
    }

    fn lock_error(&self, errno: Errno) -> SourceError {
        let path = self.path.join(WEIR_DIRECTORY).join(LOCK_FILE);
        SourceError::Lock { path, error: errno.into() }
    }

    /// The holder of the lock, from the lock file.
    fn locked(&self) -> SourceError {
        let path = self.path.join(WEIR_DIRECTORY).join(LOCK_FILE);
        let mut holder = String::new();
        // Bounded, non-blocking, and not through a link: the file may be anything.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
        let read = file.and_then(|file| File::from(file).take(8192).read_to_string(&mut holder));
        let by = match (read, holder.trim_end_matches('\n').split_once(' ')) {
            (Ok(_), Some((pid, mountpoint))) if pid.parse::<u32>().is_ok() => {
                format!(" at {mountpoint} by process {pid}")
            }
            _ => String::new(),
        };
        SourceError::Locked { path: self.path.clone(), by }
    }
}

/// SOURCE, locked while this lives.
#[derive(Debug)]
pub struct SourceLock {
    directory: OwnedFd,
    own: Option<OwnDirectory>,
    /// The open lock file; `None` where none could be created.
    file: Option<OwnedFd>,
}

impl SourceLock {
    /// `.weir`, if there is one.
    pub fn own(&self) -> Option<&OwnDirectory> {
        self.own.as_ref()
    }
}

impl Drop for SourceLock {
    /// Removes the lock file while it is still locked, and `.weir` if nothing else is in it. Unlocks explicitly: a child that was forked
    /// and has not executed its program yet holds copies of the descriptors.
    fn drop(&mut self) {
        if let (Some(own), Some(_)) = (&self.own, &self.file) {
            keeping_times(&self.directory, |directory| {
                let removed = rustix::fs::unlinkat(own.as_fd(), LOCK_FILE, AtFlags::empty());
                // It is not empty, or cannot be removed: it stays.
                let _ = removed.and_then(|()| {
                    rustix::fs::unlinkat(directory, WEIR_DIRECTORY, AtFlags::REMOVEDIR)
                });
            });
        }
        for descriptor in self.file.iter().chain([&self.directory]) {
            // Where it was never locked this does nothing.
            let _ = rustix::fs::flock(descriptor, FlockOperation::Unlock);
        }
    }
}

/// Locks a lock file. A process that only checks for mounts above holds the lock for a moment.
fn lock_patiently(file: &OwnedFd) -> Result<(), Errno> {
    const TRIES: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 1..TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            locked => return locked,
        }
    }
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// One try; `None` if the file lost its name meanwhile.
fn try_lock_file(
    directory: &OwnedFd,
    own: &OwnDirectory,
) -> Result<Option<Result<OwnedFd, OwnDirectoryError>>, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = Mode::RUSR | Mode::WUSR;
    let opened = rustix::fs::openat(own.as_fd(), LOCK_FILE, flags | OFlags::CLOEXEC, mode);
    let opened = match opened {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened,
    };
    let file = opened.inspect_err(|_| {
        // Remove the directory made for it.
        keeping_times(directory, |directory| {
            let _ = rustix::fs::unlinkat(directory, WEIR_DIRECTORY, AtFlags::REMOVEDIR);
        });
    })?;
    let held = rustix::fs::fstat(&file)?;
    if let Err(error) = own.check_file(LOCK_FILE, &held) {
        return Ok(Some(Err(error)));
    }
    lock_patiently(&file)?;
    let named = match rustix::fs::statat(own.as_fd(), LOCK_FILE, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        named => named?,
    };
    let is_named = (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino);
    Ok(is_named.then_some(Ok(file)))
}

/// The path of the redo log of the SOURCE at `path`, if the log is in SOURCE.
pub fn log_path(path: &Path) -> PathBuf {
    path.join(WEIR_DIRECTORY).join("log")
}

/// Whether `log` is that place, by any path.
pub fn is_log_path(path: &Path, log: &Path) -> bool {
    let parent = log.parent().and_then(|parent| parent.canonicalize().ok());
    log.file_name().is_some_and(|name| name == "log")
        && parent.is_some_and(|parent| parent == path.join(WEIR_DIRECTORY))
}

/// Runs `change` on SOURCE and restores its modification time: `.weir` is not a change by the user.
fn keeping_times<T>(directory: &OwnedFd, change: impl FnOnce(&OwnedFd) -> T) -> T {
    let before = rustix::fs::fstat(directory);
    let result = change(directory);
    if let (Ok(before), Ok(after)) = (before, rustix::fs::fstat(directory)) {
        let moved =
            (before.st_mtime, before.st_mtime_nsec) != (after.st_mtime, after.st_mtime_nsec);
        if let (true, Ok(tv_nsec)) = (moved, before.st_mtime_nsec.try_into()) {
            let times = Timestamps {
                last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                last_modification: Timespec { tv_sec: before.st_mtime, tv_nsec },
            };
            // Only the owner may set it; otherwise the time moves.
            let _ = rustix::fs::futimens(directory, &times);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// A scratch directory, removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path =
                std::env::temp_dir().join(format!("weir-source-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Scratch(path.canonicalize().unwrap())
        }

        fn open(&self) -> Source {
            Source::open(&self.0, &MountTable::default()).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refused(path: &Path) -> String {
        Source::open(path, &MountTable::default()).unwrap_err().to_string()
    }

    #[test]
    fn other_files_than_directories_are_refused() {
        let scratch = Scratch::new("kinds");
        assert!(refused(&scratch.0.join("gone")).contains("does not exist"));
        let file = scratch.0.join("file");
        fs::write(&file, "").unwrap();
        assert!(refused(&file).contains("is not a directory"));
        assert!(refused(&file.join("below")).contains("is not a directory"));
        let link = scratch.0.join("loop");
        symlink(&link, &link).unwrap();
        assert!(refused(&link).starts_with("cannot open SOURCE"));
        assert_eq!(scratch.open().path(), scratch.0);
    }

    #[test]
    fn a_directory_in_a_weir_mount_is_refused() {
        let scratch = Scratch::new("nested");
        let device = Device::from_raw(fs::metadata(&scratch.0).unwrap().dev());
        let line =
            format!("9 1 {}:{} / /mnt/w rw - fuse.weir /srv/data rw\n", device.major, device.minor);
        let error = Source::open(&scratch.0, &MountTable::parse(line.as_bytes())).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/mnt/w") && text.contains("/srv/data"), "{text}");
    }

    #[test]
    fn locks_exclude_each_other_and_leave_nothing_behind() {
        let scratch = Scratch::new("lock");
        let before = fs::metadata(&scratch.0).unwrap().modified().unwrap();
        let lock = scratch.open().lock(Path::new("/mnt/first place"), false).unwrap();
        let error = scratch.open().lock(Path::new("/mnt/second"), false).unwrap_err().to_string();
        let holder = format!("at /mnt/first place by process {}", std::process::id());
        assert!(error.contains(&holder), "{error}");
        drop(lock);
        assert!(!scratch.0.join(WEIR_DIRECTORY).exists());
        assert_eq!(fs::metadata(&scratch.0).unwrap().modified().unwrap(), before);
        drop(scratch.open().lock(Path::new("/mnt/second"), false).unwrap());
    }

    #[test]
    fn a_copy_of_the_descriptors_in_a_child_does_not_keep_the_lock() {
        let scratch = Scratch::new("copied-lock");
        let lock = scratch.open().lock(Path::new("/mnt"), false).unwrap();
        let copies = (lock.directory.try_clone().unwrap(), lock.file.as_ref().unwrap().try_clone());
        drop(lock);
        drop(scratch.open().lock(Path::new("/mnt/second"), false).unwrap());
        drop(copies);
    }

    #[test]
    fn the_file_alone_excludes_too() {
        let scratch = Scratch::new("file-lock");
        fs::create_dir(scratch.0.join(WEIR_DIRECTORY)).unwrap();
        let file = File::create(scratch.0.join(".weir/lock")).unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let error = scratch.open().lock(Path::new("/mnt"), false).unwrap_err();
        assert!(matches!(error, SourceError::Locked { ref by, .. } if by.is_empty()), "{error}");
    }

    #[test]
    fn files_of_a_dead_daemon_are_taken_over_and_others_stay() {
        let scratch = Scratch::new("stale");
        fs::create_dir(scratch.0.join(WEIR_DIRECTORY)).unwrap();
        fs::write(scratch.0.join(".weir/lock"), "1 /somewhere\n").unwrap();
        fs::write(scratch.0.join(".weir/kept"), "x").unwrap();
        drop(scratch.open().lock(Path::new("/mnt"), false).unwrap());
        assert!(!scratch.0.join(".weir/lock").exists());
        assert!(scratch.0.join(".weir/kept").exists());
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let scratch = Scratch::new("link");
        let target = scratch.0.join("target");
        fs::create_dir(scratch.0.join(WEIR_DIRECTORY)).unwrap();
        symlink(&target, scratch.0.join(".weir/lock")).unwrap();
        assert!(matches!(
            scratch.open().lock(Path::new("/mnt"), false),
            Err(SourceError::Lock { .. })
        ));
        assert!(!target.exists());
    }

    #[test]
    fn unwritable_directories_lock_themselves() {
        let scratch = Scratch::new("unwritable");
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o555)).unwrap();
        let lock = scratch.open().lock(Path::new("/mnt"), false).unwrap();
        // Root may write anywhere; other users have locked the directory.
        assert_eq!(lock.file.is_some(), rustix::process::geteuid().is_root());
        assert!(matches!(
            scratch.open().lock(Path::new("/mnt"), false),
            Err(SourceError::Locked { .. })
        ));
    }
}
