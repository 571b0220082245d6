//! Changes as records of the log, and what a log's records say as changes.
//!
//! Each change is one record. A node that home has is named by a record of its own in each group that mentions it
//! ([`Change::mentioned`], [`node_record`]), so that recovery knows which inode it is, whatever was freed of the log.
//!
//! What a record cannot say is an error before anything is logged ([`NotLogged`]). Then the change is none for the
//! tree: its caller has home do it before the call returns, as without a tree.
//!
//! Owns no position and no group. An extended attribute that a node gets when it is made (a default ACL) is a
//! change after that one, and in the same group if both are to be there or none.

use std::collections::{BTreeMap, HashSet};

use weir_log::{
    Entry, FileType, LoggedAttributes, LoggedTime, Lsn, NameRecord, NewNode, Record, RecordError,
    name_record_bytes_max,
};

use crate::identity::NodeId;
use crate::tree::change::Change;
use crate::tree::found::ReplayError;
use crate::tree::node::{Attributes, Kind, Moment};
use crate::tree::state::Tree;
use crate::way::Place;

/// The file type's bits in `st_mode` (inode(7)).
const S_IFIFO: u32 = 0o010_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFBLK: u32 = 0o060_000;
const S_IFSOCK: u32 = 0o140_000;

/// Why a change cannot be logged: home has to have it before its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLogged {
    /// No group of this log is long enough.
    #[error(
        "a record of {bytes} bytes does not fit the log's groups, which hold one of {bytes_max}"
    )]
    TooLarge {
        /// Of the record.
        bytes: usize,
        /// The longest that fits, whatever nodes it mentions.
        bytes_max: usize,
    },
    /// No record says this: a number that the log did not give, or a file type that is not known.
    #[error(transparent)]
    NoRecord(#[from] RecordError),
}

/// Why a log's records of names cannot be replayed: it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log is damaged: the change at LSN {lsn} contradicts those before it: {error}")]
pub struct Contradiction {
    /// Of the record.
    pub lsn: Lsn,
    /// What is wrong with it.
    pub error: ReplayError,
}

impl Change {
    /// Its record, for a log whose groups have at most `group_bytes_max` bytes.
    ///
    /// # Errors
    /// [`NotLogged`].
    pub fn record(&self, group_bytes_max: usize) -> Result<NameRecord<'_>, NotLogged> {
        let record = match self {
            Change::Make { node, at, kind, attributes } => NameRecord::Make {
                node: node.0,
                at: entry(at),
                kind: new_node(kind)?,
                attributes: logged_attributes(attributes),
            },
            Change::Link { node, at } => NameRecord::Link { node: node.0, at: entry(at) },
            Change::Remove { node, at } => NameRecord::Remove { node: node.0, at: entry(at) },
            Change::Rename { node, from, to, replaced } => NameRecord::Rename {
                node: node.0,
                from: entry(from),
                to: entry(to),
                replaced: replaced.map(|replaced| replaced.0),
            },
            Change::Exchange { one, other } => NameRecord::Exchange {
                one: (one.0.0, entry(&one.1)),
                other: (other.0.0, entry(&other.1)),
            },
            Change::Set { node, attributes } => {
                NameRecord::Set { node: node.0, attributes: logged_attributes(attributes) }
            }
            Change::SetXattr { node, name, value } => {
                NameRecord::SetXattr { node: node.0, name, value: value.as_deref() }
            }
        };
        record.check()?;
        let bytes = Record::Name(record).padded_bytes();
        let bytes_max = name_record_bytes_max(group_bytes_max);
        match bytes <= bytes_max {
            true => Ok(record),
            false => Err(NotLogged::TooLarge { bytes, bytes_max }),
        }
    }

    /// The nodes that it mentions and does not make, each once, at most four. Those that home has are named in the change's
    /// group before it. The root is left out: its number says which it is.
    pub fn mentioned(&self) -> Vec<NodeId> {
        let mut nodes = match self {
            Change::Make { at, .. } => vec![at.parent()],
            Change::Link { node, at } | Change::Remove { node, at } => vec![at.parent(), *node],
            Change::Rename { node, from, to, replaced } => {
                let named = [Some(from.parent()), Some(to.parent()), Some(*node), *replaced];
                named.into_iter().flatten().collect()
            }
            Change::Exchange { one, other } => {
                vec![one.1.parent(), other.1.parent(), one.0, other.0]
            }
            Change::Set { node, .. } | Change::SetXattr { node, .. } => vec![*node],
        };
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|&node| node != NodeId::ROOT);
        nodes
    }

    /// What a record says; `None` if it is no change, and says which node home has, or where.
    ///
    /// # Errors
    /// What is out of range in it. Not of a record that was decoded.
    pub fn of_record(record: &NameRecord<'_>) -> Result<Option<Change>, RecordError> {
        record.check()?;
        Ok(Some(match *record {
            NameRecord::Node { .. } | NameRecord::Place { .. } | NameRecord::Step { .. } => {
                return Ok(None);
            }
            NameRecord::Make { node, at, kind, attributes } => Change::Make {
                node: NodeId(node),
                at: place(at)?,
                kind: kind_of(kind),
                attributes: attributes_of(attributes),
            },
            NameRecord::Link { node, at } => Change::Link { node: NodeId(node), at: place(at)? },
            NameRecord::Remove { node, at } => {
                Change::Remove { node: NodeId(node), at: place(at)? }
            }
            NameRecord::Rename { node, from, to, replaced } => Change::Rename {
                node: NodeId(node),
                from: place(from)?,
                to: place(to)?,
                replaced: replaced.map(NodeId),
            },
            NameRecord::Exchange { one, other } => Change::Exchange {
                one: (NodeId(one.0), place(one.1)?),
                other: (NodeId(other.0), place(other.1)?),
            },
            NameRecord::Set { node, attributes } => {
                Change::Set { node: NodeId(node), attributes: attributes_of(attributes) }
            }
            NameRecord::SetXattr { node, name, value } => {
                let node = NodeId(node);
                Change::SetXattr { node, name: name.into(), value: value.map(Into::into) }
            }
        }))
    }
}

/// The record of which inode of home a node is.
///
/// # Errors
/// [`NotLogged::NoRecord`].
pub fn node_record<'a>(
    node: NodeId,
    kind: &Kind,
    identity: &'a [u8],
) -> Result<NameRecord<'a>, NotLogged> {
    let file_type = file_type(kind).ok_or(RecordError::Nonsense("type"))?;
    let record = NameRecord::Node { node: node.0, file_type, identity };
    record.check()?;
    Ok(record)
}

/// An inode of home: its type and its identity.
type Inode = (FileType, Box<[u8]>);

/// What a log's records say of names, to be replayed to a tree when all of them were read.
#[derive(Debug, Default)]
pub struct LoggedNames {
    changes: Vec<(Lsn, Change)>,
    /// The nodes that a change makes.
    made: HashSet<NodeId>,
    /// Which inodes of home each node was, the last one last: home may have lost one, and made another.
    inodes: BTreeMap<NodeId, Vec<Inode>>,
}

impl LoggedNames {
    /// The next record.
    ///
    /// # Errors
    /// As [`Change::of_record`].
    pub fn add(&mut self, lsn: Lsn, record: &NameRecord<'_>) -> Result<(), RecordError> {
        if let NameRecord::Node { node, file_type, identity } = *record {
            let inodes = self.inodes.entry(NodeId(node)).or_default();
            let is_same = |(known, of): &Inode| (*known, &**of) == (file_type, identity);
            if !inodes.last().is_some_and(is_same) {
                inodes.push((file_type, identity.into()));
            }
        }
        if let Some(change) = Change::of_record(record)? {
            if let Change::Make { node, .. } = change {
                self.made.insert(node);
            }
            self.changes.push((lsn, change));
        }
        Ok(())
    }

    /// Each node that home had, with the identity of each inode that it was there, in the log's order.
    pub fn inodes(&self) -> impl Iterator<Item = (NodeId, &[u8])> {
        self.inodes
            .iter()
            .flat_map(|(&node, inodes)| inodes.iter().map(move |(_, identity)| (node, &**identity)))
    }

    /// Whether a change makes the node.
    pub fn makes(&self, node: NodeId) -> bool {
        self.made.contains(&node)
    }

    /// Replays all to a tree ([`Tree::recovering`]). `has` says whether home still has the inode of an identity.
    ///
    /// # Errors
    /// [`Contradiction`].
    pub fn replay(
        self,
        tree: &mut Tree,
        mut has: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Contradiction> {
        for (&node, inodes) in &self.inodes {
            if !self.makes(node) {
                let kind = inodes.last().map(|&(file_type, _)| kind_at_home(file_type));
                tree.introduce(node, kind.expect("a node is here with an inode"));
            } else if inodes.iter().any(|(_, identity)| has(identity)) {
                tree.made_at_home(node);
            }
        }
        for (lsn, change) in self.changes {
            tree.replay(change, lsn).map_err(|error| Contradiction { lsn, error })?;
        }
        Ok(())
    }
}

fn entry(at: &Place) -> Entry<'_> {
    Entry { directory: at.parent().0, name: at.name() }
}

fn place(at: Entry<'_>) -> Result<Place, RecordError> {
    Place::new(NodeId(at.directory), at.name).ok_or(RecordError::Nonsense("name"))
}

fn new_node(kind: &Kind) -> Result<NewNode<'_>, RecordError> {
    Ok(match *kind {
        Kind::File => NewNode::File,
        Kind::Directory => NewNode::Directory,
        Kind::Symlink(ref target) => NewNode::Symlink(target),
        // Only devices have a number (mknod(2)).
        Kind::Special { file_type: S_IFIFO, .. } => NewNode::Fifo,
        Kind::Special { file_type: S_IFSOCK, .. } => NewNode::Socket,
        Kind::Special { file_type: S_IFCHR, device } => NewNode::CharacterDevice(device),
        Kind::Special { file_type: S_IFBLK, device } => NewNode::BlockDevice(device),
        Kind::Special { .. } => return Err(RecordError::Nonsense("type")),
    })
}

fn kind_of(node: NewNode<'_>) -> Kind {
    let special = |file_type, device| Kind::Special { file_type, device };
    match node {
        NewNode::File => Kind::File,
        NewNode::Directory => Kind::Directory,
        NewNode::Symlink(target) => Kind::Symlink(target.into()),
        NewNode::Fifo => special(S_IFIFO, 0),
        NewNode::Socket => special(S_IFSOCK, 0),
        NewNode::CharacterDevice(device) => special(S_IFCHR, device),
        NewNode::BlockDevice(device) => special(S_IFBLK, device),
    }
}

/// The file type that records give a node of this kind; `None` for one that no record can describe.
pub fn file_type(kind: &Kind) -> Option<FileType> {
    match kind {
        Kind::Symlink(_) => Some(FileType::Symlink),
        kind => new_node(kind).ok().map(|new| new.file_type()),
    }
}

/// What a node of home is, as far as the tree asks: a link's target and a device's number are home's.
pub fn kind_at_home(file_type: FileType) -> Kind {
    kind_of(match file_type {
        FileType::File => NewNode::File,
        FileType::Directory => NewNode::Directory,
        FileType::Symlink => NewNode::Symlink(&[]),
        FileType::Fifo => NewNode::Fifo,
        FileType::Socket => NewNode::Socket,
        FileType::CharacterDevice => NewNode::CharacterDevice(0),
        FileType::BlockDevice => NewNode::BlockDevice(0),
    })
}

fn logged_attributes(attributes: &Attributes) -> LoggedAttributes {
    let Attributes { mode, uid, gid, atime, mtime } = *attributes;
    let time = |Moment { seconds, nanoseconds }| LoggedTime { seconds, nanoseconds };
    LoggedAttributes { mode, uid, gid, atime: atime.map(time), mtime: mtime.map(time) }
}

fn attributes_of(attributes: LoggedAttributes) -> Attributes {
    let LoggedAttributes { mode, uid, gid, atime, mtime } = attributes;
    let moment = |LoggedTime { seconds, nanoseconds }| Moment { seconds, nanoseconds };
    Attributes { mode, uid, gid, atime: atime.map(moment), mtime: mtime.map(moment) }
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    const GROUP_BYTES_MAX: usize = 4 << 20;

    fn node() -> impl Strategy<Value = NodeId> {
        prop_oneof![1u64..9, 1u64..1 << 62].prop_map(NodeId)
    }

    fn at() -> impl Strategy<Value = Place> {
        let name = prop::collection::vec(any::<u8>(), 1..256);
        (node(), name).prop_filter_map("a component", |(node, name)| Place::new(node, &name))
    }

    fn kind() -> impl Strategy<Value = Kind> {
        let special = |file_type, device| Just(Kind::Special { file_type, device });
        prop_oneof![
            Just(Kind::File),
            Just(Kind::Directory),
            prop::collection::vec(1u8.., 1..4096).prop_map(|target| Kind::Symlink(target.into())),
            special(S_IFIFO, 0),
            special(S_IFSOCK, 0),
            any::<u64>().prop_map(|device| Kind::Special { file_type: S_IFCHR, device }),
            any::<u64>().prop_map(|device| Kind::Special { file_type: S_IFBLK, device }),
        ]
    }

    fn attributes() -> impl Strategy<Value = Attributes> {
        let moment = || {
            let parts = (any::<i64>(), 0..1_000_000_000u32);
            option::of(parts.prop_map(|(seconds, nanoseconds)| Moment { seconds, nanoseconds }))
        };
        let id = || option::of(any::<u32>());
        (option::of(0..0o10000u32), id(), id(), moment(), moment())
            .prop_map(|(mode, uid, gid, atime, mtime)| Attributes { mode, uid, gid, atime, mtime })
    }

    fn change() -> impl Strategy<Value = Change> {
        let name = prop::collection::vec(1u8.., 1..256);
        let value = option::of(prop::collection::vec(any::<u8>(), 0..9000));
        prop_oneof![
            (node(), at(), kind(), attributes()).prop_map(|(node, at, kind, attributes)| {
                Change::Make { node, at, kind, attributes }
            }),
            (node(), at()).prop_map(|(node, at)| Change::Link { node, at }),
            (node(), at()).prop_map(|(node, at)| Change::Remove { node, at }),
            (node(), at(), at(), option::of(node()))
                .prop_map(|(node, from, to, replaced)| Change::Rename { node, from, to, replaced }),
            ((node(), at()), (node(), at()))
                .prop_map(|(one, other)| Change::Exchange { one, other }),
            (node(), attributes()).prop_map(|(node, attributes)| Change::Set { node, attributes }),
            (node(), name, value).prop_map(|(node, name, value)| Change::SetXattr {
                node,
                name: name.into(),
                value: value.map(Into::into),
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_change_is_read_from_the_log_as_it_was(change in change()) {
            let record = Record::Name(change.record(GROUP_BYTES_MAX).unwrap());
            let bytes = record.to_bytes();
            let (Record::Name(read), len) = Record::decode(&bytes).unwrap() else { panic!() };
            prop_assert_eq!(len, record.padded_bytes());
            prop_assert_eq!(Change::of_record(&read), Ok(Some(change)));
        }

        #[test]
        fn a_node_is_read_from_the_log_as_it_was(
            node in node(),
            kind in kind(),
            identity in prop::collection::vec(any::<u8>(), 0..=256),
        ) {
            let bytes = Record::Name(node_record(node, &kind, &identity).unwrap()).to_bytes();
            let (Record::Name(read), _) = Record::decode(&bytes).unwrap() else { panic!() };
            let mut names = LoggedNames::default();
            names.add(Lsn(8), &read).unwrap();
            names.add(Lsn(16), &read).unwrap();
            prop_assert_eq!(names.inodes().collect::<Vec<_>>(), [(node, &identity[..])]);
            let mut tree = Tree::recovering(Lsn(24));
            names.replay(&mut tree, |_| false).unwrap();
            let is_same = |known: &Kind| match (known, &kind) {
                (Kind::Special { file_type: one, .. }, Kind::Special { file_type: other, .. }) => {
                    one == other
                }
                (known, kind) => std::mem::discriminant(known) == std::mem::discriminant(kind),
            };
            let known = tree.kind(node).unwrap();
            prop_assert!(node == NodeId::ROOT || is_same(known), "{:?}", known);
        }

        #[test]
        fn a_change_mentions_the_nodes_of_its_record_but_the_root_and_a_new_one(change in change()) {
            let record = change.record(GROUP_BYTES_MAX).unwrap();
            let mut expected: Vec<NodeId> = record.mentioned().map(NodeId).collect();
            if let Change::Make { node, at, .. } = &change {
                prop_assume!(*node != at.parent());
                expected.retain(|mentioned| mentioned != node);
            }
            expected.retain(|&node| node != NodeId::ROOT);
            expected.sort_unstable();
            expected.dedup();
            prop_assert!(expected.len() <= 4);
            prop_assert_eq!(change.mentioned(), expected);
        }
    }

    #[test]
    fn a_change_that_fits_no_group_is_not_logged() {
        // The smallest log's groups have a quarter of its ring.
        let group_bytes_max = 16 << 10;
        let set = |bytes: usize| Change::SetXattr {
            node: NodeId(7),
            name: b"user.x"[..].into(),
            value: Some(vec![1; bytes].into()),
        };
        let logged = |bytes| set(bytes).record(group_bytes_max).map(|_| ());
        let bytes_max = (16 << 10) - 64 - 4 * (32 + 256);
        let longest = bytes_max - 32 - 8 - 6 - 2;
        assert_eq!(logged(longest), Ok(()));
        assert_eq!(
            logged(longest + 3),
            Err(NotLogged::TooLarge { bytes: bytes_max + 8, bytes_max })
        );
        let longest_of_all = set(65_536);
        assert!(longest_of_all.record(128 << 10).is_ok() && logged(65_536).is_err());
    }

    #[test]
    fn what_no_record_says_is_not_logged() {
        let at = Place::new(NodeId::ROOT, b"a").unwrap();
        let attributes = Attributes::default();
        let make =
            |node, kind| Change::Make { node: NodeId(node), at: at.clone(), kind, attributes };
        let unknown = Kind::Special { file_type: 0o150_000, device: 0 };
        let given_by_another = 1 << 62;
        for (change, what) in [
            (make(7, unknown.clone()), "type"),
            (make(given_by_another, Kind::File), "node"),
            (make(7, Kind::Symlink(Box::default())), "symbolic link's target"),
        ] {
            let error = NotLogged::NoRecord(RecordError::Nonsense(what));
            assert_eq!(change.record(GROUP_BYTES_MAX), Err(error));
        }
        assert!(node_record(NodeId(7), &unknown, b"").is_err());
        assert!(node_record(NodeId(7), &Kind::File, &[0; 257]).is_err());
    }

    #[test]
    fn records_that_contradict_each_other_are_an_error_that_names_its_place() {
        let at = Entry { directory: 1, name: b"a" };
        let (kind, attributes) = (NewNode::File, LoggedAttributes::default());
        let make = NameRecord::Make { node: 7, at, kind, attributes };
        let mut names = LoggedNames::default();
        names.add(Lsn(8), &make).unwrap();
        names.add(Lsn(16), &make).unwrap();
        let error = ReplayError::MadeTwice(NodeId(7));
        let replayed = names.replay(&mut Tree::recovering(Lsn(24)), |_| false);
        assert_eq!(replayed, Err(Contradiction { lsn: Lsn(16), error }));
    }
}
