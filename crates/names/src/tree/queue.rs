//! Parts that are to be looked at: now, when the log is durable further, when something about a node changed, or when home
//! is tried again.
//!
//! A part may be queued more than once. The planner decides when it is taken, and may find that nothing is to be done.

use std::collections::{BTreeMap, HashMap, VecDeque};

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::command::HomeError;
use crate::tree::part::Part;

/// The parts that are not known to be as they should be.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ready: VecDeque<Part>,
    uncommitted: BTreeMap<Lsn, Vec<Part>>,
    waiting: HashMap<NodeId, Vec<Part>>,
    refused: HashMap<Part, HomeError>,
}

impl Queue {
    /// Is to be looked at now.
    pub(crate) fn push(&mut self, part: Part) {
        self.ready.push_back(part);
    }

    /// Was changed at a position. If home refused it, home is asked again.
    pub(crate) fn changed(&mut self, lsn: Lsn, part: Part) {
        self.refused.remove(&part);
        self.wait_for_commit(lsn, part);
    }

    /// Is to be looked at when a position is durable.
    pub(crate) fn wait_for_commit(&mut self, lsn: Lsn, part: Part) {
        self.uncommitted.entry(lsn).or_default().push(part);
    }

    /// Is to be looked at when something about a node changes.
    pub(crate) fn wait_for(&mut self, node: NodeId, part: Part) {
        self.waiting.entry(node).or_default().push(part);
    }

    /// Home refused it: it is not looked at before [`Queue::retry`] or another change.
    pub(crate) fn refuse(&mut self, part: Part, error: HomeError) {
        self.refused.insert(part, error);
    }

    /// Everything before this position is durable.
    pub(crate) fn commit(&mut self, durable: Lsn) {
        let later = self.uncommitted.split_off(&durable);
        let committed = std::mem::replace(&mut self.uncommitted, later);
        self.ready.extend(committed.into_values().flatten());
    }

    /// Something about a node changed.
    pub(crate) fn wake(&mut self, node: NodeId) {
        self.ready.extend(self.waiting.remove(&node).unwrap_or_default());
    }

    /// What home refused is looked at again.
    pub(crate) fn retry(&mut self) {
        self.ready.extend(self.refused.drain().map(|(part, _)| part));
    }

    /// A part is as it should be, or is not there any more.
    pub(crate) fn settle(&mut self, part: &Part) {
        self.refused.remove(part);
    }

    /// The next part to be looked at.
    pub(crate) fn pop(&mut self) -> Option<Part> {
        loop {
            let part = self.ready.pop_front()?;
            if !self.refused.contains_key(&part) {
                return Some(part);
            }
        }
    }

    /// What home refused, and why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&Part, HomeError)> {
        self.refused.iter().map(|(part, &error)| (part, error))
    }

    /// All parts that stand here.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        let uncommitted = self.uncommitted.values().flatten();
        let waiting = self.waiting.values().flatten();
        self.ready.iter().chain(uncommitted).chain(waiting).chain(self.refused.keys())
    }
}
