//! What home was made to do to names after the log had failed, undone: what the log does not speak of goes back to where it was, and
//! nodes are looked for where they came.
//!
//! Where handles last, the note says which inodes were moved, from where and to where. Elsewhere its steps do.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{RenameFlags, renameat_with};
use weir_log::Lsn;
use weir_names::tree::Tree;
use weir_names::{NodeId, Place};

use super::Recovery;
use super::note::{Moved, Noted};
use super::records::OWN_FIRST;
use super::since_failure::{SinceFailure, nodes_at_home, nodes_of_steps, since_failure};
use crate::home_names::open_directory;

impl Recovery<'_> {
    /// Inodes that home got since the log failed, where handles last: the log does not speak of them.
    pub(super) fn introduce_new(&mut self, noted: &[Noted]) -> io::Result<()> {
        for line in since_failure(noted) {
            let Noted::Inode(node, identity) = line else { continue };
            if !self.nodes.contains(node) {
                self.node_of(identity, *node)?;
            }
        }
        Ok(())
    }

    /// Inodes that were moved, where handles last.
    pub(super) fn introduce_moved(&mut self, noted: &[Noted]) -> io::Result<()> {
        let mut number = OWN_FIRST;
        for line in since_failure(noted) {
            let (Noted::Was(moved) | Noted::May(moved)) = line else { continue };
            // A later recovery gives the same numbers: what it parks is found by them.
            let (node, directory) = (NodeId(number), NodeId(number + 1));
            number += 2;
            let Moved { identity, directory: of, name } = moved;
            let Some(directory) = self.node_of(of, directory)? else { continue };
            let Some(at) = Place::new(directory, name) else { continue };
            // The note was written when home had it.
            if self.executor.inodes.kind_of(identity)?.is_none() {
                let missing = self.missing.iter().find(|(_, missing)| *missing == identity);
                let known = self.executor.inodes.node(identity);
                let known = known.or(missing.map(|(node, _)| *node));
                self.since_failure.removed.extend(known);
                match (line, known.filter(|&node| self.is_directory(node))) {
                    (Noted::Was(_), Some(directory)) => {
                        self.since_failure.was.push((directory, at));
                    }
                    (Noted::Was(_), None) => drop(self.since_failure.left.insert(at)),
                    _ => {}
                }
                continue;
            }
            let Some(node) = self.node_of(identity, node)? else { continue };
            match line {
                Noted::Was(_) => self.since_failure.was.push((node, at)),
                _ => self.since_failure.may.push((node, at)),
            }
        }
        self.executor.next_own = self.executor.next_own.max(number);
        Ok(())
    }

    /// The node with an identity. If the log has none, it gets this number; `None` if home does not have it.
    fn node_of(&mut self, identity: &[u8], number: NodeId) -> io::Result<Option<NodeId>> {
        if identity.is_empty() {
            return Ok(Some(NodeId::ROOT));
        }
        let inodes = &mut self.executor.inodes;
        if let Some(known) = inodes.node(identity) {
            return Ok(Some(known));
        }
        let Some(kind) = inodes.kind_of(identity)? else { return Ok(None) };
        inodes.name(number, identity.to_vec());
        self.tree.introduce(number, kind);
        Ok(Some(number))
    }

    /// Where steps say what home was made to do since the log failed: which nodes these are about.
    pub(super) fn note_moved_by_name(&mut self, noted: &[Noted], was: Vec<(NodeId, Place)>) {
        let since = &mut self.since_failure;
        since.was = was;
        let at_home = nodes_at_home(noted);
        let whereabouts = self.executor.inodes.whereabouts().expect("nodes are found by name");
        for node in nodes_of_steps(noted) {
            let places = whereabouts.places(node).cloned().collect::<Vec<_>>();
            if places.is_empty() && self.nodes.contains(&node) && at_home.contains(&node) {
                since.removed.insert(node);
            }
            let named = places.into_iter().filter(|at| at.parent() != NodeId::PARKING);
            since.may.extend(named.map(|at| (node, at)));
        }
    }

    /// What was moved since the log failed is to be where the log has it, or else where it was. A file that replaced something that
    /// home does not have any more stays there. To be called when the log is replayed, which ends after `last`.
    pub(super) fn undo_since_failure(&mut self, last: Lsn) {
        let SinceFailure { was, may, removed, mut left } = std::mem::take(&mut self.since_failure);
        // Home had done what the log says of other names.
        let (logged, was): (Vec<_>, Vec<_>) =
            was.into_iter().partition(|(_, at)| self.tree.speaks_of(at));
        // Directories are made again for what goes back to them.
        let (directories, files): (HashSet<_>, HashSet<_>) =
            removed.into_iter().partition(|&node| self.is_directory(node));
        for &node in &files {
            left.extend(self.tree.wanted_places(node).cloned());
            self.tree.was_removed(node, last);
            self.missing.remove(&node);
        }
        let (gone, was): (Vec<_>, Vec<_>) =
            was.into_iter().partition(|(node, _)| files.contains(node));
        left.extend(gone.into_iter().map(|(_, at)| at));
        let mut replacing = HashSet::new();
        for (node, at) in &may {
            if left.contains(at) && !self.is_directory(*node) && self.is_at(*node, at) {
                let former: Vec<Place> = self.tree.wanted_places(*node).cloned().collect();
                self.tree.was_at(*node, at, last);
                replacing.insert(*node);
                // It came from its only name, which home may not have got to know.
                if let [former] = &former[..]
                    && former != at
                    && !self.is_at(*node, former)
                {
                    self.tree.was_removed_from(*node, former, last);
                }
            }
        }
        for (node, at) in &logged {
            if replacing.contains(node) && !self.is_at(*node, at) {
                // It came from there.
                self.tree.was_removed_from(*node, at, last);
            }
        }
        for (node, at) in was {
            let has_place =
                self.is_directory(node) && self.tree.wanted_places(node).next().is_some();
            match has_place || replacing.contains(&node) {
                true => self.tree.may_have_come_to(node, &at, last),
                false => self.tree.was_at(node, &at, last),
            }
        }
        for (node, at) in logged.into_iter().chain(may) {
            // What is to be nowhere else stays, unless it is in the way of something else.
            if self.tree.wanted_places(node).next().is_some() {
                self.tree.may_have_come_to(node, &at, last);
            }
        }
        self.make_removed_again(&directories, last);
        self.since_failure.removed = files.into_iter().chain(directories).collect();
    }

    /// Directories that were removed are made again if something is to be in them.
    fn make_removed_again(&mut self, directories: &HashSet<NodeId>, last: Lsn) {
        let mut needed: Vec<NodeId> = directories.iter().copied().collect();
        needed.sort_unstable();
        loop {
            let (used, unused): (Vec<_>, Vec<_>) =
                needed.into_iter().partition(|&directory| self.tree.wants_in(directory));
            needed = used;
            if unused.is_empty() {
                break;
            }
            unused.into_iter().for_each(|directory| self.tree.was_removed(directory, last));
        }
        for directory in needed {
            let place = self.tree.wanted_places(directory).next().cloned();
            if let Some(place) = place.filter(|_| self.tree.is_bound(directory)) {
                let lsn = self.executor.next_lsn();
                self.tree.make_elsewhere(directory, &place, lsn);
                self.made_again.insert(directory);
            }
        }
    }

    /// Whether home has a node under a name.
    fn is_at(&mut self, node: NodeId, at: &Place) -> bool {
        let inodes = &mut self.executor.inodes;
        let seen = inodes.look(at).ok().flatten();
        seen.is_some_and(|seen| seen.identity() == inodes.identity(node))
    }

    /// Whether a node that is parked is one that the log does not speak of, and that is known: it gets the name that the tree
    /// expects.
    pub(super) fn take_moved_parked(
        &mut self,
        name: &[u8],
        identity: Option<&[u8]>,
    ) -> io::Result<Option<NodeId>> {
        let known = identity.and_then(|identity| self.executor.inodes.node(identity));
        let Some(node) =
            known.filter(|node| node.0 >= OWN_FIRST && self.tree.kind(*node).is_some())
        else {
            return Ok(None);
        };
        let wanted = Tree::parked_name(node);
        if name != wanted {
            let Some(parking) = self.executor.inodes.known_parking()? else { return Ok(None) };
            let parking = open_directory(parking.as_fd())?;
            renameat_with(&parking, name, &parking, &wanted[..], RenameFlags::NOREPLACE)?;
        }
        Ok(Some(node))
    }
}
