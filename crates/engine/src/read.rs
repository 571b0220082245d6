//! Reads: from frames, from inside patches, as zeros past the end at home; else fetched.
//!
//! A read that misses several pages has them all fetched together. It pins its pages while it
//! waits, and when the last of them changed state it is simply tried again.

use crate::command::{FileId, Outcome, ReadData, Reply, RequestId, Segment, Urgency};
use crate::engine::{Engine, Pending, ReadStep, Step};
use crate::error::{Error, ErrorKind};
use crate::file::{Event, Gate};
use crate::page::{FileIx, PageIo, PageIx, Piece, pieces};
use crate::time::Time;
use crate::write_back::Need;
use crate::{PAGE_BYTES, REQUEST_BYTES_MAX};

const PAGE: u64 = PAGE_BYTES as u64;

/// First read-ahead of a reader that looks sequential, pages.
const READAHEAD_PAGES_MIN: u32 = 8;

/// A sequential reader's requests come on several threads, and so a little out of order: two of the
/// kernel's own read-ahead requests at most.
const OUT_OF_ORDER_PAGES_MAX: u64 = 64;

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
        let Some(file) = self.files.find(file) else {
            return Outcome::Done(Err(Error::NotAttached));
        };
        if len > REQUEST_BYTES_MAX {
            return Outcome::Done(Err(Error::OutOfRange));
        }
        self.clock = now;
        self.stats.reads += 1;
        self.note_reads(file, offset, len);
        if self.files[file].gate != Gate::Open {
            self.files[file].queue.push_back((request, Event::Read { offset, len }));
            return Outcome::Pending;
        }
        self.files[file].last_read = Some(now);
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

    /// A read on an open gate; see [`Engine::read`].
    pub(crate) fn try_read(
        &mut self,
        request: RequestId,
        file: FileIx,
        offset: u64,
        len: usize,
        now: Time,
    ) -> ReadStep {
        let end = offset.saturating_add(len as u64).min(self.files[file].size());
        if offset >= end {
            return Step::Done(Ok(ReadData::default()));
        }
        match self.gather(file, offset, end) {
            Ok(data) => {
                self.stats.read_bytes += end - offset;
                self.stats.read_hits += data.segments.len() as u64;
                Step::Done(Ok(data))
            }
            Err(misses) => self.fetch_for_read(request, file, offset, len, misses, now),
        }
    }

    /// The bytes if all are in memory, else the numbers of the pages that are not.
    fn gather(&mut self, file: FileIx, offset: u64, end: u64) -> Result<ReadData, Vec<u64>> {
        let mut data = ReadData::default();
        let mut misses = Vec::new();
        for Piece { number, start, len } in pieces(offset, end) {
            let found = self.pages.find(file, number);
            let segment = match found.map(|ix| &self.pages[ix]) {
                Some(page) => match &page.frame {
                    Some(frame) => frame_segment(frame.frame(), start, len),
                    None => {
                        page.patches.get(start, len).map(|bytes| Segment::Bytes(bytes.to_vec()))
                    }
                },
                None if number * PAGE >= self.files[file].home_size => {
                    frame_segment(&self.zeros, start, len)
                }
                None => None,
            };
            match segment {
                Some(segment) if misses.is_empty() => data.segments.push(segment),
                Some(_) => {}
                None => misses.push(number),
            }
            if let Some(ix) = found
                && self.pages[ix].frame.is_some()
            {
                self.replacement.touch(&mut self.pages, ix);
                self.publish_read(ix);
            }
        }
        if misses.is_empty() { Ok(data) } else { Err(misses) }
    }

    fn fetch_for_read(
        &mut self,
        request: RequestId,
        file: FileIx,
        offset: u64,
        len: usize,
        misses: Vec<u64>,
        now: Time,
    ) -> ReadStep {
        let end = offset.saturating_add(len as u64).min(self.files[file].size());
        // What the read needs stays until it is answered, while room is made for the rest.
        let mut pinned: Vec<PageIx> = (offset / PAGE..=(end - 1) / PAGE)
            .filter_map(|number| self.pages.find(file, number))
            .collect();
        self.pin(&pinned);
        let idle = misses.iter().filter(|&&number| {
            self.pages.find(file, number).is_none_or(|ix| self.pages[ix].io == PageIo::None)
        });
        let needed = idle.count();
        if !self.ensure_frames(needed, Need::Read) {
            self.unpin(&pinned);
            return Step::Starved;
        }
        self.stats.read_misses += misses.len() as u64;
        for &number in &misses {
            let ix = match self.pages.find(file, number) {
                Some(ix) => ix,
                None => {
                    let ix = self.page_or_add(file, number);
                    self.pin(&[ix]);
                    pinned.push(ix);
                    ix
                }
            };
            self.wait_for(ix, request);
        }
        let fetched = self.fetch_pages(file, &misses, Urgency::Waited, Need::Read, now);
        assert!(fetched, "room for the fetch was made above");
        self.files[file].active += 1;
        let remaining = misses.len();
        self.pending
            .insert(request, Pending::Read { file, offset, len, remaining, pinned, failed: None });
        Step::Pending
    }

    /// The pages a read waited for have changed their state.
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
        self.files[file].active -= 1;
        match failed {
            Some(kind) => {
                self.unpin(pinned);
                self.reply(request, Reply::Read(Err(kind.into())));
            }
            None => {
                // Tried again before the pins go, so that what was fetched is still there.
                self.run(request, file, Event::Read { offset, len }, now);
                self.unpin(pinned);
            }
        }
    }

    fn is_absent(&self, file: FileIx, number: u64) -> bool {
        self.pages.find(file, number).is_none() && !self.is_spilled(file, number)
    }

    fn pin(&mut self, pages: &[PageIx]) {
        for &ix in pages {
            self.update(ix, |page| page.pins += 1);
        }
    }

    fn unpin(&mut self, pages: &[PageIx]) {
        for &ix in pages {
            self.update(ix, |page| page.pins -= 1);
        }
    }

    /// Reads ahead of a reader that goes through the file in order, in a window that doubles.
    fn read_ahead(&mut self, file: FileIx, offset: u64, len: usize, now: Time) {
        let max = self.config.readahead_pages_max;
        let of_file = &mut self.files[file];
        if max == 0 || len == 0 || !of_file.readable || of_file.gate != Gate::Open {
            return;
        }
        let ahead = &mut of_file.readahead;
        let first = offset / PAGE;
        let next = (offset + len as u64).div_ceil(PAGE);
        let in_order = first == ahead.next_page || first + 1 == ahead.next_page;
        // Only of a reader known to be sequential: random reads may be near each other, too.
        let late = ahead.window > READAHEAD_PAGES_MIN
            && first.abs_diff(ahead.next_page) <= OUT_OF_ORDER_PAGES_MAX;
        if !in_order && !late {
            *ahead = crate::file::ReadAhead { next_page: next, window: 0, fetched_to: 0 };
            return;
        }
        let next = next.max(ahead.next_page);
        ahead.next_page = next;
        ahead.window = (ahead.window * 2).clamp(READAHEAD_PAGES_MIN.min(max), max);
        let from = ahead.fetched_to.max(next);
        let window = u64::from(ahead.window);
        let to = (next + window).min(of_file.home_size.div_ceil(PAGE));
        if from >= to || from - next > window / 2 {
            return;
        }
        ahead.fetched_to = to;
        let absent: Vec<u64> = (from..to).filter(|&number| self.is_absent(file, number)).collect();
        if absent.is_empty() || !self.ensure_frames(absent.len(), Need::Read) {
            return;
        }
        self.note_ahead(now);
        self.stats.readahead_pages += absent.len() as u64;
        for &number in &absent {
            self.note_miss(file, number);
        }
        self.fetch_pages(file, &absent, Urgency::Foreground, Need::Read, now);
        for &number in &absent {
            if let Some(ix) = self.pages.find(file, number) {
                self.pages[ix].set_ahead(true);
            }
        }
    }
}

fn frame_segment(frame: &crate::frame::Frame, start: usize, len: usize) -> Option<Segment> {
    Some(Segment::Frame { frame: frame.clone(), start: start as u16, len: len as u16 })
}
