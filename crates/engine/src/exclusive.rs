//! Exclusive sections: a file held still while its home is changed under it.
//!
//! Truncate, fallocate, copy_file_range and seeks for holes act on the file at home. They ask for
//! the file, wait until nothing of it is under way, act, and say what changed. Events on the file
//! that come meanwhile queue, in order.

use crate::PAGE_BYTES;
use crate::command::{Durability, ExclusiveEnd, FileId, Outcome, Reply, RequestId};
use crate::engine::Engine;
use crate::error::Error;
use crate::file::{Event, Gate, Section, SyncFor};
use crate::log::Log;
use crate::page::{FileIx, PageIo, PageIx};
use crate::patch::PatchSet;
use crate::resident::Resident;
use crate::time::Time;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// Asks for the file. When granted (at once, or as [`Reply::Exclusive`]) nothing of it is in
    /// transfer and nothing will be until [`Engine::end_exclusive`]; other events on it queue.
    ///
    /// # Errors
    /// Those of bringing data home before the section; the file is not frozen then.
    pub fn begin_exclusive(
        &mut self,
        request: RequestId,
        file: FileId,
        section: impl Into<Section>,
        now: Time,
    ) -> Outcome<()> {
        let section = section.into();
        let Some(file) = self.files.find(file) else {
            return Outcome::Done(Err(Error::NotAttached));
        };
        self.clock = now;
        if self.files[file].gate != Gate::Open {
            self.files[file].queue.push_back((request, Event::Exclusive { section }));
            return Outcome::Pending;
        }
        if self.close_gate(Some(request), file, section, now) {
            Outcome::Done(Ok(()))
        } else {
            Outcome::Pending
        }
    }

    /// Closes an open gate; true if the section may start at once.
    pub(crate) fn close_gate(
        &mut self,
        request: Option<RequestId>,
        file: FileIx,
        section: Section,
        now: Time,
    ) -> bool {
        self.files[file].gate = Gate::Closing { request, section, flushing: false };
        self.files[file].tell_grant();
        self.hurry(file);
        self.start_section(file, now)
    }

    /// Starts the section a closing gate waits for, or the flush it needs first; true if the
    /// section started.
    fn start_section(&mut self, file: FileIx, now: Time) -> bool {
        let Gate::Closing { request, section, flushing: false } = self.files[file].gate else {
            return false;
        };
        let Section { flush, changes_from } = section;
        // Also when a flush is over: a write that was under way when the gate closed, waiting for
        // space, may have been applied since.
        let flushes = flush.is_some_and(|(from, to)| self.has_unclean(file, from, to));
        let revokes = changes_from.is_some_and(|from| self.must_revoke_from(file, from));
        if flushes || revokes {
            self.files[file].gate = Gate::Closing { request, section, flushing: true };
            let done = SyncFor::Exclusive { revokes };
            let unclean = self.files[file].is_unclean();
            let id = self.add_waiter(file, Durability::Data, done);
            match unclean {
                true => self.pump(now),
                false => self.all_home(file, id),
            }
            return false;
        }
        if !self.is_quiet(file, request.is_none()) {
            return false;
        }
        self.files[file].gate = Gate::Frozen;
        true
    }

    /// Whether a replay after a crash would write the file's records over the section's changes from byte
    /// `from` on.
    fn must_revoke_from(&self, file: FileIx, from: u64) -> bool {
        let usable = self.log.as_ref().is_some_and(Log::is_usable);
        usable && !self.config.undone.cut && self.has_records_from(file, from)
    }

    fn has_unclean(&self, file: FileIx, from: u64, to: u64) -> bool {
        let spilled = self.spill.index.of(file, from / PAGE).next();
        self.files[file].is_unclean()
            && (spilled.is_some_and(|(number, _)| number * PAGE < to)
                || self.pages_of(file).into_iter().any(|ix| {
                    let page = &self.pages[ix];
                    page.is_unclean() && page.number * PAGE < to && (page.number + 1) * PAGE > from
                }))
    }

    /// Whether nothing of the file is under way. Syncs that wait for its repair do not count, and for a
    /// repair, neither do syncs that wait for pages to go home. A repair needs all of the file's records to
    /// be durable in the log.
    pub(crate) fn is_quiet(&self, file: FileIx, for_repair: bool) -> bool {
        if for_repair && self.undurable_record(file).is_some() {
            return false;
        }
        let file = &self.files[file];
        let waiting = file.syncs.iter().all(|sync| match for_repair {
            true => !sync.syncing_home,
            false => sync.awaits_repair,
        });
        file.io_in_flight == 0 && file.active == 0 && waiting
    }

    /// Grants the section a closing gate waits for, if the file is quiet.
    pub(crate) fn try_grant(&mut self, file: FileIx, now: Time) {
        if let Gate::Closing { request: None, .. } = self.files[file].gate
            && self.is_repaired(file)
        {
            self.files[file].gate = Gate::Open;
            return self.open_gate(file, now);
        }
        if let Gate::Closing { request, .. } = self.files[file].gate
            && self.start_section(file, now)
        {
            match request {
                Some(request) => self.reply(request, Reply::Exclusive(Ok(()))),
                None => self.repair(file),
            }
        }
    }

    /// The section is over. Cached pages that `end.discard` touches are dropped, dirty or not: the
    /// caller flushed what of them must not be lost. Queued events go on.
    pub fn end_exclusive(&mut self, file: FileId, end: ExclusiveEnd, now: Time) {
        self.clock = now;
        let file = self.files.find(file).expect("a frozen file stays attached");
        assert_eq!(self.files[file].gate, Gate::Frozen, "the section was granted");
        if let Some((from, to)) = end.discard {
            self.drop_range(file, from, to);
            let (first, last) = (from / PAGE * PAGE, to.saturating_add(PAGE - 1) / PAGE * PAGE);
            self.files[file].set_free(first, last);
        }
        if let Some(size) = end.size {
            self.resize(file, size);
        }
        self.files[file].mapped.stale = true;
        self.files[file].home_unsynced |= end.discard.is_some() || end.size.is_some();
        self.files[file].gate = Gate::Open;
        self.open_gate(file, now);
    }

    /// Runs what queued behind a gate that opened, up to the next section.
    pub(crate) fn open_gate(&mut self, file: FileIx, now: Time) {
        self.files[file].tell_grant();
        if self.files[file].is_urgent() {
            self.urgent.insert(file);
        }
        while self.files[file].gate == Gate::Open {
            let Some((request, event)) = self.files[file].queue.pop_front() else { break };
            self.run(request, file, event, now);
        }
        self.progress(file, now);
        self.pump(now);
        self.feed_starved(now);
    }

    /// Opens gates whose section failed before it began.
    pub(crate) fn reopen_gates(&mut self, now: Time) {
        while let Some(file) = self.reopened.pop() {
            self.open_gate(file, now);
        }
    }

    fn drop_range(&mut self, file: FileIx, from: u64, to: u64) {
        self.drop_spilled(file, from, to);
        for ix in self.pages_of(file) {
            let number = self.pages[ix].number;
            if number * PAGE < to && (number + 1) * PAGE > from {
                self.drop_page(file, ix);
            }
        }
    }

    fn drop_page(&mut self, file: FileIx, ix: PageIx) {
        assert_eq!(self.pages[ix].io, PageIo::None, "nothing of a frozen file is in transfer");
        if !self.pages[ix].patches.is_empty() {
            self.stats.fetches_avoided += 1;
        }
        let seq = self.update(ix, |page| {
            page.frame = None;
            page.patches = PatchSet::default();
            page.unlogged = Default::default();
            std::mem::take(&mut page.dirty_seq)
        });
        if seq != 0 {
            self.settle(file, seq, Ok(()));
        }
    }

    /// The file has this size now, here and at home.
    fn resize(&mut self, file: FileIx, size: u64) {
        let old = self.files[file].size();
        self.files[file].set_size(size);
        if size < old {
            self.drop_range(file, size.next_multiple_of(PAGE), u64::MAX);
            self.cut_spilled(file, size / PAGE, (size % PAGE) as usize);
            if let Some(ix) = self.pages.find(file, size / PAGE) {
                self.cut_page(file, ix, (size % PAGE) as usize);
            }
        }
        let file = &mut self.files[file];
        file.home_size = size;
        if size == 0 {
            file.settled.emptied();
        }
        // Truncation to any size may give it back.
        file.forget_reserved_past_end();
        file.readahead = Default::default();
    }

    /// Drops what a page holds from byte `from` on: it reads as zeros should the file grow again.
    fn cut_page(&mut self, file: FileIx, ix: PageIx, from: usize) {
        if from == 0 {
            self.drop_page(file, ix);
            return;
        }
        self.update(ix, |page| {
            page.unlogged.truncate(from);
            page.spilling = 0;
        });
        let Some(frame) = self.pages[ix].frame.as_mut() else {
            let emptied = self.update(ix, |page| {
                page.patches.truncate(from);
                let empty = page.patches.is_empty();
                if empty {
                    page.unlogged = Default::default();
                    std::mem::take(&mut page.dirty_seq)
                } else {
                    0
                }
            });
            if emptied != 0 {
                self.stats.fetches_avoided += 1;
                self.settle(file, emptied, Ok(()));
            }
            return;
        };
        if let Some(mut bytes) = frame.bytes_mut() {
            bytes[from..].fill(0);
            return;
        }
        // An answer under way still uses the frame. The page's bytes go into a new one, or, should
        // none be free, into a patch.
        let kept = frame.frame().bytes()[..from].to_vec();
        let fresh = self.pool.take().map(|mut fresh| {
            let bytes = fresh.bytes_mut().expect("a frame just taken is not shared");
            bytes[..from].copy_from_slice(&kept);
            bytes[from..].fill(0);
            Resident::new(fresh)
        });
        self.update(ix, |page| {
            if fresh.is_none() && page.dirty_seq != 0 {
                page.patches.insert(0, &kept);
            }
            page.frame = fresh;
        });
    }
}
