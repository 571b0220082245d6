//! What file system an inode is on: its space, and whether names in a directory are the same in upper and lower case.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{IFlags, StatVfs, fstatfs, fstatvfs, ioctl_getflags};

use super::list::open_directory;
use super::xattrs::get_xattr;

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

/// What makes a directory one in which home alone knows what becomes of a name: FS_SYNC_FL, FS_IMMUTABLE_FL,
/// FS_APPEND_FL, FS_DIRSYNC_FL, FS_PROJINHERIT_FL and FS_CASEFOLD_FL of ioctl_iflags(2).
const SPECIAL: IFlags =
    IFlags::from_bits_retain(0x8 | 0x10 | 0x20 | 0x1_0000 | 0x2000_0000 | 0x4000_0000);

/// The default ACL of a directory, acl(5).
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// Whether what becomes of names in a directory depends on nothing but permissions: it has no default ACL and no flags
/// that matter for names, and names in it are different in upper and lower case. The last is taken for granted if
/// `tells_case`.
pub fn is_plain(directory: BorrowedFd<'_>, tells_case: bool) -> bool {
    if !tells_case && folds_names(directory) {
        return false;
    }
    let Ok(opened) = open_directory(directory) else { return false };
    // A file system without flags has none of these.
    let special = ioctl_getflags(&opened).is_ok_and(|flags| flags.intersects(SPECIAL));
    !special && get_xattr(directory, DEFAULT_ACL.as_ref(), 0).is_err()
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
