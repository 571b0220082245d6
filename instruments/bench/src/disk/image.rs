//! The image file: written by pwrite(2) through the host's page cache, read through a mapping.
//!
//! What is mapped stays in memory when the host's caches are dropped, as benchmarks do before each
//! run: the disk's delays must be the model's, not those of the storage the image lies on.
//!
//! Invariant: nothing makes the file shorter while this lives; the server holds its lock.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memmap2::{Advice, Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use weir_drive::{Image, PAGE_BYTES};

/// An image of a fixed size.
pub struct MappedImage {
    file: File,
    map: Mmap,
}

impl MappedImage {
    /// Maps `file`, which has at least `bytes`.
    pub fn new(file: File, bytes: u64) -> io::Result<MappedImage> {
        if file.metadata()?.len() < bytes {
            return Err(io::Error::other("it is shorter than the disk"));
        }
        // SAFETY: the file is not made shorter, and changes only by `write` and `zero`, which exclude readers of the
        // mapping by their borrow.
        let map = unsafe { MmapOptions::new().len(bytes as usize).map(&file)? };
        Ok(MappedImage { file, map })
    }
}

impl Image for MappedImage {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let from = self.map.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
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
        let (mut at, bytes) = (0, self.map.len() as u64);
        while at < bytes {
            let Ok(begin) = seek(&self.file, SeekFrom::Data(at)) else { break };
            let end = seek(&self.file, SeekFrom::Hole(begin))?.min(bytes);
            let begin = begin / PAGE_BYTES * PAGE_BYTES;
            if begin >= end {
                break;
            }
            // A kernel or a file system that refuses leaves the pages to be mapped when they are first read.
            let (offset, length) = (begin as usize, (end - begin) as usize);
            let _ = self.map.advise_range(Advice::PopulateRead, offset, length);
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
