//! Ghost caches: which reads would hit in a smaller memory, and which in a larger one (AWOL, FAST'08, section 3.2).
//!
//! [`GhostHits`] is the smaller cache: all dirty pages, and as many of the clean pages that the replacement policy
//! would keep longest as fit beside them. A read that hits outside of it would miss if dirty data took all the memory
//! it may. It is a mark in the policy's own order and a bit in each page.
//!
//! [`GhostMisses`] is the larger cache: the names of the last clean pages that were evicted because memory was needed
//! for writing. A read that misses and finds its page here would have hit if less had been dirty.
//!
//! Both take constant time per reference: the mark moves by as many pages as the order, or the room beside dirty data,
//! changes by. No memory is allocated after the start; a name takes [`GHOST_BYTES_MAX`] at most.
//!
//! Invariants:
//! - the pages inside are the first `inside` pages of the order, and `last` is the last of them;
//! - after [`GhostHits::settle`], `inside` is the number of pages there is room for, or all;
//! - a name is in the chain of its hash exactly while it is live, and in no chain twice.

use crate::cache::page::{List, ListKind, Pages};
use crate::command::FileId;
use crate::place::PageIx;

/// Most memory for a ghost miss, bytes.
pub(crate) const GHOST_BYTES_MAX: usize = 32;

const KIND: ListKind = ListKind::Clean;

/// The replacement policy's order: the active list, then the inactive one, most precious first.
/// Moving the active list's cold end to the inactive list's front does not change it.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) active: &'a List,
    pub(crate) inactive: &'a List,
}

impl Order<'_> {
    fn front(&self) -> Option<PageIx> {
        self.active.front().or(self.inactive.front())
    }

    fn next(&self, pages: &Pages, ix: PageIx) -> Option<PageIx> {
        let over = || if pages[ix].hot { self.inactive.front() } else { None };
        pages.next(KIND, ix).or_else(over)
    }

    fn prev(&self, pages: &Pages, ix: PageIx) -> Option<PageIx> {
        let over = || if pages[ix].hot { None } else { self.active.back() };
        pages.prev(KIND, ix).or_else(over)
    }

    /// The pages of the order, most precious first.
    pub(crate) fn iter(self, pages: &Pages) -> impl Iterator<Item = PageIx> {
        pages.on_list(KIND, self.active).chain(pages.on_list(KIND, self.inactive))
    }
}

/// The clean part of the ghost hit cache.
#[derive(Debug, Default)]
pub(crate) struct GhostHits {
    /// The number of clean pages that fit.
    room: usize,
    inside: usize,
    last: Option<PageIx>,
}

impl GhostHits {
    /// Whether a resident page is in the ghost hit cache. A page on no list is dirty or in use, and counts as inside.
    pub(crate) fn contains(&self, pages: &Pages, ix: PageIx) -> bool {
        !pages[ix].is_on(KIND) || pages[ix].is_ghost_hit()
    }

    /// The page has been inserted into the order. To be followed by `settle`.
    pub(crate) fn entered(&mut self, pages: &mut Pages, order: Order<'_>, ix: PageIx) {
        if self.room == 0 {
            return;
        }
        let before = order.prev(pages, ix);
        let inside = before.is_none_or(|before| pages[before].is_ghost_hit());
        pages[ix].set_ghost_hit(inside);
        if inside {
            self.inside += 1;
            if self.last == before {
                self.last = Some(ix);
            }
        }
    }

    /// The page is about to be removed from the order. To be followed by `settle` after the removal.
    pub(crate) fn leaves(&mut self, pages: &mut Pages, order: Order<'_>, ix: PageIx) {
        if pages[ix].is_ghost_hit() {
            if self.last == Some(ix) {
                self.last = order.prev(pages, ix);
            }
            pages[ix].set_ghost_hit(false);
            self.inside -= 1;
        }
    }

    /// Sets the number of clean pages there is room for.
    pub(crate) fn set_room(&mut self, pages: &mut Pages, order: Order<'_>, room: usize) {
        self.room = room;
        self.settle(pages, order);
    }

    /// Moves the mark so that as many pages are inside as there is room for.
    pub(crate) fn settle(&mut self, pages: &mut Pages, order: Order<'_>) {
        while self.inside > self.room {
            let last = self.last.expect("some page is inside");
            pages[last].set_ghost_hit(false);
            self.inside -= 1;
            self.last = order.prev(pages, last);
        }
        while self.inside < self.room {
            let next = match self.last {
                Some(last) => order.next(pages, last),
                None => order.front(),
            };
            let Some(next) = next else { break };
            pages[next].set_ghost_hit(true);
            self.inside += 1;
            self.last = Some(next);
        }
    }

    pub(crate) fn check_invariants(&self, pages: &Pages, order: Order<'_>) {
        let mut last = None;
        let mut count = 0;
        for ix in order.iter(pages) {
            assert_eq!(
                pages[ix].is_ghost_hit(),
                count < self.room,
                "the first {} pages",
                self.room
            );
            if pages[ix].is_ghost_hit() {
                last = Some(ix);
            }
            count += 1;
        }
        assert_eq!((self.inside, self.last), (count.min(self.room), last));
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Name {
    file: FileId,
    number: u64,
    /// The next one with this hash.
    next: u32,
    /// The name has not been removed.
    live: bool,
}

/// The last `capacity` clean pages that were evicted for written ones, without those that came back. A hash table of
/// fixed size, because the memory of one that grows is not bounded well enough.
#[derive(Debug, Default)]
pub(crate) struct GhostMisses {
    /// A ring: the oldest is overwritten.
    names: Vec<Name>,
    capacity: usize,
    oldest: usize,
    /// The first name of each chain. Their number is a power of two, or zero.
    heads: Box<[u32]>,
}

impl GhostMisses {
    /// A table for `capacity` names.
    pub(crate) fn new(capacity: usize) -> GhostMisses {
        assert!(capacity < NONE as usize, "memory bounds the number of pages");
        // The largest power of two that is not more.
        let heads = if capacity == 0 { 0 } else { 1 << capacity.ilog2() };
        GhostMisses {
            names: Vec::with_capacity(capacity),
            capacity,
            oldest: 0,
            heads: vec![NONE; heads].into_boxed_slice(),
        }
    }

    /// Bytes of memory taken.
    pub(crate) fn bytes(&self) -> usize {
        self.names.capacity() * size_of::<Name>() + self.heads.len() * size_of::<u32>()
    }

    /// Notes that the page was evicted for a written one.
    pub(crate) fn insert(&mut self, file: FileId, number: u64) {
        if self.capacity == 0 {
            return;
        }
        self.take(file, number);
        let head = self.head(file, number);
        let name = Name { file, number, next: self.heads[head], live: true };
        let at = if self.names.len() < self.capacity {
            self.names.push(name);
            self.names.len() - 1
        } else {
            let Name { file, number, live, .. } = self.names[self.oldest];
            if live {
                self.take(file, number);
            }
            let at = self.oldest;
            self.oldest = (at + 1) % self.capacity;
            // This may be the chain that just lost a name.
            self.names[at] = Name { next: self.heads[head], ..name };
            at
        };
        self.heads[head] = at as u32;
    }

    /// Removes a page; returns whether it was present.
    pub(crate) fn take(&mut self, file: FileId, number: u64) -> bool {
        if self.heads.is_empty() {
            return false;
        }
        let head = self.head(file, number);
        let (mut before, mut at) = (NONE, self.heads[head]);
        while at != NONE {
            let name = self.names[at as usize];
            if (name.file, name.number) == (file, number) {
                match before {
                    NONE => self.heads[head] = name.next,
                    before => self.names[before as usize].next = name.next,
                }
                self.names[at as usize].live = false;
                return true;
            }
            (before, at) = (at, name.next);
        }
        false
    }

    fn head(&self, file: FileId, number: u64) -> usize {
        // Multiplicative (Fibonacci) hashing, high bits folded down, as for pages.
        let key = number ^ file.0.rotate_left(40) ^ file.0;
        let product = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product ^ (product >> 32)) as usize & (self.heads.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::cache::replacement::Replacement;
    use crate::place::FileIx;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Admit(u64),
        Touch(u64),
        Leave(u64),
        Return(u64),
        Evict,
        Room(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..40).prop_map(Step::Admit),
            6 => (0u64..40).prop_map(Step::Touch),
            2 => (0u64..40).prop_map(Step::Leave),
            2 => (0u64..40).prop_map(Step::Return),
            1 => Just(Step::Evict),
            1 => (0usize..50).prop_map(Step::Room),
        ]
    }

    proptest! {
        /// The model: the first `room` pages of the order, looked up one by one.
        #[test]
        fn ghost_hits_are_the_first_pages_of_the_order(steps in prop::collection::vec(step(), 1..200)) {
            let mut pages = Pages::default();
            let mut replacement = Replacement::default();
            let mut room = 0;
            for step in steps {
                match step {
                    Step::Admit(number) => {
                        if pages.find(FileIx(0), number).is_none() {
                            let ix = pages.add(FileIx(0), number);
                            replacement.admit(&mut pages, ix);
                            replacement.insert(&mut pages, ix);
                        }
                    }
                    Step::Touch(number) => {
                        if let Some(ix) = pages.find(FileIx(0), number) {
                            replacement.touch(&mut pages, ix);
                        }
                    }
                    // It becomes dirty, and clean again.
                    Step::Leave(number) => {
                        if let Some(ix) = pages.find(FileIx(0), number)
                            && pages[ix].is_on(KIND)
                        {
                            replacement.remove(&mut pages, ix);
                        }
                    }
                    Step::Return(number) => {
                        if let Some(ix) = pages.find(FileIx(0), number)
                            && !pages[ix].is_on(KIND)
                        {
                            replacement.insert(&mut pages, ix);
                        }
                    }
                    Step::Evict => {
                        if let Some(ix) = replacement.victim(&mut pages) {
                            replacement.remove(&mut pages, ix);
                            pages.remove(ix);
                        }
                    }
                    Step::Room(pages_max) => {
                        room = pages_max;
                        replacement.set_ghost_room(&mut pages, room);
                    }
                }
                let order: Vec<PageIx> = replacement.order().iter(&pages).collect();
                prop_assert_eq!(order.len(), replacement.len());
                for (nth, &ix) in order.iter().enumerate() {
                    prop_assert_eq!(replacement.is_ghost_hit(&pages, ix), nth < room);
                }
                for number in 0..40 {
                    if let Some(ix) = pages.find(FileIx(0), number)
                        && !pages[ix].is_on(KIND)
                    {
                        prop_assert!(replacement.is_ghost_hit(&pages, ix), "on no list: inside");
                    }
                }
                replacement.check_ghost_hits(&pages);
            }
        }

        /// The model: the last `capacity` replacements, each blank once its page came back.
        #[test]
        fn ghost_misses_are_the_last_pages_replaced(
            capacity in 0usize..12,
            steps in prop::collection::vec((any::<bool>(), 0u64..3, 0u64..10), 0..300),
        ) {
            let mut ghosts = GhostMisses::new(capacity);
            let mut model: VecDeque<Option<(FileId, u64)>> = VecDeque::new();
            let bytes = ghosts.bytes();
            for (replaced, file, number) in steps {
                let key = (FileId(file), number);
                let was_in = model.contains(&Some(key));
                for slot in model.iter_mut().filter(|slot| **slot == Some(key)) {
                    *slot = None;
                }
                if replaced {
                    ghosts.insert(key.0, key.1);
                    model.push_back(Some(key));
                    if model.len() > capacity {
                        model.pop_front();
                    }
                } else {
                    prop_assert_eq!(ghosts.take(key.0, key.1), was_in);
                }
                prop_assert_eq!(ghosts.bytes(), bytes, "nothing is allocated later");
            }
        }
    }

    #[test]
    fn a_ghost_takes_little_memory() {
        for capacity in [1, 2, 3, 1000, 1023, 1024, 1025, 26_214, 1 << 20] {
            let bytes = GhostMisses::new(capacity).bytes();
            assert!(bytes <= capacity * GHOST_BYTES_MAX, "{bytes} bytes for {capacity} ghosts");
        }
        assert_eq!(GhostMisses::new(0).bytes(), 0);
    }

    #[test]
    fn a_full_table_keeps_its_last_names_and_finds_them_quickly() {
        const CAPACITY: u64 = 10_000;
        let mut ghosts = GhostMisses::new(CAPACITY as usize);
        for number in 0..3 * CAPACITY {
            ghosts.insert(FileId(7), number);
        }
        let longest = ghosts.heads.iter().map(|&head| {
            std::iter::successors((head != NONE).then_some(head), |&at| {
                let next = ghosts.names[at as usize].next;
                (next != NONE).then_some(next)
            })
            .count()
        });
        assert!(longest.max() <= Some(16), "chains are short");
        assert!((0..2 * CAPACITY).all(|number| !ghosts.take(FileId(7), number)));
        assert!((2 * CAPACITY..3 * CAPACITY).all(|number| ghosts.take(FileId(7), number)));
    }
}
