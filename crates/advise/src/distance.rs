//! LRU stack distances (Mattson et al., 1970): in which memory sizes a reference would be a hit.
//!
//! A Fenwick tree over the times of last use counts the pages that were used since: logarithmic time a reference, and
//! memory in proportion to the pages. When the times run out they are numbered anew.

use std::collections::HashMap;

use crate::files::FileId;

/// A page: a file, and which 4 KiB of it.
pub type Page = (FileId, u64);

/// Least room for times.
const ROOM_MIN: usize = 1 << 12;

/// The stack of pages, by last use.
#[derive(Debug)]
pub struct Stack {
    last: HashMap<Page, usize>,
    /// Fenwick tree over times, from 1: whether a page was used last at that time.
    tree: Vec<u32>,
    now: usize,
}

impl Default for Stack {
    fn default() -> Stack {
        Stack { last: HashMap::new(), tree: vec![0; ROOM_MIN + 1], now: 0 }
    }
}

impl Stack {
    /// Uses a page. How many pages, itself included, have to fit so that it is a hit; `None` at its first use.
    pub fn touch(&mut self, page: Page) -> Option<u64> {
        if self.now + 1 >= self.tree.len() {
            self.renumber();
        }
        self.now += 1;
        let before = self.last.insert(page, self.now);
        let distance = before.map(|before| {
            let since = self.sum(self.now) - self.sum(before);
            self.add(before, false);
            u64::from(since) + 1
        });
        self.add(self.now, true);
        distance
    }

    /// Different pages so far.
    pub fn pages(&self) -> usize {
        self.last.len()
    }

    fn add(&mut self, at: usize, more: bool) {
        let mut at = at;
        while at < self.tree.len() {
            if more {
                self.tree[at] += 1;
            } else {
                self.tree[at] -= 1;
            }
            at += at & at.wrapping_neg();
        }
    }

    fn sum(&self, at: usize) -> u32 {
        let (mut at, mut sum) = (at, 0);
        while at > 0 {
            sum += self.tree[at];
            at -= at & at.wrapping_neg();
        }
        sum
    }

    fn renumber(&mut self) {
        let mut order: Vec<(usize, Page)> =
            self.last.iter().map(|(page, at)| (*at, *page)).collect();
        order.sort_unstable();
        let room = (order.len() * 2).max(ROOM_MIN);
        self.tree = vec![0; room + 1];
        self.now = order.len();
        for (index, (_, page)) in order.into_iter().enumerate() {
            self.last.insert(page, index + 1);
            self.add(index + 1, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn distances_are_those_of_a_list(pages in prop::collection::vec(0_u64..40, 1..300)) {
            let mut stack = Stack::default();
            let mut list: Vec<u64> = Vec::new();
            for page in pages {
                let wanted = list.iter().rev().position(|other| *other == page).map(|at| at as u64 + 1);
                list.retain(|other| *other != page);
                list.push(page);
                prop_assert_eq!(stack.touch((FileId(0), page)), wanted);
            }
        }
    }

    #[test]
    fn times_are_numbered_anew() {
        let mut stack = Stack::default();
        for round in 0..5 {
            for page in 0..3000_u64 {
                let wanted = (round > 0).then_some(3000);
                assert_eq!(stack.touch((FileId(1), page)), wanted);
            }
        }
        assert_eq!(stack.pages(), 3000);
    }
}
