//! What home is to do, and what it answers.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::entry::AtHome;
use crate::tree::node::{Attributes, Kind, Xattrs};
use crate::tree::part::Part;
use crate::way::Place;

/// One thing that home is to do.
///
/// Names are given by the node of their directory, which home has. The directory [`NodeId::PARKING`] is one of
/// Weir's own, in which each node has a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Look what is there.
    Look {
        /// The name.
        at: Place,
    },
    /// Make a node that home does not have, under a name that home does not have. It may be one that home had and lost
    /// before it was synced: then its data is to be written again, too, and what is parked under its number is what is
    /// left of it, and is removed first.
    Make {
        /// The node.
        node: NodeId,
        /// Its name.
        at: Place,
        /// What it is.
        kind: Kind,
        /// Its attributes; a directory may be made with more permissions, to be set at the end.
        attributes: Attributes,
        /// Its extended attributes.
        xattrs: Xattrs,
    },
    /// Give a node one more name, which home does not have; it may be parked by that.
    Link {
        /// The node.
        node: NodeId,
        /// The name.
        at: Place,
    },
    /// Rename, over what is there if `replacing` says so; otherwise the new name must not be there.
    Rename {
        /// The node.
        node: NodeId,
        /// Its name at home.
        from: Place,
        /// Its new name.
        to: Place,
        /// What the new name leads to at home.
        replacing: Option<NodeId>,
    },
    /// Exchange two names.
    Exchange {
        /// A node, and its name.
        one: (NodeId, Place),
        /// Another.
        other: (NodeId, Place),
    },
    /// unlink(2).
    Unlink {
        /// What the name leads to.
        node: NodeId,
        /// The name.
        at: Place,
    },
    /// rmdir(2).
    RemoveDirectory {
        /// The directory, which is empty.
        node: NodeId,
        /// Its name.
        at: Place,
    },
    /// Set attributes of a node.
    Set {
        /// The node.
        node: NodeId,
        /// What is set.
        attributes: Attributes,
        /// Extended attributes.
        xattrs: Xattrs,
    },
}

/// What home answers to a command that it carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It is made, and a record at this position says which inode of home it is: to [`Command::Make`].
    Made(Lsn),
    /// What is there: to [`Command::Look`]. The node was introduced ([`crate::tree::Tree::introduce`]).
    Found(AtHome),
}

/// Why home did not carry out a command. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HomeError {
    /// A name is there that was not to be there, or is not that was, or leads to something else.
    #[error("home was changed by somebody else")]
    Changed,
    /// Home does not have the node any more, under any name: to [`Command::Set`].
    #[error("home does not have it any more")]
    Gone,
    /// A directory that was to be empty is not: to [`Command::RemoveDirectory`]. It is seen by programs again, and its names are
    /// not known; home is to be asked for them.
    #[error("the directory at home is not empty")]
    NotEmpty,
    /// Home does not exchange names.
    #[error("home does not exchange names")]
    NoExchange,
    /// Home refuses: the system's error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Refused(i32),
}

/// A command under way, with what is to be known at its end.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) command: Command,
    /// What led to it.
    pub(crate) part: Part,
    /// From where on the log is needed for the attributes that it sets.
    pub(crate) since: Option<Lsn>,
    /// The last change of that part, when the command was begun.
    pub(crate) changed: Lsn,
    /// What home refused of the attributes of a node that it made.
    pub(crate) unset: Option<(Attributes, Xattrs)>,
}
