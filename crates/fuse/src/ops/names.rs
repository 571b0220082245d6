//! Names: looking them up, making them, moving them, taking them away.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, fstat, fsync, linkat, mkdirat,
    mknodat, openat, readlinkat, renameat_with, statat, symlinkat, unlinkat,
};

use weir_engine::FileId;
use weir_shard::Renamed;

use crate::attr::{self, Attributes};
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::{FileSystem, RESERVED_NAME};
use crate::folding;
use crate::inode::{Identity, Inode, NodeId};

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
    /// Nothing, which the kernel may rely on for so long.
    Nothing(Duration),
}

impl FileSystem {
    /// Finds a name in a directory and counts one lookup of what it leads to.
    pub(crate) fn lookup(self: &Arc<Self>, parent: NodeId, name: &OsStr) -> Result<Found, Errno> {
        let directory = self.inode(parent)?;
        let found = match self.is_reserved(parent, name) {
            true => Err(Errno::ENOENT),
            false => self.count_name(&directory, name).and_then(|inode| self.entry(&inode)),
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

    /// The attributes of an inode just counted for the kernel; uncounts it if there are none.
    pub(crate) fn entry(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<Attributes, Errno> {
        self.attributes(inode).inspect_err(|_| self.uncount(inode))
    }

    /// Takes back one count that the kernel was not told of.
    pub(crate) fn uncount(&self, inode: &Arc<Inode>) {
        // A file still attached stays in the table until the kernel looks it up and forgets it
        // again: rare, and no harm.
        let _ = self.inodes.forget(inode.node(), 1);
    }

    /// Counts one lookup of what a name leads to.
    pub(crate) fn count_name(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        name: &OsStr,
    ) -> Result<Arc<Inode>, Errno> {
        let stat = stat_name(directory, name)?;
        // Holding a descriptor of an inode keeps its number from being given to another.
        let inode = match self.inodes.count_known(Identity::of(&stat)) {
            Some(inode) if inode.is_open() => inode,
            Some(inode) => self.count_closed(directory, name, inode)?,
            None => {
                let (fd, stat) = self.open_path(directory, name)?;
                self.inodes.count(fd, &stat)
            }
        };
        self.reclaimer.inodes_grew(self.inodes.held());
        inode.mark_used();
        inode.set_name(directory.node(), name);
        Ok(inode)
    }

    /// Looks up a name with the number of `known`, a counted directory whose descriptor is closed. While it
    /// was closed, home may have given the number to another inode.
    fn count_closed(
        self: &Arc<Self>,
        directory: &Inode,
        name: &OsStr,
        known: Arc<Inode>,
    ) -> Result<Arc<Inode>, Errno> {
        let opened = self.open_path(directory, name);
        let (fd, stat) = opened.inspect_err(|_| self.uncount(&known))?;
        let Err(fd) = self.inodes.reopen(&known, fd, &stat) else {
            return Ok(known);
        };
        self.uncount(&known);
        if self.inodes.node(Identity::of(&stat)) == known.node() {
            return Ok(self.inodes.count_replacing(&known, fd, &stat));
        }
        Ok(self.inodes.count(fd, &stat))
    }

    /// Opens a name with `O_PATH`.
    pub(crate) fn open_path(
        self: &Arc<Self>,
        directory: &Inode,
        name: &OsStr,
    ) -> Result<(OwnedFd, Stat), Errno> {
        self.spare_reserve()?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || openat(directory.path_fd(), name, flags, Mode::empty()).map_err(Errno::from);
        let fd = match open() {
            Err(Errno::ENFILE) => {
                self.make_room();
                open()?
            }
            opened => opened?,
        };
        let stat = fstat(&fd)?;
        Ok((fd, stat))
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
        let directory = self.directory_for(new)?;
        let (kind, mode) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
        self.credentials.create_as(caller, umask, || {
            mknodat(directory.path_fd(), new.name, kind, mode, device)
        })?;
        self.entry_of_new(&directory, new)
    }

    /// mkdir(2).
    pub(crate) fn make_directory(
        self: &Arc<Self>,
        caller: &Caller,
        new: Place<'_>,
        mode: u32,
        umask: u32,
    ) -> Result<Attributes, Errno> {
        let directory = self.directory_for(new)?;
        let mode = Mode::from_raw_mode(mode);
        self.credentials
            .create_as(caller, umask, || mkdirat(directory.path_fd(), new.name, mode))?;
        self.entry_of_new(&directory, new)
    }

    /// symlink(2).
    pub(crate) fn make_symlink(
        self: &Arc<Self>,
        caller: &Caller,
        new: Place<'_>,
        target: &OsStr,
    ) -> Result<Attributes, Errno> {
        let directory = self.directory_for(new)?;
        self.credentials
            .create_as(caller, 0, || symlinkat(target, directory.path_fd(), new.name))?;
        self.entry_of_new(&directory, new)
    }

    /// link(2) to an inode the kernel knows.
    pub(crate) fn make_link(
        self: &Arc<Self>,
        node: NodeId,
        new: Place<'_>,
    ) -> Result<Attributes, Errno> {
        let directory = self.directory_for(new)?;
        let inode = self.inode(node)?;
        // By its path in /proc: linking to a descriptor needs CAP_DAC_READ_SEARCH.
        linkat(CWD, inode.proc_path(), directory.path_fd(), new.name, AtFlags::SYMLINK_FOLLOW)?;
        note_change(&inode);
        self.entry_of_new(&directory, new)
    }

    fn entry_of_new(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        new: Place<'_>,
    ) -> Result<Attributes, Errno> {
        let entry = self.count_name(directory, new.name).and_then(|inode| self.entry(&inode));
        entry.inspect_err(|_| self.reclaimer.drop_name(new.parent, new.name))
    }

    /// Whether a name leads to Weir's own directory: its own name, or another name that home treats as equal.
    pub(crate) fn is_reserved(self: &Arc<Self>, parent: NodeId, name: &OsStr) -> bool {
        if parent != NodeId::ROOT || !folding::may_equal(name.as_bytes(), RESERVED_NAME) {
            return false;
        }
        if name.as_bytes() == RESERVED_NAME.as_bytes() {
            return true;
        }
        let Ok(root) = self.inode(NodeId::ROOT) else { return false };
        match (stat_name(&root, name), stat_name(&root, RESERVED_NAME.as_ref())) {
            (Ok(this), Ok(own)) => Identity::of(&this) == Identity::of(&own),
            // Created now, it would become Weir's directory as soon as that is created.
            (_, Err(Errno::ENOENT)) => root.folds_names(),
            _ => false,
        }
    }

    /// The directory a name is to be made in.
    ///
    /// # Errors
    /// EROFS; EPERM for the name that is Weir's own.
    pub(crate) fn directory_for(self: &Arc<Self>, new: Place<'_>) -> Result<Arc<Inode>, Errno> {
        self.check_writable()?;
        if self.is_reserved(new.parent, new.name) {
            return Err(Errno::EPERM);
        }
        self.inode(new.parent)
    }

    /// unlink(2), or rmdir(2) if `flags` is `REMOVEDIR`.
    pub(crate) fn remove_name(
        self: &Arc<Self>,
        parent: NodeId,
        name: &OsStr,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        if self.is_reserved(parent, name) {
            return Err(Errno::ENOENT);
        }
        let directory = self.inode(parent)?;
        let named = self.known_by(&directory, name);
        let only_name = named.as_ref().filter(|inode| has_one_name(inode));
        let files: Vec<FileId> = named.iter().map(|inode| inode.node().file()).collect();
        let changed = match only_name {
            Some(inode) => Renamed::Removed(inode.node().file()),
            None => Renamed::Files(&files),
        };
        self.shard.change_names(changed, || {
            unlinkat(directory.path_fd(), name, flags)?;
            if self.shard.finds_by_path() {
                // If a crash undoes the removal, the file must have what was synced of it. Where directories
                // cannot be synced (sshfs) a removal is not undone.
                let _ = sync_directory(&directory);
            }
            Ok::<(), Errno>(())
        })??;
        if let Some(inode) = named {
            self.lost_name(&inode);
        }
        Ok(())
    }

    /// renameat2(2). `flags` are passed home as they are.
    ///
    /// A file that takes another's name has its data home first. Names change at home at once and
    /// data later: without this, a crash in between would leave neither the old content nor the
    /// new under the name, and programs that write a file anew and rename it over the old one
    /// without fsync(2) rely on one of them being there (ext4(5), `auto_da_alloc`).
    pub(crate) fn rename(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        flags: u32,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        if let Some(moved) =
            self.inode(from.parent).ok().and_then(|of| self.known_by(&of, from.name))
        {
            self.settle(&moved);
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
        let moved = self.known_by(&*self.inode(from.parent).ok()?, from.name)?;
        if !moved.is_attached() || !self.shard.has_dirty(moved.node().file()) {
            return None;
        }
        stat_name(&*self.inode(to.parent).ok()?, to.name).is_ok().then_some(moved)
    }

    fn rename_at_home(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        flags: u32,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let flags = RenameFlags::from_bits_retain(flags);
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if self.is_reserved(from.parent, from.name)
            || exchange && self.is_reserved(to.parent, to.name)
        {
            return Err(Errno::ENOENT);
        }
        let destination = self.directory_for(to)?;
        let source = self.inode(from.parent)?;
        let moved = self.known_by(&source, from.name);
        let replaced = self.known_by(&destination, to.name);
        let both = moved.iter().chain(&replaced);
        let is_directory = both.clone().any(|inode| inode.file().is_none());
        let files: Vec<FileId> = both.map(|inode| inode.node().file()).collect();
        let changed = match is_directory {
            true => Renamed::All,
            false => Renamed::Files(&files),
        };
        self.shard.change_names(changed, || {
            renameat_with(source.path_fd(), from.name, destination.path_fd(), to.name, flags)
        })??;
        if let Some(inode) = &moved {
            note_change(inode);
            inode.set_name(to.parent, to.name);
        }
        match replaced {
            Some(inode) if exchange => {
                note_change(&inode);
                inode.set_name(from.parent, from.name);
            }
            // Renaming one name of a file to another of its names does nothing.
            Some(inode) if moved.as_ref().is_none_or(|moved| moved.node() != inode.node()) => {
                self.lost_name(&inode);
            }
            _ => {}
        }
        Ok(())
    }

    /// The inode a name leads to, if the kernel knows it.
    fn known_by(&self, directory: &Inode, name: &OsStr) -> Option<Arc<Inode>> {
        let stat = stat_name(directory, name).ok()?;
        self.inodes.get(self.inodes.node(Identity::of(&stat)))
    }

    /// A name of an inode is gone. If it was the last and nobody has the file open, what is dirty
    /// of it need not go home.
    fn lost_name(&self, inode: &Arc<Inode>) {
        note_change(inode);
        if !inode.is_attached() {
            return;
        }
        let mut state = inode.open();
        let nameless = fstat(inode.path_fd()).is_ok_and(|stat| stat.st_nlink == 0);
        if nameless && state.descriptions == 0 {
            state.discarded = true;
            self.shard.discard(inode.node().file());
        }
    }

    /// readlink(2).
    pub(crate) fn read_link(self: &Arc<Self>, node: NodeId) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(node)?;
        // An empty path names the link the descriptor itself holds (readlinkat(2)).
        Ok(readlinkat(inode.path_fd(), "", Vec::new())?.into_bytes())
    }
}

fn stat_name(directory: &Inode, name: &OsStr) -> Result<Stat, Errno> {
    Ok(statat(directory.path_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The inode's status changed just now, by way of the mount.
pub(crate) fn note_change(inode: &Inode) {
    if let Some(home) = inode.file() {
        home.times().note_change(attr::now());
    }
}

/// Runs on a thread of its own what may wait for the back end's workers, so that no worker waits for workers.
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

fn sync_directory(directory: &Inode) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fsync(openat(directory.path_fd(), ".", flags, Mode::empty())?)?)
}

/// Whether an inode has only one name.
fn has_one_name(inode: &Inode) -> bool {
    fstat(inode.path_fd()).is_ok_and(|stat| stat.st_nlink == 1)
}
