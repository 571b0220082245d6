//! Names that do not wait for home (`--names behind`): what programs see before home has a change, and what home has
//! after a sync. `behind_home.rs` has what becomes of changes that home refuses or that somebody else made impossible.
//!
//! Home is as quick as the test. Where a test is about names that home does not have, they are [`Held`].

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    CWD, FileType, Mode, RenameFlags, SeekFrom, getxattr, mknodat, renameat_with, seek,
};
use weir_fuse::{Options, STATE};

use crate::Test;
use crate::attributes::{set_times, time, times_of};
use crate::behind_listings::needs_home;
use crate::directories::{names_in, open_directory, read, set};
use crate::faults::set_immutable;
use crate::fixture::{Fixture, STRANGER, errno, open, pattern, read_at};

/// What a test does to a file or a path, one of several that it tries in turn.
pub type Act<'a, T> = &'a dyn Fn(&T);

pub const TESTS: &[Test] = &[
    ("behind_names_are_seen_before_home_has_them", names_are_seen_before_home_has_them),
    ("behind_calls_fail_as_anywhere", calls_fail_as_anywhere),
    ("behind_renames_of_what_home_lacks", renames_of_what_home_lacks),
    ("behind_renames_of_what_home_has", renames_of_what_home_has),
    ("behind_a_whiteout_is_seen", a_whiteout_is_seen),
    ("behind_what_is_made_and_removed_stays_here", what_is_made_and_removed_stays_here),
    ("behind_names_that_home_has_are_removed", names_that_home_has_are_removed),
    ("behind_an_open_file_outlives_its_name", an_open_file_outlives_its_name),
    ("behind_a_file_may_have_many_names", a_file_may_have_many_names),
    (
        "behind_home_has_another_name_before_the_last_one_is_removed_there",
        home_has_another_name_before_the_last_one_is_removed_there,
    ),
    ("behind_fsync_brings_names_home", fsync_brings_names_home),
    ("behind_attributes_follow", attributes_follow),
    ("behind_directory_times_follow", directory_times_follow),
    ("behind_directory_times_are_set_after_entries", directory_times_are_set_after_entries),
    ("behind_new_files_belong_to_their_maker", new_files_belong_to_their_maker),
    ("behind_a_listing_may_be_read_in_pieces", a_listing_may_be_read_in_pieces),
    ("behind_data_comes_before_the_name_it_replaces", data_comes_before_the_name_it_replaces),
];

/// A mount whose SOURCE is prepared, with the directory that the daemon makes there.
pub fn mounted_with(prepare: impl FnOnce(&Path), adjust: impl FnOnce(&mut Options)) -> Fixture {
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

pub fn mounted() -> Fixture {
    mounted_with(|_| {}, |_| {})
}

/// Waits until home has all names, or has refused some.
pub fn bring_names_home(fixture: &Fixture) -> io::Result<()> {
    let (sender, receiver) = channel();
    fixture.session().observer().when_named(move |named| sender.send(named).unwrap());
    receiver.recv().unwrap()
}

/// Waits until home has all names and data.
pub fn bring_home(fixture: &Fixture) {
    bring_names_home(fixture).unwrap();
    fixture.sync();
}

pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Waits until home does what it refused before.
pub fn eventually(what: impl Fn() -> io::Result<()>) {
    let begun = Instant::now();
    while let Err(error) = what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "still: {error}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub fn rename_with(from: PathBuf, to: PathBuf, flags: RenameFlags) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, flags)?)
}

pub fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

/// All that is in a directory but `.weir`, each with its type, its links, and its content or target, in order.
pub fn seen(directory: &Path) -> Vec<String> {
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
pub struct Held<'a> {
    fixture: &'a Fixture,
    refuses: Refuses,
}

impl Held<'_> {
    /// `None` if home cannot be made to refuse anything.
    pub fn new(fixture: &Fixture) -> Option<Held<'_>> {
        fs::create_dir(fixture.at("held")).unwrap();
        let refuses = Refuses::new(fixture, "held")?;
        let held = Held { fixture, refuses };
        fs::create_dir(held.at("")).unwrap();
        Some(held)
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.fixture.at("held/waits").join(name)
    }

    /// Lets home have it, and waits for that. Returns where home has it.
    pub fn release(self) -> PathBuf {
        assert_eq!(seen(&self.fixture.home("held")), Vec::<String>::new());
        fs::rename(self.at(""), self.fixture.at("released")).unwrap();
        bring_home(self.fixture);
        drop(self.refuses);
        self.fixture.home("released")
    }
}

/// A directory of SOURCE in which nothing can be changed, before this is dropped.
pub struct Refuses(PathBuf);

impl Refuses {
    /// `None` if home cannot be made to refuse anything.
    pub fn new(fixture: &Fixture, directory: &str) -> Option<Refuses> {
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

/// Home makes the whiteout, a device file, under the old name.
fn a_whiteout_is_seen() {
    let fixture = mounted();
    let at = fixture.at("directory");
    fs::create_dir(&at).unwrap();
    // The whole directory is known from here on.
    assert_eq!(seen(&at), Vec::<String>::new());
    for name in ["made", "home"] {
        File::create(at.join(name)).unwrap();
    }
    bring_home(&fixture);
    let hide = |name: &str| {
        rename_with(at.join(name), at.join("new"), RenameFlags::WHITEOUT).map(|()| {
            assert!(fs::symlink_metadata(at.join(name)).unwrap().file_type().is_char_device());
            assert_eq!(errno(File::create_new(at.join(name))), libc::EEXIST);
            assert!(names_in(&at).contains(OsStr::new(name)));
        })
    };
    if errno(hide("home")) == libc::EINVAL {
        return println!("    (not checked: the file system underneath knows no whiteouts)");
    }
    File::create(at.join("later")).unwrap();
    hide("later").unwrap();
    fs::remove_file(at.join("later")).unwrap();
    fs::write(at.join("later"), b"made again").unwrap();
    bring_home(&fixture);
    assert_eq!(names_in(&at), names_in(&fixture.home("directory")));
    assert_eq!(fs::read(fixture.home("directory").join("later")).unwrap(), b"made again");
}

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

fn home_has_another_name_before_the_last_one_is_removed_there() {
    let mut waits = false;
    let prepare = |source: &Path| {
        fs::create_dir(source.join("dir")).unwrap();
        waits = needs_home(&source.join("dir"));
        for name in ["removed", "replaced", "new"] {
            fs::write(source.join("dir").join(name), name).unwrap();
        }
    };
    let fixture = mounted_with(prepare, |_| {});
    let Some(held) = Held::new(&fixture).filter(|_| waits) else { return };
    let at = |name: &str| fixture.at("dir").join(name);
    for name in ["removed", "replaced"] {
        fs::hard_link(at(name), held.at(name)).unwrap();
    }
    assert!(fs::remove_file(at("removed")).is_err());
    assert!(fs::rename(at("new"), at("replaced")).is_err());
    let home = held.release();
    assert_eq!(seen(&home), ["removed 2 removed", "replaced 2 replaced"]);
    fs::remove_file(at("removed")).unwrap();
    fs::rename(at("new"), at("replaced")).unwrap();
    assert_eq!(seen(&home), ["removed 1 removed", "replaced 1 replaced"]);
    assert_eq!(seen(&fixture.home("dir")), ["replaced 1 new"]);
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

fn directory_times_are_set_after_entries() {
    let fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    let (old, modified) = (time(1_000_000_000, 0), |path: &Path| times_of(path)[1]);
    for name in ["set", "set/below", "touched"] {
        fs::create_dir(held.at(name)).unwrap();
        for number in 0..20 {
            fs::write(held.at(name).join(number.to_string()), b"content").unwrap();
        }
    }
    for name in ["set/below", "set", "touched"] {
        set_times(&held.at(name), old, old);
    }
    File::create(held.at("touched/again")).unwrap();
    let home = held.release();
    for name in ["set", "set/below"] {
        assert_eq!(modified(&home.join(name)), (1_000_000_000, 0), "{name}");
        assert_eq!(modified(&fixture.at("released").join(name)), (1_000_000_000, 0), "{name}");
    }
    let shown = modified(&fixture.at("released/touched"));
    assert_eq!(shown, modified(&home.join("touched")));
    assert!(shown > (1_000_000_000, 0));
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
