//! What home is made to do to names, where no handles tell inodes apart: after a crash the names that are there say whether
//! it was done (docs/LOG_FORMAT.md).

use crate::identity::NodeId;
use crate::tree::command::Command;
use crate::way::Place;

/// A node loses a name, or gets one, or both at once; what the new name led to loses it. Names in the parking directory
/// ([`NodeId::PARKING`]) are left out: to park a node is to take its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The node.
    pub node: NodeId,
    /// The name that it loses.
    pub from: Option<Place>,
    /// The name that it gets.
    pub to: Option<Place>,
}

impl Step {
    /// The step that a command is; `None` for one that changes no names, and for an exchange, of which the names do not say whether
    /// it was done.
    pub fn of(command: &Command) -> Option<Step> {
        let name = |at: &Place| (at.parent() != NodeId::PARKING).then(|| at.clone());
        let (node, from, to) = match command {
            Command::Make { node, at, .. } | Command::Link { node, at } => (*node, None, name(at)),
            Command::Rename { node, from, to, .. } => (*node, name(from), name(to)),
            Command::Unlink { node, at } | Command::RemoveDirectory { node, at } => {
                (*node, name(at), None)
            }
            Command::Look { .. } | Command::Exchange { .. } | Command::Set { .. } => return None,
        };
        Some(Step { node, from, to })
    }

    /// Its names.
    pub fn names(&self) -> impl Iterator<Item = &Place> {
        self.from.iter().chain(&self.to)
    }

    /// Whether both are about one name.
    pub fn meets(&self, other: &Step) -> bool {
        self.names().any(|name| other.names().any(|of| of == name))
    }
}
