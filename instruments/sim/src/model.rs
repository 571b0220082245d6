//! Reference model: what a file may contain, and which errors its descriptions are owed.
//!
//! A file is a plain array of bytes plus the *changes* not yet folded into it. Every event of a
//! run has a [`Moment`]; a change spans the moments from its request to its answer and takes
//! effect at some instant between. A read spans moments too, and each of its bytes may come from
//! any change that was not certainly overwritten, before the read began, by a change that began
//! after it ended (a regular register, byte by byte). What is ambiguous stays so only until a read
//! that overlaps no change observes it: from then on the observed value is the only one allowed.
//!
//! Truncating, punching and writing at home happen at one instant, since the file is frozen.
//!
//! Owns the expected content, size history and error history. Knows nothing of pages, patches,
//! fetches or devices: there is one definition of correctness, which is independent of the engine's
//! optimisations.
//!
//! Invariants:
//! - bytes past the end of the file are zero in every allowed content;
//! - `settled` holds whatever no unfolded change covers.

use std::rc::Rc;

use weir_engine::ErrorKind;

/// Fewer changes than this are not worth folding.
const CROWDED_MIN: usize = 12;

/// A point in the order of a run's events. Two events never share one.
pub type Moment = u64;

/// What a change puts in its range.
#[derive(Clone, Debug)]
enum Content {
    Zeros,
    /// The bytes, the first of which belongs at the offset.
    Bytes(Rc<[u8]>, u64),
}

impl Content {
    /// Whether `found`, read at `offset`, is what this content says.
    fn matches(&self, offset: u64, found: &[u8]) -> bool {
        match self {
            Content::Zeros => found.iter().all(|&byte| byte == 0),
            Content::Bytes(bytes, at) => {
                let first = (offset - at) as usize;
                bytes[first..first + found.len()] == *found
            }
        }
    }

    fn byte(&self, offset: u64) -> u8 {
        match self {
            Content::Zeros => 0,
            Content::Bytes(bytes, at) => bytes[(offset - at) as usize],
        }
    }
}

#[derive(Clone, Debug)]
struct Change {
    /// The write's; 0 for what is not a write.
    id: u64,
    /// Tells changes apart; pieces of one share it.
    serial: u64,
    start: Moment,
    /// `None` while it is not answered.
    end: Option<Moment>,
    from: u64,
    to: u64,
    content: Content,
    /// It took effect everywhere. A failed write may have, anywhere.
    certain: bool,
}

impl Change {
    fn covers(&self, from: u64, to: u64) -> bool {
        self.from <= from && to <= self.to
    }

    fn ended_before(&self, moment: Moment) -> bool {
        self.end.is_some_and(|end| end < moment)
    }
}

/// A byte that no allowed history explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where.
    pub offset: u64,
    /// What was found.
    pub found: u8,
    /// What would have been right.
    pub allowed: Vec<u8>,
}

/// The model of one file's content and size.
#[derive(Debug)]
pub struct FileModel {
    settled: Vec<u8>,
    /// In the order they began.
    changes: Vec<Change>,
    /// Since when the file has had which size; the first entry holds for all time before.
    sizes: Vec<(Moment, u64)>,
    last_truncate: Moment,
    last_serial: u64,
    /// Unfolded changes that make folding worth while.
    crowded: usize,
}

impl FileModel {
    /// A file with this content.
    pub fn new(content: Vec<u8>, now: Moment) -> FileModel {
        let sizes = vec![(now, content.len() as u64)];
        FileModel {
            settled: content,
            changes: Vec::new(),
            sizes,
            last_truncate: now,
            last_serial: 0,
            crowded: CROWDED_MIN,
        }
    }

    /// The size last observed.
    pub fn size(&self) -> u64 {
        self.sizes.last().map_or(0, |&(_, size)| size)
    }

    /// A write was asked for.
    pub fn begin_write(&mut self, id: u64, now: Moment, offset: u64, data: &[u8]) {
        self.last_serial += 1;
        self.changes.push(Change {
            id,
            serial: self.last_serial,
            start: now,
            end: None,
            from: offset,
            to: offset + data.len() as u64,
            content: Content::Bytes(data.into(), offset),
            certain: false,
        });
    }

    /// A write was answered. If it was taken and nothing cut it off meanwhile, the file must now
    /// reach its end.
    ///
    /// # Errors
    /// The size that is too small.
    pub fn end_write(&mut self, id: u64, now: Moment, taken: bool) -> Result<(), u64> {
        let size = self.size();
        let change = self
            .changes
            .iter_mut()
            .find(|change| change.id == id && change.end.is_none())
            .expect("a write ends once, after it began");
        change.end = Some(now);
        change.certain = taken;
        if taken && size < change.to && self.last_truncate < change.start {
            return Err(size);
        }
        Ok(())
    }

    /// The range became zeros at this instant.
    pub fn zero(&mut self, now: Moment, from: u64, to: u64) {
        self.instant(now, from, to, Content::Zeros);
    }

    /// The range took these bytes at this instant.
    pub fn replace(&mut self, now: Moment, offset: u64, data: &[u8]) {
        let to = offset + data.len() as u64;
        self.instant(now, offset, to, Content::Bytes(data.into(), offset));
    }

    /// The file was given this size at this instant; what lies past it is zero from now on.
    pub fn truncate(&mut self, now: Moment, size: u64) {
        self.zero(now, size, u64::MAX);
        self.last_truncate = now;
        self.sizes.push((now, size));
    }

    /// The file was extended to this size at this instant, by other means than a write.
    pub fn extend(&mut self, now: Moment, size: u64) {
        assert!(size >= self.size());
        self.sizes.push((now, size));
    }

    fn instant(&mut self, now: Moment, from: u64, to: u64, content: Content) {
        if from < to {
            self.last_serial += 1;
            self.changes.push(Change {
                id: 0,
                serial: self.last_serial,
                start: now,
                end: Some(now),
                from,
                to,
                content,
                certain: true,
            });
        }
    }

    /// Takes note of the size the engine shows.
    ///
    /// # Errors
    /// The largest size that would have been right, if no write under way or ended at this moment
    /// explains the size shown.
    pub fn observe_size(&mut self, now: Moment, shown: u64) -> Result<(), u64> {
        let current = self.size();
        if shown == current {
            return Ok(());
        }
        let reach = self
            .changes
            .iter()
            .filter(|change| !change.ended_before(now))
            .map(|change| change.to)
            .filter(|&to| to != u64::MAX)
            .fold(current, u64::max);
        if shown < current || shown > reach {
            return Err(reach);
        }
        self.sizes.push((now, shown));
        Ok(())
    }

    /// Whether a read of `want` bytes since `start` may return `got` bytes. Between two sizes that
    /// were observed the file may have had others, on its way from write to write.
    pub fn length_allowed(&self, start: Moment, offset: u64, want: u64, got: u64) -> bool {
        let passed = self
            .changes
            .iter()
            .filter(|change| change.to != u64::MAX && !change.ended_before(start))
            .map(|change| change.to);
        let low = self.size_range(start).0;
        self.sizes_since(start)
            .chain(passed.filter(|&to| to > low))
            .any(|size| size.saturating_sub(offset).min(want) == got)
    }

    /// Smallest and largest size since `start`.
    pub fn size_range(&self, start: Moment) -> (u64, u64) {
        self.sizes_since(start)
            .fold((u64::MAX, 0), |(low, high), size| (low.min(size), high.max(size)))
    }

    fn sizes_since(&self, start: Moment) -> impl Iterator<Item = u64> {
        let first = self.sizes.partition_point(|&(moment, _)| moment < start).saturating_sub(1);
        self.sizes[first..].iter().map(|&(_, size)| size)
    }

    /// Checks bytes a read returned that began at `start` and ends now. What it observed of bytes
    /// that nothing was changing is from now on the only content allowed there.
    ///
    /// # Errors
    /// The first byte no allowed history explains.
    pub fn observe(&mut self, start: Moment, offset: u64, found: &[u8]) -> Result<(), Mismatch> {
        self.check(start, offset, found)?;
        let mut pins = Vec::new();
        for (from, to) in self.pieces(offset, offset + found.len() as u64) {
            let covering = || self.changes.iter().filter(|change| change.covers(from, to));
            if covering().any(|change| !change.ended_before(start)) {
                continue;
            }
            let (candidates, base) = self.candidates(from, to, start);
            if candidates.len() + usize::from(base) > 1 {
                let bytes = &found[(from - offset) as usize..(to - offset) as usize];
                pins.push((from, bytes.to_vec()));
            }
        }
        for (from, bytes) in pins {
            self.replace(start, from, &bytes);
        }
        Ok(())
    }

    /// Checks bytes that are said to hold everything that ended before `start`, and may hold
    /// anything up to now: a home image, or its durable part.
    ///
    /// # Errors
    /// The first byte no allowed history explains.
    pub fn check(&self, start: Moment, offset: u64, found: &[u8]) -> Result<(), Mismatch> {
        self.check_against(offset, found, |from, to| self.candidates(from, to, start))
    }

    /// Checks the bytes of a write's range that are said to hold that write, or whatever came
    /// after it.
    ///
    /// # Errors
    /// The first byte that is from before the write.
    pub fn check_write(&self, id: u64, offset: u64, found: &[u8]) -> Result<(), Mismatch> {
        let write = self.changes.iter().find(|change| change.id == id);
        let start = write.expect("a write just ended is not folded yet").start;
        self.check_against(offset, found, |from, to| {
            let since = |change: &Change| change.covers(from, to) && !change.ended_before(start);
            let candidates = (0..self.changes.len()).filter(|&at| since(&self.changes[at]));
            (candidates.collect(), false)
        })
    }

    fn check_against(
        &self,
        offset: u64,
        found: &[u8],
        allowed: impl Fn(u64, u64) -> (Vec<usize>, bool),
    ) -> Result<(), Mismatch> {
        for (from, to) in self.pieces(offset, offset + found.len() as u64) {
            let bytes = &found[(from - offset) as usize..(to - offset) as usize];
            let (candidates, base) = allowed(from, to);
            if base && self.settled_matches(from, bytes)
                || candidates.iter().any(|&at| self.changes[at].content.matches(from, bytes))
            {
                continue;
            }
            for (offset, &byte) in (from..).zip(bytes) {
                let mut allowed: Vec<u8> = candidates
                    .iter()
                    .map(|&at| self.changes[at].content.byte(offset))
                    .chain(base.then(|| self.settled_byte(offset)))
                    .collect();
                if !allowed.contains(&byte) {
                    allowed.sort_unstable();
                    allowed.dedup();
                    return Err(Mismatch { offset, found: byte, allowed });
                }
            }
        }
        Ok(())
    }

    /// Folds into plain bytes whatever no request that began at or after `horizon` can tell
    /// apart any more.
    pub fn settle(&mut self, horizon: Moment) {
        let kept = self.sizes.partition_point(|&(moment, _)| moment < horizon).saturating_sub(1);
        self.sizes.drain(..kept);
        if self.changes.is_empty() {
            return;
        }
        let mut unfolded: Vec<Change> = Vec::new();
        for (from, to) in self.pieces(0, u64::MAX) {
            let (candidates, base) = self.candidates(from, to, horizon);
            match candidates[..] {
                [] => {}
                [only] if !base && self.changes[only].ended_before(horizon) => {
                    let content = self.changes[only].content.clone();
                    self.fold(from, to, &content);
                }
                _ => unfolded.extend(candidates.iter().map(|&at| Change {
                    from,
                    to,
                    ..self.changes[at].clone()
                })),
            }
        }
        // A write not answered yet is looked up by its identifier: it is kept whole.
        unfolded.retain(|change| change.end.is_some());
        unfolded.extend(self.changes.iter().filter(|change| change.end.is_none()).cloned());
        unfolded.sort_by_key(|change| (change.start, change.serial, change.from));
        unfolded.dedup_by(|next, change| {
            let joins = next.serial == change.serial && next.from == change.to;
            if joins {
                change.to = next.to;
            }
            joins
        });
        self.changes = unfolded;
        self.crowded = CROWDED_MIN.max(2 * self.changes.len());
    }

    /// Whether enough changes are unfolded that [`FileModel::settle`] is worth its work.
    pub fn is_crowded(&self) -> bool {
        self.changes.len() > self.crowded
    }

    fn fold(&mut self, from: u64, to: u64, content: &Content) {
        match content {
            Content::Zeros => {
                let len = self.settled.len() as u64;
                if to >= len {
                    self.settled.truncate(from.min(len) as usize);
                } else {
                    self.settled[from as usize..to as usize].fill(0);
                }
            }
            Content::Bytes(bytes, at) => {
                if (self.settled.len() as u64) < to {
                    self.settled.resize(to as usize, 0);
                }
                let piece = &bytes[(from - at) as usize..(to - at) as usize];
                self.settled[from as usize..to as usize].copy_from_slice(piece);
            }
        }
    }

    fn settled_byte(&self, offset: u64) -> u8 {
        usize::try_from(offset).ok().and_then(|at| self.settled.get(at)).copied().unwrap_or(0)
    }

    fn settled_matches(&self, offset: u64, found: &[u8]) -> bool {
        let len = self.settled.len();
        let first = usize::try_from(offset).unwrap_or(usize::MAX).min(len);
        let known = &self.settled[first..len.min(first.saturating_add(found.len()))];
        found[..known.len()] == *known && found[known.len()..].iter().all(|&byte| byte == 0)
    }

    /// The range cut wherever a change begins or ends.
    fn pieces(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut cuts = vec![from, to];
        for change in &self.changes {
            cuts.extend([change.from, change.to].into_iter().filter(|&cut| from < cut && cut < to));
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    /// The changes whose bytes a read of a piece since `start` may return, and whether what was
    /// there before all of them still may be.
    fn candidates(&self, from: u64, to: u64, start: Moment) -> (Vec<usize>, bool) {
        // The latest beginning of a change that had certainly taken effect before `start`: what
        // ended before that is overwritten.
        let mut overwritten: Option<Moment> = None;
        for change in self.changes.iter().filter(|change| change.covers(from, to)) {
            if change.certain && change.ended_before(start) {
                overwritten = overwritten.max(Some(change.start));
            }
        }
        let kept = |change: &Change| match overwritten {
            Some(moment) => !change.ended_before(moment),
            None => true,
        };
        let candidates = (0..self.changes.len())
            .filter(|&at| self.changes[at].covers(from, to) && kept(&self.changes[at]))
            .collect();
        (candidates, overwritten.is_none())
    }
}

/// The errors of one file, and those that were reported to each description.
#[derive(Debug, Default)]
pub struct ErrorLedger {
    events: Vec<ErrorEvent>,
}

#[derive(Debug)]
struct ErrorEvent {
    moment: Moment,
    kind: ErrorKind,
    /// Descriptions open at the time must get the error; otherwise they may get it.
    owed: bool,
}

impl ErrorLedger {
    /// A transfer of the file failed.
    pub fn record(&mut self, moment: Moment, kind: ErrorKind, owed: bool) {
        self.events.push(ErrorEvent { moment, kind, owed });
    }

    /// Whether a request that began at `start` may answer with this kind.
    pub fn explains(&self, start: Moment, kind: ErrorKind) -> bool {
        self.events.iter().any(|event| event.moment >= start && event.kind == kind)
    }

    /// Checks the error that a description got, if it last got one at `seen`.
    ///
    /// # Errors
    /// The kind that it should have got, or `None` if it should have got none.
    pub fn judge(&self, seen: Moment, told: Option<ErrorKind>) -> Result<(), Option<ErrorKind>> {
        let since = || self.events.iter().filter(|event| event.moment > seen);
        match told {
            Some(kind) if since().any(|event| event.kind == kind) => Ok(()),
            Some(_) => Err(since().map(|event| event.kind).next_back()),
            None => match since().filter(|event| event.owed).map(|event| event.kind).next_back() {
                Some(kind) => Err(Some(kind)),
                None => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_write_hides_what_was_there() {
        let mut file = FileModel::new(vec![1; 8], 0);
        file.begin_write(1, 1, 2, &[2; 4]);
        file.end_write(1, 2, true).unwrap();
        assert!(file.observe(3, 0, &[1, 1, 2, 2, 2, 2, 1, 1]).is_ok());
        let mismatch = file.check(3, 0, &[1; 8]).unwrap_err();
        assert_eq!(mismatch, Mismatch { offset: 2, found: 1, allowed: vec![2] });
    }

    #[test]
    fn a_write_under_way_may_or_may_not_be_seen() {
        let mut file = FileModel::new(vec![1; 4], 0);
        file.begin_write(1, 2, 0, &[2; 4]);
        assert!(file.observe(1, 0, &[1, 2, 1, 2]).is_ok());
        assert!(file.observe(1, 0, &[2, 1, 2, 1]).is_ok());
        assert!(file.check(1, 0, &[3, 1, 1, 1]).is_err());
    }

    #[test]
    fn what_concurrent_writes_left_is_settled_by_the_first_read_after_them() {
        let mut file = FileModel::new(vec![0; 2], 0);
        file.begin_write(1, 1, 0, &[1, 1]);
        file.begin_write(2, 2, 0, &[2, 2]);
        file.end_write(2, 3, true).unwrap();
        file.end_write(1, 4, true).unwrap();
        assert!(file.check(5, 0, &[0, 1]).is_err());
        file.settle(5);
        assert!(file.observe(5, 0, &[1, 2]).is_ok());
        assert!(file.check(6, 0, &[1, 1]).is_err());
        file.settle(7);
        assert!(file.changes.is_empty());
        assert!(file.check(7, 0, &[1, 2]).is_ok());
    }

    #[test]
    fn a_failed_write_may_have_happened_anywhere() {
        let mut file = FileModel::new(vec![1; 3], 0);
        file.begin_write(1, 1, 0, &[2; 3]);
        file.end_write(1, 2, false).unwrap();
        file.settle(3);
        assert!(file.observe(3, 0, &[1, 2, 1]).is_ok());
        assert!(file.check(4, 0, &[1, 1, 1]).is_err());
    }

    #[test]
    fn past_a_truncation_there_are_zeros() {
        let mut file = FileModel::new(vec![1; 6], 0);
        file.truncate(1, 2);
        file.begin_write(1, 2, 4, &[3]);
        file.observe_size(3, 5).unwrap();
        file.end_write(1, 4, true).unwrap();
        file.settle(5);
        assert!(file.length_allowed(5, 0, 100, 5));
        assert!(!file.length_allowed(5, 0, 100, 6));
        assert!(file.observe(5, 0, &[1, 1, 0, 0, 3]).is_ok());
        assert!(file.changes.is_empty());
    }

    #[test]
    fn a_size_nothing_explains_is_refused() {
        let mut file = FileModel::new(vec![1; 6], 0);
        assert_eq!(file.observe_size(1, 7), Err(6));
        assert_eq!(file.observe_size(2, 5), Err(6));
        file.begin_write(1, 3, 6, &[1, 2]);
        assert!(file.observe_size(3, 8).is_ok());
    }

    #[test]
    fn a_description_is_told_once() {
        let mut ledger = ErrorLedger::default();
        ledger.record(5, ErrorKind::Io, true);
        assert_eq!(ledger.judge(4, None), Err(Some(ErrorKind::Io)));
        assert_eq!(ledger.judge(4, Some(ErrorKind::Io)), Ok(()));
        assert_eq!(ledger.judge(5, Some(ErrorKind::Io)), Err(None));
        assert_eq!(ledger.judge(5, None), Ok(()));
    }
}
