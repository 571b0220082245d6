//! Inodes the kernel knows: their numbers, their home descriptors, their lookup counts.
//!
//! Owns one `O_PATH` descriptor an inode (inside its [`HomeFile`] for regular files). While it is
//! held, home cannot give the inode's number to another file, so device and inode number identify
//! an inode for as long as it is in the table. An idle directory may lose its descriptor, and is
//! reopened by its name; then device, inode number and birth time must be the same.
//!
//! Invariants:
//! - an inode's [`NodeId`] follows from its home device and inode number alone, so that it is the
//!   same each time the inode is looked up while mounted; the root is [`NodeId::ROOT`];
//! - an inode that the front end works with has its descriptor: it is closed only while the table
//!   alone has the inode ([`InodeTable::close_idle_directories`]), and [`FileSystem::inode`] and
//!   [`FileSystem::count_name`] open it again;
//! - an inode is in the table while the kernel's lookup count of it is not zero, or its data is
//!   not home yet, and always if it is the root.
//!
//! Lock order: an inode's `open` state, then a part of the table, then an inode's name.
//! [`crate::file_system`] says what else is taken under the first.
//!
//! [`FileSystem::inode`]: crate::file_system::FileSystem::inode
//! [`FileSystem::count_name`]: crate::file_system::FileSystem::count_name

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use rustix::fs::{AtFlags, FileType, Stat, StatxFlags, statx};
use weir_backend::{HomeFile, Timestamp};
use weir_engine::FileId;

use crate::folding;
use crate::kernel_pages::KernelPages;
use crate::lane::modes::InodeLane;

/// The number the kernel knows an inode by, and the inode number programs see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    /// The root of the mount.
    pub(crate) const ROOT: NodeId = NodeId(1);

    /// The engine's name for the file.
    pub(crate) fn file(self) -> FileId {
        FileId(self.0)
    }
}

/// Which inode it is at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Of a directory entry, whose device is its directory's.
    pub(crate) fn new(device: u64, inode: u64) -> Identity {
        Identity { device, inode }
    }

    /// Of what stat(2) was asked about.
    pub(crate) fn of(stat: &Stat) -> Identity {
        Identity { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// What holds an inode at home.
#[derive(Debug)]
enum Home {
    File(Arc<HomeFile>),
    /// Empty while the descriptor is closed.
    Directory(OnceLock<OwnedFd>),
    Other(OwnedFd),
}

/// What home said of a clean file nobody had open: the file was changed behind Weir's back if it
/// says otherwise the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
}

/// Whether a regular file's data is in use.
#[derive(Debug, Default)]
pub(crate) struct OpenState {
    /// Open descriptions, and operations that need the file as if they had it open.
    pub(crate) descriptions: u32,
    /// The engine knows the file.
    pub(crate) attached: bool,
    /// Counts attachments, so that the end of a detachment that was overtaken is recognised.
    pub(crate) epoch: u64,
    /// It is among the files that are closed when they are clean.
    pub(crate) closing: bool,
    /// Set while nobody has the file open and it is clean.
    pub(crate) seen: Option<Seen>,
    /// The file lost its last name while it was not open, and its dirty data was dropped.
    pub(crate) discarded: bool,
}

/// Whether writing to a file must take privileges from it (setuid, setgid, file capabilities).
const PRIVILEGES_UNKNOWN: u8 = 0;
const PRIVILEGES_NONE: u8 = 1;

/// Where an inode was last found, to have the kernel forget it by name.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) parent: NodeId,
    pub(crate) name: OsString,
}

/// One inode the kernel knows.
#[derive(Debug)]
pub(crate) struct Inode {
    node: NodeId,
    identity: Identity,
    /// Distinguishes it from earlier inodes with the same number.
    generation: u64,
    kind: FileType,
    home: Home,
    /// Birth time, if home has one; recorded when the descriptor is closed.
    born: Option<Timestamp>,
    lookups: AtomicU64,
    attached: AtomicBool,
    privileges: AtomicU8,
    /// Used since the table was last searched for idle inodes.
    used: AtomicBool,
    open: Mutex<OpenState>,
    name: Mutex<Option<Name>>,
    /// How it stands in the lane.
    pub(crate) lane: InodeLane,
    /// What the kernel caches of its data.
    pub(crate) kernel_pages: KernelPages,
    /// Of a directory, once somebody asked: whether its names are the same in upper and lower case.
    folds_names: OnceLock<bool>,
}

impl Inode {
    /// The node.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Which inode it is at home.
    pub(crate) fn device(&self) -> u64 {
        self.identity.device
    }

    /// The type.
    pub(crate) fn kind(&self) -> FileType {
        self.kind
    }

    /// The `O_PATH` descriptor.
    pub(crate) fn path_fd(&self) -> BorrowedFd<'_> {
        match &self.home {
            Home::File(file) => file.path_fd(),
            Home::Directory(fd) => {
                fd.get().expect("a directory is opened before it is used").as_fd()
            }
            Home::Other(fd) => fd.as_fd(),
        }
    }

    /// Distinguishes the inode from earlier ones with the same number.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether its descriptor is open.
    pub(crate) fn is_open(&self) -> bool {
        match &self.home {
            Home::Directory(fd) => fd.get().is_some(),
            Home::File(_) | Home::Other(_) => true,
        }
    }

    /// A path that leads to the inode itself, a symbolic link included, for the calls that take
    /// no descriptor opened with `O_PATH`.
    pub(crate) fn proc_path(&self) -> String {
        proc_path(self.path_fd())
    }

    /// Whether a directory's names are, or may be, the same in upper and lower case.
    pub(crate) fn folds_names(&self) -> bool {
        *self.folds_names.get_or_init(|| folding::folds_names(self.path_fd()))
    }

    /// A regular file's home.
    pub(crate) fn file(&self) -> Option<&Arc<HomeFile>> {
        match &self.home {
            Home::File(file) => Some(file),
            Home::Directory(_) | Home::Other(_) => None,
        }
    }

    /// Locks the open state.
    pub(crate) fn open(&self) -> MutexGuard<'_, OpenState> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the engine may know the file, without waiting for its open state.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    /// Notes in both places whether the engine knows the file.
    pub(crate) fn set_attached(&self, state: &mut OpenState, attached: bool) {
        state.attached = attached;
        self.attached.store(attached, Ordering::Release);
    }

    /// Whether a write need not look for privileges to take away.
    pub(crate) fn is_unprivileged(&self) -> bool {
        self.privileges.load(Ordering::Relaxed) == PRIVILEGES_NONE
    }

    /// Notes whether the file is known to have no privileges.
    pub(crate) fn set_unprivileged(&self, none: bool) {
        let privileges = if none { PRIVILEGES_NONE } else { PRIVILEGES_UNKNOWN };
        self.privileges.store(privileges, Ordering::Relaxed);
    }

    /// The kernel's lookup count.
    pub(crate) fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Acquire)
    }

    /// Marks the inode used.
    pub(crate) fn mark_used(&self) {
        // Shared with readers: written only if the value changes.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Sets the mark of use. Returns whether the inode was used since the last call with `false`.
    pub(crate) fn swap_used(&self, used: bool) -> bool {
        self.used.swap(used, Ordering::Relaxed)
    }

    /// Remembers under which name the kernel found the inode.
    pub(crate) fn set_name(&self, parent: NodeId, name: &OsStr) {
        let mut known = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(known) if known.parent == parent && known.name == name => {}
            _ => *known = Some(Name { parent, name: name.to_owned() }),
        }
    }

    /// The name last remembered.
    pub(crate) fn name(&self) -> Option<Name> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A path that leads to what `fd` holds open.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Node numbers from home identities.
///
/// Inodes of SOURCE's own device keep their number. Those of devices mounted inside SOURCE, and
/// the few whose number FUSE uses itself, get one with bit 63 set: bits 48 to 62 are the device in
/// the order of appearance, the rest is the inode number. Numbers that do not fit are allotted and
/// remembered.
#[derive(Debug)]
struct Numbers {
    root: Identity,
    devices: RwLock<Vec<u64>>,
    allotted: Mutex<HashMap<Identity, u64>>,
}

const FOREIGN: u64 = 1 << 63;
const DEVICE_SHIFT: u32 = 48;
/// Device index of allotted numbers.
const ALLOTTED_DEVICE: u64 = 0x7fff;

impl Numbers {
    fn new(root: Identity) -> Numbers {
        Numbers {
            root,
            devices: RwLock::new(vec![root.device]),
            allotted: Mutex::new(HashMap::new()),
        }
    }

    fn node(&self, identity: Identity) -> NodeId {
        if identity == self.root {
            return NodeId::ROOT;
        }
        let own_device = identity.device == self.root.device;
        if own_device && identity.inode > NodeId::ROOT.0 && identity.inode < FOREIGN {
            return NodeId(identity.inode);
        }
        let device = self.device_index(identity.device);
        if device < ALLOTTED_DEVICE && identity.inode < 1 << DEVICE_SHIFT {
            return NodeId(FOREIGN | device << DEVICE_SHIFT | identity.inode);
        }
        let mut allotted = self.allotted.lock().unwrap_or_else(PoisonError::into_inner);
        let next = allotted.len() as u64;
        let number = *allotted.entry(identity).or_insert(next);
        NodeId(FOREIGN | ALLOTTED_DEVICE << DEVICE_SHIFT | number)
    }

    fn device_index(&self, device: u64) -> u64 {
        let find = |devices: &[u64]| devices.iter().position(|&known| known == device);
        let index = {
            let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
            find(&devices)
        };
        let index = index.unwrap_or_else(|| {
            let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
            find(&devices).unwrap_or_else(|| {
                devices.push(device);
                devices.len() - 1
            })
        });
        index as u64
    }
}

/// Spreads node numbers: inode numbers come in sequences, which the multiplication scatters.
#[derive(Default)]
struct NodeHasher(u64);

impl Hasher for NodeHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only node numbers are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Part = HashMap<u64, Arc<Inode>, BuildHasherDefault<NodeHasher>>;

const PARTS: usize = 64;

/// The inodes the kernel knows, in parts locked separately.
#[derive(Debug)]
pub(crate) struct InodeTable {
    parts: Box<[RwLock<Part>]>,
    /// Inodes whose descriptor is open.
    held: AtomicUsize,
    /// Directories among them.
    held_directories: AtomicUsize,
    numbers: Numbers,
}

impl InodeTable {
    /// A table that holds the root alone: `fd` is its `O_PATH` descriptor.
    pub(crate) fn new(fd: OwnedFd, stat: &Stat) -> InodeTable {
        let identity = Identity::of(stat);
        let root = Arc::new(new_inode(NodeId::ROOT, fd, stat));
        let table = InodeTable {
            parts: (0..PARTS).map(|_| RwLock::new(Part::default())).collect(),
            held: AtomicUsize::new(1),
            held_directories: AtomicUsize::new(1),
            numbers: Numbers::new(identity),
        };
        let mut part = table.part(NodeId::ROOT).write().unwrap_or_else(PoisonError::into_inner);
        part.insert(NodeId::ROOT.0, root);
        drop(part);
        table
    }

    /// Inodes whose descriptor is open. Each holds at least one descriptor.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Counts an inode that has a descriptor now.
    fn note_held(&self, inode: &Inode) {
        self.held.fetch_add(1, Ordering::Relaxed);
        if inode.kind == FileType::Directory {
            self.held_directories.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes an inode from the count.
    fn note_closed(&self, inode: &Inode) {
        if inode.is_open() {
            self.held.fetch_sub(1, Ordering::Relaxed);
            if inode.kind == FileType::Directory {
                self.held_directories.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Gives a directory whose descriptor was closed a new one.
    ///
    /// # Errors
    /// Returns the descriptor if it is of another inode.
    pub(crate) fn reopen(&self, inode: &Inode, fd: OwnedFd, stat: &Stat) -> Result<(), OwnedFd> {
        let Home::Directory(held) = &inode.home else { return Err(fd) };
        if Identity::of(stat) != inode.identity || born(fd.as_fd()) != inode.born {
            return Err(fd);
        }
        if held.set(fd).is_ok() {
            self.note_held(inode);
        }
        Ok(())
    }

    /// Counts one lookup of an inode that reuses the number of one that home no longer has: the
    /// kernel tells them apart by generation.
    pub(crate) fn count_replacing(&self, old: &Inode, fd: OwnedFd, stat: &Stat) -> Arc<Inode> {
        let mut part = self.part(old.node).write().unwrap_or_else(PoisonError::into_inner);
        let known = part.get(&old.node.0).map(|known| (known.lookups(), known.generation));
        let (lookups, generation) = known.unwrap_or((0, old.generation));
        let mut inode = new_inode(old.node, fd, stat);
        inode.generation = generation + 1;
        *inode.lookups.get_mut() = lookups + 1;
        let inode = Arc::new(inode);
        self.note_held(&inode);
        let replaced = part.insert(old.node.0, Arc::clone(&inode));
        if let Some(replaced) = replaced {
            self.note_closed(&replaced);
        }
        inode
    }

    /// Closes the descriptors of directories that were not used since the last call, or since they
    /// were looked up, and that can be reopened by name. Runs twice if the first run was not
    /// enough, since a run clears the marks of use.
    pub(crate) fn close_idle_directories(&self) {
        for _ in 0..2 {
            let mut closed = Vec::new();
            for part in &self.parts {
                // With few of them held, a search gains little.
                if self.held_directories.load(Ordering::Relaxed) <= PARTS {
                    return;
                }
                let mut part = part.write().unwrap_or_else(PoisonError::into_inner);
                closed.extend(part.values_mut().filter_map(close_if_idle));
            }
            self.held.fetch_sub(closed.len(), Ordering::Relaxed);
            self.held_directories.fetch_sub(closed.len(), Ordering::Relaxed);
            if closed.len() > PARTS {
                return;
            }
        }
    }

    /// The number of an inode, whether or not it is in the table.
    pub(crate) fn node(&self, identity: Identity) -> NodeId {
        self.numbers.node(identity)
    }

    /// An inode the kernel knows.
    pub(crate) fn get(&self, node: NodeId) -> Option<Arc<Inode>> {
        let part = self.part(node).read().unwrap_or_else(PoisonError::into_inner);
        part.get(&node.0).cloned()
    }

    /// Counts one lookup of an inode, if it is in the table.
    pub(crate) fn count_known(&self, identity: Identity) -> Option<Arc<Inode>> {
        let node = self.node(identity);
        let part = self.part(node).read().unwrap_or_else(PoisonError::into_inner);
        let inode = part.get(&node.0)?;
        inode.lookups.fetch_add(1, Ordering::AcqRel);
        Some(Arc::clone(inode))
    }

    /// Counts one lookup of an inode, and takes it into the table if it is not there: `fd` is its
    /// `O_PATH` descriptor, `stat` what fstat(2) said of that.
    pub(crate) fn count(&self, fd: OwnedFd, stat: &Stat) -> Arc<Inode> {
        self.count_with(stat, |node| new_inode(node, fd, stat))
    }

    /// As [`InodeTable::count`], for a regular file whose home is open already.
    pub(crate) fn count_file(&self, home: HomeFile, stat: &Stat) -> Arc<Inode> {
        self.count_with(stat, |node| with_home(node, stat, Home::File(Arc::new(home))))
    }

    fn count_with(&self, stat: &Stat, make: impl FnOnce(NodeId) -> Inode) -> Arc<Inode> {
        let node = self.node(Identity::of(stat));
        let mut part = self.part(node).write().unwrap_or_else(PoisonError::into_inner);
        let inode = part.entry(node.0).or_insert_with(|| {
            let inode = Arc::new(make(node));
            self.note_held(&inode);
            inode
        });
        inode.lookups.fetch_add(1, Ordering::AcqRel);
        Arc::clone(inode)
    }

    /// Takes back `lookups` lookups. Returns the inode if none is left and the engine still knows
    /// it, so that it stays in the table until [`InodeTable::remove_unused`]; else one that is not
    /// known to the kernel any more is removed.
    pub(crate) fn forget(&self, node: NodeId, lookups: u64) -> Option<Arc<Inode>> {
        if node == NodeId::ROOT {
            return None;
        }
        let mut part = self.part(node).write().unwrap_or_else(PoisonError::into_inner);
        let inode = part.get(&node.0)?;
        // An entry listed without being looked at (see `ops::directories`) is forgotten too,
        // though it was never counted: hence saturating.
        let before = inode.lookups.load(Ordering::Acquire);
        let left = before.saturating_sub(lookups);
        inode.lookups.store(left, Ordering::Release);
        if left > 0 {
            return None;
        }
        if inode.is_attached() {
            return Some(Arc::clone(inode));
        }
        let removed = part.remove(&node.0);
        if let Some(removed) = &removed {
            self.note_closed(removed);
        }
        // Closing the descriptor of an unlinked file may take long: not under the lock.
        drop(part);
        drop(removed);
        None
    }

    /// Removes an inode the engine has let go, unless the kernel knows it again.
    pub(crate) fn remove_unused(&self, inode: &Arc<Inode>) {
        let mut part = self.part(inode.node).write().unwrap_or_else(PoisonError::into_inner);
        let same = part.get(&inode.node.0).is_some_and(|known| Arc::ptr_eq(known, inode));
        if !same || inode.lookups() > 0 || inode.is_attached() || inode.node == NodeId::ROOT {
            return;
        }
        let removed = part.remove(&inode.node.0);
        self.note_closed(inode);
        drop(part);
        drop(removed);
    }

    /// Calls `visit` with every inode, no lock held, until it says `false`.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&Arc<Inode>) -> bool) {
        let mut inodes = Vec::new();
        for part in &self.parts {
            {
                let part = part.read().unwrap_or_else(PoisonError::into_inner);
                inodes.extend(part.values().cloned());
            }
            for inode in inodes.drain(..) {
                if !visit(&inode) {
                    return;
                }
            }
        }
    }

    fn part(&self, node: NodeId) -> &RwLock<Part> {
        // The high bits of the product are those the map inside a part does not look at first.
        let mixed = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 58) as usize % PARTS]
    }
}

fn new_inode(node: NodeId, fd: OwnedFd, stat: &Stat) -> Inode {
    let home = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Home::File(Arc::new(HomeFile::new(fd))),
        FileType::Directory => Home::Directory(OnceLock::from(fd)),
        _ => Home::Other(fd),
    };
    with_home(node, stat, home)
}

fn with_home(node: NodeId, stat: &Stat, home: Home) -> Inode {
    Inode {
        node,
        identity: Identity::of(stat),
        generation: 0,
        kind: FileType::from_raw_mode(stat.st_mode),
        home,
        born: None,
        lookups: AtomicU64::new(0),
        attached: AtomicBool::new(false),
        privileges: AtomicU8::new(PRIVILEGES_UNKNOWN),
        used: AtomicBool::new(true),
        open: Mutex::new(OpenState::default()),
        name: Mutex::new(None),
        lane: InodeLane::default(),
        kernel_pages: KernelPages::default(),
        folds_names: OnceLock::new(),
    }
}

/// Takes the descriptor of a directory that only the table refers to, that was not used, and that
/// has a name to be reopened by.
fn close_if_idle(inode: &mut Arc<Inode>) -> Option<OwnedFd> {
    if inode.kind != FileType::Directory || inode.node == NodeId::ROOT || inode.swap_used(false) {
        return None;
    }
    let inode = Arc::get_mut(inode)?;
    inode.name.get_mut().unwrap_or_else(PoisonError::into_inner).as_ref()?;
    let Home::Directory(held) = &mut inode.home else { return None };
    let fd = held.take()?;
    inode.born = born(fd.as_fd());
    Some(fd)
}

/// Birth time of an inode, where home keeps that.
fn born(fd: BorrowedFd<'_>) -> Option<Timestamp> {
    let status = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let known = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
    let born = status.stx_btime;
    known.then_some(Timestamp { tv_sec: born.tv_sec, tv_nsec: born.tv_nsec.into() })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

    use super::*;

    fn open_path(path: &str) -> (OwnedFd, Stat) {
        let fd = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let stat = fstat(&fd).unwrap();
        (fd, stat)
    }

    #[test]
    fn an_inode_leaves_the_table_with_its_last_lookup() {
        let (root, stat) = open_path("/");
        let table = InodeTable::new(root, &stat);
        let (fd, stat) = open_path("/etc");
        let inode = table.count(fd, &stat);
        let (again, stat) = open_path("/etc");
        assert!(Arc::ptr_eq(&inode, &table.count(again, &stat)));
        assert_eq!((inode.lookups(), table.held()), (2, 2));
        assert!(table.forget(inode.node(), 1).is_none());
        assert!(table.get(inode.node()).is_some());
        assert!(table.forget(inode.node(), 1).is_none());
        assert!(table.get(inode.node()).is_none());
        assert_eq!(table.held(), 1);
        assert!(table.count_known(Identity::of(&stat)).is_none());
    }

    #[test]
    fn an_attached_inode_stays_until_the_engine_lets_it_go() {
        let (root, stat) = open_path("/");
        let table = InodeTable::new(root, &stat);
        let (fd, stat) = open_path("/etc");
        let inode = table.count(fd, &stat);
        inode.set_attached(&mut inode.open(), true);
        assert!(table.forget(inode.node(), 1).is_some());
        table.remove_unused(&inode);
        assert!(table.get(inode.node()).is_some(), "it is still attached");
        inode.set_attached(&mut inode.open(), false);
        table.remove_unused(&inode);
        assert!(table.get(inode.node()).is_none());
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let (root, stat) = open_path("/");
        let table = InodeTable::new(root, &stat);
        assert_eq!(table.node(Identity::of(&stat)), NodeId::ROOT);
        table.forget(NodeId::ROOT, 5);
        assert!(table.get(NodeId::ROOT).is_some());
    }

    #[test]
    fn numbers_are_kept_unique_across_devices() {
        let numbers = Numbers::new(Identity::new(10, 2));
        assert_eq!(numbers.node(Identity::new(10, 2)), NodeId::ROOT);
        assert_eq!(numbers.node(Identity::new(10, 77)), NodeId(77));
        let one = numbers.node(Identity::new(10, 1));
        assert_ne!(one, NodeId::ROOT);
        let foreign = numbers.node(Identity::new(11, 77));
        assert_ne!(foreign, NodeId(77));
        assert_ne!(foreign, numbers.node(Identity::new(12, 77)));
        assert_eq!(foreign, numbers.node(Identity::new(11, 77)));
        let huge = numbers.node(Identity::new(10, u64::MAX));
        assert_ne!(huge, numbers.node(Identity::new(10, u64::MAX - 1)));
        assert_eq!(huge, numbers.node(Identity::new(10, u64::MAX)));
    }
}
