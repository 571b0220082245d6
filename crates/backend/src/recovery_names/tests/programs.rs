//! What programs do: random changes of what they see.

use super::model::{Model, Random};
use super::*;

/// The seeds of a test: the first `usual` ones, or `WEIR_SEEDS=A..B`.
pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("WEIR_SEEDS") else { return 0..usual };
    let (from, to) = text.split_once("..").expect("WEIR_SEEDS is written A..B");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Programs, and what they see.
pub(super) struct Programs {
    pub(super) random: Random,
    pub(super) seen: Model,
    next_node: u64,
    is_root: bool,
    has_xattrs: bool,
}

/// The nodes that a change speaks of, a new one left out.
pub(super) fn nodes_of(change: &Change) -> Vec<NodeId> {
    match change {
        Change::Make { at, .. } => vec![at.parent()],
        Change::Link { node, at } | Change::Remove { node, at } => vec![at.parent(), *node],
        Change::Rename { node, from, to, replaced } => {
            let named = [Some(from.parent()), Some(to.parent()), Some(*node), *replaced];
            named.into_iter().flatten().collect()
        }
        Change::Exchange { one, other } => {
            vec![one.1.parent(), other.1.parent(), one.0, other.0]
        }
        Change::Set { node, .. } | Change::SetXattr { node, .. } => vec![*node],
    }
}

impl Programs {
    pub(super) fn new(seed: u64, source: &Source) -> Programs {
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::setxattr(source.path(".weir"), "user.weir", b"", flags);
        Programs {
            random: Random(seed),
            seen: Model::new(),
            next_node: 100,
            is_root: rustix::process::geteuid().is_root(),
            has_xattrs: set.is_ok(),
        }
    }

    /// A change that was made, if one was.
    pub(super) fn change(&mut self) -> Option<Change> {
        let change = self.some_change()?;
        self.seen.change(&change).then_some(change)
    }

    fn attributes(&mut self) -> Attributes {
        let own = attributes(0);
        let random = &mut self.random;
        let (uid, gid) = match self.is_root {
            true => (Some(random.below(3) as u32), Some(random.below(3) as u32)),
            false => (own.uid, own.gid),
        };
        let mode = random.below(0o1000) as u32 | if self.is_root { 0 } else { 0o700 };
        let mtime = Moment { seconds: random.below(1 << 30) as i64, nanoseconds: 17 };
        Attributes { mode: Some(mode), uid, gid, atime: None, mtime: Some(mtime) }
    }

    fn place(&mut self) -> Place {
        let is_alive = |node: &NodeId| {
            self.seen.is_directory(*node) && self.seen.is_below(*node, NodeId::ROOT)
        };
        let directories: Vec<NodeId> = self.seen.inodes.keys().copied().filter(is_alive).collect();
        let directory = directories[self.random.below(directories.len())];
        Place::new(directory, &[b'a' + self.random.below(4) as u8]).unwrap()
    }

    /// A place that leads to something, if one is found soon.
    fn taken(&mut self) -> Option<(NodeId, Place)> {
        (0..8).find_map(|_| {
            let at = self.place();
            Some((*self.seen.entries.get(&at)?, at))
        })
    }

    fn some_change(&mut self) -> Option<Change> {
        Some(match self.random.below(15) {
            0..5 => {
                let kind = match self.random.below(5) {
                    0 | 1 => Kind::Directory,
                    2 => Kind::Symlink(b"target"[..].into()),
                    3 => Kind::Special { file_type: libc::S_IFIFO, device: 0 },
                    _ => Kind::File,
                };
                self.next_node += 1;
                let (node, attributes) = (NodeId(self.next_node), self.attributes());
                Change::Make { node, at: self.place(), kind, attributes }
            }
            5 => Change::Link { node: self.taken()?.0, at: self.place() },
            6..8 => {
                let (node, at) = self.taken()?;
                Change::Remove { node, at }
            }
            8..11 => {
                let (node, from) = self.taken()?;
                let to = self.place();
                let replaced = self.seen.entries.get(&to).copied();
                Change::Rename { node, from, to, replaced }
            }
            11 => Change::Exchange { one: self.taken()?, other: self.taken()? },
            12 | 13 => {
                let (node, _) = self.taken()?;
                Change::Set { node, attributes: self.attributes() }
            }
            _ => {
                let (node, _) = self.taken()?;
                let kind = &self.seen.inodes[&node].kind;
                if !self.has_xattrs || !matches!(kind, Kind::File | Kind::Directory) {
                    return None;
                }
                let value = (!self.random.one_in(3)).then(|| b"value"[..].into());
                Change::SetXattr { node, name: b"user.weir"[..].into(), value }
            }
        })
    }
}
