//! The patches of one page: bytes written to a page whose content is not in memory.
//!
//! Invariants (checked by [`PatchSet::check_invariants`]):
//! - runs are sorted and not empty, and do not overlap or touch: adjacent runs are merged;
//! - `bytes` holds exactly the runs' bytes, in order, so rewriting the same bytes takes no more memory;
//! - a set never covers its whole page: such a page becomes up to date instead.
//!
//! Source: NBW section 3.1 (patches) and 4.2 (merging).

use smallvec::SmallVec;
use weir_frames::PAGE_BYTES;

/// Contiguous bytes inside one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u16,
    pub(crate) len: u16,
}

impl Run {
    pub(crate) fn end(self) -> u16 {
        self.start + self.len
    }
}

/// Sorted, disjoint runs of one page and their bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PatchSet {
    runs: SmallVec<[Run; 4]>,
    bytes: Box<[u8]>,
}

/// The allocator's overhead for an allocation: a header, and on average half of its rounding.
pub(crate) const ALLOCATION_BYTES: usize = 16;

impl PatchSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Bytes covered.
    pub(crate) fn covered(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn covers_page(&self) -> bool {
        self.bytes.len() == PAGE_BYTES
    }

    /// Heap memory of this set, overhead counted; zero when empty.
    pub(crate) fn allocated_bytes(&self) -> usize {
        if self.runs.is_empty() {
            return 0;
        }
        let spilled = if self.runs.spilled() {
            self.runs.capacity() * size_of::<Run>() + ALLOCATION_BYTES
        } else {
            0
        };
        self.bytes.len() + ALLOCATION_BYTES + spilled
    }

    /// The most memory that inserting `len` bytes may allocate.
    pub(crate) fn growth_bytes_max(&self, len: usize) -> usize {
        let runs = if self.runs.len() < self.runs.capacity() {
            0
        } else {
            2 * self.runs.capacity() * size_of::<Run>() + ALLOCATION_BYTES
        };
        len + ALLOCATION_BYTES + runs
    }

    /// The runs with their bytes, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Run, &[u8])> {
        let mut at = 0;
        self.runs.iter().map(move |run| {
            let bytes = &self.bytes[at..at + usize::from(run.len)];
            at += usize::from(run.len);
            (*run, bytes)
        })
    }

    /// Inserts `data` at `start`. It replaces the bytes that it overlaps, and is merged with adjacent runs.
    pub(crate) fn insert(&mut self, start: usize, data: &[u8]) {
        debug_assert!(!data.is_empty() && start + data.len() <= PAGE_BYTES);
        let end = start + data.len();
        // Runs [first, last) overlap or touch the new one; the first one's bytes begin at `at`.
        let mut at = 0;
        let mut first = 0;
        while first < self.runs.len() && usize::from(self.runs[first].end()) < start {
            at += usize::from(self.runs[first].len);
            first += 1;
        }
        let mut last = first;
        let mut merged_bytes = 0;
        while last < self.runs.len() && usize::from(self.runs[last].start) <= end {
            merged_bytes += usize::from(self.runs[last].len);
            last += 1;
        }
        if first == last {
            self.runs.insert(first, Run { start: start as u16, len: data.len() as u16 });
            self.replace(at, 0, data);
            return;
        }
        let merged_start = usize::from(self.runs[first].start).min(start);
        let merged_end = usize::from(self.runs[last - 1].end()).max(end);
        let kept_before = start - merged_start;
        let kept_after = merged_end - end;
        if last - first == 1 && kept_before + data.len() + kept_after == merged_bytes {
            // Wholly inside one run: nothing moves.
            self.bytes[at + kept_before..at + kept_before + data.len()].copy_from_slice(data);
            return;
        }
        self.replace(at + kept_before, merged_bytes - kept_before - kept_after, data);
        self.runs[first] =
            Run { start: merged_start as u16, len: (merged_end - merged_start) as u16 };
        self.runs.drain(first + 1..last);
    }

    /// Replaces `old_len` bytes at `at` by `data`, in an allocation of exactly the new size.
    fn replace(&mut self, at: usize, old_len: usize, data: &[u8]) {
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        let tail = bytes.len() - at - old_len;
        let new_len = at + data.len() + tail;
        if new_len > bytes.len() {
            bytes.reserve_exact(new_len - bytes.len());
            let grown_from = bytes.len();
            bytes.resize(new_len, 0);
            bytes.copy_within(at + old_len..grown_from, at + data.len());
        } else {
            bytes.copy_within(at + old_len.., at + data.len());
            bytes.truncate(new_len);
        }
        bytes[at..at + data.len()].copy_from_slice(data);
        self.bytes = bytes.into_boxed_slice();
    }

    /// Overwrites with `data` at `start` if one run holds all of these bytes; returns whether it does.
    pub(crate) fn overwrite(&mut self, start: usize, data: &[u8]) -> bool {
        let mut at = 0;
        for run in &self.runs {
            if usize::from(run.start) <= start && start + data.len() <= usize::from(run.end()) {
                let from = at + start - usize::from(run.start);
                self.bytes[from..from + data.len()].copy_from_slice(data);
                return true;
            }
            at += usize::from(run.len);
        }
        false
    }

    /// The bytes `start .. start + len` of the page if one run holds them all.
    pub(crate) fn get(&self, start: usize, len: usize) -> Option<&[u8]> {
        let mut at = 0;
        for run in &self.runs {
            if usize::from(run.start) <= start && start + len <= usize::from(run.end()) {
                let from = at + start - usize::from(run.start);
                return Some(&self.bytes[from..from + len]);
            }
            at += usize::from(run.len);
        }
        None
    }

    /// Whether all runs are inside the bytes `from .. to` of the page.
    pub(crate) fn is_inside(&self, from: usize, to: usize) -> bool {
        let first = self.runs.first().is_none_or(|run| usize::from(run.start) >= from);
        first && self.runs.last().is_none_or(|run| usize::from(run.end()) <= to)
    }

    /// Writes the runs over a page's content.
    pub(crate) fn apply(&self, page: &mut [u8; PAGE_BYTES]) {
        for (run, bytes) in self.iter() {
            page[usize::from(run.start)..usize::from(run.end())].copy_from_slice(bytes);
        }
    }

    /// Drops everything from byte `from` of the page on.
    pub(crate) fn truncate(&mut self, from: usize) {
        let mut kept = 0;
        let mut runs = 0;
        for run in &mut self.runs {
            if usize::from(run.start) >= from {
                break;
            }
            run.len = run.len.min(from as u16 - run.start);
            kept += usize::from(run.len);
            runs += 1;
        }
        self.runs.truncate(runs);
        if kept < self.bytes.len() {
            // Only the last kept run lost bytes, so what remains is a prefix.
            let mut bytes = std::mem::take(&mut self.bytes).into_vec();
            bytes.truncate(kept);
            self.bytes = bytes.into_boxed_slice();
        }
    }

    /// Whether every run starts and ends on a multiple of `unit` bytes, the end of the file at
    /// byte `file_end` of this page counting as a boundary.
    pub(crate) fn covers_units(&self, unit: usize, file_end: usize) -> bool {
        self.runs.iter().all(|run| {
            let end = usize::from(run.end());
            usize::from(run.start) % unit == 0 && (end % unit == 0 || end >= file_end)
        })
    }

    pub(crate) fn check_invariants(&self) {
        let mut total = 0;
        for pair in self.runs.windows(2) {
            assert!(pair[0].end() < pair[1].start, "runs are sorted and do not touch: {pair:?}");
        }
        for run in &self.runs {
            assert!(run.len > 0, "no run is empty");
            assert!(usize::from(run.start) + usize::from(run.len) <= PAGE_BYTES);
            total += usize::from(run.len);
        }
        assert_eq!(total, self.bytes.len(), "bytes are the runs' bytes");
        assert!(total < PAGE_BYTES, "a covered page has no patches");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_inside_a_range_that_holds_the_first_and_the_last() {
        let patches = set(&[(100, 50, 1), (300, 20, 2)]);
        assert!(patches.is_inside(100, 320) && patches.is_inside(0, 4096));
        assert!(!patches.is_inside(101, 320) && !patches.is_inside(100, 319));
    }

    fn set(writes: &[(usize, usize, u8)]) -> PatchSet {
        let mut patches = PatchSet::default();
        for &(start, len, byte) in writes {
            patches.insert(start, &vec![byte; len]);
        }
        patches
    }

    #[test]
    fn touching_writes_become_one_run() {
        let patches = set(&[(0, 10, 1), (20, 10, 2), (10, 10, 3)]);
        let runs: Vec<Run> = patches.iter().map(|(run, _)| run).collect();
        assert_eq!(runs, [Run { start: 0, len: 30 }]);
        assert_eq!(patches.covered(), 30);
    }

    #[test]
    fn a_read_must_lie_inside_one_run() {
        let patches = set(&[(100, 50, 7), (200, 50, 8)]);
        assert_eq!(patches.get(110, 40).unwrap(), [7; 40]);
        assert!(patches.get(110, 41).is_none());
        assert!(patches.get(140, 70).is_none());
    }

    #[test]
    fn overhead_of_a_small_patch_is_at_most_64_bytes() {
        for len in [1, 64, 100, 512, 4000] {
            let patches = set(&[(8, len, 1)]);
            let overhead = size_of::<PatchSet>() + patches.allocated_bytes() - len;
            assert!(overhead <= 64, "{len}: {overhead}");
        }
    }

    #[test]
    fn units_are_covered_only_from_boundary_to_boundary() {
        assert!(set(&[(512, 1024, 1)]).covers_units(512, PAGE_BYTES));
        assert!(!set(&[(512, 1000, 1)]).covers_units(512, PAGE_BYTES));
        assert!(set(&[(512, 1000, 1)]).covers_units(512, 1512));
        assert!(!set(&[(500, 524, 1)]).covers_units(512, PAGE_BYTES));
    }

    proptest! {
        #[test]
        fn behaves_as_bytes_with_a_mask(
            writes in prop::collection::vec((0usize..4095, 1usize..700, any::<u8>()), 1..40),
            cut in prop::option::of(0usize..4096),
        ) {
            let mut patches = PatchSet::default();
            let mut model = [None; PAGE_BYTES];
            for (start, len, byte) in writes {
                let len = len.min(PAGE_BYTES - start);
                patches.insert(start, &vec![byte; len]);
                model[start..start + len].fill(Some(byte));
                if !patches.covers_page() {
                    patches.check_invariants();
                }
            }
            if let Some(cut) = cut {
                patches.truncate(cut);
                model[cut..].fill(None);
            }
            let mut page = [0; PAGE_BYTES];
            patches.apply(&mut page);
            for (at, byte) in model.iter().enumerate() {
                prop_assert_eq!(page[at], byte.unwrap_or(0));
                prop_assert_eq!(patches.get(at, 1).map(|bytes| bytes[0]), *byte);
            }
            prop_assert_eq!(patches.covered(), model.iter().flatten().count());
        }
    }
}
