//! One regular file at home: its descriptors, what they allow, and its times.
//!
//! Owns the file's descriptors: one with `O_PATH`, which lives as long as the value, and those for
//! data, opened when first needed and closed when nobody has the file open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_engine::HomeAttributes;

use crate::times::Times;

/// One regular file at home. Shared as `Arc<HomeFile>`; a transfer under way keeps the descriptor
/// it uses open, whatever is closed meanwhile.
#[derive(Debug)]
pub struct HomeFile {
    path: OwnedFd,
    times: Times,
}

impl HomeFile {
    /// A file known by an `O_PATH` descriptor, with no data descriptor yet.
    pub fn new(path: OwnedFd) -> HomeFile {
        HomeFile { path, times: Times::default() }
    }

    /// A file just created: `data` is the `O_RDWR` descriptor that created it (without `O_DIRECT`
    /// and `O_APPEND`), so that it needs no opening again, whatever its mode says.
    pub fn with_created(path: OwnedFd, data: OwnedFd) -> HomeFile {
        let _ = data;
        HomeFile { path, times: Times::default() }
    }

    /// Opens data descriptors for reading, and for writing too if `write`, unless they are open.
    /// A file that may be written but not read is opened for writing alone.
    ///
    /// # Errors
    /// What open(2) says of this process's access: EACCES, EROFS, ETXTBSY, EMFILE and so on.
    pub fn open_data(&self, write: bool) -> io::Result<()> {
        let _ = write;
        todo!()
    }

    /// Closes the data descriptors. To be called when no open description is left and the file is
    /// clean: space reserved past the end is given back, and the modification time restored.
    pub fn close_data(&self) {
        todo!()
    }

    /// Whether a data descriptor for writing is open.
    pub fn is_writable(&self) -> bool {
        todo!()
    }

    /// Whether a data descriptor for reading is open.
    pub fn is_readable(&self) -> bool {
        todo!()
    }

    /// The `O_PATH` descriptor.
    pub fn path_fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    /// A data descriptor through the page cache, writable if the file is open for writing, for
    /// ftruncate, fallocate, lseek, copy_file_range. Not for data the engine caches.
    ///
    /// # Errors
    /// EBADF if no data descriptor is open.
    pub fn data_fd(&self) -> io::Result<Arc<OwnedFd>> {
        todo!()
    }

    /// What the engine needs to know of the file when it is attached, as home has it now.
    ///
    /// # Errors
    /// What statx(2) says.
    pub fn home_attributes(&self) -> io::Result<HomeAttributes> {
        todo!()
    }

    /// The times as programs see them.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Puts the modification time back at home, if destaging may have disturbed it. A file of
    /// somebody else, whose times may not be set, keeps what it has: that is no error.
    ///
    /// # Errors
    /// What utimensat(2) says otherwise.
    pub fn restore_times(&self) -> io::Result<()> {
        todo!()
    }
}
