//! A node that home has made, until the tree knows.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_backend::home_names::Looked;
use weir_log::Lsn;
use weir_names::Place;
use weir_names::tree::{Attributes, CommandId, Kind, Xattrs};

use crate::inode::Inode;

/// A node that was made at home a moment ago, for the tree.
pub(crate) struct Made {
    pub(crate) inode: Arc<Inode>,
    pub(crate) at: Place,
    pub(crate) kind: Kind,
    pub(crate) attributes: Attributes,
    pub(crate) xattrs: Xattrs,
    pub(crate) looked: Looked,
    pub(crate) path: OwnedFd,
    pub(crate) data: Option<OwnedFd>,
}

/// A node that home made for a command, and that the log names.
pub(crate) struct Named {
    pub(crate) id: CommandId,
    pub(crate) made: Made,
    pub(crate) lsn: Lsn,
}
