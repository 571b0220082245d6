//! Paths and states of a log's files at home, read without changing anything: for a recovery that only
//! reports what it would do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{IFlags, OFlags, fstat, ioctl_getflags};
use weir_log::Superblock;

use crate::partial;
use crate::recovery::Recovered;

/// State of a log's file at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It exists.
    File {
        /// Its path in SOURCE, if known.
        name: String,
        /// Its size, bytes.
        bytes: u64,
        /// It is immutable or append-only (chattr(1)).
        locked: bool,
    },
    /// It exists, and an earlier recovery of the same log finished it.
    Finished {
        /// Its path in SOURCE, if known.
        name: String,
    },
    /// It has no name in SOURCE.
    Gone,
}

/// Inspects the files of one log.
#[derive(Debug)]
pub struct Look {
    home: Recovered,
}

impl Look {
    /// For the files below `source` in the log with this superblock.
    ///
    /// # Errors
    /// Those of reading SOURCE's note of an earlier recovery.
    pub fn new(source: BorrowedFd<'_>, superblock: &Superblock) -> io::Result<Look> {
        let done = partial::done(source, superblock)?;
        Ok(Look { home: Recovered::new(source, done)? })
    }

    /// The state of one file.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn at(&mut self, identity: &[u8]) -> io::Result<Seen> {
        // Opened with O_PATH: an existing file may refuse to be read or written.
        let Some(file) = self.home.open_identity(identity, OFlags::PATH)? else {
            return Ok(Seen::Gone);
        };
        let name = self.home.name_of(file.as_fd());
        if weir_log::Home::is_done(&self.home, identity) {
            return Ok(Seen::Finished { name });
        }
        let bytes = fstat(&file)?.st_size.try_into().unwrap_or(0);
        let opened = self.home.open_identity(identity, OFlags::RDONLY).ok().flatten();
        let flags = opened.and_then(|file| ioctl_getflags(&file).ok()).unwrap_or(IFlags::empty());
        let locked = flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND);
        Ok(Seen::File { name, bytes, locked })
    }
}
