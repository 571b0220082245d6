//! Listing a directory at home, from a position on.
//!
//! Positions are home's own cookies. Where they are of the directory, as on file systems that have file handles, a new
//! stream is set to one. Elsewhere they may be of one stream, and a new one may not be set to any (sshfs ends itself
//! then): it is read from the beginning up to there.
//!
//! A program with a small buffer takes a part of an answer only, and asks for the rest once more. So a cursor remembers what
//! it has listed since [`Cursor::go_to`], and can go back: what is asked for again is as it was read, whatever home has by
//! then.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, RawDir, SeekFrom, openat, seek};

use crate::proc_path::proc_path;

/// Bytes of home's entries read at once.
const BATCH_BYTES: usize = 16 << 10;

thread_local! {
    /// Where home's entries are read to.
    static BATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(BATCH_BYTES));
}

/// Home's stream of a directory, and what was read of it. It has one descriptor.
///
/// Invariant: it stands before `entries[next]`, or before what home has after the entries.
#[derive(Debug)]
pub struct Cursor {
    home: OwnedFd,
    entries: Vec<DirEntry>,
    names: Vec<u8>,
    next: usize,
    /// The cookie after which the entries follow.
    before: u64,
    /// Entries from here on are remembered when more are read.
    remembered: usize,
    has_ended: bool,
}

/// One entry as home listed it; its name is a range of the cursor's names, until the cursor reads on.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry {
    /// Home's inode number.
    pub inode: u64,
    /// Its type, if home tells.
    pub kind: FileType,
    /// Where home goes on after it.
    pub cookie: u64,
    name: (usize, usize),
}

impl Cursor {
    /// A stream of `home`, a directory just opened, that begins after `cookie`.
    ///
    /// # Errors
    /// What lseek(2) says.
    pub fn new(home: OwnedFd, cookie: u64) -> io::Result<Cursor> {
        if cookie != 0 {
            seek(&home, SeekFrom::Start(cookie))?;
        }
        Ok(Cursor {
            home,
            entries: Vec::new(),
            names: Vec::new(),
            next: 0,
            before: cookie,
            remembered: 0,
            has_ended: false,
        })
    }

    /// A stream of `home`, a directory just opened, read up to the entry with `cookie`, or up to where that was if
    /// positions grow.
    ///
    /// # Errors
    /// What getdents64(2) says.
    pub fn read_up_to(home: OwnedFd, cookie: u64) -> io::Result<Cursor> {
        let mut cursor = Cursor::new(home, 0)?;
        let mut grows = true;
        while cookie != 0
            && let Some(entry) = cursor.peek()?
        {
            grows &= entry.cookie > cursor.position();
            if grows && entry.cookie > cookie {
                break;
            }
            cursor.advance();
            cursor.remembered = cursor.next;
            if entry.cookie == cookie {
                break;
            }
        }
        cursor.forget();
        cursor.before = cookie;
        Ok(cursor)
    }

    /// The cookie of what was listed last, or 0.
    pub fn position(&self) -> u64 {
        self.next.checked_sub(1).map_or(self.before, |last| self.entries[last].cookie)
    }

    /// Goes to where `cookie` was given, if what follows there is still remembered. Says whether it is.
    pub fn go_to(&mut self, cookie: u64) -> bool {
        let next = match cookie {
            _ if cookie == self.position() => Some(self.next),
            _ if cookie == self.before => Some(0),
            _ => self.entries.iter().position(|entry| entry.cookie == cookie).map(|at| at + 1),
        };
        let Some(next) = next else { return false };
        (self.next, self.remembered) = (next, next);
        true
    }

    /// Reads on until `most` entries are read that are not listed, or the directory ends.
    ///
    /// # Errors
    /// What getdents64(2) says.
    pub fn read_ahead(&mut self, most: usize) -> io::Result<()> {
        while !self.has_read_ahead(most) {
            self.read_more()?;
        }
        Ok(())
    }

    /// Whether `least` entries or more were read that are not listed yet, or home has no more.
    pub fn has_read_ahead(&self, least: usize) -> bool {
        self.has_ended || self.unlisted() >= least
    }

    /// Entries in memory.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The next entry, which stays the next one until [`Cursor::advance`]. `None` at the end.
    ///
    /// # Errors
    /// What getdents64(2) says.
    pub fn peek(&mut self) -> io::Result<Option<DirEntry>> {
        if self.next == self.entries.len() && !self.has_ended {
            self.read_more()?;
        }
        Ok(self.entries.get(self.next).copied())
    }

    /// The name of an entry that is in memory.
    pub fn name(&self, entry: &DirEntry) -> &OsStr {
        OsStr::from_bytes(&self.names[entry.name.0..entry.name.1])
    }

    /// Whether the directory ends here, as [`Cursor::peek`] has found.
    pub fn is_at_end(&self) -> bool {
        self.has_ended && self.unlisted() == 0
    }

    /// The next entry was listed.
    pub fn advance(&mut self) {
        self.next = (self.next + 1).min(self.entries.len());
    }

    fn unlisted(&self) -> usize {
        self.entries.len() - self.next
    }

    fn read_more(&mut self) -> io::Result<()> {
        self.forget();
        let before = self.entries.len();
        BATCH.with_borrow_mut(|buffer| self.read_batch(buffer))?;
        self.has_ended = self.entries.len() == before;
        Ok(())
    }

    /// Forgets what need not be remembered.
    fn forget(&mut self) {
        let Some(last) = self.remembered.checked_sub(1) else { return };
        let DirEntry { cookie, name: (_, end), .. } = self.entries[last];
        self.entries.drain(..self.remembered);
        self.names.drain(..end);
        for entry in &mut self.entries {
            entry.name = (entry.name.0 - end, entry.name.1 - end);
        }
        self.before = cookie;
        self.next -= self.remembered;
        self.remembered = 0;
    }

    fn read_batch(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut entries = RawDir::new(&self.home, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let start = self.names.len();
            self.names.extend_from_slice(name);
            self.entries.push(DirEntry {
                inode: entry.ino(),
                kind: entry.file_type(),
                cookie: entry.next_entry_cookie(),
                name: (start, self.names.len()),
            });
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// Opens a directory for reading: by its path, so that the directory need not be searchable.
///
/// # Errors
/// Those of open(2).
pub fn open_directory(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, proc_path(directory), flags, Mode::empty())?)
}

/// The names in a directory that was opened for reading. It need not be searchable.
pub(crate) fn names_in(directory: OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::new(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    #[test]
    fn a_stream_that_cannot_be_set_is_read_up_to_a_position() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..50 {
            fs::write(directory.path().join(format!("file-{number}")), b"").unwrap();
        }
        let mut cursor = Cursor::new(open(directory.path()), 0).unwrap();
        let mut left = Vec::new();
        while let Some(entry) = cursor.peek().unwrap() {
            left.push((entry.cookie, cursor.name(&entry).to_owned()));
            cursor.advance();
        }
        for at in 0..left.len() {
            let mut cursor = Cursor::read_up_to(open(directory.path()), left[at].0).unwrap();
            let next = cursor.peek().unwrap().map(|entry| cursor.name(&entry).to_owned());
            assert_eq!(next.as_ref(), left.get(at + 1).map(|(_, name)| name));
        }
        let (last, name) = left.last().unwrap();
        if name != "." && name != ".." {
            fs::remove_file(directory.path().join(name)).unwrap();
            assert!(
                Cursor::read_up_to(open(directory.path()), *last)
                    .unwrap()
                    .peek()
                    .unwrap()
                    .is_none()
            );
        }
    }

    #[test]
    fn what_was_listed_since_a_position_is_remembered() {
        const FILES: usize = 2000;
        let directory = tempfile::tempdir().unwrap();
        let path = |number| directory.path().join(format!("file-{number}"));
        for number in 0..FILES {
            fs::write(path(number), b"").unwrap();
        }
        let read = |cursor: &mut Cursor, most: usize| {
            let mut read = Vec::new();
            while read.len() < most
                && let Some(entry) = cursor.peek().unwrap()
            {
                read.push((entry.cookie, cursor.name(&entry).to_owned()));
                cursor.advance();
            }
            read
        };
        let all = read(&mut Cursor::new(open(directory.path()), 0).unwrap(), usize::MAX);
        let mut cursor = Cursor::new(open(directory.path()), 0).unwrap();
        let mut seen = Vec::new();
        while !cursor.is_at_end() {
            // Of each answer the first part is taken.
            let answer = read(&mut cursor, 700);
            seen.extend(answer.into_iter().take(300));
            let (last, _) = seen.last().unwrap();
            assert!(cursor.go_to(*last));
            assert_eq!(cursor.position(), *last);
            assert!(cursor.entries() < 700 + 2 * BATCH_BYTES / 24);
        }
        assert_eq!(seen, all);
        assert!(!cursor.go_to(all[0].0), "it was forgotten");

        let mut cursor = Cursor::new(open(directory.path()), 0).unwrap();
        cursor.read_ahead(usize::MAX).unwrap();
        (0..FILES).for_each(|number| fs::remove_file(path(number)).unwrap());
        assert_eq!(read(&mut cursor, usize::MAX), all);
        for at in [0, 1, FILES / 2] {
            assert!(cursor.go_to(all[at].0));
            assert_eq!(read(&mut cursor, usize::MAX), all[at + 1..]);
        }
        assert!(cursor.go_to(0), "its beginning");
    }
}
