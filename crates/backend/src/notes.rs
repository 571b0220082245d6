//! Notes in SOURCE for the next mount or recovery: names and small files in `.weir`.
//!
//! Invariant: a note counts only if no other user can have put it there. Notes are opened in `.weir` alone,
//! never through a link.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, fsync, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Opens SOURCE's `.weir` if only this user can write it: notes that another user put there do not count.
///
/// # Errors
/// PermissionDenied if it is not; those of openat(2).
pub(crate) fn directory(source: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(source, ".weir", flags, Mode::empty())?;
    let stat = fstat(&directory)?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(directory)
}

/// As [`directory`], but `None` if `.weir` does not exist or its notes do not count.
///
/// # Errors
/// Those of openat(2).
pub(crate) fn trusted_directory(source: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match directory(source) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            _ => Err(error),
        },
        Ok(directory) => Ok(Some(directory)),
    }
}

/// Opens a note in `.weir`; `None` if it does not exist.
///
/// # Errors
/// PermissionDenied for one that is not this user's alone; those of openat(2).
pub(crate) fn open(directory: &OwnedFd, name: &str, flags: OFlags) -> io::Result<Option<File>> {
    // A FIFO planted under this name must not block.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let note = match openat(directory, name, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let stat = fstat(&note)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_own = stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o022 == 0;
    if !is_file || !is_own || stat.st_nlink > 1 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "others can have written it, so it is not used: remove it",
        ));
    }
    Ok(Some(File::from(note)))
}

/// The text of a note; `None` if it does not exist.
///
/// # Errors
/// As [`open`], and those of read(2).
pub(crate) fn read(directory: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(mut note) = open(directory, name, OFlags::RDONLY)? else { return Ok(None) };
    let mut text = Vec::new();
    note.read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Removes a note, durably.
///
/// # Errors
/// Those of unlinkat(2) and fsync(2).
pub(crate) fn remove(directory: &OwnedFd, name: &str) -> io::Result<()> {
    unlinkat(directory, name, AtFlags::empty())?;
    Ok(fsync(directory)?)
}
