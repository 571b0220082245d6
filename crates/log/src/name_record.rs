//! Records of names: what they say, and which of them make sense.
//!
//! A record of names is one change of the namespace, or says which inode of home a node is. Nodes are told by their
//! numbers in the log; 1 is SOURCE's own directory. A node that home had when a group was written is named by a
//! [`NameRecord::Node`] before all other records of names that mention it in that group.
//!
//! Owns the meaning and its limits ([`NameRecord::check`]); the bytes are in `name_bytes`. What is written passes the
//! same check as what is read, so that no program logs what recovery would refuse.

use std::fmt;

use crate::record_error::RecordError;
use crate::superblock::NODE_LIMIT;

/// Longest identity of a file or another node, bytes.
pub const IDENTITY_BYTES_MAX: usize = 256;

/// Longest name of an entry, or of an extended attribute, bytes (NAME_MAX, XATTR_NAME_MAX; limits.h).
pub const LOGGED_NAME_BYTES_MAX: usize = 255;

/// Longest target of a symbolic link, bytes (PATH_MAX without the zero at its end).
pub const LOGGED_TARGET_BYTES_MAX: usize = 4095;

/// Longest value of an extended attribute, bytes (XATTR_SIZE_MAX, limits.h).
pub const LOGGED_XATTR_BYTES_MAX: usize = 65_536;

/// Nodes that one record of names mentions at most.
pub(crate) const MENTIONED_MAX: usize = 4;

/// What a node is. The numbers are those of readdir(3)'s `d_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileType {
    /// A FIFO.
    Fifo = 1,
    /// A character device.
    CharacterDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    File = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket.
    Socket = 12,
}

impl FileType {
    /// All of them.
    pub const ALL: [FileType; 7] = [
        FileType::Fifo,
        FileType::CharacterDevice,
        FileType::Directory,
        FileType::BlockDevice,
        FileType::File,
        FileType::Symlink,
        FileType::Socket,
    ];

    fn words(self) -> &'static str {
        match self {
            FileType::Fifo => "FIFO",
            FileType::CharacterDevice => "character device",
            FileType::Directory => "directory",
            FileType::BlockDevice => "block device",
            FileType::File => "file",
            FileType::Symlink => "symbolic link",
            FileType::Socket => "socket",
        }
    }
}

/// What a new node is, with what it cannot be without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with this number.
    CharacterDevice(u64),
    /// A block device with this number.
    BlockDevice(u64),
}

impl NewNode<'_> {
    /// Its type.
    pub fn file_type(&self) -> FileType {
        match self {
            NewNode::File => FileType::File,
            NewNode::Directory => FileType::Directory,
            NewNode::Symlink(_) => FileType::Symlink,
            NewNode::Fifo => FileType::Fifo,
            NewNode::Socket => FileType::Socket,
            NewNode::CharacterDevice(_) => FileType::CharacterDevice,
            NewNode::BlockDevice(_) => FileType::BlockDevice,
        }
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The directory's node.
    pub directory: u64,
    /// The name: one component of a path.
    pub name: &'a [u8],
}

/// How far a step is: what home is to do to a node's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Home may do it from now on.
    Begun = 1,
    /// Home did it.
    Done = 2,
    /// Home did not do it, and will not.
    Undone = 3,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 3] = [Stage::Begun, Stage::Done, Stage::Undone];

    fn words(self) -> &'static str {
        match self {
            Stage::Begun => "begun",
            Stage::Done => "done",
            Stage::Undone => "not done",
        }
    }
}

/// A time that is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that, below 10^9.
    pub nanoseconds: u32,
}

/// Attributes that are set; whatever is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedAttributes {
    /// Permission bits, `07777`.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<LoggedTime>,
    /// Last modification.
    pub mtime: Option<LoggedTime>,
}

/// One record of names. A kind is one variant here, and one place each in `check`, `mentioned`, `fmt` and `name_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRecord<'a> {
    /// Home has the node: it is this inode there.
    Node {
        /// The node.
        node: u64,
        /// What it is.
        file_type: FileType,
        /// The inode; the back end decides what an identity is.
        identity: &'a [u8],
    },
    /// A new node and its first name.
    Make {
        /// The new node.
        node: u64,
        /// Its name.
        at: Entry<'a>,
        /// What it is.
        kind: NewNode<'a>,
        /// What it is made with.
        attributes: LoggedAttributes,
    },
    /// The node got one more name.
    Link {
        /// The node.
        node: u64,
        /// The new name.
        at: Entry<'a>,
    },
    /// A name was removed.
    Remove {
        /// What it led to.
        node: u64,
        /// The name.
        at: Entry<'a>,
    },
    /// A node got another name instead of one that it had.
    Rename {
        /// The node.
        node: u64,
        /// The old name.
        from: Entry<'a>,
        /// The new name.
        to: Entry<'a>,
        /// What the new name led to.
        replaced: Option<u64>,
    },
    /// Two nodes got each other's name.
    Exchange {
        /// A node, and its name before.
        one: (u64, Entry<'a>),
        /// The other node, and its name before.
        other: (u64, Entry<'a>),
    },
    /// Attributes were set.
    Set {
        /// Of this node.
        node: u64,
        /// Which, and to what.
        attributes: LoggedAttributes,
    },
    /// An extended attribute was set or removed.
    SetXattr {
        /// Of this node.
        node: u64,
        /// Its name, with its namespace.
        name: &'a [u8],
        /// Its value; `None` if it was removed.
        value: Option<&'a [u8]>,
    },
    /// Home has the node under this name: where inodes are not known again, this says where the node is.
    Place {
        /// The node.
        node: u64,
        /// What it is.
        file_type: FileType,
        /// The name, in a directory that home has.
        at: Entry<'a>,
    },
    /// Home is to take a name from a node, or to give it one, or both at once; what the new name led to loses it. Nothing
    /// of it is done before the record is durable. The place for parked nodes is no name: it is `None`.
    Step {
        /// The node.
        node: u64,
        /// How far it is.
        stage: Stage,
        /// The name that it loses.
        from: Option<Entry<'a>>,
        /// The name that it gets.
        to: Option<Entry<'a>>,
    },
}

impl NameRecord<'_> {
    /// The node that it is about; of two that are exchanged, the first.
    pub fn node(&self) -> u64 {
        match *self {
            NameRecord::Node { node, .. }
            | NameRecord::Make { node, .. }
            | NameRecord::Link { node, .. }
            | NameRecord::Remove { node, .. }
            | NameRecord::Rename { node, .. }
            | NameRecord::Exchange { one: (node, _), .. }
            | NameRecord::Set { node, .. }
            | NameRecord::SetXattr { node, .. }
            | NameRecord::Place { node, .. }
            | NameRecord::Step { node, .. } => node,
        }
    }

    /// All nodes in it, some of them perhaps twice.
    pub fn mentioned(&self) -> impl Iterator<Item = u64> {
        let mut nodes = [None; MENTIONED_MAX];
        nodes[0] = Some(self.node());
        match *self {
            NameRecord::Make { at, .. }
            | NameRecord::Link { at, .. }
            | NameRecord::Remove { at, .. }
            | NameRecord::Place { at, .. } => nodes[1] = Some(at.directory),
            NameRecord::Step { from, to, .. } => {
                nodes[1] = from.map(|from| from.directory);
                nodes[2] = to.map(|to| to.directory);
            }
            NameRecord::Rename { from, to, replaced, .. } => {
                nodes[1..].copy_from_slice(&[Some(from.directory), Some(to.directory), replaced]);
            }
            NameRecord::Exchange { one: (_, at), other } => {
                let others = [Some(at.directory), Some(other.0), Some(other.1.directory)];
                nodes[1..].copy_from_slice(&others);
            }
            NameRecord::Node { .. } | NameRecord::Set { .. } | NameRecord::SetXattr { .. } => {}
        }
        nodes.into_iter().flatten()
    }

    /// Whether the record makes sense by itself.
    ///
    /// # Errors
    /// [`RecordError::Nonsense`], which says what is out of range.
    pub fn check(&self) -> Result<(), RecordError> {
        within(self.mentioned().all(|node| (1..NODE_LIMIT).contains(&node)), "node")?;
        match *self {
            NameRecord::Node { identity, .. } => {
                within(identity.len() <= IDENTITY_BYTES_MAX, "identity")
            }
            NameRecord::Make { at, kind, attributes, .. } => {
                at.check()?;
                kind.check()?;
                attributes.check()
            }
            NameRecord::Link { at, .. }
            | NameRecord::Remove { at, .. }
            | NameRecord::Place { at, .. } => at.check(),
            NameRecord::Step { from, to, .. } => from.iter().chain(&to).try_for_each(Entry::check),
            NameRecord::Rename { from: one, to: other, .. }
            | NameRecord::Exchange { one: (_, one), other: (_, other) } => {
                one.check()?;
                other.check()
            }
            NameRecord::Set { attributes, .. } => attributes.check(),
            NameRecord::SetXattr { name, value, .. } => {
                let is_name = (1..=LOGGED_NAME_BYTES_MAX).contains(&name.len());
                within(is_name && !name.contains(&0), "extended attribute's name")?;
                let bytes = value.map_or(0, <[u8]>::len);
                within(bytes <= LOGGED_XATTR_BYTES_MAX, "extended attribute's value")
            }
        }
    }
}

impl Entry<'_> {
    fn check(&self) -> Result<(), RecordError> {
        let is_component = (1..=LOGGED_NAME_BYTES_MAX).contains(&self.name.len())
            && !matches!(self.name, b"." | b"..")
            && !self.name.iter().any(|&byte| byte == b'/' || byte == 0);
        within(is_component, "name")
    }
}

impl NewNode<'_> {
    fn check(&self) -> Result<(), RecordError> {
        let NewNode::Symlink(target) = *self else { return Ok(()) };
        let is_target = (1..=LOGGED_TARGET_BYTES_MAX).contains(&target.len());
        within(is_target && !target.contains(&0), "symbolic link's target")
    }
}

impl LoggedAttributes {
    fn check(&self) -> Result<(), RecordError> {
        within(self.mode.is_none_or(|mode| mode <= 0o7777), "mode")?;
        let mut times = self.atime.iter().chain(&self.mtime);
        within(times.all(|time| time.nanoseconds < 1_000_000_000), "time")
    }
}

fn within(is_in_range: bool, what: &'static str) -> Result<(), RecordError> {
    is_in_range.then_some(()).ok_or(RecordError::Nonsense(what))
}

/// The record in words; an identity as hexadecimal digits, the value of an extended attribute left out.
impl fmt::Display for NameRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NameRecord::Node { node, file_type, identity } => {
                write!(f, "node {node} is the {} ", file_type.words())?;
                identity.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            NameRecord::Make { node, at, kind, attributes } => {
                write!(f, "node {node} make {} {at}", kind.file_type().words())?;
                match kind {
                    NewNode::Symlink(target) => write!(f, " to {}", Quoted(target))?,
                    NewNode::CharacterDevice(device) | NewNode::BlockDevice(device) => {
                        write!(f, " number {device:#x}")?;
                    }
                    _ => {}
                }
                write!(f, "{attributes}")
            }
            NameRecord::Link { node, at } => write!(f, "node {node} link {at}"),
            NameRecord::Remove { node, at } => write!(f, "node {node} remove {at}"),
            NameRecord::Rename { node, from, to, replaced } => {
                write!(f, "node {node} rename {from} to {to}")?;
                replaced.map_or(Ok(()), |replaced| write!(f, " over node {replaced}"))
            }
            NameRecord::Exchange { one, other } => {
                write!(f, "node {} exchange {} with node {} {}", one.0, one.1, other.0, other.1)
            }
            NameRecord::Set { node, attributes } => write!(f, "node {node} set{attributes}"),
            NameRecord::SetXattr { node, name, value } => match value {
                Some(value) => {
                    write!(f, "node {node} set {} to {} bytes", Quoted(name), value.len())
                }
                None => write!(f, "node {node} remove {}", Quoted(name)),
            },
            NameRecord::Place { node, file_type, at } => {
                write!(f, "node {node} is the {} {at}", file_type.words())
            }
            NameRecord::Step { node, stage, from, to } => {
                write!(f, "node {node} step {}", stage.words())?;
                from.map_or(Ok(()), |from| write!(f, " from {from}"))?;
                to.map_or(Ok(()), |to| write!(f, " to {to}"))
            }
        }
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in node {}", Quoted(self.name), self.directory)
    }
}

impl fmt::Display for LoggedAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mode) = self.mode {
            write!(f, " mode {mode:04o}")?;
        }
        for (what, id) in [("owner", self.uid), ("group", self.gid)] {
            id.map_or(Ok(()), |id| write!(f, " {what} {id}"))?;
        }
        for (what, time) in [("atime", self.atime), ("mtime", self.mtime)] {
            let Some(time) = time else { continue };
            write!(f, " {what} {}+{}ns", time.seconds, time.nanoseconds)?;
        }
        Ok(())
    }
}

/// Bytes that may be text.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &[u8]) -> Entry<'_> {
        Entry { directory: 1, name }
    }

    fn wrong(record: NameRecord<'_>) -> &'static str {
        match record.check() {
            Err(RecordError::Nonsense(what)) => what,
            other => panic!("{record}: {other:?}"),
        }
    }

    #[test]
    fn a_name_is_one_component_of_a_path() {
        let longest = [b'x'; LOGGED_NAME_BYTES_MAX];
        for name in [&b"a"[..], b"...", b"\xff\n", &longest] {
            assert_eq!(NameRecord::Link { node: 2, at: at(name) }.check(), Ok(()));
        }
        let too_long = [b'x'; LOGGED_NAME_BYTES_MAX + 1];
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &too_long] {
            let kind = NewNode::File;
            let attributes = LoggedAttributes::default();
            for record in [
                NameRecord::Make { node: 2, at: at(name), kind, attributes },
                NameRecord::Link { node: 2, at: at(name) },
                NameRecord::Remove { node: 2, at: at(name) },
                NameRecord::Rename { node: 2, from: at(name), to: at(b"a"), replaced: None },
                NameRecord::Rename { node: 2, from: at(b"a"), to: at(name), replaced: None },
                NameRecord::Exchange { one: (2, at(name)), other: (3, at(b"a")) },
                NameRecord::Exchange { one: (2, at(b"a")), other: (3, at(name)) },
                NameRecord::Place { node: 2, file_type: FileType::File, at: at(name) },
                NameRecord::Step { node: 2, stage: Stage::Done, from: Some(at(name)), to: None },
                NameRecord::Step { node: 2, stage: Stage::Begun, from: None, to: Some(at(name)) },
            ] {
                assert_eq!(wrong(record), "name");
            }
        }
    }

    #[test]
    fn every_node_in_a_record_has_a_number_that_can_be_given() {
        for bad in [0, NODE_LIMIT, u64::MAX] {
            let in_bad = Entry { directory: bad, name: b"a" };
            let (node, from, to) = (2, at(b"a"), at(b"b"));
            for record in [
                NameRecord::Node { node: bad, file_type: FileType::File, identity: b"" },
                NameRecord::Link { node: bad, at: from },
                NameRecord::Remove { node, at: in_bad },
                NameRecord::Rename { node, from: in_bad, to, replaced: None },
                NameRecord::Rename { node, from, to: in_bad, replaced: None },
                NameRecord::Rename { node, from, to, replaced: Some(bad) },
                NameRecord::Exchange { one: (node, in_bad), other: (3, to) },
                NameRecord::Exchange { one: (node, from), other: (bad, to) },
                NameRecord::Exchange { one: (node, from), other: (3, in_bad) },
                NameRecord::SetXattr { node: bad, name: b"user.a", value: None },
                NameRecord::Place { node, file_type: FileType::File, at: in_bad },
                NameRecord::Step { node, stage: Stage::Begun, from: Some(in_bad), to: None },
                NameRecord::Step { node, stage: Stage::Begun, from: Some(from), to: Some(in_bad) },
                NameRecord::Step { node: bad, stage: Stage::Begun, from: None, to: None },
            ] {
                assert_eq!(wrong(record), "node");
            }
        }
    }

    #[test]
    fn modes_times_targets_and_values_have_limits() {
        let set = |attributes| NameRecord::Set { node: 2, attributes };
        let time = Some(LoggedTime { seconds: 0, nanoseconds: 1_000_000_000 });
        let none = LoggedAttributes::default();
        assert_eq!(wrong(set(LoggedAttributes { mode: Some(0o10000), ..none })), "mode");
        assert_eq!(wrong(set(LoggedAttributes { atime: time, ..none })), "time");
        assert_eq!(wrong(set(LoggedAttributes { mtime: time, ..none })), "time");
        let too_long = [b'x'; LOGGED_TARGET_BYTES_MAX + 1];
        for target in [&b""[..], b"a\0", &too_long] {
            let kind = NewNode::Symlink(target);
            let record = NameRecord::Make { node: 2, at: at(b"a"), kind, attributes: none };
            assert_eq!(wrong(record), "symbolic link's target");
        }
        let value = vec![0; LOGGED_XATTR_BYTES_MAX + 1];
        let xattr = |name, value| NameRecord::SetXattr { node: 2, name, value };
        assert_eq!(wrong(xattr(b"user.a", Some(&value[..]))), "extended attribute's value");
        assert_eq!(xattr(b"user.a", Some(&value[1..])).check(), Ok(()));
        for name in [&b""[..], b"a\0", &[b'x'; LOGGED_NAME_BYTES_MAX + 1]] {
            assert_eq!(wrong(xattr(name, None)), "extended attribute's name");
        }
    }

    #[test]
    fn records_are_shown_in_words() {
        let attributes = LoggedAttributes {
            mode: Some(0o640),
            uid: Some(7),
            gid: None,
            atime: None,
            mtime: Some(LoggedTime { seconds: -3, nanoseconds: 9 }),
        };
        let kind = NewNode::Symlink(b"to");
        let (from, to) = (at(b"a"), Entry { directory: 5, name: b"\n" });
        for (record, words) in [
            (
                NameRecord::Node { node: 9, file_type: FileType::Directory, identity: b"\x01\xff" },
                "node 9 is the directory 01ff",
            ),
            (
                NameRecord::Make { node: 9, at: from, kind, attributes },
                "node 9 make symbolic link \"a\" in node 1 to \"to\" mode 0640 owner 7 mtime -3+9ns",
            ),
            (NameRecord::Link { node: 9, at: to }, "node 9 link \"\\n\" in node 5"),
            (NameRecord::Remove { node: 9, at: from }, "node 9 remove \"a\" in node 1"),
            (
                NameRecord::Rename { node: 9, from, to, replaced: Some(8) },
                "node 9 rename \"a\" in node 1 to \"\\n\" in node 5 over node 8",
            ),
            (
                NameRecord::Exchange { one: (9, from), other: (8, to) },
                "node 9 exchange \"a\" in node 1 with node 8 \"\\n\" in node 5",
            ),
            (
                NameRecord::SetXattr { node: 9, name: b"user.a", value: Some(b"four") },
                "node 9 set \"user.a\" to 4 bytes",
            ),
            (
                NameRecord::SetXattr { node: 9, name: b"user.a", value: None },
                "node 9 remove \"user.a\"",
            ),
            (
                NameRecord::Place { node: 9, file_type: FileType::File, at: from },
                "node 9 is the file \"a\" in node 1",
            ),
            (
                NameRecord::Step { node: 9, stage: Stage::Begun, from: Some(from), to: Some(to) },
                "node 9 step begun from \"a\" in node 1 to \"\\n\" in node 5",
            ),
            (
                NameRecord::Step { node: 9, stage: Stage::Undone, from: Some(from), to: None },
                "node 9 step not done from \"a\" in node 1",
            ),
        ] {
            assert_eq!(record.to_string(), words);
        }
    }
}
