//! What home was given at once where everything else is logged before home gets it: such a change is in no record, and only a
//! sync of home makes it durable. So home is synced before the log takes a group of what came after the change, and before a
//! sync is acknowledged.
//!
//! Owns a description of SOURCE for syncfs(2), so that no other sync misses the errors reported here ([`crate::whole`]).
//! Knows nothing of other file systems below SOURCE.
//!
//! Invariants: a sync of home covers the changes that had ended when it began; one that fails covers none.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_engine::ErrorKind;

use crate::whole::{Failures, WholeSync};

/// Whether home has changes made at once that are not durable there.
#[derive(Debug)]
pub struct AtOnce {
    home: WholeSync,
    /// Changes that home may have and that have not ended.
    under_way: AtomicU64,
    /// Changes that have ended.
    made: AtomicU64,
    /// As many of them are durable, in the order in which they ended.
    synced: AtomicU64,
}

/// A change that home is given at once, until this is dropped: before the program is answered.
#[derive(Debug)]
#[must_use = "the change lasts until this is dropped"]
pub struct Changing {
    of: Arc<AtOnce>,
}

impl AtOnce {
    /// Of the file system that `directory` is on.
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn new(directory: BorrowedFd<'_>) -> io::Result<AtOnce> {
        Ok(AtOnce {
            home: WholeSync::new(directory, None)?,
            under_way: AtomicU64::new(0),
            made: AtomicU64::new(0),
            synced: AtomicU64::new(0),
        })
    }

    /// A change begins.
    pub fn change(self: &Arc<Self>) -> Changing {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Changing { of: Arc::clone(self) }
    }

    /// Whether home has, or may have, a change that is not durable there.
    pub fn is_unsynced(&self) -> bool {
        // In this order: a change is counted as made before it is not under way any more.
        self.under_way.load(Ordering::SeqCst) > 0
            || self.made.load(Ordering::SeqCst) > self.synced.load(Ordering::SeqCst)
    }

    /// Syncs that have failed, for [`AtOnce::sync`].
    pub fn failures(&self) -> Failures {
        self.home.failures()
    }

    /// Makes all changes durable that have ended. Blocks.
    ///
    /// # Errors
    /// As [`WholeSync::sync`]: also if another sync has failed since [`AtOnce::failures`] returned `failures`.
    pub fn sync(&self, failures: Failures) -> Result<(), ErrorKind> {
        let made = self.made.load(Ordering::SeqCst);
        let synced = self.home.sync(failures, |failed| {
            tracing::error!("what SOURCE was given at once is not durable there: {}", failed.kind);
        });
        synced.map_err(|failed| failed.kind)?;
        self.synced.fetch_max(made, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.of.made.fetch_add(1, Ordering::SeqCst);
        self.of.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn at_once() -> Arc<AtOnce> {
        let place = tempfile::tempdir().unwrap();
        let source = std::fs::File::open(place.path()).unwrap();
        Arc::new(AtOnce::new(source.as_fd()).unwrap())
    }

    #[test]
    fn a_sync_covers_what_had_ended_when_it_began() {
        let at_once = at_once();
        assert!(!at_once.is_unsynced());
        let one = at_once.change();
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(at_once.is_unsynced(), "it may be made after the sync");
        drop(one);
        let other = at_once.change();
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(at_once.is_unsynced());
        drop(other);
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(!at_once.is_unsynced());
    }

    #[test]
    fn a_sync_that_fails_covers_nothing() {
        let at_once = at_once();
        drop(at_once.change());
        let before = at_once.failures();
        at_once.home.has_failed();
        assert_eq!(at_once.sync(before), Err(ErrorKind::Io));
        assert!(at_once.is_unsynced());
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(!at_once.is_unsynced());
    }
}
