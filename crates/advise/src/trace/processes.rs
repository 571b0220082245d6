//! The processes of a trace: their directories and descriptors.
//!
//! Owns which open description a descriptor is, and each description's position. Threads share a table (clone(2),
//! CLONE_FILES), a child has a copy of its parent's.

use std::collections::HashMap;

use crate::call::PathId;

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
    directory: Vec<u8>,
    table: usize,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Processes {
    first_directory: Vec<u8>,
    all: HashMap<u32, Process>,
    tables: Vec<HashMap<i64, u32>>,
    descriptions: Vec<Description>,
}

impl Processes {
    pub(super) fn new(directory: &[u8]) -> Processes {
        Processes {
            first_directory: directory.to_vec(),
            all: HashMap::new(),
            tables: Vec::new(),
            descriptions: Vec::new(),
        }
    }

    pub(super) fn is_known(&self, process: u32) -> bool {
        self.all.contains_key(&process)
    }

    fn process(&mut self, process: u32) -> &mut Process {
        let (directory, tables) = (&self.first_directory, &mut self.tables);
        self.all.entry(process).or_insert_with(|| {
            tables.push(HashMap::new());
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
        if !shares {
            let copy = self.tables[table].clone();
            for number in copy.values() {
                self.descriptions[*number as usize].references += 1;
            }
            self.tables.push(copy);
            table = self.tables.len() - 1;
        }
        self.all.insert(process, Process { directory, table });
    }

    pub(super) fn end(&mut self, process: u32) {
        let Some(ended) = self.all.remove(&process) else { return };
        if self.all.values().any(|other| other.table == ended.table) {
            return;
        }
        for (_, number) in self.tables[ended.table].drain() {
            self.descriptions[number as usize].references -= 1;
        }
    }

    pub(super) fn directory(&mut self, process: u32) -> &[u8] {
        &self.process(process).directory
    }

    pub(super) fn set_directory(&mut self, process: u32, directory: Vec<u8>) {
        self.process(process).directory = directory;
    }

    /// The description of a descriptor.
    pub(super) fn find(&mut self, process: u32, fd: i64) -> Option<u32> {
        let table = self.process(process).table;
        self.tables[table].get(&fd).copied()
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
        self.tables[table].insert(fd, number);
        self.descriptions[number as usize].references += 1;
    }

    /// What the descriptor referred to, and whether no other refers to it any more.
    pub(super) fn close(&mut self, process: u32, fd: i64) -> Option<(u32, bool)> {
        let table = self.process(process).table;
        let number = self.tables[table].remove(&fd)?;
        let references = &mut self.descriptions[number as usize].references;
        *references -= 1;
        Some((number, *references == 0))
    }

    /// The descriptors of a process in a range.
    pub(super) fn in_range(&mut self, process: u32, first: i64, last: i64) -> Vec<i64> {
        let table = self.process(process).table;
        self.tables[table].keys().copied().filter(|fd| (first..=last).contains(fd)).collect()
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
