//! Names that do not wait for home: files without a name that programs have open, files that others linked at home, and
//! what is left of removed names.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Timespec, Timestamps, XattrFlags, futimens, getxattr, setxattr};

use crate::Test;
use crate::behind::{
    Act, Held, Refuses, bring_home, bring_names_home, eventually, mounted, mounted_with, seen,
};
use crate::directories::names_in;
use crate::faults::set_immutable;
use crate::fixture::{Fixture, errno, open, pattern, read_at};

pub const TESTS: &[Test] = &[
    ("behind_attributes_of_an_open_file_without_a_name", attributes_of_an_open_file_without_a_name),
    ("behind_nameless_files_that_home_refuses", nameless_files_that_home_refuses),
    ("behind_what_others_linked_keeps_its_data", what_others_linked_keeps_its_data),
    ("behind_what_is_refused_may_be_removed", what_is_refused_may_be_removed),
    ("behind_what_is_left_parked_is_put_away", what_is_left_parked_is_put_away),
    ("behind_dirty_files_have_blocks", dirty_files_have_blocks),
];

/// Waits until nothing is left of removed files: of their inodes, in the tree, or parked.
fn nothing_is_left(fixture: &Fixture) {
    let held = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| {
            fs::read_link(fd.unwrap().path()).ok().map(|to| to.to_string_lossy().into_owned())
        });
        let source = fixture.source.to_str().unwrap();
        links.filter(|to| to.starts_with(source) && to.ends_with(" (deleted)")).count()
    };
    eventually(|| match (held(), fixture.session().observer().names_pending().unwrap()) {
        (0, (0, 0)) => Ok(()),
        left => Err(std::io::Error::other(format!("left: {left:?}"))),
    });
    let parked = fixture.home(".weir/parked");
    if parked.exists() {
        assert_eq!(seen(&parked), Vec::<String>::new());
    }
}

/// Sets attributes of a file without a name, again and again, and checks that they are shown.
fn change_nameless(file: &File, name: &str, syncs: bool) {
    for turn in 1..6 {
        file.set_permissions(fs::Permissions::from_mode(0o600 + turn)).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600 + turn, "{name}");
        fchown(file, Some(10 + turn), Some(20 + turn)).unwrap();
        let time = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 250_000_000 };
        let times = Timestamps { last_access: time(4_102_444_800), last_modification: time(turn) };
        futimens(file, &times).unwrap();
        let check = |size: u64| {
            let status = file.metadata().unwrap();
            let owner = (status.mode() & 0o7777, status.uid(), status.gid());
            assert_eq!(owner, (0o600 + turn, 10 + turn, 20 + turn), "{name}");
            assert_eq!((status.mtime(), status.mtime_nsec()), (turn.into(), 250_000_000), "{name}");
            assert_eq!((status.nlink(), status.size(), status.atime()), (0, size, 4_102_444_800));
        };
        check(7);
        match turn {
            2 if syncs => file.sync_all().unwrap(),
            3 => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                setxattr(&path, "user.x", b"value", XattrFlags::empty()).unwrap();
                assert_eq!(getxattr(&path, "user.x", &mut [0; 16]), Ok(5), "{name}");
            }
            _ => {}
        }
        check(7);
    }
    assert_eq!(read_at(file, 0, 100), b"content", "{name}");
    file.write_all_at(b"longer content", 0).unwrap();
    file.set_len(6).unwrap();
    assert_eq!((read_at(file, 0, 100), file.metadata().unwrap().size()), (b"longer".to_vec(), 6));
}

fn attributes_of_an_open_file_without_a_name() {
    let mut fixture = mounted();
    let removed = |path: &Path| fs::remove_file(path).unwrap();
    let replaced = |path: &Path| {
        fs::write(path.with_extension("new"), b"new").unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    let ways: [Act<Path>; 2] = [&removed, &replaced];
    for turn in 0..60 {
        let path = fixture.at(&format!("file-{turn}"));
        let file = open(&path);
        file.write_all_at(b"content", 0).unwrap();
        match turn % 3 {
            // Home may have it or not.
            0 => {}
            1 => file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap(),
            _ => file.sync_all().unwrap(),
        }
        ways[turn % 2](&path);
        change_nameless(&file, &format!("{turn}"), true);
    }
    nothing_is_left(&fixture);
    let Some(held) = Held::new(&fixture) else { return };
    for (turn, lose) in ways.iter().enumerate() {
        let path = held.at(&format!("file-{turn}"));
        let file = open(&path);
        file.write_all_at(b"content", 0).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        lose(&path);
        change_nameless(&file, &format!("held {turn}"), true);
    }
    held.release();
    // Home has it, and is not told yet that its name is gone.
    fs::create_dir(fixture.at("dir")).unwrap();
    let file = open(&fixture.at("dir/file"));
    file.write_all_at(b"content", 0).unwrap();
    file.sync_all().unwrap();
    let refuses = Refuses::new(&fixture, "dir").unwrap();
    fs::remove_file(fixture.at("dir/file")).unwrap();
    // A sync tells that home refuses to remove its name.
    change_nameless(&file, "known", false);
    drop((file, refuses));
    bring_home(&fixture);
    nothing_is_left(&fixture);
    fixture.unmount();
    assert_eq!(names_in(&fixture.home("dir")).len(), 0);
}

fn nameless_files_that_home_refuses() {
    let mut fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    fs::create_dir_all(fixture.home(".weir/parked")).unwrap();
    let lose = |name: &str| {
        let file = open(&held.at(name));
        file.write_all_at(b"content", 0).unwrap();
        fs::remove_file(held.at(name)).unwrap();
        file
    };
    let parked = fixture.home(".weir/parked");
    assert!(set_immutable(&parked, true));
    let (one, other) = (lose("one"), lose("other"));
    for file in [&one, &other] {
        assert_eq!(errno(file.sync_all()), libc::EPERM);
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        let status = file.metadata().unwrap();
        assert_eq!((status.mode() & 0o7777, status.nlink(), status.size()), (0o600, 0, 7));
        assert_eq!(read_at(file, 0, 100), b"content");
    }
    let observer = fixture.session().observer();
    eventually(|| {
        let refused = observer.names_refused(10);
        let words = |line: &&String| line.starts_with("a file without a name: ");
        match refused.iter().filter(words).count() {
            2 => Ok(()),
            _ => Err(std::io::Error::other(format!("{refused:?}"))),
        }
    });
    // Nobody sees it any more.
    drop(other);
    eventually(|| match observer.names_refused(10).join("\n").matches("without").count() {
        1 => Ok(()),
        count => Err(std::io::Error::other(format!("{count}"))),
    });
    assert!(set_immutable(&parked, false));
    eventually(|| one.sync_all());
    assert_eq!(read_at(&one, 0, 100), b"content");
    drop(one);
    held.release();
    nothing_is_left(&fixture);
    fixture.unmount();
}

fn what_others_linked_keeps_its_data() {
    let prepare = |source: &Path| fs::write(source.join("found"), b"old").unwrap();
    let mut fixture =
        mounted_with(prepare, |options| options.entry_timeout = Duration::from_secs(600));
    fs::write(fixture.at("made"), b"old").unwrap();
    fs::write(fixture.at("replaced"), b"old").unwrap();
    fs::write(fixture.at("open"), b"old").unwrap();
    bring_home(&fixture);
    let names = ["found", "made", "replaced", "open"];
    let content = |name: &str| pattern(100_000, name.len() as u64);
    for name in names {
        fs::hard_link(fixture.home(name), fixture.home(&format!("theirs-{name}"))).unwrap();
    }
    let file = open(&fixture.at("open"));
    for name in names {
        fs::write(fixture.at(name), content(name)).unwrap();
    }
    file.write_all_at(&content("open"), 0).unwrap();
    for name in ["found", "made", "open"] {
        fs::remove_file(fixture.at(name)).unwrap();
    }
    fs::write(fixture.at("new"), b"new").unwrap();
    fs::rename(fixture.at("new"), fixture.at("replaced")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    drop(file);
    bring_home(&fixture);
    for name in names {
        let kept = fs::read(fixture.home(&format!("theirs-{name}"))).unwrap();
        assert!(kept == content(name), "{name}: {} bytes", kept.len());
    }
    assert_eq!(fs::read(fixture.home("replaced")).unwrap(), b"new");
    // A name that others remove again counts no more.
    fs::write(fixture.at("last"), b"old").unwrap();
    bring_home(&fixture);
    fs::hard_link(fixture.home("last"), fixture.home("theirs-last")).unwrap();
    fs::remove_file(fixture.home("theirs-last")).unwrap();
    let file = open(&fixture.at("last"));
    file.write_all_at(b"dirty", 0).unwrap();
    fs::remove_file(fixture.at("last")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    nothing_is_left(&fixture);
    fixture.unmount();
}

fn what_is_refused_may_be_removed() {
    let mut fixture = mounted();
    fs::create_dir(fixture.at("dir")).unwrap();
    let Some(refuses) = Refuses::new(&fixture, "dir") else { return };
    let at = |name: &str| fixture.at("dir").join(name);
    for turn in 0..100 {
        fs::write(at("file"), b"x").unwrap();
        let file = open(&at("file"));
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("sub/inside"), b"y").unwrap();
        fs::set_permissions(at("sub"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(at("file"), at("renamed")).unwrap();
        for _ in 0..turn % 8 {
            // Home refuses it before, while, or after it is removed.
            std::thread::yield_now();
        }
        fs::remove_file(at("renamed")).unwrap();
        fs::remove_dir_all(at("sub")).unwrap();
        drop(file);
        bring_names_home(&fixture).unwrap_or_else(|error| panic!("turn {turn}: {error}"));
        assert_eq!(fixture.session().observer().names_pending(), Some((0, 0)), "turn {turn}");
    }
    nothing_is_left(&fixture);
    fixture.unmount();
    drop(refuses);
    assert_eq!(seen(&fixture.home("dir")), Vec::<String>::new());
}

fn what_is_left_parked_is_put_away() {
    let first = 0xffff_0000_0000_0000_u64;
    let parked = |source: &Path| source.join(".weir/parked");
    let prepare = |source: &Path| {
        fs::create_dir(parked(source)).unwrap();
        for number in first..first + 50 {
            fs::write(parked(source).join(format!("new-node-{number:x}")), b"new").unwrap();
        }
        for number in first..first + 50 {
            fs::create_dir(parked(source).join(format!("node-{number:x}"))).unwrap();
        }
        fs::write(parked(source).join("left-7"), b"kept").unwrap();
    };
    let mut fixture = mounted_with(prepare, |_| {});
    for turn in 0..20 {
        // Made parked, and moved there.
        fs::write(fixture.at("new"), format!("{turn}")).unwrap();
        fs::rename(fixture.at("new"), fixture.at("old")).unwrap();
        for name in ["a", "b"] {
            fs::create_dir(fixture.at(name)).unwrap();
        }
        fs::rename(fixture.at("a"), fixture.at("b")).unwrap();
        fs::remove_dir(fixture.at("b")).unwrap();
    }
    bring_home(&fixture);
    assert_eq!(fs::read(fixture.home("old")).unwrap(), b"19");
    fixture.unmount();
    let left = names_in(&parked(&fixture.source));
    assert_eq!(left.len(), 51, "{left:?}");
    assert!(left.iter().all(|name| name.to_str().unwrap().starts_with("left-")), "{left:?}");
    assert_eq!(fs::read(parked(&fixture.source).join("left-7")).unwrap(), b"kept");
}

fn dirty_files_have_blocks() {
    let fixture = mounted_with(|_| {}, |options| options.attr_timeout = Duration::ZERO);
    for turn in 0..50 {
        let path = fixture.at(&format!("file-{turn}"));
        let file = open(&path);
        file.write_all_at(&[1; 8192], 0).unwrap();
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync_all().unwrap());
            while !syncing.is_finished() {
                assert_ne!(file.metadata().unwrap().blocks(), 0, "turn {turn}");
            }
        });
    }
}
