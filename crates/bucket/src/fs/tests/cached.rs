//! A file system over a cache on disk: what is asked of the bucket, and that what is read is right.

use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::cache::Place;
use crate::metadata::Properties;
use crate::store::Condition;

const UNIT: usize = 128 << 10;

pub fn cache(directory: &Path, bytes_max: u64) -> Arc<Cache> {
    let address = "s3://bucket/pre".parse().unwrap();
    Arc::new(
        Cache::open(&Place { directory, store: "store", address: &address }, bytes_max).unwrap(),
    )
}

fn content(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| seed ^ (at / 1000) as u8).collect()
}

fn put(memory: &Memory, seed: u8, length: usize) -> Vec<u8> {
    let bytes = content(seed, length);
    memory.put("pre/f", bytes.clone(), &Properties::default(), &Condition::None).unwrap();
    bytes
}

struct Machine {
    memory: Arc<Memory>,
    directory: tempfile::TempDir,
    gets: Arc<Mutex<u64>>,
}

impl Machine {
    fn new() -> Machine {
        let memory = Arc::new(Memory::new(16));
        let gets = Arc::new(Mutex::new(0));
        let count = gets.clone();
        memory.fail(move |kind, _| {
            *count.lock().unwrap() += u64::from(kind == "get");
            None
        });
        Machine { memory, directory: tempfile::tempdir().unwrap(), gets }
    }

    /// What `read` returns in a new run, and how many requests it makes. What it fetches is kept.
    fn run<T>(&self, read: impl Fn(&FileSystem, u64) -> T) -> (T, u64, crate::cache::CacheCounts) {
        let state = tempfile::tempdir().unwrap();
        let cache = cache(self.directory.path(), 1 << 30);
        let ttl = Duration::ZERO;
        let system = open_with(&self.memory, state.path(), ttl, 3, Some(cache.clone()));
        let id = system.lookup(ROOT, "f").unwrap().id;
        system.open(id).unwrap();
        *self.gets.lock().unwrap() = 0;
        let result = read(&system, id);
        system.release(id);
        system.end_cache();
        let gets = *self.gets.lock().unwrap();
        (result, gets, cache.counts())
    }
}

fn whole(system: &FileSystem, id: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let piece = system.read(id, bytes.len() as u64, 100_000).unwrap();
        if piece.is_empty() {
            return bytes;
        }
        bytes.extend(piece);
    }
}

#[test]
fn what_was_fetched_is_not_fetched_again() {
    let machine = Machine::new();
    let wanted = put(&machine.memory, 1, 20 * UNIT + 77);
    let (read, gets, counts) = machine.run(whole);
    assert!(read == wanted && gets > 0 && counts.hits == 0 && counts.misses == 21);
    let (read, gets, counts) = machine.run(whole);
    assert!(read == wanted);
    assert_eq!((gets, counts.hits, counts.misses), (0, 21, 0));
    // Changed by another program, also to one that is shorter or longer.
    for (seed, length) in [(2, 20 * UNIT + 77), (3, 5 * UNIT), (4, 21 * UNIT)] {
        let wanted = put(&machine.memory, seed, length);
        let (read, gets, counts) = machine.run(whole);
        assert!(read == wanted && gets > 0 && counts.hits == 0, "{counts:?}");
        assert_eq!(counts.damaged, 0);
        assert!(machine.run(whole).0 == wanted);
    }
    // Changed here.
    machine.run(|system, id| {
        system.write(id, 3 * UNIT as u64 + 5, b"new").unwrap();
        system.sync_file(id).unwrap();
    });
    let mut wanted = content(4, 21 * UNIT);
    wanted[3 * UNIT + 5..][..3].copy_from_slice(b"new");
    assert!(machine.run(whole).0 == wanted);
    assert!(machine.run(whole).0 == wanted);
}

#[test]
fn what_lies_between_is_fetched() {
    let machine = Machine::new();
    let wanted = put(&machine.memory, 1, 64 * UNIT);
    // Far from each other: none is taken for a stream.
    machine.run(|system, id| {
        for unit in (0..64).step_by(10).rev() {
            system.read(id, (unit * UNIT) as u64, 1).unwrap();
        }
    });
    let (read, _, counts) = machine.run(whole);
    assert!(read == wanted);
    assert_eq!((counts.hits, counts.misses), (7, 57));
    let (read, gets, counts) = machine.run(whole);
    assert!(read == wanted);
    assert_eq!((gets, counts.hits), (0, 64));
}

#[test]
fn what_is_damaged_is_fetched_again() {
    let machine = Machine::new();
    let wanted = put(&machine.memory, 1, 9 * UNIT);
    machine.run(whole);
    let mut directories = vec![machine.directory.path().to_owned()];
    let mut number = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = match std::fs::read(&path) {
                Ok(bytes) if !bytes.is_empty() => bytes,
                Ok(_) => continue,
                Err(_) => {
                    directories.push(path);
                    continue;
                }
            };
            let at = bytes.len() * number / 9;
            bytes[at] ^= 1;
            number += 1;
            std::fs::write(path, bytes).unwrap();
        }
    }
    assert_eq!(number, 9);
    let (read, gets, counts) = machine.run(whole);
    assert!(read == wanted && gets > 0);
    assert_eq!((counts.damaged, counts.hits), (9, 0));
    let (read, gets, counts) = machine.run(whole);
    assert!(read == wanted);
    assert_eq!((gets, counts.hits, counts.damaged), (0, 9, 0));
}

#[test]
fn a_failed_request_keeps_what_was_found() {
    let machine = Machine::new();
    let wanted = put(&machine.memory, 1, 30 * UNIT);
    machine.run(|system, id| {
        system.read(id, 10 * UNIT as u64, 1).unwrap();
    });
    let memory = machine.memory.clone();
    let (read, ..) = machine.run(|system, id| {
        memory.fail(|kind, _| (kind == "get").then_some(Failure::Before));
        let found = system.read(id, 10 * UNIT as u64, UNIT as u32).unwrap();
        assert!(system.read(id, 9 * UNIT as u64, 2 * UNIT as u32).is_err());
        memory.fail(|_, _| None);
        assert!(found == wanted[10 * UNIT..11 * UNIT]);
        whole(system, id)
    });
    assert!(read == wanted);
}
