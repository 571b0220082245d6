//! Which file each call is about, and how long the file is at that moment.
//!
//! A file keeps its identity when it is renamed; a name that is removed and made again is another file. What a file was
//! before the trace is known by what the trace tells of it, and by what the caller knows ([`Before`]).
//!
//! [`Survey`] reads the trace once and finds which files existed when it began. [`Walk`] reads the trace a second time and gives the
//! files the same numbers.

use std::collections::HashMap;

use crate::call::{Event, PathId, Paths, What, flags};

/// A file of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// What the caller knows of a path before the trace began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It is not known, or the path is gone.
    Unknown,
    /// It was made since.
    Missing,
    /// It was there. It has this many bytes now.
    There(u64),
}

/// What a file was when the trace began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Initial {
    /// It was there.
    pub existed: bool,
    /// Its bytes.
    pub size: u64,
    /// It is a directory.
    pub directory: bool,
}

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The file.
    pub file: FileId,
    /// Its size before the call.
    pub size_before: u64,
    /// Where a transfer is; appends are at the end.
    pub offset: u64,
}

/// Follows the files along a trace.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    initial: &'a [Initial],
    sizes: Vec<u64>,
    by_path: HashMap<PathId, FileId>,
    by_description: HashMap<u32, FileId>,
}

impl<'a> Walk<'a> {
    /// At the beginning of the surveyed trace.
    pub fn new(survey: &'a Survey) -> Walk<'a> {
        Walk::over(&survey.initial)
    }

    fn over(initial: &'a [Initial]) -> Walk<'a> {
        Walk { initial, sizes: Vec::new(), by_path: HashMap::new(), by_description: HashMap::new() }
    }

    fn make(&mut self) -> FileId {
        let file = FileId(self.sizes.len() as u32);
        let initial = self.initial.get(self.sizes.len());
        self.sizes.push(initial.map_or(0, |initial| initial.size));
        file
    }

    fn at(&mut self, path: PathId) -> FileId {
        if let Some(file) = self.by_path.get(&path) {
            return *file;
        }
        let file = self.make();
        self.by_path.insert(path, file);
        file
    }

    /// The file that has this name now.
    pub fn named(&self, path: PathId) -> Option<FileId> {
        self.by_path.get(&path).copied()
    }

    /// The file's size now.
    pub fn size(&self, file: FileId) -> u64 {
        self.sizes[file.0 as usize]
    }

    /// Every name that is known and what it names.
    pub fn names(&self) -> impl Iterator<Item = (PathId, FileId)> {
        self.by_path.iter().map(|(path, file)| (*path, *file))
    }

    /// Takes the next call. `None`: it is about no file that is there.
    pub fn step(&mut self, event: &Event) -> Option<Seen> {
        if event.failed {
            return None;
        }
        let path = event.path?;
        let known = event.description.and_then(|number| self.by_description.get(&number).copied());
        let file = match known {
            Some(file) => file,
            None => self.at(path),
        };
        if let (Some(number), None) = (event.description, known) {
            self.by_description.insert(number, file);
        }
        let size_before = self.size(file);
        let offset = if event.is(flags::APPEND) && event.what == What::Write {
            size_before
        } else {
            event.offset
        };
        let size = &mut self.sizes[file.0 as usize];
        match event.what {
            What::Open if event.is(flags::TRUNCATE) => *size = 0,
            What::Truncate => *size = event.length,
            What::Write => *size = (*size).max(offset.saturating_add(event.length)),
            What::Allocate if !event.is(flags::DATA) => {
                *size = (*size).max(offset.saturating_add(event.length))
            }
            // What is read is there.
            What::Read => *size = (*size).max(offset.saturating_add(event.length)),
            What::Unlink | What::RemoveDirectory => {
                self.by_path.remove(&path);
            }
            What::Rename => {
                self.by_path.remove(&path);
                self.by_path.insert(event.to?, file);
            }
            What::Link => {
                self.by_path.insert(event.to?, file);
            }
            _ => {}
        }
        Some(Seen { file, size_before, offset })
    }

    fn count(&self) -> usize {
        self.sizes.len()
    }
}

/// What was there when the trace began.
#[derive(Debug, Default)]
pub struct Survey {
    /// By the number of the file.
    pub initial: Vec<Initial>,
}

/// What the first pass learns of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Learnt {
    created: bool,
    directory: bool,
    changed: bool,
    /// A size that was told before the first change.
    told: Option<u64>,
    read_end: u64,
    /// Where the first write began that was no append.
    first_write: Option<u64>,
    write_end: u64,
    before: Option<Before>,
}

impl Survey {
    /// Walks the events.
    pub fn new(events: &[Event], paths: &Paths, before: &dyn Fn(&[u8]) -> Before) -> Survey {
        let mut walk = Walk::over(&[]);
        let mut all: Vec<Learnt> = Vec::new();
        for event in events {
            let count = walk.count();
            let Some(seen) = walk.step(event) else { continue };
            all.resize(walk.count(), Learnt::default());
            let learnt = &mut all[seen.file.0 as usize];
            if walk.count() > count {
                let path = event.path.map(|path| paths.get(path)).unwrap_or_default();
                learnt.before = Some(before(path));
                learnt.created = match (event.what, learnt.before) {
                    (What::MakeDirectory | What::SymbolicLink, _) => true,
                    (What::Open, _) if event.is(flags::EXCLUSIVE) => event.is(flags::CREATE),
                    (What::Open, Some(Before::There(_))) => false,
                    (What::Open, _) => event.is(flags::CREATE),
                    _ => false,
                };
            }
            learnt.directory |=
                matches!(event.what, What::MakeDirectory | What::RemoveDirectory | What::List)
                    || (event.what == What::Open && event.is(flags::DIRECTORY));
            let end = seen.offset.saturating_add(event.length);
            match event.what {
                What::Stat if !learnt.changed => {
                    learnt.told = learnt.told.or((event.length > 0).then_some(event.length))
                }
                What::Read if !learnt.changed => learnt.read_end = learnt.read_end.max(end),
                What::Write => {
                    learnt.changed = true;
                    learnt.write_end = learnt.write_end.max(end);
                    if !event.is(flags::APPEND) && learnt.first_write.is_none() {
                        learnt.first_write = Some(seen.offset);
                    }
                }
                What::Truncate => learnt.changed = true,
                What::Open if event.is(flags::TRUNCATE) => learnt.changed = true,
                _ => {}
            }
        }
        Survey { initial: all.iter().map(Learnt::initial).collect() }
    }
}

impl Learnt {
    fn initial(&self) -> Initial {
        // Data that is read before any is written was there.
        let existed = !self.created || self.read_end > 0;
        if !existed || self.directory {
            return Initial { existed, size: 0, directory: self.directory };
        }
        let least = self.read_end.max(self.first_write.unwrap_or(0));
        let size = match (self.told, self.before) {
            (Some(told), _) => told,
            (None, Some(Before::There(now)))
                if now > self.write_end || self.first_write == Some(0) =>
            {
                now
            }
            // Nothing says how long it was; what is overwritten in place was there.
            (None, Some(Before::Unknown)) if self.first_write.is_some_and(|at| at > 0) => {
                self.write_end
            }
            _ => 0,
        };
        Initial { existed, size: size.max(least), directory: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(what: What, path: PathId, offset: u64, length: u64, flags: u16) -> Event {
        Event { path: Some(path), offset, length, flags, ..Event::new(0, 1, what) }
    }

    #[test]
    fn what_was_there_is_told_from_what_was_made() {
        let mut paths = Paths::default();
        let (old, new, gone) =
            (paths.intern(b"/old"), paths.intern(b"/new"), paths.intern(b"/gone"));
        let events = [
            on(What::Open, old, 0, 0, flags::WRITE),
            on(What::Stat, old, 0, 9000, 0),
            on(What::Write, old, 8192, 10, 0),
            on(What::Open, new, 0, 0, flags::WRITE | flags::CREATE),
            on(What::Write, new, 0, 100, 0),
            Event { to: Some(gone), ..on(What::Rename, new, 0, 0, 0) },
            on(What::Stat, gone, 0, 100, 0),
            on(What::Unlink, gone, 0, 0, 0),
            on(What::Open, gone, 0, 0, flags::WRITE | flags::CREATE),
        ];
        let survey = Survey::new(&events, &paths, &|_| Before::Unknown);
        let wanted = |existed, size| Initial { existed, size, directory: false };
        assert_eq!(survey.initial, [wanted(true, 9000), wanted(false, 0), wanted(false, 0)]);
        let mut walk = Walk::new(&survey);
        let seen: Vec<_> = events.iter().map(|event| walk.step(event).unwrap()).collect();
        assert_eq!(seen[2].size_before, 9000);
        assert_eq!(seen[3].file, seen[6].file, "a rename keeps the file");
        assert_ne!(seen[7].file, seen[8].file, "a name made again is another file");
    }

    #[test]
    fn appends_are_at_the_end() {
        let mut paths = Paths::default();
        let log = paths.intern(b"/log");
        let events = [
            on(What::Open, log, 0, 0, flags::WRITE | flags::CREATE | flags::APPEND),
            on(What::Write, log, 0, 10, flags::APPEND),
        ];
        let survey = Survey::new(&events, &paths, &|_| Before::There(110));
        assert_eq!(survey.initial[0].size, 110, "the size is as of now");
        let mut walk = Walk::new(&survey);
        walk.step(&events[0]);
        assert_eq!(walk.step(&events[1]).unwrap().offset, 110);
    }
}
