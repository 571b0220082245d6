//! A redo log that was written well and then damaged: whatever it holds, reading it ends, in groups or in an error.
//!
//! The input says what is written and what is changed after that, some of it with its checksums made right. Checked is
//! what the log promises: groups before the damage are read as they were written; damage to what was durable is told; a
//! log nobody touched gives exactly what was written; and once it was replayed it can be used again.

#![no_main]

use std::collections::BTreeMap;
use std::io;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_log::{
    BLOCK_BYTES, Commit, DATA_START, End, Entry, FileType, Home, LOG_BYTES_MIN, LoggedAttributes,
    LoggedTime, Lsn, NODE_FIRST, NameRecord, NewNode, ReadLog, Record, ReplayError, Scan,
    ScanError, Superblock, Writer, newest, replay,
};

const BLOCK: u64 = BLOCK_BYTES as u64;
const LOG_BYTES: usize = LOG_BYTES_MIN as usize;
const RING_BLOCKS: u64 = (LOG_BYTES as u64 - DATA_START) / BLOCK;
const SUPERBLOCK_CRC_AT: usize = 508;
const STEPS_MAX: usize = 100;
/// Rows are no longer than a quarter of the ring.
const TWO_ROWS: u64 = RING_BLOCKS / 4 * 2;
/// A pass looks for each group in two rows, at every group that may be it; then once through the ring, at every group.
const PASS_BLOCKS_MAX: u64 =
    (RING_BLOCKS + 1) * TWO_ROWS * (RING_BLOCKS + 1) + RING_BLOCKS * (RING_BLOCKS + 1);
/// Where the fields of the log's structures are (docs/LOG_FORMAT.md).
const SUPERBLOCK_FIELDS: [usize; 10] = [0, 8, 12, 16, 32, 48, 56, 64, 72, 76];
const GROUP_FIELDS: [usize; 9] = [0, 4, 8, 16, 32, 36, 40, 48, 56];
/// Of all records, and behind the head those of names.
const RECORD_FIELDS: [usize; 17] =
    [0, 8, 16, 24, 24, 32, 33, 36, 40, 41, 48, 49, 56, 64, 68, 72, 80];
/// What a file has beyond is not looked at.
const FILE_BYTES_MAX: u64 = 1 << 16;

#[derive(Arbitrary, Debug)]
struct Input {
    rows: u8,
    /// How far its stream of bytes has come before, blocks.
    begun: u8,
    steps: Vec<Step>,
    edits: Vec<Edit>,
    /// The first replay fails after so many changes.
    interrupted: Option<u8>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Write {
        file: u8,
        offset: u16,
        len: u16,
    },
    Truncate {
        file: u8,
        size: u16,
    },
    /// What comes before an earlier record, or before all that follows, is void.
    Revoke {
        file: u8,
        back: u8,
    },
    Name(Name),
    Commit,
    Checkpoint {
        group: u8,
    },
}

/// A record of names. What no record says is not appended.
#[derive(Arbitrary, Debug)]
struct Name {
    kind: u8,
    of: u8,
    nodes: [u8; 4],
    /// Each is repeated: how often, and which bytes.
    names: [(u8, [u8; 3]); 2],
    mask: u8,
    number: u64,
    small: u32,
}

impl Name {
    fn noted(&self) -> Option<Noted> {
        let [one, other] = [0, 1].map(|nth| {
            let (times, bytes) = &self.names[nth];
            bytes.repeat(usize::from(*times)).into_boxed_slice()
        });
        let [node, second, directory, third] = self.nodes.map(u64::from);
        let from = Entry { directory, name: &one };
        let to = Entry { directory: third, name: &other };
        let is_set = |bit: u8| self.mask & 1 << bit != 0;
        let time = LoggedTime { seconds: self.number as i64, nanoseconds: self.small };
        let attributes = LoggedAttributes {
            mode: is_set(0).then_some(self.small % (1 << 12)),
            uid: is_set(1).then_some(self.small),
            gid: is_set(2).then_some(!self.small),
            atime: is_set(3).then_some(time),
            mtime: is_set(4).then_some(time),
        };
        let file_type = FileType::ALL[usize::from(self.of) % FileType::ALL.len()];
        let kind = match file_type {
            FileType::File => NewNode::File,
            FileType::Directory => NewNode::Directory,
            FileType::Symlink => NewNode::Symlink(&other),
            FileType::Fifo => NewNode::Fifo,
            FileType::Socket => NewNode::Socket,
            FileType::CharacterDevice => NewNode::CharacterDevice(self.number),
            FileType::BlockDevice => NewNode::BlockDevice(self.number),
        };
        let record = match self.kind % 8 {
            0 => NameRecord::Node { node, file_type, identity: &one },
            1 => NameRecord::Make { node, at: from, kind, attributes },
            2 => NameRecord::Link { node, at: from },
            3 => NameRecord::Remove { node, at: from },
            4 => NameRecord::Rename { node, from, to, replaced: is_set(5).then_some(second) },
            5 => NameRecord::Exchange { one: (node, from), other: (second, to) },
            6 => NameRecord::Set { node, attributes },
            _ => {
                let value = is_set(6).then_some(&*other);
                NameRecord::SetXattr { node, name: &one, value }
            }
        };
        record.check().ok()?;
        Some(Noted::Name(Record::Name(record).to_bytes()))
    }
}

#[derive(Arbitrary, Debug)]
enum Edit {
    Byte {
        at: u32,
        xor: u8,
    },
    Group {
        group: u8,
        at: u16,
        to: Number,
        right: bool,
    },
    Header {
        group: u8,
        field: u8,
        to: Number,
        right: bool,
    },
    Record {
        group: u8,
        record: u8,
        field: u8,
        to: Number,
    },
    Superblock {
        second: bool,
        field: u8,
        to: Number,
        right: bool,
    },
    Copy {
        from: u8,
        to: u8,
    },
    Zero {
        from: u8,
        blocks: u8,
    },
    /// The device ends there, blocks.
    End {
        at: u8,
    },
}

/// A number that programs get wrong, or any other.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Byte(u8),
    Short(u16),
    Word(u32),
    Long(u64),
    Power {
        of_two: u8,
        more: i8,
    },
    /// So much less than the most.
    Most(u8),
    Blocks(u8),
}

impl Number {
    fn put(self, to: &mut [u8]) {
        let (number, len) = match self {
            Number::Byte(byte) => (byte.into(), 1),
            Number::Short(short) => (short.into(), 2),
            Number::Word(word) => (word.into(), 4),
            Number::Long(long) => (long, 8),
            Number::Power { of_two, more } => {
                ((1u64 << (of_two % 64)).wrapping_add_signed(more.into()), 8)
            }
            Number::Most(less) => (u64::MAX - u64::from(less % 8), 8),
            Number::Blocks(blocks) => (u64::from(blocks) * BLOCK, 8),
        };
        let len = to.len().min(len);
        to[..len].copy_from_slice(&number.to_le_bytes()[..len]);
    }
}

/// The log's bytes, and how many were read.
struct Disk {
    bytes: Vec<u8>,
    /// Reads beyond fail.
    end: usize,
    read_blocks: u64,
}

impl ReadLog for Disk {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        assert!(offset.is_multiple_of(BLOCK) && buffer.len().is_multiple_of(BLOCK_BYTES));
        self.read_blocks += buffer.len() as u64 / BLOCK;
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let to = from.checked_add(buffer.len()).filter(|&to| to <= self.end);
        let to = to.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(&self.bytes[from..to]);
        Ok(())
    }
}

impl Disk {
    fn write(&mut self, commit: &Commit) {
        let mut blocks = commit.blocks.iter();
        for &(place, count) in &commit.pieces {
            for nth in 0..count {
                let at = place as usize + nth * BLOCK_BYTES;
                let block = blocks.next().expect("a block for each place");
                self.bytes[at..at + BLOCK_BYTES].copy_from_slice(&block.0);
            }
        }
    }

    /// A group's bytes, around the end of the ring if need be.
    fn group(&self, group: &Written) -> Vec<u8> {
        let blocks = group.places.iter().map(|&at| &self.bytes[at..at + BLOCK_BYTES]);
        blocks.flatten().copied().collect()
    }

    fn superblock(&self) -> Option<Superblock> {
        let [first, second] = [0, BLOCK_BYTES].map(|at| &self.bytes[at..at + BLOCK_BYTES]);
        let blocks = [first, second].map(|block| block.try_into().expect("as many bytes"));
        // Whoever opens a log finds out first whether all of it is there.
        newest(blocks).ok().filter(|found| found.bytes <= self.bytes.len() as u64)
    }

    fn edit_group(&mut self, group: &Written, at: usize, to: Number, right: bool) {
        let mut bytes = self.group(group);
        to.put(&mut bytes[at..]);
        self.put_group(group, &bytes);
        if right {
            self.make_right(group);
        }
    }

    /// Bytes that were changed are made a whole group again.
    fn make_right(&mut self, group: &Written) {
        let mut bytes = self.group(group);
        let crc = crc32c::crc32c(&bytes[8..group.bytes]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        self.put_group(group, &bytes);
    }

    fn put_group(&mut self, group: &Written, bytes: &[u8]) {
        for (&at, block) in group.places.iter().zip(bytes.chunks_exact(BLOCK_BYTES)) {
            self.bytes[at..at + BLOCK_BYTES].copy_from_slice(block);
        }
    }
}

/// A record as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Noted {
    File(u64),
    Write {
        file: u64,
        offset: u64,
        data: Vec<u8>,
    },
    Truncate {
        file: u64,
        size: u64,
    },
    Revoke {
        file: u64,
        before: Lsn,
    },
    /// Its bytes.
    Name(Vec<u8>),
}

impl Noted {
    fn record<'a>(&'a self, identities: &'a [[u8; 1]]) -> Record<'a> {
        match *self {
            Noted::File(file) => Record::File { file, identity: &identities[file as usize] },
            Noted::Write { file, offset, ref data } => Record::Write { file, offset, data },
            Noted::Truncate { file, size } => Record::Truncate { file, size },
            Noted::Revoke { file, before } => Record::Revoke { file, before },
            Noted::Name(ref bytes) => Record::decode(bytes).expect("it was made a record").0,
        }
    }
}

/// Files by number; the last is gone at home.
const IDENTITIES: [[u8; 1]; 4] = [*b"a", *b"b", *b"c", *b"-"];

/// A group that was written.
struct Written {
    lsn: Lsn,
    /// Bytes of the log, of each block.
    places: Vec<usize>,
    /// Without padding.
    bytes: usize,
    durable: u64,
    records: Vec<(Lsn, Noted)>,
    image: Vec<u8>,
}

struct Log {
    disk: Disk,
    writer: Writer,
    superblock: Superblock,
    /// From the checkpoint on.
    groups: Vec<Written>,
    open: Vec<(Lsn, Noted)>,
    /// The ring before it was changed.
    intact: Vec<u8>,
}

/// What is replayed to: files by identity, and how many changes it takes before it fails.
#[derive(Default)]
struct Files {
    content: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What was said of names, and where all of it was.
    names: Vec<(Lsn, String)>,
    names_end: Option<Lsn>,
    left: Option<u32>,
}

impl Files {
    fn change(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => return Err(io::ErrorKind::StorageFull.into()),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    fn apply(&mut self, identity: &[u8], noted: &Noted) {
        if identity == IDENTITIES[3] {
            return;
        }
        let file = self.content.entry(identity.to_vec()).or_default();
        match noted {
            Noted::Write { offset, data, .. } => overwrite(file, *offset, data),
            Noted::Truncate { size, .. } => file.resize((*size).min(FILE_BYTES_MAX) as usize, 0),
            Noted::File(_) | Noted::Revoke { .. } | Noted::Name(_) => {}
        }
    }
}

fn overwrite(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (from, to) = (offset as usize, offset.saturating_add(data.len() as u64) as usize);
    if to as u64 > FILE_BYTES_MAX {
        return;
    }
    file.resize(file.len().max(to), 0);
    file[from..to].copy_from_slice(data);
}

impl Home for Files {
    type File = Vec<u8>;
    type Error = io::Error;

    const TAKES_NAMES: bool = true;

    fn name(&mut self, lsn: Lsn, record: &NameRecord<'_>) -> io::Result<()> {
        assert_eq!(record.check(), Ok(()));
        assert!(self.names_end.is_none() && self.names.last().is_none_or(|(last, _)| *last < lsn));
        self.names.push((lsn, format!("{record:?}")));
        Ok(())
    }

    fn names_end(&mut self, end: Lsn) -> io::Result<()> {
        self.names_end = Some(end);
        Ok(())
    }

    fn open(&mut self, identity: &[u8]) -> io::Result<Option<Vec<u8>>> {
        assert!(self.names_end.is_some());
        Ok((identity != IDENTITIES[3]).then(|| identity.to_vec()))
    }

    fn write(&mut self, file: &Vec<u8>, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(!data.is_empty() && offset + data.len() as u64 <= i64::MAX as u64);
        self.change()?;
        overwrite(self.content.entry(file.clone()).or_default(), offset, data);
        Ok(())
    }

    fn truncate(&mut self, file: &Vec<u8>, size: u64) -> io::Result<()> {
        assert!(size <= i64::MAX as u64);
        self.change()?;
        let content = self.content.entry(file.clone()).or_default();
        content.resize(size.min(FILE_BYTES_MAX) as usize, 0);
        Ok(())
    }

    fn sync(&mut self, _file: &Vec<u8>) -> io::Result<()> {
        Ok(())
    }
}

/// As [`Files`], but it takes no names.
struct WithoutNames(Files);

impl Home for WithoutNames {
    type File = Vec<u8>;
    type Error = io::Error;

    fn open(&mut self, identity: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.0.names_end = Some(Lsn(0));
        self.0.open(identity)
    }

    fn write(&mut self, file: &Vec<u8>, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(file, offset, data)
    }

    fn truncate(&mut self, file: &Vec<u8>, size: u64) -> io::Result<()> {
        self.0.truncate(file, size)
    }

    fn sync(&mut self, _file: &Vec<u8>) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn new(input: &Input) -> Log {
        let superblock = Superblock {
            log: [1; 16],
            mount: [2; 16],
            bytes: LOG_BYTES as u64,
            generation: 4,
            checkpoint: Lsn(u64::from(input.begun) * BLOCK),
            clean: false,
            row_blocks: [1, 3, 4][usize::from(input.rows % 3)],
            nodes: NODE_FIRST,
            features: 0,
        };
        let mut disk = Disk { bytes: vec![0; LOG_BYTES], end: LOG_BYTES, read_blocks: 0 };
        disk.bytes[..BLOCK_BYTES].copy_from_slice(&superblock.encode().0);
        let writer = Writer::new(superblock);
        Log { disk, writer, superblock, groups: Vec::new(), open: Vec::new(), intact: Vec::new() }
    }

    fn append(&mut self, file: u64, noted: Noted) {
        for noted in [Noted::File(file), noted] {
            if let Ok(lsn) = self.writer.append(&noted.record(&IDENTITIES)) {
                self.open.push((lsn, noted));
            }
        }
    }

    fn commit(&mut self) {
        let (lsn, durable) = (self.writer.head(), self.writer.durable().0);
        let Some(commit) = self.writer.commit() else { return };
        self.disk.write(&commit);
        self.writer.committed();
        let image: Vec<u8> = commit.blocks.iter().flat_map(|block| block.0).collect();
        let place = |&(at, count): &(u64, usize)| {
            (0..count).map(move |nth| at as usize + nth * BLOCK_BYTES)
        };
        let places = commit.pieces.iter().flat_map(place).collect();
        let bytes = u32::from_le_bytes(image[32..36].try_into().expect("four bytes")) as usize;
        let records = std::mem::take(&mut self.open);
        self.groups.push(Written { lsn, places, bytes, durable, records, image });
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { file, offset, len } => {
                let (file, len) = (u64::from(file % 4), 1 + usize::from(len % 12_000));
                let data = (0..len).map(|at| (at as u8).wrapping_add(offset as u8)).collect();
                self.append(file, Noted::Write { file, offset: u64::from(offset) / 2, data });
            }
            Step::Truncate { file, size } => {
                let file = u64::from(file % 4);
                self.append(file, Noted::Truncate { file, size: u64::from(size) });
            }
            Step::Revoke { file, back } => {
                let file = u64::from(file % 4);
                let groups = self.groups.iter().flat_map(|group| &group.records);
                let mut earlier = groups.chain(&self.open).rev().map(|(lsn, _)| *lsn);
                let before = earlier.nth(back.into()).unwrap_or(self.writer.position());
                self.append(file, Noted::Revoke { file, before });
            }
            Step::Name(ref name) => {
                let Some(noted) = name.noted() else { return };
                if let Ok(lsn) = self.writer.append(&noted.record(&IDENTITIES)) {
                    self.open.push((lsn, noted));
                }
            }
            Step::Commit => self.commit(),
            Step::Checkpoint { group } => {
                let Some(at) = usize::from(group).checked_rem(self.groups.len()) else { return };
                let Some(commit) = self.writer.checkpoint(self.groups[at].lsn) else { return };
                self.disk.write(&commit);
                self.writer.checkpointed();
                self.groups.drain(..at);
                self.superblock = self.disk.superblock().expect("it was just written");
            }
        }
    }

    fn edit(&mut self, edit: &Edit) {
        let pick = |group: u8| usize::from(group).checked_rem(self.groups.len());
        let block = |at: u8| usize::from(at) % (LOG_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
        match *edit {
            Edit::Byte { at, xor } => self.disk.bytes[at as usize % LOG_BYTES] ^= xor,
            Edit::Group { group, at, to, right } => {
                let Some(group) = pick(group).map(|at| &self.groups[at]) else { return };
                self.disk.edit_group(group, usize::from(at) % group.bytes, to, right);
            }
            Edit::Header { group, field, to, right } => {
                let Some(group) = pick(group).map(|at| &self.groups[at]) else { return };
                self.disk.edit_group(group, one_of(&GROUP_FIELDS, field), to, right);
            }
            Edit::Record { group, record, field, to } => {
                let Some(group) = pick(group).map(|at| &self.groups[at]) else { return };
                let Some(nth) = usize::from(record).checked_rem(group.records.len()) else {
                    return;
                };
                let from = (group.records[nth].0.0 - group.lsn.0) as usize;
                let mut bytes = self.disk.group(group);
                let record = &mut bytes[from..group.bytes];
                let field = one_of(&RECORD_FIELDS, field).min(record.len());
                to.put(&mut record[field..]);
                let len = u32::from_le_bytes(record[8..12].try_into().expect("four bytes"));
                if let Some(whole) = record.get(..len as usize).filter(|whole| whole.len() >= 32) {
                    let crc = crc32c::crc32c_append(crc32c::crc32c(&whole[..4]), &whole[8..]);
                    record[4..8].copy_from_slice(&crc.to_le_bytes());
                }
                self.disk.put_group(group, &bytes);
                self.disk.make_right(group);
            }
            Edit::Superblock { second, field, to, right } => {
                let from = if second { BLOCK_BYTES } else { 0 };
                let block = &mut self.disk.bytes[from..from + BLOCK_BYTES];
                to.put(&mut block[one_of(&SUPERBLOCK_FIELDS, field)..]);
                if right {
                    let crc = crc32c::crc32c(&block[..SUPERBLOCK_CRC_AT]).to_le_bytes();
                    block[SUPERBLOCK_CRC_AT..SUPERBLOCK_CRC_AT + 4].copy_from_slice(&crc);
                }
            }
            Edit::Copy { from, to } => {
                let from = block(from);
                self.disk.bytes.copy_within(from..from + BLOCK_BYTES, block(to));
            }
            Edit::Zero { from, blocks } => {
                let from = block(from);
                let to = (from + usize::from(blocks) * BLOCK_BYTES).min(LOG_BYTES);
                self.disk.bytes[from..to].fill(0);
            }
            Edit::End { at } => self.disk.end = block(at),
        }
    }

    /// Whether no header but a group's own gives it its position.
    fn is_alone(&self, group: &Written) -> bool {
        let own = group.places[0];
        let blocks = self.disk.bytes.chunks_exact(BLOCK_BYTES).enumerate();
        !blocks.into_iter().any(|(nth, block)| {
            let is_there = block[..4] == *b"WGRP" && block[8..16] == group.lsn.0.to_le_bytes();
            is_there && nth * BLOCK_BYTES != own
        })
    }

    fn is_untouched(&self, group: &Written) -> bool {
        self.disk.group(group) == group.image
    }

    /// Reads it, and checks what was found against what was written.
    fn check_scan(&mut self) {
        let written = std::mem::take(&mut self.groups);
        let mut found = Vec::new();
        let mut scan = Scan::new(&mut self.disk, self.superblock);
        let ended = loop {
            match scan.next_group() {
                Ok(Ok(group)) => {
                    let records = group.records().map(|records| {
                        let note =
                            |&(lsn, record): &(Lsn, Record<'_>)| (lsn, format!("{record:?}"));
                        records.iter().map(note).collect::<Vec<_>>()
                    });
                    found.push((group.header.lsn, records));
                    scan.recycle(group);
                }
                Ok(Err(end)) => break Ok(end),
                Err(error) => break Err(error),
            }
        };
        assert!(found.len() as u64 <= RING_BLOCKS);
        assert!(std::mem::take(&mut self.disk.read_blocks) <= PASS_BLOCKS_MAX);
        if self.disk.end < LOG_BYTES {
            return;
        }
        let whole = |group: &&Written| self.is_untouched(group) && self.is_alone(group);
        let before = written.iter().take_while(whole).count();
        for (nth, group) in written[..before].iter().enumerate() {
            let (lsn, records) = found.get(nth).expect("a group before the damage is read");
            let note =
                |(lsn, noted): &(Lsn, Noted)| (*lsn, format!("{:?}", noted.record(&IDENTITIES)));
            assert_eq!(*lsn, group.lsn);
            let expected: Vec<_> = group.records.iter().map(note).collect();
            assert_eq!(records.as_ref().ok(), Some(&expected));
        }
        let changed = self.disk.bytes[DATA_START as usize..] != self.intact[..];
        if !changed {
            let head = self.writer.head();
            assert_eq!(found.len(), written.len());
            assert!(matches!(ended, Ok(End { lsn, torn: false }) if lsn == head), "{ended:?}");
        } else if let Some(broken) = written.get(before)
            && !is_whole(&self.disk.group(broken))
            && self.is_alone(broken)
        {
            let proves = |later: &Written| later.durable > broken.lsn.0 && self.is_untouched(later);
            assert_eq!(found.len(), before);
            if written[before + 1..].iter().any(proves) {
                let is_told =
                    matches!(ended, Err(ScanError::Damaged { lsn, .. }) if lsn == broken.lsn);
                assert!(is_told, "{ended:?}");
            }
        }
        self.groups = written;
    }

    /// What home has after a replay of a log that nobody touched.
    fn expected(&self) -> Files {
        let records = || self.groups.iter().flat_map(|group| &group.records);
        let is_void = |at: Lsn, of: u64| {
            let voids = |(lsn, noted): &(Lsn, Noted)| {
                let Noted::Revoke { file, before } = noted else { return false };
                *file == of && at < *before && at < *lsn
            };
            records().any(voids)
        };
        let mut files = Files::default();
        for (lsn, noted) in records() {
            if let Noted::Name(_) = noted
                && let Record::Name(name) = noted.record(&IDENTITIES)
            {
                files.names.push((*lsn, format!("{name:?}")));
            }
            let (Noted::Write { file, .. } | Noted::Truncate { file, .. }) = noted else {
                continue;
            };
            if !is_void(*lsn, *file) {
                files.apply(&IDENTITIES[*file as usize], noted);
            }
        }
        files
    }

    /// Replays it, and uses it again.
    fn check_replay(&mut self, superblock: Superblock, interrupted: Option<u8>) {
        let dry = replay::<_, Files>(&mut self.disk, superblock, None);
        let mut files = Files { left: interrupted.map(u32::from), ..Files::default() };
        if interrupted.is_some() {
            // Done or not, it can be done again.
            let _ = replay(&mut self.disk, superblock, Some(&mut files));
            (files.left, files.names, files.names_end) = (None, Vec::new(), None);
        }
        let again = replay(&mut self.disk, superblock, Some(&mut files));
        let mut fresh = Files::default();
        let wet = replay(&mut self.disk, superblock, Some(&mut fresh));
        let mut without = WithoutNames(Files::default());
        let refused = replay(&mut self.disk, superblock, Some(&mut without));
        assert!(std::mem::take(&mut self.disk.read_blocks) <= 10 * PASS_BLOCKS_MAX);
        let (Ok(dry), Ok(again), Ok(wet)) = (&dry, &again, &wet) else {
            assert!(dry.is_err() && again.is_err() && wet.is_err(), "all find the same");
            assert!(refused.is_err() && without.0.content.is_empty());
            return;
        };
        match refused {
            Ok(report) => assert_eq!((&report, wet.names), (wet, 0)),
            Err(ReplayError::Names { lsn, .. }) => {
                assert_eq!(fresh.names.first().map(|(first, _)| *first), Some(lsn));
                assert!(without.0.content.is_empty());
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(again, wet);
        assert_eq!(
            (dry.groups, dry.end, dry.torn, dry.void, dry.names),
            (wet.groups, wet.end, wet.torn, wet.void, wet.names)
        );
        assert_eq!((&files.content, &files.names), (&fresh.content, &fresh.names));
        if superblock == self.superblock
            && self.disk.bytes[DATA_START as usize..] == self.intact[..]
        {
            let expected = self.expected();
            assert_eq!((&fresh.content, &fresh.names), (&expected.content, &expected.names));
        }
        self.check_next_use(superblock.next_use(wet.end));
    }

    /// What is written after a replay is all that the next one finds.
    fn check_next_use(&mut self, superblock: Superblock) {
        // What no log has written before it is worn out.
        if superblock.checkpoint.0 > 1 << 61 {
            return;
        }
        let place = superblock.own_place() as usize;
        self.disk.bytes[place..place + BLOCK_BYTES].copy_from_slice(&superblock.encode().0);
        self.disk.end = LOG_BYTES;
        assert_eq!(self.disk.superblock(), Some(superblock));
        let mut writer = Writer::new(superblock);
        let noted = Noted::Truncate { file: 0, size: 77 };
        for noted in [&Noted::File(0), &noted] {
            writer.append(&noted.record(&IDENTITIES)).expect("an empty log has room");
        }
        self.disk.write(&writer.commit().expect("a group is open"));
        let mut files = Files::default();
        let report = replay(&mut self.disk, superblock, Some(&mut files));
        let report = report.expect("what was written just now is whole");
        assert_eq!((report.groups, report.applied), (1, 1));
        assert_eq!(files.content, BTreeMap::from([(IDENTITIES[0].to_vec(), vec![0; 77])]));
    }
}

fn one_of(fields: &[usize], which: u8) -> usize {
    fields[usize::from(which) % fields.len()]
}

/// Whether the bytes of a group's blocks are, or may be, a whole group.
fn is_whole(blocks: &[u8]) -> bool {
    let number = |at: usize| u32::from_le_bytes(blocks[at..at + 4].try_into().expect("four bytes"));
    let Some(group) = blocks.get(8..number(32) as usize) else {
        return blocks[..4] == *b"WGRP" && number(32) as usize > 8;
    };
    blocks[..4] == *b"WGRP" && crc32c::crc32c(group) == number(4)
}

fuzz_target!(|input: Input| {
    let mut log = Log::new(&input);
    input.steps.iter().take(STEPS_MAX).for_each(|step| log.step(step));
    log.commit();
    log.intact = log.disk.bytes[DATA_START as usize..].to_vec();
    input.edits.iter().take(STEPS_MAX).for_each(|edit| log.edit(edit));
    log.check_scan();
    if let Some(superblock) = log.disk.superblock() {
        log.check_replay(superblock, input.interrupted);
    }
});
