//! What programs see of a node, laid over what home says of it.

use std::collections::BTreeMap;

use crate::identity::NodeId;
use crate::tree::AtHome;
use crate::tree::command::Command;
use crate::tree::node::{Attributes, Node, Xattrs};
use crate::tree::part::Part;
use crate::tree::places::Role;
use crate::tree::state::Tree;
use crate::way::Place;

/// Names of a file, as far as they are known. Programs see the link count that home says, and `wanted` more, and `home` less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Entries that lead to it.
    pub wanted: usize,
    /// Names that home has of it, a temporary one counted.
    pub home: usize,
}

impl Tree {
    /// Attributes that are to be laid over what home says: what a command under way sets, and over it what no command was
    /// sent for yet. `None` if there is nothing.
    pub fn overlay(&self, node: NodeId) -> Option<Attributes> {
        let of = self.nodes.get(&node)?;
        let mut attributes = self.being_set(node).map(|(sent, _)| *sent).unwrap_or_default();
        attributes.overlay(&of.unset);
        (!attributes.is_empty()).then_some(attributes)
    }

    /// The same of one extended attribute: its value, or `Some(None)` if it is removed.
    pub fn overlay_xattr(&self, node: NodeId, name: &[u8]) -> Option<Option<&[u8]>> {
        let unset = self.nodes.get(&node)?.unset_xattrs.get(name);
        let value = unset.or_else(|| self.being_set(node)?.1.get(name));
        value.map(Option::as_deref)
    }

    /// The same of all extended attributes that programs see otherwise than home says.
    pub fn overlay_xattrs(&self, node: NodeId) -> BTreeMap<&[u8], Option<&[u8]>> {
        let unset = self.nodes.get(&node).map(|of| &of.unset_xattrs);
        let sent = self.being_set(node).map(|(_, xattrs)| xattrs);
        let in_order = sent.into_iter().chain(unset).flatten();
        in_order.map(|(name, value)| (&**name, value.as_deref())).collect()
    }

    /// What a command under way sets.
    fn being_set(&self, node: NodeId) -> Option<(&Attributes, &Xattrs)> {
        let id = self.nodes.get(&node)?.setting?;
        match &self.in_flight.get(&id)?.command {
            Command::Make { attributes, xattrs, .. } | Command::Set { attributes, xattrs, .. } => {
                Some((attributes, xattrs))
            }
            _ => None,
        }
    }

    /// What home is not known to have as it should be, in no order: as many parts as [`Tree::dirty`] says.
    pub fn unfinished(&self) -> impl Iterator<Item = Part> {
        self.nodes.iter().flat_map(|(&number, of)| {
            let attributes = of.set_since.map(|_| Part::Attributes(number));
            let entries = of.directory.iter().flat_map(|of| of.entries());
            let entries = entries.filter(|(_, entry)| entry.since.is_some());
            let place = move |name| Place::new(number, name).expect("entries have names");
            attributes.into_iter().chain(entries.map(move |(name, _)| Part::Entry(place(name))))
        })
    }

    /// How many names of a file are known.
    pub fn links(&self, node: NodeId) -> Links {
        let Some(of) = self.nodes.get(&node) else { return Links::default() };
        let count = |role| of.places.count(role);
        let kept = count(Role::Kept);
        Links {
            wanted: kept + count(Role::Lacking) + count(Role::LackingUnsure),
            home: kept + count(Role::Surplus) + usize::from(of.parked),
        }
    }

    /// How many directories are known in a directory: entries that lead to one, and those that home has. Each counts as a
    /// link of the directory.
    pub fn subdirectories(&self, node: NodeId) -> (usize, usize) {
        let directory = self.nodes.get(&node).and_then(|of| of.directory.as_ref());
        directory.map_or((0, 0), |of| (of.subdirectories.wanted, of.subdirectories.home))
    }

    /// Whether home has a node under a name that is known, or may have it under one that was not looked at since.
    pub fn may_be_at_home(&self, node: NodeId) -> bool {
        let may_be = |of: &Node| of.is_at_home() || of.places.unsure().next().is_some();
        self.nodes.get(&node).is_some_and(may_be)
    }

    /// A name under which home has a node now, as far as it is known.
    pub fn home_place(&self, node: NodeId) -> Option<Place> {
        let of = self.nodes.get(&node)?;
        let parked = of.parked.then(|| Tree::parking(node));
        of.places.home().next().cloned().or(parked)
    }

    /// The same beside a name that is about to go.
    pub fn home_place_beside(&self, node: NodeId, at: &Place) -> Option<Place> {
        let of = self.nodes.get(&node)?;
        let parked = of.parked.then(|| Tree::parking(node));
        of.places.home().find(|&other| other != at).cloned().or(parked.filter(|other| other != at))
    }

    /// The names that home has of a node, as far as they are known.
    pub fn home_names(&self, node: NodeId) -> impl Iterator<Item = &Place> {
        self.nodes.get(&node).into_iter().flat_map(|of| of.places.home())
    }

    /// Whether home is changing what it has under a name.
    pub fn is_changing(&self, at: &Place) -> bool {
        self.entry(at).is_some_and(|entry| entry.busy)
    }

    /// What home has under a name, as far as it is known.
    pub fn home_at(&self, at: &Place) -> Option<NodeId> {
        self.entry(at)?.home.node()
    }

    /// Whether it is known what home has under a name.
    pub fn is_home_known(&self, at: &Place) -> bool {
        match self.entry(at) {
            Some(entry) => entry.home != AtHome::Unknown,
            None => self.is_complete(at.parent()),
        }
    }

    /// The nodes that home has parked.
    pub fn parked(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().filter(|(_, of)| of.parked).map(|(&node, _)| node)
    }

    /// Whether home has a node parked.
    pub fn is_parked(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|of| of.parked)
    }
}
