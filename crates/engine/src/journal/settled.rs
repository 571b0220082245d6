//! Which of a file's contents are durable at home, and which must be rewritten after a failed sync of home.

use crate::error::ErrorKind;

/// Which of a file's contents are durable at home. Epochs count the file's syncs of home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// The current epoch: contents that go home now are covered by syncs that begin later.
    pub(crate) epoch: u32,
    /// Pages that went home in this epoch or before are durable there.
    pub(crate) until: u32,
    /// A sync failed, and the contents that need the log were not rewritten yet.
    pub(crate) broken: Option<ErrorKind>,
    /// The last epoch in which a page went home that was not in the log and has left memory since, or bytes were written at
    /// home itself.
    pub(crate) evicted: u32,
    /// A sync failed, and some of what it covered cannot be rewritten.
    pub(crate) gone: Option<ErrorKind>,
    /// Number of failed syncs, and why the last one failed.
    pub(crate) losses: u32,
    pub(crate) lost_by: Option<ErrorKind>,
    /// The value of `losses` when the current repair began.
    pub(crate) repaired: u32,
    /// The value of `losses` when the file was frozen last.
    pub(crate) at_freeze: u32,
}

impl Settled {
    /// State of a file that is attached with `size` bytes at home. Those may have been written a moment ago
    /// and not be durable: until a sync succeeds, a failed one may lose them.
    pub(crate) fn of_size(size: u64) -> Settled {
        let (epoch, evicted) = (1, u32::from(size > 0));
        Settled {
            epoch,
            until: 0,
            broken: None,
            evicted,
            gone: None,
            losses: 0,
            lost_by: None,
            repaired: 0,
            at_freeze: 0,
        }
    }

    /// A sync of home begins, after [`Settled::count_anew`] if it must; returns the epoch it covers.
    pub(crate) fn begin_sync(&mut self) -> u32 {
        let covered = self.epoch;
        self.epoch += 1;
        covered
    }

    /// No epoch comes after this one, and no sync is under way: counts from 1 again. Says what each epoch until now is from here on: all
    /// that matters is which of them are durable.
    pub(crate) fn count_anew(&mut self) -> impl Fn(u32) -> u32 + use<> {
        let until = std::mem::take(&mut self.until);
        let anew = move |epoch| u32::from(epoch > until);
        (self.epoch, self.evicted) = (1, anew(self.evicted));
        anew
    }

    /// A page left memory that had gone home in this epoch and was not in the log.
    pub(crate) fn evicted(&mut self, epoch: u32) {
        self.evicted = self.evicted.max(epoch);
    }

    /// Bytes were written at home itself while the file was frozen. They cannot be rewritten, and a sync that failed meanwhile
    /// may have lost them.
    pub(crate) fn written_while_frozen(&mut self) {
        self.written_at_home();
        if self.losses != self.at_freeze {
            self.gone = self.gone.or(self.lost_by);
        }
    }

    /// Bytes were written at home itself: memory does not have them, so they cannot be rewritten.
    pub(crate) fn written_at_home(&mut self) {
        self.evicted(self.epoch);
    }

    /// Why no sync of the file can succeed; `None` if one can.
    pub(crate) fn failure(&self) -> Option<ErrorKind> {
        self.broken.or(self.gone)
    }

    /// The file is empty now, so nothing of it is missing.
    pub(crate) fn emptied(&mut self) {
        (self.evicted, self.gone) = (0, None);
    }
}
