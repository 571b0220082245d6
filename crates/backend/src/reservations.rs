//! Space reserved past the ends of files, recorded so that it is released if the daemon is killed.
//!
//! Weir reserves space ahead of a writer and releases the unused part when the file is closed. A daemon that
//! is killed does not. So before space is reserved past the end of a file, the file is recorded in
//! `.weir/reserved`, a line with its identity in hexadecimal digits; the next mount or recovery releases the
//! space and removes the list. A listed file without such space is left as it is.
//!
//! The list is not made durable: after a power cut a file may keep the space reserved in the last seconds.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{
    AtFlags, Mode, OFlags, Timespec, Timestamps, fstat, ftruncate, futimens, unlinkat,
};
use rustix::io::Errno;

use crate::home_file::HomeFile;
use crate::identity::Naming;
use crate::notes;
use crate::partial::{bytes, hex};
use crate::recovery::Recovered;

/// In `.weir`.
const LIST: &str = "reserved";

/// The list is rewritten, with the open files only, when it is longer than this, bytes.
const LIST_BYTES_MAX: usize = 1 << 20;

/// Unit of the block count in a file's status (stat(2)), bytes.
const STATUS_BLOCK_BYTES: u64 = 512;

/// The list of one mount.
#[derive(Debug)]
pub(crate) struct Reservations {
    source: OwnedFd,
    naming: Naming,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    file: Option<File>,
    bytes: usize,
    noted: HashMap<Vec<u8>, Weak<HomeFile>>,
}

impl Reservations {
    /// The list for files below `source`.
    ///
    /// # Errors
    /// EMFILE; those of fstatfs(2).
    pub(crate) fn new(source: BorrowedFd<'_>) -> io::Result<Reservations> {
        let naming = Naming::of(source)?;
        Ok(Reservations { source: source.try_clone_to_owned()?, naming, list: Mutex::default() })
    }

    /// Records that space is about to be reserved up to byte `end` of a file. If that fails the space is
    /// still reserved: it is released when the file is closed.
    pub(crate) fn note(&self, home: &Arc<HomeFile>, end: u64) {
        if !home.must_note_reservation(end) {
            return;
        }
        let identity = home.identity(&self.naming, self.source.as_fd());
        if identity.is_empty() {
            return;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = list.note(self.source.as_fd(), identity, home);
        // Without '.weir' there is no place for a list.
        if let Err(error) = noted
            && Errno::from_io_error(&error) != Some(Errno::NOENT)
        {
            tracing::debug!("cannot record reserved space: {error}");
        }
    }
}

impl List {
    fn note(
        &mut self,
        source: BorrowedFd<'_>,
        identity: Vec<u8>,
        home: &Arc<HomeFile>,
    ) -> io::Result<()> {
        let mut line = format!("{}\n", hex(&identity));
        self.noted.insert(identity, Arc::downgrade(home));
        if self.bytes + line.len() > LIST_BYTES_MAX {
            self.noted.retain(|_, home| home.upgrade().is_some_and(|home| home.has_reserved()));
            // If the daemon is killed before the new list is written, files of the last moments keep their
            // reserved space.
            unlinkat(notes::directory(source)?, LIST, AtFlags::empty())?;
            (self.file, self.bytes) = (None, 0);
            line = self.noted.keys().map(|identity| format!("{}\n", hex(identity))).collect();
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
                let list = notes::open(&notes::directory(source)?, LIST, flags)?;
                self.file.insert(list.ok_or(io::ErrorKind::NotFound)?)
            }
        };
        file.write_all(line.as_bytes())?;
        self.bytes += line.len();
        Ok(())
    }
}

/// Releases the space past the ends of files that a killed daemon had reserved, and removes the list. Returns
/// the number of files. A file that cannot be opened or changed keeps its space. `.weir` must be this user's
/// alone.
///
/// # Errors
/// Those of reading or removing the list.
pub fn give_back_reserved(source: BorrowedFd<'_>) -> io::Result<usize> {
    let Some(directory) = notes::trusted_directory(source)? else { return Ok(0) };
    let Some(text) = notes::read(&directory, LIST)? else { return Ok(0) };
    let mut home = Recovered::new(source, BTreeSet::new())?;
    let mut given_back = 0;
    for line in text.split(|&byte| byte == b'\n') {
        // The last line of a killed daemon may be incomplete.
        let Some(identity) = std::str::from_utf8(line).ok().and_then(bytes) else { continue };
        // `None` if the file was moved out of SOURCE.
        if let Ok(Some(file)) = home.open_identity(&identity, OFlags::RDWR | OFlags::NONBLOCK) {
            given_back += usize::from(give_back(&file).unwrap_or(false));
        }
    }
    notes::remove(&directory, LIST)?;
    Ok(given_back)
}

/// Truncates a file to its size, which releases the blocks past its end. Its times stay.
fn give_back(file: &OwnedFd) -> io::Result<bool> {
    let status = fstat(file)?;
    let size = u64::try_from(status.st_size).unwrap_or(0);
    let unit = u64::try_from(status.st_blksize).unwrap_or(1).max(1);
    let allocated = u64::try_from(status.st_blocks).unwrap_or(0) * STATUS_BLOCK_BYTES;
    if allocated <= size.next_multiple_of(unit) {
        return Ok(false);
    }
    // ftruncate(2) removes these, although the content does not change.
    let mode = Mode::from_raw_mode(status.st_mode);
    let has_capabilities = rustix::fs::fgetxattr(file, "security.capability", &mut [0_u8; 0]);
    if mode.intersects(Mode::SUID | Mode::SGID) || has_capabilities.is_ok() {
        return Ok(false);
    }
    ftruncate(file, size)?;
    let last_access = Timespec { tv_sec: status.st_atime as _, tv_nsec: status.st_atime_nsec as _ };
    let last_modification =
        Timespec { tv_sec: status.st_mtime as _, tv_nsec: status.st_mtime_nsec as _ };
    futimens(file, &Timestamps { last_access, last_modification })?;
    Ok(true)
}
