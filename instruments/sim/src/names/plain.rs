//! A plain file system: inodes with attributes, directories with entries. Both what programs see and what home has are one
//! of these. Written apart from the tree of names, of which it uses the words alone ([`Change`], [`Place`]).

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_names::tree::{Attributes, Change, Kind};
use weir_names::{NodeId, Place};

/// Why a change cannot be made. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// A name is there that is not to be there, or is not there, or leads to something else; or a directory is missing.
    Name,
    /// The inode is not there.
    Gone,
    /// A directory is not empty.
    NotEmpty,
    /// Something that only a directory, or no directory, can be.
    Type,
    /// A directory would be below itself.
    BelowItself,
}

/// A file, directory or symbolic link, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
}

/// What the names of a file system lead to: for each path the first path of the same inode, the inode, and what it is.
pub(super) type Picture = BTreeMap<Vec<u8>, (Vec<u8>, String)>;

/// Cheap to copy.
#[derive(Clone, Debug, Default)]
pub(super) struct Plain {
    inodes: BTreeMap<NodeId, Rc<Inode>>,
    entries: BTreeMap<Place, NodeId>,
}

impl Plain {
    /// An empty root, and the directory for what has no name for a moment.
    pub(super) fn new() -> Plain {
        let directory = Inode { kind: Kind::Directory, attributes: Attributes::default() };
        let directory = Rc::new(directory);
        let inodes = [NodeId::ROOT, NodeId::PARKING].map(|node| (node, Rc::clone(&directory)));
        Plain { inodes: inodes.into(), entries: BTreeMap::new() }
    }

    pub(super) fn get(&self, at: &Place) -> Option<NodeId> {
        self.entries.get(at).copied()
    }

    pub(super) fn inode(&self, node: NodeId) -> Option<&Inode> {
        self.inodes.get(&node).map(|inode| &**inode)
    }

    pub(super) fn is_directory(&self, node: NodeId) -> bool {
        self.inode(node).is_some_and(|inode| inode.kind.is_directory())
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&Place, NodeId)> {
        self.entries.iter().map(|(at, &node)| (at, node))
    }

    pub(super) fn list(&self, directory: NodeId) -> impl Iterator<Item = (&Place, NodeId)> {
        self.entries().filter(move |(at, _)| at.parent() == directory)
    }

    pub(super) fn inodes(&self) -> impl Iterator<Item = NodeId> {
        self.inodes.keys().copied()
    }

    pub(super) fn names_of(&self, node: NodeId) -> impl Iterator<Item = &Place> {
        self.entries().filter(move |&(_, there)| there == node).map(|(at, _)| at)
    }

    /// Whether a directory is the other one or below it.
    pub(super) fn is_below(&self, node: NodeId, above: NodeId) -> bool {
        let mut at = node;
        loop {
            if at == above {
                return true;
            }
            let Some(place) = self.names_of(at).next() else { return false };
            at = place.parent();
        }
    }

    fn is_free(&self, at: &Place) -> Result<(), Wrong> {
        self.has_directory(at)?;
        if self.get(at).is_some() { Err(Wrong::Name) } else { Ok(()) }
    }

    fn has_directory(&self, at: &Place) -> Result<(), Wrong> {
        match self.inode(at.parent()) {
            None => Err(Wrong::Name),
            Some(inode) if !inode.kind.is_directory() => Err(Wrong::Type),
            Some(_) => Ok(()),
        }
    }

    fn leads(&self, at: &Place, node: NodeId) -> Result<(), Wrong> {
        if self.get(at) == Some(node) { Ok(()) } else { Err(Wrong::Name) }
    }

    fn may_go_below(&self, node: NodeId, at: &Place) -> Result<(), Wrong> {
        let is_wrong = self.is_directory(node) && self.is_below(at.parent(), node);
        if is_wrong { Err(Wrong::BelowItself) } else { Ok(()) }
    }

    fn is_empty(&self, node: NodeId) -> bool {
        self.list(node).next().is_none()
    }

    fn check(&self, change: &Change) -> Result<(), Wrong> {
        match change {
            Change::Make { node, at, .. } => {
                self.is_free(at)?;
                if self.inodes.contains_key(node) { Err(Wrong::Name) } else { Ok(()) }
            }
            Change::Link { node, at } => match self.inode(*node) {
                None => Err(Wrong::Gone),
                Some(inode) if inode.kind.is_directory() => Err(Wrong::Type),
                Some(_) => self.is_free(at),
            },
            Change::Remove { node, at } => {
                self.leads(at, *node)?;
                if self.is_empty(*node) { Ok(()) } else { Err(Wrong::NotEmpty) }
            }
            Change::Rename { node, from, to, replaced } => {
                self.leads(from, *node)?;
                self.has_directory(to)?;
                if self.get(to) != *replaced {
                    return Err(Wrong::Name);
                }
                self.may_go_below(*node, to)?;
                let Some(other) = replaced.filter(|other| other != node) else { return Ok(()) };
                match (self.is_directory(*node), self.is_directory(other)) {
                    (true, true) if !self.is_empty(other) => Err(Wrong::NotEmpty),
                    (one, other) if one != other => Err(Wrong::Type),
                    _ => Ok(()),
                }
            }
            Change::Exchange { one, other } => {
                self.leads(&one.1, one.0)?;
                self.leads(&other.1, other.0)?;
                self.may_go_below(one.0, &other.1)?;
                self.may_go_below(other.0, &one.1)
            }
            Change::Set { node, .. } | Change::SetXattr { node, .. } => {
                if self.inodes.contains_key(node) { Ok(()) } else { Err(Wrong::Gone) }
            }
        }
    }

    /// Makes a change, or says why it cannot be made.
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), Wrong> {
        self.check(change)?;
        match change {
            Change::Make { node, at, kind, attributes } => {
                let inode = Inode { kind: kind.clone(), attributes: *attributes };
                self.inodes.insert(*node, Rc::new(inode));
                self.entries.insert(at.clone(), *node);
            }
            Change::Link { node, at } => drop(self.entries.insert(at.clone(), *node)),
            Change::Remove { at, .. } => drop(self.entries.remove(at)),
            Change::Rename { node, replaced, .. } if *replaced == Some(*node) => {}
            Change::Rename { node, from, to, .. } => {
                self.entries.remove(from);
                self.entries.insert(to.clone(), *node);
            }
            Change::Exchange { one, other } => {
                self.entries.insert(one.1.clone(), other.0);
                self.entries.insert(other.1.clone(), one.0);
            }
            Change::Set { node, attributes } => {
                let inode = self.inodes.get_mut(node).expect("it was checked");
                Rc::make_mut(inode).attributes.overlay(attributes);
            }
            Change::SetXattr { .. } => {}
        }
        Ok(())
    }

    /// The same with other numbers.
    pub(super) fn renumbered(&self, number: impl Fn(NodeId) -> NodeId) -> Plain {
        let place =
            |at: &Place| Place::new(number(at.parent()), at.name()).expect("it was a name before");
        let inodes = self.inodes.iter().map(|(&node, inode)| (number(node), Rc::clone(inode)));
        let entries = self.entries.iter().map(|(at, &node)| (place(at), number(node)));
        Plain { inodes: inodes.collect(), entries: entries.collect() }
    }

    /// Forgets inodes that no name leads to.
    pub(super) fn forget_nameless(&mut self) {
        let named: std::collections::BTreeSet<NodeId> = self.entries.values().copied().collect();
        self.inodes.retain(|&node, _| node <= NodeId::ROOT || named.contains(&node));
    }

    /// The paths of all that can be reached from the root, with the inode each leads to.
    pub(super) fn paths(&self) -> BTreeMap<Vec<u8>, NodeId> {
        let mut all = BTreeMap::new();
        let mut below = vec![(NodeId::ROOT, Vec::new())];
        while let Some((directory, path)) = below.pop() {
            for (at, node) in self.list(directory) {
                let path = [&path[..], b"/", at.name()].concat();
                if self.is_directory(node) {
                    below.push((node, path.clone()));
                }
                all.insert(path, node);
            }
        }
        all
    }

    /// What a program sees that walks from the root and compares inode numbers.
    pub(super) fn picture(&self) -> Picture {
        let mut first: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
        let told = self.paths().into_iter().map(|(path, node)| {
            let name = first.entry(node).or_insert_with(|| path.clone()).clone();
            let Inode { kind, attributes: Attributes { mode, uid, gid, mtime, .. } } =
                &*self.inodes[&node];
            let mtime = mtime.map(|mtime| mtime.seconds);
            let what = format!("{kind:?} {mode:?} {uid:?} {gid:?} {mtime:?}");
            (path, (name, what))
        });
        told.collect()
    }
}
