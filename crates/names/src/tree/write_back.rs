//! Bringing the tree home: commands go out, answers come in.

use std::collections::HashSet;

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::command::{Answer, Command, HomeError, InFlight};
use crate::tree::command_id::CommandId;
use crate::tree::entry::AtHome;
use crate::tree::needed::Settling;
use crate::tree::node::{Attributes, Binding, Node, Xattrs};
use crate::tree::part::Part;
use crate::tree::places::Role;
use crate::tree::plan::Plan;
use crate::tree::state::Tree;
use crate::tree::view::Links;
use crate::way::Place;

impl Tree {
    /// Everything before this position is durable in the log: what was changed before it may go home.
    pub fn committed(&mut self, durable: Lsn) {
        self.durable = self.durable.max(durable);
        self.queue.commit(self.durable);
    }

    /// What the log says of the nodes that home made until now is durable, whatever its position is: the log failed, and says it
    /// once more where it goes on.
    pub fn all_named(&mut self) {
        let durable = self.durable;
        let late = |named: &Lsn| *named >= durable;
        for node in self.nodes.values_mut().filter(|node| late(&node.named)) {
            node.named = Lsn(0);
        }
        for settling in self.needed.settling.iter_mut().chain(&mut self.needed.syncing) {
            if let Settling::Attributes { named, .. } = settling
                && late(named)
            {
                *named = Lsn(0);
            }
        }
        self.queue.look_at_uncommitted();
    }

    /// What home is to do next; `None` if there is nothing to do until a command ends or more is committed. Each command is
    /// ended by [`Tree::ended`].
    pub fn next_command(&mut self) -> Option<(CommandId, Command)> {
        while let Some(part) = self.queue.pop() {
            let plan = match &part {
                Part::Entry(at) => self.plan_entry(at),
                Part::Attributes(node) => self.plan_attributes(*node),
            };
            match plan {
                Plan::Clean => self.is_home(&part),
                Plan::Later => {}
                Plan::Gone => self.queue.refuse(part, HomeError::Changed),
                Plan::ComesBack(node, at) => match self.comes_back(node, &at) {
                    true => self.queue.push(part),
                    false => self.queue.refuse(part, HomeError::NotEmpty),
                },
                Plan::Lost(node) => {
                    self.make_again(node);
                    self.queue.push(part);
                }
                Plan::Wait(node) if self.nodes.get(&node).is_some_and(|of| of.busy) => {
                    self.queue.wait_for_end(node, part);
                }
                Plan::Wait(node) => self.queue.wait_for(node, part),
                // No node has this number.
                Plan::WaitLooks => self.queue.wait_for(NodeId::PARKING, part),
                Plan::WaitCommit(lsn) => self.queue.wait_for_commit(lsn, part),
                Plan::Do(command) => return Some(self.start(part, command)),
            }
        }
        if self.is_idle() {
            self.note_tried();
        }
        None
    }

    /// A command that is under way.
    ///
    /// # Panics
    /// If it is not.
    pub fn command(&self, id: CommandId) -> &Command {
        &self.in_flight[&id].command
    }

    /// Commands under way.
    pub fn under_way(&self) -> usize {
        self.in_flight.len()
    }

    /// Parts that home does not have as they should be, or that are not committed.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// Parts that home refused, each with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (&Part, HomeError)> {
        self.queue.refused().map(|(part, refusal)| (part, refusal.error))
    }

    /// How often what home refused was tried again.
    pub fn retries(&self) -> u64 {
        self.queue.retries()
    }

    /// What home refused is tried again. A directory that somebody else moved may be back. Of each command in doubt it is to be
    /// found out whether home did it.
    pub fn retry(&mut self) {
        let missed = self.queue.refused().filter_map(|(part, _)| {
            let Part::Entry(at) = part else { return None };
            let node = &self.nodes[&self.entry(at)?.wanted?];
            node.missed.clone().filter(|_| node.places.home().next().is_none())
        });
        let missed: Vec<Place> = missed.collect();
        self.queue.retry();
        self.lost_answers.clear();
        missed.iter().for_each(|at| self.look_again(at));
    }

    /// The log is needed from this position on; `None` if home has everything, durably.
    pub fn needed_from(&self) -> Option<Lsn> {
        self.needed.first()
    }

    /// Takes a command up.
    fn start(&mut self, part: Part, command: Command) -> (CommandId, Command) {
        let mut since = None;
        match &command {
            Command::Look { .. } => {}
            Command::Make { node, attributes, .. } | Command::Set { node, attributes, .. } => {
                let node = self.nodes.get_mut(node).expect("commands are on nodes that are known");
                if !node.is_bound() {
                    node.binding = Binding::Making;
                }
                let sent = *attributes;
                let (unset, xattrs) =
                    (std::mem::take(&mut node.unset), std::mem::take(&mut node.unset_xattrs));
                // A directory with entries to come gets its time after them.
                node.unset.mtime = unset.mtime.filter(|_| sent.mtime.is_none());
                if self.has_log {
                    node.sent.overlay(&sent);
                    node.sent_xattrs.extend(xattrs);
                }
                if node.has_unset() {
                    since = node.set_since;
                    since.into_iter().for_each(|since| self.needed.add(since));
                } else {
                    since = node.set_since.take();
                    self.dirty -= usize::from(since.is_some());
                }
            }
            _ => {}
        }
        self.set_busy(&command, true);
        let id = CommandId(self.next_command);
        if let Command::Make { node, .. } | Command::Set { node, .. } = &command {
            self.nodes.get_mut(node).expect("it was found just now").setting = Some(id);
        }
        self.next_command += 1;
        let changed = self.last_change(&part);
        let begun = InFlight { command: command.clone(), part, since, changed, unset: None };
        self.in_flight.insert(id, begun);
        (id, command)
    }

    fn set_busy(&mut self, command: &Command, busy: bool) {
        let (places, nodes) = concerned(command);
        let is_directory =
            |node: &NodeId| self.nodes.get(node).is_some_and(|of| of.kind.is_directory());
        let is_of_directory = nodes.iter().flatten().any(is_directory);
        for place in places.into_iter().flatten().filter(|place| place.parent() != NodeId::PARKING)
        {
            self.change_entry(place, |entry| {
                entry.busy = busy;
                entry.touched |= busy;
            });
            if is_of_directory {
                let directory = self.directory_mut(place.parent());
                let directory = directory.expect("a directory stays while a command is on it");
                let counted = &mut directory.subdirectories.busy;
                *counted = if busy { *counted + 1 } else { *counted - 1 };
            }
        }
        for node in nodes.into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(&node) {
                node.busy = busy;
                node.setting = node.setting.filter(|_| busy);
            }
        }
    }

    /// A command ended.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn ended(&mut self, id: CommandId, result: Result<Answer, HomeError>) {
        self.end(id, Some(result));
    }

    /// Home has made a node, and refuses some of its attributes: they are set later, except for those that were changed meanwhile. To be
    /// called before the command ends.
    ///
    /// # Panics
    /// If the node is not being made.
    pub fn left_unset(&mut self, node: NodeId, attributes: Attributes, xattrs: Xattrs) {
        let id = self.nodes[&node].setting.expect("a command makes it");
        let making = self.in_flight.get_mut(&id).expect("a command ends once");
        making.unset = Some((attributes, xattrs));
    }

    /// As [`Tree::ended`]; `None`: home did not do it, and what is to be done is planned anew.
    pub(crate) fn end(&mut self, id: CommandId, result: Option<Result<Answer, HomeError>>) {
        let InFlight { command, part, since, changed, unset } =
            self.in_flight.remove(&id).expect("a command ends once");
        self.set_busy(&command, false);
        if self.doubted.remove(&id) && self.lost_answers.remove(&id).is_some() {
            self.queue.ask_again(&part);
        }
        match result {
            Some(Ok(answer)) => {
                self.done(&command, answer, since);
                if let (Command::Make { node, .. }, Some(unset)) = (&command, unset) {
                    self.set_later(*node, unset, since);
                }
            }
            Some(Err(error)) => self.not_done(&command, &part, error, since),
            None => self.take_back_command(&command, since),
        }
        if self.last_change(&part) > changed {
            // What home refused is not what is wanted now.
            self.queue.ask_again(&part);
        }
        self.queue.push(part);
        let (places, nodes) = concerned(&command);
        for place in places.into_iter().flatten() {
            self.queue.push(Part::Entry(place.clone()));
            self.wake(place.parent());
        }
        for node in nodes.into_iter().flatten() {
            self.wake(node);
            self.review_need(node);
        }
    }

    fn last_change(&self, part: &Part) -> Lsn {
        match part {
            Part::Entry(at) => self.entry(at).map_or(Lsn(0), |entry| entry.lsn),
            Part::Attributes(node) => self.nodes.get(node).map_or(Lsn(0), |of| of.set_lsn),
        }
    }

    fn done(&mut self, command: &Command, answer: Answer, since: Option<Lsn>) {
        match command {
            Command::Look { at } => {
                let Answer::Found(found) = answer else { panic!("{answer:?} answers no look") };
                let is_changed = self.changed_by_others.remove(at);
                let there = found.node();
                let was_there =
                    there.is_some_and(|there| self.nodes[&there].places.role(at).is_some());
                self.set_home(at, found);
                self.looked_at(at);
                if let Some(there) =
                    there.filter(|there| !was_there && !self.surplus.contains(there))
                    && (is_changed || self.is_recovering || self.foreign.contains(&there))
                {
                    self.moved_by_others(there, at);
                }
            }
            Command::Make { node, at, .. } => {
                let made = self.nodes.get_mut(node).expect("a node stays while it is made");
                let Answer::Made(named) = answer else { panic!("{answer:?} answers no making") };
                (made.binding, made.named) = (Binding::Bound, named);
                (made.settled, made.sync_failed) = (!self.has_log, false);
                self.place(*node, at);
                self.needs_name(*node, named);
                self.attributes_at_home(*node, since);
            }
            Command::Link { node, at } => self.place(*node, at),
            Command::Rename { node, from, to, .. } => {
                self.leave(*node, from);
                self.place(*node, to);
            }
            Command::Exchange { one, other } => {
                self.set_home(&one.1, AtHome::Node(other.0));
                self.set_home(&other.1, AtHome::Node(one.0));
            }
            Command::Unlink { node, at } | Command::RemoveDirectory { node, at } => {
                self.leave(*node, at);
            }
            Command::Set { node, .. } => {
                self.attributes_at_home(*node, since);
            }
        }
    }

    /// Home made a node without these attributes. The log has them where it has the node: from `since` on.
    fn set_later(
        &mut self,
        node: NodeId,
        (attributes, xattrs): (Attributes, Xattrs),
        since: Option<Lsn>,
    ) {
        if let Some(since) = since {
            self.needed.add(since);
        }
        self.take_back(node, attributes, &xattrs, since);
        self.queue.push(Part::Attributes(node));
    }

    /// The log says at `named` which inode a node is. Changes that were logged since then, and before this was known here, have
    /// only its number: the log is needed for them from `named` on.
    fn needs_name(&mut self, node: NodeId, named: Lsn) {
        // What a log said that has failed is not needed for that.
        if !self.has_log || named == Lsn(0) {
            return;
        }
        let of = self.nodes.get_mut(&node).expect("it was made just now");
        if let Some(since) = of.set_since.filter(|&since| since > named) {
            of.set_since = Some(named);
            self.needed.add(named);
            self.needed.release(Some(since));
        }
        let entries = of.directory.iter().flat_map(|of| of.entries());
        let place = |name| Place::new(node, name).expect("entries have names");
        let mut places: Vec<Place> = entries.map(|(name, _)| place(name)).collect();
        places.extend(of.places.iter().cloned());
        for at in places {
            let since = self.entry(&at).and_then(|entry| entry.since);
            if let Some(since) = since.filter(|&since| since > named) {
                self.change_entry(&at, |entry| entry.since = Some(named));
                self.needed.add(named);
                self.needed.release(Some(since));
            }
        }
    }

    /// Home has a node there now.
    fn place(&mut self, node: NodeId, at: &Place) {
        if at.parent() == NodeId::PARKING {
            self.nodes.get_mut(&node).expect("a node stays while it is moved").parked = true;
        } else {
            self.set_home(at, AtHome::Node(node));
        }
    }

    fn leave(&mut self, node: NodeId, at: &Place) {
        if at.parent() == NodeId::PARKING {
            self.nodes.get_mut(&node).expect("a node stays while it is moved").parked = false;
        } else {
            self.set_home(at, AtHome::Nothing);
        }
    }

    fn not_done(&mut self, command: &Command, part: &Part, error: HomeError, since: Option<Lsn>) {
        match command {
            // Nobody will ever see its attributes.
            Command::Set { node, .. } if error == HomeError::Gone && !self.may_be_lost(*node) => {
                self.needed.release(since);
            }
            _ => self.take_back_command(command, since),
        }
        match (error, command) {
            (HomeError::Gone, Command::Set { node, .. }) => {
                if self.may_be_lost(*node) {
                    let known: Vec<Place> = self.nodes[node].places.home().cloned().collect();
                    known.iter().for_each(|place| self.doubt(place));
                    self.look_once_more(part, error);
                }
            }
            (HomeError::NotEmpty, Command::RemoveDirectory { node, at }) => {
                if !self.comes_back(*node, at) {
                    self.queue.refuse(part.clone(), error);
                }
            }
            (HomeError::NoExchange, _) => self.exchanges = false,
            (HomeError::Refused(_), _) => self.refuse(command, part, error),
            (HomeError::Changed | HomeError::NotEmpty | HomeError::Gone, _) => {
                if let Command::Look { at } = command {
                    self.looked_at(at);
                    // Its directory is not there.
                    if self.is_gone_with_directory(at) {
                        return self.set_home(at, AtHome::Nothing);
                    }
                }
                // Whatever was known of these names is not so.
                let (places, _) = concerned(command);
                for place in places.into_iter().flatten() {
                    if place.parent() != NodeId::PARKING {
                        self.note_missed(place);
                        self.set_home(place, AtHome::Unknown);
                        if self.entry(place).is_some() {
                            self.changed_by_others.insert(place.clone());
                        }
                    }
                }
                self.look_once_more(part, error);
            }
        }
    }

    /// What a command was to set is to be set yet.
    fn take_back_command(&mut self, command: &Command, since: Option<Lsn>) {
        if let Command::Make { node, attributes, xattrs, .. }
        | Command::Set { node, attributes, xattrs } = command
        {
            self.take_back(*node, *attributes, xattrs, since);
            let node = self.nodes.get_mut(node).expect("a node stays while a command is on it");
            if node.binding == Binding::Making {
                node.binding = Binding::Unbound;
            }
        }
    }

    /// Whether home has nothing under a name that it could not look at, since it does not have the directory any more: that
    /// is known once all names were looked at that may be the directory's.
    fn is_gone_with_directory(&self, at: &Place) -> bool {
        let parent = &self.nodes[&at.parent()];
        self.unsettled_by_failure.is_empty() && (parent.is_missing() || parent.is_removed())
    }

    /// Home was not as it was known to be, and is looked at. A second time in a row, to look again does not help.
    fn look_once_more(&mut self, part: &Part, error: HomeError) {
        if !self.surprised.insert(part.clone()) {
            self.queue.refuse(part.clone(), error);
        }
    }

    /// Panics unless the invariants of the module hold.
    pub fn check_invariants(&self) {
        let under_way = self.in_flight.values().map(|command| &command.part);
        let queued: HashSet<&Part> = self.queue.parts().chain(under_way).collect();
        let mut dirty = 0;
        for (&number, node) in &self.nodes {
            dirty += usize::from(node.set_since.is_some());
            let part = Part::Attributes(number);
            assert!(
                node.set_since.is_none() || node.busy || queued.contains(&part),
                "{part:?} is forgotten"
            );
            self.check_places(number, node);
            let Some(directory) = &node.directory else { continue };
            let (mut dirty_here, mut at_home) = (0, 0);
            let mut subdirectories = (0, 0);
            let is_directory = |node: NodeId| self.nodes[&node].kind.is_directory();
            for (name, entry) in directory.entries() {
                let at = Place::new(number, name).expect("names of entries are names");
                dirty += usize::from(entry.since.is_some());
                dirty_here += usize::from(entry.is_dirty());
                at_home += usize::from(entry.home.node().is_some());
                subdirectories.0 += usize::from(entry.wanted.is_some_and(is_directory));
                subdirectories.1 += usize::from(entry.home.node().is_some_and(is_directory));
                for leads in [entry.wanted, entry.home.node()].into_iter().flatten() {
                    assert!(
                        self.nodes[&leads].places.role(&at).is_some(),
                        "{at:?} is a place of {leads:?}"
                    );
                }
                let part = Part::Entry(at);
                assert!(
                    entry.since.is_none() || entry.busy || queued.contains(&part),
                    "{part:?} is forgotten: {entry:?}"
                );
                assert!(
                    !entry.is_dirty() || entry.since.is_some(),
                    "{part:?} is dirty, and not counted"
                );
            }
            assert_eq!((dirty_here, at_home), (directory.dirty, directory.at_home));
            assert_eq!(subdirectories, self.subdirectories(number));
        }
        assert_eq!(dirty, self.dirty, "all that is dirty is counted");
    }

    /// Panics if anything is remembered that has no use after everything is at home and settled.
    #[cfg(test)]
    pub(crate) fn check_nothing_is_remembered(&self) {
        assert!(self.needed.settling.is_empty() && self.needed.syncing.is_empty());
        assert_eq!((self.needed_from(), self.queue.parts().next()), (None, None));
        assert!(self.unsettled_by_failure.is_empty() && self.changed_by_others.is_empty());
        assert!(self.surprised.is_empty());
        assert!(self.unsure.is_empty() && self.in_flight.is_empty() && self.doubted.is_empty());
        for node in self.nodes.values() {
            assert!(!node.has_unset() && node.sent.is_empty() && node.sent_xattrs.is_empty());
            let entries = node.directory.iter().flat_map(|of| of.entries());
            for (name, entry) in entries {
                assert!(entry.is_merely_known() && entry.wanted.is_some(), "{name:?}: {entry:?}");
            }
        }
    }

    fn check_places(&self, number: NodeId, node: &Node) {
        for place in node.places.iter() {
            let entry = self.entry(place);
            let is_unknown = entry.is_some_and(|entry| entry.home == AtHome::Unknown);
            let role = entry.and_then(|entry| Role::of(entry, number));
            let role = role.or(is_unknown.then_some(Role::Unsure));
            let known = node.places.role(place);
            assert_eq!(known, role, "{place:?} of {number:?}: {entry:?}");
            let is_unsure = |of: &Vec<NodeId>| of.contains(&number);
            assert!(role != Some(Role::Unsure) || self.unsure.get(place).is_some_and(is_unsure));
        }
        let entries = || node.places.iter().filter_map(|place| self.entry(place));
        if !node.kind.is_directory() {
            let wanted = entries().filter(|entry| entry.wanted == Some(number)).count();
            let home = entries().filter(|entry| entry.home == AtHome::Node(number)).count();
            let home = home + usize::from(node.parked);
            assert_eq!(self.links(number), Links { wanted, home });
        }
    }
}

impl Command {
    /// The nodes whose status it changes at home: those that it is about, and the directories of its names.
    pub fn touches(&self) -> impl Iterator<Item = NodeId> {
        let (places, nodes) = concerned(self);
        let directories: Vec<NodeId> = places.into_iter().flatten().map(Place::parent).collect();
        nodes.into_iter().flatten().chain(directories)
    }

    /// The directories in which it changes names at home.
    pub fn changed_directories(&self) -> impl Iterator<Item = NodeId> {
        let (places, _) = concerned(self);
        let changes = !matches!(self, Command::Look { .. });
        places.into_iter().flatten().filter(move |_| changes).map(Place::parent)
    }
}

/// The names and the nodes that a command concerns.
pub(crate) fn concerned(command: &Command) -> ([Option<&Place>; 2], [Option<NodeId>; 2]) {
    match command {
        Command::Look { at } => ([Some(at), None], [None, None]),
        Command::Make { node, at, .. } | Command::Link { node, at } => {
            ([Some(at), None], [Some(*node), None])
        }
        Command::Unlink { node, at } | Command::RemoveDirectory { node, at } => {
            ([Some(at), None], [Some(*node), None])
        }
        Command::Rename { node, from, to, replacing } => {
            ([Some(from), Some(to)], [Some(*node), *replacing])
        }
        Command::Exchange { one, other } => {
            ([Some(&one.1), Some(&other.1)], [Some(one.0), Some(other.0)])
        }
        Command::Set { node, .. } => ([None, None], [Some(*node), None]),
    }
}
