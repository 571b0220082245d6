//! A table of nodes by number that costs little more than what it holds.
//!
//! The nodes lie one after the other in an array; an index of 4-byte places leads to them. A node that is
//! removed is replaced by the last one, so that the array has no holes and shrinks again.

use hashbrown::HashTable;

use crate::identity::NodeId;

/// Room that is never given back, nodes.
const KEPT: usize = 1024;

/// What lies in the table: it knows its number.
pub(crate) trait Numbered {
    fn number(&self) -> NodeId;
}

/// Nodes by number.
#[derive(Debug)]
pub(crate) struct Table<T> {
    nodes: Vec<T>,
    index: HashTable<u32>,
}

impl<T: Numbered> Table<T> {
    pub(crate) fn new() -> Table<T> {
        Table { nodes: Vec::new(), index: HashTable::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&T> {
        let nodes = &self.nodes;
        let at = self.index.find(hash(node), |&at| nodes[at as usize].number() == node)?;
        Some(&self.nodes[*at as usize])
    }

    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut T> {
        let nodes = &self.nodes;
        let at = *self.index.find(hash(node), |&at| nodes[at as usize].number() == node)?;
        Some(&mut self.nodes[at as usize])
    }

    /// Adds a node whose number is not in the table.
    pub(crate) fn insert(&mut self, value: T) {
        let node = value.number();
        debug_assert!(self.get(node).is_none(), "a number has one node");
        let at = u32::try_from(self.nodes.len()).expect("a kernel knows fewer than 2^32 inodes");
        self.nodes.push(value);
        let nodes = &self.nodes;
        self.index.insert_unique(hash(node), at, |&at| hash(nodes[at as usize].number()));
    }

    pub(crate) fn remove(&mut self, node: NodeId) -> Option<T> {
        let nodes = &self.nodes;
        let found =
            self.index.find_entry(hash(node), |&at| nodes[at as usize].number() == node).ok()?;
        let (at, _) = found.remove();
        let last = self.nodes.len() - 1;
        if at as usize != last {
            let moved = hash(self.nodes[last].number());
            let place = self.index.find_mut(moved, |&at| at as usize == last);
            *place.expect("every node is in the index") = at;
        }
        let removed = self.nodes.swap_remove(at as usize);
        self.shrink();
        Some(removed)
    }

    /// Gives memory back when three quarters of it are unused.
    fn shrink(&mut self) {
        if self.nodes.capacity() > KEPT && self.nodes.len() < self.nodes.capacity() / 4 {
            let room = (self.nodes.len() * 2).max(KEPT);
            self.nodes.shrink_to(room);
            let nodes = &self.nodes;
            self.index.shrink_to(room, |&at| hash(nodes[at as usize].number()));
        }
    }
}

/// Spreads numbers, which come in sequences.
fn hash(node: NodeId) -> u64 {
    let mixed = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Value(u64);

    impl Numbered for Value {
        fn number(&self) -> NodeId {
            NodeId(self.0)
        }
    }

    #[test]
    fn nodes_are_found_until_they_are_removed_in_any_order() {
        let mut table = Table::new();
        for number in 0..10_000 {
            table.insert(Value(number * 3));
        }
        for number in (0..10_000).rev().step_by(2).chain((0..10_000).step_by(2)) {
            assert_eq!(table.remove(NodeId(number * 3)).map(|value| value.0), Some(number * 3));
            assert!(table.get(NodeId(number * 3)).is_none());
            assert!(table.remove(NodeId(number * 3)).is_none());
        }
        assert_eq!(table.len(), 0);
        assert!(table.nodes.capacity() <= 2 * KEPT, "memory is given back");
    }
}
