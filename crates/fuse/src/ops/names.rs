//! Names: lookup, creation, rename and removal.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::FileType;
use weir_backend::Changing;
use weir_backend::home_names::{HomeCommand, Looked, Status, read_link};
use weir_engine::FileId;
use weir_names::Way;
use weir_names::command::{Entry, NameCommand};
use weir_names::tree::{HomeError, Kind, NAME_BYTES_MAX, Step};
use weir_shard::Renamed;

use crate::attr::{self, Attributes};
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::{FileSystem, RESERVED_NAME};
use crate::folding;
use crate::given::Thread;
use crate::inode::{DataNode, Inode, NodeId};

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The directory.
    pub(crate) parent: NodeId,
    /// The name.
    pub(crate) name: &'a OsStr,
}

/// What a name leads to.
#[derive(Debug)]
pub(crate) enum Found {
    Entry(Attributes),
    /// Nothing. The kernel may rely on that for this time.
    Nothing(Duration),
}

/// A name as the tree has it.
///
/// # Errors
/// EINVAL for what is not one name.
pub(crate) fn place(at: Place<'_>) -> Result<weir_names::Place, Errno> {
    weir_names::Place::new(at.parent, at.name.as_bytes()).ok_or(Errno::EINVAL)
}

impl FileSystem {
    /// Finds a name in a directory and counts one lookup of what it leads to.
    pub(crate) fn lookup(
        self: &Arc<Self>,
        parent: NodeId,
        name: &OsStr,
        by: Thread,
    ) -> Result<Found, Errno> {
        let directory = self.inode(parent)?;
        let found = match self.is_reserved(parent, name) {
            true => Err(Errno::ENOENT),
            false => self.count_name(&directory, name, by),
        };
        match found {
            Err(Errno::ENOENT) => {
                let timeout = self.options.negative_timeout;
                if timeout.is_zero() || directory.folds_names() {
                    return Err(Errno::ENOENT);
                }
                Ok(Found::Nothing(timeout))
            }
            found => Ok(Found::Entry(found?)),
        }
    }

    /// Takes back one lookup that was not reported to the kernel.
    pub(crate) fn uncount(&self, node: NodeId) {
        // A file that is still attached stays in the table until the kernel looks it up and forgets it again. That is
        // rare and harmless.
        let _ = self.inodes.forget(node, 1);
    }

    /// Counts one lookup of a name's inode, without holding it. Returns its attributes, which are given to a thread.
    pub(crate) fn count_name(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        name: &OsStr,
        to: Thread,
    ) -> Result<Attributes, Errno> {
        let known = self.known_name(Place { parent: directory.node(), name });
        if let (Some(_), Some(behind)) = (known, &self.write_behind) {
            behind.listers.name_used(directory.node());
        }
        match known {
            Some(_) if name.len() > NAME_BYTES_MAX => return Err(Errno::ENAMETOOLONG),
            Some(None) => return Err(Errno::ENOENT),
            Some(Some(node)) if self.inodes.count_again(node) => {
                let attributes = self.inode(node).and_then(|inode| {
                    self.give_attributes(node, inode.kind(), to);
                    self.attributes(&inode)
                });
                let attributes = attributes.inspect_err(|_| self.uncount(node));
                match attributes {
                    // The kernel would be told the same again and again.
                    Err(Errno::ESTALE) if self.forget_name(directory, name) => {}
                    attributes => return attributes,
                }
            }
            _ => {}
        }
        Ok(self.count_at_home(directory, name, to)?.0)
    }

    /// As [`FileSystem::count_name`], whatever the tree knows. Also returns what home says.
    fn count_at_home(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        name: &OsStr,
        to: Thread,
    ) -> Result<(Attributes, Status), Errno> {
        let detachments = self.inodes.detachments();
        let changes = self.given.changes();
        let looked = self.look_up(directory, name);
        if looked.is_ok() {
            self.expect_lookups_in(directory.node());
        }
        let looked = looked.inspect_err(|&errno| {
            let behind = self.write_behind.as_ref().filter(|_| errno == Errno::ENOENT);
            if behind.is_some_and(|behind| behind.has_missed(directory.node())) {
                self.learn_names(directory);
            }
        })?;
        let node = self.inodes.count(&looked);
        let kind = FileType::from_raw_mode(looked.status.mode);
        self.give_attributes(node, kind, to);
        let is_newest = match kind {
            FileType::Directory => self.given.changes() == changes,
            _ => self.inodes.detachments() == detachments,
        };
        let inode = match self.inodes.get(node) {
            None if is_newest => {
                return Ok((Attributes::from_status(node, &looked.status), looked.status));
            }
            // It may be this file that the engine has detached since, or this directory in which names were changed since: home
            // was asked before it had all of it.
            None => self.inode(node),
            Some(inode) => Ok(inode),
        };
        let attributes = inode.and_then(|inode| self.attributes(&inode));
        let attributes = attributes.inspect_err(|_| self.uncount(node))?;
        Ok((attributes, looked.status))
    }

    pub(crate) fn look_up(&self, directory: &Inode, name: &OsStr) -> Result<Looked, Errno> {
        Ok(self.home.look_up(directory.path_fd()?, directory.node(), name)?)
    }

    /// mknod(2). `device` is in the home system's encoding.
    pub(crate) fn make_node(
        self: &Arc<Self>,
        caller: &Caller,
        new: Place<'_>,
        mode: u32,
        umask: u32,
        device: u64,
    ) -> Result<Attributes, Errno> {
        let kind = match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Kind::File,
            _ => Kind::Special { file_type: mode & libc::S_IFMT, device },
        };
        if let Some(made) = self.make_behind(caller, new, kind, mode, umask) {
            return self.attributes(&*made?);
        }
        let (directory, _changing) = self.directory_at_home(new)?;
        let (at, creator) = (entry(&directory, new.name)?, caller.creator(umask));
        self.make(&directory, new, NameCommand::MakeNode { at, mode, device, creator })
    }

    /// mkdir(2).
    pub(crate) fn make_directory(
        self: &Arc<Self>,
        caller: &Caller,
        new: Place<'_>,
        mode: u32,
        umask: u32,
    ) -> Result<Attributes, Errno> {
        if let Some(made) = self.make_behind(caller, new, Kind::Directory, mode, umask) {
            return self.attributes(&*made?);
        }
        let (directory, _changing) = self.directory_at_home(new)?;
        let (at, creator) = (entry(&directory, new.name)?, caller.creator(umask));
        self.make(&directory, new, NameCommand::MakeDirectory { at, mode, creator })
    }

    /// symlink(2).
    pub(crate) fn make_symlink(
        self: &Arc<Self>,
        caller: &Caller,
        new: Place<'_>,
        target: &OsStr,
    ) -> Result<Attributes, Errno> {
        let kind = Kind::Symlink(target.as_bytes().into());
        if let Some(made) = self.make_behind(caller, new, kind, 0, 0) {
            return self.attributes(&*made?);
        }
        let (directory, _changing) = self.directory_at_home(new)?;
        let (at, creator) = (entry(&directory, new.name)?, caller.creator(0));
        self.make(&directory, new, NameCommand::MakeSymlink { at, target, creator })
    }

    /// Makes a new entry at home by `command`, and counts one lookup of it.
    fn make(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        new: Place<'_>,
        command: HomeCommand<'_>,
    ) -> Result<Attributes, Errno> {
        self.home.execute(command)?;
        self.entry_of_new(directory, new)
    }

    /// link(2) to an inode the kernel knows.
    ///
    /// # Errors
    /// EPERM where home has no hard links: one in the log would keep all that follows it from going home.
    pub(crate) fn make_link(
        self: &Arc<Self>,
        node: NodeId,
        new: Place<'_>,
    ) -> Result<Attributes, Errno> {
        let inode = self.inode(node)?;
        self.check_writable()?;
        if !self.home.makes_links() {
            return Err(Errno::EPERM);
        }
        self.know_a_name(&inode);
        let is_nameless = inode.is_nameless();
        // What was made without a name is known to home alone.
        let linked = if is_nameless { None } else { self.link_behind(node, new) };
        if let Some(linked) = linked {
            return self.attributes(&*linked?);
        }
        let (directory, _changing) = self.directory_at_home(new)?;
        self.wait_until_at_home(&inode)?;
        if !self.home.are_by_handle() {
            // By its new name home shows another inode, which has what is home.
            inode.set_linked();
            self.bring_data_home(&inode);
        }
        let step = Step { node, from: None, to: Some(place(new)?) };
        // While its open state is locked it is not closed, which drops what is not home of it.
        let open = is_nameless.then(|| inode.open());
        if open.as_ref().is_some_and(|open| open.discarded) {
            return Err(Errno::ENOENT);
        }
        self.step_at_once(Some(&step), None, || {
            let at = entry(&directory, new.name)?;
            let path = inode.path_to_link()?;
            Ok(self.home.execute(NameCommand::Link { inode: path.as_fd(), at })?)
        })?;
        if let Some(behind) = &self.write_behind {
            behind.lock().tree.got_another_name(node);
        }
        inode.set_named();
        drop(open);
        self.shard.changed_at_home(node.file());
        note_change(&inode);
        self.entry_of_new(&directory, new)
    }

    fn entry_of_new(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        new: Place<'_>,
    ) -> Result<Attributes, Errno> {
        // The tree may know yet that there was nothing.
        let entry = self.count_at_home(directory, new.name, Thread::ANY);
        let entry = entry.inspect_err(|_| self.reclaimer.drop_name(new.parent, new.name));
        let (attributes, status) = entry?;
        self.tell_tree(new, Some((attributes.node, &status)));
        Ok(attributes)
    }

    /// Whether programs do not get to see a name: that of Weir's own directory, or another one that home treats as equal, and those
    /// of files that home keeps after they were removed.
    pub(crate) fn is_reserved(self: &Arc<Self>, parent: NodeId, name: &OsStr) -> bool {
        if self.home.is_of_removed(name) {
            return true;
        }
        if parent != NodeId::ROOT || !folding::may_equal(name.as_bytes(), RESERVED_NAME) {
            return false;
        }
        if name.as_bytes() == RESERVED_NAME.as_bytes() {
            return true;
        }
        let Ok(root) = self.inode(NodeId::ROOT) else { return false };
        match (self.look_up(&root, name), self.look_up(&root, RESERVED_NAME.as_ref())) {
            (Ok(this), Ok(own)) => this.identity == own.identity,
            // Created now, it would become Weir's directory as soon as that is created.
            (_, Err(Errno::ENOENT)) => root.folds_names(),
            _ => false,
        }
    }

    /// The directory a name is to be made in.
    ///
    /// # Errors
    /// EROFS; EPERM for the name of Weir's own directory.
    pub(crate) fn directory_for(self: &Arc<Self>, new: Place<'_>) -> Result<Arc<Inode>, Errno> {
        self.check_writable()?;
        if self.is_reserved(new.parent, new.name) {
            return Err(Errno::EPERM);
        }
        self.inode(new.parent)
    }

    /// The directory a name is to be made in at home, which has what programs see under the name, and as
    /// [`FileSystem::name_at_home`].
    pub(crate) fn directory_at_home(
        self: &Arc<Self>,
        new: Place<'_>,
    ) -> Result<(Arc<Inode>, Option<Changing>), Errno> {
        let directory = self.directory_for(new)?;
        self.attributes_at_home(&directory)?;
        let changing = self.name_at_home(new)?;
        Ok((directory, changing))
    }

    /// unlink(2).
    pub(crate) fn unlink(self: &Arc<Self>, parent: NodeId, name: &OsStr) -> Result<(), Errno> {
        self.remove_name(parent, name, false, |at| NameCommand::Unlink { at })
    }

    /// rmdir(2).
    pub(crate) fn remove_directory(
        self: &Arc<Self>,
        parent: NodeId,
        name: &OsStr,
    ) -> Result<(), Errno> {
        self.remove_name(parent, name, true, |at| NameCommand::RemoveDirectory { at })
    }

    fn remove_name(
        self: &Arc<Self>,
        parent: NodeId,
        name: &OsStr,
        is_directory: bool,
        command: impl for<'a> FnOnce(Entry<'a, BorrowedFd<'a>>) -> HomeCommand<'a>,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        if self.is_reserved(parent, name) {
            return Err(Errno::ENOENT);
        }
        let at = Place { parent, name };
        if let Some(removed) = self.remove_behind(at, is_directory) {
            return removed;
        }
        let waited = self
            .inode_at_home(parent)
            .and_then(|directory| Ok((directory, self.name_at_home(at)?)));
        let (directory, _changing) = match waited {
            Ok(waited) => waited,
            Err(errno) => {
                return self.remove_without_room(at, is_directory).unwrap_or(Err(errno));
            }
        };
        let named = self.known_by(&directory, name);
        if let Some(named) = named.as_ref().filter(|_| is_directory) {
            self.names_at_home(named.node)?;
        }
        if let Some(named) = &named {
            self.all_names_at_home(named.node)?;
        }
        let held = named.as_ref().and_then(|named| self.hold_if_last(named));
        let is_linked = held.as_ref().is_some_and(|inode| inode.is_linked());
        if let Some(inode) = held.as_ref().filter(|_| is_linked) {
            self.bring_data_home(inode);
        }
        let lost = place(at)?;
        let files: Vec<FileId> = named.iter().map(|named| named.node.file()).collect();
        let changed = match &named {
            Some(named)
                if named.status.nlink == 1
                    && !is_linked
                    && self.another_name(named.node, &lost).is_none() =>
            {
                Renamed::Removed(named.node.file())
            }
            _ => Renamed::Files(&files),
        };
        if let Some(named) = &named {
            self.leave_name(named.node, &lost);
        }
        let step =
            named.as_ref().map(|named| Step { node: named.node, from: Some(lost), to: None });
        self.shard.change_names(changed, || {
            self.step_at_once(step.as_ref(), None, || {
                Ok(self.home.execute(command(entry(&directory, name)?))?)
            })?;
            if self.shard.finds_by_path() {
                // If a crash undoes the removal, the file must still have its synced data. Where directories
                // cannot be synced (sshfs) a removal is not undone.
                let directory = directory.path_fd()?;
                let _ = self.home.execute(NameCommand::SyncDirectory { directory });
            }
            Ok::<(), Errno>(())
        })??;
        self.tell_tree(at, None);
        if let (Some(named), Ok(at)) = (&named, place(at)) {
            self.lost_at_home(named.node, &at);
        }
        if let Some(inode) = held {
            note_change(&inode);
            self.lost_name(&inode);
        }
        Ok(())
    }

    /// renameat2(2). `flags` are passed home as they are.
    ///
    /// Before a file takes another's name, its data goes home. Names change at home at once and data later: without this,
    /// a crash in between would leave neither the old content nor the new one under the name. Programs that write a new
    /// file and rename it over the old one without fsync(2) rely on one of the two (ext4(5), `auto_da_alloc`).
    pub(crate) fn rename(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        flags: u32,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        if let Some(moved) = self.held_by(from) {
            self.settle(&moved);
        }
        let refused = self.check_rename(from, to, flags);
        if let Some(renamed) =
            refused.err().map(Err).or_else(|| self.rename_behind(from, to, flags))
        {
            return done(renamed);
        }
        // Renaming waits for the new name again before home is changed.
        if let Err(errno) = self.name_at_home(from).and_then(|_| self.name_at_home(to)) {
            return done(Err(errno));
        }
        let dirty = self.dirty_and_replacing(from, to);
        let by_path = self.shard.finds_by_path();
        if dirty.is_none() && !by_path {
            return done(self.rename_at_home(from, to, flags));
        }
        let fs = Arc::clone(self);
        let (from_parent, from_name) = (from.parent, from.name.to_owned());
        let (to_parent, to_name) = (to.parent, to.name.to_owned());
        let rename = move || {
            let from = Place { parent: from_parent, name: &from_name };
            let to = Place { parent: to_parent, name: &to_name };
            done(fs.rename_at_home(from, to, flags));
        };
        match dirty {
            Some(dirty) if by_path => self.when_home(&dirty, move || on_own_thread(rename)),
            Some(dirty) => self.when_home(&dirty, rename),
            None => on_own_thread(rename),
        }
    }

    /// The file to be renamed, if it has dirty data and is to take the place of another.
    fn dirty_and_replacing(self: &Arc<Self>, from: Place<'_>, to: Place<'_>) -> Option<Arc<Inode>> {
        let moved = self.held_by(from)?;
        if !moved.is_attached() || !self.shard.has_dirty(moved.node().file()) {
            return None;
        }
        self.look_up(&*self.inode(to.parent).ok()?, to.name).is_ok().then_some(moved)
    }

    /// Refuses to rename what is Weir's own.
    fn check_rename(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        flags: u32,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        if self.is_reserved(from.parent, from.name)
            || exchange && self.is_reserved(to.parent, to.name)
        {
            return Err(Errno::ENOENT);
        }
        Ok(())
    }

    fn rename_at_home(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        flags: u32,
    ) -> Result<(), Errno> {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let (destination, _changing) = self.directory_at_home(to)?;
        let source = self.inode_at_home(from.parent)?;
        let moved = self.known_by(&source, from.name);
        let replaced = self.known_by(&destination, to.name);
        if let Some(replaced) = replaced.as_ref().filter(|_| !exchange) {
            self.all_names_at_home(replaced.node)?;
        }
        let held = moved.as_ref().and_then(|moved| self.inodes.get(moved.node));
        let lost = replaced.as_ref().and_then(|replaced| self.hold_if_last(replaced));
        if let Some(inode) = lost.as_ref().filter(|inode| inode.is_linked() && !exchange) {
            self.bring_data_home(inode);
        }
        let both = moved.iter().chain(&replaced);
        let is_directory = both.clone().any(|named| named.kind() != FileType::RegularFile);
        let files: Vec<FileId> = both.map(|named| named.node.file()).collect();
        let changed = match is_directory {
            true => Renamed::All,
            false => Renamed::Files(&files),
        };
        let (old, new) = (place(from)?, place(to)?);
        if let Some(replaced) = replaced.as_ref().filter(|_| !exchange) {
            self.leave_name(replaced.node, &new);
        }
        let step =
            moved.as_ref().map(|moved| Step { node: moved.node, from: Some(old), to: Some(new) });
        let under_new = replaced.as_ref().map(|replaced| replaced.node);
        if exchange && step.as_ref().is_some_and(|step| self.is_stepped(step)) {
            // After a crash the names that are there would not tell whether it was done.
            return Err(Errno::EINVAL);
        }
        self.shard.change_names(changed, || {
            self.step_at_once(step.as_ref(), under_new, || {
                let (from, to) = (entry(&source, from.name)?, entry(&destination, to.name)?);
                Ok(self.home.execute(NameCommand::Rename { from, to, flags })?)
            })
        })??;
        let at_home = |named: &'_ Named| (named.node, named.status);
        let (new, old) = (moved.as_ref().map(at_home), replaced.as_ref().map(at_home));
        self.tell_tree(to, new.as_ref().map(|(node, status)| (*node, status)));
        match flags & libc::RENAME_WHITEOUT {
            0 => {
                let old = old.filter(|_| exchange);
                self.tell_tree(from, old.as_ref().map(|(node, status)| (*node, status)));
            }
            _ => self.tell_tree_of_whiteout(from),
        }
        if let Some(moved) = &moved {
            self.found_at(moved.node, to);
        }
        if let (Some(node), Ok(to)) = (under_new.filter(|_| !exchange), place(to)) {
            self.lost_at_home(node, &to);
        }
        if let Some(inode) = &held {
            note_change(inode);
        }
        match (replaced, lost) {
            (Some(replaced), lost) if exchange => {
                self.found_at(replaced.node, from);
                if let Some(inode) = lost {
                    note_change(&inode);
                }
            }
            // Renaming one name of a file to another of its names does nothing.
            (Some(replaced), Some(inode))
                if moved.as_ref().is_none_or(|moved| moved.node != replaced.node) =>
            {
                note_change(&inode);
                self.lost_name(&inode);
            }
            _ => {}
        }
        Ok(())
    }

    /// What a name leads to, if the kernel knows it.
    fn known_by(&self, directory: &Inode, name: &OsStr) -> Option<Named> {
        let Looked { status, identity, .. } = self.look_up(directory, name).ok()?;
        self.inodes.find(&identity).map(|node| Named { node, status })
    }

    /// What a name leads to, if it is held.
    fn held_by(self: &Arc<Self>, place: Place<'_>) -> Option<Arc<Inode>> {
        if let Some(known) = self.known_name(place) {
            return self.inodes.get(known?);
        }
        let directory = self.inode(place.parent).ok()?;
        self.inodes.get(self.known_by(&directory, place.name)?.node)
    }

    /// The inode that is about to lose a name. It is held if this is its last name, since it could not be found again.
    fn hold_if_last(self: &Arc<Self>, named: &Named) -> Option<Arc<Inode>> {
        if named.status.nlink > 1 && named.kind() != FileType::Directory {
            return self.inodes.get(named.node);
        }
        self.inode(named.node).ok()
    }

    /// Waits until home has a file's data, or has refused it.
    fn bring_data_home(&self, inode: &Inode) {
        let (sender, ended) = channel();
        self.when_home(inode, move || sender.send(()).unwrap_or(()));
        let _ = ended.recv();
    }

    /// Notes that a known inode is found at `place` now.
    fn found_at(&self, node: NodeId, place: Place<'_>) {
        if let Some(place) = weir_names::Place::new(place.parent, place.name.as_bytes()) {
            self.inodes.moved(node, Way::Place(place));
        }
    }

    /// Home removed a name of a node: the node is not found by it any more. A directory has no other one.
    pub(crate) fn lost_at_home(&self, node: NodeId, at: &weir_names::Place) {
        self.inodes.lost(node, at, self.another_name(node, at));
        if let Some(behind) = &self.write_behind {
            behind.removed_at_home(node);
        }
    }

    /// Where home has a node beside this name, if that is known: under another name, or parked.
    pub(crate) fn another_name(
        &self,
        node: NodeId,
        at: &weir_names::Place,
    ) -> Option<weir_names::Place> {
        let behind = self.write_behind.as_ref()?;
        behind.lock().tree.home_place_beside(node, at)
    }

    /// Home is about to lose a name of a node, which is reached by another one from now on, if one is known. Some homes (sshfs) know
    /// an inode by the name alone by which it was opened, and do not find it any more when that is gone.
    pub(crate) fn leave_name(self: &Arc<Self>, node: NodeId, at: &weir_names::Place) {
        if self.home.are_by_handle() {
            return;
        }
        let other = self.another_name(node, at);
        if let Err(error) = self.reach_by(node, other.as_ref()) {
            tracing::debug!("{node:?} is not reached by its other name {other:?}: {error:?}");
        }
    }

    fn reach_by(
        self: &Arc<Self>,
        node: NodeId,
        other: Option<&weir_names::Place>,
    ) -> Result<(), Errno> {
        let held = match other {
            // By the name that home still has.
            Some(_) => Some(self.inode(node)?),
            None => self.inodes.get(node),
        };
        let Some(inode) = held.filter(|inode| inode.is_at_home()) else { return Ok(()) };
        let found = other.map(|at| self.open_as(&inode, at)).transpose()?;
        if matches!(found, Some(None)) {
            return Ok(());
        }
        if inode.file().is_some() {
            self.shard.leave_name(node.file());
        }
        inode.leave_name(found.flatten())
    }

    /// Home was found to have given a node this name, when its answer was lost. What it is open by may lead nowhere: libfuse(3) knows a file by the name that it
    /// had when home's answer was lost.
    ///
    /// # Errors
    /// Home's, for the new name.
    pub(crate) fn was_moved(
        self: &Arc<Self>,
        node: NodeId,
        to: &weir_names::Place,
    ) -> Result<(), HomeError> {
        self.found_in_tree(node, to);
        let held = self.inodes.get(node).filter(|inode| inode.is_at_home());
        let Some(inode) = held.filter(|_| !self.home.are_by_handle()) else { return Ok(()) };
        let Some(found) = self.open_as(&inode, to)? else { return Ok(()) };
        inode.was_moved(found).map_err(|errno| HomeError::Refused(errno.code()))
    }

    /// Opens what home has under a name; `None` if that cannot be this inode.
    fn open_as(
        self: &Arc<Self>,
        inode: &Inode,
        at: &weir_names::Place,
    ) -> Result<Option<OwnedFd>, HomeError> {
        let directory = self.directory_of(at)?;
        let Entry { directory, name } = directory.at(at)?;
        let open = || -> Result<_, Errno> {
            let found = self.home.open_place(directory, name.as_bytes())?;
            let kind = FileType::from_raw_mode(Status::of(found.as_fd())?.mode);
            Ok((kind == inode.kind()).then_some(found))
        };
        open().map_err(|errno| HomeError::Refused(errno.code()))
    }

    /// A name of an inode was removed, and its change time was noted. If it was the last one and no program has the file open,
    /// its dirty data need not go home.
    pub(crate) fn lost_name(&self, inode: &Arc<Inode>) {
        let nameless = inode.kind() == FileType::Directory || self.has_no_name(inode);
        if nameless {
            inode.set_nameless();
            if let Some(behind) = &self.write_behind {
                behind.forget_number(inode.node());
            }
        }
        let is_linked = inode.is_linked();
        if (!nameless || is_linked)
            && inode.is_attached()
            && let Some(behind) = self.write_behind.as_ref().filter(|behind| behind.logs_places())
            && !behind.keeps_a_name(&self.inodes, inode.node())
        {
            // Recovery finds it again when it is opened by a name that it has left.
            self.shard.pause_log(inode.node().file());
        }
        if !nameless || is_linked || !inode.is_attached() {
            return;
        }
        let mut state = inode.open();
        if state.descriptions == 0 {
            self.discard(inode, &mut state);
            if let Some(home) = inode.file().filter(|_| self.write_behind.is_some()) {
                // An open file would keep its directory from being removed on some homes (sshfs).
                self.close_if_idle(inode, home, &mut state);
            }
        } else if let Some(behind) = &self.write_behind {
            behind.hold_nameless(&self.inodes, inode);
        }
    }

    /// readlink(2).
    pub(crate) fn read_link(self: &Arc<Self>, node: NodeId) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(node)?;
        if let Some(target) = self.write_behind.as_ref().and_then(|behind| behind.target_of(node)) {
            return Ok(target);
        }
        Ok(read_link(inode.path_fd()?)?)
    }
}

/// What a name leads to: a node the kernel knows.
struct Named {
    node: NodeId,
    status: Status,
}

impl Named {
    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.status.mode)
    }
}

/// Notes that the inode's status was changed just now through the mount.
pub(crate) fn note_change(inode: &Inode) {
    if let Some(home) = inode.file() {
        home.times().note_change(attr::now());
    }
}

/// Runs a function that may wait for the back end's workers on a thread of its own, so that no worker waits for workers.
/// If no thread can be started, runs it on the calling thread.
fn on_own_thread(run: impl FnOnce() + Send + 'static) {
    let run = Arc::new(Mutex::new(Some(run)));
    let take = |run: &Mutex<Option<_>>| run.lock().unwrap_or_else(PoisonError::into_inner).take();
    let there = Arc::clone(&run);
    let spawned = thread::Builder::new().name("weir-rename".to_owned()).spawn(move || {
        if let Some(run) = take(&there) {
            run();
        }
    });
    if spawned.is_err()
        && let Some(run) = take(&run)
    {
        run();
    }
}

/// A name in a directory, for the back end.
///
/// # Errors
/// EIO if home does not have the directory.
pub(crate) fn entry<'a>(
    directory: &'a Inode,
    name: &'a OsStr,
) -> Result<Entry<'a, BorrowedFd<'a>>, Errno> {
    Ok(Entry { directory: directory.path_fd()?, name })
}
