//! The writer: collects records in the open group, and decides where its blocks go.
//!
//! Owns positions and the open group. Does not decide when a group is closed, and writes nothing:
//! its caller takes a [`Commit`], makes it durable, and reports that.
//!
//! Invariants:
//! - tail <= durable <= written <= head, all within one ring's length of the start of tail's row;
//! - at most one group is in flight: a torn group is the log's last;
//! - a node number is assigned once, and only below the bound in a durable superblock, so that the log's next
//!   use knows which numbers may be used;
//! - nothing in the tail's row or after it is overwritten, except bytes from before this use of the log. The
//!   tail is that of the last durable superblock.

use std::collections::VecDeque;

use crate::Lsn;
use crate::block::{BLOCK_BYTES, Block};
use crate::group::Builder;
use crate::record::Record;
use crate::rows::Filling;
use crate::superblock::{DATA_START, Superblock};

/// Blocks to write, and to make durable together.
#[derive(Debug)]
pub struct Commit {
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// The pieces: place in the log in bytes, and number of blocks.
    pub pieces: Vec<(u64, usize)>,
}

impl Commit {
    /// The superblock's generation, if this is the write of a superblock.
    pub fn generation(&self) -> Option<u64> {
        let (place, _) = *self.pieces.first()?;
        let block = self.blocks.first().filter(|_| place < DATA_START)?;
        Superblock::decode(&block.0).ok().map(|superblock| superblock.generation)
    }
}

/// The log has no room for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log is full")]
pub struct Full;

/// Appends to a log.
#[derive(Debug)]
pub struct Writer {
    /// The superblock on disk, or in flight to it.
    superblock: Superblock,
    /// Whether it is in flight.
    superblock_in_flight: bool,
    /// The checkpoint of the last superblock that is durable: the rows before it are free.
    tail: Lsn,
    durable: Lsn,
    /// The end of the group in flight.
    written: Option<Lsn>,
    /// Where the open group begins.
    head: Lsn,
    /// The next node number.
    node: u64,
    /// Numbers below this one may be assigned.
    nodes_end: u64,
    open: Builder,
    filling: Filling,
    /// The places of groups from the tail on, in order.
    places: VecDeque<Placed>,
}

/// A group that was closed.
#[derive(Clone, Copy, Debug)]
struct Placed {
    lsn: Lsn,
    blocks: u32,
    place: u64,
}

impl Placed {
    /// The position after its last block.
    fn end(&self) -> Lsn {
        Lsn(self.lsn.0 + u64::from(self.blocks) * BLOCK_BYTES as u64)
    }
}

impl Writer {
    /// Continues a log that has nothing to replay, at its checkpoint. `superblock` is durable and does not mark
    /// the log as clean: see [`Superblock::next_use`].
    pub fn new(superblock: Superblock) -> Writer {
        let head = superblock.checkpoint;
        Writer {
            superblock,
            superblock_in_flight: false,
            tail: head,
            durable: head,
            written: None,
            head,
            node: superblock.nodes,
            nodes_end: superblock.nodes_end(),
            open: Builder::default(),
            filling: Filling::new(&superblock, head),
            places: VecDeque::new(),
        }
    }

    /// Everything before this position is durable.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Where the open group begins.
    pub fn head(&self) -> Lsn {
        self.head
    }

    /// Where the next record goes; all earlier records are before it.
    pub fn position(&self) -> Lsn {
        match self.open.is_empty() {
            true => self.head,
            false => Lsn(self.head.0 + self.open.len() as u64),
        }
    }

    /// The rows before this position are free.
    pub fn tail(&self) -> Lsn {
        self.tail
    }

    /// A superblock for a [`crate::Scan`] from a group that is still kept. The group in flight may be torn.
    pub fn from_group(&self, group: Lsn) -> Superblock {
        Superblock { checkpoint: group, clean: false, ..self.superblock }
    }

    /// Bytes of the rows from the tail to the head, and of the open group.
    pub fn used_bytes(&self) -> u64 {
        let open = if self.open.is_empty() { 0 } else { self.open.padded_bytes() };
        self.head.0 - self.superblock.row_of(self.tail).start.0 + open
    }

    /// Bytes the ring holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.superblock.data_bytes()
    }

    /// Longest group, bytes.
    pub fn group_bytes_max(&self) -> usize {
        self.superblock.group_bytes_max()
    }

    /// Whether records of `bytes` in all, padding counted, can be appended to the open group.
    pub fn has_room(&self, bytes: usize) -> bool {
        let len = self.open.len() + bytes;
        let padded = len.next_multiple_of(BLOCK_BYTES) as u64;
        len <= self.superblock.group_bytes_max()
            && self.filling.after(&self.superblock, self.head, padded)
                <= self.superblock.limit(self.tail)
    }

    /// Whether `bytes` bytes are free in the ring, not counting the open group and the part of its row that is
    /// lost if the group does not fit there.
    pub fn has_space(&self, bytes: u64) -> bool {
        self.used_bytes() + self.lost_bytes_max() + bytes <= self.capacity_bytes()
    }

    /// The most bytes of a row that are lost if a group does not fit there.
    pub fn lost_bytes_max(&self) -> u64 {
        (u64::from(self.superblock.row_blocks) - 1) * BLOCK_BYTES as u64
    }

    /// A number for a file, unique in this log for ever. `None` if no number is left below the bound of the
    /// last durable superblock, or at all.
    pub fn new_node(&mut self) -> Option<u64> {
        let node = self.node;
        (node < self.nodes_end).then(|| {
            self.node += 1;
            node
        })
    }

    /// Appends a record to the open group; returns its position.
    ///
    /// # Errors
    /// [`Full`]; nothing was appended then.
    pub fn append(&mut self, record: &Record<'_>) -> Result<Lsn, Full> {
        if !self.has_room(record.padded_bytes()) {
            return Err(Full);
        }
        let at = self.open.append(record);
        Ok(Lsn(self.head.0 + at as u64))
    }

    /// Closes the open group and returns it, unless it is empty or another one is in flight.
    pub fn commit(&mut self) -> Option<Commit> {
        if self.written.is_some() || self.open.is_empty() {
            return None;
        }
        let builder = std::mem::take(&mut self.open);
        let lsn = self.head;
        let bytes = builder.padded_bytes();
        self.head = self.filling.after(&self.superblock, lsn, bytes);
        let place = self.filling.take(&self.superblock, lsn, bytes);
        let blocks = builder.finish(lsn, place, &self.superblock.log, self.durable);
        self.written = Some(self.head);
        let count = u32::try_from(blocks.len()).expect("a group is bounded");
        self.places.push_back(Placed { lsn, blocks: count, place });
        Some(Commit { pieces: self.superblock.around(place, blocks.len()), blocks })
    }

    /// Where the group begins that contains a position from the tail on, or the open group.
    pub fn group_of(&self, lsn: Lsn) -> Lsn {
        let next = self.places.partition_point(|group| group.lsn <= lsn);
        match next.checked_sub(1).and_then(|nth| self.places.get(nth)) {
            _ if lsn >= self.head => self.head,
            Some(group) => group.lsn,
            None => self.tail,
        }
    }

    /// Place of the block that contains a position, bytes of the log. `None` if the position is in no closed
    /// group that is still kept.
    pub fn place(&self, lsn: Lsn) -> Option<u64> {
        let next = self.places.partition_point(|group| group.lsn <= lsn);
        let group = self.places.get(next.checked_sub(1)?)?;
        let first = lsn.0 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        (first < group.end().0).then(|| self.superblock.ahead_of(group.place, first - group.lsn.0))
    }

    /// The group in flight is durable.
    pub fn committed(&mut self) {
        self.durable = self.written.take().expect("a group is in flight");
    }

    /// Makes a superblock that frees everything before `checkpoint`, which must be durable. `None` if that
    /// frees nothing or another superblock is in flight.
    pub fn checkpoint(&mut self, checkpoint: Lsn) -> Option<Commit> {
        let checkpoint = Lsn(checkpoint.0 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64);
        assert!(checkpoint <= self.head, "only written groups are freed");
        if self.superblock_in_flight || checkpoint <= self.tail {
            return None;
        }
        Some(self.next_superblock(checkpoint, false))
    }

    /// Makes the superblock that closes the log: nothing is to be replayed.
    pub fn close(&mut self) -> Commit {
        assert!(!self.superblock_in_flight && self.written.is_none(), "nothing is in flight");
        self.next_superblock(self.head, true)
    }

    fn next_superblock(&mut self, checkpoint: Lsn, clean: bool) -> Commit {
        self.superblock.generation += 1;
        self.superblock.checkpoint = checkpoint;
        self.superblock.clean = clean;
        self.superblock.nodes = self.node;
        self.superblock_in_flight = true;
        let place = self.superblock.own_place();
        Commit { blocks: vec![self.superblock.encode()], pieces: vec![(place, 1)] }
    }

    /// The superblock in flight is durable: the space that it freed may be used.
    pub fn checkpointed(&mut self) {
        assert!(self.superblock_in_flight, "a superblock is in flight");
        self.superblock_in_flight = false;
        self.tail = self.superblock.checkpoint;
        self.nodes_end = self.superblock.nodes_end();
        while self.places.front().is_some_and(|group| group.lsn < self.tail) {
            self.places.pop_front();
        }
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
            row_blocks: 1,
            nodes: crate::NODE_FIRST,
            features: 0,
        })
    }

    #[test]
    fn a_node_number_is_assigned_once_whatever_superblock_is_durable_at_a_crash() {
        let mut used = std::collections::HashSet::new();
        let mut on_disk = writer().superblock;
        for life in 0..40u64 {
            let mut writer = Writer::new(on_disk.next_use(on_disk.checkpoint));
            on_disk = writer.superblock;
            for step in 0..life % 5 {
                for _ in 0..3 {
                    assert!(used.insert(writer.new_node().unwrap()), "life {life}, step {step}");
                }
                writer.append(&Record::Truncate { file: 1, size: 0 }).unwrap();
                writer.commit().unwrap();
                writer.committed();
                let superblock = match step {
                    3 => writer.close(),
                    _ => writer.checkpoint(writer.durable()).unwrap(),
                };
                // Cut before the superblock is written, after that, or after it is known to be durable.
                if life % 3 > 0 {
                    on_disk = Superblock::decode(&superblock.blocks[0].0).unwrap();
                }
                if life % 3 < 2 {
                    break;
                }
                writer.checkpointed();
                if on_disk.clean {
                    break;
                }
            }
        }
        assert!(used.len() > 100);
    }

    #[test]
    fn numbers_beyond_the_bound_of_the_superblock_are_not_assigned() {
        let superblock = Superblock { nodes: (1 << 62) - 2, ..writer().superblock };
        let mut writer = Writer::new(superblock);
        assert!(writer.new_node().is_some() && writer.new_node().is_some());
        assert_eq!(writer.new_node(), None);
    }

    #[test]
    fn small_records_share_a_group_and_a_block() {
        let mut writer = writer();
        for file in 0..20 {
            writer.append(&Record::Write { file, offset: 0, data: &[7; 64] }).unwrap();
        }
        let commit = writer.commit().unwrap();
        assert_eq!(commit.pieces, [(crate::DATA_START, 1)]);
        assert!(writer.commit().is_none(), "the open group is empty");
        writer.append(&Record::Truncate { file: 1, size: 0 }).unwrap();
        assert!(writer.commit().is_none(), "one group at a time");
        writer.committed();
        assert_eq!(writer.durable(), Lsn(4096));
        assert_eq!(writer.commit().unwrap().pieces, [(crate::DATA_START + 4096, 1)]);
    }

    #[test]
    fn closed_groups_are_found_until_they_are_freed() {
        let superblock = Superblock { row_blocks: 256, ..writer().superblock };
        let mut writer = Writer::new(superblock);
        let mut groups = Vec::new();
        for len in [100, 20_000, 100, 9000] {
            let data = vec![3; len];
            writer.append(&Record::Truncate { file: 1, size: 9 }).unwrap();
            let lsn = writer.append(&Record::Write { file: 1, offset: 0, data: &data }).unwrap();
            assert_eq!(writer.place(lsn), None, "its group is not closed yet");
            let commit = writer.commit().unwrap();
            writer.committed();
            groups.push((lsn, len, commit));
        }
        for (lsn, len, commit) in &groups {
            let (place, blocks) = commit.pieces[0];
            assert_eq!(writer.place(*lsn), Some(place));
            let last = Lsn(lsn.0 + 31 + *len as u64);
            let last_place = place + (blocks as u64 - 1) * BLOCK_BYTES as u64;
            assert_eq!(writer.place(last), Some(last_place));
        }
        assert_eq!(writer.place(writer.head()), None);
        writer.checkpoint(Lsn(groups[1].0.0 / 4096 * 4096)).unwrap();
        writer.checkpointed();
        assert_eq!(writer.place(groups[0].0), None, "freed");
        assert!(writer.place(groups[1].0).is_some());
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
        assert_eq!(superblock.generation(), Some(writer.superblock.generation));
        assert_eq!(writer.append(&record), Err(Full));
        writer.checkpointed();
        writer.append(&record).unwrap();
        let commit = writer.commit().unwrap();
        assert_eq!(commit.pieces.len(), 2, "past the end of the ring");
        assert_eq!(commit.pieces[1].0, crate::DATA_START);
    }
}
