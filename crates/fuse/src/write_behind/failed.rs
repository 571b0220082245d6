//! Names after the log has failed: they go home without it, and what home does to them is noted in SOURCE
//! ([`weir_backend::Noted`]), until nothing in the log is to be replayed any more. A recovery from the failed log would take what
//! was moved at home for somebody else's, or one file for another, and know no inode that was made there.
//!
//! The note begins with all that recovery is to know of home at that moment. After an error it begins anew.
//!
//! Does not own what is not in the note yet ([`super::unnoted`]), nor the file ([`weir_shard::Shard::note_names`]).
//!
//! Invariant: home is given a change of a name when the note has it, as begun where names tell nodes apart.

use std::sync::PoisonError;

use weir_backend::{Moved, Noted};
use weir_names::tree::{Command, HomeError, Step, Tree};
use weir_names::{NodeId, Place};

use crate::errno::Errno;
use crate::inodes::Inodes;
use crate::write_behind::log::{NamesLog, identity};
use crate::write_behind::moves::Stage;
use crate::write_behind::state::{State, WriteBehind};

impl NamesLog {
    /// Whether what home does to names is noted.
    pub(super) fn is_noted(&self) -> bool {
        self.failed && self.shard.has_stale_log()
    }

    /// Is to be noted before home is given more.
    pub(super) fn note(&mut self, line: Noted) {
        if self.is_noted() {
            self.unnoted.add(line);
        }
    }

    /// What is to be written to the note, and whether it replaces the note. Where names tell nodes apart, a note that begins anew after an
    /// error says where they are by then.
    fn take_unnoted(&mut self) -> (Vec<Noted>, bool) {
        if let Some(lines) = self.unnoted.take() {
            return (lines, false);
        }
        // What is added while that is written comes after it.
        self.unnoted.begin();
        let mut lines = vec![Noted::Failed];
        match &self.by_path {
            Some(by_path) => {
                lines.extend(by_path.places.iter().map(|(node, _, at)| {
                    Noted::Step(Step { node, from: None, to: Some(at.clone()) }, Stage::Done)
                }));
                let begun = by_path.under_way.values();
                lines.extend(begun.map(|step| Noted::Step(step.clone(), Stage::Begun)));
            }
            None => {
                lines.extend(self.unlogged_inodes());
                lines.extend(self.moved_lines.iter().cloned());
            }
        }
        (lines, true)
    }

    /// Inodes that the log was to name when it failed, or later.
    fn unlogged_inodes(&self) -> impl Iterator<Item = Noted> {
        let durable = self.shard.names_durable();
        let unlogged = self.inodes.iter().filter(move |(_, inode)| inode.last >= durable);
        unlogged.map(|(identity, inode)| Noted::Inode(NodeId(inode.number), identity.clone()))
    }
}

/// Where handles last, names do not tell nodes apart, and no steps are noted.
impl NamesLog {
    fn note_moves(&mut self, tree: &Tree, inodes: &Inodes, command: &Command) {
        if self.by_path.is_some() || !self.is_noted() {
            return;
        }
        let (nodes, new) = match command {
            Command::Look { .. } | Command::Set { .. } | Command::Make { .. } => return,
            Command::Link { node, at } => ([Some(*node), None], [Some((*node, at)), None]),
            Command::Rename { node, to, replacing, .. } => {
                ([Some(*node), *replacing], [Some((*node, to)), None])
            }
            Command::Exchange { one, other } => {
                ([Some(one.0), Some(other.0)], [Some((one.0, &other.1)), Some((other.0, &one.1))])
            }
            Command::Unlink { node, .. } | Command::RemoveDirectory { node, .. } => {
                ([Some(*node), None], [None, None])
            }
        };
        for node in nodes.into_iter().flatten() {
            let Some(of) = identity(inodes, node).filter(|of| !self.moved.contains(of)) else {
                continue;
            };
            self.moved.insert(of);
            for at in tree.home_names(node) {
                self.note_name(inodes, identity(inodes, node), at, Noted::Was);
            }
        }
        for (node, at) in new.into_iter().flatten() {
            self.note_name(inodes, identity(inodes, node), at, Noted::May);
        }
    }

    /// Notes a name of an inode, where handles last.
    pub(super) fn note_name(
        &mut self,
        inodes: &Inodes,
        of: Option<Vec<u8>>,
        at: &Place,
        line: fn(Moved) -> Noted,
    ) {
        let directory = match at.parent() {
            NodeId::ROOT => Some(Vec::new()),
            // What is parked is found there.
            NodeId::PARKING => None,
            parent => identity(inodes, parent),
        };
        if let Some((identity, directory)) = of.zip(directory) {
            let line = line(Moved { identity, directory, name: at.name().to_vec() });
            self.moved_lines.push(line.clone());
            self.note(line);
        }
    }
}

impl WriteBehind {
    /// If the log has failed, the note is to say what a command is about to do to names.
    pub(crate) fn note_command(&self, inodes: &Inodes, command: &Command) {
        let mut state = self.lock();
        let State { tree, log, .. } = &mut *state;
        if let Some(log) = log.as_mut().filter(|log| log.failed) {
            log.note_moves(tree, inodes, command);
        }
    }

    /// Before home is given a change of names, or something goes into what it made: if the log has failed, what was begun until
    /// now is in the note after that. Blocks while it is written.
    ///
    /// # Errors
    /// Why the note cannot be written: home must not be changed now.
    pub(crate) fn note_since_failure(&self) -> Result<(), HomeError> {
        if !self.log_has_failed() {
            return Ok(());
        }
        let _turn = self.noting.lock().unwrap_or_else(PoisonError::into_inner);
        let (shard, lines, anew) = {
            let mut state = self.lock();
            let Some(log) = state.log.as_mut().filter(|log| log.is_noted()) else { return Ok(()) };
            let (lines, anew) = log.take_unnoted();
            (log.shard.clone(), lines, anew)
        };
        if lines.is_empty() {
            return Ok(());
        }
        shard.note_names(&lines, anew).map_err(|error| {
            // Programs and `weir status` get the error, as home's.
            tracing::debug!("cannot note in '.weir' what becomes of names at home: {error}");
            if let Some(log) = &mut self.lock().log {
                log.unnoted.begin_anew();
            }
            HomeError::Refused(Errno::from(error).code())
        })
    }

    /// Whether what home makes is named by the log, or by the note of a log that has failed.
    pub(crate) fn names_what_is_made(&self) -> bool {
        self.lock().log.as_ref().is_some_and(|log| !log.failed || log.is_noted())
    }
}
