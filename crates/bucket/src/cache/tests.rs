//! The cache against a model that forgets exactly what the cache may forget: what was not used for the longest time.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;

use super::directory::{OWN_BYTES, disk_bytes};
use super::*;

fn open(directory: &Path, units_bytes: u64) -> Cache {
    open_prefix(directory, "pre/", units_bytes).unwrap()
}

fn open_prefix(directory: &Path, prefix: &str, units_bytes: u64) -> Result<Cache, CacheError> {
    let address = Address { bucket: "bucket".into(), prefix: prefix.into() };
    let place = Place { directory, store: "store", address: &address };
    Cache::open(&place, OWN_BYTES + units_bytes)
}

fn bytes_of(seed: u8, length: usize) -> Bytes {
    (0..length).map(|at| seed ^ (at as u8).wrapping_mul(31)).collect()
}

/// All files of units, and what all files take on the disk.
fn files(directory: &Path) -> (Vec<PathBuf>, u64) {
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            assert_eq!(metadata.mode() & 0o077, 0, "{}", path.display());
            bytes += metadata.blocks() * 512;
            match metadata.is_dir() {
                true => directories.push(path),
                false if path.to_str().unwrap().ends_with("/lock") => {}
                false => found.push(path),
            }
        }
    }
    found.sort();
    (found, bytes)
}

struct Kept {
    key: &'static str,
    unit: u64,
    etag: &'static str,
    bytes: Bytes,
    /// What is counted for it.
    counted: u64,
    /// The length of its file.
    length: u64,
    damaged: bool,
}

/// The units, those that were used last at the end.
struct Model {
    kept: Vec<Kept>,
    units_bytes: u64,
}

impl Model {
    fn at(&self, key: &str, unit: u64) -> Option<usize> {
        self.kept.iter().position(|kept| kept.key == key && kept.unit == unit)
    }

    fn bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.counted).sum()
    }

    fn keep(&mut self, key: &'static str, unit: u64, etag: &'static str, bytes: Bytes) {
        if let Some(at) = self.at(key, unit) {
            self.kept.remove(at);
        }
        let identity = Identity { store: "store", key, etag, unit };
        let length = unit::file_bytes(&identity, bytes.len()) as u64;
        let counted = disk_bytes(length);
        self.shrink(counted);
        self.kept.push(Kept { key, unit, etag, bytes, counted, length, damaged: false });
    }

    fn shrink(&mut self, room: u64) {
        while self.bytes() + room > self.units_bytes {
            self.kept.remove(0);
        }
    }

    fn find(&mut self, key: &str, unit: u64, etag: &str) -> Option<Bytes> {
        let at = self.at(key, unit)?;
        if self.kept[at].damaged {
            self.kept.remove(at);
            return None;
        }
        if self.kept[at].etag != etag {
            return None;
        }
        let kept = self.kept.remove(at);
        let bytes = kept.bytes.clone();
        self.kept.push(kept);
        Some(bytes)
    }

    /// What is looked through at a start.
    fn restart(&mut self, units_bytes: u64) {
        self.units_bytes = units_bytes;
        for kept in &mut self.kept {
            kept.counted = disk_bytes(kept.length);
        }
        self.shrink(0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Keep(&'static str, u64, &'static str, u8, usize),
    Find(&'static str, u64, &'static str),
    Damage(prop::sample::Index, prop::sample::Index, u8),
    CutOff(prop::sample::Index, prop::sample::Index),
    Restart(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop::sample::select(vec!["pre/a", "pre/b", "pre/b/c"]);
    let etag = || prop::sample::select(vec!["\"1\"", "\"2\"", "\"1-2\""]);
    let size = 40_000u64..90_000;
    prop_oneof![
        6 => (key(), 0u64..6, etag(), any::<u8>(), 1usize..9000)
            .prop_map(|(key, unit, etag, seed, length)| Step::Keep(key, unit, etag, seed, length)),
        6 => (key(), 0u64..6, etag()).prop_map(|(key, unit, etag)| Step::Find(key, unit, etag)),
        1 => (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u8..)
            .prop_map(|(file, at, change)| Step::Damage(file, at, change)),
        1 => (any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(file, at)| Step::CutOff(file, at)),
        1 => size.prop_map(Step::Restart),
    ]
}

/// Alters a file of the directory and notes it in the model.
fn alter(
    directory: &Path,
    model: &mut Model,
    which: prop::sample::Index,
    change: impl Fn(&mut Vec<u8>),
) {
    let (files, _) = files(directory);
    if files.is_empty() {
        return;
    }
    let path = which.get(&files);
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, &bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    let is_it = |kept: &&mut Kept| {
        let Kept { key, etag, unit, .. } = **kept;
        path.ends_with(Identity { store: "store", key, etag, unit }.name().path())
    };
    let kept = model.kept.iter_mut().find(is_it).expect("the model has every file");
    let Kept { key, etag, unit, .. } = *kept;
    let identity = Identity { store: "store", key, etag, unit };
    // Two changes may cancel each other.
    kept.damaged = bytes != [&unit::head(&identity, &kept.bytes)[..], &kept.bytes].concat();
    kept.length = bytes.len() as u64;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn it_has_what_was_kept_and_nothing_else(steps in prop::collection::vec(step(), 0..80)) {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = Some(open(directory.path(), 60_000));
        let mut model = Model { kept: Vec::new(), units_bytes: 60_000 };
        let mut length = std::collections::HashMap::new();
        for step in steps {
            let open_cache = cache.as_ref().unwrap();
            match step {
                Step::Keep(key, unit, etag, seed, size) => {
                    // An object with an ETag has one content.
                    let size = *length.entry((key, unit, etag)).or_insert(size);
                    let bytes = bytes_of(seed, size);
                    open_cache.keep(&key.into(), &etag.into(), unit, &bytes);
                    model.keep(key, unit, etag, bytes);
                }
                Step::Find(key, unit, etag) => {
                    let size = length.get(&(key, unit, etag)).copied().unwrap_or(5);
                    let before = open_cache.counts();
                    let found = open_cache.find(key, etag, unit, size);
                    let after = open_cache.counts();
                    prop_assert_eq!(after.hits - before.hits, u64::from(found.is_some()));
                    prop_assert_eq!(after.misses - before.misses, u64::from(found.is_none()));
                    prop_assert_eq!(found, model.find(key, unit, etag));
                }
                Step::Damage(file, at, change) => {
                    alter(directory.path(), &mut model, file, |bytes| {
                        let at = at.index(bytes.len().max(1));
                        match bytes.get_mut(at) {
                            Some(byte) => *byte ^= change,
                            None => bytes.push(change),
                        }
                    });
                }
                Step::CutOff(file, at) => {
                    alter(directory.path(), &mut model, file, |bytes| {
                        bytes.truncate(at.index(bytes.len().max(1)));
                    });
                }
                Step::Restart(units_bytes) => {
                    drop(cache.take());
                    cache = Some(open(directory.path(), units_bytes));
                    model.restart(units_bytes);
                }
            }
            let cache = cache.as_ref().unwrap();
            cache.settle();
            prop_assert_eq!(cache.counts().bytes, model.bytes());
            let (files, bytes) = files(directory.path());
            prop_assert_eq!(files.len(), model.kept.len());
            prop_assert!(bytes <= OWN_BYTES + model.units_bytes);
            prop_assert_eq!(cache.counts().skipped, 0);
        }
    }
}

fn keep_one(cache: &Cache) -> Bytes {
    let bytes = bytes_of(7, 5000);
    cache.keep(&"pre/a".into(), &"\"1\"".into(), 3, &bytes);
    cache.settle();
    bytes
}

#[test]
fn what_somebody_else_puts_there_is_no_unit_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path(), 100_000);
    let bytes = keep_one(&cache);
    let own = files(directory.path()).0.remove(0);
    drop(cache);
    let foreign = own.with_file_name("README");
    fs::write(&foreign, "x").unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o600)).unwrap();
    let cache = open(directory.path(), 100_000);
    assert_eq!(cache.find("pre/a", "\"1\"", 3, 5000), Some(bytes.clone()));
    // Another's unit under this one's name.
    let unit_5 = Identity { store: "store", key: "pre/a", etag: "\"1\"", unit: 5 }.name().path();
    let prefix = own.parent().and_then(Path::parent).unwrap();
    let copy = prefix.join(unit_5);
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    fs::copy(&own, &copy).unwrap();
    assert_eq!(cache.find("pre/a", "\"1\"", 5, 5000), None);
    assert_eq!(cache.counts().damaged, 1);
    cache.settle();
    assert!(!copy.exists() && foreign.exists());
    // A pipe is not waited for, and a link is not followed.
    fs::remove_file(&own).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &own,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    assert_eq!(cache.find("pre/a", "\"1\"", 3, 5000), None);
    let _ = fs::remove_file(&own);
    std::os::unix::fs::symlink("/etc/passwd", &own).unwrap();
    assert_eq!(cache.find("pre/a", "\"1\"", 3, 5000), None);
    // All is removed while it is in use.
    for entry in fs::read_dir(prefix).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        }
    }
    assert_eq!(cache.find("pre/a", "\"1\"", 3, 5000), None);
    assert_eq!(keep_one(&cache), bytes);
    assert_eq!(cache.find("pre/a", "\"1\"", 3, 5000), Some(bytes));
}

#[test]
fn one_at_a_time_has_a_directory_that_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/here");
    let first = open_prefix(&path, "one/", 100_000).unwrap();
    assert!(matches!(open_prefix(&path, "one/", 100_000), Err(CacheError::InUse { .. })));
    drop(open_prefix(&path, "other/", 100_000).unwrap());
    keep_one(&first);
    let own = first.directory.path().to_owned();
    drop(first);
    fs::set_permissions(&own, fs::Permissions::from_mode(0o750)).unwrap();
    let refused = open_prefix(&path, "one/", 100_000).unwrap_err();
    assert!(refused.to_string().contains("mode 750"), "{refused}");
    fs::remove_dir_all(&own).unwrap();
    std::os::unix::fs::symlink("/tmp", &own).unwrap();
    assert!(matches!(open_prefix(&path, "one/", 100_000), Err(CacheError::Io { .. })));
    if rustix::process::geteuid().is_root() {
        fs::remove_file(&own).unwrap();
        fs::create_dir(&own).unwrap();
        std::os::unix::fs::chown(&own, Some(1234), None).unwrap();
        let refused = open_prefix(&path, "one/", 100_000).unwrap_err();
        assert!(refused.to_string().contains("uid 1234"), "{refused}");
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        assert!(matches!(open_prefix(&path, "new/", 100_000), Err(CacheError::OfAnother { .. })));
    }
}

#[test]
fn nothing_waits_for_the_keeper() {
    let directory: TempDir = tempfile::tempdir().unwrap();
    let cache = open(directory.path(), 1 << 30);
    let start = Instant::now();
    let (key, etag): (Arc<str>, Arc<str>) = ("pre/a".into(), "\"1\"".into());
    let bytes = bytes_of(1, 128 << 10);
    for unit in 0..4 * QUEUE as u64 {
        cache.keep(&key, &etag, unit, &bytes);
    }
    assert!(start.elapsed() < Duration::from_secs(2));
    cache.settle();
    let (files, _) = files(directory.path());
    assert_eq!(files.len() as u64 + cache.counts().skipped, 4 * QUEUE as u64);
    assert!(cache.counts().skipped > 0, "the queue has no bound");
}

#[test]
fn an_etag_that_does_not_tell_the_content_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path(), 100_000);
    for etag in ["", "\"\"", "W/\"1\""] {
        cache.keep(&"pre/a".into(), &etag.into(), 0, &bytes_of(1, 10));
        cache.settle();
        assert_eq!(cache.find("pre/a", etag, 0, 10), None);
    }
    assert!(files(directory.path()).0.is_empty());
}

#[test]
fn sizes_are_read() {
    assert_eq!(parse_size("64M"), Ok(64 << 20));
    assert_eq!(parse_size("1GiB"), Ok(1 << 30));
    assert_eq!(parse_size("67108864"), Ok(64 << 20));
    assert!(parse_size("63M").unwrap_err().contains("at least 64 MiB"));
    for wrong in ["", "G", "-1G", "1.5G", "1X", "99999999999T"] {
        assert!(parse_size(wrong).is_err(), "{wrong}");
    }
}

/// How long a start with 80,000 units takes: `cargo test -p weir-bucket --lib -- --ignored --nocapture start_with`.
#[test]
#[ignore = "writes 80,000 files to measure a start; the command is above"]
fn start_with_80_000_units() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path(), 1 << 30);
    keep_one(&cache);
    let own = cache.directory.path().to_owned();
    let file = files(directory.path()).0.remove(0);
    drop(cache);
    let bytes = fs::read(file).unwrap();
    for unit in 0..80_000 {
        let name = Identity { store: "store", key: "pre/a", etag: "\"1\"", unit }.name().path();
        let path = own.join(name);
        let _ = fs::create_dir(path.parent().unwrap());
        fs::write(path, &bytes[..100]).unwrap();
    }
    let start = Instant::now();
    let cache = open(directory.path(), 10 << 30);
    let opened = start.elapsed();
    cache.settle();
    println!("opened after {opened:?}, looked through after {:?}", start.elapsed());
    assert_eq!(cache.counts().bytes, 80_000 * disk_bytes(100));
}
