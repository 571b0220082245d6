//! Logs of each version of the format, recovered to files and used again; and logs that a newer Weir made.

#![allow(clippy::unwrap_used)] // What is missing fails the test.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

use weir_backend::{
    LogFile, LogFileError, LogOwner, LogPlace, OpenLogError, RedoLog, look, recover,
};
use weir_log::{
    BLOCK_BYTES, FEATURES, Identity, LOG_BYTES_MIN, NODE_FIRST, Superblock, VERSION,
    VERSION_BY_DEVICE, newest,
};

/// crates/log/tests/images.rs says what they hold.
const IMAGES: [(u32, &[u8]); 3] = [
    (2, include_bytes!("../../log/tests/images/version-2")),
    (3, include_bytes!("../../log/tests/images/version-3")),
    (4, include_bytes!("../../log/tests/images/version-4")),
];

/// As the images have it.
const MOUNT: Identity = *b"SOURCE's identit";

const LETTER: &[u8] = b"Before the checkpoint.";
const LIST: &[u8] = b"home's own bytes";
const LETTER_AFTER: &[u8] = b"Before a crash,\0\0\0\0\0the end";

fn list_after() -> Vec<u8> {
    let mut list = LIST.to_vec();
    list.resize(4090, 0);
    list.extend((0..5000u32).map(|at| (at % 251) as u8));
    list
}

/// A SOURCE after a crash, with its log.
struct Stand {
    directory: tempfile::TempDir,
    source: File,
}

impl Stand {
    fn new(image: &[u8]) -> Stand {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::create_dir(path(".weir")).unwrap();
        fs::write(path("letter"), LETTER).unwrap();
        fs::write(path("list"), LIST).unwrap();
        let mut log = image.to_vec();
        log.resize(LOG_BYTES_MIN as usize, 0);
        fs::write(path(".weir/log"), log).unwrap();
        fs::set_permissions(path(".weir/log"), Permissions::from_mode(0o600)).unwrap();
        let source = File::open(directory.path()).unwrap();
        Stand { directory, source }
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join(".weir/log")
    }

    fn log(&self) -> Vec<u8> {
        fs::read(self.log_path()).unwrap()
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let log = OpenOptions::new().write(true).open(self.log_path()).unwrap();
        log.write_all_at(bytes, at as u64).unwrap();
    }

    fn file(&self) -> LogFile {
        LogFile::open(&LogPlace::at(&self.log_path()).unwrap()).unwrap().unwrap()
    }

    fn open(&self) -> Result<RedoLog, OpenLogError> {
        RedoLog::open(self.file(), MOUNT, self.source.as_fd(), NODE_FIRST)
    }

    fn block(&self, nth: usize) -> [u8; BLOCK_BYTES] {
        self.log()[nth * BLOCK_BYTES..][..BLOCK_BYTES].try_into().unwrap()
    }

    fn superblock(&self) -> Superblock {
        newest([&self.block(0), &self.block(1)]).unwrap()
    }

    fn is_as_before(&self) -> bool {
        let read = |name| fs::read(self.directory.path().join(name)).unwrap();
        read("letter") == LETTER && read("list") == LIST
    }

    fn is_recovered(&self) -> bool {
        let read = |name| fs::read(self.directory.path().join(name)).unwrap();
        read("letter") == LETTER_AFTER && read("list") == list_after()
    }

    fn is_of_this_version(&self) -> bool {
        (0..2).all(|nth| {
            let block = self.block(nth);
            Superblock::decode(&block).is_ok() && Superblock::version(&block) == VERSION
        })
    }
}

/// A block of a superblock with another number in it, and its checksum right.
fn with(mut block: [u8; BLOCK_BYTES], at: usize, number: &[u8]) -> [u8; BLOCK_BYTES] {
    block[at..at + number.len()].copy_from_slice(number);
    let crc = crc32c::crc32c(&block[..508]);
    block[508..512].copy_from_slice(&crc.to_le_bytes());
    block
}

#[test]
fn a_log_of_each_version_is_recovered_and_goes_on_as_this_version() {
    for (version, image) in IMAGES {
        let stand = Stand::new(image);
        let found = look(&stand.file(), stand.source.as_fd()).unwrap().unwrap();
        let owner = match version {
            VERSION_BY_DEVICE => LogOwner::ByDevice { same: false },
            _ => LogOwner::Source(MOUNT),
        };
        assert_eq!((found.owner, found.has_changes), (owner, true));
        let log = stand.open().unwrap();
        assert_eq!((log.recovered.groups, log.recovered.applied), (2, 4));
        assert!(stand.is_recovered() && stand.is_of_this_version(), "version {version}");
        assert!(log.writer().new_node().unwrap() >= found.unused_node);
        drop(log);
        assert_eq!(stand.open().unwrap().recovered.groups, 0);
        assert!(stand.is_recovered());
    }
}

#[test]
fn a_log_of_each_version_is_recovered_without_a_mount() {
    for (_, image) in IMAGES {
        let stand = Stand::new(image);
        let before = stand.log();
        let would = recover(&stand.file(), MOUNT, stand.source.as_fd(), true).unwrap();
        assert_eq!(
            (would.report.groups, stand.log() == before, stand.is_as_before()),
            (2, true, true)
        );
        let done = recover(&stand.file(), MOUNT, stand.source.as_fd(), false).unwrap();
        assert_eq!(done, would);
        assert!(stand.is_recovered() && stand.is_of_this_version() && stand.superblock().clean);
    }
}

#[test]
fn a_crash_within_the_change_of_version_leaves_a_log_that_is_recovered() {
    for (version, image) in IMAGES.into_iter().filter(|&(version, _)| version < VERSION) {
        let whole = Stand::new(image);
        drop(whole.open().unwrap());
        let old = Stand::new(image).superblock();
        let second = 1 - (old.generation % 2) as usize;
        // The first superblock written is in the place of the older one; torn, new, or both new.
        let first = whole.block(second);
        let mut torn = Stand::new(image).block(second);
        torn[..256].copy_from_slice(&first[..256]);
        for (block, is_counted) in [(torn, false), (first, true)] {
            let stand = Stand::new(image);
            stand.write(second * BLOCK_BYTES, &block);
            if is_counted {
                // It is written when the files are home.
                for name in ["letter", "list"] {
                    let path = |stand: &Stand| stand.directory.path().join(name);
                    fs::copy(path(&whole), path(&stand)).unwrap();
                }
            }
            assert_eq!(stand.superblock().generation, old.generation + u64::from(is_counted));
            // An earlier build finds the log as it was.
            let other = stand.block(1 - second);
            assert_eq!(Superblock::version(&other), version);
            assert_eq!(Superblock::decode(&other), Ok(old));
            let groups = stand.open().unwrap().recovered.groups;
            assert_eq!(groups, if is_counted { 0 } else { 2 });
            assert!(stand.is_recovered() && stand.is_of_this_version(), "version {version}");
        }
    }
}

#[test]
fn a_log_of_a_newer_weir_is_refused_and_left_as_it_is() {
    let newer_version = (VERSION + 1).to_le_bytes();
    let newer_feature = (1u64 << FEATURES.trailing_ones()).to_le_bytes();
    for (_, image) in IMAGES {
        for nth in 0..2 {
            for (at, number) in [(8, &newer_version[..]), (88, &newer_feature)] {
                let stand = Stand::new(image);
                // Features are of this version on.
                let block = with(stand.block(nth), 8, &VERSION.to_le_bytes());
                let block = with(block, 80, &NODE_FIRST.to_le_bytes());
                stand.write(nth * BLOCK_BYTES, &with(block, at, number));
                let before = stand.log();
                let error = stand.open().unwrap_err();
                assert!(
                    matches!(&error, OpenLogError::File(LogFileError::Newer { .. })),
                    "superblock {nth}: {error}"
                );
                let text = error.to_string();
                assert!(
                    text.contains("made by a newer Weir") && text.contains("recover"),
                    "{text}"
                );
                assert!(look(&stand.file(), stand.source.as_fd()).is_err());
                assert!(recover(&stand.file(), MOUNT, stand.source.as_fd(), false).is_err());
                assert!(stand.log() == before && stand.is_as_before());
            }
        }
    }
}

/// Changes the first record of the last group, which names a file.
fn change_last_group(stand: &Stand, kind: u8, value: u8) {
    let (group, record) = (4 * BLOCK_BYTES, 64);
    let mut bytes = stand.log()[group..].to_vec();
    let number = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    };
    (bytes[record], bytes[record + 24]) = (kind, value);
    let end = record + number(&bytes, record + 8);
    let crc = crc32c::crc32c(&bytes[record..record + 4]);
    let crc = crc32c::crc32c_append(crc, &bytes[record + 8..end]);
    bytes[record + 4..record + 8].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[8..number(&bytes, 32)]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    stand.write(group, &bytes);
}

#[test]
fn a_record_of_a_newer_weir_keeps_the_log_and_all_files() {
    for (_, image) in IMAGES {
        let stand = Stand::new(image);
        change_last_group(&stand, 26, 0);
        let before = stand.log();
        let recovered = |dry| recover(&stand.file(), MOUNT, stand.source.as_fd(), dry);
        for text in [
            stand.open().unwrap_err().to_string(),
            recovered(true).unwrap_err().to_string(),
            recovered(false).unwrap_err().to_string(),
        ] {
            assert!(text.contains("records of kind 26") && text.contains("newer Weir"), "{text}");
        }
        assert!(stand.log() == before && stand.is_as_before());
    }
}

#[test]
fn node_numbers_go_on_after_those_of_a_log_that_is_replaced() {
    let stand = Stand::new(IMAGES[2].1);
    let first = 1 << 50;
    let log = RedoLog::open(stand.file(), MOUNT, stand.source.as_fd(), first).unwrap();
    assert_eq!(log.writer().new_node(), Some(first));
    drop(log);
    let next = stand.open().unwrap().writer().new_node().unwrap();
    assert!(next > first);
}

#[test]
fn a_log_is_opened_once_the_daemon_that_had_it_has_let_go_of_it() {
    let stand = Stand::new(IMAGES[0].1);
    let place = LogPlace::at(&stand.log_path()).unwrap();
    let held = LogFile::open(&place).unwrap();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(held);
    });
    LogFile::open(&place).unwrap().unwrap();
    ends.join().unwrap();
    let _held = LogFile::open(&place).unwrap();
    assert!(matches!(LogFile::open(&place), Err(LogFileError::InUse(_))));
}
