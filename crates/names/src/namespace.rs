//! The nodes the kernel knows.
//!
//! A node that is made here and that home does not have yet has no identity: [`Namespace::make`], and later
//! [`Namespace::bind`].
//!
//! Invariants:
//! - a node is here while the kernel's lookup count of it is not zero, or it is pinned or pending, and always if
//!   it is the root;
//! - an identity has at most one node that [`Namespace::find`] gives, and a number at most one node;
//! - a node's number follows from its home device and inode number alone, so that it is the same each time
//!   the inode is looked up while mounted. The exceptions: an inode whose number the kernel still knows another node by
//!   has a number of its own for as long as it is known; and a node that was made here has one, which it gets again
//!   after it was forgotten, unless [`REMEMBERED_MAX`] others were forgotten since.

use std::collections::{HashMap, VecDeque};

use crate::identity::{Identity, NodeId};
use crate::numbers::Numbers;
use crate::table::{Numbered, Table};
use crate::way::{Place, Way};

/// Nodes made here whose numbers are remembered after they were forgotten: a few megabytes.
const REMEMBERED_MAX: usize = 1 << 16;

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
    /// It is pinned or pending: [`Namespace::unpin`] or [`Namespace::set_pending`] will remove it.
    Pinned,
    /// It is not here any more.
    Gone,
}

#[derive(Debug)]
struct Node {
    node: NodeId,
    /// `None` while home does not have it.
    identity: Option<Identity>,
    lookups: u64,
    way: Option<Way>,
    pinned: bool,
    pending: bool,
    /// It was made here.
    made: bool,
    marks: Marks,
}

impl Node {
    fn new(node: NodeId, identity: Option<Identity>) -> Node {
        let (pinned, pending, made, marks) = (false, false, false, Marks::default());
        Node { node, identity, lookups: 0, way: None, pinned, pending, made, marks }
    }
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
    /// Nodes that have a number of their own: made here, or theirs is taken.
    displaced: HashMap<Identity, NodeId>,
    /// Numbers of nodes that were made here and are not known any more.
    remembered: Remembered,
}

/// Numbers of forgotten nodes, as many as were remembered last.
#[derive(Debug, Default)]
struct Remembered {
    numbers: HashMap<Identity, NodeId>,
    /// All of them, and some that were taken out since, those remembered first in front.
    order: VecDeque<(Identity, NodeId)>,
}

impl Remembered {
    fn add(&mut self, identity: Identity, node: NodeId) {
        self.numbers.insert(identity, node);
        self.order.push_back((identity, node));
        if self.order.len() > REMEMBERED_MAX
            && let Some((oldest, node)) = self.order.pop_front()
            && self.numbers.get(&oldest) == Some(&node)
        {
            self.numbers.remove(&oldest);
        }
    }

    fn take(&mut self, identity: &Identity) -> Option<NodeId> {
        self.numbers.remove(identity)
    }
}

impl Namespace {
    /// Knows the root alone, and no way to it: it is always held.
    pub fn new(root: Identity) -> Namespace {
        let mut nodes = Table::new();
        nodes.insert(Node { pinned: true, ..Node::new(NodeId::ROOT, Some(root)) });
        let (displaced, remembered) = (HashMap::new(), Remembered::default());
        Namespace { numbers: Numbers::new(&root), nodes, displaced, remembered }
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
        // A node that was made here comes before one that was looked up while it was made.
        if !self.displaced.is_empty()
            && let Some(&own) = self.displaced.get(identity)
        {
            return Some(own);
        }
        let usual = self.numbers.of(identity.device, identity.inode);
        self.nodes.get(usual).is_some_and(|node| node.identity == Some(*identity)).then_some(usual)
    }

    /// Counts one lookup of an inode that was found this `way`.
    pub fn count(&mut self, identity: Identity, way: Way) -> NodeId {
        let node = self.find(&identity).unwrap_or_else(|| self.add(identity));
        self.reached(node, way).lookups += 1;
        node
    }

    /// Counts one more lookup of a node. Says whether it is known.
    pub fn count_again(&mut self, node: NodeId) -> bool {
        let known = self.nodes.get_mut(node);
        known.map(|known| known.lookups += 1).is_some()
    }

    /// The node of an inode that was found this `way`, for Weir's own use: no lookup is counted, and it is pending.
    pub fn know(&mut self, identity: Identity, way: Way) -> NodeId {
        let node = self.find(&identity).unwrap_or_else(|| self.add(identity));
        self.reached(node, way).pending = true;
        node
    }

    /// A new node that home does not have, with a number of Weir's own. One lookup of it is counted, and it is pending. It
    /// has no identity and no way before it is bound.
    pub fn make(&mut self) -> NodeId {
        let node = self.numbers.allot();
        self.nodes.insert(Node { lookups: 1, pending: true, made: true, ..Node::new(node, None) });
        node
    }

    /// Home has a node now that was made here, or has it as another inode after it lost the first one. From now on
    /// the identity leads to this node, even if the kernel looked the inode up before and knows it by another
    /// number; that node keeps its identity.
    pub fn bind(&mut self, node: NodeId, identity: Identity, way: Way) {
        let Some(known) = self.nodes.get_mut(node) else { return };
        known.way = Some(way);
        let before = known.identity.replace(identity);
        self.release(node, before);
        // Home may give an inode's number again that was remembered.
        self.remembered.take(&identity);
        self.displaced.insert(identity, node);
    }

    /// Home tells a known node by another identity now, and it is found as before: file systems that invent numbers of
    /// inodes do that. Nothing changes if another node is known by that identity.
    pub fn renumbered(&mut self, node: NodeId, identity: Identity) {
        if node == NodeId::ROOT || self.find(&identity).is_some() {
            return;
        }
        if let Some(way) = self.way(node).cloned() {
            self.bind(node, identity, way);
        }
    }

    /// A node was found this `way`.
    fn reached(&mut self, node: NodeId, way: Way) -> &mut Node {
        let known = self.nodes.get_mut(node).expect("found, or added just now");
        // The root needs no way. A handle stays good wherever the inode is moved.
        let stays = matches!(known.way, Some(Way::Handle(_))) || known.way.as_ref() == Some(&way);
        if node != NodeId::ROOT && !stays {
            known.way = Some(way);
        }
        known
    }

    fn add(&mut self, identity: Identity) -> NodeId {
        if let Some(node) = self.remembered.take(&identity) {
            self.displaced.insert(identity, node);
            self.nodes.insert(Node { made: true, ..Node::new(node, Some(identity)) });
            return node;
        }
        let usual = self.numbers.of(identity.device, identity.inode);
        let node = if self.nodes.get(usual).is_none() {
            usual
        } else {
            let own = self.numbers.allot();
            self.displaced.insert(identity, own);
            own
        };
        self.nodes.insert(Node::new(node, Some(identity)));
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
        if known.pinned || known.pending {
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
        self.remove_unneeded(node)
    }

    /// A pending node has changes that home does not have: it is kept whatever the kernel forgets. Says whether the
    /// node is not here any more, because that ended and nothing else keeps it.
    pub fn set_pending(&mut self, node: NodeId, pending: bool) -> bool {
        let Some(known) = self.nodes.get_mut(node) else { return true };
        known.pending = pending;
        !pending && self.remove_unneeded(node)
    }

    fn remove_unneeded(&mut self, node: NodeId) -> bool {
        let is_needed = |of: &Node| of.lookups > 0 || of.pinned || of.pending;
        if node == NodeId::ROOT || self.nodes.get(node).is_some_and(is_needed) {
            return false;
        }
        self.remove(node);
        true
    }

    fn remove(&mut self, node: NodeId) {
        let Some(removed) = self.nodes.remove(node) else { return };
        self.release(node, removed.identity);
        if let Some(identity) = removed.identity.filter(|_| removed.made) {
            self.remembered.add(identity, node);
        }
    }

    /// An identity does not lead to this node by a number of its own any more.
    fn release(&mut self, node: NodeId, identity: Option<Identity>) {
        if let Some(identity) = identity.filter(|_| !self.displaced.is_empty())
            && self.displaced.get(&identity) == Some(&node)
        {
            self.displaced.remove(&identity);
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

    /// Which inode a node is at home. `None` for what home does not have, and for what is not known.
    pub fn identity(&self, node: NodeId) -> Option<Identity> {
        self.nodes.get(node)?.identity
    }

    /// How a node is reached at home. `None` for the root, for what home does not have, and for what is not known.
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

    /// A node lost a name at home: it is not reached by that any more, but by another one, if one is known.
    pub fn lost(&mut self, node: NodeId, at: &Place, other: Option<Place>) {
        if let Some(known) = self.nodes.get_mut(node)
            && matches!(&known.way, Some(Way::Place(way)) if way == at)
        {
            known.way = other.map(Way::Place);
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
    fn a_node_made_here_gets_its_identity_later() {
        let mut names = names();
        let made = names.make();
        assert_eq!((names.lookups(made), names.identity(made), names.way(made)), (1, None, None));
        assert_eq!(names.forget(made, 1), Forgot::Pinned, "it is pending");
        assert!(names.count_again(made));
        names.bind(made, identity(5, 1), place("a"));
        assert_eq!(names.find(&identity(5, 1)), Some(made));
        assert_eq!(names.way(made), Some(&place("a")));
        assert_eq!(names.count(identity(5, 1), place("b")), made);
        assert!(!names.set_pending(made, false), "the kernel knows it");
        assert_eq!(names.forget(made, 2), Forgot::Gone);
        assert_eq!(names.find(&identity(5, 1)), None);
        assert!(!names.count_again(made));
    }

    #[test]
    fn a_node_made_here_gets_its_number_again_after_it_was_forgotten() {
        let mut names = names();
        let forget = |names: &mut Namespace, node| {
            names.set_pending(node, false);
            assert_eq!(names.forget(node, 1), Forgot::Gone);
        };
        let made = names.make();
        names.bind(made, identity(5, 1), place("a"));
        forget(&mut names, made);
        for _ in 0..2 {
            assert_eq!(names.count(identity(5, 1), place("a")), made);
            assert_eq!(names.find(&identity(5, 1)), Some(made));
            forget(&mut names, made);
        }
        // Another inode is another node, though home gave it the same number.
        let next = names.make();
        names.bind(next, identity(5, 2), place("a"));
        assert_ne!(next, made);
        forget(&mut names, next);
        // What is remembered is bounded, and so is what it costs to forget and look up again and again.
        for inode in 0..2 * REMEMBERED_MAX as u64 {
            let node = names.make();
            names.bind(node, identity(10 + inode, 1), place("b"));
            forget(&mut names, node);
            names.count(identity(10 + inode, 1), place("b"));
            forget(&mut names, node);
        }
        let Remembered { numbers, order } = &names.remembered;
        assert!(numbers.len() <= REMEMBERED_MAX && order.len() == REMEMBERED_MAX);
        assert_eq!((names.displaced.len(), names.len()), (0, 1));
        assert_ne!(names.count(identity(5, 1), place("a")), made, "it is too long ago");
    }

    #[test]
    fn a_lookup_that_races_with_a_making_leaves_two_nodes_and_the_made_one_is_found() {
        let mut names = names();
        let made = names.make();
        let raced = names.count(identity(5, 1), place("a"));
        assert_ne!(made, raced);
        names.bind(made, identity(5, 1), place("a"));
        assert_eq!(names.find(&identity(5, 1)), Some(made));
        assert_eq!(names.identity(raced), Some(identity(5, 1)), "an open file of it stays good");
        names.set_pending(made, false);
        assert_eq!(names.forget(made, 1), Forgot::Gone);
        assert_eq!(names.find(&identity(5, 1)), Some(raced));
        assert_eq!(names.forget(raced, 1), Forgot::Gone);
        assert_eq!((names.find(&identity(5, 1)), names.len()), (None, 1));
    }

    #[test]
    fn a_node_that_is_made_again_loses_its_first_identity() {
        let mut names = names();
        let made = names.make();
        names.bind(made, identity(5, 1), place("a"));
        names.bind(made, identity(6, 1), place("a"));
        assert_eq!((names.find(&identity(5, 1)), names.find(&identity(6, 1))), (None, Some(made)));
    }

    #[test]
    fn pinned_and_pending_keep_a_node_each() {
        let mut names = names();
        let node = names.know(identity(5, 1), place("a"));
        assert_eq!(names.lookups(node), 0);
        assert_eq!(names.know(identity(5, 1), place("b")), node);
        names.pin(node);
        assert!(!names.set_pending(node, false), "pinned");
        assert!(!names.set_pending(node, true));
        assert!(!names.unpin(node), "pending");
        assert!(names.set_pending(node, false));
        assert!(!names.is_known(node));
        let counted = names.count(identity(5, 1), place("a"));
        assert_eq!(names.know(identity(5, 1), place("a")), counted);
        assert_eq!(names.forget(counted, 1), Forgot::Pinned, "pending, though it was known before");
        assert!(names.set_pending(counted, false));
        assert!(!names.set_pending(NodeId::ROOT, false), "the root stays");
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
