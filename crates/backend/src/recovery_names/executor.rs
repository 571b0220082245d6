//! What the tree wants done, done at home by a recovery.
//!
//! What is made is made for its owner, with permissions for nobody else; then it gets its attributes, in an order in which
//! none undoes another: owner, extended attributes, permissions, times. A directory gets permissions and times at the very
//! end ([`Executor::finish_directories`]): its entries change its times, and need permissions.
//!
//! Invariants:
//! - nothing is renamed over or removed unless it is the inode that is meant;
//! - the identity of what is made is handed to the caller before the tree knows that it is made
//!   ([`Executor::take_unnoted`]).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use weir_log::Lsn;
use weir_names::command::{Creator, Entry, NameCommand, SetTime};
use weir_names::tree::{
    Adoption, Answer, AtHome, Attributes, Change, Command, HomeError, Kind, Moment, Tree, Xattrs,
};
use weir_names::{NodeId, Place};

use super::inodes::{Inodes, Seen};
use super::note::Made;
use super::records::OWN_FIRST;
use crate::home_names::{HomeCommand, HomeNames};

/// ACLs that a new inode gets from its directory (acl(5)).
const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// Distance of two positions that a recovery gives to what it does.
const LSN_STEP: u64 = 8;

/// What a recovery did at home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files, directories and others that were made.
    pub made: usize,
    /// Names that were removed.
    pub removed: usize,
    /// Names that were given to what home had: by a rename, an exchange or a link.
    pub renamed: usize,
    /// Files, directories and others whose attributes were set.
    pub set: usize,
}

/// Executes commands: see the module.
#[derive(Debug)]
pub(crate) struct Executor<'a> {
    home: &'a HomeNames,
    pub(crate) inodes: Inodes<'a>,
    /// The next position to be given.
    pub(crate) end: Lsn,
    next_own: u64,
    unnoted: Vec<Made>,
    /// Permissions and times of directories, to be set at the end.
    directories: BTreeMap<NodeId, Attributes>,
    /// What somebody else put under names that the log speaks of.
    foreign: HashSet<NodeId>,
    /// What was to get attributes, and is gone.
    gone: BTreeSet<NodeId>,
    /// Nodes that the log makes: what home has of them has no ACLs but those of the log.
    pub(crate) made: HashSet<NodeId>,
    pub(crate) counts: Counts,
}

impl<'a> Executor<'a> {
    /// Positions from `end` on are given to what is done.
    pub(crate) fn new(home: &'a HomeNames, inodes: Inodes<'a>, end: Lsn) -> Executor<'a> {
        Executor {
            home,
            inodes,
            end,
            next_own: OWN_FIRST,
            unnoted: Vec::new(),
            directories: BTreeMap::new(),
            foreign: HashSet::new(),
            gone: BTreeSet::new(),
            made: HashSet::new(),
            counts: Counts::default(),
        }
    }

    /// Inodes that are nodes of the log since this was asked last. Nothing may go into them before their identities are
    /// durable: before that, the tree is not told that positions up to [`Executor::end`] are.
    pub(crate) fn take_unnoted(&mut self) -> Vec<Made> {
        std::mem::take(&mut self.unnoted)
    }

    /// What was to get attributes and is gone, since this was asked last.
    pub(crate) fn take_gone(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.gone)
    }

    /// Whether home does not have a node in SOURCE. `known` is a name of it, if one is known.
    pub(crate) fn is_gone(&mut self, node: NodeId, known: Option<&Place>) -> bool {
        matches!(self.inodes.open(node, known).map_err(gone), Err(HomeError::Gone))
    }

    /// Does one thing.
    pub(crate) fn execute(
        &mut self,
        tree: &mut Tree,
        command: &Command,
    ) -> Result<Answer, HomeError> {
        match command {
            Command::Look { at } => return self.look(tree, at).map(Answer::Found),
            Command::Make { node, at, kind, attributes, xattrs } => {
                let named = self.make(tree, *node, at, kind, attributes, xattrs)?;
                self.counts.made += 1;
                return Ok(Answer::Made(named));
            }
            Command::Link { node, at } => {
                let known = tree.home_place(*node);
                self.link(*node, known.as_ref(), at)?;
                self.counts.renamed += 1;
            }
            Command::Rename { node, from, to, replacing } => {
                self.rename(*node, from, to, *replacing)?;
                self.counts.renamed += 1;
            }
            Command::Exchange { one, other } => {
                self.exchange(one, other)?;
                self.counts.renamed += 2;
            }
            Command::Unlink { node, at } => {
                self.remove(*node, at, |at| NameCommand::Unlink { at })?;
                self.counts.removed += 1;
            }
            Command::RemoveDirectory { node, at } => {
                self.remove(*node, at, |at| NameCommand::RemoveDirectory { at })?;
                self.counts.removed += 1;
            }
            Command::Set { node, attributes, xattrs } => {
                let known = tree.home_place(*node);
                let kind = tree.kind(*node).expect("commands are on nodes that are known");
                let inode = self.inodes.open(*node, known.as_ref()).map_err(gone);
                let inode = inode.inspect_err(|error| {
                    if *error == HomeError::Gone {
                        self.gone.insert(*node);
                    }
                })?;
                if self.made.contains(node) {
                    // Its maker may have been cut before it did that.
                    self.remove_inherited(inode.as_fd(), kind);
                }
                self.set(*node, kind, inode.as_fd(), attributes, xattrs).map_err(failed)?;
                self.counts.set += 1;
            }
        }
        Ok(Answer::Done)
    }

    /// Sets permissions and times of directories. To be called when nothing is to be done in them any more. What home
    /// refused.
    pub(crate) fn finish_directories(&mut self) -> Vec<(NodeId, HomeError)> {
        let directories = std::mem::take(&mut self.directories);
        let mut refused = Vec::new();
        // Those that were made later, and may be below the others, first.
        for (node, attributes) in directories.into_iter().rev() {
            let set = self.inodes.open(node, None).map_err(gone).and_then(|inode| {
                self.set_mode_and_times(inode.as_fd(), &attributes).map_err(failed)
            });
            match set {
                // Removed meanwhile: nobody will see them.
                Ok(()) | Err(HomeError::Gone) => {}
                Err(error) => refused.push((node, error)),
            }
        }
        refused
    }

    fn at_home(&self, command: HomeCommand<'_>) -> io::Result<Option<OwnedFd>> {
        self.home.execute(command)
    }

    pub(crate) fn next_lsn(&mut self) -> Lsn {
        let lsn = self.end;
        self.end = Lsn(lsn.0 + LSN_STEP);
        lsn
    }

    /// A node is this inode from now on. The position of the note of that.
    fn name(&mut self, node: NodeId, identity: Vec<u8>) -> Lsn {
        self.unnoted.push((node, identity.clone()));
        self.inodes.name(node, identity);
        self.next_lsn()
    }
}

/// Names.
impl Executor<'_> {
    pub(crate) fn look(&mut self, tree: &mut Tree, at: &Place) -> Result<AtHome, HomeError> {
        let seen = match self.inodes.look(at) {
            // A directory that is not there has no names.
            Ok(None) => return Ok(AtHome::Nothing),
            Ok(Some(seen)) => seen,
            Err(error) => match failed(error) {
                HomeError::Changed => return Ok(AtHome::Nothing),
                error => return Err(error),
            },
        };
        let kind = seen.kind().map_err(failed)?;
        Ok(AtHome::Node(self.recognize(tree, at, &seen, kind)?))
    }

    /// Which node it is that home has at a place.
    fn recognize(
        &mut self,
        tree: &mut Tree,
        at: &Place,
        seen: &Seen,
        kind: Kind,
    ) -> Result<NodeId, HomeError> {
        let known = seen.identity.as_ref().and_then(|identity| self.inodes.node(identity));
        // What SOURCE is mounted on within itself is not ours to change.
        let known = known.filter(|&node| node != NodeId::ROOT && tree.kind(node).is_some());
        if let Some(known) = known {
            if self.foreign.contains(&known) {
                tree.introduce_foreign(known, kind);
            }
            return Ok(known);
        }
        let adoption = match &seen.identity {
            Some(_) if seen.is_empty().map_err(failed)? => tree.adoptable(at, &kind),
            _ => Adoption::Foreign,
        };
        if let (Adoption::Node(node), Some(identity)) = (adoption, &seen.identity) {
            let named = self.name(node, identity.clone());
            tree.adopt(node, named);
            return Ok(node);
        }
        let node = NodeId(self.next_own);
        self.next_own += 1;
        match adoption {
            Adoption::Surplus => tree.introduce_surplus(node, kind, at),
            _ => {
                tree.introduce_foreign(node, kind);
                self.foreign.insert(node);
            }
        }
        if let Some(identity) = seen.identity.clone()
            && self.inodes.node(&identity) != Some(NodeId::ROOT)
        {
            self.inodes.name(node, identity);
        }
        Ok(node)
    }

    /// What is parked under the number of a node is that node, if `tree` has it: its identity is known, or it is adopted.
    /// Says whether it is.
    pub(crate) fn recognize_parked(
        &mut self,
        tree: &mut Tree,
        node: NodeId,
        seen: &Seen,
    ) -> io::Result<bool> {
        let Some(identity) = &seen.identity else { return Ok(false) };
        if tree.is_bound(node) {
            return Ok(self.inodes.identity(node) == Some(identity));
        }
        let is_ours = tree.kind(node) == Some(&seen.kind()?) && seen.is_empty()?;
        if is_ours {
            let named = self.name(node, identity.clone());
            tree.adopt(node, named);
        }
        Ok(is_ours)
    }

    /// A name still leads to this node.
    fn check_is_at(&mut self, node: NodeId, at: &Place) -> Result<(), HomeError> {
        let seen = self.inodes.look(at).map_err(failed)?.ok_or(HomeError::Changed)?;
        match seen.identity.as_deref() == self.inodes.identity(node) && seen.identity.is_some() {
            true => Ok(()),
            false => Err(HomeError::Changed),
        }
    }

    fn link(&mut self, node: NodeId, known: Option<&Place>, at: &Place) -> Result<(), HomeError> {
        let inode = self.inodes.open(node, known).map_err(gone)?;
        let directory = self.inodes.directory(at.parent()).map_err(failed)?;
        let command = NameCommand::Link { inode: inode.as_fd(), at: entry(&directory, at) };
        self.at_home(command).map_err(failed)?;
        self.inodes.moved(node, at);
        Ok(())
    }

    fn rename(
        &mut self,
        node: NodeId,
        from: &Place,
        to: &Place,
        replacing: Option<NodeId>,
    ) -> Result<(), HomeError> {
        self.check_is_at(node, from)?;
        match replacing {
            Some(replaced) => self.check_is_at(replaced, to)?,
            None if self.inodes.look(to).map_err(failed)?.is_some() => {
                return Err(HomeError::Changed);
            }
            None => {}
        }
        let source = self.inodes.directory(from.parent()).map_err(failed)?;
        let destination = self.inodes.directory(to.parent()).map_err(failed)?;
        let (old, new) = (entry(&source, from), entry(&destination, to));
        // Nobody else has SOURCE while it is recovered; not every home knows RENAME_NOREPLACE.
        self.at_home(NameCommand::Rename { from: old, to: new, flags: 0 }).map_err(failed)?;
        self.inodes.moved(node, to);
        Ok(())
    }

    fn exchange(
        &mut self,
        one: &(NodeId, Place),
        other: &(NodeId, Place),
    ) -> Result<(), HomeError> {
        self.check_is_at(one.0, &one.1)?;
        self.check_is_at(other.0, &other.1)?;
        let first = self.inodes.directory(one.1.parent()).map_err(failed)?;
        let second = self.inodes.directory(other.1.parent()).map_err(failed)?;
        let (from, to) = (entry(&first, &one.1), entry(&second, &other.1));
        let flags = libc::RENAME_EXCHANGE;
        self.at_home(NameCommand::Rename { from, to, flags }).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EINVAL | libc::ENOSYS) => HomeError::NoExchange,
                _ => failed(error),
            }
        })?;
        self.inodes.moved(one.0, &other.1);
        self.inodes.moved(other.0, &one.1);
        Ok(())
    }

    fn remove(
        &mut self,
        node: NodeId,
        at: &Place,
        command: impl for<'b> FnOnce(Entry<'b, BorrowedFd<'b>>) -> HomeCommand<'b>,
    ) -> Result<(), HomeError> {
        self.check_is_at(node, at)?;
        let directory = self.inodes.directory(at.parent()).map_err(failed)?;
        self.at_home(command(entry(&directory, at))).map_err(failed)?;
        Ok(())
    }
}

/// Inodes and their attributes.
impl Executor<'_> {
    /// Makes a node. The position of the note of its identity.
    fn make(
        &mut self,
        tree: &mut Tree,
        node: NodeId,
        at: &Place,
        kind: &Kind,
        attributes: &Attributes,
        xattrs: &Xattrs,
    ) -> Result<Lsn, HomeError> {
        let directory = self.inodes.directory(at.parent()).map_err(failed)?;
        let place = entry(&directory, at);
        let creator = Creator {
            uid: attributes.uid.unwrap_or_else(|| geteuid().as_raw()),
            gid: attributes.gid.unwrap_or_else(|| getegid().as_raw()),
            umask: 0,
        };
        let made = self.at_home(match kind {
            Kind::File => NameCommand::MakeFile { at: place, mode: 0o600, creator },
            Kind::Directory => NameCommand::MakeDirectory { at: place, mode: 0o700, creator },
            Kind::Symlink(target) => {
                let target = OsStr::from_bytes(target);
                NameCommand::MakeSymlink { at: place, target, creator }
            }
            Kind::Special { file_type, device } => {
                let (mode, device) = (file_type | 0o600, *device);
                NameCommand::MakeNode { at: place, mode, device, creator }
            }
        });
        drop(made.map_err(failed)?);
        let seen = self.inodes.look(at).and_then(|seen| {
            let seen = seen.ok_or(Errno::NOENT)?;
            let identity = seen.identity.ok_or(Errno::XDEV)?;
            Ok((seen.inode, identity))
        });
        let (inode, identity) = seen.map_err(|error| {
            // Without its identity the next recovery would not know it.
            let _ = self.at_home(match kind {
                Kind::Directory => NameCommand::RemoveDirectory { at: place },
                _ => NameCommand::Unlink { at: place },
            });
            HomeError::Refused(errno(&error))
        })?;
        let named = self.name(node, identity);
        self.inodes.moved(node, at);
        self.remove_inherited(inode.as_fd(), kind);
        if let Err(error) = self.set(node, kind, inode.as_fd(), attributes, xattrs) {
            tracing::debug!("attributes of a new inode were not set at once: {error}");
            self.set_later(tree, node, attributes, xattrs);
        }
        Ok(named)
    }

    /// What was made has not all its attributes: that is tried again by itself, and reported if home refuses it.
    fn set_later(
        &mut self,
        tree: &mut Tree,
        node: NodeId,
        attributes: &Attributes,
        xattrs: &Xattrs,
    ) {
        let changes = xattrs.iter().map(|(name, value)| {
            let (name, value) = (name.clone(), value.clone());
            Change::SetXattr { node, name, value }
        });
        let attributes = Change::Set { node, attributes: *attributes };
        for change in changes.chain([attributes]).collect::<Vec<_>>() {
            let lsn = self.next_lsn();
            tree.apply(change, lsn);
        }
    }

    /// Removes the ACLs that a new inode got from its directory: the log says which it has. Permissions are set after that.
    fn remove_inherited(&self, inode: BorrowedFd<'_>, kind: &Kind) {
        let names: &[&str] = match kind {
            // It has none of its own.
            Kind::Symlink(_) => &[],
            Kind::Directory => &[ACCESS_ACL, DEFAULT_ACL],
            _ => &[ACCESS_ACL],
        };
        for name in names.iter().map(OsStr::new) {
            // Most have none.
            let _ = self.at_home(NameCommand::RemoveXattr { inode, name });
        }
    }

    fn set(
        &mut self,
        node: NodeId,
        kind: &Kind,
        inode: BorrowedFd<'_>,
        attributes: &Attributes,
        xattrs: &Xattrs,
    ) -> io::Result<()> {
        let status = fstat(inode)?;
        // Not every home changes the owner of everything.
        let uid = attributes.uid.filter(|uid| *uid != status.st_uid);
        let gid = attributes.gid.filter(|gid| *gid != status.st_gid);
        if uid.is_some() || gid.is_some() {
            self.at_home(NameCommand::SetOwner { inode, uid, gid })?;
        }
        for (name, value) in xattrs {
            let name = OsStr::from_bytes(name);
            let set = self.at_home(match value {
                Some(value) => NameCommand::SetXattr { inode, name, value, flags: 0 },
                None => NameCommand::RemoveXattr { inode, name },
            });
            match set {
                Err(error) if value.is_none() && error.raw_os_error() == Some(libc::ENODATA) => {}
                set => drop(set?),
            }
        }
        let is_link = matches!(kind, Kind::Symlink(_));
        let mode = attributes.mode.filter(|_| !is_link);
        let rest = Attributes { mode, uid: None, gid: None, ..*attributes };
        if kind.is_directory() {
            self.directories.entry(node).or_default().overlay(&rest);
            return Ok(());
        }
        match self.set_mode_and_times(inode, &rest) {
            // Some homes set the times of what a symbolic link leads to, if that is there.
            Err(_) if is_link => Ok(()),
            set => set,
        }
    }

    fn set_mode_and_times(&self, inode: BorrowedFd<'_>, attributes: &Attributes) -> io::Result<()> {
        if let Some(mode) = attributes.mode {
            self.at_home(NameCommand::SetMode { inode, mode: mode & 0o7777 })?;
        }
        let (atime, mtime) = (attributes.atime.map(set_time), attributes.mtime.map(set_time));
        if atime.is_some() || mtime.is_some() {
            self.at_home(NameCommand::SetTimes { inode, atime, mtime })?;
        }
        Ok(())
    }
}

fn entry<'b>(directory: &'b OwnedFd, at: &'b Place) -> Entry<'b, BorrowedFd<'b>> {
    Entry { directory: directory.as_fd(), name: OsStr::from_bytes(at.name()) }
}

fn set_time(moment: Moment) -> SetTime {
    SetTime::To { seconds: moment.seconds, nanoseconds: moment.nanoseconds }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EINVAL)
}

/// Why home did not do what concerns a name.
fn failed(error: io::Error) -> HomeError {
    match errno(&error) {
        libc::EEXIST | libc::ENOENT | libc::ENOTDIR | libc::EISDIR | libc::ESTALE => {
            HomeError::Changed
        }
        libc::ENOTEMPTY => HomeError::NotEmpty,
        code => HomeError::Refused(code),
    }
}

/// Why home did not do what concerns a node.
fn gone(error: io::Error) -> HomeError {
    match failed(error) {
        HomeError::Changed => HomeError::Gone,
        error => error,
    }
}
