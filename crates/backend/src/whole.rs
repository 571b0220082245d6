//! Syncs of SOURCE's file system as a whole (syncfs(2)).
//!
//! Linux reports an error of write-back to each open file description of the file system once. So each caller of
//! syncfs has a description of its own; and where several requests share one, a request fails if any sync has
//! failed since it began, whichever request the error was reported to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, fsync, openat, syncfs};
use weir_engine::{ErrorKind, FileId};

use crate::error::error_kind;
use crate::home_names::is_fuse;
use crate::unsynced::{Lost, Unsynced};

/// Makes everything durable on the file system of an open directory. syncfs(2) does not reach the server of a FUSE file system; a sync
/// of the directory does, and where Weir serves a bucket that brings everything below it there.
///
/// # Errors
/// Those of syncfs(2) and fsync(2).
pub(crate) fn sync_file_system(directory: impl AsFd) -> rustix::io::Result<()> {
    syncfs(&directory)?;
    if is_fuse(directory.as_fd()) { fsync(&directory) } else { Ok(()) }
}

/// A sync of home failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailed {
    /// Why.
    pub kind: ErrorKind,
    /// Home may have lost whatever it was given since its last sync; otherwise data of the files in `lost` alone.
    pub is_all: bool,
    /// What a sync of the files that were written has found: the engine is to be told, and [`crate::Directory::are_told`] follows.
    pub lost: Option<Lost>,
}

impl SyncFailed {
    /// A failure of which no more is known.
    pub(crate) fn of_all(kind: ErrorKind) -> SyncFailed {
        SyncFailed { kind, is_all: true, lost: None }
    }

    /// The files of which home may have lost something; `None`: all.
    pub fn files(&self) -> Option<&[FileId]> {
        let lost = self.lost.as_ref().filter(|_| !self.is_all);
        lost.map(|lost| &*lost.files)
    }
}

/// Makes a home durable, with what was written to it if syncfs(2) does not reach that.
///
/// # Errors
/// By which call, and why.
pub(crate) fn sync_home(
    directory: impl AsFd,
    unsynced: Option<&Unsynced>,
) -> Result<(), SyncFailed> {
    let written = unsynced.map_or(Ok(()), Unsynced::sync);
    let synced = sync_file_system(directory).map_err(|error| error_kind(&error.into()));
    match (synced, written) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(kind), written) => {
            let lost = written.err().map(|(lost, _)| lost);
            Err(SyncFailed { kind, is_all: true, lost })
        }
        (Ok(()), Err((lost, kind))) => Err(SyncFailed { kind, is_all: false, lost: Some(lost) }),
    }
}

/// A new open file description of a directory.
///
/// # Errors
/// Those of openat(2).
pub(crate) fn reopen(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(directory, ".", flags, Mode::empty())?)
}

/// How many syncs of a home have failed, for [`WholeSync::sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// That may have lost whatever home had.
    own_of_all: u64,
    /// By whomever they were asked for; `None` while the engine does not know of one.
    told: Option<u64>,
}

/// Syncs of one file system by several threads, one at a time.
#[derive(Debug)]
pub struct WholeSync {
    directory: Mutex<OwnedFd>,
    unsynced: Option<Arc<Unsynced>>,
    failures: AtomicU64,
}

impl WholeSync {
    /// Of the file system that `directory` is on; `unsynced` is what syncfs(2) does not reach there.
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn new(
        directory: BorrowedFd<'_>,
        unsynced: Option<Arc<Unsynced>>,
    ) -> io::Result<WholeSync> {
        let directory = Mutex::new(reopen(directory)?);
        Ok(WholeSync { directory, unsynced, failures: AtomicU64::new(0) })
    }

    /// Syncs that have failed. A request asks before it begins to bring data home, for [`WholeSync::sync`].
    pub fn failures(&self) -> Failures {
        let told = self.unsynced.as_ref().map_or(Some(0), |unsynced| unsynced.failed());
        Failures { own_of_all: self.failures.load(Ordering::SeqCst), told }
    }

    /// A failure was reported to some request, after which home may lack whatever it had.
    pub(crate) fn has_failed(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes everything at home durable. Blocks. Calls `failed` once for each failure of syncfs(2), before the
    /// failure counts: a request that begins later sees the effect of `failed`.
    ///
    /// # Errors
    /// The error that syncfs(2) reported to this request, or to another one since [`WholeSync::failures`]
    /// returned `failures`.
    pub fn sync(
        &self,
        failures: Failures,
        failed: impl FnOnce(&SyncFailed),
    ) -> Result<(), SyncFailed> {
        let directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = sync_home(&*directory, self.unsynced.as_deref()) {
            failed(&error);
            if error.is_all {
                self.has_failed();
            }
            return Err(error);
        }
        let now = self.failures();
        match failures.told.is_some() && now == failures {
            true => Ok(()),
            // Of one that lost some files the engine knows.
            false => Err(SyncFailed {
                kind: ErrorKind::Io,
                is_all: now.own_of_all != failures.own_of_all,
                lost: None,
            }),
        }
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
        let whole = WholeSync::new(source.as_fd(), None).unwrap();
        let before = whole.failures();
        assert_eq!(whole.sync(before, |_| panic!("nothing fails")), Ok(()));
        whole.has_failed();
        assert_eq!(
            whole.sync(before, |_| panic!("it was reported")),
            Err(SyncFailed::of_all(ErrorKind::Io))
        );
        assert_eq!(whole.sync(whole.failures(), |_| panic!("nothing fails")), Ok(()));
    }
}
