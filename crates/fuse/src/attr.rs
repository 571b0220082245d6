//! File attributes in Weir's own form: what home says, and the encodings FUSE uses for it.

use std::time::Duration;

use rustix::fs::FileType;
use rustix::time::{ClockId, clock_gettime};
use weir_backend::Timestamp;
use weir_backend::home_names::Status;
use weir_names::tree::{Kind, Moment};

use crate::inode::NodeId;

/// What stat(2) shows of one inode through the mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// The node, which is also the inode number programs see.
    pub(crate) node: NodeId,
    /// Distinguishes the inode from earlier ones with the same number.
    pub(crate) generation: u64,
    /// Type and permission bits, as in `st_mode`.
    pub(crate) mode: u32,
    /// Hard links.
    pub(crate) nlink: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Device number of a device node, in the home system's encoding.
    pub(crate) rdev: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Allocated units of 512 bytes.
    pub(crate) blocks: u64,
    /// Preferred transfer size, bytes.
    pub(crate) block_bytes: u32,
    /// Last access.
    pub(crate) atime: Timestamp,
    /// Last modification.
    pub(crate) mtime: Timestamp,
    /// Last change of status.
    pub(crate) ctime: Timestamp,
    /// The attributes change without the kernel's knowledge: it must not cache them.
    pub(crate) volatile: bool,
}

impl Attributes {
    /// The attributes of `node` from its status at home.
    pub(crate) fn from_status(node: NodeId, status: &Status) -> Attributes {
        Attributes {
            node,
            generation: 0,
            mode: status.mode,
            nlink: status.nlink,
            uid: status.uid,
            gid: status.gid,
            rdev: status.rdev,
            size: status.size,
            blocks: status.blocks,
            block_bytes: status.block_bytes,
            atime: status.atime,
            mtime: status.mtime,
            ctime: status.ctime,
            volatile: false,
        }
    }

    /// Attributes of an inode about which only number and type are known: a directory entry that
    /// may be listed but not looked at.
    pub(crate) fn unknown(node: NodeId, kind: FileType) -> Attributes {
        let never = Timestamp { tv_sec: 0, tv_nsec: 0 };
        Attributes {
            node,
            generation: 0,
            mode: kind.as_raw_mode(),
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            block_bytes: 4096,
            atime: never,
            mtime: never,
            ctime: never,
            volatile: false,
        }
    }
}

/// The current time for a file's times: the coarse clock that the kernel's file systems use, so that times set here
/// and times set by home are in order.
pub(crate) fn now() -> Timestamp {
    clock_gettime(ClockId::RealtimeCoarse)
}

/// The time of the clock that a file system may take for a change (multigrain timestamps, Linux 6.13): not before that of a change at home that was
/// done before.
pub(crate) fn now_exactly() -> Timestamp {
    clock_gettime(ClockId::Realtime)
}

/// A time as the tree of names has it.
pub(crate) fn moment(time: Timestamp) -> Moment {
    // Below 10^9, and never negative.
    Moment { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 }
}

/// The inverse of [`moment`].
pub(crate) fn timestamp(moment: Moment) -> Timestamp {
    Timestamp { tv_sec: moment.seconds, tv_nsec: moment.nanoseconds.into() }
}

/// A device number as the FUSE protocol carries it (the kernel's `new_encode_dev`).
pub(crate) fn device_to_wire(device: u64) -> u32 {
    let (major, minor) = (libc::major(device), libc::minor(device));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// The inverse of [`device_to_wire`].
pub(crate) fn device_from_wire(wire: u32) -> u64 {
    let major = (wire >> 8) & 0xfff;
    let minor = (wire & 0xff) | ((wire >> 12) & 0xf_ff00);
    libc::makedev(major, minor)
}

/// What an inode is that was found at home. What a symbolic link says is asked for when it is read.
pub(crate) fn kind_of(status: &Status) -> Kind {
    match FileType::from_raw_mode(status.mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink(Box::default()),
        _ => Kind::Special { file_type: status.mode & libc::S_IFMT, device: status.rdev },
    }
}

/// A time in a form that compares.
pub(crate) fn in_order(time: Timestamp) -> (i64, i64) {
    (time.tv_sec, time.tv_nsec)
}

/// The later of two times.
pub(crate) fn later(one: Timestamp, other: Timestamp) -> Timestamp {
    if in_order(one) < in_order(other) { other } else { one }
}

/// So long before a time.
pub(crate) fn earlier_by(time: Timestamp, by: Duration) -> Timestamp {
    let nanoseconds = time.tv_nsec - i64::from(by.subsec_nanos());
    let borrowed = i64::from(nanoseconds < 0);
    Timestamp {
        tv_sec: time.tv_sec - by.as_secs() as i64 - borrowed,
        tv_nsec: nanoseconds + borrowed * 1_000_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_another_borrows_a_second() {
        let at = |tv_sec, tv_nsec| Timestamp { tv_sec, tv_nsec };
        let earlier = earlier_by(at(10, 500), Duration::new(2, 600));
        assert_eq!(in_order(earlier), (7, 999_999_900));
        assert_eq!(in_order(earlier_by(at(10, 500), Duration::from_nanos(500))), (10, 0));
    }

    #[test]
    fn device_numbers_survive_the_wire() {
        for (major, minor) in [(0, 0), (8, 1), (259, 70_000), (4095, 1_048_575), (1, 255), (1, 256)]
        {
            let device = libc::makedev(major, minor);
            assert_eq!(device_from_wire(device_to_wire(device)), device, "{major}:{minor}");
        }
    }

    #[test]
    fn the_wire_form_is_the_kernels() {
        assert_eq!(device_to_wire(libc::makedev(8, 1)), 0x801);
        assert_eq!(device_to_wire(libc::makedev(1, 256)), 0x10_0100);
    }
}
