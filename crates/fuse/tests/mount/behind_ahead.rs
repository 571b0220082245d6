//! Names that do not wait for home (`--names behind`), home far away: directories are listed before programs ask for them. Who
//! lists a directory at home is counted by inotify(7).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::Test;
use crate::behind::{bring_home, eventually, mounted_with};
use crate::directories::{names_in, set};
use crate::fixture::Fixture;

pub const TESTS: &[Test] = &[
    ("behind_ahead_few_are_listed_until_they_are_used", few_are_listed_until_they_are_used),
    ("behind_ahead_a_tree_is_removed_without_home", a_tree_is_removed_without_home),
    ("behind_ahead_a_second_name_has_a_directory_listed", a_second_name_has_a_directory_listed),
    ("behind_ahead_changes_at_home_are_seen", changes_at_home_are_seen),
    ("behind_ahead_ends_with_the_mount", ends_with_the_mount),
    ("behind_ahead_not_of_a_home_on_this_machine", not_of_a_home_on_this_machine),
];

/// Directories of home, and whether each was listed there.
struct Watched {
    inotify: OwnedFd,
    directories: HashMap<i32, PathBuf>,
    listed: Vec<PathBuf>,
}

impl Watched {
    /// All directories below one.
    fn below(top: &Path) -> Watched {
        let inotify = inotify::init(CreateFlags::NONBLOCK).unwrap();
        let mut directories = HashMap::new();
        let mut next = vec![top.to_owned()];
        while let Some(directory) = next.pop() {
            let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap());
            next.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
            let watch = inotify::add_watch(&inotify, &directory, WatchFlags::ACCESS).unwrap();
            directories.insert(watch, directory);
        }
        Watched { inotify, directories, listed: Vec::new() }
    }

    /// Those that were listed so far, each once.
    fn listed(&mut self) -> &[PathBuf] {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(self.inotify.as_fd(), &mut buffer);
        while let Ok(event) = events.next() {
            let directory = self.directories.get(&event.wd());
            let is_listing =
                event.file_name().is_none() && event.events().contains(ReadFlags::ISDIR);
            if let Some(directory) = directory.filter(|_| is_listing)
                && !self.listed.contains(directory)
            {
                self.listed.push(directory.clone());
            }
        }
        &self.listed
    }

    /// Waits until as many are listed.
    fn wait_for(&mut self, count: usize) {
        let cell = std::cell::RefCell::new(self);
        eventually(|| match cell.borrow_mut().listed().len() {
            listed if listed >= count => Ok(()),
            listed => Err(io::Error::other(format!("{listed} of {count} are listed"))),
        });
    }
}

/// `top`, with directories that have directories, that have a file each.
fn plant(source: &Path, directories: usize, below: usize) {
    for number in 0..directories {
        for of in 0..below {
            let directory = source.join(format!("top/{number}/{of}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("file"), b"content").unwrap();
        }
    }
}

fn far_away(prepare: impl FnOnce(&Path), entry_timeout: Duration) -> Fixture {
    mounted_with(prepare, |options| {
        options.is_elsewhere = true;
        options.entry_timeout = entry_timeout;
        options.attr_timeout = entry_timeout;
        options.negative_timeout = Duration::ZERO;
    })
}

const LONG: Duration = Duration::from_secs(600);

fn few_are_listed_until_they_are_used() {
    let fixture = far_away(|source| plant(source, 10, 40), LONG);
    let mut watched = Watched::below(&fixture.home("top"));
    assert_eq!(names_in(&fixture.at("top")).len(), 10);
    // What was listed, and 16 ahead of it.
    watched.wait_for(17);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(watched.listed().len(), 17);
    // Each that is used has four more listed.
    for number in 0..10 {
        assert_eq!(names_in(&fixture.at(&format!("top/{number}"))).len(), 40);
    }
    watched.wait_for(1 + 10 + 56);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(watched.listed().len(), 1 + 10 + 56);
}

fn a_tree_is_removed_without_home() {
    let fixture = far_away(|source| plant(source, 3, 4), LONG);
    let mut watched = Watched::below(&fixture.home("top"));
    names_in(&fixture.at("top"));
    watched.wait_for(1 + 3 + 12);
    // The last one may not be known yet, though its names were read.
    thread::sleep(Duration::from_millis(100));
    // If home were asked, it would show these.
    for directory in watched.listed().to_vec() {
        fs::write(directory.join("made at home"), b"").unwrap();
    }
    for number in 0..3 {
        assert_eq!(names_in(&fixture.at(&format!("top/{number}"))), set(&["0", "1", "2", "3"]));
        for of in 0..4 {
            let directory = fixture.at(&format!("top/{number}/{of}"));
            assert!(!directory.join("made at home").exists());
            assert_eq!(names_in(&directory), set(&["file"]));
            assert_eq!(fs::read(directory.join("file")).unwrap(), b"content");
            fs::remove_file(directory.join("file")).unwrap();
            fs::remove_file(fixture.home(&format!("top/{number}/{of}/made at home"))).unwrap();
            fs::remove_dir(directory).unwrap();
        }
        fs::remove_file(fixture.home(&format!("top/{number}/made at home"))).unwrap();
        fs::remove_dir(fixture.at(&format!("top/{number}"))).unwrap();
    }
    fs::remove_file(fixture.home("top/made at home")).unwrap();
    fs::remove_dir(fixture.at("top")).unwrap();
    bring_home(&fixture);
    assert!(!fixture.home("top").exists());
}

/// git status looks at the files that it knows, and lists nothing.
fn a_second_name_has_a_directory_listed() {
    let prepare = |source: &Path| {
        plant(source, 1, 1);
        fs::write(source.join("top/0/0/other"), b"").unwrap();
    };
    let fixture = far_away(prepare, LONG);
    let mut watched = Watched::below(&fixture.home("top"));
    let at = fixture.at("top/0/0");
    assert!(at.join("file").exists());
    thread::sleep(Duration::from_millis(100));
    assert!(watched.listed().is_empty());
    assert!(at.join("other").exists());
    watched.wait_for(1);
    assert_eq!(watched.listed(), [fixture.home("top/0/0")]);
}

fn changes_at_home_are_seen() {
    let timeout = Duration::from_millis(500);
    let fixture = far_away(|source| plant(source, 2, 2), timeout);
    let mut watched = Watched::below(&fixture.home("top"));
    names_in(&fixture.at("top"));
    watched.wait_for(1 + 2 + 4);
    for number in 0..2 {
        fs::write(fixture.home(&format!("top/{number}/1/made")), b"").unwrap();
        fs::remove_file(fixture.home(&format!("top/{number}/0/file"))).unwrap();
        fs::remove_dir(fixture.home(&format!("top/{number}/0"))).unwrap();
    }
    for number in 0..2 {
        let shows = |directory: String, names: &[&str]| {
            eventually(|| match names_in(&fixture.at(&directory)) {
                found if found == set(names) => Ok(()),
                found => Err(io::Error::other(format!("{directory}: {found:?}"))),
            });
        };
        shows(format!("top/{number}"), &["1"]);
        shows(format!("top/{number}/1"), &["file", "made"]);
        assert!(!fixture.at(&format!("top/{number}/0/file")).exists());
        assert!(fixture.at(&format!("top/{number}/1/made")).exists());
    }
}

fn ends_with_the_mount() {
    let mut fixture = far_away(|source| plant(source, 10, 100), LONG);
    let mut watched = Watched::below(&fixture.home("top"));
    for number in 0..10 {
        names_in(&fixture.at(&format!("top/{number}")));
    }
    watched.wait_for(20);
    fixture.unmount();
    let listed = watched.listed().len();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(watched.listed().len(), listed, "nothing is listed after that");
}

fn not_of_a_home_on_this_machine() {
    let fixture = mounted_with(|source| plant(source, 2, 2), |_| {});
    let mut watched = Watched::below(&fixture.home("top"));
    names_in(&fixture.at("top"));
    for name in ["top/0/0/file", "top/0/0/other", "top/0/0/third"] {
        let _ = fixture.at(name).exists();
    }
    thread::sleep(Duration::from_millis(100));
    assert_eq!(watched.listed(), [fixture.home("top")]);
}
