//! Nodes that an operation is about to change.
//!
//! An operation asks the tree several times before it makes its change: whether all names of a directory are known, what a
//! name leads to. In between, threads that bring names home may find that the tree need not know the directory any
//! more. So the operation holds it.

use std::collections::{HashMap, HashSet};

use weir_names::NodeId;

/// Those that are held, each as often as it is, and what is to be let go when that ends.
#[derive(Debug, Default)]
pub(super) struct Held {
    nodes: HashMap<NodeId, u32>,
    unneeded: HashSet<NodeId>,
}

impl Held {
    /// Holds nodes.
    pub(super) fn hold(&mut self, nodes: &[NodeId]) {
        nodes.iter().for_each(|&node| *self.nodes.entry(node).or_default() += 1);
    }

    /// Ends one hold of them. Says whether something may be let go.
    pub(super) fn release(&mut self, nodes: &[NodeId]) -> bool {
        for &node in nodes {
            let count = self.nodes.get_mut(&node).expect("it is held");
            *count -= 1;
            if *count == 0 {
                self.nodes.remove(&node);
            }
        }
        !self.unneeded.is_empty()
    }

    pub(super) fn is_held(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Of the nodes that the tree does not need, those that may be let go now. The others come again.
    pub(super) fn free(&mut self, unneeded: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
        let mut all = std::mem::take(&mut self.unneeded);
        all.extend(unneeded);
        let (held, free): (HashSet<_>, _) = all.into_iter().partition(|&node| self.is_held(node));
        self.unneeded = held;
        free.into_iter().collect()
    }
}
