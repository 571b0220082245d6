//! A redo log made by somebody else: a superblock of any numbers with its checksum right, and groups with right checksums
//! at any place of a log of any size. It is refused or read, and positions are reckoned without overflow; what is read
//! can be used again.

#![no_main]

use std::convert::Infallible;
use std::io;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_log::{
    BLOCK_BYTES, Block, DATA_START, Home, Lsn, NODE_FIRST, ReadLog, Record, Superblock,
    SuperblockError, Writer, newest, replay,
};

const BLOCK: u64 = BLOCK_BYTES as u64;
const GROUP_HEADER_BYTES: usize = 64;
const GROUPS_MAX: usize = 8;
/// Reads after which the device fails: a log may be longer than there is time to read it.
const READS_MAX: u32 = 16;

#[derive(Arbitrary, Debug)]
struct Input {
    log: u8,
    bytes: Number,
    generation: Number,
    checkpoint: Number,
    clean: bool,
    row_blocks: u16,
    /// What a superblock must be is mostly so.
    is_aligned: bool,
    other: Option<Number>,
    groups: Vec<Group>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Small(u16),
    Blocks(u16),
    Any(u64),
    Power { of_two: u8, more: i8 },
    Most(u8),
}

impl Number {
    fn get(self) -> u64 {
        match self {
            Number::Small(small) => small.into(),
            Number::Blocks(blocks) => u64::from(blocks) * BLOCK,
            Number::Any(any) => any,
            Number::Power { of_two, more } => {
                (1u64 << (of_two % 64)).wrapping_add_signed(i64::from(more) * BLOCK as i64)
            }
            Number::Most(less) => u64::MAX - u64::from(less),
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Group {
    /// From the checkpoint on, blocks.
    lsn: u16,
    place: Place,
    bytes: u16,
    durable: Number,
    /// A record there, of this kind, length and value.
    record: (u8, u8, Number),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Place {
    /// Where its position is.
    Right,
    /// So many blocks from there.
    Off(i8),
    Any(Number),
}

/// Zeros, but for superblocks and some groups of one block.
struct Disk {
    end: u64,
    blocks: Vec<(u64, Block)>,
    reads: u32,
}

impl ReadLog for Disk {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).expect("it is inside a file");
        self.reads += 1;
        if self.reads > READS_MAX || end > self.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.fill(0);
        for (place, block) in &self.blocks {
            if (offset..end).contains(place) {
                let at = (place - offset) as usize;
                buffer[at..at + BLOCK_BYTES].copy_from_slice(&block.0);
            }
        }
        Ok(())
    }
}

struct Sink;

impl Home for Sink {
    type File = ();
    type Error = Infallible;

    fn open(&mut self, _identity: &[u8]) -> Result<Option<()>, Infallible> {
        Ok(Some(()))
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

fn put(block: &mut [u8], at: usize, field: &[u8]) {
    block[at..at + field.len()].copy_from_slice(field);
}

/// A group of one block, as docs/LOG_FORMAT.md has it.
fn group_of(superblock: &Superblock, group: &Group) -> (u64, Block) {
    let lsn = superblock.checkpoint.0 + u64::from(group.lsn) * BLOCK;
    let ring = superblock.data_bytes();
    let place = match group.place {
        Place::Right => DATA_START + lsn % ring,
        Place::Off(blocks) => {
            DATA_START + (lsn % ring).wrapping_add_signed(i64::from(blocks) * BLOCK as i64) % ring
        }
        Place::Any(place) => DATA_START + place.get() % ring / BLOCK * BLOCK,
    };
    let mut block = Block::default();
    let bytes = &mut block.0[..];
    let len = GROUP_HEADER_BYTES.max(usize::from(group.bytes) % BLOCK_BYTES);
    let (kind, record_len, value) = group.record;
    let record_end = GROUP_HEADER_BYTES + 32 + usize::from(record_len);
    let len = if group.bytes.is_multiple_of(2) { record_end } else { len };
    put(bytes, 0, b"WGRP");
    put(bytes, 8, &lsn.to_le_bytes());
    put(bytes, 16, &superblock.log);
    put(bytes, 32, &(len as u32).to_le_bytes());
    put(bytes, 36, &1u32.to_le_bytes());
    put(bytes, 40, &group.durable.get().to_le_bytes());
    put(bytes, 48, &place.to_le_bytes());
    let record = &mut bytes[GROUP_HEADER_BYTES..record_end];
    record[0] = kind % 6;
    put(record, 8, &(32 + u32::from(record_len)).to_le_bytes());
    put(record, 24, &value.get().to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..]);
    put(record, 4, &crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[8..len]);
    put(bytes, 4, &crc.to_le_bytes());
    (place, block)
}

/// Whether a superblock may say so: the ring holds four rows, and no position or size comes near the end of numbers.
fn is_possible(superblock: &Superblock) -> bool {
    let Superblock { bytes, checkpoint, row_blocks, generation, .. } = *superblock;
    let is_large = (DATA_START + (64 << 10)..=1 << 62).contains(&bytes);
    is_large
        && generation <= 1 << 62
        && checkpoint.0.is_multiple_of(BLOCK)
        && checkpoint.0 <= 1 << 62
        && (1..=4096).contains(&row_blocks)
        && u64::from(row_blocks) * 4 <= (bytes - DATA_START) / BLOCK
}

/// What is replayed can be used again: its superblock is newer than both, and what is written is found, and nothing that
/// was written before. Groups of positions that come later were never written.
fn check_next_use(disk: &mut Disk, next: Superblock, before: &Superblock) {
    assert!(next.generation > before.generation && next.checkpoint > before.checkpoint);
    let mut writer = Writer::new(next);
    let file = Record::File { file: 1, identity: b"a" };
    for record in [file, Record::Truncate { file: 1, size: 9 }] {
        writer.append(&record).expect("an empty log has room");
    }
    let commit = writer.commit().expect("a group is open");
    let (place, count) = commit.pieces[0];
    assert!(count == 1 && (DATA_START..disk.end).contains(&place));
    let lsn = |block: &Block| u64::from_le_bytes(block.0[8..16].try_into().expect("eight bytes"));
    disk.blocks.retain(|(other, block)| *other != place && lsn(block) < next.checkpoint.0);
    disk.blocks.push((place, commit.blocks[0].clone()));
    disk.reads = 0;
    if let Ok(report) = replay(disk, next, Some(&mut Sink)) {
        assert_eq!((report.groups, report.applied), (1, 1));
    }
}

fuzz_target!(|input: Input| {
    let align = |number: u64| if input.is_aligned { number / BLOCK * BLOCK } else { number };
    let said = Superblock {
        log: [input.log; 16],
        mount: [2; 16],
        bytes: input.bytes.get(),
        generation: input.generation.get(),
        checkpoint: Lsn(align(input.checkpoint.get())),
        clean: input.clean,
        row_blocks: input.row_blocks.into(),
        nodes: NODE_FIRST,
        features: 0,
    };
    let decoded = Superblock::decode(&said.encode().0);
    assert_eq!(decoded.is_ok(), is_possible(&said), "{decoded:?}");
    let Ok(superblock) = decoded else {
        assert!(matches!(decoded, Err(SuperblockError::Nonsense(_))));
        return;
    };
    assert_eq!(superblock, said);
    let other = input.other.map(|other| Superblock { generation: other.get(), ..said });
    let other = other.filter(is_possible);
    let second = other.map_or(Block::default(), |other| other.encode());
    let newer = other.map_or(said.generation, |other| other.generation.max(said.generation));
    assert_eq!(newest([&said.encode().0, &second.0]).map(|found| found.generation), Ok(newer));

    let groups = input.groups.iter().take(GROUPS_MAX).map(|group| group_of(&superblock, group));
    let mut disk = Disk { end: superblock.bytes, blocks: groups.collect(), reads: 0 };
    let report = replay(&mut disk, superblock, Some(&mut Sink));
    if let Ok(report) = report {
        assert!(report.end >= superblock.checkpoint && report.groups <= GROUPS_MAX as u64);
        check_next_use(&mut disk, superblock.next_use(report.end), &superblock);
    }
});
