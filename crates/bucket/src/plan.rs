//! How a changed file becomes an object: one PUT, or a multipart upload whose clean parts the store copies itself.
//!
//! Decides; does no I/O. A file's content is given by its size, the bytes that its object still has (`base`, from the
//! start), and the ranges that differ from them (`dirty`). Bytes outside both are zeros.
//!
//! A part must have at least 5 MiB, unless it is the last, and a change may be of a few bytes. So a small change is made
//! the *last* part of a temporary object that begins with 5 MiB or more, copied; the whole temporary object, which
//! is long enough, is then copied as one part of the file ([`Part::Composed`]). Only what changed crosses the network. Where
//! changes lie so close that no clean range between them is long enough to begin with, the temporary object begins with other bytes
//! of the object, which are left out of the copy ([`Composed::lead`]): those before its first clean range, if there are any.
//! Each further range costs several requests, one after the other, and another copy of those before it. So a temporary object ends as
//! soon as it is long enough, with a change if it can.
//!
//! Invariants: the parts are the file from its first byte to its last; each but the last has `part_min` bytes or more;
//! a copied range is clean, but for a lead.

use std::ops::Range;

use crate::ranges::RangeSet;

/// What the store allows and what is wanted, bytes unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The least that a part has which is not the last.
    pub part_min: u64,
    /// An uploaded part.
    pub part: u64,
    /// The most that one copied part has, unless that makes too many parts.
    pub copy_max: u64,
    /// The most parts of one upload.
    pub parts_max: usize,
    /// A clean range shorter than this is fetched and uploaded with its neighbours.
    pub gap_min: u64,
    /// A composed part gets no further segment when it has more than this and has at least `part_min` bytes.
    pub layers_max: usize,
}

impl Limits {
    /// Of S3, for parts of a size.
    pub fn s3(part: u64) -> Self {
        const MIB: u64 = 1 << 20;
        Limits {
            part_min: 5 * MIB,
            part: part.max(5 * MIB),
            copy_max: 256 * MIB,
            parts_max: 10_000,
            gap_min: MIB,
            layers_max: 12,
        }
    }

    /// The largest file that is uploaded by one PUT.
    pub fn whole_max(&self) -> u64 {
        2 * self.part
    }
}

/// Bytes of the file, and whether the object still has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where.
    pub range: Range<u64>,
    /// They are copied from the object; otherwise uploaded.
    pub copy: bool,
}

impl Segment {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// One part of a multipart upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// One range, copied or uploaded.
    Plain(Segment),
    /// A temporary object.
    Composed(Composed),
}

/// A temporary object that is copied as one part. It is built from the first two pieces, and for each further one anew from itself
/// and that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// Bytes of the object that it begins with and that are left out. They are copied with the first segment if that follows them in
    /// the object.
    pub lead: Option<Range<u64>>,
    /// What it has of the file, in order. Without a lead the first is long enough for a part.
    pub segments: Vec<Segment>,
}

impl Part {
    /// The bytes of the file that it has.
    pub fn range(&self) -> Range<u64> {
        match self {
            Part::Plain(segment) => segment.range.clone(),
            Part::Composed(Composed { segments, .. }) => {
                let last = segments.last().expect("a composed part has segments");
                segments[0].range.start..last.range.end
            }
        }
    }
}

/// How a file is uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// By one PUT.
    Whole,
    /// By a multipart upload.
    Parts(Vec<Part>),
}

/// Where bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the spool.
    Spool,
    /// In the object.
    Base,
    /// Nowhere: they are zeros.
    Zeros,
}

/// Where the bytes of a range are, in order.
pub fn pieces(range: Range<u64>, base: u64, dirty: &RangeSet) -> Vec<(Range<u64>, Source)> {
    let mut found = Vec::new();
    let mut clean = |gap: Range<u64>| {
        let cut = base.clamp(gap.start, gap.end);
        for (part, source) in [(gap.start..cut, Source::Base), (cut..gap.end, Source::Zeros)] {
            if !part.is_empty() {
                found.push((part, source));
            }
        }
    };
    for gap in dirty.gaps(range.clone()) {
        clean(gap);
    }
    found.extend(dirty.within(range).map(|part| (part, Source::Spool)));
    found.sort_by_key(|(part, _)| part.start);
    found
}

/// Decides how a file is uploaded.
pub fn plan(size: u64, base: u64, dirty: &RangeSet, limits: &Limits) -> Plan {
    if size <= limits.whole_max() {
        return Plan::Whole;
    }
    // Copies of a very large file take at most half of the parts.
    let copy_max = limits.copy_max.max(size.div_ceil(limits.parts_max as u64 / 2));
    let runs = runs(size, base, dirty, limits.gap_min);
    let limits = &Limits { copy_max, ..*limits };
    for is_short in [true, false] {
        let parts = compose(runs.clone(), base, is_short, limits);
        if parts.len() <= limits.parts_max {
            return Plan::Parts(parts);
        }
    }
    Plan::Parts(even(size, base, dirty, limits))
}

/// The file as ranges that are clean or not, by turns; short clean ones count as changed.
fn runs(size: u64, base: u64, dirty: &RangeSet, gap_min: u64) -> Vec<Segment> {
    let mut runs: Vec<Segment> = Vec::new();
    for (range, source) in pieces(0..size, base, dirty) {
        let copy = source == Source::Base && range.end - range.start >= gap_min;
        match runs.last_mut() {
            Some(last) if last.copy == copy => last.range.end = range.end,
            _ => runs.push(Segment { range, copy }),
        }
    }
    runs
}

/// Makes parts of the runs: temporary objects as short as they may be, or fewer that have more each.
fn compose(runs: Vec<Segment>, base: u64, is_short: bool, limits: &Limits) -> Vec<Part> {
    let lead = (base >= limits.part_min).then_some(0..limits.part_min);
    let mut parts = Vec::new();
    let mut group: Vec<Segment> = Vec::new();
    for mut run in runs {
        let mut is_long = bytes_of(&group) >= limits.part_min;
        if !is_long && !group.is_empty() && run.bytes() >= 2 * limits.part_min {
            // What is missing of a part is taken from a long one.
            let at = run.range.start + limits.part_min;
            group.push(Segment { range: run.range.start..at, copy: run.copy });
            (run.range.start, is_long) = (at, true);
        }
        let may_end = match lead {
            Some(_) if is_short => run.copy && group.len() > 1,
            _ => group.len() > limits.layers_max,
        };
        if is_long && (run.bytes() >= limits.part_min || may_end) {
            close(&mut parts, std::mem::take(&mut group), lead.clone(), limits);
        }
        group.push(run);
    }
    // The file may end with anything.
    let end = if group.len() > 1 { group.pop() } else { None };
    match end {
        Some(end) if bytes_of(&group) >= limits.part_min => {
            close(&mut parts, group, lead, limits);
            split(&mut parts, end, limits);
        }
        end => {
            group.extend(end);
            close(&mut parts, group, None, limits);
        }
    }
    parts
}

/// The bytes of all of them.
pub fn bytes_of(group: &[Segment]) -> u64 {
    group.iter().map(Segment::bytes).sum()
}

/// Makes parts of a group, which is long enough unless the file ends with it.
fn close(
    parts: &mut Vec<Part>,
    mut group: Vec<Segment>,
    lead: Option<Range<u64>>,
    limits: &Limits,
) {
    let Some(first) = group.first_mut() else { return };
    if first.bytes() >= 2 * limits.part_min {
        // The rest begins with what is just long enough.
        let at = first.range.end - limits.part_min;
        let front = Segment { range: first.range.start..at, copy: first.copy };
        if group.len() == 1 {
            return split(parts, group.remove(0), limits);
        }
        group[0].range.start = at;
        split(parts, front, limits);
    }
    let needs_lead = group[0].bytes() < limits.part_min;
    match group.len() {
        1 => split(parts, group.remove(0), limits),
        _ if needs_lead && lead.is_none() => {
            // There is nothing to begin with: all of it is uploaded.
            let range = group[0].range.start..group[group.len() - 1].range.end;
            split(parts, Segment { range, copy: false }, limits);
        }
        _ => {
            let lead = lead_before(&group[0], limits).or(lead).filter(|_| needs_lead);
            parts.push(Part::Composed(Composed { lead, segments: group }));
        }
    }
}

/// What is before a clean segment that is too short for a part, if it is long enough with that.
fn lead_before(segment: &Segment, limits: &Limits) -> Option<Range<u64>> {
    let start = segment.range.end.checked_sub(limits.part_min).filter(|_| segment.copy)?;
    Some(start..segment.range.start)
}

impl Composed {
    /// The ranges that it is built from: whether they are copied from the object, and of what. The first is long enough for a part.
    pub fn pieces(&self) -> Vec<Segment> {
        let mut pieces = self.segments.clone();
        if let Some(lead) = &self.lead {
            match pieces.first_mut().filter(|first| first.copy && first.range.start == lead.end) {
                Some(first) => first.range.start = lead.start,
                None => pieces.insert(0, Segment { range: lead.clone(), copy: true }),
            }
        }
        pieces
    }
}

/// Cuts a long segment into parts of about the same length.
fn split(parts: &mut Vec<Part>, segment: Segment, limits: &Limits) {
    let most = if segment.copy { limits.copy_max } else { limits.part };
    let most = most.max(2 * limits.part_min - 1);
    let count = segment.bytes().div_ceil(most).max(1);
    let (start, bytes) = (segment.range.start, segment.bytes());
    for index in 0..count {
        let range = start + bytes * index / count..start + bytes * (index + 1) / count;
        parts.push(Part::Plain(Segment { range, copy: segment.copy }));
    }
}

/// Parts of one length, for a file that has too many changes.
fn even(size: u64, base: u64, dirty: &RangeSet, limits: &Limits) -> Vec<Part> {
    let unit = size.div_ceil(limits.parts_max as u64).max(limits.part).max(limits.part_min);
    let mut parts = Vec::new();
    let mut start = 0;
    while start < size {
        let range = start..(start + unit).min(size);
        let copy =
            pieces(range.clone(), base, dirty).iter().all(|(_, source)| *source == Source::Base);
        start = range.end;
        parts.push(Part::Plain(Segment { range, copy }));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Limits =
        Limits { part_min: 10, part: 16, copy_max: 50, parts_max: 40, gap_min: 3, layers_max: 3 };

    fn check(size: u64, base: u64, dirty: &RangeSet, limits: &Limits) -> Result<(), TestCaseError> {
        let Plan::Parts(parts) = plan(size, base, dirty, limits) else {
            prop_assert!(size <= limits.whole_max());
            return Ok(());
        };
        prop_assert!(parts.len() <= limits.parts_max);
        let mut at = 0;
        for (index, part) in parts.iter().enumerate() {
            let range = part.range();
            prop_assert_eq!(range.start, at);
            prop_assert!(range.end > at);
            at = range.end;
            prop_assert!(
                index + 1 == parts.len() || range.end - range.start >= limits.part_min,
                "{:?}",
                parts
            );
            let segments = match part {
                Part::Plain(segment) => std::slice::from_ref(segment),
                Part::Composed(composed) => {
                    let Composed { lead, segments } = composed;
                    prop_assert!(segments.len() > 1);
                    prop_assert!(lead.as_ref().is_none_or(|lead| lead.end <= base));
                    let pieces = composed.pieces();
                    prop_assert!(pieces.len() > 1 && pieces[0].bytes() >= limits.part_min);
                    let left_out = bytes_of(&pieces) - bytes_of(segments);
                    prop_assert_eq!(
                        left_out,
                        lead.as_ref().map_or(0, |lead| lead.end - lead.start)
                    );
                    segments
                }
            };
            let mut inner = range.start;
            for segment in segments {
                prop_assert_eq!(segment.range.start, inner);
                inner = segment.range.end;
                if segment.copy {
                    prop_assert!(segment.range.end <= base);
                    prop_assert!(dirty.within(segment.range.clone()).next().is_none());
                }
            }
        }
        prop_assert_eq!(at, size);
        Ok(())
    }

    proptest! {
        #[test]
        fn parts_are_the_file(size in 0u64..400, base in 0u64..400, changes in prop::collection::vec((0u64..400, 1u64..30), 0..12)) {
            let mut dirty = RangeSet::default();
            for (start, length) in changes { dirty.insert(start.min(size)..(start + length).min(size)); }
            check(size, base.min(size), &dirty, &SMALL)?;
            check(size, base.min(size), &dirty, &Limits { parts_max: 26, ..SMALL })?;
        }

        #[test]
        fn pieces_are_the_range(base in 0u64..60, start in 0u64..50, length in 0u64..50, changes in prop::collection::vec((0u64..60, 1u64..9), 0..6)) {
            let mut dirty = RangeSet::default();
            for (start, length) in changes { dirty.insert(start..start + length); }
            let mut at = start;
            for (range, source) in pieces(start..start + length, base, &dirty) {
                prop_assert_eq!(range.start, at);
                at = range.end;
                for byte in range {
                    let is_dirty = dirty.within(byte..byte + 1).next().is_some();
                    let right = if is_dirty { Source::Spool } else if byte < base { Source::Base } else { Source::Zeros };
                    prop_assert_eq!(source, right);
                }
            }
            prop_assert_eq!(at, start + length);
        }
    }

    /// What is uploaded for 100 changes of 100 B at random places of an object.
    fn uploaded_for_changes(size: u64) -> u64 {
        let limits = Limits::s3(8 << 20);
        let mut dirty = RangeSet::default();
        let mut seed = 1u64;
        for _ in 0..100 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 33) % (size - 100);
            dirty.insert(at..at + 100);
        }
        check(size, size, &dirty, &limits).expect("the parts are the file");
        let Plan::Parts(parts) = plan(size, size, &dirty, &limits) else { panic!("it is large") };
        let uploaded: u64 = parts
            .iter()
            .flat_map(|part| match part {
                Part::Plain(segment) => vec![segment.clone()],
                Part::Composed(composed) => composed.segments.clone(),
            })
            .filter(|segment| !segment.copy)
            .map(|segment| segment.bytes())
            .sum();
        uploaded
    }

    #[test]
    fn small_changes_to_a_large_object_move_little() {
        for (size, most) in [(1 << 30, 8 << 20), (256 << 20, 24 << 20)] {
            let uploaded = uploaded_for_changes(size);
            assert!(uploaded < most, "{uploaded} bytes of {size}");
        }
    }

    /// What is uploaded for a change of 100 B in the middle of an object.
    fn uploaded_for_a_small_change(size: u64) -> u64 {
        const GIB: u64 = 1 << 30;
        let limits = Limits::s3(8 << 20);
        let dirty = RangeSet::of(size / 2..size / 2 + 100);
        check(size, size, &dirty, &limits).expect("the parts are the file");
        let Plan::Parts(parts) = plan(size, size, &dirty, &limits) else { panic!("it is large") };
        let segments = parts.into_iter().flat_map(|part| match part {
            Part::Plain(segment) => vec![segment],
            Part::Composed(composed) => composed.segments,
        });
        let (copied, uploaded): (Vec<_>, Vec<_>) = segments.partition(|segment| segment.copy);
        assert!(copied.iter().all(|segment| segment.bytes() <= 5 * GIB));
        uploaded.iter().map(Segment::bytes).sum()
    }

    #[test]
    fn a_small_change_to_the_largest_object_moves_little() {
        assert_eq!(uploaded_for_a_small_change(1 << 40), 100);
        assert_eq!(uploaded_for_a_small_change(5 << 40), 100);
    }

    #[test]
    fn an_append_uploads_what_was_appended() {
        let limits = Limits::s3(8 << 20);
        let size = 100 << 20;
        let dirty = RangeSet::of(size..size + 1000);
        let Plan::Parts(parts) = plan(size + 1000, size, &dirty, &limits) else {
            panic!("it is large")
        };
        assert_eq!(
            parts,
            [
                Part::Plain(Segment { range: 0..size, copy: true }),
                Part::Plain(Segment { range: size..size + 1000, copy: false }),
            ]
        );
    }
}
