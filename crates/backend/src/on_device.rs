//! Whether bytes of a file are on its device, not only in the page cache.
//!
//! After a failed write to the device the page cache has bytes that the device lacks, and that the kernel does not write again by
//! itself. A direct read writes what is dirty, and then reads the device, if the file's file system says that it has direct I/O for
//! the file (statx(2), STATX_DIOALIGN; Linux 6.1). Others may take the flag and answer from the page cache: ext4 for journaled or inline
//! data, btrfs for compressed or inline extents, tmpfs, FUSE.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, fstatfs, open, statx};

use crate::proc_path::proc_path;

/// Alignment of direct reads, bytes.
const UNIT: usize = 4096;

/// File systems that say so of files that they read directly alone, by statfs(2)'s numbers: ext4, XFS. F2FS says it of inline data, too, and NFS
/// of what its server may have in memory.
const TRUSTED: [u32; 2] = [0xef53, 0x5846_5342];

/// Whether an open file's device has these bytes there. False also if that cannot be known: the file system does not say that it
/// reads the file directly, or not with this alignment.
pub(crate) fn has(file: &File, offset: u64, data: &[u8]) -> bool {
    let file = file.as_fd();
    is_read_directly(file).unwrap_or(false) && has_read(file, offset, data).unwrap_or(false)
}

fn is_read_directly(file: BorrowedFd<'_>) -> io::Result<bool> {
    if !TRUSTED.contains(&(fstatfs(file)?.f_type as u64 as u32)) {
        return Ok(false);
    }
    let status = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let is_said = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::DIOALIGN);
    let aligns = [status.stx_dio_mem_align, status.stx_dio_offset_align];
    Ok(is_said && aligns.iter().all(|&bytes| bytes > 0 && (UNIT as u32).is_multiple_of(bytes)))
}

fn has_read(file: BorrowedFd<'_>, offset: u64, data: &[u8]) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let direct = File::from(open(proc_path(file), flags, Mode::empty())?);
    let skipped = (offset % UNIT as u64) as usize;
    let end = skipped + data.len();
    let mut buffer = vec![0_u8; end.next_multiple_of(UNIT) + UNIT];
    let first = buffer.as_ptr().addr().next_multiple_of(UNIT) - buffer.as_ptr().addr();
    let found = &mut buffer[first..first + end.next_multiple_of(UNIT)];
    let mut len = 0;
    while len < end {
        let read = direct.read_at(&mut found[len..], offset - skipped as u64 + len as u64)?;
        len += read;
        // The file ends there.
        if read % UNIT != 0 || read == 0 {
            break;
        }
    }
    Ok(len >= end && &found[skipped..end] == data)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

    use super::*;

    #[test]
    fn bytes_are_compared_where_they_are_and_up_to_the_files_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        if !is_read_directly(file.as_fd()).unwrap_or(false) {
            println!("not checked: this file system does not say that it has direct reads");
            return;
        }
        for (from, to) in
            [(0, 20_000), (100, 112), (4_095, 8_193), (8_192, 12_288), (19_999, 20_000)]
        {
            let mut data = content[from..to].to_owned();
            assert!(has(&file, from as u64, &data), "{from} to {to}");
            *data.last_mut().unwrap() ^= 1;
            assert!(!has(&file, from as u64, &data), "{from} to {to}, the last byte changed");
        }
        assert!(!has(&file, 19_999, &[content[19_999], 0]), "past the end");
        assert!(!has(&file, 40_000, &[0]), "far past the end");
    }

    #[test]
    fn what_is_read_from_the_page_cache_is_not_known_to_be_on_the_device() {
        let in_memory = tempfile::tempdir_in("/dev/shm").ok();
        let in_memory = in_memory.filter(|directory| {
            fstatfs(File::open(directory.path()).unwrap()).unwrap().f_type == 0x0102_1994
        });
        match &in_memory {
            Some(directory) => {
                let path = directory.path().join("file");
                std::fs::write(&path, b"content").unwrap();
                assert!(!has(&File::open(&path).unwrap(), 0, b"content"), "tmpfs");
            }
            None => println!("not checked: there is no tmpfs"),
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create_new(&path).unwrap();
        // As under data=journal.
        let set = ioctl_getflags(&file)
            .and_then(|flags| ioctl_setflags(&file, flags | IFlags::JOURNALING));
        if let Err(error) = set {
            return println!("not checked: data cannot be journaled here ({error})");
        }
        std::fs::write(&path, b"content").unwrap();
        assert!(!has(&File::open(&path).unwrap(), 0, b"content"), "journaled data");
    }
}
