//! Reading directories.
//!
//! Each open directory that is read has its own stream at home. What programs see as positions in it are home's
//! own cookies, so that a directory that changes while it is read behaves as it does at home: what
//! is neither made nor removed meanwhile is seen exactly once, and telldir(3), seekdir(3) and
//! rewinddir(3) work.
//!
//! Invariant: `position` is the cookie of the entry `batch[next]`, or of what follows the batch.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, SeekFrom, fstat, fsync, seek, statat};
use rustix::time::{ClockId, clock_gettime};

use crate::attr::Attributes;
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::{FileSystem, reopen};
use crate::inode::{Identity, Inode, NodeId};

/// Bytes of home's entries read at once: an open directory keeps what of them is not listed yet.
const BATCH_BYTES: usize = 16 << 10;

thread_local! {
    /// Where home's entries are read to.
    static BATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(BATCH_BYTES));
}

/// A directory that was not changed for longer than this shows every change after that by its change time, however
/// coarse the clock of its file system.
const SETTLED_S: i64 = 2;

/// A directory, opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenedDirectory {
    /// Its handle.
    pub(crate) handle: u64,
    /// Whether the kernel may keep what it lists.
    pub(crate) keeping: Keeping,
}

/// Whether the kernel may keep a listing, which it drops when it changes the directory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It may not.
    Nothing,
    /// It may keep the one that begins now.
    This,
    /// The one it kept is right.
    Last,
}

/// The listing of a directory that the kernel was let keep: the directory's change time (seconds, nanoseconds), and
/// since when.
#[derive(Debug, Default)]
pub(crate) struct KeptListing(Option<((i64, i64), Instant)>);

impl KeptListing {
    /// What the kernel may do of a directory changed at `changed` that is opened at `now`, in seconds of the same
    /// clock. Names that it kept for as long as it remembers them, `timeout`, are listed anew: with their attributes,
    /// which it would have to ask for one by one.
    fn open(&mut self, changed: (i64, i64), now: i64, timeout: Duration) -> Keeping {
        if timeout.is_zero() || now.saturating_sub(changed.0) <= SETTLED_S {
            self.0 = None;
            return Keeping::Nothing;
        }
        if self.0.is_some_and(|(then, since)| then == changed && since.elapsed() < timeout) {
            return Keeping::Last;
        }
        self.0 = Some((changed, Instant::now()));
        Keeping::This
    }
}

/// One entry of a directory, as a listing shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    /// Inode number.
    pub(crate) node: NodeId,
    /// Type.
    pub(crate) kind: FileType,
    /// Where the listing goes on after it.
    pub(crate) next: u64,
    /// Name.
    pub(crate) name: &'a OsStr,
}

/// Takes what a listing shows. Each says whether there was room for the entry; the listing ends
/// when there was none.
pub(crate) trait Listing {
    /// Whether attributes are wanted too, and entries counted as looked up.
    const WITH_ATTRIBUTES: bool;

    /// Takes an entry without its attributes: one that cannot be looked at, or any, if attributes
    /// are not wanted. The kernel must not rely on it.
    fn add(&mut self, entry: &Listed<'_>) -> bool;

    /// Takes an entry with its attributes, and a lookup of it unless its name is `.` or `..`.
    fn add_with(&mut self, entry: &Listed<'_>, attributes: &Attributes) -> bool;
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirectoryStream {
    inode: Arc<Inode>,
    opener: Caller,
    /// Opened at home once it is needed: not to show a listing that the kernel kept.
    home: OnceLock<OwnedFd>,
    state: Mutex<State>,
}

impl DirectoryStream {
    fn home(&self) -> Result<&OwnedFd, Errno> {
        if let Some(home) = self.home.get() {
            return Ok(home);
        }
        let home = reopen(&self.inode, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(self.home.get_or_init(|| home))
    }
}

#[derive(Debug, Default)]
struct State {
    batch: Vec<Entry>,
    next: usize,
    position: u64,
    /// Whether home was read since the position was last set.
    started: bool,
    names: Vec<u8>,
}

/// One entry as home listed it; its name is a range of the state's names.
#[derive(Clone, Copy, Debug)]
struct Entry {
    inode: u64,
    kind: FileType,
    cookie: u64,
    name: (usize, usize),
}

impl State {
    fn seek(&mut self, home: &OwnedFd, position: u64) -> io::Result<()> {
        seek(home, SeekFrom::Start(position))?;
        self.batch.clear();
        self.next = 0;
        self.position = position;
        self.started = false;
        Ok(())
    }

    /// Reads the next batch. It is empty at the end of the directory.
    fn refill(&mut self, home: &OwnedFd) -> io::Result<()> {
        self.batch.clear();
        self.names.clear();
        self.next = 0;
        self.started = true;
        BATCH.with_borrow_mut(|buffer| self.read_batch(home, buffer))?;
        if self.batch.is_empty() {
            // Many directories may be kept open for long after they were read.
            self.batch.shrink_to_fit();
            self.names.shrink_to_fit();
        }
        Ok(())
    }

    fn read_batch(&mut self, home: &OwnedFd, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut entries = RawDir::new(home, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let start = self.names.len();
            self.names.extend_from_slice(name);
            self.batch.push(Entry {
                inode: entry.ino(),
                kind: entry.file_type(),
                cookie: entry.next_entry_cookie(),
                name: (start, self.names.len()),
            });
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(())
    }
}

impl FileSystem {
    /// opendir(3).
    pub(crate) fn open_directory(
        self: &Arc<Self>,
        caller: &Caller,
        node: NodeId,
    ) -> Result<OpenedDirectory, Errno> {
        self.admit(caller)?;
        let inode = self.inode(node)?;
        let changed = fstat(inode.path_fd())?;
        let changed = (changed.st_ctime, changed.st_ctime_nsec as i64);
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        let timeout = self.options.entry_timeout;
        let stream = DirectoryStream {
            inode,
            opener: *caller,
            home: OnceLock::new(),
            state: Mutex::default(),
        };
        let mut kept = stream.inode.kept_listing.lock().unwrap_or_else(PoisonError::into_inner);
        let keeping = kept.open(changed, now, timeout);
        // Now, so that opendir(3) tells what home refuses us.
        if keeping != Keeping::Last
            && let Err(errno) = stream.home()
        {
            // Nothing will be listed that could be kept.
            *kept = KeptListing::default();
            return Err(errno);
        }
        drop(kept);
        self.descriptors.opened(caller);
        Ok(OpenedDirectory { handle: self.directories.insert(Arc::new(stream)), keeping })
    }

    /// closedir(3).
    pub(crate) fn close_directory(&self, handle: u64) {
        if let Some(stream) = self.directories.remove(handle) {
            self.descriptors.closed(&stream.opener);
        }
    }

    /// Lists entries from `position` on, until the listing is full or the directory ends.
    pub(crate) fn list<L: Listing>(
        self: &Arc<Self>,
        handle: u64,
        position: u64,
        listing: &mut L,
    ) -> Result<(), Errno> {
        let stream = self.directories.get(handle).ok_or(Errno::ESTALE)?;
        let home = stream.home()?;
        let mut state = stream.state.lock().unwrap_or_else(PoisonError::into_inner);
        // At the start what was read ahead is dropped too: rewinddir(3) shows what is new.
        if position != state.position || (position == 0 && state.started) {
            state.seek(home, position)?;
        }
        loop {
            let Some(&entry) = state.batch.get(state.next) else {
                state.refill(home)?;
                if state.batch.is_empty() {
                    return Ok(());
                }
                continue;
            };
            let name = OsStr::from_bytes(&state.names[entry.name.0..entry.name.1]);
            if !self.list_entry(&stream.inode, &entry, name, listing)? {
                return Ok(());
            }
            state.next += 1;
            state.position = entry.cookie;
        }
    }

    /// Lists one entry. Says whether the listing had room for it.
    fn list_entry<L: Listing>(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        entry: &Entry,
        name: &OsStr,
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
            _ => self.inodes.node(Identity::new(directory.device(), entry.inode)),
        };
        let mut listed = Listed { node, kind: entry.kind, next: entry.cookie, name };
        if L::WITH_ATTRIBUTES && is_dot {
            return Ok(listing.add_with(&listed, &Attributes::unknown(node, FileType::Directory)));
        }
        let short = self.is_short_of_descriptors();
        if L::WITH_ATTRIBUTES && !(short && self.inodes.get(node).is_none()) {
            match self.list_looked_up(directory, &mut listed, listing) {
                Err(Errno::ENOENT) => return Ok(true),
                // A directory may be readable but not searchable: its names are listed all the same.
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
        let inode = self.count_name(directory, listed.name)?;
        let attributes = self.entry(&inode)?;
        listed.node = inode.node();
        let added = listing.add_with(listed, &attributes);
        if !added {
            self.uncount(&inode);
        }
        Ok(added)
    }

    /// fsync(2) of a directory: its names are durable.
    pub(crate) fn sync_directory(
        self: &Arc<Self>,
        handle: u64,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let Some(stream) = self.directories.get(handle) else {
            return done(Err(Errno::ESTALE));
        };
        let directory = self.shard.directory();
        let synced = match stream.home() {
            Ok(home) => directory.sync_here(home.as_fd()),
            Err(errno) => return done(Err(errno)),
        };
        if let Some(synced) = synced {
            return done(synced.map_err(Errno::from));
        }
        directory.defer(Box::new(move || {
            done(stream.home().and_then(|home| Ok(fsync(home)?)));
        }));
    }
}

/// The type of an entry that home's listing does not tell.
fn kind_of(directory: &Inode, name: &OsStr) -> FileType {
    match statat(directory.path_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(_) => FileType::RegularFile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_kept_while_its_directory_stays_as_it_was() {
        const LONG: Duration = Duration::from_secs(3600);
        let mut kept = KeptListing::default();
        assert_eq!(
            kept.open((100, 5), 102, LONG),
            Keeping::Nothing,
            "it may change without a trace"
        );
        assert_eq!(kept.open((100, 5), 103, LONG), Keeping::This);
        assert_eq!(kept.open((100, 5), 104, LONG), Keeping::Last);
        assert_eq!(kept.open((100, 6), 104, LONG), Keeping::This, "it was changed");
        assert_eq!(kept.open((100, 6), 105, LONG), Keeping::Last);
        assert_eq!(kept.open((105, 0), 105, LONG), Keeping::Nothing);
        assert_eq!(kept.open((105, 0), 99, LONG), Keeping::Nothing, "the clock was set back");
        assert_eq!(kept.open((105, 0), 110, LONG), Keeping::This);
        assert_eq!(
            kept.open((105, 0), 110, Duration::from_nanos(1)),
            Keeping::This,
            "names are old"
        );
        assert_eq!(kept.open((105, 0), 110, Duration::ZERO), Keeping::Nothing);
    }
}
