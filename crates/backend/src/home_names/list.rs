//! Listing a directory at home, from a position on.
//!
//! Positions are home's own cookies. Where they are of the directory, as on file systems that have file handles, a new
//! stream is set to one. Elsewhere they may be of one stream, and a new one may not be set to any (sshfs ends itself
//! then): it is read from the beginning up to there.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, SeekFrom, openat, seek};

use crate::proc_path::proc_path;

/// Bytes of home's entries read at once: a cursor keeps what of them is not listed yet.
const BATCH_BYTES: usize = 16 << 10;

thread_local! {
    /// Where home's entries are read to.
    static BATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(BATCH_BYTES));
}

/// Home's stream of a directory, and what is read ahead of it. It has one descriptor.
///
/// Invariant: `position` is the cookie of what was listed last: it stands before the entry `batch[next]`, or before what
/// follows the batch.
#[derive(Debug)]
pub struct Cursor {
    home: OwnedFd,
    batch: Vec<DirEntry>,
    next: usize,
    position: u64,
    names: Vec<u8>,
}

/// One entry as home listed it; its name is a range of the cursor's names.
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
        Ok(Cursor { home, batch: Vec::new(), next: 0, position: cookie, names: Vec::new() })
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
            grows &= entry.cookie > cursor.position;
            if grows && entry.cookie > cookie {
                break;
            }
            cursor.advance();
            if entry.cookie == cookie {
                break;
            }
        }
        cursor.position = cookie;
        Ok(cursor)
    }

    /// The cookie of what was listed last, or 0.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next entry, which stays the next one until [`Cursor::advance`]. `None` at the end.
    ///
    /// # Errors
    /// What getdents64(2) says.
    pub fn peek(&mut self) -> io::Result<Option<DirEntry>> {
        if self.next == self.batch.len() {
            self.refill()?;
        }
        Ok(self.batch.get(self.next).copied())
    }

    /// The name of an entry of the batch.
    pub fn name(&self, entry: &DirEntry) -> &OsStr {
        OsStr::from_bytes(&self.names[entry.name.0..entry.name.1])
    }

    /// Whether the directory ends here, as [`Cursor::peek`] has found.
    pub fn is_at_end(&self) -> bool {
        self.batch.is_empty()
    }

    /// The next entry was listed.
    pub fn advance(&mut self) {
        if let Some(entry) = self.batch.get(self.next) {
            self.position = entry.cookie;
            self.next += 1;
        }
    }

    /// Reads the next batch. It is empty at the end of the directory.
    fn refill(&mut self) -> io::Result<()> {
        self.batch.clear();
        self.names.clear();
        self.next = 0;
        BATCH.with_borrow_mut(|buffer| self.read_batch(buffer))
    }

    fn read_batch(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut entries = RawDir::new(&self.home, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let start = self.names.len();
            self.names.extend_from_slice(name);
            self.batch.push(DirEntry {
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
}
