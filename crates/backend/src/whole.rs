//! Syncs of SOURCE's file system as a whole (syncfs(2)).
//!
//! Linux reports an error of write-back to each open file description of the file system once. So each caller of
//! syncfs has a description of its own; and where several requests share one, a request fails if any sync has
//! failed since it began, whichever request the error was reported to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, fstatfs, fsync, openat, syncfs};
use weir_engine::ErrorKind;

use crate::error::error_kind;

/// The type of FUSE file systems (statfs(2)).
const FUSE_SUPER_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Makes everything durable on the file system of an open directory. syncfs(2) does not reach the server of a FUSE file system; a sync
/// of the directory does, and where Weir serves a bucket that brings everything below it there.
///
/// # Errors
/// Those of syncfs(2) and fsync(2).
pub(crate) fn sync_file_system(directory: impl AsFd) -> rustix::io::Result<()> {
    syncfs(&directory)?;
    if fstatfs(&directory)?.f_type == FUSE_SUPER_MAGIC { fsync(&directory) } else { Ok(()) }
}

/// A new open file description of a directory.
///
/// # Errors
/// Those of openat(2).
pub(crate) fn reopen(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(directory, ".", flags, Mode::empty())?)
}

/// Syncs of one file system by several threads, one at a time.
#[derive(Debug)]
pub struct WholeSync {
    directory: Mutex<OwnedFd>,
    failures: AtomicU64,
}

impl WholeSync {
    /// Of the file system that `directory` is on.
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn new(directory: BorrowedFd<'_>) -> io::Result<WholeSync> {
        Ok(WholeSync { directory: Mutex::new(reopen(directory)?), failures: AtomicU64::new(0) })
    }

    /// Syncs that have failed. A request asks before it begins to bring data home, for [`WholeSync::sync`].
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// Makes everything at home durable. Blocks. Calls `failed` once for each failure of syncfs(2), before the
    /// failure counts: a request that begins later sees the effect of `failed`.
    ///
    /// # Errors
    /// The error that syncfs(2) reported to this request, or to another one since [`WholeSync::failures`]
    /// returned `failures`.
    pub fn sync(&self, failures: u64, failed: impl FnOnce(ErrorKind)) -> Result<(), ErrorKind> {
        let directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(errno) = sync_file_system(&*directory) {
            let kind = error_kind(&errno.into());
            failed(kind);
            self.failures.fetch_add(1, Ordering::SeqCst);
            return Err(kind);
        }
        if self.failures() != failures { Err(ErrorKind::Io) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_request_fails_if_an_error_was_reported_to_another_one_since_it_began() {
        let place = tempfile::tempdir().unwrap();
        let source = std::fs::File::open(place.path()).unwrap();
        let whole = WholeSync::new(source.as_fd()).unwrap();
        let before = whole.failures();
        assert_eq!(whole.sync(before, |_| panic!("nothing fails")), Ok(()));
        whole.failures.fetch_add(1, Ordering::SeqCst);
        assert_eq!(whole.sync(before, |_| panic!("it was reported")), Err(ErrorKind::Io));
        assert_eq!(whole.sync(whole.failures(), |_| panic!("nothing fails")), Ok(()));
    }
}
