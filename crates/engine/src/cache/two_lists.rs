//! The replacement policy by itself, to be compared with others on traces: pages without data, no engine.
//!
//! Owns the descriptors. What is called when is what [`crate::Engine`] does as pages change.

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

    /// It comes into memory, where it was not. It does not go before [`TwoLists::insert`].
    pub fn admit(&mut self, page: u64) {
        let ix = self.pages.add(FILE, page);
        self.replacement.admit(&mut self.pages, ix);
    }

    /// It is used.
    pub fn touch(&mut self, page: u64) {
        let ix = self.find(page);
        self.replacement.touch(&mut self.pages, ix);
    }

    /// It is clean from now on, and may go.
    pub fn insert(&mut self, page: u64) {
        let ix = self.find(page);
        self.replacement.insert(&mut self.pages, ix);
    }

    /// It is dirty from now on, and stays.
    pub fn remove(&mut self, page: u64) {
        let ix = self.find(page);
        assert!(self.pages[ix].is_on(ListKind::Clean), "it was clean");
        self.replacement.remove(&mut self.pages, ix);
    }

    /// A page goes; `None` if none may.
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
