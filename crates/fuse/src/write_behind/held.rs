//! Nodes that an operation is about to change.
//!
//! An operation asks the tree several times before it makes its change: whether all names of a directory are known, what a
//! name leads to. In between, threads that bring names home may find that the tree need not know the directory any
//! more. So the operation holds it.

use std::collections::HashMap;

use weir_names::NodeId;

use crate::write_behind::state::WriteBehind;

/// Those that are held, each as often as it is, and what is to be let go when that ends.
#[derive(Debug, Default)]
pub(super) struct Held {
    nodes: HashMap<NodeId, u32>,
    unneeded: Vec<NodeId>,
}

impl Held {
    pub(super) fn is_held(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Of the nodes that the tree does not need, those that may be let go now. The others come again.
    pub(super) fn free(&mut self, unneeded: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
        let before = std::mem::take(&mut self.unneeded);
        let (held, free) = before.into_iter().chain(unneeded).partition(|&node| self.is_held(node));
        self.unneeded = held;
        free
    }
}

/// Holds nodes until it is dropped.
pub(crate) struct Hold<'a, const N: usize> {
    behind: &'a WriteBehind,
    nodes: [NodeId; N],
}

impl WriteBehind {
    /// What the tree knows of these nodes, or will know, stays.
    pub(crate) fn hold<const N: usize>(&self, nodes: [NodeId; N]) -> Hold<'_, N> {
        let mut state = self.lock();
        for node in nodes {
            *state.held.nodes.entry(node).or_default() += 1;
        }
        Hold { behind: self, nodes }
    }
}

impl<const N: usize> Drop for Hold<'_, N> {
    fn drop(&mut self) {
        let mut state = self.behind.lock();
        for node in self.nodes {
            let count = state.held.nodes.get_mut(&node).expect("it is held");
            *count -= 1;
            if *count == 0 {
                state.held.nodes.remove(&node);
            }
        }
        if !state.held.unneeded.is_empty() {
            self.behind.call_workers(&mut state);
        }
    }
}
