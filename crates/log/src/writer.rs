//! The writer: collects records into the open group, and says which blocks go where.
//!
//! Owns positions and the open group. Does not decide when a group is closed, and writes nothing:
//! its caller takes a [`Commit`], has it written and made durable, and says so.
//!
//! Invariants:
//! - tail <= durable <= written <= head, all within one ring's length;
//! - at most one group is under way: a torn one is the log's last;
//! - nothing at or after the tail is overwritten, where the tail is what a durable superblock says.

use crate::Lsn;
use crate::block::{BLOCK_BYTES, Block};
use crate::group::Builder;
use crate::record::Record;
use crate::superblock::Superblock;

/// Blocks to write, and to make durable together.
#[derive(Debug)]
pub struct Commit {
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// Where in the log they go, bytes: so many blocks each, one piece after the other.
    pub pieces: Vec<(u64, usize)>,
}

/// The log has no room for a record now, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log is full")]
pub struct Full;

/// The log's writing end.
#[derive(Debug)]
pub struct Writer {
    /// As it is on disk, or on its way there.
    superblock: Superblock,
    /// A new one is under way.
    superblock_in_flight: bool,
    /// The checkpoint of the last superblock that is durable: space before it is free.
    tail: Lsn,
    durable: Lsn,
    /// The group under way ends here.
    written: Option<Lsn>,
    /// Where the open group begins.
    head: Lsn,
    open: Builder,
}

impl Writer {
    /// Goes on with a log that has nothing to replay, at its checkpoint. `superblock` is durable and
    /// does not say that the log is clean: see [`Superblock::next_use`].
    pub fn new(superblock: Superblock) -> Writer {
        let head = superblock.checkpoint;
        Writer {
            superblock,
            superblock_in_flight: false,
            tail: head,
            durable: head,
            written: None,
            head,
            open: Builder::default(),
        }
    }

    /// Everything before this position is durable.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Where the next group begins: what is appended from now on is at or after it.
    pub fn head(&self) -> Lsn {
        self.head
    }

    /// Where the next record goes: everything that was appended is before it.
    pub fn position(&self) -> Lsn {
        match self.open.is_empty() {
            true => self.head,
            false => Lsn(self.head.0 + self.open.len() as u64),
        }
    }

    /// Space before this position is free.
    pub fn tail(&self) -> Lsn {
        self.tail
    }

    /// Bytes between tail and head, and of the open group.
    pub fn used_bytes(&self) -> u64 {
        let open = if self.open.is_empty() { 0 } else { self.open.padded_bytes() };
        self.head.0 - self.tail.0 + open
    }

    /// Bytes the ring holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.superblock.data_bytes()
    }

    /// Longest group, bytes.
    pub fn group_bytes_max(&self) -> usize {
        self.superblock.group_bytes_max()
    }

    /// Where in the log the block is that holds a position, bytes.
    pub fn place(&self, lsn: Lsn) -> u64 {
        self.superblock.place(Lsn(lsn.0 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64))
    }

    /// Whether records of `bytes` in all, padding counted, can be appended to the open group.
    pub fn has_room(&self, bytes: usize) -> bool {
        let len = self.open.len() + bytes;
        let end = self.head.0 + len.next_multiple_of(BLOCK_BYTES) as u64;
        len <= self.superblock.group_bytes_max() && end <= self.tail.0 + self.capacity_bytes()
    }

    /// Whether so many bytes are free in the ring beside the open group.
    pub fn has_space(&self, bytes: u64) -> bool {
        self.used_bytes() + bytes <= self.capacity_bytes()
    }

    /// Appends a record to the open group; answers its position.
    ///
    /// # Errors
    /// [`Full`], with nothing appended.
    pub fn append(&mut self, record: &Record<'_>) -> Result<Lsn, Full> {
        if !self.has_room(record.padded_bytes()) {
            return Err(Full);
        }
        let at = self.open.append(record);
        Ok(Lsn(self.head.0 + at as u64))
    }

    /// Closes the open group and hands it out, unless it is empty or another one is under way.
    pub fn commit(&mut self) -> Option<Commit> {
        if self.written.is_some() || self.open.is_empty() {
            return None;
        }
        let builder = std::mem::take(&mut self.open);
        let lsn = self.head;
        let blocks = builder.finish(lsn, &self.superblock.log, self.durable);
        self.head = Lsn(lsn.0 + (blocks.len() * BLOCK_BYTES) as u64);
        self.written = Some(self.head);
        let first = self.superblock.place(lsn);
        let to_end = (self.superblock.bytes_end() - first) as usize / BLOCK_BYTES;
        let pieces = if blocks.len() <= to_end {
            vec![(first, blocks.len())]
        } else {
            let start = self.superblock.place(Lsn(0));
            vec![(first, to_end), (start, blocks.len() - to_end)]
        };
        Some(Commit { blocks, pieces })
    }

    /// The group under way is durable.
    pub fn committed(&mut self) {
        self.durable = self.written.take().expect("a group is under way");
    }

    /// Makes a superblock that frees everything before `checkpoint`, which must be durable, unless
    /// that frees nothing or another one is under way.
    pub fn checkpoint(&mut self, checkpoint: Lsn) -> Option<Commit> {
        let checkpoint = Lsn(checkpoint.0 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64);
        assert!(checkpoint <= self.head, "what is freed was written");
        if self.superblock_in_flight || checkpoint <= self.tail {
            return None;
        }
        Some(self.next_superblock(checkpoint, false))
    }

    /// Makes the superblock that ends the log's use in order: nothing is to be replayed.
    pub fn close(&mut self) -> Commit {
        assert!(!self.superblock_in_flight && self.written.is_none(), "nothing is under way");
        self.next_superblock(self.head, true)
    }

    fn next_superblock(&mut self, checkpoint: Lsn, clean: bool) -> Commit {
        self.superblock.generation += 1;
        self.superblock.checkpoint = checkpoint;
        self.superblock.clean = clean;
        self.superblock_in_flight = true;
        let place = self.superblock.own_place();
        Commit { blocks: vec![self.superblock.encode()], pieces: vec![(place, 1)] }
    }

    /// The superblock under way is durable: the space it freed may be used.
    pub fn checkpointed(&mut self) {
        assert!(self.superblock_in_flight, "a superblock is under way");
        self.superblock_in_flight = false;
        self.tail = self.superblock.checkpoint;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DATA_START;

    fn writer() -> Writer {
        Writer::new(Superblock {
            log: [1; 16],
            mount: [2; 16],
            bytes: DATA_START + (16 << 20),
            generation: 1,
            checkpoint: Lsn(0),
            clean: true,
        })
    }

    #[test]
    fn records_of_a_moment_share_a_group_and_a_block() {
        let mut writer = writer();
        for file in 0..20 {
            writer.append(&Record::Write { file, offset: 0, data: &[7; 64] }).unwrap();
        }
        let commit = writer.commit().unwrap();
        assert_eq!(commit.pieces, [(crate::DATA_START, 1)]);
        assert!(writer.commit().is_none(), "nothing is open");
        writer.append(&Record::Truncate { file: 1, size: 0 }).unwrap();
        assert!(writer.commit().is_none(), "one group at a time");
        writer.committed();
        assert_eq!(writer.durable(), Lsn(4096));
        assert_eq!(writer.commit().unwrap().pieces, [(crate::DATA_START + 4096, 1)]);
    }

    #[test]
    fn the_ring_is_full_until_its_tail_is_freed_durably() {
        let mut writer = writer();
        let data = vec![1; 1 << 20];
        let record = Record::Write { file: 1, offset: 0, data: &data };
        let mut groups = 0;
        while writer.append(&record).is_ok() {
            writer.commit().unwrap();
            writer.committed();
            groups += 1;
        }
        assert!((14..16).contains(&groups), "{groups}");
        let end = writer.durable();
        let superblock = writer.checkpoint(end).unwrap();
        assert_eq!(superblock.pieces, [(0, 1)], "the older one's place");
        assert_eq!(writer.append(&record), Err(Full));
        writer.checkpointed();
        writer.append(&record).unwrap();
        let commit = writer.commit().unwrap();
        assert_eq!(commit.pieces.len(), 2, "past the end of the ring");
        assert_eq!(commit.pieces[1].0, crate::DATA_START);
    }
}
