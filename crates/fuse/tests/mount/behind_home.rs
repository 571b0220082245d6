//! Names that do not wait for home, where home or others stand in the way: what becomes of changes that home refuses or
//! that somebody else made impossible, which calls wait for home, and what others made there.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    FallocateFlags, RenameFlags, SeekFrom, XattrFlags, fallocate, getxattr, listxattr, seek,
    setxattr,
};

use crate::Test;
use crate::attributes::default_acl;
use crate::behind::{
    Act, Held, Refuses, bring_home, bring_names_home, eventually, make_fifo, mounted, mounted_with,
    rename_with, seen, sync_directory,
};
use crate::directories::{names_in, set, shows};
use crate::faults::set_immutable;
use crate::fixture::{errno, mount_memory, open, unmount_memory};

pub const TESTS: &[Test] = &[
    ("behind_what_others_made_stays", what_others_made_stays),
    ("behind_what_others_replaced_is_not_removed", what_others_replaced_is_not_removed),
    ("behind_a_directory_with_others_files_comes_back", a_directory_with_others_files_comes_back),
    ("behind_what_home_refuses_is_kept", what_home_refuses_is_kept),
    ("behind_calls_that_need_home_wait_for_it", calls_that_need_home_wait_for_it),
    ("behind_special_directories_do_not_wait", special_directories_do_not_wait),
    ("behind_a_large_directory_is_asked_at_home", a_large_directory_is_asked_at_home),
    ("behind_what_others_made_is_found", what_others_made_is_found),
    ("behind_unmount_brings_everything_home", unmount_brings_everything_home),
];

fn what_others_made_stays() {
    let mut fixture =
        mounted_with(|_| {}, |options| options.entry_timeout = Duration::from_secs(600));
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::write(fixture.at("dir/moves"), b"moved").unwrap();
    bring_home(&fixture);
    let at = |name: &str| fixture.at("dir").join(name);
    let theirs = |name: &str| fixture.home("dir").join(name);
    for name in ["file", "dir", "link", "moved"] {
        fs::write(theirs(name), b"theirs").unwrap();
    }
    fs::create_dir(theirs("over")).unwrap();
    fs::write(theirs("over/file"), b"theirs").unwrap();
    fs::write(at("file"), b"ours").unwrap();
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("dir/inside"), b"ours").unwrap();
    symlink("ours", at("link")).unwrap();
    fs::rename(at("moves"), at("moved")).unwrap();
    fs::write(at("over"), b"ours").unwrap();
    bring_home(&fixture);
    let (count, last) = fixture.session().observer().names_taken();
    assert_eq!((count, last.len()), (5, 5));
    assert_eq!(
        last.into_iter().collect::<BTreeSet<_>>(),
        ["dir", "file", "link", "moved", "over"].map(|name| format!("dir/{name}")).into()
    );
    fixture.unmount();
    let expected = [
        "dir 1 theirs",
        "dir.weir-conflict-1/ 2",
        "dir.weir-conflict-1/inside 1 ours",
        "file 1 theirs",
        "file.weir-conflict-1 1 ours",
        "link 1 theirs",
        "link.weir-conflict-1 1 -> ours",
        "moved 1 theirs",
        "moved.weir-conflict-1 1 moved",
        "over/ 2",
        "over/file 1 theirs",
        "over.weir-conflict-1 1 ours",
    ];
    assert_eq!(seen(&fixture.home("dir")), expected);
}

fn what_others_replaced_is_not_removed() {
    let mut fixture =
        mounted_with(|_| {}, |options| options.entry_timeout = Duration::from_secs(600));
    for name in ["removed", "replaced", "kept"] {
        fs::write(fixture.at(name), b"ours").unwrap();
    }
    fs::write(fixture.at("new"), b"new").unwrap();
    bring_home(&fixture);
    for name in ["removed", "replaced"] {
        // A file of its own, and not the old one's number.
        fs::write(fixture.home("theirs"), b"theirs").unwrap();
        fs::rename(fixture.home("theirs"), fixture.home(name)).unwrap();
    }
    fs::remove_file(fixture.at("removed")).unwrap();
    fs::rename(fixture.at("new"), fixture.at("replaced")).unwrap();
    fs::remove_file(fixture.at("kept")).unwrap();
    bring_home(&fixture);
    let expected = ["removed 1 theirs", "replaced 1 theirs", "replaced.weir-conflict-1 1 new"];
    fixture.unmount();
    assert_eq!(seen(&fixture.source), expected);
}

fn a_directory_with_others_files_comes_back() {
    let mut fixture =
        mounted_with(|_| {}, |options| options.entry_timeout = Duration::from_secs(600));
    fs::create_dir_all(fixture.at("a/b")).unwrap();
    fs::write(fixture.at("a/b/ours"), b"ours").unwrap();
    bring_home(&fixture);
    assert_eq!(seen(&fixture.at("a")), ["b/ 2", "b/ours 1 ours"]);
    fs::write(fixture.home("a/b/theirs"), b"theirs").unwrap();
    let opened = ["a", "a/b"].map(|name| File::open(fixture.at(name)).unwrap());
    let links = || opened.each_ref().map(|directory| directory.metadata().unwrap().nlink());
    let before = links();
    fs::remove_dir_all(fixture.at("a")).unwrap();
    assert_eq!(seen(&fixture.mount), Vec::<String>::new());
    bring_home(&fixture);
    eventually(|| match links() == before {
        true => Ok(()),
        false => Err(std::io::Error::other(format!("{:?} links, not {before:?}", links()))),
    });
    // For the kernel a directory that was removed is dead while it is open.
    drop(opened);
    eventually(|| fs::metadata(fixture.at("a/b/theirs")).map(drop));
    assert_eq!(names_in(&fixture.at("a")), set(&["b"]));
    assert_eq!(names_in(&fixture.at("a/b")), set(&["theirs"]));
    assert_eq!(fs::read(fixture.at("a/b/theirs")).unwrap(), b"theirs");
    // It can be removed as any other.
    fs::remove_dir_all(fixture.at("a")).unwrap();
    fixture.unmount();
    assert!(!fixture.home("a").exists());
}

fn what_home_refuses_is_kept() {
    let mut fixture = mounted();
    fs::create_dir(fixture.at("dir")).unwrap();
    let at = |name: &str| fixture.at("dir").join(name);
    for name in ["old", "renamed", "mode"] {
        fs::write(at(name), name).unwrap();
    }
    bring_home(&fixture);
    let Some(refuses) = Refuses::new(&fixture, "dir") else { return };
    assert!(set_immutable(&fixture.home("dir/mode"), true));
    let file = open(&at("new"));
    file.write_all_at(b"content", 0).unwrap();
    fs::remove_file(at("old")).unwrap();
    fs::rename(at("renamed"), at("renamed2")).unwrap();
    fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    let directory = File::open(at("")).unwrap();
    let mode = File::open(at("mode")).unwrap();
    for _ in 0..3 {
        // Told to each, as long as it is so.
        assert_eq!(errno(directory.sync_all()), libc::EPERM);
        assert_eq!(errno(file.sync_all()), libc::EPERM);
        assert_eq!(errno(mode.sync_all()), libc::EPERM);
    }
    let observer = fixture.session().observer();
    assert!(bring_names_home(&fixture).is_err(), "a sync of everything is told, too");
    let mut refused = observer.names_refused(10);
    refused.sort();
    let names: Vec<&str> =
        refused.iter().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert!(names.contains(&"dir/new") && names.contains(&"dir/mode"), "{refused:?}");
    assert_eq!(observer.names_refused(1).len(), 1);
    let (dirty, refused) = observer.names_pending().unwrap();
    assert!(dirty >= refused && refused >= 3, "{dirty} {refused}");
    // Programs go on, and other directories are not concerned.
    let expected = ["mode 1 mode", "new 1 content", "renamed2 1 renamed"];
    assert_eq!(seen(&at("")), expected);
    assert_eq!(fs::metadata(at("mode")).unwrap().mode() & 0o7777, 0o600);
    fs::create_dir(fixture.at("other")).unwrap();
    sync_directory(&fixture.at("other")).unwrap();
    assert!(fixture.home("other").exists());
    assert_eq!(seen(&fixture.home("dir")), ["mode 1 mode", "old 1 old", "renamed 1 renamed"]);
    drop(refuses);
    assert!(set_immutable(&fixture.home("dir/mode"), false));
    bring_names_home(&fixture).expect("a sync of everything tries again at once");
    directory.sync_all().unwrap();
    mode.sync_all().unwrap();
    assert_eq!(fs::metadata(fixture.home("dir/mode")).unwrap().mode() & 0o7777, 0o600);
    file.sync_all().unwrap();
    assert_eq!(seen(&fixture.home("dir")), expected);
    assert_eq!((observer.names_pending(), observer.names_refused(10)), (Some((0, 0)), vec![]));
    drop((file, directory, mode));
    fixture.unmount();
    assert_eq!(seen(&fixture.home("dir")), expected);
}

fn calls_that_need_home_wait_for_it() {
    let fixture = mounted();
    let calls: [(&str, Act<File>); 3] = [
        ("setxattr", &|file| {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
            setxattr(path, "user.x", b"value", XattrFlags::empty()).unwrap();
        }),
        ("fallocate", &|file| fallocate(file, FallocateFlags::empty(), 0, 7).unwrap()),
        ("SEEK_HOLE", &|file| {
            file.write_all_at(b"content", 0).unwrap();
            assert_eq!(seek(file, SeekFrom::Hole(0)), Ok(7));
        }),
    ];
    for (name, call) in calls {
        let file = open(&fixture.at(name));
        call(&file);
        assert!(fixture.home(name).exists(), "{name}");
        assert_eq!(file.metadata().unwrap().nlink(), 1, "{name}");
    }
    let mut value = [0; 16];
    assert_eq!(getxattr(fixture.home("setxattr"), "user.x", &mut value), Ok(5));
    // Set-group-ID is asked for.
    let options = File::options().write(true).create_new(true).mode(0o2755).clone();
    options.open(fixture.at("setgid")).unwrap();
    assert_eq!(fs::metadata(fixture.home("setgid")).unwrap().mode() & 0o7777, 0o2755);
    // They fail if home refuses the file.
    let Some(held) = Held::new(&fixture) else { return };
    let file = open(&held.at("file"));
    let set = |path: PathBuf| setxattr(path, "user.x", b"value", XattrFlags::empty());
    assert_eq!(set(held.at("file")), Err(rustix::io::Errno::PERM));
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 7), Err(rustix::io::Errno::PERM));
    assert_eq!(listxattr(held.at("file"), &mut [0; 16]), Ok(0));
    let missing = Err(rustix::io::Errno::NODATA);
    assert_eq!(getxattr(held.at("file"), "user.x", &mut value), missing);
    held.release();
    assert_eq!(set(fixture.at("released/file")), Ok(()));
    fallocate(&file, FallocateFlags::empty(), 0, 7).unwrap();
    assert_eq!(getxattr(fixture.home("released/file"), "user.x", &mut value), Ok(5));
}

/// Makes, changes, renames and removes names. Home has each change when the call returns.
fn check_at_once(at: &Path, home: &Path) {
    fs::create_dir(at.join("dir")).unwrap();
    assert!(home.join("dir").exists());
    File::create(at.join("file")).unwrap();
    assert_eq!(seen(home), ["dir/ 2", "file 1 "]);
    make_fifo(&at.join("dir/fifo"));
    symlink("x", at.join("link")).unwrap();
    fs::hard_link(at.join("file"), at.join("second")).unwrap();
    let expected = ["dir/ 2", "dir/fifo 1 fifo", "file 2 ", "link 1 -> x", "second 2 "];
    assert_eq!((seen(home), seen(at)), (expected.map(String::from).to_vec(), seen(home)));
    rename_with(at.join("dir/fifo"), at.join("link"), RenameFlags::EXCHANGE).unwrap();
    fs::rename(at.join("file"), at.join("moved")).unwrap();
    fs::remove_file(at.join("second")).unwrap();
    let expected = ["dir/ 2", "dir/fifo 1 -> x", "link 1 fifo", "moved 1 "];
    assert_eq!((seen(home), seen(at)), (expected.map(String::from).to_vec(), seen(home)));
    assert_eq!(errno(fs::remove_dir(at.join("dir"))), libc::ENOTEMPTY);
    fs::remove_file(at.join("dir/fifo")).unwrap();
    fs::remove_dir(at.join("dir")).unwrap();
    assert_eq!(seen(home), ["link 1 fifo", "moved 1 "]);
}

fn special_directories_do_not_wait() {
    // Of another file system, and of one with little room.
    let small = std::env::temp_dir().join(format!("weir-small-{}", std::process::id()));
    fs::create_dir_all(&small).unwrap();
    mount_memory(&small, 1 << 20);
    let fixture =
        mounted_with(|_| {}, |options| options.source = File::open(&small).unwrap().into());
    check_at_once(&fixture.mount, &small);
    drop(fixture);
    unmount_memory(&small);
    fs::remove_dir(&small).unwrap();

    let prepare = |source: &Path| {
        fs::create_dir(source.join("nested")).unwrap();
        mount_memory(&source.join("nested"), 1 << 20);
    };
    let fixture = mounted_with(prepare, |_| {});
    fs::write(fixture.at("file"), b"x").unwrap();
    for (from, to) in [("file", "nested/file"), ("nested", "moved")] {
        let renamed = errno(fs::rename(fixture.at(from), fixture.at(to)));
        assert!([libc::EXDEV, libc::EBUSY].contains(&renamed), "{renamed}");
    }
    let linked = fs::hard_link(fixture.at("file"), fixture.at("nested/link"));
    assert_eq!(errno(linked), libc::EXDEV);
    check_at_once(&fixture.at("nested"), &fixture.home("nested"));
    chown(fixture.at("nested/moved"), Some(12), Some(34)).unwrap();
    assert_eq!(fs::metadata(fixture.home("nested/moved")).unwrap().uid(), 12);
    let place = fixture.home("nested");
    drop(fixture);
    unmount_memory(&place);
    fs::remove_dir_all(place.ancestors().nth(2).unwrap()).unwrap();

    // With a default ACL, which decides the permissions of what is made.
    let fixture = mounted();
    fs::create_dir(fixture.at("acl")).unwrap();
    let flags = XattrFlags::empty();
    let set = setxattr(fixture.at("acl"), "system.posix_acl_default", &default_acl(), flags);
    match set {
        Ok(()) => check_at_once(&fixture.at("acl"), &fixture.home("acl")),
        Err(error) => println!("    (not checked: no ACLs underneath: {error})"),
    }
}

fn a_large_directory_is_asked_at_home() {
    const FILES: usize = 4200;
    let prepare = |source: &Path| {
        for large in ["large", "full"] {
            fs::create_dir(source.join(large)).unwrap();
            for number in 0..FILES {
                File::create(source.join(large).join(number.to_string())).unwrap();
            }
        }
    };
    let mut fixture = mounted_with(prepare, |_| {});
    let at = |name: &str| fixture.at("large").join(name);
    assert_eq!(errno(File::create_new(at("17"))), libc::EEXIST);
    fs::write(at("new"), b"new").unwrap();
    fs::remove_file(at("1")).unwrap();
    fs::rename(at("2"), at("3")).unwrap();
    fs::rename(at("4"), at("renamed")).unwrap();
    assert_eq!(errno(fs::remove_file(at("1"))), libc::ENOENT);
    // Home alone knows whether it is empty.
    assert_eq!(errno(fs::remove_dir(fixture.at("full"))), libc::ENOTEMPTY);
    fs::create_dir(fixture.at("over")).unwrap();
    let renamed = fs::rename(fixture.at("over"), fixture.at("full"));
    assert_eq!(errno(renamed), libc::ENOTEMPTY);
    let names = names_in(&at(""));
    assert_eq!(names.len(), FILES - 1);
    assert!(names.contains("new".as_ref() as &std::ffi::OsStr));
    sync_directory(&at("")).unwrap();
    assert_eq!(names_in(&fixture.home("large")), names);
    fixture.unmount();
    assert_eq!(fs::read(fixture.home("large/new")).unwrap(), b"new");
}

fn what_others_made_is_found() {
    let second = Duration::from_secs(1);
    let fixture = mounted_with(
        |_| {},
        |options| (options.entry_timeout, options.attr_timeout) = (second, second),
    );
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::write(fixture.at("dir/own"), b"x").unwrap();
    sync_directory(&fixture.at("dir")).unwrap();
    fs::write(fixture.home("dir/theirs"), b"theirs").unwrap();
    eventually(|| fs::metadata(fixture.at("dir/theirs")).map(drop));
    shows(&fixture.at("dir"), &["own", "theirs"]);
    assert_eq!(fs::read(fixture.at("dir/theirs")).unwrap(), b"theirs");
    fs::remove_file(fixture.at("dir/theirs")).unwrap();
    fs::write(fixture.at("dir/new"), b"y").unwrap();
    bring_home(&fixture);
    assert_eq!(seen(&fixture.home("dir")), ["new 1 y", "own 1 x"]);
}

fn unmount_brings_everything_home() {
    let mut fixture = mounted();
    let mut expected = Vec::new();
    for number in 10..40 {
        let directory = format!("dir-{number}");
        fs::create_dir(fixture.at(&directory)).unwrap();
        expected.push(format!("{directory}/ 2"));
        for file in 0..9 {
            let name = format!("{directory}/file-{file}");
            fs::write(fixture.at(&name), &name).unwrap();
            expected.push(format!("{name} 1 {name}"));
        }
        symlink("x", fixture.at(&format!("{directory}/link"))).unwrap();
        expected.push(format!("{directory}/link 1 -> x"));
    }
    fixture.unmount();
    assert_eq!(seen(&fixture.source), expected);
}
