//! Frames for pages: clean pages are dropped to make room.

use crate::cache::spill::RETURN_SHARE;
use crate::engine::Engine;
use crate::place::PageIx;
use crate::write_back::need::Need;

/// Most pages spared in a row because they were read; the next one is replaced even if it was read.
const SPARED_MAX: usize = 32;

impl Engine {
    /// Makes sure `count` frames can be taken, dropping clean pages for them as the replacement
    /// policy says. False if they cannot be had now.
    pub(crate) fn ensure_frames(&mut self, count: usize, need: Need) -> bool {
        while self.cache.census.frames + self.cache.frames_in_flight + count
            > self.cache.frames_bound()
        {
            let Some(victim) = self.victim() else { return false };
            self.replace(victim, need);
        }
        // Frames that transfers and answers still share may be missing from the pool.
        for _ in 0..count {
            if self.cache.pool.free() as usize >= count {
                return true;
            }
            let Some(victim) = self.victim() else { return false };
            self.replace(victim, need);
        }
        self.cache.pool.free() as usize >= count
    }

    pub(crate) fn replace(&mut self, victim: PageIx, need: Need) {
        self.note_replaced(victim, need);
        self.stats.evictions += 1;
        self.update(victim, |page| page.frame = None);
    }

    /// Whether patches take more than their bound, even without the patches of blocked writers. This happens when fetches
    /// fail, or the file cannot be read.
    pub(crate) fn patches_exceed(&self) -> bool {
        self.cache.census.patch_bytes
            > self.config.patch_bytes_max as usize + self.waiters.blocked_patch_bytes
    }

    /// The patch memory that writers may take. While patches are in the log, a share is kept for reading them back.
    pub(crate) fn patch_memory_left(&self) -> usize {
        let in_use = self.cache.census.patch_bytes - self.cache.census.returned_bytes;
        self.patch_memory_for_writers().saturating_sub(in_use)
    }

    pub(crate) fn patch_memory_for_writers(&self) -> usize {
        let most = self.config.patch_bytes_max as usize;
        let kept = if self.cache.spill.index.is_empty() { 0 } else { most / RETURN_SHARE };
        most - kept.max(self.cache.census.returned_bytes.min(most))
    }

    /// The next victim, left on its list; `None` if there is no candidate. Pages that programs have read through the lane
    /// are spared, up to a bound.
    pub(crate) fn victim(&mut self) -> Option<PageIx> {
        for _ in 0..SPARED_MAX {
            let ix = self.cache.replacement.victim(&mut self.cache.pages)?;
            let Some(board) = self.cache.pool.board() else { return Some(ix) };
            let frame = self.cache.pages[ix].frame.as_ref().expect("a candidate is resident");
            if !frame.is_published() || !board.take_referenced(frame.frame().index()) {
                return Some(ix);
            }
            self.note_read_in_lane(ix);
            self.cache.replacement.spare(&mut self.cache.pages, ix);
        }
        self.cache.replacement.victim(&mut self.cache.pages)
    }

    /// A clean page is about to be dropped, because its frame is needed.
    pub(crate) fn note_replaced(&mut self, ix: PageIx, need: Need) {
        if need == Need::Write && self.write_back.is_adaptive() {
            let page = &self.cache.pages[ix];
            self.cache.ghosts.insert(self.cache.files[page.file].id, page.number);
        }
    }

    /// The number of dirty frames after the fetches in flight that are for going home.
    pub(crate) fn unclean_soon(&self) -> usize {
        self.cache.census.unclean_frames + self.device.in_flight.converting
    }

    /// The number of dirty frames at which writers wait. The index of spilled patches also takes memory for frames: if all
    /// the other frames were dirty, none would be left for readers.
    pub(crate) fn dirty_bound(&self) -> usize {
        self.write_back
            .hard
            .min(self.cache.frames_bound().saturating_sub(self.cache.frames_max / 8))
    }
}
