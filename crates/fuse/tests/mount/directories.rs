//! Reading directories.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    ("directories_are_listed_without_being_opened", directories_are_listed_without_being_opened),
    ("without_timeouts_nothing_is_kept", without_timeouts_nothing_is_kept),
    ("many_threads_list_a_directory_that_changes", many_threads_list_a_directory_that_changes),
    ("a_listing_is_not_continued_by_an_older_one", a_listing_is_not_continued_by_an_older_one),
    ("a_directorys_sync_is_not_its_files", a_directorys_sync_is_not_its_files),
];

pub fn open_directory(path: &std::path::Path) -> rustix::fd::OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
}

/// Up to `max` entries with the positions after them, in small pieces so that a listing takes
/// many requests.
pub fn read(directory: &rustix::fd::OwnedFd, max: usize) -> Vec<(OsString, u64, u64)> {
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

pub fn names_in(directory: &std::path::Path) -> BTreeSet<OsString> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

pub fn set(names: &[&str]) -> BTreeSet<OsString> {
    names.iter().map(OsString::from).collect()
}

/// Waits until a listing shows these names, and says how long that took.
pub fn shows(directory: &std::path::Path, names: &[&str]) -> Duration {
    let begin = Instant::now();
    while names_in(directory) != set(names) {
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", names_in(directory));
        std::thread::sleep(Duration::from_millis(20));
    }
    begin.elapsed()
}

/// How many requests of a kind the kernel has sent.
fn requests(fixture: &Fixture, name: &str) -> u64 {
    let counts = fixture.session().observer().requests();
    counts.by_name.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count)
}

fn a_listing_that_is_kept_is_never_an_old_one() {
    let timeout = Duration::from_secs(3);
    let fixture = Fixture::with(
        |_| {},
        |options| {
            options.entry_timeout = timeout;
            options.attr_timeout = Duration::from_millis(300);
        },
    );
    let directory = fixture.at("dir");
    fs::create_dir(&directory).unwrap();
    // Long enough for listings to be kept for as long as names.
    let settle = || std::thread::sleep(Duration::from_millis(2100));
    fs::write(fixture.at("dir/one"), b"").unwrap();
    assert_eq!(names_in(&directory), set(&["one"]));
    settle();
    assert_eq!(names_in(&directory), set(&["one"]));
    // What the kernel changes shows at once.
    fs::rename(fixture.at("dir/one"), fixture.at("dir/two")).unwrap();
    assert_eq!(names_in(&directory), set(&["two"]));
    settle();
    assert_eq!(names_in(&directory), set(&["two"]));
    // Somebody else, at home: shows with the new modification time.
    fs::write(fixture.home("dir/three"), b"").unwrap();
    assert!(shows(&directory, &["two", "three"]) < Duration::from_secs(2));
    settle();
    assert_eq!(names_in(&directory), set(&["two", "three"]));
    // Without a trace in the modification time it shows when names expire.
    let home = fs::File::open(fixture.home("dir")).unwrap();
    let before = home.metadata().unwrap().modified().unwrap();
    fs::remove_file(fixture.home("dir/three")).unwrap();
    home.set_modified(before).unwrap();
    assert!(shows(&directory, &["two"]) < timeout + Duration::from_secs(2));
    fs::remove_file(fixture.at("dir/two")).unwrap();
    assert_eq!(names_in(&directory), set(&[]));
}

fn directories_are_listed_without_being_opened() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::write(fixture.at("dir/file"), b"").unwrap();
    names_in(&fixture.at("dir"));
    // The end of a listing may be asked for without attributes.
    let listings = || requests(&fixture, "readdirplus") + requests(&fixture, "readdir");
    let (opened, listed) = (requests(&fixture, "opendir"), listings());
    assert!(opened <= 1 && listed > 0);
    for _ in 0..10 {
        assert_eq!(names_in(&fixture.at("dir")), set(&["file"]));
    }
    assert_eq!(requests(&fixture, "opendir"), opened);
    assert_eq!(listings(), listed, "the kernel has kept the listing");
    assert_eq!(requests(&fixture, "releasedir"), 0);
    // Descriptors of directories are as good as ever.
    let directory = open_directory(&fixture.at("dir"));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(&directory, "file", flags, rustix::fs::Mode::empty()).unwrap();
    rustix::fs::fsync(&directory).unwrap();
    fs::rename(fixture.at("dir"), fixture.at("moved")).unwrap();
    assert_eq!(read(&directory, usize::MAX).len(), 3);
    fs::remove_file(fixture.at("moved/file")).unwrap();
    fs::remove_dir(fixture.at("moved")).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(&directory, &mut buffer);
    assert_eq!(entries.next().unwrap().unwrap_err(), rustix::io::Errno::NOENT, "as anywhere");
}

fn without_timeouts_nothing_is_kept() {
    let fixture = Fixture::with(
        |_| {},
        |options| {
            options.entry_timeout = Duration::ZERO;
            options.attr_timeout = Duration::ZERO;
        },
    );
    fs::create_dir(fixture.at("dir")).unwrap();
    for name in ["one", "two", "three"] {
        names_in(&fixture.at("dir"));
        fs::write(fixture.home("dir").join(name), b"").unwrap();
        assert!(names_in(&fixture.at("dir")).contains(&OsString::from(name)));
    }
}

/// The kernel has a part of an old listing, which another listing completes. One that began in between continues in it.
fn a_listing_is_not_continued_by_an_older_one() {
    const FILES: usize = 40;
    let fixture = Fixture::new();
    for turn in ["made", "linked", "renamed", "made-as-a-directory"] {
        let directory = fixture.at(turn);
        fs::create_dir(&directory).unwrap();
        for number in 0..FILES {
            fs::write(directory.join(format!("old-{number}")), b"").unwrap();
            fs::write(fixture.at(&format!("{turn}-{number}")), b"").unwrap();
        }
        let name = |number: usize| directory.join(format!("new-{number}"));
        let unfinished = open_directory(&directory);
        assert!(read(&unfinished, 30).len() < FILES);
        for number in 0..FILES {
            let other = fixture.at(&format!("{turn}-{number}"));
            match turn {
                "made" => fs::write(name(number), b"").unwrap(),
                "linked" => fs::hard_link(other, name(number)).unwrap(),
                "renamed" => fs::rename(other, name(number)).unwrap(),
                _ => fs::create_dir(name(number)).unwrap(),
            }
        }
        let listed = open_directory(&directory);
        let mut seen = read(&listed, 1);
        let all = names_in(&directory);
        assert_eq!(all.len(), 2 * FILES, "{turn}");
        seen.extend(read(&listed, usize::MAX));
        let unique: BTreeSet<OsString> = seen.iter().map(|entry| entry.0.clone()).collect();
        assert_eq!(unique.len(), seen.len(), "{turn}: an entry was listed twice");
        let missing: Vec<_> = all.difference(&unique).collect();
        assert!(missing.is_empty(), "{turn}: {missing:?} not listed");
    }
}

fn many_threads_list_a_directory_that_changes() {
    let fixture = Fixture::new();
    let directory = fixture.at("dir");
    fs::create_dir(&directory).unwrap();
    let stay: BTreeSet<OsString> =
        (0..400).map(|number| format!("stays-{number}-{}", "x".repeat(40)).into()).collect();
    for name in &stay {
        fs::write(directory.join(name), b"").unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            for turn in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                fs::write(directory.join(format!("comes-{turn}")), b"").unwrap();
                if turn >= 5 {
                    fs::remove_file(directory.join(format!("comes-{}", turn - 5))).unwrap();
                }
            }
        });
        let listers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..15 {
                        // Half read and given up.
                        read(&open_directory(&directory), 100);
                        let opened = open_directory(&directory);
                        let mut names: Vec<OsString> = Vec::new();
                        loop {
                            let piece = read(&opened, 100);
                            if piece.is_empty() {
                                break;
                            }
                            names.extend(piece.into_iter().map(|entry| entry.0));
                        }
                        let unique: BTreeSet<OsString> = names.iter().cloned().collect();
                        assert_eq!(unique.len(), names.len(), "an entry was listed twice");
                        let missing = stay.difference(&unique).count();
                        assert_eq!(missing, 0, "names that stay were not listed");
                    }
                })
            })
            .collect();
        let listed: Vec<_> = listers.into_iter().map(|lister| lister.join()).collect();
        over.store(true, Ordering::Relaxed);
        changer.join().unwrap();
        assert!(listed.iter().all(Result::is_ok));
    });
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
