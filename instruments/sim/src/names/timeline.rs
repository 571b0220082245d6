//! All that programs did, in one order: names and bytes together, for mounts that log everything.
//!
//! Calls, their ends and changes of names have a *time*, which counts them. A change of names happens at its time, a change of
//! a file's bytes at some time between its call and its end. After a crash there must be one time at which everything is
//! as it was found, and not before the last acknowledged sync began.

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_names::NodeId;

/// A change of a file's bytes. One file has one at a time.
#[derive(Clone, Debug)]
struct Edited {
    called: u64,
    ended: Option<u64>,
    /// It was promised to be durable when it ended.
    promised: bool,
    after: Rc<[u8]>,
}

/// A file's bytes when its life began, and what became of them.
#[derive(Clone, Debug)]
struct Bytes {
    first: Rc<[u8]>,
    edits: Vec<Edited>,
}

/// The order: see the module.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    now: u64,
    /// When each moment of the names began; the first one at 0.
    moments: Vec<u64>,
    files: BTreeMap<NodeId, Bytes>,
    /// An acknowledged sync covered everything up to this time.
    promised: u64,
}

impl Timeline {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A file that is there with these bytes.
    pub(super) fn file(&mut self, node: NodeId, content: &[u8]) {
        self.files.insert(node, Bytes { first: content.into(), edits: Vec::new() });
    }

    /// A change of names.
    pub(super) fn names_changed(&mut self) {
        let now = self.tick();
        self.moments.push(now);
    }

    /// A call begins, at this time.
    pub(super) fn called(&mut self) -> u64 {
        self.tick()
    }

    /// A call begins that leaves a file with these bytes.
    pub(super) fn edits(&mut self, node: NodeId, after: &[u8]) {
        let called = self.tick();
        let edit = Edited { called, ended: None, promised: false, after: after.into() };
        self.files.get_mut(&node).expect("it is a file").edits.push(edit);
    }

    /// It ends, and is durable if `promised`.
    pub(super) fn edited(&mut self, node: NodeId, promised: bool) {
        let now = self.tick();
        let edits = &mut self.files.get_mut(&node).expect("it is a file").edits;
        let last = edits.last_mut().expect("it was called");
        (last.ended, last.promised) = (Some(now), promised);
        if promised {
            self.promised = self.promised.max(last.called);
        }
    }

    /// It was refused.
    pub(super) fn withdraw(&mut self, node: NodeId) {
        self.files.get_mut(&node).expect("it is a file").edits.pop().expect("it was called");
    }

    /// A sync that was called then is acknowledged.
    pub(super) fn synced(&mut self, called: u64) {
        self.promised = self.promised.max(called);
    }

    /// The times that may be found at which names are as at a moment, the latest first.
    pub(super) fn times_of(&self, moment: usize) -> impl Iterator<Item = u64> {
        let start = moment.checked_sub(1).map_or(0, |nth| self.moments[nth]);
        let end = self.moments.get(moment).copied().unwrap_or(self.now + 1);
        (start.max(self.promised)..end).rev()
    }

    /// Whether a file may have these bytes at a time.
    pub(super) fn may_have(&self, node: NodeId, time: u64, found: &[u8]) -> bool {
        let (before, open) = self.bytes_at(node, time);
        open.is_some_and(|edit| *edit.after == *found)
            || **before == *found && !open.is_some_and(|edit| edit.promised)
    }

    /// How bytes differ from those that a file had at a time, for messages.
    pub(super) fn difference(&self, node: NodeId, time: u64, found: &[u8]) -> String {
        let wanted = self.bytes_at(node, time).0;
        let at = found.iter().zip(wanted.iter()).position(|(found, wanted)| found != wanted);
        let (bytes, had) = (found.len(), wanted.len());
        match at {
            Some(at) => {
                let (found, wanted) = (found[at], wanted[at]);
                format!("has {found:#04x} and had {wanted:#04x} as byte {at}, of {bytes} and {had}")
            }
            None => format!("has {bytes} bytes and had {had}"),
        }
    }

    /// The bytes that a file had for certain, and the change that was under way.
    fn bytes_at(&self, node: NodeId, time: u64) -> (&Rc<[u8]>, Option<&Edited>) {
        let bytes = &self.files[&node];
        let ended = bytes.edits.iter().take_while(|edit| edit.ended.is_some_and(|at| at <= time));
        let ended = ended.count();
        let before = ended.checked_sub(1).map_or(&bytes.first, |last| &bytes.edits[last].after);
        (before, bytes.edits.get(ended).filter(|edit| edit.called <= time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NodeId = NodeId(7);
    const OTHER: NodeId = NodeId(8);

    fn may_be(timeline: &Timeline, moment: usize, one: &[u8], other: &[u8]) -> bool {
        let has = |node, time, found| timeline.may_have(node, time, found);
        timeline.times_of(moment).any(|time| has(ONE, time, one) && has(OTHER, time, other))
    }

    #[test]
    fn two_files_are_found_as_at_one_time() {
        let mut timeline = Timeline::default();
        timeline.file(ONE, b"");
        timeline.file(OTHER, b"");
        for (node, after) in [(ONE, b"1"), (OTHER, b"1"), (ONE, b"2")] {
            timeline.edits(node, after);
            timeline.edited(node, false);
        }
        assert!(may_be(&timeline, 0, b"", b"") && may_be(&timeline, 0, b"1", b""));
        assert!(may_be(&timeline, 0, b"1", b"1") && may_be(&timeline, 0, b"2", b"1"));
        assert!(!may_be(&timeline, 0, b"2", b"") && !may_be(&timeline, 0, b"", b"1"));
        let called = timeline.called();
        timeline.synced(called);
        assert!(!may_be(&timeline, 0, b"1", b"1") && may_be(&timeline, 0, b"2", b"1"));
    }

    #[test]
    fn bytes_are_of_the_time_of_the_names() {
        let mut timeline = Timeline::default();
        timeline.file(ONE, b"");
        timeline.file(OTHER, b"");
        timeline.edits(ONE, b"1");
        timeline.names_changed();
        assert!(
            may_be(&timeline, 1, b"", b"") && may_be(&timeline, 1, b"1", b""),
            "it is under way"
        );
        timeline.edited(ONE, false);
        timeline.names_changed();
        assert!(may_be(&timeline, 0, b"1", b"") && !may_be(&timeline, 2, b"", b""));
    }

    #[test]
    fn a_durable_write_is_found_when_it_has_ended() {
        let mut timeline = Timeline::default();
        timeline.file(ONE, b"");
        timeline.file(OTHER, b"");
        timeline.edits(ONE, b"1");
        timeline.edited(ONE, true);
        assert!(may_be(&timeline, 0, b"1", b"") && !may_be(&timeline, 0, b"", b""));
    }
}
