//! Valid logs that are changed at random, some with corrected checksums: reading them ends in records or in an
//! error, and replayed offsets and sizes are in range.
//!
//! Runs for [`SECONDS`] by default, for `WEIR_FUZZ_SECONDS` if that is set. A failure names its seed;
//! `WEIR_FUZZ_SEED` runs that seed alone.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // The test reads the clock, the crate does not.

use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};

use weir_log::{
    BLOCK_BYTES, Commit, DATA_START, Entry, FileType, Home, LOG_BYTES_MIN, LoggedAttributes,
    LoggedTime, Lsn, NODE_FIRST, NameRecord, NewNode, ReadLog, Record, Stage, Superblock, Writer,
    newest, replay,
};

/// How long the test runs by default, seconds.
const SECONDS: u64 = 10;

const SUPERBLOCK_CRC_AT: usize = 508;

struct Disk {
    bytes: Vec<u8>,
    /// Reads beyond this byte fail.
    end: usize,
}

impl ReadLog for Disk {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let to = from.checked_add(buffer.len()).filter(|&to| to <= self.end);
        let to = to.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(&self.bytes[from..to]);
        Ok(())
    }
}

/// Accepts every change, and checks that its range is valid.
struct Sink;

impl Home for Sink {
    type File = ();
    type Error = Infallible;

    const TAKES_NAMES: bool = true;

    fn name(&mut self, _lsn: Lsn, record: &NameRecord<'_>) -> Result<(), Infallible> {
        assert_eq!(record.check(), Ok(()));
        Ok(())
    }

    fn open(&mut self, identity: &[u8]) -> Result<Option<()>, Infallible> {
        Ok((identity != b"gone").then_some(()))
    }

    fn write(&mut self, (): &(), offset: u64, data: &[u8]) -> Result<(), Infallible> {
        assert!(!data.is_empty() && offset + data.len() as u64 <= i64::MAX as u64);
        Ok(())
    }

    fn truncate(&mut self, (): &(), size: u64) -> Result<(), Infallible> {
        assert!(size <= i64::MAX as u64);
        Ok(())
    }

    fn sync(&mut self, (): &()) -> Result<(), Infallible> {
        Ok(())
    }
}

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Where a group is, and its records in it.
struct Place {
    at: usize,
    len: usize,
    records: Vec<usize>,
}

fn name_record<'a>(rng: &mut Rng, data: &'a [u8]) -> NameRecord<'a> {
    let [node, other] = [(); 2].map(|()| 2 + rng.below(4) as u64);
    let [at, to] = [&b"a"[..], b"some longer name"]
        .map(|name| Entry { directory: 1 + rng.below(3) as u64, name });
    let time = Some(LoggedTime { seconds: -1, nanoseconds: rng.below(1_000_000_000) as u32 });
    let attributes =
        LoggedAttributes { mode: Some(0o755), uid: Some(1), atime: time, ..Default::default() };
    let file_type = FileType::ALL[rng.below(FileType::ALL.len())];
    match rng.below(10) {
        0 => NameRecord::Node { node, file_type, identity: b"there" },
        1 => {
            let kinds = [NewNode::Directory, NewNode::Symlink(b"to"), NewNode::BlockDevice(9)];
            NameRecord::Make { node, at, kind: kinds[rng.below(3)], attributes }
        }
        2 => NameRecord::Link { node, at },
        3 => NameRecord::Remove { node, at },
        4 => {
            let replaced = (rng.below(2) == 0).then_some(other);
            NameRecord::Rename { node, from: at, to, replaced }
        }
        5 => NameRecord::Exchange { one: (node, at), other: (other, to) },
        6 => NameRecord::Set { node, attributes },
        7 => NameRecord::Place { node, file_type, at },
        8 => {
            let stage = Stage::ALL[rng.below(Stage::ALL.len())];
            let mut maybe = |at| (rng.below(2) == 0).then_some(at);
            NameRecord::Step { node, stage, from: maybe(at), to: maybe(to) }
        }
        _ => {
            let value = (rng.below(2) == 0).then_some(data);
            NameRecord::SetXattr { node, name: b"user.x", value }
        }
    }
}

/// A log with groups of all kinds, written over `laps` laps of its ring.
fn corpus(rng: &mut Rng, laps: usize) -> (Disk, Vec<Place>) {
    let superblock = Superblock {
        log: [1; 16],
        mount: [2; 16],
        bytes: LOG_BYTES_MIN + 64 * 1024,
        generation: 4,
        checkpoint: Lsn(0),
        clean: false,
        row_blocks: [1, 3, 8][rng.below(3)],
        nodes: NODE_FIRST,
        features: 0,
    };
    let mut disk =
        Disk { bytes: vec![0; superblock.bytes as usize], end: superblock.bytes as usize };
    disk.bytes[..BLOCK_BYTES].copy_from_slice(&superblock.encode().0);
    let mut writer = Writer::new(superblock);
    let mut places = Vec::new();
    let groups = laps * 16 + rng.below(8);
    for _ in 0..groups {
        let mut records = Vec::new();
        let begun = writer.head().0;
        for nth in 0..1 + rng.below(4) {
            let data = vec![nth as u8; 1 + rng.below(3000)];
            let file = rng.below(3) as u64;
            let identity: &[u8] = if file == 2 { b"gone" } else { b"there" };
            let before = Lsn(rng.below(writer.head().0 as usize + 1) as u64);
            for record in [
                Record::File { file, identity },
                match rng.below(8) {
                    0 => Record::Truncate { file, size: rng.below(1 << 20) as u64 },
                    1 => Record::Revoke { file, before },
                    2..5 => Record::Name(name_record(rng, &data)),
                    _ => Record::Write { file, offset: rng.below(1 << 30) as u64, data: &data },
                },
            ] {
                if let Ok(lsn) = writer.append(&record) {
                    records.push((lsn.0 - begun) as usize);
                }
            }
        }
        let Some(commit) = writer.commit() else { break };
        write(&mut disk, &commit);
        writer.committed();
        if let [(at, _)] = commit.pieces[..] {
            let at = at as usize;
            let len = number(&disk.bytes, at + 32) as usize;
            places.push(Place { at, len, records });
        }
        let free = Lsn(writer.head().0.saturating_sub(80 * 1024) / 4096 * 4096);
        if rng.below(4) == 0
            && free.0 > 0
            && places.iter().any(|place| place.at as u64 - DATA_START == free.0)
            && let Some(superblock) = writer.checkpoint(free)
        {
            write(&mut disk, &superblock);
            writer.checkpointed();
        }
    }
    (disk, places)
}

fn write(disk: &mut Disk, commit: &Commit) {
    let mut blocks = commit.blocks.iter();
    for &(place, count) in &commit.pieces {
        for nth in 0..count {
            let at = place as usize + nth * BLOCK_BYTES;
            disk.bytes[at..at + BLOCK_BYTES]
                .copy_from_slice(&blocks.next().expect("a block for each place").0);
        }
    }
}

/// Changes a number at random, or to a value at a limit.
fn disturb(bytes: &mut [u8], rng: &mut Rng) {
    let at = rng.below(bytes.len());
    match rng.below(3) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.below(256) as u8,
        _ => {
            let values = [0, 1, 31, 32, 33, 63, 64, 4095, 4096, 1 << 31, i64::MAX as u64, u64::MAX];
            let value = values[rng.below(values.len())].to_le_bytes();
            let len = (bytes.len() - at).min([1, 2, 4, 8][rng.below(4)]);
            bytes[at..at + len].copy_from_slice(&value[..len]);
        }
    }
}

fn mutate(disk: &mut Disk, places: &[Place], rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        let place = &places[rng.below(places.len())];
        let (at, len) = (place.at, place.len);
        match rng.below(6) {
            // A changed record, with the checksums of record and group corrected.
            0 | 1 => {
                let record = at + place.records[rng.below(place.records.len())];
                // The head, or the fields behind it too.
                let disturbed = [32, 96][rng.below(2)].min(at + len - record);
                disturb(&mut disk.bytes[record..record + disturbed], rng);
                let bytes = number(&disk.bytes, record + 8);
                let end = record + (bytes as usize).max(32);
                if end <= at + len {
                    let crc = crc32c::crc32c(&disk.bytes[record..record + 4]);
                    let crc = crc32c::crc32c_append(crc, &disk.bytes[record + 8..end]);
                    disk.bytes[record + 4..record + 8].copy_from_slice(&crc.to_le_bytes());
                }
                correct(disk, at, len);
            }
            // A changed header, with its checksum corrected.
            2 => {
                disturb(&mut disk.bytes[at + 8..at + 64], rng);
                correct(disk, at, len);
            }
            3 => {
                let anywhere = rng.below(disk.bytes.len() - 16);
                disturb(&mut disk.bytes[anywhere..anywhere + 16], rng);
            }
            // Blocks copied to wrong places.
            4 => {
                let blocks = disk.bytes.len() / BLOCK_BYTES;
                let (from, to) = (rng.below(blocks) * BLOCK_BYTES, rng.below(blocks) * BLOCK_BYTES);
                disk.bytes.copy_within(from..from + BLOCK_BYTES, to);
            }
            _ => {
                let from = rng.below(2) * BLOCK_BYTES;
                disturb(&mut disk.bytes[from..from + 80], rng);
                let crc = crc32c::crc32c(&disk.bytes[from..from + SUPERBLOCK_CRC_AT]);
                let at = from + SUPERBLOCK_CRC_AT;
                disk.bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }
    if rng.below(10) == 0 {
        disk.end = rng.below(disk.bytes.len());
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn correct(disk: &mut Disk, at: usize, len: usize) {
    let crc = crc32c::crc32c(&disk.bytes[at + 8..at + len]);
    disk.bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the log was read to its end.
fn run(seed: u64) -> bool {
    let mut rng = Rng(seed);
    let laps = 1 + rng.below(3);
    let (mut disk, places) = corpus(&mut rng, laps);
    if !places.is_empty() {
        mutate(&mut disk, &places, &mut rng);
    }
    let blocks = [0, BLOCK_BYTES].map(|at| {
        let block: Result<[u8; BLOCK_BYTES], _> = disk.bytes[at..at + BLOCK_BYTES].try_into();
        block.expect("as many bytes")
    });
    let Ok(superblock) = newest([&blocks[0], &blocks[1]]) else { return false };
    if superblock.bytes > disk.bytes.len() as u64 {
        // As every reader of a log does first.
        return false;
    }
    let dry = replay::<_, Sink>(&mut disk, superblock, None);
    let wet = replay(&mut disk, superblock, Some(&mut Sink));
    assert_eq!(dry.is_ok(), wet.is_ok(), "a dry run finds what a real one finds");
    wet.is_ok()
}

#[test]
fn changed_logs_are_read_or_refused() {
    if let Some(seed) = std::env::var("WEIR_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()) {
        run(seed);
        return;
    }
    let seconds = std::env::var("WEIR_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let (mut runs, mut whole) = (0u64, 0u64);
    while Instant::now() < until {
        let result = std::panic::catch_unwind(|| run(runs));
        match result {
            Ok(read) => whole += u64::from(read),
            Err(_) => panic!("seed {runs} failed: WEIR_FUZZ_SEED={runs} runs it alone"),
        }
        runs += 1;
    }
    println!("{runs} logs, {whole} of them read to their end");
    assert!(runs > 50 && whole > runs / 20 && whole < runs, "{runs} logs, {whole} read");
}
