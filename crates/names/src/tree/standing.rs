//! How far home is with one node or one directory: what an fsync(2) waits for where no log makes names durable.
//!
//! Nothing here looks at more than the node, its ancestors and the entries of one directory, and the latter only while home
//! refuses something.

use std::cell::Cell;

use crate::identity::NodeId;
use crate::tree::command::HomeError;
use crate::tree::entry::AtHome;
use crate::tree::part::Part;
use crate::tree::places::Role;
use crate::tree::reports::RefusalCursor;
use crate::tree::state::Tree;
use crate::way::Place;

/// Entries that are looked at to find what home refused.
const LOOKED_AT_MAX: usize = 10_000;

/// How long a chain of entries is followed that wait for one another. They may wait in a circle.
const CHAIN_MAX: usize = 32;

/// What the search for a refusal may cost yet.
#[derive(Clone, Copy)]
struct Search<'a> {
    entries_left: &'a Cell<usize>,
    chain_left: usize,
}

impl Search<'_> {
    /// One more entry is looked at; `None` if that is too much.
    fn one_more(self) -> Option<Self> {
        let entries_left = self.entries_left.get().checked_sub(1)?;
        self.entries_left.set(entries_left);
        Some(Search { chain_left: self.chain_left.checked_sub(1)?, ..self })
    }
}

/// How far home is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has everything as programs see it.
    Home,
    /// Something is to be done yet, or under way.
    Pending,
    /// Home refused something that this depends on, for this reason.
    Refused(HomeError),
}

impl Standing {
    /// Both: the worse of the two.
    #[must_use]
    pub fn and(self, other: Standing) -> Standing {
        match (self, other) {
            (Standing::Refused(_), _) | (_, Standing::Home) => self,
            _ => other,
        }
    }
}

impl Tree {
    /// How far home is with a node: with its names and the directories above them, and with its attributes. What no name
    /// leads to any more, here and at home, has nothing to wait for.
    pub fn standing(&self, node: NodeId) -> Standing {
        let Some(of) = self.nodes.get(&node) else { return Standing::Home };
        let is_changed = of.set_since.is_some() && !of.is_unseen();
        if node != NodeId::ROOT && of.places.is_empty() && !of.parked && !of.busy && !is_changed {
            return Standing::Home;
        }
        let has_kept_only = of.places.count(Role::Kept) == of.places.len();
        let is_set = of.set_since.is_none() && !of.has_unset();
        let is_home = of.is_bound() && !of.busy && !of.parked && has_kept_only && is_set;
        let mut standing = if is_home {
            Standing::Home
        } else {
            self.pending(|search| self.refusal(node, search))
        };
        let mut above = None;
        for place in of.places.iter() {
            if above != Some(place.parent()) {
                above = Some(place.parent());
                standing = standing.and(self.standing_above(place.parent()));
            }
        }
        standing
    }

    /// How far home is with one name, and with the directories above it.
    pub fn standing_of(&self, at: &Place) -> Standing {
        let above = self.standing_above(at.parent());
        match self.entry(at) {
            Some(entry) if entry.is_dirty() || entry.busy => {
                self.pending(|search| self.refusal_of_entry(at, search)).and(above)
            }
            _ => above,
        }
    }

    /// How far home is with all names in a directory, and with the directory itself.
    pub fn standing_of_entries(&self, directory: NodeId) -> Standing {
        let itself = self.standing(directory);
        match self.nodes.get(&directory).and_then(|of| of.directory.as_ref()) {
            Some(of) if of.dirty > 0 || of.busy > 0 => {
                itself.and(self.pending(|search| self.refusal_in(directory, search)))
            }
            _ => itself,
        }
    }

    /// What home refused is searched for where something refused is known at all.
    fn pending(&self, refusal: impl FnOnce(Search<'_>) -> Option<HomeError>) -> Standing {
        if !self.queue.has_refused() {
            return Standing::Pending;
        }
        let entries_left = &Cell::new(LOOKED_AT_MAX);
        let refusal = refusal(Search { entries_left, chain_left: CHAIN_MAX });
        refusal.map_or(Standing::Pending, Standing::Refused)
    }

    /// Whether a directory and those above it are at home, where they should be.
    fn standing_above(&self, directory: NodeId) -> Standing {
        self.unsettled_places_above(directory)
            .map(|place| self.pending(|search| self.refusal_of_entry(place, search)))
            .fold(Standing::Home, Standing::and)
    }

    /// The names of this directory and of those above it that home does not have as they should be. What is in a directory
    /// that was removed goes, so that nothing above it matters.
    pub(crate) fn unsettled_places_above(&self, directory: NodeId) -> impl Iterator<Item = &Place> {
        let place_of = |node: NodeId| {
            let of = self.nodes.get(&node).filter(|_| node != NodeId::ROOT)?;
            Some((node, of, of.places.wanted().next()?))
        };
        let above = std::iter::successors(place_of(directory), move |(_, _, place)| {
            place_of(place.parent())
        });
        above.filter_map(|(_, of, place)| {
            let is_there = of.places.role(place) == Some(Role::Kept);
            (!of.is_bound() || of.busy || of.parked || !is_there).then_some(place)
        })
    }

    /// What home refused of a node.
    fn refusal(&self, node: NodeId, search: Search<'_>) -> Option<HomeError> {
        let of = &self.nodes[&node];
        let itself = self.queue.refusal(&Part::Attributes(node));
        // A directory's attributes are set after its entries are at home.
        let waits = of.directory.is_some() && of.set_since.is_some();
        let open = of.places.unplaced().chain(of.places.with(Role::Surplus));
        let mut open = open.chain(of.places.with(Role::Unsure));
        itself
            .or_else(|| of.busy.then(|| self.lost_answer_of(node)).flatten())
            .or_else(|| waits.then(|| self.refusal_in(node, search)).flatten())
            .or_else(|| open.find_map(|place| self.refusal_of_entry(place, search)))
    }

    /// What home refused in a directory.
    fn refusal_in(&self, directory: NodeId, search: Search<'_>) -> Option<HomeError> {
        let direct = self.queue.refused_in(directory);
        if direct.is_some() {
            return direct;
        }
        let of = self.nodes.get(&directory)?.directory.as_ref();
        let of = of.filter(|of| of.dirty > 0 || of.busy > 0)?;
        of.entries().filter(|(_, entry)| entry.is_dirty() || entry.busy).find_map(|(name, _)| {
            let place = Place::new(directory, name).expect("entries have names");
            self.refusal_of_entry(&place, search)
        })
    }

    /// What home refused of an entry, or of what has to be done before it.
    fn refusal_of_entry(&self, at: &Place, search: Search<'_>) -> Option<HomeError> {
        let search = search.one_more()?;
        let entry = self.entry(at).filter(|entry| entry.is_dirty() || entry.busy)?;
        let itself = self.queue.refusal(&Part::Entry(at.clone()));
        let itself = itself.or_else(|| entry.busy.then(|| self.lost_answer_at(at)).flatten());
        let AtHome::Node(there) = entry.home else { return itself };
        itself.or_else(|| match self.nodes[&there].places.unplaced().next() {
            // What is there moves away first, or else is emptied and removed.
            Some(target) => self.refusal_of_entry(target, search).or_else(|| {
                self.unsettled_places_above(target.parent())
                    .find_map(|place| self.queue.refusal(&Part::Entry(place.clone())))
            }),
            None => self.refusal_in(there, search),
        })
    }
}

/// What is reported once of that.
impl Tree {
    /// Where a description begins that is opened now.
    pub fn refusal_cursor(&self) -> RefusalCursor {
        self.queue.reports.cursor()
    }

    /// Why home refused attributes or a name of a node, if that is to be reported to the description of this cursor. Of
    /// several reasons the newest; the others count as reported, too.
    pub fn take_refusal(&mut self, node: NodeId, cursor: &mut RefusalCursor) -> Option<HomeError> {
        let of = self.nodes.get(&node);
        let of = of.filter(|_| !self.queue.reports.is_empty());
        let places = of.into_iter().flat_map(|of| of.places.iter().cloned().map(Part::Entry));
        self.queue.reports.take(places.chain([Part::Attributes(node)]), cursor)
    }

    /// Why home refused attributes of a directory or a name in it, if nobody who synced it was told yet.
    pub fn take_refusal_in(&mut self, directory: NodeId) -> Option<HomeError> {
        let entry = self.queue.reports.take_in(directory);
        let itself = self.take_refusal(directory, &mut self.refusal_cursor());
        entry.or(itself)
    }
}
