//! A file, directory or symbolic link of the tree: its attributes, and what is known of it at home.

use std::collections::BTreeMap;

use weir_log::Lsn;

use crate::tree::command_id::CommandId;
use crate::tree::entry::Directory;
use crate::tree::places::Places;
use crate::way::Place;

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(Box<[u8]>),
    /// A FIFO, a socket or a device.
    Special {
        /// The file type, as in `st_mode` (S_IFMT bits).
        file_type: u32,
        /// Of a device, its number.
        device: u64,
    },
}

impl Kind {
    /// Whether two may be of one node: what a symbolic link says may not be known, and is empty then.
    pub fn may_be(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Symlink(one), Kind::Symlink(other)) if one.is_empty() || other.is_empty() => {
                true
            }
            _ => self == other,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Kind::Directory)
    }
}

/// A moment of the real-time clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that, below 10^9.
    pub nanoseconds: u32,
}

/// Attributes that a change sets or a node is made with; whatever is `None` stays. The change time follows from the
/// moment of the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, `07777` (chmod(2)).
    pub mode: Option<u32>,
    /// Owner (chown(2)).
    pub uid: Option<u32>,
    /// Group (chown(2)).
    pub gid: Option<u32>,
    /// Last access (utimensat(2)).
    pub atime: Option<Moment>,
    /// Last modification (utimensat(2)).
    pub mtime: Option<Moment>,
}

impl Attributes {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Attributes::default()
    }

    /// Sets over these what `later` sets.
    pub fn overlay(&mut self, later: &Attributes) {
        self.mode = later.mode.or(self.mode);
        self.uid = later.uid.or(self.uid);
        self.gid = later.gid.or(self.gid);
        self.atime = later.atime.or(self.atime);
        self.mtime = later.mtime.or(self.mtime);
    }
}

/// Extended attributes by name: the value that is wanted, or `None` for one that is to be removed.
pub type Xattrs = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// Where a node stands with home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// It was made here, and home does not have it.
    Unbound,
    /// It is being made at home.
    Making,
    /// Home has it.
    Bound,
}

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) binding: Binding,
    /// Entries that lead to it, or that home has leading to it, as far as they are known.
    pub(crate) places: Places,
    /// What home does not have yet of its attributes. Of an unbound node: all of them.
    pub(crate) unset: Attributes,
    /// The same of its extended attributes.
    pub(crate) unset_xattrs: Xattrs,
    /// What was sent home and not synced there since, the latest values.
    pub(crate) sent: Attributes,
    /// The same of extended attributes.
    pub(crate) sent_xattrs: Xattrs,
    /// Commands that sent them, and were not covered by a sync.
    pub(crate) unsettled: u32,
    /// The last change of its attributes, or the removal of its last name.
    pub(crate) set_lsn: Lsn,
    /// The first change of its attributes that home does not have; the log is needed from there on.
    pub(crate) set_since: Option<Lsn>,
    /// A command for its attributes, or one that moves it, is under way.
    pub(crate) busy: bool,
    /// The command under way that sets its attributes.
    pub(crate) setting: Option<CommandId>,
    /// Of a directory: its entries.
    pub(crate) directory: Option<Box<Directory>>,
    /// Where the log says which inode of home it is, if home got it since the log was begun. Nothing goes into it before
    /// that is durable, so that a recovery which does not know it finds it empty.
    pub(crate) named: Lsn,
    /// Home has it under a temporary name, which a cycle of renames needed.
    pub(crate) parked: bool,
    /// Its last name was removed here.
    pub(crate) nameless: bool,
    /// A program has it open: what is set of it is seen although it has no name.
    pub(crate) held: bool,
    /// Home is to make it before its name is durable.
    pub(crate) is_ahead: bool,
    /// It was made by a change, and not found at home.
    pub(crate) made_here: bool,
    /// An entry that leads to it was forgotten: it may have more names than are known.
    pub(crate) has_forgotten_names: bool,
    /// Home was synced since it was made there.
    pub(crate) settled: bool,
    /// A sync failed that was to settle it.
    pub(crate) sync_failed: bool,
    /// Of a directory: where home had it, until somebody else was found to have moved it.
    pub(crate) missed: Option<Place>,
}

impl Node {
    pub(crate) fn new(kind: Kind, binding: Binding) -> Node {
        // What was made here has no entries but those made here.
        let complete = binding == Binding::Unbound;
        let directory = kind.is_directory().then(|| Box::new(Directory::new(complete)));
        Node {
            kind,
            binding,
            places: Places::new(),
            unset: Attributes::default(),
            unset_xattrs: Xattrs::new(),
            sent: Attributes::default(),
            sent_xattrs: Xattrs::new(),
            unsettled: 0,
            nameless: false,
            held: false,
            is_ahead: false,
            set_lsn: Lsn(0),
            set_since: None,
            busy: false,
            setting: None,
            directory,
            named: Lsn(0),
            parked: false,
            made_here: false,
            has_forgotten_names: false,
            settled: false,
            sync_failed: false,
            missed: None,
        }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.binding == Binding::Bound
    }

    /// Home has it under a name, as far as is known.
    pub(crate) fn is_at_home(&self) -> bool {
        self.parked || self.places.home().next().is_some()
    }

    /// Nothing leads to it any more, here or at home, as far as is known.
    pub(crate) fn is_removed(&self) -> bool {
        self.nameless && self.places.is_empty() && !self.parked
    }

    /// Home may have lost it, and is not known to have it anywhere.
    pub(crate) fn is_missing(&self) -> bool {
        self.may_be_lost() && !self.is_at_home()
    }

    /// If home does not have it any more, that is because home lost what it had not synced: it is to be made again.
    pub(crate) fn may_be_lost(&self) -> bool {
        let is_unsettled = self.is_bound() && self.made_here && !self.settled;
        is_unsettled && self.sync_failed && !self.nameless
    }

    /// Nobody can see it any more: it has no name, and no program has it open.
    pub(crate) fn is_unseen(&self) -> bool {
        self.nameless && !self.held
    }

    /// Home lacks something of its attributes.
    pub(crate) fn has_unset(&self) -> bool {
        !self.unset.is_empty() || !self.unset_xattrs.is_empty()
    }
}
