//! Opening, creating and closing regular files; flush and fsync.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use weir_backend::HomeFile;
use weir_backend::home_names::{Looked, open_again};
use weir_engine::{Durability, Error, FreezeEnd, FreezeScope};
use weir_names::command::NameCommand;
use weir_names::tree::Kind;

use crate::attr::Attributes;
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::{Cached, FileSystem};
use crate::inode::{DataNode, Inode, NodeId};
use crate::open_file::OpenFile;
use crate::ops::attributes::resize_at_home;
use crate::ops::names::{Place, entry};

/// Attempts at a creation that finds no descriptor left.
const CREATE_ATTEMPTS: u32 = 8;

/// A file that was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// Number of the open description.
    pub(crate) handle: u64,
    /// The kernel must not cache data read or written through this description.
    pub(crate) uncached: bool,
    /// The kernel's cached pages of the file are still valid.
    pub(crate) keep_cache: bool,
    /// No error can have to be reported when this description is closed: it cannot write.
    pub(crate) no_flush: bool,
}

/// How a program opens a file: the flags of open(2), read once.
#[derive(Clone, Copy, Debug)]
struct Access {
    write: bool,
    truncate: bool,
    direct: bool,
    append: bool,
}

impl Access {
    fn from_flags(flags: i32) -> Access {
        Access {
            write: flags & libc::O_ACCMODE != libc::O_RDONLY,
            truncate: flags & libc::O_TRUNC != 0,
            direct: flags & libc::O_DIRECT != 0,
            append: flags & libc::O_APPEND != 0,
        }
    }
}

impl FileSystem {
    /// open(2) of a regular file the kernel knows. `flags` are those of open(2).
    ///
    /// O_TRUNC is not among them: the kernel truncates by a separate request. If open did it (FUSE_ATOMIC_O_TRUNC), the
    /// file of a running program would be truncated before the kernel returns ETXTBSY.
    pub(crate) fn open(
        self: &Arc<Self>,
        caller: &Caller,
        node: NodeId,
        flags: i32,
        done: impl FnOnce(Result<Opened, Errno>) + Send + 'static,
    ) {
        match self.inode(node) {
            Ok(inode) => self.open_inode(caller, inode, Access::from_flags(flags), done),
            Err(errno) => done(Err(errno)),
        }
    }

    fn open_inode(
        self: &Arc<Self>,
        caller: &Caller,
        inode: Arc<Inode>,
        access: Access,
        done: impl FnOnce(Result<Opened, Errno>) + Send + 'static,
    ) {
        let changes = access.write || access.truncate;
        if changes && self.options.read_only {
            return done(Err(Errno::EROFS));
        }
        if let Err(errno) = self.admit(caller) {
            return done(Err(errno));
        }
        let cached = match self.acquire(&inode, changes) {
            Ok(cached) => cached,
            Err(errno) => return done(Err(errno)),
        };
        let fs = Arc::clone(self);
        let opener = *caller;
        self.when_fresh(Arc::clone(&inode), cached, move |cached| match cached {
            Ok(_) if access.truncate => fs.open_truncated(inode, access, opener, done),
            Ok(cached) => fs.opened(inode, access, cached == Cached::Good, opener, done),
            Err(errno) => {
                fs.release(&inode);
                done(Err(errno));
            }
        });
    }

    /// Truncates a file that was acquired for it, and makes its open description.
    fn open_truncated(
        self: &Arc<Self>,
        inode: Arc<Inode>,
        access: Access,
        opener: Caller,
        done: impl FnOnce(Result<Opened, Errno>) + Send + 'static,
    ) {
        self.drop_privileges_for(&inode, &opener);
        let fs = Arc::clone(self);
        let file = inode.node().file();
        self.shard.freeze(file, FreezeScope::resizing(0), move |granted| {
            let (end, prepared) = resize_at_home(&inode, granted, 0);
            let answer = move || match prepared {
                Ok(()) => fs.opened(inode, access, false, opener, done),
                Err(errno) => {
                    fs.release(&inode);
                    done(Err(errno));
                }
            };
            (end, answer)
        });
    }

    /// Makes the open description of a file that was acquired for it.
    fn opened(
        self: &Arc<Self>,
        inode: Arc<Inode>,
        access: Access,
        keep_cache: bool,
        opener: Caller,
        done: impl FnOnce(Result<Opened, Errno>) + Send + 'static,
    ) {
        inode.swap_used(true);
        let has_old_pages = std::mem::take(&mut inode.open().has_old_pages);
        let direct = self.opens_direct(&inode, &opener);
        // The kernel would cache appended data at the end that it knows, which may differ from the file's end.
        let displaced = access.append && access.write && inode.lane.was_posted_to();
        let uncached = access.direct || self.options.direct_io || direct || displaced;
        let (behind, writes) = (self.write_behind.as_ref(), access.write);
        let by = (opener, self.sessions.opened(opener.pid));
        let open = OpenFile::new(&self.shard, behind, inode, by, uncached, writes);
        let open = Arc::new(open);
        self.descriptors.opened(&opener);
        let opened = Opened {
            handle: self.files.insert(Arc::clone(&open)),
            uncached,
            keep_cache: keep_cache && !has_old_pages,
            no_flush: !access.write,
        };
        let of = Arc::clone(&open);
        self.description_made(&open, direct, move || {
            let keep_cache = opened.keep_cache && !of.inode.lane.is_stale();
            done(Ok(Opened { keep_cache, ..opened }));
        });
    }

    /// open(2) with O_CREAT of a name the kernel does not know.
    pub(crate) fn create(
        self: &Arc<Self>,
        caller: &Caller,
        new: Place<'_>,
        mode: u32,
        umask: u32,
        flags: i32,
        done: impl FnOnce(Result<(Attributes, Opened), Errno>) + Send + 'static,
    ) {
        let inode = match self.create_inode(caller, new, mode, umask, flags) {
            Ok(inode) => inode,
            Err(errno) => return done(Err(errno)),
        };
        let (parent, name) = (new.parent, new.name.to_owned());
        let fs = Arc::clone(self);
        self.open_created(caller, inode, flags, move |created| {
            if created.is_err() {
                // The file exists nevertheless.
                fs.reclaimer.drop_name(parent, &name);
            }
            done(created);
        });
    }

    /// open(2) with O_TMPFILE. Home makes the file at once: until it has a name, only home could find it again.
    ///
    /// # Errors
    /// EOPNOTSUPP where home has no such files, or no file handles; those of open(2).
    pub(crate) fn create_unnamed(
        self: &Arc<Self>,
        caller: &Caller,
        directory: NodeId,
        mode: u32,
        umask: u32,
        flags: i32,
        done: impl FnOnce(Result<(Attributes, Opened), Errno>) + Send + 'static,
    ) {
        match self.create_unnamed_inode(caller, directory, mode, umask) {
            Ok(inode) => self.open_created(caller, inode, flags, done),
            Err(errno) => done(Err(errno)),
        }
    }

    fn create_unnamed_inode(
        self: &Arc<Self>,
        caller: &Caller,
        directory: NodeId,
        mode: u32,
        umask: u32,
    ) -> Result<Arc<Inode>, Errno> {
        self.check_writable()?;
        self.admit(caller)?;
        let directory = self.inode_at_home(directory)?;
        if !self.home.are_by_handle() || directory.device() != self.device {
            return Err(Errno::EOPNOTSUPP);
        }
        let (mode, creator) = (mode & 0o7777, caller.creator(umask));
        self.wait_for_descriptors(false);
        for _ in 0..CREATE_ATTEMPTS {
            let made = directory.path_fd().and_then(|directory| {
                Ok(self.home.execute(NameCommand::MakeUnnamed { directory, mode, creator })?)
            });
            match made {
                Err(Errno::ENFILE) => self.make_room(),
                made => {
                    let data = made?.expect("a file that was made is the answer");
                    let (looked, path) = self.look_at_created(&data, &directory, ".".as_ref())?;
                    let inode = self.count_created(path, data, &looked);
                    inode.set_nameless();
                    return Ok(inode);
                }
            }
        }
        Err(Errno::ENFILE)
    }

    /// Opens a new file. If that fails, its lookup is not counted any more.
    fn open_created(
        self: &Arc<Self>,
        caller: &Caller,
        inode: Arc<Inode>,
        flags: i32,
        done: impl FnOnce(Result<(Attributes, Opened), Errno>) + Send + 'static,
    ) {
        let fs = Arc::clone(self);
        let created = Arc::clone(&inode);
        // A new file has nothing to truncate.
        let flags = flags & !libc::O_TRUNC;
        self.open_inode(caller, inode, Access::from_flags(flags), move |opened| {
            let entry = opened.and_then(|opened| {
                let before = created.privileges();
                let attributes = fs.attributes(&created);
                let attributes = attributes.inspect_err(|_| fs.close(opened.handle))?;
                // A new file has no capabilities.
                if attributes.mode & (libc::S_ISUID | libc::S_ISGID) == 0 {
                    created.set_unprivileged(before);
                }
                Ok((attributes, opened))
            });
            if entry.is_err() {
                fs.uncount(created.node());
            }
            done(entry);
        });
    }

    /// Creates the file and counts one lookup of it.
    ///
    /// # Errors
    /// ESTALE if the name appeared at home, contrary to what the kernel has cached, so that the
    /// file may not be new: the kernel then looks the name up and opens the file as an existing
    /// one, with its permission checks.
    fn create_inode(
        self: &Arc<Self>,
        caller: &Caller,
        new: Place<'_>,
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Result<Arc<Inode>, Errno> {
        self.admit(caller)?;
        match self.make_behind(caller, new, Kind::File, mode, umask) {
            Some(Err(Errno::EEXIST)) if flags & libc::O_EXCL == 0 => return Err(Errno::ESTALE),
            Some(made) => return made,
            None => {}
        }
        let (directory, _changing) = self.directory_at_home(new)?;
        self.wait_for_descriptors(false);
        for _ in 0..CREATE_ATTEMPTS {
            match self.create_file(caller, &directory, new.name, mode, umask) {
                Err(Errno::ENFILE) => {
                    self.make_room();
                }
                Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => return Err(Errno::ESTALE),
                created => return created,
            }
        }
        Err(Errno::ENFILE)
    }

    fn create_file(
        self: &Arc<Self>,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Result<Arc<Inode>, Errno> {
        let (at, mode, creator) = (entry(directory, name)?, mode & 0o7777, caller.creator(umask));
        let made = self.home.execute(NameCommand::MakeFile { at, mode, creator })?;
        let data = made.expect("a file that was made is the answer");
        let known = self.look_at_created(&data, directory, name);
        let known = known.inspect_err(|_| self.reclaimer.drop_name(directory.node(), name));
        let (looked, path) = known?;
        let inode = self.count_created(path, data, &looked);
        let new = Place { parent: directory.node(), name };
        self.tell_tree(new, Some((inode.node(), &looked.status)));
        Ok(inode)
    }

    fn count_created(&self, path: OwnedFd, data: OwnedFd, looked: &Looked) -> Arc<Inode> {
        let inode = self.inodes.count_file(HomeFile::with_created(path, data), looked);
        self.reclaimer.inodes_grew(self.inodes.held());
        inode
    }

    fn look_at_created(
        &self,
        data: &OwnedFd,
        directory: &Inode,
        name: &OsStr,
    ) -> Result<(Looked, OwnedFd), Errno> {
        let looked = self.home.look_at(data.as_fd(), directory.node(), name)?;
        Ok((looked, open_again(data.as_fd())?))
    }

    /// close(2) of one descriptor: reports an error of write-back that was not reported to the description yet. Not to the supervisor of a session,
    /// which closes a duplicate: the error is owed to the program.
    pub(crate) fn flush(self: &Arc<Self>, thread: u32, handle: u64) -> Result<(), Errno> {
        let open = self.open_file(handle)?;
        if open.writes {
            self.settle(&open.inode);
        }
        if self.sessions.is_root(thread) {
            return Ok(());
        }
        match open.take_error(&self.shard) {
            Some(kind) => Err(kind.into()),
            None => Ok(()),
        }
    }

    /// The last descriptor of an open description is closed.
    pub(crate) fn close(self: &Arc<Self>, handle: u64) {
        if let Some(open) = self.files.remove(handle) {
            self.descriptors.closed(&open.opener);
            self.sessions.closed(&open.opened);
            let fs = Arc::clone(self);
            let inode = Arc::clone(&open.inode);
            // Writes posted through the description carry its number until then.
            self.settled(&inode, move || {
                fs.description_closed(&open);
                fs.release(&open.inode);
            });
        }
    }

    /// Calls `then` when a file's dirty data is home, or has failed to go home; in that case it is kept and retried.
    pub(crate) fn when_home(&self, inode: &Inode, then: impl FnOnce() + Send + 'static) {
        self.when_flushed(inode, move |_| then());
    }

    /// As [`FileSystem::when_home`]; `then` is told why the data has failed to go home.
    pub(crate) fn when_flushed(
        &self,
        inode: &Inode,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        if !inode.is_attached() || !self.shard.has_dirty(inode.node().file()) {
            return then(Ok(()));
        }
        self.when_frozen(inode, FreezeScope::unchanging(Some((0, u64::MAX))), then);
    }

    /// As [`FileSystem::when_flushed`], and no recovery writes what the log has of the file after that: what has records in the log is
    /// durable at home, and that these are void is durable, too. Data without records is home, and need not be durable.
    pub(crate) fn when_out_of_log(
        &self,
        inode: &Inode,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        if !inode.is_attached() {
            return then(Ok(()));
        }
        self.when_frozen(inode, FreezeScope::changing(Some((0, u64::MAX)), 0), then);
    }

    fn when_frozen(
        &self,
        inode: &Inode,
        scope: FreezeScope,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        self.shard.freeze(inode.node().file(), scope, move |flushed| {
            let end = FreezeEnd { discard: None, size: None, written: false };
            let flushed = match flushed {
                // It became clean meanwhile, and left the cache: it is home.
                Err(Error::NotAttached) => Ok(()),
                flushed => flushed.map_err(Errno::from),
            };
            (end, move || then(flushed))
        });
    }

    /// fsync(2), or fdatasync(2) if `data_only`.
    pub(crate) fn sync(
        self: &Arc<Self>,
        thread: u32,
        handle: u64,
        data_only: bool,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let open = match self.open_file(handle) {
            Ok(open) => open,
            Err(errno) => return done(Err(errno)),
        };
        open.inode.lane.write_is_over(thread);
        let durability = if data_only { Durability::Data } else { Durability::All };
        let fs = Arc::clone(self);
        let inode = Arc::clone(&open.inode);
        self.settled_to_sync(&inode, move || {
            let of = Arc::clone(&fs);
            // Its name first: a file that is not found is not durable.
            of.when_named(open.inode.node(), move |named| {
                if let (Err(errno), false) = (named, open.inode.is_at_home()) {
                    // Nor can its data be.
                    return done(Err(errno));
                }
                let shard = Arc::clone(&fs.shard);
                shard.sync(open.inode.node().file(), durability, move |synced| {
                    // Taken in either case: an error told now is not told again.
                    let owed = open.take_error(&fs.shard);
                    let synced = named.and(synced.map_err(Errno::from));
                    let synced = synced.and_then(|()| owed.map_or(Ok(()), |kind| Err(kind.into())));
                    done(synced.and_then(|()| fs.report_refused(&open)));
                });
            });
        });
    }
}
