//! Where home turns out not to be as it was known to be: somebody else changed it, or it lost what it had not synced.
//!
//! What somebody else put somewhere stays there, and programs see it; what Weir wanted there gets a name beside it. Nothing
//! is ever removed or replaced that was not known to be there.

use crate::identity::NodeId;
use crate::tree::entry::AtHome;
use crate::tree::found::Conflict;
use crate::tree::needed::Settling;
use crate::tree::node::Binding;
use crate::tree::part::Part;
use crate::tree::state::Tree;
use crate::way::Place;

impl Tree {
    /// Whether home may have lost a node, instead of somebody else having removed it.
    pub(crate) fn may_be_lost(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|of| of.may_be_lost())
    }

    /// Home lost a node that it had not synced: it is made again, with all its attributes, and what home has in it is made
    /// again, too.
    pub(crate) fn make_again(&mut self, node: NodeId) {
        let is_of = |settling: &Settling| matches!(settling, Settling::Attributes { node: of, .. } if *of == node);
        let mut sent = Vec::new();
        for unsettled in [&mut self.needed.settling, &mut self.needed.syncing] {
            sent.extend(unsettled.extract_if(.., |settling| is_of(settling)));
        }
        for settling in sent {
            if let Settling::Attributes { node, since, .. } = settling {
                self.attributes_synced(node, since, false);
            }
        }
        let lost = self.nodes.get_mut(&node).expect("it was planned for");
        assert!(!lost.busy, "{node:?} is lost while a command is on it");
        (lost.binding, lost.named) = (Binding::Unbound, weir_log::Lsn(0));
        let directory = lost.directory.iter_mut();
        let names = directory.flat_map(|of| of.entries().map(|(name, _)| Box::from(name)));
        let names: Vec<Box<[u8]>> = names.collect();
        for name in names {
            let at = Place::new(node, &name).expect("entries have names");
            self.set_home(&at, AtHome::Nothing);
            self.looked_at(&at);
            let part = Part::Entry(at);
            // It was refused, if it was, because its directory was not there.
            self.surprised.remove(&part);
            self.queue.settle(&part);
            self.queue.push(part);
        }
        self.queue.push(Part::Attributes(node));
        self.wake(node);
    }

    /// Home was asked for a name. If it was the last one that a failed sync was to settle, it is known what was lost.
    pub(crate) fn looked_at(&mut self, at: &Place) {
        if self.unsettled_by_failure.remove(at) && self.unsettled_by_failure.is_empty() {
            self.queue.wake(NodeId::PARKING);
        }
    }

    /// What is to be done about a name, or is not settled, was decided with something in mind that home may not have there:
    /// home is asked again.
    pub(crate) fn doubt(&mut self, at: &Place) {
        let Some(entry) = self.entry(at).copied().filter(|entry| !entry.busy) else { return };
        if entry.since.is_none() {
            // The log is needed for it again, from no later position on than for what is not settled.
            let since = self.needed.first().unwrap_or(self.durable);
            self.change_entry(at, |entry| entry.since = Some(since));
            self.needed.add(since);
            self.dirty += 1;
        }
        self.set_home(at, AtHome::Unknown);
        self.queue.push(Part::Entry(at.clone()));
    }

    /// Home may not have a directory any more that it had under this name.
    pub(crate) fn note_missed(&mut self, at: &Place) {
        let there = self.entry(at).and_then(|entry| entry.home.node());
        if let Some(node) = there.and_then(|there| self.nodes.get_mut(&there))
            && node.directory.is_some()
        {
            node.missed = Some(at.clone());
        }
    }

    /// Home is asked once more for a name that is to lead to nothing, whether or not it is known.
    pub(crate) fn look_again(&mut self, at: &Place) {
        if self.directory_mut(at.parent()).is_none() {
            return;
        }
        if self.entry(at).is_none() {
            self.set_home(at, AtHome::Unknown);
        }
        if self.entry(at).is_some_and(|entry| !entry.is_dirty() && entry.wanted.is_none()) {
            self.doubt(at);
        }
    }

    /// Somebody else moved a node to this name, or gave it this name, too.
    pub(crate) fn moved_by_others(&mut self, node: NodeId, at: &Place) {
        let elsewhere = self.nodes[&node].places.home().filter(|place| *place != at);
        let is_foreign_directory =
            self.nodes[&node].directory.is_some() && self.foreign.contains(&node);
        for place in elsewhere.cloned().collect::<Vec<_>>() {
            if self.entry(&place).is_some_and(|entry| entry.is_merely_known()) {
                self.drop_entry(&place);
                continue;
            }
            if is_foreign_directory && self.entry(&place).is_some_and(|of| !of.is_dirty()) {
                // Nobody gave it that name here: it was found there.
                self.change_entry(&place, |entry| entry.wanted = None);
            }
            self.doubt(&place);
        }
        let of = &self.nodes[&node];
        // A directory has one name: where it is to be if that was decided here, or else where it is now.
        if of.directory.is_none() || of.places.wanted().next().is_none() {
            self.yield_to_foreign(at, node);
        }
    }

    /// A directory that was to be removed has something in it that somebody else put there: it comes back for programs. So will
    /// those above it that were to be removed ([`Plan::ComesBack`](crate::tree::plan::Plan)). Says whether it did: one that has
    /// no name at home but a temporary one does not.
    pub(crate) fn comes_back(&mut self, node: NodeId, at: &Place) -> bool {
        if at.parent() == NodeId::PARKING {
            return false;
        }
        if let Some(directory) = self.directory_mut(node) {
            directory.complete = false;
        }
        self.yield_to_foreign(at, node);
        true
    }

    /// Home was looked at, and has somebody else's node under a name that is to lead elsewhere.
    pub(crate) fn yield_to_foreign(&mut self, at: &Place, there: NodeId) {
        // From now on programs see it. Under other names it is foreign still: nobody has seen it there.
        self.nodes.get_mut(&there).expect("home has it there").nameless = false;
        let entry = *self.entry(at).expect("it was looked at");
        if entry.wanted == Some(there) {
            return;
        }
        let since = entry.since;
        let kept = entry.wanted.map(|node| {
            let beside = self.place_beside(at);
            self.change_entry(&beside, |entry| (entry.wanted, entry.since) = (Some(node), since));
            if let Some(since) = since {
                self.needed.add(since);
                self.dirty += 1;
            }
            self.queue.push(Part::Entry(beside.clone()));
            beside
        });
        self.change_entry(at, |entry| entry.wanted = Some(there));
        if let Some(node) = entry.wanted {
            self.review_place(node, at);
            self.wake(node);
        }
        self.conflicts.push(Conflict { at: at.clone(), kept });
    }

    /// A name beside this one that nothing is known to have.
    fn place_beside(&self, at: &Place) -> Place {
        const LONGEST: usize = crate::tree::change::NAME_BYTES_MAX - 24;
        let name = &at.name()[..at.name().len().min(LONGEST)];
        let places = (1_u64..).map(|nth| {
            let name = [name, format!(".weir-conflict-{nth}").as_bytes()].concat();
            Place::new(at.parent(), &name).expect("it is one name")
        });
        let free = |place: &Place| {
            self.entry(place).is_none_or(|entry| {
                let is_changed = entry.since.is_some() || entry.unsettled > 0 || entry.busy;
                entry.wanted.is_none() && entry.home == AtHome::Unknown && !is_changed
            })
        };
        places.into_iter().find(free).expect("some number is free")
    }
}
