//! What a node is called here, and which inode it is at home.

/// The number of a node: the kernel's name for it, and the inode number programs see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: NodeId = NodeId(1);
    /// The directory of Weir's own in which nodes are that have no other name at home for a moment. No node.
    pub const PARKING: NodeId = NodeId(0);
}

/// Which inode a node is at home.
///
/// Two inodes never have the same identity at the same time. Home may give the number of a removed inode
/// to a new one; the version tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The file system's device number.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// Differs for inodes that have the same number one after the other, as far as home tells: made
    /// from the file handle or the birth time, and the file type.
    pub version: u64,
}
