//! What of the tree may differ from home.

use crate::identity::NodeId;
use crate::way::Place;

/// What is brought home by one command or several.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// One entry.
    Entry(Place),
    /// One node's attributes.
    Attributes(NodeId),
}
