//! Where home has the nodes of a log, on a home that has no handles which last: what the log's records of places and steps
//! say ([`weir_log::NameRecord::Place`], [`weir_log::NameRecord::Step`]). The mount that writes them and the recovery that reads
//! them keep the same table.
//!
//! Nodes are given by their numbers in the log, also those of the directories that names are in.
//!
//! Invariants:
//! - a name leads to one node at most;
//! - the directory of a name is the root, or a node of the table.

use std::collections::{HashMap, HashSet};

use weir_log::{FileType, Lsn};

use crate::identity::NodeId;
use crate::way::Place;

/// A node that the log speaks of.
#[derive(Clone, Debug)]
struct Placed {
    file_type: FileType,
    /// Its names at home. None if it is parked, or gone.
    places: Vec<Place>,
    /// The last record that mentions it.
    last: Lsn,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Places {
    nodes: HashMap<NodeId, Placed>,
    at: HashMap<Place, NodeId>,
}

impl Places {
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
        self.at.get(at).copied()
    }

    /// The names that home has of a node.
    pub fn places(&self, node: NodeId) -> &[Place] {
        self.nodes.get(&node).map_or(&[], |of| &of.places)
    }

    /// Home has the node under a name; `None` if it is parked.
    pub fn place(&mut self, node: NodeId, file_type: FileType, at: Option<&Place>, lsn: Lsn) {
        let placed = Placed { file_type, places: Vec::new(), last: lsn };
        self.nodes.entry(node).or_insert(placed).last = lsn;
        if let Some(at) = at {
            self.give(node, at);
        }
    }

    /// Home took a name from a node, or gave it one: what that led to has lost it.
    pub fn moved(&mut self, node: NodeId, from: Option<&Place>, to: Option<&Place>) {
        if let Some(from) = from.filter(|from| self.node_at(from) == Some(node)) {
            self.take(from);
        }
        if let Some(to) = to.filter(|_| self.nodes.contains_key(&node)) {
            self.give(node, to);
        }
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
                    pending.extend(self.places(node).iter().map(Place::parent));
                }
            }
        }
        self.nodes.retain(|node, _| stay.contains(node));
        self.at.retain(|_, node| stay.contains(node));
    }

    /// Each name that home has of a node, with what the node is.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, FileType, &Place)> {
        self.nodes
            .iter()
            .flat_map(|(&node, of)| of.places.iter().map(move |at| (node, of.file_type, at)))
    }

    fn give(&mut self, node: NodeId, at: &Place) {
        if self.node_at(at) != Some(node) {
            self.take(at);
            self.at.insert(at.clone(), node);
            let of = self.nodes.get_mut(&node).expect("it is in the table");
            of.places.push(at.clone());
        }
    }

    fn take(&mut self, at: &Place) {
        let of = self.at.remove(at).and_then(|node| self.nodes.get_mut(&node));
        if let Some(of) = of {
            of.places.retain(|place| place != at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(parent: u64, name: &str) -> Place {
        Place::new(NodeId(parent), name.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_leads_to_what_was_moved_there_last() {
        let mut places = Places::default();
        let (one, other) = (NodeId(7), NodeId(8));
        places.place(one, FileType::File, Some(&at(1, "a")), Lsn(0));
        places.place(other, FileType::File, Some(&at(1, "b")), Lsn(0));
        places.moved(one, Some(&at(1, "a")), Some(&at(1, "b")));
        assert_eq!((places.node_at(&at(1, "b")), places.places(other)), (Some(one), &[][..]));
        assert_eq!(places.places(one), [at(1, "b")]);
        // It is parked, and comes back; a second name is a link.
        places.moved(one, Some(&at(1, "b")), None);
        assert!(places.has(one) && places.places(one).is_empty());
        places.moved(one, None, Some(&at(1, "c")));
        places.moved(one, None, Some(&at(1, "d")));
        assert_eq!(places.places(one), [at(1, "c"), at(1, "d")]);
        assert_eq!(places.iter().count(), 2);
        // A name that leads elsewhere is not taken from its node.
        places.moved(other, Some(&at(1, "c")), None);
        assert_eq!(places.node_at(&at(1, "c")), Some(one));
        places.moved(NodeId(9), None, Some(&at(1, "c")));
        assert_eq!(places.node_at(&at(1, "c")), Some(one), "nothing is known of the ninth");
    }

    #[test]
    fn directories_stay_as_long_as_anything_below_them() {
        let mut places = Places::default();
        places.place(NodeId(2), FileType::Directory, Some(&at(1, "d")), Lsn(10));
        places.place(NodeId(3), FileType::Directory, Some(&at(2, "e")), Lsn(20));
        places.place(NodeId(4), FileType::File, Some(&at(3, "f")), Lsn(30));
        places.place(NodeId(5), FileType::File, Some(&at(3, "g")), Lsn(40));
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
