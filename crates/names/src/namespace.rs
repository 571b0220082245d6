//! The nodes the kernel knows.
//!
//! Invariants:
//! - a node is here while the kernel's lookup count of it is not zero, or it is pinned, and always if it is
//!   the root;
//! - an identity has at most one node, and a number at most one node;
//! - a node's number follows from its home device and inode number alone, so that it is the same each time
//!   the inode is looked up while mounted. The exception: an inode whose number the kernel still knows
//!   another node by gets a number of its own for as long as it is known.

use std::collections::HashMap;

use crate::identity::{Identity, NodeId};
use crate::numbers::Numbers;
use crate::table::{Numbered, Table};
use crate::way::Way;

/// What is remembered of a node that nothing is held of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The kernel may cache pages of the node's data.
    pub cached: bool,
    /// A client of the lane appended to it.
    pub posted: bool,
}

/// What became of a node when lookups of it were taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgot {
    /// The kernel knows it still.
    Known,
    /// It is pinned: [`Namespace::unpin`] will remove it.
    Pinned,
    /// It is not here any more.
    Gone,
}

#[derive(Debug)]
struct Node {
    node: NodeId,
    identity: Identity,
    lookups: u64,
    way: Option<Way>,
    pinned: bool,
    marks: Marks,
}

impl Numbered for Node {
    fn number(&self) -> NodeId {
        self.node
    }
}

/// The nodes of one mount.
#[derive(Debug)]
pub struct Namespace {
    numbers: Numbers,
    nodes: Table<Node>,
    /// Nodes that have a number of their own because theirs is taken.
    displaced: HashMap<Identity, NodeId>,
}

impl Namespace {
    /// Knows the root alone, and no way to it: it is always held.
    pub fn new(root: Identity) -> Namespace {
        let mut nodes = Table::new();
        nodes.insert(Node {
            node: NodeId::ROOT,
            identity: root,
            lookups: 0,
            way: None,
            pinned: true,
            marks: Marks::default(),
        });
        Namespace { numbers: Numbers::new(&root), nodes, displaced: HashMap::new() }
    }

    /// Nodes known.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: the root is always known.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The number that the inode `inode` of the device `device` has, or would have if it were looked up
    /// now: what a listing shows of an entry that is not looked at.
    pub fn number(&mut self, device: u64, inode: u64) -> NodeId {
        self.numbers.of(device, inode)
    }

    /// The node of an inode, if it is known.
    pub fn find(&mut self, identity: &Identity) -> Option<NodeId> {
        let usual = self.numbers.of(identity.device, identity.inode);
        if self.nodes.get(usual).is_some_and(|node| node.identity == *identity) {
            return Some(usual);
        }
        if self.displaced.is_empty() { None } else { self.displaced.get(identity).copied() }
    }

    /// Counts one lookup of an inode that was found this `way`.
    pub fn count(&mut self, identity: Identity, way: Way) -> NodeId {
        let node = self.find(&identity).unwrap_or_else(|| self.add(identity));
        let known = self.nodes.get_mut(node).expect("found, or added just now");
        known.lookups += 1;
        // The root needs no way. A handle stays good wherever the inode is moved.
        let stays = matches!(known.way, Some(Way::Handle(_))) || known.way.as_ref() == Some(&way);
        if node != NodeId::ROOT && !stays {
            known.way = Some(way);
        }
        node
    }

    fn add(&mut self, identity: Identity) -> NodeId {
        let usual = self.numbers.of(identity.device, identity.inode);
        let node = if self.nodes.get(usual).is_none() {
            usual
        } else {
            let own = self.numbers.allot();
            self.displaced.insert(identity, own);
            own
        };
        let marks = Marks::default();
        self.nodes.insert(Node { node, identity, lookups: 0, way: None, pinned: false, marks });
        node
    }

    /// Takes back `lookups` lookups. More than were counted are taken for all: an entry that was listed
    /// without being looked at is forgotten too.
    pub fn forget(&mut self, node: NodeId, lookups: u64) -> Forgot {
        let Some(known) = self.nodes.get_mut(node) else { return Forgot::Gone };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return Forgot::Known;
        }
        if known.pinned {
            return Forgot::Pinned;
        }
        self.remove(node);
        Forgot::Gone
    }

    /// Keeps a node whatever the kernel forgets. Does not count.
    pub fn pin(&mut self, node: NodeId) {
        if let Some(known) = self.nodes.get_mut(node) {
            known.pinned = true;
        }
    }

    /// Undoes [`Namespace::pin`]. Says whether the node is not here any more.
    pub fn unpin(&mut self, node: NodeId) -> bool {
        let Some(known) = self.nodes.get_mut(node) else { return true };
        if node == NodeId::ROOT {
            return false;
        }
        known.pinned = false;
        if known.lookups > 0 {
            return false;
        }
        self.remove(node);
        true
    }

    fn remove(&mut self, node: NodeId) {
        let removed = self.nodes.remove(node);
        if let Some(removed) = removed.filter(|_| !self.displaced.is_empty())
            && self.displaced.get(&removed.identity) == Some(&node)
        {
            self.displaced.remove(&removed.identity);
        }
    }

    /// Whether a node is known.
    pub fn is_known(&self, node: NodeId) -> bool {
        self.nodes.get(node).is_some()
    }

    /// The kernel's lookup count of a node.
    pub fn lookups(&self, node: NodeId) -> u64 {
        self.nodes.get(node).map_or(0, |known| known.lookups)
    }

    /// Which inode a node is at home.
    pub fn identity(&self, node: NodeId) -> Option<Identity> {
        self.nodes.get(node).map(|known| known.identity)
    }

    /// How a node is reached at home. `None` for the root, and for what is not known.
    pub fn way(&self, node: NodeId) -> Option<&Way> {
        self.nodes.get(node)?.way.as_ref()
    }

    /// A node was given another place. What is reached by its handle stays so.
    pub fn moved(&mut self, node: NodeId, to: Way) {
        if let Some(known) = self.nodes.get_mut(node)
            && !matches!(known.way, Some(Way::Handle(_)) | None)
        {
            known.way = Some(to);
        }
    }

    /// What is remembered of a node.
    pub fn marks(&self, node: NodeId) -> Marks {
        self.nodes.get(node).map_or(Marks::default(), |known| known.marks)
    }

    /// Remembers that of a node.
    pub fn set_marks(&mut self, node: NodeId, marks: Marks) {
        if let Some(known) = self.nodes.get_mut(node) {
            known.marks = marks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Handle;
    use crate::way::Place;

    fn names() -> Namespace {
        Namespace::new(Identity { device: 1, inode: 2, version: 0 })
    }

    fn identity(inode: u64, version: u64) -> Identity {
        Identity { device: 1, inode, version }
    }

    fn place(name: &str) -> Way {
        Way::Place(Place::new(NodeId::ROOT, name.as_bytes()).unwrap())
    }

    #[test]
    fn a_node_is_known_until_its_last_lookup_is_taken_back() {
        let mut names = names();
        let node = names.count(identity(5, 1), place("a"));
        assert_eq!(names.count(identity(5, 1), place("b")), node);
        assert_eq!(names.way(node), Some(&place("b")), "where it was found last");
        assert_eq!(names.forget(node, 1), Forgot::Known);
        assert_eq!(names.forget(node, 5), Forgot::Gone);
        assert_eq!((names.len(), names.forget(node, 1)), (1, Forgot::Gone));
    }

    #[test]
    fn a_pinned_node_outlives_the_kernels_interest() {
        let mut names = names();
        let node = names.count(identity(5, 1), place("a"));
        names.pin(node);
        assert_eq!(names.forget(node, 1), Forgot::Pinned);
        assert_eq!(names.count(identity(5, 1), place("a")), node, "the same, known again");
        assert!(!names.unpin(node));
        names.pin(node);
        assert_eq!(names.forget(node, 1), Forgot::Pinned);
        assert!(names.unpin(node));
        assert!(!names.is_known(node));
    }

    #[test]
    fn a_number_home_gave_again_is_another_node() {
        let mut names = names();
        let old = names.count(identity(5, 1), place("a"));
        let new = names.count(identity(5, 2), place("a"));
        assert_ne!(old, new);
        assert_eq!(names.count(identity(5, 2), place("a")), new);
        assert_eq!(names.find(&identity(5, 1)), Some(old));
        names.forget(old, 1);
        assert_eq!(names.find(&identity(5, 2)), Some(new), "it keeps the number it has");
        names.forget(new, 2);
        assert_eq!(names.find(&identity(5, 2)), None);
        assert_eq!(names.count(identity(5, 3), place("a")), old, "the number is free again");
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let mut names = names();
        assert_eq!(names.count(identity(2, 0), place("x")), NodeId::ROOT);
        assert_eq!(names.forget(NodeId::ROOT, 9), Forgot::Pinned);
        assert!(!names.unpin(NodeId::ROOT));
        assert!(names.is_known(NodeId::ROOT));
        assert_eq!(names.way(NodeId::ROOT), None);
    }

    #[test]
    fn what_is_reached_by_handle_has_no_place_to_change() {
        let mut names = names();
        let handle = Way::Handle(Handle::new(1, &[1, 2]));
        let by_handle = names.count(identity(5, 1), handle.clone());
        let by_place = names.count(identity(6, 1), place("a"));
        names.moved(by_handle, place("b"));
        names.moved(by_place, place("b"));
        assert_eq!(names.way(by_handle), Some(&handle));
        assert_eq!(names.way(by_place), Some(&place("b")));
    }

    #[test]
    fn a_known_node_costs_little() {
        assert!(size_of::<Node>() <= 96, "{}", size_of::<Node>());
    }
}
