//! Whether files are on a rotational disk.

use std::os::fd::BorrowedFd;

use rustix::fs::FileType;

/// Whether a file, or a block device, is on a rotational disk according to the kernel (sysfs-block(5),
/// queue/rotational). A partition uses the queue of its disk. False for a file system without a device.
pub fn is_rotational(file: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let device = if is_device { stat.st_rdev } else { stat.st_dev };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    ["queue", "../queue"].into_iter().any(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/rotational");
        std::fs::read(path).is_ok_and(|said| said.trim_ascii() == b"1")
    })
}
