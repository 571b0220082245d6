//! Void logs: logs of which nothing is to be replayed, but that cannot record that themselves because they
//! failed.
//!
//! The note is the name of an empty file in `.weir`, `void-NAME-GENERATION`: it needs no space if SOURCE is
//! full, and is created atomically. NAME is the log's name, GENERATION the highest generation that the log's
//! superblock can have, in hexadecimal digits. The log is next used with a higher generation, so a note
//! restored by a crash does not void its newer contents. Earlier builds named no generation (`void-NAME`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fsync, openat, unlinkat};
use rustix::io::Errno;
use weir_log::{Identity, Superblock};

use crate::notes;
use crate::partial::hex;

/// No superblock has a higher generation (docs/LOG_FORMAT.md).
const GENERATION_MAX: u64 = 1 << 62;

fn name_of(log: &Identity) -> String {
    format!("void-{}", hex(log))
}

/// Records in SOURCE that everything a log holds up to this generation is home and durable.
///
/// # Errors
/// Those of creating the note.
pub(crate) fn note(source: BorrowedFd<'_>, log: &Identity, generation: u64) -> io::Result<()> {
    let directory = notes::directory(source)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = format!("{}-{generation:x}", name_of(log));
    let note = openat(&directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    fsync(&note)?;
    Ok(fsync(&directory)?)
}

/// The names of a log's notes, and their generations if given.
fn notes_of(directory: &OwnedFd, log: &Identity) -> io::Result<Vec<(String, Option<u64>)>> {
    let prefix = name_of(log);
    let mut notes = Vec::new();
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let generation = match name.strip_prefix(&prefix) {
            Some("") => None,
            Some(rest) => {
                let digits = rest.strip_prefix('-');
                let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                match number.filter(|&number| number < GENERATION_MAX) {
                    None => continue,
                    number => number,
                }
            }
            None => continue,
        };
        notes.push((name.to_owned(), generation));
    }
    Ok(notes)
}

/// The generation up to which a log is recorded as void, if it is.
fn noted(source: BorrowedFd<'_>, superblock: &Superblock) -> io::Result<Option<u64>> {
    let Some(directory) = notes::trusted_directory(source)? else { return Ok(None) };
    let notes = notes_of(&directory, &superblock.log)?;
    // A note without a generation is about the log's current contents.
    Ok(notes.iter().map(|(_, generation)| generation.unwrap_or(superblock.generation)).max())
}

/// The superblock to replay a log from: marked clean if the log is recorded as void.
///
/// # Errors
/// Those of reading `.weir`. On an error the log must not be replayed: it may be void.
pub fn without_void(source: BorrowedFd<'_>, superblock: Superblock) -> io::Result<Superblock> {
    let is_void = noted(source, &superblock)?.is_some_and(|until| superblock.generation <= until);
    Ok(Superblock { clean: superblock.clean || is_void, ..superblock })
}

/// The superblock for a log's next use: `next`, or a later one that no existing note voids. Both have the same place.
///
/// # Errors
/// Those of reading `.weir`.
pub(crate) fn beyond_notes(source: BorrowedFd<'_>, next: Superblock) -> io::Result<Superblock> {
    Ok(noted(source, &next)?.map_or(next, |until| beyond(until, next)))
}

/// The superblock for a log's next use: `next`, or a later one, of a higher generation than `until`. Both have the same place.
pub(crate) fn beyond(until: u64, next: Superblock) -> Superblock {
    match until.checked_sub(next.generation) {
        Some(behind) => Superblock { generation: next.generation + behind / 2 * 2 + 2, ..next },
        None => next,
    }
}

/// Removes the notes about a log, durably: the log is used again.
///
/// # Errors
/// Those of removing them.
pub(crate) fn forget(source: BorrowedFd<'_>, log: &Identity) -> io::Result<()> {
    let Some(directory) = notes::trusted_directory(source)? else { return Ok(()) };
    let notes = notes_of(&directory, log)?;
    if notes.is_empty() {
        return Ok(());
    }
    for (name, _) in notes {
        match unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(fsync(&directory)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use weir_log::{LOG_BYTES_MIN, Lsn, NODE_FIRST};

    use super::*;

    struct Fixture {
        _place: tempfile::TempDir,
        own: PathBuf,
        source: std::fs::File,
    }

    impl Fixture {
        fn new() -> Fixture {
            let place = tempfile::tempdir().unwrap();
            let own = place.path().join(".weir");
            std::fs::create_dir(&own).unwrap();
            let source = std::fs::File::open(place.path()).unwrap();
            Fixture { _place: place, own, source }
        }

        fn is_void(&self, superblock: Superblock) -> bool {
            without_void(self.source.as_fd(), superblock).unwrap().clean
        }
    }

    fn superblock(generation: u64) -> Superblock {
        Superblock {
            log: [7; 16],
            mount: [1; 16],
            bytes: LOG_BYTES_MIN,
            generation,
            checkpoint: Lsn(4096),
            clean: false,
            row_blocks: 1,
            nodes: NODE_FIRST,
            features: 0,
        }
    }

    #[test]
    fn a_note_voids_its_log_up_to_its_generation() {
        let fixture = Fixture::new();
        assert!(!fixture.is_void(superblock(30)));
        note(fixture.source.as_fd(), &[7; 16], 30).unwrap();
        assert!(fixture.is_void(superblock(29)) && fixture.is_void(superblock(30)));
        assert!(!fixture.is_void(superblock(31)));
        assert!(!fixture.is_void(Superblock { log: [8; 16], ..superblock(30) }));
        forget(fixture.source.as_fd(), &[8; 16]).unwrap();
        assert!(fixture.is_void(superblock(30)));
        forget(fixture.source.as_fd(), &[7; 16]).unwrap();
        assert!(!fixture.is_void(superblock(30)));
    }

    #[test]
    fn a_log_is_reused_with_a_generation_above_its_notes_and_keeps_its_newest_superblock() {
        for (current, noted) in [(30, 29), (30, 30), (30, 31), (30, 32), (31, 34), (1, 900)] {
            let fixture = Fixture::new();
            note(fixture.source.as_fd(), &[7; 16], noted).unwrap();
            let current = superblock(current);
            let next = beyond_notes(fixture.source.as_fd(), current.next_use(Lsn(8192))).unwrap();
            assert!(next.generation > noted.max(current.generation));
            assert!(next.generation <= noted.max(current.generation) + 2);
            assert_ne!(next.own_place(), current.own_place());
            assert!(!fixture.is_void(next));
        }
    }

    #[test]
    fn a_note_of_an_earlier_build_counts_once() {
        let fixture = Fixture::new();
        std::fs::write(fixture.own.join(name_of(&[7; 16])), "").unwrap();
        assert!(fixture.is_void(superblock(30)));
        forget(fixture.source.as_fd(), &[7; 16]).unwrap();
        assert!(!fixture.is_void(superblock(30)));
        assert_eq!(std::fs::read_dir(&fixture.own).unwrap().count(), 0);
    }

    #[test]
    fn other_names_are_not_notes() {
        let fixture = Fixture::new();
        let name = name_of(&[7; 16]);
        for wrong in ["-", "-x", "-ffffffffffffffff", "-1-", "1"] {
            std::fs::write(fixture.own.join(format!("{name}{wrong}")), "").unwrap();
        }
        assert!(!fixture.is_void(superblock(0)));
    }
}
