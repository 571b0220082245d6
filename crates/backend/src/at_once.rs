//! What home was given at once while other changes are logged before home gets them: such a change is in no record, and only a
//! sync of home makes it durable. Where everything is logged, home is synced before the log takes a group of what came after
//! the change, and before a sync is acknowledged. Where names are, home is synced before the log takes a record of a name that
//! came after a change of names: recovery would find the new name taken, or the node gone.
//!
//! Owns a description of SOURCE for syncfs(2), so that no other sync misses the errors reported here ([`crate::whole`]).
//! Knows nothing of other file systems below SOURCE.
//!
//! Invariants: a sync of home covers the changes that had ended when it began; one that fails covers none.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_engine::ErrorKind;

use crate::whole::{Failures, WholeSync};

/// Whether home has changes made at once that are not durable there.
#[derive(Debug)]
pub struct AtOnce {
    home: WholeSync,
    is_of_everything: bool,
    changes: Mutex<Changes>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    /// That home may have and that have not ended.
    under_way: u64,
    /// That have ended.
    made: u64,
    /// As many of them are durable, in the order in which they ended.
    synced: u64,
    /// How often something came after such changes that needs them, as far as they had been seen then.
    wanted: u64,
    /// As many of these needs are met: a sync that began after them has succeeded.
    satisfied: u64,
}

impl Changes {
    fn are_unsynced(&self) -> bool {
        self.under_way > 0 || self.made > self.synced
    }
}

/// A change that home is given at once, until this is dropped: before the program is answered.
#[derive(Debug)]
#[must_use = "the change lasts until this is dropped"]
pub struct Changing {
    of: Arc<AtOnce>,
}

impl AtOnce {
    /// Of the file system that `directory` is on. If it is not of everything, only records of names need what was changed
    /// ([`AtOnce::name_follows`]).
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn new(directory: BorrowedFd<'_>, is_of_everything: bool) -> io::Result<AtOnce> {
        let home = WholeSync::new(directory, None)?;
        Ok(AtOnce { home, is_of_everything, changes: Mutex::default() })
    }

    /// Whether everything is logged, so that all that follows a change needs it.
    pub fn is_of_everything(&self) -> bool {
        self.is_of_everything
    }

    /// A change begins.
    pub fn change(self: &Arc<Self>) -> Changing {
        self.changes().under_way += 1;
        Changing { of: Arc::clone(self) }
    }

    /// A record of a name is about to be appended to the log, which may be of what home was given at once.
    pub fn name_follows(&self) {
        let mut changes = self.changes();
        if changes.are_unsynced() {
            // A sync that begins from now on covers also what is under way, as far as somebody has seen it.
            changes.wanted += 1;
        }
    }

    /// Whether home has, or may have, a change that is to be durable there before the next group is written, or a sync
    /// acknowledged, and is not.
    pub fn needs_sync(&self) -> bool {
        let changes = self.changes();
        match self.is_of_everything {
            true => changes.are_unsynced(),
            false => changes.wanted > changes.satisfied,
        }
    }

    /// Whether a sync would do nothing more: none is needed, and none has failed since [`AtOnce::failures`] returned `failures`.
    pub fn is_synced_since(&self, failures: Failures) -> bool {
        !self.needs_sync() && self.failures() == failures
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
        let before = *self.changes();
        let synced = self.home.sync(failures, |failed| {
            tracing::error!("what SOURCE was given at once is not durable there: {}", failed.kind);
        });
        synced.map_err(|failed| failed.kind)?;
        let mut changes = self.changes();
        changes.synced = changes.synced.max(before.made);
        changes.satisfied = changes.satisfied.max(before.wanted);
        Ok(())
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let mut changes = self.of.changes();
        changes.made += 1;
        changes.under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn at_once(is_of_everything: bool) -> Arc<AtOnce> {
        let place = tempfile::tempdir().unwrap();
        let source = std::fs::File::open(place.path()).unwrap();
        Arc::new(AtOnce::new(source.as_fd(), is_of_everything).unwrap())
    }

    #[test]
    fn a_sync_covers_what_had_ended_when_it_began() {
        let at_once = at_once(true);
        assert!(!at_once.needs_sync());
        let one = at_once.change();
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(at_once.needs_sync(), "it may be made after the sync");
        drop(one);
        let other = at_once.change();
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(at_once.needs_sync());
        drop(other);
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(!at_once.needs_sync());
    }

    #[test]
    fn a_sync_that_fails_covers_nothing() {
        let at_once = at_once(true);
        drop(at_once.change());
        let before = at_once.failures();
        at_once.home.has_failed();
        assert_eq!(at_once.sync(before), Err(ErrorKind::Io));
        assert!(at_once.needs_sync());
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(!at_once.needs_sync());
    }

    #[test]
    fn where_names_are_logged_a_record_of_a_name_needs_the_names_that_were_changed_before() {
        let at_once = at_once(false);
        at_once.name_follows();
        assert!(!at_once.needs_sync(), "nothing was changed at once");
        drop(at_once.change());
        assert!(!at_once.needs_sync(), "nothing follows");
        at_once.name_follows();
        assert!(at_once.needs_sync());
        at_once.home.has_failed();
        let before = at_once.failures();
        at_once.home.has_failed();
        assert_eq!(at_once.sync(before), Err(ErrorKind::Io));
        assert!(at_once.needs_sync(), "it is not durable");
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(!at_once.needs_sync());
        at_once.name_follows();
        assert!(!at_once.needs_sync(), "it is durable");
    }

    #[test]
    fn a_name_may_follow_what_is_seen_of_a_change_before_that_has_ended() {
        let at_once = at_once(false);
        let changing = at_once.change();
        at_once.name_follows();
        assert!(at_once.needs_sync());
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(!at_once.needs_sync(), "what was seen is durable");
        drop(changing);
        assert!(!at_once.needs_sync(), "nothing follows what was not seen");
        at_once.name_follows();
        assert!(at_once.needs_sync());
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(!at_once.needs_sync());
    }

    #[test]
    fn whoever_waited_is_served_by_the_sync_of_another_unless_one_has_failed() {
        let at_once = at_once(false);
        drop(at_once.change());
        at_once.name_follows();
        let before = at_once.failures();
        assert!(!at_once.is_synced_since(before));
        assert_eq!(at_once.sync(at_once.failures()), Ok(()));
        assert!(at_once.is_synced_since(before));
        at_once.home.has_failed();
        assert!(!at_once.is_synced_since(before), "it was told another one");
        assert_eq!(at_once.sync(before), Err(ErrorKind::Io));
    }
}
