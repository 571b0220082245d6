//! Files that are attached, written and synced before they are at home.

use std::os::fd::OwnedFd;

use super::*;

/// Long enough for anything that does not wait for the file to be bound.
const MOMENT: Duration = Duration::from_millis(30);

impl Bench {
    pub(super) fn unbound(&self, file: FileId) -> Arc<HomeFile> {
        let home = Arc::new(HomeFile::unbound());
        home.open_data(true).unwrap();
        self.shard.attach(file, &home).unwrap();
        home
    }

    /// Makes a file at home: descriptors as for [`Shard::bind`].
    pub(super) fn make(&self, name: &str) -> (OwnedFd, OwnedFd) {
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let data = rustix::fs::open(self.path(name), create, Mode::RUSR | Mode::WUSR).unwrap();
        (rustix::fs::open(self.path(name), OFlags::PATH, Mode::empty()).unwrap(), data)
    }

    pub(super) fn bind(&self, file: FileId, home: &Arc<HomeFile>, name: &str) {
        let (path, data) = self.make(name);
        self.shard.bind(file, home, path, data).unwrap();
    }

    /// As a program's ftruncate(2).
    fn set_size(&self, file: FileId, home: &Arc<HomeFile>, size: u64) {
        let home = Arc::clone(home);
        wait::<()>(|done| {
            self.shard.freeze(file, None, move |granted| {
                granted.unwrap();
                home.set_size(size).unwrap();
                (FreezeEnd { discard: None, size: Some(size), written: false }, move || done(()))
            });
        });
    }
}

/// Calls something that takes a continuation.
fn start<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).unwrap()));
    receiver
}

fn end<T>(waiting: &mpsc::Receiver<T>) -> T {
    waiting.recv_timeout(Duration::from_secs(60)).expect("a continuation was not run")
}

fn is_waiting<T>(waiting: &mpsc::Receiver<T>) -> bool {
    matches!(waiting.try_recv(), Err(mpsc::TryRecvError::Empty))
}

fn hurried() -> Config {
    Config { dirty_expire: Duration::from_millis(5), ..small_config() }
}

#[test]
fn a_file_is_written_and_read_before_it_is_at_home() {
    for place in places() {
        let bench = Bench::new(&place, hurried());
        let file = FileId(1);
        let home = bench.unbound(file);
        let mut model = Vec::new();
        let mut numbers = Numbers(1);
        for _ in 0..200 {
            // Many of them partial, many over what is overdue already.
            let (offset, len) = (numbers.below(100_000), 1 + numbers.below(9000) as usize);
            let bytes = numbers.bytes(len);
            bench.write(file, offset, &bytes).unwrap();
            apply(&mut model, offset, &bytes);
        }
        std::thread::sleep(MOMENT);
        assert!(bench.shard.has_dirty(file));
        assert_eq!(bench.read(file, 0, 1 << 20).unwrap(), model);
        let stats = bench.shard.stats();
        assert_eq!((stats.fetch_commands, stats.destage_commands), (0, 0));
        bench.bind(file, &home, "file");
        bench.sync(file).unwrap();
        assert_eq!(fs::read(bench.path("file")).unwrap(), model);
        assert_eq!(bench.read(file, 0, 1 << 20).unwrap(), model);
        bench.detach(file);
        home.close_data();
    }
}

#[test]
fn a_sync_is_answered_after_the_file_is_bound() {
    let bench = Bench::new(&places()[0], small_config());
    for (nth, data) in [&b""[..], b"content"].into_iter().enumerate() {
        let file = FileId(nth as u64);
        let home = bench.unbound(file);
        if !data.is_empty() {
            bench.write(file, 0, data).unwrap();
        }
        let sync = start(|done| bench.shard.sync(file, Durability::All, done));
        let durable = start(|done| bench.shard.write(file, 0, b"C", Durability::Data, done));
        let all = start(|done| bench.shard.sync_all(done));
        std::thread::sleep(MOMENT);
        assert!(is_waiting(&sync) && is_waiting(&durable) && is_waiting(&all));
        // Others are synced meanwhile.
        let other = FileId(100 + nth as u64);
        bench.attach(other, &format!("other {nth}"), b"");
        bench.write(other, 0, b"other").unwrap();
        bench.sync(other).unwrap();
        let changed = Timestamp { tv_sec: 1_000_000_000, tv_nsec: 5 };
        home.times().note_write(changed);
        let name = format!("file {nth}");
        bench.bind(file, &home, &name);
        for answer in [sync, durable, all] {
            end(&answer).unwrap();
        }
        let content = fs::read(bench.path(&name)).unwrap();
        assert_eq!(content, [b"C", data.get(1..).unwrap_or(b"")].concat());
        assert_eq!(fs::metadata(bench.path(&name)).unwrap().mtime(), changed.tv_sec);
    }
}

#[test]
fn a_file_is_attached_again_and_detached_before_it_is_at_home() {
    let bench = Bench::new(&places()[0], hurried());
    let file = FileId(1);
    let home = bench.unbound(file);
    // Clean, it goes at once; its size stays.
    bench.set_size(file, &home, 5000);
    wait::<()>(|done| bench.shard.detach(file, move || done(())));
    bench.shard.attach(file, &home).unwrap();
    assert_eq!(bench.shard.size(file), Some(5000));
    assert_eq!(bench.read(file, 0, 10_000).unwrap(), [0; 5000]);
    assert!(bench.shard.drop_clean(file).unwrap());
    assert_eq!(bench.shard.size(file), Some(5000));

    bench.write(file, 4999, b"end").unwrap();
    assert!(!bench.shard.drop_clean(file).unwrap());
    let cancelled = start(|done| bench.shard.detach(file, move || done(())));
    bench.shard.attach(file, &home).unwrap();
    assert!(cancelled.recv().is_err(), "its continuation is dropped");
    let detached = start(|done| bench.shard.detach(file, move || done(())));
    std::thread::sleep(MOMENT);
    assert!(is_waiting(&detached), "dirty data stays until it can go home");
    bench.bind(file, &home, "file");
    end(&detached);
    let content = fs::read(bench.path("file")).unwrap();
    assert_eq!(content, [&[0; 4999][..], b"end"].concat());
    let stats = bench.shard.stats();
    assert_eq!((stats.files, stats.dirty_pages, stats.pages), (0, 0, 0));
}

#[test]
fn a_file_that_is_not_attached_is_bound() {
    let bench = Bench::new(&places()[0], small_config());
    let (file, home) = (FileId(1), Arc::new(HomeFile::unbound()));
    home.set_size(100).unwrap();
    home.times().note_write(Timestamp { tv_sec: 1_000_000_000, tv_nsec: 5 });
    bench.bind(file, &home, "file");
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::metadata(bench.path("file")).unwrap().mtime() != 1_000_000_000 {
        assert!(Instant::now() < deadline, "the modification time is not restored");
        std::thread::yield_now();
    }
    bench.shard.attach(file, &home).unwrap();
    bench.write(file, 50, b"!").unwrap();
    bench.sync(file).unwrap();
    let content = fs::read(bench.path("file")).unwrap();
    assert_eq!((content.len(), content[50]), (100, b'!'));
}

#[test]
fn a_freeze_waits_for_the_file_at_home_only_if_it_flushes() {
    let bench = Bench::new(&places()[0], hurried());
    let file = FileId(1);
    let home = bench.unbound(file);
    bench.write(file, 0, &[1; 10_000]).unwrap();
    std::thread::sleep(MOMENT);
    bench.set_size(file, &home, 5000);
    bench.set_size(file, &home, 20_000);
    assert_eq!(bench.shard.size(file), Some(20_000));
    let flushed = start(|done: Box<dyn FnOnce(bool) + Send>| {
        let home = Arc::clone(&home);
        bench.shard.freeze(file, Some((0, u64::MAX)), move |granted| {
            granted.unwrap();
            let bound = home.is_bound();
            (UNCHANGED, move || done(bound))
        });
    });
    // Requests on the file queue behind it.
    let queued = start(|done| bench.shard.write(file, 0, b"x", Durability::None, done));
    std::thread::sleep(MOMENT);
    assert!(is_waiting(&flushed) && is_waiting(&queued));
    bench.bind(file, &home, "file");
    assert!(end(&flushed), "the data was home, and so was the file");
    end(&queued).unwrap();
    bench.detach(file);
    let content = fs::read(bench.path("file")).unwrap();
    assert_eq!(content, [&b"x"[..], &[1; 4999], &[0; 15_000]].concat());
}

#[test]
fn an_abandoned_file_is_discarded_and_detached() {
    let bench = Bench::new(&places()[0], hurried());
    for discard_first in [true, false] {
        let file = FileId(u64::from(discard_first));
        let home = bench.unbound(file);
        bench.write(file, 0, &[1; 10_000]).unwrap();
        let sync = start(|done| bench.shard.sync(file, Durability::All, done));
        if discard_first {
            bench.shard.discard(file);
        }
        let detached = start(|done| bench.shard.detach(file, move || done(())));
        std::thread::sleep(MOMENT);
        assert!(is_waiting(&sync) && is_waiting(&detached));
        bench.shard.abandon(file, &home);
        end(&sync).unwrap();
        if !discard_first {
            bench.shard.discard(file);
        }
        end(&detached);
    }
    let stats = bench.shard.stats();
    assert_eq!((stats.files, stats.dirty_pages, stats.pages), (0, 0, 0));
    assert_eq!(fs::read_dir(bench.place.path()).unwrap().count(), 0);
}

#[test]
fn unbound_files_do_not_keep_others_from_going_home() {
    let bench = Bench::new(&places()[0], hurried());
    for file in 0..600 {
        bench.unbound(FileId(file));
        bench.write(FileId(file), 0, b"waits").unwrap();
    }
    let (file, _) = (FileId(1000), bench.attach(FileId(1000), "file", b""));
    bench.write(file, 0, &[1; 100_000]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while bench.shard.has_dirty(file) {
        assert!(Instant::now() < deadline, "a file's data does not go home");
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.sync(file).unwrap();
}

#[test]
fn a_shard_with_unbound_files_stops() {
    let bench = Bench::new(&places()[0], hurried());
    let (file, dropped) = (FileId(1), Arc::new(()));
    let home = bench.unbound(file);
    bench.write(file, 0, b"lost").unwrap();
    let kept = Arc::clone(&dropped);
    bench.shard.sync(file, Durability::All, move |_| drop(kept));
    bench.shard.stop();
    bench.bind(file, &home, "file");
    drop(bench.shard);
    assert_eq!(Arc::strong_count(&dropped), 1, "waiting requests are dropped with the shard");
}

/// A program that uses a new file, while another thread binds it at any time.
#[test]
fn requests_agree_with_a_model_whenever_the_file_is_bound() {
    for place in places() {
        let bench = Bench::new(&place, hurried());
        for round in 0..60_u64 {
            let (file, name) = (FileId(round), format!("file {round}"));
            let home = bench.unbound(file);
            let mut numbers = Numbers(round);
            let mut model: Vec<u8> = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(round * 50));
                    bench.bind(file, &home, &name);
                });
                for _ in 0..60 {
                    let span = model.len() as u64 + 10_000;
                    match numbers.below(12) {
                        0..6 => {
                            let offset = numbers.below(span.min(1 << 18));
                            let len = 1 + numbers.below(9000) as usize;
                            let bytes = numbers.bytes(len);
                            bench.write(file, offset, &bytes).unwrap();
                            apply(&mut model, offset, &bytes);
                        }
                        6..9 => {
                            let from = numbers.below(span) as usize;
                            let read = bench.read(file, from as u64, 50_000).unwrap();
                            let from = from.min(model.len());
                            let to = (from + 50_000).min(model.len());
                            assert!(read == model[from..to], "{name} {from}..{to}");
                        }
                        9 => {
                            let size = numbers.below(span);
                            bench.set_size(file, &home, size);
                            model.resize(size as usize, 0);
                        }
                        10 if round % 2 == 0 => bench.sync(file).unwrap(),
                        10 => {
                            // As when the last description is closed and another one opened.
                            bench.shard.detach(file, || ());
                            bench.shard.attach(file, &home).unwrap();
                        }
                        _ => {
                            let size = bench.shard.size(file);
                            assert_eq!(size, Some(model.len() as u64));
                        }
                    }
                }
            });
            bench.detach(file);
            home.close_data();
            assert!(fs::read(bench.path(&name)).unwrap() == model, "{name}");
        }
        let stats = bench.shard.stats();
        assert_eq!((stats.files, stats.dirty_pages, stats.pages), (0, 0, 0));
    }
}
