//! Charging pages and files for their unlogged bytes ([`crate::cache::unlogged`]), as they change.

use crate::cache::Cache;
use crate::cache::page::Page;
use crate::cache::unlogged::{NAME, RECORD, charge_of};
use crate::place::{FileIx, PageIx};

impl Page {
    pub(crate) fn charge(&self) -> usize {
        charge_of(self.unlogged, self.patches.runs())
    }
}

impl Cache {
    /// Charges a page that was changed.
    #[inline]
    pub(crate) fn charge(&mut self, ix: PageIx) {
        if self.unlogged.are_counted {
            self.charge_anew(ix);
        }
    }

    fn charge_anew(&mut self, ix: PageIx) {
        let page = &self.pages[ix];
        let after = page.charge();
        let before = self.unlogged.set(ix, after);
        if before == after {
            return;
        }
        let file = page.file;
        let sum = &mut self.unlogged.bytes;
        *sum = *sum + after - before;
        let charged = &mut self.files[file].charged_pages;
        if before == 0 {
            *sum += if *charged == 0 { NAME } else { 0 };
            *charged += 1;
        } else if after == 0 {
            *charged -= 1;
            *sum -= if *charged == 0 { NAME } else { 0 };
        }
    }

    /// The most by which a write of the bytes `start .. start + len` of a page adds to the sum, its file's name not counted.
    pub(crate) fn charge_of_write(
        &self,
        file: FileIx,
        number: u64,
        start: usize,
        len: usize,
    ) -> usize {
        let Some(ix) = self.pages.find(file, number) else {
            return len + RECORD;
        };
        let page = &self.pages[ix];
        let mut unlogged = page.unlogged;
        unlogged.cover(start, len);
        charge_of(unlogged, page.patches.runs() + 1).saturating_sub(self.unlogged.of(ix))
    }

    /// Panics unless the sum is right.
    pub(crate) fn check_unlogged(&self) {
        let mut bytes = 0;
        for (ix, file) in self.files.iter() {
            let charges: Vec<usize> = self
                .pages_of(ix)
                .into_iter()
                .map(|ix| {
                    let page = &self.pages[ix];
                    let due = if self.unlogged.are_counted { page.charge() } else { 0 };
                    assert_eq!(self.unlogged.of(ix), due, "page {} is charged", page.number);
                    due
                })
                .filter(|&charge| charge > 0)
                .collect();
            assert_eq!(file.charged_pages, charges.len());
            bytes += charges.iter().sum::<usize>() + if charges.is_empty() { 0 } else { NAME };
        }
        assert_eq!(self.unlogged.bytes, bytes);
    }
}
