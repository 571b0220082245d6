//! What somebody else changed in SOURCE that is in the way of changes of the mount: what is said of it, and what is to be decided.

use std::path::PathBuf;

use weir_names::tree::{Conflict, HomeError, Part};
use weir_names::{NodeId, Place};

use crate::inodes::Inodes;
use crate::write_behind::conflicts::Conflicts;
use crate::write_behind::state::{State, WriteBehind};

impl WriteBehind {
    /// Whether home has a node, as far as the tree knows.
    pub(crate) fn is_bound(&self, node: NodeId) -> bool {
        self.lock().tree.is_bound(node)
    }

    /// A name that home has of a node, as far as the tree knows.
    pub(crate) fn home_place(&self, node: NodeId) -> Option<Place> {
        self.lock().tree.home_place(node)
    }

    /// Whether home has a node under a name that is known, or may have it.
    pub(crate) fn may_be_at_home(&self, node: NodeId) -> bool {
        self.lock().tree.may_be_at_home(node)
    }

    /// Home does not have a directory any more, nor anything in it, which may not have been known.
    pub(crate) fn has_nothing_at_home(&self, directory: NodeId) {
        let mut state = self.lock();
        if state.tree.forget_clean(directory) {
            state.tree.listed(directory);
        }
    }

    /// The path of a name, as messages show it.
    pub(crate) fn path_below(&self, at: &Place) -> PathBuf {
        self.lock().path_of(&Part::Entry(at.clone())).1
    }

    /// The path of a node below a directory of which no name is known, or below the root; empty if no name of the node is known.
    pub(crate) fn known_path(&self, node: NodeId) -> (NodeId, PathBuf) {
        self.lock().path_of(&Part::Attributes(node))
    }

    /// What was at this path in the mount has another place, or is gone, since somebody else changed SOURCE.
    pub(crate) fn note_conflict(&self, path: PathBuf) {
        self.lock().conflicts.add(path);
    }

    /// [`Job::Removed`](crate::write_behind::Job::Removed) is done.
    pub(crate) fn removals_are_resolved(&self) {
        self.lock().resolves_removals = false;
    }

    /// Names that somebody else took in SOURCE.
    pub(crate) fn conflicts(&self) -> Conflicts {
        self.lock().conflicts.clone()
    }
}

impl State {
    /// Names that somebody else took in SOURCE since this was asked last, each in a sentence. What they lead to has a name
    /// again, if it was removed here.
    pub(super) fn describe_conflicts(&mut self, inodes: &Inodes) -> Vec<String> {
        let conflicts = self.tree.take_conflicts();
        for conflict in &conflicts {
            let node = self.tree.look_up(conflict.at.parent(), conflict.at.name()).flatten();
            if let Some(inode) = node.and_then(|node| inodes.get(node)) {
                inode.set_named();
            }
            let path = self.path_of(&Part::Entry(conflict.at.clone())).1;
            self.conflicts.add(path);
        }
        let path = |at: &Place| self.path_of(&Part::Entry(at.clone())).1;
        let describe = |conflict: &Conflict| match &conflict.kept {
            Some(kept) => format!(
                "{} was changed in SOURCE by another program and stays as it is there; what the mount had is {}",
                path(&conflict.at).display(),
                path(kept).display()
            ),
            None => format!(
                "{} was changed in SOURCE by another program, and is not removed there",
                path(&conflict.at).display()
            ),
        };
        conflicts.iter().map(describe).collect()
    }

    /// The names that home refused because it is not as it was known to be, each with what it is to lead to: once after each time
    /// that they were tried again.
    pub(super) fn refused_by_changes(&mut self) -> Option<Vec<(Place, NodeId)>> {
        let retries = Some(self.tree.retries());
        let is_due = !self.resolves_removals && self.resolved_after != retries;
        if !is_due || self.tree.refused().next().is_none() {
            return None;
        }
        self.resolved_after = retries;
        let refused = self.tree.refused();
        let changed =
            refused.filter(|(_, error)| matches!(error, HomeError::Changed | HomeError::Gone));
        let named = changed.filter_map(|(part, _)| match part {
            Part::Entry(at) => Some((at.clone(), self.tree.look_up(at.parent(), at.name())??)),
            Part::Attributes(_) => None,
        });
        let named: Vec<_> = named.collect();
        self.resolves_removals = !named.is_empty();
        self.resolves_removals.then_some(named)
    }
}
