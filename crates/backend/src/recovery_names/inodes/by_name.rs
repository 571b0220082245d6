//! Inodes by the names that the log gives to nodes, where file handles do not last.
//!
//! What home has under a name that leads to a node is that node, if it is of its type and on SOURCE's own mount. The names are
//! kept true as recovery changes them. A node's identity is its number here; recovery of data gets its path.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{FileType, Stat, fstat};
use rustix::io::Errno;
use weir_log::Stage;
use weir_names::tree::{Kind, Step};
use weir_names::{NodeId, Place};

use super::super::whereabouts::{Pending, Whereabouts};
use super::{DEPTH_MAX, Inodes, Which, identity_by_name};
use crate::home_names::PARKING;
use crate::identity;
use crate::recovery_names::records::OWN_DIRECTORY;

/// Whether home has nothing there, for an error of looking.
fn is_nothing(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(
        code,
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ESTALE | libc::ENAMETOOLONG)
    )
}

/// Whether this process may not look.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

impl Inodes<'_> {
    /// Where nodes are, if they are found by their names.
    pub(crate) fn whereabouts(&mut self) -> Option<&mut Whereabouts> {
        self.whereabouts.as_mut()
    }

    fn known(&self) -> &Whereabouts {
        self.whereabouts.as_ref().expect("nodes are found by their names")
    }

    fn known_mut(&mut self) -> &mut Whereabouts {
        self.whereabouts.as_mut().expect("nodes are found by their names")
    }

    /// A node has a name. Its identity.
    pub(super) fn name_at(&mut self, node: NodeId, at: &Place) -> Vec<u8> {
        self.known_mut().put(node, at);
        identity_by_name(node)
    }

    /// A node has the names that are known, which may be none.
    pub(crate) fn introduce_by_name(&mut self, node: NodeId) {
        self.name(node, identity_by_name(node));
    }

    pub(super) fn which_by_name(
        &self,
        whereabouts: &Whereabouts,
        at: &Place,
        inode: BorrowedFd<'_>,
        status: &Stat,
    ) -> io::Result<Which> {
        if !self.home.is_here(inode)? {
            return Ok(Which::Elsewhere);
        }
        let file_type = FileType::from_raw_mode(status.st_mode);
        let is_of_type =
            |node: &NodeId| whereabouts.file_type(*node).is_none_or(|known| known == file_type);
        let node = whereabouts.node_at(at).filter(is_of_type);
        Ok(node.map_or(Which::Unknown, |node| Which::Inode(identity_by_name(node))))
    }

    /// Opens a directory, and those above it.
    ///
    /// # Errors
    /// ESTALE if it is not where it is known to be; those of opening it.
    pub(super) fn directory_by_name(&mut self, node: NodeId) -> io::Result<Rc<OwnedFd>> {
        let (mut below, mut at) = (Vec::new(), node);
        let mut opened = loop {
            if let Some((_, known)) = self.open.iter().find(|(open, _)| *open == at) {
                break Rc::clone(known);
            }
            match at {
                NodeId::ROOT => break Rc::new(self.source.try_clone_to_owned()?),
                NodeId::PARKING => break self.parking()?,
                _ => {}
            }
            let place = self.known().places(at).next().cloned().ok_or(Errno::STALE)?;
            let above = place.parent();
            below.push((at, place));
            if below.len() > DEPTH_MAX {
                return Err(Errno::LOOP.into());
            }
            at = above;
        };
        for (node, place) in below.into_iter().rev() {
            let inode = match self.home.open_place(opened.as_fd(), place.name()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Errno::STALE.into());
                }
                inode => inode?,
            };
            if !self.home.is_here(inode.as_fd())? {
                return Err(Errno::STALE.into());
            }
            if FileType::from_raw_mode(fstat(&inode)?.st_mode) != FileType::Directory {
                return Err(Errno::NOTDIR.into());
            }
            opened = Rc::new(inode);
            self.keep_open(node, &opened);
        }
        Ok(opened)
    }

    /// Opens a node under any of its names.
    ///
    /// # Errors
    /// ESTALE if home does not have it; those of looking there.
    pub(super) fn open_by_name(&mut self, node: NodeId) -> io::Result<OwnedFd> {
        let places: Vec<Place> = self.known().places(node).cloned().collect();
        let wanted = identity_by_name(node);
        let mut failed = io::Error::from(Errno::STALE);
        for place in places {
            match self.look(&place) {
                Ok(Some(seen)) if seen.identity() == Some(&wanted) => return Ok(seen.inode),
                Err(error) if !is_nothing(&error) => failed = error,
                _ => {}
            }
        }
        Err(failed)
    }

    /// Whether home has anything under a name; `None` if this process may not look.
    ///
    /// # Errors
    /// Those of looking, if home does not answer.
    pub(crate) fn has(&mut self, at: &Place) -> io::Result<Option<bool>> {
        match self.look(at) {
            Ok(seen) => Ok(Some(seen.is_some())),
            Err(error) if is_nothing(&error) => Ok(Some(false)),
            Err(error) if is_closed(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets names that home does not have: of nodes that the log makes, which are made again then, and of those of which it
    /// is not known what they are.
    ///
    /// # Errors
    /// Those of looking, if home does not answer.
    pub(crate) fn check_names(&mut self, made: impl Fn(NodeId) -> bool) -> io::Result<()> {
        let known = self.known();
        let is_open = |node: &NodeId| made(*node) || known.file_type(*node).is_none();
        let nodes = known.nodes().filter(is_open).collect::<Vec<_>>();
        for node in nodes {
            for at in self.known().places(node).cloned().collect::<Vec<_>>() {
                match self.look(&at) {
                    Ok(Some(seen)) if seen.identity() == Some(&identity_by_name(node)) => {
                        self.known_mut().is_of_type(node, seen.file_type());
                    }
                    Ok(_) => self.known_mut().take(node, &at),
                    Err(error) if is_nothing(&error) => self.known_mut().take(node, &at),
                    Err(error) if is_closed(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Paths.
impl Inodes<'_> {
    /// The path of a node in SOURCE, as home has it.
    pub(super) fn path_by_name(&self, node: NodeId) -> Option<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), node);
        while at != NodeId::ROOT {
            if at == NodeId::PARKING {
                names.extend([PARKING.as_bytes(), OWN_DIRECTORY]);
                break;
            }
            let place = self.known().places(at).next()?;
            names.push(place.name());
            at = place.parent();
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    pub(super) fn path_identity(&self, node: NodeId) -> Option<Vec<u8>> {
        self.path_by_name(node).map(|path| identity::of_path(&path))
    }
}

/// Steps that are only begun.
impl Inodes<'_> {
    /// Asks home which of the pending steps it did. What it says of each. A step that was to make its node did so if what is
    /// there is as the log makes the node (`made`), and empty; if it is not, nothing is said.
    ///
    /// # Errors
    /// Those of looking, if home does not answer.
    pub(crate) fn settle_steps(
        &mut self,
        made: &HashMap<NodeId, &Kind>,
    ) -> io::Result<Vec<(Step, Stage)>> {
        let pending = self.known_mut().take_pending();
        let mut of_node: HashMap<NodeId, Vec<usize>> = HashMap::new();
        for (nth, pending) in pending.iter().enumerate() {
            of_node.entry(pending.step.node).or_default().push(nth);
        }
        let mut settled = Vec::new();
        // A step that is in `begun` is settled, or waits for what is above its names.
        let mut begun: HashSet<usize> = HashSet::new();
        for first in 0..pending.len() {
            let mut waiting = Vec::from_iter(begun.insert(first).then_some(first));
            while let Some(&nth) = waiting.last() {
                let step = &pending[nth].step;
                let is_open = |nth: &&usize| !begun.contains(*nth);
                let above = self.above(step);
                let next = above.iter().filter_map(|node| of_node.get(node)).flatten();
                if let Some(&next) = next.filter(|&&of| of != nth).find(is_open) {
                    begun.insert(next);
                    waiting.push(next);
                    continue;
                }
                waiting.pop();
                if let Some(stage) = self.settle(&pending[nth], made)? {
                    settled.push((step.clone(), stage));
                }
            }
        }
        // Some may have been opened where they are not.
        self.open.clear();
        Ok(settled)
    }

    /// The directories above the names of a step, as far as it is known.
    fn above(&self, step: &Step) -> HashSet<NodeId> {
        let mut above = HashSet::new();
        for name in step.from.iter().chain(&step.to) {
            let mut at = name.parent();
            while at != NodeId::ROOT && above.insert(at) {
                let Some(place) = self.known().places(at).next() else { break };
                at = place.parent();
            }
        }
        above
    }

    /// Whether home has something like this under a name, into which nothing was put.
    fn is_as_made(&mut self, at: &Place, kind: &Kind) -> io::Result<bool> {
        let Some(seen) = self.look(at)? else { return Ok(false) };
        let is_empty = match seen.is_empty() {
            Err(error) if is_closed(&error) => false,
            is_empty => is_empty?,
        };
        Ok(seen.which != Which::Elsewhere && is_empty && seen.kind()?.may_be(kind))
    }

    fn settle(
        &mut self,
        pending: &Pending,
        made: &HashMap<NodeId, &Kind>,
    ) -> io::Result<Option<Stage>> {
        let Pending { step, makes } = pending;
        let to = step.to.as_ref();
        if let Some(from) = &step.from {
            return Ok(match self.has(from)? {
                Some(false) => {
                    let to = match to {
                        Some(to) if self.has(to)? != Some(false) => Some(to),
                        _ => None,
                    };
                    self.moved(step.node, Some(from), to);
                    Some(Stage::Done)
                }
                Some(true) => Some(Stage::Undone),
                None => None,
            });
        }
        let Some(to) = to else { return Ok(None) };
        let is_parked = self.known().is_parked(step.node);
        if is_parked || *makes && self.known().was_at_home(step.node) {
            // It is where it was before, or was made elsewhere.
            return Ok(Some(Stage::Undone));
        }
        let is_there = self.has(to)?;
        if *makes && is_there != Some(false) {
            // Nothing was there when this was begun.
            self.known_mut().vacate(to);
            let is_made = match made.get(&step.node) {
                Some(kind) if is_there == Some(true) => self.is_as_made(to, kind)?,
                _ => false,
            };
            if !is_made {
                return Ok(None);
            }
        }
        if is_there == Some(true) {
            self.moved(step.node, None, Some(to));
        }
        Ok(is_there.map(|is_there| if is_there { Stage::Done } else { Stage::Undone }))
    }
}
