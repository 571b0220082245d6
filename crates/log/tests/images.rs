//! Logs in each version of the format, in `images/`: made by the code of that version, replayed by this one.
//! All hold the same records, those of [`made_today`]. Files are identified by path, as crates/backend does
//! where a file system has no lasting handles. Zeros at a log's end are left out of the image.

#![allow(clippy::unwrap_used)] // A missing item fails the test.

mod files;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;

use proptest::prelude::*;
use weir_log::{
    BLOCK_BYTES, Commit, Home, LOG_BYTES_MIN, Lsn, NODE_FIRST, ReadLog, Record, ReplayError,
    Report, ScanError, Superblock, SuperblockError, VERSION, Writer, newest, replay,
};

use crate::files::Files;

const VERSION_2: &[u8] = include_bytes!("images/version-2");
const VERSION_3: &[u8] = include_bytes!("images/version-3");
const VERSION_4: &[u8] = include_bytes!("images/version-4");

const IMAGES: [(u32, &[u8]); 3] = [(2, VERSION_2), (3, VERSION_3), (4, VERSION_4)];

/// A log in memory.
#[derive(Clone)]
struct Disk(Vec<u8>);

impl ReadLog for Disk {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = offset as usize;
        let bytes = self.0.get(from..from + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl Disk {
    fn of_image(image: &[u8]) -> Disk {
        let mut bytes = image.to_vec();
        bytes.resize(LOG_BYTES_MIN as usize, 0);
        Disk(bytes)
    }

    /// Writes the first sectors of a commit.
    fn write(&mut self, commit: &Commit, sectors: usize) {
        let places = commit.pieces.iter().flat_map(|&(place, count)| {
            (0..count * BLOCK_BYTES / 512).map(move |nth| place as usize + nth * 512)
        });
        let bytes = commit.blocks.iter().flat_map(|block| block.0.chunks(512));
        for (place, bytes) in places.zip(bytes).take(sectors) {
            self.0[place..place + 512].copy_from_slice(bytes);
        }
    }

    fn write_superblock(&mut self, superblock: &Superblock) {
        let pieces = vec![(superblock.own_place(), 1)];
        self.write(&Commit { blocks: vec![superblock.encode()], pieces }, usize::MAX);
    }

    fn block(&self, nth: usize) -> &[u8; BLOCK_BYTES] {
        self.0[nth * BLOCK_BYTES..][..BLOCK_BYTES].try_into().unwrap()
    }

    fn superblock(&self) -> Result<Superblock, SuperblockError> {
        newest([self.block(0), self.block(1)])
    }

    /// Sets a byte of a record of the group at a place, and corrects the checksums.
    fn set(&mut self, group: usize, record: usize, byte: u8) {
        let number = |bytes: &[u8], at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
        };
        let bytes = &mut self.0[group..];
        bytes[record] = byte;
        let end = record + number(bytes, record + 8);
        let crc = crc32c::crc32c(&bytes[record..record + 4]);
        let crc = crc32c::crc32c_append(crc, &bytes[record + 8..end]);
        bytes[record + 4..record + 8].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[8..number(bytes, 32)]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

const LETTER: &[u8] = b"pathletter";
const LIST: &[u8] = b"pathlist";

/// Bytes written to the list: longer than a page.
fn numbers() -> Vec<u8> {
    (0..5000u32).map(|at| (at % 251) as u8).collect()
}

/// The files before the crash: home has the changes before the checkpoint, and newer bytes of the list.
fn home() -> Files {
    Files(BTreeMap::from([
        (LETTER.to_vec(), b"Before the checkpoint.".to_vec()),
        (LIST.to_vec(), b"home's own bytes".to_vec()),
    ]))
}

/// The files after recovery.
fn recovered() -> Files {
    let mut list = b"home's own bytes".to_vec();
    list.resize(4090, 0);
    list.extend(numbers());
    Files(BTreeMap::from([
        (LETTER.to_vec(), b"Before a crash,\0\0\0\0\0the end".to_vec()),
        (LIST.to_vec(), list),
    ]))
}

/// The files if only the first group after the checkpoint is replayed: the record that voids its records of the
/// list comes later.
fn after_one_group() -> Files {
    let mut files = home();
    let apply = |files: &mut Files| {
        files.write(&LETTER.to_vec(), 7, b"a crash, synced")?;
        files.write(&LIST.to_vec(), 0, b"void: home has newer bytes")?;
        files.truncate(&LIST.to_vec(), 6000)
    };
    apply(&mut files).unwrap();
    files
}

/// The log that the images hold, made by today's code.
fn made_today() -> Disk {
    let formatted = Superblock {
        log: *b"a log's own name",
        mount: *b"SOURCE's identit",
        bytes: LOG_BYTES_MIN,
        generation: 2,
        checkpoint: Lsn(0),
        clean: true,
        row_blocks: 1,
        nodes: NODE_FIRST,
        features: 0,
    };
    let mut disk = Disk(vec![0; LOG_BYTES_MIN as usize]);
    let used = formatted.next_use(Lsn(0));
    disk.write_superblock(&formatted);
    disk.write_superblock(&used);
    let mut writer = Writer::new(used);
    let (letter, list) = (writer.new_node().unwrap(), writer.new_node().unwrap());
    let name_letter = Record::File { file: letter, identity: LETTER };
    let name_list = Record::File { file: list, identity: LIST };
    let numbers = numbers();
    let mut commit = |writer: &mut Writer, records: &[Record<'_>], sectors| {
        for record in records {
            writer.append(record).unwrap();
        }
        disk.write(&writer.commit().unwrap(), sectors);
        writer.committed();
    };
    let data = b"Before the checkpoint.";
    let first = [name_letter, Record::Write { file: letter, offset: 0, data }];
    commit(&mut writer, &first, usize::MAX);
    let checkpoint = writer.checkpoint(writer.durable()).unwrap();
    writer.checkpointed();
    let second = [
        name_letter,
        Record::Write { file: letter, offset: 7, data: b"a crash, synced" },
        name_list,
        Record::Write { file: list, offset: 0, data: b"void: home has newer bytes" },
        Record::Truncate { file: list, size: 6000 },
    ];
    commit(&mut writer, &second, usize::MAX);
    let third = [
        name_list,
        Record::Revoke { file: list, before: writer.position() },
        Record::Write { file: list, offset: 4090, data: &numbers },
        name_letter,
        Record::Truncate { file: letter, size: 15 },
        Record::Write { file: letter, offset: 20, data: b"the end" },
    ];
    commit(&mut writer, &third, usize::MAX);
    // A torn group: it was never acknowledged.
    let fourth = [name_letter, Record::Write { file: letter, offset: 0, data: &numbers }];
    commit(&mut writer, &fourth, 3);
    disk.write(&checkpoint, usize::MAX);
    disk
}

fn recover(disk: &Disk, files: &mut Files) -> Result<Report, ReplayError<Infallible>> {
    replay(&mut disk.clone(), disk.superblock().unwrap(), Some(files))
}

/// Places of the replayed groups, and of the torn one.
const SECOND: usize = 8192 + BLOCK_BYTES;
const THIRD: usize = SECOND + BLOCK_BYTES;

#[test]
fn each_version_is_recovered_byte_by_byte() {
    for (version, image) in IMAGES {
        let disk = Disk::of_image(image);
        assert_eq!(Superblock::version(disk.block(0)), version);
        let superblock = disk.superblock().unwrap();
        assert_eq!((superblock.log, superblock.generation), (*b"a log's own name", 4));
        for _ in 0..2 {
            let mut files = home();
            let report = recover(&disk, &mut files).unwrap();
            assert_eq!(files, recovered(), "version {version}");
            assert_eq!((report.groups, report.applied, report.void), (2, 4, 2));
            assert!(report.torn);
        }
    }
}

#[test]
fn todays_log_is_the_image_of_its_version_byte_by_byte() {
    assert_eq!(VERSION, 4, "a new version needs an image of its own");
    let (made, image) = (made_today(), Disk::of_image(VERSION_4));
    let differing = (0..made.0.len()).find(|&at| made.0[at] != image.0[at]);
    assert_eq!(differing, None, "the format changed without a new version");
}

#[test]
fn an_earlier_version_continues_as_this_one_and_its_old_groups_do_not_count() {
    for (version, image) in IMAGES {
        let mut disk = Disk::of_image(image);
        let mut files = home();
        let end = recover(&disk, &mut files).unwrap().end;
        let next = disk.superblock().unwrap().next_use(end);
        disk.write_superblock(&next);
        assert_eq!(disk.superblock(), Ok(next));
        assert_eq!(recover(&disk, &mut files).unwrap().groups, 0, "version {version}");
        let mut writer = Writer::new(next);
        let node = writer.new_node().unwrap();
        assert!(node > 1311, "no number of the images is reused");
        let name = Record::File { file: node, identity: LETTER };
        for record in [name, Record::Truncate { file: node, size: 3 }] {
            writer.append(&record).unwrap();
        }
        disk.write(&writer.commit().unwrap(), usize::MAX);
        assert_eq!(recover(&disk, &mut files).unwrap().groups, 1);
        assert_eq!(files.0[LETTER], b"Bef");
        assert_eq!(files.0[LIST], recovered().0[LIST]);
    }
}

#[test]
fn a_record_of_a_newer_weir_is_refused_before_anything_is_replayed() {
    for (_, image) in IMAGES {
        // The kind of the first record, and of the last record of the last group.
        let last = 64 + (32 + 8) + 32 + (32 + 5000) + (32 + 16) + 32;
        for (group, record) in [(SECOND, 64), (THIRD, 64), (THIRD, last)] {
            for kind in [5, 15, 26, 31, 32, 255] {
                let mut disk = Disk::of_image(image);
                disk.set(group, record, kind);
                let mut files = home();
                let error = recover(&disk, &mut files).unwrap_err();
                let ReplayError::Scan(ScanError::NewerKind { place, kind: named, .. }) = error
                else {
                    panic!("{error}");
                };
                assert_eq!((place, named), ((group + record) as u64, kind));
                assert!(error.to_string().contains("a newer Weir wrote it"), "{error}");
                assert_eq!(files, home());
                let would = replay::<_, Files>(&mut disk.clone(), disk.superblock().unwrap(), None);
                assert!(would.is_err());
            }
        }
    }
}

#[test]
fn an_image_cut_anywhere_is_refused_or_ends_at_a_whole_group() {
    for (version, image) in IMAGES {
        for len in (0..image.len()).step_by(512) {
            let mut disk = Disk::of_image(&image[..len]);
            let Ok(superblock) = disk.superblock() else {
                assert!(len < 512, "version {version} cut at {len}");
                continue;
            };
            let mut files = home();
            let report = replay(&mut disk, superblock, Some(&mut files)).unwrap();
            match (report.groups, len) {
                (0, _) if len < THIRD => assert_eq!(files, home()),
                (1, _) => {
                    assert!(len < THIRD + 2 * BLOCK_BYTES);
                    assert_eq!(files, after_one_group());
                }
                (2, _) => assert!(len > THIRD + BLOCK_BYTES && files == recovered()),
                (groups, _) => panic!("{groups} groups of {len} bytes"),
            }
        }
    }
}

proptest! {
    /// Every byte of each file is from before the crash or from a replayed group.
    #[test]
    fn flipped_bits_lose_whole_groups_or_are_refused(
        bits in prop::collection::vec(0usize..8 * VERSION_4.len(), 1..4),
        nth in 0usize..3,
    ) {
        let mut disk = Disk::of_image(IMAGES[nth].1);
        for bit in bits {
            disk.0[bit / 8] ^= 1 << (bit % 8);
        }
        let Ok(superblock) = disk.superblock() else { return Ok(()) };
        let mut files = home();
        let Ok(report) = replay(&mut disk, superblock, Some(&mut files)) else { return Ok(()) };
        match report.groups {
            0 => prop_assert_eq!(files, home()),
            1 => prop_assert!(files == after_one_group() || files == home()),
            // From the checkpoint of the earlier superblock on it is three.
            2 | 3 => prop_assert!(files == recovered() || files == after_one_group()),
            groups => prop_assert!(false, "{} groups", groups),
        }
    }
}
