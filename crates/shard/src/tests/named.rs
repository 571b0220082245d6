//! Files that home has just made, as inodes that the log names. What is logged of them before they are bound is recovered, also when the
//! log is not kept for their names any more. Where files are found by their numbers, what has left memory is written home again, too.

use std::os::fd::OwnedFd;

use weir_backend::{LogFile, LogPlace, Naming, RedoLog, recover};
use weir_engine::RecordOf;
use weir_log::{
    Entry, FileType, LOG_BYTES_MIN, LoggedAttributes, Lsn, NODE_FIRST, NameRecord, NewNode, Record,
};

use super::*;
use crate::core::Thread;

const SOURCE: [u8; 16] = [7; 16];
const FILE: FileId = FileId(1);

/// A shard with a log so short that each group begins a segment, and one file in it that a record of names makes.
struct Named {
    bench: Bench,
    log: TempDir,
    home: Arc<HomeFile>,
    node: u64,
    /// The record that makes the file.
    made: Lsn,
}

impl Named {
    fn new() -> Named {
        // Nothing goes home by itself.
        let config = Config { dirty_expire: Duration::from_secs(3600), ..small_config() };
        Named::with(config, true)
    }

    /// Recovery finds files by their handles, or by their numbers.
    fn with(config: Config, by_handle: bool) -> Named {
        // Handles last there.
        let parent = Path::new("/dev/shm");
        let directory = || tempfile::Builder::new().prefix("weir-shard-").tempdir_in(parent);
        let (place, log) = (directory().unwrap(), directory().unwrap());
        let source = File::open(place.path()).unwrap();
        let at = LogPlace::at(&log.path().join("log")).unwrap();
        let (file, _) = LogFile::create(&at, LOG_BYTES_MIN, SOURCE).unwrap();
        let redo_log = RedoLog::open(file, SOURCE, source.as_fd(), NODE_FIRST).unwrap();
        let shard = Shard::start_with(config, source.as_fd(), Some(redo_log), false).unwrap();
        assert!(shard.log_all_names(by_handle));
        let node = shard.new_node().unwrap();
        let home = Arc::new(HomeFile::unbound());
        home.set_log_node(node);
        let make = NameRecord::Make {
            node,
            at: Entry { directory: 1, name: b"file" },
            kind: NewNode::File,
            attributes: LoggedAttributes { mode: Some(0o600), ..LoggedAttributes::default() },
        };
        let made = shard.log_names(&[], &Record::Name(make), RecordOf::Program).unwrap();
        let named = Named { bench: Bench { shard, place }, log, home, node, made };
        named.commit();
        named
    }

    fn commit(&self) {
        wait(|done| self.bench.shard.commit_names(done)).unwrap();
    }

    fn attach(&self) {
        self.bench.shard.attach(FILE, &self.home).unwrap();
    }

    /// A program's write and fsync.
    fn write_and_sync(&self, offset: u64, data: &[u8]) {
        self.bench.write(FILE, offset, data).unwrap();
        self.bench.sync(FILE).unwrap();
    }

    /// Home makes the file, and the log says which inode that is. The file's descriptors, and the record.
    fn make(&self) -> (OwnedFd, OwnedFd, Lsn) {
        let (path, data) = self.bench.make("file");
        let source = File::open(self.bench.place.path()).unwrap();
        let naming = Naming::of(source.as_fd()).unwrap();
        let made = HomeFile::new(path.try_clone().unwrap());
        let identity = made.identity(&naming, source.as_fd());
        let record =
            NameRecord::Node { node: self.node, file_type: FileType::File, identity: &identity };
        let home = Some(&*self.home);
        let named = self.bench.shard.log_inode(FILE, home, &identity, &record).unwrap();
        self.commit();
        (path, data, named)
    }

    /// The file is bound, and home is synced. So the log is not kept for its name any more, and is freed of the record at `upto`.
    fn bind_and_settle(&self, path: OwnedFd, data: OwnedFd, upto: Lsn) {
        let shard = &self.bench.shard;
        shard.bind(FILE, &self.home, path, data).unwrap();
        shard.settle_home().unwrap();
        shard.names_need(None);
        let deadline = Instant::now() + Duration::from_secs(30);
        while shard.log_tail() <= upto {
            assert!(Instant::now() < deadline, "the log is kept for the name");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What the file has if the daemon is killed now, after recovery.
    fn recovered(self) -> Vec<u8> {
        assert_eq!(fs::read(self.bench.path("file")).unwrap(), b"", "nothing went home");
        let killed = self.log.path().join("log when killed");
        fs::copy(self.log.path().join("log"), &killed).unwrap();
        let log = LogFile::open(&LogPlace::at(&killed).unwrap()).unwrap().unwrap();
        let source = File::open(self.bench.place.path()).unwrap();
        let recovered = recover(&log, SOURCE, source.as_fd(), false).unwrap();
        assert_eq!(recovered.report.names_left, [""; 0]);
        fs::read(self.bench.path("file")).unwrap()
    }
}

#[test]
fn what_is_logged_after_the_inode_is_named_and_before_the_file_is_bound_is_recovered() {
    for is_open in [true, false] {
        let named = Named::new();
        if is_open {
            named.attach();
        }
        let (path, data, record) = named.make();
        // A program has it open, or opens it now.
        named.attach();
        named.write_and_sync(0, b"synced");
        named.bind_and_settle(path, data, record);
        assert_eq!(named.recovered(), b"synced", "it was open before: {is_open}");
    }
}

#[test]
fn what_is_logged_before_the_inode_is_named_is_recovered() {
    let named = Named::new();
    named.attach();
    named.write_and_sync(0, b"synced");
    let (path, data, _) = named.make();
    named.bind_and_settle(path, data, named.made);
    assert_eq!(named.recovered(), b"synced");
}

#[test]
fn what_is_logged_for_an_inode_that_could_not_be_bound_is_recovered() {
    for is_open in [true, false] {
        let named = Named::new();
        if is_open {
            named.attach();
        }
        let (path, data, record) = named.make();
        named.attach();
        named.write_and_sync(0, b"synced");
        // Home refuses its size, for example.
        drop((path, data));
        fs::remove_file(named.bench.path("file")).unwrap();
        let (path, data, _) = named.make();
        named.bind_and_settle(path, data, record);
        assert_eq!(named.recovered(), b"synced", "it was open before: {is_open}");
    }
}

#[test]
fn what_left_memory_is_written_again_where_files_are_found_by_their_numbers() {
    let config = Config { dirty_expire: Duration::ZERO, ..small_config() };
    let named = Named::with(config, false);
    let (shard, file) = (&named.bench.shard, named.bench.path("file"));
    let (path, data) = named.bench.make("file");
    shard.bind(FILE, &named.home, path, data).unwrap();
    named.attach();
    // The first sync of a file that home had is one of home.
    named.write_and_sync(0, b"before");
    // It is in the log before it can go home.
    named.bench.write_durably(FILE, 0, b"synced", Durability::All).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let wait_for = |content: &[u8], what: &str| {
        while fs::read(&file).unwrap() != content {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_for(b"synced", "it did not go home");
    // Its page is evicted.
    let large = vec![1; 32 << 20];
    named.bench.attach(FileId(2), "large", &large);
    for at in (0..large.len()).step_by(1 << 16) {
        named.bench.read(FileId(2), at as u64, 1 << 16).unwrap();
    }
    fs::write(&file, [0; 6]).unwrap();
    shard.core.event(Thread::Completion, |state, now| {
        state.engine.home_sync_failed(ErrorKind::Io, None, now);
    });
    wait_for(b"synced", "home has not what it lost");
    assert_eq!(shard.stats().log_redos, 1);
}
