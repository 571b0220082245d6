//! Where a file is on its device: FS_IOC_FIEMAP (linux/fiemap.h, Documentation/filesystems/fiemap.rst).
//! Lists only extents with a place on the device. Omits data that is not allocated yet, is kept inline, or is
//! stored in a form in which offsets on the device do not follow offsets in the file.

#![allow(unsafe_code)] // The request has no safe binding.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use weir_engine::Extent;

/// Extents asked for at once.
const BATCH: usize = 256;

/// Extents listed at most: more of a fragmented file are not worth the memory.
const EXTENTS_MAX: usize = 4096;

/// `_IOWR('f', 11, struct fiemap)`: the size is that of the head alone.
const FS_IOC_FIEMAP: Opcode = 0xC020_660B;

const FIEMAP_EXTENT_LAST: u32 = 0x1;
/// Flags of extents whose `physical` is not the place of their data: UNKNOWN, DELALLOC, ENCODED,
/// DATA_ENCRYPTED, NOT_ALIGNED, DATA_INLINE and DATA_TAIL.
const PLACELESS: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

/// struct fiemap_extent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// struct fiemap with room for its extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Found; BATCH],
}

/// The extents of `file`; empty if its file system does not report them.
pub(crate) fn extents(file: impl AsFd) -> Vec<Extent> {
    let mut extents = Vec::new();
    let (mut start, mut looked_at) = (0, 0);
    while looked_at < EXTENTS_MAX {
        let mut request = Fiemap {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: BATCH as u32,
            reserved: 0,
            extents: [Found::default(); BATCH],
        };
        // SAFETY: the request number is FIEMAP's, whose argument is a `fiemap` followed by as many
        // extents as it says; every bit pattern the kernel writes is a valid value.
        let asked = unsafe { ioctl(&file, Updater::<FS_IOC_FIEMAP, _>::new(&mut request)) };
        match asked {
            Ok(()) => {}
            Err(Errno::INTR) => continue,
            Err(error) => {
                tracing::debug!(%error, "where a file is on its device is not known");
                break;
            }
        }
        let found = &request.extents[..BATCH.min(request.mapped_extents as usize)];
        looked_at += found.len();
        let placed = found.iter().filter(|found| found.flags & PLACELESS == 0);
        extents.extend(placed.map(|found| Extent {
            offset: found.logical,
            len: found.length,
            place: found.physical,
        }));
        let Some(last) = found.last() else { break };
        let end = last.logical.saturating_add(last.length);
        if last.flags & FIEMAP_EXTENT_LAST != 0 || end <= start {
            break;
        }
        start = end;
    }
    extents
}
