//! Changes of pages: every event changes them here, so that counters and lists stay true.

use crate::cache::census::Census;
use crate::cache::page::{ListKind, Listed, Page, PageIo};
use crate::engine::Engine;
use crate::place::{FileIx, PageIx};
use crate::write_back::Before;

impl Engine {
    /// Changes a page and makes counters and lists agree with it again.
    pub(crate) fn update<T>(&mut self, ix: PageIx, change: impl FnOnce(&mut Page) -> T) -> T {
        let page = &mut self.cache.pages[ix];
        let before = Census::of(page);
        let before_write_back = Before::of(page);
        let was_dirty = page.dirty_seq != 0;
        let was_unlogged = !page.unlogged.is_empty();
        let was_resident = page.frame.is_some();
        let result = change(page);
        // Home, or dropped both at home and here.
        let settled = if page.is_unclean() { None } else { page.rec.take() };
        let after = Census::of(page);
        let is_dirty = page.dirty_seq != 0;
        let is_unlogged = !page.unlogged.is_empty();
        let (file, number) = (page.file, page.number);
        self.write_back.changed(before_write_back, page);
        if was_resident && page.frame.is_none() && page.home_unlogged {
            page.home_unlogged = false;
            self.cache.files[file].settled.evicted(page.home_epoch);
        }
        if let Some(rec) = settled {
            self.cache.files[file].logged.retention.settle(rec);
        }
        self.cache.census.replace(before, after);
        if was_dirty != is_dirty {
            let file = &mut self.cache.files[file];
            file.dirty_pages = file.dirty_pages + usize::from(is_dirty) - usize::from(was_dirty);
        }
        if was_unlogged != is_unlogged {
            match is_unlogged {
                true => self.cache.dirty.unlogged.insert((file, number)),
                false => self.cache.dirty.unlogged.remove((file, number)),
            }
        }
        self.place(ix);
        self.fit_ghost_hits();
        result
    }

    /// Puts a page on the lists it belongs on, and forgets it if nothing of it is left.
    pub(crate) fn place(&mut self, ix: PageIx) {
        let page = &self.cache.pages[ix];
        let clean = page.io == PageIo::None && page.dirty_seq == 0;
        let candidate = clean && page.frame.is_some() && page.pins == 0;
        let gone = clean
            && page.frame.is_none()
            && page.pins == 0
            && page.patches.is_empty()
            && !page.awaited;
        let on_clean = page.is_on(ListKind::Clean);
        let listed = page.to_be_listed();
        if page.listed != listed {
            self.relist(ix, listed);
        }
        match (on_clean, candidate) {
            (false, true) => self.cache.replacement.insert(&mut self.cache.pages, ix),
            (true, false) => self.cache.replacement.remove(&mut self.cache.pages, ix),
            _ => {}
        }
        if gone {
            let file = self.cache.pages[ix].file;
            self.cache.pages.unlink(ListKind::File, &mut self.cache.files[file].pages, ix);
            self.cache.pages.remove(ix);
        }
    }

    pub(crate) fn relist(&mut self, ix: PageIx, listed: Listed) {
        let page = &mut self.cache.pages[ix];
        let (place, since_ms) = ((page.file, page.number), page.dirty_since_ms);
        match page.listed {
            Listed::No => {}
            Listed::Patched => self.cache.dirty.patched.remove(place, since_ms),
            Listed::OverSpilled => self.cache.dirty.over.remove(place),
            Listed::Returned => self.cache.dirty.returned.remove(place),
            Listed::Resident => self.cache.dirty.resident.remove(place, since_ms),
            Listed::Retry => self.cache.dirty.retry.remove(place),
        }
        page.listed = listed;
        match listed {
            Listed::No => page.retrying = false,
            Listed::Patched => self.cache.dirty.patched.insert(place, since_ms),
            Listed::OverSpilled => self.cache.dirty.over.insert(place),
            Listed::Returned => self.cache.dirty.returned.insert(place),
            Listed::Resident => self.cache.dirty.resident.insert(place, since_ms),
            Listed::Retry => self.cache.dirty.retry.insert(place),
        }
        let (file, _) = place;
        if listed != Listed::No && self.cache.files[file].waiters.is_urgent() {
            self.write_back.sweeps.urgent.insert(file);
        }
    }

    /// The page of a file, added if it is absent.
    pub(crate) fn page_or_add(&mut self, file: FileIx, number: u64) -> PageIx {
        if let Some(ix) = self.cache.pages.find(file, number) {
            return ix;
        }
        let ix = self.cache.pages.add(file, number);
        self.cache.pages[ix].spilled = self.is_spilled(file, number);
        self.cache.pages.push_back(ListKind::File, &mut self.cache.files[file].pages, ix);
        ix
    }

    pub(crate) fn pages_of(&self, file: FileIx) -> Vec<PageIx> {
        self.cache.pages.on_list(ListKind::File, &self.cache.files[file].pages).collect()
    }

    /// The next number in the order of dirtying.
    pub(crate) fn next_seq(&mut self) -> u64 {
        self.cache.seq += 1;
        self.cache.seq
    }

    /// The ghost hit cache has room for as many clean pages as dirty ones leave of it.
    pub(crate) fn fit_ghost_hits(&mut self) {
        if self.write_back.is_adaptive() {
            let room = self.write_back.max.saturating_sub(self.dirty_frames());
            self.cache.replacement.set_ghost_room(&mut self.cache.pages, room);
        }
    }
}
