//! Groups: records that become durable together, by one write.
//!
//! A group begins at a block and fills whole blocks, the last one padded with zeros. [`crate::rows`] says where
//! it may stand. It may run past the end of the ring and continue at its start.
//!
//! ```text
//!   0  magic     4   "WGRP"
//!   4  CRC32C    4   of bytes 8..`bytes` of the group
//!   8  LSN       8   of this group
//!  16  log       16  as in the superblock
//!  32  bytes     4   of the group, this header counted, padding not
//!  36  records   4
//!  40  durable   8   LSN before which every group was durable when this one was written
//!  48  place     8   byte of the log it begins at: a copy found elsewhere does not count
//!  56  (zero)    8
//!  64  records
//! ```

use crate::Lsn;
use crate::block::{BLOCK_BYTES, Block, field, put, u32_at, u64_at};
use crate::name_record::{IDENTITY_BYTES_MAX, MENTIONED_MAX};
use crate::record::{RECORD_OVERHEAD_BYTES, Record};
use crate::superblock::{GROUP_BYTES_MAX, Identity};

/// Bytes of a group's header.
pub(crate) const HEADER_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"WGRP";

/// Longest record of names, padding counted, in a log whose groups have at most `group_bytes_max` bytes: beside it
/// its group has room for the record of each node that it mentions, whatever their identities are.
pub fn name_record_bytes_max(group_bytes_max: usize) -> usize {
    let nodes = MENTIONED_MAX * (RECORD_OVERHEAD_BYTES + IDENTITY_BYTES_MAX);
    group_bytes_max.saturating_sub(HEADER_BYTES + nodes)
}

/// The header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Of bytes 8 to the group's end.
    pub(crate) crc: u32,
    /// Where the group is.
    pub lsn: Lsn,
    /// The log it belongs to.
    pub log: Identity,
    /// Its length without padding, bytes.
    pub bytes: u32,
    /// Records in it.
    pub records: u32,
    /// Every group before this position was durable when this one was written.
    pub durable: Lsn,
    /// Where it begins, byte of the log.
    pub place: u64,
}

impl GroupHeader {
    /// The header at the start of a block, if there is one with a possible length. Checks nothing else.
    pub(crate) fn decode(block: &[u8]) -> Option<GroupHeader> {
        if block.len() < HEADER_BYTES || block[..4] != MAGIC {
            return None;
        }
        let header = GroupHeader {
            crc: u32_at(block, 4),
            lsn: Lsn(u64_at(block, 8)),
            log: field(block, 16),
            bytes: u32_at(block, 32),
            records: u32_at(block, 36),
            durable: Lsn(u64_at(block, 40)),
            place: u64_at(block, 48),
        };
        (HEADER_BYTES..=GROUP_BYTES_MAX).contains(&(header.bytes as usize)).then_some(header)
    }

    /// Blocks the group fills.
    pub fn blocks(&self) -> u64 {
        u64::from(self.bytes).div_ceil(BLOCK_BYTES as u64)
    }

    /// Whether the header belongs to `bytes`, the group without its padding: checks the checksum.
    pub(crate) fn fits(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes as usize && crc32c::crc32c(&bytes[8..]) == self.crc
    }
}

/// A group under construction.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    blocks: Vec<Block>,
    len: usize,
    records: u32,
}

impl Builder {
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes, the header counted.
    pub(crate) fn len(&self) -> usize {
        self.len.max(HEADER_BYTES)
    }

    /// Bytes on disk.
    pub(crate) fn padded_bytes(&self) -> u64 {
        self.len().next_multiple_of(BLOCK_BYTES) as u64
    }

    /// Appends a record; returns where in the group it begins.
    pub(crate) fn append(&mut self, record: &Record<'_>) -> usize {
        let at = self.len();
        let (head, payload) = record.encode();
        self.copy_in(at, &head);
        self.copy_in(at + head.len(), &payload);
        self.len = at + record.padded_bytes();
        self.cover(self.len);
        self.records += 1;
        at
    }

    fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        self.cover(at + bytes.len());
        let (mut at, mut bytes) = (at, bytes);
        while !bytes.is_empty() {
            let (block, start) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let len = bytes.len().min(BLOCK_BYTES - start);
            put(&mut self.blocks[block].0, start, &bytes[..len]);
            at += len;
            bytes = &bytes[len..];
        }
    }

    fn cover(&mut self, len: usize) {
        self.blocks.resize_with(len.div_ceil(BLOCK_BYTES), Block::default);
    }

    /// The group's blocks, header and checksum filled in.
    pub(crate) fn finish(
        mut self,
        lsn: Lsn,
        place: u64,
        log: &Identity,
        durable: Lsn,
    ) -> Vec<Block> {
        let len = u32::try_from(self.len()).expect("a group is bounded");
        let head = &mut self.blocks[0].0;
        put(head, 0, &MAGIC);
        put(head, 8, &lsn.0.to_le_bytes());
        put(head, 16, log);
        put(head, 32, &len.to_le_bytes());
        put(head, 36, &self.records.to_le_bytes());
        put(head, 40, &durable.0.to_le_bytes());
        put(head, 48, &place.to_le_bytes());
        let mut crc = 0;
        let mut left = len as usize;
        for (nth, block) in self.blocks.iter().enumerate() {
            let from = if nth == 0 { 8 } else { 0 };
            let to = left.min(BLOCK_BYTES);
            crc = crc32c::crc32c_append(crc, &block.0[from..to]);
            left -= to;
        }
        put(&mut self.blocks[0].0, 4, &crc.to_le_bytes());
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_records_fill_one_block_and_large_ones_as_many_as_they_need() {
        for (count, len, blocks) in [(1, 64, 1), (40, 64, 1), (1, 4096, 2), (3, 20_000, 15)] {
            let mut builder = Builder::default();
            let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut starts = Vec::new();
            for nth in 0..count {
                let record = Record::Write { file: nth, offset: 100 * nth, data: &data };
                starts.push(builder.append(&record));
            }
            let group = builder.finish(Lsn(8192), 65_536, &[9; 16], Lsn(4096));
            assert_eq!(group.len(), blocks);
            let bytes: Vec<u8> = group.iter().flat_map(|block| block.0).collect();
            let header = GroupHeader::decode(&bytes).unwrap();
            assert_eq!(header.lsn, Lsn(8192));
            assert_eq!((header.place, header.blocks()), (65_536, blocks as u64));
            let whole = &bytes[..header.bytes as usize];
            assert!(header.fits(whole));
            for (nth, &start) in starts.iter().enumerate() {
                let (record, _) = Record::decode(&whole[start..]).unwrap();
                let nth = nth as u64;
                assert_eq!(record, Record::Write { file: nth, offset: 100 * nth, data: &data });
            }
        }
    }
}
