//! What file system an inode is on: its space, and whether names in a directory are the same in upper and lower case.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{IFlags, StatVfs, fstatfs, fstatvfs, ioctl_getflags};

use super::list::open_directory;

/// Types of file systems (statfs(2)) whose names are, or may be without our being able to ask.
const FOLDING: [u64; 18] = [
    0x4d44,      // vfat
    0x2011_bab0, // exfat
    0x5346_544e, // ntfs
    0x7366_746e, // ntfs3
    0x517b,      // smb
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x4244,      // hfs
    0x482b,      // hfsplus
    0xadff,      // affs
    0x9660,      // isofs
    0x0102_1997, // 9p
    0x6573_5546, // fuse
    0x6969,      // nfs
    0x2fc1_2fc1, // zfs
    0x786f_4256, // vboxsf
    0x3153_464a, // jfs
    0xf995_e849, // hpfs
];

/// FS_CASEFOLD_FL of ioctl_iflags(2): ext4, f2fs and tmpfs have it for each directory.
const CASEFOLD: IFlags = IFlags::from_bits_retain(0x4000_0000);

/// Whether names in a directory are the same in upper and lower case, as far as is known; they are if it cannot be
/// found out.
pub fn folds_names(directory: BorrowedFd<'_>) -> bool {
    let Ok(system) = fstatfs(directory) else { return true };
    if FOLDING.contains(&u64::from(system.f_type as u32)) {
        return true;
    }
    let Ok(opened) = open_directory(directory) else { return true };
    // A file system without flags does not have this one.
    ioctl_getflags(&opened).is_ok_and(|flags| flags.contains(CASEFOLD))
}

/// statvfs(3).
///
/// # Errors
/// Those of fstatfs(2).
pub fn space(inode: BorrowedFd<'_>) -> io::Result<StatVfs> {
    Ok(fstatvfs(inode)?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn ordinary_directories_do_not_and_what_cannot_be_asked_might() {
        let directory = File::open("/dev/shm").unwrap();
        assert!(!folds_names(directory.as_fd()));
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        assert!(folds_names(file.as_fd()), "it is no directory");
    }
}
