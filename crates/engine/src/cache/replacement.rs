//! Which clean page is evicted when a frame is needed: two lists, resistant to scans.
//!
//! A page enters the *inactive* list; a later use moves it to the *active* one. Uses shortly after the page entered do
//! not count (correlated references; 2Q, VLDB'94, section 3). So neither a scan nor reading a page record by record
//! evicts pages that are used repeatedly. The inactive list is kept at a third or more of all clean pages, fed from the
//! cold end of the active list.
//!
//! Owns the ends of the two lists, not the pages. Dirty, pinned and busy pages are on neither list, so finding a victim
//! takes constant time.

use crate::cache::ghost::{GhostHits, Order};
use crate::cache::page::{List, ListKind, Pages};
use crate::place::PageIx;

const KIND: ListKind = ListKind::Clean;

#[derive(Default)]
pub(crate) struct Replacement {
    inactive: List,
    active: List,
    /// Counts insertions; a page's sequence is its value when the page came in.
    clock: u32,
    /// The pages that a smaller memory would hold.
    ghost_hits: GhostHits,
}

impl Replacement {
    /// All clean pages, those that would be kept longest first.
    pub(crate) fn order(&self) -> Order<'_> {
        Order { active: &self.active, inactive: &self.inactive }
    }

    /// Whether a resident page is in the ghost hit cache.
    pub(crate) fn is_ghost_hit(&self, pages: &Pages, ix: PageIx) -> bool {
        self.ghost_hits.contains(pages, ix)
    }

    /// Sets the number of clean pages that fit the ghost hit cache; 0 if there is none.
    pub(crate) fn set_ghost_room(&mut self, pages: &mut Pages, room: usize) {
        let order = Order { active: &self.active, inactive: &self.inactive };
        self.ghost_hits.set_room(pages, order, room);
    }

    fn link(&mut self, pages: &mut Pages, ix: PageIx) {
        let list = if pages[ix].hot { &mut self.active } else { &mut self.inactive };
        pages.push_front(KIND, list, ix);
        let order = Order { active: &self.active, inactive: &self.inactive };
        self.ghost_hits.entered(pages, order, ix);
        self.ghost_hits.settle(pages, order);
    }

    fn unlink(&mut self, pages: &mut Pages, ix: PageIx) {
        let order = Order { active: &self.active, inactive: &self.inactive };
        self.ghost_hits.leaves(pages, order, ix);
        let list = if pages[ix].hot { &mut self.active } else { &mut self.inactive };
        pages.unlink(KIND, list, ix);
        let order = Order { active: &self.active, inactive: &self.inactive };
        self.ghost_hits.settle(pages, order);
    }

    /// The number of clean pages that could be evicted.
    pub(crate) fn len(&self) -> usize {
        self.inactive.len() + self.active.len()
    }

    /// Notes that the page came into memory.
    pub(crate) fn admit(&mut self, pages: &mut Pages, ix: PageIx) {
        self.clock = self.clock.wrapping_add(1);
        pages[ix].sequence = self.clock;
        pages[ix].hot = false;
        pages[ix].set_spared(false);
    }

    /// Notes a use of a resident page, on a list or not.
    pub(crate) fn touch(&mut self, pages: &mut Pages, ix: PageIx) {
        pages[ix].set_passing(false);
        let page = &pages[ix];
        if page.hot {
            if page.is_on(KIND) && self.active.front() != Some(ix) {
                self.unlink(pages, ix);
                self.link(pages, ix);
            }
            return;
        }
        let correlated = (self.len() / 8).min(1 << 20) as u32;
        if self.clock.wrapping_sub(page.sequence) <= correlated {
            return;
        }
        let listed = page.is_on(KIND);
        if listed {
            self.unlink(pages, ix);
        }
        pages[ix].hot = true;
        if listed {
            self.link(pages, ix);
        }
    }

    /// Makes a page that became clean, idle and unpinned a candidate.
    pub(crate) fn insert(&mut self, pages: &mut Pages, ix: PageIx) {
        self.link(pages, ix);
    }

    /// Takes a page off the lists: it became dirty, busy or pinned, or is removed.
    pub(crate) fn remove(&mut self, pages: &mut Pages, ix: PageIx) {
        self.unlink(pages, ix);
    }

    /// Spares the next victim because it was used, at an unknown time, while it was a candidate. The first time, it goes
    /// to the front of the inactive list, because that use may belong to the one that brought it into memory. The second
    /// time, it counts as used repeatedly and goes to the active list.
    pub(crate) fn spare(&mut self, pages: &mut Pages, ix: PageIx) {
        pages[ix].set_passing(false);
        self.unlink(pages, ix);
        let page = &mut pages[ix];
        page.hot |= page.is_spared();
        page.set_spared(!page.hot);
        self.link(pages, ix);
    }

    /// The next victim, left on its list; `None` if there is no candidate.
    pub(crate) fn victim(&mut self, pages: &mut Pages) -> Option<PageIx> {
        while self.inactive.len() * 2 < self.active.len() {
            let ix = self.active.back()?;
            // Its place in the order of both lists does not change, and so the ghost hit cache does not.
            pages.unlink(KIND, &mut self.active, ix);
            pages[ix].hot = false;
            pages[ix].sequence = self.clock;
            pages.push_front(KIND, &mut self.inactive, ix);
        }
        self.inactive.back().or_else(|| self.active.back())
    }

    pub(crate) fn check_invariants(&self, pages: &Pages) {
        for (list, hot) in [(&self.inactive, false), (&self.active, true)] {
            let mut count = 0;
            for ix in pages.on_list(KIND, list) {
                let page = &pages[ix];
                assert_eq!(page.hot, hot, "a page is on the list that `hot` names");
                assert!(page.frame.is_some() && !page.is_unclean() && page.pins == 0);
                count += 1;
            }
            assert_eq!(count, list.len());
        }
        self.check_ghost_hits(pages);
    }

    pub(crate) fn check_ghost_hits(&self, pages: &Pages) {
        self.ghost_hits.check_invariants(pages, self.order());
    }
}
