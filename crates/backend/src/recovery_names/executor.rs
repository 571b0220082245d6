//! What the tree wants done, done at home by a recovery.
//!
//! What is made is made for its owner, with permissions for nobody else; then it gets its attributes, in an order in which
//! none undoes another: owner, extended attributes, permissions, times. A directory gets permissions and times at the very
//! end ([`Executor::finish_directories`]): its entries change its times, and need permissions.
//!
//! Where nodes are found by their names, each change of names is a step, which the caller notes as begun before it has it
//! executed. How it ended is handed to the caller as well; if home does not say it, home is asked.
//!
//! Invariants:
//! - nothing is renamed over or removed unless it is the inode that is meant;
//! - the identity of what is made, or the step that made it, is handed to the caller before the tree knows that it is made
//!   ([`Executor::take_unnoted`]).

mod attributes;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use weir_log::{Lsn, Stage};
use weir_names::command::{Creator, Entry, NameCommand};
use weir_names::tree::{
    Adoption, Answer, AtHome, Attributes, Command, HomeError, Kind, Step, Tree, Xattrs,
};
use weir_names::{NodeId, Place};

use super::inodes::{Inodes, Seen, Which};
use super::note::Noted;
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
    /// The next number for what is found at home and no node of the log.
    pub(crate) next_own: u64,
    unnoted: Vec<Noted>,
    /// Home did not say what became of a step, and cannot be asked.
    unanswered: Option<io::Error>,
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
            unanswered: None,
            directories: BTreeMap::new(),
            foreign: HashSet::new(),
            gone: BTreeSet::new(),
            made: HashSet::new(),
            counts: Counts::default(),
        }
    }

    /// Inodes that are nodes of the log since this was asked last, and steps that ended. Nothing may go into these nodes before
    /// that is durable: before that, the tree is not told that positions up to [`Executor::end`] are, or nothing more is executed.
    pub(crate) fn take_unnoted(&mut self) -> Vec<Noted> {
        std::mem::take(&mut self.unnoted)
    }

    /// Is to be noted, too.
    pub(crate) fn add_unnoted(&mut self, lines: impl IntoIterator<Item = Noted>) {
        self.unnoted.extend(lines);
    }

    /// Why it is not known what became of a step, if that is so: then nothing more may be done.
    pub(crate) fn take_unanswered(&mut self) -> Option<io::Error> {
        self.unanswered.take()
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
        let is_by_name = self.inodes.whereabouts().is_some();
        let step = if is_by_name { Step::of(command) } else { None };
        let result = self.execute_once(tree, command);
        let Some(step) = step.filter(|_| self.unanswered.is_none()) else { return result };
        let stage = match (&result, command) {
            (Ok(_), _) => Stage::Done,
            // It may be there: then it is found, or what is there is somebody else's.
            (Err(_), Command::Make { at, .. }) if self.inodes.has(at).ok() != Some(Some(false)) => {
                return result;
            }
            (Err(_), _) => Stage::Undone,
        };
        self.unnoted.push(Noted::Step(step, stage));
        result
    }

    fn execute_once(&mut self, tree: &mut Tree, command: &Command) -> Result<Answer, HomeError> {
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

    fn at_home(&self, command: HomeCommand<'_>) -> io::Result<Option<OwnedFd>> {
        self.home.execute(command)
    }

    pub(crate) fn next_lsn(&mut self) -> Lsn {
        let lsn = self.end;
        self.end = Lsn(lsn.0 + LSN_STEP);
        lsn
    }

    /// A node is what was seen at a place from now on. The position of the note of that; `None` if it is on another file system.
    fn name(&mut self, node: NodeId, at: &Place, seen: &Seen) -> Option<Lsn> {
        let identity = self.inodes.name_seen(node, at, seen)?;
        if self.inodes.whereabouts().is_none() {
            self.unnoted.push(Noted::Inode(node, identity));
        }
        Some(self.next_lsn())
    }

    /// The same for a node that was made before.
    fn adopt(&mut self, tree: &mut Tree, node: NodeId, at: &Place, seen: &Seen) -> bool {
        let Some(named) = self.name(node, at, seen) else { return false };
        if self.inodes.whereabouts().is_some() {
            let to = (at.parent() != NodeId::PARKING).then(|| at.clone());
            self.unnoted.push(Noted::Step(Step { node, from: None, to }, Stage::Done));
        }
        tree.adopt(node, named);
        true
    }

    /// Has home change names. Where that is a step, and home did not answer well, home is asked whether it did it.
    fn change_names(
        &mut self,
        command: HomeCommand<'_>,
        from: Option<&Place>,
        to: Option<&Place>,
    ) -> Result<(), HomeError> {
        let Err(error) = self.at_home(command) else { return Ok(()) };
        let is_refused = error.raw_os_error() == Some(libc::EEXIST);
        let Some(asked) =
            from.or(to).filter(|_| !is_refused && self.inodes.whereabouts().is_some())
        else {
            return Err(failed(error));
        };
        match self.inodes.has(asked) {
            Ok(is_there) if is_there == Some(from.is_none()) => Ok(()),
            Ok(_) => Err(failed(error)),
            Err(unanswered) => {
                self.unanswered = Some(unanswered);
                Err(failed(error))
            }
        }
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
        let known = seen.identity().and_then(|identity| self.inodes.node(identity));
        // What SOURCE is mounted on within itself is not ours to change.
        let known = known.filter(|&node| node != NodeId::ROOT && tree.kind(node).is_some());
        if let Some(known) = known {
            if self.foreign.contains(&known) {
                tree.introduce_foreign(known, kind);
            }
            return Ok(known);
        }
        let adoption = match seen.which != Which::Elsewhere && seen.is_empty().map_err(failed)? {
            true => tree.adoptable(at, &kind),
            false => Adoption::Foreign,
        };
        if let Adoption::Node(node) = adoption
            && self.adopt(tree, node, at, seen)
        {
            return Ok(node);
        }
        let node = NodeId(self.next_own);
        self.next_own += 1;
        match adoption {
            Adoption::Surplus => tree.introduce_surplus(node, kind),
            _ => {
                tree.introduce_foreign(node, kind);
                self.foreign.insert(node);
            }
        }
        let is_root = |identity| self.inodes.node(identity) == Some(NodeId::ROOT);
        if !seen.identity().is_some_and(is_root) {
            self.inodes.name_seen(node, at, seen);
        }
        Ok(node)
    }

    /// What is parked under the number of a node is that node, if `tree` has it: its identity is known, or it is adopted.
    /// Says whether it is.
    pub(crate) fn recognize_parked(
        &mut self,
        tree: &mut Tree,
        node: NodeId,
        at: &Place,
        seen: &Seen,
    ) -> io::Result<bool> {
        if tree.is_bound(node) {
            return Ok(self.is(node, seen));
        }
        let is_ours = seen.which != Which::Elsewhere
            && seen.kind().map(|seen| tree.kind(node).is_some_and(|kind| kind.may_be(&seen)))?
            && seen.is_empty()?;
        Ok(is_ours && self.adopt(tree, node, at, seen))
    }

    /// Whether it is this node that was seen.
    fn is(&self, node: NodeId, seen: &Seen) -> bool {
        seen.identity().is_some() && seen.identity() == self.inodes.identity(node)
    }

    /// A name still leads to this node.
    fn check_is_at(&mut self, node: NodeId, at: &Place) -> Result<(), HomeError> {
        let seen = self.inodes.look(at).map_err(failed)?.ok_or(HomeError::Changed)?;
        match self.is(node, &seen) {
            true => Ok(()),
            false => Err(HomeError::Changed),
        }
    }

    fn link(&mut self, node: NodeId, known: Option<&Place>, at: &Place) -> Result<(), HomeError> {
        let inode = self.inodes.open(node, known).map_err(gone)?;
        let directory = self.inodes.directory(at.parent()).map_err(failed)?;
        let command = NameCommand::Link { inode: inode.as_fd(), at: entry(&directory, at) };
        self.change_names(command, None, Some(at))?;
        self.inodes.moved(node, None, Some(at));
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
        let command = NameCommand::Rename { from: old, to: new, flags: 0 };
        self.change_names(command, Some(from), Some(to))?;
        self.inodes.moved(node, Some(from), Some(to));
        Ok(())
    }

    fn exchange(
        &mut self,
        one: &(NodeId, Place),
        other: &(NodeId, Place),
    ) -> Result<(), HomeError> {
        if self.inodes.whereabouts().is_some() {
            // If it were cut, nobody could tell whether it was done: both names are there before and after.
            return Err(HomeError::NoExchange);
        }
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
        self.inodes.moved(one.0, None, Some(&other.1));
        self.inodes.moved(other.0, None, Some(&one.1));
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
        self.change_names(command(entry(&directory, at)), Some(at), None)?;
        self.inodes.moved(node, Some(at), None);
        Ok(())
    }
}

/// Inodes.
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
            let named = self.name(node, at, &seen).ok_or(Errno::XDEV)?;
            Ok((seen.inode, named))
        });
        let (inode, named) = seen.map_err(|error| {
            // Without its identity the next recovery would not know it.
            let _ = self.at_home(match kind {
                Kind::Directory => NameCommand::RemoveDirectory { at: place },
                _ => NameCommand::Unlink { at: place },
            });
            HomeError::Refused(errno(&error))
        })?;
        self.inodes.moved(node, None, Some(at));
        self.remove_inherited(inode.as_fd(), kind);
        if let Err(error) = self.set(node, kind, inode.as_fd(), attributes, xattrs) {
            tracing::debug!("attributes of a new inode were not set at once: {error}");
            self.set_later(tree, node, attributes, xattrs);
        }
        Ok(named)
    }
}

fn entry<'b>(directory: &'b OwnedFd, at: &'b Place) -> Entry<'b, BorrowedFd<'b>> {
    Entry { directory: directory.as_fd(), name: OsStr::from_bytes(at.name()) }
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
