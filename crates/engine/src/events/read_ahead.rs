//! Read-ahead, and the counts of reads for write-back.

use weir_frames::PAGE_BYTES;

use crate::cache::file::ReadAhead;
use crate::command::Urgency;
use crate::engine::Engine;
use crate::place::{FileIx, PageIx, Piece, pieces};
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;
use crate::write_back::need::Need;

const PAGE: u64 = PAGE_BYTES as u64;

/// First read-ahead window of a reader that looks sequential, pages.
const READAHEAD_PAGES_MIN: u32 = 8;

/// A sequential reader's requests arrive on several threads, and so slightly out of order: by at most two of the
/// kernel's own read-ahead requests.
const OUT_OF_ORDER_PAGES_MAX: u64 = 64;

impl Engine {
    /// Reads ahead of a sequential reader, in a window that doubles.
    pub(crate) fn read_ahead(&mut self, file: FileIx, offset: u64, len: usize, now: Time) {
        let max = self.config.readahead_pages_max;
        let of_file = &mut self.cache.files[file];
        if max == 0
            || len == 0
            || !of_file.readable
            || of_file.waiters.freeze != FreezeState::Thawed
        {
            return;
        }
        let ahead = &mut of_file.readahead;
        let first = offset / PAGE;
        let next = (offset + len as u64).div_ceil(PAGE);
        let in_order = first == ahead.next_page || first + 1 == ahead.next_page;
        // Only for a reader that is known to be sequential: random reads may be near each other, too.
        let late = ahead.window > READAHEAD_PAGES_MIN
            && first.abs_diff(ahead.next_page) <= OUT_OF_ORDER_PAGES_MAX;
        if !in_order && !late {
            *ahead = ReadAhead { next_page: next, window: 0, fetched_to: 0 };
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
        let absent: Vec<u64> =
            (from..to).filter(|&number| self.cache.is_absent(file, number)).collect();
        if absent.is_empty() || !self.ensure_frames(absent.len(), Need::Read) {
            return;
        }
        self.device.note_ahead(now);
        self.stats.readahead_pages += absent.len() as u64;
        for &number in &absent {
            self.note_miss(file, number);
        }
        self.fetch_pages(file, &absent, Urgency::Foreground, Need::Read, now);
        for &number in &absent {
            if let Some(ix) = self.cache.pages.find(file, number) {
                self.cache.pages[ix].set_ahead(true);
            }
        }
    }

    /// A program reads a range within the file: counts its pages that are in memory, in the ghost caches, or in neither.
    pub(crate) fn note_reads(&mut self, file: FileIx, offset: u64, len: usize) {
        if !self.write_back.is_adaptive() {
            return;
        }
        let end = offset.saturating_add(len as u64).min(self.cache.files[file].size());
        for Piece { number, start, len } in pieces(offset, end) {
            let found = self.cache.pages.find(file, number);
            if let Some(ix) = found
                && self.cache.pages[ix].is_ahead()
            {
                // The first read of a page that was read ahead is not a hit: the paper counts references to pages that
                // an earlier reference brought into memory.
                self.cache.pages[ix].set_ahead(false);
                continue;
            }
            let hit = match found.map(|ix| (ix, &self.cache.pages[ix])) {
                Some((ix, page)) if page.frame.is_some() => {
                    Some(self.cache.replacement.is_ghost_hit(&self.cache.pages, ix))
                }
                Some((_, page)) => page.patches.get(start, len).map(|_| true),
                // Zeros past the end at home take no memory.
                None if number * PAGE >= self.cache.files[file].home_size => continue,
                None => None,
            };
            let state = &mut self.write_back;
            state.sample.reads += 1;
            match hit {
                Some(inside) => {
                    state.sample.hits += 1;
                    state.sample.ghost_hits += u64::from(inside);
                    state.ghost_hits += u64::from(inside);
                }
                None => self.note_miss(file, number),
            }
        }
    }

    /// Programs have read a page through the lane, once or more: counts as one hit.
    pub(crate) fn note_read_in_lane(&mut self, ix: PageIx) {
        if self.write_back.is_adaptive() {
            let inside = self.cache.replacement.is_ghost_hit(&self.cache.pages, ix);
            let state = &mut self.write_back;
            state.sample.reads += 1;
            state.sample.hits += 1;
            state.sample.ghost_hits += u64::from(inside);
            state.ghost_hits += u64::from(inside);
        }
    }

    /// A page is fetched for a reader, or ahead of one.
    pub(crate) fn note_miss(&mut self, file: FileIx, number: u64) {
        if self.write_back.is_adaptive()
            && self.cache.ghosts.take(self.cache.files[file].id, number)
        {
            self.write_back.sample.ghost_misses += 1;
            self.write_back.ghost_misses += 1;
        }
    }
}
