//! Recovery of a log that has names and data: names first, and the data of files that home did not have when it was logged.

#![allow(clippy::unwrap_used)] // What is missing fails the test.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use weir_backend::{LogFile, LogPlace, Naming, OpenLogError, RecoveredLog, RedoLog, recover};
use weir_log::{
    Entry, FileType, LOG_BYTES_MIN, LoggedAttributes, Lsn, NameRecord, NewNode, Record, Stage,
    Writer,
};

const MOUNT: [u8; 16] = [7; 16];
const ROOT: u64 = 1;

/// A SOURCE, and a log beside it that a mount was writing when it died.
struct Stand {
    _directory: TempDir,
    source: PathBuf,
    log: PathBuf,
    writer: Writer,
}

fn attributes(mode: u32) -> LoggedAttributes {
    LoggedAttributes { mode: Some(mode), uid: None, gid: None, atime: None, mtime: None }
}

impl Stand {
    /// `None` where files have no handles that last: names are not logged there.
    fn new() -> Option<Stand> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (source, log) = (directory.path().join("source"), directory.path().join("log"));
        fs::create_dir(&source).unwrap();
        fs::DirBuilder::new().mode(0o700).create(source.join(".weir")).unwrap();
        let opened = fs::File::open(&source).unwrap();
        if Naming::of(opened.as_fd()).unwrap().is_by_path() {
            return None;
        }
        let place = LogPlace::at(&log).unwrap();
        let (file, _) = LogFile::create(&place, LOG_BYTES_MIN, MOUNT).unwrap();
        let writer = RedoLog::open(file, MOUNT, opened.as_fd(), 0).unwrap().writer();
        Some(Stand { _directory: directory, source, log, writer })
    }

    fn file(&self) -> LogFile {
        LogFile::open(&LogPlace::at(&self.log).unwrap()).unwrap().unwrap()
    }

    fn source(&self) -> fs::File {
        fs::File::open(&self.source).unwrap()
    }

    fn append(&mut self, record: Record<'_>) -> Lsn {
        self.writer.append(&record).unwrap()
    }

    fn make(&mut self, node: u64, directory: u64, name: &str, kind: NewNode<'_>, mode: u32) {
        let at = Entry { directory, name: name.as_bytes() };
        let attributes = attributes(mode);
        self.append(Record::Name(NameRecord::Make { node, at, kind, attributes }));
    }

    /// Data of a file that home does not have yet.
    fn write(&mut self, node: u64, offset: u64, data: &[u8]) {
        self.append(Record::File { file: node, identity: b"" });
        self.append(Record::Write { file: node, offset, data });
    }

    fn place(&mut self, node: u64, file_type: FileType, directory: u64, name: &str) {
        let at = Entry { directory, name: name.as_bytes() };
        self.append(Record::Name(NameRecord::Place { node, file_type, at }));
    }

    fn commit(&mut self) {
        let commit = self.writer.commit().unwrap();
        self.file().write(&commit).unwrap();
        self.writer.committed();
    }

    fn recover(&self) -> Result<RecoveredLog, OpenLogError> {
        recover(&self.file(), MOUNT, self.source().as_fd(), false)
    }

    /// A directory that home has.
    fn known(&mut self, node: u64, name: &str) {
        let identity = identity_of(&self.source.join(name));
        let file_type = weir_log::FileType::Directory;
        self.append(Record::Name(NameRecord::Node { node, file_type, identity: &identity }));
    }

    fn set_mtime(&mut self, node: u64, seconds: i64) {
        let mtime = Some(weir_log::LoggedTime { seconds, nanoseconds: 5 });
        let attributes = LoggedAttributes { mode: None, mtime, ..attributes(0) };
        self.append(Record::Name(NameRecord::Set { node, attributes }));
    }

    fn mtime(&self, path: &str) -> (i64, i64) {
        let status = fs::metadata(self.source.join(path)).unwrap();
        (status.mtime(), status.mtime_nsec())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.source.join(path)).unwrap()
    }
}

#[test]
fn a_file_that_home_did_not_have_is_made_and_gets_its_data() {
    let Some(mut stand) = Stand::new() else { return };
    stand.make(10, ROOT, "directory", NewNode::Directory, 0o750);
    stand.make(11, 10, "file", NewNode::File, 0o640);
    stand.write(11, 0, b"some bytes");
    stand.commit();
    // Another group, and another name.
    stand.write(11, 5, b"BYTES");
    let (from, to) =
        (Entry { directory: 10, name: b"file" }, Entry { directory: ROOT, name: b"renamed" });
    stand.append(Record::Name(NameRecord::Rename { node: 11, from, to, replaced: None }));
    stand.commit();
    for _ in 0..2 {
        stand.recover().unwrap();
        assert_eq!(stand.read("renamed"), "some BYTES");
        let mode = |path: &str| fs::metadata(stand.source.join(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("renamed"), mode("directory")), (0o640, 0o750));
        assert_eq!(fs::read_dir(stand.source.join("directory")).unwrap().count(), 0);
    }
    assert!(!stand.source.join(".weir/recovered").exists(), "nothing is left of the recovery");
}

#[test]
fn revoked_data_of_a_file_that_home_did_not_have_is_not_replayed() {
    let Some(mut stand) = Stand::new() else { return };
    stand.make(11, ROOT, "file", NewNode::File, 0o600);
    stand.write(11, 0, b"old and long");
    let before = stand.writer.position();
    stand.append(Record::Revoke { file: 11, before });
    stand.append(Record::Write { file: 11, offset: 0, data: b"new" });
    stand.commit();
    stand.recover().unwrap();
    assert_eq!(stand.read("file"), "new");
}

#[test]
fn data_of_a_file_that_was_removed_again_is_left_out() {
    let Some(mut stand) = Stand::new() else { return };
    stand.make(11, ROOT, "file", NewNode::File, 0o600);
    stand.write(11, 0, b"some bytes");
    let at = Entry { directory: ROOT, name: b"file" };
    stand.append(Record::Name(NameRecord::Remove { node: 11, at }));
    stand.commit();
    stand.recover().unwrap();
    assert!(!stand.source.join("file").exists());
}

#[test]
fn names_that_home_refuses_are_named_and_keep_the_log_for_the_next_recovery() {
    let Some(mut stand) = Stand::new() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let locked = stand.source.join("locked");
    fs::create_dir(&locked).unwrap();
    let opened = fs::File::open(&locked).unwrap();
    stand.known(12, "locked");
    stand.make(13, 12, "refused", NewNode::File, 0o600);
    stand.write(13, 0, b"kept");
    stand.make(14, ROOT, "other", NewNode::File, 0o600);
    stand.write(14, 0, b"done");
    stand.commit();
    let flags = rustix::fs::ioctl_getflags(&opened).unwrap();
    let set = rustix::fs::ioctl_setflags(&opened, flags | rustix::fs::IFlags::IMMUTABLE);
    if set.is_err() {
        return;
    }
    let refused = stand.recover().unwrap_err().to_string();
    assert!(refused.contains("locked/refused"), "{refused}");
    assert_eq!(stand.read("other"), "done");
    rustix::fs::ioctl_setflags(&opened, flags).unwrap();
    // What was finished is not done again: it may have been changed since.
    fs::write(stand.source.join("other"), "newer").unwrap();
    let log = RedoLog::open(stand.file(), MOUNT, stand.source().as_fd(), 0).unwrap();
    drop(log);
    assert_eq!(stand.read("locked/refused"), "kept");
    assert_eq!(stand.read("other"), "newer");
}

#[test]
fn data_without_identities_goes_to_the_files_that_have_the_names_of_the_log() {
    let Some(mut stand) = Stand::new() else { return };
    fs::create_dir(stand.source.join("directory")).unwrap();
    for name in ["directory/file", "moved"] {
        fs::write(stand.source.join(name), "some bytes").unwrap();
    }
    stand.place(10, FileType::Directory, ROOT, "directory");
    stand.place(11, FileType::File, 10, "file");
    stand.write(11, 5, b"BYTES");
    stand.commit();
    stand.recover().unwrap();
    assert_eq!(stand.read("directory/file"), "some BYTES");
    // With changes of names: one was done, and nobody was told.
    stand.writer = RedoLog::open(stand.file(), MOUNT, stand.source().as_fd(), 0).unwrap().writer();
    stand.place(12, FileType::File, ROOT, "old");
    stand.make(13, ROOT, "made", NewNode::Directory, 0o700);
    let at = |directory, name| Entry { directory, name };
    let (from, to) = (at(ROOT, &b"old"[..]), at(ROOT, &b"moved"[..]));
    stand.append(Record::Name(NameRecord::Rename { node: 12, from, to, replaced: None }));
    let (stage, from, to) = (Stage::Begun, Some(from), Some(to));
    stand.append(Record::Name(NameRecord::Step { node: 12, stage, from, to }));
    let (from, to) = (at(ROOT, &b"moved"[..]), at(13, &b"last"[..]));
    stand.append(Record::Name(NameRecord::Rename { node: 12, from, to, replaced: None }));
    stand.write(12, 0, b"MOVED");
    stand.commit();
    stand.recover().unwrap();
    assert_eq!(stand.read("made/last"), "MOVEDbytes");
    assert!(!stand.source.join(".weir/recovered").exists());
}

#[test]
fn a_file_that_was_finished_is_not_another_one_that_has_its_path_later() {
    let Some(mut stand) = Stand::new() else { return };
    let locked = stand.source.join("locked");
    fs::create_dir(&locked).unwrap();
    fs::write(stand.source.join("file"), "old").unwrap();
    stand.place(10, FileType::Directory, ROOT, "locked");
    stand.place(11, FileType::File, ROOT, "file");
    stand.write(11, 0, b"first");
    let (from, to) =
        (Entry { directory: ROOT, name: b"file" }, Entry { directory: 10, name: b"moved" });
    stand.append(Record::Name(NameRecord::Rename { node: 11, from, to, replaced: None }));
    stand.make(12, ROOT, "file", NewNode::File, 0o600);
    stand.write(12, 0, b"second");
    stand.commit();
    let opened = fs::File::open(&locked).unwrap();
    let flags = rustix::fs::ioctl_getflags(&opened);
    let set = flags.and_then(|flags| {
        rustix::fs::ioctl_setflags(&opened, flags | rustix::fs::IFlags::IMMUTABLE)
    });
    if set.is_err() {
        return;
    }
    let refused = stand.recover().unwrap_err().to_string();
    assert!(refused.contains("locked/moved"), "{refused}");
    assert_eq!(stand.read("file"), "first");
    rustix::fs::ioctl_setflags(&opened, flags.unwrap()).unwrap();
    // What was finished is not done again: it may have been changed since.
    fs::write(stand.source.join("file"), "newer").unwrap();
    stand.recover().unwrap();
    assert_eq!((&*stand.read("locked/moved"), &*stand.read("file")), ("newer", "second"));
}

#[test]
fn new_files_in_a_directory_that_somebody_removed_are_kept_with_their_data() {
    let Some(mut stand) = Stand::new() else { return };
    fs::create_dir(stand.source.join("directory")).unwrap();
    stand.known(12, "directory");
    stand.make(13, 12, "file", NewNode::File, 0o600);
    stand.write(13, 0, b"acknowledged");
    let at = Entry { directory: 12, name: b"file" };
    let to = Entry { directory: 12, name: b"renamed" };
    stand.append(Record::Name(NameRecord::Rename { node: 13, from: at, to, replaced: None }));
    stand.commit();
    fs::remove_dir(stand.source.join("directory")).unwrap();
    let recovered = stand.recover().unwrap();
    assert_eq!(stand.read("lost+weir-1/renamed"), "acknowledged");
    assert_eq!((recovered.told.len(), recovered.report.applied), (1, 1), "{recovered:?}");
    assert!(recovered.told[0].ends_with("is in lost+weir-1"), "{recovered:?}");
    // SOURCE can be mounted.
    RedoLog::open(stand.file(), MOUNT, stand.source().as_fd(), 0).unwrap();
}

#[test]
fn without_handles_a_time_that_a_program_set_is_kept_too() {
    let Some(mut stand) = Stand::new() else { return };
    fs::write(stand.source.join("old"), "old").unwrap();
    stand.place(11, FileType::File, ROOT, "old");
    stand.set_mtime(11, 1_000_000_000);
    stand.make(12, ROOT, "new", NewNode::File, 0o600);
    stand.set_mtime(12, 1_100_000_000);
    for node in [11, 12] {
        stand.write(node, 0, b"bytes");
    }
    stand.commit();
    stand.recover().unwrap();
    assert_eq!((&*stand.read("old"), &*stand.read("new")), ("bytes", "bytes"));
    assert_eq!(stand.mtime("old"), (1_000_000_000, 5));
    assert_eq!(stand.mtime("new"), (1_100_000_000, 5));
}

#[test]
fn a_time_that_a_program_set_is_kept_whether_it_was_logged_before_the_data_or_after() {
    let Some(mut stand) = Stand::new() else { return };
    fs::write(stand.source.join("old"), "old").unwrap();
    let identity = identity_of(&stand.source.join("old"));
    let file_type = weir_log::FileType::File;
    stand.append(Record::Name(NameRecord::Node { node: 11, file_type, identity: &identity }));
    stand.set_mtime(11, 1_000_000_000);
    stand.append(Record::File { file: 11, identity: &identity });
    stand.append(Record::Write { file: 11, offset: 0, data: b"new" });
    for (node, name) in [(12, "first"), (13, "later"), (14, "never")] {
        stand.make(node, ROOT, name, NewNode::File, 0o600);
    }
    stand.set_mtime(12, 1_100_000_000);
    for node in [12, 13, 14] {
        stand.write(node, 0, b"bytes");
    }
    stand.set_mtime(13, 1_200_000_000);
    stand.commit();
    for _ in 0..2 {
        stand.recover().unwrap();
        assert_eq!((&*stand.read("old"), &*stand.read("later")), ("new", "bytes"));
        assert_eq!(stand.mtime("old"), (1_000_000_000, 5));
        assert_eq!(stand.mtime("first"), (1_100_000_000, 5));
        assert_eq!(stand.mtime("later"), (1_200_000_000, 5));
        assert!(stand.mtime("never").0 > 1_500_000_000);
    }
}

/// A file's handle, as the log has it.
fn identity_of(path: &Path) -> Vec<u8> {
    use rustix::fs::{Mode, OFlags};
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let source = fs::File::open(path.parent().unwrap()).unwrap();
    let naming = Naming::of(source.as_fd()).unwrap();
    weir_backend::HomeFile::new(opened).identity(&naming, source.as_fd())
}

#[test]
fn permissions_of_the_fixture_are_those_of_the_log() {
    let Some(mut stand) = Stand::new() else { return };
    stand.make(11, ROOT, "read-only", NewNode::File, 0o444);
    stand.write(11, 0, b"bytes");
    stand.commit();
    stand.recover().unwrap();
    let mode = fs::metadata(stand.source.join("read-only")).unwrap().permissions().mode();
    assert_eq!((mode & 0o7777, &*stand.read("read-only")), (0o444, "bytes"));
}
