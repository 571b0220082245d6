//! What the log says of names, as recovery takes it, and which of it cannot be true.
//!
//! Records come from a disk. The tree trusts that a change was checked before it was made; so what it does not check
//! itself when it replays a change is checked here, before.

use rustix::fs::FileType;
use weir_log::Stage;
use weir_names::tree::{Attributes, Change, Kind, Step, Tree};
use weir_names::{NodeId, Place};

use crate::identity;

/// Node numbers from here on are given by the recovery itself, to what it finds and the log does not know.
pub(crate) const OWN_FIRST: u64 = 1 << 62;

/// There are no such numbers.
pub(crate) const OWN_LIMIT: u64 = 1 << 63;

/// Weir's own directory in SOURCE.
pub(crate) const OWN_DIRECTORY: &[u8] = b".weir";

/// One record of names, in the log's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRecord {
    /// Home has a node: which inode it is there.
    Known {
        /// The node.
        node: NodeId,
        /// What it is.
        kind: Kind,
        /// Its file handle, as data records name files.
        identity: Vec<u8>,
    },
    /// Home has a node under a name: where inodes are not known again.
    Placed {
        /// The node.
        node: NodeId,
        /// What it is.
        kind: Kind,
        /// The name.
        at: Place,
    },
    /// Home is made to change a node's names.
    Step {
        /// What is done.
        step: Step,
        /// Whether it is.
        stage: Stage,
    },
    /// A change of the tree.
    Change(Change),
}

/// What is wrong with a record that names an inode.
pub(crate) fn check_known(node: NodeId, kind: &Kind, identity: &[u8]) -> Result<(), String> {
    check_node(node)?;
    check_kind(kind)?;
    match identity::is_handle(identity) {
        true => Ok(()),
        false => Err(format!("the identity of node {} is no file handle", node.0)),
    }
}

/// What is wrong with a record that says where a node is.
pub(crate) fn check_placed(node: NodeId, kind: &Kind, at: &Place) -> Result<(), String> {
    check_node(node)?;
    check_kind(kind)?;
    check_place_of(node, at)
}

/// What is wrong with a record of a step.
pub(crate) fn check_step(step: &Step) -> Result<(), String> {
    check_node(step.node)?;
    step.from.iter().chain(&step.to).try_for_each(|at| check_place_of(step.node, at))?;
    match step.from.is_some() && step.from == step.to {
        true => Err(format!("node {} is moved to the name it has", step.node.0)),
        false => Ok(()),
    }
}

/// What is wrong with a change, for all that was replayed before it.
pub(crate) fn check_change(change: &Change, tree: &Tree) -> Result<(), String> {
    match change {
        Change::Make { node, at, kind, attributes } => {
            check_node(*node)?;
            check_place_of(*node, at)?;
            check_kind(kind)?;
            check_attributes(attributes)
        }
        Change::Link { node, at } | Change::Remove { node, at } => {
            check_node(*node)?;
            check_place(at)
        }
        Change::Rename { node, from, to, replaced } => {
            check_node(*node)?;
            replaced.map_or(Ok(()), check_node)?;
            check_move(*node, from, to, tree)
        }
        Change::Exchange { one, other } => {
            check_node(one.0)?;
            check_node(other.0)?;
            check_move(one.0, &one.1, &other.1, tree)?;
            check_move(other.0, &other.1, &one.1, tree)
        }
        Change::Set { node, attributes } => {
            check_number(*node)?;
            check_attributes(attributes)
        }
        Change::SetXattr { node, .. } => check_number(*node),
    }
}

/// Whether a change does nothing: both its names are of one node (rename(2)).
pub(crate) fn does_nothing(change: &Change) -> bool {
    match change {
        Change::Rename { node, replaced, .. } => *replaced == Some(*node),
        Change::Exchange { one, other } => one.0 == other.0,
        _ => false,
    }
}

/// A name is given up for another one. The tree finds circles of directories as long as each directory has one name.
fn check_move(node: NodeId, from: &Place, to: &Place, tree: &Tree) -> Result<(), String> {
    check_place(from)?;
    check_place(to)?;
    if from == to {
        return Err(format!("node {} is renamed to the name it has", node.0));
    }
    let is_directory = tree.kind(node).is_some_and(Kind::is_directory);
    match is_directory && tree.wanted_places(node).any(|place| place != from) {
        true => Err(format!("directory {} is renamed from where it is not", node.0)),
        false => Ok(()),
    }
}

fn check_number(node: NodeId) -> Result<(), String> {
    match node != NodeId::PARKING && node.0 < OWN_FIRST {
        true => Ok(()),
        false => Err(format!("there is no node {}", node.0)),
    }
}

/// A node that has a name: not SOURCE itself.
fn check_node(node: NodeId) -> Result<(), String> {
    check_number(node)?;
    match node == NodeId::ROOT {
        true => Err("SOURCE itself is made, named or removed".to_owned()),
        false => Ok(()),
    }
}

fn check_place(at: &Place) -> Result<(), String> {
    check_number(at.parent())?;
    match at.parent() == NodeId::ROOT && at.name() == OWN_DIRECTORY {
        true => Err("'.weir' itself is changed".to_owned()),
        false => Ok(()),
    }
}

/// A name that a node has.
fn check_place_of(node: NodeId, at: &Place) -> Result<(), String> {
    check_place(at)?;
    match at.parent() == node {
        true => Err(format!("node {} is in itself", node.0)),
        false => Ok(()),
    }
}

fn check_kind(kind: &Kind) -> Result<(), String> {
    const SPECIAL: [FileType; 4] =
        [FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::BlockDevice];
    match kind {
        Kind::Special { file_type, .. }
            if !SPECIAL.iter().any(|special| special.as_raw_mode() == *file_type) =>
        {
            Err(format!("there is no file type {file_type:o}"))
        }
        _ => Ok(()),
    }
}

fn check_attributes(attributes: &Attributes) -> Result<(), String> {
    let times = [attributes.atime, attributes.mtime].into_iter().flatten();
    for time in times {
        if time.nanoseconds >= 1_000_000_000 {
            return Err(format!("there is no time with {} nanoseconds", time.nanoseconds));
        }
    }
    Ok(())
}
