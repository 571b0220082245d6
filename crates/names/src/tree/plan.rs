//! What is to be done next about a part that differs from home: one command, or something to wait for.
//!
//! Only what must be has an order: a directory is at home before its entries, a name is free before it is taken, a
//! directory is empty before it is removed, and a directory is moved only below one that is where it should be. Where
//! names wait for each other in a circle, home exchanges them, or one node is *parked*: renamed into a directory of
//! Weir's own until its name is free.
//!
//! A file that replaces another does so by one rename, so that a reader of home finds one or the other at any moment: a
//! new one is made parked for that, and one that home is not known to have under any name is linked there.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::command::Command;
use crate::tree::entry::AtHome;
use crate::tree::node::{Binding, Node};
use crate::tree::part::Part;
use crate::tree::places::Role;
use crate::tree::state::Tree;
use crate::way::Place;

/// What is to be done about a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Home has it as it should be.
    Clean,
    /// Nothing now: it is looked at again when what concerns it changes.
    Later,
    /// Look at it again when something about this node changed.
    Wait(NodeId),
    /// Look at it again when all names were looked at that a failed sync was to settle.
    WaitLooks,
    /// Look at it again when this position is durable.
    WaitCommit(Lsn),
    /// Home does not have the node where it was: this can only be reported.
    Gone,
    /// This directory at home cannot be removed: somebody else put something into it, which programs see.
    ComesBack(NodeId, Place),
    /// Home lost this node, which it had not synced: it is to be made again.
    Lost(NodeId),
    /// This.
    Do(Command),
}

impl Tree {
    /// Where a node is put while it has no name at home.
    pub fn parking(node: NodeId) -> Place {
        let name = format!("node-{:x}", node.0);
        Place::new(NodeId::PARKING, name.as_bytes()).expect("it is one name")
    }

    pub(crate) fn plan_attributes(&self, node: NodeId) -> Plan {
        let Some(of) = self.nodes.get(&node) else { return Plan::Later };
        if of.binding == Binding::Making || of.busy {
            return Plan::Wait(node);
        }
        if of.is_ahead && !of.is_bound() && (of.held || !of.places.is_empty()) {
            // A recovery may find it under another name.
            return match of.places.unsure().next() {
                Some(_) => Plan::Wait(node),
                None => Plan::Do(make(node, of, Tree::parking(node))),
            };
        }
        if of.set_lsn >= self.durable {
            return Plan::Later;
        }
        if of.parked && !self.moves_from(node) {
            return self.remove(&Tree::parking(node), node, of);
        }
        if of.places.is_empty() && !of.is_bound() {
            // Nothing leads to it: home need not have its attributes, unless a program has it open. Then it is made, so that
            // its data has a place, and loses its temporary name at once.
            return match of.held && of.nameless {
                true => Plan::Do(make(node, of, Tree::parking(node))),
                false => Plan::Clean,
            };
        }
        // An unbound node is made with its attributes.
        if !of.is_bound() {
            return Plan::Wait(node);
        }
        // It may be that home lost it.
        if of.is_missing() {
            return Plan::Wait(node);
        }
        // To set nothing makes the next sync settle the node itself.
        let settles = of.may_be_lost() && of.set_since.is_some() && of.unsettled == 0;
        if !of.has_unset() && !settles {
            return Plan::Clean;
        }
        // Its times are right only after its entries are; and it may not permit their changes any more.
        if of.directory.as_ref().is_some_and(|directory| directory.dirty > 0) {
            return Plan::Wait(node);
        }
        Plan::Do(Command::Set { node, attributes: of.unset, xattrs: of.unset_xattrs.clone() })
    }

    pub(crate) fn plan_entry(&self, at: &Place) -> Plan {
        let Some(parent) = self.nodes.get(&at.parent()) else { return Plan::Later };
        let Some(entry) = self.entry(at) else { return Plan::Clean };
        if entry.busy || entry.lsn >= self.durable {
            return Plan::Later;
        }
        if !entry.is_dirty() {
            return Plan::Clean;
        }
        if !parent.is_bound() {
            return Plan::Wait(at.parent());
        }
        if let Some(above) = self.lost_answer_above(at.parent()) {
            return Plan::Wait(above);
        }
        if parent.named >= self.durable {
            return Plan::WaitCommit(parent.named);
        }
        match (entry.wanted, entry.home) {
            (_, AtHome::Unknown) => self.plan_look(at, parent),
            // It is found, or made again.
            _ if parent.is_missing() => Plan::Wait(at.parent()),
            (None, AtHome::Node(there)) => self.plan_removal(at, there),
            (Some(node), AtHome::Node(there)) => self.plan_replacement(at, node, there),
            (Some(node), AtHome::Nothing) => self.plan_placement(at, node, None),
            (None, AtHome::Nothing) => Plan::Clean,
        }
    }

    /// Home is to be asked for a name. If it does not have the directory, as far as is known, the answer is known once all
    /// names were looked at that may be the directory's: so directories that home lost do not wait for one another. Home is
    /// asked even then: somebody else may have moved the directory to a name that is not known.
    fn plan_look(&self, at: &Place, parent: &Node) -> Plan {
        let waits = parent.is_missing() || parent.is_removed();
        match waits
            && !self.unsettled_by_failure.is_empty()
            && !self.unsettled_by_failure.contains(at)
        {
            true => Plan::WaitLooks,
            false => Plan::Do(Command::Look { at: at.clone() }),
        }
    }

    /// A name that home has is to go.
    fn plan_removal(&self, at: &Place, there: NodeId) -> Plan {
        let node = &self.nodes[&there];
        if node.busy {
            return Plan::Wait(there);
        }
        if !self.moves_from(there) || node.parked {
            return self.remove(at, there, node);
        }
        // The name goes when the node is renamed to where it should be. That may wait for the removal of the directory
        // that the name is in.
        match self.wanted_places(at.parent()).next() {
            None if at.parent() != NodeId::ROOT => self.make_way(at, None, there),
            _ => Plan::Wait(there),
        }
    }

    fn remove(&self, at: &Place, there: NodeId, node: &Node) -> Plan {
        if node.set_lsn >= self.durable {
            // It may be that it lost its last name only just now.
            return Plan::WaitCommit(node.set_lsn);
        }
        match &node.directory {
            None => Plan::Do(Command::Unlink { node: there, at: at.clone() }),
            // Nobody here may remove one with entries.
            Some(directory) if !directory.is_empty() => Plan::ComesBack(there, at.clone()),
            Some(directory) if !directory.is_empty_at_home() => Plan::Wait(there),
            Some(_) => Plan::Do(Command::RemoveDirectory { node: there, at: at.clone() }),
        }
    }

    /// A name at home is to lead to another node.
    fn plan_replacement(&self, at: &Place, node: NodeId, there: NodeId) -> Plan {
        let (new, old) = (&self.nodes[&node], &self.nodes[&there]);
        if new.busy || new.binding == Binding::Making {
            return Plan::Wait(node);
        }
        if old.busy {
            return Plan::Wait(there);
        }
        // Not lost by this: home has it under another name, too, or nobody wants it any more.
        let is_spare = old.parked || old.places.home().nth(1).is_some();
        if self.moves_from(there) && !is_spare {
            return self.make_way(at, Some(node), there);
        }
        match (&new.directory, &old.directory) {
            (None, None) if old.set_lsn < self.durable => {
                self.plan_placement(at, node, Some(there))
            }
            _ => self.remove(at, there, old),
        }
    }

    /// What is there has to move before `node` can take its name, or before its directory can be removed.
    fn make_way(&self, at: &Place, node: Option<NodeId>, there: NodeId) -> Plan {
        let target = self.nodes[&there].places.unplaced().next().expect("it moves from here");
        let entry = self.entry(target).expect("a place is an entry");
        if entry.lsn >= self.durable {
            return Plan::WaitCommit(entry.lsn);
        }
        let parent = &self.nodes[&target.parent()];
        let home_of_target = (entry.home, parent.is_bound() && !parent.is_missing());
        if entry.busy
            || home_of_target == (AtHome::Nothing, true) && !self.waits_above(there, target)
        {
            return Plan::Wait(there);
        }
        if let Some(node) = node
            && self.exchanges
            && entry.home == AtHome::Node(node)
            && !self.waits_above(node, at)
            && !self.waits_above(there, target)
        {
            let (one, other) = ((there, at.clone()), (node, target.clone()));
            return Plan::Do(Command::Exchange { one, other });
        }
        let to = Tree::parking(there);
        Plan::Do(Command::Rename { node: there, from: at.clone(), to, replacing: None })
    }

    /// A node is to get a name that is free at home, or that leads to a file which may be replaced.
    fn plan_placement(&self, at: &Place, node: NodeId, replacing: Option<NodeId>) -> Plan {
        let new = &self.nodes[&node];
        if new.busy || new.binding == Binding::Making {
            return Plan::Wait(node);
        }
        if !new.is_bound() {
            if new.set_lsn >= self.durable {
                return Plan::WaitCommit(new.set_lsn);
            }
            if new.places.unsure().next().is_some() {
                // A recovery may find it there.
                return Plan::Wait(node);
            }
            let at = if replacing.is_some() { Tree::parking(node) } else { at.clone() };
            return Plan::Do(make(node, new, at));
        }
        if new.directory.is_some()
            && let Some(above) = self.unsettled_above(node, at)
        {
            return Plan::Wait(above);
        }
        let to = at.clone();
        if new.parked {
            let from = Tree::parking(node);
            return Plan::Do(Command::Rename { node, from, to, replacing });
        }
        // Where home has it under a name that it should not have.
        if let Some(from) = new.places.with(Role::Surplus).next() {
            let entry = self.entry(from).expect("a place is an entry");
            if entry.lsn >= self.durable {
                return Plan::WaitCommit(entry.lsn);
            }
            return Plan::Do(Command::Rename { node, from: from.clone(), to, replacing });
        }
        let is_unsure = new.places.unsure().next().is_some();
        if !is_unsure && new.is_missing() {
            let looked = self.unsettled_by_failure.is_empty();
            return if looked { Plan::Lost(node) } else { Plan::WaitLooks };
        }
        match replacing {
            // It is at one of them.
            _ if is_unsure => Plan::Wait(node),
            Some(there) if new.directory.is_some() => self.remove(at, there, &self.nodes[&there]),
            // Home may not have it any more: what it replaces is not removed before that is known.
            Some(_) => Plan::Do(Command::Link { node, at: Tree::parking(node) }),
            // A directory is not linked: home does not have it where it was.
            None if new.directory.is_some() => Plan::Gone,
            None => Plan::Do(Command::Link { node, at: to }),
        }
    }

    /// Whether a node is to get another name before it may lose the one that home has.
    fn moves_from(&self, node: NodeId) -> bool {
        self.nodes[&node].places.unplaced().next().is_some()
    }

    fn waits_above(&self, node: NodeId, to: &Place) -> bool {
        self.nodes[&node].directory.is_some() && self.unsettled_above(node, to).is_some()
    }

    /// A directory on the way from the root down to a name that another directory is to get, and that home does not have where it
    /// should be.
    fn unsettled_above(&self, moved: NodeId, to: &Place) -> Option<NodeId> {
        let mut at = to.parent();
        while at != NodeId::ROOT {
            let Some(place) = self.wanted_places(at).next() else {
                return self.moved_before(moved, to);
            };
            if self.nodes[&at].busy || self.entry(place)?.home != AtHome::Node(at) {
                return Some(at);
            }
            at = place.parent();
        }
        None
    }
}

/// Where it is not known in which directories a name is.
impl Tree {
    /// A directory that was moved before another one was to get this name, and that home does not have there yet: the name may be
    /// below it, and it may be below the other one at home. It is one of which it is known in which directories it is to be, so that it does
    /// not wait for the other.
    fn moved_before(&self, moved: NodeId, to: &Place) -> Option<NodeId> {
        if self.is_recovering {
            // What home refuses is tried once more when all else was done.
            return None;
        }
        let since = self.entry(to)?.lsn;
        let moves = |at: &Place| {
            let entry = self.entry(at)?;
            let node = entry.wanted.filter(|&node| node != moved && entry.lsn < since)?;
            let of = &self.nodes[&node];
            let is_moved = of.directory.is_some()
                && of.is_bound()
                && entry.home != AtHome::Node(node)
                && self.is_way_known(at);
            is_moved.then_some(node)
        };
        let to_do = self.queue.parts().filter_map(|part| match part {
            Part::Entry(at) => moves(at),
            Part::Attributes(_) => None,
        });
        let under_way = self.in_flight.values().filter_map(|of| match &of.command {
            Command::Rename { to, .. } => moves(to),
            _ => None,
        });
        to_do.chain(under_way).next()
    }

    fn is_way_known(&self, at: &Place) -> bool {
        let mut directory = at.parent();
        while directory != NodeId::ROOT {
            let Some(place) = self.wanted_places(directory).next() else { return false };
            directory = place.parent();
        }
        true
    }
}

/// A node is made at home with all that is known of it. Entries that a directory gets afterwards change its modification
/// time: that is set when they are there.
fn make(node: NodeId, of: &Node, at: Place) -> Command {
    let (kind, mut attributes, xattrs) = (of.kind.clone(), of.unset, of.unset_xattrs.clone());
    if of.directory.as_ref().is_some_and(|directory| directory.dirty > 0) {
        attributes.mtime = None;
    }
    Command::Make { node, at, kind, attributes, xattrs }
}
