//! The tree's state: what is known, what differs from home, and what follows from a change of one entry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::command::{HomeError, InFlight};
use crate::tree::command_id::CommandId;
use crate::tree::entry::{AtHome, Directory, Entry};
use crate::tree::found::Conflict;
use crate::tree::needed::Needed;
use crate::tree::node::{Attributes, Binding, Kind, Node, Xattrs};
use crate::tree::part::Part;
use crate::tree::places::Role;
use crate::tree::queue::Queue;
use crate::tree::tried::Tried;
use crate::way::Place;

/// The tree of one SOURCE: see the module.
#[derive(Debug)]
pub struct Tree {
    pub(crate) nodes: HashMap<NodeId, Node>,
    /// Everything before this position is durable in the log.
    pub(crate) durable: Lsn,
    pub(crate) queue: Queue,
    /// Nodes that names led to which home was not asked for since: home may have them there.
    pub(crate) unsure: HashMap<Place, Vec<NodeId>>,
    pub(crate) in_flight: HashMap<CommandId, InFlight>,
    /// Those of them that home may have done, with the error instead of the answer.
    pub(crate) lost_answers: BTreeMap<CommandId, HomeError>,
    /// These, and those of which it is being found out.
    pub(crate) doubted: BTreeSet<CommandId>,
    pub(crate) next_command: u64,
    pub(crate) needed: Needed,
    /// Home exchanges names (RENAME_EXCHANGE).
    pub(crate) exchanges: bool,
    pub(crate) dirty: usize,
    /// Nodes that somebody else made at home under names that were changed here.
    pub(crate) foreign: HashSet<NodeId>,
    /// What a recovery found and has no use for: it loses each name under which it is found.
    pub(crate) surplus: HashSet<NodeId>,
    pub(crate) conflicts: Vec<Conflict>,
    /// Parts that were not at home as they were known to be, once.
    pub(crate) surprised: HashSet<Part>,
    /// Names that somebody else changed at home, to be looked at.
    pub(crate) changed_by_others: HashSet<Place>,
    /// Names that a failed sync was to settle, to be looked at: before that, no node is known to be lost.
    pub(crate) unsettled_by_failure: HashSet<Place>,
    /// Nodes that the log to be replayed makes, and that home has.
    pub(crate) made_at_home: HashSet<NodeId>,
    /// There is a log. Without one, nothing has to be known after home has it.
    pub(crate) has_log: bool,
    /// A log was replayed to it: it has every name that home may have of the nodes that the log speaks of.
    pub(crate) is_recovering: bool,
    /// Home does not say that two names lead to one node: see [`Tree::remember_links`].
    pub(crate) remembers_links: bool,
    /// Nodes that lost their last place: see [`Tree::take_unneeded`].
    pub(crate) unneeded: BTreeSet<NodeId>,
    pub(crate) tried: Tried,
}

impl Tree {
    /// Of a home of which only the root is known. `durable`: up to where the log is.
    pub fn new(durable: Lsn) -> Tree {
        let root = Node::new(Kind::Directory, Binding::Bound);
        Tree {
            nodes: HashMap::from([(NodeId::ROOT, root)]),
            durable,
            queue: Queue::default(),
            unsure: HashMap::new(),
            in_flight: HashMap::new(),
            lost_answers: BTreeMap::new(),
            doubted: BTreeSet::new(),
            next_command: 0,
            needed: Needed::default(),
            exchanges: true,
            dirty: 0,
            foreign: HashSet::new(),
            surplus: HashSet::new(),
            conflicts: Vec::new(),
            surprised: HashSet::new(),
            changed_by_others: HashSet::new(),
            unsettled_by_failure: HashSet::new(),
            made_at_home: HashSet::new(),
            has_log: true,
            is_recovering: false,
            remembers_links: false,
            unneeded: BTreeSet::new(),
            tried: Tried::default(),
        }
    }

    /// The same without a log: home may have each change at once, and what it has is settled. Positions are still to be
    /// given to changes, above 0; they need not differ. [`Answer::Made`](crate::tree::Answer::Made) has `Lsn(0)`.
    pub fn without_log() -> Tree {
        let mut tree = Tree { has_log: false, ..Tree::new(Lsn(u64::MAX)) };
        tree.queue.commit(tree.durable);
        tree
    }

    /// Home knows files by their names (sshfs): asked again, it would say that two names of one file lead to two. So names
    /// are not forgotten of what is known to have several.
    pub fn remember_links(&mut self) {
        self.remembers_links = true;
    }
}

/// Questions.
impl Tree {
    /// What a name leads to: a node, nothing, or `None` if home is to be asked.
    pub fn look_up(&self, directory: NodeId, name: &[u8]) -> Option<Option<NodeId>> {
        let directory = self.nodes.get(&directory)?.directory.as_ref()?;
        match directory.get(name) {
            Some(entry) if entry.wanted.is_some() || entry.lsn > Lsn(0) => Some(entry.wanted),
            Some(Entry { home: AtHome::Unknown, .. }) => None,
            Some(entry) => Some(entry.wanted),
            None => directory.complete.then_some(None),
        }
    }

    /// Whether all names of a directory are known, so that a name that is not here is not there.
    pub fn is_complete(&self, directory: NodeId) -> bool {
        let directory = self.nodes.get(&directory).and_then(|node| node.directory.as_ref());
        directory.is_some_and(|directory| directory.complete)
    }

    /// The names of a directory that lead to something, from a position on, each with its own: see
    /// [`Positions`](crate::tree::Positions).
    pub fn list(
        &self,
        directory: NodeId,
        position: u64,
    ) -> impl Iterator<Item = (u64, &[u8], NodeId)> {
        let node = self.nodes.get(&directory).and_then(|node| node.directory.as_ref());
        node.into_iter().flat_map(move |directory| directory.list_from(position))
    }

    /// What a node is.
    pub fn kind(&self, node: NodeId) -> Option<&Kind> {
        Some(&self.nodes.get(&node)?.kind)
    }

    /// What home does not have yet of a node's attributes, to be laid over what home says.
    pub fn unset(&self, node: NodeId) -> Option<(&Attributes, &Xattrs)> {
        let node = self.nodes.get(&node)?;
        Some((&node.unset, &node.unset_xattrs))
    }

    /// Whether home has a node.
    pub fn is_bound(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(Node::is_bound)
    }

    /// The names that lead to a node, as far as they are known.
    pub fn wanted_places(&self, node: NodeId) -> impl Iterator<Item = &Place> {
        self.nodes.get(&node).into_iter().flat_map(|node| node.places.wanted())
    }

    /// Nodes known.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: the root is always known.
    pub fn is_empty(&self) -> bool {
        false
    }

    pub(crate) fn entry(&self, at: &Place) -> Option<&Entry> {
        self.nodes.get(&at.parent())?.directory.as_ref()?.get(at.name())
    }
}

/// What home was found to have.
impl Tree {
    /// A node that home has, found there or named by the log.
    pub fn introduce(&mut self, node: NodeId, kind: Kind) {
        self.nodes.entry(node).or_insert_with(|| Node::new(kind, Binding::Bound));
    }

    /// Home was asked for a name, and has this node there, which was introduced. A name that is known stays as it is.
    pub fn found(&mut self, at: &Place, node: Option<NodeId>) {
        // The answer may be older than what is known.
        let is_busy = self.entry(at).is_some_and(|entry| entry.since.is_some() || entry.busy);
        if is_busy || self.look_up(at.parent(), at.name()).is_some() {
            return;
        }
        let home = node.map_or(AtHome::Nothing, AtHome::Node);
        self.change_entry(at, |entry| (entry.wanted, entry.home) = (node, home));
    }

    /// All names that home has in a directory were told by [`Tree::found`].
    pub fn listed(&mut self, directory: NodeId) {
        if let Some(directory) = self.directory_mut(directory) {
            directory.complete = true;
        }
    }

    /// Home may have something else under a name that is clean: it is asked again.
    pub fn forget(&mut self, at: &Place) {
        self.settle_if_home(at);
        let named = self.entry(at).and_then(|entry| entry.wanted);
        // What is known of a node by this name alone would be lost with it.
        let is_needed = named.and_then(|node| self.nodes.get(&node)).is_some_and(|node| {
            let has_entries = node.directory.as_ref().is_some_and(|of| !of.has_no_entries());
            node.set_since.is_some()
                || node.unsettled > 0
                || node.busy
                || node.parked
                || has_entries
                || self.remembers_links && node.places.len() > 1
        });
        let is_bound = self.is_bound(at.parent());
        if !is_needed && is_bound && self.nodes[&at.parent()].directory.is_some() {
            self.drop_entry(at);
        }
    }

    /// Home may have something else under any name of a directory: all that is known of it is forgotten as by
    /// [`Tree::forget`], if nothing in it is to be brought home, or is on its way, or is not settled. Says whether that is so.
    pub fn forget_clean(&mut self, directory: NodeId) -> bool {
        let is_bound = self.is_bound(directory);
        let Some(of) = self.directory_mut(directory).filter(|of| {
            let is_known = |(_, entry): (&[u8], &Entry)| entry.is_merely_known();
            is_bound && of.dirty == 0 && of.busy == 0 && of.entries().all(is_known)
        }) else {
            return false;
        };
        of.complete = false;
        let place = |name| Place::new(directory, name).expect("entries have names");
        let places: Vec<Place> = of.entries().map(|(name, _)| place(name)).collect();
        places.iter().for_each(|at| self.forget(at));
        true
    }

    /// Whether the tree knows something of a node that home does not, or has a name that leads to it: whether
    /// [`Tree::let_go`] would keep it.
    pub fn is_needed(&self, node: NodeId) -> bool {
        let Some(known) = self.nodes.get(&node) else { return false };
        let children = known.directory.as_ref().is_some_and(|of| !of.has_no_entries());
        let is_used = !known.places.is_empty() || known.busy || known.parked || children;
        // Nobody will ever see the attributes of what has no name any more and is not open; another node may have names that
        // are not known.
        let is_dirty = known.set_since.is_some() && !known.is_unseen();
        // Its number may not mean another node before a sync of home has settled it.
        node == NodeId::ROOT || is_used || is_dirty || known.unsettled > 0
    }

    /// Nodes that no name leads to any more, here and at home, and that were not told of before: each may be let go, unless
    /// a program still uses it.
    pub fn take_unneeded(&mut self) -> Vec<NodeId> {
        let unneeded = std::mem::take(&mut self.unneeded);
        unneeded.into_iter().filter(|&node| !self.is_needed(node)).collect()
    }

    /// Lets go a node that nothing leads to and that is not to be changed at home: its number means nothing any more.
    /// Says whether it was let go.
    pub fn let_go(&mut self, node: NodeId) -> bool {
        if self.is_needed(node) {
            return false;
        }
        let Some(gone) = self.nodes.remove(&node) else { return true };
        self.foreign.remove(&node);
        self.surplus.remove(&node);
        self.unneeded.remove(&node);
        self.queue.settle(&Part::Attributes(node));
        self.surprised.remove(&Part::Attributes(node));
        self.wake(node);
        self.needed.release(gone.set_since);
        if gone.set_since.is_some() {
            self.dirty -= 1;
        }
        true
    }

    /// Somebody waits for a node, as fsync(2) does: its names and attributes, and the directories above it, are brought home
    /// before other things. To be called once for each who waits.
    pub fn urge(&mut self, node: NodeId) {
        const NAMES_MAX: usize = 64;
        let Some(of) = self.nodes.get(&node) else { return };
        let mut parts = Vec::new();
        if of.set_since.is_some() {
            parts.push(Part::Attributes(node));
        }
        let open = of.places.unplaced().chain(of.places.with(Role::Surplus)).take(NAMES_MAX);
        parts.extend(open.cloned().map(Part::Entry));
        let mut above = None;
        for place in of.places.iter().take(NAMES_MAX) {
            if above != Some(place.parent()) {
                above = Some(place.parent());
                let unsettled = self.unsettled_places_above(place.parent());
                parts.extend(unsettled.cloned().map(Part::Entry));
            }
        }
        // The last one that is put in front is the first: the topmost directory.
        for part in parts {
            self.queue.urge(part);
        }
    }
}

/// Changes of entries, and what follows from them.
impl Tree {
    /// What a name is to lead to from now on.
    pub(crate) fn want(&mut self, at: &Place, to: Option<NodeId>, lsn: Lsn) {
        let (before, first) = self.change_entry(at, |entry| {
            let before = (entry.wanted, entry.since);
            (entry.wanted, entry.lsn) = (to, lsn);
            entry.since = entry.since.or(Some(lsn));
            before
        });
        if first.is_none() {
            self.needed.add(lsn);
            self.dirty += 1;
        }
        if let Some(node) = before.filter(|_| before != to) {
            self.review_place(node, at);
            self.wake(node);
            // If nothing leads to it any more, home learns of that no sooner than the log.
            if self.wanted_places(node).next().is_none() {
                let nameless = self.nodes.get_mut(&node);
                let nameless = nameless.expect("entries lead to nodes that are known");
                (nameless.set_lsn, nameless.nameless) = (lsn, true);
                self.review_need(node);
                self.empty_removed(node);
            }
            self.queue.changed(lsn, Part::Attributes(node));
        }
        if let Some(node) = to.and_then(|node| self.nodes.get_mut(&node)) {
            node.nameless = false;
        }
        self.queue.changed(lsn, Part::Entry(at.clone()));
    }

    /// A directory was removed: names in it that waited for their nodes to move elsewhere do not wait any more.
    fn empty_removed(&mut self, node: NodeId) {
        let Some(directory) = &self.nodes[&node].directory else { return };
        let dirty = directory.entries().filter(|(_, entry)| entry.is_dirty());
        let place = |name| Place::new(node, name).expect("entries have names");
        let places: Vec<Place> = dirty.map(|(name, _)| place(name)).collect();
        for place in places {
            self.queue.push(Part::Entry(place));
        }
    }

    /// What home has under a name now.
    pub(crate) fn set_home(&mut self, at: &Place, home: AtHome) {
        if self.directory_mut(at.parent()).is_none() {
            return;
        }
        let unsure = self.unsure.remove(at).unwrap_or_default();
        let before = self.change_entry(at, |entry| std::mem::replace(&mut entry.home, home));
        let wanted = self.entry(at).and_then(|entry| entry.wanted);
        let known = [before.node(), home.node(), wanted].into_iter().flatten();
        for node in known.chain(unsure) {
            self.review_place(node, at);
            self.wake(node);
        }
        self.wake(at.parent());
    }

    pub(crate) fn change_entry<T>(
        &mut self,
        at: &Place,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> T {
        let directory = self.directory_mut(at.parent()).expect("entries are in directories");
        let before = leads(directory.get(at.name()));
        let result = directory.change(at.name(), change);
        let after = leads(directory.get(at.name()));
        let is_empty = directory.has_no_entries();
        if before != after {
            self.leads_changed(at, before, after);
        }
        if is_empty {
            self.review_need(at.parent());
        }
        result
    }

    /// Forgets an entry if it is merely known.
    pub(crate) fn drop_entry(&mut self, at: &Place) {
        let directory = self.directory_mut(at.parent()).expect("entries are in directories");
        let before = leads(directory.get(at.name()));
        directory.forget(at.name());
        if let Some(node) =
            before.and_then(|(wanted, _)| wanted).and_then(|node| self.nodes.get_mut(&node))
        {
            node.has_forgotten_names = true;
        }
        let directory = self.directory_mut(at.parent()).expect("entries are in directories");
        let after = leads(directory.get(at.name()));
        self.leads_changed(at, before, after);
        self.review_need(at.parent());
    }

    fn leads_changed(&mut self, at: &Place, before: Leads, after: Leads) {
        let nodes =
            |leads: Leads| leads.map_or([None, None], |(wanted, home)| [wanted, home.node()]);
        let is_directory =
            |node: NodeId| self.nodes.get(&node).is_some_and(|of| of.kind.is_directory());
        let count = |leads| nodes(leads).map(|node| usize::from(node.is_some_and(is_directory)));
        let (was, is) = (count(before), count(after));
        let directory = self.directory_mut(at.parent()).expect("entries are in directories");
        let counted = &mut directory.subdirectories;
        counted.wanted = counted.wanted + is[0] - was[0];
        counted.home = counted.home + is[1] - was[1];
        for node in nodes(after).into_iter().flatten() {
            assert!(self.nodes.contains_key(&node), "entries lead to nodes that are known");
        }
        for node in nodes(before).into_iter().chain(nodes(after)).flatten() {
            self.review_place(node, at);
        }
    }

    /// What a place is to a node, now that its entry changed.
    pub(crate) fn review_place(&mut self, node: NodeId, at: &Place) {
        let entry = self.entry(at).copied();
        let is_unknown = entry.is_some_and(|entry| entry.home == AtHome::Unknown);
        let role = entry.and_then(|entry| Role::of(&entry, node));
        let Some(of) = self.nodes.get_mut(&node) else { return };
        let is_unsure = role.is_none() && is_unknown && of.places.role(at).is_some();
        of.places.set(at, if is_unsure { Some(Role::Unsure) } else { role });
        if is_unsure {
            let unsure = self.unsure.entry(at.clone()).or_default();
            if !unsure.contains(&node) {
                unsure.push(node);
            }
        }
        self.review_need(node);
    }

    /// If a node is not needed any more, its owner is told.
    pub(crate) fn review_need(&mut self, node: NodeId) {
        if self.nodes.contains_key(&node) && !self.is_needed(node) {
            self.unneeded.insert(node);
        }
    }

    /// A node's attributes were changed.
    pub(crate) fn attributes_changed(&mut self, node: NodeId, lsn: Lsn) {
        let changed = self.nodes.get_mut(&node).expect("it was checked");
        changed.set_lsn = lsn;
        if changed.set_since.is_none() {
            changed.set_since = Some(lsn);
            self.needed.add(lsn);
            self.dirty += 1;
        }
        self.queue.changed(lsn, Part::Attributes(node));
    }

    /// Something changed about a node: what waited for that is looked at again.
    pub(crate) fn wake(&mut self, node: NodeId) {
        self.queue.wake(node);
        if self.nodes.get(&node).is_some_and(|node| node.parked) {
            // It may not be needed there any more.
            self.queue.push(Part::Attributes(node));
        }
    }

    pub(crate) fn directory_mut(&mut self, node: NodeId) -> Option<&mut Directory> {
        self.nodes.get_mut(&node)?.directory.as_deref_mut()
    }
}

/// What an entry leads to, as it should be and at home.
type Leads = Option<(Option<NodeId>, AtHome)>;

fn leads(entry: Option<&Entry>) -> Leads {
    entry.map(|entry| (entry.wanted, entry.home))
}
