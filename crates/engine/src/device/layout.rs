//! Where files are on their device: the order in which a disk arm passes them.
//!
//! The back end says so (FIEMAP), where it can. It is asked when a request of the file is scheduled, and again when
//! the file may have been laid out differently since. Data whose place is not known is taken to lie in the order of
//! file and offset, behind all data whose place is known.
//!
//! Owns the extents of attached files, by file and by place. A place that is out of date costs time, nothing else.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use weir_frames::PAGE_BYTES;

use crate::command::Extent;
use crate::device::schedule::DeviceBlock;
use crate::place::FileIx;

const PAGE: u64 = PAGE_BYTES as u64;

/// Unknown places begin here, beyond the end of every device.
const UNKNOWN: u64 = 1 << 62;

/// Base-2 logarithm of the number of unknown places set aside for each file, in pages; no file is longer.
const FILE_PAGES: u32 = 31;

/// Consecutive pages of a file that are consecutive on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    pages: u64,
    block: u64,
}

/// Where the files are.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    by_file: HashMap<FileIx, Vec<Run>>,
    /// The file and run that begin at each block.
    by_block: BTreeMap<u64, (FileIx, Run)>,
}

impl Layouts {
    /// Takes over what the back end says of a file.
    pub(crate) fn set(&mut self, file: FileIx, extents: &[Extent]) {
        self.forget(file);
        let mut runs: Vec<Run> = extents.iter().filter_map(run).collect();
        runs.sort_unstable_by_key(|run| run.first);
        for &run in &runs {
            // Extents may be shared between files: the last file that reports one has it.
            self.by_block.insert(run.block, (file, run));
        }
        self.by_file.insert(file, runs);
    }

    /// Forgets a file.
    pub(crate) fn forget(&mut self, file: FileIx) {
        for run in self.by_file.remove(&file).unwrap_or_default() {
            if self.by_block.get(&run.block).is_some_and(|(of, _)| *of == file) {
                self.by_block.remove(&run.block);
            }
        }
    }

    /// Where a page of a file is.
    pub(crate) fn place(&self, file: FileIx, number: u64) -> DeviceBlock {
        let runs = self.by_file.get(&file).map_or(&[][..], Vec::as_slice);
        let after = runs.partition_point(|run| run.first <= number);
        let run = after.checked_sub(1).map(|at| runs[at]);
        DeviceBlock(match run.filter(|run| number - run.first < run.pages) {
            Some(run) => run.block + (number - run.first),
            None => UNKNOWN + (u64::from(file.0) << FILE_PAGES) + number % (1 << FILE_PAGES),
        })
    }

    /// The files' pages at these places, in their order.
    pub(crate) fn pages(&self, blocks: Range<u64>) -> Vec<(FileIx, Range<u64>)> {
        let mut found = Vec::new();
        let before = self.by_block.range(..blocks.start).next_back();
        let known = before.into_iter().chain(self.by_block.range(blocks.clone()));
        for (&block, &(file, run)) in known {
            let from = blocks.start.max(block);
            let to = blocks.end.min(block + run.pages);
            if from < to {
                found.push((file, run.first + (from - block)..run.first + (to - block)));
            }
        }
        // Only within one file: between the unknown places of two files, nothing is known.
        let [first, last] = [blocks.start, blocks.end].map(|at| at.checked_sub(UNKNOWN));
        if let (Some(first), Some(last)) = (first, last)
            && first >> FILE_PAGES == last >> FILE_PAGES
        {
            let pages = first % (1 << FILE_PAGES)..last % (1 << FILE_PAGES);
            found.push((FileIx((first >> FILE_PAGES) as u32), pages));
        }
        found
    }
}

/// The whole pages of an extent.
fn run(extent: &Extent) -> Option<Run> {
    let first = extent.offset.div_ceil(PAGE);
    let end = extent.offset.checked_add(extent.len)? / PAGE;
    let block = (extent.place.checked_add(first * PAGE - extent.offset)?) / PAGE;
    (first < end && block < UNKNOWN).then(|| Run { first, pages: end - first, block })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileIx = FileIx(0);
    const B: FileIx = FileIx(7);

    fn extent(first: u64, pages: u64, block: u64) -> Extent {
        Extent { offset: first * PAGE, len: pages * PAGE, place: block * PAGE }
    }

    #[test]
    fn a_page_is_where_its_extent_says() {
        let mut layouts = Layouts::default();
        layouts.set(A, &[extent(8, 4, 100), extent(0, 8, 500)]);
        let places: Vec<u64> = [0, 7, 8, 11].map(|number| layouts.place(A, number).0).into();
        assert_eq!(places, [500, 507, 100, 103]);
        assert!(layouts.place(A, 12).0 >= UNKNOWN && layouts.place(B, 0).0 >= UNKNOWN);
        layouts.forget(A);
        assert!(layouts.place(A, 0).0 >= UNKNOWN && layouts.by_block.is_empty());
    }

    #[test]
    fn what_is_not_known_lies_in_the_order_of_file_and_offset() {
        let layouts = Layouts::default();
        let places = [(A, 0), (A, 1), (A, 1 << 30), (B, 0)];
        let places = places.map(|(file, number)| layouts.place(file, number));
        assert!(places.is_sorted());
        let between = places[0].0 + 1..places[1].0 + 5;
        assert_eq!(layouts.pages(between), [(A, 1..6)]);
        assert_eq!(layouts.pages(places[1].0..places[3].0), [], "of two files");
    }

    #[test]
    fn the_pages_at_some_places_are_found_whatever_file_they_are_of() {
        let mut layouts = Layouts::default();
        layouts.set(A, &[extent(0, 10, 100)]);
        layouts.set(B, &[extent(3, 10, 110)]);
        assert_eq!(layouts.pages(105..112), [(A, 5..10), (B, 3..5)]);
        assert_eq!(layouts.pages(90..95), []);
        layouts.set(A, &[extent(0, 2, 300)]);
        assert_eq!(layouts.pages(100..111), [(B, 3..4)], "it was laid out anew");
    }

    #[test]
    fn only_whole_pages_have_a_place() {
        let mut layouts = Layouts::default();
        layouts.set(A, &[Extent { offset: 1024, len: 3 * PAGE, place: 40 * PAGE + 1024 }]);
        assert_eq!(layouts.place(A, 1), DeviceBlock(41));
        assert!(layouts.place(A, 0).0 >= UNKNOWN && layouts.place(A, 3).0 >= UNKNOWN);
    }
}
