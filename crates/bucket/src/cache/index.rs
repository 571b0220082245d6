//! Which units are kept, what they take, and which was not used for the longest time. Without I/O.
//!
//! Invariants: `bytes` is the sum of what the units take; both maps have the same units.

use std::collections::{BTreeSet, HashMap};

use super::unit::Name;

/// The index.
#[derive(Debug, Default)]
pub struct Index {
    /// When each was used, and what it takes.
    units: HashMap<Name, (u64, u64)>,
    by_use: BTreeSet<(u64, Name)>,
    bytes: u64,
}

impl Index {
    /// What all units take, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a unit, in place of the one of the same name.
    pub fn insert(&mut self, name: Name, bytes: u64, used: u64) {
        self.remove(name);
        self.units.insert(name, (used, bytes));
        self.by_use.insert((used, name));
        self.bytes += bytes;
    }

    /// Notes that a unit was used. Whether it is there.
    pub fn touch(&mut self, name: Name, used: u64) -> bool {
        let Some((last, _)) = self.units.get_mut(&name) else { return false };
        self.by_use.remove(&(*last, name));
        *last = used;
        self.by_use.insert((used, name));
        true
    }

    /// Takes a unit out.
    pub fn remove(&mut self, name: Name) {
        if let Some((used, bytes)) = self.units.remove(&name) {
            self.by_use.remove(&(used, name));
            self.bytes -= bytes;
        }
    }

    /// The unit that was not used for the longest time, if all take more than `bytes_max`.
    pub fn oldest_above(&self, bytes_max: u64) -> Option<Name> {
        let &(_, name) = self.by_use.first()?;
        (self.bytes > bytes_max).then_some(name)
    }
}
