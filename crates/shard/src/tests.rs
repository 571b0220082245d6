//! The shard with its real engine and back end, against a model, on real file systems.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;
use weir_backend::{HomeFile, Timestamp};
use weir_engine::{Config, Durability, Error, ErrorKind, FetchPolicy, FileId, FreezeEnd, ReadData};

use crate::{Shard, StartError};

mod by_path;
mod lane;
mod named;
mod unbound;

const UNCHANGED: FreezeEnd = FreezeEnd { discard: None, size: None, written: false };

/// A reproducible stream of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// A shard over a temporary directory, used with calls that wait.
struct Bench {
    shard: Arc<Shard>,
    place: TempDir,
}

fn small_config() -> Config {
    Config {
        memory_bytes_max: 16 << 20,
        patch_bytes_max: 2 << 20,
        retry_delay: Duration::from_millis(20),
        ..Config::default()
    }
}

impl Bench {
    fn new(parent: &Path, config: Config) -> Bench {
        let place = tempfile::Builder::new().prefix("weir-shard-").tempdir_in(parent).unwrap();
        let source = File::open(place.path()).unwrap();
        Bench { shard: Shard::start(config, source.as_fd()).unwrap(), place }
    }

    fn in_lane(parent: &Path, config: Config) -> Bench {
        let place = tempfile::Builder::new().prefix("weir-shard-").tempdir_in(parent).unwrap();
        let source = File::open(place.path()).unwrap();
        Bench { shard: Shard::start_with(config, source.as_fd(), None, true).unwrap(), place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn home(&self, name: &str) -> Arc<HomeFile> {
        let path = rustix::fs::open(self.path(name), OFlags::PATH, Mode::empty()).unwrap();
        let home = Arc::new(HomeFile::new(path));
        home.open_data(true).unwrap();
        home
    }

    fn attach(&self, file: FileId, name: &str, content: &[u8]) -> Arc<HomeFile> {
        fs::write(self.path(name), content).unwrap();
        let home = self.home(name);
        self.shard.attach(file, &home).unwrap();
        home
    }

    fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.write_durably(file, offset, data, Durability::None)
    }

    fn write_durably(
        &self,
        file: FileId,
        offset: u64,
        data: &[u8],
        durability: Durability,
    ) -> Result<(), Error> {
        wait(|done| self.shard.write(file, offset, data, durability, done))
    }

    fn read(&self, file: FileId, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        wait::<Result<ReadData, Error>>(|done| self.shard.read(file, offset, len, done))
            .map(|data| data.to_vec())
    }

    fn sync(&self, file: FileId) -> Result<(), Error> {
        wait(|done| self.shard.sync(file, Durability::All, done))
    }

    fn truncate(&self, file: FileId, home: &Arc<HomeFile>, size: u64) {
        let data = home.data_fd().unwrap();
        wait::<()>(|done| {
            self.shard.freeze(file, None, move |granted| {
                granted.unwrap();
                rustix::fs::ftruncate(data, size).unwrap();
                (FreezeEnd { discard: None, size: Some(size), written: false }, move || done(()))
            });
        });
    }

    /// Detaches a file; syncs it first, since otherwise its dirty data would have to age out.
    fn detach(&self, file: FileId) {
        let synced = self.sync(file);
        assert!(matches!(synced, Ok(()) | Err(Error::NotAttached)), "{synced:?}");
        wait::<()>(|done| self.shard.detach(file, move || done(())));
    }
}

/// Calls something that takes a continuation, and waits for it.
fn wait<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).unwrap()));
    receiver.recv_timeout(Duration::from_secs(60)).expect("a continuation was not run")
}

fn places() -> [PathBuf; 2] {
    [std::env::temp_dir(), PathBuf::from("/dev/shm")]
}

fn apply(model: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset as usize..end].copy_from_slice(bytes);
}

/// One program's life with one file: writes, reads, syncs and truncates, compared with a model.
fn live(bench: &Bench, file: FileId, seed: u64, steps: usize) {
    let mut numbers = Numbers(seed);
    let mut model = numbers.bytes(300_000);
    let name = format!("file {}", file.0);
    let home = bench.attach(file, &name, &model);
    for _ in 0..steps {
        let span = model.len() as u64 + 10_000;
        match numbers.below(20) {
            0..10 => {
                let offset = numbers.below(span.min(1 << 20));
                let longest = [200, 9000, 150_000][numbers.below(3) as usize];
                let len = 1 + numbers.below(longest) as usize;
                let bytes = numbers.bytes(len);
                bench.write(file, offset, &bytes).unwrap();
                apply(&mut model, offset, &bytes);
            }
            10..17 => {
                let offset = numbers.below(span);
                let len = numbers.below(200_000) as usize;
                let from = (offset as usize).min(model.len());
                let to = (from + len).min(model.len());
                let read = bench.read(file, offset, len).unwrap();
                assert!(read == model[from..to], "bytes {from}..{to} of {name} differ");
            }
            17 => bench.sync(file).unwrap(),
            18 => {
                let size = numbers.below(span);
                bench.truncate(file, &home, size);
                model.resize(size as usize, 0);
            }
            _ => assert_eq!(bench.shard.size(file), Some(model.len() as u64)),
        }
    }
    bench.detach(file);
    assert!(fs::read(bench.path(&name)).unwrap() == model, "{name} is not what was written");
}

#[test]
fn random_requests_agree_with_a_model_under_every_policy() {
    for place in places() {
        for policy in FetchPolicy::ALL {
            let bench = Bench::new(&place, Config { fetch_policy: policy, ..small_config() });
            std::thread::scope(|scope| {
                for thread in 1..=4 {
                    let bench = &bench;
                    scope.spawn(move || live(bench, FileId(thread), thread, 60));
                }
            });
            let stats = bench.shard.stats();
            assert_eq!((stats.files, stats.dirty_pages, stats.pages), (0, 0, 0));
            let latencies = bench.shard.latencies();
            assert_eq!(latencies.write.count, stats.writes);
            assert_eq!(latencies.read.count, stats.reads);
            bench.shard.stop();
        }
    }
}

#[test]
fn more_data_than_memory_passes_through() {
    for place in places() {
        let bench = Bench::new(&place, small_config());
        let file = FileId(1);
        bench.attach(file, "file", b"");
        let chunk = Numbers(1).bytes(1 << 20);
        for nth in 0..64_u64 {
            bench.write(file, nth << 20, &chunk).unwrap();
        }
        for nth in [0, 31, 63_u64] {
            assert!(bench.read(file, nth << 20, 1 << 20).unwrap() == chunk);
        }
        bench.detach(file);
        let content = fs::read(bench.path("file")).unwrap();
        assert_eq!(content.len(), 64 << 20);
        assert!(content.chunks(1 << 20).all(|found| found == chunk));
    }
}

#[test]
fn dirty_data_ages_out_by_itself() {
    for place in places() {
        let expire = Duration::from_millis(50);
        let bench = Bench::new(&place, Config { dirty_expire: expire, ..small_config() });
        let file = FileId(1);
        let home = bench.attach(file, "file", b"");
        let mtime = Timestamp { tv_sec: 1_000_000_000, tv_nsec: 5 };
        home.times().note_write(mtime);
        bench.write(file, 0, b"aged").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while bench.shard.has_dirty(file) {
            assert!(Instant::now() < deadline, "old data does not go home");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::read(bench.path("file")).unwrap(), b"aged");
        while fs::metadata(bench.path("file")).unwrap().mtime() != 1_000_000_000 {
            assert!(Instant::now() < deadline, "the modification time is not restored");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_sync_makes_the_modification_time_durable_too() {
    for place in places() {
        let bench = Bench::new(&place, small_config());
        let file = FileId(1);
        let home = bench.attach(file, "file", b"");
        home.times().note_write(Timestamp { tv_sec: 1_234_567_890, tv_nsec: 42 });
        bench.write_durably(file, 0, b"durable", Durability::All).unwrap();
        let status = fs::metadata(bench.path("file")).unwrap();
        assert_eq!((status.mtime(), status.mtime_nsec()), (1_234_567_890, 42));
        assert_eq!(fs::read(bench.path("file")).unwrap(), b"durable");
    }
}

#[test]
fn an_attach_cancels_a_detach() {
    let bench = Bench::new(Path::new("/dev/shm"), small_config());
    let file = FileId(1);
    let home = bench.attach(file, "file", b"");
    bench.write(file, 0, b"kept").unwrap();
    let gone = Arc::new(AtomicBool::new(false));
    let detached = Arc::clone(&gone);
    bench.shard.detach(file, move || detached.store(true, Ordering::SeqCst));
    bench.shard.attach(file, &home).unwrap();
    bench.sync(file).unwrap();
    assert_eq!(bench.read(file, 0, 10).unwrap(), b"kept");
    assert!(!gone.load(Ordering::SeqCst));
    bench.detach(file);
    assert_eq!(bench.shard.size(file), None);
    bench.detach(file);
}

#[test]
fn requests_for_unknown_files_are_answered() {
    let bench = Bench::new(Path::new("/dev/shm"), small_config());
    let file = FileId(9);
    assert_eq!(bench.write(file, 0, b"x"), Err(Error::NotAttached));
    assert_eq!(bench.read(file, 0, 1), Err(Error::NotAttached));
    assert_eq!(bench.sync(file), Err(Error::NotAttached));
    let granted = wait(|done| {
        bench.shard.freeze(file, None, move |granted| (UNCHANGED, move || done(granted)));
    });
    assert_eq!(granted, Err(Error::NotAttached));
    assert!(!bench.shard.drop_clean(file).unwrap());
    bench.shard.discard(file);
}

#[test]
fn what_changed_at_home_is_seen_after_dropping_what_is_cached() {
    let bench = Bench::new(&std::env::temp_dir(), small_config());
    let file = FileId(1);
    bench.attach(file, "file", b"before");
    assert_eq!(bench.read(file, 0, 100).unwrap(), b"before");
    fs::write(bench.path("file"), b"afterwards").unwrap();
    assert!(bench.shard.drop_clean(file).unwrap());
    assert_eq!(bench.read(file, 0, 100).unwrap(), b"afterwards");
}

#[test]
fn continuations_may_call_the_shard_without_end() {
    let bench = Bench::new(Path::new("/dev/shm"), small_config());
    let file = FileId(1);
    bench.attach(file, "file", &[1; 100]);
    let (sender, receiver) = mpsc::channel();
    read_again(Arc::clone(&bench.shard), file, 100_000, sender);
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(()));
}

fn read_again(shard: Arc<Shard>, file: FileId, left: u32, end: mpsc::Sender<()>) {
    let again = Arc::clone(&shard);
    shard.read(file, 0, 100, move |data| {
        assert_eq!(data.unwrap().len(), 100);
        match left {
            0 => end.send(()).unwrap(),
            _ => read_again(again, file, left - 1, end),
        }
    });
}

#[test]
fn frozen_actions_run_alone_and_before_their_answers() {
    for place in places() {
        let bench = Bench::new(&place, small_config());
        let file = FileId(1);
        let home = bench.attach(file, "file", b"");
        let inside = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (bench, home, inside) = (&bench, &home, &inside);
                scope.spawn(move || {
                    for round in 0..50 {
                        bench.write(file, thread * 5000, &[thread as u8; 5000]).unwrap();
                        let (home, inside) = (Arc::clone(home), Arc::clone(inside));
                        let flush = (round % 2 == 0).then_some((0, u64::MAX));
                        wait::<()>(|done| {
                            bench.shard.freeze(file, flush, move |granted| {
                                granted.unwrap();
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                                let data = home.data_fd().unwrap();
                                let size = rustix::fs::fstat(&data).unwrap().st_size;
                                assert!(flush.is_none() || size >= 5000);
                                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                                (UNCHANGED, move || done(()))
                            });
                        });
                    }
                });
            }
        });
        bench.detach(file);
        let content = fs::read(bench.path("file")).unwrap();
        assert!(content.chunks(5000).zip(0..4_u8).all(|(found, byte)| found == [byte; 5000]));
    }
}

/// A mounted tmpfs of four MiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where there is no right to mount.
    fn mount() -> Option<SmallDisk> {
        let place = tempfile::tempdir().unwrap();
        let mounted = Program::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "weir-test"])
            .arg(place.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(place))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Program::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_reported_to_the_writer() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: no right to mount a tmpfs");
        return;
    };
    let bench = Bench::new(disk.0.path(), small_config());
    let file = FileId(1);
    bench.attach(file, "file", b"");
    let chunk = vec![3; 1 << 20];
    let taken = (0..8).take_while(|nth| bench.write(file, nth << 20, &chunk).is_ok()).count();
    assert!((2..=4).contains(&taken), "{taken} MiB fit into 4");
    assert_eq!(bench.write(file, 1 << 30, b"x"), Err(Error::Home(ErrorKind::NoSpace)));
    // What was taken goes home.
    assert_eq!(bench.sync(file), Ok(()));
    bench.detach(file);
    let content = fs::read(bench.path("file")).unwrap();
    assert!(content.len() >= taken << 20 && content.iter().all(|&byte| byte == 3));
}

#[test]
fn a_failed_destage_is_reported_and_tried_again() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: no right to mount a tmpfs");
        return;
    };
    let expire = Duration::from_millis(100);
    let bench = Bench::new(disk.0.path(), Config { dirty_expire: expire, ..small_config() });
    let file = FileId(1);
    let home = bench.attach(file, "file", &[1; 1 << 20]);
    let mut cursor = bench.shard.error_cursor(file);
    // The file's space is taken away, past Weir.
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(home.data_fd().unwrap(), punch, 0, 1 << 20).unwrap();
    let filler = File::create(bench.path("filler")).unwrap();
    let chunk = [0; 4096];
    while std::io::Write::write_all(&mut &filler, &chunk).is_ok() {}

    let mut numbers = Numbers(7);
    let data = numbers.bytes(1 << 20);
    bench.write(file, 0, &data).unwrap();
    assert_eq!(bench.sync(file), Err(Error::Home(ErrorKind::NoSpace)));
    assert_eq!(bench.shard.take_error(file, &mut cursor), Some(ErrorKind::NoSpace));
    assert!(bench.shard.has_dirty(file));
    assert!(bench.read(file, 0, 1 << 20).unwrap() == data);

    fs::remove_file(bench.path("filler")).unwrap();
    drop(filler);
    let deadline = Instant::now() + Duration::from_secs(60);
    while bench.shard.has_dirty(file) {
        assert!(Instant::now() < deadline, "the failed write is not tried again");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bench.sync(file), Ok(()));
    assert!(fs::read(bench.path("file")).unwrap() == data);
}

/// Not a test of its own: the body of a process that the next test starts.
#[test]
#[ignore = "ends its process"]
fn a_frozen_action_that_panics() {
    let bench = Bench::new(&std::env::temp_dir(), small_config());
    let file = FileId(1);
    bench.attach(file, "file", b"");
    // Elsewhere a panic ends its thread only; here it would leave the file frozen for ever.
    bench.shard.freeze::<fn()>(file, None, |_| panic!("in a frozen action"));
}

#[test]
fn a_panic_that_would_leave_callers_waiting_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    // The aborted process cannot clean up after itself.
    let place = tempfile::tempdir().unwrap();
    let status = Program::new(std::env::current_exe().unwrap())
        .env("TMPDIR", place.path())
        .args(["--exact", "tests::a_frozen_action_that_panics", "--ignored"])
        .output()
        .unwrap()
        .status;
    assert_eq!(status.signal(), Some(6), "{status}");
}

#[test]
fn a_stopped_shard_runs_nothing_and_stops_twice() {
    let bench = Bench::new(&std::env::temp_dir(), small_config());
    let file = FileId(1);
    bench.attach(file, "file", &[1; 4096]);
    bench.shard.stop();
    let dropped = Arc::new(());
    let kept = Arc::clone(&dropped);
    bench.shard.read(file, 0, 10, move |_| drop(kept));
    bench.shard.stop();
    let Bench { shard, .. } = bench;
    drop(shard);
    assert_eq!(Arc::strong_count(&dropped), 1, "waiting requests are dropped with the shard");
}

#[test]
fn a_shard_that_cannot_start_says_why() {
    let source = File::open(std::env::temp_dir()).unwrap();
    let config = Config { memory_bytes_max: 1, ..Config::default() };
    assert!(matches!(Shard::start(config, source.as_fd()), Err(StartError::Config(_))));
    let config = Config { memory_bytes_max: u64::MAX / 4, ..Config::default() };
    assert!(matches!(Shard::start(config, source.as_fd()), Err(StartError::Memory { .. })));
}
