//! The places of a node: entries that lead to it, or where home has it or may have it, by what they are to it.
//!
//! Nearly all nodes have one place; a file may have 65,000. So a few places lie in an array, and more in sets.

use std::collections::BTreeSet;

use crate::identity::NodeId;
use crate::tree::entry::{AtHome, Entry};
use crate::way::Place;

/// Places that lie in an array.
const FEW: usize = 8;

/// What an entry is to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It leads to the node, and home has the node there.
    Kept,
    /// It leads to the node, and home has something else there, or nothing.
    Lacking,
    /// It leads to the node, and home was not looked at.
    LackingUnsure,
    /// Home has the node there, and the entry leads elsewhere.
    Surplus,
    /// The entry leads elsewhere, and home may have the node there.
    Unsure,
}

impl Role {
    const ALL: [Role; 5] =
        [Role::Kept, Role::Lacking, Role::LackingUnsure, Role::Surplus, Role::Unsure];

    /// What the entry alone says; [`Role::Unsure`] it does not say.
    pub(crate) fn of(entry: &Entry, node: NodeId) -> Option<Role> {
        match (entry.wanted == Some(node), entry.home) {
            (wanted, AtHome::Node(home)) if home == node => {
                Some(if wanted { Role::Kept } else { Role::Surplus })
            }
            (true, AtHome::Unknown) => Some(Role::LackingUnsure),
            (true, _) => Some(Role::Lacking),
            (false, _) => None,
        }
    }
}

/// The places of one node.
#[derive(Debug)]
pub(crate) enum Places {
    /// In no order.
    Few(Vec<(Role, Place)>),
    /// By role.
    Many(Box<[BTreeSet<Place>; Role::ALL.len()]>),
}

impl Places {
    pub(crate) fn new() -> Places {
        Places::Few(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Places::Few(few) if few.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Places::Few(few) => few.len(),
            Places::Many(many) => many.iter().map(BTreeSet::len).sum(),
        }
    }

    /// Places of a role.
    pub(crate) fn count(&self, role: Role) -> usize {
        match self {
            Places::Few(few) => few.iter().filter(|(of, _)| *of == role).count(),
            Places::Many(many) => many[role as usize].len(),
        }
    }

    /// The places of a role.
    pub(crate) fn with(&self, role: Role) -> impl Iterator<Item = &Place> {
        let (few, many) = match self {
            Places::Few(few) => (Some(few), None),
            Places::Many(many) => (None, Some(&many[role as usize])),
        };
        let few = few.into_iter().flatten().filter(move |(of, _)| *of == role);
        few.map(|(_, place)| place).chain(many.into_iter().flatten())
    }

    /// All places, those of one role together if there are many.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Place> {
        Role::ALL.into_iter().flat_map(|role| self.with(role))
    }

    /// Entries that lead to the node.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &Place> {
        self.with(Role::Kept).chain(self.unplaced())
    }

    /// Entries that lead to the node, where home is not known to have it.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = &Place> {
        self.with(Role::Lacking).chain(self.with(Role::LackingUnsure))
    }

    /// Where home has the node.
    pub(crate) fn home(&self) -> impl Iterator<Item = &Place> {
        self.with(Role::Kept).chain(self.with(Role::Surplus))
    }

    /// Where home may have the node, and was not looked at.
    pub(crate) fn unsure(&self) -> impl Iterator<Item = &Place> {
        self.with(Role::LackingUnsure).chain(self.with(Role::Unsure))
    }

    pub(crate) fn role(&self, at: &Place) -> Option<Role> {
        match self {
            Places::Few(few) => few.iter().find(|(_, place)| place == at).map(|(role, _)| *role),
            Places::Many(many) => {
                Role::ALL.into_iter().find(|&role| many[role as usize].contains(at))
            }
        }
    }

    /// What a place is from now on; `None`: none of the node's.
    pub(crate) fn set(&mut self, at: &Place, role: Option<Role>) {
        match self {
            Places::Few(few) => {
                let known = few.iter().position(|(_, place)| place == at);
                match (known, role) {
                    (Some(nth), Some(role)) => few[nth].0 = role,
                    (Some(nth), None) => {
                        few.remove(nth);
                    }
                    (None, Some(role)) => few.push((role, at.clone())),
                    (None, None) => {}
                }
                if few.len() > FEW {
                    let mut many = Box::new(<[BTreeSet<Place>; Role::ALL.len()]>::default());
                    for (role, place) in few.drain(..) {
                        many[role as usize].insert(place);
                    }
                    *self = Places::Many(many);
                }
            }
            Places::Many(many) => {
                let known = many.iter_mut().find_map(|places| places.take(at));
                if let Some(role) = role {
                    many[role as usize].insert(known.unwrap_or_else(|| at.clone()));
                }
                if self.len() <= FEW / 2 {
                    let few = |role| self.with(role).map(move |place| (role, place.clone()));
                    *self = Places::Few(Role::ALL.into_iter().flat_map(few).collect());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_same_whether_they_are_few_or_many() {
        let place = |n: u64| Place::new(NodeId(n / 3), format!("{n}").as_bytes()).unwrap();
        let mut places = Places::new();
        for n in 0..30 {
            places.set(&place(n), Some(Role::ALL[n as usize % 5]));
            assert_eq!((places.len(), places.iter().count()), (n as usize + 1, n as usize + 1));
        }
        for role in Role::ALL {
            assert_eq!((places.count(role), places.with(role).count()), (6, 6));
        }
        assert_eq!(places.role(&place(7)), Some(Role::LackingUnsure));
        places.set(&place(7), Some(Role::Kept));
        assert_eq!((places.role(&place(7)), places.len()), (Some(Role::Kept), 30));
        for n in 0..30 {
            places.set(&place(n), None);
            assert_eq!((places.role(&place(n)), places.len()), (None, 29 - n as usize));
        }
        assert!(places.is_empty());
    }
}
