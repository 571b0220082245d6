//! Transfers that failed: the data stays dirty and is retried after a pause.

use std::time::Duration;

use crate::cache::page::PageIo;
use crate::cache::patch::PatchSet;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::{FIRST, FileIx, PageIx, Place};
use crate::time::Time;

impl Engine {
    /// A page's transfer failed. Data that is dirty, or was in transfer, is kept and retried after a pause. Syncs in
    /// progress get the error and do not wait for the retry.
    pub(crate) fn transfer_failed(&mut self, ix: PageIx, kind: ErrorKind, now: Time) {
        let page = &self.cache.pages[ix];
        let (file, io, dirty_seq) = (page.file, page.io, page.dirty_seq);
        self.device.failures.last = kind;
        if self.cache.files[file].discarded {
            self.update(ix, |page| {
                page.io = PageIo::None;
                page.patches = PatchSet::default();
                page.dirty_seq = 0;
                page.unlogged = Default::default();
            });
            if dirty_seq != 0 {
                self.settle(file, dirty_seq, Ok(()));
            }
            return;
        }
        if io == PageIo::Fetch && dirty_seq == 0 {
            self.update(ix, |page| page.io = PageIo::None);
            return;
        }
        if self.cache.dirty.retry.is_empty() {
            self.device.failures.retry_at = now + self.config.retry_delay;
        }
        self.device.failures.in_a_row += 1;
        let seq = self.cache.next_seq();
        self.update(ix, |page| {
            page.io = PageIo::None;
            page.retrying = true;
            page.dirty_seq = seq;
            page.dirty_since_ms = page.dirty_since_ms.min(now.as_millis());
        });
        if dirty_seq != 0 {
            self.settle(file, dirty_seq, Err(kind));
        }
    }

    /// Puts failed pages back into the dirty sets, due at once, when the pause is over.
    pub(crate) fn revive_failed(&mut self, now: Time) {
        if now < self.device.failures.retry_at {
            return;
        }
        let expired = now - self.config.dirty_expire - Duration::from_millis(1);
        while let Some(place) = self.cache.dirty.retry.next(FIRST) {
            self.revive(place, expired.as_millis()); // may be OVERDUE
        }
    }

    /// The same for one file, without the pause: a sync retries its failed pages at once.
    pub(crate) fn revive_failed_of(&mut self, file: FileIx) {
        while let Some(number) = self.cache.dirty.retry.next_of(file, 0) {
            self.revive((file, number), u64::MAX);
        }
    }

    pub(crate) fn revive(&mut self, (file, number): Place, since_ms: u64) {
        let ix = self.cache.pages.find(file, number).expect("a dirty page is in the table");
        self.update(ix, |page| {
            page.retrying = false;
            page.dirty_since_ms = page.dirty_since_ms.min(since_ms);
        });
    }
}
