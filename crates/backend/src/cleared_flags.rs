//! The note of file flags that recovery clears temporarily.
//!
//! Recovery makes a file writable that is immutable or append-only (chattr(1)). Before that it records the
//! file's flags in `.weir/flags`, durably, so that they are restored even if recovery is killed: the next
//! recovery or mount does it ([`flags`](crate::flags)). A line is the file's identity, its inode number and
//! the flags, each in hexadecimal digits.
//!
//! Invariant: a flag is cleared only after it was recorded.

use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{IFlags, OFlags, fstat, fsync, ioctl_setflags};

use crate::notes;
use crate::partial::{bytes, hex};

pub(crate) const NOTE: &str = "flags";

/// The flags that keep a file from being written.
pub(crate) const LOCKS: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND);

/// One line of the note.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub identity: Vec<u8>,
    pub inode: u64,
    pub flags: IFlags,
}

impl Line {
    fn encode(&self) -> String {
        format!("{} {:x} {:x}\n", hex(&self.identity), self.inode, self.flags.bits())
    }

    /// `None` also for a line that a crash left incomplete: its flags were not cleared yet.
    pub fn decode(line: &str) -> Option<Line> {
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

/// Clears [`LOCKS`] on a file until [`set_flags_again`](crate::set_flags_again).
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
}
