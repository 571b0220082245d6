//! Random operations against a plain model, with requests that fail, answers that are lost, and restarts from the state
//! directory at random moments. Nothing that was acknowledged is lost.
//!
//! What a crash may do to a file: its bytes are some that it had since its last sync, and none if it never was synced. What
//! a failed call may do: a rename leaves the file under either name or both, a removal leaves it or not.

mod cached;
mod crashes;
mod lost_answers;
mod others;
mod overtaken;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::metadata::{Kind, Properties};
use crate::store::{Condition, Failure, Memory};

const LIMITS: Limits =
    Limits { part_min: 16, part: 24, copy_max: 100, parts_max: 50, gap_min: 4, layers_max: 3 };

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn open(memory: &Arc<Memory>, state: &std::path::Path, ttl: Duration) -> Arc<FileSystem> {
    open_parallel(memory, state, ttl, 3)
}

fn open_parallel(
    memory: &Arc<Memory>,
    state: &std::path::Path,
    ttl: Duration,
    parallel: usize,
) -> Arc<FileSystem> {
    open_with(memory, state, ttl, parallel, None)
}

fn open_with(
    memory: &Arc<Memory>,
    state: &std::path::Path,
    ttl: Duration,
    parallel: usize,
    cache: Option<Arc<Cache>>,
) -> Arc<FileSystem> {
    open_as(memory, settings(state, ttl, parallel), cache)
}

fn open_as(memory: &Arc<Memory>, settings: Settings, cache: Option<Arc<Cache>>) -> Arc<FileSystem> {
    let store: Arc<dyn Store> = memory.clone();
    FileSystem::open_prefix(Arc::new(Metered::new(store, None, Arc::default())), settings, cache)
        .unwrap()
}

fn settings(state: &std::path::Path, ttl: Duration, parallel: usize) -> Settings {
    Settings {
        prefix: "pre/".into(),
        state: state.to_owned(),
        limits: LIMITS,
        listing_ttl: ttl,
        quiet: Duration::ZERO,
        stream_after: Duration::ZERO,
        seen_within: Duration::from_secs(2),
        pending_bytes_max: 1 << 20,
        pending_nodes_max: 1000,
        parallel,
        defaults: Defaults { uid: 1, gid: 2 },
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Thing {
    Directory,
    Link(String),
    /// Contents since the last sync; the last is the present one.
    File(Vec<Vec<u8>>),
}

struct Run {
    memory: Arc<Memory>,
    state: tempfile::TempDir,
    ttl: Duration,
    /// Every second run has one.
    cache: Option<Arc<Cache>>,
    system: Arc<FileSystem>,
    model: BTreeMap<String, (Thing, u32)>,
    random: Random,
    failing: bool,
    /// Files that somebody has open.
    held: Vec<u64>,
}

/// Whether all bytes are those of one of the versions: of which one, a crash may have decided for each byte.
fn is_of(found: &[u8], versions: &[Vec<u8>]) -> bool {
    let size = |version: &Vec<u8>| version.len() == found.len();
    let byte = |at: usize| {
        versions.iter().any(|version| version.get(at).copied().unwrap_or(0) == found[at])
    };
    versions.iter().any(size) && (0..found.len()).all(byte)
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Run {
    fn new(seed: u64) -> Run {
        let memory = Arc::new(Memory::new(LIMITS.part_min as usize));
        let state = tempfile::tempdir().unwrap();
        let ttl = if seed.is_multiple_of(3) { Duration::ZERO } else { Duration::from_secs(1000) };
        let cache = (seed % 2 == 1).then(|| cached::cache(&state.path().join("cache"), u64::MAX));
        let system = open_with(&memory, state.path(), ttl, 3, cache.clone());
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Run {
            memory,
            state,
            ttl,
            cache,
            system,
            model: BTreeMap::new(),
            random,
            failing: false,
            held: Vec::new(),
        }
    }

    fn id(&self, path: &str) -> Result<u64> {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.system.lookup(at, name)?.id;
        }
        Ok(at)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        let id = self.id(path)?;
        let size = self.system.attributes(id)?.size;
        Ok(self.system.read(id, 0, size as u32 + 10)?.into())
    }

    /// A path that may be there or not.
    fn path(&mut self) -> String {
        let directories: Vec<String> = std::iter::once(String::new())
            .chain(
                self.model
                    .iter()
                    .filter(|(_, (thing, _))| *thing == Thing::Directory)
                    .map(|(path, _)| format!("{path}/")),
            )
            .collect();
        let directory = &directories[self.random.below(directories.len() as u64) as usize];
        format!("{directory}{}", ["a", "b", "c", "d"][self.random.below(4) as usize])
    }

    fn existing(&mut self) -> Option<String> {
        let count = self.model.len() as u64;
        let at = (count > 0).then(|| self.random.below(count))?;
        self.model.keys().nth(at as usize).cloned()
    }

    fn has_children(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.model.range(below.clone()..).next().is_some_and(|(key, _)| key.starts_with(&below))
    }

    fn fail_some(&mut self) {
        println!("fail some");
        self.failing = true;
        let seed = self.random.below(u64::MAX);
        // Whatever the order in which threads ask, a request fails or does not.
        let mut asked: BTreeMap<(String, String), u64> = BTreeMap::new();
        self.memory.fail(move |kind, key| {
            let key = if key.contains(TEMPORARY) { TEMPORARY } else { key };
            let times = asked.entry((kind.to_owned(), key.to_owned())).or_default();
            *times += 1;
            let hashed = format!("{kind} {key} {times}");
            let hash = u64::from(crc32c::crc32c(hashed.as_bytes()));
            let mut random = Random((seed ^ hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
            random.below(2);
            match random.below(12) {
                0 => Some(Failure::Before),
                1 => Some(Failure::After),
                2 if kind == "complete" => Some(Failure::UnderWay(random.below(5) as u32)),
                _ => None,
            }
        });
    }

    fn fail_none(&mut self) {
        self.failing = false;
        self.memory.fail(|_, _| None);
    }

    /// The program is killed and started again.
    fn crash(&mut self) {
        println!("crash");
        self.fail_none();
        self.held.clear();
        self.system = open_with(&self.memory, self.state.path(), self.ttl, 3, self.cache.clone());
        let paths: Vec<String> = self.model.keys().cloned().collect();
        for path in paths {
            let (thing, _) = self.model[&path].clone();
            if let Thing::File(versions) = thing {
                let found = self
                    .read(&path)
                    .unwrap_or_else(|error| panic!("{path} after a crash: {error}"));
                assert!(
                    is_of(&found, &versions),
                    "{path} after a crash: {found:?}, not one of {versions:?}"
                );
                self.model.get_mut(&path).unwrap().0 = Thing::File(vec![found]);
            }
        }
    }

    /// A removal or a rename failed: whatever of both is there now, with or without a crash, is so from now on.
    fn adopt(&mut self, paths: &[(String, Option<(Thing, u32)>)]) {
        let expected: Vec<_> = paths.to_vec();
        let mut versions = Vec::new();
        for (path, _) in paths {
            if let Some((Thing::File(own), _)) = self.model.remove(path) {
                versions.extend(own);
            }
        }
        match self.random.below(2) {
            0 => {
                self.crash();
                versions.clear();
            }
            _ => self.fail_none(),
        }
        let mut found = 0;
        let mut wanted = 0;
        for (path, thing) in expected {
            wanted += usize::from(thing.is_some());
            let Ok(id) = self.id(&path) else { continue };
            found += 1;
            let stat = self.system.attributes(id).unwrap();
            let now = match stat.attributes.kind {
                Kind::File => {
                    let found = self.read(&path).unwrap();
                    Thing::File([versions.clone(), vec![found]].concat())
                }
                Kind::Directory => Thing::Directory,
                Kind::Symlink => Thing::Link(self.system.target(id).unwrap()),
            };
            self.model.insert(path, (now, stat.attributes.mode));
        }
        assert!(found + 1 >= wanted, "a file is under neither name");
    }

    fn change_file(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let (Thing::File(versions), _) = self.model.get_mut(path).unwrap() {
            let mut now = versions.last().unwrap().clone();
            change(&mut now);
            versions.push(now);
        }
    }

    fn synced(&mut self, path: &str) {
        if let (Thing::File(versions), _) = self.model.get_mut(path).unwrap() {
            versions.drain(..versions.len() - 1);
        }
    }

    fn make(&mut self) {
        let path = self.path();
        let (directory, name) = split(&path);
        let (kind, target, thing) = match self.random.below(6) {
            0 | 1 => (Kind::Directory, None, Thing::Directory),
            2 => (Kind::Symlink, Some("x/y".to_owned()), Thing::Link("x/y".into())),
            _ => (Kind::File, None, Thing::File(vec![Vec::new()])),
        };
        let mode = if kind == Kind::Symlink { 0o777 } else { 0o600 + self.random.below(64) as u32 };
        let made = Made { kind, mode, uid: 5, gid: 6, target };
        println!("make {path} {kind:?} {mode:o}");
        let Ok(parent) = self.id(directory) else { return assert!(self.failing) };
        match self.system.make(parent, name, made, false) {
            Ok(_) => {
                assert!(!self.model.contains_key(&path), "{path} was there");
                self.model.insert(path, (thing, mode));
            }
            Err(Error::Exists) => assert!(self.model.contains_key(&path)),
            Err(error) => assert!(self.failing, "{error}"),
        }
    }

    fn write(&mut self) {
        let Some(path) = self.existing() else { return };
        if !matches!(self.model[&path].0, Thing::File(_)) {
            return;
        }
        println!("write {path}");
        let Ok(id) = self.id(&path) else { return assert!(self.failing) };
        let Ok(()) = self.system.open(id) else { return assert!(self.failing) };
        for _ in 0..self.random.below(3) + 1 {
            let at = self.random.below(300) as usize;
            if self.random.below(4) == 0 {
                let size = Some(at as u64);
                match self.system.set_attributes(id, NewAttributes { size, ..Default::default() }) {
                    Ok(_) => self.change_file(&path, |bytes| bytes.resize(at, 0)),
                    Err(error) => assert!(self.failing, "{error}"),
                }
            } else {
                let (at, length) = match self.random.below(5) {
                    0 => (0, 250 + at),
                    _ => (at, self.random.below(40) as usize + 1),
                };
                let bytes = vec![self.random.below(250) as u8 + 1; length];
                self.system.write(id, at as u64, &bytes).unwrap();
                self.change_file(&path, |all| {
                    if all.len() < at + bytes.len() {
                        all.resize(at + bytes.len(), 0);
                    }
                    all[at..at + bytes.len()].copy_from_slice(&bytes);
                });
            }
            if self.random.below(2) == 0 {
                self.system.stream_some();
            }
        }
        if self.random.below(3) == 0 {
            println!("sync {path}");
            match self.system.sync_file(id) {
                Ok(()) => self.synced(&path),
                Err(error) => assert!(self.failing, "{error}"),
            }
        }
        if self.random.below(4) == 0 {
            self.held.push(id);
        } else {
            self.system.release(id);
        }
    }

    fn close_all(&mut self) {
        self.held.drain(..).for_each(|id| self.system.release(id));
    }

    fn remove(&mut self) {
        let Some(path) = self.existing() else { return };
        println!("remove {path}");
        let (directory, name) = split(&path);
        let is_directory = self.model[&path].0 == Thing::Directory;
        let Ok(parent) = self.id(directory) else { return assert!(self.failing) };
        let result = match is_directory {
            true => self.system.rmdir(parent, name),
            false => self.system.unlink(parent, name),
        };
        match result {
            Ok(()) => {
                assert!(!self.has_children(&path));
                self.model.remove(&path);
            }
            Err(Error::NotEmpty) => assert!(self.has_children(&path)),
            Err(error) => {
                println!("{error}");
                assert!(self.failing, "{path}: {error}");
                if !self.has_children(&path) {
                    self.adopt(&[(path, None)]);
                }
            }
        }
    }

    fn rename(&mut self) {
        let Some(from) = self.existing() else { return };
        let to = self.path();
        if to.starts_with(&format!("{from}/")) || from.starts_with(&format!("{to}/")) || to == from
        {
            return;
        }
        let (Ok(from_id), Ok(to_id)) = (self.id(split(&from).0), self.id(split(&to).0)) else {
            return assert!(self.failing);
        };
        let (from_at, to_at) = ((from_id, split(&from).1), (to_id, split(&to).1));
        let moved = self.model[&from].clone();
        let replaced = self.model.get(&to).cloned();
        let is_directory = moved.0 == Thing::Directory;
        println!("rename {from} to {to}");
        match self.system.rename(from_at, to_at, self.random.below(4) > 0) {
            Ok(()) => {
                if let Some((thing, _)) = &replaced {
                    assert_eq!(*thing == Thing::Directory, is_directory);
                    assert!(!self.has_children(&to));
                }
                let below: Vec<String> = self
                    .model
                    .keys()
                    .filter(|key| key.starts_with(&format!("{from}/")))
                    .cloned()
                    .collect();
                for path in below {
                    let value = self.model.remove(&path).unwrap();
                    self.model.insert(format!("{to}{}", &path[from.len()..]), value);
                }
                self.model.remove(&from);
                self.model.insert(to, moved);
            }
            Err(Error::Exists | Error::IsDirectory | Error::NotDirectory | Error::NotEmpty) => {
                assert!(replaced.is_some())
            }
            Err(error) => {
                println!("{error}");
                assert!(self.failing, "{from} to {to}: {error}");
                if is_directory && self.has_children(&from) {
                    // All below may be under either name: too much to say of it here, so it goes on without.
                    let mut paths: Vec<_> = self
                        .model
                        .iter()
                        .filter(|(key, _)| {
                            key.starts_with(&format!("{from}/")) || **key == from || **key == to
                        })
                        .map(|(key, value)| (key.clone(), Some(value.clone())))
                        .collect();
                    let others: Vec<_> = paths
                        .iter()
                        .map(|(path, _)| path)
                        .filter(|path| **path != to)
                        .map(|path| (format!("{to}{}", &path[from.len()..]), None))
                        .collect();
                    let wanted = paths.len();
                    paths.extend(others);
                    for entry in &mut paths {
                        entry.1 = None;
                    }
                    let before = self.model.len();
                    self.adopt(&paths);
                    assert!(
                        self.model.len() + 1 + usize::from(replaced.is_some())
                            >= before.min(wanted)
                    );
                } else {
                    self.adopt(&[(from, Some(moved)), (to, replaced)]);
                }
            }
        }
    }

    fn set_mode(&mut self) {
        let Some(path) = self.existing() else { return };
        if matches!(self.model[&path].0, Thing::Link(_)) {
            return;
        }
        let Ok(id) = self.id(&path) else { return assert!(self.failing) };
        let mode = 0o400 + self.random.below(256) as u32;
        match self
            .system
            .set_attributes(id, NewAttributes { mode: Some(mode), ..Default::default() })
        {
            Ok(_) => self.model.get_mut(&path).unwrap().1 = mode,
            Err(error) => assert!(self.failing, "{error}"),
        }
    }

    fn sync_all(&mut self) {
        println!("sync");
        match self.system.sync_below(ROOT) {
            Ok(()) => {
                let paths: Vec<String> = self.model.keys().cloned().collect();
                paths.iter().for_each(|path| self.synced(path));
            }
            Err(error) => assert!(self.failing, "{error}"),
        }
    }

    /// What is shown is the model.
    fn compare(&mut self, system: &FileSystem) {
        let mut found = BTreeMap::new();
        let mut directories = vec![(ROOT, String::new())];
        while let Some((id, path)) = directories.pop() {
            for entry in system.entries(id).unwrap() {
                let path = format!("{path}{}", entry.name);
                let stat = system.lookup(id, &entry.name).unwrap();
                assert_eq!(stat.attributes.kind, entry.kind, "{path}");
                let thing = match entry.kind {
                    Kind::Directory => {
                        directories.push((entry.id, format!("{path}/")));
                        Thing::Directory
                    }
                    Kind::Symlink => Thing::Link(system.target(entry.id).unwrap()),
                    Kind::File => {
                        let bytes = system.read(entry.id, 0, stat.size as u32 + 1).unwrap();
                        Thing::File(vec![bytes.into()])
                    }
                };
                found.insert(path, (thing, stat.attributes.mode));
            }
        }
        let expected: BTreeMap<String, (Thing, u32)> = self
            .model
            .iter()
            .map(|(path, (thing, mode))| {
                let thing = match thing {
                    Thing::File(versions) => Thing::File(vec![versions.last().unwrap().clone()]),
                    other => other.clone(),
                };
                (path.clone(), (thing, *mode))
            })
            .collect();
        assert_eq!(found, expected);
    }

    fn step(&mut self) {
        match self.random.below(30) {
            0..8 => self.make(),
            8..16 => self.write(),
            16..18 => self.remove(),
            18..22 => self.rename(),
            22..24 => self.set_mode(),
            24 => self.sync_all(),
            25 | 26 => {
                println!("upload");
                let due = self.system.due();
                let result = self.system.upload_all(&due);
                assert!(result.is_ok() || self.failing, "{result:?}");
            }
            27 => self.crash(),
            28 if self.failing => self.fail_none(),
            28 => self.fail_some(),
            _ if self.failing => self.close_all(),
            _ => self.compare(&self.system.clone()),
        }
    }
}

#[test]
fn random_operations_failures_and_crashes() {
    let seeds =
        std::env::var("WEIR_BUCKET_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let first =
        std::env::var("WEIR_BUCKET_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..150 {
            run.step();
        }
        run.fail_none();
        run.close_all();
        run.compare(&run.system.clone());
        let _ = run.system.finish_leftovers();
        run.system.stop().unwrap();
        run.compare(&run.system.clone());
        // The next start gives up what could not be given up.
        run.crash();
        // Another machine sees the same, and nothing is left over.
        let elsewhere = tempfile::tempdir().unwrap();
        let system = open(&run.memory, elsewhere.path(), Duration::ZERO);
        run.compare(&system);
        assert_eq!(run.memory.open_uploads(), 0, "seed {seed}");
        let objects = run.memory.objects();
        assert!(!objects.keys().any(|key| key.contains(TEMPORARY)), "{:?}", objects.keys());
    }
}

fn file(system: &FileSystem, name: &str) -> u64 {
    let made = Made { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None };
    system.make(ROOT, name, made, true).unwrap().id
}

fn fixture() -> (Arc<Memory>, tempfile::TempDir, Arc<FileSystem>) {
    let memory = Arc::new(Memory::new(LIMITS.part_min as usize));
    let state = tempfile::tempdir().unwrap();
    let system = open(&memory, state.path(), Duration::from_secs(1000));
    (memory, state, system)
}

#[test]
fn new_files_cost_one_request_each() {
    let (_memory, _state, system) = fixture();
    let mut before = None;
    for number in 0..50 {
        let id = file(&system, &format!("f{number}"));
        system.write(id, 0, b"content").unwrap();
        let mtime = Some(Time { seconds: 5, nanoseconds: 0 });
        system.set_attributes(id, NewAttributes { mtime, ..Default::default() }).unwrap();
        system.release(id);
        before.get_or_insert(system.store.counts().now().requests);
    }
    system.sync_below(ROOT).unwrap();
    assert_eq!(system.store.counts().now().requests - before.unwrap(), 50);
    // What never gets there costs nothing.
    let id = file(&system, "x");
    system.release(id);
    system.unlink(ROOT, "x").unwrap();
    system.sync_below(ROOT).unwrap();
    assert_eq!(system.store.counts().now().requests - before.unwrap(), 50);
}

#[test]
fn a_large_file_is_uploaded_while_it_is_written() {
    let (memory, _state, system) = fixture();
    let id = file(&system, "f");
    let mut content = Vec::new();
    for number in 0..40u8 {
        system.write(id, content.len() as u64, &[number + 1; 20]).unwrap();
        content.extend([number + 1; 20]);
        while system.stream_some() {}
    }
    let before = system.store.counts().now();
    assert!(before.bytes_up >= 700, "{before:?}");
    system.write(id, 300, b"patch").unwrap();
    content[300..305].copy_from_slice(b"patch");
    system.sync_file(id).unwrap();
    let after = system.store.counts().now();
    assert!(after.bytes_up - before.bytes_up < 150, "{after:?}");
    assert_eq!(memory.objects()["pre/f"], content);
    assert_eq!((memory.objects().len(), memory.open_uploads()), (1, 0));
}

#[test]
fn a_large_file_that_is_written_quickly_is_uploaded_once_at_its_end() {
    let (memory, state) =
        (Arc::new(Memory::new(LIMITS.part_min as usize)), tempfile::tempdir().unwrap());
    let hour = Duration::from_secs(3600);
    let settings = Settings {
        quiet: hour,
        stream_after: hour,
        pending_bytes_max: 400,
        ..settings(state.path(), hour, 1)
    };
    let system = open_as(&memory, settings, None);
    let id = file(&system, "f");
    let content: Vec<u8> = (0..800u32).map(|at| at as u8).collect();
    for (number, bytes) in content.chunks(20).enumerate() {
        system.write(id, 20 * number as u64, bytes).unwrap();
        assert!(!system.stream_some());
    }
    assert_eq!(system.due(), [0; 0], "more of it will follow");
    let small = file(&system, "small");
    system.write(small, 0, b"small").unwrap();
    assert_eq!(system.due(), [0; 0], "little is pending beside it");
    // What lies behind a gap is not uploaded while the file grows.
    system.write(id, 2000, &[1; 100]).unwrap();
    system.write(small, 1000, &[2; 350]).unwrap();
    assert_eq!(system.due(), [small], "the other has little that is not uploaded while it grows");
    system.write(id, 2000, &[1; 150]).unwrap();
    assert_eq!(system.due(), [id, small]);
    let size = Some(800);
    system.set_attributes(id, NewAttributes { size, ..Default::default() }).unwrap();
    system.release(small);
    system.unlink(ROOT, "small").unwrap();
    system.release(id);
    assert_eq!(system.due(), [id], "more than may be pending");
    system.sync_file(id).unwrap();
    assert_eq!(memory.objects(), [("pre/f".to_owned(), content)].into());
    assert_eq!(system.store.counts().now().bytes_up, 800);
}

#[test]
fn what_other_tools_noted_stays_but_for_hashes_of_other_bytes() {
    let (memory, _state, system) = fixture();
    let noted = [("md5chksum", "aGFzaA=="), ("s3cmd-attrs", "uid:1/md5:0a/mode:2"), ("tag", "x")];
    let user = noted.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let theirs = Properties { user, ..Properties::default() };
    let store: &dyn Store = &*memory;
    store.put("pre/f", b"theirs".to_vec(), &theirs, &Condition::None).unwrap();
    let noted = |key: &str| store.head("pre/f").unwrap().properties.user.get(key).cloned();
    let id = system.lookup(ROOT, "f").unwrap().id;
    system.set_attributes(id, NewAttributes { mode: Some(0o600), ..Default::default() }).unwrap();
    system.sync_file(id).unwrap();
    assert_eq!(noted("md5chksum").as_deref(), Some("aGFzaA=="));
    system.write(id, 0, b"ours").unwrap();
    system.sync_file(id).unwrap();
    assert_eq!(noted("md5chksum"), None);
    assert_eq!(noted("s3cmd-attrs").as_deref(), Some("uid:1/mode:2"));
    assert_eq!(noted("tag").as_deref(), Some("x"));
}

#[test]
fn both_versions_are_kept_in_a_conflict() {
    let (memory, _state, system) = fixture();
    let id = file(&system, "f");
    system.write(id, 0, b"first").unwrap();
    system.sync_file(id).unwrap();
    system.write(id, 0, b"ours!").unwrap();
    memory
        .put("pre/f", b"theirs".to_vec(), &Default::default(), &crate::store::Condition::None)
        .unwrap();
    system.sync_file(id).unwrap();
    let objects = memory.objects();
    assert_eq!(objects["pre/f"], b"theirs");
    let ours: Vec<_> = objects.iter().filter(|(key, _)| key.contains("f.weir-conflict-")).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!(ours[0].1, b"ours!");
    assert_eq!(system.happened().conflicts, 1);
    assert_eq!(system.entries(ROOT).unwrap().len(), 2);
    let stat = system.lookup(ROOT, "f").unwrap();
    assert_eq!(system.read(stat.id, 0, 100).unwrap(), &b"theirs"[..]);
}

#[test]
fn keys_that_are_no_names_are_shown() {
    let (memory, _state, system) = fixture();
    for key in ["a", "a/b", "a//c", "./d", "e/", "f/g"] {
        memory
            .put(
                &format!("pre/{key}"),
                key.into(),
                &Default::default(),
                &crate::store::Condition::None,
            )
            .unwrap();
    }
    let names = |id| {
        let entries = system.entries(id).unwrap().into_iter();
        entries.map(|entry| entry.name).collect::<std::collections::BTreeSet<_>>()
    };
    let names = |id| names(id).into_iter().collect::<Vec<_>>();
    assert_eq!(names(ROOT), ["a", "e", "f", "weir%.", "weir%=a"]);
    let a = system.lookup(ROOT, "a").unwrap().id;
    assert_eq!(names(a), ["b", "weir%"]);
    let e = system.lookup(ROOT, "e").unwrap().id;
    let own = system.lookup(e, "weir%=").unwrap().id;
    assert_eq!(system.read(own, 0, 10).unwrap(), &b"e/"[..]);
    let shadowed = system.lookup(ROOT, "weir%=a").unwrap().id;
    system.open(shadowed).unwrap();
    system.write(shadowed, 0, b"A").unwrap();
    system.sync_file(shadowed).unwrap();
    assert_eq!(memory.objects()["pre/a"], b"A");
    system.rename((ROOT, "weir%."), (ROOT, "dot"), true).unwrap();
    assert!(memory.objects().contains_key("pre/dot/d"));
}

#[test]
fn a_removed_file_that_is_open_can_be_read() {
    let (memory, _state, system) = fixture();
    let id = file(&system, "f");
    system.write(id, 0, b"content").unwrap();
    system.sync_file(id).unwrap();
    system.release(id);
    system.open(id).unwrap();
    system.unlink(ROOT, "f").unwrap();
    assert_eq!(system.read(id, 0, 100).unwrap(), &b"content"[..]);
    system.release(id);
    assert!(memory.objects().is_empty());
}

#[test]
fn nothing_is_changed_without_the_lease() {
    let (memory, _state, system) = fixture();
    let id = file(&system, "f");
    system.write(id, 0, b"content").unwrap();
    system.store.fence().valid_until(std::time::Instant::now());
    assert_eq!(system.sync_file(id).unwrap_err().errno(), libc::EIO);
    assert_eq!(system.sync_below(ROOT).unwrap_err().errno(), libc::EIO);
    assert!(system.write(id, 0, b"more").is_err());
    assert!(memory.objects().is_empty());
    system.store.fence().valid_until(std::time::Instant::now() + Duration::from_secs(1000));
    system.sync_file(id).unwrap();
    assert_eq!(memory.objects()["pre/f"], b"content");
}

#[test]
fn what_the_bucket_does_not_take_at_the_end_is_kept() {
    let (memory, state, system) = fixture();
    let id = file(&system, "f");
    system.write(id, 0, b"nobody synced it").unwrap();
    memory.fail(|_, _| Some(Failure::Before));
    assert!(system.stop().is_err());
    drop(system);
    memory.fail(|_, _| None);
    let system = open(&memory, state.path(), Duration::from_secs(1000));
    system.stop().unwrap();
    assert_eq!(memory.objects()["pre/f"], b"nobody synced it");
}

#[test]
fn what_is_asked_for_in_order_is_asked_for_ahead() {
    let (memory, state) = (Arc::new(Memory::new(16)), tempfile::tempdir().unwrap());
    let name = |number: u64| format!("{number:02}");
    for number in 0..60 {
        let key = format!("pre/{}", name(number));
        memory.put(&key, vec![7; 5000], &Default::default(), &Condition::None).unwrap();
    }
    let system = open_parallel(&memory, state.path(), Duration::from_secs(3600), 16);
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (heads, refused) = (asked.clone(), Arc::new(std::sync::Mutex::new(None)));
    let refuses = refused.clone();
    memory.fail(move |kind, key| {
        if kind == "head" {
            heads.lock().unwrap().push(key.to_owned());
        }
        let fails = refuses.lock().unwrap().as_deref() == Some(key);
        fails.then_some(Failure::Before)
    });
    let entries = system.entries(ROOT).unwrap();
    let listed: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, (0..60).map(name).collect::<Vec<_>>());
    let new = |number: u64| {
        let stat = system.lookup(ROOT, &name(number));
        (stat.map(|stat| stat.size), std::mem::take(&mut *asked.lock().unwrap()).len())
    };
    assert_eq!(asked.lock().unwrap().len(), 0, "a listing of large objects asks for none");
    let found: Vec<usize> = (0..7).map(|number| new(number).1).collect();
    assert_eq!(found, [1, 2, 0, 4, 0, 0, 0]);
    // If one request fails, the other lookups succeed; the lookup of its own name tells the error.
    *refused.lock().unwrap() = Some("pre/09".to_owned());
    assert!(matches!(new(7), (Ok(5000), 8)));
    assert!(matches!(new(9), (Err(_), 1..)));
    *refused.lock().unwrap() = None;
    assert!(matches!(new(9), (Ok(5000), 1)));
    // Others in the same place repeat nothing, and a jump asks for one.
    assert!(matches!(new(8), (Ok(5000), 0)));
    assert!(matches!(new(15), (Ok(5000), 16)));
    assert!(matches!(new(50), (Ok(5000), 1)));
    // Gone from the bucket.
    memory.delete("pre/51").unwrap();
    memory.delete("pre/53").unwrap();
    assert!(matches!(new(51), (Err(Error::NotFound), 2)));
    assert!(matches!(new(53), (Err(Error::NotFound), _)));
    assert!(matches!(new(54), (Ok(5000), _)));
}
