//! What a program asks of the file system, one [`Event`] a call, in the order in which the calls ended.
//!
//! Owns the vocabulary, and the table of paths. Knows nothing of the form in which calls were recorded.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The most that a call reads or writes, bytes (read(2)).
pub const TRANSFER_MAX: u64 = 0x7fff_f000;

/// A path of the trace's [`Paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// open(2) and its relatives.
    Open,
    /// close(2).
    Close,
    /// Bytes from a file.
    Read,
    /// Bytes to a file.
    Write,
    /// fsync(2), or fdatasync(2) with [`flags::DATA`].
    Sync,
    /// sync(2) and syncfs(2).
    SyncAll,
    /// A new size, `length`.
    Truncate,
    /// fallocate(2).
    Allocate,
    /// Attributes are asked for, by name, or of an open file. `length` is the size if it was told.
    Stat,
    /// Mode, owner, times or an extended attribute is set.
    Attributes,
    /// Extended attributes are asked for.
    ReadAttribute,
    /// A directory's entries.
    List,
    /// A symbolic link's target.
    ReadLink,
    /// mkdir(2).
    MakeDirectory,
    /// rmdir(2).
    RemoveDirectory,
    /// unlink(2).
    Unlink,
    /// rename(2), to the second path.
    Rename,
    /// link(2), to the second path.
    Link,
    /// symlink(2): the path is the new link.
    SymbolicLink,
    /// fcntl(2) and flock(2) locks.
    Lock,
    /// mmap(2) of a file; with [`flags::WRITE`] it is shared and writable.
    Map,
    /// execve(2).
    Start,
    /// Bytes to something that is no file: a terminal, a pipe, a socket.
    Output,
    /// A call whose transfers are not in the trace: io_submit(2), io_uring_enter(2), splice(2).
    Unseen,
}

/// Bits of [`Event::flags`].
pub mod flags {
    /// Open for writing; a mapping that writes.
    pub const WRITE: u16 = 1;
    /// O_CREAT.
    pub const CREATE: u16 = 2;
    /// O_EXCL.
    pub const EXCLUSIVE: u16 = 4;
    /// O_TRUNC.
    pub const TRUNCATE: u16 = 8;
    /// O_APPEND.
    pub const APPEND: u16 = 16;
    /// O_DIRECT.
    pub const DIRECT: u16 = 32;
    /// O_DIRECTORY.
    pub const DIRECTORY: u16 = 64;
    /// O_SYNC or O_DSYNC.
    pub const SYNCHRONOUS: u16 = 128;
    /// fdatasync(2).
    pub const DATA: u16 = 256;
    /// No other descriptor refers to the description that is closed.
    pub const LAST: u16 = 512;
    /// A lock is released.
    pub const RELEASE: u16 = 1024;
    /// All of them.
    pub const ALL: u16 = 2047;
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When it began, microseconds since the trace's first call.
    pub at_us: u64,
    /// How long it took, if that was recorded, microseconds.
    pub took_us: Option<u64>,
    /// Process or thread.
    pub process: u32,
    /// Its kind.
    pub what: What,
    /// It returned an error.
    pub failed: bool,
    /// What it is about.
    pub path: Option<PathId>,
    /// The second path of a rename or link.
    pub to: Option<PathId>,
    /// The open description, numbered in the order of opening.
    pub description: Option<u32>,
    /// First byte of a transfer.
    pub offset: u64,
    /// Bytes transferred, or a size.
    pub length: u64,
    /// Bits of [`flags`].
    pub flags: u16,
}

impl Event {
    /// A call of which nothing more is known.
    pub fn new(at_us: u64, process: u32, what: What) -> Event {
        let (path, to, description) = (None, None, None);
        Event {
            at_us,
            took_us: None,
            process,
            what,
            failed: false,
            path,
            to,
            description,
            offset: 0,
            length: 0,
            flags: 0,
        }
    }

    /// Whether a flag is set.
    pub fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// What people call this kind of call.
    pub fn group(&self) -> Group {
        match self.what {
            What::Read => Group::Reads,
            What::Write | What::Allocate => Group::Writes,
            What::Sync | What::SyncAll => Group::Syncs,
            What::Open if self.is(flags::CREATE | flags::TRUNCATE) => Group::Names,
            What::MakeDirectory | What::RemoveDirectory | What::Unlink | What::Rename => {
                Group::Names
            }
            What::Link | What::SymbolicLink | What::Attributes | What::Truncate => Group::Names,
            What::Open | What::Close | What::Stat | What::ReadAttribute | What::List => {
                Group::Looks
            }
            What::ReadLink | What::Lock | What::Map => Group::Looks,
            What::Start | What::Output | What::Unseen => Group::Other,
        }
    }
}

/// Kinds of calls as people speak of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Bytes are read.
    Reads,
    /// Bytes are written.
    Writes,
    /// Changes are to be durable.
    Syncs,
    /// Names and attributes are changed.
    Names,
    /// Opening, looking, listing, locking.
    Looks,
    /// No calls on files.
    Other,
}

impl Group {
    /// Those of files.
    pub const OF_FILES: [Group; 5] =
        [Group::Reads, Group::Writes, Group::Syncs, Group::Names, Group::Looks];
}

impl Group {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Reads => "reads",
            Group::Writes => "writes",
            Group::Syncs => "syncs",
            Group::Names => "names",
            Group::Looks => "looks",
            Group::Other => "other",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Paths, each once. Absolute ones are clean: no `.`, no `..`, no doubled slash. Others are names such as `pipe:[3]`.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    all: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, PathId>,
    bytes: u64,
}

impl Paths {
    /// The number of a path, which is made clean: every path of every trace comes through here.
    pub fn intern(&mut self, path: &[u8]) -> PathId {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        if path.starts_with(b"/") && !is_clean(path) {
            return self.intern(&absolute(b"/", path));
        }
        let number = PathId(self.all.len() as u32);
        self.all.push(path.to_vec());
        self.numbers.insert(path.to_vec(), number);
        self.bytes += path.len() as u64;
        number
    }

    /// Bytes of all paths.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The path with that number.
    pub fn get(&self, number: PathId) -> &[u8] {
        &self.all[number.0 as usize]
    }

    /// The number of a path that is there.
    pub fn find(&self, path: &[u8]) -> Option<PathId> {
        self.numbers.get(path).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether it has no paths.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// `path` below `base` if it is relative, without `.`, `..` and doubled slashes. Symbolic links are not followed.
pub fn absolute(base: &[u8], path: &[u8]) -> Vec<u8> {
    let whole = if path.starts_with(b"/") { path.to_vec() } else { [base, b"/", path].concat() };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in whole.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = Vec::with_capacity(whole.len());
    for part in parts {
        clean.push(b'/');
        clean.extend_from_slice(part);
    }
    if clean.is_empty() { b"/".to_vec() } else { clean }
}

/// Whether an absolute path is what [`absolute`] makes of it.
fn is_clean(path: &[u8]) -> bool {
    let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    path == b"/" || path[1..].split(|byte| *byte == b'/').all(is_name)
}

/// Whether a clean path is a directory or below it.
pub fn is_below(path: &[u8], directory: &[u8]) -> bool {
    directory == b"/"
        || path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_absolute_and_clean() {
        assert_eq!(absolute(b"/a/b", b"../c//./d"), b"/a/c/d");
        assert_eq!(absolute(b"/a", b"/x/../../y"), b"/y");
        assert_eq!(absolute(b"/", b"."), b"/");
        assert!(is_below(b"/a/b", b"/a") && is_below(b"/a", b"/a") && is_below(b"/a", b"/"));
        assert!(!is_below(b"/ab", b"/a"));
    }

    #[test]
    fn no_path_leads_out_of_where_it_seems_to_be() {
        let mut paths = Paths::default();
        for (path, clean) in [
            (&b"/d/../../etc/x"[..], &b"/etc/x"[..]),
            (b"/d//etc/x", b"/d/etc/x"),
            (b"/d/./x/", b"/d/x"),
            (b"//", b"/"),
            (b"/d/..x", b"/d/..x"),
            (b"pipe:[3]", b"pipe:[3]"),
        ] {
            let number = paths.intern(path);
            assert_eq!(paths.get(number), clean, "{}", path.escape_ascii());
        }
        assert_eq!(paths.intern(b"/d/x/"), paths.intern(b"/d/x"));
    }

    #[test]
    fn a_path_has_one_number() {
        let mut paths = Paths::default();
        let first = paths.intern(b"/a");
        assert_ne!(first, paths.intern(b"/b"));
        assert_eq!(first, paths.intern(b"/a"));
        assert_eq!(paths.get(first), b"/a");
    }
}
