//! Names: making, moving and removing them.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::Test;
use crate::fixture::{Fixture, errno, mount_memory, open, unmount_memory};

pub const TESTS: &[Test] = &[
    ("names_are_those_of_home", names_are_those_of_home),
    ("rename_replaces_exchanges_or_refuses", rename_replaces_exchanges_or_refuses),
    ("a_file_that_replaces_another_is_home", a_file_that_replaces_another_is_home),
    ("an_open_file_outlives_its_name", an_open_file_outlives_its_name),
    ("the_reserved_name_is_not_there", the_reserved_name_is_not_there),
    ("inode_numbers_are_stable", inode_numbers_are_stable),
    ("a_nested_mount_keeps_its_own_inodes", a_nested_mount_keeps_its_own_inodes),
    ("a_read_only_mount_refuses", a_read_only_mount_refuses),
    ("a_busy_mount_is_not_unmounted", a_busy_mount_is_not_unmounted),
    ("what_is_made_underneath_is_found", what_is_made_underneath_is_found),
];

fn names_are_those_of_home() {
    let mut fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::write(fixture.at("dir/file"), b"content").unwrap();
    fs::hard_link(fixture.at("dir/file"), fixture.at("link")).unwrap();
    symlink("dir/file", fixture.at("symlink")).unwrap();
    fs::hard_link(fixture.at("symlink"), fixture.at("symlink2")).unwrap();
    assert_eq!(fs::metadata(fixture.at("link")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(fixture.at("dir/file")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(fixture.at("symlink2")).unwrap().to_str(), Some("dir/file"));
    assert_eq!(fs::read(fixture.at("symlink")).unwrap(), b"content");
    assert_eq!(errno(fs::create_dir(fixture.at("dir"))), libc::EEXIST);
    assert_eq!(errno(fs::remove_dir(fixture.at("dir"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_file(fixture.at("none"))), libc::ENOENT);
    fs::remove_file(fixture.at("dir/file")).unwrap();
    assert_eq!(fs::metadata(fixture.at("link")).unwrap().nlink(), 1);
    fs::remove_dir(fixture.at("dir")).unwrap();
    let long = "x".repeat(256);
    assert_eq!(errno(fs::create_dir(fixture.at(&long))), libc::ENAMETOOLONG);
    fixture.unmount();
    assert_eq!(fs::read(fixture.home("link")).unwrap(), b"content");
    assert!(!fixture.home("dir").exists());
}

fn a_file_that_replaces_another_is_home() {
    let fixture = Fixture::new();
    fs::write(fixture.at("settings"), b"old").unwrap();
    fs::write(fixture.at("settings.new"), b"brand new").unwrap();
    assert_ne!(fs::read(fixture.home("settings.new")).unwrap(), b"brand new");
    fs::rename(fixture.at("settings.new"), fixture.at("settings")).unwrap();
    assert_eq!(fs::read(fixture.home("settings")).unwrap(), b"brand new");
    // Under a name that was free, data takes its time.
    fs::write(fixture.at("other"), b"x").unwrap();
    fs::rename(fixture.at("other"), fixture.at("another")).unwrap();
    assert_ne!(fs::read(fixture.home("another")).unwrap(), b"x");
}

fn rename_replaces_exchanges_or_refuses() {
    let fixture = Fixture::new();
    let rename = |from: &str, to: &str, flags| {
        let renamed = renameat_with(CWD, fixture.at(from), CWD, fixture.at(to), flags);
        errno(renamed.map_err(std::io::Error::from))
    };
    fs::write(fixture.at("a"), b"a").unwrap();
    fs::write(fixture.at("b"), b"b").unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), libc::EEXIST);
    assert_eq!(rename("a", "b", RenameFlags::EXCHANGE), 0);
    assert_eq!(fs::read(fixture.at("a")).unwrap(), b"b");
    assert_eq!(fs::read(fixture.at("b")).unwrap(), b"a");
    assert_eq!(rename("a", "b", RenameFlags::empty()), 0);
    assert_eq!(fs::read(fixture.at("b")).unwrap(), b"b");
    assert_eq!(errno(fs::metadata(fixture.at("a"))), libc::ENOENT);
    assert_eq!(rename("b", "c", RenameFlags::NOREPLACE), 0);
    assert_eq!(fs::read(fixture.at("c")).unwrap(), b"b");
    // Two names of one file: nothing is to be done, and nothing of the file may be lost.
    fs::write(fixture.at("c"), b"b").unwrap();
    assert_eq!(fs::read(fixture.home("c")).unwrap().len(), 0, "not home yet");
    fs::hard_link(fixture.at("c"), fixture.at("d")).unwrap();
    assert_eq!(rename("c", "d", RenameFlags::empty()), 0);
    assert_eq!(fs::read(fixture.at("c")).unwrap(), b"b");
    fixture.sync();
    assert_eq!(fs::read(fixture.home("d")).unwrap(), b"b");
}

fn an_open_file_outlives_its_name() {
    let fixture = Fixture::new();
    let mut file = open(&fixture.at("gone"));
    std::io::Write::write_all(&mut file, b"still here").unwrap();
    fs::remove_file(fixture.at("gone")).unwrap();
    let status = file.metadata().unwrap();
    assert_eq!((status.nlink(), status.size()), (0, 10));
    assert_eq!(crate::fixture::read_at(&file, 0, 100), b"still here");
    std::io::Write::write_all(&mut file, b" and written").unwrap();
    assert_eq!(crate::fixture::read_at(&file, 6, 100), b"here and written");
    file.sync_all().unwrap();
    drop(file);
    fs::write(fixture.at("temporary"), vec![7; 100_000]).unwrap();
    fs::remove_file(fixture.at("temporary")).unwrap();
    // The kernel forgets in its own time.
    let begun = Instant::now();
    while fixture.shard.stats().files != 0 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let stats = fixture.shard.stats();
    assert_eq!((stats.files, stats.dirty_pages), (0, 0));
}

fn the_reserved_name_is_not_there() {
    let prepare = |source: &std::path::Path| {
        fs::create_dir(source.join(".weir")).unwrap();
        fs::write(source.join(".weir/lock"), b"").unwrap();
    };
    let fixture = Fixture::with(prepare, |_| {});
    fs::create_dir(fixture.at("dir")).unwrap();
    assert_eq!(errno(fs::metadata(fixture.at(".weir"))), libc::ENOENT);
    assert_eq!(errno(fs::read(fixture.at(".weir/lock"))), libc::ENOENT);
    assert_eq!(errno(fs::create_dir(fixture.at(".weir"))), libc::EPERM);
    assert_eq!(errno(fs::write(fixture.at(".weir"), b"")), libc::EPERM);
    assert_eq!(errno(symlink("x", fixture.at(".weir"))), libc::EPERM);
    assert_eq!(errno(fs::rename(fixture.at("dir"), fixture.at(".weir"))), libc::EPERM);
    assert_eq!(errno(fs::rename(fixture.at(".weir"), fixture.at("x"))), libc::ENOENT);
    assert_eq!(errno(fs::remove_dir(fixture.at(".weir"))), libc::ENOENT);
    let names: Vec<_> =
        fs::read_dir(&fixture.mount).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["dir"]);
    // It is reserved at the root alone.
    fs::write(fixture.at("dir/.weir"), b"mine").unwrap();
    assert_eq!(fs::read(fixture.at("dir/.weir")).unwrap(), b"mine");
    assert!(fixture.home(".weir/lock").exists());
}

fn inode_numbers_are_stable() {
    let fixture = Fixture::new();
    fs::write(fixture.at("file"), b"x").unwrap();
    fs::create_dir(fixture.at("dir")).unwrap();
    let numbers =
        || ["file", "dir", "."].map(|name| fs::symlink_metadata(fixture.at(name)).unwrap().ino());
    let before = numbers();
    fixture.sync();
    // Dentries and inodes.
    let _ = fs::write("/proc/sys/vm/drop_caches", b"2");
    assert_eq!(numbers(), before);
    assert_eq!(fs::metadata(fixture.home("file")).unwrap().ino(), before[0]);
    let listed = fs::read_dir(&fixture.mount).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let number = std::os::unix::fs::DirEntryExt::ino(&entry);
        (entry.file_name().into_string().unwrap(), number)
    });
    let mut listed: Vec<_> = listed.collect();
    listed.sort();
    assert_eq!(listed, [("dir".to_owned(), before[1]), ("file".to_owned(), before[0])]);
}

fn a_nested_mount_keeps_its_own_inodes() {
    let fixture = Fixture::with(
        |source| {
            for name in ["one", "two"] {
                fs::create_dir(source.join(name)).unwrap();
                mount_memory(&source.join(name), 1 << 20);
            }
        },
        |_| {},
    );
    fs::write(fixture.at("one/file"), b"first").unwrap();
    fs::write(fixture.at("two/file"), b"second").unwrap();
    fs::write(fixture.at("file"), b"own").unwrap();
    let number = |name: &str| fs::metadata(fixture.at(name)).unwrap().ino();
    let home = |name: &str| fs::metadata(fixture.home(name)).unwrap().ino();
    assert_eq!(home("one/file"), home("two/file"), "both are fresh");
    assert_ne!(number("one/file"), number("two/file"));
    assert_ne!(number("one"), number("two"));
    assert_eq!(fs::read(fixture.at("one/file")).unwrap(), b"first");
    assert_eq!(fs::read(fixture.at("two/file")).unwrap(), b"second");
    assert_eq!(errno(fs::rename(fixture.at("one/file"), fixture.at("two/x"))), libc::EXDEV);
    assert_eq!(errno(fs::hard_link(fixture.at("file"), fixture.at("one/x"))), libc::EXDEV);
    fixture.sync();
    assert_eq!(fs::read(fixture.home("one/file")).unwrap(), b"first");
    let places = [fixture.home("one"), fixture.home("two")];
    drop(fixture);
    for place in places {
        unmount_memory(&place);
        fs::remove_dir_all(place.parent().unwrap().parent().unwrap()).ok();
    }
}

fn a_read_only_mount_refuses() {
    let prepare = |source: &std::path::Path| fs::write(source.join("file"), b"x").unwrap();
    let fixture = Fixture::with(prepare, |options| options.read_only = true);
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"x");
    assert_eq!(errno(fs::write(fixture.at("file"), b"y")), libc::EROFS);
    assert_eq!(errno(fs::create_dir(fixture.at("dir"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(fixture.at("file"))), libc::EROFS);
}

fn a_busy_mount_is_not_unmounted() {
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    let error = rustix::mount::unmount(&fixture.mount, rustix::mount::UnmountFlags::empty());
    assert_eq!(error, Err(rustix::io::Errno::BUSY));
    drop(file);
    let mut fixture = fixture;
    fixture.unmount();
}

fn what_is_made_underneath_is_found() {
    let fixture = Fixture::new();
    assert_eq!(errno(fs::metadata(fixture.at("late"))), libc::ENOENT);
    fs::write(fixture.home("late"), b"made underneath").unwrap();
    // The kernel was told for how long there is none.
    let told = Instant::now();
    while errno(fs::metadata(fixture.at("late"))) == libc::ENOENT {
        assert!(told.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fs::read(fixture.at("late")).unwrap(), b"made underneath");
}
