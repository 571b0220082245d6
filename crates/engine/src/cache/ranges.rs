//! A set of byte ranges: the parts of a file that are known to be allocated at home.

use std::collections::BTreeMap;

/// Disjoint, non-touching half-open ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// start -> end
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&s, &e)) = self.ranges.range(..end).next_back() {
            if e <= start {
                break;
            }
            self.ranges.remove(&s);
            if s < start {
                self.ranges.insert(s, start);
            }
            if e > end {
                self.ranges.insert(end, e);
            }
        }
    }

    /// The first part of `[start, end)` not in the set.
    pub(crate) fn first_gap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let mut at = start;
        if let Some((_, &e)) = self.ranges.range(..=at).next_back() {
            at = at.max(e);
        }
        if at >= end {
            return None;
        }
        let gap_end = self.ranges.range(at..end).next().map_or(end, |(&s, _)| s);
        Some((at, gap_end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_bitmap(
            ops in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..30), 0..40),
            probe in (0u64..60, 1u64..40),
        ) {
            let mut set = RangeSet::default();
            let mut model = [false; 128];
            for (insert, start, len) in ops {
                let end = start + len;
                if insert { set.insert(start, end) } else { set.remove(start, end) }
                model[start as usize..end as usize].fill(insert);
            }
            let (start, end) = (probe.0, probe.0 + probe.1);
            let first = (start..end).find(|&at| !model[at as usize]);
            let expected = first.map(|from| {
                (from, (from..end).find(|&at| model[at as usize]).unwrap_or(end))
            });
            prop_assert_eq!(set.first_gap(start, end), expected);
        }
    }
}
