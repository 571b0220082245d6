//! Pages with patches in the log: rewriting, dropping and truncating them.

use weir_frames::PAGE_BYTES;

use crate::cache::page::Page;
use crate::cache::spilled::SpilledPage;
use crate::engine::Engine;
use crate::place::{FileIx, PageIx};

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// Merges a page's content in memory and its spilled content to one dirty content, which is as old as the older one.
    pub(crate) fn inherit(
        &mut self,
        ix: PageIx,
        spilled: &SpilledPage,
        change: impl FnOnce(&mut Page),
    ) {
        let page = &self.cache.pages[ix];
        let rec = self.merge_retained(page.file, page.rec, Some(self.rec_of(spilled)));
        // In one step, so that the page is on no list under its former age.
        let own = self.update(ix, |page| {
            change(page);
            page.spilled = false;
            let own = page.dirty_seq;
            page.dirty_seq = if own == 0 { spilled.dirty_seq } else { own.min(spilled.dirty_seq) };
            page.dirty_since_ms = spilled.dirty_since_ms;
            page.rec = rec;
            own
        });
        if own != 0 {
            // A sync that waits for the newer one counted both, and continues to wait.
            self.settle(self.cache.pages[ix].file, own.max(spilled.dirty_seq), Ok(()));
        }
    }

    /// A page is about to be overwritten whole: its spilled patches are not needed any more. A sync that waits for them
    /// waits for the new content instead.
    pub(crate) fn supersede_spilled(&mut self, ix: PageIx) {
        if !self.cache.pages[ix].spilled {
            return;
        }
        let place = (self.cache.pages[ix].file, self.cache.pages[ix].number);
        let spilled = self.cache.remove_spilled(place).expect("the page says so");
        self.inherit(ix, &spilled, |_| {});
    }

    /// Forgets the spilled patches of the pages that a byte range touches.
    pub(crate) fn drop_spilled(&mut self, file: FileIx, from: u64, to: u64) {
        let touched = self.cache.spill.index.of(file, from / PAGE).map(|(number, _)| number);
        let numbers: Vec<u64> = touched.take_while(|number| number * PAGE < to).collect();
        for number in numbers {
            self.drop_spilled_page(file, number);
        }
    }

    pub(crate) fn drop_spilled_page(&mut self, file: FileIx, number: u64) {
        let spilled = self.cache.remove_spilled((file, number)).expect("the page is spilled");
        if let Some(ix) = self.cache.pages.find(file, number) {
            self.update(ix, |page| page.spilled = false);
        }
        let rec = self.rec_of(&spilled);
        self.cache.files[file].logged.retention.settle(rec);
        self.stats.fetches_avoided += 1;
        self.settle(file, spilled.dirty_seq, Ok(()));
    }

    /// Truncates a page's spilled patches at byte `from`.
    pub(crate) fn cut_spilled(&mut self, file: FileIx, number: u64, from: usize) {
        let place = (file, number);
        match self.cache.spill.index.get(place) {
            None => {}
            Some(page)
                if page.extents.iter().all(|extent| usize::from(extent.run.start) >= from) =>
            {
                self.drop_spilled_page(file, number);
            }
            Some(_) => self.change_spilled(place, |index| index.truncate(place, from)),
        }
    }
}
