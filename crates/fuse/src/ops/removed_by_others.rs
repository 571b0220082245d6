//! What home refuses for ever, since somebody else removed in SOURCE what it is about, while mounted. The same is decided by a
//! recovery (`weir_backend`, `recovery_names/given_up`).
//!
//! - What is new in a directory that is gone is moved into a directory of its own, `lost+weir-N` in the root.
//! - What is gone itself loses the name that it was to get.
//!
//! Both are changes as those of programs, in the log as these. What is gone is known where files are found by their handles
//! alone: elsewhere it may have been moved, and these changes stay refused.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use weir_names::tree::{Change, Kind};
use weir_names::{NodeId, Place};

use crate::attr;
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::ops::names;
use crate::write_behind::WriteBehind;

/// The name of a directory for what is lost, before its number.
const LOST: &str = "lost+weir-";

impl FileSystem {
    /// Resolves what home refused, each a name with what it is to lead to, as far as that is due to removals by others.
    pub(crate) fn resolve_removals(
        self: &Arc<Self>,
        behind: &WriteBehind,
        refused: Vec<(Place, NodeId)>,
    ) {
        let mut lost: BTreeMap<NodeId, Vec<(Place, NodeId)>> = BTreeMap::new();
        for (at, node) in refused {
            if self.is_gone(behind, node) {
                self.give_name_up(behind, node, at);
            } else if self.is_gone(behind, at.parent()) {
                lost.entry(at.parent()).or_default().push((at, node));
            }
        }
        for (directory, names) in lost {
            if let Err(errno) = self.keep_elsewhere(behind, directory, names) {
                tracing::warn!(
                    "what is new in a directory that is gone is not kept elsewhere: {errno:?}"
                );
            }
        }
    }

    /// Home had a node, and does not have it any more under any name.
    pub(crate) fn is_gone(self: &Arc<Self>, behind: &WriteBehind, node: NodeId) -> bool {
        if !self.home.are_by_handle() || !behind.is_bound(node) {
            return false;
        }
        match self.inode(node) {
            Ok(inode) => inode.status().is_ok_and(|status| status.nlink == 0),
            // Linux says that also if it cannot read the inode.
            Err(Errno::ESTALE) => match behind.home_place(node) {
                Some(at) => self.is_absent(behind, node, &at),
                None => !behind.may_be_at_home(node),
            },
            Err(_) => false,
        }
    }

    /// Home does not have a node under a name.
    fn is_absent(self: &Arc<Self>, behind: &WriteBehind, node: NodeId, at: &Place) -> bool {
        let directory = match self.inode(at.parent()) {
            Ok(directory) => directory,
            Err(errno) => return errno == Errno::ESTALE && self.is_gone(behind, at.parent()),
        };
        let Ok(path) = directory.path_fd() else { return false };
        match self.home.look_up(path, at.parent(), OsStr::from_bytes(at.name())) {
            Ok(looked) => self.inodes.find(&looked.identity) != Some(node),
            Err(error) => Errno::from(error) == Errno::ENOENT,
        }
    }

    fn give_name_up(self: &Arc<Self>, behind: &WriteBehind, node: NodeId, at: Place) {
        let path = behind.path_below(&at);
        behind.has_nothing_at_home(node);
        // Of a directory, what is in it comes first.
        if behind.change(&self.inodes, attr::now(), Change::Remove { node, at }).is_ok() {
            if let Some(inode) = self.inodes.get(node) {
                self.changed_behind(&inode);
                self.lost_name(&inode);
            }
            tracing::warn!("{} was removed in SOURCE by another program", path.display());
            behind.note_conflict(path);
        }
    }

    /// Moves what is to be in a directory that is gone.
    fn keep_elsewhere(
        self: &Arc<Self>,
        behind: &WriteBehind,
        directory: NodeId,
        names: Vec<(Place, NodeId)>,
    ) -> Result<(), Errno> {
        let (lost, name) = self.make_lost_directory(behind)?;
        let _known = behind.hold([directory, lost]);
        for (from, node) in names {
            let path = behind.path_below(&from);
            let to = Place::new(lost, from.name()).expect("it was one name elsewhere");
            let rename = Change::Rename { node, from, to, replaced: None };
            if behind.change(&self.inodes, attr::now(), rename).is_err() {
                // A program has changed it in the meantime.
                continue;
            }
            if let Some(inode) = self.inodes.get(node) {
                self.changed_behind(&inode);
            }
            tracing::warn!(
                "the directory of {} was removed in SOURCE by another program: it is in {name} now",
                path.display()
            );
            behind.note_conflict(path);
        }
        Ok(())
    }

    /// A new directory in the root, which its owner alone may use.
    fn make_lost_directory(
        self: &Arc<Self>,
        behind: &WriteBehind,
    ) -> Result<(NodeId, String), Errno> {
        let root = self.inode(NodeId::ROOT)?;
        let status = self.attributes(&root)?;
        let caller = Caller { uid: status.uid, gid: status.gid, pid: 0 };
        for number in 1_u64.. {
            let name = format!("{LOST}{number}");
            let new =
                names::Place { parent: NodeId::ROOT, name: OsStr::from_bytes(name.as_bytes()) };
            match self.make_in_tree(behind, &caller, &root, new, Kind::Directory, 0o700) {
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno),
                Ok(inode) => {
                    // No program has looked it up.
                    self.uncount(inode.node());
                    return Ok((inode.node(), name));
                }
            }
        }
        unreachable!("some number is free")
    }
}
