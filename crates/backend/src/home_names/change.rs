//! Changing entries at home. Whoever calls has taken the program's identity (setfsuid(2)).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, linkat, mkdirat, mknodat, renameat_with, symlinkat,
    unlinkat,
};
use weir_names::command::Change;

/// Changes the entry `name` of a directory.
///
/// # Errors
/// Those of the system call the change stands for.
pub fn apply(directory: BorrowedFd<'_>, name: &OsStr, change: Change<'_>) -> io::Result<()> {
    match change {
        Change::MakeDirectory { mode } => mkdirat(directory, name, Mode::from_raw_mode(mode))?,
        Change::MakeNode { mode, device } => {
            let (kind, mode) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
            mknodat(directory, name, kind, mode, device)?;
        }
        Change::MakeSymlink { target } => symlinkat(OsStr::from_bytes(target), directory, name)?,
        Change::Unlink => unlinkat(directory, name, AtFlags::empty())?,
        Change::RemoveDirectory => unlinkat(directory, name, AtFlags::REMOVEDIR)?,
    }
    Ok(())
}

/// Gives an open file (`O_PATH` does) one more name.
///
/// # Errors
/// Those of linkat(2).
pub fn link(file: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    // By its path in /proc: linking to a descriptor needs CAP_DAC_READ_SEARCH.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, path, directory, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// renameat2(2), with its flags.
///
/// # Errors
/// Those of renameat2(2).
pub fn rename(
    from: (BorrowedFd<'_>, &OsStr),
    to: (BorrowedFd<'_>, &OsStr),
    flags: u32,
) -> io::Result<()> {
    Ok(renameat_with(from.0, from.1, to.0, to.1, RenameFlags::from_bits_retain(flags))?)
}
