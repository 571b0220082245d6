//! Pages that could go home: dirty, idle pages in order of file and page number, and the age of the oldest.
//!
//! There are several sets, by what must be done first: most *patched* pages have to be fetched, *resident* pages can be
//! written. Owns the order, not the pages; [`crate::Engine::update`] decides the set of each page and notes it in the
//! page.
//!
//! Invariants:
//! - a page is in at most one of the sets, the one its `listed` names;
//! - an age is counted for exactly the pages in its class.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::place::{FIRST, FileIx, Place};

/// Pages in one word of a [`PageSet`].
const CHUNK_PAGES: u64 = u64::BITS as u64;

/// A set of pages that finds the next one after any place.
#[derive(Debug, Default)]
pub(crate) struct PageSet {
    /// A bit for each page of an aligned chunk of a file; no word is zero.
    chunks: BTreeMap<Place, u64>,
    len: usize,
}

impl PageSet {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn insert(&mut self, (file, number): Place) {
        let word = self.chunks.entry((file, number / CHUNK_PAGES)).or_default();
        let bit = 1 << (number % CHUNK_PAGES);
        assert_eq!(*word & bit, 0, "a page is put in once");
        *word |= bit;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, (file, number): Place) {
        let key = (file, number / CHUNK_PAGES);
        let word = self.chunks.get_mut(&key).expect("the page is in the set");
        let bit = 1 << (number % CHUNK_PAGES);
        assert_ne!(*word & bit, 0, "the page is in the set");
        *word &= !bit;
        if *word == 0 {
            self.chunks.remove(&key);
        }
        self.len -= 1;
    }

    /// The first page at `at` or after it, in this file or a later one.
    pub(crate) fn next(&self, (file, number): Place) -> Option<Place> {
        let chunk = number / CHUNK_PAGES;
        let mask = u64::MAX << (number % CHUNK_PAGES);
        self.chunks
            .range((file, chunk)..)
            .map(|(&key, &word)| (key, if key == (file, chunk) { word & mask } else { word }))
            .find(|&(_, word)| word != 0)
            .map(|((file, chunk), word)| {
                (file, chunk * CHUNK_PAGES + u64::from(word.trailing_zeros()))
            })
    }

    /// The first page of the file at `number` or after it.
    pub(crate) fn next_of(&self, file: FileIx, number: u64) -> Option<u64> {
        self.next((file, number)).filter(|&(found, _)| found == file).map(|(_, number)| number)
    }
}

/// Number of age classes in one `dirty_expire`: the precision with which the next due time is known.
const AGES: u64 = 64;

/// Pages that became dirty at about the same time.
#[derive(Debug)]
struct Age {
    pages: usize,
    /// When the first of them became dirty, milliseconds.
    earliest_ms: u64,
}

/// The number of pages of one set that became dirty in each age class.
#[derive(Debug)]
pub(crate) struct Ages {
    step_ms: u64,
    by_step: BTreeMap<u64, Age>,
}

impl Ages {
    pub(crate) fn new(dirty_expire: Duration) -> Ages {
        let step_ms = (dirty_expire.as_millis() as u64 / AGES).max(1);
        Ages { step_ms, by_step: BTreeMap::new() }
    }

    pub(crate) fn insert(&mut self, since_ms: u64) {
        let age = self
            .by_step
            .entry(since_ms / self.step_ms)
            .or_insert(Age { pages: 0, earliest_ms: since_ms });
        age.pages += 1;
        age.earliest_ms = age.earliest_ms.min(since_ms);
    }

    pub(crate) fn remove(&mut self, since_ms: u64) {
        let step = since_ms / self.step_ms;
        let age = self.by_step.get_mut(&step).expect("the page's age was counted");
        age.pages -= 1;
        if age.pages == 0 {
            self.by_step.remove(&step);
        }
    }

    /// When the oldest page became dirty, milliseconds; at most a 64th of `dirty_expire` too early.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        self.by_step.first_key_value().map(|(_, age)| age.earliest_ms)
    }

    /// Pages counted.
    pub(crate) fn len(&self) -> usize {
        self.by_step.values().map(|age| age.pages).sum()
    }
}

/// Dirty, idle pages of one kind, and the position of the sweep through them.
#[derive(Debug)]
pub(crate) struct Class {
    pages: PageSet,
    ages: Ages,
    /// Where the sweep continues.
    pub(crate) swept_to: Place,
}

impl Class {
    pub(crate) fn new(dirty_expire: Duration) -> Class {
        Class { pages: PageSet::default(), ages: Ages::new(dirty_expire), swept_to: FIRST }
    }

    pub(crate) fn pages(&self) -> &PageSet {
        &self.pages
    }

    pub(crate) fn insert(&mut self, place: Place, since_ms: u64) {
        self.pages.insert(place);
        self.ages.insert(since_ms);
    }

    pub(crate) fn remove(&mut self, place: Place, since_ms: u64) {
        self.pages.remove(place);
        self.ages.remove(since_ms);
    }

    /// When the oldest became dirty, milliseconds; at most a 64th of `dirty_expire` too early.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        self.ages.oldest_ms()
    }

    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.ages.len(), self.pages.len(), "every page has its age counted");
    }
}

/// Dirty, idle pages, each in the set that its `listed` names, and the pages with bytes that are not in the log.
#[derive(Debug)]
pub(crate) struct DirtySets {
    /// Pages without a frame.
    pub(crate) patched: Class,
    /// With a frame.
    pub(crate) resident: Class,
    /// Pages with patches in memory and older ones in the log.
    pub(crate) over: PageSet,
    /// Pages whose patches came back from the log.
    pub(crate) returned: PageSet,
    /// Pages whose transfer failed.
    pub(crate) retry: PageSet,
    /// Pages with bytes that are to be logged if their file is synced.
    pub(crate) unlogged: PageSet,
}

impl DirtySets {
    pub(crate) fn new(dirty_expire: Duration) -> DirtySets {
        DirtySets {
            patched: Class::new(dirty_expire),
            resident: Class::new(dirty_expire),
            over: PageSet::default(),
            returned: PageSet::default(),
            retry: PageSet::default(),
            unlogged: PageSet::default(),
        }
    }

    /// Pages in a set other than `unlogged`.
    pub(crate) fn len(&self) -> usize {
        self.patched.pages().len()
            + self.over.len()
            + self.returned.len()
            + self.resident.pages().len()
            + self.retry.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_sorted_set(
            pages in prop::collection::vec((0u32..3, 0u64..300), 0..60),
            probes in prop::collection::vec((0u32..4, 0u64..400), 0..20),
        ) {
            let mut set = PageSet::default();
            let mut model = BTreeSet::new();
            for (file, number) in pages {
                let place = (FileIx(file), number);
                if model.insert(place) {
                    set.insert(place);
                } else {
                    model.remove(&place);
                    set.remove(place);
                }
            }
            prop_assert_eq!(set.len(), model.len());
            for (file, number) in probes {
                let place = (FileIx(file), number);
                prop_assert_eq!(set.next(place), model.range(place..).next().copied());
            }
        }
    }

    #[test]
    fn the_oldest_age_is_exact_for_the_first_and_never_late() {
        let mut class = Class::new(Duration::from_secs(30));
        class.insert((FileIx(0), 1), 10_000);
        class.insert((FileIx(0), 2), 10_010);
        class.insert((FileIx(0), 3), 25_000);
        assert_eq!(class.oldest_ms(), Some(10_000));
        class.remove((FileIx(0), 1), 10_000);
        assert!(class.oldest_ms().is_some_and(|oldest| (9_600..=10_010).contains(&oldest)));
        class.remove((FileIx(0), 2), 10_010);
        assert_eq!(class.oldest_ms(), Some(25_000));
        class.check_invariants();
    }
}
