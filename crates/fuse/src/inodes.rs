//! The inodes the kernel knows, and those among them that are held.
//!
//! A known inode is an entry of the namespace ([`weir_names::Namespace`]): its number, and the way to find it again at
//! home. While it is used it is *held*: there is an [`Inode`], which has a descriptor. An inode stays held while the
//! engine or the lane uses it, while a program has it open, and if it has no name. Of the other inodes, those used last
//! stay held, up to a bound.
//!
//! Invariants:
//! - a held inode is known: it leaves the table together with the namespace's entry;
//! - there is at most one [`Inode`] of a node. It is dropped only while the table alone refers to it;
//! - an attached inode is held, and pinned in the namespace.
//!
//! Lock order: a part of the table, then the namespace or the queue of idle inodes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use weir_backend::HomeFile;
use weir_backend::home_names::{Looked, Status};
use weir_names::{Forgot, Identity, Marks, Namespace, NodeId, Way};

use crate::inode::{Inode, OpenState};

/// Idle inodes checked for each one added, while there are more than the bound allows.
const LOOKED_AT: usize = 8;

/// Hashes node numbers by multiplication, since inode numbers are often consecutive.
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

/// The inodes the kernel knows. Those that are held are in parts locked separately.
#[derive(Debug)]
pub(crate) struct Inodes {
    names: Mutex<Namespace>,
    parts: Box<[RwLock<Part>]>,
    held: AtomicUsize,
    /// Files that the engine has detached.
    detachments: AtomicU64,
    /// Nodes that may be released, those added last at the end. Some are not held any more, or are busy.
    idle: Mutex<VecDeque<NodeId>>,
    idle_max: usize,
}

impl Inodes {
    /// A table that knows only the root, whose `O_PATH` descriptor is `fd`. It holds about `idle_max` inodes that are not
    /// in use.
    pub(crate) fn new(fd: OwnedFd, status: &Status, root: Identity, idle_max: usize) -> Inodes {
        let inodes = Inodes {
            names: Mutex::new(Namespace::new(root)),
            parts: (0..PARTS).map(|_| RwLock::new(Part::default())).collect(),
            held: AtomicUsize::new(1),
            detachments: AtomicU64::new(0),
            idle: Mutex::default(),
            idle_max,
        };
        let root = Arc::new(Inode::new(NodeId::ROOT, fd, status, Marks::default()));
        let mut part = inodes.part(NodeId::ROOT).write().unwrap_or_else(PoisonError::into_inner);
        part.insert(NodeId::ROOT.0, root);
        drop(part);
        inodes
    }

    /// Inodes that are held. Each has at least one descriptor.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The number of an inode, whether or not it is known.
    pub(crate) fn number(&self, device: u64, inode: u64) -> NodeId {
        self.names().number(device, inode)
    }

    /// The node of an inode the kernel knows.
    pub(crate) fn find(&self, identity: &Identity) -> Option<NodeId> {
        self.names().find(identity)
    }

    /// The kernel's lookup count of a node.
    pub(crate) fn lookups(&self, node: NodeId) -> u64 {
        self.names().lookups(node)
    }

    /// Which inode a known node is, and how it is found at home.
    pub(crate) fn way(&self, node: NodeId) -> Option<(Identity, Way)> {
        let names = self.names();
        Some((names.identity(node)?, names.way(node)?.clone()))
    }

    /// A known node was renamed.
    pub(crate) fn moved(&self, node: NodeId, to: Way) {
        self.names().moved(node, to);
    }

    /// See [`weir_names::Namespace::renumbered`].
    pub(crate) fn renumbered(&self, node: NodeId, identity: Identity) {
        self.names().renumbered(node, identity);
    }

    /// See [`weir_names::Namespace::lost`].
    pub(crate) fn lost(
        &self,
        node: NodeId,
        at: &weir_names::Place,
        other: Option<weir_names::Place>,
    ) {
        self.names().lost(node, at, other);
    }

    /// The numbers in the log of the files that are held.
    pub(crate) fn log_numbers(&self) -> HashSet<u64> {
        let mut numbers = HashSet::new();
        for part in &self.parts {
            let part = part.read().unwrap_or_else(PoisonError::into_inner);
            numbers.extend(part.values().filter_map(|inode| inode.file()?.log_node()));
        }
        numbers
    }

    /// An inode that is held.
    pub(crate) fn get(&self, node: NodeId) -> Option<Arc<Inode>> {
        let part = self.part(node).read().unwrap_or_else(PoisonError::into_inner);
        part.get(&node.0).cloned()
    }

    /// Counts one lookup of an inode, without holding it.
    pub(crate) fn count(&self, looked: &Looked) -> NodeId {
        self.names().count(looked.identity, looked.way.clone())
    }

    /// Counts one lookup of a regular file, and holds it by its home, which is open already.
    pub(crate) fn count_file(&self, home: HomeFile, looked: &Looked) -> Arc<Inode> {
        let node = self.count(looked);
        let make = |marks| Inode::of_file(node, home, &looked.status, marks);
        self.hold_with(node, make).expect("it is known: its lookup was counted just now")
    }

    /// Holds a known inode by an `O_PATH` descriptor of it. If it is held already, the descriptor is closed.
    /// `None` if the kernel forgot it.
    pub(crate) fn hold(&self, node: NodeId, fd: OwnedFd, status: &Status) -> Option<Arc<Inode>> {
        self.hold_with(node, |marks| Inode::new(node, fd, status, marks))
    }

    fn hold_with(&self, node: NodeId, make: impl FnOnce(Marks) -> Inode) -> Option<Arc<Inode>> {
        let mut part = self.part(node).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(inode) = part.get(&node.0) {
            return Some(Arc::clone(inode));
        }
        let marks = {
            let names = self.names();
            if !names.is_known(node) {
                return None;
            }
            names.marks(node)
        };
        let inode = Arc::new(make(marks));
        part.insert(node.0, Arc::clone(&inode));
        drop(part);
        self.held.fetch_add(1, Ordering::Relaxed);
        self.idle().push_back(node);
        self.trim();
        Some(inode)
    }

    /// Notes that the engine knows a file. The file is held until [`Inodes::detached`].
    pub(crate) fn attached(&self, inode: &Inode, state: &mut OpenState) {
        if state.attached {
            return;
        }
        // Excludes `detached`.
        let _part = self.part(inode.node()).read().unwrap_or_else(PoisonError::into_inner);
        self.names().pin(inode.node());
        inode.set_attached(state, true);
    }

    /// Counts the files that the engine has detached, each before it can be let go. What home says of a file that is not
    /// held is all there is of it if the count is as it was before home was asked.
    pub(crate) fn detachments(&self) -> u64 {
        self.detachments.load(Ordering::Acquire)
    }

    /// Notes that the engine has detached a file, of which home has everything. It may be let go from now on.
    pub(crate) fn set_detached(&self, inode: &Inode, state: &mut OpenState) {
        self.detachments.fetch_add(1, Ordering::AcqRel);
        inode.set_attached(state, false);
    }

    /// Removes an inode that the engine has detached. If the kernel still knows the inode, it becomes idle instead.
    pub(crate) fn detached(&self, inode: &Arc<Inode>) {
        let node = inode.node();
        let mut part = self.part(node).write().unwrap_or_else(PoisonError::into_inner);
        let same = part.get(&node.0).is_some_and(|known| Arc::ptr_eq(known, inode));
        if !same || inode.is_attached() || node == NodeId::ROOT {
            return;
        }
        let removed = if self.names().unpin(node) { part.remove(&node.0) } else { None };
        drop(part);
        match removed {
            Some(_) => {
                self.held.fetch_sub(1, Ordering::Relaxed);
            }
            None => {
                self.idle().push_back(node);
                self.trim();
            }
        }
    }

    /// A new node that home does not have, with one lookup counted, held until home has it.
    pub(crate) fn make(&self, status: &Status) -> Arc<Inode> {
        let node = self.names().make();
        let inode = Arc::new(Inode::not_at_home(node, status));
        let mut part = self.part(node).write().unwrap_or_else(PoisonError::into_inner);
        part.insert(node.0, Arc::clone(&inode));
        drop(part);
        self.held.fetch_add(1, Ordering::Relaxed);
        inode
    }

    /// Home has a node that was made here: from [`Inodes::is_bound`] on it may be let go.
    pub(crate) fn bind(&self, node: NodeId, looked: &Looked) {
        self.names().bind(node, looked.identity, looked.way.clone());
    }

    /// The inode of a node that was made here has a descriptor of its own now.
    pub(crate) fn is_bound(&self, node: NodeId) {
        self.idle().push_back(node);
        self.trim();
    }

    /// The node of an inode that the tree of names is to know, whether or not the kernel does.
    pub(crate) fn know(&self, looked: &Looked) -> NodeId {
        self.names().know(looked.identity, looked.way.clone())
    }

    /// Counts one lookup of a node that is known. Says whether it is.
    pub(crate) fn count_again(&self, node: NodeId) -> bool {
        self.names().count_again(node)
    }

    /// The tree of names knows a node: it is kept although the kernel forgets it.
    pub(crate) fn keep(&self, node: NodeId) {
        self.names().set_pending(node, true);
    }

    /// The tree of names does not know a node any more. Gives back the inode if it is to be dropped for that.
    pub(crate) fn let_fade(&self, node: NodeId) -> Option<Arc<Inode>> {
        let mut part = self.part(node).write().unwrap_or_else(PoisonError::into_inner);
        let gone = self.names().set_pending(node, false);
        let removed = if gone { part.remove(&node.0) } else { None };
        if removed.is_some() {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// Subtracts `lookups` lookups. If none is left, the inode is removed. But if the engine still knows it, it stays in
    /// the table until [`Inodes::detached`], and is returned.
    pub(crate) fn forget(&self, node: NodeId, lookups: u64) -> Option<Arc<Inode>> {
        if node == NodeId::ROOT {
            return None;
        }
        let mut part = self.part(node).write().unwrap_or_else(PoisonError::into_inner);
        let forgot = self.names().forget(node, lookups);
        match forgot {
            Forgot::Known => None,
            Forgot::Pinned => part.get(&node.0).cloned(),
            Forgot::Gone => {
                let removed = part.remove(&node.0);
                // Closing the descriptor of an unlinked file may take long: not under the lock.
                drop(part);
                if removed.is_some() {
                    self.held.fetch_sub(1, Ordering::Relaxed);
                }
                None
            }
        }
    }

    /// Releases idle inodes while there are too many: those not used since the last check first, then those added first.
    fn trim(&self) {
        for _ in 0..LOOKED_AT {
            let node = {
                let mut idle = self.idle();
                if idle.len() <= self.idle_max {
                    return;
                }
                idle.pop_front()
            };
            let Some(node) = node else { return };
            if self.let_go(node, true) == LetGo::Busy {
                self.idle().push_back(node);
            }
        }
    }

    /// Releases every inode that is not in use.
    pub(crate) fn let_go_idle(&self) {
        let all = std::mem::take(&mut *self.idle());
        for node in all {
            if self.let_go(node, false) == LetGo::Busy {
                self.idle().push_back(node);
            }
        }
    }

    /// Releases an inode if it is not in use. With `spare_used`, only if it was also not used since the last call.
    fn let_go(&self, node: NodeId, spare_used: bool) -> LetGo {
        let mut part = self.part(node).write().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = part.get_mut(&node.0) else { return LetGo::Done };
        if spare_used && held.swap_used(false) {
            return LetGo::Busy;
        }
        // No other thread can get it while the part is locked.
        if Arc::get_mut(held).is_none() {
            return LetGo::Busy;
        }
        // An attached one is queued again when it is detached; one without a name is forgotten.
        let Some(marks) = held.marks_to_keep() else {
            return if held.lane.is_out() { LetGo::Done } else { LetGo::Busy };
        };
        self.names().set_marks(node, marks);
        let removed = part.remove(&node.0);
        drop(part);
        drop(removed);
        self.held.fetch_sub(1, Ordering::Relaxed);
        LetGo::Done
    }

    /// Calls `visit` with every held inode, under no lock, until it returns `false`.
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

    fn names(&self) -> MutexGuard<'_, Namespace> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<NodeId>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(&self, node: NodeId) -> &RwLock<Part> {
        // The high bits of the product, because the map inside a part uses the low bits first.
        let mixed = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 58) as usize % PARTS]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LetGo {
    /// It is not held any more, or need not be checked again.
    Done,
    /// It is in use.
    Busy,
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::fd::{AsFd, OwnedFd};

    use weir_backend::home_names::{HomeNames, open_root};

    use super::*;

    struct Scene {
        home: HomeNames,
        etc: OwnedFd,
        inodes: Inodes,
    }

    fn scene(idle_max: usize) -> Scene {
        let etc = OwnedFd::from(std::fs::File::open("/etc").unwrap());
        let home = HomeNames::new(etc.as_fd()).unwrap();
        let root = open_root(etc.as_fd()).unwrap();
        let status = Status::of(root.as_fd()).unwrap();
        let identity = home.root(root.as_fd()).unwrap();
        Scene { home, etc, inodes: Inodes::new(root, &status, identity, idle_max) }
    }

    impl Scene {
        fn look(&self, name: &str) -> Looked {
            self.home.look_up(self.etc.as_fd(), NodeId::ROOT, OsStr::new(name)).unwrap()
        }

        fn hold(&self, node: NodeId, name: &str) -> Option<Arc<Inode>> {
            let fd = self.home.open_place(self.etc.as_fd(), name.as_bytes()).unwrap();
            self.inodes.hold(node, fd, &self.look(name).status)
        }
    }

    #[test]
    fn a_known_inode_holds_nothing_and_leaves_with_its_last_lookup() {
        let scene = scene(8);
        let looked = scene.look("passwd");
        let node = scene.inodes.count(&looked);
        assert_eq!(scene.inodes.count(&looked), node);
        assert_eq!((scene.inodes.lookups(node), scene.inodes.held()), (2, 1));
        assert!(scene.inodes.get(node).is_none());
        let held = scene.hold(node, "passwd").unwrap();
        assert!(Arc::ptr_eq(&held, &scene.inodes.get(node).unwrap()));
        assert!(scene.inodes.forget(node, 1).is_none());
        assert_eq!(scene.inodes.held(), 2);
        assert!(scene.inodes.forget(node, 1).is_none());
        assert_eq!((scene.inodes.held(), scene.inodes.find(&looked.identity)), (1, None));
        assert!(scene.hold(node, "passwd").is_none(), "it was forgotten");
    }

    #[test]
    fn an_attached_inode_is_held_until_it_is_detached() {
        let scene = scene(0);
        let node = scene.inodes.count(&scene.look("passwd"));
        let held = scene.hold(node, "passwd").unwrap();
        scene.inodes.attached(&held, &mut held.open());
        scene.inodes.let_go_idle();
        assert!(scene.inodes.get(node).is_some(), "the engine has it");
        assert!(scene.inodes.forget(node, 1).is_some());
        scene.inodes.detached(&held);
        assert!(scene.inodes.get(node).is_some(), "it is still attached");
        held.set_attached(&mut held.open(), false);
        scene.inodes.detached(&held);
        assert!(scene.inodes.get(node).is_none());
        assert_eq!(scene.inodes.held(), 1);
    }

    #[test]
    fn idle_inodes_are_bounded_and_keep_their_marks() {
        let scene = scene(1);
        let names = ["passwd", "group", "hosts", "hostname"];
        let nodes = names.map(|name| scene.inodes.count(&scene.look(name)));
        let busy = scene.hold(nodes[0], names[0]).unwrap();
        busy.kernel_pages.buffered_access();
        for (node, name) in nodes.into_iter().zip(names) {
            scene.hold(node, name).unwrap();
        }
        scene.inodes.let_go_idle();
        assert_eq!(scene.inodes.held(), 2, "the root, and what is in use");
        assert!(Arc::ptr_eq(&busy, &scene.inodes.get(nodes[0]).unwrap()));
        drop(busy);
        scene.inodes.let_go_idle();
        assert_eq!(scene.inodes.held(), 1);
        let again = scene.hold(nodes[0], names[0]).unwrap();
        assert!(again.kernel_pages.may_be_cached() && again.take_unsure());
        let other = scene.hold(nodes[1], names[1]).unwrap();
        assert!(!other.kernel_pages.may_be_cached() && !other.take_unsure());
        other.set_nameless();
        drop((again, other));
        scene.inodes.let_go_idle();
        assert!(scene.inodes.get(nodes[1]).is_some(), "it would not be found again");
        assert!(scene.inodes.get(nodes[0]).is_none());
    }
}
