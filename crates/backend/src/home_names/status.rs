//! What stat(2) and readlink(2) say of an inode at home.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp, makedev, readlinkat, statx};

use crate::times::Timestamp;

/// STATX_MNT_ID, linux/stat.h.
const STATX_MNT_ID: u32 = 0x1000;

/// An inode's attributes at home.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Device number of its file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    /// Preferred transfer size, bytes.
    pub block_bytes: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification.
    pub mtime: Timestamp,
    /// Last change of status.
    pub ctime: Timestamp,
    /// The mount it was found on, where the kernel tells.
    pub mount: Option<u64>,
}

impl Status {
    /// Of an open file (`O_PATH` does).
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Status> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
        Ok(from_statx(&statx(file, c"", flags, wanted())?))
    }

    /// Of a name in a directory; of the link itself if it is a symbolic one.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Status> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        Ok(from_statx(&statx(directory, name, flags, wanted())?))
    }
}

/// What a symbolic link says that is held by `link` (`O_PATH` does).
///
/// # Errors
/// Those of readlinkat(2).
pub fn read_link(link: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    // An empty path names the link the descriptor itself holds.
    Ok(readlinkat(link, "", Vec::new())?.into_bytes())
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::from_bits_retain(STATX_MNT_ID)
}

fn from_statx(status: &Statx) -> Status {
    Status {
        device: makedev(status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
        mode: status.stx_mode.into(),
        nlink: status.stx_nlink,
        uid: status.stx_uid,
        gid: status.stx_gid,
        rdev: makedev(status.stx_rdev_major, status.stx_rdev_minor),
        size: status.stx_size,
        blocks: status.stx_blocks,
        block_bytes: status.stx_blksize,
        atime: timestamp(status.stx_atime),
        mtime: timestamp(status.stx_mtime),
        ctime: timestamp(status.stx_ctime),
        mount: (status.stx_mask & STATX_MNT_ID != 0).then_some(status.stx_mnt_id),
    }
}

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec.into() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn it_says_what_stat_says() {
        for path in ["/etc/passwd", "/dev/null", "/proc/self"] {
            let file = rustix::fs::open(
                path,
                rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW,
                rustix::fs::Mode::empty(),
            );
            let status = Status::of(file.unwrap().as_fd()).unwrap();
            let known = fs::symlink_metadata(path).unwrap();
            let (device, inode) = (known.dev(), known.ino());
            assert_eq!((status.device, status.inode, status.mode), (device, inode, known.mode()));
            assert_eq!((status.rdev, status.size), (known.rdev(), known.size()));
            assert_eq!((status.uid, status.gid), (known.uid(), known.gid()));
        }
    }
}
