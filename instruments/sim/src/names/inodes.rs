//! Which inode of home each node is.

use std::collections::BTreeMap;

use weir_names::NodeId;
use weir_names::tree::{Change, Command};

/// The table, read both ways. The root and the parking directory have the same number here and at home.
#[derive(Clone, Debug, Default)]
pub(super) struct Inodes {
    of: BTreeMap<NodeId, NodeId>,
    nodes: BTreeMap<NodeId, NodeId>,
}

impl Inodes {
    pub(super) fn of(&self, node: NodeId) -> Option<NodeId> {
        if node <= NodeId::ROOT { Some(node) } else { self.of.get(&node).copied() }
    }

    pub(super) fn node(&self, inode: NodeId) -> Option<NodeId> {
        if inode <= NodeId::ROOT { Some(inode) } else { self.nodes.get(&inode).copied() }
    }

    pub(super) fn put(&mut self, node: NodeId, inode: NodeId) {
        if let Some(before) = self.of.insert(node, inode) {
            self.nodes.remove(&before);
        }
        self.nodes.insert(inode, node);
    }

    /// In home's numbers; `None` if home never had one of the nodes.
    pub(super) fn at_home(&self, change: &Change) -> Option<Change> {
        change.renumbered(|node| self.of(node))
    }
}

/// What a command changes, in the tree's numbers.
pub(super) fn change_of(command: &Command) -> Option<Change> {
    Some(match command.clone() {
        Command::Look { .. } => return None,
        Command::Make { node, at, kind, attributes, .. } => {
            Change::Make { node, at, kind, attributes }
        }
        Command::Link { node, at } => Change::Link { node, at },
        Command::Rename { node, from, to, replacing } => {
            Change::Rename { node, from, to, replaced: replacing }
        }
        Command::Exchange { one, other } => Change::Exchange { one, other },
        Command::Unlink { node, at } | Command::RemoveDirectory { node, at } => {
            Change::Remove { node, at }
        }
        Command::Set { node, attributes, .. } => Change::Set { node, attributes },
    })
}

/// How the log identifies an inode.
pub(super) fn identity(inode: NodeId) -> [u8; 8] {
    inode.0.to_le_bytes()
}

pub(super) fn inode_of(identity: &[u8]) -> Option<NodeId> {
    Some(NodeId(u64::from_le_bytes(identity.try_into().ok()?)))
}
