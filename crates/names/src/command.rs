//! What home is to do to names and attributes: the vocabulary of changes.
//!
//! Plain data. A command names an inode by a `T`, whatever stands for one where the command is: a number where changes
//! are decided, a descriptor where `weir_backend::home_names` executes them. A command that makes an inode carries
//! whom it is made for; all others are executed with the daemon's own rights, the kernel having checked the program's.
//!
//! Each variant is one system call; its manual page says what it does and how it fails. Questions are no commands.

use std::ffi::OsStr;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a, T> {
    /// The directory.
    pub directory: T,
    /// The name, one component.
    pub name: &'a OsStr,
}

/// The program that an inode is made for: its owner, unless the directory's set-group-ID bit says otherwise, and the
/// one whose quotas apply (credentials(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creator {
    /// File-system user.
    pub uid: u32,
    /// File-system group.
    pub gid: u32,
    /// Permission bits that the new inode is not to have, unless the directory has a default ACL (umask(2), acl(5)).
    pub umask: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The moment it is set.
    Now,
    /// This one, since 1970.
    To {
        /// Whole seconds; negative before 1970.
        seconds: i64,
        /// To be added to them, below 10^9.
        nanoseconds: u32,
    },
}

/// One change of names or attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCommand<'a, T> {
    /// mkdir(2).
    MakeDirectory {
        /// Where.
        at: Entry<'a, T>,
        /// Permission bits, as the program gave them.
        mode: u32,
        /// For whom.
        creator: Creator,
    },
    /// mknod(2).
    MakeNode {
        /// Where.
        at: Entry<'a, T>,
        /// Type and permission bits, as in `st_mode`.
        mode: u32,
        /// Of a device node, in the home system's encoding.
        device: u64,
        /// For whom.
        creator: Creator,
    },
    /// symlink(2).
    MakeSymlink {
        /// Where.
        at: Entry<'a, T>,
        /// What the link says.
        target: &'a OsStr,
        /// For whom.
        creator: Creator,
    },
    /// open(2) with O_CREAT and O_EXCL. The answer is the new file, open for reading and writing whatever its mode is.
    MakeFile {
        /// Where.
        at: Entry<'a, T>,
        /// Permission bits, as the program gave them.
        mode: u32,
        /// For whom.
        creator: Creator,
    },
    /// open(2) with O_TMPFILE, for a name to be given later. The answer is the new file, open for reading and writing.
    MakeUnnamed {
        /// The directory whose file system and group it gets.
        directory: T,
        /// Permission bits, as the program gave them.
        mode: u32,
        /// For whom.
        creator: Creator,
    },
    /// link(2). A symbolic link is linked itself.
    Link {
        /// What gets one more name.
        inode: T,
        /// That name.
        at: Entry<'a, T>,
    },
    /// renameat2(2).
    Rename {
        /// The old name.
        from: Entry<'a, T>,
        /// The new name.
        to: Entry<'a, T>,
        /// RENAME_NOREPLACE and so on.
        flags: u32,
    },
    /// unlink(2).
    Unlink {
        /// The name.
        at: Entry<'a, T>,
    },
    /// rmdir(2).
    RemoveDirectory {
        /// The name.
        at: Entry<'a, T>,
    },
    /// chown(2); `None` stays. A symbolic link is changed itself.
    SetOwner {
        /// Of what.
        inode: T,
        /// User.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
    },
    /// chmod(2).
    SetMode {
        /// Of what.
        inode: T,
        /// Permission bits.
        mode: u32,
    },
    /// utimensat(2); `None` stays. A symbolic link is changed itself.
    SetTimes {
        /// Of what.
        inode: T,
        /// Last access.
        atime: Option<SetTime>,
        /// Last modification.
        mtime: Option<SetTime>,
    },
    /// lsetxattr(2).
    SetXattr {
        /// Of what.
        inode: T,
        /// Its name, with its namespace.
        name: &'a OsStr,
        /// Its value.
        value: &'a [u8],
        /// XATTR_CREATE and XATTR_REPLACE.
        flags: u32,
    },
    /// lremovexattr(2).
    RemoveXattr {
        /// Of what.
        inode: T,
        /// Its name, with its namespace.
        name: &'a OsStr,
    },
    /// fsync(2) of a directory: its entries are durable.
    SyncDirectory {
        /// Which.
        directory: T,
    },
}

impl<T> NameCommand<'_, T> {
    /// Whom an inode is made for, if one is made.
    pub fn creator(&self) -> Option<Creator> {
        match self {
            NameCommand::MakeDirectory { creator, .. }
            | NameCommand::MakeNode { creator, .. }
            | NameCommand::MakeSymlink { creator, .. }
            | NameCommand::MakeFile { creator, .. }
            | NameCommand::MakeUnnamed { creator, .. } => Some(*creator),
            _ => None,
        }
    }
}
