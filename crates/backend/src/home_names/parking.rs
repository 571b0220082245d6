//! The directory in `.weir` for inodes that have no other name for a moment.
//!
//! A name in it is that of a node, whose number means nothing to another mount. What a daemon left there that was killed
//! is put out of the way when a mount begins: a new file was promised to nobody, and is removed; what was being renamed is
//! kept under another name. What home hides there of removed files that are open ([`HomeNames::park_hidden`]) is removed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, mkdirat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use weir_names::command::Entry;

use crate::home_names::HomeNames;
use crate::home_names::list::{names_in, open_directory};
use crate::notes;

/// Its name.
pub(crate) const PARKING: &str = "parked";

/// Before the name of an inode that was made there, and had no other name yet.
const NEW: &[u8] = b"new-";

/// Before the name of an inode that was renamed there, and has no number in the log of names, which has failed.
const UNLOGGED: &[u8] = b"unlogged-";

/// Before the name of a removed file that home keeps while it is open.
const HIDDEN: &[u8] = b"hidden-";

/// Before the name of what a daemon left there that was killed.
const LEFT: &[u8] = b"left-";

/// As libfuse's `hide_node` names it: two numbers of eight hexadecimal digits or more.
fn is_hidden_by_libfuse(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b".fuse_hidden");
    digits.is_some_and(|digits| digits.len() >= 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

impl HomeNames {
    /// Opens the directory below SOURCE's root in which inodes are that have no other name for a moment; makes it if it
    /// is not there.
    ///
    /// # Errors
    /// PermissionDenied if others can have put it there; those of mkdirat(2) and openat(2).
    pub fn parking(&self, root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let own = notes::directory(root)?;
        match mkdirat(&own, PARKING, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(open(&own)?)
    }

    /// Whether the directory that [`HomeNames::parking`] opens is there.
    ///
    /// # Errors
    /// Those of openat(2) and statx(2).
    pub(crate) fn has_parking(&self, root: BorrowedFd<'_>) -> io::Result<bool> {
        match notes::trusted_directory(root)? {
            Some(own) => self.has_name(own.as_fd(), OsStr::new(PARKING)),
            None => Ok(false),
        }
    }

    /// Moves out of a directory, to the directory that [`HomeNames::parking`] opens, what home keeps of removed files while they
    /// are open: libfuse(3) without `hard_remove` (sshfs). Home removes it when they are closed. Says whether there was anything,
    /// and nothing else.
    ///
    /// # Errors
    /// Those of reading the directory and of renameat(2).
    pub fn park_hidden(
        &self,
        parking: BorrowedFd<'_>,
        at: Entry<'_, BorrowedFd<'_>>,
    ) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(at.directory, at.name, flags, Mode::empty())?;
        let names = names_in(open_directory(directory.as_fd())?)?;
        if names.is_empty() || !names.iter().all(|name| is_hidden_by_libfuse(name)) {
            return Ok(false);
        }
        for name in names {
            renameat(&directory, &name[..], parking, [HIDDEN, &name].concat())?;
        }
        Ok(true)
    }

    /// Whether home keeps what was removed while it was open under this name until it is closed, and then removes it, wherever it
    /// is by then.
    pub fn is_of_removed(&self, name: &OsStr) -> bool {
        !self.counts_links() && is_hidden_by_libfuse(name.as_bytes())
    }

    /// Whether this is the name of a removed file that was open.
    pub(crate) fn is_hidden(name: &[u8]) -> bool {
        name.starts_with(HIDDEN)
    }

    /// The name of an inode that is made there, from its name there as another.
    pub fn parked_as_new(name: &[u8]) -> OsString {
        OsStr::from_bytes(&[NEW, name].concat()).to_owned()
    }

    /// The name there of an inode that the log does not know, if it is renamed there after the log has failed. Made from its name in
    /// the tree, and different from the names of all inodes that the log knows.
    pub fn parked_unlogged(name: &[u8]) -> OsString {
        OsStr::from_bytes(&[UNLOGGED, name].concat()).to_owned()
    }

    /// Whether this is the name of what was kept.
    pub(crate) fn is_kept(name: &[u8]) -> bool {
        name.starts_with(LEFT)
    }

    /// Whether this is the name of what the log does not know, and that somebody may need.
    pub(crate) fn is_unlogged(name: &[u8]) -> bool {
        name.starts_with(UNLOGGED)
    }

    /// Puts away what is parked when a mount begins. Says how much was kept.
    ///
    /// # Errors
    /// Those of reading the directory and of changing names in it.
    pub fn clear_parking(&self, root: BorrowedFd<'_>) -> io::Result<usize> {
        let Some(own) = notes::trusted_directory(root)? else { return Ok(0) };
        let parking = match open(&own) {
            Err(Errno::NOENT) => return Ok(0),
            opened => opened?,
        };
        let mut kept = 0;
        for name in names_in(open_directory(parking.as_fd())?)? {
            if name.starts_with(NEW) || HomeNames::is_hidden(&name) {
                // There are no directories among them.
                unlinkat(&parking, &name[..], AtFlags::empty())?;
                continue;
            }
            kept += 1;
            if !HomeNames::is_kept(&name) {
                keep(&parking, &name)?;
            }
        }
        Ok(kept)
    }
}

fn open(own: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(own, PARKING, flags, Mode::empty())
}

/// Renames what was left to the first name that is free.
pub(crate) fn keep(parking: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let mut number = 1_u64;
    loop {
        let to = [LEFT, number.to_string().as_bytes()].concat();
        let is_there = rustix::fs::statat(parking, to.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        match is_there {
            Ok(_) => number += 1,
            Err(Errno::NOENT) => {
                return Ok(renameat_with(
                    parking,
                    name,
                    parking,
                    to.as_slice(),
                    RenameFlags::empty(),
                )?);
            }
            Err(error) => return Err(error.into()),
        }
    }
}
