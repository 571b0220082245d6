//! What the tree wants done, done at home.
//!
//! A directory is reached by its inode; [`NodeId::PARKING`] is a directory of Weir's own. What is made is made for the
//! program that asked ([`weir_names::command::Creator`]); then what home did otherwise than the program asked is set:
//! owner, permissions and times.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use weir_backend::home_names::{HomeCommand, Looked, open_again};
use weir_backend::{Timestamp, error_kind};
use weir_log::Lsn;
use weir_names::command::{Creator, Entry, NameCommand, SetTime};
use weir_names::tree::{
    Answer, AtHome, Attributes, Command, CommandId, HomeError, Kind, Moment, Tree, Xattrs,
};
use weir_names::{NodeId, Place, Way};
use weir_shard::Renamed;

use crate::attr::{self, moment};
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode};
use crate::ops::xattr::{ACCESS_ACL, DEFAULT_ACL};
use crate::write_behind::{Awaited, Begun, Job, LogJob, Made, Named, Stage, WriteBehind};

/// What [`Command::Make`] says.
#[derive(Clone, Copy)]
pub(crate) struct Making<'a> {
    pub(crate) node: NodeId,
    pub(crate) at: &'a Place,
    pub(crate) kind: &'a Kind,
    pub(crate) attributes: &'a Attributes,
    pub(crate) xattrs: &'a Xattrs,
}

impl<'a> Making<'a> {
    pub(crate) fn of(command: &'a Command) -> Option<Making<'a>> {
        match *command {
            Command::Make { node, ref at, ref kind, ref attributes, ref xattrs } => {
                Some(Making { node, at, kind, attributes, xattrs })
            }
            _ => None,
        }
    }
}

/// Attempts to remove a directory that should be empty, and the pause between them.
const REMOVE_TRIES: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

/// A directory at home.
pub(crate) enum Directory {
    Known(Arc<Inode>),
    /// With the name there, which says whether it was made there.
    Parking(Arc<OwnedFd>, OsString),
}

impl Directory {
    pub(crate) fn at<'a>(
        &'a self,
        place: &'a Place,
    ) -> Result<Entry<'a, BorrowedFd<'a>>, HomeError> {
        Ok(match self {
            Directory::Known(inode) => {
                let directory = inode.path_fd().map_err(refused)?;
                Entry { directory, name: OsStr::from_bytes(place.name()) }
            }
            Directory::Parking(fd, name) => Entry { directory: fd.as_fd(), name },
        })
    }
}

/// If the log has failed, what it goes on with says what a command does to names before home does it.
fn continue_before(behind: &WriteBehind, command: &Command) -> Result<(), HomeError> {
    if matches!(command, Command::Look { .. } | Command::Set { .. }) {
        return Ok(());
    }
    // What is removed makes room for that. Nothing else is taken for it before something else has its name.
    let is_removal = matches!(command, Command::Unlink { .. } | Command::RemoveDirectory { .. });
    behind.continue_log().map(drop).or_else(|error| match error {
        HomeError::Refused(libc::ENOSPC | libc::EDQUOT) if is_removal => Ok(()),
        error => Err(error),
    })
}

/// Home's answer to a command that somebody else's change may have made impossible.
fn refused(errno: Errno) -> HomeError {
    match errno.code() {
        libc::EEXIST | libc::ENOENT | libc::ENOTDIR | libc::EISDIR | libc::ESTALE => {
            HomeError::Changed
        }
        libc::ENOTEMPTY => HomeError::NotEmpty,
        code => HomeError::Refused(code),
    }
}

/// The same of a node that home does not find.
fn gone(error: HomeError) -> HomeError {
    match error {
        HomeError::Changed => HomeError::Gone,
        error => error,
    }
}

impl FileSystem {
    /// Does one thing at home. Says whether to go on.
    pub(crate) fn bring_names_home(self: &Arc<Self>) -> bool {
        let Some(behind) = &self.write_behind else { return false };
        match behind.next_job(&self.inodes) {
            None => return false,
            // The engine may have had to know a forgotten file until home had removed it.
            Some(Job::LetGo(inodes)) => inodes.iter().for_each(|inode| self.detach(inode)),
            Some(Job::Named(Named { id, made, lsn })) => {
                let result = self.finish_named(behind, made);
                let result = result.map(|()| Answer::Made(behind.position_of_name(lsn)));
                self.ended(behind, id, result, Duration::ZERO);
            }
            Some(Job::Log(job)) => self.work_on_log(behind, job),
            Some(Job::Removed(refused)) => {
                self.resolve_removals(behind, refused);
                behind.removals_are_resolved();
            }
            Some(Job::AskRoom) => behind.room_is(self.statfs(NodeId::ROOT).ok()),
            Some(Job::Command(id, command)) => match self.data_to_go_first(&command) {
                Some(file) => {
                    let fs = Arc::clone(self);
                    self.when_home(&file, move || {
                        let behind = fs.write_behind.as_ref().expect("it is what resumes");
                        behind.resume(id, command);
                    });
                }
                None => self.begin_command(behind, id, command),
            },
            Some(Job::Resumed(id, command)) => self.begin_command(behind, id, command),
            Some(Job::Doubt(doubt)) => self.find_out(behind, doubt),
            Some(Job::Stepped(id, command, begun)) => {
                self.end_command(behind, id, &command, Some(begun));
            }
        }
        true
    }

    /// Has home do what a command says; `begun` is what the log says of that.
    pub(crate) fn end_command(
        self: &Arc<Self>,
        behind: &WriteBehind,
        id: CommandId,
        command: &Command,
        begun: Option<Begun>,
    ) {
        let began = Instant::now();
        if let Err(error) = continue_before(behind, command) {
            if let Some(begun) = begun {
                behind.end_step(&begun, Stage::Undone);
            }
            return self.ended(behind, id, Err(error), Duration::ZERO);
        }
        if let Command::Make { at, .. } = command
            && at.parent() == NodeId::PARKING
            && !behind.names_what_is_made()
        {
            behind.made_parked().insert(at.name().into());
        }
        // Whoever asks meanwhile does not see when home was changed.
        let held = self.held_without_data(command.touches());
        held.iter().for_each(|inode| inode.note_bringing());
        if let Some(making) = Making::of(command).filter(|_| behind.names_what_is_made()) {
            let made = self.with_room(|| self.make_at_home(making));
            note_brought(&held);
            return match made {
                Ok(made) => self.name_in_log(behind, id, made, begun, began.elapsed()),
                Err(error) => {
                    tracing::debug!("home did not do {command:?}: {error}");
                    self.end_begun(behind, (id, command), begun, Err(error), began.elapsed());
                }
            };
        }
        let result = self.with_room(|| self.execute_name_command(command));
        if let Err(error) = &result {
            tracing::debug!("home did not do {command:?}: {error}");
        }
        note_parked(behind, command, result.is_ok());
        note_brought(&held);
        self.end_begun(behind, (id, command), begun, result, began.elapsed());
    }

    /// A command of the tree ended.
    pub(crate) fn ended(
        &self,
        behind: &WriteBehind,
        id: CommandId,
        result: Result<Answer, HomeError>,
        took: Duration,
    ) {
        self.note_refusal(behind.ended(id, result, took));
    }

    /// Home refuses everything, with this error, if there is one.
    pub(super) fn note_refusal(&self, refused: Option<HomeError>) {
        if let Some(HomeError::Refused(code)) = refused {
            self.shard.home_refuses_files(error_kind(&io::Error::from_raw_os_error(code)));
        }
    }

    /// Does something at home, again if no descriptor was left for it.
    fn with_room<T>(
        self: &Arc<Self>,
        execute: impl Fn() -> Result<T, HomeError>,
    ) -> Result<T, HomeError> {
        let done = execute();
        if !matches!(done, Err(HomeError::Refused(libc::ENFILE | libc::EMFILE))) {
            return done;
        }
        self.make_room();
        execute()
    }

    /// The file whose data is to be home before a command replaces another file by it: after a crash the name leads to
    /// the old content or to the new (ext4(5), `auto_da_alloc`).
    fn data_to_go_first(&self, command: &Command) -> Option<Arc<Inode>> {
        let Command::Rename { node, replacing: Some(_), .. } = command else { return None };
        let inode = self.inodes.get(*node)?;
        let dirty = inode.is_attached() && self.shard.has_dirty(node.file());
        dirty.then_some(inode)
    }
}

impl FileSystem {
    /// Executes one command of the tree.
    pub(crate) fn execute_name_command(
        self: &Arc<Self>,
        command: &Command,
    ) -> Result<Answer, HomeError> {
        match command {
            Command::Look { at } => self.look_for_tree(at).map(Answer::Found),
            Command::Make { .. } => {
                let making = Making::of(command).ok_or(HomeError::Gone)?;
                let made = self.make_at_home(making)?;
                self.finish_making(made)?;
                Ok(Answer::Made(Lsn(0)))
            }
            Command::Link { node, at } => {
                let inode = self.inode_or_gone(*node)?;
                let path = inode.path_to_link().map_err(refused)?;
                let directory = self.directory_of(at)?;
                let at_home = directory.at(at)?;
                let link = || self.at_home(NameCommand::Link { inode: path.as_fd(), at: at_home });
                match link() {
                    // Home made something there before, and its answer was lost: the node has another name.
                    Err(HomeError::Changed) if at.parent() == NodeId::PARKING => {
                        self.unmake(at_home, &Kind::File);
                        link()?;
                    }
                    linked => drop(linked?),
                }
                Ok(Answer::Done)
            }
            Command::Rename { node, from, to, replacing } => {
                self.rename_for_tree(*node, from, to, *replacing)
            }
            Command::Exchange { one, other } => self.exchange_for_tree(one, other),
            Command::Unlink { node, at } => {
                self.remove_for_tree(*node, at, |at| NameCommand::Unlink { at })
            }
            Command::RemoveDirectory { node, at } => {
                let remove =
                    || self.remove_for_tree(*node, at, |at| NameCommand::RemoveDirectory { at });
                let mut removed = remove();
                if removed == Err(HomeError::NotEmpty) && self.park_hidden(at) {
                    removed = remove();
                }
                for _ in 0..REMOVE_TRIES {
                    if removed != Err(HomeError::NotEmpty) {
                        break;
                    }
                    // FUSE file systems keep a removed file under another name until its last transfer has ended.
                    thread::sleep(REMOVE_PAUSE);
                    removed = remove();
                }
                removed
            }
            Command::Set { node, attributes, xattrs } => {
                let inode = self.inode_or_gone(*node)?;
                // Some homes find what is open by its former name.
                self.set_for_tree(&inode, attributes, xattrs).map_err(gone)?;
                Ok(Answer::Done)
            }
        }
    }

    /// Home may keep removed files in their directory while they are open. Says whether there was nothing else in it.
    fn park_hidden(self: &Arc<Self>, at: &Place) -> bool {
        let parked = || {
            let (parking, directory) = (self.parking()?, self.directory_of(at)?);
            let parked = self.home.park_hidden(parking.as_fd(), directory.at(at)?);
            parked.map_err(|error| refused(error.into()))
        };
        !self.home.counts_links() && parked().is_ok_and(|is_parked| is_parked)
    }

    fn at_home(&self, command: HomeCommand<'_>) -> Result<Option<OwnedFd>, HomeError> {
        self.home.execute(command).map_err(|error| refused(error.into()))
    }

    fn inode_of_tree(self: &Arc<Self>, node: NodeId) -> Result<Arc<Inode>, HomeError> {
        self.inode(node).map_err(refused)
    }

    /// As [`FileSystem::inode_of_tree`], of a node that is gone if it is not found.
    fn inode_or_gone(self: &Arc<Self>, node: NodeId) -> Result<Arc<Inode>, HomeError> {
        self.inode_of_tree(node).map_err(gone)
    }

    pub(crate) fn directory_of(self: &Arc<Self>, at: &Place) -> Result<Directory, HomeError> {
        if at.parent() == NodeId::PARKING {
            let behind = self.write_behind.as_ref().expect("it is what executes");
            let name = behind.parking_name(&self.inodes, at);
            return Ok(Directory::Parking(self.parking()?, name));
        }
        self.inode_of_tree(at.parent()).map(Directory::Known)
    }

    /// The directory for nodes that have no other name for a moment.
    fn parking(self: &Arc<Self>) -> Result<Arc<OwnedFd>, HomeError> {
        let behind = self.write_behind.as_ref().expect("it is what executes");
        if let Some(parking) = behind.parking.get() {
            return Ok(Arc::clone(parking));
        }
        let root = self.inode_of_tree(NodeId::ROOT)?;
        let opened = self.home.parking(root.path_fd().map_err(refused)?);
        let opened = opened.map_err(|error| refused(error.into()))?;
        Ok(Arc::clone(behind.parking.get_or_init(|| Arc::new(opened))))
    }

    /// Looks what home has under a name, for the tree.
    fn look_for_tree(self: &Arc<Self>, at: &Place) -> Result<AtHome, HomeError> {
        let directory = match self.directory_of(at) {
            // What was in it has another place, or none.
            Err(HomeError::Changed)
                if self.write_behind.as_ref().is_some_and(|of| self.is_gone(of, at.parent())) =>
            {
                return Ok(AtHome::Nothing);
            }
            directory => directory?,
        };
        let entry = directory.at(at)?;
        let looked = match self.home.look_up(entry.directory, at.parent(), entry.name) {
            Ok(looked) => looked,
            Err(error) => match Errno::from(error) {
                Errno::ENOENT => return Ok(AtHome::Nothing),
                errno => return Err(refused(errno)),
            },
        };
        let behind = self.write_behind.as_ref().expect("it is what executes");
        if let Some(placed) = behind.node_placed_at(&self.inodes, at) {
            // Home does not tell inodes apart as long as that.
            return Ok(AtHome::Node(placed));
        }
        let mut state = behind.lock();
        let node = self.inodes.know(&looked);
        if state.tree.kind(node).is_none() {
            state.tree.introduce_foreign(node, attr::kind_of(&looked.status));
        }
        Ok(AtHome::Node(node))
    }

    /// Makes a node at home. [`FileSystem::finish_making`] follows, where there is a log after that names it: before, nothing
    /// goes into it.
    fn make_at_home(self: &Arc<Self>, making: Making<'_>) -> Result<Made, HomeError> {
        let Making { node, at, kind, attributes, .. } = making;
        let inode = self.inode_of_tree(node)?;
        let made = inode.made().ok_or(HomeError::Gone)?;
        let directory = self.directory_of(at)?;
        let entry = directory.at(at)?;
        let mode = attributes.mode.unwrap_or(made.mode) & 0o7777;
        let creator = Creator { uid: made.uid, gid: made.gid, umask: 0 };
        let make = || {
            self.at_home(match kind {
                Kind::File => NameCommand::MakeFile { at: entry, mode, creator },
                Kind::Directory => NameCommand::MakeDirectory { at: entry, mode, creator },
                Kind::Symlink(target) => {
                    let target = OsStr::from_bytes(target);
                    NameCommand::MakeSymlink { at: entry, target, creator }
                }
                Kind::Special { file_type, device } => {
                    let (mode, device) = (mode | file_type, *device);
                    NameCommand::MakeNode { at: entry, mode, device, creator }
                }
            })
        };
        let file = match make() {
            // Home made it before, and its answer was lost: the name says that it is this node, and nothing was put into it.
            Err(HomeError::Changed)
                if at.parent() == NodeId::PARKING && self.is_as_made(making)? =>
            {
                self.unmake(entry, kind);
                make()?
            }
            made => made?,
        };
        let made = self.made_at_home(making, file);
        made.inspect_err(|_| self.unmake(entry, kind))
    }

    /// What home has made under a name, as the tree is told of it; `file` is open if it is one.
    pub(crate) fn made_at_home(
        self: &Arc<Self>,
        making: Making<'_>,
        file: Option<OwnedFd>,
    ) -> Result<Made, HomeError> {
        let Making { node, at, kind, attributes, xattrs } = making;
        let inode = self.inode_of_tree(node)?;
        let directory = self.directory_of(at)?;
        let looked = self.look_at_made(at, directory.at(at)?, file);
        let (looked, path, data) = looked.map_err(|errno| HomeError::Refused(errno.code()))?;
        let (at, kind) = (at.clone(), kind.clone());
        let (attributes, xattrs) = (*attributes, xattrs.clone());
        Ok(Made { inode, at, kind, attributes, xattrs, looked, path, data })
    }

    /// What was made at home is removed: nobody has seen it.
    fn unmake(&self, at: Entry<'_, BorrowedFd<'_>>, kind: &Kind) {
        let _ = self.home.execute(match kind {
            Kind::Directory => NameCommand::RemoveDirectory { at },
            _ => NameCommand::Unlink { at },
        });
    }

    /// Home has what was made: it gets its attributes, and what programs wrote to it.
    fn finish_making(self: &Arc<Self>, made: Made) -> Result<(), HomeError> {
        let held = self.held_without_data([made.inode.node(), made.at.parent()]);
        held.iter().for_each(|inode| inode.note_bringing());
        let finished = self.finish_made(made);
        note_brought(&held);
        finished
    }

    fn finish_made(self: &Arc<Self>, made: Made) -> Result<(), HomeError> {
        let Made { inode, at, kind, attributes, xattrs, looked, path, data } = made;
        let wanted = difference(&attributes, &looked.status, &kind);
        if let Err(errno) = self.bind_made(&inode, &looked, path, data) {
            let directory = self.directory_of(&at)?;
            self.unmake(directory.at(&at)?, &kind);
            return Err(HomeError::Refused(errno.code()));
        }
        if let Ok(Directory::Known(directory)) = self.directory_of(&at)
            && !self.is_plain(&directory)
        {
            self.remove_inherited(&inode);
        }
        if (!wanted.is_empty() || !xattrs.is_empty())
            && let Err(error) = self.set_for_tree(&inode, &wanted, &xattrs)
        {
            self.set_later(inode.node(), wanted, xattrs, error);
        }
        self.bound(&inode);
        Ok(())
    }

    /// Those of the nodes that are held, and are no regular files.
    fn held_without_data(&self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<Arc<Inode>> {
        let held = nodes.into_iter().filter_map(|node| self.inodes.get(node));
        held.filter(|inode| inode.file().is_none()).collect()
    }

    /// Has the log name what was made at home; the command ends when that is durable.
    pub(super) fn name_in_log(
        self: &Arc<Self>,
        behind: &WriteBehind,
        id: CommandId,
        made: Made,
        begun: Option<Begun>,
        took: Duration,
    ) {
        let lsn = match (begun, &made.looked.way) {
            (Some(begun), _) => behind.end_step(&begun, Stage::Done),
            (None, Way::Handle(handle)) => {
                let identity = [&handle.kind().to_le_bytes()[..], handle.bytes()].concat();
                behind.log_identity(&self.inodes, made.inode.node(), &identity)
            }
            (None, Way::Place(_)) => None,
        };
        self.finish_when_named(behind, id, made, lsn, took);
    }

    /// What was made is named by the log, or where it goes on: see [`FileSystem::finish_making`].
    fn finish_named(self: &Arc<Self>, behind: &WriteBehind, made: Made) -> Result<(), HomeError> {
        if let Err(error) = behind.continue_log() {
            let directory = self.directory_of(&made.at)?;
            self.unmake(directory.at(&made.at)?, &made.kind);
            return Err(error);
        }
        self.finish_making(made)
    }

    /// The command that made something ends when the log is durable up to `lsn`, where it names that. `None`: it has failed.
    fn finish_when_named(
        self: &Arc<Self>,
        behind: &WriteBehind,
        id: CommandId,
        made: Made,
        lsn: Option<Lsn>,
        took: Duration,
    ) {
        let Some(lsn) = lsn else {
            // Nothing is logged any more.
            let result = self.finish_making(made).map(|()| Answer::Made(Lsn(0)));
            return self.ended(behind, id, result, took);
        };
        behind.will_be_named();
        self.when_logged(move |behind| behind.named(Named { id, made, lsn }));
    }

    /// Runs `then` when all records until now are durable in the log, or it has failed: then they are where it goes on after
    /// [`WriteBehind::continue_log`].
    pub(crate) fn when_logged(self: &Arc<Self>, then: impl FnOnce(&WriteBehind) + Send + 'static) {
        let fs = Arc::clone(self);
        self.shard.commit_names_later(move |committed| {
            let behind = fs.write_behind.as_ref().expect("it is what logs");
            if committed.is_err() {
                behind.log_goes_on();
            }
            then(behind);
        });
    }

    /// Does what the log needs now.
    pub(crate) fn work_on_log(self: &Arc<Self>, behind: &WriteBehind, job: LogJob) {
        match job {
            LogJob::Commit => self.commit_names(),
            LogJob::Continue => self.continue_log(behind),
            LogJob::Settle => {
                let _ = self.settle_names_begun(behind);
            }
        }
    }

    /// Writes where a failed log goes on, and has data go home for which changes wait.
    fn continue_log(self: &Arc<Self>, behind: &WriteBehind) {
        let waits_for = behind.continue_log();
        behind.continued(waits_for == Ok(None));
        if let Ok(Some(node)) = waits_for
            && let Some(inode) = self.inodes.get(node)
        {
            behind.make_ahead(node);
            // It is asked again whether that is so.
            self.when_home(&inode, || ());
        }
    }

    /// Has the log written, and tells the tree.
    pub(super) fn commit_names(self: &Arc<Self>) {
        let fs = Arc::clone(self);
        self.shard.commit_names_later(move |committed| {
            fs.write_behind.as_ref().expect("it is what commits").committed(committed);
        });
    }

    /// A file is about to take the name of another one. Home gives it a name that leads to a file when it has its data, and any other
    /// name before: so, where nothing is logged, home has the other one under that name first.
    ///
    /// # Errors
    /// Why home refuses that.
    pub(crate) fn replaced_at_home(
        &self,
        behind: &WriteBehind,
        replaced: &Inode,
        at: &Place,
    ) -> Result<(), Errno> {
        if behind.names_what_is_made() || replaced.kind() == FileType::Directory {
            return Ok(());
        }
        let is_elsewhere = {
            let tree = &behind.lock().tree;
            tree.home_at(at).is_none() && tree.is_bound(replaced.node())
        };
        match is_elsewhere {
            true => Ok(behind.wait(&Awaited::Entry(at.clone()))?),
            false => Ok(()),
        }
    }

    /// The nodes that home has parked.
    pub(super) fn parked_at_home(
        self: &Arc<Self>,
        behind: &WriteBehind,
    ) -> Result<Vec<NodeId>, Errno> {
        let parking = self.parking()?;
        let mut cursor = self.home.list(parking.as_fd(), self.device, 0)?;
        let mut parked = Vec::new();
        while let Some(entry) = cursor.peek()? {
            let number = Tree::node_parked_as(cursor.name(&entry).as_bytes());
            parked.extend(number.and_then(|number| behind.node_numbered(number)));
            cursor.advance();
        }
        Ok(parked)
    }

    /// Removes the ACLs that a new inode got from its directory. The directory had no default ACL when the inode was made
    /// here: what is made in one that has it goes home at once.
    fn remove_inherited(&self, inode: &Inode) {
        let Ok(at) = inode.path_fd() else { return };
        let names: &[&str] = match inode.kind() {
            // It has none of its own.
            FileType::Symlink => &[],
            FileType::Directory => &[ACCESS_ACL, DEFAULT_ACL],
            _ => &[ACCESS_ACL],
        };
        for name in names.iter().map(OsStr::new) {
            // Most have none.
            let _ = self.home.execute(NameCommand::RemoveXattr { inode: at, name });
        }
    }

    /// What was made has other attributes than were wanted: that is tried again by itself.
    fn set_later(&self, node: NodeId, wanted: Attributes, xattrs: Xattrs, error: HomeError) {
        tracing::debug!("attributes of a new inode were not set at once: {error}");
        let behind = self.write_behind.as_ref().expect("it is what executes");
        // The log has them since the node was made.
        behind.lock().tree.left_unset(node, wanted, xattrs);
    }

    /// What was just made at home: what it is, and its descriptors.
    fn look_at_made(
        &self,
        at: &Place,
        entry: Entry<'_, BorrowedFd<'_>>,
        file: Option<OwnedFd>,
    ) -> Result<(Looked, OwnedFd, Option<OwnedFd>), Errno> {
        let (looked, path) = match &file {
            Some(file) => {
                let looked = self.home.look_at(file.as_fd(), at.parent(), entry.name)?;
                (looked, open_again(file.as_fd())?)
            }
            None => {
                let path = self.home.open_place(entry.directory, entry.name.as_bytes())?;
                (self.home.look_at(path.as_fd(), at.parent(), entry.name)?, path)
            }
        };
        Ok((looked, path, file))
    }

    /// Home has the node of an inode now. What was posted to it until now is taken before, as far as that needs no wait: on a full disk there
    /// is no space for it after.
    fn bind_made(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        looked: &Looked,
        path: OwnedFd,
        data: Option<OwnedFd>,
    ) -> Result<(), Errno> {
        self.inodes.bind(inode.node(), looked);
        if data.is_some() {
            self.shard.binding(inode.node().file());
            self.settle_before_home(inode);
        }
        match (inode.file(), data) {
            (Some(home), Some(data)) => self.shard.bind(inode.node().file(), home, path, data)?,
            _ => inode.bind(path),
        }
        Ok(())
    }

    /// A file that home has now is closed there when nobody has it open and it is clean.
    fn bound(self: &Arc<Self>, inode: &Arc<Inode>) {
        if let Some(made) = inode.made().filter(|_| inode.file().is_none()) {
            inode.note_brought_home(Some(made.ctime), attr::now_exactly());
        }
        inode.forget_made();
        self.inodes.is_bound(inode.node());
        self.reclaimer.inodes_grew(self.inodes.held());
        if let Some(home) = inode.file() {
            if let Err(error) = home.restore_times() {
                tracing::debug!(%error, "a modification time was not set");
            }
            self.close_idle(inode);
        }
    }

    fn rename_for_tree(
        self: &Arc<Self>,
        node: NodeId,
        from: &Place,
        to: &Place,
        replacing: Option<NodeId>,
    ) -> Result<Answer, HomeError> {
        let (source, destination) = (self.directory_of(from)?, self.directory_of(to)?);
        let (old, new) = (source.at(from)?, destination.at(to)?);
        self.check_is_at(node, from, old)?;
        match replacing {
            Some(replaced) => self.check_is_at(replaced, to, new)?,
            None if self.home.has_name(new.directory, new.name).map_err(failed)? => {
                return Err(HomeError::Changed);
            }
            None => {}
        }
        let files: Vec<_> =
            [Some(node), replacing].into_iter().flatten().map(NodeId::file).collect();
        let changed =
            match self.is_directory(node) || replacing.is_some_and(|of| self.is_directory(of)) {
                true => Renamed::All,
                false => Renamed::Files(&files),
            };
        if let Some(replaced) = replacing {
            self.leave_name(replaced, to);
        }
        // The names were looked at; a name that appears in between is replaced, as by any program.
        let renamed = self.shard.change_names(changed, || {
            self.at_home(NameCommand::Rename { from: old, to: new, flags: 0 })
        });
        renamed.map_err(|error| refused(error.into()))??;
        self.found_in_tree(node, to);
        if let Some(replaced) = replacing {
            self.lost_at_home(replaced, to);
        }
        Ok(Answer::Done)
    }

    fn exchange_for_tree(
        self: &Arc<Self>,
        one: &(NodeId, Place),
        other: &(NodeId, Place),
    ) -> Result<Answer, HomeError> {
        if self.shard.finds_by_number() {
            // After a crash the names that are there would not tell whether it was done.
            return Err(HomeError::NoExchange);
        }
        let (first, second) = (self.directory_of(&one.1)?, self.directory_of(&other.1)?);
        let (from, to) = (first.at(&one.1)?, second.at(&other.1)?);
        self.check_is_at(one.0, &one.1, from)?;
        self.check_is_at(other.0, &other.1, to)?;
        let renamed = self.shard.change_names(Renamed::All, || {
            self.home.execute(NameCommand::Rename { from, to, flags: libc::RENAME_EXCHANGE })
        });
        match renamed.map_err(|error| refused(error.into()))? {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                return Err(HomeError::NoExchange);
            }
            Err(error) => return Err(refused(error.into())),
            Ok(_) => {}
        }
        self.found_in_tree(one.0, &other.1);
        self.found_in_tree(other.0, &one.1);
        Ok(Answer::Done)
    }

    fn remove_for_tree(
        self: &Arc<Self>,
        node: NodeId,
        at: &Place,
        command: impl for<'a> FnOnce(Entry<'a, BorrowedFd<'a>>) -> HomeCommand<'a>,
    ) -> Result<Answer, HomeError> {
        let directory = self.directory_of(at)?;
        let entry = directory.at(at)?;
        self.check_is_at(node, at, entry)?;
        let files = [node.file()];
        // Not every home counts links (sshfs).
        let is_only_name = |inode: Arc<Inode>| {
            !inode.is_linked() && inode.status().is_ok_and(|home| home.nlink <= 1)
        };
        let is_last =
            self.another_name(node, at).is_none() && self.inode(node).is_ok_and(is_only_name);
        let changed = match is_last {
            true => Renamed::Removed(node.file()),
            // Where it is found by its path, it is found under another one from now on.
            false => Renamed::Files(&files),
        };
        self.leave_name(node, at);
        let removed = self.shard.change_names(changed, || {
            match self.at_home(command(entry)) {
                // Home removed it before, and its answer was lost: nobody else has names there.
                Err(HomeError::Changed)
                    if at.parent() == NodeId::PARKING
                        && !self.home.has_name(entry.directory, entry.name).map_err(failed)? => {}
                removed => drop(removed?),
            }
            if self.shard.finds_by_path() {
                // See `FileSystem::remove_name`.
                let directory = entry.directory;
                let _ = self.home.execute(NameCommand::SyncDirectory { directory });
            }
            Ok(())
        });
        removed.map_err(|error| refused(error.into()))??;
        self.lost_at_home(node, at);
        Ok(Answer::Done)
    }

    /// A name still leads to the node that it is known to lead to, as far as home tells inodes apart.
    fn check_is_at(
        &self,
        node: NodeId,
        at: &Place,
        entry: Entry<'_, BorrowedFd<'_>>,
    ) -> Result<(), HomeError> {
        if !self.home.are_by_handle() {
            return Ok(());
        }
        let found = self.home.look_up(entry.directory, at.parent(), entry.name).map_err(failed)?;
        match self.inodes.find(&found.identity) == Some(node) {
            true => Ok(()),
            false => Err(HomeError::Changed),
        }
    }

    fn is_directory(&self, node: NodeId) -> bool {
        let behind = self.write_behind.as_ref().expect("it is what executes");
        behind.lock().tree.kind(node).is_some_and(Kind::is_directory)
    }

    /// A node is found under another name at home now.
    pub(super) fn found_in_tree(&self, node: NodeId, at: &Place) {
        self.inodes.moved(node, Way::Place(at.clone()));
    }

    /// Sets attributes that are given, in an order in which none undoes another.
    fn set_for_tree(
        &self,
        inode: &Inode,
        attributes: &Attributes,
        xattrs: &Xattrs,
    ) -> Result<(), HomeError> {
        if !self.keeps_attributes(inode) {
            return Ok(());
        }
        let at = inode.path_fd().map_err(refused)?;
        let Attributes { mode, mut uid, mut gid, atime, mtime } = *attributes;
        if let Ok(status) = inode.status() {
            // Not every home changes the owner of everything.
            (uid, gid) =
                (uid.filter(|uid| *uid != status.uid), gid.filter(|gid| *gid != status.gid));
        }
        if uid.is_some() || gid.is_some() {
            self.at_home(NameCommand::SetOwner { inode: at, uid, gid })?;
        }
        if let Some(mode) = mode {
            self.at_home(NameCommand::SetMode { inode: at, mode: mode & 0o7777 })?;
        }
        for (name, value) in xattrs {
            let name = OsStr::from_bytes(name);
            match value {
                Some(value) => {
                    self.at_home(NameCommand::SetXattr { inode: at, name, value, flags: 0 })?;
                }
                None => {
                    self.at_home(NameCommand::RemoveXattr { inode: at, name })?;
                }
            }
        }
        if atime.is_some() || mtime.is_some() {
            let set = |written: Option<Timestamp>| {
                // Of a file that was written since, the write's.
                let mtime = mtime.map(|mtime| written.map_or(mtime, moment));
                let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
                self.at_home(NameCommand::SetTimes { inode: at, atime, mtime })
            };
            let set = match inode.file() {
                Some(home) => self.set_times_with(inode, || home.set_times(set)),
                None => set(None),
            };
            // Some homes set the times of what a symbolic link leads to, if that is there.
            set.map(drop).or_else(|error| match inode.kind() {
                FileType::Symlink => Ok(()),
                // Only the owner may set a time of his choice; who may write to a directory may set the present (utimensat(2)).
                FileType::Directory
                    if attributes.atime.is_none()
                        && self.is_no_programs(inode, attributes.mtime) =>
                {
                    let mtime = Some(SetTime::Now);
                    let _ = self.at_home(NameCommand::SetTimes { inode: at, atime: None, mtime });
                    Ok(())
                }
                _ => Err(error),
            })?;
        }
        inode.may_be_privileged();
        Ok(())
    }

    /// Whether a time of a directory is not one that a program has set.
    fn is_no_programs(&self, directory: &Inode, mtime: Option<Moment>) -> bool {
        let behind = self.write_behind.as_ref();
        mtime.zip(behind).is_some_and(|(mtime, behind)| behind.is_given(directory.node(), mtime))
    }
}

/// The status of these changed at home as it had changed before for programs.
fn note_brought(inodes: &[Arc<Inode>]) {
    let now = attr::now_exactly();
    inodes.iter().for_each(|inode| inode.note_brought(now));
}

/// A name in the parking directory is given up: by what is not made there, or was made there and leaves.
fn note_parked(behind: &WriteBehind, command: &Command, done: bool) {
    let given_up = match command {
        Command::Make { at, .. } if !done => at,
        Command::Rename { from: at, .. } | Command::Unlink { at, .. } if done => at,
        _ => return,
    };
    if given_up.parent() == NodeId::PARKING {
        behind.made_parked().remove(given_up.name());
    }
}

fn failed(error: std::io::Error) -> HomeError {
    refused(error.into())
}

/// What of the wanted attributes home did not give to what it made.
fn difference(
    wanted: &Attributes,
    status: &weir_backend::home_names::Status,
    kind: &Kind,
) -> Attributes {
    let is_link = matches!(kind, Kind::Symlink(_));
    Attributes {
        mode: wanted.mode.filter(|mode| !is_link && *mode != status.mode & 0o7777),
        uid: wanted.uid.filter(|uid| *uid != status.uid),
        gid: wanted.gid.filter(|gid| *gid != status.gid),
        atime: wanted.atime,
        mtime: wanted.mtime,
    }
}

fn set_time(moment: Moment) -> SetTime {
    SetTime::To { seconds: moment.seconds, nanoseconds: moment.nanoseconds }
}
