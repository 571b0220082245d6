//! Directories that are listed before a program asks for them, where home is far away.
//!
//! Which and how many, [`crate::write_behind`] decides (`ahead`). What is found counts as if a program had asked for it: as
//! long, and by the same rules.

use std::sync::Arc;

use rustix::fs::FileType;
use weir_names::tree::Kind;

use crate::file_system::FileSystem;
use crate::inode::NodeId;
use crate::write_behind::{FoundAhead, WriteBehind};

/// Entries of a directory that are read ahead. A larger one is read when a program asks for it.
const READ_AHEAD_MAX: usize = 1024;

impl FileSystem {
    /// Has the tree know a directory that no program has asked for.
    pub(crate) fn list_ahead(self: &Arc<Self>, node: NodeId) -> FoundAhead {
        let behind = self.write_behind.as_ref()?;
        let directory = self.inode(node).ok()?;
        if !self.is_learned(&directory) {
            return None;
        }
        let _known = behind.hold([node]);
        if !behind.begin_reading(&self.inodes, node) {
            return None;
        }
        let before = behind.changes_at_home();
        let goes_on = || !behind.listers.are_stopped();
        let found = self.read_names(&directory, READ_AHEAD_MAX, goes_on).ok().flatten()?;
        let mut directories = Vec::new();
        let mut state = behind.lock();
        if behind.changes_at_home() != before {
            return None;
        }
        for (at, looked) in &found {
            let child = self.found_at_home(&mut state.tree, at, looked);
            let is_directory = FileType::from_raw_mode(looked.status.mode) == FileType::Directory;
            if is_directory && looked.status.device == self.device {
                directories.push(child);
            }
        }
        state.tree.listed(node);
        drop(state);
        behind.was_read(node);
        Some((found.len(), directories))
    }

    /// A program lists a directory: it is likely to list those in it next.
    pub(crate) fn expect_listings_in(&self, behind: &WriteBehind, directory: NodeId) {
        if !self.options.is_elsewhere {
            return;
        }
        let state = behind.lock();
        let unknown = state.tree.list(directory, 0).map(|(_, _, node)| node).filter(|&node| {
            let is_directory = state.tree.kind(node).is_some_and(Kind::is_directory);
            is_directory && !state.tree.is_complete(node)
        });
        let unknown: Vec<NodeId> = unknown.collect();
        drop(state);
        behind.listers.next_are(&unknown);
    }

    /// Home was asked for a name in a directory, and has it: if for a second one, the program is likely to ask for more, and
    /// the directory is listed meanwhile.
    pub(crate) fn expect_lookups_in(&self, directory: NodeId) {
        let behind = self.write_behind.as_ref().filter(|_| self.options.is_elsewhere);
        if let Some(behind) = behind.filter(|behind| behind.has_asked(directory)) {
            behind.listers.next_are(&[directory]);
        }
    }
}
