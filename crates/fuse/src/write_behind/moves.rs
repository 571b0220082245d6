//! What the log has said of places, and of what home is to do to names, where handles do not last ([`super::steps`]).

use std::collections::BTreeMap;
use std::time::Instant;

use weir_log::{FileType, Lsn};
use weir_names::Placed;
use weir_names::tree::Step;

pub(crate) use weir_log::Stage;

/// A step that the log knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) step: Step,
    /// The same with the log's numbers.
    pub(super) numbered: Step,
    pub(super) file_type: FileType,
    /// The record that says so, or a position after all records if the log has failed.
    pub(super) lsn: Lsn,
}

impl Begun {
    /// Whether it is about a directory.
    pub(super) fn is_of_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether both are about one node, or one name.
    pub(super) fn concerns(&self, other: &Step) -> bool {
        self.step.node == other.node || self.step.meets(other)
    }
}

/// What the log said of places.
#[derive(Debug, Default)]
pub(super) struct ByPath {
    pub(super) places: Placed,
    /// The first record that says something of the table.
    pub(super) since: Option<Lsn>,
    /// The first record of all that says it once more, and the last one: from the first on the log is needed when
    /// the last is durable.
    pub(super) renewed: Option<(Lsn, Lsn)>,
    /// Steps that were begun and did not end, with the log's numbers, by the records that said so first.
    pub(super) under_way: BTreeMap<Lsn, Step>,
    /// Those of them that home refused, with the time of that, to be asked for again.
    pub(super) refused: Vec<(Begun, Instant)>,
    /// A step begins, or places are said once more, while home does no step: what is appended may use half of what the log reserves for
    /// the ends of steps.
    pub(super) is_alone: bool,
}

impl ByPath {
    /// From where on the log is needed to know where nodes are.
    pub(super) fn kept_from(&self) -> Option<Lsn> {
        self.since
    }

    /// Whether home does no step, as far as is known.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.len() == self.refused.len()
    }

    /// Everything before `durable` is.
    pub(super) fn committed(&mut self, durable: Lsn) {
        if let Some((first, _)) = self.renewed.filter(|&(_, last)| last < durable) {
            (self.since, self.renewed) = (Some(first), None);
        }
    }
}
