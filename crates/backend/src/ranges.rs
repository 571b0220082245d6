//! A file's size and ranges at home: cutting and growing, allocating and freeing, finding holes, copying.
//!
//! For exclusive sections of the file: what the engine has of the range is home by then, and it drops what was cached of a
//! range that changed. The times that programs see are the caller's to note. Each fails with EBADF if the file's data is
//! not open. Of an unbound file, size and holes are known, and the others fail.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, ftruncate, seek};
use rustix::io::Errno;

use crate::allocation::allocate_as;
use crate::home_file::HomeFile;
use crate::home_names::is_fuse;

/// What [`HomeFile::copy_from`] did.
#[derive(Debug)]
pub struct Copied {
    /// How many bytes were copied.
    pub bytes: usize,
    /// What a sync of them said, or why it is not known whether they were copied; `None` if none was made.
    pub synced: Option<io::Result<()>>,
}

impl HomeFile {
    /// ftruncate(2). The size of an unbound file is kept until it is bound.
    ///
    /// # Errors
    /// Those of ftruncate(2).
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        if self.keep_size(size) {
            return Ok(());
        }
        Ok(ftruncate(&*self.data_fd()?, size)?)
    }

    /// fallocate(2) with a `mode` that home knows, of `len` bytes from `offset` on, within what `user` may allocate.
    ///
    /// # Errors
    /// Those of fallocate(2).
    pub fn allocate(&self, user: u32, mode: i32, offset: u64, len: u64) -> io::Result<()> {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let data = self.data_fd()?;
        Ok(allocate_as(user, || fallocate(&*data, mode, offset, len))?)
    }

    /// lseek(2) with SEEK_DATA: where the first data is at or after `offset`.
    ///
    /// # Errors
    /// Those of lseek(2): ENXIO if there is none.
    pub fn seek_data(&self, offset: u64) -> io::Result<u64> {
        if self.unbound_size().is_some() {
            return Err(Errno::NXIO.into());
        }
        Ok(seek(&*self.data_fd()?, SeekFrom::Data(offset))?)
    }

    /// lseek(2) with SEEK_HOLE: where the first hole is at or after `offset`.
    ///
    /// # Errors
    /// Those of lseek(2): ENXIO if the file ends before `offset`.
    pub fn seek_hole(&self, offset: u64) -> io::Result<u64> {
        if let Some(size) = self.unbound_size() {
            return if offset < size { Ok(offset) } else { Err(Errno::NXIO.into()) };
        }
        Ok(seek(&*self.data_fd()?, SeekFrom::Hole(offset))?)
    }

    /// copy_file_range(2) of up to `len` bytes: from `source`, at the offset beside it, to this file at the offset `to`,
    /// within what `user` may allocate. On a FUSE home, which tells what became of a copy to one description alone, it is synced.
    ///
    /// # Errors
    /// Those of copy_file_range(2).
    pub fn copy_from(
        &self,
        user: u32,
        (source, mut from): (&HomeFile, u64),
        mut to: u64,
        len: u64,
    ) -> io::Result<Copied> {
        // It is to be open for this.
        let (source, mut data) = (source.data_fd()?, self.data_fd()?);
        if is_fuse(data.as_fd()) {
            data = self.writable_alone()?;
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let copy = || copy_file_range(&*source, Some(&mut from), &*data, Some(&mut to), len);
        let bytes = match allocate_as(user, copy) {
            // The answer may be lost, and not the copy.
            Err(error @ (Errno::IO | Errno::CONNABORTED | Errno::NOTCONN | Errno::TIMEDOUT))
                if is_fuse(data.as_fd()) =>
            {
                return Ok(Copied { bytes: len, synced: Some(Err(error.into())) });
            }
            copied => copied?,
        };
        let syncs = bytes > 0 && is_fuse(data.as_fd());
        let synced = syncs.then(|| Ok(rustix::fs::fdatasync(&data)?));
        Ok(Copied { bytes, synced })
    }
}
