//! Whether owner and times of a symbolic link can be set, and whether a file can have two names.
//!
//! Some FUSE file systems (sshfs) set those of what the link leads to, and some (buckets) have no hard links. It is tried once, in
//! `.weir`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{
    AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fstatfs, linkat, openat, statat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::notes;

/// The type of FUSE file systems (statfs(2)).
pub(crate) const FUSE_SUPER_MAGIC: u32 = 0x6573_5546;

/// The link in `.weir`. It leads to `.weir` itself.
const TRIED: &str = "link";

/// The two names of a file in `.weir`.
const TRIED_NAMES: [&str; 2] = ["name", "second-name"];

/// A time that the link has not.
const TIME_S: i64 = 1;

/// What is known of a file system's links.
#[derive(Debug)]
pub(super) struct Links {
    /// SOURCE's root, if it is to be tried there.
    to_try: Option<OwnedFd>,
    are_set: OnceLock<bool>,
    are_made: Mutex<Option<bool>>,
}

impl Links {
    pub(super) fn of(source: BorrowedFd<'_>) -> io::Result<Links> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let to_try =
            is_fuse(source).then(|| openat(source, ".", flags, Mode::empty())).transpose()?;
        Ok(Links { to_try, are_set: OnceLock::new(), are_made: Mutex::default() })
    }

    /// Whether owner and times of a symbolic link can be set. What cannot be tried is taken not to be so.
    pub(super) fn are_set(&self) -> bool {
        let Some(root) = &self.to_try else { return true };
        *self.are_set.get_or_init(|| sets_links(root.as_fd()).unwrap_or(false))
    }

    /// Whether a file can have two names. What cannot be tried is taken to be so until it can.
    pub(super) fn are_made(&self) -> bool {
        let Some(root) = &self.to_try else { return true };
        let mut known = self.are_made.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            *known = makes_links(root.as_fd()).ok();
        }
        known.unwrap_or(true)
    }
}

/// Whether a file is on a FUSE file system.
pub(crate) fn is_fuse(file: BorrowedFd<'_>) -> bool {
    fstatfs(file).is_ok_and(|system| system.f_type as u64 as u32 == FUSE_SUPER_MAGIC)
}

fn sets_links(root: BorrowedFd<'_>) -> io::Result<bool> {
    let own = notes::directory(root)?;
    let remove = || unlinkat(&own, TRIED, AtFlags::empty());
    // One that a daemon left that was killed.
    let _ = remove();
    symlinkat(".", &own, TRIED)?;
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps {
        last_access: omit,
        last_modification: Timespec { tv_sec: TIME_S, tv_nsec: 0 },
    };
    let set = utimensat(&own, TRIED, &times, AtFlags::SYMLINK_NOFOLLOW);
    let status = statat(&own, TRIED, AtFlags::SYMLINK_NOFOLLOW);
    // So `.weir` has the time of this, if it was set to the other.
    remove()?;
    set?;
    Ok(status?.st_mtime == TIME_S)
}

fn makes_links(root: BorrowedFd<'_>) -> io::Result<bool> {
    let own = notes::directory(root)?;
    let [name, second] = TRIED_NAMES;
    let remove = |name: &str| unlinkat(&own, name, AtFlags::empty());
    // Those that a daemon left that was killed.
    let _ = (remove(name), remove(second));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    drop(openat(&own, name, flags, Mode::RUSR | Mode::WUSR)?);
    let linked = linkat(&own, name, &own, second, AtFlags::empty());
    let _ = (remove(name), remove(second));
    match linked {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_system_that_has_hard_links_is_known_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join(".weir");
        let source = fs::File::open(directory.path()).unwrap();
        assert!(makes_links(source.as_fd()).is_err(), "there is no place to try it");
        fs::create_dir(&own).unwrap();
        fs::write(own.join(TRIED_NAMES[0]), "left").unwrap();
        assert!(makes_links(source.as_fd()).unwrap());
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
    }

    #[test]
    fn a_file_system_that_sets_times_of_links_is_known_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join(".weir");
        let source = fs::File::open(directory.path()).unwrap();
        assert!(sets_links(source.as_fd()).is_err(), "there is no place to try it");
        fs::create_dir(&own).unwrap();
        std::os::unix::fs::symlink("left", own.join(TRIED)).unwrap();
        assert!(sets_links(source.as_fd()).unwrap());
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
        assert!(fs::metadata(&own).unwrap().modified().unwrap().elapsed().unwrap().as_secs() < 60);
    }
}
