//! A model of what programs see, and pictures of it and of a directory, to be compared. Written apart from the tree.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::*;

/// A small generator: the same numbers for the same seed (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % bound as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// An inode of the model.
#[derive(Clone)]
pub(super) struct Inode {
    pub(super) kind: Kind,
    attributes: Attributes,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What programs see: changes are done at once.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) entries: BTreeMap<Place, NodeId>,
    pub(super) inodes: BTreeMap<NodeId, Inode>,
}

impl Model {
    pub(super) fn new() -> Model {
        let (attributes, xattrs) = (Attributes::default(), BTreeMap::new());
        let root = Inode { kind: Kind::Directory, attributes, xattrs };
        Model { entries: BTreeMap::new(), inodes: BTreeMap::from([(NodeId::ROOT, root)]) }
    }

    pub(super) fn is_directory(&self, node: NodeId) -> bool {
        self.inodes[&node].kind.is_directory()
    }

    fn is_empty(&self, node: NodeId) -> bool {
        !self.entries.keys().any(|at| at.parent() == node)
    }

    /// Whether a directory is another one or is below it.
    pub(super) fn is_below(&self, node: NodeId, above: NodeId) -> bool {
        let mut at = node;
        while at != above {
            let Some((place, _)) = self.entries.iter().find(|(_, child)| **child == at) else {
                return false;
            };
            at = place.parent();
        }
        true
    }

    /// A path of a node, if it has any.
    pub(super) fn path(&self, node: NodeId) -> Option<String> {
        let (place, _) = self.entries.iter().find(|(_, child)| **child == node)?;
        let name = std::str::from_utf8(place.name()).unwrap();
        match place.parent() {
            NodeId::ROOT => Some(name.to_owned()),
            parent => Some(format!("{}/{name}", self.path(parent)?)),
        }
    }

    /// The times of a directory whose names changed are not known.
    fn touch(&mut self, at: &Place) {
        self.inodes.get_mut(&at.parent()).unwrap().attributes.mtime = None;
    }

    fn put(&mut self, at: &Place, node: NodeId) {
        self.entries.insert(at.clone(), node);
        self.touch(at);
    }

    fn take(&mut self, at: &Place) {
        self.entries.remove(at).unwrap();
        self.touch(at);
    }

    /// Makes a change if a file system would. Says whether it did.
    pub(super) fn change(&mut self, change: &Change) -> bool {
        let leads = |at: &Place, node: &NodeId| self.entries.get(at) == Some(node);
        let is_free =
            |at: &Place| self.is_below(at.parent(), NodeId::ROOT) && !self.entries.contains_key(at);
        match change {
            Change::Make { node, at, kind, attributes } => {
                if !is_free(at) {
                    return false;
                }
                let (kind, attributes) = (kind.clone(), *attributes);
                self.inodes.insert(*node, Inode { kind, attributes, xattrs: BTreeMap::new() });
                self.put(at, *node);
            }
            Change::Link { node, at } => {
                if self.is_directory(*node) || !is_free(at) {
                    return false;
                }
                self.put(at, *node);
            }
            Change::Remove { node, at } => {
                if !leads(at, node) || !self.is_empty(*node) {
                    return false;
                }
                self.take(at);
            }
            Change::Rename { node, from, to, replaced } => {
                let is_allowed = replaced.is_none_or(|replaced| {
                    replaced != *node
                        && self.is_directory(*node) == self.is_directory(replaced)
                        && self.is_empty(replaced)
                });
                let is_below = self.is_below(to.parent(), *node);
                if from == to || !leads(from, node) || is_below || !is_allowed {
                    return false;
                }
                self.take(from);
                self.put(to, *node);
            }
            Change::Exchange { one, other } => {
                let circle = self.is_below(other.1.parent(), one.0)
                    || self.is_below(one.1.parent(), other.0);
                if one.0 == other.0 || circle {
                    return false;
                }
                self.put(&one.1, other.0);
                self.put(&other.1, one.0);
            }
            Change::Set { node, attributes } => {
                self.inodes.get_mut(node).unwrap().attributes.overlay(attributes);
            }
            Change::SetXattr { node, name, value } => {
                let xattrs = &mut self.inodes.get_mut(node).unwrap().xattrs;
                match value {
                    Some(value) => xattrs.insert(name.to_vec(), value.to_vec()),
                    None => xattrs.remove(&name[..]),
                };
            }
        }
        true
    }

    pub(super) fn picture(&self) -> Picture {
        let mut all = BTreeMap::new();
        let mut below = vec![(NodeId::ROOT, Vec::new())];
        while let Some((directory, path)) = below.pop() {
            for (at, node) in self.entries.iter().filter(|(at, _)| at.parent() == directory) {
                let path = [&path[..], b"/", at.name()].concat();
                let inode = &self.inodes[node];
                if inode.kind.is_directory() {
                    below.push((*node, path.clone()));
                }
                let Attributes { mode, uid, gid, mtime, .. } = inode.attributes;
                let mode = mode.filter(|_| !matches!(inode.kind, Kind::Symlink(_)));
                let xattrs = &inode.xattrs;
                let what = format!("{:?} {mode:?} {uid:?} {gid:?} {xattrs:?}", inode.kind);
                all.insert(path, (node.0, what, mtime));
            }
        }
        told(all)
    }
}

/// What a path leads to: the first path of the same inode, what it is, and when it was modified, if that is known.
pub(super) type Picture = BTreeMap<Vec<u8>, (Vec<u8>, String, Option<Moment>)>;

fn told(all: BTreeMap<Vec<u8>, (u64, String, Option<Moment>)>) -> Picture {
    let mut first = BTreeMap::new();
    let told = all.into_iter().map(|(path, (inode, what, mtime))| {
        let name = first.entry(inode).or_insert_with(|| path.clone()).clone();
        (path, (name, what, mtime))
    });
    told.collect()
}

/// What a directory has, Weir's own directory left out.
pub(super) fn picture_of(source: &Path) -> Picture {
    let mut all = BTreeMap::new();
    let mut below = vec![(source.to_owned(), Vec::new())];
    while let Some((directory, path)) = below.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let name = entry.unwrap().file_name();
            if path.is_empty() && name == ".weir" {
                continue;
            }
            let (place, path) =
                (directory.join(&name), [&path[..], b"/", name.as_bytes()].concat());
            let status = fs::symlink_metadata(&place).unwrap();
            let kind = if status.is_dir() {
                below.push((place.clone(), path.clone()));
                Kind::Directory
            } else if status.is_symlink() {
                Kind::Symlink(fs::read_link(&place).unwrap().as_os_str().as_bytes().into())
            } else if status.file_type().is_fifo() {
                Kind::Special { file_type: libc::S_IFIFO, device: 0 }
            } else {
                Kind::File
            };
            let mode = Some(status.mode() & 0o7777).filter(|_| !status.is_symlink());
            let (uid, gid) = (Some(status.uid()), Some(status.gid()));
            let xattrs = xattrs_of(&place);
            let what = format!("{kind:?} {mode:?} {uid:?} {gid:?} {xattrs:?}");
            let (seconds, nanoseconds) = (status.mtime(), status.mtime_nsec() as u32);
            all.insert(path, (status.ino(), what, Some(Moment { seconds, nanoseconds })));
        }
    }
    told(all)
}

fn xattrs_of(place: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = [0; 4096];
    let len = rustix::fs::llistxattr(place, &mut names[..]).unwrap_or(0);
    let names = names[..len].split(|&byte| byte == 0).filter(|name| name.starts_with(b"user."));
    let value = |name: &[u8]| {
        let mut value = [0; 64];
        let len = rustix::fs::lgetxattr(place, name, &mut value[..]).unwrap();
        (name.to_vec(), value[..len].to_vec())
    };
    names.map(value).collect()
}

/// Panics unless a directory is as it should be.
pub(super) fn compare(mut found: Picture, wanted: &Picture, what: &str) {
    for (path, (.., mtime)) in &mut found {
        if wanted.get(path).is_none_or(|(.., wanted)| wanted.is_none()) {
            *mtime = None;
        }
    }
    assert_eq!(&found, wanted, "{what}");
}
