//! Reading directories.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{OFlags, RawDir, SeekFrom, seek};

use crate::Test;
use crate::fixture::Fixture;

pub const TESTS: &[Test] = &[
    ("a_directory_may_change_while_it_is_read", a_directory_may_change_while_it_is_read),
    ("positions_can_be_gone_back_to", positions_can_be_gone_back_to),
    ("rewinding_shows_what_is_new", rewinding_shows_what_is_new),
    ("dot_entries_have_the_right_numbers", dot_entries_have_the_right_numbers),
    ("names_are_listed_without_search_permission", names_are_listed_without_search_permission),
    ("a_listing_that_is_kept_is_never_an_old_one", a_listing_that_is_kept_is_never_an_old_one),
    ("a_directorys_sync_is_not_its_files", a_directorys_sync_is_not_its_files),
];

fn open_directory(path: &std::path::Path) -> rustix::fd::OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
}

/// Up to `max` entries with the positions after them, in small pieces so that a listing takes
/// many requests.
fn read(directory: &rustix::fd::OwnedFd, max: usize) -> Vec<(OsString, u64, u64)> {
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(directory, &mut buffer);
    let mut read = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        read.push((name, entry.next_entry_cookie(), entry.ino()));
        // What is left in the buffer would not be read again.
        if read.len() >= max && entries.is_buffer_empty() {
            break;
        }
    }
    read
}

fn a_directory_may_change_while_it_is_read() {
    let fixture = Fixture::new();
    let name = |kind: &str, number: u32| format!("{kind}-{number:04}-with-a-name-of-some-length");
    for number in 0..1_000 {
        fs::write(fixture.at(&name("stays", number)), b"").unwrap();
        fs::write(fixture.at(&name("goes", number)), b"").unwrap();
    }
    let directory = open_directory(&fixture.mount);
    let mut seen: Vec<OsString> = read(&directory, 300).into_iter().map(|entry| entry.0).collect();
    for number in 0..1_000 {
        fs::remove_file(fixture.at(&name("goes", number))).unwrap();
        fs::write(fixture.at(&name("comes", number)), b"").unwrap();
    }
    seen.extend(read(&directory, usize::MAX).into_iter().map(|entry| entry.0));
    let unique: BTreeSet<&OsString> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "an entry was listed twice");
    for number in 0..1_000 {
        assert!(unique.contains(&OsString::from(name("stays", number))), "{number} was not listed");
    }
}

fn positions_can_be_gone_back_to() {
    let fixture = Fixture::new();
    for number in 0..500 {
        fs::write(fixture.at(&format!("file-{number}")), b"").unwrap();
    }
    let directory = open_directory(&fixture.mount);
    let all = read(&directory, usize::MAX);
    assert_eq!(all.len(), 502);
    for index in [0, 1, 77, 300, 500] {
        seek(&directory, SeekFrom::Start(all[index].1)).unwrap();
        assert_eq!(read(&directory, usize::MAX), all[index + 1..]);
    }
    seek(&directory, SeekFrom::Start(0)).unwrap();
    let some = read(&directory, 3);
    assert_eq!(some, all[..some.len()]);
}

fn rewinding_shows_what_is_new() {
    let fixture = Fixture::new();
    fs::write(fixture.at("old"), b"").unwrap();
    let directory = open_directory(&fixture.mount);
    assert_eq!(read(&directory, usize::MAX).len(), 3);
    fs::write(fixture.at("new"), b"").unwrap();
    fs::write(fixture.home("underneath"), b"").unwrap();
    seek(&directory, SeekFrom::Start(0)).unwrap();
    assert_eq!(read(&directory, usize::MAX).len(), 5);
}

fn dot_entries_have_the_right_numbers() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.at("a/b")).unwrap();
    let number = |name: &str| fs::metadata(fixture.at(name)).unwrap().ino();
    for (path, own, parent) in [(".", ".", "."), ("a", "a", "."), ("a/b", "a/b", "a")] {
        let entries = read(&open_directory(&fixture.at(path)), usize::MAX);
        let of = |name: &str| entries.iter().find(|entry| entry.0 == name).unwrap().2;
        assert_eq!((of("."), of("..")), (number(own), number(parent)), "{path}");
    }
}

fn names_are_listed_without_search_permission() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::write(fixture.at("dir/inside"), b"").unwrap();
    fs::set_permissions(fixture.at("dir"), fs::Permissions::from_mode(0o744)).unwrap();
    assert!(fixture.stranger("ls -f dir | grep -qx inside"));
    assert!(!fixture.stranger("cat dir/inside 2>/dev/null"));
}

fn a_listing_that_is_kept_is_never_an_old_one() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    let names = || -> BTreeSet<_> {
        fs::read_dir(fixture.at("dir")).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let set = |names: &[&str]| names.iter().map(OsString::from).collect::<BTreeSet<_>>();
    // Long enough for listings to be kept; the second is a kept one.
    let settle = || {
        std::thread::sleep(Duration::from_millis(2100));
        (names(), names())
    };
    fs::write(fixture.at("dir/one"), b"").unwrap();
    assert_eq!(settle(), (set(&["one"]), set(&["one"])));
    fs::rename(fixture.at("dir/one"), fixture.at("dir/two")).unwrap();
    assert_eq!(names(), set(&["two"]));
    assert_eq!(settle(), (set(&["two"]), set(&["two"])));
    // By somebody else, at home, who leaves no trace in the modification time.
    let home = fs::File::open(fixture.home("dir")).unwrap();
    let before = home.metadata().unwrap().modified().unwrap();
    fs::write(fixture.home("dir/three"), b"").unwrap();
    home.set_modified(before).unwrap();
    assert_eq!(names(), set(&["three", "two"]));
    assert_eq!(settle().1, set(&["three", "two"]));
    fs::remove_file(fixture.at("dir/two")).unwrap();
    fs::remove_file(fixture.at("dir/three")).unwrap();
    assert_eq!(names(), set(&[]));
}

fn a_directorys_sync_is_not_its_files() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::write(fixture.at("dir/file"), vec![3; 50_000]).unwrap();
    let dirty = fixture.shard.stats().dirty_pages;
    assert!(dirty > 0);
    fs::File::open(fixture.at("dir")).unwrap().sync_all().unwrap();
    fs::File::open(&fixture.mount).unwrap().sync_all().unwrap();
    assert_eq!(fixture.shard.stats().dirty_pages, dirty);
}
