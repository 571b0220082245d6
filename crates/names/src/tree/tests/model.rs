//! A model of a file system, for what programs see and for what home has. Written apart from the tree.

use std::collections::{BTreeMap, HashMap};

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::*;
use crate::way::Place;

/// The seeds of a test: the first `usual` ones, or `WEIR_SEEDS=A..B`.
#[expect(
    clippy::disallowed_methods,
    reason = "a test's seeds are chosen from outside, as in weir-sim"
)]
pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("WEIR_SEEDS") else { return 0..usual };
    let (from, to) = text.split_once("..").expect("WEIR_SEEDS is written A..B");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// A small generator: the same numbers for the same seed (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A file system: directories with entries, and inodes with attributes. Written apart from the tree.
#[derive(Clone, Default)]
pub(super) struct FileSystem {
    pub(super) entries: BTreeMap<(NodeId, Vec<u8>), NodeId>,
    pub(super) inodes: BTreeMap<NodeId, (Kind, Attributes)>,
    calls: usize,
}

impl FileSystem {
    pub(super) fn new() -> FileSystem {
        let mut system = FileSystem::default();
        system.inodes.insert(NodeId::ROOT, (Kind::Directory, Attributes::default()));
        system.inodes.insert(NodeId::PARKING, (Kind::Directory, Attributes::default()));
        system
    }

    pub(super) fn get(&self, at: &Place) -> Option<NodeId> {
        self.entries.get(&(at.parent(), at.name().to_vec())).copied()
    }

    pub(super) fn put(&mut self, at: &Place, node: NodeId) {
        assert!(self.inodes[&at.parent()].0.is_directory());
        let old = self.entries.insert((at.parent(), at.name().to_vec()), node);
        assert_eq!(old, None, "{at:?} was free");
    }

    pub(super) fn take(&mut self, at: &Place) -> NodeId {
        self.entries.remove(&(at.parent(), at.name().to_vec())).unwrap()
    }

    pub(super) fn is_empty(&self, node: NodeId) -> bool {
        !self.entries.keys().any(|(parent, _)| *parent == node)
    }

    pub(super) fn is_below(&self, node: NodeId, above: NodeId) -> bool {
        let mut at = node;
        loop {
            if at == above {
                return true;
            }
            let Some(((parent, _), _)) = self.entries.iter().find(|(_, child)| **child == at)
            else {
                return false;
            };
            at = *parent;
        }
    }

    /// What a home does that may have lost something: it says so of what it cannot do.
    pub(super) fn try_to_execute(&mut self, command: &Command) -> Result<Answer, HomeError> {
        let is_there = |node: &NodeId| self.inodes.contains_key(node);
        let has_directory = |at: &Place| is_there(&at.parent());
        match command {
            Command::Look { at } if !has_directory(at) => Err(HomeError::Changed),
            Command::Set { node, .. } if !is_there(node) => Err(HomeError::Gone),
            Command::Make { node, at, .. } if has_directory(at) => {
                let parked = Tree::parking(*node);
                if self.get(&parked).is_some() {
                    self.take(&parked);
                }
                // What is left of one that was made before, under no name, is not it.
                if !self.entries.values().any(|there| there == node) {
                    self.inodes.remove(node);
                }
                self.execute(command)
            }
            Command::Make { .. } => Err(HomeError::Changed),
            Command::Link { node, .. } if !is_there(node) => Err(HomeError::Gone),
            Command::Link { at, .. } | Command::Rename { to: at, .. } if !has_directory(at) => {
                Err(HomeError::Changed)
            }
            _ => self.execute(command),
        }
    }

    /// What home does at a command, with all the checks of a real one.
    pub(super) fn execute(&mut self, command: &Command) -> Result<Answer, HomeError> {
        self.calls += 1;
        match command {
            Command::Look { at } => {
                return Ok(Answer::Found(self.get(at).map_or(AtHome::Nothing, AtHome::Node)));
            }
            Command::Make { node, at, kind, attributes, .. } => {
                assert!(!self.inodes.contains_key(node), "{node:?} is made once");
                self.inodes.insert(*node, (kind.clone(), *attributes));
                self.put(at, *node);
                return Ok(Answer::Made(Lsn(0)));
            }
            Command::Link { node, at } => {
                assert!(!self.inodes[node].0.is_directory());
                self.put(at, *node);
            }
            Command::Rename { node, from, to, replacing } => {
                assert!(!self.is_below(to.parent(), *node), "a directory goes below itself");
                assert_eq!(self.get(from), Some(*node));
                assert_eq!(self.get(to), *replacing, "{command:?}");
                if replacing.is_some() {
                    let old = self.take(to);
                    assert!(!self.inodes[&old].0.is_directory());
                }
                self.take(from);
                self.put(to, *node);
            }
            Command::Exchange { one, other } => {
                assert_eq!((self.get(&one.1), self.get(&other.1)), (Some(one.0), Some(other.0)));
                self.take(&one.1);
                self.take(&other.1);
                self.put(&one.1, other.0);
                self.put(&other.1, one.0);
                for node in [one.0, other.0] {
                    let is_below = |above| self.is_below(node, above);
                    let hangs = is_below(NodeId::ROOT) || is_below(NodeId::PARKING);
                    assert!(hangs, "a circle of directories");
                }
            }
            Command::Unlink { node, at } => {
                assert!(!self.inodes[node].0.is_directory());
                assert_eq!(self.take(at), *node);
            }
            Command::RemoveDirectory { node, at } => {
                assert!(self.inodes[node].0.is_directory() && self.is_empty(*node));
                assert_eq!(self.take(at), *node);
            }
            Command::Set { node, attributes, .. } => {
                self.inodes.get_mut(node).unwrap().1.overlay(attributes);
            }
        }
        Ok(Answer::Done)
    }

    /// Names and attributes of all that can be reached; a file with several names is told by the first one.
    pub(super) fn picture(&self) -> BTreeMap<Vec<u8>, (Vec<u8>, String)> {
        let mut all = BTreeMap::new();
        let mut below = vec![(NodeId::ROOT, Vec::new())];
        while let Some((directory, path)) = below.pop() {
            for ((parent, name), node) in &self.entries {
                if *parent != directory {
                    continue;
                }
                let path = [&path[..], b"/", name].concat();
                let (kind, attributes) = &self.inodes[node];
                if kind.is_directory() {
                    below.push((*node, path.clone()));
                }
                all.insert(path, (*node, format!("{kind:?} {attributes:?}")));
            }
        }
        let mut first = HashMap::new();
        let mut told = BTreeMap::new();
        for (path, (node, what)) in all {
            let name = first.entry(node).or_insert_with(|| path.clone()).clone();
            told.insert(path, (name, what));
        }
        told
    }
}

/// What programs see: changes are done at once. A call answers as a plain directory would.
pub(super) fn change(seen: &mut FileSystem, change: &Change) -> Result<(), Refused> {
    let leads = |seen: &FileSystem, at: &Place, node| {
        (seen.get(at) == Some(node)).then_some(()).ok_or(Refused::Nothing)
    };
    let alive = |seen: &FileSystem, directory: NodeId| {
        seen.is_below(directory, NodeId::ROOT).then_some(()).ok_or(Refused::Nothing)
    };
    match change {
        Change::Make { node, at, kind, attributes } => {
            alive(seen, at.parent())?;
            if seen.get(at).is_some() {
                return Err(Refused::Exists);
            }
            seen.inodes.insert(*node, (kind.clone(), *attributes));
            seen.put(at, *node);
        }
        Change::Link { node, at } => {
            alive(seen, at.parent())?;
            if seen.get(at).is_some() {
                return Err(Refused::Exists);
            }
            seen.put(at, *node);
        }
        Change::Remove { node, at } => {
            leads(seen, at, *node)?;
            if !seen.is_empty(*node) {
                return Err(Refused::NotEmpty);
            }
            seen.take(at);
        }
        Change::Rename { node, from, to, replaced } => {
            leads(seen, from, *node)?;
            alive(seen, to.parent())?;
            if seen.is_below(to.parent(), *node) {
                return Err(Refused::BelowItself);
            }
            if let Some(replaced) = replaced.filter(|replaced| replaced != node) {
                let is = |node| seen.inodes[&node].0.is_directory();
                match (is(*node), is(replaced)) {
                    (true, false) => return Err(Refused::NotDirectory),
                    (false, true) => return Err(Refused::IsDirectory),
                    (true, true) if !seen.is_empty(replaced) => return Err(Refused::NotEmpty),
                    _ => {}
                }
            }
            if *replaced == Some(*node) {
                return Ok(());
            }
            seen.take(from);
            if replaced.is_some() {
                seen.take(to);
            }
            seen.put(to, *node);
        }
        Change::Exchange { one, other } => {
            leads(seen, &one.1, one.0)?;
            leads(seen, &other.1, other.0)?;
            let below = |a: NodeId, b: &Place| seen.is_below(b.parent(), a);
            if below(one.0, &other.1) || below(other.0, &one.1) {
                return Err(Refused::BelowItself);
            }
            seen.take(&one.1);
            seen.take(&other.1);
            seen.put(&one.1, other.0);
            seen.put(&other.1, one.0);
        }
        Change::Set { node, attributes } => {
            seen.inodes.get_mut(node).unwrap().1.overlay(attributes);
        }
        Change::SetXattr { .. } => unreachable!("not made here"),
    }
    Ok(())
}
