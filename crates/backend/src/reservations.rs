//! Space reserved past the ends of files, so that the daemon's death does not leave it there.
//!
//! Weir reserves ahead of a writer and gives back what was not used when the file is closed. A daemon that
//! is killed does not. So before space is reserved past the end of a file, the file is noted in
//! `.weir/reserved`, a line with its identity in hexadecimal digits; the next mount or recovery gives the
//! space back and removes the list. A file that is noted without need is looked at, and left as it is.
//!
//! The list is not made durable: after a power cut a file may keep what was reserved in the last
//! seconds.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, fstat, fsync, ftruncate, futimens,
    openat, unlinkat,
};
use rustix::io::Errno;

use crate::home_file::HomeFile;
use crate::identity::{self, Found, Naming};
use crate::partial::{bytes, hex};

const LIST: &str = ".weir/reserved";

/// The list is made anew, of the files that are open, when it is longer than this, bytes.
const LIST_BYTES_MAX: usize = 1 << 20;

/// A file's status counts blocks of this many bytes (stat(2)).
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
    /// Of the files below `source`.
    ///
    /// # Errors
    /// EMFILE; what fstatfs(2) says.
    pub(crate) fn new(source: BorrowedFd<'_>) -> io::Result<Reservations> {
        let naming = Naming::of(source)?;
        Ok(Reservations { source: source.try_clone_to_owned()?, naming, list: Mutex::default() })
    }

    /// Space is about to be reserved up to byte `end` of a file. What cannot be noted is reserved all the
    /// same: it is given back when the file is closed.
    pub(crate) fn note(&self, home: &Arc<HomeFile>, end: u64) {
        if !home.reserves_unnoted(end) {
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
            tracing::debug!("reserved space is not noted: {error}");
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
            // A crash before the new list is written leaves those of the last moments with what they have.
            unlinkat(source, LIST, AtFlags::empty())?;
            (self.file, self.bytes) = (None, 0);
            line = self.noted.keys().map(|identity| format!("{}\n", hex(identity))).collect();
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::APPEND
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let file = openat(source, LIST, flags, Mode::RUSR | Mode::WUSR)?;
                self.file.insert(File::from(file))
            }
        };
        file.write_all(line.as_bytes())?;
        self.bytes += line.len();
        Ok(())
    }
}

/// Gives back what a daemon that died had reserved past the ends of files, and removes the list. Answers of
/// how many files. What cannot be opened or changed keeps what it has. `.weir` must be this user's alone.
///
/// # Errors
/// What reading or removing the list says.
pub fn give_back_reserved(source: BorrowedFd<'_>) -> io::Result<usize> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let list = match openat(source, LIST, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(0),
        opened => opened?,
    };
    let mut text = Vec::new();
    File::from(list).read_to_end(&mut text)?;
    let mut given_back = 0;
    for line in text.split(|&byte| byte == b'\n') {
        // The last line of a daemon that died may be half a one.
        let Some(identity) = std::str::from_utf8(line).ok().and_then(bytes) else { continue };
        let found = identity::open(source, &identity, OFlags::RDWR | OFlags::NONBLOCK);
        if let Ok(Found::File(file)) = found {
            given_back += usize::from(give_back(source, &file).unwrap_or(false));
        }
    }
    unlinkat(source, LIST, AtFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fsync(openat(source, ".weir", flags, Mode::empty())?)?;
    Ok(given_back)
}

/// Cuts a file where it ends, so that what is allocated behind goes. Its times stay.
fn give_back(source: BorrowedFd<'_>, file: &OwnedFd) -> io::Result<bool> {
    let status = fstat(file)?;
    let size = u64::try_from(status.st_size).unwrap_or(0);
    let unit = u64::try_from(status.st_blksize).unwrap_or(1).max(1);
    let allocated = u64::try_from(status.st_blocks).unwrap_or(0) * STATUS_BLOCK_BYTES;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    let is_ours = status.st_dev == fstat(source)?.st_dev;
    if !is_file || !is_ours || allocated <= size.next_multiple_of(unit) {
        return Ok(false);
    }
    // ftruncate(2) takes these away, although the content does not change.
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
