//! Which node home has under each name, as far as it is known, and under which names it has a node.
//!
//! Invariant: a name leads to one node at most.

use std::collections::{BTreeSet, HashMap};

use crate::identity::NodeId;
use crate::way::Place;

/// The table, read both ways.
#[derive(Clone, Debug, Default)]
pub struct Places {
    at: HashMap<Place, NodeId>,
    of: HashMap<NodeId, BTreeSet<Place>>,
}

impl Places {
    /// The node under a name.
    pub fn node_at(&self, at: &Place) -> Option<NodeId> {
        self.at.get(at).copied()
    }

    /// The names of a node, in order.
    pub fn of(&self, node: NodeId) -> impl Iterator<Item = &Place> {
        self.of.get(&node).into_iter().flatten()
    }

    /// The nodes that have a name.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.of.keys().copied()
    }

    /// A node has this name, and nothing else has it.
    pub fn put(&mut self, node: NodeId, at: &Place) {
        self.vacate(at);
        self.at.insert(at.clone(), node);
        self.of.entry(node).or_default().insert(at.clone());
    }

    /// A node does not have this name. Nothing happens if another one has it.
    pub fn take(&mut self, node: NodeId, at: &Place) {
        if self.node_at(at) == Some(node) {
            self.vacate(at);
        }
    }

    /// Nothing has this name.
    pub fn vacate(&mut self, at: &Place) {
        let Some(node) = self.at.remove(at) else { return };
        if let Some(places) = self.of.get_mut(&node) {
            places.remove(at);
            if places.is_empty() {
                self.of.remove(&node);
            }
        }
    }

    /// A node has no name.
    pub fn remove(&mut self, node: NodeId) {
        for at in self.of.remove(&node).unwrap_or_default() {
            self.at.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> Place {
        Place::new(NodeId::ROOT, name.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_leads_to_what_was_put_there_last() {
        let (mut places, one, other) = (Places::default(), NodeId(7), NodeId(8));
        places.put(one, &at("a"));
        places.put(one, &at("b"));
        places.put(other, &at("b"));
        assert_eq!(places.node_at(&at("b")), Some(other));
        assert_eq!(places.of(one).collect::<Vec<_>>(), [&at("a")]);
        // It leads elsewhere.
        places.take(one, &at("b"));
        assert_eq!(places.node_at(&at("b")), Some(other));
        places.put(other, &at("c"));
        places.remove(other);
        places.take(one, &at("a"));
        assert_eq!((places.nodes().count(), places.node_at(&at("c"))), (0, None));
    }
}
