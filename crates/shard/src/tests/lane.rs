//! Files in the lane: read by the board, written in batches.

use weir_lane::board::View;

use super::*;

const FILE: FileId = FileId(1);
const SLOT: u32 = 5;
const PAGE: usize = 4096;

/// A shard with a file in the lane, and what a program maps.
fn shared(content: &[u8]) -> (Bench, Arc<HomeFile>, View) {
    let bench = Bench::in_lane(&std::env::temp_dir(), small_config());
    let home = bench.attach(FILE, "file", content);
    assert!(bench.shard.share(FILE, SLOT));
    let view = View::map(bench.shard.board().unwrap().fd(), bench.shard.frames_fd().unwrap());
    (bench, home, view.unwrap())
}

/// A page as a program reads it from shared memory.
fn seen(view: &View, page: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE];
    view.read_into(SLOT, page, 0, &mut bytes).map(|_| bytes)
}

fn post(bench: &Bench, offset: Option<u64>, data: &[u8]) {
    let posted = bench.shard.post(|poster| poster.write(FILE, offset, data, || |_| {}));
    assert_eq!(posted, Some(Ok(())));
}

#[test]
fn programs_read_pages_that_were_read_or_written_before() {
    let (bench, home, view) = shared(&[1; 2 * PAGE]);
    assert_eq!(view.size(SLOT), 2 * PAGE as u64);
    assert_eq!(seen(&view, 0), None);
    bench.read(FILE, 0, 10).unwrap();
    assert_eq!(seen(&view, 0), Some(vec![1; PAGE]));
    // The page may have been read ahead.
    assert!(seen(&view, 1).is_none_or(|page| page == [1; PAGE]));
    bench.write(FILE, PAGE as u64, &[2; PAGE]).unwrap();
    assert_eq!(seen(&view, 1), Some(vec![2; PAGE]));
    post(&bench, Some(10), &[3; 5]);
    assert_eq!(&seen(&view, 0).unwrap()[9..16], [1, 3, 3, 3, 3, 3, 1]);
    bench.truncate(FILE, &home, 12);
    assert_eq!(view.size(SLOT), 12);
    assert!(seen(&view, 0).is_none_or(|page| page[12..].iter().all(|&byte| byte == 0)));
    assert_eq!(seen(&view, 1), None);
    bench.shard.unshare(FILE, SLOT);
    assert_eq!(seen(&view, 0), None);
    bench.detach(FILE);
}

#[test]
fn a_file_that_is_detached_leaves_the_lane() {
    let (bench, _home, view) = shared(&[1; PAGE]);
    bench.read(FILE, 0, 10).unwrap();
    bench.detach(FILE);
    assert_eq!(seen(&view, 0), None);
    assert!(!bench.shard.share(FILE, SLOT));
}

#[test]
fn batches_are_applied_in_order() {
    let (bench, _home, view) = shared(b"");
    let mut model = Vec::new();
    let mut numbers = Numbers(7);
    for batch in 0..100_u64 {
        // Space is reserved by the first write of each batch, as programs have it reserved.
        let start = bench.shard.size(FILE).unwrap();
        bench.write(FILE, start, &[batch as u8; 8192]).unwrap();
        bench.write(FILE, start, &[0; 1]).unwrap();
        apply(&mut model, start, &[batch as u8; 8192]);
        apply(&mut model, start, &[0; 1]);
        let span = model.len() as u64;
        assert!(view.grant(SLOT) >= span);
        bench.shard.post(|poster| {
            for _ in 0..20 {
                let len = 1 + numbers.below(100) as usize;
                let offset = numbers.below(span - len as u64);
                let data = numbers.bytes(len);
                assert_eq!(poster.write(FILE, Some(offset), &data, || |_| {}), Some(Ok(())));
                apply(&mut model, offset, &data);
            }
        });
        assert_eq!(view.size(SLOT), model.len() as u64);
    }
    assert_eq!(bench.shard.posted().writes, 2000);
    assert_eq!(bench.read(FILE, 0, model.len()).unwrap(), model);
    bench.sync(FILE).unwrap();
    assert_eq!(fs::read(bench.path("file")).unwrap(), model);
}

#[test]
fn a_posted_write_that_waits_is_answered_once() {
    let (bench, _home, view) = shared(b"");
    assert_eq!(view.grant(SLOT), 0);
    let (sender, receiver) = mpsc::channel();
    let posted = bench.shard.post(|poster| {
        poster.write(FILE, None, b"appended", || move |result| sender.send(result).unwrap())
    });
    // Space for the write has to be reserved.
    assert_eq!(posted, None);
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(Ok(())));
    assert!(receiver.recv().is_err(), "the continuation is dropped after it was run");
    assert!(view.grant(SLOT) >= PAGE as u64);
    post(&bench, None, b" twice");
    assert_eq!(bench.read(FILE, 0, 100).unwrap(), b"appended twice");
    let unknown = bench.shard.post(|poster| poster.write(FileId(9), None, b"x", || |_| {}));
    assert_eq!(unknown, Some(Err(Error::NotAttached)));
}

#[test]
fn an_append_that_waits_goes_where_the_file_ends_then() {
    let (bench, _home, view) = shared(b"");
    bench.write(FILE, 0, &[1; 4000]).unwrap();
    assert_eq!(view.grant(SLOT), PAGE as u64);
    let (sender, receiver) = mpsc::channel();
    let (waits, fits) = bench.shard.post(|poster| {
        // Space for the append has to be reserved, which is done after the batch.
        let done = || move |result| sender.send(result).unwrap();
        (poster.write(FILE, None, &[2; 200], done), poster.write(FILE, None, &[3; 50], || |_| {}))
    });
    assert_eq!((waits, fits), (None, Some(Ok(()))));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(Ok(())));
    let expected = [&[1; 4000][..], &[3; 50], &[2; 200]].concat();
    assert_eq!(bench.read(FILE, 0, 5000).unwrap(), expected);
    assert_eq!(view.size(SLOT), expected.len() as u64);
    bench.sync(FILE).unwrap();
    assert_eq!(fs::read(bench.path("file")).unwrap(), expected);
}

#[test]
fn a_file_may_be_posted_to_anywhere_until_it_is_at_home() {
    let bench = Bench::in_lane(&std::env::temp_dir(), small_config());
    let home = bench.unbound(FILE);
    assert!(bench.shard.share(FILE, SLOT));
    let view = View::map(bench.shard.board().unwrap().fd(), bench.shard.frames_fd().unwrap());
    let view = view.unwrap();
    assert!(view.grant(SLOT) > 1 << 50);
    post(&bench, None, &[1; 3 * PAGE]);
    bench.shard.binding(FILE);
    assert_eq!(view.grant(SLOT), 0);
    // Home refuses the file's size.
    home.set_size(10).unwrap();
    let (path, data) = bench.make("another");
    drop(data);
    let read_only = rustix::fs::open(bench.path("another"), OFlags::RDONLY, Mode::empty());
    assert!(bench.shard.bind(FILE, &home, path, read_only.unwrap()).is_err());
    home.set_size(0).unwrap();
    assert!(view.grant(SLOT) > 1 << 50);
    bench.shard.binding(FILE);
    // Posted before that.
    post(&bench, Some(1 << 30), &[2; 10]);
    bench.bind(FILE, &home, "file");
    // Home has promised nothing: not more than what it is asked for now.
    assert!(view.grant(SLOT) <= 3 * PAGE as u64);
    let (sender, receiver) = mpsc::channel();
    let posted = bench.shard.post(|poster| {
        poster.write(FILE, Some(1 << 31), &[3; 10], || move |result| sender.send(result).unwrap())
    });
    assert_eq!(posted, None, "space is reserved at home before the write");
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(Ok(())));
    bench.sync(FILE).unwrap();
    let file = fs::File::open(bench.path("file")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 31) + 10);
    for (offset, byte, len) in [(0, 1, 3 * PAGE), (1 << 30, 2, 10), (1 << 31, 3, 10)] {
        let mut bytes = vec![0; len];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, offset).unwrap();
        assert!(bytes.iter().all(|at| *at == byte));
    }
}

#[test]
fn errors_of_posted_writes_are_reported_once() {
    let (bench, _home, _) = shared(b"");
    let mut cursor = bench.shard.error_cursor(FILE);
    bench.shard.note_error(FILE, ErrorKind::NoSpace);
    assert_eq!(bench.shard.take_error(FILE, &mut cursor), Some(ErrorKind::NoSpace));
    assert_eq!(bench.shard.take_error(FILE, &mut cursor), None);
}

#[test]
fn what_a_program_reads_is_never_half_written() {
    let (bench, _home, view) = shared(&[0; 2 * PAGE]);
    bench.read(FILE, 0, 2 * PAGE).unwrap();
    let stop = AtomicBool::new(false);
    let (reads, changes) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut reads, mut changes, mut last) = (0_u64, 0_u64, [0; 2]);
            while !stop.load(Ordering::Relaxed) {
                for page in 0..2 {
                    let Some(bytes) = seen(&view, page) else { continue };
                    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "bytes of two writes");
                    changes += u64::from(bytes[0] != last[page as usize]);
                    last[page as usize] = bytes[0];
                    reads += 1;
                }
            }
            (reads, changes)
        });
        let begun = Instant::now();
        for n in 0_u64.. {
            post(&bench, Some(n % 2 * PAGE as u64), &[n as u8; PAGE]);
            // Some are written over while they are on their way home, and so to another frame.
            if n % 64 == 0 {
                bench.shard.sync(FILE, Durability::Data, |_| {});
            }
            if n % 1024 == 0 && begun.elapsed() > Duration::from_millis(300) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(reads > 0 && changes > 0, "{reads} reads saw {changes} changes");
}
