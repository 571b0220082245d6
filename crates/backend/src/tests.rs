//! The back end against a model, on real file systems.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;
use weir_engine::{
    Command, Completion, ErrorKind, Extent, FileId, Frame, FramePool, IoId, PAGE_BYTES, Part,
    Urgency,
};

use crate::home_file::{Access, HomeFile};
use crate::times::Timestamp;
use crate::{Directory, Method, Patience, Sink};

mod unbound;

const PAGE: u64 = PAGE_BYTES as u64;

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

#[derive(Default)]
struct Collected {
    completions: Mutex<HashMap<IoId, Completion>>,
    arrived: Condvar,
}

impl Sink for Collected {
    fn completed(&self, completions: &mut Vec<(IoId, Completion)>) {
        self.completions.lock().unwrap().extend(completions.drain(..));
        self.arrived.notify_all();
    }
}

/// A started back end over a temporary directory.
struct Bench {
    directory: Directory,
    collected: Arc<Collected>,
    pool: FramePool,
    place: TempDir,
    next_io: std::sync::atomic::AtomicU64,
    patience: Patience,
}

/// Where tests keep files: usually a disk that takes direct I/O, and memory that does not.
fn places() -> [PathBuf; 2] {
    [std::env::temp_dir(), PathBuf::from("/dev/shm")]
}

/// Every place with every method.
fn benches() -> Vec<Bench> {
    let of = |place: PathBuf| [Bench::new(&place, true), Bench::new(&place, false)];
    places().into_iter().flat_map(of).collect()
}

impl Bench {
    fn new(parent: &Path, with_ring: bool) -> Bench {
        let place = tempfile::Builder::new().prefix("weir-backend-").tempdir_in(parent).unwrap();
        let source = File::open(place.path()).unwrap();
        let directory = if with_ring {
            Directory::new(source.as_fd(), None)
        } else {
            Directory::with_ring(source.as_fd(), None, None)
        };
        assert!(with_ring || directory.method() == Method::Threads);
        let collected = Arc::new(Collected::default());
        directory.start(Arc::<Collected>::clone(&collected)).unwrap();
        let pool = FramePool::new(4096).unwrap();
        let patience = if with_ring { Patience::Sync } else { Patience::None };
        Bench { directory, collected, pool, place, next_io: 1.into(), patience }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn file(&self, name: &str, content: &[u8]) -> Arc<HomeFile> {
        fs::write(self.path(name), content).unwrap();
        let file = Arc::new(HomeFile::new(self.open_path(name)));
        file.open_data(true).unwrap();
        file.home_attributes().unwrap();
        file
    }

    fn open_path(&self, name: &str) -> OwnedFd {
        rustix::fs::open(self.path(name), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn io(&self) -> IoId {
        IoId(self.next_io.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    /// Executes commands together and waits for all of them.
    fn execute(&self, file: &Arc<HomeFile>, commands: Vec<Command>) -> Vec<Completion> {
        let ios: Vec<IoId> = commands.iter().map(Command::io).collect();
        let mut commands = commands.into_iter().map(|c| (c, Arc::clone(file))).collect();
        let mut done = Vec::new();
        self.directory.execute(&mut commands, &mut done, self.patience);
        self.collected.completions.lock().unwrap().extend(done);
        ios.into_iter().map(|io| self.answer(io)).collect()
    }

    /// Waits for a command's completion.
    fn answer(&self, io: IoId) -> Completion {
        let mut completions = self.collected.completions.lock().unwrap();
        loop {
            if let Some(completion) = completions.remove(&io) {
                return completion;
            }
            let timeout = Duration::from_secs(60);
            let waited = self.collected.arrived.wait_timeout(completions, timeout).unwrap();
            assert!(!waited.1.timed_out(), "{io:?} was never answered");
            completions = waited.0;
        }
    }

    /// The command that writes `bytes` at `offset`, one part for each page.
    fn write_command(&self, offset: u64, bytes: &[u8]) -> Command {
        let mut parts = Vec::new();
        let mut at = offset;
        let mut left = bytes;
        while !left.is_empty() {
            let start = (at % PAGE) as usize;
            let len = left.len().min(PAGE_BYTES - start);
            let mut frame = self.pool.take().unwrap();
            frame.bytes_mut().unwrap()[start..start + len].copy_from_slice(&left[..len]);
            parts.push(Part { frame, start: start as u16, len: len as u16 });
            at += len as u64;
            left = &left[len..];
        }
        Command::Write { io: self.io(), file: FileId(1), offset, parts }
    }

    fn fetch_command(&self, first_page: u64, pages: u64, urgency: Urgency) -> Command {
        let frames: Vec<Frame> = (0..pages).map(|_| self.pool.take().unwrap()).collect();
        Command::Fetch {
            io: self.io(),
            file: FileId(1),
            offset: first_page * PAGE,
            frames,
            urgency,
        }
    }

    fn write(&self, file: &Arc<HomeFile>, offset: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
        written(self.execute(file, vec![self.write_command(offset, bytes)]).remove(0))
    }

    fn fetch(&self, file: &Arc<HomeFile>, first_page: u64, pages: u64) -> Vec<u8> {
        let command = self.fetch_command(first_page, pages, Urgency::Waited);
        fetched(self.execute(file, vec![command]).remove(0)).unwrap()
    }

    fn sync(&self, file: &Arc<HomeFile>, datasync: bool) {
        let command = Command::Sync { io: self.io(), file: FileId(1), datasync };
        match self.execute(file, vec![command]).remove(0) {
            Completion::Synced { result } => assert_eq!(result, Ok(())),
            other => panic!("{other:?}"),
        }
    }

    fn map(&self, file: &Arc<HomeFile>) -> Vec<Extent> {
        let command = Command::Map { io: self.io(), file: FileId(1) };
        match self.execute(file, vec![command]).remove(0) {
            Completion::Mapped { extents } => extents,
            other => panic!("{other:?}"),
        }
    }

    fn reserve(&self, file: &Arc<HomeFile>, offset: u64, len: u64) -> Result<(), ErrorKind> {
        let command = Command::Reserve { io: self.io(), file: FileId(1), offset, len };
        match self.execute(file, vec![command]).remove(0) {
            Completion::Reserved { result } => result,
            other => panic!("{other:?}"),
        }
    }
}

fn written(completion: Completion) -> Result<(), ErrorKind> {
    match completion {
        Completion::Written { result } => result,
        other => panic!("{other:?} does not answer a write"),
    }
}

fn fetched(completion: Completion) -> Result<Vec<u8>, ErrorKind> {
    match completion {
        Completion::Fetched { frames, result } => {
            let mut bytes: Vec<u8> = frames.iter().flat_map(|frame| *frame.bytes()).collect();
            bytes.truncate(result?);
            Ok(bytes)
        }
        other => panic!("{other:?} does not answer a fetch"),
    }
}

fn apply(model: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset as usize..end].copy_from_slice(bytes);
}

#[test]
fn random_transfers_agree_with_a_model() {
    for (seed, bench) in benches().into_iter().enumerate() {
        let mut numbers = Numbers(seed as u64);
        let mut model = numbers.bytes(40_000);
        let file = bench.file("file", &model);
        for _ in 0..150 {
            random_round(&bench, &file, &mut numbers, &mut model);
            assert_eq!(fs::metadata(bench.path("file")).unwrap().len(), model.len() as u64);
        }
        assert!(fs::read(bench.path("file")).unwrap() == model, "the file is not the model");
        bench.directory.shutdown();
        assert_eq!(bench.pool.free(), bench.pool.capacity(), "frames are leaked");
    }
}

#[test]
fn extents_are_where_the_file_was_written_and_not_in_holes() {
    for bench in benches() {
        let file = bench.file("file", &[1; 16 * PAGE_BYTES]);
        bench.write(&file, 1 << 20, &[1; PAGE_BYTES]).unwrap();
        bench.sync(&file, true);
        let extents = bench.map(&file);
        let covers = |offset: u64| {
            extents.iter().any(|of| of.offset <= offset && offset < of.offset + of.len)
        };
        if bench.place.path().starts_with("/dev/shm") {
            assert!(extents.is_empty(), "memory is no device: {extents:?}");
        } else {
            assert!(covers(0) && covers(16 * PAGE - 1) && covers(1 << 20), "{extents:?}");
        }
        assert!(!covers(512 << 10), "{extents:?}");
    }
}

#[test]
fn all_extents_of_a_fragmented_file_are_listed() {
    let bench = Bench::new(&places()[0], true);
    let file = bench.file("file", b"");
    for piece in 0..700 {
        bench.write(&file, 2 * piece * PAGE, &[1; PAGE_BYTES]).unwrap();
    }
    bench.sync(&file, true);
    let extents = bench.map(&file);
    let pieces = extents.iter().filter(|of| of.len == PAGE).count();
    assert!(pieces == 700 && extents.is_sorted_by_key(|of| of.offset), "{pieces} pieces");
}

/// A few writes to disjoint groups of pages at once, then a few fetches at once.
fn random_round(bench: &Bench, file: &Arc<HomeFile>, numbers: &mut Numbers, model: &mut Vec<u8>) {
    const GROUP: u64 = 40 * PAGE;
    let mut commands = Vec::new();
    for group in 0..4 {
        // Sometimes whole units, sometimes whole pages, sometimes any bytes.
        let unit = [1, 512, PAGE][numbers.below(3) as usize];
        let start = numbers.below(GROUP / unit) * unit;
        let longest = (GROUP - start).min([700, 3 * PAGE, GROUP][numbers.below(3) as usize]);
        let end_unit = [1, unit][numbers.below(2) as usize];
        let len = (1 + numbers.below(longest)).next_multiple_of(end_unit).min(GROUP - start);
        let bytes = numbers.bytes(len as usize);
        commands.push(bench.write_command(group * GROUP + start, &bytes));
        apply(model, group * GROUP + start, &bytes);
    }
    for completion in bench.execute(file, commands) {
        assert_eq!(written(completion), Ok(()));
    }
    if numbers.below(8) == 0 {
        bench.sync(file, numbers.below(2) == 0);
    }
    let pages = model.len() as u64 / PAGE + 2;
    let ranges: Vec<(u64, u64)> =
        (0..4).map(|_| (numbers.below(pages), 1 + numbers.below(32))).collect();
    let urgencies = [Urgency::Waited, Urgency::Foreground, Urgency::Background];
    let commands = ranges
        .iter()
        .map(|&(first, count)| {
            bench.fetch_command(first, count, urgencies[numbers.below(3) as usize])
        })
        .collect();
    for (completion, (first, count)) in bench.execute(file, commands).into_iter().zip(ranges) {
        let from = (first as usize * PAGE_BYTES).min(model.len());
        let to = ((first + count) as usize * PAGE_BYTES).min(model.len());
        assert!(fetched(completion).unwrap() == model[from..to], "pages {first}+{count} differ");
    }
}

#[test]
fn a_file_grows_to_its_last_byte_and_no_further() {
    for bench in benches() {
        for len in [1, 511, 512, 513, 4095, 4096, 4097, 70_000, 262_144, 262_145] {
            let file = bench.file("file", b"");
            bench.reserve(&file, 0, 1 << 20).unwrap();
            let bytes = vec![7; len];
            bench.write(&file, 0, &bytes).unwrap();
            assert_eq!(fs::read(bench.path("file")).unwrap(), bytes);
        }
    }
}

#[test]
fn a_fetch_ends_at_the_end_of_the_file() {
    for bench in benches() {
        let content = Numbers(1).bytes(10_000);
        let file = bench.file("file", &content);
        assert_eq!(bench.fetch(&file, 0, 8), content);
        assert_eq!(bench.fetch(&file, 2, 1), content[8192..]);
        assert_eq!(bench.fetch(&file, 3, 2), b"");
        let empty = bench.file("empty", b"");
        assert_eq!(bench.fetch(&empty, 0, 1), b"");
    }
}

#[test]
fn more_transfers_than_the_ring_holds_all_end() {
    for bench in benches() {
        let content = Numbers(2).bytes(64 * PAGE_BYTES);
        let file = bench.file("file", &content);
        let urgency = |nth| if nth % 3 == 0 { Urgency::Background } else { Urgency::Foreground };
        let commands =
            (0..3000).map(|nth| bench.fetch_command(nth % 64, 1, urgency(nth))).collect();
        for (nth, completion) in bench.execute(&file, commands).into_iter().enumerate() {
            let page = nth % 64 * PAGE_BYTES;
            assert!(fetched(completion).unwrap() == content[page..page + PAGE_BYTES]);
        }
    }
}

#[test]
fn many_threads_share_a_back_end() {
    for bench in benches() {
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let bench = &bench;
                scope.spawn(move || {
                    let name = format!("file {thread}");
                    let mut numbers = Numbers(thread);
                    let mut model = numbers.bytes(1000);
                    let file = bench.file(&name, &model);
                    for _ in 0..20 {
                        random_round(bench, &file, &mut numbers, &mut model);
                    }
                    assert!(fs::read(bench.path(&name)).unwrap() == model);
                });
            }
        });
    }
}

#[test]
fn direct_io_is_detected() {
    let disk = Bench::new(&std::env::temp_dir(), true);
    let path = disk.path("probe");
    fs::write(&path, b"x").unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let takes_direct = rustix::fs::open(&path, flags, Mode::empty()).is_ok();
    assert_eq!(disk.directory.is_direct(), takes_direct);
    let memory = Bench::new(Path::new("/dev/shm"), true);
    assert!(!memory.directory.is_direct());
    let file = memory.file("file", b"x");
    assert_eq!(file.home_attributes().unwrap().write_unit, 4096);
    assert_eq!(file.channel(Access::Read).unwrap().direct_unit, None);
}

#[test]
fn a_file_that_refuses_direct_io_is_transferred_through_the_page_cache() {
    for with_ring in [true, false] {
        let bench = Bench::new(&std::env::temp_dir(), with_ring);
        let content = Numbers(3).bytes(5 * PAGE_BYTES);
        let file = bench.file("file", &content);
        if file.channel(Access::Write).unwrap().direct_unit.is_none() {
            return;
        }
        // A unit the device does not take: the kernel answers EINVAL.
        file.claim_direct_unit(1);
        bench.write(&file, 10, &[9; 100]).unwrap();
        assert_eq!(file.channel(Access::Write).unwrap().direct_unit, None);
        let mut model = content;
        apply(&mut model, 10, &[9; 100]);
        assert_eq!(bench.fetch(&file, 0, 5), model);
    }
}

#[test]
fn attributes_have_size_holes_and_access() {
    for bench in benches() {
        let file = bench.file("full", &[1; 9000]);
        let attributes = file.home_attributes().unwrap();
        assert_eq!((attributes.size, attributes.dense, attributes.readable), (9000, true, true));
        let sparse = File::create(bench.path("sparse")).unwrap();
        sparse.set_len(1 << 20).unwrap();
        sparse.write_all_at(b"x", 1 << 19).unwrap();
        let file = HomeFile::new(bench.open_path("sparse"));
        file.open_data(false).unwrap();
        assert!(!file.home_attributes().unwrap().dense);
        assert!(file.is_readable() && !file.is_writable());
        assert!(bench.file("empty", b"").home_attributes().unwrap().dense);
    }
}

#[test]
fn a_file_opened_for_reading_becomes_writable_and_back() {
    for bench in benches() {
        fs::write(bench.path("file"), b"content").unwrap();
        let file = Arc::new(HomeFile::new(bench.open_path("file")));
        assert!(file.data_fd().is_err());
        file.open_data(false).unwrap();
        assert_eq!(bench.fetch(&file, 0, 1), b"content");
        // What a failed sync covered is written again.
        bench.write(&file, 0, b"c").unwrap();
        assert!(!file.is_writable());
        file.open_data(true).unwrap();
        assert!(file.is_writable() && file.is_readable());
        bench.write(&file, 0, b"C").unwrap();
        assert_eq!(bench.fetch(&file, 0, 1), b"Content");
        file.close_data();
        assert!(!file.is_writable() && !file.is_readable());
        // Earlier writes can still be made durable, and are made again if that fails.
        bench.sync(&file, true);
        bench.write(&file, 0, b"c").unwrap();
        assert_eq!(bench.fetch(&file, 0, 1), b"content");
        assert!(!file.is_writable() && !file.is_readable());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_written_byte_exact() {
    for bench in benches() {
        let readable = bench.file("file", &[1; 6000]);
        let path = bench.open_path("file");
        let write = File::options().write(true).open(bench.path("file")).unwrap();
        let file = Arc::new(HomeFile::write_only(path, write.into()));
        assert!(!file.home_attributes().unwrap().readable);
        bench.write(&file, 4090, &[2; 20]).unwrap();
        let mut model = vec![1; 6000];
        apply(&mut model, 4090, &[2; 20]);
        assert_eq!(bench.fetch(&readable, 0, 2), model);
    }
}

#[test]
fn the_modification_time_is_restored_after_a_destage() {
    for bench in benches() {
        let file = bench.file("file", &[0; 5000]);
        let written_at = Timestamp { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };
        file.times().note_write(written_at);
        bench.write(&file, 0, &[1; 5000]).unwrap();
        let mtime = || {
            let status = fs::metadata(bench.path("file")).unwrap();
            (status.mtime(), status.mtime_nsec())
        };
        assert_ne!(mtime(), (1_000_000_000, 123_456_789));
        file.restore_times().unwrap();
        assert_eq!(mtime(), (1_000_000_000, 123_456_789));
        // Nothing to restore now; after another destage there is.
        bench.write(&file, 0, &[1; 512]).unwrap();
        assert_ne!(mtime(), (1_000_000_000, 123_456_789));
        file.close_data();
        assert_eq!(mtime(), (1_000_000_000, 123_456_789));
        assert_eq!(file.times().overlay(), (Some(written_at), Some(written_at)));
    }
}

#[test]
fn a_time_that_is_being_set_at_home_does_not_replace_that_of_a_write_meanwhile() {
    let bench = &benches()[0];
    let file = bench.file("file", &[0; 5000]);
    let [set_at, written_at] =
        [100, 1_000_000_000].map(|seconds| Timestamp { tv_sec: seconds, tv_nsec: 7 });
    file.times().set_logged_mtime(set_at, written_at);
    let (sender, restored) = mpsc::channel();
    file.set_times(|mtime| {
        file.times().note_write(written_at);
        let writer = Arc::clone(&file);
        thread::spawn(move || sender.send(writer.restore_times()).unwrap());
        assert!(restored.recv_timeout(Duration::from_millis(100)).is_err(), "it comes after this");
        let times = rustix::fs::Timestamps {
            last_access: Timestamp { tv_sec: 5, tv_nsec: 0 },
            last_modification: mtime.unwrap(),
        };
        rustix::fs::futimens(file.data_fd().unwrap(), &times).unwrap();
    });
    restored.recv().unwrap().unwrap();
    let status = fs::metadata(bench.path("file")).unwrap();
    assert_eq!((status.mtime(), status.mtime_nsec()), (1_000_000_000, 7));
}

#[test]
fn space_reserved_past_the_end_is_given_back() {
    for bench in benches() {
        let file = bench.file("file", &[1; 100]);
        bench.write(&file, 0, &[1; 100]).unwrap();
        let before = fs::metadata(bench.path("file")).unwrap();
        if bench.reserve(&file, 0, 4 << 20).is_err() {
            continue;
        }
        let reserved = fs::metadata(bench.path("file")).unwrap();
        assert_eq!(reserved.len(), 100);
        assert!(reserved.blocks() >= (4 << 20) / 512);
        rustix::fs::futimens(
            file.data_fd().unwrap(),
            &rustix::fs::Timestamps {
                last_access: Timestamp { tv_sec: 5, tv_nsec: 0 },
                last_modification: Timestamp { tv_sec: 6, tv_nsec: 7 },
            },
        )
        .unwrap();
        file.close_data();
        let after = fs::metadata(bench.path("file")).unwrap();
        assert_eq!((after.len(), after.mtime(), after.mtime_nsec()), (100, 6, 7));
        assert_eq!(after.blocks(), before.blocks().max(8));
    }
}

#[test]
fn giving_space_back_takes_no_privilege_away() {
    for bench in benches() {
        let file = bench.file("file", &[1; 100]);
        bench.reserve(&file, 0, 1 << 20).unwrap();
        fs::set_permissions(bench.path("file"), PermissionsExt::from_mode(0o4755)).unwrap();
        file.close_data();
        assert_eq!(fs::metadata(bench.path("file")).unwrap().mode() & 0o7777, 0o4755);
    }
}

/// A mounted file system of a few MiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where there is no right to mount.
    fn memory() -> Option<SmallDisk> {
        SmallDisk::mount(&["-t", "tmpfs", "-o", "size=4m", "weir-test"])
    }

    /// `None` where there is no right to mount, or no ext4.
    fn ext4(image: &Path) -> Option<SmallDisk> {
        File::create(image).unwrap().set_len(8 << 20).unwrap();
        let options = ["-q", "-F", "-O", "^has_journal"];
        let made = Program::new("mkfs.ext4").args(options).arg(image).status();
        made.ok().filter(|status| status.success())?;
        SmallDisk::mount(&["-t", "ext4", "-o", "loop", image.to_str().unwrap()])
    }

    fn mount(arguments: &[&str]) -> Option<SmallDisk> {
        let place = tempfile::tempdir().unwrap();
        let mounted = Program::new("mount").args(arguments).arg(place.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(place))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Program::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_existing_data_stays() {
    let images = tempfile::tempdir().unwrap();
    let disks = [SmallDisk::memory(), SmallDisk::ext4(&images.path().join("image"))];
    if disks.iter().any(Option::is_none) {
        eprintln!("skipped in part: no right to mount a small file system");
    }
    for disk in disks.into_iter().flatten() {
        for with_ring in [true, false] {
            let bench = Bench::new(disk.0.path(), with_ring);
            let file = bench.file("file", &[5; 5000]);
            assert_eq!(bench.reserve(&file, 0, 16 << 20), Err(ErrorKind::NoSpace));
            let much = vec![6; 9 << 20];
            assert_eq!(bench.write(&file, PAGE, &much), Err(ErrorKind::NoSpace));
            assert_eq!(bench.fetch(&file, 0, 1), [5; PAGE_BYTES]);
            bench.write(&file, 0, &[7; 4096]).unwrap();
            assert_eq!(bench.fetch(&file, 0, 1), [7; PAGE_BYTES]);
        }
    }
}

#[test]
fn a_sync_makes_the_modification_time_durable_too() {
    for bench in benches() {
        let file = bench.file("file", b"");
        file.times().note_write(Timestamp { tv_sec: 1_000_000_000, tv_nsec: 1 });
        bench.write(&file, 0, b"data").unwrap();
        bench.sync(&file, false);
        assert_eq!(fs::metadata(bench.path("file")).unwrap().mtime(), 1_000_000_000);
    }
}

#[test]
fn transfers_outlive_the_thread_that_brought_them() {
    for bench in benches() {
        let content = Numbers(4).bytes(64 * PAGE_BYTES);
        let file = bench.file("file", &content);
        let ios = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut commands = Vec::new();
                    for page in 0..64 {
                        let command = bench.fetch_command(page, 1, Urgency::Waited);
                        ios.lock().unwrap().push((command.io(), page as usize));
                        commands.push((command, Arc::clone(&file)));
                    }
                    bench.directory.execute(&mut commands, &mut Vec::new(), Patience::Read);
                });
            }
        });
        for (io, page) in ios.into_inner().unwrap() {
            let bytes = fetched(bench.answer(io)).unwrap();
            assert!(bytes == content[page * PAGE_BYTES..][..PAGE_BYTES]);
        }
    }
}

#[test]
fn deferred_work_is_done_before_the_threads_stop() {
    for bench in benches() {
        let ran = Arc::new(std::sync::atomic::AtomicU64::new(0));
        for _ in 0..100 {
            let ran = Arc::clone(&ran);
            let job = move || {
                ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            };
            bench.directory.defer(Box::new(job));
        }
        bench.directory.shutdown();
        assert_eq!(ran.load(std::sync::atomic::Ordering::Relaxed), 100);
    }
}

#[test]
fn shutdown_waits_for_transfers_in_flight() {
    for bench in benches() {
        let file = bench.file("file", b"");
        let mut commands: Vec<_> = (0..64)
            .map(|nth| bench.write_command(nth * 70_000, &[nth as u8; 70_000]))
            .map(|command| (command, Arc::clone(&file)))
            .collect();
        bench.directory.execute(&mut commands, &mut Vec::new(), Patience::Read);
        bench.directory.shutdown();
        assert_eq!(bench.collected.completions.lock().unwrap().len(), 64);
        assert_eq!(fs::metadata(bench.path("file")).unwrap().len(), 64 * 70_000);
        // Later commands are not executed, and nothing hangs.
        let mut late = vec![(bench.write_command(0, b"late"), file)];
        bench.directory.execute(&mut late, &mut Vec::new(), Patience::Read);
        bench.directory.shutdown();
        assert!(late.is_empty());
    }
}
