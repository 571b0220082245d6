//! What a recovery, or a look at a home that was changed, finds.

use crate::identity::NodeId;
use crate::way::Place;

/// A name that somebody else took at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The name, which stays as it is at home.
    pub at: Place,
    /// Where what was wanted there is now; `None` if the name was to be removed.
    pub kept: Option<Place>,
}

/// Whose it is what home has under a name that the log speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// This node's, which was made here ([`crate::tree::Tree::adopt`]).
    Node(NodeId),
    /// It was made for a node that was found elsewhere, or it is not known for which of several, and is empty: the caller
    /// gives it a number ([`crate::tree::Tree::introduce_surplus`]), and it is removed.
    Surplus,
    /// Somebody else put it there ([`crate::tree::Tree::introduce_foreign`]).
    Foreign,
}

/// The log's records contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A node is made twice.
    #[error("the node {0:?} is made twice")]
    MadeTwice(NodeId),
    /// A directory has two names, or one below itself.
    #[error("the directory {0:?} has two places")]
    TwoPlaces(NodeId),
    /// A name in something that is no directory.
    #[error("a name is in the node {0:?}, which is no directory")]
    NoDirectory(NodeId),
}
