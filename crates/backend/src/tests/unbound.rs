//! Files that are not at home yet.

use super::*;

impl Bench {
    /// Makes a file at home: descriptors as for [`HomeFile::bind`].
    fn make(&self, name: &str) -> (OwnedFd, OwnedFd) {
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let data = rustix::fs::open(self.path(name), create, Mode::RUSR | Mode::WUSR).unwrap();
        (self.open_path(name), data)
    }

    fn bind(&self, file: &HomeFile, name: &str) {
        let (path, data) = self.make(name);
        file.bind(path, data).unwrap();
    }

    fn sync_command(&self) -> Command {
        Command::Sync { io: self.io(), file: FileId(1), datasync: false }
    }

    /// Executes commands that are not answered at once.
    fn give(&self, file: &Arc<HomeFile>, commands: Vec<Command>) {
        let mut commands = commands.into_iter().map(|c| (c, Arc::clone(file))).collect();
        let mut done = Vec::new();
        self.directory.execute(&mut commands, &mut done, self.patience);
        assert!(commands.is_empty() && done.is_empty());
    }

    /// Executes what was held, as a caller of [`HomeFile::bind`] does.
    fn release(&self, file: &Arc<HomeFile>) {
        let held = file.take_held().into_iter();
        let mut commands = held.map(|command| (command, Arc::clone(file))).collect();
        let mut done = Vec::new();
        self.directory.execute(&mut commands, &mut done, Patience::None);
        self.collected.completions.lock().unwrap().extend(done);
    }

    fn answered(&self) -> usize {
        self.collected.completions.lock().unwrap().len()
    }
}

fn synced(completion: Completion) -> Result<(), ErrorKind> {
    match completion {
        Completion::Synced { result } => result,
        other => panic!("{other:?} does not answer a sync"),
    }
}

fn is_ebadf<T>(result: std::io::Result<T>) -> bool {
    result.err().and_then(|error| error.raw_os_error()) == Some(libc::EBADF)
}

#[test]
fn an_unbound_file_is_empty_and_can_be_used() {
    for bench in benches() {
        let file = Arc::new(HomeFile::unbound());
        assert!(!file.is_bound() && file.is_unbound() && file.path().is_none());
        assert!(file.is_readable() && file.is_writable());
        file.open_data(true).unwrap();
        file.close_data();
        assert!(file.is_readable() && file.is_writable());
        let attributes = file.home_attributes().unwrap();
        assert_eq!((attributes.size, attributes.dense), (0, true));
        assert_eq!((attributes.write_unit, attributes.readable), (4096, true));
        let source = File::open(bench.place.path()).unwrap();
        let naming = crate::Naming::of(source.as_fd()).unwrap();
        assert!(file.identity(&naming, source.as_fd()).is_empty());
        assert!(!file.has_reserved() && !file.must_note_reservation(1 << 20));

        assert!(bench.fetch(&file, 0, 3).is_empty());
        bench.reserve(&file, 0, 1 << 40).unwrap();
        assert!(bench.map(&file).is_empty());
        assert_eq!(bench.directory.transfers_under_way(), 0);
    }
}

#[test]
fn what_needs_a_descriptor_fails_while_a_file_is_unbound() {
    let file = HomeFile::unbound();
    assert!(is_ebadf(file.data_fd()));
    assert!(is_ebadf(file.channel(Access::Read)));
    assert!(is_ebadf(file.buffered_channel(Access::Write)));
    assert!(is_ebadf(file.sync_channel()));
    assert!(is_ebadf(file.writable_again()));
    assert!(is_ebadf(file.allocate(0, 0, 0, 4096)));
    assert!(is_ebadf(file.copy_from(0, (&file, 0), 0, 4096)));
    assert!(!file.takes_direct() && file.known_direct_unit().is_none());
    file.refuse_direct();
}

#[test]
fn writes_and_syncs_are_held_until_the_file_is_bound() {
    for bench in benches() {
        let file = Arc::new(HomeFile::unbound());
        let content = Numbers(3).bytes(3 * PAGE_BYTES + 77);
        let free = bench.pool.free();
        let commands = vec![
            bench.write_command(0, &content[..PAGE_BYTES]),
            bench.write_command(PAGE, &content[PAGE_BYTES..]),
            bench.sync_command(),
        ];
        let ios: Vec<IoId> = commands.iter().map(Command::io).collect();
        bench.give(&file, commands);
        assert_eq!(bench.pool.free(), free - 4, "held writes keep their frames");
        // Other files are not disturbed.
        let other = bench.file("other", &[1; 5000]);
        assert_eq!(bench.fetch(&other, 0, 2), [1; 5000]);
        assert_eq!(bench.answered(), 0);
        // A transfer is under way until shortly after its answer.
        while bench.directory.transfers_under_way() > 0 {
            std::thread::yield_now();
        }

        bench.bind(&file, "file");
        assert_eq!(bench.answered(), 0);
        bench.release(&file);
        for &io in &ios[..2] {
            written(bench.answer(io)).unwrap();
        }
        synced(bench.answer(ios[2])).unwrap();
        assert!(fs::read(bench.path("file")).unwrap() == content);
        assert!(file.take_held().is_empty());
        // From now on it is a file as any other.
        bench.write(&file, 2 * PAGE, b"more").unwrap();
        bench.sync(&file, false);
        assert_eq!(&bench.fetch(&file, 2, 1)[..4], b"more");
        file.close_data();
        assert!(!file.is_readable() && !file.is_writable());
        file.open_data(false).unwrap();
        assert!(file.is_readable() && !file.is_writable());
    }
}

#[test]
fn the_last_size_set_before_the_file_is_bound_is_set_at_home() {
    for bench in benches() {
        for (name, sizes, held) in [
            ("grown", &[10 << 20][..], 0),
            ("cut", &[10 << 20, 0, 5001], 0),
            ("emptied", &[10 << 20, 0], 0),
            ("written", &[9000], 100),
        ] {
            let file = Arc::new(HomeFile::unbound());
            for &size in sizes {
                file.set_size(size).unwrap();
                let attributes = file.home_attributes().unwrap();
                assert_eq!((attributes.size, attributes.dense), (size, size == 0));
                assert!(file.seek_data(0).is_err());
                assert_eq!(file.seek_hole(0).ok(), (size > 0).then_some(0));
                assert!(file.seek_hole(size).is_err());
            }
            if held > 0 {
                bench.give(&file, vec![bench.write_command(0, &vec![5; held])]);
            }
            bench.bind(&file, name);
            bench.release(&file);
            bench.sync(&file, false);
            let size = *sizes.last().unwrap();
            let deadline = std::time::Instant::now() + Duration::from_secs(30);
            while bench.directory.transfers_under_way() > 0 {
                assert!(std::time::Instant::now() < deadline);
                std::thread::yield_now();
            }
            let content = fs::read(bench.path(name)).unwrap();
            assert_eq!(content.len() as u64, size, "{name}");
            assert!(content[..held].iter().all(|&byte| byte == 5));
            assert!(content[held..].iter().all(|&byte| byte == 0));
            file.set_size(77).unwrap();
            assert_eq!(fs::metadata(bench.path(name)).unwrap().len(), 77);
        }
    }
}

#[test]
fn a_failed_bind_leaves_the_file_unbound() {
    let bench = Bench::new(&places()[0], true);
    let file = Arc::new(HomeFile::unbound());
    file.set_size(100).unwrap();
    let write = bench.write_command(0, b"held");
    let io = write.io();
    bench.give(&file, vec![write]);
    let (path, _) = bench.make("read-only");
    // ftruncate(2) does not take it.
    let data = File::open(bench.path("read-only")).unwrap();
    assert!(file.bind(path, data.into()).is_err());
    assert!(file.is_unbound() && file.is_writable() && is_ebadf(file.data_fd()));
    bench.bind(&file, "file");
    bench.release(&file);
    written(bench.answer(io)).unwrap();
    assert_eq!(fs::metadata(bench.path("file")).unwrap().len(), 100);
}

#[test]
fn the_modification_time_is_restored_once_the_file_is_bound() {
    let bench = Bench::new(&places()[0], true);
    for name in ["empty", "grown"] {
        let file = HomeFile::unbound();
        let changed = Timestamp { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };
        file.times().note_write(changed);
        file.set_size(if name == "grown" { 100 } else { 0 }).unwrap();
        file.restore_times().unwrap();
        file.close_data();
        assert!(file.times().is_disturbed());
        bench.bind(&file, name);
        file.restore_times().unwrap();
        assert!(!file.times().is_disturbed());
        let status = fs::metadata(bench.path(name)).unwrap();
        assert_eq!((status.mtime(), status.mtime_nsec()), (1_000_000_000, 123_456_789));
    }
}

#[test]
fn commands_of_an_abandoned_file_end_as_done() {
    for bench in benches() {
        let file = Arc::new(HomeFile::unbound());
        let free = bench.pool.free();
        let (write, sync) = (bench.write_command(0, &[1; 9000]), bench.sync_command());
        let ios = [write.io(), sync.io()];
        bench.give(&file, vec![write, sync]);
        let ended = file.abandon();
        assert_eq!(ended.iter().map(|(io, _)| *io).collect::<Vec<_>>(), ios);
        for (_, completion) in ended {
            match completion {
                Completion::Written { result } | Completion::Synced { result } => {
                    assert_eq!(result, Ok(()));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bench.pool.free(), free);
        assert!(!file.is_bound() && !file.is_unbound());
        bench.write(&file, 0, &[1; 100]).unwrap();
        bench.sync(&file, true);
        assert!(bench.fetch(&file, 0, 1).is_empty());
        bench.reserve(&file, 0, 4096).unwrap();
        assert!(bench.map(&file).is_empty() && file.take_held().is_empty());
    }
}

#[test]
fn held_commands_do_not_delay_a_shutdown_and_are_dropped_after_it() {
    for bench in benches() {
        let file = Arc::new(HomeFile::unbound());
        let free = bench.pool.free();
        bench.give(&file, vec![bench.write_command(0, &[1; 9000]), bench.sync_command()]);
        bench.directory.shutdown();
        bench.bind(&file, "file");
        bench.release(&file);
        bench.give(&file, vec![bench.sync_command()]);
        assert_eq!((bench.answered(), bench.pool.free()), (0, free));
        assert_eq!(fs::metadata(bench.path("file")).unwrap().len(), 0);
    }
}

#[test]
#[should_panic(expected = "a file is bound twice")]
fn a_file_is_not_bound_twice() {
    let bench = Bench::new(&places()[1], false);
    let file = HomeFile::unbound();
    bench.bind(&file, "one");
    bench.bind(&file, "another");
}

#[test]
fn of_binding_and_abandoning_only_the_first_counts() {
    let bench = Bench::new(&places()[1], false);
    let abandoned = HomeFile::unbound();
    abandoned.abandon();
    let (path, data) = bench.make("abandoned");
    assert_eq!(abandoned.bind(path, data).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    assert!(!abandoned.is_bound());
    let bound = HomeFile::unbound();
    bench.bind(&bound, "bound");
    assert!(bound.abandon().is_empty());
    assert!(bound.is_bound());
}

/// Threads that bring commands while another one binds the file: each command is executed once.
#[test]
fn no_command_is_lost_or_executed_twice_while_the_file_is_bound() {
    const THREADS: u64 = 3;
    const EACH: u64 = 20;
    for bench in benches() {
        for round in 0..60 {
            let file = Arc::new(HomeFile::unbound());
            let name = format!("file {round}");
            let ios = Mutex::new(Vec::new());
            let (path, data) = bench.make(&name);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (bench, file, ios) = (&bench, &file, &ios);
                    scope.spawn(move || {
                        for nth in 0..EACH {
                            let at = thread * EACH + nth;
                            let write = bench.write_command(at * PAGE, &[at as u8 + 1; PAGE_BYTES]);
                            let mut commands = vec![(write, Arc::clone(file))];
                            if nth % 5 == 0 {
                                commands.push((bench.sync_command(), Arc::clone(file)));
                            }
                            ios.lock().unwrap().extend(commands.iter().map(|(c, _)| c.io()));
                            let mut done = Vec::new();
                            bench.directory.execute(&mut commands, &mut done, Patience::None);
                            let mut all = bench.collected.completions.lock().unwrap();
                            for (io, completion) in done {
                                assert!(all.insert(io, completion).is_none());
                            }
                        }
                    });
                }
                scope.spawn(|| {
                    for _ in 0..(round * 37) % 400 {
                        std::hint::spin_loop();
                    }
                    if round % 3 == 0 {
                        std::thread::yield_now();
                    }
                    file.bind(path, data).unwrap();
                    bench.release(&file);
                });
            });
            for io in ios.into_inner().unwrap() {
                match bench.answer(io) {
                    Completion::Written { result } | Completion::Synced { result } => {
                        assert_eq!(result, Ok(()));
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(file.take_held().is_empty());
            assert_eq!(bench.answered(), 0, "each is answered once");
            let content = fs::read(bench.path(&name)).unwrap();
            let expected = (0..THREADS * EACH).flat_map(|at| [at as u8 + 1; PAGE_BYTES]);
            assert!(content.into_iter().eq(expected));
        }
    }
}
