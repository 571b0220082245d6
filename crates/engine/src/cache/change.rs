//! Changes of pages: after each change, the census, the dirty sets and the replacement order are updated.

use weir_journal::Segment;

use crate::cache::Cache;
use crate::cache::census::Census;
use crate::cache::page::{ListKind, Listed, Page, PageIo};
use crate::cache::turnover::Counted;
use crate::place::{FileIx, PageIx};

/// The effects of a page's change on other parts.
pub(crate) struct Changed<T> {
    pub(crate) result: T,
    pub(crate) file: FileIx,
    /// The content is home, or was dropped. The log was kept for it from this segment on.
    pub(crate) settled: Option<Segment>,
    /// Content left memory that had gone home in this epoch and was not in the log.
    pub(crate) evicted: Option<u32>,
    /// The page joined a set of pages that wait to go home.
    pub(crate) became_ready: bool,
}

impl Cache {
    /// Changes a page, then updates counters and lists.
    #[inline]
    pub(crate) fn change<T>(
        &mut self,
        ix: PageIx,
        change: impl FnOnce(&mut Page) -> T,
    ) -> Changed<T> {
        let page = &mut self.pages[ix];
        let before = Census::of(page);
        let counted = Counted::of(page);
        let was_dirty = page.dirty_seq != 0;
        let was_unlogged = !page.unlogged.is_empty();
        let was_resident = page.frame.is_some();
        let result = change(page);
        let settled = if page.is_unclean() { None } else { page.rec.take() };
        let after = Census::of(page);
        let is_dirty = page.dirty_seq != 0;
        let is_unlogged = !page.unlogged.is_empty();
        let (file, number) = (page.file, page.number);
        self.turnover.changed(counted, page);
        let leaves = was_resident && page.frame.is_none() && page.home_unlogged;
        let evicted = leaves.then_some(page.home_epoch);
        page.home_unlogged &= !leaves;
        self.census.replace(before, after);
        if was_dirty != is_dirty {
            let file = &mut self.files[file];
            file.dirty_pages = file.dirty_pages + usize::from(is_dirty) - usize::from(was_dirty);
        }
        if was_unlogged != is_unlogged {
            match is_unlogged {
                true => self.dirty.unlogged.insert((file, number)),
                false => self.dirty.unlogged.remove((file, number)),
            }
        }
        self.charge(ix);
        let became_ready = self.place(ix);
        Changed { result, file, settled, evicted, became_ready }
    }

    /// Puts a page on its lists, and removes it if it holds nothing. Returns whether it joined another set of pages that
    /// wait to go home.
    fn place(&mut self, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        let clean = page.io == PageIo::None && page.dirty_seq == 0;
        let candidate = clean && page.frame.is_some() && page.pins == 0;
        let gone = clean
            && page.frame.is_none()
            && page.pins == 0
            && page.patches.is_empty()
            && !page.awaited;
        let on_clean = page.is_on(ListKind::Clean);
        let mut listed = page.to_be_listed();
        if listed != Listed::No && self.files[page.file].is_unbound() {
            listed = Listed::No;
        }
        let relisted = page.listed != listed;
        if relisted {
            self.relist(ix, listed);
        }
        match (on_clean, candidate) {
            (false, true) => self.replacement.insert(&mut self.pages, ix),
            (true, false) => self.replacement.remove(&mut self.pages, ix),
            _ => {}
        }
        if gone {
            let file = self.pages[ix].file;
            self.pages.unlink(ListKind::File, &mut self.files[file].pages, ix);
            self.pages.remove(ix);
        }
        relisted && listed != Listed::No
    }

    fn relist(&mut self, ix: PageIx, listed: Listed) {
        let page = &mut self.pages[ix];
        let (place, since_ms) = ((page.file, page.number), page.dirty_since_ms);
        match page.listed {
            Listed::No => {}
            Listed::Patched => self.dirty.patched.remove(place, since_ms),
            Listed::OverSpilled => self.dirty.over.remove(place),
            Listed::Returned => self.dirty.returned.remove(place),
            Listed::Resident => self.dirty.resident.remove(place, since_ms),
            Listed::Retry => self.dirty.retry.remove(place),
        }
        page.listed = listed;
        match listed {
            Listed::No => page.retrying = false,
            Listed::Patched => self.dirty.patched.insert(place, since_ms),
            Listed::OverSpilled => self.dirty.over.insert(place),
            Listed::Returned => self.dirty.returned.insert(place),
            Listed::Resident => self.dirty.resident.insert(place, since_ms),
            Listed::Retry => self.dirty.retry.insert(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_frames::FramePool;

    use super::*;
    use crate::cache::file::File;
    use crate::cache::ghost::GhostMisses;
    use crate::cache::patch::PatchSet;
    use crate::cache::resident::Resident;
    use crate::command::{FileId, HomeAttributes};
    use crate::time::Time;

    fn cache() -> (Cache, FileIx) {
        let pool = FramePool::new(8).unwrap();
        let mut cache = Cache::new(pool, 7, Duration::from_secs(30), GhostMisses::new(0)).unwrap();
        let home = HomeAttributes { size: 1 << 20, dense: true, write_unit: 4096, readable: true };
        let file = cache.files.add(File::new(FileId(1), home));
        (cache, file)
    }

    /// Writes to a page, as an event would.
    fn dirty(cache: &mut Cache, ix: PageIx) -> bool {
        let seq = cache.next_seq();
        cache.change(ix, |page| page.dirtied(seq, Time::from_millis(1))).became_ready
    }

    #[test]
    fn a_page_is_counted_and_listed_as_it_changes_and_forgotten_when_nothing_is_left() {
        let (mut cache, file) = cache();
        let ix = cache.page_or_add(file, 3);
        cache.change(ix, |page| page.patches.insert(0, b"patch"));
        assert!(dirty(&mut cache, ix), "it waits to go home");
        assert_eq!((cache.census.patched, cache.census.unclean), (1, 1));
        assert_eq!(cache.dirty.patched.pages().next_of(file, 0), Some(3));
        assert_eq!(cache.files[file].dirty_pages, 1);

        let frame = Resident::new(cache.take_frame());
        let changed = cache.change(ix, |page| {
            page.patches = PatchSet::default();
            page.frame = Some(frame);
        });
        assert!(changed.became_ready, "it waits in another set");
        assert_eq!((cache.census.frames, cache.census.patch_bytes), (1, 0));
        assert_eq!(cache.dirty.resident.pages().next_of(file, 0), Some(3));

        let clean = cache.change(ix, |page| page.dirty_seq = 0);
        assert!(!clean.became_ready);
        assert_eq!((cache.replacement.len(), cache.files[file].dirty_pages), (1, 0));
        cache.change(ix, |page| page.frame = None);
        assert_eq!((cache.pages.len(), cache.census), (0, Census::default()));
        assert_eq!(cache.turnover.dirtied, 1);
    }

    #[test]
    fn evicting_a_page_that_went_home_unlogged_reports_its_epoch() {
        let (mut cache, file) = cache();
        let ix = cache.page_or_add(file, 0);
        let frame = Resident::new(cache.take_frame());
        cache.change(ix, |page| {
            page.frame = Some(frame);
            (page.home_unlogged, page.home_epoch) = (true, 5);
        });
        assert_eq!(cache.change(ix, |page| page.frame = None).evicted, Some(5));
    }
}
