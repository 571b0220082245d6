//! Changes of pages, and their effects on the journal and on write-back.

use crate::cache::change::Changed;
use crate::cache::page::Page;
use crate::engine::Engine;
use crate::place::PageIx;

impl Engine {
    /// Changes a page, and updates the cache's counters and lists, the journal and write-back.
    pub(crate) fn update<T>(&mut self, ix: PageIx, change: impl FnOnce(&mut Page) -> T) -> T {
        let Changed { result, file, settled, evicted, became_ready } =
            self.cache.change(ix, change);
        let of_file = &mut self.cache.files[file];
        if let Some(epoch) = evicted {
            of_file.settled.evicted(epoch);
        }
        if let Some(segment) = settled {
            of_file.logged.retention.settle(segment);
        }
        if became_ready && of_file.waiters.is_urgent() {
            self.write_back.sweeps.urgent.insert(file);
        }
        self.fit_ghost_hits();
        result
    }

    /// Sets the room for clean pages in the ghost hit cache to what the dirty pages leave.
    pub(crate) fn fit_ghost_hits(&mut self) {
        if self.write_back.is_adaptive() {
            let room = self.write_back.max.saturating_sub(self.cache.dirty_frames());
            self.cache.replacement.set_ghost_room(&mut self.cache.pages, room);
        }
    }
}
