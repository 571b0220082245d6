//! The disk the log is on.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use weir_log::{BLOCK_BYTES, Block, Commit, ReadLog, Superblock, newest};

use crate::rng::Rng;

const SECTOR_BYTES: usize = 512;

/// Blocks by number; one that is missing is zeros. Cheap to copy.
#[derive(Clone, Default)]
pub(crate) struct LogDisk {
    blocks: BTreeMap<u64, Rc<[u8; BLOCK_BYTES]>>,
}

impl LogDisk {
    pub(crate) fn write(&mut self, commit: &Commit) {
        self.write_some(commit, |_| true);
    }

    /// What is left of a write when the power goes.
    pub(crate) fn tear(&mut self, commit: &Commit, rng: &mut Rng) {
        match rng.below(4) {
            0 => {}
            1 => self.write(commit),
            2 => {
                let sectors = commit.blocks.len() * BLOCK_BYTES / SECTOR_BYTES;
                let first = rng.below(sectors as u64 + 1) as usize;
                self.write_some(commit, |sector| sector < first);
            }
            _ => self.write_some(commit, |_| rng.chance(500)),
        }
    }

    fn write_some(&mut self, commit: &Commit, mut keeps: impl FnMut(usize) -> bool) {
        let mut blocks = commit.blocks.iter();
        let mut sector = 0;
        for &(place, count) in &commit.pieces {
            for nth in 0..count as u64 {
                let Block(bytes) = blocks.next().expect("a commit has a block for each place");
                let number = place / BLOCK_BYTES as u64 + nth;
                let at = self.blocks.entry(number).or_insert_with(|| Rc::new([0; BLOCK_BYTES]));
                let old = Rc::make_mut(at);
                let sectors = old.chunks_mut(SECTOR_BYTES).zip(bytes.chunks(SECTOR_BYTES));
                for (old, new) in sectors {
                    if keeps(sector) {
                        old.copy_from_slice(new);
                    }
                    sector += 1;
                }
            }
        }
    }

    /// The block that begins at a byte.
    pub(crate) fn block(&self, place: u64) -> Block {
        let block = self.blocks.get(&(place / BLOCK_BYTES as u64));
        block.map_or_else(Block::default, |block| Block(**block))
    }

    pub(crate) fn superblock(&self) -> Superblock {
        let (first, second) = (self.block(0), self.block(BLOCK_BYTES as u64));
        newest([&first.0, &second.0]).expect("one superblock is whole at any time")
    }
}

impl ReadLog for LogDisk {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let first = offset / BLOCK_BYTES as u64;
        for (number, part) in (first..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
            match self.blocks.get(&number) {
                Some(block) => part.copy_from_slice(&block[..part.len()]),
                None => part.fill(0),
            }
        }
        Ok(())
    }
}
