//! Which inode of home each node is, and descriptors of them.
//!
//! An inode is opened by its handle. An ordinary user may not do that (CAP_DAC_READ_SEARCH): then SOURCE is walked once,
//! and an inode is opened by the names that lead to it, which are kept true as recovery changes them. Where handles do not
//! last, the log says under which names nodes are, and what is there is the node (`by_name`).
//!
//! Invariants:
//! - a descriptor is of an inode on SOURCE's own file system, which has a name in SOURCE;
//! - no symbolic link is followed;
//! - at most [`OPEN_MAX`] directories are open.

mod by_name;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{FileType, OFlags, Stat, fstat};
use rustix::io::Errno;
use weir_names::tree::Kind;
use weir_names::{NodeId, Place};

use super::records::OWN_DIRECTORY;
use super::whereabouts::Whereabouts;
use crate::home_names::{HomeNames, PARKING, names_in, open_directory, read_link};
use crate::identity::{self, Found, handle_of, may_open_handles};
use crate::recovery::Recovered;

/// Directories open at once.
const OPEN_MAX: usize = 128;

/// How deep a directory may be that is opened by the names above it.
const DEPTH_MAX: usize = 10_000;

/// What a name leads to at home.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Opened with `O_PATH`.
    pub(crate) inode: OwnedFd,
    pub(crate) status: Stat,
    pub(crate) which: Which,
}

/// Which inode it is that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// One of another file system.
    Elsewhere,
    /// One that no node is known to be: found by its name, which no record gives to a node.
    Unknown,
    /// The one with this identity.
    Inode(Vec<u8>),
}

/// How inodes are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// By their handles, which this process opens if it may.
    Handles,
    /// The same as a process that may not.
    #[cfg(test)]
    Walk,
    /// By the names that the log gives them.
    Names,
}

impl Seen {
    /// Its identity, if it has one.
    pub(crate) fn identity(&self) -> Option<&[u8]> {
        match &self.which {
            Which::Inode(identity) => Some(identity),
            Which::Elsewhere | Which::Unknown => None,
        }
    }

    fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.status.st_mode)
    }

    /// What a symbolic link says is empty if home does not tell: sshfs tells nothing that could lead out of what it mounts.
    pub(crate) fn kind(&self) -> io::Result<Kind> {
        let mode = self.status.st_mode;
        Ok(match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => match read_link(self.inode.as_fd()) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
                    Kind::Symlink(Box::default())
                }
                target => Kind::Symlink(target?.into()),
            },
            file_type => {
                Kind::Special { file_type: file_type.as_raw_mode(), device: self.status.st_rdev }
            }
        })
    }

    /// Whether nothing was put into it yet.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        match FileType::from_raw_mode(self.status.st_mode) {
            FileType::RegularFile => Ok(self.status.st_size == 0),
            FileType::Directory => Ok(names_in(open_directory(self.inode.as_fd())?)?.is_empty()),
            _ => Ok(true),
        }
    }
}

/// The type that a kind has in `st_mode`.
pub(crate) fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::Special { file_type, .. } => FileType::from_raw_mode(*file_type),
    }
}

/// The identity of a node that is found by its names.
fn identity_by_name(node: NodeId) -> Vec<u8> {
    node.0.to_le_bytes().to_vec()
}

/// A name of an inode: the identity of its directory, and the name there.
type Named = (Vec<u8>, Vec<u8>);

/// Inodes of one SOURCE: see the module.
#[derive(Debug)]
pub(crate) struct Inodes<'a> {
    source: BorrowedFd<'a>,
    device: u64,
    /// Tells which files are in SOURCE.
    files: Recovered,
    home: &'a HomeNames,
    parking: Option<Rc<OwnedFd>>,
    identities: HashMap<NodeId, Vec<u8>>,
    nodes: HashMap<Vec<u8>, NodeId>,
    /// Directories, the one opened first at the front.
    open: VecDeque<(NodeId, Rc<OwnedFd>)>,
    /// By identity; `None` where handles may be opened.
    walked: Option<HashMap<Vec<u8>, Named>>,
    /// Where nodes are, if they are found by their names: then a node's identity is its number.
    whereabouts: Option<Whereabouts>,
    root: Vec<u8>,
}

impl<'a> Inodes<'a> {
    /// Of the directory `source`. Handles last on its file system, or inodes are found by name.
    pub(crate) fn new(
        source: BorrowedFd<'a>,
        home: &'a HomeNames,
        finding: Finding,
    ) -> io::Result<Inodes<'a>> {
        let root = match finding {
            Finding::Names => identity_by_name(NodeId::ROOT),
            _ => handle_of(source)?,
        };
        let mut inodes = Inodes {
            source,
            device: fstat(source)?.st_dev,
            files: Recovered::new(source, Default::default())?,
            home,
            parking: None,
            identities: HashMap::from([(NodeId::ROOT, root.clone())]),
            nodes: HashMap::from([(root.clone(), NodeId::ROOT)]),
            open: VecDeque::new(),
            walked: None,
            whereabouts: None,
            root,
        };
        match finding {
            Finding::Names => inodes.whereabouts = Some(Whereabouts::default()),
            Finding::Handles if may_open_handles(source) => {}
            _ => inodes.walk()?,
        }
        Ok(inodes)
    }

    /// A node is this inode.
    pub(crate) fn name(&mut self, node: NodeId, identity: Vec<u8>) {
        if let Some(before) = self.identities.insert(node, identity.clone()) {
            self.nodes.remove(&before);
        }
        self.nodes.insert(identity, node);
        self.open.retain(|(open, _)| *open != node);
    }

    /// A node is what was seen at a place. Its identity.
    pub(crate) fn name_seen(&mut self, node: NodeId, at: &Place, seen: &Seen) -> Option<Vec<u8>> {
        let identity = match &seen.which {
            Which::Elsewhere => return None,
            Which::Inode(identity) if self.whereabouts.is_none() => identity.clone(),
            Which::Inode(_) | Which::Unknown => self.name_at(node, at),
        };
        self.name(node, identity.clone());
        Some(identity)
    }

    /// What recovery of data finds a node by that home has.
    pub(crate) fn lasting_identity(&self, node: NodeId) -> Option<Vec<u8>> {
        match self.whereabouts {
            Some(_) => self.path_identity(node),
            None => self.identity(node).map(<[u8]>::to_vec),
        }
    }

    pub(crate) fn identity(&self, node: NodeId) -> Option<&[u8]> {
        self.identities.get(&node).map(Vec::as_slice)
    }

    pub(crate) fn node(&self, identity: &[u8]) -> Option<NodeId> {
        self.nodes.get(identity).copied()
    }

    /// Whether home has an inode, of this kind.
    pub(crate) fn is_there(&mut self, identity: &[u8], kind: &Kind) -> io::Result<bool> {
        let Some((_, status)) = self.open_identity(identity)? else { return Ok(false) };
        Ok(FileType::from_raw_mode(status.st_mode) == file_type(kind))
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// ESTALE if home does not have it; those of opening it.
    pub(crate) fn directory(&mut self, node: NodeId) -> io::Result<Rc<OwnedFd>> {
        if node == NodeId::PARKING {
            return self.parking();
        }
        if let Some((_, known)) = self.open.iter().find(|(open, _)| *open == node) {
            return Ok(Rc::clone(known));
        }
        if self.whereabouts.is_some() {
            return self.directory_by_name(node);
        }
        let identity = self.identities.get(&node).cloned().ok_or(Errno::STALE)?;
        let opened = match node {
            NodeId::ROOT => Some(self.source.try_clone_to_owned()?),
            _ => self.open_identity(&identity)?.map(|(opened, _)| opened),
        };
        let opened = Rc::new(opened.ok_or(Errno::STALE)?);
        if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        self.keep_open(node, &opened);
        Ok(opened)
    }

    fn keep_open(&mut self, node: NodeId, opened: &Rc<OwnedFd>) {
        if self.open.len() >= OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back((node, Rc::clone(opened)));
    }

    fn parking(&mut self) -> io::Result<Rc<OwnedFd>> {
        if let Some(parking) = &self.parking {
            return Ok(Rc::clone(parking));
        }
        let parking = Rc::new(self.home.parking(self.source)?);
        if self.walked.is_some() {
            // It may have been made just now.
            let own = self.home.open_place(self.source, OWN_DIRECTORY)?;
            let (own, parking) = (handle_of(own.as_fd())?, handle_of(parking.as_fd())?);
            self.insert_walked(own.clone(), (self.root.clone(), OWN_DIRECTORY.to_vec()));
            self.insert_walked(parking, (own, PARKING.as_bytes().to_vec()));
        }
        self.parking = Some(Rc::clone(&parking));
        Ok(parking)
    }

    /// The parking directory, if there is one.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn known_parking(&mut self) -> io::Result<Option<Rc<OwnedFd>>> {
        match self.home.has_parking(self.source)? {
            true => self.parking().map(Some),
            false => Ok(None),
        }
    }

    /// Opens a node. `at` is a name of it, if one is known: whether it is in SOURCE need not be found out then.
    ///
    /// # Errors
    /// ESTALE if home does not have it, or not in SOURCE; those of opening it.
    pub(crate) fn open(&mut self, node: NodeId, at: Option<&Place>) -> io::Result<OwnedFd> {
        let identity = self.identities.get(&node).cloned().ok_or(Errno::STALE)?;
        if node == NodeId::ROOT {
            return self.source.try_clone_to_owned();
        }
        if let Some(at) = at
            && let Ok(Some(seen)) = self.look(at)
            && seen.identity() == Some(&identity)
        {
            return Ok(seen.inode);
        }
        if self.whereabouts.is_some() {
            return self.open_by_name(node);
        }
        let (inode, status) = self.open_identity(&identity)?.ok_or(Errno::STALE)?;
        let is_directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
        match is_directory || self.walked.is_some() || self.files.is_inside(inode.as_fd())? {
            true => Ok(inode),
            false => Err(Errno::STALE.into()),
        }
    }

    /// What a name leads to; `None` if it is not there.
    ///
    /// # Errors
    /// Those of opening it or its directory.
    pub(crate) fn look(&mut self, at: &Place) -> io::Result<Option<Seen>> {
        let directory = self.directory(at.parent())?;
        let inode = match self.home.open_place(directory.as_fd(), at.name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let status = fstat(&inode)?;
        let which = match &self.whereabouts {
            Some(whereabouts) => self.which_by_name(whereabouts, at, inode.as_fd(), &status)?,
            // A bind mount of SOURCE's file system has the device of SOURCE: what is under it is known by its own handle.
            None if status.st_dev == self.device => Which::Inode(handle_of(inode.as_fd())?),
            None => Which::Elsewhere,
        };
        Ok(Some(Seen { inode, status, which }))
    }

    /// An inode lost a name, or got one, or both.
    pub(crate) fn moved(&mut self, node: NodeId, from: Option<&Place>, to: Option<&Place>) {
        if let Some(whereabouts) = &mut self.whereabouts {
            from.into_iter().for_each(|from| whereabouts.take(node, from));
            to.into_iter().for_each(|to| whereabouts.put(node, to));
            return;
        }
        let Some(at) = to.filter(|_| self.walked.is_some()) else { return };
        let parent = match at.parent() {
            NodeId::PARKING => self.parking().ok().and_then(|fd| handle_of(fd.as_fd()).ok()),
            parent => self.identities.get(&parent).cloned(),
        };
        if let (Some(parent), Some(identity)) = (parent, self.identities.get(&node)) {
            self.insert_walked(identity.clone(), (parent, at.name().to_vec()));
        }
    }

    /// The path of a directory in SOURCE for messages, as home has it.
    pub(crate) fn path_of(&mut self, directory: NodeId) -> Option<String> {
        if self.whereabouts.is_some() {
            let path = self.path_by_name(directory)?;
            return Some(String::from_utf8_lossy(&path).into_owned());
        }
        let opened = self.directory(directory).ok()?;
        Some(self.files.name_of(opened.as_fd()))
    }

    /// Opens an inode with `O_PATH`; `None` if home does not have it under any name.
    fn open_identity(&mut self, identity: &[u8]) -> io::Result<Option<(OwnedFd, Stat)>> {
        if self.walked.is_some() {
            return self.open_walked(identity);
        }
        let inode = match identity::open(self.source, identity, OFlags::PATH) {
            Ok(Found::File(inode)) => inode,
            Ok(Found::Gone) => return Ok(None),
            Ok(Found::NotForUs) => return Err(Errno::PERM.into()),
            // The file system does not make handles like this one.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
            Err(error) => return Err(error),
        };
        let status = fstat(&inode)?;
        if status.st_dev != self.device || status.st_nlink == 0 {
            return Ok(None);
        }
        // The kernel knows the path of every directory.
        let is_directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
        if is_directory && !self.files.is_below_source(inode.as_fd()) {
            return Ok(None);
        }
        Ok(Some((inode, status)))
    }
}

/// Opening by names, where handles may not be opened.
impl Inodes<'_> {
    fn open_walked(&self, identity: &[u8]) -> io::Result<Option<(OwnedFd, Stat)>> {
        let walked = self.walked.as_ref().expect("it was asked for");
        let (mut names, mut at) = (Vec::new(), identity);
        while at != self.root {
            let Some((parent, name)) = walked.get(at) else { return Ok(None) };
            names.push(name);
            at = parent;
            if names.len() > DEPTH_MAX {
                return Err(Errno::LOOP.into());
            }
        }
        let mut opened = self.source.try_clone_to_owned()?;
        for name in names.into_iter().rev() {
            opened = match self.home.open_place(opened.as_fd(), name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
        }
        let status = fstat(&opened)?;
        let is_same = status.st_dev == self.device && handle_of(opened.as_fd())? == identity;
        Ok(is_same.then_some((opened, status)))
    }

    fn insert_walked(&mut self, identity: Vec<u8>, named: Named) {
        if let Some(walked) = &mut self.walked {
            walked.insert(identity, named);
        }
    }

    fn walk(&mut self) -> io::Result<()> {
        self.walked = Some(HashMap::new());
        let mut pending = vec![self.root.clone()];
        while let Some(parent) = pending.pop() {
            let opened = self.open_walked(&parent)?.and_then(|(path, _)| {
                // Weir wrote nothing into a directory that this process may not read.
                Some((open_directory(path.as_fd()).ok()?, path))
            });
            let Some((directory, path)) = opened else { continue };
            for name in names_in(directory)? {
                let Ok(inode) = self.home.open_place(path.as_fd(), &name) else { continue };
                let status = fstat(&inode)?;
                if status.st_dev != self.device {
                    continue;
                }
                let identity = handle_of(inode.as_fd())?;
                if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
                    pending.push(identity.clone());
                }
                self.insert_walked(identity, (parent.clone(), name));
            }
        }
        Ok(())
    }
}
