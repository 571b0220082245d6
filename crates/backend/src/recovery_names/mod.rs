//! Recovery of names and attributes.
//!
//! The log's records are replayed to a tree in which nothing is known of home; then the same planner that brings a living
//! tree home says what is to be done ([`weir_names::tree`]). Here that is done: `records` refuses what cannot be true,
//! `inodes` finds the inodes of nodes, `executor` executes commands, `note` keeps the identities of what was made, so that a
//! recovery can be cut anywhere and done again, `given_up` decides what becomes of changes to what somebody else removed or
//! moved, and `outcome` is what is reported. Names go home before the bytes of files.
//!
//! Where file handles last, the log says which inode each node is. Elsewhere it says under which names home has nodes, and what
//! home was made to do to their names: `whereabouts` replays that, and `steps` does here as the mount did, notes what is done
//! before it is done. Which of the two it is the log says, not the file system: SOURCE may have been copied to another one. If the
//! log says neither, nothing of it was at home.
//!
//! A mount whose log has failed goes on with it in the note ([`note::Continuation`]): `replayed` puts the two together.
//!
//! Does not own: the log and how its records are read; the bytes of files and their sizes
//! ([`recovery`](crate::recovery)).
//!
//! Invariants:
//! - nothing outside SOURCE is touched, and nothing that was not known to be there is removed or replaced;
//! - nothing goes into an inode that was made here before its identity, or the step that made it, is durable in the note;
//! - it ends, whatever the records say: after a number of commands that grows with the number of records, the rest is left.
//!
//! What home refuses is left, everything else is done, and nothing overtakes what it depends on. The caller keeps the log
//! as long as anything is left.

mod executor;
mod given_up;
mod inodes;
mod note;
mod outcome;
mod records;
mod replayed;
mod steps;
#[cfg(test)]
mod tests;
mod whereabouts;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, unlinkat};
use weir_log::{Identity, Lsn};
use weir_names::tree::{Change, Kind, Part, Tree};
use weir_names::{NodeId, Place};

use crate::home_names::{HomeNames, keep, names_in, open_directory};
use crate::identity::Naming;
use crate::whole::sync_file_system;
use executor::Executor;
use inodes::{Finding, Inodes};
use outcome::{damaged, reason, system};
use records::{check_change, check_known, does_nothing};

pub use executor::Counts;
pub(crate) use note::Continuation;
pub(crate) use note::continuation;
pub use note::forget_recovered_names;
use note::{Note, Noted};
pub use outcome::{
    GivenUp, KeptDirectory, LeftName, LeftReason, NameConflict, NamesRecoveryError, RecoveredNames,
};
pub use records::NameRecord;
pub(crate) use replayed::Replayed;

/// Commands that a recovery executes for each record, each line of the note, and each inode that is parked, at most. A name takes a look, a
/// make or a rename by way of the parking place, and attributes; and the same once more if somebody else is in the way.
const COMMANDS_PER_RECORD: usize = 100;

/// How many directories are followed upwards for a message.
const DEPTH_MAX: usize = 4096;

/// Makes names and attributes in `source`, a directory open for reading, what the records of a log say, which end at
/// `end`; then syncs the file system. Blocks. If it is cut, it is to be called again with the same records; earlier
/// recoveries of `log` are remembered in SOURCE until [`forget_recovered_names`].
///
/// # Errors
/// [`NamesRecoveryError`].
pub fn recover_names(
    source: BorrowedFd<'_>,
    log: &Identity,
    records: impl IntoIterator<Item = (Lsn, NameRecord)>,
    end: Lsn,
) -> Result<RecoveredNames, NamesRecoveryError> {
    let home = HomeNames::new(source).map_err(system("open SOURCE"))?;
    let records = records.into_iter().collect();
    let mut recovery = Recovery::new(source, &home, log, records, end, None)?;
    recovery.run(usize::MAX)?;
    let recovered = recovery.finish()?;
    sync_file_system(source).map_err(|error| system("sync SOURCE's file system")(error.into()))?;
    Ok(recovered)
}

/// One recovery under way.
struct Recovery<'a> {
    tree: Tree,
    executor: Executor<'a>,
    note: Note<'a>,
    /// The tree knows that everything before is durable.
    committed: Lsn,
    /// Commands that may be executed yet.
    commands_left: usize,
    /// Nodes of the log.
    nodes: HashSet<NodeId>,
    /// What home refused was tried once more.
    is_retried: bool,
    /// Why the note cannot be written, and which nodes are not in it: nothing may go into them.
    not_noted: Option<(i32, HashSet<NodeId>)>,
    /// Nodes that the log removes, or of which it removes one name.
    removed: HashSet<NodeId>,
    /// Directories that home does not have any more, and that are made again.
    made_again: BTreeSet<NodeId>,
    /// Parked directories that are not empty, and get a name.
    kept_parked: Vec<NodeId>,
    /// How many names were tried for those.
    lost: u64,
    given_up: Vec<GivenUp>,
    /// Nodes that the log makes and says that home had, and that home does not have: it lost them, or somebody else removed
    /// them. They are made again.
    missing: BTreeSet<NodeId>,
    /// What is gone, and was reported.
    reported_gone: HashSet<NodeId>,
    /// The inodes that this recovery and earlier ones made, and what they are: home may give them the identities of those that
    /// it lost.
    made_here: HashMap<Vec<u8>, NodeId>,
}

impl<'a> Recovery<'a> {
    /// Replays the records, and looks what is parked. Without `finding`, records and home decide how inodes are found.
    fn new(
        source: BorrowedFd<'a>,
        home: &'a HomeNames,
        log: &Identity,
        records: Vec<(Lsn, NameRecord)>,
        end: Lsn,
        finding: Option<Finding>,
    ) -> Result<Recovery<'a>, NamesRecoveryError> {
        let (note, noted) = Note::read(source, *log).map_err(system("read '.weir/recovered'"))?;
        let finding = match finding {
            Some(finding) => finding,
            None => finding_of(source, &records, &noted)?,
        };
        let inodes = Inodes::new(source, home, finding);
        let inodes = inodes.map_err(system("find the files of SOURCE"))?;
        let mut recovery = Recovery {
            tree: Tree::recovering(end),
            executor: Executor::new(home, inodes, end),
            note,
            committed: end,
            commands_left: 1000 + COMMANDS_PER_RECORD * (records.len() + noted.len()),
            nodes: HashSet::from([NodeId::ROOT]),
            is_retried: false,
            not_noted: None,
            removed: removed(&records),
            made_again: BTreeSet::new(),
            kept_parked: Vec::new(),
            lost: 0,
            given_up: Vec::new(),
            missing: BTreeSet::new(),
            reported_gone: HashSet::new(),
            made_here: noted.iter().filter_map(Noted::inode).collect(),
        };
        match finding {
            Finding::Names => recovery.introduce_by_name(&records, noted)?,
            _ => recovery.introduce(&records, noted)?,
        }
        for (lsn, record) in records {
            let NameRecord::Change(change) = record else { continue };
            check_change(&change, &recovery.tree).map_err(|why| damaged(lsn, why))?;
            if !does_nothing(&change) {
                recovery.tree.replay(change, lsn).map_err(|why| damaged(lsn, why))?;
            }
        }
        recovery.find_parked().map_err(system("look into '.weir/parked'"))?;
        Ok(recovery)
    }

    /// Nodes whose identities are known. Of those that the log makes, home may have lost what it had.
    fn introduce(
        &mut self,
        records: &[(Lsn, NameRecord)],
        noted: Vec<Noted>,
    ) -> Result<(), NamesRecoveryError> {
        let made = made_by(records);
        self.nodes.extend(made.keys());
        self.executor.made.extend(made.keys());
        let mut known = HashSet::new();
        for (lsn, record) in records {
            let NameRecord::Known { node, kind, identity } = record else { continue };
            if !known.insert((*node, &identity[..])) {
                continue;
            }
            check_known(*node, kind, identity).map_err(|why| damaged(*lsn, why))?;
            match made.get(node) {
                Some(kind) => self.introduce_made(*node, kind, identity)?,
                None => {
                    self.tree.introduce(*node, kind.clone());
                    self.executor.inodes.name(*node, identity.clone());
                    self.nodes.insert(*node);
                }
            }
        }
        for line in &noted {
            let Noted::Inode(node, identity) = line else { continue };
            let (node, identity) = (*node, identity.clone());
            if let Some(kind) = made.get(&node) {
                self.introduce_made(node, kind, &identity)?;
            } else if self.nodes.contains(&node)
                && self.executor.inodes.identity(node) != Some(&identity)
            {
                self.introduce_made_again(node, identity)?;
            }
        }
        Ok(())
    }

    /// A directory that was gone, and that an earlier recovery made again.
    fn introduce_made_again(
        &mut self,
        node: NodeId,
        identity: Vec<u8>,
    ) -> Result<(), NamesRecoveryError> {
        let inodes = &mut self.executor.inodes;
        let is_there = inodes.is_there(&identity, &Kind::Directory);
        if is_there.map_err(system("find out which files SOURCE has"))? {
            inodes.name(node, identity);
            self.made_again.insert(node);
        }
        Ok(())
    }

    fn introduce_made(
        &mut self,
        node: NodeId,
        kind: &Kind,
        identity: &[u8],
    ) -> Result<(), NamesRecoveryError> {
        let inodes = &mut self.executor.inodes;
        let is_another = self.made_here.get(identity).is_some_and(|&made| made != node);
        let is_there = inodes.is_there(identity, kind);
        if is_there.map_err(system("find out which files SOURCE has"))? && !is_another {
            self.tree.made_at_home(node);
            inodes.name(node, identity.to_vec());
            self.missing.remove(&node);
        } else if inodes.identity(node).is_none() {
            self.missing.insert(node);
        }
        Ok(())
    }

    /// What is parked is found by its name. What is not known is removed if nothing is in it, and kept otherwise: the log may
    /// have failed before it was parked, so that it knows nothing of it, or not which inode it is.
    fn find_parked(&mut self) -> io::Result<()> {
        let Some(parking) = self.executor.inodes.known_parking()? else { return Ok(()) };
        for name in names_in(open_directory(parking.as_fd())?)? {
            self.commands_left += COMMANDS_PER_RECORD;
            let at = Place::new(NodeId::PARKING, &name).expect("home lists names");
            let Some(seen) = self.executor.inodes.look(&at)? else { continue };
            let node = Tree::node_parked_as(&name).filter(|node| self.nodes.contains(node));
            if let Some(node) = node
                && self.executor.recognize_parked(&mut self.tree, node, &at, &seen)?
            {
                self.tree.found_parked(node);
                continue;
            }
            if HomeNames::is_kept(&name) {
                continue;
            }
            let is_wanted = HomeNames::is_unlogged(&name) || !seen.is_empty()?;
            let put_away = if is_wanted && !HomeNames::is_hidden(&name) {
                // Its name may be needed for a node of the log.
                keep(&parking, &name)
            } else {
                let is_directory = seen.kind()?.is_directory();
                let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                unlinkat(&parking, name, flags).map_err(io::Error::from)
            };
            if let Err(error) = put_away {
                tracing::warn!("what is left in '.weir/parked' was not put away: {error}");
            }
        }
        Ok(())
    }

    /// Brings home what is to be brought home, with so many commands at most. Says whether it is done.
    fn run(&mut self, commands_max: usize) -> Result<bool, NamesRecoveryError> {
        if self.executor.inodes.whereabouts().is_some() {
            return self.run_by_steps(commands_max);
        }
        let mut executed = 0;
        loop {
            while self.commands_left > 0 && executed < commands_max {
                let Some((id, command)) = self.tree.next_command() else { break };
                let result = self.executor.execute(&mut self.tree, &command);
                if let Err(error) = &result {
                    tracing::debug!("home did not do {command:?}: {error}");
                }
                self.tree.ended(id, result);
                self.commands_left -= 1;
                executed += 1;
            }
            if executed >= commands_max {
                return Ok(false);
            }
            if self.commands_left == 0 || !self.commit()? && !self.retry() && !self.give_up()? {
                return Ok(true);
            }
            self.commands_left -= 1;
        }
    }

    /// Makes durable what was made. Says whether there is anything new to be done.
    fn commit(&mut self) -> Result<bool, NamesRecoveryError> {
        Ok(self.note(Vec::new())? && self.tell_committed())
    }

    /// Notes what was made, and `more`. Says whether the note has it.
    fn note(&mut self, more: Vec<Noted>) -> Result<bool, NamesRecoveryError> {
        let mut lines = self.executor.take_unnoted();
        self.made_here.extend(lines.iter().filter_map(Noted::inode));
        let nodes: HashSet<NodeId> = lines.iter().filter_map(Noted::named).collect();
        if let Some((_, not_noted)) = &mut self.not_noted {
            not_noted.extend(nodes);
            return Ok(false);
        }
        lines.extend(more);
        match if lines.is_empty() { Ok(()) } else { self.note.add(&lines) } {
            Ok(()) => Ok(true),
            // What does not depend on it was done, or is done yet.
            Err(error) => match error.raw_os_error() {
                Some(code @ (libc::ENOSPC | libc::EDQUOT)) => {
                    self.not_noted = Some((code, nodes));
                    Ok(false)
                }
                _ => Err(system("write '.weir/recovered'")(error)),
            },
        }
    }

    /// The tree may go on with what was made. Says whether that is new.
    fn tell_committed(&mut self) -> bool {
        let end = self.executor.end;
        let is_new = self.committed < end;
        if is_new {
            self.committed = end;
            self.tree.committed(end);
        }
        is_new
    }

    /// What home refused is tried once more: there may be room now. Says whether it is.
    fn retry(&mut self) -> bool {
        let is_tried = !self.is_retried && self.tree.refused().next().is_some();
        if is_tried {
            self.is_retried = true;
            self.tree.retry();
        }
        is_tried
    }

    /// The end: what is to be done last, and what became of everything. Home is to be synced after it.
    fn finish(mut self) -> Result<RecoveredNames, NamesRecoveryError> {
        self.commit()?;
        self.report_gone();
        let kept = self.kept_directories();
        let made_again = self.missing_made_again();
        let mut left: BTreeMap<Part, LeftReason> =
            self.tree.unfinished().map(|part| (part, LeftReason::Waits)).collect();
        let refused = self.tree.refused().map(|(part, error)| (part.clone(), reason(error)));
        left.extend(refused);
        for (node, error) in self.executor.finish_directories() {
            left.insert(Part::Attributes(node), reason(error));
        }
        let not_noted = self.not_noted.take();
        let note = not_noted.iter().map(|(code, _)| LeftName {
            path: ".weir/recovered".to_owned(),
            reason: LeftReason::Refused(*code),
        });
        let left = left.into_iter().map(|(part, reason)| {
            let path = match part {
                Part::Entry(at) => self.path(&at),
                Part::Attributes(node) => self.path_of(node),
            };
            LeftName { path, reason }
        });
        let left = left.chain(note).collect();
        let conflicts = self.tree.take_conflicts().into_iter().map(|conflict| {
            let kept = conflict.kept.map(|kept| self.path(&kept));
            NameConflict { path: self.path(&conflict.at), kept }
        });
        let conflicts = conflicts.collect();
        let is_noted = |node| not_noted.as_ref().is_none_or(|(_, nodes)| !nodes.contains(node));
        let identities = self.nodes.iter().filter(|node| is_noted(node));
        let identities = identities.filter(|&&node| self.tree.is_bound(node));
        let identities = identities
            .filter_map(|&node| Some((node, self.executor.inodes.lasting_identity(node)?)));
        let identities = identities.collect();
        let (given_up, counts) = (self.given_up, self.executor.counts);
        let made = self.made_here.into_keys().collect();
        Ok(RecoveredNames { left, conflicts, given_up, kept, made_again, counts, identities, made })
    }
}

/// How inodes are found: as the log says, and an earlier recovery of it.
fn finding_of(
    source: BorrowedFd<'_>,
    records: &[(Lsn, NameRecord)],
    noted: &[Noted],
) -> Result<Finding, NamesRecoveryError> {
    let is_name =
        |record: &NameRecord| matches!(record, NameRecord::Placed { .. } | NameRecord::Step { .. });
    let by_name = records.iter().any(|(_, record)| is_name(record))
        || noted.iter().any(|line| matches!(line, Noted::Step(..)));
    let is_handle = |record: &NameRecord| matches!(record, NameRecord::Known { .. });
    let handle = records.iter().find(|(_, record)| is_handle(record));
    let names_inode = |line: &Noted| matches!(line, Noted::Inode(..));
    let by_handle = handle.is_some() || noted.iter().any(names_inode);
    let has_handles = || {
        let naming = Naming::of(source).map_err(system("find out SOURCE's file system"))?;
        Ok(!naming.is_by_path())
    };
    match (by_name, by_handle) {
        (true, true) => {
            let lsn = handle.map_or(Lsn(0), |(lsn, _)| *lsn);
            Err(damaged(lsn, "it names an inode, and others say under which names nodes are"))
        }
        (true, false) => Ok(Finding::Names),
        (false, true) if !has_handles()? => Err(NamesRecoveryError::NoHandles),
        (false, true) => Ok(Finding::Handles),
        (false, false) => Ok(if has_handles()? { Finding::Handles } else { Finding::Names }),
    }
}

/// The nodes that the log makes.
fn made_by(records: &[(Lsn, NameRecord)]) -> HashMap<NodeId, &Kind> {
    let made = records.iter().filter_map(|(_, record)| match record {
        NameRecord::Change(Change::Make { node, kind, .. }) => Some((*node, kind)),
        _ => None,
    });
    made.collect()
}

/// The nodes of which the records remove a name.
fn removed(records: &[(Lsn, NameRecord)]) -> HashSet<NodeId> {
    let removed = |(_, record): &(Lsn, NameRecord)| match record {
        NameRecord::Change(Change::Remove { node, .. }) => Some(*node),
        NameRecord::Change(Change::Rename { replaced, .. }) => *replaced,
        _ => None,
    };
    records.iter().filter_map(removed).collect()
}

/// Paths for messages.
impl Recovery<'_> {
    fn path_of(&mut self, node: NodeId) -> String {
        let wanted = self.tree.wanted_places(node).next().cloned();
        match wanted.or_else(|| self.tree.home_place(node)) {
            Some(at) => self.path(&at),
            None if node == NodeId::ROOT => ".".to_owned(),
            None => "a file whose name is not known".to_owned(),
        }
    }

    fn path(&mut self, at: &Place) -> String {
        let mut names = vec![shown(at.name())];
        let mut directory = at.parent();
        while directory != NodeId::ROOT && names.len() < DEPTH_MAX {
            let wanted = self.tree.wanted_places(directory).next().cloned();
            let Some(place) = wanted else {
                let known = match directory {
                    NodeId::PARKING => Some(".weir/parked".to_owned()),
                    _ => self.executor.inodes.path_of(directory),
                };
                names.push(known.unwrap_or_else(|| "a directory that is gone".to_owned()));
                break;
            };
            names.push(shown(place.name()));
            directory = place.parent();
        }
        names.reverse();
        names.join("/")
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
