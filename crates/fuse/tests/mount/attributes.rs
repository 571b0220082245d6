//! Times, owners, modes, extended attributes.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};
use rustix::fs::{XattrFlags, lgetxattr, lgetxattr_query, listxattr, lsetxattr, setxattr};

use rustix::io::Errno;
use weir_fuse::STATE;

use crate::Test;
use crate::fixture::{Fixture, STRANGER, errno, open};

pub const TESTS: &[Test] = &[
    ("times_are_kept_to_the_nanosecond", times_are_kept_to_the_nanosecond),
    ("destaging_does_not_move_times", destaging_does_not_move_times),
    ("changes_move_the_change_time", changes_move_the_change_time),
    ("new_files_belong_to_their_maker", new_files_belong_to_their_maker),
    ("extended_attributes_are_those_of_home", extended_attributes_are_those_of_home),
    ("how_far_a_file_is_can_be_read_and_not_set", how_far_a_file_is_can_be_read_and_not_set),
    ("a_default_acl_takes_the_umasks_place", a_default_acl_takes_the_umasks_place),
    ("an_acl_has_the_kernel_forget_the_mode", an_acl_has_the_kernel_forget_the_mode),
    (
        "a_change_of_names_has_the_kernel_forget_what_other_threads_were_told",
        a_change_of_names_has_the_kernel_forget_what_other_threads_were_told,
    ),
    ("space_is_that_of_home", space_is_that_of_home),
];

pub fn set_times(path: &Path, atime: Timespec, mtime: Timespec) {
    let times = Timestamps { last_access: atime, last_modification: mtime };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn time(tv_sec: i64, tv_nsec: i64) -> Timespec {
    Timespec { tv_sec, tv_nsec }
}

pub fn times_of(path: &Path) -> [(i64, i64); 2] {
    let status = fs::symlink_metadata(path).unwrap();
    [(status.atime(), status.atime_nsec()), (status.mtime(), status.mtime_nsec())]
}

fn times_are_kept_to_the_nanosecond() {
    let mut fixture = Fixture::new();
    fs::write(fixture.at("file"), b"dirty").unwrap();
    fs::create_dir(fixture.at("dir")).unwrap();
    symlink("file", fixture.at("symlink")).unwrap();
    for name in ["dir", "symlink", "file"] {
        let path = fixture.at(name);
        for seconds in [-2, -1, 0, 1, 1_600_000_000, 5_000_000_000] {
            set_times(&path, time(seconds, 123_456_789), time(seconds - 1, 999_999_999));
            let expected = [(seconds, 123_456_789), (seconds - 1, 999_999_999)];
            assert_eq!(times_of(&path), expected, "{name}");
        }
        set_times(&path, time(77, 7), time(0, UTIME_OMIT));
        assert_eq!(times_of(&path), [(77, 7), (4_999_999_999, 999_999_999)]);
        set_times(&path, time(0, UTIME_OMIT), time(0, UTIME_NOW));
        assert_eq!(times_of(&path)[0], (77, 7));
        assert!(times_of(&path)[1].0 > 1_600_000_000);
        set_times(&path, time(77, 7), time(-5, 250_000_000));
    }
    fixture.unmount();
    for name in ["dir", "symlink", "file"] {
        assert_eq!(times_of(&fixture.home(name)), [(77, 7), (-5, 250_000_000)], "{name}");
    }
}

fn destaging_does_not_move_times() {
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    file.write_all_at(&[1; 10_000], 0).unwrap();
    let written = file.metadata().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    file.sync_all().unwrap();
    let synced = file.metadata().unwrap();
    assert_eq!((written.mtime(), written.mtime_nsec()), (synced.mtime(), synced.mtime_nsec()));
    assert_eq!((written.ctime(), written.ctime_nsec()), (synced.ctime(), synced.ctime_nsec()));
    let home = fs::metadata(fixture.home("file")).unwrap();
    assert_eq!((written.mtime(), written.mtime_nsec()), (home.mtime(), home.mtime_nsec()));
}

fn changes_move_the_change_time() {
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    file.write_all_at(b"x", 0).unwrap();
    let mut before = file.metadata().unwrap();
    let mut moved = |what: &str, mtime_too: bool| {
        let after = file.metadata().unwrap();
        let change = |status: &fs::Metadata| (status.ctime(), status.ctime_nsec());
        let modification = |status: &fs::Metadata| (status.mtime(), status.mtime_nsec());
        assert!(change(&after) > change(&before), "{what} did not move the change time");
        assert_eq!(modification(&after) > modification(&before), mtime_too, "{what}");
        before = after;
        std::thread::sleep(Duration::from_millis(20));
    };
    std::thread::sleep(Duration::from_millis(20));
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    moved("chmod", false);
    fs::hard_link(fixture.at("file"), fixture.at("link")).unwrap();
    moved("link", false);
    fs::rename(fixture.at("link"), fixture.at("renamed")).unwrap();
    moved("rename", false);
    fs::remove_file(fixture.at("renamed")).unwrap();
    moved("unlink", false);
    setxattr(fixture.at("file"), "user.x", b"y", XattrFlags::empty()).unwrap();
    moved("setxattr", false);
    std::os::unix::fs::chown(fixture.at("file"), Some(1), Some(2)).unwrap();
    moved("chown", false);
    file.set_len(100).unwrap();
    moved("ftruncate", true);
    file.write_all_at(b"y", 50).unwrap();
    moved("write", true);
}

fn new_files_belong_to_their_maker() {
    let fixture = Fixture::new();
    fs::set_permissions(&fixture.mount, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(fixture.stranger("umask 027; echo x > file; mkdir dir; mkfifo fifo; ln -s x symlink"));
    for (name, mode) in [("file", 0o640), ("dir", 0o750), ("fifo", 0o640)] {
        for path in [fixture.at(name), fixture.home(name)] {
            let status = fs::symlink_metadata(path).unwrap();
            assert_eq!((status.uid(), status.gid()), (STRANGER, STRANGER), "{name}");
            assert_eq!(status.mode() & 0o7777, mode, "{name}");
        }
    }
    assert_eq!(fs::symlink_metadata(fixture.home("symlink")).unwrap().uid(), STRANGER);
    // A setgid directory passes its group on.
    fs::create_dir(fixture.at("setgid")).unwrap();
    std::os::unix::fs::chown(fixture.at("setgid"), None, Some(777)).unwrap();
    fs::set_permissions(fixture.at("setgid"), fs::Permissions::from_mode(0o2777)).unwrap();
    assert!(fixture.stranger("touch setgid/file; mkdir setgid/dir"));
    let file = fs::metadata(fixture.at("setgid/file")).unwrap();
    assert_eq!((file.uid(), file.gid()), (STRANGER, 777));
    let directory = fs::metadata(fixture.at("setgid/dir")).unwrap();
    assert_eq!((directory.gid(), directory.mode() & 0o2000), (777, 0o2000));
    // What is not theirs is not for them.
    fs::write(fixture.at("mine"), b"x").unwrap();
    fs::set_permissions(fixture.at("mine"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!fixture.stranger("cat mine 2>/dev/null"));
    assert!(!fixture.stranger("chmod 666 mine 2>/dev/null"));
}

fn extended_attributes_are_those_of_home() {
    let fixture = Fixture::new();
    let path = fixture.at("file");
    fs::write(&path, b"x").unwrap();
    let set = |name: &str, value: &[u8], flags| {
        errno(setxattr(&path, name, value, flags).map_err(std::io::Error::from))
    };
    assert_eq!(set("user.one", b"value", XattrFlags::CREATE), 0);
    assert_eq!(set("user.one", b"value", XattrFlags::CREATE), libc::EEXIST);
    assert_eq!(set("user.two", b"value", XattrFlags::REPLACE), libc::ENODATA);
    let mut value = [0; 5];
    assert_eq!(lgetxattr(&path, "user.one", &mut value), Ok(5));
    assert_eq!(&value, b"value");
    assert_eq!(lgetxattr(&path, "user.one", &mut [0; 3]), Err(rustix::io::Errno::RANGE));
    assert_eq!(lgetxattr_query(&path, "user.one"), Ok(5));
    let mut names = vec![0_u8; 256];
    let len = listxattr(&path, &mut names[..]).unwrap();
    assert!(names[..len].windows(9).any(|name| name == b"user.one\0"));
    rustix::fs::removexattr(&path, "user.one").unwrap();
    assert_eq!(lgetxattr(&path, "user.one", &mut value), Err(rustix::io::Errno::NODATA));
    // A symbolic link has its own.
    symlink("file", fixture.at("symlink")).unwrap();
    lsetxattr(fixture.at("symlink"), "trusted.x", b"link", XattrFlags::empty()).unwrap();
    let mut value = [0; 4];
    assert_eq!(lgetxattr(fixture.home("symlink"), "trusted.x", &mut value), Ok(4));
    assert_eq!(lgetxattr(&path, "trusted.x", &mut value), Err(rustix::io::Errno::NODATA));
}

fn how_far_a_file_is_can_be_read_and_not_set() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    let path = fixture.at("file");
    fs::write(&path, b"x").unwrap();
    let state = |path: &Path| {
        let mut value = [0; 8];
        let len = lgetxattr(path, STATE, &mut value).unwrap();
        String::from_utf8(value[..len].to_vec()).unwrap()
    };
    assert_eq!(state(&path), "dirty");
    assert_eq!(lgetxattr(&path, STATE, &mut [0; 3]), Err(Errno::RANGE));
    assert!(lgetxattr_query(&path, STATE).unwrap() >= 5);
    fixture.sync();
    assert_eq!((&*state(&path), &*state(&fixture.at("dir"))), ("home", "home"));
    assert_eq!(setxattr(&path, STATE, b"home", XattrFlags::empty()), Err(Errno::PERM));
    assert_eq!(rustix::fs::removexattr(&path, STATE), Err(Errno::PERM));
    assert_eq!(listxattr(&path, &mut [0_u8; 256][..]), Ok(0));
    assert_eq!(lgetxattr(fixture.home("file"), STATE, &mut [0; 8]), Err(Errno::NODATA));
}

/// The default ACL u::rwx,g::rwx,o::--- in the form of linux/posix_acl_xattr.h.
pub fn default_acl() -> Vec<u8> {
    const UNDEFINED: u32 = u32::MAX;
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions) in [(1_u16, 7_u16), (4, 7), (0x20, 0)] {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(UNDEFINED.to_le_bytes());
    }
    acl
}

fn a_default_acl_takes_the_umasks_place() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::set_permissions(fixture.at("dir"), fs::Permissions::from_mode(0o777)).unwrap();
    let acl = default_acl();
    let flags = XattrFlags::empty();
    if let Err(error) = setxattr(fixture.home("dir"), "system.posix_acl_default", &acl, flags) {
        println!("    (not checked: the file system underneath has no ACLs: {error})");
        return;
    }
    assert!(fixture.stranger("umask 077; touch dir/file; mkdir dir/dir"));
    assert_eq!(fs::metadata(fixture.at("dir/file")).unwrap().mode() & 0o777, 0o660);
    assert_eq!(fs::metadata(fixture.at("dir/dir")).unwrap().mode() & 0o777, 0o770);
    let mut inherited = [0; 64];
    let len = lgetxattr(fixture.at("dir/dir"), "system.posix_acl_default", &mut inherited[..]);
    assert_eq!(&inherited[..len.unwrap()], acl);
}

/// An answer to a listing that is under way has the old mode: the kernel must not take it.
fn an_acl_has_the_kernel_forget_the_mode() {
    const ACL: &str = "system.posix_acl_access";
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    let notices = || fixture.session().observer().requests().notifications;
    let with = |permissions: u16| {
        let mut acl = 2_u32.to_le_bytes().to_vec();
        for (tag, id) in
            [(1_u16, u32::MAX), (2, 1000), (4, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)]
        {
            acl.extend(tag.to_le_bytes());
            acl.extend(permissions.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        acl
    };
    let before = notices();
    if let Err(error) = setxattr(fixture.at("dir"), ACL, &with(5), XattrFlags::empty()) {
        println!("    (not checked: the file system underneath has no ACLs: {error})");
        return;
    }
    assert!(notices() > before, "set");
    assert_eq!(fs::metadata(fixture.at("dir")).unwrap().mode() & 0o777, 0o555);
    let before = notices();
    rustix::fs::removexattr(fixture.at("dir"), ACL).unwrap();
    assert!(notices() > before, "removed");
}

/// An answer to another thread may be under way: the kernel must not take a directory's old attributes from it.
fn a_change_of_names_has_the_kernel_forget_what_other_threads_were_told() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    let notices = || fixture.session().observer().requests().notifications;
    let make = |name: &str| drop(fs::File::create(fixture.at(name)).unwrap());
    make("dir/first");
    let before = notices();
    make("dir/second");
    assert_eq!(notices(), before, "no other thread knows the directory");
    let ask = || fs::metadata(fixture.at("dir")).unwrap();
    std::thread::scope(|scope| scope.spawn(ask).join().unwrap());
    make("dir/third");
    assert!(notices() > before, "its attributes");
    let before = notices();
    make("dir/fourth");
    assert_eq!(notices(), before, "they were dropped");
    assert_eq!(fs::read_dir(&fixture.mount).unwrap().count(), 1);
    make("dir/fifth");
    assert!(notices() > before, "its attributes as a listing of its parent has them");
}

fn space_is_that_of_home() {
    let fixture = Fixture::new();
    let mount = rustix::fs::statvfs(&fixture.mount).unwrap();
    let home = rustix::fs::statvfs(&fixture.source).unwrap();
    assert_eq!((mount.f_blocks, mount.f_files), (home.f_blocks, home.f_files));
    assert_eq!((mount.f_bsize, mount.f_namemax), (home.f_bsize, home.f_namemax));
}
