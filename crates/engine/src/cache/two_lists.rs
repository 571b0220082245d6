//! The replacement policy alone, without data or an engine, to compare it with others on traces.
//!
//! Owns the descriptors. Callers make the same calls that [`crate::Engine`] makes when pages change.

use crate::cache::page::{ListKind, Pages};
use crate::cache::replacement::Replacement;
use crate::place::{FileIx, PageIx};

const FILE: FileIx = FileIx(0);

/// Pages in memory, and which of them goes next.
#[derive(Default)]
pub struct TwoLists {
    pages: Pages,
    replacement: Replacement,
}

impl TwoLists {
    /// Whether the page is in memory.
    pub fn holds(&self, page: u64) -> bool {
        self.pages.find(FILE, page).is_some()
    }

    /// Brings a page into memory. It is not evicted before [`TwoLists::insert`].
    pub fn admit(&mut self, page: u64) {
        let ix = self.pages.add(FILE, page);
        self.replacement.admit(&mut self.pages, ix);
    }

    /// Notes a use of a page.
    pub fn touch(&mut self, page: u64) {
        let ix = self.find(page);
        self.replacement.touch(&mut self.pages, ix);
    }

    /// Notes that a page became clean: it may be evicted.
    pub fn insert(&mut self, page: u64) {
        let ix = self.find(page);
        self.replacement.insert(&mut self.pages, ix);
    }

    /// Notes that a page became dirty: it is not evicted.
    pub fn remove(&mut self, page: u64) {
        let ix = self.find(page);
        assert!(self.pages[ix].is_on(ListKind::Clean), "it was clean");
        self.replacement.remove(&mut self.pages, ix);
    }

    /// Evicts a page; `None` if there is no candidate.
    pub fn evict(&mut self) -> Option<u64> {
        let ix = self.replacement.victim(&mut self.pages)?;
        let page = self.pages[ix].number;
        self.replacement.remove(&mut self.pages, ix);
        self.pages.remove(ix);
        Some(page)
    }

    fn find(&self, page: u64) -> PageIx {
        self.pages.find(FILE, page).expect("a page in memory")
    }
}
