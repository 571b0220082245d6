//! Gauges and counters, at a given time.

use weir_frames::PAGE_BYTES;

use crate::cache::page::{DESCRIPTOR_BYTES, PageState};
use crate::command::FileId;
use crate::config::WriteBackPolicy;
use crate::device::schedule::Rank;
use crate::engine::Engine;
use crate::stats::Stats;
use crate::time::Time;

impl Engine {
    /// Counters, and gauges as of `now`.
    pub fn stats(&self, now: Time) -> Stats {
        let frames = self.cache.census.frames + self.cache.frames_in_flight;
        let descriptors = (self.cache.pages.len() - self.cache.census.patched) * DESCRIPTOR_BYTES;
        let oldest = [
            self.cache.dirty.patched.oldest_ms(),
            self.cache.dirty.resident.oldest_ms(),
            self.cache.spill.index.oldest_ms(),
        ];
        let oldest = oldest.into_iter().flatten().min().unwrap_or(now.as_millis());
        let patch_bytes = self.cache.census.patch_bytes;
        let index_bytes = self.cache.spill.index.bytes();
        let mut stats = Stats {
            // Counted as answered pages; those that were fetched for their read are no hits.
            read_hits: self.stats.read_hits.saturating_sub(self.stats.read_misses),
            writers_waiting: self.waiters.writers_waiting() as u64,
            files: self.cache.files.len() as u64,
            pages: self.cache.pages.len() as u64,
            frames: frames as u64,
            dirty_pages: (self.cache.census.unclean + self.cache.spill.index.len()
                - self.cache.dirty.over.len()) as u64,
            patched_pages: self.cache.census.patched as u64,
            spilled_pages: self.cache.spill.index.len() as u64,
            spill_index_bytes: index_bytes as u64,
            patch_bytes: patch_bytes as u64,
            fetches_in_flight: self.device.in_flight.fetches as u64,
            destages_in_flight: self.device.in_flight.destages as u64,
            sync_requests_waiting: self.device.scheduler.waiting(Rank::Sync) as u64,
            async_requests_waiting: self.device.scheduler.waiting(Rank::Async) as u64,
            queue_depth: self.depth().later as u64,
            oldest_dirty_ms: now.as_millis().saturating_sub(oldest),
            memory_bytes: (frames * PAGE_BYTES
                + descriptors
                + patch_bytes
                + index_bytes
                + self.cache.ghosts.bytes()) as u64,
            memory_bytes_max: self.config.memory_bytes_max,
            patch_bytes_max: self.config.patch_bytes_max,
            ..self.stats
        };
        self.log_stats(&mut stats);
        self.write_back_stats(&mut stats);
        stats
    }

    /// The state of a page.
    pub fn page_state(&self, file: FileId, page: u64) -> PageState {
        let found = self.cache.files.find(file).and_then(|ix| self.cache.pages.find(ix, page));
        found.map_or(PageState::Absent, |ix| self.cache.pages[ix].state())
    }

    pub(crate) fn log_stats(&self, stats: &mut Stats) {
        if let Some(log) = &self.journal {
            stats.log_used_bytes = log.shared.writer().used_bytes();
            stats.log_capacity_bytes = log.shared.writer().capacity_bytes();
        }
    }

    /// Fills in the statistics of write-back. Under the static policy the ratios take the watermarks' places.
    pub(crate) fn write_back_stats(&self, stats: &mut Stats) {
        let state = &self.write_back;
        stats.dirty_memory_pages = self.cache.dirty_frames() as u64;
        stats.cache_pages = self.cache.frames_max as u64;
        stats.dirtied_pages = self.cache.turnover.dirtied;
        stats.cleaned_pages = self.cache.turnover.cleaned;
        stats.dirtied_last_interval = state.last.dirtied;
        stats.cleaned_last_interval = state.last.cleaned;
        stats.ghost_hits = state.ghost_hits;
        stats.ghost_misses = state.ghost_misses;
        stats.writers_paced = state.paced;
        let (high, low, max, pressure) = match state.policy {
            WriteBackPolicy::Static => {
                let background = self.write_back.background;
                (background, background, background, self.dirty_bound())
            }
            WriteBackPolicy::Adaptive => {
                let marks = &state.marks;
                (marks.high(), marks.low(), marks.ceiling(), self.pressure())
            }
        };
        stats.watermark_high_pages = high as u64;
        stats.watermark_low_pages = low as u64;
        stats.watermark_max_pages = max as u64;
        stats.pressure_pages = pressure as u64;
        stats.dirty_bound_pages = self.dirty_bound() as u64;
    }
}
