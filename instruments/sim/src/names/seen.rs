//! What programs saw, moment by moment, and what they were promised. It knows nothing of the log, of the tree of names or of
//! home: only calls, their answers, and which of the answers were those of a sync.

use std::collections::BTreeMap;

use weir_log::Lsn;
use weir_names::tree::{Attributes, Change};
use weir_names::{NodeId, Place};

use super::home::entries_after;
use super::plain::{Picture, Plain, Wrong};
use crate::crash::history::History;

/// The state after one change.
struct Moment {
    state: Plain,
    picture: Picture,
    /// Where the log has the change. Only the check of the tail asks for it.
    lsn: Lsn,
}

/// A file took the name of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaced {
    /// By this change.
    pub(super) moment: usize,
    pub(super) node: NodeId,
    /// How far the file had been written.
    pub(super) position: usize,
}

/// What programs saw: see the module. Moments are numbered from 0.
pub(super) struct Seen {
    moments: Vec<Moment>,
    entries: BTreeMap<Place, Vec<(usize, Option<NodeId>)>>,
    attributes: BTreeMap<NodeId, Vec<(usize, Attributes)>>,
    pub(super) histories: BTreeMap<NodeId, History>,
    pub(super) replaced: Vec<Replaced>,
    /// An acknowledged sync covered the change that led to this moment.
    pub(super) promised: usize,
}

impl Seen {
    pub(super) fn new(state: Plain) -> Seen {
        let entries = state.entries().map(|(at, node)| (at.clone(), vec![(0, Some(node))]));
        let entries = entries.collect();
        let attributes = state
            .inodes()
            .map(|node| (node, vec![(0, state.inode(node).expect("it is listed").attributes)]));
        let attributes = attributes.collect();
        let picture = state.picture();
        Seen {
            moments: vec![Moment { state, picture, lsn: Lsn(0) }],
            entries,
            attributes,
            histories: BTreeMap::new(),
            replaced: Vec::new(),
            promised: 0,
        }
    }

    /// The last moment.
    pub(super) fn moment(&self) -> usize {
        self.moments.len() - 1
    }

    pub(super) fn now(&self) -> &Plain {
        &self.moments[self.moment()].state
    }

    pub(super) fn state(&self, moment: usize) -> &Plain {
        &self.moments[moment].state
    }

    pub(super) fn picture(&self, moment: usize) -> &Picture {
        &self.moments[moment].picture
    }

    /// Whether a program's call succeeds.
    pub(super) fn check(&self, change: &Change) -> Result<(), Wrong> {
        let alive = |at: &Place| self.now().is_below(at.parent(), NodeId::ROOT);
        if !change.names().all(alive) {
            return Err(Wrong::Name);
        }
        self.now().clone().apply(change)
    }

    /// A program's call succeeded.
    pub(super) fn did(&mut self, change: &Change, lsn: Lsn) {
        let mut state = self.now().clone();
        state.apply(change).expect("it was checked");
        let moment = self.moments.len();
        for (at, node) in entries_after(change) {
            self.entries.entry(at.clone()).or_default().push((moment, node));
        }
        if let Change::Make { node, .. } | Change::Set { node, .. } = change {
            let now = state.inode(*node).expect("it was made").attributes;
            self.attributes.entry(*node).or_default().push((moment, now));
        }
        state.forget_nameless();
        let picture = state.picture();
        self.moments.push(Moment { state, picture, lsn });
    }

    /// Home has this under a name now, and before had what programs gave it at the moment `before`: the first moment at
    /// which it may have been given that.
    pub(super) fn version_of_entry(
        &self,
        at: &Place,
        node: Option<NodeId>,
        before: usize,
    ) -> usize {
        first(self.entries.get(at), &node, before)
    }

    /// The first moment from which on there is no such node.
    pub(super) fn version_without(&self, node: NodeId) -> usize {
        let is_there = |moment: &Moment| moment.state.inode(node).is_some();
        let last = self.moments.iter().rposition(is_there);
        last.filter(|&last| last < self.moment()).map_or(0, |last| last + 1)
    }

    /// The same of attributes.
    pub(super) fn version_of_attributes(&self, node: NodeId, found: &Attributes) -> usize {
        first(self.attributes.get(&node), found, 0)
    }

    /// The names that programs changed, and what the last change before a position of the log gave each, unless it was
    /// changed after that position, too.
    pub(super) fn entries_settled_before(
        &self,
        tail: Lsn,
    ) -> impl Iterator<Item = (&Place, usize, Option<NodeId>)> {
        self.entries.iter().filter_map(move |(at, all)| {
            let &(moment, node) = all.last()?;
            (moment > 0 && self.moments[moment].lsn < tail).then_some((at, moment, node))
        })
    }

    /// The same of attributes.
    pub(super) fn attributes_settled_before(
        &self,
        tail: Lsn,
    ) -> impl Iterator<Item = (NodeId, usize, &Attributes)> {
        self.attributes.iter().filter_map(move |(node, all)| {
            let (moment, attributes) = all.last()?;
            let is_before = *moment > 0 && self.moments[*moment].lsn < tail;
            is_before.then_some((*node, *moment, attributes))
        })
    }
}

/// The start of the first interval with this value that did not end before `before`.
fn first<T: PartialEq>(all: Option<&Vec<(usize, T)>>, value: &T, before: usize) -> usize {
    let all = all.map_or(&[][..], Vec::as_slice);
    let ends = all.iter().skip(1).map(|(moment, _)| *moment).chain([usize::MAX]);
    let of_value = all.iter().zip(ends).filter(|((_, of), end)| of == value && *end > before);
    of_value.map(|((start, _), _)| *start).next().map_or(before, |start| start.max(before))
}
