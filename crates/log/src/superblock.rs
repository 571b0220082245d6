//! Superblocks: what the log is, and where its replay starts.
//!
//! There are two, in blocks 0 and 1. Each new one takes the place of the older, so that one is
//! whole whatever happens to the write; the higher generation counts. What a superblock says fits
//! one sector of 512 bytes: no crash leaves it half new.
//!
//! ```text
//!   0  magic        8   "WEIR-LOG"
//!   8  version      4   3 (2: `mount` was computed from SOURCE's device, and is read too)
//!  12  flags        4   bit 0: nothing is to be replayed (the mount ended in order)
//!  16  log          16  drawn when the log is made
//!  32  mount        16  the identity of the log's SOURCE; zero if it has none yet
//!  48  bytes        8   of the log, superblocks included
//!  56  generation   8   one more for each superblock written; at most 2^62
//!  64  checkpoint   8   LSN of the first group to replay
//!  72  row          4   blocks in a row; 1: groups follow one another
//!  76  (zero)
//! 508  CRC32C       4   of bytes 0..508
//! ```

use crate::block::{BLOCK_BYTES, Block, field, put, u32_at, u64_at};
use crate::{GROUP_BYTES_MAX, Lsn};

/// Version of the format that is written.
pub const VERSION: u32 = 3;

/// The previous version: `mount` was computed from the device number and the handle of SOURCE. It
/// can be read, and differs in nothing else.
pub const VERSION_BY_DEVICE: u32 = 2;

/// Where the ring begins in the file, bytes.
pub const DATA_START: u64 = 2 * BLOCK_BYTES as u64;

/// The smallest log, bytes.
pub const LOG_BYTES_MIN: u64 = DATA_START + (64 << 10);

/// The longest row, blocks.
pub const ROW_BLOCKS_MAX: u32 = 4096;

/// The shortest row that is worth it on a disk that turns, blocks: with shorter ones groups would
/// come to stand behind one another after all.
const ROW_BLOCKS_MIN: u64 = 256;

/// The least number of rows longer than a block: the ring is freed by rows.
const ROWS_MIN: u64 = 4;

const MAGIC: [u8; 8] = *b"WEIR-LOG";
const SECTOR_BYTES: usize = 512;
const CRC_AT: usize = SECTOR_BYTES - 4;
const CLEAN: u32 = 1;

/// Sixteen bytes that tell one thing from all others of its kind.
pub type Identity = [u8; 16];

/// What a superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The log, as every group repeats it.
    pub log: Identity,
    /// The mount whose log it is.
    pub mount: Identity,
    /// Bytes of the log, superblocks included.
    pub bytes: u64,
    /// One more for each superblock written.
    pub generation: u64,
    /// Where replay starts.
    pub checkpoint: Lsn,
    /// Nothing is to be replayed.
    pub clean: bool,
    /// Blocks in a row, which a group may stand anywhere in. With rows of one block groups follow
    /// one another.
    pub row_blocks: u32,
}

/// Why bytes are no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// The magic number is missing.
    #[error("it is not a Weir log")]
    NotALog,
    /// The checksum is wrong.
    #[error("its checksum is wrong")]
    Checksum,
    /// Made by another version.
    #[error("it has version {0} of the format, this program knows version {VERSION}")]
    Version(u32),
    /// The checksum is right and the content nonsense.
    #[error("its {0} is out of range")]
    Nonsense(&'static str),
}

impl Superblock {
    /// Bytes of the ring.
    pub fn data_bytes(&self) -> u64 {
        (self.bytes - DATA_START) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64
    }

    /// The rows that suit a log of `bytes` on a disk that turns, blocks.
    pub fn row_blocks_to_turn(bytes: u64) -> u32 {
        let sixteenth = bytes.saturating_sub(DATA_START) / BLOCK_BYTES as u64 / 16;
        if sixteenth < ROW_BLOCKS_MIN { 1 } else { sixteenth.min(1024) as u32 }
    }

    /// Where a position is in the file if all stands in order, bytes. Rows begin there.
    pub(crate) fn place(&self, lsn: Lsn) -> u64 {
        DATA_START + lsn.0 % self.data_bytes()
    }

    /// Where the ring ends in the file, bytes.
    pub(crate) fn bytes_end(&self) -> u64 {
        DATA_START + self.data_bytes()
    }

    /// The place so many bytes after another one in the ring.
    pub(crate) fn ahead_of(&self, place: u64, bytes: u64) -> u64 {
        DATA_START + (place - DATA_START + bytes) % self.data_bytes()
    }

    /// So many blocks from a place on, around the end of the ring if need be.
    pub(crate) fn around(&self, place: u64, blocks: usize) -> Vec<(u64, usize)> {
        let to_end = ((self.bytes_end() - place) / BLOCK_BYTES as u64) as usize;
        if blocks <= to_end {
            return vec![(place, blocks)];
        }
        vec![(place, to_end), (DATA_START, blocks - to_end)]
    }

    /// The first position for which there is no room while everything from `tail` on is kept. Whole
    /// rows are kept: groups stand anywhere in them.
    pub(crate) fn limit(&self, tail: Lsn) -> Lsn {
        Lsn(self.row_of(tail).start.0 + self.data_bytes())
    }

    /// Where this superblock itself belongs in the file, bytes.
    pub fn own_place(&self) -> u64 {
        self.generation % 2 * BLOCK_BYTES as u64
    }

    /// Longest group, bytes: several fit the ring.
    pub fn group_bytes_max(&self) -> usize {
        let quarter = usize::try_from(self.data_bytes() / 4).unwrap_or(usize::MAX);
        (quarter / BLOCK_BYTES * BLOCK_BYTES).min(GROUP_BYTES_MAX)
    }

    /// The superblock with which the log is used again, once everything up to `end` was replayed and
    /// is durable. It is to be durable itself before the first group is written.
    ///
    /// The stream goes on one lap later at the same place: what a crash may have left there, whole or
    /// torn, has a position that does not count any more.
    pub fn next_use(&self, end: Lsn) -> Superblock {
        Superblock {
            generation: self.generation + 1,
            checkpoint: Lsn(end.0 + self.data_bytes()),
            clean: false,
            ..*self
        }
    }

    /// As a block.
    pub fn encode(&self) -> Block {
        let mut block = Block::default();
        let bytes = &mut block.0[..];
        put(bytes, 0, &MAGIC);
        put(bytes, 8, &VERSION.to_le_bytes());
        put(bytes, 12, &(if self.clean { CLEAN } else { 0 }).to_le_bytes());
        put(bytes, 16, &self.log);
        put(bytes, 32, &self.mount);
        put(bytes, 48, &self.bytes.to_le_bytes());
        put(bytes, 56, &self.generation.to_le_bytes());
        put(bytes, 64, &self.checkpoint.0.to_le_bytes());
        put(bytes, 72, &self.row_blocks.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        put(bytes, CRC_AT, &crc.to_le_bytes());
        block
    }

    /// The format version of a superblock; checks nothing else.
    pub fn version(block: &[u8; BLOCK_BYTES]) -> u32 {
        u32_at(block, 8)
    }

    /// What `block`, read from a log's superblock, says.
    ///
    /// # Errors
    /// See [`SuperblockError`].
    pub fn decode(block: &[u8; BLOCK_BYTES]) -> Result<Superblock, SuperblockError> {
        if block[..8] != MAGIC {
            return Err(SuperblockError::NotALog);
        }
        if crc32c::crc32c(&block[..CRC_AT]) != u32_at(block, CRC_AT) {
            return Err(SuperblockError::Checksum);
        }
        match Superblock::version(block) {
            VERSION | VERSION_BY_DEVICE => {}
            version => return Err(SuperblockError::Version(version)),
        }
        let superblock = Superblock {
            log: field(block, 16),
            mount: field(block, 32),
            bytes: u64_at(block, 48),
            generation: u64_at(block, 56),
            checkpoint: Lsn(u64_at(block, 64)),
            clean: u32_at(block, 12) & CLEAN != 0,
            row_blocks: u32_at(block, 72),
        };
        if !(LOG_BYTES_MIN..=1 << 62).contains(&superblock.bytes) {
            return Err(SuperblockError::Nonsense("size"));
        }
        // The next one's is one more, and counts.
        if superblock.generation > 1 << 62 {
            return Err(SuperblockError::Nonsense("generation"));
        }
        let checkpoint = superblock.checkpoint.0;
        if !checkpoint.is_multiple_of(BLOCK_BYTES as u64) || checkpoint > 1 << 62 {
            return Err(SuperblockError::Nonsense("checkpoint"));
        }
        let rows = superblock.data_bytes() / BLOCK_BYTES as u64 / ROWS_MIN;
        let longest = rows.min(u64::from(ROW_BLOCKS_MAX));
        if !(1..=longest).contains(&u64::from(superblock.row_blocks)) {
            return Err(SuperblockError::Nonsense("length of rows"));
        }
        Ok(superblock)
    }
}

/// The superblock that counts of the two a log has.
///
/// # Errors
/// Why there is none: what the better of the two says.
pub fn newest(blocks: [&[u8; BLOCK_BYTES]; 2]) -> Result<Superblock, SuperblockError> {
    match blocks.map(Superblock::decode) {
        [Ok(first), Ok(second)] => {
            Ok(if first.generation > second.generation { first } else { second })
        }
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(SuperblockError::NotALog), Err(error)] | [Err(error), Err(_)] => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn superblock(generation: u64) -> Superblock {
        Superblock {
            log: [1; 16],
            mount: [2; 16],
            bytes: LOG_BYTES_MIN,
            generation,
            checkpoint: Lsn(8192),
            clean: generation.is_multiple_of(3),
            row_blocks: 1 + (generation % 4) as u32,
        }
    }

    #[test]
    fn it_says_what_it_was_told() {
        for generation in 0..4 {
            let superblock = superblock(generation);
            assert_eq!(Superblock::decode(&superblock.encode().0), Ok(superblock));
        }
    }

    #[test]
    fn the_newer_of_two_whole_ones_counts() {
        let (old, new) = (superblock(4).encode(), superblock(5).encode());
        assert_eq!(newest([&old.0, &new.0]), Ok(superblock(5)));
        assert_eq!(newest([&new.0, &old.0]), Ok(superblock(5)));
        let torn = Block::default();
        assert_eq!(newest([&old.0, &torn.0]), Ok(superblock(4)));
        assert_eq!(newest([&torn.0, &torn.0]), Err(SuperblockError::NotALog));
    }

    #[test]
    fn another_version_is_named() {
        let mut block = superblock(1).encode();
        put(&mut block.0, 8, &7u32.to_le_bytes());
        let crc = crc32c::crc32c(&block.0[..CRC_AT]);
        put(&mut block.0, CRC_AT, &crc.to_le_bytes());
        assert_eq!(Superblock::decode(&block.0), Err(SuperblockError::Version(7)));
    }

    #[test]
    fn the_previous_version_is_read() {
        let mut block = superblock(1).encode();
        assert_eq!(Superblock::version(&block.0), VERSION);
        put(&mut block.0, 8, &VERSION_BY_DEVICE.to_le_bytes());
        let crc = crc32c::crc32c(&block.0[..CRC_AT]);
        put(&mut block.0, CRC_AT, &crc.to_le_bytes());
        assert_eq!(Superblock::decode(&block.0), Ok(superblock(1)));
        assert_eq!(Superblock::version(&block.0), VERSION_BY_DEVICE);
    }

    #[test]
    fn a_generation_that_none_can_follow_is_nonsense() {
        for (generation, counts) in [(1 << 62, true), ((1 << 62) + 1, false), (u64::MAX, false)] {
            let decoded = Superblock::decode(&superblock(generation).encode().0);
            let next = decoded.map(|superblock| superblock.next_use(Lsn(8192)));
            match counts {
                true => assert!(next.unwrap().generation > generation),
                false => assert_eq!(next, Err(SuperblockError::Nonsense("generation"))),
            }
        }
    }

    #[test]
    fn rows_are_in_range_and_four_of_them_fit() {
        for (row_blocks, fits) in [(0, false), (1, true), (4, true), (5, false), (u32::MAX, false)]
        {
            let superblock = Superblock { row_blocks, ..superblock(1) };
            assert_eq!(Superblock::decode(&superblock.encode().0).is_ok(), fits, "{row_blocks}");
        }
        for bytes in [LOG_BYTES_MIN, 4 << 20, 16 << 20, 64 << 20, 1 << 40] {
            let row_blocks = Superblock::row_blocks_to_turn(bytes);
            let superblock = Superblock { bytes, row_blocks, ..superblock(1) };
            assert!(Superblock::decode(&superblock.encode().0).is_ok(), "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn any_changed_bit_of_its_sector_is_found(bit in 0usize..SECTOR_BYTES * 8) {
            let mut block = superblock(1).encode();
            block.0[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Superblock::decode(&block.0).is_err());
        }
    }
}
