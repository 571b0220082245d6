//! How far home is with everything that was changed up to a moment, while others go on: what a sync of everything waits for.
//!
//! A sync has home asked again for what it refused, and waits until everything up to its moment is at home or was tried since.
//! What was tried is known when nothing is under way and the planner has nothing to do. Where programs change names all the
//! time that may never be: then it is enough that home has refused a part after one more retry, too.

use weir_log::Lsn;

use crate::tree::command::HomeError;
use crate::tree::part::Part;
use crate::tree::queue::Refusal;
use crate::tree::standing::Standing;
use crate::tree::state::Tree;
use crate::tree::tried::Tried;

/// A moment, up to which changes are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// The last change.
    pub lsn: Lsn,
    /// A number of [`Tree::retries`]: what home refused counts if it was tried since. With 0, the first refusal is answered.
    pub retry: u64,
}

impl Tree {
    /// There is nothing to be done, and nothing under way.
    pub(crate) fn note_tried(&mut self) {
        let is_settled = self.needed.settling.is_empty() && self.needed.syncing.is_empty();
        let is_known = is_settled && !self.queue.has_uncommitted();
        self.tried = Tried {
            retry: self.queue.retries(),
            durable: self.durable,
            left: self.needed.first().filter(|_| is_known),
        };
    }

    /// How far home is with what was changed up to a moment. With a log, what it has is settled, too.
    pub fn standing_until(&self, until: Until) -> Standing {
        if self.needed_from().is_none_or(|from| from > until.lsn) {
            return Standing::Home;
        }
        self.refusal_until(until).map_or(Standing::Pending, Standing::Refused)
    }

    fn refusal_until(&self, until: Until) -> Option<HomeError> {
        let were_tried = self.tried.retry >= until.retry && self.tried.durable > until.lsn;
        let counts = |refusal: &Refusal| match were_tried {
            true => refusal.retry >= until.retry,
            false => refusal.retry > until.retry,
        };
        let refused = || self.queue.refused();
        let before = |part: &Part| self.changed_first(part).is_some_and(|lsn| lsn <= until.lsn);
        let found = refused().find(|(part, refusal)| counts(refusal) && before(part));
        // What is left may wait for something that was changed later.
        let is_left = were_tried && self.tried.left.is_some_and(|left| left <= until.lsn);
        let found = found.or_else(|| refused().next().filter(|_| is_left));
        found.map(|(_, refusal)| refusal.error)
    }

    /// Whether changes wait for the log before home is given them.
    pub fn has_uncommitted(&self) -> bool {
        self.queue.has_uncommitted()
    }

    /// Parts that home does not have as they should be, but for those of commands under way; some may be there twice.
    pub fn left(&self) -> impl Iterator<Item = &Part> {
        self.queue.parts().filter(|part| self.changed_first(part).is_some())
    }

    /// The first change of a part that home does not have.
    fn changed_first(&self, part: &Part) -> Option<Lsn> {
        match part {
            Part::Entry(at) => self.entry(at)?.since,
            Part::Attributes(node) => self.nodes.get(node)?.set_since,
        }
    }
}
