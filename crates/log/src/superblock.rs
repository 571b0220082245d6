//! Superblocks: what the log is, and where its replay starts.
//! There are two, in blocks 0 and 1. Each new one replaces the older, so that one is always whole; the higher
//! generation counts. The fields of a superblock fit one sector of 512 bytes, which a crash never leaves half
//! written.
//!
//! ```text
//!   0  magic        8   "WEIR-LOG"
//!   8  version      4   4 (2 and 3 are read too: docs/LOG_FORMAT.md)
//!  12  flags        4   bit 0: nothing is to be replayed (the mount ended in order)
//!  16  log          16  drawn when the log is made
//!  32  mount        16  the identity of the log's SOURCE; zero if it has none yet
//!  48  bytes        8   of the log, superblocks included
//!  56  generation   8   one more for each superblock written; at most 2^62
//!  64  checkpoint   8   LSN of the first group to replay
//!  72  row          4   blocks in a row; 1: groups follow one another
//!  76  (zero)       4
//!  80  nodes        8   the lowest node number that is not used yet
//!  88  features     8   bits for what a reader must know to read this log; none is defined
//!  96  (zero)
//! 508  CRC32C       4   of bytes 0..508
//! ```

use crate::Lsn;
use crate::block::{BLOCK_BYTES, Block, field, put, u32_at, u64_at};

/// Version of the format that is written.
pub const VERSION: u32 = 4;

/// The version without node numbers and features. It can be read.
pub const VERSION_WITHOUT_NODES: u32 = 3;

/// The version before that: `mount` was computed from the device number and the handle of SOURCE. It can be read.
pub const VERSION_BY_DEVICE: u32 = 2;

/// The features that this build knows: none.
pub const FEATURES: u64 = 0;

/// The first node number that a log gives. 0 is no node, and 1 is SOURCE's own directory.
pub const NODE_FIRST: u64 = 2;

/// No node has this number or a higher one.
pub(crate) const NODE_LIMIT: u64 = 1 << 62;

/// No position is higher at the beginning of a lap (docs/LOG_FORMAT.md).
pub(crate) const CHECKPOINT_MAX: u64 = 1 << 62;

/// How many node numbers are given at most before the next superblock is durable. After a crash all of them
/// count as used, and 2^26 crashes use up the numbers.
const NODES_PER_SUPERBLOCK: u64 = 1 << 36;

/// Longest group, bytes.
pub const GROUP_BYTES_MAX: usize = 4 << 20;

/// Where the ring begins in the file, bytes.
pub const DATA_START: u64 = 2 * BLOCK_BYTES as u64;

/// The smallest log, bytes.
pub const LOG_BYTES_MIN: u64 = DATA_START + (64 << 10);

/// The longest row, blocks.
pub const ROW_BLOCKS_MAX: u32 = 4096;

/// The shortest useful row on a rotational disk, blocks: in shorter rows groups would stand right behind one another.
const ROW_BLOCKS_MIN: u64 = 256;

/// The least number of rows, if they are longer than a block: the ring is freed by whole rows.
const ROWS_MIN: u64 = 4;

const MAGIC: [u8; 8] = *b"WEIR-LOG";
const SECTOR_BYTES: usize = 512;
const CRC_AT: usize = SECTOR_BYTES - 4;
const CLEAN: u32 = 1;

/// Sixteen random bytes that identify a log or a SOURCE.
pub type Identity = [u8; 16];

/// The fields of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The log's own name, repeated in every group.
    pub log: Identity,
    /// The identity of the log's SOURCE; zero if it has none yet.
    pub mount: Identity,
    /// Bytes of the log, superblocks included.
    pub bytes: u64,
    /// One more for each superblock written.
    pub generation: u64,
    /// Where replay starts.
    pub checkpoint: Lsn,
    /// Nothing is to be replayed.
    pub clean: bool,
    /// Blocks in a row. A group may stand anywhere in its row; in rows of one block, groups follow one another.
    pub row_blocks: u32,
    /// The lowest node number that is not used yet. If the log is not clean, numbers given after this
    /// superblock was written are used, too: see [`Superblock::unused_node`].
    pub nodes: u64,
    /// Features in use: a program that does not know one of them cannot read the log.
    pub features: u64,
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
    /// Of a version that is no longer read.
    #[error(
        "it has version {0} of the log format, which this Weir does not read any more: it reads versions \
         {VERSION_BY_DEVICE} to {VERSION}"
    )]
    Version(u32),
    /// Of a later version.
    #[error("it has version {0} of the log format, and this Weir knows versions up to {VERSION}")]
    NewerVersion(u32),
    /// Of this version, with features that this build does not know.
    #[error("it uses features of the log format that this Weir does not know (bits {0:#x})")]
    NewerFeatures(u64),
    /// The checksum is right and a field is out of range.
    #[error("its {0} is out of range")]
    Nonsense(&'static str),
}

impl SuperblockError {
    /// Whether a newer Weir made the log. The log is then whole, and may hold synced data.
    pub fn is_newer(&self) -> bool {
        matches!(self, SuperblockError::NewerVersion(_) | SuperblockError::NewerFeatures(_))
    }
}

impl Superblock {
    /// Bytes of the ring.
    pub fn data_bytes(&self) -> u64 {
        (self.bytes - DATA_START) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64
    }

    /// The length of rows that suits a log of `bytes` on a rotational disk, blocks.
    pub fn row_blocks_to_turn(bytes: u64) -> u32 {
        let sixteenth = bytes.saturating_sub(DATA_START) / BLOCK_BYTES as u64 / 16;
        if sixteenth < ROW_BLOCKS_MIN { 1 } else { sixteenth.min(1024) as u32 }
    }

    /// Where a position is in the file if groups follow one another, bytes. Exact for the starts of rows.
    pub(crate) fn place(&self, lsn: Lsn) -> u64 {
        DATA_START + lsn.0 % self.data_bytes()
    }

    /// Where the ring ends in the file, bytes.
    pub(crate) fn bytes_end(&self) -> u64 {
        DATA_START + self.data_bytes()
    }

    /// The place `bytes` after another one in the ring.
    pub(crate) fn ahead_of(&self, place: u64, bytes: u64) -> u64 {
        DATA_START + (place - DATA_START + bytes) % self.data_bytes()
    }

    /// The pieces of `blocks` blocks from a place on, around the end of the ring if necessary.
    pub(crate) fn around(&self, place: u64, blocks: usize) -> Vec<(u64, usize)> {
        let to_end = ((self.bytes_end() - place) / BLOCK_BYTES as u64) as usize;
        if blocks <= to_end {
            return vec![(place, blocks)];
        }
        vec![(place, to_end), (DATA_START, blocks - to_end)]
    }

    /// The first position without room while everything from `tail` on is kept. Whole rows are kept, since
    /// groups stand anywhere in them.
    pub(crate) fn limit(&self, tail: Lsn) -> Lsn {
        Lsn(self.row_of(tail).start.0 + self.data_bytes())
    }

    /// Where this superblock is in the file, bytes.
    pub fn own_place(&self) -> u64 {
        self.generation % 2 * BLOCK_BYTES as u64
    }

    /// Longest group, bytes: several fit the ring.
    pub fn group_bytes_max(&self) -> usize {
        let quarter = usize::try_from(self.data_bytes() / 4).unwrap_or(usize::MAX);
        (quarter / BLOCK_BYTES * BLOCK_BYTES).min(GROUP_BYTES_MAX)
    }

    /// The superblock for the log's next use, after everything up to `end` was replayed and is durable. It must
    /// be durable before the first group is written. The stream continues one lap later at the same place:
    /// groups that a crash may have left there, whole or torn, have positions that no longer count.
    pub fn next_use(&self, end: Lsn) -> Superblock {
        Superblock {
            generation: self.generation + 1,
            checkpoint: Lsn(end.0 + self.data_bytes()),
            clean: false,
            nodes: self.unused_node(),
            ..*self
        }
    }

    /// The lowest node number that is certainly unused, if this is the log's last superblock.
    pub fn unused_node(&self) -> u64 {
        if self.clean { self.nodes } else { self.nodes_end() }
    }

    /// Once this superblock is durable, numbers below this one may be assigned.
    pub(crate) fn nodes_end(&self) -> u64 {
        (self.nodes + NODES_PER_SUPERBLOCK).min(NODE_LIMIT)
    }

    /// Encodes the superblock as a block.
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
        put(bytes, 80, &self.nodes.to_le_bytes());
        put(bytes, 88, &self.features.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        put(bytes, CRC_AT, &crc.to_le_bytes());
        block
    }

    /// The format version of a superblock; checks nothing else.
    pub fn version(block: &[u8; BLOCK_BYTES]) -> u32 {
        u32_at(block, 8)
    }

    /// Decodes a superblock.
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
        let (nodes, features) = match Superblock::version(block) {
            VERSION => (u64_at(block, 80), u64_at(block, 88)),
            VERSION_WITHOUT_NODES | VERSION_BY_DEVICE => (NODE_FIRST, 0),
            version if version > VERSION => return Err(SuperblockError::NewerVersion(version)),
            version => return Err(SuperblockError::Version(version)),
        };
        if features & !FEATURES != 0 {
            return Err(SuperblockError::NewerFeatures(features & !FEATURES));
        }
        let superblock = Superblock {
            log: field(block, 16),
            mount: field(block, 32),
            bytes: u64_at(block, 48),
            generation: u64_at(block, 56),
            checkpoint: Lsn(u64_at(block, 64)),
            clean: u32_at(block, 12) & CLEAN != 0,
            row_blocks: u32_at(block, 72),
            nodes,
            features,
        };
        if !(LOG_BYTES_MIN..=1 << 62).contains(&superblock.bytes) {
            return Err(SuperblockError::Nonsense("size"));
        }
        // The next superblock has one more, which must be valid too.
        if superblock.generation > 1 << 62 {
            return Err(SuperblockError::Nonsense("generation"));
        }
        let checkpoint = superblock.checkpoint.0;
        if !checkpoint.is_multiple_of(BLOCK_BYTES as u64) || checkpoint > CHECKPOINT_MAX {
            return Err(SuperblockError::Nonsense("checkpoint"));
        }
        if !(NODE_FIRST..=NODE_LIMIT).contains(&nodes) {
            return Err(SuperblockError::Nonsense("next node number"));
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
/// If neither counts: the more telling error of the two. A superblock that a newer Weir wrote is always an
/// error, since the other one is out of date then.
pub fn newest(blocks: [&[u8; BLOCK_BYTES]; 2]) -> Result<Superblock, SuperblockError> {
    match blocks.map(Superblock::decode) {
        [Err(error), _] | [_, Err(error)] if error.is_newer() => Err(error),
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
            nodes: NODE_FIRST + generation % 100,
            features: 0,
        }
    }

    #[test]
    fn a_superblock_round_trips() {
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

    /// A superblock with another field, and its checksum right.
    fn with(generation: u64, at: usize, field: &[u8]) -> Block {
        let mut block = superblock(generation).encode();
        put(&mut block.0, at, field);
        let crc = crc32c::crc32c(&block.0[..CRC_AT]);
        put(&mut block.0, CRC_AT, &crc.to_le_bytes());
        block
    }

    fn of_version(generation: u64, version: u32) -> Block {
        with(generation, 8, &version.to_le_bytes())
    }

    #[test]
    fn unknown_versions_and_features_are_named() {
        let decoded = |block: Block| Superblock::decode(&block.0);
        assert_eq!(decoded(of_version(1, 1)), Err(SuperblockError::Version(1)));
        assert_eq!(decoded(of_version(1, 5)), Err(SuperblockError::NewerVersion(5)));
        for bit in 0..64 {
            let decoded = decoded(with(1, 88, &(1u64 << bit).to_le_bytes()));
            assert_eq!(decoded, Err(SuperblockError::NewerFeatures(1 << bit)));
        }
    }

    #[test]
    fn what_a_newer_weir_wrote_is_refused_whatever_the_other_superblock_says() {
        let newer = SuperblockError::NewerVersion(5);
        for generation in [3, 4, 5] {
            let (other, foreign) = (superblock(4).encode(), of_version(generation, 5));
            assert_eq!(newest([&other.0, &foreign.0]), Err(newer));
            assert_eq!(newest([&foreign.0, &other.0]), Err(newer));
        }
        let torn = Block::default();
        let foreign = with(4, 88, &8u64.to_le_bytes());
        assert_eq!(newest([&torn.0, &foreign.0]), Err(SuperblockError::NewerFeatures(8)));
        let foreign = of_version(5, 1);
        assert_eq!(newest([&superblock(4).encode().0, &foreign.0]), Ok(superblock(4)));
    }

    #[test]
    fn earlier_versions_are_read_and_have_no_node_numbers() {
        let superblock = Superblock { nodes: NODE_FIRST, ..superblock(1) };
        assert_eq!(Superblock::version(&superblock.encode().0), VERSION);
        for version in [VERSION_BY_DEVICE, VERSION_WITHOUT_NODES] {
            let block = of_version(1, version);
            assert_eq!(Superblock::decode(&block.0), Ok(superblock));
            assert_eq!(Superblock::version(&block.0), version);
        }
    }

    #[test]
    fn node_numbers_continue_after_those_that_may_be_used() {
        let with = |nodes, clean| Superblock { nodes, clean, ..superblock(1) };
        assert_eq!(with(7, true).next_use(Lsn(0)).nodes, 7);
        let after_a_crash = with(7, false).next_use(Lsn(0));
        assert_eq!(after_a_crash.nodes, 7 + NODES_PER_SUPERBLOCK);
        // All numbers are used up; the log can still be read.
        let mut last = with(NODE_LIMIT - 1, false);
        for _ in 0..3 {
            last = last.next_use(Lsn(0));
            assert_eq!(Superblock::decode(&last.encode().0), Ok(last));
        }
        assert_eq!(last.nodes, NODE_LIMIT);
        for (nodes, counts) in [(0, false), (1, false), (2, true), (NODE_LIMIT + 1, false)] {
            assert_eq!(
                Superblock::decode(&with(nodes, true).encode().0).is_ok(),
                counts,
                "{nodes}"
            );
        }
    }

    #[test]
    fn the_last_generation_is_out_of_range() {
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
