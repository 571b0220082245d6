//! The image file: written by pwrite(2) through the host's page cache, read through a mapping.
//!
//! What is mapped stays in memory when the host's caches are dropped, as benchmarks do before each
//! run: the disk's delays must be the model's, not those of the storage the image lies on.
//!
//! Invariant: nothing makes the file shorter while this lives; the server holds its lock.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use weir_drive::{Image, PAGE_BYTES};

/// An image of a fixed size.
pub struct MappedImage {
    file: File,
    bytes: u64,
    map: NonNull<u8>,
}

// SAFETY: the mapping belongs to this value alone and may be read and unmapped by any thread.
unsafe impl Send for MappedImage {}

impl MappedImage {
    /// Maps `file`, which has at least `bytes`.
    pub fn new(file: File, bytes: u64) -> io::Result<MappedImage> {
        if file.metadata()?.len() < bytes {
            return Err(io::Error::other("it is shorter than the disk"));
        }
        let (access, shared) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let map = unsafe { mmap(ptr::null_mut(), bytes as usize, access, shared, &file, 0)? };
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedImage { file, bytes, map })
    }

    fn address(&self, offset: u64) -> *mut c_void {
        // SAFETY: callers give offsets in the mapping, and so the result is in it.
        unsafe { self.map.as_ptr().add(offset as usize).cast() }
    }
}

impl Drop for MappedImage {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.bytes as usize) };
    }
}

impl Image for MappedImage {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if offset + bytes.len() as u64 > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from = self.address(offset).cast::<u8>();
        // SAFETY: the range is in the mapping, as was just checked, and `bytes` is elsewhere. The
        // file changes only by `write` and `zero`, which exclude this by the borrow.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn zero(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                let zeroes = vec![0; bytes.min(1 << 20) as usize];
                let mut at = offset;
                while at < offset + bytes {
                    let count = zeroes.len().min((offset + bytes - at) as usize);
                    self.file.write_all_at(&zeroes[..count], at)?;
                    at += count as u64;
                }
                Ok(())
            }
            done => done.map_err(io::Error::from),
        }
    }

    /// Maps all that is not a hole, reading what is not in memory.
    fn warm(&self) -> io::Result<()> {
        let mut at = 0;
        while at < self.bytes {
            let Ok(begin) = seek(&self.file, SeekFrom::Data(at)) else { break };
            let end = seek(&self.file, SeekFrom::Hole(begin))?.min(self.bytes);
            let begin = begin / PAGE_BYTES * PAGE_BYTES;
            if begin >= end {
                break;
            }
            // SAFETY: the range is in the mapping; populating it changes no memory. A kernel or a
            // file system that refuses leaves the pages to be mapped when they are first read.
            let _ = unsafe {
                madvise(self.address(begin), (end - begin) as usize, Advice::LinuxPopulateRead)
            };
            at = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_zeroed_is_zero() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let mut image = MappedImage::new(file, 1 << 20).unwrap();
        image.warm().unwrap();
        image.write(4608, &[7; 1024]).unwrap();
        image.warm().unwrap();
        image.zero(5120, 512).unwrap();
        let mut bytes = [1; 2048];
        image.read(4096, &mut bytes).unwrap();
        assert_eq!(bytes[..512], [0; 512]);
        assert_eq!(bytes[512..1024], [7; 512]);
        assert_eq!(bytes[1024..], [0; 1024]);
        assert!(image.read((1 << 20) - 512, &mut bytes).is_err());
    }
}
