//! Reads: from frames, from inside patches, as zeros past the end at home; otherwise after a fetch.
//!
//! A read that misses several pages has all of them fetched together. It pins its pages while it waits, and is tried
//! again when the last of them has arrived or failed.

use weir_frames::PAGE_BYTES;

use crate::cache::page::PageIo;
use crate::command::{FileId, Outcome, ReadData, Reply, RequestId, Urgency};
use crate::config::REQUEST_BYTES_MAX;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::place::{FileIx, PageIx};
use crate::time::Time;
use crate::waiters::freeze_state::{Event, FreezeState};
use crate::waiters::request::{Pending, ReadStep, Step};
use crate::write_back::need::Need;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// Reads up to `len` bytes at `offset` (pread(2)); fewer at the end of the file, none past it.
    /// Answered later, as [`Reply::Read`], if a page must be fetched or the file is frozen.
    ///
    /// # Errors
    /// The fetch's, if a page cannot be had; `OutOfRange` above [`REQUEST_BYTES_MAX`].
    pub fn read(
        &mut self,
        request: RequestId,
        file: FileId,
        offset: u64,
        len: usize,
        now: Time,
    ) -> Outcome<ReadData> {
        let Some(file) = self.cache.files.find(file) else {
            return Outcome::Done(Err(Error::NotAttached));
        };
        if len > REQUEST_BYTES_MAX {
            return Outcome::Done(Err(Error::OutOfRange));
        }
        self.clock = now;
        self.stats.reads += 1;
        self.note_reads(file, offset, len);
        if self.cache.files[file].waiters.freeze != FreezeState::Thawed {
            self.cache.files[file].waiters.queue.push_back((request, Event::Read { offset, len }));
            return Outcome::Pending;
        }
        self.cache.files[file].last_read = Some(now);
        let outcome = match self.try_read(request, file, offset, len, now) {
            Step::Done(result) => Outcome::Done(result),
            Step::Pending => Outcome::Pending,
            Step::Starved => {
                self.starve(request, file, Event::Read { offset, len });
                self.pump(now);
                Outcome::Pending
            }
        };
        self.read_ahead(file, offset, len, now);
        outcome
    }

    /// A read of a file that is not frozen; see [`Engine::read`].
    pub(crate) fn try_read(
        &mut self,
        request: RequestId,
        file: FileIx,
        offset: u64,
        len: usize,
        now: Time,
    ) -> ReadStep {
        let end = offset.saturating_add(len as u64).min(self.cache.files[file].size());
        if offset >= end {
            return Step::Done(Ok(ReadData::default()));
        }
        match self.cache.gather(file, offset, end) {
            Ok(data) => {
                self.stats.read_bytes += end - offset;
                self.stats.read_hits += data.segments.len() as u64;
                Step::Done(Ok(data))
            }
            Err(misses) => self.fetch_for_read(request, file, offset, len, misses, now),
        }
    }

    pub(crate) fn fetch_for_read(
        &mut self,
        request: RequestId,
        file: FileIx,
        offset: u64,
        len: usize,
        misses: Vec<u64>,
        now: Time,
    ) -> ReadStep {
        let end = offset.saturating_add(len as u64).min(self.cache.files[file].size());
        // Pages that the read needs must not be dropped while room is made for the others.
        let mut pinned: Vec<PageIx> = (offset / PAGE..=(end - 1) / PAGE)
            .filter_map(|number| self.cache.pages.find(file, number))
            .collect();
        self.pin(&pinned);
        let idle = misses.iter().filter(|&&number| {
            self.cache
                .pages
                .find(file, number)
                .is_none_or(|ix| self.cache.pages[ix].io == PageIo::None)
        });
        let needed = idle.count();
        if !self.ensure_frames(needed, Need::Read) {
            self.unpin(&pinned);
            return Step::Starved;
        }
        self.stats.read_misses += misses.len() as u64;
        for &number in &misses {
            let ix = match self.cache.pages.find(file, number) {
                Some(ix) => ix,
                None => {
                    let ix = self.cache.page_or_add(file, number);
                    self.pin(&[ix]);
                    pinned.push(ix);
                    ix
                }
            };
            self.wait_for(ix, request);
        }
        let fetched = self.fetch_pages(file, &misses, Urgency::Waited, Need::Read, now);
        assert!(fetched, "room for the fetch was made above");
        self.cache.files[file].waiters.active += 1;
        let remaining = misses.len();
        self.waiters
            .pending
            .insert(request, Pending::Read { file, offset, len, remaining, pinned, failed: None });
        Step::Pending
    }

    /// The pages that a read waited for have arrived or failed.
    #[allow(clippy::too_many_arguments)] // The fields of one pending read.
    pub(crate) fn resume_read(
        &mut self,
        request: RequestId,
        file: FileIx,
        offset: u64,
        len: usize,
        pinned: &[PageIx],
        failed: Option<ErrorKind>,
        now: Time,
    ) {
        self.cache.files[file].waiters.active -= 1;
        match failed {
            Some(kind) => {
                self.unpin(pinned);
                self.reply(request, Reply::Read(Err(kind.into())));
            }
            None => {
                // Tried again before the pages are unpinned, so that they are still in memory.
                self.run(request, file, Event::Read { offset, len }, now);
                self.unpin(pinned);
            }
        }
    }

    pub(crate) fn pin(&mut self, pages: &[PageIx]) {
        for &ix in pages {
            self.update(ix, |page| page.pins += 1);
        }
    }

    pub(crate) fn unpin(&mut self, pages: &[PageIx]) {
        for &ix in pages {
            self.update(ix, |page| page.pins -= 1);
        }
    }
}
