//! Changes of the namespace: what is checked before one is made, and what it does.
//!
//! A change is checked and applied under one lock, and has one place in the log's order. Replay applies the same
//! changes in the same order, so that a recovered tree is the tree as it was.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::node::{Attributes, Binding, Kind, Node};
use crate::tree::state::Tree;
use crate::way::Place;

/// Links a file may have: what the smallest of the usual homes allows (ext4: EXT4_LINK_MAX).
pub const LINKS_MAX: usize = 65_000;

/// Bytes in a name (NAME_MAX, limits.h).
pub const NAME_BYTES_MAX: usize = 255;

/// One change of the namespace: one call of a program, one record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// open(2) with O_CREAT, mkdir(2), mknod(2), symlink(2): a new node and its first name.
    Make {
        /// The new node; its number was never used.
        node: NodeId,
        /// Its name.
        at: Place,
        /// What it is.
        kind: Kind,
        /// Its attributes, all but the times' given.
        attributes: Attributes,
    },
    /// link(2): one more name.
    Link {
        /// The node.
        node: NodeId,
        /// The new name.
        at: Place,
    },
    /// unlink(2), rmdir(2).
    Remove {
        /// What the name led to.
        node: NodeId,
        /// The name.
        at: Place,
    },
    /// rename(2), over what is there if `replaced` says so.
    Rename {
        /// What is renamed.
        node: NodeId,
        /// Its name.
        from: Place,
        /// Its new name.
        to: Place,
        /// What the new name led to.
        replaced: Option<NodeId>,
    },
    /// renameat2(2) with RENAME_EXCHANGE.
    Exchange {
        /// A node and its name.
        one: (NodeId, Place),
        /// The node that gets this name, and the name it gives.
        other: (NodeId, Place),
    },
    /// chmod(2), chown(2), utimensat(2).
    Set {
        /// The node.
        node: NodeId,
        /// What is set.
        attributes: Attributes,
    },
    /// setxattr(2), removexattr(2).
    SetXattr {
        /// The node.
        node: NodeId,
        /// The attribute's name, with its name space.
        name: Box<[u8]>,
        /// Its value; `None` to remove it.
        value: Option<Box<[u8]>>,
    },
}

impl Change {
    /// The names that it changes.
    pub fn names(&self) -> impl Iterator<Item = &Place> {
        let names = match self {
            Change::Make { at, .. } | Change::Link { at, .. } | Change::Remove { at, .. } => {
                [Some(at), None]
            }
            Change::Rename { from, to, .. } => [Some(from), Some(to)],
            Change::Exchange { one, other } => [Some(&one.1), Some(&other.1)],
            Change::Set { .. } | Change::SetXattr { .. } => [None, None],
        };
        names.into_iter().flatten()
    }

    /// The same change of nodes with other numbers: those of the log, or of the mount. `None` if `number` has none for a node.
    pub fn renumbered(&self, mut number: impl FnMut(NodeId) -> Option<NodeId>) -> Option<Change> {
        let place = |at: &Place, number: &mut dyn FnMut(NodeId) -> Option<NodeId>| {
            Place::new(number(at.parent())?, at.name())
        };
        Some(match self.clone() {
            Change::Make { node, at, kind, attributes } => {
                let at = place(&at, &mut number)?;
                Change::Make { node: number(node)?, at, kind, attributes }
            }
            Change::Link { node, at } => {
                Change::Link { at: place(&at, &mut number)?, node: number(node)? }
            }
            Change::Remove { node, at } => {
                Change::Remove { at: place(&at, &mut number)?, node: number(node)? }
            }
            Change::Rename { node, from, to, replaced } => Change::Rename {
                from: place(&from, &mut number)?,
                to: place(&to, &mut number)?,
                replaced: match replaced {
                    Some(replaced) => Some(number(replaced)?),
                    None => None,
                },
                node: number(node)?,
            },
            Change::Exchange { one, other } => Change::Exchange {
                one: (number(one.0)?, place(&one.1, &mut number)?),
                other: (number(other.0)?, place(&other.1, &mut number)?),
            },
            Change::Set { node, attributes } => Change::Set { node: number(node)?, attributes },
            Change::SetXattr { node, name, value } => {
                Change::SetXattr { node: number(node)?, name, value }
            }
        })
    }
}

/// Why a change is not made. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Home is to be asked what this name is, and then this change again.
    #[error("it is not known what the name leads to")]
    Unknown,
    /// EEXIST.
    #[error("the name exists")]
    Exists,
    /// ENOENT.
    #[error("the name does not exist")]
    Nothing,
    /// ENOTDIR.
    #[error("it is not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("it is a directory")]
    IsDirectory,
    /// ENOTEMPTY.
    #[error("the directory is not empty")]
    NotEmpty,
    /// EINVAL: a directory cannot be moved below itself.
    #[error("a directory cannot be moved below itself")]
    BelowItself,
    /// EMLINK.
    #[error("the file has too many links")]
    TooManyLinks,
    /// EPERM: a directory has one name.
    #[error("a directory has one name only")]
    DirectoryLink,
    /// ENAMETOOLONG.
    #[error("the name is too long")]
    NameTooLong,
}

impl Tree {
    /// Whether a change can be made.
    ///
    /// # Errors
    /// [`Refused`], in the order in which Linux looks for errors.
    pub fn check(&self, change: &Change) -> Result<(), Refused> {
        match change {
            Change::Make { at, .. } => self.check_free(at),
            Change::Link { node, at } => {
                let linked = self.nodes.get(node).ok_or(Refused::Nothing)?;
                if linked.kind.is_directory() {
                    return Err(Refused::DirectoryLink);
                }
                self.check_free(at)?;
                match linked.places.len() >= LINKS_MAX {
                    true => Err(Refused::TooManyLinks),
                    false => Ok(()),
                }
            }
            Change::Remove { node, at } => {
                self.check_leads(at, *node)?;
                self.check_empty(*node)
            }
            Change::Rename { node, from, to, replaced } => {
                self.check_leads(from, *node)?;
                self.check_target(to)?;
                if self.look_up_known(to)? != *replaced {
                    return Err(if replaced.is_some() {
                        Refused::Nothing
                    } else {
                        Refused::Exists
                    });
                }
                self.check_not_below(*node, to.parent())?;
                match replaced {
                    Some(replaced) if replaced != node => self.check_replaces(*node, *replaced),
                    _ => Ok(()),
                }
            }
            Change::Exchange { one, other } => {
                self.check_leads(&one.1, one.0)?;
                self.check_leads(&other.1, other.0)?;
                self.check_not_below(one.0, other.1.parent())?;
                self.check_not_below(other.0, one.1.parent())
            }
            Change::Set { node, .. } | Change::SetXattr { node, .. } => {
                self.nodes.contains_key(node).then_some(()).ok_or(Refused::Nothing)
            }
        }
    }

    /// A name is short enough, and in a directory that is there.
    fn check_target(&self, at: &Place) -> Result<(), Refused> {
        let parent = self.nodes.get(&at.parent()).ok_or(Refused::Nothing)?;
        if parent.directory.is_none() {
            return Err(Refused::NotDirectory);
        }
        if at.name().len() > NAME_BYTES_MAX {
            return Err(Refused::NameTooLong);
        }
        // Nothing can be made in a directory that was removed.
        if parent.nameless { Err(Refused::Nothing) } else { Ok(()) }
    }

    fn check_free(&self, at: &Place) -> Result<(), Refused> {
        self.check_target(at)?;
        match self.look_up_known(at)? {
            Some(_) => Err(Refused::Exists),
            None => Ok(()),
        }
    }

    fn look_up_known(&self, at: &Place) -> Result<Option<NodeId>, Refused> {
        self.look_up(at.parent(), at.name()).ok_or(Refused::Unknown)
    }

    fn check_leads(&self, at: &Place, node: NodeId) -> Result<(), Refused> {
        match self.look_up_known(at)? {
            Some(found) if found == node => Ok(()),
            _ => Err(Refused::Nothing),
        }
    }

    fn check_empty(&self, node: NodeId) -> Result<(), Refused> {
        let Some(directory) = &self.nodes[&node].directory else { return Ok(()) };
        match (directory.is_empty(), directory.complete) {
            (false, _) => Err(Refused::NotEmpty),
            (true, false) => Err(Refused::Unknown),
            (true, true) => Ok(()),
        }
    }

    fn check_replaces(&self, node: NodeId, replaced: NodeId) -> Result<(), Refused> {
        let is_directory = |node: NodeId| self.nodes[&node].kind.is_directory();
        match (is_directory(node), is_directory(replaced)) {
            (true, false) => Err(Refused::NotDirectory),
            (false, true) => Err(Refused::IsDirectory),
            (true, true) => self.check_empty(replaced),
            (false, false) => Ok(()),
        }
    }

    pub(crate) fn check_not_below(&self, node: NodeId, directory: NodeId) -> Result<(), Refused> {
        if !self.nodes[&node].kind.is_directory() {
            return Ok(());
        }
        let mut at = directory;
        loop {
            if at == node {
                return Err(Refused::BelowItself);
            }
            match self.wanted_places(at).next() {
                Some(place) => at = place.parent(),
                None => return Ok(()),
            }
        }
    }

    /// Makes a change, whose record is at `lsn`.
    ///
    /// # Panics
    /// If [`Tree::check`] would refuse it.
    pub fn apply(&mut self, change: Change, lsn: Lsn) {
        debug_assert_eq!(self.check(&change), Ok(()), "a change is checked first: {change:?}");
        self.apply_unchecked(change, lsn);
    }

    pub(crate) fn apply_unchecked(&mut self, change: Change, lsn: Lsn) {
        match change {
            Change::Make { node, at, kind, attributes } => {
                let mut made = Node::new(kind, Binding::Unbound);
                (made.unset, made.made_here) = (attributes, true);
                let known = self.nodes.insert(node, made);
                assert!(known.is_none(), "a number is given once: {node:?}");
                self.attributes_changed(node, lsn);
                self.want(&at, Some(node), lsn);
            }
            Change::Link { node, at } => self.want(&at, Some(node), lsn),
            Change::Remove { at, .. } => self.want(&at, None, lsn),
            // Two names of one file: nothing happens (rename(2)).
            Change::Rename { node, replaced, .. } if replaced == Some(node) => {}
            Change::Rename { node, from, to, .. } => {
                // The new name first: a node without any name would be gone.
                self.want(&to, Some(node), lsn);
                self.want(&from, None, lsn);
            }
            Change::Exchange { one, other } => {
                self.want(&one.1, Some(other.0), lsn);
                self.want(&other.1, Some(one.0), lsn);
            }
            Change::Set { node, attributes } => {
                let changed = self.nodes.get_mut(&node).expect("it was checked");
                changed.unset.overlay(&attributes);
                self.attributes_changed(node, lsn);
            }
            Change::SetXattr { node, name, value } => {
                let changed = self.nodes.get_mut(&node).expect("it was checked");
                changed.unset_xattrs.insert(name, value);
                self.attributes_changed(node, lsn);
            }
        }
    }
}
