//! Counts with a redo log: the cost of syncs, the patches that leave memory for the log, and their return.
//!
//! One engine over homes and a log in memory, every command ended when the test says so.

#![allow(clippy::unwrap_used)] // What is missing fails the test.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io;
use std::time::Duration;

use weir_engine::{
    Command, Completion, Config, Durability, Engine, Error, ErrorKind, FetchPolicy, FileId,
    FramePool, HomeAttributes, LogCommand, Outcome, Output, PAGE_BYTES, Reply, RequestId, Stats,
    Time, WriteBackPolicy,
};
use weir_log::{
    BLOCK_BYTES, Block, DATA_START, Home, Lsn, NODE_FIRST, ReadLog, Superblock, Writer, replay,
};

const PAGE: usize = PAGE_BYTES;

struct Rig {
    engine: Engine,
    homes: BTreeMap<FileId, Vec<u8>>,
    log: BTreeMap<u64, Block>,
    outputs: VecDeque<Output>,
    replies: BTreeMap<RequestId, Reply>,
    requests: u64,
    /// Reads of the log fail.
    unreadable: bool,
    /// Writes to these files' homes fail, and syncs of them.
    failing: BTreeSet<FileId>,
    /// What is written home from the log fails only when the file is synced: it goes through the page cache.
    redo_is_cached: bool,
    now: Time,
}

fn pattern(file: u64, at: usize) -> u8 {
    (at as u64 / 7 * 31 + file * 101 + at as u64) as u8
}

impl Rig {
    fn new(files: u64, pages: usize, patch_bytes_max: u64, log_bytes: u64) -> Rig {
        let config = Config { patch_bytes_max, ..Config::default() };
        Rig::with(config, files, pages, log_bytes)
    }

    fn with(config: Config, files: u64, pages: usize, log_bytes: u64) -> Rig {
        let config = Config {
            memory_bytes_max: Config::MEMORY_BYTES_MIN,
            fetch_policy: FetchPolicy::Lazy,
            readahead_pages_max: 0,
            ..config
        };
        let pool = FramePool::new((config.memory_bytes_max / PAGE as u64) as u32 + 512).unwrap();
        let mut engine = Engine::new(config, pool).unwrap();
        engine.start_log(Writer::new(Superblock {
            log: [7; 16],
            mount: [8; 16],
            bytes: DATA_START + log_bytes,
            generation: 1,
            checkpoint: Lsn(0),
            clean: false,
            row_blocks: 1,
            nodes: NODE_FIRST,
            features: 0,
        }));
        let mut homes = BTreeMap::new();
        for file in 1..=files {
            let bytes: Vec<u8> = (0..pages * PAGE).map(|at| pattern(file, at)).collect();
            let home = HomeAttributes {
                size: bytes.len() as u64,
                dense: true,
                write_unit: 512,
                readable: true,
            };
            engine.attach(FileId(file), home);
            engine.identify(FileId(file), &[file as u8; 20]);
            homes.insert(FileId(file), bytes);
        }
        let mut rig = Rig {
            engine,
            homes,
            log: BTreeMap::new(),
            outputs: VecDeque::new(),
            replies: BTreeMap::new(),
            requests: 0,
            unreadable: false,
            failing: BTreeSet::new(),
            redo_is_cached: false,
            now: Time::from_nanos(1_000_000_000),
        };
        // The first sync of a file makes its attributes durable, too.
        for file in 1..=files {
            assert_eq!(rig.sync(file), Ok(()));
        }
        rig
    }

    fn stats(&self) -> Stats {
        self.engine.stats(self.now)
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn start_write(&mut self, file: u64, offset: usize, data: &[u8]) -> Option<RequestId> {
        self.start_write_as(file, offset, data, Durability::None)
    }

    fn start_write_as(
        &mut self,
        file: u64,
        offset: usize,
        data: &[u8],
        durability: Durability,
    ) -> Option<RequestId> {
        let request = self.request();
        let (file, offset) = (FileId(file), offset as u64);
        let outcome = self.engine.write(request, file, offset, data, durability, self.now);
        self.take_outputs();
        match outcome {
            Outcome::Done(result) => {
                result.expect("the write is taken");
                None
            }
            Outcome::Pending => Some(request),
        }
    }

    fn start_sync(&mut self, file: u64) -> RequestId {
        let request = self.request();
        let outcome = self.engine.sync(request, FileId(file), Durability::Data, self.now);
        self.take_outputs();
        if let Outcome::Done(result) = outcome {
            self.replies.insert(request, Reply::Synced(result));
        }
        request
    }

    fn sync(&mut self, file: u64) -> Result<(), Error> {
        let request = self.start_sync(file);
        self.finish_all();
        self.synced(request)
    }

    fn sync_all(&mut self) -> Result<(), Error> {
        let request = self.request();
        if let Outcome::Done(result) = self.engine.sync_all(request, self.now) {
            self.replies.insert(request, Reply::Synced(result));
        }
        self.finish_all();
        while !self.replies.contains_key(&request) {
            self.tick();
        }
        self.synced(request)
    }

    /// Lets time pass until the engine has something to do.
    fn tick(&mut self) {
        let due = self.engine.next_tick(self.now).expect("something is due");
        self.now = due.max(self.now);
        self.engine.tick(self.now);
        self.finish_all();
    }

    fn synced(&mut self, request: RequestId) -> Result<(), Error> {
        match self.replies.remove(&request) {
            Some(Reply::Synced(result)) => result,
            other => panic!("{other:?} answers a sync"),
        }
    }

    fn read(&mut self, file: u64, offset: usize, len: usize) -> Result<Vec<u8>, Error> {
        let request = self.request();
        let reply = match self.engine.read(request, FileId(file), offset as u64, len, self.now) {
            Outcome::Done(result) => Reply::Read(result),
            Outcome::Pending => {
                self.finish_all();
                self.replies.remove(&request).expect("the read is answered")
            }
        };
        self.take_outputs();
        match reply {
            Reply::Read(result) => result.map(|data| data.to_vec()),
            other => panic!("{other:?} answers a read"),
        }
    }

    fn take_outputs(&mut self) {
        self.engine.dispatch();
        while let Some(output) = self.engine.next_output() {
            match output {
                Output::Reply { request, reply } => {
                    self.replies.insert(request, reply);
                }
                Output::Cleaned(_) | Output::Detached(_) => {}
                command => self.outputs.push_back(command),
            }
        }
    }

    /// Writes of the log in flight.
    fn groups_in_flight(&self) -> usize {
        let is_group = |output: &&Output| matches!(output, Output::Log(LogCommand::Write { .. }));
        self.outputs.iter().filter(is_group).count()
    }

    /// Ends commands, one after the other, until there are none.
    fn finish_all(&mut self) {
        self.take_outputs();
        while self.finish_one() {}
    }

    fn finish_one(&mut self) -> bool {
        let Some(output) = self.outputs.pop_front() else { return false };
        self.now = self.now + Duration::from_micros(100);
        match output {
            Output::Log(LogCommand::Write { io, commit }) => {
                let mut blocks = commit.blocks.into_iter();
                for (place, count) in commit.pieces {
                    for nth in 0..count as u64 {
                        let at = place + nth * BLOCK_BYTES as u64;
                        self.log.insert(at, blocks.next().expect("a block for each place"));
                    }
                }
                self.engine.log_completed(io, Ok(()), self.now);
            }
            Output::Log(LogCommand::SyncHome { io }) => {
                self.engine.log_completed(io, Ok(()), self.now);
            }
            Output::Log(LogCommand::Read { io, places }) => {
                let blocks = places.iter().map(|place| self.log[place].clone()).collect();
                let result = if self.unreadable { Err(ErrorKind::Io) } else { Ok(blocks) };
                self.engine.log_read(io, result, self.now);
            }
            Output::Redo { file, identity, from, until, .. } => {
                let failing = self.failing.contains(&file) && !self.redo_is_cached;
                let home = self.homes.get_mut(&file).expect("a known file");
                let report = replay(&mut Disk(&self.log), from, Some(&mut Redo { identity, home }));
                assert!(report.expect("the log is whole").end >= until, "all of it was read");
                let result = if failing { Err(ErrorKind::Io) } else { Ok(()) };
                self.engine.redone(file, result, self.now);
            }
            Output::Command(command) => self.finish_command(command),
            other => panic!("{other:?} is no command"),
        }
        self.take_outputs();
        self.engine.check_invariants();
        true
    }

    fn finish_command(&mut self, command: Command) {
        let home = self.homes.get_mut(&command.file()).expect("a known file");
        let io = command.io();
        let failing = self.failing.contains(&command.file());
        let completion = match command {
            Command::Write { .. } if failing => Completion::Written { result: Err(ErrorKind::Io) },
            Command::Sync { .. } if failing => Completion::Synced { result: Err(ErrorKind::Io) },
            Command::Fetch { offset, mut frames, .. } => {
                let from = home.len().min(offset as usize);
                let read = (home.len() - from).min(frames.len() * PAGE);
                for (frame, bytes) in frames.iter_mut().zip(home[from..from + read].chunks(PAGE)) {
                    frame.bytes_mut().expect("an unshared frame")[..bytes.len()]
                        .copy_from_slice(bytes);
                }
                Completion::Fetched { frames, result: Ok(read) }
            }
            Command::Write { offset, parts, .. } => {
                let mut at = offset as usize;
                for part in parts {
                    let (start, len) = (usize::from(part.start), usize::from(part.len));
                    home.resize(home.len().max(at + len), 0);
                    home[at..at + len].copy_from_slice(&part.frame.bytes()[start..start + len]);
                    at += len;
                }
                Completion::Written { result: Ok(()) }
            }
            Command::Sync { .. } => Completion::Synced { result: Ok(()) },
            Command::Reserve { .. } => Completion::Reserved { result: Ok(()) },
            Command::Map { .. } => Completion::Mapped { extents: Vec::new() },
        };
        self.engine.complete(io, completion, self.now);
    }
}

/// The log as replay reads it.
struct Disk<'a>(&'a BTreeMap<u64, Block>);

impl ReadLog for Disk<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let places = (offset..).step_by(BLOCK_BYTES);
        for (place, part) in places.zip(buffer.chunks_mut(BLOCK_BYTES)) {
            match self.0.get(&place) {
                Some(block) => part.copy_from_slice(&block.0[..part.len()]),
                None => part.fill(0),
            }
        }
        Ok(())
    }
}

/// One home as what the log holds of it is written there.
struct Redo<'a> {
    identity: Box<[u8]>,
    home: &'a mut Vec<u8>,
}

impl Home for Redo<'_> {
    type File = ();
    type Error = Infallible;

    fn open(&mut self, wanted: &[u8]) -> Result<Option<()>, Infallible> {
        Ok((*self.identity == *wanted).then_some(()))
    }

    fn write(&mut self, (): &(), offset: u64, data: &[u8]) -> Result<(), Infallible> {
        let (start, end) = (offset as usize, offset as usize + data.len());
        self.home.resize(self.home.len().max(end), 0);
        self.home[start..end].copy_from_slice(data);
        Ok(())
    }

    fn truncate(&mut self, (): &(), _: u64) -> Result<(), Infallible> {
        unreachable!("files are cut at home, and never in the log")
    }

    fn sync(&mut self, (): &()) -> Result<(), Infallible> {
        Ok(())
    }
}

/// What write number `nth` writes.
fn data(nth: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (nth * 13 + at * 5 + 1) as u8).collect()
}

/// Writes `len` bytes to each of the first `pages` of file 1, with every command ended at once;
/// answers what programs see then.
fn write_to_each(rig: &mut Rig, pages: usize, at: usize, len: usize) -> Vec<u8> {
    let mut expected = rig.homes[&FileId(1)].clone();
    for nth in 0..pages {
        // Not in order: what spills is.
        let page = nth * 7919 % pages;
        let (offset, data) = (page * PAGE + at, data(nth, len));
        assert_eq!(rig.start_write(1, offset, &data), None, "write {nth} waits");
        expected[offset..offset + len].copy_from_slice(&data);
        rig.finish_all();
    }
    expected
}

#[test]
fn a_sync_of_patched_cold_pages_is_one_group_and_no_fetch() {
    const N: usize = 200;
    let mut rig = Rig::new(1, N, 4 << 20, 16 << 20);
    let before = rig.stats();
    for page in 0..N {
        rig.start_write(1, page * PAGE + 100, &data(page, 100));
    }
    let request = rig.start_sync(1);
    assert_eq!((rig.outputs.len(), rig.groups_in_flight()), (1, 1));
    rig.finish_all();
    assert_eq!(rig.synced(request), Ok(()));
    let after = rig.stats();
    assert_eq!(after.fetch_commands, 0);
    assert_eq!(after.destage_commands, 0);
    assert_eq!(after.log_groups - before.log_groups, 1);
    assert_eq!(after.log_bytes - before.log_bytes, 100 * N as u64);
}

#[test]
fn a_small_file_whose_home_is_to_be_synced_anyway_goes_there_and_not_to_the_log() {
    let mut rig = Rig::new(1, 0, 4 << 20, 16 << 20);
    let logged = |rig: &Rig| (rig.stats().log_groups, rig.stats().log_bytes);
    // Like a new file: its name is not durable.
    let before = logged(&rig);
    rig.engine.changed_at_home(FileId(1));
    // It waits for space.
    let write = rig.start_write(1, 0, &data(1, 3 * PAGE + 100)).unwrap();
    rig.finish_all();
    assert!(matches!(rig.replies.remove(&write), Some(Reply::Written(Ok(())))));
    assert_eq!(rig.sync(1), Ok(()));
    assert_eq!(rig.homes[&FileId(1)], data(1, 3 * PAGE + 100));
    assert_eq!(logged(&rig), before);

    // Home is durable, and the log quicker.
    let home = rig.homes[&FileId(1)].clone();
    assert_eq!(rig.start_write(1, 50, b"some bytes"), None);
    assert_eq!(rig.sync(1), Ok(()));
    assert_eq!(rig.homes[&FileId(1)], home);
    assert_eq!(logged(&rig), (before.0 + 1, before.1 + 10));

    // The log has older bytes of it, which are to be replayed: it is not left out.
    rig.engine.changed_at_home(FileId(1));
    assert_eq!(rig.start_write(1, 55, b"other bytes"), None);
    assert_eq!(rig.sync(1), Ok(()));
    assert_eq!(logged(&rig).0, before.0 + 2);
}

#[test]
fn concurrent_syncs_share_groups() {
    let mut rig = Rig::new(8, 4, 4 << 20, 16 << 20);
    let before = rig.stats().log_groups;
    for file in 1..=8 {
        rig.start_write(file, 10, b"some bytes");
    }
    let requests: Vec<_> = (1..=8).map(|file| rig.start_sync(file)).collect();
    assert_eq!(rig.groups_in_flight(), 1, "one is under way, the others wait for the next");
    rig.finish_all();
    for request in requests {
        assert_eq!(rig.synced(request), Ok(()));
    }
    assert_eq!(rig.stats().log_groups - before, 2);
}

#[test]
fn a_durable_write_logs_its_own_pages_alone() {
    let mut rig = Rig::new(1, 100, 4 << 20, 16 << 20);
    for page in 0..50 {
        assert_eq!(rig.start_write(1, page * PAGE, &data(page, 100)), None);
    }
    let before = rig.stats();
    let request = rig.start_write_as(1, 70 * PAGE + 5, b"durable", Durability::Data).unwrap();
    rig.finish_all();
    assert!(matches!(rig.replies.remove(&request), Some(Reply::Written(Ok(())))));
    assert_eq!(rig.stats().log_bytes - before.log_bytes, 7);
    assert_eq!(rig.sync(1), Ok(()));
    assert_eq!(rig.stats().log_bytes - before.log_bytes, 7 + 50 * 100);
}

#[test]
fn a_sync_relies_on_the_log_whatever_went_home_since() {
    const N: usize = 40;
    let mut rig = Rig::new(1, 2 * N, 4 << 20, 16 << 20);
    let home = |rig: &mut Rig| {
        while rig.stats().dirty_pages > 0 {
            rig.tick();
        }
    };
    write_to_each(&mut rig, N, 100, 200);
    assert_eq!(rig.sync(1), Ok(()));
    // Newer bytes of pages that have records: these must not be replayed over them.
    write_to_each(&mut rig, N, 150, 200);
    home(&mut rig);
    let request = rig.start_sync(1);
    assert_eq!(rig.outputs.len(), 0, "they were logged before they went home");
    assert_eq!(rig.synced(request), Ok(()));
    // Pages that have none.
    for page in N..2 * N {
        rig.start_write(1, page * PAGE, &data(page, 64));
    }
    home(&mut rig);
    let before = rig.stats();
    let request = rig.start_sync(1);
    assert_eq!((rig.outputs.len(), rig.groups_in_flight()), (1, 0), "one sync of home");
    rig.finish_all();
    assert_eq!(rig.synced(request), Ok(()));
    assert_eq!(rig.stats().log_records, before.log_records);
}

#[test]
fn the_log_is_freed_while_a_checkpoint_goes_on() {
    const N: usize = 600;
    let mut rig = Rig::new(1, N, 4 << 20, 384 << 10);
    let capacity = rig.stats().log_capacity_bytes;
    let mut most = 0;
    let mut page = 0;
    // One checkpoint, of all of it.
    while most <= capacity / 2 {
        assert_eq!(rig.start_write(1, page * PAGE, &data(page, 400)), None);
        page += 1;
        if page % 50 == 0 {
            let request = rig.start_sync(1);
            while !rig.replies.contains_key(&request) {
                assert!(rig.finish_one(), "the sync is answered");
            }
            most = rig.stats().log_used_bytes;
        }
    }
    assert_eq!(rig.stats().dirty_pages, page as u64, "nothing is home yet");
    let mut least_while_dirty = most;
    loop {
        // Syncs of home and the log do not wait for what goes home after them.
        let is_first = |output: &Output| {
            matches!(output, Output::Command(Command::Sync { .. }) | Output::Log(_))
        };
        if let Some(at) = rig.outputs.iter().position(is_first) {
            let sync = rig.outputs.remove(at).unwrap();
            rig.outputs.push_front(sync);
        }
        if !rig.finish_one() {
            break;
        }
        let stats = rig.stats();
        if stats.dirty_pages > 0 {
            least_while_dirty = least_while_dirty.min(stats.log_used_bytes);
        }
    }
    assert!(least_while_dirty + capacity / 8 < most, "{least_while_dirty} of {most} bytes");
}

#[test]
fn what_does_not_get_home_keeps_its_records() {
    let mut rig = Rig::new(2, 1000, 4 << 20, 384 << 10);
    rig.start_write(1, 0, &data(0, 400));
    assert_eq!(rig.sync(1), Ok(()));
    rig.failing.insert(FileId(1));
    let capacity = rig.stats().log_capacity_bytes;
    let mut page = 0;
    while rig.stats().log_used_bytes <= capacity / 2 {
        rig.start_write(2, page * PAGE, &data(page, 400));
        page += 1;
        if page % 50 == 0 {
            assert_eq!(rig.sync(2), Ok(()));
        }
    }
    rig.finish_all();
    // What failed is tried again, and the rest comes home meanwhile.
    for _ in 0..10 {
        rig.tick();
    }
    let stats = rig.stats();
    assert!(stats.destage_errors > 1 && stats.dirty_pages == 1, "it was tried");
    assert!(stats.log_used_bytes > capacity / 2, "the first record is the oldest");
    rig.failing.clear();
    while rig.stats().dirty_pages > 0 {
        rig.tick();
    }
    assert!(rig.stats().log_used_bytes < capacity / 2);
}

#[test]
fn a_file_does_not_leave_before_its_records_are_void() {
    let mut rig = Rig::new(1, 10, 4 << 20, 16 << 20);
    rig.start_write(1, 0, b"logged");
    assert_eq!(rig.sync(1), Ok(()));
    rig.failing.insert(FileId(1));
    rig.engine.detach(FileId(1), rig.now);
    rig.finish_all();
    for _ in 0..3 {
        rig.tick();
        assert!(rig.engine.is_attached(FileId(1)), "opened again, it is known to have records");
    }
    rig.failing.clear();
    let records = rig.stats().log_records;
    while rig.engine.is_attached(FileId(1)) {
        rig.tick();
    }
    assert_eq!(rig.stats().log_records, records + 1, "a revoke");
    assert_eq!(rig.homes[&FileId(1)][..6], *b"logged");
}

#[test]
fn spilled_patches_are_read_back_exactly_and_come_home() {
    const N: usize = 2000;
    let mut rig = Rig::new(1, N, 128 << 10, 16 << 20);
    let expected = write_to_each(&mut rig, N, 512, 512);
    let stats = rig.stats();
    assert_eq!((stats.fetch_commands, stats.destage_commands), (0, 0));
    assert_eq!((stats.writers_throttled, stats.writers_blocked_fetch), (0, 0));
    assert!(stats.spilled_pages as usize > N * 9 / 10, "{} pages", stats.spilled_pages);
    assert!(stats.patch_bytes <= stats.patch_bytes_max);
    for page in (0..N).step_by(37) {
        // Inside the patch, across its edges, and far from it.
        for (at, len) in [(600, 50), (500, 600), (3000, 10)] {
            let from = page * PAGE + at;
            assert_eq!(rig.read(1, from, len).unwrap(), expected[from..from + len], "page {page}");
        }
    }
    assert!(rig.stats().log_reads > 0);
    assert_eq!(rig.sync_all(), Ok(()));
    assert!(rig.homes[&FileId(1)] == expected, "home differs");
    assert_eq!(rig.stats().spilled_pages, 0);
    assert_eq!(rig.stats().dirty_pages, 0);
}

#[test]
fn newer_patches_over_spilled_ones_win_whichever_way_they_meet() {
    const N: usize = 400;
    let mut rig = Rig::new(1, N, 64 << 10, 16 << 20);
    write_to_each(&mut rig, N, 0, 1024);
    // Overlapping, and spilled again over the first ones.
    let mut expected = rig.homes[&FileId(1)].clone();
    for page in 0..N {
        let first = data((0..N).find(|nth| nth * 7919 % N == page).unwrap(), 1024);
        expected[page * PAGE..page * PAGE + 1024].copy_from_slice(&first);
    }
    for page in 0..N {
        let (offset, data) = (page * PAGE + 700, data(page + 5000, 700));
        assert_eq!(rig.start_write(1, offset, &data), None);
        expected[offset..offset + 700].copy_from_slice(&data);
        if page % 3 == 0 {
            // Whole: what was spilled does not count any more.
            let whole = self::data(page + 9000, PAGE);
            assert_eq!(rig.start_write(1, page * PAGE, &whole), None);
            expected[page * PAGE..][..PAGE].copy_from_slice(&whole);
        }
        rig.finish_all();
    }
    for page in (0..N).rev() {
        let read = rig.read(1, page * PAGE, PAGE).unwrap();
        assert!(read == expected[page * PAGE..][..PAGE], "page {page} differs");
    }
    // What is durable is what was written: a full sync takes all of it home.
    assert_eq!(rig.sync_all(), Ok(()));
    assert!(rig.homes[&FileId(1)] == expected, "home differs");
}

#[test]
fn writers_go_on_when_the_log_is_full() {
    const N: usize = 6000;
    let mut rig = Rig::new(1, N, 64 << 10, 256 << 10);
    let mut expected = rig.homes[&FileId(1)].clone();
    let (mut waited, mut used_most) = (0, 0);
    for nth in 0..3 * N {
        let (offset, data) = (nth * 7919 % N * PAGE + nth / N * 600, data(nth, 300));
        expected[offset..offset + 300].copy_from_slice(&data);
        if let Some(request) = rig.start_write(1, offset, &data) {
            waited += 1;
            rig.finish_all();
            let reply = rig.replies.remove(&request);
            assert!(matches!(reply, Some(Reply::Written(Ok(())))), "{reply:?}");
        } else {
            rig.finish_one();
        }
        used_most = used_most.max(rig.stats().log_used_bytes);
    }
    let stats = rig.stats();
    assert!(used_most <= stats.log_capacity_bytes && used_most > stats.log_capacity_bytes / 2);
    assert!(
        waited > 0 && stats.spilled > 1000,
        "{waited} writes waited, {} spilled",
        stats.spilled
    );
    assert!(stats.log_redos > 0, "the log was freed by writing home what it held");
    let (logged, capacity) = (stats.log_blocks * BLOCK_BYTES as u64, stats.log_capacity_bytes);
    assert!(logged > capacity, "the log went round: {logged} of {capacity} bytes");
    assert_eq!(stats.writers_blocked_fetch, 0, "no writer waited for a fetch");
    assert_eq!(rig.sync_all(), Ok(()));
    assert!(rig.homes[&FileId(1)] == expected, "home differs");
}

#[test]
fn one_sync_of_a_files_home_is_under_way_at_a_time() {
    let mut rig = Rig::new(1, 4, 4 << 20, 16 << 20);
    let syncs_in_flight = |rig: &Rig| {
        let is_sync = |output: &&Output| matches!(output, Output::Command(Command::Sync { .. }));
        rig.outputs.iter().filter(is_sync).count()
    };
    let mut requests = Vec::new();
    for _ in 0..3 {
        rig.engine.changed_at_home(FileId(1));
        requests.push(rig.start_sync(1));
        assert_eq!(syncs_in_flight(&rig), 1);
    }
    // Linux tells one of them of the error.
    rig.failing.insert(FileId(1));
    rig.finish_one();
    rig.failing.clear();
    rig.finish_all();
    for request in requests {
        assert_eq!(rig.synced(request), Err(Error::Home(ErrorKind::Io)));
    }
    let requests = [rig.start_sync(1), rig.start_sync(1), rig.start_sync(1)];
    assert_eq!(syncs_in_flight(&rig), 1);
    rig.finish_one();
    assert_eq!(syncs_in_flight(&rig), 1, "the other two share one");
    rig.finish_all();
    for request in requests {
        assert_eq!(rig.synced(request), Ok(()));
    }
}

#[test]
fn syncs_of_a_dead_home_fail_also_when_the_log_is_full() {
    syncs_when_the_log_is_full(false, false);
}

#[test]
fn they_do_so_too_if_only_syncs_of_home_say_that_it_is_dead() {
    syncs_when_the_log_is_full(true, false);
}

#[test]
fn a_full_log_waits_for_a_home_that_is_away_for_a_moment() {
    syncs_when_the_log_is_full(false, true);
    syncs_when_the_log_is_full(true, true);
}

/// Home fails, for good or for a moment. The second file is synced, and the log has no room for what supersedes
/// its record.
fn syncs_when_the_log_is_full(redo_is_cached: bool, is_back_soon: bool) {
    const N: usize = 6000;
    const PATIENCE: Duration = Duration::from_secs(20);
    let mut rig = Rig::new(2, N, 64 << 10, 256 << 10);
    rig.redo_is_cached = redo_is_cached;
    let mut expected = rig.homes[&FileId(1)].clone();
    let mut nth = 0;
    let mut write = |rig: &mut Rig| {
        let (offset, data) = (nth * 7919 % N * PAGE + nth / N * 600, data(nth, 300));
        expected[offset..offset + 300].copy_from_slice(&data);
        nth += 1;
        assert!(nth < 3 * N, "the log is never full");
        rig.start_write(1, offset, &data)
    };
    while rig.stats().log_used_bytes < rig.stats().log_capacity_bytes / 2 {
        match write(&mut rig) {
            Some(_) => rig.finish_all(),
            None => _ = rig.finish_one(),
        }
    }
    rig.failing.extend([FileId(1), FileId(2)]);
    assert_eq!(rig.start_write(2, 0, &[1; PAGE]), None);
    assert_eq!(rig.sync(2), Ok(()), "it is in the log");
    // Until pages are held back, since the log has no room for what supersedes its records.
    while rig.stats().log_redos == 0 {
        if write(&mut rig).is_some() {
            break;
        }
        rig.finish_one();
    }
    rig.finish_all();
    assert_eq!(rig.start_write(2, 0, &[2; PAGE]), None);
    let began = rig.now;
    let request = rig.start_sync(2);
    rig.finish_all();
    let is_answered = |rig: &Rig| rig.replies.contains_key(&request);
    while !is_answered(&rig) && rig.now < began + PATIENCE / 2 {
        rig.tick();
    }
    assert!(!is_answered(&rig), "{:?}", rig.synced(request));
    assert_eq!(rig.engine.log_is_refused(rig.now), None);
    if is_back_soon {
        rig.failing.clear();
    }
    while !is_answered(&rig) && rig.now < began + PATIENCE * 2 {
        rig.tick();
    }
    if is_back_soon {
        assert_eq!(rig.synced(request), Ok(()));
    } else {
        assert_eq!(rig.synced(request), Err(Error::Home(ErrorKind::Io)));
        // What waits for room in the log learns of it, too.
        assert_eq!(rig.engine.log_is_refused(rig.now), Some(ErrorKind::Io));
    }
    rig.failing.clear();
    assert_eq!(rig.sync_all(), Ok(()));
    assert!(rig.homes[&FileId(1)] == expected, "home differs");
    assert_eq!(rig.homes[&FileId(2)][..PAGE], [2; PAGE]);
    assert_eq!(rig.engine.log_is_refused(rig.now), None, "the log is freed");
}

#[test]
fn a_log_that_cannot_be_read_is_an_error_and_loses_nothing() {
    const N: usize = 500;
    let mut rig = Rig::new(1, N, 64 << 10, 16 << 20);
    let expected = write_to_each(&mut rig, N, 100, 200);
    let spilled = rig.stats().spilled_pages;
    assert!(spilled > 0);
    let page = (0..N).find(|&page| {
        rig.engine.page_state(FileId(1), page as u64) == weir_engine::PageState::Absent
    });
    let at = page.unwrap() * PAGE + 100;
    rig.unreadable = true;
    assert_eq!(rig.read(1, at, 200), Err(Error::Home(ErrorKind::Io)));
    assert_eq!(rig.stats().spilled_pages, spilled);
    assert_eq!(rig.stats().log_read_errors, 1);
    assert_eq!(rig.sync_all(), Err(Error::Home(ErrorKind::Io)));
    rig.unreadable = false;
    assert_eq!(rig.read(1, at, 200).unwrap(), expected[at..at + 200]);
    while rig.stats().dirty_pages > 0 {
        rig.tick();
    }
    assert!(rig.homes[&FileId(1)] == expected, "home differs");
}

#[test]
fn what_is_cut_off_or_unlinked_does_not_come_back() {
    const N: usize = 300;
    let mut rig = Rig::new(2, N, 64 << 10, 16 << 20);
    let expected = write_to_each(&mut rig, N, 100, 200);
    let request = rig.request();
    let size = 100 * PAGE + 150;
    let granted = rig.engine.freeze(request, FileId(1), None, rig.now);
    if matches!(granted, Outcome::Pending) {
        rig.finish_all();
    }
    rig.homes.get_mut(&FileId(1)).unwrap().truncate(size);
    let end = weir_engine::FreezeEnd { discard: None, size: Some(size as u64), written: false };
    rig.engine.thaw(FileId(1), end, rig.now);
    rig.finish_all();
    // It waits for space to be reserved.
    rig.start_write(1, 101 * PAGE, b"beyond");
    rig.finish_all();
    let page = rig.read(1, 100 * PAGE, PAGE).unwrap();
    assert_eq!(page[..150], expected[100 * PAGE..size]);
    assert!(page[150..].iter().all(|&byte| byte == 0), "zeros past the cut");
    assert!(rig.stats().spilled_pages <= 101);
    rig.engine.discard(FileId(1));
    rig.finish_all();
    assert_eq!((rig.stats().spilled_pages, rig.stats().dirty_pages), (0, 0));
    rig.engine.check_invariants();
}

/// With the index of what is spilled at its largest, a stream of whole pages to a home that takes none.
#[test]
fn readers_keep_frames_beside_the_index_and_adaptive_writers() {
    const PAGES: usize = 52_000;
    let config = Config {
        patch_bytes_max: 256 << 10,
        write_back: WriteBackPolicy::Adaptive,
        dirty_hard_percent: Config::DIRTY_HARD_PERCENT_ADAPTIVE,
        ..Config::default()
    };
    let mut rig = Rig::with(config, 1, PAGES, 64 << 20);
    let (cache, bound) = (rig.stats().cache_pages, rig.stats().dirty_bound_pages);
    assert_eq!(bound, cache * 80 / 100);
    let mut page = 0;
    while rig.stats().spill_index_bytes < cache * PAGE as u64 * 24 / 100 {
        assert_eq!(rig.start_write(1, page * PAGE, &data(page, 16)), None);
        rig.finish_all();
        page += 1;
    }
    let mut waiting = None;
    for number in (page..PAGES).take(cache as usize) {
        waiting = rig.start_write(1, number * PAGE, &data(number, PAGE));
        // A paced write is taken in a few moments, one at the bound never.
        for _ in 0..30 {
            let Some(request) = waiting else { break };
            rig.now = rig.now + Duration::from_millis(20);
            rig.engine.tick(rig.now);
            rig.take_outputs();
            waiting = waiting.filter(|_| rig.replies.remove(&request).is_none());
        }
        if waiting.is_some() {
            break;
        }
    }
    assert!(waiting.is_some(), "a writer waits at last");
    let stats = rig.stats();
    assert!(stats.watermark_max_pages < stats.pressure_pages, "{stats:?}");
    assert!(stats.pressure_pages < stats.dirty_bound_pages && stats.writers_paced > 0, "{stats:?}");
    rig.outputs.retain(|output| !matches!(output, Output::Command(Command::Fetch { .. })));
    let request = rig.request();
    let outcome =
        rig.engine.read(request, FileId(1), (PAGES - 1) as u64 * PAGE as u64, 10, rig.now);
    assert!(matches!(outcome, Outcome::Pending), "{outcome:?}");
    rig.engine.dispatch();
    let fetches = std::iter::from_fn(|| rig.engine.next_output())
        .any(|output| matches!(output, Output::Command(Command::Fetch { .. })));
    assert!(fetches, "a reader has a frame: {stats:?}");
}

#[test]
fn patches_that_wait_for_the_log_do_not_send_frames_home_one_by_one() {
    const PATCHED: usize = 1500;
    let config = Config {
        patch_bytes_max: 8 << 20,
        write_back: WriteBackPolicy::Adaptive,
        dirty_hard_percent: Config::DIRTY_HARD_PERCENT_ADAPTIVE,
        rotational: true,
        ..Config::default()
    };
    let mut rig = Rig::with(config, 1, 2 * PATCHED, 64 << 20);
    for page in 0..PATCHED {
        assert_eq!(rig.start_write(1, page * PAGE + 10, &data(page, 1500)), None);
    }
    let stats = rig.stats();
    let (low, high) = (stats.watermark_low_pages, stats.watermark_high_pages);
    assert!(stats.dirty_memory_pages > high && stats.spilled == 0, "{stats:?}");
    assert_eq!((stats.fetch_commands, stats.destage_commands), (0, 0), "they can spill");
    for nth in 1..=(high - low) as usize {
        assert_eq!(rig.stats().destage_commands, 0, "after {nth} of {high} - {low} pages");
        let page = PATCHED + nth;
        assert_eq!(rig.start_write(1, page * PAGE, &data(page, PAGE)), None);
    }
    assert!(rig.stats().destage_commands > 0);
}
