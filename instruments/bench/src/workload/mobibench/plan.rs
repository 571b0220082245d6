//! What a trace's calls mean for files: which files there are, what they hold before, and each
//! operation on one of them, in order.
//!
//! Descriptors belong to the whole traced program, so its threads' calls are put in the order of
//! their times first. From then on:
//!
//! - A name in quotes is that file. What is told of it first says whether it is there before.
//! - MobiGen, which made the traces, writes `data/data` for a name it could not tell. As in
//!   MobiBench's replayer each such open is of a file of its own. With the flags of the trace, it
//!   finds what an earlier replay left there, unless it is to be new or empty.
//! - For a descriptor whose open is not in the trace MobiGen writes an open of `/data/data` before
//!   the thread's first call on it. If the descriptor is not open this stands for a file that was
//!   open before the trace began; it is opened before the replay begins. Else it says nothing.
//! - A file that is there before holds as much as is read of it, or written to it at offsets.
//! - A named file that is not there when it is opened, though the trace's call found it, was made by
//!   a call the trace does not have, such as a rename: the open and what follows from it is left out.
//! - Calls that failed moved nothing and are left out (but for asking after names), as are those on
//!   `/dev` and `/proc` and on descriptors of which nothing is known, such as sockets.
//!
//! A descriptor's position follows from the trace, so reads and writes have offsets here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use crate::workload::mobibench::parse::{Call, Line, NameCall, OpenFlags};

/// How much a named file holds of which nothing is read.
const NAMED_BYTES: u64 = 4096;
/// Where files without a name are.
const UNNAMED: &str = "unnamed";
/// What stands for the open of a descriptor whose open is not in the trace.
const INHERITED: &str = "/data/data";

/// A file of the replay.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFile {
    /// Relative to the trace's directory.
    pub path: PathBuf,
    /// A directory, which is always there.
    pub directory: bool,
    /// How much it holds before, or `None` if it is not there.
    pub prepared: Option<u64>,
}

/// An operation of the replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The trace's thread.
    pub thread: u32,
    /// Since the trace began, microseconds.
    pub time_us: u64,
    /// The number of the file.
    pub file: usize,
    /// What is done.
    pub action: Action,
}

/// What is done to a file. Handles are numbered over the whole trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Opens it; not timed if it was open before the trace began.
    Open { handle: usize, flags: OpenFlags, inherited: bool },
    /// Closes it.
    Close { handle: usize },
    /// Reads it.
    Read { handle: usize, offset: u64, length: u64 },
    /// Writes it.
    Write { handle: usize, offset: u64, length: u64 },
    /// fsync(2).
    Sync { handle: usize },
    /// fstat(2).
    HandleStat { handle: usize },
    /// access(2).
    Access,
    /// stat(2).
    Stat,
    /// lstat(2).
    LinkStat,
    /// unlink(2).
    Unlink,
}

/// A whole trace.
pub struct Plan {
    /// Every file.
    pub files: Vec<PlannedFile>,
    /// Every operation, in the order of their times.
    pub operations: Vec<Planned>,
}

/// Makes the plan of a trace.
pub fn plan(mut lines: Vec<Line>) -> Plan {
    lines.sort_by_key(|line| line.time_us);
    let mut maker = Maker { directories: directories(&lines), ..Maker::default() };
    for line in &lines {
        maker.take(line);
    }
    Plan { files: maker.files, operations: maker.operations }
}

#[derive(Default)]
struct Maker {
    files: Vec<PlannedFile>,
    operations: Vec<Planned>,
    directories: BTreeSet<PathBuf>,
    named: BTreeMap<PathBuf, usize>,
    open: HashMap<i64, Handle>,
    handles: usize,
    /// By file: whether it is there at this point.
    there: Vec<bool>,
}

/// An open descriptor.
#[derive(Clone, Copy)]
struct Handle {
    number: usize,
    file: usize,
    position: u64,
    read_only: bool,
}

impl Maker {
    fn take(&mut self, line: &Line) {
        match &line.call {
            Call::Open { path, flags, fd } => self.open(line, path, *flags, *fd),
            Call::Close { fd } => {
                if let Some(handle) = self.open.remove(fd) {
                    self.push(line, handle.file, Action::Close { handle: handle.number });
                }
            }
            Call::Transfer { fd, offset, length, is_write } => {
                self.transfer(line, *fd, *offset, *length, *is_write);
            }
            Call::Sync { fd } => self.on_handle(line, *fd, |handle| Action::Sync { handle }),
            Call::Stat { fd } => self.on_handle(line, *fd, |handle| Action::HandleStat { handle }),
            Call::Named { what, path, result } => {
                let Some(path) = named_path(path) else { return };
                let file = self.named(path, *result >= 0);
                let action = match what {
                    NameCall::Access => Action::Access,
                    NameCall::Stat => Action::Stat,
                    NameCall::LinkStat => Action::LinkStat,
                    NameCall::Unlink => Action::Unlink,
                };
                self.push(line, file, action);
                if action == Action::Unlink {
                    self.there[file] = false;
                }
            }
        }
    }

    fn on_handle(&mut self, line: &Line, fd: i64, action: impl FnOnce(usize) -> Action) {
        if let Some(Handle { number, file, .. }) = self.open.get(&fd).copied() {
            self.push(line, file, action(number));
        }
    }

    fn push(&mut self, line: &Line, file: usize, action: Action) {
        let Line { thread, time_us, .. } = *line;
        self.operations.push(Planned { thread, time_us, file, action });
    }

    fn open(&mut self, line: &Line, path: &str, flags: OpenFlags, fd: i64) {
        let inherited = path == INHERITED;
        // MobiGen did not know what it was opened with.
        let flags = if inherited { OpenFlags::default() } else { flags };
        if fd < 0 || (inherited && self.open.contains_key(&fd)) {
            return;
        }
        self.open.remove(&fd);
        let file = if let Some(path) = named_path(path) {
            // An open that makes a file tells nothing of it; one that finds it does.
            self.named(path, !flags.create)
        } else if path.starts_with("dev/") || path.starts_with('"') {
            return;
        } else {
            let there = inherited || !(flags.truncate || flags.exclusive);
            let path = Path::new(UNNAMED).join(format!("{:04}.dat", self.files.len()));
            self.add(PlannedFile { path, directory: false, prepared: there.then_some(0) })
        };
        if !(self.there[file] || flags.create) {
            // It was made by a call that is not in the trace, such as a rename.
            return;
        }
        self.there[file] = true;
        let number = self.handles;
        self.handles += 1;
        let read_only = flags.read_only || self.files[file].directory;
        self.open.insert(fd, Handle { number, file, position: 0, read_only });
        self.push(line, file, Action::Open { handle: number, flags, inherited });
    }

    /// A read or write, at the descriptor's position if there is no offset.
    fn transfer(&mut self, line: &Line, fd: i64, at: Option<u64>, length: i64, write: bool) {
        let (Some(handle), Ok(length @ 1..)) = (self.open.get_mut(&fd), u64::try_from(length))
        else {
            return;
        };
        let offset = at.unwrap_or(handle.position);
        if self.files[handle.file].directory || (write && handle.read_only) {
            return;
        }
        if at.is_none() {
            handle.position += length;
        }
        let Handle { number: handle, file, .. } = *handle;
        let action = if write {
            Action::Write { handle, offset, length }
        } else {
            Action::Read { handle, offset, length }
        };
        if let Some(prepared) = &mut self.files[file].prepared
            && (at.is_some() || !write)
        {
            *prepared = (*prepared).max(offset + length);
        }
        self.push(line, file, action);
    }

    /// The file of that name. `there`: whether what is told of it says that it is there.
    fn named(&mut self, path: PathBuf, there: bool) -> usize {
        if let Some(file) = self.named.get(&path) {
            return *file;
        }
        let directory = self.directories.contains(&path);
        let prepared = (there && !directory).then_some(NAMED_BYTES);
        let file = self.add(PlannedFile { path: path.clone(), directory, prepared });
        self.named.insert(path, file);
        file
    }

    fn add(&mut self, file: PlannedFile) -> usize {
        self.there.push(file.directory || file.prepared.is_some());
        self.files.push(file);
        self.files.len() - 1
    }
}

/// The path of a name in quotes under the trace's directory; `None` for one that is not of a disk,
/// or is none.
fn named_path(word: &str) -> Option<PathBuf> {
    let path = Path::new(word.strip_prefix('"')?.strip_suffix('"')?);
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return None;
    }
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            _ => {}
        }
    }
    Some(Path::new("named").join(clean))
}

/// The names that other names go through, and those opened as directories.
fn directories(lines: &[Line]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for line in lines {
        let (path, itself) = match &line.call {
            Call::Open { path, flags, .. } => (path, flags.directory),
            Call::Named { path, .. } => (path, false),
            _ => continue,
        };
        let Some(path) = named_path(path) else { continue };
        found.extend(path.ancestors().skip(usize::from(!itself)).map(Path::to_owned));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(calls: Vec<Call>) -> Plan {
        let line = |(at, call)| Line { thread: 0, time_us: at, call };
        plan((0..).zip(calls).map(line).collect())
    }

    fn open(path: &str, flags: OpenFlags, fd: i64) -> Call {
        Call::Open { path: path.into(), flags, fd }
    }

    fn read(fd: i64, offset: Option<u64>, length: i64) -> Call {
        Call::Transfer { fd, offset, length, is_write: false }
    }

    fn write(fd: i64, offset: Option<u64>, length: i64) -> Call {
        Call::Transfer { fd, offset, length, is_write: true }
    }

    const CREATE: OpenFlags = OpenFlags {
        read_only: false,
        create: true,
        exclusive: false,
        truncate: false,
        directory: false,
    };

    #[test]
    fn descriptors_have_positions_and_files_the_size_they_need() {
        let plan = of(vec![
            open("/data/data", CREATE, 3),
            read(3, None, 10),
            write(3, None, 5),
            read(3, Some(100), 20),
            read(3, None, -1),
            read(3, None, 2),
            open("/data/data", CREATE, 3),
            Call::Close { fd: 3 },
            write(3, None, 5),
        ]);
        assert_eq!(plan.files.len(), 1, "the second open says nothing: it is open");
        assert_eq!(plan.files[0].prepared, Some(120));
        let actions: Vec<_> = plan.operations.iter().map(|one| one.action).collect();
        let flags = OpenFlags::default();
        assert_eq!(
            actions,
            [
                Action::Open { handle: 0, flags, inherited: true },
                Action::Read { handle: 0, offset: 0, length: 10 },
                Action::Write { handle: 0, offset: 10, length: 5 },
                Action::Read { handle: 0, offset: 100, length: 20 },
                Action::Read { handle: 0, offset: 15, length: 2 },
                Action::Close { handle: 0 },
            ]
        );
    }

    #[test]
    fn files_without_a_name_are_each_their_own_and_there_unless_made() {
        let new = OpenFlags { exclusive: true, ..CREATE };
        let write = |fd| write(fd, Some(0), 4616);
        let plan = of(vec![
            open("data/data", CREATE, 3),
            write(3),
            Call::Close { fd: 3 },
            open("data/data", new, 3),
            write(3),
            open("dev/fimg2d\"", CREATE, 4),
            write(4),
        ]);
        let prepared: Vec<_> = plan.files.iter().map(|file| file.prepared).collect();
        assert_eq!(prepared, [Some(4616), None]);
        assert_eq!(plan.operations.len(), 5);
    }

    #[test]
    fn names_are_there_if_first_found_and_directories_if_others_go_through_them() {
        let named = |what, path: &str, result| Call::Named { what, path: path.into(), result };
        let plan = of(vec![
            named(NameCall::Access, "\"/a/b/there\"", 0),
            named(NameCall::Access, "\"/a/b/./absent\"", -1),
            named(NameCall::Unlink, "\"/a/b/absent\"", 0),
            named(NameCall::Stat, "\"/a/b\"", 0),
            named(NameCall::Stat, "\"/dev/null\"", 0),
            open("\"/a/b\"", OpenFlags { read_only: true, ..OpenFlags::default() }, 3),
            Call::Sync { fd: 3 },
        ]);
        let file = |name: &str| {
            let found = plan.files.iter().find(|file| file.path == Path::new(name));
            found.unwrap_or_else(|| panic!("{name}"))
        };
        assert_eq!(plan.files.len(), 3);
        assert_eq!(file("named/a/b/there").prepared, Some(NAMED_BYTES));
        assert_eq!(file("named/a/b/absent").prepared, None);
        assert!(file("named/a/b").directory);
        assert_eq!(plan.operations.len(), 6);
    }

    #[test]
    fn calls_of_all_threads_are_in_the_order_of_their_times() {
        let line = |thread, time_us, call| Line { thread, time_us, call };
        let plan = plan(vec![
            line(1, 10, open("data/data", CREATE, 5)),
            line(1, 30, Call::Close { fd: 5 }),
            line(2, 20, write(5, Some(0), 8)),
            line(2, 40, write(5, Some(8), 8)),
        ]);
        let threads: Vec<_> = plan.operations.iter().map(|one| one.thread).collect();
        assert_eq!(threads, [1, 2, 1], "after the close nothing is known of the descriptor");
    }
}
