//! File flags that recovery clears temporarily.
//!
//! Recovery makes a file writable that is immutable or append-only (chattr(1)). Before that it records the
//! file's flags in `.weir/flags`, durably, so that they are restored even if recovery is killed: the next
//! recovery or mount does it. A line is the file's identity, its inode number and the flags, each in
//! hexadecimal digits.
//!
//! Invariants:
//! - a flag is cleared only after it was recorded;
//! - the note is removed when all flags in it are restored, durably;
//! - flags are set only on files in SOURCE, and only these two. The inode number must be the recorded one,
//!   since the path may name another file by then.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{IFlags, OFlags, fstat, fsync, ioctl_getflags, ioctl_setflags};

use crate::notes;
use crate::partial::{bytes, hex};
use crate::recovery::{Recovered, RecoveryError};

const NOTE: &str = "flags";

/// The flags that keep a file from being written.
pub(crate) const LOCKS: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND);

/// One line of the note.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    identity: Vec<u8>,
    inode: u64,
    flags: IFlags,
}

impl Line {
    fn encode(&self) -> String {
        format!("{} {:x} {:x}\n", hex(&self.identity), self.inode, self.flags.bits())
    }

    /// `None` also for a line that a crash left incomplete: its flags were not cleared yet.
    fn decode(line: &str) -> Option<Line> {
        let mut fields = line.split(' ');
        let mut field = || fields.next().filter(|field| !field.is_empty() && field.is_ascii());
        let (identity, inode, flags) = (field()?, field()?, field()?);
        let flags = IFlags::from_bits_retain(u32::from_str_radix(flags, 16).ok()?);
        let whole = fields.next().is_none() && identity.len().is_multiple_of(2);
        whole.then_some(Line {
            identity: bytes(identity)?,
            inode: u64::from_str_radix(inode, 16).ok()?,
            flags: flags & LOCKS,
        })
    }
}

/// Clears [`LOCKS`] on a file until [`set_again`].
///
/// # Errors
/// Those of writing the note or changing the flags.
pub(crate) fn take(
    source: BorrowedFd<'_>,
    identity: &[u8],
    file: &OwnedFd,
    flags: IFlags,
) -> io::Result<()> {
    let line =
        Line { identity: identity.to_vec(), inode: fstat(file)?.st_ino, flags: flags & LOCKS };
    note(source, &line).map_err(|error| {
        let why =
            format!("it is immutable or append-only, and '.weir/flags' cannot note that: {error}");
        io::Error::new(error.kind(), why)
    })?;
    Ok(ioctl_setflags(file, flags - LOCKS)?)
}

fn note(source: BorrowedFd<'_>, line: &Line) -> io::Result<()> {
    let directory = notes::directory(source)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
    let mut note = notes::open(&directory, NOTE, flags)?.ok_or(io::ErrorKind::NotFound)?;
    note.write_all(line.encode().as_bytes())?;
    note.sync_all()?;
    Ok(fsync(&directory)?)
}

/// Restores the flags that a recovery cleared on files of SOURCE, and removes the note. A file that is gone,
/// or whose path names another file by now, is left as it is.
///
/// # Errors
/// Those of reading the note, or of the first file whose flags cannot be restored; the note is then kept.
pub fn set_flags_again(source: BorrowedFd<'_>) -> Result<(), RecoveryError> {
    let of_note = |doing| move |error| RecoveryError::new(doing, ".weir/flags".to_owned(), error);
    let Some(directory) = notes::trusted_directory(source).map_err(of_note("find"))? else {
        return Ok(());
    };
    let Some(text) = notes::read(&directory, NOTE).map_err(of_note("read"))? else {
        return Ok(());
    };
    let mut home = Recovered::new(source, BTreeSet::new()).map_err(of_note("follow"))?;
    let mut failed = None;
    for line in String::from_utf8_lossy(&text).lines().filter_map(Line::decode) {
        if let Err(error) = set_again(&mut home, &line) {
            let name = home.name(&line.identity);
            failed.get_or_insert(RecoveryError::new("make immutable again", name, error));
        }
    }
    match failed {
        Some(error) => Err(error),
        None => notes::remove(&directory, NOTE).map_err(of_note("remove")),
    }
}

fn set_again(home: &mut Recovered, line: &Line) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let Some(file) = home.open_identity(&line.identity, flags)? else { return Ok(()) };
    if fstat(&file)?.st_ino != line.inode {
        let name = home.name_of(file.as_fd());
        tracing::warn!(
            "{name} took the place of a file that was immutable or append-only: left as it is"
        );
        return Ok(());
    }
    let now = ioctl_getflags(&file)?;
    if !now.contains(line.flags) {
        ioctl_setflags(&file, now | line.flags)?;
    }
    Ok(fsync(&file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_round_trips_and_an_incomplete_one_is_ignored() {
        let line = Line { identity: vec![1, 0xab, 0], inode: u64::MAX, flags: IFlags::IMMUTABLE };
        let text = line.encode();
        let text = text.strip_suffix('\n').unwrap();
        assert_eq!(Line::decode(text), Some(line));
        for text in ["", "01ab", "01ab ", "01ab 7", "01ab 7 ", "01a 7 10", "é1 7 10", "01 7 10 5"]
        {
            assert_eq!(Line::decode(text), None, "{text}");
        }
    }

    #[test]
    fn a_note_sets_no_other_flags() {
        let line = Line::decode("01 7 ffffffff").unwrap();
        assert_eq!(line.flags, LOCKS);
    }

    #[test]
    fn a_note_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join(".weir");
        std::fs::create_dir(&directory).unwrap();
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&directory, 0o700);
        let note = directory.join(NOTE);
        std::fs::write(&note, "").unwrap();
        mode(&note, 0o666);
        let source = std::fs::File::open(place.path()).unwrap();
        let refused = set_flags_again(source.as_fd()).unwrap_err().to_string();
        assert!(refused.contains(".weir/flags: others can have written it"), "{refused}");
        mode(&note, 0o600);
        // In a directory that others can write, the note is ignored.
        mode(&directory, 0o777);
        set_flags_again(source.as_fd()).unwrap();
        assert!(note.exists());
        mode(&directory, 0o700);
        set_flags_again(source.as_fd()).unwrap();
        assert!(!note.exists());
    }
}
