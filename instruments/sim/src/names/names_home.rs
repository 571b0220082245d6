//! What the tree wants done, done at home.

use weir_engine::{FreezeScope, Outcome, RecordOf, Reply};
use weir_log::Record;
use weir_names::tree::{Answer, AtHome, Change, Command, CommandId, HomeError, node_record};
use weir_names::{NodeId, Place};

use super::broken::Broken;
use super::home::entries_after;
use super::inodes::{change_of, identity};
use super::life::{Flight, Life, Made, Waiting, file_id};
use super::tally::Tally;
use super::undo::Undo;
use crate::rng::Rng;

/// Commands under way at once.
const UNDER_WAY_MAX: usize = 8;

impl Life {
    /// Takes a command of the tree up, if there is one.
    pub(super) fn begin_command(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        self.maybe_refuse(rng);
        if self.tree.under_way() >= UNDER_WAY_MAX {
            return Ok(());
        }
        let Some((id, command)) = self.tree.next_command() else { return Ok(()) };
        tally.commands += 1;
        if let Command::Rename { node, replacing: Some(_), .. } = &command
            && self.engine.has_dirty(file_id(*node))
        {
            let file = file_id(*node);
            let request = self.request(Waiting::Flush { id, command });
            let scope = FreezeScope::unchanging(Some((0, u64::MAX)));
            return match self.engine.freeze(request, file, scope, self.now) {
                Outcome::Pending => Ok(()),
                Outcome::Done(result) => self.take(request, Reply::Frozen(result), tally),
            };
        }
        self.start_command(id, command);
        Ok(())
    }

    pub(super) fn start_command(&mut self, id: CommandId, command: Command) {
        self.fly(Flight::Names { id, command, answer: None });
    }

    /// Home does a command. Of what it makes it has the inode afterwards.
    pub(super) fn execute(&mut self, command: &Command) -> Result<(), HomeError> {
        let Some(change) = change_of(command) else { return Ok(()) };
        let before = match command {
            Command::Make { node, .. } => {
                let before = self.inodes.clone();
                let inode = self.home.new_inode();
                self.inodes.put(*node, inode);
                Some(before)
            }
            _ => None,
        };
        let missing = match command {
            Command::Set { .. } => HomeError::Gone,
            _ => HomeError::Changed,
        };
        let version = self.version_of(&change);
        let at_home = self.inodes.at_home(&change).ok_or(missing);
        let done = at_home.and_then(|change| self.home.execute(change, version));
        match (&done, before) {
            (Ok(()), _) => self.note_versions(&change),
            (Err(_), Some(before)) => self.inodes = before,
            (Err(_), None) => {}
        }
        done
    }

    /// The newest change of programs that home certainly has with this.
    fn version_of(&self, change: &Change) -> usize {
        let entries = entries_after(change).into_iter().filter_map(|(at, node)| {
            // A name may be free for a moment on the way to what is wanted there.
            node?;
            let before = self.entry_versions.get(at).copied().unwrap_or(0);
            Some(self.seen.version_of_entry(at, node, before))
        });
        let entries = entries.max().unwrap_or(0);
        if let Change::Remove { node, at } = change
            && let Some(inode) = self.inodes.of(*node)
            && self.home.seen.names_of(inode).nth(1).is_none()
            && at.parent() != NodeId::PARKING
        {
            return self.seen.version_without(*node);
        }
        // Attributes that programs gave one by one may never have been as they are at home: then nothing is known.
        let Change::Set { node, attributes } = change else { return entries };
        let there = self.inodes.of(*node).and_then(|inode| self.home.seen.inode(inode));
        let Some(there) = there else { return entries };
        let mut after = there.attributes;
        after.overlay(attributes);
        self.seen.version_of_attributes(*node, &after)
    }

    fn note_versions(&mut self, change: &Change) {
        for (at, node) in entries_after(change) {
            if node.is_none() {
                continue;
            }
            let before = self.entry_versions.get(at).copied().unwrap_or(0);
            let version = self.seen.version_of_entry(at, node, before);
            self.entry_versions.insert(at.clone(), version);
        }
    }

    /// What the tree is told of a command that home answered. Says whether it can be told now.
    pub(super) fn end_command(
        &mut self,
        id: CommandId,
        command: &Command,
        answer: Result<(), HomeError>,
    ) -> bool {
        match (command, answer) {
            (Command::Look { at }, Ok(())) => {
                let found = self.look(at);
                self.tree.ended(id, Ok(Answer::Found(found)));
            }
            (Command::Make { node, kind, .. }, Ok(())) => {
                let inode = self.inodes.of(*node).expect("home made it");
                let identity = identity(inode);
                let record = node_record(*node, kind, &identity).expect("it is plain");
                let logged =
                    self.engine.log_names(&[], &Record::Name(record), RecordOf::HomeDid, self.now);
                let Ok(named) = logged else { return false };
                self.appended(named);
                self.made.push(Made { id, node: *node, named });
                if !self.breaks(Undo::NameAtOnce) && self.engine.is_attached(file_id(*node)) {
                    self.engine.identify(file_id(*node), &identity);
                }
                if self.breaks(Undo::Identity) {
                    let made = self.made.pop().expect("it was pushed just now");
                    self.finish_made(&Made { named: weir_log::Lsn(0), ..made });
                }
            }
            (_, result) => self.tree.ended(id, result.map(|()| Answer::Done)),
        }
        true
    }

    fn look(&mut self, at: &Place) -> AtHome {
        let parent = self.inodes.of(at.parent());
        let there = parent.and_then(|parent| {
            self.home.seen.get(&Place::new(parent, at.name()).expect("it is a name"))
        });
        let Some(inode) = there else { return AtHome::Nothing };
        let node = self.inodes.node(inode).expect("all inodes are numbered");
        if self.tree.kind(node).is_none() {
            let kind = self.home.seen.inode(inode).expect("it was found").kind.clone();
            self.tree.introduce_foreign(node, kind);
        }
        AtHome::Node(node)
    }

    /// The log is durable further on: what it names now is bound.
    pub(super) fn finish_named(&mut self) {
        let durable = self.engine.names_durable();
        let (ready, left) = std::mem::take(&mut self.made)
            .into_iter()
            .partition(|made: &Made| made.named < durable);
        self.made = left;
        let ready: Vec<Made> = ready;
        ready.iter().for_each(|made| self.finish_made(made));
    }

    fn finish_made(&mut self, made: &Made) {
        let Made { id, node, named } = *made;
        self.tell(|| format!("{node:?} is bound, named at {named}"));
        let inode = self.inodes.of(node).expect("home made it");
        self.bind(node, inode);
        self.tree.ended(id, Ok(Answer::Made(named)));
    }

    /// The bytes of a file may go home now.
    fn bind(&mut self, node: NodeId, inode: NodeId) {
        self.unbound.remove(&node);
        if let Some((size, version)) = self.sizes.remove(&node)
            && let Some(file) = self.home.files.get_mut(&inode)
            && size > 0
        {
            file.set_size(size, version);
        }
        let file = file_id(node);
        if self.engine.is_attached(file) {
            self.engine.identify(file, &identity(inode));
            self.engine.bound(file, self.now);
        }
    }
}
