//! Weir's own directory in a SOURCE, as others see it: whose it is, and whether it is locked.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Weir's own directory in SOURCE.
pub const WEIR_DIRECTORY: &str = ".weir";

/// The name of SOURCE's lock in `.weir`.
pub const LOCK_FILE: &str = "lock";

/// The `.weir` of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// The user who made it.
    pub made_by: u32,
    /// Whether a daemon holds the lock in it; `None` if this user may not look.
    pub is_locked: Option<bool>,
}

/// The `.weir` of a directory, if there is one that is to be believed: where anybody can make one, as in /tmp, root's, this user's and the
/// directory's owner's are.
pub fn of(directory: BorrowedFd<'_>) -> Option<Own> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = rustix::fs::openat(directory, WEIR_DIRECTORY, flags, Mode::empty()).ok()?;
    let made_by = rustix::fs::fstat(&own).ok()?.st_uid;
    let found = rustix::fs::fstat(directory).ok()?;
    let trusted = [0, found.st_uid, rustix::process::geteuid().as_raw()];
    if is_for_anybody(&found) && !trusted.contains(&made_by) {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let is_locked = match rustix::fs::openat(&own, LOCK_FILE, flags, Mode::empty()) {
        Ok(lock) => Some(is_held(lock.as_fd())),
        Err(Errno::ACCESS) => None,
        Err(_) => Some(false),
    };
    Some(Own { made_by, is_locked })
}

/// Whether the directory itself is locked, as a daemon locks its SOURCE where the file system can. Whoever may read it can do that, so that it
/// is not believed of a directory as /tmp is.
pub fn is_directory_locked(directory: BorrowedFd<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, ".", flags, Mode::empty()).is_ok_and(|directory| {
        rustix::fs::fstat(&directory).is_ok_and(|found| !is_for_anybody(&found))
            && is_held(directory.as_fd())
    })
}

/// Where anybody may make files, and only their owners remove them.
fn is_for_anybody(directory: &Stat) -> bool {
    let mode = Mode::from_raw_mode(directory.st_mode);
    mode.contains(Mode::SVTX | Mode::WOTH)
}

/// Tries a shared lock, released at once: it does not disturb others that check.
fn is_held(file: BorrowedFd<'_>) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}
