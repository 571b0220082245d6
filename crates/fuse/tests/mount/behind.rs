//! Names that do not wait for home (`--names behind`): what programs see before home has a change, what home has after a
//! sync, and what becomes of changes that home refuses or that somebody else made impossible.
//!
//! Home is as quick as the test. Where a test is about names that home does not have, they are [`Held`].

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    CWD, FallocateFlags, FileType, Mode, RenameFlags, SeekFrom, XattrFlags, fallocate, getxattr,
    listxattr, mknodat, renameat_with, seek, setxattr,
};
use weir_fuse::{Options, STATE};

use crate::Test;
use crate::attributes::{default_acl, set_times, time, times_of};
use crate::directories::{names_in, open_directory, read, set, shows};
use crate::faults::set_immutable;
use crate::fixture::{
    Fixture, STRANGER, errno, mount_memory, open, pattern, read_at, unmount_memory,
};

/// What a test does to a file or a path, one of several that it tries in turn.
type Act<'a, T> = &'a dyn Fn(&T);

pub const TESTS: &[Test] = &[
    ("behind_names_are_seen_before_home_has_them", names_are_seen_before_home_has_them),
    ("behind_calls_fail_as_anywhere", calls_fail_as_anywhere),
    ("behind_renames_of_what_home_lacks", renames_of_what_home_lacks),
    ("behind_renames_of_what_home_has", renames_of_what_home_has),
    ("behind_what_is_made_and_removed_stays_here", what_is_made_and_removed_stays_here),
    ("behind_names_that_home_has_are_removed", names_that_home_has_are_removed),
    ("behind_an_open_file_outlives_its_name", an_open_file_outlives_its_name),
    ("behind_a_file_may_have_many_names", a_file_may_have_many_names),
    ("behind_fsync_brings_names_home", fsync_brings_names_home),
    ("behind_attributes_follow", attributes_follow),
    ("behind_directory_times_follow", directory_times_follow),
    ("behind_new_files_belong_to_their_maker", new_files_belong_to_their_maker),
    ("behind_a_listing_may_be_read_in_pieces", a_listing_may_be_read_in_pieces),
    ("behind_data_comes_before_the_name_it_replaces", data_comes_before_the_name_it_replaces),
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

/// A mount whose SOURCE is prepared, with the directory that the daemon makes there.
fn mounted_with(prepare: impl FnOnce(&Path), adjust: impl FnOnce(&mut Options)) -> Fixture {
    let prepare = |source: &Path| {
        fs::create_dir(source.join(".weir")).unwrap();
        prepare(source);
    };
    let adjust = |options: &mut Options| {
        options.names_behind = true;
        adjust(options);
    };
    Fixture::with(prepare, adjust)
}

fn mounted() -> Fixture {
    mounted_with(|_| {}, |_| {})
}

/// Waits until home has all names, or has refused some.
fn bring_names_home(fixture: &Fixture) -> io::Result<()> {
    let (sender, receiver) = channel();
    fixture.session().observer().when_named(move |named| sender.send(named).unwrap());
    receiver.recv().unwrap()
}

/// Waits until home has all names and data.
fn bring_home(fixture: &Fixture) {
    bring_names_home(fixture).unwrap();
    fixture.sync();
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Waits until home does what it refused before.
fn eventually(what: impl Fn() -> io::Result<()>) {
    let begun = Instant::now();
    while let Err(error) = what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "still: {error}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn rename_with(from: PathBuf, to: PathBuf, flags: RenameFlags) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, flags)?)
}

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

/// All that is in a directory but `.weir`, each with its type, its links, and its content or target, in order.
fn seen(directory: &Path) -> Vec<String> {
    fn look(directory: &Path, prefix: &str, lines: &mut Vec<String>) {
        for name in names_in(directory).into_iter().filter(|name| name != ".weir") {
            let (path, name) = (directory.join(&name), name.to_str().unwrap().to_owned());
            let status = fs::symlink_metadata(&path).unwrap();
            let (kind, links) = (status.file_type(), status.nlink());
            let content = || String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            lines.push(match kind {
                _ if kind.is_dir() => format!("{prefix}{name}/ {links}"),
                _ if kind.is_fifo() => format!("{prefix}{name} {links} fifo"),
                _ if kind.is_symlink() => {
                    format!("{prefix}{name} {links} -> {}", fs::read_link(&path).unwrap().display())
                }
                _ => format!("{prefix}{name} {links} {}", content()),
            });
            if kind.is_dir() {
                look(&path, &format!("{prefix}{name}/"), lines);
            }
        }
    }
    let mut lines = Vec::new();
    look(directory, "", &mut lines);
    lines
}

/// A directory that home does not have, nor anything in it, before it is released: home refuses to change the directory
/// that it is in. It may be renamed from there to where home makes it.
struct Held<'a> {
    fixture: &'a Fixture,
    refuses: Refuses,
}

impl Held<'_> {
    /// `None` if home cannot be made to refuse anything.
    fn new(fixture: &Fixture) -> Option<Held<'_>> {
        fs::create_dir(fixture.at("held")).unwrap();
        let refuses = Refuses::new(fixture, "held")?;
        let held = Held { fixture, refuses };
        fs::create_dir(held.at("")).unwrap();
        Some(held)
    }

    /// A path in it.
    fn at(&self, name: &str) -> PathBuf {
        self.fixture.at("held/waits").join(name)
    }

    /// Lets home have it, and waits for that. Returns where home has it.
    fn release(self) -> PathBuf {
        assert_eq!(seen(&self.fixture.home("held")), Vec::<String>::new());
        fs::rename(self.at(""), self.fixture.at("released")).unwrap();
        bring_home(self.fixture);
        drop(self.refuses);
        self.fixture.home("released")
    }
}

/// A directory of SOURCE in which nothing can be changed, before this is dropped.
struct Refuses(PathBuf);

impl Refuses {
    /// `None` if home cannot be made to refuse anything.
    fn new(fixture: &Fixture, directory: &str) -> Option<Refuses> {
        // Changes in a directory that is found to be immutable would not go behind.
        sync_directory(&fixture.at(directory)).unwrap();
        File::create(fixture.at(directory).join("changed")).unwrap();
        fs::remove_file(fixture.at(directory).join("changed")).unwrap();
        bring_home(fixture);
        let path = fixture.home(directory);
        if !set_immutable(&path, true) {
            println!("    (not checked: the file system underneath knows no immutable files)");
            return None;
        }
        Some(Refuses(path))
    }
}

impl Drop for Refuses {
    fn drop(&mut self) {
        assert!(set_immutable(&self.0, false) || thread::panicking());
    }
}

fn names_are_seen_before_home_has_them() {
    let fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    fs::create_dir(held.at("dir")).unwrap();
    fs::create_dir(held.at("dir/dir")).unwrap();
    fs::write(held.at("dir/file"), b"content").unwrap();
    make_fifo(&held.at("fifo"));
    symlink("dir/file", held.at("link")).unwrap();
    fs::hard_link(held.at("dir/file"), held.at("second")).unwrap();
    assert_eq!(fs::metadata(held.at("")).unwrap().nlink(), 3);
    let expected =
        ["dir/ 3", "dir/dir/ 2", "dir/file 2 content", "fifo 1 fifo", "link 1 -> dir/file"];
    let expected = [&expected[..], &["second 2 content"]].concat();
    assert_eq!(seen(&held.at("")), expected);
    for name in ["dir", "dir/file"] {
        assert_eq!(getxattr(held.at(name), STATE, &mut [0; 8]), Ok("dirty".len()));
    }
    assert_eq!(fs::read(held.at("link")).unwrap(), b"content");
    // The same, changed.
    fs::remove_file(held.at("dir/file")).unwrap();
    fs::remove_dir(held.at("dir/dir")).unwrap();
    fs::rename(held.at("link"), held.at("dir/link")).unwrap();
    let expected = ["dir/ 2", "dir/link 1 -> dir/file", "fifo 1 fifo", "second 1 content"];
    assert_eq!(seen(&held.at("")), expected);
    assert_eq!(seen(&held.release()), expected);
}

/// What programs try, and the error that they get.
type Attempt = (&'static str, fn(&Path) -> io::Result<()>, i32);

const FAILING: &[Attempt] = &[
    ("mkdir, there is one", |at| fs::create_dir(at.join("full")), libc::EEXIST),
    ("mkdir, there is a file", |at| fs::create_dir(at.join("file")), libc::EEXIST),
    ("mkdir in nothing", |at| fs::create_dir(at.join("none/dir")), libc::ENOENT),
    ("create, there is one", |at| File::create_new(at.join("file")).map(drop), libc::EEXIST),
    ("symlink, there is a file", |at| symlink("x", at.join("file")), libc::EEXIST),
    ("link, there is a file", |at| fs::hard_link(at.join("fifo"), at.join("file")), libc::EEXIST),
    ("link to a directory", |at| fs::hard_link(at.join("full"), at.join("x")), libc::EPERM),
    ("rmdir, not empty", |at| fs::remove_dir(at.join("full")), libc::ENOTEMPTY),
    ("rmdir of a file", |at| fs::remove_dir(at.join("file")), libc::ENOTDIR),
    ("rmdir of nothing", |at| fs::remove_dir(at.join("none")), libc::ENOENT),
    ("unlink of a directory", |at| fs::remove_file(at.join("empty")), libc::EISDIR),
    ("unlink of nothing", |at| fs::remove_file(at.join("none")), libc::ENOENT),
    ("rename of nothing", |at| fs::rename(at.join("none"), at.join("x")), libc::ENOENT),
    ("directory over a file", |at| fs::rename(at.join("empty"), at.join("file")), libc::ENOTDIR),
    ("file over a directory", |at| fs::rename(at.join("file"), at.join("empty")), libc::EISDIR),
    ("over one not empty", |at| fs::rename(at.join("empty"), at.join("full")), libc::ENOTEMPTY),
    ("below itself", |at| fs::rename(at.join("full"), at.join("full/x")), libc::EINVAL),
    (
        "no replacing",
        |at| rename_with(at.join("fifo"), at.join("file"), RenameFlags::NOREPLACE),
        libc::EEXIST,
    ),
    (
        "exchange with nothing",
        |at| rename_with(at.join("file"), at.join("none"), RenameFlags::EXCHANGE),
        libc::ENOENT,
    ),
    (
        "exchange with what is below",
        |at| rename_with(at.join("full"), at.join("full/file"), RenameFlags::EXCHANGE),
        libc::EINVAL,
    ),
    ("a long name", |at| fs::create_dir(at.join("x".repeat(256))), libc::ENAMETOOLONG),
    (
        "rename to a long name",
        |at| fs::rename(at.join("file"), at.join("x".repeat(256))),
        libc::ENAMETOOLONG,
    ),
];

fn calls_fail_as_anywhere() {
    let fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    fs::create_dir(held.at("full")).unwrap();
    fs::create_dir(held.at("empty")).unwrap();
    fs::write(held.at("full/file"), b"x").unwrap();
    fs::write(held.at("file"), b"y").unwrap();
    make_fifo(&held.at("fifo"));
    let expected = ["empty/ 2", "fifo 1 fifo", "file 1 y", "full/ 2", "full/file 1 x"];
    let check = |at: &Path| {
        for (what, attempt, error) in FAILING {
            assert_eq!(errno(attempt(at)), *error, "{what}");
            assert_eq!(seen(at), expected, "{what}");
        }
    };
    check(&held.at(""));
    let home = held.release();
    check(&fixture.at("released"));
    bring_home(&fixture);
    assert_eq!(seen(&home), expected);
}

/// A file, two directories and a link; then everything about them is renamed.
fn make_to_rename(at: &Path) {
    for directory in ["full", "empty", "other"] {
        fs::create_dir(at.join(directory)).unwrap();
    }
    for name in ["one", "two", "three", "full/file"] {
        fs::write(at.join(name), name).unwrap();
    }
    symlink("x", at.join("link")).unwrap();
}

fn rename_everything(at: &Path) {
    let rename = |from: &str, to: &str, flags| rename_with(at.join(from), at.join(to), flags);
    let plain = |from: &str, to: &str| rename(from, to, RenameFlags::empty()).unwrap();
    let exchange = |one: &str, other: &str| rename(one, other, RenameFlags::EXCHANGE).unwrap();
    exchange("one", "two"); // one: two, two: one
    exchange("two", "full"); // two/file, full: one
    exchange("two/file", "link"); // link: full/file, two/file -> x
    rename("three", "new", RenameFlags::NOREPLACE).unwrap();
    plain("two", "empty"); // over an empty directory
    plain("one", "full"); // over a file
    fs::hard_link(at.join("new"), at.join("new2")).unwrap();
    plain("new", "new2"); // two names of one file
    plain("empty", "other/moved");
    // In a circle.
    fs::create_dir(at.join("empty")).unwrap();
    plain("other", "temporary");
    plain("empty", "other");
    plain("temporary", "empty");
}

const RENAMED: &[&str] = &[
    "empty/ 3",
    "empty/moved/ 2",
    "empty/moved/file 1 -> x",
    "full 1 two",
    "link 1 full/file",
    "new 2 three",
    "new2 2 three",
    "other/ 2",
];

fn renames_of_what_home_lacks() {
    let fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    make_to_rename(&held.at(""));
    rename_everything(&held.at(""));
    assert_eq!(seen(&held.at("")), RENAMED);
    assert_eq!(seen(&held.release()), RENAMED);
}

fn renames_of_what_home_has() {
    let fixture = mounted();
    fs::create_dir(fixture.at("dir")).unwrap();
    make_to_rename(&fixture.at("dir"));
    bring_home(&fixture);
    // All at once, or as quickly as home is.
    let Some(refuses) = Refuses::new(&fixture, "dir") else { return };
    let before = seen(&fixture.home("dir"));
    rename_everything(&fixture.at("dir"));
    assert_eq!(seen(&fixture.at("dir")), RENAMED);
    // Of what is in the directory itself home changes nothing.
    let unchanged = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().filter(|line| !line.starts_with("full/")).collect()
    };
    assert_eq!(unchanged(seen(&fixture.home("dir"))), unchanged(before));
    drop(refuses);
    eventually(|| sync_directory(&fixture.at("dir")));
    bring_home(&fixture);
    assert_eq!(seen(&fixture.home("dir")), RENAMED);
    assert_eq!(seen(&fixture.at("dir")), RENAMED);
    for turn in 0..20 {
        let of = |name| fixture.at(&format!("turn-{turn}-{name}"));
        fs::create_dir(of("dir")).unwrap();
        make_to_rename(&of("dir"));
        rename_everything(&of("dir"));
    }
    bring_home(&fixture);
    for turn in 0..20 {
        assert_eq!(seen(&fixture.home(&format!("turn-{turn}-dir"))), RENAMED);
    }
}

fn what_is_made_and_removed_stays_here() {
    let fixture = mounted();
    fs::create_dir(fixture.at("dir")).unwrap();
    let Some(refuses) = Refuses::new(&fixture, "dir") else { return };
    let at = |name: &str| fixture.at("dir").join(name);
    fs::write(at("file"), b"x").unwrap();
    fs::hard_link(at("file"), at("second")).unwrap();
    symlink("x", at("link")).unwrap();
    make_fifo(&at("fifo"));
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("sub/file"), b"y").unwrap();
    fs::rename(at("sub"), at("moved")).unwrap();
    let pending = || fixture.session().observer().names_pending().unwrap();
    assert_ne!(pending(), (0, 0));
    for name in ["second", "file", "link", "fifo", "moved/file"] {
        fs::remove_file(at(name)).unwrap();
    }
    fs::remove_dir(at("moved")).unwrap();
    // What home refused just before it was removed is looked at again later.
    eventually(|| bring_names_home(&fixture));
    sync_directory(&fixture.at("dir")).unwrap();
    assert_eq!(pending(), (0, 0));
    drop(refuses);
    assert_eq!((seen(&fixture.at("dir")), seen(&fixture.home("dir"))), (vec![], vec![]));
}

fn names_that_home_has_are_removed() {
    let mut fixture = mounted();
    make_to_rename(&fixture.mount);
    bring_home(&fixture);
    fs::remove_file(fixture.at("one")).unwrap();
    fs::remove_file(fixture.at("link")).unwrap();
    fs::remove_dir_all(fixture.at("full")).unwrap();
    fs::remove_dir(fixture.at("empty")).unwrap();
    fs::write(fixture.at("empty"), b"a file now").unwrap();
    fs::remove_file(fixture.at("two")).unwrap();
    fs::create_dir(fixture.at("two")).unwrap();
    let expected = ["empty 1 a file now", "other/ 2", "three 1 three", "two/ 2"];
    assert_eq!(seen(&fixture.mount), expected);
    sync_directory(&fixture.mount).unwrap();
    assert_eq!(names_in(&fixture.source), set(&[".weir", "empty", "other", "three", "two"]));
    fixture.unmount();
    assert_eq!(seen(&fixture.source), expected);
}

fn an_open_file_outlives_its_name() {
    let mut fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    let removed = |path: &Path| fs::remove_file(path).unwrap();
    let replaced = |path: &Path| {
        fs::write(path.with_extension("new"), b"new").unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    let home = |name: &str| {
        let path = fixture.at(name);
        File::create(&path).unwrap().sync_all().unwrap();
        path
    };
    let ways: [(PathBuf, Act<Path>); 4] = [
        (held.at("removed"), &removed),
        (held.at("replaced"), &replaced),
        (home("removed"), &removed),
        (home("replaced"), &replaced),
    ];
    for (path, lose) in ways {
        let mut file = open(&path);
        file.write_all(b"still here").unwrap();
        lose(&path);
        let status = file.metadata().unwrap();
        assert_eq!((status.nlink(), status.size()), (0, 10), "{path:?}");
        assert_eq!(read_at(&file, 0, 100), b"still here");
        file.write_all(b" and written").unwrap();
        file.sync_all().unwrap();
        assert_eq!(read_at(&file, 6, 100), b"here and written", "{path:?}");
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        let status = file.metadata().unwrap();
        assert_eq!((status.nlink(), status.mode() & 0o7777), (0, 0o600), "{path:?}");
        file.set_len(5).unwrap();
        assert_eq!(read_at(&file, 0, 100), b"still");
    }
    let expected = ["replaced 1 new"];
    assert_eq!(seen(&held.at("")), expected);
    assert_eq!(seen(&held.release()), expected);
    fixture.unmount();
    assert_eq!(names_in(&fixture.source), set(&[".weir", "held", "released", "replaced"]));
    assert_eq!(seen(&fixture.home(".weir/parked")), Vec::<String>::new());
}

fn a_file_may_have_many_names() {
    let fixture = mounted();
    fs::write(fixture.at("old"), b"old").unwrap();
    bring_home(&fixture);
    let Some(held) = Held::new(&fixture) else { return };
    fs::create_dir(held.at("dir")).unwrap();
    let file = open(&held.at("first"));
    for name in ["dir/second", "third", "dir/fourth"] {
        fs::hard_link(held.at("first"), held.at(name)).unwrap();
    }
    file.write_all_at(b"content", 0).unwrap();
    fs::hard_link(fixture.at("old"), held.at("of old")).unwrap();
    let number = file.metadata().unwrap().ino();
    assert_eq!(file.metadata().unwrap().nlink(), 4);
    assert_eq!(fs::metadata(fixture.at("old")).unwrap().nlink(), 2);
    fs::remove_file(held.at("first")).unwrap();
    fs::rename(held.at("dir/fourth"), held.at("fifth")).unwrap();
    let expected =
        ["dir/ 2", "dir/second 3 content", "fifth 3 content", "of old 2 old", "third 3 content"];
    assert_eq!(seen(&held.at("")), expected);
    assert_eq!(fs::metadata(held.at("fifth")).unwrap().ino(), number);
    let home = held.release();
    assert_eq!(seen(&home), expected);
    let at_home = |name| fs::metadata(home.join(name)).unwrap().ino();
    assert_eq!(at_home("third"), at_home("dir/second"));
    assert_eq!(at_home("of old"), fs::metadata(fixture.home("old")).unwrap().ino());
    // One that home has gets more, and loses all but the newest.
    fs::hard_link(fixture.at("released/third"), fixture.at("newest")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 4);
    fs::remove_dir_all(fixture.at("released")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    file.sync_all().unwrap();
    assert_eq!(fs::read(fixture.home("newest")).unwrap(), b"content");
    bring_home(&fixture);
    assert_eq!(fs::metadata(fixture.home("newest")).unwrap().nlink(), 1);
    assert!(!fixture.home("released").exists());
}

fn fsync_brings_names_home() {
    let fixture = mounted();
    for turn in 0..20 {
        // A file with the directories above it.
        let name = |rest: &str| format!("{turn}/a/b{rest}");
        fs::create_dir_all(fixture.at(&name(""))).unwrap();
        let content = pattern(10_000, turn);
        let file = open(&fixture.at(&name("/file")));
        file.write_all_at(&content, 0).unwrap();
        file.sync_all().unwrap();
        assert!(fs::read(fixture.home(&name("/file"))).unwrap() == content);
        // All names of a directory, and those that are gone.
        for number in 0..50 {
            fs::write(fixture.at(&name(&format!("/file-{number}"))), b"").unwrap();
        }
        for number in 0..40 {
            fs::remove_file(fixture.at(&name(&format!("/file-{number}")))).unwrap();
        }
        fs::rename(fixture.at(&name("/file")), fixture.at(&name("/renamed"))).unwrap();
        sync_directory(&fixture.at(&name(""))).unwrap();
        let expected: Vec<String> = (40..50).map(|number| format!("file-{number}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).chain(["renamed"]).collect();
        assert_eq!(names_in(&fixture.home(&name(""))), set(&expected));
        // Both directories of a rename, and a file by its new name.
        fs::rename(fixture.at(&name("/renamed")), fixture.at(&format!("{turn}/moved"))).unwrap();
        file.write_all_at(b"!", 0).unwrap();
        file.sync_data().unwrap();
        assert!(!fixture.home(&name("/renamed")).exists());
        assert_eq!(fs::read(fixture.home(&format!("{turn}/moved"))).unwrap()[0], b'!');
    }
}

fn attributes_follow() {
    const LATER: i64 = 4_102_444_800;
    let fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    let names = ["dir", "file", "fifo", "link"];
    let change = |at: &Path, turn: u32| {
        for name in names {
            let path = at.join(name);
            lchown(&path, Some(10 + turn), Some(20 + turn)).unwrap();
            if name != "link" {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o1700 + turn)).unwrap();
            }
            // Nobody's reading changes these.
            set_times(&path, time(LATER, 5), time(-i64::from(turn), 250_000_000));
        }
    };
    let check = |at: &Path, turn: u32| {
        for name in names {
            let status = fs::symlink_metadata(at.join(name)).unwrap();
            assert_eq!((status.uid(), status.gid()), (10 + turn, 20 + turn), "{name}");
            let mode = if name == "link" { 0o777 } else { 0o1700 + turn };
            assert_eq!(status.mode() & 0o7777, mode, "{name}");
            let expected = [(LATER, 5), (-i64::from(turn), 250_000_000)];
            assert_eq!(times_of(&at.join(name)), expected, "{name} {turn}");
        }
    };
    fs::create_dir(held.at("dir")).unwrap();
    fs::write(held.at("file"), b"dirty").unwrap();
    make_fifo(&held.at("fifo"));
    symlink("file", held.at("link")).unwrap();
    for turn in [1, 2] {
        change(&held.at(""), turn);
        check(&held.at(""), turn);
    }
    let home = held.release();
    check(&home, 2);
    // What home has.
    for turn in [3, 4] {
        change(&fixture.at("released"), turn);
        check(&fixture.at("released"), turn);
    }
    bring_home(&fixture);
    check(&home, 4);
    check(&fixture.at("released"), 4);
    // A new owner takes the privileges.
    let file = open(&fixture.at("released/file"));
    file.set_permissions(fs::Permissions::from_mode(0o6755)).unwrap();
    chown(fixture.at("released/file"), Some(77), None).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o755);
    file.sync_all().unwrap();
    let status = fs::metadata(home.join("file")).unwrap();
    assert_eq!((status.mode() & 0o7777, status.uid(), status.gid()), (0o755, 77, 24));
}

fn directory_times_follow() {
    let fixture = mounted();
    let old = time(1_000_000_000, 0);
    let modified = |path: &Path| times_of(path)[1];
    let at = |name: &str| fixture.at("dir").join(name);
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::write(at("file"), b"").unwrap();
    bring_home(&fixture);
    let changes: [(&str, &dyn Fn()); 4] = [
        ("mkdir", &|| fs::create_dir(at("sub")).unwrap()),
        ("link", &|| fs::hard_link(at("file"), at("second")).unwrap()),
        ("rename", &|| fs::rename(at("second"), at("third")).unwrap()),
        ("unlink", &|| fs::remove_file(at("third")).unwrap()),
    ];
    for (what, change) in changes {
        // Set after the names are made, as tar does.
        set_times(&at(""), old, old);
        assert_eq!(modified(&at("")), (1_000_000_000, 0), "{what}");
        sync_directory(&at("")).unwrap();
        assert_eq!(modified(&fixture.home("dir")), (1_000_000_000, 0), "{what}");
        change();
        let shown = modified(&at(""));
        assert!(shown > (1_000_000_000, 0), "{what}");
        sync_directory(&at("")).unwrap();
        assert!(modified(&fixture.home("dir")) > (1_000_000_000, 0), "{what}");
        assert!(modified(&at("")) >= shown, "{what}");
    }
}

fn new_files_belong_to_their_maker() {
    let fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    fs::set_permissions(held.at(""), fs::Permissions::from_mode(0o777)).unwrap();
    let making = "umask 027; echo x > file; mkdir dir; mkfifo fifo; ln -s x link";
    assert!(fixture.stranger(&format!("cd held/waits && {making}")));
    // A set-group-ID directory passes its group on.
    fs::create_dir(held.at("group")).unwrap();
    chown(held.at("group"), None, Some(777)).unwrap();
    fs::set_permissions(held.at("group"), fs::Permissions::from_mode(0o2777)).unwrap();
    assert!(fixture.stranger(&format!("cd held/waits/group && {making}")));
    let check = |at: &Path| {
        let own = [("file", 0o640), ("dir", 0o750), ("fifo", 0o640), ("link", 0o777)];
        for (name, mode) in own {
            let status = fs::symlink_metadata(at.join(name)).unwrap();
            let owner = (status.uid(), status.gid(), status.mode() & 0o7777);
            assert_eq!(owner, (STRANGER, STRANGER, mode), "{name}");
            let mode = if name == "dir" { mode | 0o2000 } else { mode };
            let status = fs::symlink_metadata(at.join("group").join(name)).unwrap();
            let owner = (status.uid(), status.gid(), status.mode() & 0o7777);
            assert_eq!(owner, (STRANGER, 777, mode), "group/{name}");
        }
    };
    check(&held.at(""));
    check(&held.release());
    check(&fixture.at("released"));
}

fn a_listing_may_be_read_in_pieces() {
    let fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    let name = |kind: &str, number: u32| format!("{kind}-{number:04}-with-a-name-of-some-length");
    for number in 0..500 {
        File::create(held.at(&name("stays", number))).unwrap();
        File::create(held.at(&name("goes", number))).unwrap();
    }
    let directory = open_directory(&held.at(""));
    let all = read(&directory, usize::MAX);
    assert_eq!(all.len(), 1002);
    for index in [0, 1, 77, 1000] {
        seek(&directory, SeekFrom::Start(all[index].1)).unwrap();
        assert_eq!(read(&directory, usize::MAX), all[index + 1..]);
    }
    seek(&directory, SeekFrom::Start(0)).unwrap();
    let mut listed = read(&directory, 300);
    for number in 0..500 {
        fs::remove_file(held.at(&name("goes", number))).unwrap();
        File::create(held.at(&name("comes", number))).unwrap();
    }
    listed.extend(read(&directory, usize::MAX));
    let mut names: Vec<_> = listed.into_iter().map(|entry| entry.0).collect();
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "an entry was listed twice");
    let stay = |names: &mut dyn Iterator<Item = &std::ffi::OsString>| {
        names.filter(|name| name.to_str().unwrap().starts_with("stays-")).count()
    };
    assert_eq!(stay(&mut names.iter()), 500);
    let home = names_in(&held.release());
    assert_eq!((home.len(), stay(&mut home.iter())), (1000, 500));
}

fn data_comes_before_the_name_it_replaces() {
    const LEN: usize = 20_000;
    let fixture = mounted();
    let file = open(&fixture.at("settings"));
    file.write_all_at(&[0; LEN], 0).unwrap();
    file.sync_all().unwrap();
    let over = AtomicBool::new(false);
    let whole =
        |content: &[u8]| content.len() == LEN && content.iter().all(|byte| *byte == content[0]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let content = fs::read(fixture.home("settings")).unwrap();
                assert!(whole(&content), "{} bytes, {:?}", content.len(), content.first());
            }
        });
        for turn in 1..50 {
            fs::write(fixture.at("settings.new"), vec![turn; LEN]).unwrap();
            fs::rename(fixture.at("settings.new"), fixture.at("settings")).unwrap();
            // Nothing but the names: the data is home for their sake.
            sync_directory(&fixture.mount).unwrap();
            assert_eq!(fs::read(fixture.home("settings")).unwrap(), vec![turn; LEN]);
        }
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    bring_home(&fixture);
    assert_eq!(fs::read(fixture.home("settings")).unwrap(), vec![49; LEN]);
    assert!(!fixture.home("settings.new").exists());
}

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
    fs::remove_dir_all(fixture.at("a")).unwrap();
    assert_eq!(seen(&fixture.mount), Vec::<String>::new());
    bring_home(&fixture);
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
