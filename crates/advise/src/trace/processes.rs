//! The processes of a trace: their directories and descriptors.
//!
//! Owns which open description a descriptor is, and each description's position. Threads share a table (clone(2),
//! CLONE_FILES), a child has a copy of its parent's.
//!
//! Bounds: [`ENTRIES_MAX`] descriptors are known at a time and [`COPIES_MAX`] are copied in all. A child whose copy would
//! exceed them begins without descriptors; where a trace tells their paths (strace -y), they are known again when used.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::call::PathId;

/// Most descriptors of all processes at a time.
const ENTRIES_MAX: usize = 1 << 20;
/// Most that are copied for children in the whole trace.
const COPIES_MAX: usize = 1 << 24;
/// The longest directory, bytes (PATH_MAX): each path relative to it has its bytes.
const DIRECTORY_BYTES_MAX: usize = 4096;

/// An open description.
#[derive(Debug)]
pub(super) struct Description {
    /// Its name when it was opened or seen first.
    pub(super) path: PathId,
    /// Where the next read or write is.
    pub(super) position: u64,
    /// Writes are at the end.
    pub(super) append: bool,
    /// How many descriptors refer to it.
    references: u32,
}

#[derive(Debug)]
struct Process {
    directory: Rc<[u8]>,
    table: usize,
}

/// Descriptors.
#[derive(Debug, Default)]
struct Table {
    descriptions: BTreeMap<i64, u32>,
    /// Processes and threads that share it.
    users: u32,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Processes {
    first_directory: Rc<[u8]>,
    all: HashMap<u32, Process>,
    tables: Vec<Table>,
    descriptions: Vec<Description>,
    entries: usize,
    copied: usize,
}

impl Processes {
    pub(super) fn new(directory: &[u8]) -> Processes {
        Processes {
            first_directory: directory.into(),
            all: HashMap::new(),
            tables: Vec::new(),
            descriptions: Vec::new(),
            entries: 0,
            copied: 0,
        }
    }

    pub(super) fn is_known(&self, process: u32) -> bool {
        self.all.contains_key(&process)
    }

    fn process(&mut self, process: u32) -> &mut Process {
        let (directory, tables) = (&self.first_directory, &mut self.tables);
        self.all.entry(process).or_insert_with(|| {
            tables.push(Table { users: 1, ..Table::default() });
            Process { directory: directory.clone(), table: tables.len() - 1 }
        })
    }

    /// A process has appeared. `parent`: who made it, if that is known; `shares`: it has its parent's descriptors.
    pub(super) fn begin(&mut self, process: u32, parent: Option<u32>, shares: bool) {
        if self.is_known(process) {
            return;
        }
        let Some(parent) = parent else {
            self.process(process);
            return;
        };
        let parent = self.process(parent);
        let (directory, mut table) = (parent.directory.clone(), parent.table);
        if shares {
            self.tables[table].users += 1;
        } else {
            let descriptions = self.copy(table);
            self.tables.push(Table { descriptions, users: 1 });
            table = self.tables.len() - 1;
        }
        self.all.insert(process, Process { directory, table });
    }

    /// A child's descriptors.
    fn copy(&mut self, table: usize) -> BTreeMap<i64, u32> {
        let parent = &self.tables[table].descriptions;
        let count = parent.len();
        if self.entries + count > ENTRIES_MAX || self.copied + count > COPIES_MAX {
            return BTreeMap::new();
        }
        (self.entries, self.copied) = (self.entries + count, self.copied + count);
        for number in parent.values() {
            self.descriptions[*number as usize].references += 1;
        }
        parent.clone()
    }

    pub(super) fn end(&mut self, process: u32) {
        let Some(ended) = self.all.remove(&process) else { return };
        let table = &mut self.tables[ended.table];
        table.users -= 1;
        if table.users > 0 {
            return;
        }
        for number in std::mem::take(&mut table.descriptions).into_values() {
            self.descriptions[number as usize].references -= 1;
            self.entries -= 1;
        }
    }

    pub(super) fn directory(&mut self, process: u32) -> &[u8] {
        &self.process(process).directory
    }

    /// A directory that no process can be in, since its path is too long, changes nothing.
    pub(super) fn set_directory(&mut self, process: u32, directory: &[u8]) {
        if directory.len() <= DIRECTORY_BYTES_MAX && *self.process(process).directory != *directory
        {
            self.process(process).directory = directory.into();
        }
    }

    /// The description of a descriptor.
    pub(super) fn find(&mut self, process: u32, fd: i64) -> Option<u32> {
        let table = self.process(process).table;
        self.tables[table].descriptions.get(&fd).copied()
    }

    /// The same; made if it was opened before the trace began, or in a call that is not known.
    pub(super) fn find_or_make(&mut self, process: u32, fd: i64, path: PathId) -> u32 {
        match self.find(process, fd) {
            Some(number) => number,
            None => self.open(process, fd, path, false),
        }
    }

    pub(super) fn open(&mut self, process: u32, fd: i64, path: PathId, append: bool) -> u32 {
        let number = self.descriptions.len() as u32;
        self.descriptions.push(Description { path, position: 0, append, references: 0 });
        self.refer(process, fd, number);
        number
    }

    /// The descriptor refers to this description from now on.
    pub(super) fn refer(&mut self, process: u32, fd: i64, number: u32) {
        self.close(process, fd);
        let table = self.process(process).table;
        self.tables[table].descriptions.insert(fd, number);
        self.entries += 1;
        self.descriptions[number as usize].references += 1;
    }

    /// What the descriptor referred to, and whether no other refers to it any more.
    pub(super) fn close(&mut self, process: u32, fd: i64) -> Option<(u32, bool)> {
        let table = self.process(process).table;
        let number = self.tables[table].descriptions.remove(&fd)?;
        self.entries -= 1;
        let references = &mut self.descriptions[number as usize].references;
        *references -= 1;
        Some((number, *references == 0))
    }

    /// The descriptors of a process in a range.
    pub(super) fn in_range(&mut self, process: u32, first: i64, last: i64) -> Vec<i64> {
        let table = self.process(process).table;
        if first > last {
            return Vec::new();
        }
        self.tables[table].descriptions.range(first..=last).map(|(fd, _)| *fd).collect()
    }

    pub(super) fn description(&mut self, number: u32) -> &mut Description {
        &mut self.descriptions[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_copies_and_threads_share() {
        let mut processes = Processes::new(b"/d");
        let number = processes.open(1, 3, PathId(0), false);
        processes.begin(2, Some(1), false);
        processes.begin(3, Some(1), true);
        assert_eq!(processes.close(2, 3), Some((number, false)));
        assert_eq!(processes.find(1, 3), Some(number), "a child's close is its own");
        assert_eq!(processes.close(3, 3), Some((number, true)));
        assert_eq!(processes.find(1, 3), None, "a thread's is not");
        assert_eq!(processes.directory(3), b"/d");
    }

    #[test]
    fn what_children_copy_is_bounded() {
        let mut processes = Processes::new(b"/d");
        for fd in 0..1000 {
            processes.open(1, fd, PathId(0), false);
        }
        for child in 2..3000 {
            processes.begin(child, Some(1), false);
        }
        let known: usize = processes.tables.iter().map(|table| table.descriptions.len()).sum();
        assert!(known <= ENTRIES_MAX, "{known}");
        assert_eq!(known, processes.entries);
        assert_eq!(processes.find(2, 7), processes.find(1, 7));
        assert_eq!(processes.find(2999, 7), None);
        for child in 2..3000 {
            processes.end(child);
        }
        assert_eq!(processes.entries, 1000);
        assert_eq!(processes.close(1, 7).map(|(_, last)| last), Some(true));
        assert_eq!(processes.in_range(1, 6, 9), [6, 8, 9]);
    }

    #[test]
    fn a_directory_is_no_longer_than_a_path() {
        let mut processes = Processes::new(b"/d");
        processes.set_directory(1, &[b'/'; 5000]);
        assert_eq!(processes.directory(1), b"/d");
    }

    #[test]
    fn a_duplicate_shares_the_position() {
        let mut processes = Processes::new(b"/");
        let number = processes.open(1, 3, PathId(0), false);
        processes.refer(1, 4, number);
        processes.description(number).position = 7;
        assert_eq!(processes.close(1, 3), Some((number, false)));
        let same = processes.find(1, 4).unwrap();
        assert_eq!(processes.description(same).position, 7);
        processes.begin(2, Some(1), false);
        processes.end(1);
        assert_eq!(processes.close(2, 4), Some((number, true)));
    }
}
