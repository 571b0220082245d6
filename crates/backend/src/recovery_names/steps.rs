//! Recovery where nodes are found by their names: what home has according to the log's places and steps, and the recovery's own
//! steps.
//!
//! Commands are taken in batches. One durable write notes how the steps of the last batch ended and which are begun by this
//! one; then they are executed. So a recovery costs one such write for each [`BATCH_MAX`] changes of names, or for each level of
//! directories that are made.
//!
//! Invariant: home is given no change of a name before the note has it as begun, and as ended whatever was given before.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;

use weir_log::{Lsn, Stage};
use weir_names::tree::{Command, CommandId, HomeError, Kind, Step, Tree, kind_at_home};
use weir_names::{NodeId, Place};

use super::inodes::file_type;
use super::note::Noted;
use super::outcome::{damaged, system};
use super::records::{OWN_LIMIT, check_placed, check_step};
use super::whereabouts::Whereabouts;
use super::{NameRecord, NamesRecoveryError, Recovery, made_by};
use crate::home_names::{names_in, open_directory};

/// Commands in a batch.
const BATCH_MAX: usize = 256;

/// Before the log's changes are replayed: which nodes home has.
impl Recovery<'_> {
    pub(super) fn introduce_by_name(
        &mut self,
        records: &[(Lsn, NameRecord)],
        noted: Vec<Noted>,
    ) -> Result<(), NamesRecoveryError> {
        let made = made_by(records);
        self.executor.made.extend(made.keys());
        let mut placed: HashMap<NodeId, &Kind> = HashMap::new();
        let whereabouts = self.executor.inodes.whereabouts().expect("nodes are found by name");
        for (node, kind) in &made {
            whereabouts.is_made(*node, file_type(kind));
        }
        let mut nodes: HashSet<NodeId> = made.keys().copied().collect();
        for (lsn, record) in records {
            match record {
                NameRecord::Placed { node, kind, at } => {
                    check_placed(*node, kind, at).map_err(|why| damaged(*lsn, why))?;
                    nodes.insert(*node);
                    placed.entry(*node).or_insert(kind);
                    whereabouts.is_of_type(*node, file_type(kind));
                }
                NameRecord::Step { step, .. } => {
                    check_step(step).map_err(|why| damaged(*lsn, why))?;
                    nodes.insert(step.node);
                }
                NameRecord::Change(change) => nodes.extend(change.mentioned()),
                NameRecord::Known { .. } => {}
            }
        }
        replay(whereabouts, records);
        let own = replay_note(whereabouts, &noted).map_err(system("read '.weir/recovered'"))?;
        self.executor.next_own = self.executor.next_own.max(own);
        self.find_parked_by_name(&nodes).map_err(system("look into '.weir/parked'"))?;
        let inodes = &mut self.executor.inodes;
        let settled =
            inodes.settle_steps(&made).map_err(system("find out what SOURCE has done"))?;
        let checked = inodes.check_names(|node| made.contains_key(&node));
        checked.map_err(system("find out which files SOURCE has"))?;
        self.executor
            .add_unnoted(settled.into_iter().map(|(step, stage)| Noted::Step(step, stage)));
        for node in nodes {
            self.introduce_named(node, &made, placed.get(&node).copied());
        }
        Ok(())
    }

    /// A node that the log speaks of, if home has it.
    fn introduce_named(
        &mut self,
        node: NodeId,
        made: &HashMap<NodeId, &Kind>,
        placed: Option<&Kind>,
    ) {
        let whereabouts = self.executor.inodes.whereabouts().expect("nodes are found by name");
        let is_there = whereabouts.places(node).next().is_some();
        let found = whereabouts.file_type(node).filter(|_| is_there);
        if made.contains_key(&node) {
            self.nodes.insert(node);
            if !is_there {
                return;
            }
            self.tree.made_at_home(node);
        } else {
            // What was there when it was logged may be gone: that is found out.
            let Some(kind) = placed.cloned().or_else(|| found.map(kind_of)) else { return };
            self.tree.introduce(node, kind);
            self.nodes.insert(node);
        }
        self.executor.inodes.introduce_by_name(node);
    }

    /// A name in the parking directory says which node it is.
    fn find_parked_by_name(&mut self, nodes: &HashSet<NodeId>) -> io::Result<()> {
        let inodes = &mut self.executor.inodes;
        let Some(parking) = inodes.known_parking()? else { return Ok(()) };
        for name in names_in(open_directory(parking.as_fd())?)? {
            let Some(node) = Tree::node_parked_as(&name).filter(|node| nodes.contains(node)) else {
                continue;
            };
            let at = Place::new(NodeId::PARKING, &name).expect("home lists names");
            let Some(seen) = inodes.look(&at)? else { continue };
            let whereabouts = inodes.whereabouts().expect("nodes are found by name");
            let found = file_type(&seen.kind()?);
            if whereabouts.file_type(node).is_none_or(|known| known == found) {
                whereabouts.is_of_type(node, found);
                whereabouts.put(node, &at);
            }
        }
        Ok(())
    }
}

/// What the log says of where nodes are.
fn replay(whereabouts: &mut Whereabouts, records: &[(Lsn, NameRecord)]) {
    for (_, record) in records {
        match record {
            NameRecord::Placed { node, at, .. } => whereabouts.replay_place(*node, at),
            NameRecord::Step { step, stage } => whereabouts.replay_step(step, *stage),
            NameRecord::Known { .. } | NameRecord::Change(_) => {}
        }
    }
}

/// What earlier recoveries did after that. The first number that they did not give to what they found.
fn replay_note(whereabouts: &mut Whereabouts, noted: &[Noted]) -> io::Result<u64> {
    let mut own = 0;
    for line in noted {
        let (step, stage) = match line {
            Noted::Step(step, stage) => (step, stage),
            Noted::Inode(..) | Noted::Continued { .. } | Noted::Record(..) => continue,
        };
        if step.node.0 >= OWN_LIMIT || step.node <= NodeId::ROOT {
            let why = format!("it is damaged: there is no node {}", step.node.0);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        own = own.max(step.node.0 + 1);
        whereabouts.replay_step(step, *stage);
    }
    Ok(own)
}

/// What is known of a node that no record describes.
fn kind_of(file_type: rustix::fs::FileType) -> Kind {
    use weir_log::FileType as Logged;
    kind_at_home(match file_type {
        rustix::fs::FileType::Directory => Logged::Directory,
        rustix::fs::FileType::Symlink => Logged::Symlink,
        rustix::fs::FileType::Fifo => Logged::Fifo,
        rustix::fs::FileType::Socket => Logged::Socket,
        rustix::fs::FileType::CharacterDevice => Logged::CharacterDevice,
        rustix::fs::FileType::BlockDevice => Logged::BlockDevice,
        _ => Logged::File,
    })
}

/// What is to be done.
impl Recovery<'_> {
    /// As [`Recovery::run`]. If it is cut in the middle of a batch, it cannot go on, but be done again.
    pub(super) fn run_by_steps(&mut self, commands_max: usize) -> Result<bool, NamesRecoveryError> {
        let mut executed = 0;
        loop {
            // Whatever is planned from now on is executed after a note of what was made.
            self.tell_committed();
            let batch = self.next_batch();
            if batch.is_empty() {
                if self.commands_left == 0 || !self.retry() {
                    return Ok(true);
                }
                continue;
            }
            let is_noted = self.note_begun(&batch)?;
            for (id, command) in batch {
                if executed >= commands_max {
                    return Ok(false);
                }
                let result = match &self.not_noted {
                    Some((code, _)) if !is_noted && Step::of(&command).is_some() => {
                        Err(HomeError::Refused(*code))
                    }
                    _ => self.executor.execute(&mut self.tree, &command),
                };
                if let Some(error) = self.executor.take_unanswered() {
                    return Err(system("find out what SOURCE has done")(error));
                }
                if let Err(error) = &result {
                    tracing::debug!("home did not do {command:?}: {error}");
                }
                self.tree.ended(id, result);
                executed += 1;
            }
        }
    }

    fn next_batch(&mut self) -> Vec<(CommandId, Command)> {
        let mut batch = Vec::new();
        let mut names: HashSet<Place> = HashSet::new();
        while batch.len() < BATCH_MAX && self.commands_left > 0 {
            let Some((id, command)) = self.tree.next_command() else { break };
            self.commands_left -= 1;
            let step = Step::of(&command);
            for name in step.into_iter().flat_map(|step| [step.from, step.to]).flatten() {
                assert!(
                    names.insert(name),
                    "two commands under way are about one name: {command:?}"
                );
            }
            batch.push((id, command));
        }
        batch
    }

    /// Notes the steps of a batch, if it has any. Says whether they may be done.
    fn note_begun(&mut self, batch: &[(CommandId, Command)]) -> Result<bool, NamesRecoveryError> {
        let steps = batch.iter().filter_map(|(_, command)| Step::of(command));
        let begun: Vec<Noted> = steps.map(|step| Noted::Step(step, Stage::Begun)).collect();
        Ok(begun.is_empty() || self.note(begun)?)
    }
}
