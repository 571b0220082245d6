//! Replacement policies on traces of page references: which pages each would have had in memory.
//!
//! Compares the engine's own policy ([`TwoLists`], the same code) with [`S3Fifo`]. As in the engine, dirty pages are on
//! no list and are not evicted. Beyond `DIRTY_SHARE` of the cache, the pages dirty longest go home, and may be evicted
//! from then on. A page that is read and is not in memory comes in clean; one that is written comes in dirty.
//!
//! No time passes here, nothing is read ahead, and files are not removed.

mod s3_fifo;
mod trace;

use std::collections::{HashSet, VecDeque};

use serde::Serialize;
use weir_engine::TwoLists;

pub use s3_fifo::S3Fifo;
pub use trace::{Reference, trace};

/// The cache divided by this may be dirty: the static policy's background ratio.
const DIRTY_SHARE: usize = 5;

/// Which page goes. Pages that are dirty are in memory and are no candidates.
pub trait Replacement {
    /// Whether the page is in memory.
    fn holds(&self, page: u64) -> bool;
    /// Brings a page into memory; it is not a candidate yet.
    fn admit(&mut self, page: u64);
    /// Notes a use of a page.
    fn touch(&mut self, page: u64);
    /// Notes that a page became clean: it is a candidate.
    fn insert(&mut self, page: u64);
    /// Notes that a page, which was a candidate, became dirty.
    fn remove(&mut self, page: u64);
    /// Evicts a candidate; `None` if no page is one.
    fn evict(&mut self) -> Option<u64>;
}

impl Replacement for TwoLists {
    fn holds(&self, page: u64) -> bool {
        self.holds(page)
    }

    fn admit(&mut self, page: u64) {
        self.admit(page);
    }

    fn touch(&mut self, page: u64) {
        self.touch(page);
    }

    fn insert(&mut self, page: u64) {
        self.insert(page);
    }

    fn remove(&mut self, page: u64) {
        self.remove(page);
    }

    fn evict(&mut self) -> Option<u64> {
        self.evict()
    }
}

/// What was found in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hits {
    /// Reads.
    pub reads: u64,
    /// Of these, of pages in memory.
    pub read_hits: u64,
    /// Writes.
    pub writes: u64,
    /// Of these, to pages in memory.
    pub write_hits: u64,
}

impl Hits {
    /// The share of reads, if there were any, else of writes.
    pub fn rate(&self) -> f64 {
        match self.reads {
            0 => self.write_hits as f64 / self.writes.max(1) as f64,
            reads => self.read_hits as f64 / reads as f64,
        }
    }
}

/// Different pages that are referred to.
pub fn footprint(trace: &[Reference]) -> usize {
    trace.iter().map(|reference| reference.page).collect::<HashSet<u64>>().len()
}

/// The hits of a trace in a cache of this many pages, under this policy.
pub fn hits(policy: &mut impl Replacement, trace: &[Reference], cache_pages: usize) -> Hits {
    assert!(cache_pages > 0);
    let dirty_max = (cache_pages / DIRTY_SHARE).max(1);
    let mut hits = Hits::default();
    let mut resident = 0;
    let mut dirty = VecDeque::new();
    let mut is_dirty = HashSet::new();
    for &Reference { page, is_write } in trace {
        let is_hit = policy.holds(page);
        if is_hit {
            policy.touch(page);
        } else {
            if resident == cache_pages {
                policy.evict().expect("most pages are clean");
                resident -= 1;
            }
            policy.admit(page);
            resident += 1;
        }
        if !is_write {
            hits.reads += 1;
            hits.read_hits += u64::from(is_hit);
            if !is_hit {
                policy.insert(page);
            }
            continue;
        }
        hits.writes += 1;
        hits.write_hits += u64::from(is_hit);
        if is_dirty.insert(page) {
            if is_hit {
                policy.remove(page);
            }
            dirty.push_back(page);
        }
        if dirty.len() > dirty_max
            && let Some(home) = dirty.pop_front()
        {
            is_dirty.remove(&home);
            policy.insert(home);
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reads(pages: impl IntoIterator<Item = u64>) -> Vec<Reference> {
        pages.into_iter().map(|page| Reference { page, is_write: false }).collect()
    }

    fn rates(trace: &[Reference], cache_pages: usize) -> [f64; 2] {
        let lists = hits(&mut TwoLists::default(), trace, cache_pages);
        [lists.rate(), hits(&mut S3Fifo::new(cache_pages), trace, cache_pages).rate()]
    }

    #[test]
    fn what_fits_is_read_once_and_what_does_not_fit_in_turn_is_never_there() {
        let fits: Vec<u64> = (0..100).cycle().take(1000).collect();
        assert_eq!(rates(&reads(fits), 100), [0.9, 0.9]);
        let turns: Vec<u64> = (0..1000).cycle().take(10_000).collect();
        assert_eq!(rates(&reads(turns), 100), [0.0, 0.0]);
    }

    #[test]
    fn what_is_used_often_survives_a_scan() {
        let often = |turn: u64| (0..50).map(move |page| (page + turn) % 50);
        let mut pages: Vec<u64> = (0..20).flat_map(often).collect();
        let warm = pages.len() as u64;
        let scan = 1_000_000..1_001_000;
        pages.extend(scan.clone());
        pages.extend(often(0));
        let trace = reads(pages);
        for rate in rates(&trace, 100) {
            let hits = rate * trace.len() as f64;
            assert!(hits > (warm - 50 + 25) as f64, "{hits} of {}", trace.len());
        }
    }

    #[test]
    fn the_share_is_that_of_reads_where_there_are_any() {
        let hits = Hits { reads: 10, read_hits: 5, writes: 100, write_hits: 100 };
        assert_eq!((hits.rate(), Hits { reads: 0, ..hits }.rate()), (0.5, 1.0));
    }

    proptest! {
        /// Neither policy holds more than its cache, or lets a page go that is dirty: [`hits`] would
        /// find no candidate, or one that is not there.
        #[test]
        fn policies_keep_to_their_caches(
            cache_pages in 2usize..40,
            references in prop::collection::vec((0u64..60, any::<bool>()), 0..400),
        ) {
            let trace: Vec<Reference> =
                references.into_iter().map(|(page, is_write)| Reference { page, is_write }).collect();
            let mut lists = TwoLists::default();
            let mut fifos = S3Fifo::new(cache_pages);
            let all = [hits(&mut lists, &trace, cache_pages), hits(&mut fifos, &trace, cache_pages)];
            for hits in all {
                prop_assert_eq!(hits.reads + hits.writes, trace.len() as u64);
            }
            let held = |holds: &dyn Fn(u64) -> bool| (0..60).filter(|page| holds(*page)).count();
            let expected = footprint(&trace).min(cache_pages);
            prop_assert_eq!(held(&|page| Replacement::holds(&lists, page)), expected);
            prop_assert_eq!(held(&|page| fifos.holds(page)), expected);
            if let Some(last) = trace.last() {
                prop_assert!(Replacement::holds(&lists, last.page) && fifos.holds(last.page));
            }
        }
    }
}
