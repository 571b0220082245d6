//! Names that do not wait for home (`--names behind`): listings of directories that change meanwhile, that home refuses to
//! change, and that others change at home.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{SeekFrom, XattrFlags, removexattr, seek, setxattr};

use crate::Test;
use crate::attributes::default_acl;
use crate::behind::{
    Refuses, bring_home, bring_names_home, eventually, mounted, mounted_with, seen,
};
use crate::directories::{names_in, open_directory, read, set};
use crate::fixture::Fixture;

pub const TESTS: &[Test] = &[
    ("behind_a_listing_goes_on_when_home_is_asked", a_listing_goes_on_when_home_is_asked),
    ("behind_a_listing_of_home_goes_on", a_listing_of_home_goes_on),
    ("behind_what_home_lacks_meanwhile_is_listed", what_home_lacks_meanwhile_is_listed),
    ("behind_a_listed_directory_is_read_again", a_listed_directory_is_read_again),
    ("behind_what_home_refuses_to_move_is_listed", what_home_refuses_to_move_is_listed),
    ("behind_a_refused_listing_is_read_in_pieces", a_refused_listing_is_read_in_pieces),
    (
        "behind_a_large_refused_listing_lists_home_a_few_times",
        a_large_refused_listing_lists_home_a_few_times,
    ),
    ("behind_home_far_away_is_asked_once", home_far_away_is_asked_once),
];

const FILES: usize = 600;

fn name(number: usize) -> String {
    format!("name-{number:04}-of-some-length-so-that-it-takes-many-requests")
}

fn names() -> BTreeSet<OsString> {
    (0..FILES).map(|number| name(number).into()).collect()
}

/// Reads a directory in two parts, with something done in between. All [`names`] are seen once.
fn list_while(directory: &Path, change: impl FnOnce()) {
    let opened = open_directory(directory);
    let first = read(&opened, 100);
    assert!(first.len() < FILES);
    change();
    let all: Vec<_> = first.into_iter().chain(read(&opened, usize::MAX)).collect();
    let mut seen = BTreeSet::new();
    for (name, _, _) in &all {
        assert!(seen.insert(name.clone()), "{name:?} is listed twice");
    }
    let missing: Vec<_> = names().difference(&seen).cloned().collect();
    assert_eq!(missing, Vec::<OsString>::new());
    // Every position stays good.
    let (_, after, _) = all[all.len() / 2];
    seek(&opened, SeekFrom::Start(after)).unwrap();
    let rest: BTreeSet<_> = read(&opened, usize::MAX).into_iter().map(|entry| entry.0).collect();
    let listed: BTreeSet<_> =
        all[all.len() / 2 + 1..].iter().map(|entry| entry.0.clone()).collect();
    assert!(listed.is_subset(&rest), "{:?}", listed.difference(&rest));
}

fn make_all(directory: &Path) {
    for number in 0..FILES {
        File::create(directory.join(name(number))).unwrap();
    }
}

/// Gives a directory a default ACL: what is changed in it waits for home. Says whether there are ACLs.
pub fn needs_home(directory: &Path) -> bool {
    let flags = XattrFlags::empty();
    let set = setxattr(directory, "system.posix_acl_default", &default_acl(), flags);
    if let Err(error) = set {
        println!("    (not checked: no ACLs underneath: {error})");
    }
    set.is_ok()
}

fn a_listing_goes_on_when_home_is_asked() {
    let fixture = mounted();
    let at = fixture.at("dir");
    fs::create_dir(&at).unwrap();
    make_all(&at);
    if !needs_home(&at) {
        return;
    }
    list_while(&at, || {
        File::create(at.join("new")).unwrap();
        fs::remove_file(at.join("new")).unwrap();
    });
    // Home alone, and then the tree again, which reads it.
    list_while(&at, || {
        removexattr(&at, "system.posix_acl_default").unwrap();
        File::create(at.join("new")).unwrap();
    });
    list_while(&at, || assert!(needs_home(&at)));
}

fn a_listing_of_home_goes_on() {
    let prepare = |source: &Path| {
        fs::create_dir(source.join("dir")).unwrap();
        make_all(&source.join("dir"));
    };
    let fixture = mounted_with(prepare, |_| {});
    let at = fixture.at("dir");
    // The tree reads it because it is changed.
    list_while(&at, || File::create(at.join("new")).map(drop).unwrap());
    list_while(&at, || {
        fs::rename(at.join("new"), at.join("renamed")).unwrap();
        bring_home(&fixture);
    });
}

/// Directories that replace others: home has removed those, and does not give their names to the new ones.
fn what_home_lacks_meanwhile_is_listed() {
    const REPLACED: usize = 20;
    let replaced = |number: usize| format!("replaced-{number}");
    let prepare = |source: &Path| {
        fs::create_dir_all(source.join("dir")).unwrap();
        make_all(&source.join("dir"));
        for number in 0..REPLACED {
            fs::create_dir_all(source.join("in").join(replaced(number))).unwrap();
            fs::create_dir(source.join("dir").join(replaced(number))).unwrap();
        }
    };
    for timeout in [Duration::ZERO, Duration::from_secs(10)] {
        let fixture = mounted_with(prepare, |options| {
            (options.entry_timeout, options.attr_timeout) = (timeout, timeout);
        });
        let Some(refuses) = Refuses::new(&fixture, "in") else { return };
        let opened = open_directory(&fixture.at("dir"));
        let first = read(&opened, 1);
        for number in 0..REPLACED {
            let [from, to] = ["in", "dir"].map(|of| fixture.at(of).join(replaced(number)));
            fs::rename(from, to).unwrap();
        }
        assert!(bring_names_home(&fixture).is_err());
        let at_home = |number: &usize| fixture.home("dir").join(replaced(*number)).exists();
        assert_eq!((0..REPLACED).find(at_home), None);
        let rest = read(&opened, usize::MAX);
        let listed: Vec<OsString> = first.into_iter().chain(rest).map(|entry| entry.0).collect();
        for name in names().into_iter().chain((0..REPLACED).map(|number| replaced(number).into())) {
            let shown = listed.iter().filter(|listed| **listed == name).count();
            assert_eq!(shown, 1, "{name:?} is shown {shown} times with timeouts of {timeout:?}");
        }
        drop(refuses);
        eventually(|| bring_names_home(&fixture));
    }
}

fn a_listed_directory_is_read_again() {
    let second = Duration::from_secs(1);
    let fixture = mounted_with(
        |_| {},
        |options| (options.entry_timeout, options.attr_timeout) = (second, second),
    );
    fs::create_dir(fixture.at("dir")).unwrap();
    File::create(fixture.at("dir/ours")).unwrap();
    bring_home(&fixture);
    assert_eq!(names_in(&fixture.at("dir")), set(&["ours"]));
    File::create(fixture.home("dir/theirs")).unwrap();
    let begun = Instant::now();
    while names_in(&fixture.at("dir")) != set(&["ours", "theirs"]) {
        assert!(begun.elapsed() < 10 * second, "it is listed as it was");
        thread::sleep(second / 20);
    }
}

/// A directory of SOURCE, renamed in a directory that home refuses to change.
fn with_refused(check: impl FnOnce(&Fixture, &Path), expected: impl FnOnce() -> Vec<String>) {
    let prepare = |source: &Path| {
        fs::create_dir_all(source.join("in/dir")).unwrap();
        for name in ["one", "two", "three"] {
            fs::write(source.join("in/dir").join(name), name).unwrap();
        }
    };
    let mut fixture = mounted_with(prepare, |_| {});
    let Some(refuses) = Refuses::new(&fixture, "in") else { return };
    fs::rename(fixture.at("in/dir"), fixture.at("in/moved")).unwrap();
    assert!(bring_names_home(&fixture).is_err());
    check(&fixture, &fixture.at("in/moved"));
    drop(refuses);
    eventually(|| bring_names_home(&fixture));
    fixture.unmount();
    assert_eq!(seen(&fixture.home("in/moved")), expected());
}

fn what_home_refuses_to_move_is_listed() {
    let check = |_: &Fixture, moved: &Path| {
        assert_eq!(seen(moved), ["one 1 one", "three 1 three", "two 1 two"]);
        fs::write(moved.join("new"), b"new").unwrap();
        fs::remove_file(moved.join("one")).unwrap();
        fs::rename(moved.join("two"), moved.join("2")).unwrap();
        fs::create_dir(moved.join("sub")).unwrap();
        assert_eq!(seen(moved), ["2 1 two", "new 1 new", "sub/ 2", "three 1 three"]);
        assert!(!moved.join("one").exists() && moved.join("three").exists());
    };
    let expected = ["2 1 two", "new 1 new", "sub/ 2", "three 1 three"];
    with_refused(check, || expected.map(String::from).to_vec());
}

fn a_refused_listing_is_read_in_pieces() {
    let check = |_: &Fixture, moved: &Path| {
        make_all(moved);
        list_while(moved, || {
            fs::remove_file(moved.join("one")).unwrap();
            File::create(moved.join("new")).unwrap();
        });
        for name in names() {
            fs::remove_file(moved.join(name)).unwrap();
        }
        assert_eq!(names_in(moved), set(&["new", "three", "two"]));
    };
    let expected = ["new 1 ", "three 1 three", "two 1 two"];
    with_refused(check, || expected.map(String::from).to_vec());
}

/// Counts how often a directory is opened.
struct Opens(OwnedFd);

impl Opens {
    fn of(directory: &Path) -> Opens {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        // With what comes between, two of the same are two events.
        let events = WatchFlags::OPEN | WatchFlags::CLOSE_NOWRITE | WatchFlags::ONLYDIR;
        inotify::add_watch(&watch, directory, events).unwrap();
        Opens(watch)
    }

    fn count(self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(self.0, &mut buffer);
        let mut opens = 0;
        while let Ok(event) = events.next() {
            let is_itself = event.file_name().is_none();
            opens += usize::from(is_itself && event.events().contains(ReadFlags::OPEN));
        }
        opens
    }
}

fn a_large_refused_listing_lists_home_a_few_times() {
    const FILES: usize = 5000;
    let prepare = |source: &Path| {
        fs::create_dir(source.join("large")).unwrap();
        for number in 0..FILES {
            File::create(source.join("large").join(name(number))).unwrap();
        }
    };
    let mut fixture = mounted_with(prepare, |_| {});
    let at = fixture.at("large");
    let Some(refuses) = Refuses::new(&fixture, "large") else { return };
    File::create(at.join("new")).unwrap();
    fs::remove_file(at.join(name(1))).unwrap();
    assert!(bring_names_home(&fixture).is_err());
    let mut expected: BTreeSet<OsString> = (0..FILES).map(|number| name(number).into()).collect();
    expected.remove(OsStr::new(&name(1)));
    expected.insert("new".into());
    let opens = Opens::of(&fixture.home("large"));
    assert_eq!(names_in(&at), expected);
    let opens = opens.count();
    assert!((1..10).contains(&opens), "home is listed {opens} times");
    // What is removed while it is listed is not there again.
    let opened = open_directory(&at);
    let first = read(&opened, 100);
    fs::remove_file(at.join(name(2))).unwrap();
    fs::rename(at.join(name(3)), at.join("renamed")).unwrap();
    let rest = read(&opened, usize::MAX);
    assert!(first.len() + rest.len() >= FILES - 2);
    for gone in [2, 3] {
        assert!(!at.join(name(gone)).exists());
    }
    assert!(at.join("renamed").exists());
    drop(opened);
    drop(refuses);
    eventually(|| bring_names_home(&fixture));
    fixture.unmount();
    assert!(fixture.home("large/new").exists() && !fixture.home("large").join(name(1)).exists());
}

/// Of a home on another machine all names of a directory are asked for at once: what is made there afterwards is not seen
/// while that counts.
fn home_far_away_is_asked_once() {
    let prepare = |source: &Path| {
        for directory in ["listed", "missed"] {
            fs::create_dir(source.join(directory)).unwrap();
            fs::write(source.join(directory).join("there"), b"content").unwrap();
        }
    };
    for is_elsewhere in [true, false] {
        let fixture = mounted_with(prepare, |options| {
            options.is_elsewhere = is_elsewhere;
            options.entry_timeout = Duration::from_secs(600);
            options.negative_timeout = Duration::ZERO;
        });
        assert_eq!(names_in(&fixture.at("listed")), BTreeSet::from(["there".into()]));
        for missing in ["one", "other"] {
            assert!(!fixture.at("missed").join(missing).exists());
        }
        for directory in ["listed", "missed"] {
            fs::write(fixture.home(directory).join("later"), b"").unwrap();
            let is_asked = fixture.at(directory).join("later").exists();
            assert_eq!(is_asked, !is_elsewhere, "{directory}");
            assert_eq!(fs::read(fixture.at(directory).join("there")).unwrap(), b"content");
        }
    }
}
