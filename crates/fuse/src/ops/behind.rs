//! Changes of names and attributes that do not wait for home ([`crate::write_behind`]): by which rule a change goes this
//! way, and what a program is answered.
//!
//! A change goes at once to home, after what concerns its names is there, where home alone can say what becomes of it: in
//! a directory with a default ACL, of another file system, immutable, append-only, synchronous or with project quotas; if
//! names may be equal in upper and lower case; with set-group-ID asked for; while home is nearly full; and when the log has
//! failed and home has what it had.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::fs::FileType;
use weir_backend::home_names::{Looked, Status, is_plain};
use weir_backend::{Changing, error_kind};
use weir_engine::Durability;
use weir_log::Lsn;
use weir_names::tree::{self, Change, HomeError, Kind, Refused, Until};
use weir_names::{NodeId, Place};

use crate::attr::{self, moment};
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode};
use crate::open_file::OpenFile;
use crate::ops::home_steps::is_unsure;
use crate::ops::names::{self, note_change, place};
use crate::write_behind::{Awaited, Unchanged, WriteBehind};

/// Entries of a directory that are read at once, so that it is known whole. A larger one is asked for each name.
const READ_MAX: usize = 4096;

/// How often a directory is read if names are changed at home at once meanwhile. After that its names are asked for one by one.
const READS_MAX: usize = 8;

/// The data of a larger file may have to go home for a sync, and its name before that.
const COMMIT_SOON_BYTES: u64 = 256 << 10;

/// Preferred transfer size of a new file, bytes.
const BLOCK_BYTES: u32 = 4096;

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Errno {
        match refused {
            // Whoever asks looks at home first.
            Refused::Unknown => Errno::ESTALE,
            Refused::Exists => Errno::EEXIST,
            Refused::Nothing => Errno::ENOENT,
            Refused::NotDirectory => Errno::ENOTDIR,
            Refused::IsDirectory => Errno::EISDIR,
            Refused::NotEmpty => Errno::ENOTEMPTY,
            Refused::BelowItself => Errno::EINVAL,
            Refused::TooManyLinks => Errno::EMLINK,
            Refused::DirectoryLink => Errno::EPERM,
            Refused::NameTooLong => Errno::ENAMETOOLONG,
        }
    }
}

impl From<Unchanged> for Errno {
    fn from(unchanged: Unchanged) -> Errno {
        match unchanged {
            Unchanged::Refused(refused) => refused.into(),
            Unchanged::Home(error) => error.into(),
        }
    }
}

impl From<HomeError> for Errno {
    fn from(error: HomeError) -> Errno {
        match error {
            HomeError::Refused(code) => io::Error::from_raw_os_error(code).into(),
            HomeError::NotEmpty => Errno::ENOTEMPTY,
            HomeError::Changed | HomeError::Gone | HomeError::NoExchange => Errno::EIO,
        }
    }
}

/// Whether changes go behind.
impl FileSystem {
    /// What changes in a directory go to if they need not wait for home.
    fn behind_in(self: &Arc<Self>, directory: &Inode) -> Option<&WriteBehind> {
        let behind =
            self.behind_without_room(directory).filter(|behind| !behind.log_has_ended())?;
        behind.has_room(|| self.statfs(NodeId::ROOT).ok()).then_some(behind)
    }

    /// As [`FileSystem::behind_in`], for changes that need no room.
    fn behind_without_room(&self, directory: &Inode) -> Option<&WriteBehind> {
        let behind = self.write_behind.as_ref()?;
        let goes = directory.device() == self.device
            && self.is_plain(directory)
            && !self.options.read_only;
        goes.then_some(behind)
    }

    /// Whether what becomes of a name in a directory depends on nothing but what the kernel has checked.
    pub(crate) fn is_plain(&self, directory: &Inode) -> bool {
        directory.is_plain(|at_home| is_plain(at_home, self.tells_case))
    }

    /// An inode that home has; waits for that.
    ///
    /// # Errors
    /// Those of [`FileSystem::inode`], and why home refuses it.
    pub(crate) fn inode_at_home(self: &Arc<Self>, node: NodeId) -> Result<Arc<Inode>, Errno> {
        let inode = self.inode(node)?;
        self.wait_until_at_home(&inode)?;
        Ok(inode)
    }

    /// An open description of a file that home has; waits for that.
    ///
    /// # Errors
    /// ESTALE if there is no such description, and why home refuses the file.
    pub(crate) fn open_file_at_home(&self, handle: u64) -> Result<Arc<OpenFile>, Errno> {
        let open = self.open_file(handle)?;
        self.wait_until_at_home(&open.inode)?;
        Ok(open)
    }

    /// Waits until home has an inode.
    pub(crate) fn wait_until_at_home(&self, inode: &Inode) -> Result<(), Errno> {
        let Some(behind) = self.write_behind.as_ref().filter(|_| !inode.is_at_home()) else {
            return Ok(());
        };
        let waited = behind.wait(&Awaited::Node(inode.node()));
        // What is at home serves, whatever else of it is refused.
        if inode.is_at_home() { Ok(()) } else { waited.map_err(Errno::from) }
    }

    /// As [`FileSystem::wait_until_at_home`], of a directory's attributes too: by them home decides which group and mode
    /// is given to what is made there.
    pub(crate) fn attributes_at_home(&self, directory: &Inode) -> Result<(), Errno> {
        let Some(behind) = &self.write_behind else { return Ok(()) };
        if behind.lock().tree.kind(directory.node()).is_none() {
            return Ok(());
        }
        let waited = behind.wait(&Awaited::Node(directory.node()));
        // What is at home serves, whatever else of it is refused.
        if directory.is_at_home() { Ok(()) } else { waited.map_err(Errno::from) }
    }

    /// Waits until home has what programs see under a name, so that home can be asked to change it. From then on home is
    /// asked what is there. Home changes until what is returned is dropped.
    pub(crate) fn name_at_home(
        self: &Arc<Self>,
        at: names::Place<'_>,
    ) -> Result<Option<Changing>, Errno> {
        let Some(behind) = &self.write_behind else { return Ok(None) };
        let at = place(at)?;
        let is_known = behind.lock().tree.kind(at.parent()).is_some();
        if is_known {
            behind.wait(&Awaited::Entry(at.clone()))?;
        }
        let changing = self.free_log_of_names()?;
        // Elsewhere the log has the steps that home is given, and home has no moment that a sync would make durable.
        let is_synced = behind.is_logged() && self.home.are_by_handle();
        let changing = match changing {
            None if is_synced => self.shard.change_name_at_home(),
            changing => changing,
        };
        behind.home_is_changed();
        behind.lock().tree.forget(&at);
        Ok(changing)
    }

    /// Waits until home has all names of a file that is about to lose one there: what has none is gone.
    ///
    /// # Errors
    /// Why home refuses them.
    pub(crate) fn all_names_at_home(&self, node: NodeId) -> Result<(), Errno> {
        let Some(behind) = &self.write_behind else { return Ok(()) };
        if behind.lock().tree.kind(node).is_none_or(Kind::is_directory) {
            return Ok(());
        }
        Ok(behind.wait(&Awaited::Node(node))?)
    }

    /// A name or an attribute is about to be changed at home without the log: no record of names that is there now may be
    /// replayed after that. Blocks for a sync of home if there is one. Home changes until what is returned is dropped.
    ///
    /// # Errors
    /// Why home refuses what was logged, or cannot be synced.
    pub(crate) fn free_log_of_names(self: &Arc<Self>) -> Result<Option<Changing>, Errno> {
        self.free_log_of_all_names()?;
        Ok(self.commit_before_home())
    }

    /// Something is about to be changed at home at once: where everything is in one order, what was changed before, data too, is
    /// committed. Blocks for that. What is committed later comes after the change, which lasts until what is returned is dropped.
    pub(crate) fn commit_before_home(&self) -> Option<Changing> {
        if !self.shard.is_ordered() {
            return None;
        }
        let (sender, committed) = channel();
        self.shard.commit_names(move |result| sender.send(result).unwrap_or(()));
        // If the log fails, home gets it without.
        let _ = committed.recv();
        self.shard.change_home()
    }

    fn free_log_of_all_names(self: &Arc<Self>) -> Result<(), Errno> {
        let Some(behind) = &self.write_behind else { return Ok(()) };
        if behind.log_has_failed() {
            return self.make_log_void(behind);
        }
        let Some(upto) = behind.last_change_logged() else { return Ok(()) };
        let freed = self.free_log_of_names_until(behind, upto);
        if self.shard.log_has_failed() {
            // Meanwhile: it was not freed.
            behind.log_goes_on();
            return self.make_log_void(behind);
        }
        freed
    }

    fn free_log_of_names_until(
        self: &Arc<Self>,
        behind: &WriteBehind,
        upto: Lsn,
    ) -> Result<(), Errno> {
        // What home refuses then is known at once.
        let until = Until { lsn: upto, retry: 0 };
        self.settle_names_until(behind, until, false)?;
        behind.renew_places(&self.inodes)?;
        behind.commit_soon();
        let mut pause = Duration::ZERO;
        while !self.shard.free_names_log(upto) {
            // Home may have been found changed since, and refuse what was there.
            behind.is_settled(until)?;
            if !pause.is_zero() {
                // Data is logged, too: it is brought home.
                let (sender, synced) = channel();
                self.shard.sync_durably(move |result| sender.send(result).unwrap_or(()));
                synced.recv().unwrap_or(Ok(()))?;
            }
            pause = (pause * 2).clamp(Duration::from_millis(1), Duration::from_millis(50));
            thread::sleep(pause);
        }
        Ok(())
    }

    /// A name was moved away at home, which has left something there that home is to be asked for.
    pub(crate) fn tell_tree_of_whiteout(&self, at: names::Place<'_>) {
        self.tell_tree_and(at, None, |tree, at| tree.forget(at));
    }

    /// A name was changed at home: it leads there now.
    pub(crate) fn tell_tree(&self, at: names::Place<'_>, node: Option<(NodeId, &Status)>) {
        self.tell_tree_and(at, node, |_, _| ());
    }

    fn tell_tree_and(
        &self,
        at: names::Place<'_>,
        node: Option<(NodeId, &Status)>,
        then: impl FnOnce(&mut tree::Tree, &Place),
    ) {
        let (Some(behind), Ok(at)) = (&self.write_behind, place(at)) else { return };
        behind.home_is_changed();
        behind.note_changed_at_home(at.parent());
        if let Some((directory, _)) = node.filter(|(_, of)| attr::kind_of(of).is_directory()) {
            // The log does not have its name.
            behind.note_changed_at_home(directory);
        }
        let mut state = behind.lock();
        if state.tree.kind(at.parent()).is_none() {
            return;
        }
        if let Some((node, status)) = node.filter(|(node, _)| state.tree.kind(*node).is_none()) {
            state.tree.introduce(node, attr::kind_of(status));
            self.inodes.keep(node);
        }
        state.changed_at_home(&at, node.map(|(node, _)| node));
        then(&mut state.tree, &at);
    }

    /// Waits until home has all names of a directory.
    pub(crate) fn names_at_home(&self, directory: NodeId) -> Result<(), Errno> {
        let Some(behind) = &self.write_behind else { return Ok(()) };
        if behind.lock().tree.kind(directory).is_none() {
            return Ok(());
        }
        Ok(behind.wait(&Awaited::Entries(directory))?)
    }

    /// Runs `then` once home has a node under its names, or has refused that.
    pub(crate) fn when_named(
        &self,
        node: NodeId,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        match self.write_behind.as_ref().filter(|behind| behind.lock().tree.kind(node).is_some()) {
            None => then(Ok(())),
            Some(behind) if behind.is_logged() => {
                // The sync of its data waits for the log, unless that goes home.
                if self.shard.size(node.file()).is_some_and(|size| size > COMMIT_SOON_BYTES) {
                    behind.commit_soon();
                }
                then(Ok(()));
            }
            Some(behind) => {
                behind.when(Awaited::Node(node), move |named| then(named.map_err(Errno::from)));
            }
        }
    }
}

impl FileSystem {
    /// Runs `then` once home has all entries of a directory, or has refused one.
    pub(crate) fn when_all_named(
        &self,
        directory: NodeId,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let behind = self.write_behind.as_ref();
        match behind.filter(|behind| behind.lock().tree.kind(directory).is_some()) {
            None => then(Ok(())),
            Some(behind) => behind
                .when(Awaited::Entries(directory), move |named| then(named.map_err(Errno::from))),
        }
    }
}

/// What a sync that waited for the log alone reports of home.
impl FileSystem {
    /// Fails once to each description of a file for each change of its names and attributes that home refused.
    pub(crate) fn report_refused(&self, open: &OpenFile) -> Result<(), Errno> {
        self.report(|behind| open.take_refusal(behind))
    }

    /// Fails once for each change of a directory's names and attributes that home refused.
    pub(crate) fn report_refused_in(&self, directory: NodeId) -> Result<(), Errno> {
        self.report(|behind| behind.take_refusal_in(directory))
    }

    fn report(&self, take: impl Fn(&WriteBehind) -> Option<HomeError>) -> Result<(), Errno> {
        let behind = self.write_behind.as_ref().filter(|behind| behind.is_logged());
        match behind.and_then(take) {
            None => Ok(()),
            // Programs go on while the connection to another machine is lost.
            Some(error) if self.options.is_elsewhere && is_unsure(error) => Ok(()),
            // As of data.
            Some(HomeError::Refused(code)) => {
                Err(error_kind(&io::Error::from_raw_os_error(code)).into())
            }
            Some(_) => Err(Errno::EIO),
        }
    }
}

/// What the tree knows of home.
impl FileSystem {
    /// Sees to it that the tree knows a directory, and all its names unless they are very many.
    fn read_into_tree(
        self: &Arc<Self>,
        behind: &WriteBehind,
        directory: &Arc<Inode>,
    ) -> Result<(), Errno> {
        let node = directory.node();
        behind.listers.used(node);
        for _ in 0..READS_MAX {
            if !behind.begin_reading(&self.inodes, node) {
                break;
            }
            let before = behind.changes_at_home();
            let Some(found) = self.read_names(directory, READ_MAX, || true)? else {
                behind.is_large(node);
                break;
            };
            let mut state = behind.lock();
            if behind.changes_at_home() != before {
                // A name may have been made there since, which was not found.
                continue;
            }
            for (at, looked) in &found {
                self.found_at_home(&mut state.tree, at, looked);
            }
            state.tree.listed(node);
            drop(state);
            behind.was_read(node);
            break;
        }
        Ok(())
    }

    /// All names that home has in a directory; `None` if they are more than `most`, of which none is asked for then, or if `goes_on` says so
    /// meanwhile.
    pub(crate) fn read_names(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        most: usize,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Vec<(Place, Looked)>>, Errno> {
        let node = directory.node();
        let mut cursor = self.home.list(directory.path_fd()?, directory.device(), 0)?;
        let mut all = Vec::new();
        while let Some(entry) = cursor.peek()? {
            let name = cursor.name(&entry);
            let is_dot = matches!(name.as_bytes(), b"." | b"..");
            if !is_dot && !self.is_reserved(node, name) {
                if all.len() == most {
                    return Ok(None);
                }
                all.push(name.to_owned());
            }
            cursor.advance();
        }
        let mut found = Vec::with_capacity(all.len());
        for name in &all {
            if !goes_on() {
                return Ok(None);
            }
            match self.look_up(directory, name) {
                Ok(looked) => found.push((place(names::Place { parent: node, name })?, looked)),
                // Removed since.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(Some(found))
    }

    /// Where home is far away all names of a directory are asked for at once: when it is listed, or a second name is looked
    /// for that is not there.
    pub(crate) fn learn_names(self: &Arc<Self>, directory: &Arc<Inode>) {
        let Some(behind) = self.write_behind.as_ref().filter(|_| self.options.is_elsewhere) else {
            return;
        };
        if !self.is_learned(directory) {
            return;
        }
        let _known = behind.hold([directory.node()]);
        if let Err(error) = self.read_into_tree(behind, directory) {
            tracing::debug!("the names of a directory are asked for one by one: {error:?}");
        }
    }

    /// Whether what home has in a directory may be answered by the tree.
    pub(crate) fn is_learned(&self, directory: &Inode) -> bool {
        directory.device() == self.device && self.is_plain(directory)
    }

    pub(crate) fn found_at_home(
        &self,
        tree: &mut tree::Tree,
        at: &Place,
        looked: &Looked,
    ) -> NodeId {
        let node = self.inodes.know(looked);
        if tree.kind(node).is_none() {
            tree.introduce(node, attr::kind_of(&looked.status));
        }
        tree.found(at, Some(node));
        node
    }

    /// What a name leads to, as programs see it. Asks home if the tree does not know.
    pub(crate) fn resolve(
        self: &Arc<Self>,
        behind: &WriteBehind,
        directory: &Inode,
        at: &Place,
    ) -> Result<Option<NodeId>, Errno> {
        if let Some(known) = behind.look_up(at) {
            return Ok(known);
        }
        let looked = match self.look_up(directory, OsStr::from_bytes(at.name())) {
            Ok(looked) => Some(looked),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        let mut state = behind.lock();
        if let Some(known) = state.tree.look_up(at.parent(), at.name()) {
            return Ok(known);
        }
        match looked {
            None => {
                state.tree.found(at, None);
                Ok(None)
            }
            Some(looked) => Ok(Some(self.found_at_home(&mut state.tree, at, &looked))),
        }
    }

    /// A name leads to something else at home than the tree knows: where home is far away, and invents its inodes' numbers
    /// anew, home is asked again. Says whether it will be.
    pub(crate) fn forget_name(&self, directory: &Inode, name: &OsStr) -> bool {
        let at = place(names::Place { parent: directory.node(), name });
        let behind = self.write_behind.as_ref().filter(|_| self.options.is_elsewhere);
        let (Some(behind), Ok(at)) = (behind, at) else { return false };
        let mut state = behind.lock();
        state.tree.forget(&at);
        state.tree.look_up(at.parent(), at.name()).is_none()
    }

    /// What the tree says of a name; `None` if home is to be asked.
    pub(crate) fn known_name(&self, at: names::Place<'_>) -> Option<Option<NodeId>> {
        let behind = self.write_behind.as_ref()?;
        behind.look_up(&place(at).ok()?)
    }
}

/// The changes. Each answers `None` if it is to be made at home.
impl FileSystem {
    /// Makes a node: its inode, with one lookup counted.
    pub(crate) fn make_behind(
        self: &Arc<Self>,
        caller: &Caller,
        new: names::Place<'_>,
        kind: Kind,
        mode: u32,
        umask: u32,
    ) -> Option<Result<Arc<Inode>, Errno>> {
        self.write_behind.as_ref()?;
        let directory = match self.directory_for(new) {
            Ok(directory) => directory,
            Err(errno) => return Some(Err(errno)),
        };
        let behind = self.behind_in(&directory)?;
        // Whether home has FIFOs, sockets and devices at all it alone knows (SFTP has none).
        let is_doubtful = matches!(kind, Kind::Special { .. }) && !self.home.are_by_handle();
        if mode & libc::S_ISGID != 0 || is_doubtful {
            return None;
        }
        Some(self.make_in_tree(behind, caller, &directory, new, kind, mode & !umask))
    }

    pub(crate) fn make_in_tree(
        self: &Arc<Self>,
        behind: &WriteBehind,
        caller: &Caller,
        directory: &Arc<Inode>,
        new: names::Place<'_>,
        kind: Kind,
        mode: u32,
    ) -> Result<Arc<Inode>, Errno> {
        behind.wait_for_room()?;
        let at = place(new)?;
        let _known = behind.hold([directory.node()]);
        self.read_into_tree(behind, directory)?;
        if self.resolve(behind, directory, &at)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let status = self.status_of_new(caller, directory, &kind, mode)?;
        let inode = self.inodes.make(&status);
        let node = inode.node();
        if let Some(home) = inode.file() {
            // Home makes it later.
            match behind.is_logged() {
                true => home.times().note_made(status.mtime),
                false => home.times().set_mtime(status.mtime, status.ctime),
            }
        }
        let attributes = tree::Attributes {
            mode: Some(status.mode & 0o7777),
            uid: Some(status.uid),
            gid: Some(status.gid),
            atime: None,
            // Home's own is a little later. A file's is kept where its writes keep it.
            mtime: match &kind {
                Kind::File | Kind::Directory => None,
                Kind::Symlink(_) if !self.home.sets_links() => None,
                Kind::Symlink(_) | Kind::Special { .. } => Some(moment(status.mtime)),
            },
        };
        let made =
            behind.change(&self.inodes, status.mtime, Change::Make { node, at, kind, attributes });
        if let Err(refused) = made {
            self.uncount(node);
            drop(self.inodes.let_fade(node));
            return Err(refused.into());
        }
        if let (Some(home), Some(number)) = (inode.file(), behind.log_number(node)) {
            home.set_log_node(number);
        }
        Ok(inode)
    }

    /// What stat(2) shows of a new inode. A set-group-ID directory gives its group, and a directory in it the bit
    /// (inode(7)).
    fn status_of_new(
        self: &Arc<Self>,
        caller: &Caller,
        directory: &Inode,
        kind: &Kind,
        mode: u32,
    ) -> Result<Status, Errno> {
        let parent = self.attributes(directory)?;
        let inherits = parent.mode & libc::S_ISGID != 0;
        let file_type = match kind {
            Kind::File => libc::S_IFREG,
            Kind::Directory => libc::S_IFDIR,
            Kind::Symlink(_) => libc::S_IFLNK,
            Kind::Special { file_type, .. } => *file_type,
        };
        let permissions = match kind {
            Kind::Symlink(_) => 0o777,
            Kind::Directory if inherits => mode & 0o7777 | libc::S_ISGID,
            _ => mode & 0o7777,
        };
        let now = attr::now();
        Ok(Status {
            device: directory.device(),
            inode: 0,
            mode: file_type | permissions,
            // Names are counted by the tree.
            nlink: if kind.is_directory() { 2 } else { 0 },
            uid: caller.uid,
            gid: if inherits { parent.gid } else { caller.gid },
            rdev: match kind {
                Kind::Special { device, .. } => *device,
                _ => 0,
            },
            size: match kind {
                Kind::Symlink(target) => target.len() as u64,
                Kind::Directory => BLOCK_BYTES.into(),
                _ => 0,
            },
            blocks: 0,
            block_bytes: BLOCK_BYTES,
            atime: now,
            mtime: now,
            ctime: now,
            mount: None,
        })
    }

    /// unlink(2), or rmdir(2) if `is_directory`; `None` if it is to be made at home.
    pub(crate) fn remove_behind(
        self: &Arc<Self>,
        at: names::Place<'_>,
        is_directory: bool,
    ) -> Option<Result<(), Errno>> {
        self.write_behind.as_ref()?;
        let directory = match self.inode(at.parent) {
            Ok(directory) => directory,
            Err(errno) => return Some(Err(errno)),
        };
        let behind = self.behind_in(&directory)?;
        self.remove_known(behind, &directory, at, is_directory)
    }

    /// As [`FileSystem::remove_behind`], after home refused what a removal at home has to wait for. That may be for lack of
    /// room, which a removal does not need, and makes.
    pub(crate) fn remove_without_room(
        self: &Arc<Self>,
        at: names::Place<'_>,
        is_directory: bool,
    ) -> Option<Result<(), Errno>> {
        let directory = self.inode(at.parent).ok()?;
        let behind = self.behind_without_room(&directory)?;
        self.remove_known(behind, &directory, at, is_directory)
    }

    fn remove_known(
        self: &Arc<Self>,
        behind: &WriteBehind,
        directory: &Arc<Inode>,
        at: names::Place<'_>,
        is_directory: bool,
    ) -> Option<Result<(), Errno>> {
        match self.remove_in_tree(behind, directory, at, is_directory) {
            // Home alone knows whether the directory is empty, or what other names the file has.
            Err(Errno::ESTALE) => {
                tracing::debug!("{:?} is removed at home at once", at.name);
                None
            }
            removed => Some(removed),
        }
    }

    fn remove_in_tree(
        self: &Arc<Self>,
        behind: &WriteBehind,
        directory: &Arc<Inode>,
        at: names::Place<'_>,
        is_directory: bool,
    ) -> Result<(), Errno> {
        behind.wait_for_room()?;
        let named = place(at)?;
        let _known = behind.hold([directory.node()]);
        self.read_into_tree(behind, directory)?;
        let mut node = self.resolve(behind, directory, &named)?.ok_or(Errno::ENOENT)?;
        let mut found = self.inode(node);
        if matches!(found, Err(Errno::ESTALE)) && self.forget_name(directory, at.name) {
            node = self.resolve(behind, directory, &named)?.ok_or(Errno::ENOENT)?;
            found = self.inode(node);
        }
        let inode = found?;
        let _known = behind.hold([node]);
        match (inode.kind() == FileType::Directory, is_directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) => self.read_child(behind, &inode)?,
            (false, false) => {}
        }
        self.learn_links(behind, &inode);
        if self.has_unknown_names(behind, &inode) {
            return Err(Errno::ESTALE);
        }
        behind.change(&self.inodes, attr::now(), Change::Remove { node, at: named })?;
        self.changed_behind(&inode);
        self.lost_name(&inode);
        Ok(())
    }

    /// Reads a directory that is to be removed, so that it is known whether it is empty.
    ///
    /// # Errors
    /// ESTALE if only home can tell.
    fn read_child(self: &Arc<Self>, behind: &WriteBehind, inode: &Arc<Inode>) -> Result<(), Errno> {
        if inode.device() != self.device {
            return Err(Errno::ESTALE);
        }
        self.read_into_tree(behind, inode)
    }

    /// renameat2(2); `None` if it is to be made at home.
    pub(crate) fn rename_behind(
        self: &Arc<Self>,
        from: names::Place<'_>,
        to: names::Place<'_>,
        flags: u32,
    ) -> Option<Result<(), Errno>> {
        self.write_behind.as_ref()?;
        let directories =
            self.inode(from.parent).and_then(|source| Ok((source, self.directory_for(to)?)));
        let (source, destination) = match directories {
            Ok(directories) => directories,
            Err(errno) => return Some(Err(errno)),
        };
        self.behind_in(&source)?;
        let behind = self.behind_in(&destination)?;
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return None;
        }
        match self.rename_in_tree(behind, (&source, from), (&destination, to), flags) {
            Err(Errno::ESTALE) => None,
            renamed => Some(renamed),
        }
    }

    fn rename_in_tree(
        self: &Arc<Self>,
        behind: &WriteBehind,
        (source, from): (&Arc<Inode>, names::Place<'_>),
        (destination, to): (&Arc<Inode>, names::Place<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        behind.wait_for_room()?;
        let (old, new) = (place(from)?, place(to)?);
        let _known = behind.hold([source.node(), destination.node()]);
        self.read_into_tree(behind, source)?;
        self.read_into_tree(behind, destination)?;
        let node = self.resolve(behind, source, &old)?.ok_or(Errno::ENOENT)?;
        let replaced = self.resolve(behind, destination, &new)?;
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        if flags & libc::RENAME_NOREPLACE != 0 && replaced.is_some() {
            return Err(Errno::EEXIST);
        }
        if exchange && replaced.is_none() {
            return Err(Errno::ENOENT);
        }
        let moved = self.inode(node)?;
        let other = replaced.map(|replaced| self.inode(replaced)).transpose()?;
        let _known = behind.hold([node, replaced.unwrap_or(node)]);
        if moved.device() != self.device {
            return Err(Errno::ESTALE);
        }
        if let Some(other) = &other
            && !exchange
            && other.kind() == FileType::Directory
            && moved.kind() == FileType::Directory
        {
            self.read_child(behind, other)?;
        }
        if let Some(other) = other.as_ref().filter(|_| !exchange) {
            self.learn_links(behind, other);
            if self.has_unknown_names(behind, other) {
                return Err(Errno::ESTALE);
            }
            self.replaced_at_home(behind, other, &new)?;
            self.log_data_first(behind, &moved)?;
        }
        let change = match replaced.filter(|_| exchange) {
            Some(other) => Change::Exchange { one: (node, old), other: (other, new) },
            None => Change::Rename { node, from: old, to: new, replaced },
        };
        behind.change(&self.inodes, attr::now(), change)?;
        self.changed_behind(&moved);
        match other {
            Some(other) if exchange => self.changed_behind(&other),
            // Renaming one name of a file to another of its names does nothing.
            Some(other) if other.node() != node => {
                self.changed_behind(&other);
                self.lost_name(&other);
            }
            _ => {}
        }
        Ok(())
    }

    /// A file is about to take the name of another: its data is in the log before that is, so that after a crash the name leads
    /// to the old content or to the new (ext4(5), `auto_da_alloc`).
    fn log_data_first(
        self: &Arc<Self>,
        behind: &WriteBehind,
        moved: &Arc<Inode>,
    ) -> Result<(), Errno> {
        let file = moved.node().file();
        if moved.file().is_none() || !behind.is_logged() {
            return Ok(());
        }
        let opened = !moved.is_attached();
        if opened {
            if !moved.is_at_home() {
                // Nothing was written to it.
                return Ok(());
            }
            // What home has of it may not be durable. One that the daemon may not open was not written by the mount.
            if self.acquire(moved, false).is_err() {
                return Ok(());
            }
        }
        let logged = match self.shard.log_data(file) {
            true => Ok(()),
            false => {
                behind.commit_soon();
                let (sender, synced) = channel();
                self.shard.sync(file, Durability::Data, move |result| {
                    sender.send(result).unwrap_or(());
                });
                synced.recv().unwrap_or(Ok(()))
            }
        };
        if opened {
            self.release(moved);
        }
        match logged {
            // The log has failed. Home is given the file's data before its new name.
            Err(_) if !behind.is_logged() || self.shard.log_has_failed() => Ok(()),
            logged => Ok(logged?),
        }
    }

    /// link(2): the attributes' node is the one linked.
    pub(crate) fn link_behind(
        self: &Arc<Self>,
        node: NodeId,
        new: names::Place<'_>,
    ) -> Option<Result<Arc<Inode>, Errno>> {
        self.write_behind.as_ref()?;
        let found =
            self.directory_for(new).and_then(|directory| Ok((directory, self.inode(node)?)));
        let (directory, inode) = match found {
            Ok(found) => found,
            Err(errno) => return Some(Err(errno)),
        };
        let behind = self.behind_in(&directory)?;
        if inode.device() != self.device {
            return None;
        }
        match self.link_in_tree(behind, &directory, &inode, new) {
            // It cannot be logged, or home knows more.
            Err(Errno::ESTALE) => None,
            linked => Some(linked.map(|()| inode)),
        }
    }

    fn link_in_tree(
        self: &Arc<Self>,
        behind: &WriteBehind,
        directory: &Arc<Inode>,
        inode: &Arc<Inode>,
        new: names::Place<'_>,
    ) -> Result<(), Errno> {
        behind.wait_for_room()?;
        let (node, at) = (inode.node(), place(new)?);
        let _known = behind.hold([directory.node(), node]);
        self.read_into_tree(behind, directory)?;
        if self.resolve(behind, directory, &at)?.is_some() {
            return Err(Errno::EEXIST);
        }
        self.introduce(behind, inode);
        behind.change(&self.inodes, attr::now(), Change::Link { node, at })?;
        self.changed_behind(inode);
        if !self.inodes.count_again(node) {
            return Err(Errno::ESTALE);
        }
        Ok(())
    }

    /// Sees to it that the tree knows an inode.
    pub(crate) fn introduce(&self, behind: &WriteBehind, inode: &Inode) {
        let mut state = behind.lock();
        if state.tree.kind(inode.node()).is_none() {
            let kind = inode.status().map_or(Kind::File, |status| attr::kind_of(&status));
            state.tree.introduce(inode.node(), kind);
            self.inodes.keep(inode.node());
        }
    }

    /// A file is to lose a name. Somebody else may have linked it at home: its dirty data is not dropped then, nor what will
    /// be written to it.
    fn learn_links(&self, behind: &WriteBehind, inode: &Inode) {
        if inode.is_at_home()
            && inode.is_attached()
            && (inode.open().descriptions > 0 || self.shard.has_dirty(inode.node().file()))
        {
            behind.learn_links(inode.node(), || Ok(inode.status()?.nlink as usize));
        }
    }

    /// Whether data of a file is or may be in the log that recovery would not find by the names it knows: home has others. Then
    /// a name is removed at home at once, for which the data is brought home first.
    fn has_unknown_names(&self, behind: &WriteBehind, inode: &Inode) -> bool {
        if !inode.is_attached() || !inode.is_at_home() {
            return false;
        }
        // Not every home counts links (sshfs): what was there before may have names that were never seen.
        let is_used = || inode.open().descriptions > 0 || self.shard.has_dirty(inode.node().file());
        if !self.home.counts_links()
            && !behind.lock().tree.knows_all_names(inode.node())
            && is_used()
        {
            inode.set_linked();
            return true;
        }
        if !self.shard.finds_by_number() {
            return false;
        }
        let known = behind.lock().tree.links(inode.node()).home;
        inode.status().is_ok_and(|status| status.nlink as usize > known)
    }

    /// A node got another name or a further one, or lost one.
    pub(crate) fn changed_behind(&self, inode: &Inode) {
        let now = attr::now();
        inode.change_made(|status| status.ctime = now);
        inode.note_changed(now);
        match (inode.file(), &self.write_behind) {
            (Some(home), Some(behind)) if behind.is_logged() => {
                home.times().note_logged_change(now)
            }
            _ => note_change(inode),
        }
    }
}
