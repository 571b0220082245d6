//! Recovery: what the log says was wanted, made so at home by the same procedure that brings a living tree home.
//!
//! Replay applies the log's changes to an empty tree in which nothing is known of home. So each name that the log
//! mentions is looked at, whatever home did or lost of it, and what differs is changed. A recovery that is cut anywhere
//! is done again from the start, and an entry that home already has costs one look.
//!
//! Home's nodes are told apart by their identities, which the log has for every node that home had when it was logged.
//! A node that home got afterwards has none in the log yet. It is *adopted*: found under a name that the log gave
//! it, of its kind and empty. (Its data goes home only after its identity is durable in the log, so that it is empty.)
//!
//! Whatever else is found is *foreign*: somebody else put it there. It keeps its name, and what Weir wanted there gets
//! another name beside it. The same holds while mounted, where home turns out to have been changed by somebody else.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::change::Change;
use crate::tree::entry::AtHome;
use crate::tree::found::{Adoption, Conflict, ReplayError};
use crate::tree::node::{Binding, Kind, Node};
use crate::tree::part::Part;
use crate::tree::places::Role;
use crate::tree::state::Tree;
use crate::way::Place;

impl Tree {
    /// A tree to replay a log to, which ends at `end`: nothing is known of home. Identities that home gives meanwhile are
    /// recorded at positions from `end` on.
    pub fn recovering(end: Lsn) -> Tree {
        Tree { is_recovering: true, ..Tree::new(end) }
    }

    /// Applies a change of the log. Nodes that home had are introduced before ([`Tree::introduce`]).
    ///
    /// A node that no record of the log makes or names is gone: it was made and removed before home had it, and the record
    /// that made it was not needed any more. What the log says of it means that the name leads to nothing.
    ///
    /// # Errors
    /// [`ReplayError`]: the log is damaged.
    pub fn replay(&mut self, change: Change, lsn: Lsn) -> Result<(), ReplayError> {
        match change {
            Change::Make { node, .. } if self.nodes.contains_key(&node) => {
                return Err(ReplayError::MadeTwice(node));
            }
            Change::Make { node: NodeId::PARKING, .. } => {
                return Err(ReplayError::MadeTwice(NodeId::PARKING));
            }
            Change::Make { node, at, kind, attributes } => {
                let is_there = self.made_at_home.contains(&node);
                let binding = if is_there { Binding::Bound } else { Binding::Unbound };
                let mut made = Node::new(kind, binding);
                (made.unset, made.made_here) = (attributes, true);
                self.nodes.insert(node, made);
                self.attributes_changed(node, lsn);
                self.replay_entry(&at, Some(node), lsn)?;
            }
            Change::Link { node, .. } if self.kind(node).is_some_and(Kind::is_directory) => {
                return Err(ReplayError::TwoPlaces(node));
            }
            Change::Link { node, at } => self.replay_entry(&at, Some(node), lsn)?,
            Change::Remove { node, at } => {
                self.replay_entry(&at, None, lsn)?;
                self.may_be_at(&at, node);
            }
            // Two names of one file: nothing happens (rename(2)).
            Change::Rename { node, replaced, .. } if replaced == Some(node) => {}
            Change::Exchange { ref one, ref other } if one.0 == other.0 => {}
            Change::Rename { node, from, to, replaced } => {
                self.replay_above(node, &to)?;
                self.replay_entry(&to, Some(node), lsn)?;
                self.replay_entry(&from, None, lsn)?;
                self.may_be_at(&from, node);
                if let Some(replaced) = replaced {
                    self.may_be_at(&to, replaced);
                }
            }
            Change::Exchange { one, other } => {
                self.replay_above(one.0, &other.1)?;
                self.replay_above(other.0, &one.1)?;
                self.replay_entry(&one.1, Some(other.0), lsn)?;
                self.replay_entry(&other.1, Some(one.0), lsn)?;
                self.may_be_at(&one.1, one.0);
                self.may_be_at(&other.1, other.0);
            }
            Change::Set { node, .. } | Change::SetXattr { node, .. }
                if !self.nodes.contains_key(&node) => {}
            Change::Set { .. } | Change::SetXattr { .. } => self.apply_unchecked(change, lsn),
        }
        self.queue.commit(self.durable);
        Ok(())
    }

    /// A directory does not get a name below itself.
    fn replay_above(&self, node: NodeId, to: &Place) -> Result<(), ReplayError> {
        let is_known = self.nodes.contains_key(&node);
        match is_known && self.check_not_below(node, to.parent()).is_err() {
            true => Err(ReplayError::TwoPlaces(node)),
            false => Ok(()),
        }
    }

    /// A name led to a node when it was changed: home may still have it there.
    fn may_be_at(&mut self, at: &Place, node: NodeId) {
        let is_unknown = self.entry(at).is_some_and(|entry| entry.home == AtHome::Unknown);
        if let Some(known) = self.nodes.get_mut(&node).filter(|_| is_unknown)
            && known.places.role(at).is_none()
        {
            known.places.set(at, Some(Role::Unsure));
            self.unsure.entry(at.clone()).or_default().push(node);
        }
    }

    fn replay_entry(
        &mut self,
        at: &Place,
        to: Option<NodeId>,
        lsn: Lsn,
    ) -> Result<(), ReplayError> {
        match self.nodes.get(&at.parent()) {
            None => Ok(()),
            Some(Node { directory: None, .. }) => Err(ReplayError::NoDirectory(at.parent())),
            Some(_) => {
                self.want(at, to.filter(|node| self.nodes.contains_key(node)), lsn);
                let directory = self.nodes.get_mut(&at.parent()).expect("it was found just now");
                // What a program set before does not count any more.
                directory.unset.mtime = None;
                Ok(())
            }
        }
    }

    /// Whose it is what home has at a place, if its identity is not known. The caller has seen that the file or directory is
    /// empty; what is not, is foreign.
    ///
    /// If it may have been made for several nodes, it is given to none: it has the attributes of the one that it was made for,
    /// and the log does not say what another node would have instead of those. A node that home has elsewhere counts: home
    /// may have lost it, had it made again, and then lost that this one was removed.
    pub fn adoptable(&self, at: &Place, kind: &Kind) -> Adoption {
        let may = |node: &Node| {
            node.made_here && node.kind.may_be(kind) && node.places.role(at).is_some()
        };
        let wanted = self.entry(at).and_then(|entry| entry.wanted);
        let unsure = self.unsure.get(at).map_or(&[][..], Vec::as_slice);
        let candidates = wanted.into_iter().chain(unsure.iter().copied());
        let mut candidates = candidates.filter(|number| self.nodes.get(number).is_some_and(may));
        match candidates.next() {
            None => Adoption::Foreign,
            Some(only) if candidates.any(|other| other != only) => Adoption::Surplus,
            Some(only) if self.nodes[&only].binding == Binding::Unbound => Adoption::Node(only),
            Some(_) => Adoption::Surplus,
        }
    }

    /// Home has a node that was made here, found by [`Tree::adoptable`]: a record at `named` says which inode it is. Its
    /// attributes are set once more.
    ///
    /// # Panics
    /// If home was known to have it.
    pub fn adopt(&mut self, node: NodeId, named: Lsn) {
        let adopted = self.nodes.get_mut(&node).expect("an adopted node is known");
        assert_eq!(adopted.binding, Binding::Unbound, "{node:?} is adopted once");
        (adopted.binding, adopted.named) = (Binding::Bound, named);
        self.wake(node);
    }

    /// The node of a name in [`NodeId::PARKING`], if it is the name of one.
    pub fn node_parked_as(name: &[u8]) -> Option<NodeId> {
        let number = std::str::from_utf8(name).ok()?.strip_prefix("node-")?;
        let node = NodeId(u64::from_str_radix(number, 16).ok()?);
        (Tree::parking(node).name() == name).then_some(node)
    }

    /// Home has a node parked: found in [`NodeId::PARKING`] before the first command of a recovery, or after a sync of home
    /// failed. If it was made here it was adopted or bound before. What is parked there and not known is of no use any
    /// more; the caller removes it.
    pub fn found_parked(&mut self, node: NodeId) {
        let parked = self.nodes.get_mut(&node).filter(|_| node != NodeId::ROOT);
        let Some(parked) = parked.filter(|node| node.is_bound()) else { return };
        parked.parked = true;
        self.wake(node);
        // It may be one that nothing leads to any more.
        self.queue.push(Part::Attributes(node));
    }

    /// The log has the identity of a node that it makes, and home has that. To be called before the change that makes it is
    /// replayed.
    pub fn made_at_home(&mut self, node: NodeId) {
        self.made_at_home.insert(node);
    }

    /// A node that somebody else made at home under a name that was changed here.
    pub fn introduce_foreign(&mut self, node: NodeId, kind: Kind) {
        self.introduce(node, kind);
        self.foreign.insert(node);
    }

    /// What was found was made for a node that does not get it: see [`Adoption::Surplus`]. Other names may lead to it, too.
    pub fn introduce_surplus(&mut self, node: NodeId, kind: Kind) {
        self.introduce(node, kind);
        self.surplus.insert(node);
    }

    /// Names that somebody else took at home, since this was asked last.
    pub fn take_conflicts(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.conflicts)
    }
}
