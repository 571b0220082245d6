//! Changes of pages, and what they mean for the journal and for write-back.

use crate::cache::change::Changed;
use crate::cache::page::Page;
use crate::engine::Engine;
use crate::place::PageIx;

impl Engine {
    /// Changes a page: the cache keeps its counters and lists true to it, and the other parts learn what they need.
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

    /// The ghost hit cache has room for as many clean pages as dirty ones leave of it.
    pub(crate) fn fit_ghost_hits(&mut self) {
        if self.write_back.is_adaptive() {
            let room = self.write_back.max.saturating_sub(self.cache.dirty_frames());
            self.cache.replacement.set_ghost_room(&mut self.cache.pages, room);
        }
    }
}
