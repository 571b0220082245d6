//! Home: directories and files that lose what was not synced. Each change of names can be seen at once, and is durable when a
//! sync that began after it has succeeded. When the power goes, each change that is not durable is there or not,
//! within what file systems guarantee: changes of the names of one inode take effect in their order, and nothing is there
//! whose directory is not. A sync of one file makes its names durable, too (as on ext4, xfs and btrfs). Bytes are kept or lost
//! by sector ([`HomeFile`]).
//!
//! Written apart from the tree of names: home knows inodes by numbers of its own, which are never given twice, and checks each
//! command as a kernel does.

use std::collections::{BTreeMap, BTreeSet};

use weir_names::tree::{Change, HomeError};
use weir_names::{NodeId, Place};

use super::plain::{Plain, Wrong};
use crate::crash::files::HomeFile;
use crate::rng::Rng;

const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;

/// First inode number that home gives.
const INODES_FIRST: u64 = 1000;

/// What home refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    code: i32,
    /// Commands it refuses yet.
    left: u32,
}

impl Refusal {
    /// For a while, or for good if `is_lasting`.
    pub(super) fn some(is_lasting: bool, rng: &mut Rng) -> Refusal {
        let code = *rng.pick(&[EACCES, ENOSPC, EROFS, EDQUOT]);
        Refusal { code, left: if is_lasting { u32::MAX } else { rng.between(1, 12) as u32 } }
    }

    /// Whether it refuses a change: without room, removals and changes of attributes are still done.
    fn concerns(self, change: &Change) -> bool {
        match (self.code, change) {
            (ENOSPC | EDQUOT, Change::Remove { .. } | Change::Set { .. }) => false,
            // Some directories may not be written.
            (EACCES, change) => change.names().any(|at| at.parent().0.is_multiple_of(3)),
            _ => true,
        }
    }
}

/// A change that is not durable.
#[derive(Clone, Debug)]
struct Unsettled {
    id: u64,
    change: Change,
    /// The change of programs that home has with this: see [`super::seen`].
    version: usize,
}

/// What a sync of home covers.
#[derive(Clone, Debug)]
pub(super) struct Covered {
    names: u64,
    files: BTreeMap<NodeId, Vec<u64>>,
}

/// Home.
#[derive(Clone)]
pub(super) struct Home {
    pub(super) seen: Plain,
    pub(super) durable: Plain,
    unsettled: Vec<Unsettled>,
    pub(super) files: BTreeMap<NodeId, HomeFile>,
    last: u64,
    next_inode: u64,
    /// The newest change of programs that home had when it was synced.
    pub(super) settled: usize,
    pub(super) refusal: Option<Refusal>,
    /// Inodes that it has room for.
    pub(super) inodes_max: usize,
}

impl Home {
    pub(super) fn new() -> Home {
        Home {
            seen: Plain::new(),
            durable: Plain::new(),
            unsettled: Vec::new(),
            files: BTreeMap::new(),
            last: 0,
            next_inode: INODES_FIRST,
            settled: 0,
            refusal: None,
            inodes_max: usize::MAX,
        }
    }

    /// The next number for an inode.
    pub(super) fn new_inode(&mut self) -> NodeId {
        self.next_inode += 1;
        NodeId(self.next_inode)
    }

    /// Whether it takes no more inodes.
    pub(super) fn is_full(&self) -> bool {
        self.seen.inodes().count() >= self.inodes_max
    }

    /// The newest change of programs that home has, durably or not.
    pub(super) fn newest(&self) -> usize {
        self.unsettled.iter().map(|change| change.version).fold(self.settled, usize::max)
    }

    /// Has home do something, if it does not refuse it: a change in its own numbers.
    pub(super) fn execute(&mut self, change: Change, version: usize) -> Result<(), HomeError> {
        if let Some(refusal) = self.refusal.as_mut().filter(|refusal| refusal.concerns(&change)) {
            refusal.left = refusal.left.saturating_sub(u32::from(refusal.left != u32::MAX));
            let code = refusal.code;
            self.refusal = self.refusal.filter(|refusal| refusal.left > 0);
            return Err(HomeError::Refused(code));
        }
        if matches!(change, Change::Make { .. }) && self.is_full() {
            return Err(HomeError::Refused(ENOSPC));
        }
        self.seen.apply(&change).map_err(|wrong| match wrong {
            Wrong::Gone => HomeError::Gone,
            Wrong::NotEmpty => HomeError::NotEmpty,
            Wrong::Name | Wrong::Type | Wrong::BelowItself => HomeError::Changed,
        })?;
        if let Change::Make { node, kind: weir_names::tree::Kind::File, .. } = &change {
            self.files.insert(*node, HomeFile::new(&[]));
        }
        self.last += 1;
        self.unsettled.push(Unsettled { id: self.last, change, version });
        Ok(())
    }

    pub(super) fn is_there(&self, inode: NodeId) -> bool {
        self.seen.names_of(inode).next().is_some()
    }

    /// What a sync covers that begins now.
    pub(super) fn begin_sync(&self) -> Covered {
        let files = self.files.iter().map(|(&inode, file)| (inode, file.begin_sync()));
        Covered { names: self.last, files: files.collect() }
    }

    /// A sync of names succeeded.
    pub(super) fn settle_names(&mut self, upto: u64) {
        let (settled, unsettled) =
            std::mem::take(&mut self.unsettled).into_iter().partition(|change| change.id <= upto);
        self.unsettled = unsettled;
        let settled: Vec<Unsettled> = settled;
        for Unsettled { change, version, .. } in settled {
            self.durable.apply(&change).expect("home did the same in the same order");
            self.settled = self.settled.max(version);
        }
    }

    /// A sync of everything succeeded.
    pub(super) fn end_sync(&mut self, covered: &Covered) {
        self.settle_names(covered.names);
        for (inode, changes) in &covered.files {
            if let Some(file) = self.files.get_mut(inode) {
                file.settle_quietly(changes);
            }
        }
    }

    /// Where changes of names stand now: what a sync of one file covers of them.
    pub(super) fn names_now(&self) -> u64 {
        self.last
    }

    /// A sync of everything that nothing disturbs.
    pub(super) fn sync(&mut self) {
        let covered = self.begin_sync();
        self.end_sync(&covered);
    }

    /// What is left when the power goes.
    pub(super) fn cut(&self, rng: &mut Rng) -> Home {
        let mut left = self.durable.clone();
        let keeps = *rng.pick(&[0, 300, 700, 900, 1000]);
        // Some file systems lose what comes after what they lost.
        let in_order = rng.chance(400);
        let (mut lost, mut over) = (BTreeSet::new(), false);
        for Unsettled { change, .. } in &self.unsettled {
            over = over || in_order && !rng.chance(900);
            let about = inodes_of(change);
            let may = !over && !about.iter().any(|inode| lost.contains(inode));
            let keep = may && (in_order || rng.chance(keeps)) && left.apply(change).is_ok();
            if !keep {
                lost.extend(about);
            }
        }
        let files = self.files.iter().map(|(&inode, file)| (inode, file.cut(rng)));
        let files: BTreeMap<_, _> = files.collect();
        self.restarted(left, files)
    }

    /// What is left when the daemon is killed.
    pub(super) fn kill(&self, rng: &mut Rng) -> Home {
        let files = self.files.iter().map(|(&inode, file)| (inode, file.kill(rng)));
        let files: BTreeMap<_, _> = files.collect();
        let mut home = self.restarted(self.seen.clone(), files.clone());
        (home.durable, home.unsettled) = (self.durable.clone(), self.unsettled.clone());
        home.settled = self.settled;
        // If the power goes later, files are back whose removal is not durable.
        home.files = files;
        home
    }

    fn restarted(&self, mut left: Plain, files: BTreeMap<NodeId, HomeFile>) -> Home {
        left.forget_nameless();
        let there: BTreeSet<NodeId> = left.inodes().collect();
        let files = files.into_iter().filter(|(inode, _)| there.contains(inode)).collect();
        Home {
            seen: left.clone(),
            durable: left,
            unsettled: Vec::new(),
            files,
            last: self.last,
            next_inode: self.next_inode,
            settled: 0,
            refusal: None,
            inodes_max: usize::MAX,
        }
    }
}

/// The inodes whose names or attributes a change is about.
fn inodes_of(change: &Change) -> Vec<NodeId> {
    match change {
        Change::Make { node, .. }
        | Change::Link { node, .. }
        | Change::Remove { node, .. }
        | Change::Set { node, .. }
        | Change::SetXattr { node, .. } => vec![*node],
        Change::Rename { node, replaced, .. } => {
            [Some(*node), *replaced].into_iter().flatten().collect()
        }
        Change::Exchange { one, other } => vec![one.0, other.0],
    }
}

/// The places a change is about, each with what it leads to afterwards.
pub(super) fn entries_after(change: &Change) -> Vec<(&Place, Option<NodeId>)> {
    match change {
        Change::Make { node, at, .. } | Change::Link { node, at } => vec![(at, Some(*node))],
        Change::Remove { at, .. } => vec![(at, None)],
        Change::Rename { node, replaced, .. } if *replaced == Some(*node) => vec![],
        Change::Rename { node, from, to, .. } => vec![(from, None), (to, Some(*node))],
        Change::Exchange { one, other } => {
            vec![(&one.1, Some(other.0)), (&other.1, Some(one.0))]
        }
        Change::Set { .. } | Change::SetXattr { .. } => vec![],
    }
}
