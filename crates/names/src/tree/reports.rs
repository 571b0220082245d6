//! What home refused and does not have yet, and to whom that was reported: fsync(2) reports each refusal once.
//!
//! A refusal is *new* if home had not refused the part since its last change, or refused it for another reason. That home
//! refuses a part again when it is tried again is no news.
//!
//! As with the kernel's errseq_t, a new refusal is reported to each open description of the node that was there by then, and to
//! a later one if nobody was told before. For a directory's names, which have no descriptions here, it is reported once.
//!
//! Owns the refusals until home has the part, or it is changed. Does not own when a part is tried again ([`super::queue`]).

use std::collections::{BTreeMap, HashMap};

use crate::identity::NodeId;
use crate::tree::command::HomeError;
use crate::tree::part::Part;

/// The position of one open description in the order of new refusals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusalCursor(u64);

/// A part that home refused.
#[derive(Debug)]
struct Report {
    error: HomeError,
    number: RefusalCursor,
    /// Somebody who synced the node was told.
    is_told: bool,
}

/// What home refused.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    last: RefusalCursor,
    parts: BTreeMap<Part, Report>,
    /// Refused entries of directories, of which nobody was told who synced the directory.
    untold: HashMap<NodeId, BTreeMap<RefusalCursor, HomeError>>,
}

impl Reports {
    /// Home refused a part, for the first time or again.
    pub(crate) fn refused(&mut self, part: &Part, error: HomeError) {
        if self.parts.get(part).is_some_and(|known| known.error == error) {
            return;
        }
        self.forget(part);
        self.last.0 += 1;
        let report = Report { error, number: self.last, is_told: false };
        if let Part::Entry(at) = part {
            self.untold.entry(at.parent()).or_default().insert(report.number, error);
        }
        self.parts.insert(part.clone(), report);
    }

    /// Home has a part, or it was changed.
    pub(crate) fn forget(&mut self, part: &Part) {
        let Some(report) = self.parts.remove(part) else { return };
        if let Part::Entry(at) = part
            && let Some(untold) = self.untold.get_mut(&at.parent())
        {
            untold.remove(&report.number);
            if untold.is_empty() {
                self.untold.remove(&at.parent());
            }
        }
    }

    /// Where a description begins that is opened now.
    pub(crate) fn cursor(&self) -> RefusalCursor {
        self.last
    }

    /// Why home refused one of a node's parts, if that is to be reported to the description of this cursor. Of several reasons
    /// the newest; the others count as reported, too.
    pub(crate) fn take(
        &mut self,
        parts: impl Iterator<Item = Part>,
        cursor: &mut RefusalCursor,
    ) -> Option<HomeError> {
        let since = std::mem::replace(cursor, self.last);
        let mut newest: Option<(RefusalCursor, HomeError)> = None;
        for part in parts {
            let Some(report) = self.parts.get_mut(&part) else { continue };
            let is_due = !std::mem::replace(&mut report.is_told, true) || report.number > since;
            if is_due && newest.is_none_or(|(number, _)| report.number > number) {
                newest = Some((report.number, report.error));
            }
        }
        newest.map(|(_, error)| error)
    }

    /// Why home refused an entry of a directory, if that was not reported to anybody who synced the directory.
    pub(crate) fn take_in(&mut self, directory: NodeId) -> Option<HomeError> {
        self.untold.remove(&directory)?.into_values().next_back()
    }

    /// Whether home refused nothing that it does not have yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}
