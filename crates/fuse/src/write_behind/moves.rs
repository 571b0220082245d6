//! What home is to do to names where handles do not last, and what the log has said of places ([`super::steps`]).

use std::collections::BTreeSet;

use weir_log::{FileType, Lsn};
use weir_names::tree::Command;
use weir_names::{NodeId, Place, Places};

pub(crate) use weir_log::Stage;

/// What home is to do to a node's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) node: NodeId,
    /// The name that it loses.
    pub(crate) from: Option<Place>,
    /// The name that it gets. The parking directory has none.
    pub(crate) to: Option<Place>,
    /// What home has under the new name.
    pub(crate) replaced: Option<NodeId>,
}

impl Move {
    /// What a command does to names, if anything.
    pub(crate) fn of(command: &Command) -> Option<Move> {
        let mut replaced = None;
        let (node, from, to) = match command {
            Command::Make { node, at, .. } | Command::Link { node, at } => (*node, None, Some(at)),
            Command::Rename { node, from, to, replacing } => {
                replaced = *replacing;
                (*node, Some(from), Some(to))
            }
            Command::Unlink { node, at } | Command::RemoveDirectory { node, at } => {
                (*node, Some(at), None)
            }
            Command::Look { .. } | Command::Exchange { .. } | Command::Set { .. } => return None,
        };
        let named = |at: Option<&Place>| at.filter(|at| at.parent() != NodeId::PARKING).cloned();
        Some(Move { node, from: named(from), to: named(to), replaced })
    }

    pub(super) fn concerns(&self, other: &Move) -> bool {
        let places = || [&other.from, &other.to].into_iter().flatten();
        let is_mine = |at: &Place| self.from.as_ref() == Some(at) || self.to.as_ref() == Some(at);
        self.node == other.node || places().any(is_mine)
    }
}

/// A step that the log knows: the same with the log's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) of: Move,
    pub(super) numbered: Move,
    pub(super) file_type: FileType,
    /// The record that says so.
    pub(super) begun: Lsn,
}

/// What the log said of places.
#[derive(Debug, Default)]
pub(super) struct ByPath {
    pub(super) places: Places,
    /// The first record that says something of the table.
    pub(super) since: Option<Lsn>,
    /// The first record of all that says it once more, and the last one: from the first on the log is needed when
    /// the last is durable.
    pub(super) renewed: Option<(Lsn, Lsn)>,
    /// Records of steps that were begun and did not end.
    pub(super) under_way: BTreeSet<Lsn>,
    /// Steps of which it is not known whether home did them; they are under way, too.
    pub(super) unsure: Vec<Step>,
}

impl ByPath {
    /// From where on the log is needed to know where nodes are.
    pub(super) fn kept_from(&self) -> Option<Lsn> {
        self.since
    }

    /// Everything before `durable` is.
    pub(super) fn committed(&mut self, durable: Lsn) {
        if let Some((first, _)) = self.renewed.filter(|&(_, last)| last < durable) {
            (self.since, self.renewed) = (Some(first), None);
        }
    }
}
