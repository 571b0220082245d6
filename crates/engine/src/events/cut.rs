//! Dropping or truncating a file's cached pages after its home has changed.

use weir_frames::PAGE_BYTES;

use crate::cache::page::PageIo;
use crate::cache::patch::PatchSet;
use crate::cache::resident::Resident;
use crate::engine::Engine;
use crate::place::{FileIx, PageIx};

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    pub(crate) fn drop_range(&mut self, file: FileIx, from: u64, to: u64) {
        self.drop_spilled(file, from, to);
        for ix in self.cache.pages_of(file) {
            let number = self.cache.pages[ix].number;
            if number * PAGE < to && (number + 1) * PAGE > from {
                self.drop_page(file, ix);
            }
        }
    }

    pub(crate) fn drop_page(&mut self, file: FileIx, ix: PageIx) {
        assert_eq!(
            self.cache.pages[ix].io,
            PageIo::None,
            "nothing of a frozen file is in transfer"
        );
        if !self.cache.pages[ix].patches.is_empty() {
            self.stats.fetches_avoided += 1;
        }
        let seq = self.update(ix, |page| {
            page.frame = None;
            page.patches = PatchSet::default();
            page.unlogged = Default::default();
            std::mem::take(&mut page.dirty_seq)
        });
        if seq != 0 {
            self.settle(file, seq, Ok(()));
        }
    }

    /// Sets the file's size, which is the size at home now.
    pub(crate) fn resize(&mut self, file: FileIx, size: u64) {
        let old = self.cache.files[file].size();
        self.cache.files[file].set_size(size);
        if size < old {
            self.drop_range(file, size.next_multiple_of(PAGE), u64::MAX);
            self.cut_spilled(file, size / PAGE, (size % PAGE) as usize);
            if let Some(ix) = self.cache.pages.find(file, size / PAGE) {
                self.cut_page(file, ix, (size % PAGE) as usize);
            }
        }
        let file = &mut self.cache.files[file];
        file.home_size = size;
        if size == 0 {
            file.settled.emptied();
        }
        // Truncation to any size may give it back.
        file.forget_reserved_past_end();
        file.readahead = Default::default();
    }

    /// Drops the bytes of a page from byte `from` on: they read as zeros if the file grows again.
    pub(crate) fn cut_page(&mut self, file: FileIx, ix: PageIx, from: usize) {
        if from == 0 {
            self.drop_page(file, ix);
            return;
        }
        self.update(ix, |page| {
            page.unlogged.truncate(from);
            page.spilling = 0;
        });
        let Some(frame) = self.cache.pages[ix].frame.as_mut() else {
            let emptied = self.update(ix, |page| {
                page.patches.truncate(from);
                let empty = page.patches.is_empty();
                if empty {
                    page.unlogged = Default::default();
                    std::mem::take(&mut page.dirty_seq)
                } else {
                    0
                }
            });
            if emptied != 0 {
                self.stats.fetches_avoided += 1;
                self.settle(file, emptied, Ok(()));
            }
            return;
        };
        if let Some(mut bytes) = frame.bytes_mut() {
            bytes[from..].fill(0);
            return;
        }
        // An answer under way still uses the frame. The page's bytes go into a new one, or, should
        // none be free, into a patch.
        let kept = frame.frame().bytes()[..from].to_vec();
        let fresh = self.cache.pool.take().map(|mut fresh| {
            let bytes = fresh.bytes_mut().expect("a frame just taken is not shared");
            bytes[..from].copy_from_slice(&kept);
            bytes[from..].fill(0);
            Resident::new(fresh)
        });
        self.update(ix, |page| {
            if fresh.is_none() && page.dirty_seq != 0 {
                page.patches.insert(0, &kept);
            }
            page.frame = fresh;
        });
    }
}
