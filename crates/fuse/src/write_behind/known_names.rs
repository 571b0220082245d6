//! By which names a node is known where handles do not last: those that the tree knows at home, and the one that it was found by
//! last ([`Inodes`]), of which the tree may not know.

use weir_names::tree::Tree;
use weir_names::{NodeId, Place, Way};

use crate::inodes::Inodes;

/// The names that home has of a node, as far as they are known, and that no command under way concerns.
pub(super) fn sure_names(tree: &Tree, node: NodeId) -> impl Iterator<Item = &Place> {
    tree.home_names(node).filter(|at| !tree.is_changing(at))
}

/// Whether a name of a node is known that it is to keep, by which recovery finds it. It may have others that are not known.
pub(super) fn keeps_a_name(tree: &Tree, inodes: &Inodes, node: NodeId) -> bool {
    node == NodeId::ROOT
        || tree.wanted_places(node).next().is_some()
        || other_name(tree, inodes, node).is_some()
}

/// The names that home has of a node, as far as they are known.
pub(super) fn names_at_home(tree: &Tree, inodes: &Inodes, node: NodeId) -> Vec<Place> {
    let known = tree.home_names(node).cloned();
    known.chain(other_name(tree, inodes, node)).collect()
}

/// The name that a node was found by last, of which the tree does not know.
pub(super) fn other_name(tree: &Tree, inodes: &Inodes, node: NodeId) -> Option<Place> {
    match inodes.way(node)? {
        (_, Way::Place(at)) if !tree.is_parked(node) && !tree.is_home_known(&at) => Some(at),
        _ => None,
    }
}
