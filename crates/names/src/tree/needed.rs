//! From where on the log is needed: positions of changes that home does not have, or has and was not synced since.

use std::collections::BTreeMap;

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::way::Place;

/// What home has and was not synced since.
#[derive(Debug)]
pub(crate) enum Settling {
    Entry {
        at: Place,
        since: Lsn,
    },
    /// `named` is where the log says which inode of home the node is, if home got it since the log was begun.
    Attributes {
        node: NodeId,
        since: Lsn,
        named: Lsn,
    },
}

impl Settling {
    /// Whether a sync of home settles it, where the log is durable up to `durable`. Later records may speak of a node that
    /// was made, so that the record that made it is needed until another one names it.
    pub(crate) fn is_named(&self, durable: Lsn) -> bool {
        match self {
            Settling::Attributes { named, .. } => *named < durable,
            Settling::Entry { .. } => true,
        }
    }
}

/// Positions that are needed, each as often as it was added.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    positions: BTreeMap<Lsn, u32>,
    /// The next sync of home covers these.
    pub(crate) settling: Vec<Settling>,
    /// The one under way covers these.
    pub(crate) syncing: Vec<Settling>,
}

impl Needed {
    pub(crate) fn add(&mut self, lsn: Lsn) {
        *self.positions.entry(lsn).or_default() += 1;
    }

    pub(crate) fn release(&mut self, lsn: Option<Lsn>) {
        let Some(lsn) = lsn else { return };
        let count = self.positions.get_mut(&lsn).expect("what is released was added");
        *count -= 1;
        if *count == 0 {
            self.positions.remove(&lsn);
        }
    }

    pub(crate) fn first(&self) -> Option<Lsn> {
        self.positions.keys().next().copied()
    }
}
