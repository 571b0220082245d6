//! Logs that are written, cut off by a power failure, and replayed to files in memory.

#![allow(clippy::unwrap_used)] // A missing item fails the test.

mod files;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;

use proptest::prelude::*;
use weir_log::{
    BLOCK_BYTES, Commit, DATA_START, Entry, FileType, Home, Lsn, NODE_FIRST, NameRecord, ReadLog,
    Record, RecordError, ReplayError, Report, ScanError, Superblock, Writer, newest, replay,
    replay_before,
};

use crate::files::Files;

/// A log in memory.
#[derive(Clone)]
struct Disk(Vec<u8>);

impl ReadLog for Disk {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = offset as usize;
        buffer.copy_from_slice(&self.0[from..from + buffer.len()]);
        Ok(())
    }
}

impl Disk {
    fn new(superblock: Superblock) -> Disk {
        let mut disk = Disk(vec![0; superblock.bytes as usize]);
        let place = superblock.own_place() as usize;
        disk.0[place..place + BLOCK_BYTES].copy_from_slice(&superblock.encode().0);
        disk
    }

    /// Writes the sectors of a commit that `keeps` says are written.
    fn write(&mut self, commit: &Commit, mut keeps: impl FnMut(usize) -> bool) {
        let mut blocks = commit.blocks.iter();
        let mut sector = 0;
        for &(place, count) in &commit.pieces {
            for nth in 0..count {
                let block = blocks.next().unwrap();
                for (part, bytes) in block.0.chunks(512).enumerate() {
                    if keeps(sector) {
                        let at = place as usize + nth * BLOCK_BYTES + part * 512;
                        self.0[at..at + 512].copy_from_slice(bytes);
                    }
                    sector += 1;
                }
            }
        }
    }

    fn superblock(&self) -> Superblock {
        let block = |at: usize| self.0[at..at + BLOCK_BYTES].try_into().unwrap();
        newest([block(0), block(BLOCK_BYTES)]).unwrap()
    }
}

/// Groups follow one another.
fn fresh() -> Superblock {
    fresh_in_rows(1)
}

fn fresh_in_rows(row_blocks: u32) -> Superblock {
    Superblock {
        log: [1; 16],
        mount: [2; 16],
        bytes: DATA_START + (16 << 20),
        generation: 1,
        checkpoint: Lsn(0),
        clean: false,
        row_blocks,
        nodes: NODE_FIRST,
        features: 0,
    }
}

fn commit(writer: &mut Writer, disk: &mut Disk, records: &[Record<'_>]) {
    for record in records {
        writer.append(record).unwrap();
    }
    disk.write(&writer.commit().unwrap(), |_| true);
    writer.committed();
}

fn recover(disk: &Disk, files: &mut Files) -> Result<Report, ReplayError<Infallible>> {
    let superblock = disk.superblock();
    replay(&mut disk.clone(), superblock, Some(files))
}

const A: Record<'static> = Record::File { file: 1, identity: b"a" };

fn write(offset: u64, data: &[u8]) -> Record<'_> {
    Record::Write { file: 1, offset, data }
}

fn one_file(content: &[u8]) -> Files {
    Files(BTreeMap::from([(b"a".to_vec(), content.to_vec())]))
}

#[test]
fn committed_records_are_replayed_in_order_and_replay_is_idempotent() {
    let (mut writer, mut disk) = (Writer::new(fresh()), Disk::new(fresh()));
    commit(&mut writer, &mut disk, &[A, write(0, b"first"), write(2, b"RS")]);
    commit(&mut writer, &mut disk, &[A, Record::Truncate { file: 1, size: 4 }, write(6, b"x")]);
    let mut files = one_file(b"");
    let report = recover(&disk, &mut files).unwrap();
    assert_eq!(files, one_file(b"fiRS\0\0x"));
    assert_eq!((report.groups, report.applied, report.files), (2, 4, 1));
    assert!(!report.torn);
    recover(&disk, &mut files).unwrap();
    assert_eq!(files, one_file(b"fiRS\0\0x"));
    let mut gone = Files::default();
    assert_eq!(recover(&disk, &mut gone).unwrap().gone, 4);
}

#[test]
fn revoked_records_are_not_replayed_and_later_ones_are() {
    let (mut writer, mut disk) = (Writer::new(fresh()), Disk::new(fresh()));
    commit(&mut writer, &mut disk, &[A, write(0, b"old"), Record::Truncate { file: 1, size: 1 }]);
    let before = writer.head();
    commit(&mut writer, &mut disk, &[A, Record::Revoke { file: 1, before }, write(1, b"N")]);
    let mut files = one_file(b"home");
    let report = recover(&disk, &mut files).unwrap();
    assert_eq!(files, one_file(b"hNme"));
    assert_eq!((report.applied, report.void), (1, 2));
    let would = replay::<_, Files>(&mut disk.clone(), disk.superblock(), None).unwrap();
    assert_eq!((would.applied, would.void, would.files), (1, 2, 1));
}

/// Files in memory, of which one did not get a certain size: home refused it.
struct Refusing(Files, Lsn);

impl Home for Refusing {
    type File = Vec<u8>;
    type Error = Infallible;

    fn is_refused(&self, lsn: Lsn) -> bool {
        lsn == self.1
    }

    fn open(&mut self, identity: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        self.0.open(identity)
    }

    fn write(&mut self, file: &Vec<u8>, offset: u64, data: &[u8]) -> Result<(), Infallible> {
        self.0.write(file, offset, data)
    }

    fn truncate(&mut self, file: &Vec<u8>, size: u64) -> Result<(), Infallible> {
        self.0.truncate(file, size)
    }

    fn sync(&mut self, file: &Vec<u8>) -> Result<(), Infallible> {
        self.0.sync(file)
    }
}

#[test]
fn a_size_that_home_refused_cuts_nothing() {
    let (mut writer, mut disk) = (Writer::new(fresh()), Disk::new(fresh()));
    commit(&mut writer, &mut disk, &[A, write(0, b"first")]);
    writer.append(&A).unwrap();
    let refused = writer.append(&Record::Truncate { file: 1, size: 1 }).unwrap();
    commit(&mut writer, &mut disk, &[write(6, b"x"), Record::Truncate { file: 1, size: 8 }]);
    let mut home = Refusing(one_file(b"0123456789"), refused);
    let report = replay(&mut disk.clone(), disk.superblock(), Some(&mut home)).unwrap();
    assert_eq!(home.0, one_file(b"first5x7"));
    assert_eq!((report.applied, report.void), (3, 1));
}

/// Files in memory, of which no write may reach past a certain byte: the disk is full.
struct Full(Files, u64);

impl Home for Full {
    type File = Vec<u8>;
    type Error = Infallible;

    fn open(&mut self, identity: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        self.0.open(identity)
    }

    fn write(&mut self, file: &Vec<u8>, offset: u64, data: &[u8]) -> Result<(), Infallible> {
        assert!(!data.is_empty() && offset + data.len() as u64 <= self.1, "no space");
        self.0.write(file, offset, data)
    }

    fn truncate(&mut self, file: &Vec<u8>, size: u64) -> Result<(), Infallible> {
        self.0.truncate(file, size)
    }

    fn sync(&mut self, file: &Vec<u8>) -> Result<(), Infallible> {
        self.0.sync(file)
    }
}

#[test]
fn what_is_cut_off_later_needs_no_space() {
    let (mut writer, mut disk) = (Writer::new(fresh()), Disk::new(fresh()));
    let cut = |size| Record::Truncate { file: 1, size };
    commit(&mut writer, &mut disk, &[A, write(0, b"abcdefgh"), cut(5), write(2, b"ABCDEF")]);
    commit(&mut writer, &mut disk, &[A, cut(6), cut(3), cut(7), write(5, b"xy"), write(8, b"-")]);
    commit(&mut writer, &mut disk, &[A, cut(8)]);
    let mut full = Full(one_file(b"home"), 7);
    let report = replay(&mut disk.clone(), disk.superblock(), Some(&mut full)).unwrap();
    assert_eq!(full.0, one_file(b"abA\0\0xy\0"));
    assert_eq!((report.applied, report.applied_bytes), (9, 17));
}

/// What a replay does, in order; and files to do it to.
struct Noting(Files, Vec<String>);

impl Home for Noting {
    type File = Vec<u8>;
    type Error = Infallible;

    const TAKES_NAMES: bool = true;

    fn name(&mut self, lsn: Lsn, record: &NameRecord<'_>) -> Result<(), Infallible> {
        self.1.push(format!("{lsn} {record}"));
        Ok(())
    }

    fn names_end(&mut self, end: Lsn) -> Result<(), Infallible> {
        self.1.push(format!("{end} end"));
        Ok(())
    }

    fn open(&mut self, identity: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        self.1.push("open".to_owned());
        self.0.open(identity)
    }

    fn write(&mut self, file: &Vec<u8>, offset: u64, data: &[u8]) -> Result<(), Infallible> {
        self.1.push("write".to_owned());
        self.0.write(file, offset, data)
    }

    fn truncate(&mut self, file: &Vec<u8>, size: u64) -> Result<(), Infallible> {
        self.0.truncate(file, size)
    }

    fn sync(&mut self, file: &Vec<u8>) -> Result<(), Infallible> {
        self.0.sync(file)
    }
}

const NODE: NameRecord<'static> =
    NameRecord::Node { node: 1, file_type: FileType::Directory, identity: b"r" };
const LINK: NameRecord<'static> =
    NameRecord::Link { node: 1, at: Entry { directory: 1, name: b"x" } };
const REMOVE: NameRecord<'static> =
    NameRecord::Remove { node: 1, at: Entry { directory: 1, name: b"x" } };

/// A log of data and names, and records of the same number that are void.
fn with_names() -> Disk {
    let (mut writer, mut disk) = (Writer::new(fresh()), Disk::new(fresh()));
    let [node, link, remove] = [NODE, LINK, REMOVE].map(Record::Name);
    commit(&mut writer, &mut disk, &[A, write(0, b"void"), node, link]);
    let before = writer.head();
    commit(&mut writer, &mut disk, &[A, Record::Revoke { file: 1, before }]);
    commit(&mut writer, &mut disk, &[remove, A, write(0, b"data")]);
    disk
}

#[test]
fn names_are_handed_on_in_order_before_the_first_file_is_opened() {
    let disk = with_names();
    let mut home = Noting(one_file(b""), Vec::new());
    let report = replay(&mut disk.clone(), disk.superblock(), Some(&mut home)).unwrap();
    let expected = [
        "144 node 1 is the directory 72",
        "184 node 1 link \"x\" in node 1",
        "8256 node 1 remove \"x\" in node 1",
        "12288 end",
        "open",
        "write",
    ];
    assert_eq!(home.1, expected);
    assert_eq!((home.0, report.names, report.applied), (one_file(b"data"), 3, 1));
    let would = replay::<_, Noting>(&mut disk.clone(), disk.superblock(), None).unwrap();
    assert_eq!((would.names, would.applied, would.void), (3, 1, 1));
}

#[test]
fn a_home_that_does_not_take_names_has_their_log_refused_before_anything_is_changed() {
    let disk = with_names();
    let mut files = one_file(b"home");
    let error = recover(&disk, &mut files).unwrap_err();
    let place = DATA_START + 144;
    assert!(
        matches!(error, ReplayError::Names { lsn: Lsn(144), place: at, kind: 16 } if at == place),
        "{error}"
    );
    assert!(error.to_string().contains("a newer Weir wrote it"), "{error}");
    assert_eq!(files, one_file(b"home"));
    assert!(replay::<_, Files>(&mut disk.clone(), disk.superblock(), None).is_err());
    // What is before the checkpoint, or in a clean log, is not to be replayed.
    let mut writer = Writer::new(disk.superblock());
    commit(&mut writer, &mut disk.clone(), &[A]);
    for superblock in [
        Superblock { clean: true, ..disk.superblock() },
        Superblock { checkpoint: Lsn(4096), ..disk.superblock() },
    ] {
        let replayed = replay(&mut disk.clone(), superblock, Some(&mut files.clone()));
        assert_eq!(replayed.is_ok(), superblock.clean);
    }
}

#[test]
fn a_record_of_names_that_makes_no_sense_is_damage_and_names_its_place() {
    let mut disk = with_names();
    // The name in the link, with all checksums right.
    let (group, record) = (DATA_START as usize, DATA_START as usize + 184);
    disk.0[record + 32] = b'/';
    let bytes = |disk: &Disk, at: usize| {
        u32::from_le_bytes(disk.0[at..at + 4].try_into().unwrap()) as usize
    };
    let end = record + bytes(&disk, record + 8);
    let crc = crc32c::crc32c(&disk.0[record..record + 4]);
    let crc = crc32c::crc32c_append(crc, &disk.0[record + 8..end]);
    disk.0[record + 4..record + 8].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&disk.0[group + 8..group + bytes(&disk, group + 32)]);
    disk.0[group + 4..group + 8].copy_from_slice(&crc.to_le_bytes());
    let mut home = Noting(one_file(b"home"), Vec::new());
    let error = replay(&mut disk.clone(), disk.superblock(), Some(&mut home)).unwrap_err();
    let ReplayError::Scan(ScanError::Record { lsn, place, error }) = error else {
        panic!("{error}")
    };
    assert_eq!((lsn, place), (Lsn(184), record as u64));
    assert_eq!(error, RecordError::Nonsense("name"));
    assert_eq!((home.0, home.1.len()), (one_file(b"home"), 0));
}

#[test]
fn a_broken_group_that_was_durable_is_damage() {
    let (mut writer, mut disk) = (Writer::new(fresh()), Disk::new(fresh()));
    for _ in 0..3 {
        commit(&mut writer, &mut disk, &[A, write(0, b"bytes")]);
    }
    let untouched = disk.clone();
    for (group, damaged) in [(0, true), (1, true), (2, false)] {
        let mut disk = untouched.clone();
        disk.0[8192 + group * BLOCK_BYTES + 100] ^= 1;
        let result = recover(&disk, &mut one_file(b""));
        if damaged {
            let Err(ReplayError::Scan(ScanError::Damaged { place, .. })) = result else {
                panic!("{result:?}");
            };
            assert_eq!(place, 8192 + (group * BLOCK_BYTES) as u64);
        } else {
            assert!(result.unwrap().torn);
        }
    }
}

#[test]
fn what_is_written_meanwhile_is_no_damage_before_it() {
    let (mut writer, mut disk) = (Writer::new(fresh()), Disk::new(fresh()));
    let mut ends = Vec::new();
    for nth in 0..3u64 {
        commit(&mut writer, &mut disk, &[A, write(nth, b"bytes")]);
        ends.push(writer.position());
    }
    // The second group was read before it was written, and the third one after.
    disk.0[8192 + BLOCK_BYTES + 100] ^= 1;
    let mut home = one_file(b"");
    let report = replay_before(&mut disk, fresh(), ends[0], Some(&mut home)).unwrap();
    assert_eq!((report.end, report.groups), (ends[0], 1));
    assert_eq!(home, one_file(b"bytes"));
    replay_before(&mut disk, fresh(), ends[1], Some(&mut home)).unwrap_err();
}

#[test]
fn a_group_missing_in_a_row_is_damage_if_it_was_durable() {
    let superblock = fresh_in_rows(256);
    let (mut writer, mut disk) = (Writer::new(superblock), Disk::new(superblock));
    let mut places = Vec::new();
    for nth in 0..300u64 {
        for record in [A, write(nth, b"bytes")] {
            writer.append(&record).unwrap();
        }
        let group = writer.commit().unwrap();
        places.push(group.pieces[0].0 as usize);
        disk.write(&group, |_| true);
        writer.committed();
    }
    assert!(!places.is_sorted());
    for nth in [0, 1, 200, 255, 256, 298, 299] {
        let place = places[nth];
        let mut disk = disk.clone();
        disk.0[place + 100] ^= 1;
        match recover(&disk, &mut one_file(b"")) {
            Ok(report) => assert!(nth == 299 && report.torn && report.groups == 299),
            Err(ReplayError::Scan(ScanError::Damaged { lsn, .. })) => {
                assert_eq!(lsn, Lsn((nth * BLOCK_BYTES) as u64));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_group_of_a_later_lap_than_the_superblock_allows_is_damage() {
    let older = fresh();
    let ring = older.bytes - DATA_START;
    for laps in [1, 2, 1 << 20] {
        // The superblock by which the group could be written is lost.
        let checkpoint = Lsn(laps * ring);
        let mut disk = Disk::new(older);
        let mut writer = Writer::new(Superblock { checkpoint, generation: 2, ..older });
        commit(&mut writer, &mut disk, &[write(0, b"new")]);
        match recover(&disk, &mut Files::default()) {
            Err(ReplayError::Scan(ScanError::Damaged { lsn: Lsn(0), later, .. })) => {
                assert_eq!(later, checkpoint);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_last_checkpoint_that_a_superblock_may_say_leads_to_a_log_that_is_read() {
    let next = Superblock { checkpoint: Lsn(1 << 62), ..fresh() }.next_use(Lsn(1 << 62));
    let mut disk = Disk::new(fresh());
    commit(&mut Writer::new(next), &mut disk, &[A, write(0, b"new")]);
    let report = replay(&mut disk, next, Some(&mut Files::default())).unwrap();
    assert_eq!(report.groups, 1);
}

#[test]
fn groups_go_around_the_end_of_the_ring_and_old_ones_do_not_count() {
    for row_blocks in [1, 7, 100, 256, 1000, 1024] {
        goes_around(row_blocks);
    }
}

fn goes_around(row_blocks: u32) {
    let superblock = fresh_in_rows(row_blocks);
    let (mut writer, mut disk) = (Writer::new(superblock), Disk::new(superblock));
    let mut files = one_file(b"");
    for round in 0..60u64 {
        let data = vec![round as u8; 900_000 + 1000 * round as usize];
        commit(&mut writer, &mut disk, &[A, write(round, &data)]);
        let mut replayed = files.clone();
        let report = recover(&disk, &mut replayed).unwrap();
        assert_eq!(report.groups, 1 + round % 5);
        files.write(&b"a".to_vec(), round, &data).unwrap();
        assert_eq!(replayed, files);
        if round % 5 == 4 {
            let superblock = writer.checkpoint(writer.durable()).unwrap();
            disk.write(&superblock, |_| true);
            writer.checkpointed();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_torn_group_is_replayed_whole_or_not_at_all(
        sizes in prop::collection::vec(1usize..9000, 1..6),
        kept in prop::collection::vec(any::<bool>(), 64),
        torn_superblock in any::<bool>(),
        row_blocks in prop::sample::select(vec![1, 2, 3, 64]),
    ) {
        let superblock = fresh_in_rows(row_blocks);
        let (mut writer, mut disk) = (Writer::new(superblock), Disk::new(superblock));
        let mut expected = one_file(b"");
        for (nth, &size) in sizes[..sizes.len() - 1].iter().enumerate() {
            let data = vec![nth as u8 + 1; size];
            commit(&mut writer, &mut disk, &[A, write(nth as u64 * 100, &data)]);
            expected.write(&b"a".to_vec(), nth as u64 * 100, &data).unwrap();
        }
        if torn_superblock {
            let superblock = writer.close();
            disk.write(&superblock, |sector| sector != 0 && kept[sector]);
        } else {
            let data = vec![0xee; sizes[sizes.len() - 1]];
            for record in [A, write(50, &data)] {
                writer.append(&record).unwrap();
            }
            let group = writer.commit().unwrap();
            disk.write(&group, |sector| kept[sector % 64]);
            let mut with = expected.clone();
            with.write(&b"a".to_vec(), 50, &data).unwrap();
            let mut files = one_file(b"");
            recover(&disk, &mut files).unwrap();
            prop_assert!(files == expected || files == with);
            return Ok(());
        }
        let mut files = one_file(b"");
        recover(&disk, &mut files).unwrap();
        prop_assert_eq!(files, expected);
    }

    #[test]
    fn no_flipped_bit_makes_it_panic_or_invent_bytes(bits in prop::collection::vec(0usize..8 * 40_000, 1..4)) {
        let (mut writer, mut disk) = (Writer::new(fresh()), Disk::new(fresh()));
        for nth in 0..5u8 {
            commit(&mut writer, &mut disk, &[A, write(0, &[nth + 1; 3000])]);
        }
        for bit in bits {
            disk.0[8192 + bit / 8] ^= 1 << (bit % 8);
        }
        let mut files = one_file(b"");
        if recover(&disk, &mut files).is_ok() {
            let content = &files.0[&b"a".to_vec()];
            prop_assert!(content.iter().all(|byte| *byte == content[0] && *byte <= 5));
        }
    }
}
