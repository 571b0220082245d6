//! Changes of the place of a log, cut at each step.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use weir_backend::{HomeFile, Naming};
use weir_engine::{IoId, LogCommand};
use weir_log::{Record, Superblock, VERSION};

use super::*;
use crate::source::SourceLock;

/// Size of a new log, bytes.
const BYTES: u64 = 128 << 10;

/// A SOURCE, and places for logs outside it.
struct Scene {
    scratch: PathBuf,
}

/// A place that a log can be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Source,
    First,
    Second,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let scratch = std::env::temp_dir().join(format!("weir-logs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(scratch.join("source")).unwrap();
        Scene { scratch: scratch.canonicalize().unwrap() }
    }

    fn path(&self, at: At) -> PathBuf {
        self.scratch.join(match at {
            At::Source => "source/.weir/log",
            At::First => "first",
            At::Second => "second",
        })
    }

    fn begin(&self) -> (Source, SourceLock) {
        let source = Source::open(&self.scratch.join("source"), &MountTable::default()).unwrap();
        let lock = source.lock(Path::new("/mnt"), false).unwrap();
        (source, lock)
    }

    /// Mounts with the log there, up to step `cut`; returns the number of groups brought home.
    fn mount(&self, at: At, cut: usize) -> Result<(u64, Option<RedoLog>), LogPlaceError> {
        let path = self.path(at);
        let (given, wanted) = match at {
            At::Source => (None, Wanted::InSource { bytes: BYTES, exactly: false }),
            At::First | At::Second => (Some(&*path), Wanted::At(&path, BYTES)),
        };
        self.mount_with(given, wanted, cut)
    }

    fn mount_with(
        &self,
        given: Option<&Path>,
        wanted: Wanted<'_>,
        cut: usize,
    ) -> Result<(u64, Option<RedoLog>), LogPlaceError> {
        let (source, lock) = self.begin();
        let steps = Cell::new(0);
        let step = |_| {
            steps.set(steps.get() + 1);
            if steps.get() == cut { Err(io::Error::other("cut")) } else { Ok(()) }
        };
        let logs = Logs { step: &step, ..Logs::new(&source, lock.own()) };
        let brought = logs.bring_home(given, false)?;
        let log = logs.take(wanted)?;
        Ok((brought.map_or(0, |brought| brought.report.groups), log))
    }

    /// Mounts with the log there, makes a group durable, and is killed.
    fn crash(&self, at: At) {
        let (_, log) = self.mount(at, 0).unwrap();
        // A handle of a file that is gone.
        let identity = [1, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 1, 2, 3, 4];
        self.log_size_of(log.unwrap(), &identity);
    }

    /// Durably logs that a file has 9 bytes, and returns the file's node number.
    fn log_size_of(&self, log: RedoLog, identity: &[u8]) -> u64 {
        let mut writer = log.writer();
        let node = writer.new_node().unwrap();
        let file = Record::File { file: node, identity };
        for record in [file, Record::Truncate { file: node, size: 9 }] {
            writer.append(&record).unwrap();
        }
        let commit = writer.commit().unwrap();
        let thread = log.start(None, None, Box::new(|_, written| written.unwrap())).unwrap();
        thread.execute(LogCommand::Write { io: IoId(1), commit }, false);
        thread.shutdown();
        node
    }

    /// Puts a log into SOURCE, as a crash left it.
    fn put_log(&self, image: &[u8]) {
        fs::create_dir(self.scratch.join("source/.weir")).unwrap();
        let mut log = image.to_vec();
        log.resize(weir_log::LOG_BYTES_MIN as usize, 0);
        fs::write(self.path(At::Source), log).unwrap();
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.path(At::Source), mode).unwrap();
    }

    /// The number of groups that `weir recover SOURCE` finds.
    fn recover(&self) -> u64 {
        let (source, lock) = self.begin();
        let logs = Logs::new(&source, lock.own());
        let brought = logs.bring_home(None, false).unwrap();
        logs.put_away().unwrap();
        brought.map_or(0, |brought| brought.report.groups)
    }

    /// The places of logs marked as holding changes.
    fn dirty(&self) -> Vec<At> {
        let (source, _lock) = self.begin();
        let is_dirty = |at: &At| {
            let log = LogPlace::at(&self.path(*at)).and_then(|place| LogFile::open(&place));
            let found = log.ok().flatten().and_then(|log| look(&log, source.as_fd()).unwrap());
            found.is_some_and(|found| found.has_changes)
        };
        [At::Source, At::First, At::Second].into_iter().filter(is_dirty).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

const CHANGES: [(At, At); 7] = [
    (At::Source, At::Source),
    (At::Source, At::First),
    (At::First, At::Source),
    (At::First, At::First),
    (At::First, At::Second),
    (At::Second, At::First),
    (At::Second, At::Source),
];

#[test]
fn a_crash_between_steps_of_a_change_loses_nothing_and_replays_nothing_twice() {
    for (from, to) in CHANGES {
        let mut cut = 1;
        loop {
            let scene = Scene::new("cut");
            let what = format!("from {from:?} to {to:?}, cut at step {cut}");
            scene.crash(from);
            assert_eq!(scene.dirty(), [from], "{what}");
            let whole = scene.mount(to, cut).is_ok();
            assert!(scene.dirty().len() <= 1, "{what}");
            // Only before the first step after the replay.
            assert_eq!(scene.recover(), u64::from(cut == 1), "{what}");
            assert_eq!(scene.dirty(), [], "{what}");
            // After the replay, a mount works with either log.
            scene.crash(to);
            assert_eq!(scene.dirty(), [to], "{what}");
            let (groups, log) = scene.mount(from, 0).unwrap();
            assert_eq!((groups, log.is_some()), (1, true), "{what}");
            drop(log);
            assert_eq!(scene.dirty(), [from], "{what}");
            assert_eq!(scene.recover(), 0, "{what}");
            if whole {
                break;
            }
            cut += 1;
        }
        assert!(cut >= 3, "from {from:?} to {to:?} has {cut} steps");
    }
}

#[test]
fn a_log_of_another_size_than_is_wanted_is_replayed_and_replaced() {
    let wanted = Wanted::InSource { bytes: 2 * BYTES, exactly: true };
    let mut cut = 1;
    loop {
        let scene = Scene::new("size");
        scene.crash(At::Source);
        let mounted = scene.mount_with(None, wanted, cut);
        let Ok((groups, log)) = mounted else {
            assert_eq!(scene.recover(), u64::from(cut == 1), "cut at step {cut}");
            cut += 1;
            continue;
        };
        assert_eq!(groups, 1);
        assert_eq!(fs::metadata(scene.path(At::Source)).unwrap().len(), 2 * BYTES);
        assert!(scene.log_size_of(log.unwrap(), b"pathgone") > NODE_FIRST);
        assert_eq!(scene.mount(At::Source, 0).unwrap().0, 1);
        // Nobody wants another size.
        assert_eq!(fs::metadata(scene.path(At::Source)).unwrap().len(), 2 * BYTES);
        break;
    }
    assert_eq!(cut, 6);
}

#[test]
fn a_log_that_replaces_another_one_continues_its_node_numbers() {
    for (from, to) in CHANGES {
        let scene = Scene::new("nodes");
        let mut last = 0;
        for at in [from, to, to, from, to, from, from] {
            let (_, log) = scene.mount(at, 0).unwrap();
            let node = scene.log_size_of(log.unwrap(), b"pathgone");
            assert!(node > last, "from {from:?} to {to:?}: {node} after {last}");
            last = node;
        }
    }
}

#[test]
fn a_log_of_each_version_is_recovered_in_place_and_rewritten() {
    let images: [&[u8]; 3] = [
        include_bytes!("../../../log/tests/images/version-2"),
        include_bytes!("../../../log/tests/images/version-3"),
        include_bytes!("../../../log/tests/images/version-4"),
    ];
    for (nth, image) in images.into_iter().enumerate() {
        for to in [At::Source, At::First] {
            let scene = Scene::new("versions");
            let letter = scene.scratch.join("source/letter");
            fs::write(&letter, "Before the checkpoint.").unwrap();
            scene.put_log(image);
            let (groups, log) = scene.mount(to, 0).unwrap();
            assert_eq!((groups, log.is_some()), (2, true), "image {nth} to {to:?}");
            assert_eq!(fs::read(&letter).unwrap(), b"Before a crash,\0\0\0\0\0the end");
            let log = fs::read(scene.path(to)).unwrap();
            for superblock in log[..8192].chunks(4096) {
                let version = u32::from_le_bytes(superblock[8..12].try_into().unwrap());
                assert!(version == VERSION || superblock.iter().all(|&byte| byte == 0));
            }
        }
    }
}

#[test]
fn a_log_of_a_newer_weir_stops_every_mount_and_stays() {
    let image = include_bytes!("../../../log/tests/images/version-4");
    for block in 0..2 {
        let scene = Scene::new("newer");
        let mut newer = image.to_vec();
        let superblock = &mut newer[block * 4096..][..4096];
        let said = Superblock::decode((&*superblock).try_into().unwrap()).unwrap();
        let said = Superblock { features: 1 << 63, ..said };
        superblock.copy_from_slice(&said.encode().0);
        scene.put_log(&newer);
        let before = fs::read(scene.path(At::Source)).unwrap();
        for at in [At::Source, At::First] {
            let error = scene.mount(at, 0).unwrap_err().to_string();
            assert!(error.contains("made by a newer Weir"), "{error}");
        }
        let (source, lock) = scene.begin();
        let logs = Logs::new(&source, lock.own());
        assert!(logs.bring_home(None, false).is_err() && logs.left().is_err());
        assert!(logs.recover_named(&scene.path(At::Source), true, false).is_err());
        assert!(fs::read(scene.path(At::Source)).unwrap() == before);
        assert!(!scene.path(At::First).exists());
    }
}

/// Copies a directory as cp(1) does with -a. In this process: a child that was just forked holds the locks
/// of other tests.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
}

#[test]
fn the_log_of_a_copied_source_changes_nothing_in_the_original() {
    let scene = Scene::new("copied");
    let (original, copy) = (scene.scratch.join("source"), scene.scratch.join("copy"));
    fs::write(original.join("a"), "five!").unwrap();
    let (source, file) = (File::open(&original).unwrap(), File::open(original.join("a")).unwrap());
    let naming = Naming::of(source.as_fd()).unwrap();
    let handle = HomeFile::new(file.into()).identity(&naming, source.as_fd());
    let (_, log) = scene.mount(At::Source, 0).unwrap();
    scene.log_size_of(log.unwrap(), &handle);
    copy_tree(&original, &copy);
    let source = Source::open(&copy, &MountTable::default()).unwrap();
    let lock = source.lock(Path::new("/mnt"), false).unwrap();
    let logs = Logs::new(&source, lock.own());
    let brought = logs.bring_home(None, false);
    if handle.starts_with(b"path") {
        // By its path the file is in the copy, too.
        let report = brought.unwrap().unwrap().report;
        assert_eq!((report.gone, report.applied), (0, 1));
    } else {
        assert!(matches!(brought, Err(LogPlaceError::Copied { .. })), "{brought:?}");
    }
    assert_eq!(fs::read(original.join("a")).unwrap(), b"five!");
    drop(lock);
    assert_eq!(scene.recover(), 1);
    assert_eq!(fs::metadata(original.join("a")).unwrap().len(), 9);
}

#[test]
fn an_identity_stays_while_a_log_has_it() {
    let scene = Scene::new("identity");
    let own = scene.scratch.join("source/.weir");
    scene.crash(At::Source);
    assert!(own.join("id").exists());
    scene.recover();
    assert!(!own.exists());
    scene.crash(At::First);
    let id = fs::read(own.join("id")).unwrap();
    scene.recover();
    scene.crash(At::Source);
    scene.recover();
    assert_eq!(fs::read(own.join("id")).unwrap(), id);
    assert!(scene.mount(At::First, 0).is_ok());
    for name in ["id", "log-at"] {
        let mode = fs::metadata(own.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn a_log_in_source_is_known_by_its_place_if_the_identity_was_lost() {
    let scene = Scene::new("adopted");
    let own = scene.scratch.join("source/.weir");
    scene.crash(At::Source);
    fs::remove_file(own.join("id")).unwrap();
    let (groups, log) = scene.mount(At::Source, 0).unwrap();
    assert_eq!((groups, log.is_some()), (1, true));
    drop(log);
    assert!(own.join("id").exists());
    // But not if its superblock names another SOURCE.
    fs::write(own.join("id"), format!("{}\n", hex(&[7; 16]))).unwrap();
    let error = scene.mount(At::Source, 0).unwrap_err().to_string();
    assert!(error.contains("belongs to another SOURCE"), "{error}");
    fs::write(own.join("id"), "nonsense").unwrap();
    let error = scene.mount(At::Source, 0).unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
}

#[test]
fn a_log_of_another_source_is_not_taken() {
    let scene = Scene::new("others");
    scene.crash(At::First);
    let other = Scene::new("others-2");
    fs::rename(scene.path(At::First), other.path(At::First)).unwrap();
    let error = other.mount(At::First, 0).unwrap_err().to_string();
    assert!(error.contains("belongs to another SOURCE"), "{error}");
    let error = scene.mount(At::Source, 0).unwrap_err().to_string();
    assert!(error.contains("which cannot be used"), "{error}");
    fs::rename(other.path(At::First), scene.path(At::Second)).unwrap();
    // At another place it is still the log in use.
    assert_eq!(scene.mount(At::Second, 0).unwrap().0, 1);
}
