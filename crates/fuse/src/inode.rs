//! One inode that is held: its descriptors, and its state in the engine, the kernel and the lane.
//!
//! Owns one `O_PATH` descriptor (inside its [`HomeFile`] for regular files), or none while home does not have the inode
//! ([`crate::write_behind`]). An inode that is merely known has no value of this type, and holds no descriptor: see
//! [`crate::inodes`].
//!
//! Lock order: an inode's `open` state, then a part of the table, then the namespace.
//! [`crate::file_system`] says what else is taken under the first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::FileType;
use weir_backend::home_names::{Status, folds_names};
use weir_backend::{HomeFile, Timestamp};
use weir_engine::FileId;
use weir_names::Marks;
pub(crate) use weir_names::NodeId;

use crate::attr::{in_order, later};
use crate::errno::Errno;
use crate::kernel_pages::KernelPages;
use crate::lane::lane_state::InodeLane;

/// A node whose data the engine has.
pub(crate) trait DataNode {
    /// The engine's name for the file.
    fn file(self) -> FileId;
}

impl DataNode for NodeId {
    fn file(self) -> FileId {
        FileId(self.0)
    }
}

/// The descriptors that hold an inode at home.
#[derive(Debug)]
enum Home {
    File(Arc<HomeFile>),
    /// Empty while home does not have it.
    Other(OnceLock<OwnedFd>),
}

/// The status at home of a clean file that no program had open. If the status differs at the next open, the file was
/// changed directly at home.
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
    /// Counts attachments, so that the end of a detachment is ignored if the file has been attached again since.
    pub(crate) epoch: u64,
    /// The file is queued to be closed when it is clean.
    pub(crate) closing: bool,
    /// Set while no program has the file open and it is clean.
    pub(crate) seen: Option<Seen>,
    /// `seen` when it was opened, while nobody has had it open for writing since: a change at home until it is closed is one to be found at
    /// the next open. RELEASE comes after close(2) has returned.
    pub(crate) seen_at_open: Option<Seen>,
    /// It was changed directly at home while it was closed, and the engine still has old data.
    pub(crate) stale: bool,
    /// The kernel may have pages that are older than what the engine has; until the next open is told to drop them.
    pub(crate) has_old_pages: bool,
    /// The file lost its last name while it was not open, and its dirty data was dropped.
    pub(crate) discarded: bool,
}

/// When an inode's status changed, if names are written back and it is no regular file.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    /// By way of the mount.
    at: Option<Timestamp>,
    /// When home was given such changes last.
    brought_home: Option<Timestamp>,
    /// How many changes are being brought home.
    bringing: u32,
}

/// What was known of a regular file's privileges (setuid, setgid, file capabilities) before they were looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Privileges(u32);

/// One inode that is held.
#[derive(Debug)]
pub(crate) struct Inode {
    node: NodeId,
    device: u64,
    kind: FileType,
    home: Home,
    /// What stat(2) shows of it while home does not have it.
    made: Mutex<Option<Box<Status>>>,
    /// See [`Inode::shown_ctime`].
    changed: Mutex<Changed>,
    attached: AtomicBool,
    /// Odd: it is known to have no privileges that a write must take. It changes whenever it may have got some.
    privileges: AtomicU32,
    /// The inode was used since the table was last searched for idle inodes.
    used: AtomicBool,
    /// It has no name any more, so that it is not found again once its descriptor is closed.
    nameless: AtomicBool,
    /// It got another name at home, by which home shows another inode.
    linked: AtomicBool,
    /// The engine has detached the file, so changes at home since then are not known.
    unsure: AtomicBool,
    open: Mutex<OpenState>,
    /// Its state in the lane.
    pub(crate) lane: InodeLane,
    /// Whether the kernel may cache pages of its data.
    pub(crate) kernel_pages: KernelPages,
    /// For a directory: whether names in it ignore case. Empty until it is first asked for.
    folds_names: OnceLock<bool>,
    /// Of a directory: whether what becomes of names in it depends on nothing but what the kernel checks.
    plain: AtomicU8,
}

const PLAIN_UNKNOWN: u8 = 0;
const PLAIN: u8 = 1;
const NOT_PLAIN: u8 = 2;

impl Inode {
    /// The inode `node`, held by an `O_PATH` descriptor.
    pub(crate) fn new(node: NodeId, fd: OwnedFd, status: &Status, marks: Marks) -> Inode {
        let home = match FileType::from_raw_mode(status.mode) {
            FileType::RegularFile => Home::File(Arc::new(HomeFile::new(fd))),
            _ => Home::Other(OnceLock::from(fd)),
        };
        Inode::with_home(node, home, status, marks)
    }

    /// An inode that home does not have, with what stat(2) is to show of it.
    pub(crate) fn not_at_home(node: NodeId, status: &Status) -> Inode {
        let home = match FileType::from_raw_mode(status.mode) {
            FileType::RegularFile => Home::File(Arc::new(HomeFile::unbound())),
            _ => Home::Other(OnceLock::new()),
        };
        let made = Mutex::new(Some(Box::new(*status)));
        Inode { made, ..Inode::with_home(node, home, status, Marks::default()) }
    }

    /// A regular file whose home is open already.
    pub(crate) fn of_file(node: NodeId, home: HomeFile, status: &Status, marks: Marks) -> Inode {
        Inode::with_home(node, Home::File(Arc::new(home)), status, marks)
    }

    fn with_home(node: NodeId, home: Home, status: &Status, marks: Marks) -> Inode {
        Inode {
            node,
            device: status.device,
            kind: FileType::from_raw_mode(status.mode),
            home,
            made: Mutex::new(None),
            changed: Mutex::default(),
            attached: AtomicBool::new(false),
            privileges: AtomicU32::new(0),
            used: AtomicBool::new(true),
            nameless: AtomicBool::new(false),
            linked: AtomicBool::new(false),
            unsure: AtomicBool::new(marks.cached),
            open: Mutex::new(OpenState::default()),
            lane: InodeLane::resumed(marks.posted),
            kernel_pages: KernelPages::resumed(marks.cached),
            folds_names: OnceLock::new(),
            plain: AtomicU8::new(PLAIN_UNKNOWN),
        }
    }

    /// The marks to remember when the inode is no longer held; `None` if it must stay held.
    pub(crate) fn marks_to_keep(&self) -> Option<Marks> {
        let must_be_held = self.node == NodeId::ROOT
            || !self.is_at_home()
            || self.is_attached()
            || self.nameless.load(Ordering::Acquire)
            || !self.lane.is_out();
        let unsure = self.unsure.load(Ordering::Acquire);
        (!must_be_held).then(|| Marks {
            cached: unsure || self.kernel_pages.may_be_cached(),
            posted: self.lane.was_posted_to(),
        })
    }

    /// The node.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// The device number of its file system at home.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// The type.
    pub(crate) fn kind(&self) -> FileType {
        self.kind
    }

    /// The `O_PATH` descriptor, by which the back end finds it.
    ///
    /// # Errors
    /// EIO if home does not have it yet.
    pub(crate) fn path_fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.path().ok_or(Errno::EIO)
    }

    /// An `O_PATH` descriptor by which it can be given another name ([`HomeFile::path_to_link`]).
    ///
    /// # Errors
    /// EIO if home does not have it yet; those of dup(2).
    pub(crate) fn path_to_link(&self) -> Result<OwnedFd, Errno> {
        let path = self.path_fd()?;
        Ok(match self.file() {
            Some(file) => file.path_to_link()?,
            None => path.try_clone_to_owned()?,
        })
    }

    /// Home is about to lose a name; `other` is an `O_PATH` descriptor of a name that it keeps ([`HomeFile::leave_name`]).
    ///
    /// # Errors
    /// EIO if home does not have it yet; those of dup3(2).
    pub(crate) fn leave_name(&self, other: Option<OwnedFd>) -> Result<(), Errno> {
        match (self.file(), other) {
            (Some(file), other) => Ok(file.leave_name(other)?),
            (None, Some(other)) => Ok(weir_backend::replace(self.path_fd()?, other.as_fd())?),
            (None, None) => Ok(()),
        }
    }

    /// Home was found to have given it another name, of which `other` is an `O_PATH` descriptor.
    ///
    /// # Errors
    /// Those of dup3(2).
    pub(crate) fn was_moved(&self, other: OwnedFd) -> Result<(), Errno> {
        match self.file() {
            Some(file) => Ok(file.was_moved(other)?),
            None => self.leave_name(Some(other)),
        }
    }

    fn path(&self) -> Option<BorrowedFd<'_>> {
        match &self.home {
            Home::File(file) => file.path(),
            Home::Other(fd) => fd.get().map(OwnedFd::as_fd),
        }
    }

    /// Whether home has it. It is never lost there again.
    pub(crate) fn is_at_home(&self) -> bool {
        self.path().is_some()
    }

    /// Home has it: anything but a regular file, which [`weir_shard::Shard::bind`] is for.
    pub(crate) fn bind(&self, path: OwnedFd) {
        if let Home::Other(fd) = &self.home {
            let set = fd.set(path);
            assert!(set.is_ok(), "an inode is bound once");
        }
    }

    /// What stat(2) shows of it if home does not have it.
    pub(crate) fn made(&self) -> Option<Status> {
        self.lock_made().as_deref().copied()
    }

    /// Changes what stat(2) shows of it, if home does not have it.
    pub(crate) fn change_made(&self, change: impl FnOnce(&mut Status)) {
        if let Some(status) = self.lock_made().as_deref_mut() {
            change(status);
        }
    }

    /// Home tells what it is from now on.
    pub(crate) fn forget_made(&self) {
        *self.lock_made() = None;
    }

    fn lock_made(&self) -> MutexGuard<'_, Option<Box<Status>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What home says of it, or would say if it had it.
    pub(crate) fn status(&self) -> io::Result<Status> {
        match (self.path(), self.made()) {
            (Some(path), _) => Status::of(path),
            (None, Some(made)) => {
                // The engine may have forgotten it, and the size that a program gave it.
                let size = self.file().and_then(|home| home.unbound_size());
                Ok(Status { size: size.unwrap_or(made.size), ..made })
            }
            // It was bound since.
            (None, None) => Status::of(self.path().ok_or(rustix::io::Errno::STALE)?),
        }
    }

    /// Whether names in a directory ignore case, or may do so.
    pub(crate) fn folds_names(&self) -> bool {
        // What is made here is in a directory that does not.
        let folds = || self.path().is_some_and(folds_names);
        *self.folds_names.get_or_init(folds)
    }

    /// Whether what becomes of names in a directory depends on nothing but what the kernel checks: `ask` asks home. What
    /// was made here is in such a directory, and is one.
    pub(crate) fn is_plain(&self, ask: impl FnOnce(BorrowedFd<'_>) -> bool) -> bool {
        match self.plain.load(Ordering::Relaxed) {
            PLAIN_UNKNOWN => {}
            plain => return plain == PLAIN,
        }
        let Some(path) = self.path() else { return true };
        let plain = ask(path);
        self.plain.store(if plain { PLAIN } else { NOT_PLAIN }, Ordering::Relaxed);
        plain
    }

    /// A directory is about to be changed so that home decides what becomes of names in it.
    pub(crate) fn set_not_plain(&self) {
        self.plain.store(NOT_PLAIN, Ordering::Relaxed);
    }

    /// Home is to be asked again whether a directory is plain.
    pub(crate) fn forget_plain(&self) {
        self.plain.store(PLAIN_UNKNOWN, Ordering::Relaxed);
    }

    /// Whether it has no extended attributes, because home does not have it.
    pub(crate) fn has_no_xattrs(&self) -> bool {
        !self.is_at_home()
    }

    /// A regular file's home.
    pub(crate) fn file(&self) -> Option<&Arc<HomeFile>> {
        match &self.home {
            Home::File(file) => Some(file),
            Home::Other(_) => None,
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

    /// Notes, here and in the open state, whether the engine knows the file.
    pub(crate) fn set_attached(&self, state: &mut OpenState, attached: bool) {
        state.attached = attached;
        self.attached.store(attached, Ordering::Release);
    }

    /// Whether a write need not look for privileges to take away.
    pub(crate) fn is_unprivileged(&self) -> bool {
        self.privileges.load(Ordering::Acquire) & 1 != 0
    }

    /// To be called before the privileges are looked at, for [`Inode::set_unprivileged`].
    pub(crate) fn privileges(&self) -> Privileges {
        Privileges(self.privileges.load(Ordering::Acquire))
    }

    /// The file was found to have no privileges: that is known, unless it may have got some meanwhile.
    pub(crate) fn set_unprivileged(&self, Privileges(before): Privileges) {
        let (now, ordering) = (before | 1, Ordering::AcqRel);
        let _ = self.privileges.compare_exchange(before, now, ordering, Ordering::Relaxed);
    }

    /// The file may have been given privileges. To be called after that.
    pub(crate) fn may_be_privileged(&self) {
        let next = |now: u32| Some((now | 1).wrapping_add(1));
        let _ = self.privileges.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }

    /// It lost its last name: it is held from now on, until the kernel forgets it.
    pub(crate) fn set_nameless(&self) {
        self.nameless.store(true, Ordering::Release);
    }

    /// It has a name again: home did not remove it.
    pub(crate) fn set_named(&self) {
        self.nameless.store(false, Ordering::Release);
    }

    /// Whether it lost its last name by way of the mount.
    pub(crate) fn is_nameless(&self) -> bool {
        self.nameless.load(Ordering::Acquire)
    }

    /// It is about to get another name at home, where links are not counted and inodes are not told apart (sshfs).
    pub(crate) fn set_linked(&self) {
        self.linked.store(true, Ordering::Release);
    }

    /// Whether it may have names that nobody here knows: its data is wanted when its last known name is gone.
    pub(crate) fn is_linked(&self) -> bool {
        self.linked.load(Ordering::Acquire)
    }

    /// Its status was changed by way of the mount, and home may not show that yet.
    pub(crate) fn note_changed(&self, now: Timestamp) {
        self.lock_changed().at = Some(now);
    }

    /// Home is about to be given what was changed by way of the mount; [`Inode::note_brought`] follows.
    pub(crate) fn note_bringing(&self) {
        self.lock_changed().bringing += 1;
    }

    /// Home was given it.
    pub(crate) fn note_brought(&self, now: Timestamp) {
        let mut known = self.lock_changed();
        known.bringing -= 1;
        known.brought_home = Some(now);
    }

    /// Home was given what was changed by way of the mount, at `changed` if that is said.
    pub(crate) fn note_brought_home(&self, changed: Option<Timestamp>, now: Timestamp) {
        let mut known = self.lock_changed();
        if let Some(changed) = changed {
            known.at = Some(known.at.map_or(changed, |at| later(at, changed)));
        }
        known.brought_home = Some(now);
    }

    /// The ctime that programs see, where `home` is the ctime in SOURCE, and its names were changed last at `names` as far as home lacks
    /// them. Giving home a change moves that once more; programs go on to see the time at which the change was made.
    pub(crate) fn shown_ctime(&self, home: Timestamp, names: Option<Timestamp>) -> Timestamp {
        let Changed { at, brought_home, bringing } = *self.lock_changed();
        let at = at.zip(names).map(|(at, names)| later(at, names)).or(at).or(names);
        match (at, brought_home) {
            (Some(at), _) if bringing > 0 => at,
            (Some(at), Some(until)) if in_order(home) <= in_order(until) => at,
            (Some(at), _) => later(at, home),
            (None, _) => home,
        }
    }

    fn lock_changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that changes of the file at home are not known from now on.
    pub(crate) fn set_unsure(&self) {
        self.unsure.store(true, Ordering::Release);
    }

    /// Clears that mark. Returns whether it was set: the kernel's cached pages may then be old.
    pub(crate) fn take_unsure(&self) -> bool {
        self.unsure.swap(false, Ordering::AcqRel)
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
}

/// What messages call an inode that has no name.
pub(crate) fn nameless(is_directory: bool) -> &'static str {
    if is_directory { "a directory without a name" } else { "a file without a name" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_may_have_got_privileges_while_it_was_looked_at_is_not_known_to_have_none() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let status = Status::of(file.as_fd()).unwrap();
        let inode = Inode::not_at_home(NodeId(7), &status);
        // A write looks, and chmod(2) sets some before it has noted what it saw.
        let before = inode.privileges();
        inode.may_be_privileged();
        inode.set_unprivileged(before);
        assert!(!inode.is_unprivileged(), "later writes would leave them");
        inode.set_unprivileged(inode.privileges());
        assert!(inode.is_unprivileged());
        inode.may_be_privileged();
        assert!(!inode.is_unprivileged(), "a write that comes after takes them");
    }
}
