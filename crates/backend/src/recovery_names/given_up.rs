//! What the log has of files and directories that somebody else removed or moved in SOURCE since.
//!
//! - What is gone has nothing to be done about it: it is given up, and reported.
//! - What was moved stays where it is, and its data goes into it there.
//! - A directory that is gone, and in which something is to be that is not, is made again under the name that the log gives
//!   it, or else as `lost+weir-N` in SOURCE.
//! - What the log makes, and home had, is made again: home may have lost it.
//! - A directory that was to be removed, has no name any more and is not empty is kept as `lost+weir-N`.
//!
//! Each is decided when everything else was done, and when home was looked at again. So nothing of it keeps the log.

use std::io;
use std::path::Path;

use weir_names::tree::{AtHome, HomeError, Kind, Part, Tree};
use weir_names::{NodeId, Place};

use super::Recovery;
use super::outcome::{GivenUp, KeptDirectory, NamesRecoveryError, system};

/// A directory without a name, and its number.
const LOST: &str = "lost+weir-";

/// What home has of a node to which a name is to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtHand {
    /// It is to be made, or is there to be renamed or linked.
    Usable,
    Gone,
    /// Somebody else moved it.
    Moved,
}

impl Recovery<'_> {
    /// Gives up what cannot be done any more, and finds places for what can. Says whether anything is to be done for it.
    ///
    /// # Errors
    /// Those of looking at home.
    pub(super) fn give_up(&mut self) -> Result<bool, NamesRecoveryError> {
        let refused: Vec<(Part, HomeError)> =
            self.tree.refused().map(|(part, error)| (part.clone(), error)).collect();
        let mut is_new = false;
        for (part, error) in &refused {
            match (part, error) {
                (Part::Entry(at), HomeError::Refused(libc::EINVAL)) => {
                    is_new |= self.give_up_move(at)?;
                }
                (_, HomeError::Refused(_)) => {}
                (Part::Attributes(node), HomeError::NotEmpty) => {
                    is_new |= self.keep_parked(*node)?;
                }
                (Part::Attributes(_), _) => {}
                // Before what is in it: a directory that is made again is not gone.
                (Part::Entry(at), _) => is_new |= self.make_directory_again(at)?,
            }
        }
        for (part, error) in &refused {
            if let Part::Entry(at) = part
                && !matches!(error, HomeError::Refused(_))
            {
                is_new |= self.give_up_name(at)?;
            }
        }
        Ok(is_new)
    }

    /// If the directory of a name is gone that is to lead to something.
    fn make_directory_again(&mut self, at: &Place) -> Result<bool, NamesRecoveryError> {
        let directory = at.parent();
        let Some(node) = self.wanted_at(at) else { return Ok(false) };
        if !self.tree.is_bound(directory)
            || self.made_again.contains(&directory)
            || self.at_hand(node) != AtHand::Usable
            || !self.is_gone(directory)
        {
            return Ok(false);
        }
        let wanted = self.tree.wanted_places(directory).next().cloned();
        let place = wanted.map_or_else(|| self.free_place(), Ok)?;
        let lsn = self.executor.next_lsn();
        self.tree.make_elsewhere(directory, &place, lsn);
        self.made_again.insert(directory);
        Ok(true)
    }

    /// If what a name is to lead to is gone, or is elsewhere.
    fn give_up_name(&mut self, at: &Place) -> Result<bool, NamesRecoveryError> {
        let Some(node) = self.wanted_at(at) else { return Ok(false) };
        let given_up = match self.at_hand(node) {
            AtHand::Gone => GivenUp::Name(self.path(at)),
            // A file is linked, unless there is no directory to do it in.
            AtHand::Moved if self.is_directory(node) || self.is_gone(at.parent()) => {
                let now = self.executor.inodes.path_of(node);
                let now = now.unwrap_or_else(|| "elsewhere".to_owned());
                GivenUp::Moved { path: self.path(at), now }
            }
            AtHand::Usable | AtHand::Moved => return Ok(false),
        };
        let found = self.executor.look(&mut self.tree, at).unwrap_or(AtHome::Nothing);
        self.tree.give_up(at, found);
        self.reported_gone.insert(node);
        self.given_up.push(given_up);
        Ok(true)
    }

    /// If a directory is to be moved below itself, since somebody else moved something: rename(2) says so by EINVAL. It stays
    /// where it is.
    fn give_up_move(&mut self, at: &Place) -> Result<bool, NamesRecoveryError> {
        let wanted = self.wanted_at(at).filter(|&node| self.is_directory(node));
        let Some(node) = wanted else { return Ok(false) };
        let Some(home) = self.tree.home_place(node) else { return Ok(false) };
        let inodes = &mut self.executor.inodes;
        let (Some(into), Some(moved)) = (inodes.path_of(at.parent()), inodes.path_of(node)) else {
            return Ok(false);
        };
        if !Path::new(&into).starts_with(moved) {
            return Ok(false);
        }
        let path = self.path(at);
        let found = self.executor.look(&mut self.tree, at).unwrap_or(AtHome::Nothing);
        self.tree.give_up(at, found);
        if home.parent() == NodeId::PARKING {
            let free = self.free_place()?;
            let lsn = self.executor.next_lsn();
            self.tree.keep_parked(node, &free, lsn);
        } else {
            self.tree.give_up(&home, AtHome::Node(node));
        }
        let now = self.path_of(node);
        self.given_up.push(GivenUp::Moved { path, now });
        Ok(true)
    }

    fn keep_parked(&mut self, directory: NodeId) -> Result<bool, NamesRecoveryError> {
        if self.tree.wanted_places(directory).next().is_some() {
            return Ok(false);
        }
        let free = self.free_place()?;
        let lsn = self.executor.next_lsn();
        self.tree.keep_parked(directory, &free, lsn);
        self.kept_parked.push(directory);
        Ok(true)
    }

    /// Files and directories that are gone whose attributes were to be set, and that the log does not remove.
    pub(super) fn report_gone(&mut self) {
        for node in self.executor.take_gone() {
            let is_replaced = self.removed.contains(&node) || self.made_again.contains(&node);
            if !is_replaced && self.reported_gone.insert(node) {
                let path = self.path_of(node);
                self.given_up.push(GivenUp::Attributes(path));
            }
        }
    }

    /// Directories that are not where the log has them.
    pub(super) fn kept_directories(&mut self) -> Vec<KeptDirectory> {
        let made_again: Vec<NodeId> = self.made_again.iter().copied().collect();
        let made_again = made_again.into_iter().map(|node| {
            KeptDirectory::MadeAgain(self.executor.inodes.path_of(node).unwrap_or_default())
        });
        let mut kept: Vec<KeptDirectory> = made_again.collect();
        for node in std::mem::take(&mut self.kept_parked) {
            let path = self.executor.inodes.path_of(node);
            kept.push(KeptDirectory::NotEmpty(path.unwrap_or_default()));
        }
        kept
    }

    /// Paths of what was missing in SOURCE, and is there again.
    pub(super) fn missing_made_again(&mut self) -> Vec<String> {
        let missing = std::mem::take(&mut self.missing);
        let is_there =
            |tree: &Tree, node| tree.is_bound(node) && tree.wanted_places(node).next().is_some();
        let missing: Vec<NodeId> =
            missing.into_iter().filter(|&node| is_there(&self.tree, node)).collect();
        missing.into_iter().map(|node| self.path_of(node)).collect()
    }

    fn wanted_at(&self, at: &Place) -> Option<NodeId> {
        self.tree.look_up(at.parent(), at.name()).flatten()
    }

    fn at_hand(&mut self, node: NodeId) -> AtHand {
        if !self.tree.is_bound(node) {
            return AtHand::Usable;
        }
        if self.is_gone(node) {
            return AtHand::Gone;
        }
        match self.tree.home_place(node) {
            None => AtHand::Moved,
            Some(_) => AtHand::Usable,
        }
    }

    pub(super) fn is_directory(&self, node: NodeId) -> bool {
        self.tree.kind(node).is_some_and(Kind::is_directory)
    }

    fn is_gone(&mut self, node: NodeId) -> bool {
        let known = self.tree.home_place(node);
        self.executor.is_gone(node, known.as_ref())
    }

    /// A name in SOURCE that nothing has, or an empty directory which a recovery made that was cut.
    fn free_place(&mut self) -> Result<Place, NamesRecoveryError> {
        loop {
            self.lost += 1;
            let name = format!("{LOST}{}", self.lost);
            let at = Place::new(NodeId::ROOT, name.as_bytes()).expect("it is one name");
            let is_free = match self.executor.inodes.look(&at) {
                Ok(None) => self.wanted_at(&at).is_none(),
                Ok(Some(seen)) => {
                    let is_directory = seen.kind().is_ok_and(|kind| kind.is_directory());
                    is_directory && self.is_nobodys(&seen).map_err(system("look into SOURCE"))?
                }
                Err(error) => return Err(system("look into SOURCE")(error)),
            };
            if is_free {
                return Ok(at);
            }
        }
    }

    fn is_nobodys(&mut self, seen: &super::inodes::Seen) -> io::Result<bool> {
        let known = seen.identity().and_then(|identity| self.executor.inodes.node(identity));
        Ok(known.is_none() && seen.is_empty()?)
    }
}
