//! Names made and removed.
//!
//! What is made is durable in the state file when the call returns, and costs no request. What is removed is gone from the
//! bucket when the call returns; what never was there costs no request either.

use std::sync::MutexGuard;
use std::time::Instant;

use super::tree::{Asked, Away, Doubt, Node, Tree};
use super::{Error, FileSystem, ROOT, Result, Stat, now};
use crate::key;
use crate::metadata::{Attributes, Kind};
use crate::state_file::{Change, Position};

/// A new node.
#[derive(Clone, Debug)]
pub struct Made {
    /// What it is.
    pub kind: Kind,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory gives its own.
    pub gid: u32,
    /// A symbolic link's target.
    pub target: Option<String>,
}

/// Most entries of a directory that are looked at for one that has an object.
const LOOKED_AT_MAX: usize = 64;

impl FileSystem {
    /// Makes a file, a directory or a symbolic link. The kernel is told its number; `open`: and opens it.
    pub fn make(&self, parent: u64, name: &str, made: Made, open: bool) -> Result<Stat> {
        self.ensure_listed(parent)?;
        let mut tree = self.tree();
        self.check_new_name(&tree, parent, name, made.kind == Kind::Directory)?;
        if tree.child(parent, name).is_some() {
            return Err(Error::Exists);
        }
        let directory = self.node(&mut tree, parent)?;
        let mut attributes = Attributes {
            kind: made.kind,
            mode: made.mode & 0o7777,
            uid: made.uid,
            gid: made.gid,
            mtime: now(),
        };
        if directory.attributes.mode & libc::S_ISGID != 0 {
            attributes.gid = directory.attributes.gid;
            if made.kind == Kind::Directory {
                attributes.mode |= libc::S_ISGID;
            }
        }
        let mut node = Node::new(parent, name.to_owned(), name.to_owned(), attributes);
        node.known = true;
        node.attributes_dirty = true;
        node.target = made.target;
        node.entries.listed = Some(Instant::now());
        node.lookups = 1;
        node.opens = u32::from(open);
        let id = tree.add(node);
        tree.touch(id);
        let position = match self.record(&mut tree, id) {
            Ok(position) => position,
            Err(error) => {
                let node = self.node(&mut tree, id)?;
                (node.lookups, node.opens) = (0, 0);
                tree.detach(id);
                return Err(error);
            }
        };
        tree.modified(parent, now());
        let stat = self.stat(&tree, id)?;
        drop(tree);
        self.state.durable(position)?;
        Ok(stat)
    }

    /// Whether something may be given this name.
    pub(super) fn check_new_name(
        &self,
        tree: &Tree,
        parent: u64,
        name: &str,
        directory: bool,
    ) -> Result<()> {
        let node = tree.get(parent).ok_or(Error::NotFound)?;
        if node.removed {
            return Err(Error::NotFound);
        }
        if !key::may_be_made(name, parent == ROOT) {
            return Err(Error::InvalidName);
        }
        let bytes = self.whole(&tree.key(parent)).len() + name.len() + usize::from(directory);
        if name.len() > key::NAME_BYTES_MAX || bytes > key::KEY_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        Ok(())
    }

    /// Waits until a node is not busy and makes it so. Its flags may have changed meanwhile.
    pub(super) fn occupy<'a>(
        &'a self,
        mut tree: MutexGuard<'a, Tree>,
        id: u64,
    ) -> Result<MutexGuard<'a, Tree>> {
        while self.node(&mut tree, id)?.busy {
            tree = self.wait(tree);
        }
        self.node(&mut tree, id)?.busy = true;
        Ok(tree)
    }

    /// Ends what [`FileSystem::occupy`] began.
    pub(super) fn vacate(&self, tree: &mut Tree, id: u64) {
        if let Some(node) = tree.nodes.get_mut(&id) {
            node.busy = false;
        }
        tree.forget_if_unused(id);
        self.idle.notify_all();
    }

    /// Removes a file or a symbolic link.
    pub fn unlink(&self, parent: u64, name: &str) -> Result<()> {
        self.ensure_listed(parent)?;
        self.sure_child(parent, name)?;
        let _stay = self.stay();
        let tree = self.tree();
        let id = tree.child(parent, name).ok_or(Error::NotFound)?;
        if tree.nodes[&id].is_directory() {
            return Err(Error::IsDirectory);
        }
        let mut tree = self.occupy(tree, id)?;
        if tree.child(parent, name) != Some(id) {
            self.vacate(&mut tree, id);
            return Err(Error::NotFound);
        }
        drop(tree);
        let result = self.remove_object(id);
        let mut tree = self.tree();
        let position = match result {
            Ok(()) => self.forget_name(&mut tree, id),
            Err(error) => Err(error),
        };
        tree.modified(parent, now());
        self.vacate(&mut tree, id);
        drop(tree);
        Ok(self.state.durable(position?)?)
    }

    /// Takes a name away, in the tree and in the state file.
    pub(super) fn forget_name(&self, tree: &mut Tree, id: u64) -> Result<Position> {
        let recorded = self.node(tree, id)?.recorded;
        let position = match recorded {
            true => self.state.append_end(&[Change::Settled(id)])?,
            false => self.state.end(),
        };
        let node = self.node(tree, id)?;
        let (parent, segment, directory) = (node.parent, node.segment.clone(), node.is_directory());
        tree.removed_remotely(parent, &segment, directory);
        tree.detach(id);
        Ok(position)
    }

    /// Removes the object of a busy node, also of one whose upload failed. One that somebody has open is copied first, and
    /// removed when it is closed.
    fn remove_object(&self, id: u64) -> Result<()> {
        self.make_sure(id)?;
        self.abandon_stream(id);
        let tree = self.tree();
        let node = tree.get(id).filter(|node| !node.removed).ok_or(Error::NotFound)?;
        // A node that replaces an object has none of its own, and the object is there.
        let (parent, is_directory) = (node.parent, node.is_directory());
        if node.remote.is_none() && node.replaces.is_none() {
            drop(tree);
            // What was in a directory without a marker may have been the last below its parent.
            return if is_directory { self.keep_directory(parent, id) } else { Ok(()) };
        }
        let key = self.key(&tree, id);
        drop(tree);
        self.keep_directory(parent, id)?;
        let away = self.copy_away(id)?;
        self.forget_content(id)?;
        match self.remove_certainly(&key) {
            Ok(()) => {
                self.node(&mut self.tree(), id)?.go_away(away);
                Ok(())
            }
            Err(error @ Error::InDoubt(_)) => {
                self.doubt(id, Doubt { asked: Asked::Removal, away })?;
                Err(error)
            }
            Err(error) => {
                self.discard_away(away);
                Err(error)
            }
        }
    }

    /// Before an object is removed: makes the state file forget content that is based on it, and what the bucket has.
    fn forget_content(&self, id: u64) -> Result<()> {
        let mut tree = self.tree();
        let node = self.node(&mut tree, id)?;
        let is_based = node.kept.as_ref().is_some_and(|kept| kept.base > 0);
        let position = match is_based && node.recorded {
            true => {
                node.kept = None;
                self.record(&mut tree, id)?
            }
            // A crash must not find a name pending that was uploaded since.
            false => self.state.end(),
        };
        drop(tree);
        Ok(self.state.durable(position)?)
    }

    /// Removes a copy that is not needed: the object is still there.
    pub(super) fn discard_away(&self, away: Option<Away>) {
        if let Some(away) = away {
            // What stays is removed at the next start.
            let _ = self.store().delete(&away.key);
        }
    }

    /// Copies the object of a busy node that somebody has open to a key of its own, for when it has none under its name.
    pub(super) fn copy_away(&self, id: u64) -> Result<Option<Away>> {
        let tree = self.tree();
        let node = tree.get(id).ok_or(Error::NotFound)?;
        let remote = match &node.remote {
            Some(remote) if node.opens > 0 && !node.is_directory() && node.content.base > 0 => {
                remote.clone()
            }
            _ => return Ok(None),
        };
        let key = self.key(&tree, id);
        drop(tree);
        let away = self.temporary_key();
        match self.copy_object(&key, &remote.etag, remote.size, &away, None) {
            Ok(etag) => Ok(Some(Away { key: away, etag })),
            // Somebody changed or removed it: what was read is gone whatever is done here.
            Err(Error::Store(
                crate::store::StoreError::Changed(_) | crate::store::StoreError::NotFound(_),
            )) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Before a directory loses an object, that of `leaving`: gives it a marker if it may have no other, so that it stays.
    pub(super) fn keep_directory(&self, directory: u64, leaving: u64) -> Result<()> {
        let mut tree = self.tree();
        let node = tree.get(directory).ok_or(Error::NotFound)?;
        // One with content is the object of a node below.
        let marker = node.remote.as_ref().filter(|remote| remote.size == 0);
        let has_marker = marker.is_some() && !node.may_be_gone();
        let stays = directory == ROOT || has_marker || node.attributes_dirty || node.removed;
        // One that is busy may be leaving, too. A directory that nobody made here was listed, as what objects are below.
        let has_object = |node: &Node| {
            let is_there = node.remote.is_some() || node.is_directory() && !node.is_dirty();
            is_there && !node.busy && !node.may_be_gone()
        };
        let others = node.entries.by_name.values().filter(|id| **id != leaving);
        // A marker too many does no harm.
        let mut others = others.take(LOOKED_AT_MAX);
        if stays || others.any(|id| tree.get(*id).is_some_and(has_object)) {
            return Ok(());
        }
        self.node(&mut tree, directory)?.attributes_dirty = true;
        tree.touch(directory);
        let position = self.record(&mut tree, directory)?;
        drop(tree);
        self.state.durable(position)?;
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: u64, name: &str) -> Result<()> {
        self.ensure_listed(parent)?;
        self.sure_child(parent, name)?;
        let _stay = self.stay();
        let id = self.tree().child(parent, name).ok_or(Error::NotFound)?;
        self.ensure_listed(id)?;
        let tree = self.tree();
        if !tree.get(id).is_some_and(Node::is_directory) {
            return Err(Error::NotDirectory);
        }
        let tree = self.occupy(tree, id)?;
        let here = tree.child(parent, name) == Some(id);
        let empty = tree.nodes[&id].entries.by_name.is_empty();
        let result = match (here, empty) {
            (false, _) => Err(Error::NotFound),
            (_, false) => Err(Error::NotEmpty),
            _ => Ok(()),
        };
        drop(tree);
        let result = result.and_then(|()| self.remove_object(id));
        let mut tree = self.tree();
        let position = match result {
            Ok(()) if tree.nodes[&id].entries.by_name.is_empty() => self.forget_name(&mut tree, id),
            // Something was made in it meanwhile.
            Ok(()) => {
                let node = self.node(&mut tree, id)?;
                node.remote = None;
                node.attributes_dirty = true;
                tree.touch(id);
                self.record_end(&mut tree, id, Vec::new()).and(Err(Error::NotEmpty))
            }
            Err(error) => Err(error),
        };
        tree.modified(parent, now());
        self.vacate(&mut tree, id);
        drop(tree);
        Ok(self.state.durable(position?)?)
    }
}
