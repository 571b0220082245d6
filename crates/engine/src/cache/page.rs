//! Pages: their descriptors, the table that finds them, and the lists they are on.
//!
//! Owns every [`Page`]. Does not decide anything: the engine changes their states.
//!
//! Invariants:
//! - a page is in the index exactly while it is live, under its file and number;
//! - a page is on a list exactly if its membership bit for that kind of list is set.

use hashbrown::HashTable;
use weir_journal::Segment;

use crate::cache::patch::PatchSet;
use crate::cache::resident::Resident;
use crate::place::{FileIx, PageIx, Span};
use crate::time::Time;

/// The state of a page, as the engine's callers see it.
///
/// The design's *Outdated* (fetched, patches not yet applied) is not listed: it begins and ends inside the completion of
/// a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Not in memory.
    Absent,
    /// Patches in memory, no frame.
    Patched,
    /// A fetch is in flight; there may be patches.
    Fetching,
    /// A frame holds the page as programs see it.
    UpToDate,
}

const NONE: u32 = u32::MAX;

/// The transfer a page is part of; at most one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageIo {
    None,
    Fetch,
    /// The frame is being written home.
    Destage,
    /// Patches are being written home; there is no frame.
    DestagePatches,
}

/// Kinds of lists a page can be on, one list of each kind at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// All pages of the file.
    File = 0,
    /// Clean, idle, unpinned resident pages, in the replacement policy's order.
    Clean = 1,
}

const LIST_KINDS: usize = 2;

/// The other bits of a page's `member`: it is in the ghost hit cache.
const GHOST_HIT: u8 = 1 << 7;

const BETWEEN: u8 = 1 << 6;

/// In a page's `member`: it was fetched only to be written together with its neighbours.
const PASSING: u8 = 1 << 5;

/// In a page's `member`: it was read ahead and has not been read since.
const AHEAD: u8 = 1 << 4;

/// In a page's `member`: it was next to be evicted, and was spared because a program had read it.
const SPARED: u8 = 1 << 3;

/// Where a dirty, idle page waits to go home (`dirty`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// In no set: it is clean, or in transfer.
    No,
    Patched,
    /// It has patches, and older ones in the log that must come back first.
    OverSpilled,
    /// Its patches came back from the log, to go home.
    Returned,
    Resident,
    /// Its transfer failed: it is retried after a pause.
    Retry,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

/// Ends of an intrusive list through [`Page`]s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<PageIx> {
        (self.head != NONE).then_some(PageIx(self.head))
    }

    pub(crate) fn back(&self) -> Option<PageIx> {
        (self.tail != NONE).then_some(PageIx(self.tail))
    }
}

/// As the time when a page became dirty: it is due at once.
pub(crate) const OVERDUE: u64 = 0;

/// A page that is resident, patched, or in transfer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) number: u64,
    pub(crate) file: FileIx,
    pub(crate) io: PageIo,
    /// The frame holds the page as programs see it. A page without one is not resident.
    pub(crate) frame: Option<Resident>,
    /// Bytes newer than home; empty if there is a frame.
    pub(crate) patches: PatchSet,
    /// The page's number in the order of dirtying; 0 if its content is at home or in transfer to home.
    pub(crate) dirty_seq: u64,
    /// When it became dirty, milliseconds.
    pub(crate) dirty_since_ms: u64,
    /// Bytes that were written and are not in the log. Empty if the page is clean, or the file is not logged.
    pub(crate) unlogged: Span,
    /// The segment of the oldest log record that its content needs; `None` if nothing was logged since the page last
    /// went home, or if all of it is at home.
    pub(crate) rec: Option<Segment>,
    /// The file's epoch in which the page last went home; 0 if irrelevant (`repair`).
    pub(crate) home_epoch: u32,
    /// Some bytes that went home then were not in the log.
    pub(crate) home_unlogged: bool,
    /// The spill its patches are part of, unless they changed since; 0 if there is none.
    pub(crate) spilling: u32,
    /// Older patches of the page are in the log and not in memory.
    pub(crate) spilled: bool,
    /// Its patches came back from the log, to go home.
    pub(crate) returned: bool,
    /// Replacement: the list the page belongs on, and its insertion sequence there.
    pub(crate) hot: bool,
    pub(crate) sequence: u32,
    /// Requests that need the page to stay.
    pub(crate) pins: u32,
    /// Its last transfer failed, and its pause is not over.
    pub(crate) retrying: bool,
    pub(crate) listed: Listed,
    /// Requests wait for this page (`waiters`).
    pub(crate) awaited: bool,
    /// The lists it is on, and [`GHOST_HIT`], [`BETWEEN`], [`PASSING`], [`AHEAD`] and [`SPARED`]. They share a byte to
    /// keep pages small.
    member: u8,
    links: [Link; LIST_KINDS],
}

impl Page {
    /// Dirty in any way: newer than home, or on its way there.
    pub(crate) fn is_unclean(&self) -> bool {
        self.dirty_seq != 0 || matches!(self.io, PageIo::Destage | PageIo::DestagePatches)
    }

    /// Notes that the page was written. The age of a page that is dirty already does not change.
    pub(crate) fn dirtied(&mut self, seq: u64, now: Time) {
        if self.dirty_seq == 0 {
            self.dirty_seq = seq;
            self.dirty_since_ms = now.as_millis().max(OVERDUE + 1);
        }
    }

    /// Patch memory the page takes, its descriptor counted; zero without patches.
    pub(crate) fn patch_memory_bytes(&self) -> usize {
        match self.patches.allocated_bytes() {
            0 => 0,
            bytes => bytes + DESCRIPTOR_BYTES,
        }
    }

    /// The set in which the page is to wait to go home.
    pub(crate) fn to_be_listed(&self) -> Listed {
        if self.io != PageIo::None || self.dirty_seq == 0 {
            Listed::No
        } else if self.retrying {
            Listed::Retry
        } else if self.frame.is_some() {
            Listed::Resident
        } else if self.spilled {
            Listed::OverSpilled
        } else if self.returned {
            Listed::Returned
        } else {
            Listed::Patched
        }
    }

    pub(crate) fn is_on(&self, kind: ListKind) -> bool {
        self.has(1 << kind as u8)
    }

    fn has(&self, flag: u8) -> bool {
        self.member & flag != 0
    }

    fn mark(&mut self, flag: u8, on: bool) {
        self.member = if on { self.member | flag } else { self.member & !flag };
    }

    /// It is on the clean list and in the ghost hit cache (`ghost`).
    pub(crate) fn is_ghost_hit(&self) -> bool {
        self.has(GHOST_HIT)
    }

    pub(crate) fn set_ghost_hit(&mut self, inside: bool) {
        self.mark(GHOST_HIT, inside);
    }

    /// It is dirty only because it lies between pages that are to be written together.
    pub(crate) fn is_between(&self) -> bool {
        self.has(BETWEEN)
    }

    pub(crate) fn set_between(&mut self, between: bool) {
        self.mark(BETWEEN, between);
    }

    /// It was fetched only to be written together with its neighbours, and has not been used since.
    pub(crate) fn is_passing(&self) -> bool {
        self.has(PASSING)
    }

    pub(crate) fn set_passing(&mut self, passing: bool) {
        self.mark(PASSING, passing);
    }

    /// It was read ahead and has not been read since.
    pub(crate) fn is_ahead(&self) -> bool {
        self.has(AHEAD)
    }

    pub(crate) fn set_ahead(&mut self, ahead: bool) {
        self.mark(AHEAD, ahead);
    }

    /// It was next to be evicted, and was spared because a program had read it.
    pub(crate) fn is_spared(&self) -> bool {
        self.has(SPARED)
    }

    pub(crate) fn set_spared(&mut self, spared: bool) {
        self.mark(SPARED, spared);
    }

    pub(crate) fn state(&self) -> PageState {
        if self.frame.is_some() {
            PageState::UpToDate
        } else if self.io == PageIo::Fetch {
            PageState::Fetching
        } else {
            PageState::Patched
        }
    }
}

/// Bytes that a page takes in addition to its frame or its patches' bytes: its descriptor, and its share of the table
/// of pages and of the sets of dirty pages.
pub const DESCRIPTOR_BYTES: usize = size_of::<Page>() + 16;

/// All live pages.
#[derive(Default)]
pub(crate) struct Pages {
    slab: Vec<Page>,
    free: Vec<u32>,
    index: HashTable<u32>,
}

fn hash(file: FileIx, number: u64) -> u64 {
    // Multiplicative (Fibonacci) hashing, high bits folded down: keys are dense small integers.
    let key = number ^ (u64::from(file.0) << 40) ^ u64::from(file.0);
    let product = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    product ^ (product >> 32)
}

impl Pages {
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn find(&self, file: FileIx, number: u64) -> Option<PageIx> {
        self.index
            .find(hash(file, number), |&ix| {
                let page = &self.slab[ix as usize];
                page.number == number && page.file == file
            })
            .map(|&ix| PageIx(ix))
    }

    /// Adds an absent page: no frame, no patches, clean, on no list.
    pub(crate) fn add(&mut self, file: FileIx, number: u64) -> PageIx {
        debug_assert!(self.find(file, number).is_none());
        let page = Page {
            number,
            file,
            io: PageIo::None,
            frame: None,
            patches: PatchSet::default(),
            dirty_seq: 0,
            dirty_since_ms: OVERDUE,
            unlogged: Span::default(),
            rec: None,
            home_epoch: 0,
            home_unlogged: false,
            spilling: 0,
            spilled: false,
            returned: false,
            hot: false,
            sequence: 0,
            pins: 0,
            retrying: false,
            listed: Listed::No,
            awaited: false,
            member: 0,
            links: [Link { prev: NONE, next: NONE }; LIST_KINDS],
        };
        let ix = if let Some(ix) = self.free.pop() {
            self.slab[ix as usize] = page;
            ix
        } else {
            let ix = u32::try_from(self.slab.len()).expect("memory bounds the number of pages");
            assert_ne!(ix, NONE);
            self.slab.push(page);
            ix
        };
        let slab = &self.slab;
        self.index.insert_unique(hash(file, number), ix, |&ix| {
            let page = &slab[ix as usize];
            hash(page.file, page.number)
        });
        PageIx(ix)
    }

    /// Removes a page that is on no list.
    pub(crate) fn remove(&mut self, ix: PageIx) {
        let page = &mut self.slab[ix.0 as usize];
        page.member &= !(PASSING | AHEAD | SPARED);
        assert_eq!(page.member, 0, "a removed page is on no list");
        assert_eq!(page.listed, Listed::No, "a removed page is not dirty");
        assert!(page.unlogged.is_empty(), "a removed page is not dirty");
        page.frame = None;
        page.patches = PatchSet::default();
        let found = self.index.find_entry(hash(page.file, page.number), |&other| other == ix.0);
        found.expect("a live page is in the index").remove();
        self.free.push(ix.0);
    }

    pub(crate) fn push_back(&mut self, kind: ListKind, list: &mut List, ix: PageIx) {
        self.enter(kind, ix, Link { prev: list.tail, next: NONE });
        match list.tail {
            NONE => list.head = ix.0,
            tail => self.slab[tail as usize].links[kind as usize].next = ix.0,
        }
        list.tail = ix.0;
        list.len += 1;
    }

    pub(crate) fn push_front(&mut self, kind: ListKind, list: &mut List, ix: PageIx) {
        self.enter(kind, ix, Link { prev: NONE, next: list.head });
        match list.head {
            NONE => list.tail = ix.0,
            head => self.slab[head as usize].links[kind as usize].prev = ix.0,
        }
        list.head = ix.0;
        list.len += 1;
    }

    fn enter(&mut self, kind: ListKind, ix: PageIx, link: Link) {
        let page = &mut self.slab[ix.0 as usize];
        assert!(!page.is_on(kind), "a page is on one {kind:?} list at a time");
        page.member |= 1 << kind as u8;
        page.links[kind as usize] = link;
    }

    pub(crate) fn unlink(&mut self, kind: ListKind, list: &mut List, ix: PageIx) {
        let page = &mut self.slab[ix.0 as usize];
        assert!(page.is_on(kind), "the page is on a {kind:?} list");
        page.member &= !(1 << kind as u8);
        let Link { prev, next } = page.links[kind as usize];
        match prev {
            NONE => list.head = next,
            prev => self.slab[prev as usize].links[kind as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.slab[next as usize].links[kind as usize].prev = prev,
        }
        list.len -= 1;
    }

    /// The page after `ix` on its list of this kind.
    pub(crate) fn next(&self, kind: ListKind, ix: PageIx) -> Option<PageIx> {
        let next = self.slab[ix.0 as usize].links[kind as usize].next;
        (next != NONE).then_some(PageIx(next))
    }

    /// The page before `ix` on its list of this kind.
    pub(crate) fn prev(&self, kind: ListKind, ix: PageIx) -> Option<PageIx> {
        let prev = self.slab[ix.0 as usize].links[kind as usize].prev;
        (prev != NONE).then_some(PageIx(prev))
    }

    /// The pages of a list, front to back.
    pub(crate) fn on_list(&self, kind: ListKind, list: &List) -> impl Iterator<Item = PageIx> {
        std::iter::successors(list.front(), move |&ix| self.next(kind, ix))
    }
}

impl std::ops::Index<PageIx> for Pages {
    type Output = Page;

    fn index(&self, ix: PageIx) -> &Page {
        &self.slab[ix.0 as usize]
    }
}

impl std::ops::IndexMut<PageIx> for Pages {
    fn index_mut(&mut self, ix: PageIx) -> &mut Page {
        &mut self.slab[ix.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_until_removed() {
        let mut pages = Pages::default();
        let first = pages.add(FileIx(0), 7);
        let second = pages.add(FileIx(1), 7);
        assert_eq!(pages.find(FileIx(0), 7), Some(first));
        assert_eq!(pages.find(FileIx(1), 7), Some(second));
        pages.remove(first);
        assert_eq!(pages.find(FileIx(0), 7), None);
        assert_eq!(pages.len(), 1);
    }

    #[test]
    fn lists_keep_their_order() {
        let mut pages = Pages::default();
        let mut list = List::default();
        let ixs: Vec<PageIx> = (0..4).map(|number| pages.add(FileIx(0), number)).collect();
        for &ix in &ixs[..3] {
            pages.push_back(ListKind::Clean, &mut list, ix);
        }
        pages.push_front(ListKind::Clean, &mut list, ixs[3]);
        pages.unlink(ListKind::Clean, &mut list, ixs[1]);
        let order: Vec<PageIx> = pages.on_list(ListKind::Clean, &list).collect();
        assert_eq!(order, [ixs[3], ixs[0], ixs[2]]);
        assert_eq!(list.back(), Some(ixs[2]));
        assert_eq!(list.len(), 3);
    }
}
