//! A set of byte ranges: which parts of a file differ from its object.
//!
//! Invariants: ranges are not empty, do not overlap and do not touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of bytes, as start and end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The set of one range.
    pub fn of(range: Range<u64>) -> Self {
        let mut set = RangeSet::default();
        set.insert(range);
        set
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Sum of the lengths, bytes.
    pub fn total(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Adds a range, joined with those that it overlaps or touches.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        let joined: Vec<u64> = self
            .ranges
            .range(..=end)
            .rev()
            .take_while(|&(_, &other)| other >= start)
            .map(|(&key, _)| key)
            .collect();
        for key in joined {
            let other = self.ranges.remove(&key).expect("it was found above");
            start = start.min(key);
            end = end.max(other);
        }
        self.ranges.insert(start, end);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        let cut: Vec<Range<u64>> = self.within(range.clone()).collect();
        for part in cut {
            let (&start, &end) =
                self.ranges.range(..=part.start).next_back().expect("it is part of a range");
            self.ranges.remove(&start);
            if start < part.start {
                self.ranges.insert(start, part.start);
            }
            if part.end < end {
                self.ranges.insert(part.end, end);
            }
        }
    }

    /// What of a range is in the set, in order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first =
            self.ranges.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        let Range { start, end } = range;
        self.ranges
            .range(first..end.max(first))
            .map(move |(&from, &to)| from.max(start)..to.min(end))
            .filter(|part| !part.is_empty())
    }

    /// What of a range is not in the set, in order.
    pub fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut at = range.start;
        let mut gaps = Vec::new();
        for part in self.within(range.clone()) {
            if at < part.start {
                gaps.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Adds all ranges of another set.
    pub fn extend(&mut self, other: &RangeSet) {
        for range in other.iter() {
            self.insert(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 0..40)) {
            let mut set = RangeSet::default();
            let mut bytes = [false; 100];
            for (add, start, length) in steps {
                let range = start..start + length;
                if add { set.insert(range.clone()) } else { set.remove(range.clone()) }
                for at in range { bytes[at as usize] = add; }
                let mut last = None;
                for range in set.iter() {
                    prop_assert!(range.start < range.end);
                    prop_assert!(last.is_none_or(|last| last < range.start));
                    last = Some(range.end);
                }
                for (at, &is) in bytes.iter().enumerate() {
                    let at = at as u64;
                    prop_assert_eq!(set.within(at..at + 1).next().is_some(), is);
                }
                let gaps: u64 = set.gaps(7..77).iter().map(|gap| gap.end - gap.start).sum();
                prop_assert_eq!(gaps, bytes[7..77].iter().filter(|&&is| !is).count() as u64);
            }
        }
    }
}
