//! Finding a known inode at home, to hold it again.
//!
//! An inode is found by its handle, or by its place: its last known name, in a directory that is reached in the same
//! way. The result is the inode only if its identity is the same. Otherwise the kernel gets ESTALE and looks the name up
//! again.
//!
//! Where home does not count links, the tree is told that name before an inode gets another one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_backend::home_names::Status;
use weir_names::{Identity, NodeId, Place, Way};

use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::inode::Inode;

/// Most directories from a node up to one that is held: more than a path can have.
const DEPTH_MAX: usize = 1 << 16;

/// A known inode on the way to the one that is wanted.
struct Step {
    identity: Identity,
    place: Place,
}

/// Where a way begins. The nodes below it are found by their places.
enum Start {
    Held(Arc<Inode>),
    Opened(OwnedFd, Status),
}

impl Start {
    fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        match self {
            Start::Held(inode) => inode.path_fd(),
            Start::Opened(fd, _) => Ok(fd.as_fd()),
        }
    }
}

impl FileSystem {
    /// An inode that the kernel named, held.
    ///
    /// # Errors
    /// ESTALE if the kernel does not know it, or home does not have it where it was found last; the errors of
    /// opening it; ENFILE if no descriptor is left.
    pub(crate) fn inode(self: &Arc<Self>, node: NodeId) -> Result<Arc<Inode>, Errno> {
        if let Some(inode) = self.inodes.get(node) {
            inode.mark_used();
            return Ok(inode);
        }
        self.spare_reserve()?;
        let held = match self.hold(node) {
            Err(Errno::ENFILE) => {
                self.make_room();
                self.hold(node)
            }
            held => held,
        };
        held.map_err(|errno| match errno {
            // These errors concern the place, not the node.
            Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => Errno::ESTALE,
            errno => errno,
        })
    }

    fn hold(self: &Arc<Self>, node: NodeId) -> Result<Arc<Inode>, Errno> {
        let mut steps = Vec::new();
        let mut start = self.start(node, &mut steps)?;
        while let Some(Step { identity, place }) = steps.pop() {
            let fd = self.home.open_place(start.fd()?, place.name())?;
            start = self.start_at(fd, &identity)?;
        }
        match start {
            Start::Held(inode) => Ok(inode),
            Start::Opened(fd, status) => {
                let held = self.inodes.hold(node, fd, &status).ok_or(Errno::ESTALE)?;
                self.reclaimer.inodes_grew(self.inodes.held());
                Ok(held)
            }
        }
    }

    /// The nearest node above `node`, or itself, that is found without a place. The places from there down are
    /// added to `steps`, the last one first.
    fn start(&self, node: NodeId, steps: &mut Vec<Step>) -> Result<Start, Errno> {
        let mut at = node;
        while steps.len() < DEPTH_MAX {
            if let Some(inode) = self.inodes.get(at) {
                return Ok(Start::Held(inode));
            }
            match self.inodes.way(at).ok_or(Errno::ESTALE)? {
                (identity, Way::Handle(handle)) => {
                    return self.start_at(self.home.open_handle(&handle)?, &identity);
                }
                (identity, Way::Place(place)) => {
                    at = place.parent();
                    steps.push(Step { identity, place });
                }
            }
        }
        Err(Errno::ESTALE)
    }

    fn start_at(&self, fd: OwnedFd, identity: &Identity) -> Result<Start, Errno> {
        let (found, status) = self.home.is(fd.as_fd(), identity)?.ok_or(Errno::ESTALE)?;
        if found != *identity
            && let Some(node) = self.inodes.find(identity)
        {
            self.inodes.renumbered(node, found);
        }
        Ok(Start::Opened(fd, status))
    }

    /// A file is about to get another name. Where home does not count links (sshfs), the tree is to know the one by which the file is
    /// reached: the file is gone when no name is known that leads to it.
    pub(crate) fn know_a_name(self: &Arc<Self>, inode: &Inode) {
        let Some(behind) = self.write_behind.as_ref().filter(|_| !self.home.are_by_handle()) else {
            return;
        };
        let Some((_, Way::Place(at))) = self.inodes.way(inode.node()) else { return };
        if behind.lock().tree.wanted_places(inode.node()).next().is_some() {
            return;
        }
        let Ok(directory) = self.inode(at.parent()) else { return };
        let _known = behind.hold([directory.node()]);
        self.introduce(behind, &directory);
        if let Err(error) = self.resolve(behind, &directory, &at) {
            tracing::debug!("{:?} is not known by {at:?}: {error:?}", inode.node());
        }
    }
}
