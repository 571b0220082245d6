//! The state of a mount's file system, and the handling of a file's data when programs open and close it.
//!
//! A [`FileSystem`] owns the inodes, the open descriptions and the listings of one mount. The
//! operations on them are in [`crate::ops`]; the transport calls those and knows nothing else.
//!
//! A regular file is attached to the engine when it is first opened and stays attached until the kernel forgets it, so
//! that its cached data outlives a close. Its data descriptors are closed when no program has it open and none of its
//! data is dirty.
//!
//! Invariants:
//! - a file with open descriptions is attached, and its home has data descriptors open;
//! - under an inode's `open` lock, only those calls of the shard are made that do not wait and do not run a
//!   continuation that takes a lock.
//!
//! Lock order: see [`crate::inode`]. The shard's own locks come after all of them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rustix::fs::FileType;
use rustix::rand::GetRandomFlags;
use weir_backend::home_names::{HomeNames, Status, open_root};
use weir_backend::{HomeFile, shown_path};
use weir_engine::{FreezeEnd, FreezeScope};
use weir_shard::Shard;

use crate::attr::{Attributes, timestamp};
use crate::closing::Closing;
use crate::descriptors::Descriptors;
use crate::errno::Errno;
use crate::given::Given;
use crate::handle::Handles;
use crate::inode::{DataNode, Inode, NodeId, OpenState, Seen};
use crate::inodes::Inodes;
use crate::kernel_cache::KernelCache;
use crate::lane::Lane;
use crate::listings::Listings;
use crate::open_file::OpenFile;
use crate::reclaimer::Reclaimer;
use crate::requests::Requests;
use crate::sessions::Sessions;
use crate::write_behind::{Shown, WriteBehind};

/// With names written back, bytes that a file shows as allocated at most while home has allocated none: what it will take
/// there is not known, and nothing was reserved before it was made.
const SHOWN_BYTES_MAX: u64 = 1 << 20;

/// Name of Weir's own directory in SOURCE, which the mount does not show.
pub(crate) const RESERVED_NAME: &str = ".weir";

/// The options of a mount.
#[derive(Clone, Debug)]
pub(crate) struct MountOptions {
    /// Nothing may be changed.
    pub(crate) read_only: bool,
    /// Every open bypasses the kernel's page cache.
    pub(crate) direct_io: bool,
    /// How long the kernel may rely on a name.
    pub(crate) entry_timeout: Duration,
    /// How long the kernel may rely on attributes.
    pub(crate) attr_timeout: Duration,
    /// How long the kernel may rely on a name's absence.
    pub(crate) negative_timeout: Duration,
    /// Changes of names and attributes do not wait for home.
    pub(crate) names_behind: bool,
    pub(crate) names_behind_by_path: bool,
    /// They are logged.
    pub(crate) names_logged: bool,
    /// Home is on another machine.
    pub(crate) is_elsewhere: bool,
    /// Home's listings bring attributes.
    pub(crate) lists_attributes: bool,
}

impl MountOptions {
    /// How long the kernel may rely on these attributes.
    pub(crate) fn attr_timeout_of(&self, attributes: &Attributes) -> Duration {
        if attributes.volatile { Duration::ZERO } else { self.attr_timeout }
    }
}

/// The state of the cached data of a file that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cached {
    /// The cached data is valid.
    Good,
    /// The file was changed directly at home; the engine has dropped its cached data.
    Dropped,
    /// The file was changed directly at home, and the engine still has old data, which must be dropped.
    Stale,
}

/// The file system of one mount.
pub(crate) struct FileSystem {
    pub(crate) shard: Arc<Shard>,
    pub(crate) home: HomeNames,
    pub(crate) inodes: Inodes,
    pub(crate) files: Handles<OpenFile>,
    pub(crate) listings: Listings,
    /// Directories whose attributes the kernel may be about to cache.
    pub(crate) given: Given,
    pub(crate) options: MountOptions,
    pub(crate) closing: Closing,
    pub(crate) descriptors: Descriptors,
    pub(crate) reclaimer: Reclaimer,
    /// The kernel's caches, while the connection is served.
    pub(crate) kernel: OnceLock<Weak<KernelCache>>,
    /// Number of direct writes for which the kernel is dropping pages now.
    pub(crate) dropping: AtomicUsize,
    /// Programs may use files by shared memory.
    pub(crate) lane: Option<Lane>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) sessions: Sessions,
    /// Changes of names and attributes that home does not have yet, if they need not wait for home.
    pub(crate) write_behind: Option<WriteBehind>,
    /// Device number of SOURCE.
    pub(crate) device: u64,
    /// Tells this mount from all others, also from later ones of SOURCE.
    pub(crate) number: [u8; 16],
    /// Names that differ in case alone are known to be different at home.
    pub(crate) tells_case: bool,
}

impl FileSystem {
    /// The file system of `source`, a directory opened for reading.
    pub(crate) fn new(
        shard: Arc<Shard>,
        lane: Option<Lane>,
        source: &OwnedFd,
        mut options: MountOptions,
        descriptors: Descriptors,
        reclaimer: Reclaimer,
    ) -> Result<FileSystem, std::io::Error> {
        let home = HomeNames::new(source.as_fd())?;
        options.names_behind &= home.are_by_handle() || options.names_behind_by_path;
        options.names_logged &= options.names_behind;
        let root = open_root(source.as_fd())?;
        let status = Status::of(root.as_fd())?;
        let identity = home.root(root.as_fd())?;
        let tells_case = options.names_behind && home.tells_case(root.as_fd());
        if options.names_behind && !options.read_only {
            clear_parking(&home, root.as_fd());
        }
        let inodes = Inodes::new(root, &status, identity, descriptors.idle_max());
        let log = options
            .names_logged
            .then(|| Arc::clone(&shard))
            .filter(|shard| shard.log_all_names(home.are_by_handle()));
        let write_behind = options
            .names_behind
            .then(|| WriteBehind::new(options.entry_timeout, log, descriptors.unnamed_max()));
        if let Some(behind) = write_behind.as_ref().filter(|_| !home.are_by_handle()) {
            behind.lock().tree.remember_links();
        }
        let mut number = [0; 16];
        // So few bytes are given whole.
        rustix::rand::getrandom(&mut number, GetRandomFlags::empty())?;
        Ok(FileSystem {
            shard,
            lane,
            home,
            inodes,
            files: Handles::new(),
            listings: Listings::default(),
            given: Given::new(),
            options,
            closing: Closing::new(descriptors.closing_max()),
            descriptors,
            reclaimer,
            kernel: OnceLock::new(),
            dropping: AtomicUsize::new(0),
            requests: Arc::new(Requests::new()),
            sessions: Sessions::default(),
            write_behind,
            device: status.device,
            number,
            tells_case,
        })
    }

    /// An open description the kernel named.
    pub(crate) fn open_file(&self, handle: u64) -> Result<Arc<OpenFile>, Errno> {
        self.files.get(handle).ok_or(Errno::ESTALE)
    }

    /// Refuses a change of a read-only mount. The kernel does so itself; this is for requests that it lets through after a
    /// remount.
    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        if self.options.read_only { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// The attributes of an inode as stat(2) shows them: those at home, except those for which Weir has newer values.
    pub(crate) fn attributes(self: &Arc<Self>, inode: &Inode) -> Result<Attributes, Errno> {
        // Read first: the attributes read after this can only be newer.
        let volatile = inode.lane.is_volatile();
        self.settle(inode);
        let before = self.known_before(inode);
        let (shown, status) = match &self.write_behind {
            None => (None, inode.status()?),
            Some(behind) => {
                let (shown, status) = behind.shown_with(inode.node(), || inode.status())?;
                (Some(shown), status)
            }
        };
        let mut attributes = Attributes::from_status(inode.node(), &status);
        attributes.volatile = volatile;
        let mut names_changed = None;
        if let Some(shown) = shown {
            names_changed = shown.changed;
            lay_shown(&shown, &mut attributes);
            if inode.is_nameless() {
                attributes.nlink = 0;
            }
        }
        let Some(home) = inode.file() else {
            attributes.ctime = inode.shown_ctime(attributes.ctime, names_changed);
            return Ok(attributes);
        };
        if before.is_seen_changed(&status) && inode.open().seen == before.seen {
            return Ok(attributes);
        }
        self.lay_times(home, &mut attributes);
        let Some(size) = before.size else { return Ok(attributes) };
        attributes.size = size;
        let file = inode.node().file();
        if attributes.blocks == 0 && attributes.size > 0 && self.shard.has_dirty(file) {
            // Archivers treat a file without blocks as one hole.
            let bytes = if self.write_behind.is_none() { u64::MAX } else { SHOWN_BYTES_MAX };
            attributes.blocks = attributes.size.min(bytes).div_ceil(512);
        } else if attributes.blocks == 0 && attributes.size > 0 {
            // Its data may have gone home since home was asked.
            attributes.blocks = inode.status()?.blocks;
        }
        Ok(attributes)
    }

    /// What is known of a file's data. To be asked before home is: the data may go home and the engine forget the file at
    /// any time, and home has all of a file that the engine did not know when it was asked.
    fn known_before(&self, inode: &Inode) -> Known {
        if inode.file().is_none() || !inode.is_attached() {
            return Known { size: None, seen: None };
        }
        let (seen, stale) = {
            let state = inode.open();
            (state.seen, state.stale)
        };
        if stale {
            return Known { size: None, seen };
        }
        // A closed file that is dirty is changed at home by Weir itself, which then restores its time.
        let is_own = |home: &Arc<HomeFile>| {
            self.shard.has_dirty(inode.node().file()) || home.times().is_written()
        };
        let seen = seen.filter(|_| !inode.file().is_some_and(is_own));
        Known { size: self.shard.size(inode.node().file()), seen }
    }

    fn lay_times(&self, home: &HomeFile, attributes: &mut Attributes) {
        let (mtime, ctime) = home.times().overlay();
        attributes.mtime = mtime.unwrap_or(attributes.mtime);
        attributes.ctime = ctime.unwrap_or(attributes.ctime);
    }

    /// Counts one more user of a regular file's data: attaches the file to the engine and opens its home if necessary.
    /// Returns the state of its cached data.
    ///
    /// # Errors
    /// The error of opening the file at home.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        write: bool,
    ) -> Result<Cached, Errno> {
        self.wait_for_descriptors(false);
        match self.try_acquire(inode, write) {
            Err(Errno::ENFILE) => {
                self.wait_for_descriptors(true);
                self.try_acquire(inode, write)
            }
            acquired => acquired,
        }
    }

    fn try_acquire(&self, inode: &Arc<Inode>, write: bool) -> Result<Cached, Errno> {
        let home = inode.file().ok_or(Errno::EINVAL)?;
        let mut state = inode.open();
        let was_attached = state.attached;
        if state.discarded {
            // The name was removed after its lookup. After ESTALE the kernel looks it up again.
            return Err(Errno::ESTALE);
        }
        home.open_data(write)?;
        let mut is_found = true;
        if let Some(behind) = self.write_behind.as_ref().filter(|behind| behind.logs_places())
            && (write || home.log_node().is_some())
            && inode.is_at_home()
        {
            match behind.number_file(&self.inodes, inode.node()) {
                Some(number) => home.set_log_node(number),
                None => is_found = false,
            }
        }
        // Attaching cancels a detachment in progress. A file that is attached already may have become readable.
        if let Err(error) = self.shard.attach_found(inode.node().file(), home, is_found) {
            self.close_if_idle(inode, home, &mut state);
            return Err(error.into());
        }
        state.epoch += 1;
        self.inodes.attached(inode, &mut state);
        // The kernel's cached pages are older than the data that the engine will fetch.
        let mut cached = match !was_attached && inode.take_unsure() {
            true => Cached::Dropped,
            false => Cached::Good,
        };
        // Here already: the check below may fail.
        state.has_old_pages |= cached != Cached::Good;
        if state.descriptions == 0 {
            // The bits may have been set directly at home.
            inode.may_be_privileged();
            if state.seen.is_some() {
                cached = self.check_cached(inode, home, &mut state)?;
            }
            // If it was dirty when it was closed, nothing was noted since the open before.
            state.seen_at_open = state.seen.take().or(state.seen_at_open);
        }
        if state.stale {
            cached = Cached::Stale;
        }
        state.has_old_pages |= cached != Cached::Good;
        if write {
            state.seen_at_open = None;
        }
        state.descriptions += 1;
        if inode.is_nameless()
            && let Some(behind) = &self.write_behind
        {
            behind.hold_nameless(&self.inodes, inode);
        }
        Ok(cached)
    }

    /// Checks whether a closed file was changed at home, and has the engine drop its cached data if so. Not while it is dirty: it is
    /// written again since a sync of home has failed, and what changes it there is Weir.
    fn check_cached(
        &self,
        inode: &Inode,
        home: &HomeFile,
        state: &mut OpenState,
    ) -> Result<Cached, Errno> {
        let file = inode.node().file();
        if self.shard.has_dirty(file) {
            return Ok(Cached::Good);
        }
        // After that its time is to be as before. Where it cannot be set, that looks like a change.
        let has_times = home.restore_after_writes().is_ok();
        let status = inode.status()?;
        if !was_changed_at_home(state, &status) {
            return Ok(Cached::Good);
        }
        state.seen = Some(seen(&status));
        let behind = self.write_behind.as_ref();
        if has_times && !behind.is_some_and(|behind| behind.sets_mtime(inode.node())) {
            home.times().set_mtime(status.mtime, status.ctime);
        }
        state.stale = !matches!(self.shard.drop_clean(file), Ok(true));
        Ok(Cached::Dropped)
    }

    /// Has the engine drop what it has of a file that was acquired and is [`Cached::Stale`], then `then`. What another program
    /// has written to it meanwhile goes home before.
    ///
    /// # Errors
    /// Those of bringing that home, and of asking home. The file stays stale: the next open tries again.
    pub(crate) fn when_fresh(
        self: &Arc<Self>,
        inode: Arc<Inode>,
        cached: Cached,
        then: impl FnOnce(Result<Cached, Errno>) + Send + 'static,
    ) {
        if cached != Cached::Stale {
            return then(Ok(cached));
        }
        let scope = FreezeScope::changing(Some((0, u64::MAX)), 0);
        self.shard.freeze(inode.node().file(), scope, move |granted| {
            let size = granted.map_err(Errno::from).and_then(|()| Ok(inode.status()?.size));
            inode.open().stale &= size.is_err();
            let discard = size.is_ok().then_some((0, u64::MAX));
            let end = FreezeEnd { discard, size: size.as_ref().ok().copied(), written: true };
            (end, move || then(size.map(|_| Cached::Dropped)))
        });
    }

    /// Undoes one [`FileSystem::acquire`].
    pub(crate) fn release(self: &Arc<Self>, inode: &Arc<Inode>) {
        let is_closed = {
            let mut state = inode.open();
            assert!(state.descriptions > 0, "a file is released once for each time it is acquired");
            state.descriptions -= 1;
            if state.descriptions == 0
                && inode.is_nameless()
                && let Some(behind) = &self.write_behind
            {
                behind.release_nameless(inode.node());
            }
            if let Some(home) = inode.file() {
                self.close_if_idle(inode, home, &mut state);
            }
            state.descriptions == 0
        };
        if is_closed && inode.is_nameless() {
            // The kernel may have forgotten it before.
            self.detach(inode);
        }
        self.trim_closing();
    }

    /// Closes a file's data descriptors if no program has it open and it is clean. A dirty file is queued, to be checked
    /// again later.
    pub(crate) fn close_if_idle(&self, inode: &Arc<Inode>, home: &HomeFile, state: &mut OpenState) {
        if state.descriptions > 0 {
            return;
        }
        let file = inode.node().file();
        // It has no open description: without a name it can never be read again.
        if self.is_to_be_discarded(inode) {
            self.discard(inode, state);
        } else if self.shard.has_dirty(file) {
            if self.closing.add(inode, state) {
                self.reclaimer.watch_closing();
            }
            return;
        }
        self.shard.forget_reserved_past_end(file);
        home.close_data();
        state.seen = state.seen_at_open.take().or_else(|| {
            // Home has said nothing yet of one that it does not have.
            let status = inode.is_at_home().then(|| inode.status().ok()).flatten();
            status.map(|status| seen(&status))
        });
    }

    /// Tries again to close the data descriptors of a file that was dirty when it was closed.
    pub(crate) fn close_now_clean(&self, inode: &Arc<Inode>) {
        let mut state = inode.open();
        if let Some(home) = inode.file()
            && state.seen.is_none()
        {
            self.close_if_idle(inode, home, &mut state);
        }
    }

    /// Has a file's times set at home, and notes its status there again if it was the one noted: what somebody else has changed is still
    /// found at the next open. No open compares them meanwhile.
    pub(crate) fn set_times_with<T>(&self, inode: &Inode, set: impl FnOnce() -> T) -> T {
        let mut state = inode.open();
        let now = || inode.status().ok().map(|status| seen(&status));
        let noted = state.seen.or(state.seen_at_open);
        let is_as_noted = noted.is_some() && now() == noted;
        let done = set();
        if is_as_noted {
            match state.seen {
                Some(_) => state.seen = now(),
                None => state.seen_at_open = now(),
            }
        }
        done
    }

    /// The kernel forgot `lookups` lookups of an inode.
    pub(crate) fn forget(self: &Arc<Self>, node: NodeId, lookups: u64) {
        if let Some(inode) = self.inodes.forget(node, lookups) {
            self.detach(&inode);
        }
    }

    /// Whether few descriptors are left, so that idle inodes should be released soon.
    pub(crate) fn is_short_of_descriptors(&self) -> bool {
        self.inodes.held() > self.descriptors.inodes_max()
    }

    /// Has the engine detach a file that no program has open, though the kernel still knows it: its descriptor is needed.
    pub(crate) fn release_idle(self: &Arc<Self>, inode: &Arc<Inode>) {
        self.detach_if(inode, |_| true);
    }

    /// Whether home is still to remove a file that recovery finds by its name. The engine knows it until then, so that its
    /// records in the log are revoked: otherwise another file of that name would get them.
    fn is_to_be_removed_by_path(&self, inode: &Inode) -> bool {
        let Some(behind) = self.write_behind.as_ref().filter(|_| self.shard.finds_by_path()) else {
            return false;
        };
        let links = behind.lock().tree.links(inode.node());
        links.wanted == 0 && links.home > 0
    }

    /// Has the engine detach a file that the kernel has forgotten, and then removes its inode.
    pub(crate) fn detach(self: &Arc<Self>, inode: &Arc<Inode>) {
        self.detach_if(inode, |fs| fs.inodes.lookups(inode.node()) == 0);
    }

    fn detach_if(self: &Arc<Self>, inode: &Arc<Inode>, may: impl FnOnce(&Self) -> bool) {
        // The end of the detachment may be run by `Shard::detach` itself, and must not be under
        // the lock: whichever of the two flags comes second runs it.
        let ended = Arc::new(AtomicBool::new(false));
        let end = {
            let mut state = inode.open();
            let stays = state.descriptions > 0 || self.is_to_be_removed_by_path(inode);
            if stays || !state.attached || !may(self) {
                return;
            }
            let file = inode.node().file();
            if self.is_to_be_discarded(inode) {
                self.discard(inode, &mut state);
            }
            state.epoch += 1;
            let epoch = state.epoch;
            let end = {
                let (fs, inode) = (Arc::clone(self), Arc::clone(inode));
                move || fs.detached(&inode, epoch)
            };
            let late = end.clone();
            let flag = Arc::clone(&ended);
            self.shard.detach(file, move || {
                if flag.swap(true, Ordering::AcqRel) {
                    late();
                }
            });
            end
        };
        if ended.swap(true, Ordering::AcqRel) {
            end();
        }
    }

    fn detached(&self, inode: &Arc<Inode>, epoch: u64) {
        {
            let mut state = inode.open();
            if state.epoch != epoch {
                return;
            }
            inode.set_unsure();
            (state.seen, state.seen_at_open, state.stale) = (None, None, false);
            if let Some(home) = inode.file() {
                // Restores the modification time at home.
                home.close_data();
            }
            self.inodes.set_detached(inode, &mut state);
        }
        self.inodes.detached(inode);
    }

    /// The path of an inode at home, from the root, for messages: empty if it is not known, and words if it has no name.
    pub(crate) fn path_at_home(self: &Arc<Self>, node: NodeId) -> PathBuf {
        let path = |node| {
            let inode = self.inode(node).ok()?;
            let status = inode.status().ok()?;
            if inode.is_nameless() || status.nlink == 0 {
                let is_directory = inode.kind() == FileType::Directory;
                return Some(crate::inode::nameless(is_directory).into());
            }
            shown_path(inode.path_fd().ok()?).ok()
        };
        let Some(found) = path(node) else { return PathBuf::new() };
        match path(NodeId::ROOT).map(|root| found.strip_prefix(root).map(Path::to_owned)) {
            Some(Ok(below)) => below,
            // It is not below SOURCE: words.
            Some(Err(_)) if found.is_relative() => found,
            _ => PathBuf::new(),
        }
    }

    /// The path of an inode below the mount, if it is known without asking home: by the tree of names, or by the descriptor that
    /// holds it. Words, if it has no name.
    pub(crate) fn known_path(&self, node: NodeId) -> Option<PathBuf> {
        let behind = self.write_behind.as_ref();
        let (above, below) = match behind.map(|behind| behind.known_path(node)) {
            Some((NodeId::ROOT, below)) => return Some(below),
            Some(known) => known,
            None => (node, PathBuf::new()),
        };
        let shown = |node| shown_path(self.inodes.get(node)?.path_fd().ok()?).ok();
        let mut path = shown(above)?.strip_prefix(shown(NodeId::ROOT)?).ok()?.to_owned();
        path.extend(&below);
        Some(path)
    }

    /// Closes a file that home got just now, if nobody has it open and it is clean.
    pub(crate) fn close_idle(&self, inode: &Arc<Inode>) {
        if let Some(home) = inode.file() {
            self.close_if_idle(inode, home, &mut inode.open());
        }
    }

    /// Whether a node has no name any more, as programs see it. May wait for what is under way at home.
    pub(crate) fn has_no_name(&self, inode: &Inode) -> bool {
        match &self.write_behind {
            None => inode.status().is_ok_and(|status| status.nlink == 0),
            Some(_) if inode.is_nameless() => true,
            Some(behind) => behind
                .shown_with(inode.node(), || inode.status())
                .is_ok_and(|(shown, status)| is_nameless(&shown, &status)),
        }
    }

    /// As [`FileSystem::has_no_name`], without waiting: false if it cannot be told.
    fn has_surely_no_name(&self, inode: &Inode) -> bool {
        match &self.write_behind {
            None => inode.status().is_ok_and(|status| status.nlink == 0),
            Some(_) if inode.is_nameless() => !self.may_have_others_names(inode),
            Some(behind) => behind
                .shown_now_with(inode.node(), || inode.status())
                .is_ok_and(|said| said.is_some_and(|(shown, status)| is_nameless(&shown, &status))),
        }
    }

    /// Whether the engine is to forget what it has of a file that no program has open: the file has no name. A clean one is still
    /// synced for what the log has of it, unless home lost it with its last descriptor (sshfs).
    fn is_to_be_discarded(&self, inode: &Inode) -> bool {
        let is_lost = inode.is_nameless() && inode.is_at_home() && !self.home.are_by_handle();
        (is_lost || self.shard.has_dirty(inode.node().file()))
            && !inode.is_linked()
            && self.has_surely_no_name(inode)
    }

    /// Whether home may have a name of a file that lost its last one here: somebody else linked it there.
    fn may_have_others_names(&self, inode: &Inode) -> bool {
        // Where inodes are found by path, links are not counted (sshfs).
        let counts = inode.is_at_home() && self.home.are_by_handle();
        self.write_behind.as_ref().filter(|_| counts).is_some_and(|behind| {
            behind.may_have_others_names(inode.node(), || Ok(inode.status()?.nlink as usize))
        })
    }

    /// Drops what is dirty of a file that has neither a name nor an open description.
    pub(crate) fn discard(&self, inode: &Inode, state: &mut OpenState) {
        state.discarded = true;
        self.shard.discard(inode.node().file());
        let behind = self.write_behind.as_ref().filter(|_| !inode.is_at_home());
        if let (Some(behind), Some(home)) = (behind, inode.file()) {
            // If home is just getting it, that is not interrupted; otherwise it never will.
            let state = behind.lock();
            let abandoned = !state.tree.is_busy(inode.node()) && !inode.is_at_home();
            drop(state);
            if abandoned {
                self.shard.abandon(inode.node().file(), home);
            }
        }
    }

    /// Closes the remaining data descriptors of clean files. To be called after the mount has ended.
    pub(crate) fn close_all(&self) {
        self.inodes.visit(|inode| {
            inode.open().descriptions = 0;
            self.close_now_clean(inode);
            true
        });
    }

    /// Drops the dirty data of files that have no name any more. To be called after the mount has ended, since the kernel
    /// then sends no RELEASE or FORGET for them.
    pub(crate) fn discard_nameless(&self) {
        self.inodes.visit(|inode| {
            if let Some(behind) = self.write_behind.as_ref().filter(|_| inode.is_nameless()) {
                behind.release_nameless(inode.node());
            }
            if inode.is_attached()
                && !inode.is_linked()
                && self.has_no_name(inode)
                && !self.may_have_others_names(inode)
            {
                self.discard(inode, &mut inode.open());
            }
            true
        });
    }
}

/// Puts away what a daemon that was killed left of names that were being changed.
fn clear_parking(home: &HomeNames, root: BorrowedFd<'_>) {
    match home.clear_parking(root) {
        Ok(0) => {}
        Ok(kept) => tracing::warn!(
            "{kept} files or directories were being renamed when a daemon was killed: they are in .weir/parked in SOURCE"
        ),
        Err(error) => {
            tracing::warn!("what is in .weir/parked in SOURCE cannot be put away: {error}")
        }
    }
}

/// Whether a node has no name, by what programs see of it over what home says, both at one moment.
fn is_nameless(shown: &Shown, status: &Status) -> bool {
    if is_directory(status.mode) {
        // Its subdirectories do not matter: some file systems count none of them. One that was removed here is known to be.
        return status.nlink == 0;
    }
    if shown.is_unsure {
        return false;
    }
    let has_names_at_home = status.nlink as usize + shown.wanted > shown.home;
    // A name that the tree knows is one, whatever home says at this moment.
    shown.wanted == 0 && (shown.is_whole || !has_names_at_home)
}

fn seen(status: &Status) -> Seen {
    Seen { size: status.size, mtime: status.mtime }
}

/// Lays what programs see of a node over what home says of it.
fn lay_shown(shown: &Shown, attributes: &mut Attributes) {
    let Shown { attributes: set, wanted, home, changed, is_whole, .. } = shown;
    let nlink = attributes.nlink as usize;
    let links = match (is_directory(attributes.mode), is_whole) {
        // Some file systems count no subdirectories: a directory has one link there.
        (true, _) if nlink == 1 => 1,
        (true, true) => 2 + wanted,
        (false, true) => *wanted,
        // Home does not count the links of a file (sshfs).
        (false, false) if nlink < *home => *wanted,
        (_, false) => (nlink + wanted).saturating_sub(*home),
    };
    attributes.nlink = u32::try_from(links).unwrap_or(u32::MAX);
    if let Some(changed) = changed {
        (attributes.mtime, attributes.ctime) = (*changed, *changed);
    }
    let Some(set) = set else { return };
    if let Some(mode) = set.mode {
        attributes.mode = attributes.mode & !0o7777 | mode;
    }
    attributes.uid = set.uid.unwrap_or(attributes.uid);
    attributes.gid = set.gid.unwrap_or(attributes.gid);
    attributes.atime = set.atime.map_or(attributes.atime, timestamp);
    attributes.mtime = set.mtime.map_or(attributes.mtime, timestamp);
}

fn is_directory(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFDIR
}

/// What is known of a file's data at a moment; both are `None` if the engine does not know the file.
struct Known {
    /// Bytes.
    size: Option<u64>,
    seen: Option<Seen>,
}

impl Known {
    fn is_seen_changed(&self, status: &Status) -> bool {
        self.seen.is_some_and(|before| before != seen(status))
    }
}

/// Whether the status of a closed file at home differs from that when it was closed.
fn was_changed_at_home(state: &OpenState, status: &Status) -> bool {
    state.attached && state.seen.is_some_and(|before| before != seen(status))
}

#[cfg(test)]
mod tests {
    use weir_backend::Timestamp;

    use super::*;

    #[test]
    fn a_directory_whose_subdirectory_is_being_removed_has_a_name() {
        let never = Timestamp { tv_sec: 0, tv_nsec: 0 };
        let status = |mode, nlink| Status {
            device: 1,
            inode: 2,
            mode,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            block_bytes: 4096,
            atime: never,
            mtime: never,
            ctime: never,
            mount: None,
        };
        let removing = Shown { wanted: 0, home: 1, ..Shown::default() };
        // Some file systems say that each directory has one link, others count subdirectories.
        for nlink in [1, 3] {
            assert!(!is_nameless(&removing, &status(libc::S_IFDIR, nlink)), "{nlink}");
        }
        assert!(is_nameless(&Shown::default(), &status(libc::S_IFDIR, 0)));
        assert!(is_nameless(&removing, &status(libc::S_IFREG, 1)));
        assert!(!is_nameless(&removing, &status(libc::S_IFREG, 2)));
    }
}
