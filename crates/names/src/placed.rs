//! Where home has the nodes of a log, if its file handles do not last. It holds what the log's records of places and steps
//! say ([`weir_log::NameRecord::Place`], [`weir_log::NameRecord::Step`]), and is kept by whoever writes those records.
//!
//! Nodes are given by their numbers in the log, also those of the directories that names are in.
//!
//! Invariant: the directory of a name is the root, or a node of the table.

use std::collections::{HashMap, HashSet};

use weir_log::{FileType, Lsn};

use crate::identity::NodeId;
use crate::places::Places;
use crate::tree::Step;
use crate::way::Place;

/// A node that the log speaks of.
#[derive(Clone, Debug)]
struct Said {
    file_type: FileType,
    /// The last record that mentions it.
    last: Lsn,
}

/// The table. A node without a name is parked, or gone.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    nodes: HashMap<NodeId, Said>,
    places: Places,
}

impl Placed {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether the log has said where a node is. The root needs no record.
    pub fn has(&self, node: NodeId) -> bool {
        node == NodeId::ROOT || self.nodes.contains_key(&node)
    }

    /// The node that home has under a name, if the log has said so.
    pub fn node_at(&self, at: &Place) -> Option<NodeId> {
        self.places.node_at(at)
    }

    /// A record says that home has the node under a name; `None` if it is parked.
    pub fn place(&mut self, node: NodeId, file_type: FileType, at: Option<&Place>, lsn: Lsn) {
        self.nodes.entry(node).or_insert(Said { file_type, last: lsn }).last = lsn;
        if let Some(at) = at {
            self.places.put(node, at);
        }
    }

    /// A record says that home did a step, to a node that it had or that the step made.
    pub fn stepped(&mut self, step: &Step, file_type: FileType, lsn: Lsn) {
        if let Some(from) = &step.from {
            self.places.take(step.node, from);
        }
        self.place(step.node, file_type, step.to.as_ref(), lsn);
    }

    /// A record of a change mentions a node.
    pub fn mentioned(&mut self, node: NodeId, lsn: Lsn) {
        if let Some(of) = self.nodes.get_mut(&node) {
            of.last = of.last.max(lsn);
        }
    }

    /// Forgets the nodes that no record mentions from `tail` on and that `is_needed` does not name, if they are not
    /// directories above others that stay.
    pub fn forget(&mut self, tail: Lsn, is_needed: impl Fn(NodeId) -> bool) {
        let mut stay: HashSet<NodeId> = HashSet::new();
        for (&node, of) in &self.nodes {
            if of.last < tail && !is_needed(node) {
                continue;
            }
            let mut pending = vec![node];
            while let Some(node) = pending.pop() {
                if stay.insert(node) {
                    pending.extend(self.places.of(node).map(Place::parent));
                }
            }
        }
        let Self { nodes, places } = self;
        nodes.retain(|&node, _| {
            let stays = stay.contains(&node);
            if !stays {
                places.remove(node);
            }
            stays
        });
    }

    /// Each name that home has of a node, with what the node is.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, FileType, &Place)> {
        self.nodes
            .iter()
            .flat_map(|(&node, of)| self.places.of(node).map(move |at| (node, of.file_type, at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileType = FileType::File;

    fn at(parent: u64, name: &str) -> Place {
        Place::new(NodeId(parent), name.as_bytes()).unwrap()
    }

    fn step(node: u64, from: Option<&str>, to: Option<&str>) -> Step {
        let place = |name: Option<&str>| name.map(|name| at(1, name));
        Step { node: NodeId(node), from: place(from), to: place(to) }
    }

    #[test]
    fn a_step_takes_a_name_and_gives_one_and_parks_a_node_without() {
        let mut places = Placed::default();
        places.place(NodeId(7), FILE, Some(&at(1, "a")), Lsn(0));
        places.place(NodeId(8), FILE, Some(&at(1, "b")), Lsn(0));
        places.stepped(&step(7, Some("a"), Some("b")), FILE, Lsn(1));
        assert_eq!(places.node_at(&at(1, "b")), Some(NodeId(7)));
        assert!(places.has(NodeId(8)) && places.iter().count() == 1);
        // It is parked, and comes back; a second name is a link.
        places.stepped(&step(7, Some("b"), None), FILE, Lsn(2));
        assert!(places.has(NodeId(7)) && places.iter().count() == 0);
        places.stepped(&step(7, None, Some("c")), FILE, Lsn(3));
        places.stepped(&step(7, None, Some("d")), FILE, Lsn(4));
        places.stepped(&step(9, None, Some("e")), FILE, Lsn(5));
        let all: Vec<_> = places.iter().map(|(node, ..)| node.0).collect();
        assert_eq!(all.iter().filter(|&&node| node == 7).count(), 2);
        assert!(all.len() == 3 && places.node_at(&at(1, "e")) == Some(NodeId(9)));
    }

    #[test]
    fn directories_stay_as_long_as_anything_below_them() {
        let mut places = Placed::default();
        places.place(NodeId(2), FileType::Directory, Some(&at(1, "d")), Lsn(10));
        places.place(NodeId(3), FileType::Directory, Some(&at(2, "e")), Lsn(20));
        places.place(NodeId(4), FILE, Some(&at(3, "f")), Lsn(30));
        places.place(NodeId(5), FILE, Some(&at(3, "g")), Lsn(40));
        places.mentioned(NodeId(5), Lsn(70));
        places.forget(Lsn(60), |_| false);
        assert!(!places.has(NodeId(4)) && places.node_at(&at(3, "f")).is_none());
        assert!([2, 3, 5].into_iter().all(|node| places.has(NodeId(node))));
        places.forget(Lsn(80), |node| node == NodeId(3));
        assert_eq!(places.iter().count(), 2);
        places.forget(Lsn(80), |_| false);
        assert!(places.is_empty() && places.has(NodeId::ROOT));
    }
}
