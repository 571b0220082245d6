//! Recovery that was finished for some files and not for others.
//!
//! The log is kept for the unfinished files. When recovery continues, the finished files must not be replayed
//! once more: SOURCE may have been changed since. So they are recorded in SOURCE, in `.weir/done-NAME`, where
//! NAME is the log's: a line with the superblock's generation that the note is valid for, then a line with
//! the identity of each finished file, both in hexadecimal digits.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags, fsync, renameat, unlinkat};
use weir_log::Superblock;

use crate::notes;

fn name_of(superblock: &Superblock) -> String {
    format!("done-{}", hex(&superblock.log))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(pair).collect()
}

/// The files that the log need not be replayed to any more.
///
/// # Errors
/// Those of reading the note. A malformed line is an error, too.
pub(crate) fn done(
    source: BorrowedFd<'_>,
    superblock: &Superblock,
) -> io::Result<BTreeSet<Vec<u8>>> {
    let Some(directory) = notes::trusted_directory(source)? else { return Ok(BTreeSet::new()) };
    let Some(text) = notes::read(&directory, &name_of(superblock))? else {
        return Ok(BTreeSet::new());
    };
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    if lines.next() != Some(&format!("{:x}", superblock.generation)) {
        return Ok(BTreeSet::new());
    }
    let damaged =
        || io::Error::new(io::ErrorKind::InvalidData, "the note of finished files is damaged");
    lines.map(|line| bytes(line).ok_or_else(damaged)).collect()
}

/// Records the finished files, durably.
///
/// # Errors
/// Those of writing the note.
pub(crate) fn note(
    source: BorrowedFd<'_>,
    superblock: &Superblock,
    done: &[Vec<u8>],
) -> io::Result<()> {
    let mut text = format!("{:x}\n", superblock.generation);
    for identity in done {
        text.push_str(&hex(identity));
        text.push('\n');
    }
    let name = name_of(superblock);
    let new = format!("{name}.new");
    let directory = notes::directory(source)?;
    let written = write(&directory, &new, &text);
    if written.is_err() {
        // An incomplete one would keep `.weir` from being removed.
        let _ = unlinkat(&directory, &new, AtFlags::empty());
    }
    written?;
    renameat(&directory, &new, &directory, &name)?;
    Ok(fsync(&directory)?)
}

fn write(directory: &OwnedFd, name: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = notes::open(directory, name, flags)?.ok_or(io::ErrorKind::NotFound)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Removes the note: the log is used again, so the note is no longer valid.
pub(crate) fn forget(source: BorrowedFd<'_>, superblock: &Superblock) {
    if let Ok(Some(directory)) = notes::trusted_directory(source) {
        // Without a note there is nothing to remove.
        let _ = unlinkat(directory, name_of(superblock), AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use weir_log::{LOG_BYTES_MIN, Lsn, NODE_FIRST};

    use super::*;

    #[test]
    fn a_note_is_valid_for_one_generation_of_a_log() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join(".weir")).unwrap();
        let source = File::open(place.path()).unwrap();
        let superblock = Superblock {
            log: [7; 16],
            mount: [1; 16],
            bytes: LOG_BYTES_MIN,
            generation: 30,
            checkpoint: Lsn(4096),
            clean: false,
            row_blocks: 1,
            nodes: NODE_FIRST,
            features: 0,
        };
        assert!(done(source.as_fd(), &superblock).unwrap().is_empty());
        let files = [vec![1, 0xff, 3], vec![]];
        note(source.as_fd(), &superblock, &files).unwrap();
        assert_eq!(done(source.as_fd(), &superblock).unwrap(), files.into());
        let next = superblock.next_use(Lsn(8192));
        assert!(done(source.as_fd(), &next).unwrap().is_empty());
        forget(source.as_fd(), &superblock);
        assert!(done(source.as_fd(), &superblock).unwrap().is_empty());
    }
}
