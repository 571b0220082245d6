//! Finding, adding and listing pages.

use crate::cache::Cache;
use crate::cache::page::ListKind;
use crate::place::{FileIx, PageIx};

impl Cache {
    /// A page of a file; it is added if it is absent.
    pub(crate) fn page_or_add(&mut self, file: FileIx, number: u64) -> PageIx {
        if let Some(ix) = self.pages.find(file, number) {
            return ix;
        }
        let ix = self.pages.add(file, number);
        self.pages[ix].spilled = self.is_spilled(file, number);
        self.pages.push_back(ListKind::File, &mut self.files[file].pages, ix);
        ix
    }

    pub(crate) fn pages_of(&self, file: FileIx) -> Vec<PageIx> {
        self.pages.on_list(ListKind::File, &self.files[file].pages).collect()
    }

    /// The next number in the order of dirtying.
    pub(crate) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// A page's number in the order of dirtying, or the next number if the page is clean.
    pub(crate) fn dirty_seq_of(&mut self, ix: PageIx) -> u64 {
        match self.pages[ix].dirty_seq {
            0 => self.next_seq(),
            seq => seq,
        }
    }

    pub(crate) fn listed(&self, file: FileIx, number: u64) -> PageIx {
        self.pages.find(file, number).expect("a dirty page is in the table")
    }

    pub(crate) fn is_absent(&self, file: FileIx, number: u64) -> bool {
        self.pages.find(file, number).is_none() && !self.is_spilled(file, number)
    }
}
