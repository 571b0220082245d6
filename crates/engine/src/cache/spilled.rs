//! An index by page of the patches that left memory: where they are in the redo log.
//!
//! Owns the index and the count of its memory. `spill` decides which patches leave and when they come back; the content
//! of the records belongs to the log.
//!
//! Invariants ([`Spilled::check_invariants`]):
//! - a page has at least one extent, and no run outside the page;
//! - of a page's extents, a later one is newer, and its bytes count where two overlap;
//! - `bytes` is the memory of the entries, and an age is counted for each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use smallvec::SmallVec;
use weir_frames::PAGE_BYTES;
use weir_log::{Lsn, RECORD_OVERHEAD_BYTES};

use crate::cache::dirty::Ages;
use crate::cache::page::DESCRIPTOR_BYTES;
use crate::cache::patch::{ALLOCATION_BYTES, Run};
use crate::place::{FileIx, Place};

/// A run of a page, and the position of its bytes in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogExtent {
    /// The LSN in two halves: an extent then takes 12 bytes and not 16.
    lsn: [u32; 2],
    pub(crate) run: Run,
}

impl LogExtent {
    /// The run that the record at `lsn` writes.
    pub(crate) fn of_record(lsn: Lsn, run: Run) -> LogExtent {
        LogExtent::new(Lsn(lsn.0 + RECORD_OVERHEAD_BYTES as u64), run)
    }

    /// A run whose first byte is at `lsn`.
    fn new(lsn: Lsn, run: Run) -> LogExtent {
        LogExtent { lsn: [(lsn.0 >> 32) as u32, lsn.0 as u32], run }
    }

    /// The position of the record, if the run is all that the record writes.
    pub(crate) fn record(self) -> Lsn {
        Lsn(self.lsn().0 - RECORD_OVERHEAD_BYTES as u64)
    }

    pub(crate) fn lsn(self) -> Lsn {
        Lsn(u64::from(self.lsn[0]) << 32 | u64::from(self.lsn[1]))
    }

    fn is_inside(self, other: LogExtent) -> bool {
        other.run.start <= self.run.start && self.run.end() <= other.run.end()
    }
}

/// LogExtents of one page, oldest first.
pub(crate) type LogExtents = SmallVec<[LogExtent; 1]>;

/// The patches of one page that are in the log and not in memory.
#[derive(Debug)]
pub(crate) struct SpilledPage {
    /// As [`Page`] has them.
    pub(crate) dirty_seq: u64,
    pub(crate) dirty_since_ms: u64,
    pub(crate) extents: LogExtents,
}

/// An entry's share of the tree, which is two thirds full if pages are inserted in random order.
const ENTRY_BYTES: usize = size_of::<(Place, SpilledPage)>() * 3 / 2;

impl SpilledPage {
    fn bytes(&self) -> usize {
        let heap = match self.extents.spilled() {
            true => self.extents.capacity() * size_of::<LogExtent>() + ALLOCATION_BYTES,
            false => 0,
        };
        ENTRY_BYTES + heap
    }

    /// The most patch memory that the page takes when it is back in memory.
    pub(crate) fn patch_bytes_max(&self) -> usize {
        DESCRIPTOR_BYTES
            + 2 * ALLOCATION_BYTES
            + self.covered_max()
            + 2 * self.extents.len() * size_of::<Run>()
    }

    /// Whether patches may cover the whole page when it is back in memory.
    pub(crate) fn may_cover_page(&self) -> bool {
        self.covered_max() == PAGE_BYTES
    }

    fn covered_max(&self) -> usize {
        let bytes: usize = self.extents.iter().map(|extent| usize::from(extent.run.len)).sum();
        bytes.min(PAGE_BYTES)
    }
}

/// The index.
#[derive(Debug)]
pub(crate) struct Spilled {
    pages: BTreeMap<Place, SpilledPage>,
    ages: Ages,
    bytes: usize,
}

impl Spilled {
    pub(crate) fn new(dirty_expire: Duration) -> Spilled {
        Spilled { pages: BTreeMap::new(), ages: Ages::new(dirty_expire), bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Memory of the index.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn contains(&self, place: Place) -> bool {
        self.pages.contains_key(&place)
    }

    pub(crate) fn get(&self, place: Place) -> Option<&SpilledPage> {
        self.pages.get(&place)
    }

    /// The pages at `at` and after it, in this file and later ones.
    pub(crate) fn from(&self, at: Place) -> impl Iterator<Item = (Place, &SpilledPage)> {
        self.pages.range(at..).map(|(&place, page)| (place, page))
    }

    /// The pages of a file from `number` on.
    pub(crate) fn of(
        &self,
        file: FileIx,
        number: u64,
    ) -> impl Iterator<Item = (u64, &SpilledPage)> {
        self.pages
            .range((file, number)..=(file, u64::MAX))
            .map(|(&(_, number), page)| (number, page))
    }

    /// When the oldest became dirty, milliseconds.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        self.ages.oldest_ms()
    }

    /// Adds a page's content. If the page is in the index already, the extents are added as newer ones and the older age
    /// is kept. Returns false in that case.
    pub(crate) fn add(&mut self, place: Place, content: SpilledPage) -> bool {
        match self.pages.entry(place) {
            Entry::Vacant(entry) => {
                self.ages.insert(content.dirty_since_ms);
                self.bytes += content.bytes();
                entry.insert(content);
                true
            }
            Entry::Occupied(mut entry) => {
                let page = entry.get_mut();
                self.bytes -= page.bytes();
                let newer = content.extents;
                page.extents.retain(|old| !newer.iter().any(|&new| old.is_inside(new)));
                page.extents.extend(newer);
                self.bytes += page.bytes();
                false
            }
        }
    }

    /// Forgets a page.
    pub(crate) fn remove(&mut self, place: Place) -> Option<SpilledPage> {
        let page = self.pages.remove(&place)?;
        self.ages.remove(page.dirty_since_ms);
        self.bytes -= page.bytes();
        Some(page)
    }

    /// Gives a page another number in the order of dirtying; returns its former one.
    pub(crate) fn set_seq(&mut self, place: Place, seq: u64) -> u64 {
        let page = self.pages.get_mut(&place).expect("the page is spilled");
        std::mem::replace(&mut page.dirty_seq, seq)
    }

    /// Forgets the bytes of a page from byte `from` on. The page must have bytes before that.
    pub(crate) fn truncate(&mut self, place: Place, from: usize) {
        let page = self.pages.get_mut(&place).expect("the page is spilled");
        self.bytes -= page.bytes();
        page.extents.retain(|extent| usize::from(extent.run.start) < from);
        for extent in &mut page.extents {
            extent.run.len = extent.run.len.min(from as u16 - extent.run.start);
        }
        self.bytes += page.bytes();
    }

    pub(crate) fn check_invariants(&self) {
        let bytes: usize = self.pages.values().map(SpilledPage::bytes).sum();
        assert_eq!(bytes, self.bytes);
        assert_eq!(self.ages.len(), self.pages.len());
        for (place, page) in &self.pages {
            assert!(!page.extents.is_empty(), "{place:?} has something in the log");
            assert_ne!(page.dirty_seq, 0, "what is spilled is dirty");
            for extent in &page.extents {
                assert!(extent.run.len > 0 && usize::from(extent.run.end()) <= PAGE_BYTES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(runs: &[(u64, u16, u16)]) -> LogExtents {
        let extent = |&(lsn, start, len)| LogExtent::new(Lsn(lsn), Run { start, len });
        runs.iter().map(extent).collect()
    }

    fn page(seq: u64, runs: &[(u64, u16, u16)]) -> SpilledPage {
        SpilledPage { dirty_seq: seq, dirty_since_ms: 10 * seq, extents: extents(runs) }
    }

    #[test]
    fn an_lsn_survives_its_halves() {
        let run = Run { start: 1, len: 2 };
        for lsn in [0, 1, u64::from(u32::MAX), 1 << 32, u64::MAX - 7] {
            assert_eq!(LogExtent::new(Lsn(lsn), run).lsn(), Lsn(lsn));
        }
    }

    #[test]
    fn newer_extents_replace_those_inside_them_and_join_the_others() {
        let mut spilled = Spilled::new(Duration::from_secs(1));
        let place = (FileIx(1), 7);
        assert!(spilled.add(place, page(5, &[(100, 0, 64), (200, 512, 512)])));
        assert!(!spilled.add(place, page(9, &[(900, 512, 600), (800, 32, 64)])));
        let found = spilled.get(place).unwrap();
        assert_eq!(found.extents, extents(&[(100, 0, 64), (900, 512, 600), (800, 32, 64)]));
        assert_eq!((found.dirty_seq, found.dirty_since_ms), (5, 50), "as old as its oldest part");
        spilled.check_invariants();
        assert_eq!(spilled.oldest_ms(), Some(50));
    }

    #[test]
    fn a_cut_page_keeps_what_is_before_the_cut() {
        let mut spilled = Spilled::new(Duration::from_secs(1));
        let place = (FileIx(0), 0);
        spilled.add(place, page(1, &[(100, 0, 64), (200, 512, 512)]));
        spilled.truncate(place, 600);
        assert_eq!(spilled.get(place).unwrap().extents, extents(&[(100, 0, 64), (200, 512, 88)]));
        spilled.truncate(place, 64);
        assert_eq!(spilled.get(place).unwrap().extents, extents(&[(100, 0, 64)]));
        spilled.check_invariants();
        assert!(spilled.remove(place).is_some());
        assert!(spilled.is_empty() && spilled.bytes() == 0 && spilled.oldest_ms().is_none());
    }
}
