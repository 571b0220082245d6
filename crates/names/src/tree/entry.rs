//! What one directory has: its entries, each as it should be and as home has it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};

use weir_log::Lsn;

use crate::identity::NodeId;

/// What home has under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtHome {
    /// It was not looked at.
    Unknown,
    /// Nothing.
    Nothing,
    /// This node.
    Node(NodeId),
}

impl AtHome {
    /// The node that home is known to have.
    pub fn node(self) -> Option<NodeId> {
        match self {
            AtHome::Node(node) => Some(node),
            AtHome::Unknown | AtHome::Nothing => None,
        }
    }
}

/// One name of a directory.
///
/// It is *dirty* if home has something else, or is not known to have the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// What the name leads to.
    pub(crate) wanted: Option<NodeId>,
    pub(crate) home: AtHome,
    /// The last change of it.
    pub(crate) lsn: Lsn,
    /// The first change of it that home does not have; the log is needed from there on.
    pub(crate) since: Option<Lsn>,
    /// A command on it is under way.
    pub(crate) busy: bool,
    /// A command on it was begun since it was as it should be.
    pub(crate) touched: bool,
    /// Changes of it at home that were not synced there yet. The entry stays until they are.
    pub(crate) unsettled: u32,
    /// Its position in listings: see [`Positions`].
    pub(crate) position: u64,
}

impl Entry {
    pub(crate) fn is_dirty(&self) -> bool {
        match (self.wanted, self.home) {
            (Some(wanted), AtHome::Node(home)) => wanted != home,
            (None, AtHome::Nothing) => false,
            _ => true,
        }
    }

    /// Nothing is to be done for it, or under way, or not settled.
    pub(crate) fn is_merely_known(&self) -> bool {
        !self.is_dirty() && !self.busy && self.since.is_none() && self.unsettled == 0
    }
}

/// Entries of a directory that lead to directories, as many as:
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subdirectories {
    /// As programs see it.
    pub(crate) wanted: usize,
    /// As home is known to have it.
    pub(crate) home: usize,
    /// Of those, and of entries that led or will lead to one: how many a command is under way for.
    pub(crate) busy: usize,
}

/// Positions of a directory's names in listings, above 0 and below 2^32.
///
/// A position follows from the name alone. So a listing goes on after any of them although what was known of the directory
/// was forgotten and read again meanwhile: a name that was there all the time is listed once. The exception: of names with
/// the same hash all but the first get the positions after it, in the order in which they come.
#[derive(Debug, Default)]
pub struct Positions(BTreeMap<u64, Box<[u8]>>);

impl Positions {
    /// The hash is below this, so that there is room after it.
    const HASHES: u64 = (1 << 32) - (1 << 24);

    /// Adds a name that is not here. Returns its position.
    pub fn add(&mut self, name: &[u8]) -> u64 {
        // Its keys are always the same.
        let mut hasher = DefaultHasher::new();
        hasher.write(name);
        let mut position = 1 + hasher.finish() % Positions::HASHES;
        while self.0.contains_key(&position) {
            position += 1;
        }
        self.0.insert(position, name.into());
        position
    }

    /// The names from a position on, each with its own.
    pub fn from(&self, position: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.0.range(position..).map(|(&position, name)| (position, &**name))
    }

    fn remove(&mut self, position: u64) {
        self.0.remove(&position);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The entries of one directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    entries: HashMap<Box<[u8]>, Entry>,
    /// Names that lead to something, by their positions in listings.
    listed: Positions,
    /// All its names are known: what is not here is not there.
    pub(crate) complete: bool,
    /// Entries that home is known to have.
    pub(crate) at_home: usize,
    pub(crate) dirty: usize,
    /// Entries with a command under way.
    pub(crate) busy: usize,
    pub(crate) subdirectories: Subdirectories,
}

impl Directory {
    pub(crate) fn new(complete: bool) -> Directory {
        Directory { complete, ..Directory::default() }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Whether a name leads to something: `false` if it is not known, too.
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Whether home has nothing in it, and will not have by a command under way.
    pub(crate) fn is_empty_at_home(&self) -> bool {
        self.at_home == 0 && self.dirty == 0 && self.busy == 0
    }

    /// The names that lead to something, from a position on.
    pub(crate) fn list_from(&self, position: u64) -> impl Iterator<Item = (u64, &[u8], NodeId)> {
        self.listed.from(position).map(|(position, name)| {
            let node = self.entries[name].wanted.expect("a listed name leads to something");
            (position, name, node)
        })
    }

    /// Whether nothing at all is known of its names, except that there are no others.
    pub(crate) fn has_no_entries(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.entries.iter().map(|(name, entry)| (&**name, entry))
    }

    /// Changes an entry, which is added if it is not there, and forgotten if nothing is left to know of it.
    pub(crate) fn change<T>(&mut self, name: &[u8], change: impl FnOnce(&mut Entry) -> T) -> T {
        let unknown = if self.complete { AtHome::Nothing } else { AtHome::Unknown };
        let fresh = Entry {
            wanted: None,
            home: unknown,
            lsn: Lsn(0),
            since: None,
            busy: false,
            touched: false,
            unsettled: 0,
            position: 0,
        };
        let known = self.entries.get(name).copied();
        let before = known.unwrap_or(fresh);
        let mut entry = before;
        let result = change(&mut entry);
        // A name that was not here counts as clean: nobody changed it.
        self.dirty -= usize::from(known.is_some_and(|known| known.is_dirty()));
        self.at_home -= usize::from(before.home.node().is_some());
        self.at_home += usize::from(entry.home.node().is_some());
        self.busy -= usize::from(before.busy);
        self.busy += usize::from(entry.busy);
        match (before.wanted, entry.wanted) {
            (None, Some(_)) => {
                entry.position = self.listed.add(name);
            }
            (Some(_), None) => {
                self.listed.remove(before.position);
            }
            _ => {}
        }
        let idle = !entry.busy && entry.since.is_none() && entry.unsettled == 0;
        let gone = entry.wanted.is_none() && idle;
        let known_without = entry.home == unknown && entry.home != AtHome::Unknown;
        if gone && (known_without || entry.home == AtHome::Unknown) {
            self.entries.remove(name);
        } else {
            self.dirty += usize::from(entry.is_dirty());
            self.entries.insert(name.into(), entry);
        }
        result
    }

    /// Forgets what is merely known of a name: home is asked again.
    pub(crate) fn forget(&mut self, name: &[u8]) {
        self.complete = false;
        let Some(entry) = self.entries.get(name).filter(|entry| entry.is_merely_known()) else {
            return;
        };
        self.at_home -= usize::from(entry.home.node().is_some());
        if entry.wanted.is_some() {
            self.listed.remove(entry.position);
        }
        self.entries.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NodeId;

    #[test]
    fn a_name_keeps_its_position_when_it_is_forgotten_and_found_again() {
        let mut directory = Directory::new(false);
        let names: Vec<String> = (0..1000).map(|number| format!("name-{number}")).collect();
        let find = |directory: &mut Directory, name: &str| {
            let found = NodeId(7);
            directory.change(name.as_bytes(), |entry| {
                (entry.wanted, entry.home) = (Some(found), AtHome::Node(found));
            });
        };
        let listed = |directory: &Directory| -> Vec<(u64, Vec<u8>)> {
            directory.list_from(0).map(|(at, name, _)| (at, name.to_vec())).collect()
        };
        names.iter().for_each(|name| find(&mut directory, name));
        let before = listed(&directory);
        assert!(before.iter().all(|(position, _)| (1..1 << 32).contains(position)));
        names.iter().for_each(|name| directory.forget(name.as_bytes()));
        assert!(directory.is_empty());
        names.iter().rev().for_each(|name| find(&mut directory, name));
        assert_eq!(listed(&directory), before);
    }

    #[test]
    fn names_of_one_position_get_those_after_it() {
        let mut positions = Positions::default();
        let first = positions.add(b"name");
        assert_eq!(positions.add(b"name"), first + 1);
        assert_eq!(positions.from(first + 1).count(), 1);
    }
}
