//! Reading directories, and making their names durable. The kernel opens none here: see [`crate::listings`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::time::{ClockId, clock_gettime};
use weir_backend::home_names::{DirEntry, Status, open_directory};

use crate::attr::Attributes;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::given::Thread;
use crate::inode::{DataNode, Inode, NodeId};
use crate::listings::{Listed, Listing, Position, SETTLED};
use crate::write_behind::{NamesLog, WriteBehind};

/// If home takes longer than this for the attributes of one entry, it does not have them in memory.
pub(crate) const SLOW: Duration = Duration::from_micros(200);

/// Number of slow entries after which an answer lists the rest by name only, so that programs that want no attributes do
/// not wait for them. More than one, because an entry may seem slow on a busy machine.
pub(crate) const SLOW_MAX: u32 = 4;

impl FileSystem {
    /// opendir(3): a handle.
    ///
    /// # Errors
    /// ENOSYS: the kernel does not send OPENDIR again, and caches listings.
    pub(crate) fn open_directory(&self) -> Result<u64, Errno> {
        if self.keeps_listings() { Err(Errno::ENOSYS) } else { Ok(self.listings.open()) }
    }

    fn keeps_listings(&self) -> bool {
        self.listings.are_stateless() && !self.options.entry_timeout.is_zero()
    }

    /// The names in a directory are about to be changed for a request: the kernel drops a listing that it has a part of.
    pub(crate) fn will_change_names(&self, directory: NodeId) {
        if self.listings.will_change(directory)
            && let Some(kernel) = self.kernel.get().and_then(Weak::upgrade)
        {
            kernel.drop_pages(directory);
        }
    }

    /// The names in a directory were changed for a thread, which is to be answered now: answers under way must not bring its
    /// old attributes back.
    pub(crate) fn changed_names(&self, directory: NodeId, by: Thread) {
        if self.given.changed(directory, by)
            && let Some(kernel) = self.kernel.get().and_then(Weak::upgrade)
        {
            kernel.drop_attributes(directory);
        }
    }

    /// Attributes of an inode are about to be read, to be given to a thread.
    pub(crate) fn give_attributes(&self, node: NodeId, kind: FileType, to: Thread) {
        if kind == FileType::Directory {
            self.given.give(node, to, |node| self.inodes.lookups(node) > 0);
        }
    }

    /// Lists entries from a position on, until the listing is full or the directory ends.
    pub(crate) fn list<L: Listing>(
        self: &Arc<Self>,
        from: Position,
        listing: &mut L,
    ) -> Result<(), Errno> {
        let inode = self.inode(from.directory)?;
        // Before entries are read, since changes from here on may be missed.
        self.keep_listing(&inode, &from)?;
        let mut cursor = match self.listings.take(&from) {
            Some(cursor) => cursor,
            None if self.list_behind(&inode, &from, listing)? => return Ok(()),
            None => self.home.list(inode.path_fd()?, inode.device(), from.cookie)?,
        };
        self.read_ahead(&inode, &mut cursor)?;
        let (mut slow, mut listed) = (0, false);
        while let Some(entry) = cursor.peek()? {
            let name = cursor.name(&entry);
            if !self.list_entry(&inode, &entry, name, &mut slow, listing)? {
                break;
            }
            cursor.advance();
            listed = true;
        }
        // At the end the kernel asks once more.
        if (listed || !cursor.is_at_end()) && self.listings.put(&from, cursor) {
            self.reclaimer.watch_listings();
        }
        Ok(())
    }

    /// Makes sure that the kernel will drop the listing that is about to be sent.
    fn keep_listing(self: &Arc<Self>, directory: &Inode, from: &Position) -> Result<(), Errno> {
        if !self.keeps_listings() {
            return Ok(());
        }
        let changed = self.attributes(directory)?.ctime.tv_sec;
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        let is_settled = now.saturating_sub(changed) > SETTLED.as_secs().cast_signed();
        let time = self.options.entry_timeout;
        let time = if is_settled { time } else { time.min(SETTLED + Duration::from_millis(100)) };
        if self.listings.keep(from, time) {
            self.reclaimer.watch_listings();
        }
        Ok(())
    }

    /// Lists one entry. Returns whether the listing had room for it.
    fn list_entry<L: Listing>(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        entry: &DirEntry,
        name: &OsStr,
        slow: &mut u32,
        listing: &mut L,
    ) -> Result<bool, Errno> {
        if self.is_reserved(directory.node(), name) {
            return Ok(true);
        }
        let is_dot = matches!(name.as_bytes(), b"." | b"..");
        // The root is its own parent, as that of any file system.
        let node = match name.as_bytes() {
            b".." if directory.node() == NodeId::ROOT => NodeId::ROOT,
            b"." => directory.node(),
            _ => self.inodes.number(directory.device(), entry.inode),
        };
        let mut listed = Listed { node, kind: entry.kind, next: entry.cookie, name };
        if is_dot {
            // Home's listing may lack the types of entries.
            listed.kind = FileType::Directory;
        }
        if L::WITH_ATTRIBUTES && is_dot {
            return Ok(listing.add_with(&listed, &Attributes::unknown(node, FileType::Directory)));
        }
        if L::WITH_ATTRIBUTES && self.options.lists_attributes && *slow < SLOW_MAX {
            let began = Instant::now();
            let looked_up = self.list_looked_up(directory, &mut listed, listing);
            *slow += u32::from(began.elapsed() > SLOW);
            match looked_up {
                Err(Errno::ENOENT) => return Ok(true),
                // A directory may be readable but not searchable: its names are listed nevertheless.
                Err(_) => {}
                listed => return listed,
            }
        }
        if listed.kind == FileType::Unknown {
            listed.kind = kind_of(directory, name);
        }
        Ok(listing.add(&listed))
    }

    fn list_looked_up<L: Listing>(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        listed: &mut Listed<'_>,
        listing: &mut L,
    ) -> Result<bool, Errno> {
        let attributes = self.count_name(directory, listed.name, Thread::ANY)?;
        (listed.node, listed.kind) = (attributes.node, FileType::from_raw_mode(attributes.mode));
        let added = listing.add_with(listed, &attributes);
        if !added {
            self.uncount(attributes.node);
        }
        Ok(added)
    }

    /// fsync(2) of a directory: its names are durable.
    pub(crate) fn sync_directory(
        self: &Arc<Self>,
        node: NodeId,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let of = Arc::clone(self);
        let done = move |synced: Result<(), Errno>| {
            done(synced.and_then(|()| of.report_refused_in(node)));
        };
        if !self.shard.is_ordered() {
            return self.sync_names_of(node, done);
        }
        // It makes everything durable, what was posted to files too.
        let fs = Arc::clone(self);
        self.all_drained(move || fs.sync_names_of(node, done));
    }

    /// Makes all that was changed so far durable, where the mount has one order.
    pub(crate) fn commit(self: &Arc<Self>, done: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let fs = Arc::clone(self);
        self.all_drained(move || {
            let of = Arc::clone(&fs);
            // Also what the log does not serve.
            fs.shard.sync_not_committed(move |synced| match synced {
                Ok(()) => of.sync_names_of(NodeId::ROOT, done),
                Err(error) => done(Err(error.into())),
            });
        });
    }

    fn sync_names_of(
        self: &Arc<Self>,
        node: NodeId,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let behind = self.write_behind.as_ref();
        // Asked once: the log may fail at any moment.
        let log = behind.map_or(NamesLog::Without, WriteBehind::names_log);
        let behind = match (behind, log) {
            // After a crash, recovery would do what the log has over the names that home has by now.
            (_, NamesLog::Failed) => return done(Err(Errno::EIO)),
            (Some(behind), NamesLog::Usable) => behind,
            (None, _) | (_, NamesLog::Without) => return self.sync_directory_at_home(node, done),
        };
        let Some(change) = behind.change_not_logged(node) else {
            return self.shard.sync_names(move |committed| done(committed.map_err(Errno::from)));
        };
        let fs = Arc::clone(self);
        let of = Arc::clone(self);
        let synced = move |synced: Result<(), Errno>| {
            if let (Ok(()), Some(behind)) = (synced, &of.write_behind) {
                behind.synced_at_home(node, change);
            }
            done(synced);
        };
        self.shard.sync_names(move |committed| match committed {
            Ok(()) => fs.sync_directory_at_home(node, synced),
            Err(error) => synced(Err(error.into())),
        });
    }

    /// An attribute of an inode was changed at home without the log: the next sync of the inode is one of home.
    pub(crate) fn note_attributes_changed(&self, inode: &Inode) {
        match (inode.kind(), &self.write_behind) {
            (FileType::RegularFile, _) => self.shard.changed_at_home(inode.node().file()),
            (FileType::Directory, Some(behind)) => behind.note_changed_at_home(inode.node()),
            _ => {}
        }
    }

    fn sync_directory_at_home(
        self: &Arc<Self>,
        node: NodeId,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let fs = Arc::clone(self);
        let is_logged = self.write_behind.as_ref().is_some_and(WriteBehind::is_logged);
        self.when_all_named(node, move |named| {
            // The log has what home refuses.
            let named = if is_logged { Ok(()) } else { named };
            let opened = named.and_then(|()| fs.inode(node)).and_then(|inode| {
                // Otherwise it was removed before home had it.
                let is_at_home = inode.is_at_home();
                Ok(if is_at_home { Some(open_directory(inode.path_fd()?)?) } else { None })
            });
            match opened {
                Ok(None) => done(Ok(())),
                Ok(Some(opened)) => {
                    let home = fs.shard.directory();
                    home.sync_directory(opened, move |synced| done(synced.map_err(Errno::from)));
                }
                Err(errno) => done(Err(errno)),
            }
        });
    }
}

/// The type of an entry for which home's listing gives none.
pub(crate) fn kind_of(directory: &Inode, name: &OsStr) -> FileType {
    let status = directory.path_fd().map(|directory| Status::at(directory, name));
    match status {
        Ok(Ok(status)) => FileType::from_raw_mode(status.mode),
        _ => FileType::RegularFile,
    }
}
