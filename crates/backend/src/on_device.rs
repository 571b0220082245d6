//! Whether bytes of a file are on its device, not only in the page cache.
//!
//! After a failed write to the device the page cache has bytes that the device lacks, and that the kernel does not write again by
//! itself. A direct read writes what is dirty, and then reads the device.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, open};

use crate::proc_path::proc_path;

/// Alignment of direct reads, bytes.
const UNIT: usize = 4096;

/// Whether an open file's device has these bytes there. False also if that cannot be known: the file system has no direct reads, or
/// not of this alignment.
pub(crate) fn has(file: &File, offset: u64, data: &[u8]) -> bool {
    has_read(file.as_fd(), offset, data).unwrap_or(false)
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
    use super::*;

    #[test]
    fn bytes_are_compared_where_they_are_and_up_to_the_files_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        if has_read(file.as_fd(), 0, &content[..1]).is_err() {
            println!("not checked: this file system has no direct reads");
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
}
