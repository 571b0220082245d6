//! Rows: where in the ring groups may stand.
//! A rotational disk cannot write a block right behind the one that it has just written: when the next small
//! group comes, that place has passed under the disk's head, and returns a whole rotation later. So the ring is
//! divided into rows, and a group may stand anywhere in its row: first a gap ahead of the previous group; later
//! groups fill the gaps. Order is by LSN alone; a group's place is in its header. A row has as many bytes as
//! positions; the last row of the ring is shorter. A group stands in the row of its position. If it does not
//! fit there, it stands in the next row; the position after it is then computed as if the group began at that
//! row's start, and the skipped positions are unused. A group longer than a row begins at a row's start and
//! continues through the following rows. Rows of one block are a plain log: one group after the other.
//! Invariant: a row that is being filled has as many taken blocks as there are positions, in blocks, from its
//! first position to the head.

use crate::Lsn;
use crate::block::BLOCK_BYTES;
use crate::group::GroupHeader;
use crate::superblock::{DATA_START, Superblock};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Gap between a group and the next one, so that the next group's place has not passed under the disk's head
/// yet. At the measured 113 MB/s the gap passes in 1.16 ms: a write of the next group may begin up to 1 ms
/// after the previous group was durable. A larger gap delays every group; with a smaller one the groups of a
/// slow program come too late, and wait for a whole rotation.
const GAP_BYTES: u64 = 32 * BLOCK;

/// A row at one lap of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Its first position.
    pub(crate) start: Lsn,
    /// Where in the log it begins, bytes.
    pub(crate) place: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

impl Row {
    /// The first position after it.
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.start.0 + self.bytes)
    }

    fn place_end(&self) -> u64 {
        self.place + self.bytes
    }
}

impl Superblock {
    /// The row a position is in.
    pub(crate) fn row_of(&self, lsn: Lsn) -> Row {
        let ring = self.data_bytes();
        let length = u64::from(self.row_blocks) * BLOCK;
        let at = lsn.0 % ring;
        let start = at / length * length;
        let bytes = length.min(ring - start);
        Row { start: Lsn(lsn.0 - (at - start)), place: DATA_START + start, bytes }
    }

    /// The position after a group, if a group of its position and length may stand at its place.
    /// `header.lsn` is in range.
    pub(crate) fn after(&self, header: &GroupHeader) -> Option<Lsn> {
        if !header.lsn.0.is_multiple_of(BLOCK) || !header.place.is_multiple_of(BLOCK) {
            return None;
        }
        let holds = |row: &Row| (row.place..row.place_end()).contains(&header.place);
        let mut row = self.row_of(header.lsn);
        let mut from = header.lsn;
        if !holds(&row) {
            if from == row.start {
                return None;
            }
            row = self.row_of(row.end());
            from = row.start;
        }
        let bytes = header.blocks() * BLOCK;
        let to = Lsn(from.0 + bytes);
        let stands = match bytes > row.bytes {
            true => from == row.start && header.place == row.place,
            false => holds(&row) && header.place + bytes <= row.place_end() && to <= row.end(),
        };
        stands.then_some(to)
    }
}

/// The row that is being filled.
#[derive(Debug)]
pub(crate) struct Filling {
    row: Row,
    /// Its blocks.
    taken: Vec<bool>,
    /// The longest stretch of free blocks, bytes.
    longest: u64,
    /// Where the last group ends, bytes of the log.
    last_end: u64,
}

/// Where a group goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// In the row that is being filled.
    Here,
    /// In the row after it.
    Next,
    /// From the start of a row on, through the following rows.
    Through(Row),
}

impl Filling {
    /// At `head`. Its row is empty, so it does not matter which blocks count as taken.
    pub(crate) fn new(superblock: &Superblock, head: Lsn) -> Filling {
        let row = superblock.row_of(head);
        let mut filling =
            Filling { row, taken: Vec::new(), longest: 0, last_end: superblock.place(head) };
        filling.begin(row, head);
        filling
    }

    /// Begins a row whose part before `head` is taken.
    fn begin(&mut self, row: Row, head: Lsn) {
        let blocks = (row.bytes / BLOCK) as usize;
        let taken = ((head.0 - row.start.0) / BLOCK) as usize;
        self.row = row;
        self.taken.clear();
        self.taken.resize(taken, true);
        self.taken.resize(blocks, false);
        self.longest = row.bytes - taken as u64 * BLOCK;
    }

    fn find(&self, superblock: &Superblock, head: Lsn, bytes: u64) -> Where {
        if bytes <= self.longest {
            return Where::Here;
        }
        let fresh = head == self.row.start;
        let row = if fresh { self.row } else { superblock.row_of(self.row.end()) };
        if bytes > row.bytes { Where::Through(row) } else { Where::Next }
    }

    /// The position after a group of `bytes` at `head`.
    pub(crate) fn after(&self, superblock: &Superblock, head: Lsn, bytes: u64) -> Lsn {
        let from = match self.find(superblock, head, bytes) {
            Where::Here => head,
            Where::Next => self.row.end(),
            Where::Through(row) => row.start,
        };
        Lsn(from.0 + bytes)
    }

    /// Takes a place for a group of `bytes` at `head`: on a rotational disk, the next one to pass under the
    /// disk's head.
    pub(crate) fn take(&mut self, superblock: &Superblock, head: Lsn, bytes: u64) -> u64 {
        let found = self.find(superblock, head, bytes);
        let after = self.after(superblock, head, bytes);
        let place = match found {
            Where::Through(row) => {
                let last = superblock.row_of(after);
                self.begin(last, after);
                row.place
            }
            Where::Here | Where::Next => {
                if found == Where::Next {
                    let next = superblock.row_of(self.row.end());
                    self.begin(next, next.start);
                }
                self.take_hole(bytes)
            }
        };
        if after == self.row.end() {
            self.begin(superblock.row_of(after), after);
        }
        self.last_end = place + bytes;
        place
    }

    /// Takes the first hole of `bytes` after the gap, otherwise the first one of the row; there is one.
    fn take_hole(&mut self, bytes: u64) -> u64 {
        let count = (bytes / BLOCK) as usize;
        let ahead = self.last_end.saturating_add(GAP_BYTES);
        let ahead = (ahead.saturating_sub(self.row.place) / BLOCK) as usize;
        let hole = self.hole(ahead, count).or_else(|| self.hole(0, count));
        let hole = hole.expect("there is a hole as long as the longest");
        self.taken[hole..hole + count].fill(true);
        let longest = self.taken.split(|&taken| taken).map(<[bool]>::len).max().unwrap_or(0);
        self.longest = longest as u64 * BLOCK;
        self.row.place + hole as u64 * BLOCK
    }

    /// The first block from `from` on with `count` free ones.
    fn hole(&self, from: usize, count: usize) -> Option<usize> {
        let mut free = 0;
        for block in from..self.taken.len() {
            free = if self.taken[block] { 0 } else { free + 1 };
            if free == count {
                return Some(block + 1 - count);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GROUP_BYTES_MAX;
    use proptest::prelude::*;

    fn superblock(ring_blocks: u64, row_blocks: u32) -> Superblock {
        Superblock {
            log: [1; 16],
            mount: [2; 16],
            bytes: DATA_START + ring_blocks * BLOCK,
            generation: 1,
            checkpoint: Lsn(0),
            clean: false,
            row_blocks,
            nodes: crate::NODE_FIRST,
            features: 0,
        }
    }

    fn header(lsn: Lsn, blocks: u64, place: u64) -> GroupHeader {
        let bytes = (blocks * BLOCK) as u32;
        GroupHeader { crc: 0, lsn, log: [1; 16], bytes, records: 0, durable: Lsn(0), place }
    }

    /// Places groups from `head` on, and checks each. Returns where they stand, in blocks of the ring.
    fn fill(superblock: &Superblock, head: Lsn, groups: &[u64]) -> Vec<u64> {
        let mut filling = Filling::new(superblock, head);
        let mut head = head;
        let mut places = Vec::new();
        // The groups and their places, in the rows that are kept.
        let mut standing: Vec<(Row, u64, u64)> = Vec::new();
        for &blocks in groups {
            let after = filling.after(superblock, head, blocks * BLOCK);
            let row = superblock.row_of(head);
            let place = filling.take(superblock, head, blocks * BLOCK);
            let said = superblock.after(&header(head, blocks, place));
            assert_eq!(said, Some(after), "{blocks} blocks at {head} in {row:?} stand at {place}");
            let taken = filling.taken.iter().filter(|&&taken| taken).count() as u64;
            assert_eq!(taken * BLOCK, after.0 - filling.row.start.0);
            assert_eq!(filling.row, superblock.row_of(after));
            standing.retain(|(known, ..)| known.start.0 + superblock.data_bytes() > after.0);
            for block in 0..blocks {
                let at = superblock.ahead_of(place, block * BLOCK);
                assert!(standing.iter().all(|&(.., other)| other != at), "{at} is taken");
                standing.push((row, head.0, at));
            }
            places.push((place - DATA_START) / BLOCK);
            head = after;
        }
        places
    }

    #[test]
    fn rows_of_one_block_are_a_plain_log() {
        let superblock = superblock(20, 1);
        assert_eq!(fill(&superblock, Lsn(0), &[1, 4, 2, 5, 5, 5, 1]), [0, 1, 5, 7, 12, 17, 2]);
    }

    #[test]
    fn small_groups_leave_a_gap_and_fill_it_later() {
        let superblock = superblock(1024, 128);
        let places = fill(&superblock, Lsn(0), &[1; 128]);
        assert_eq!(places[..6], [32, 65, 98, 0, 33, 66]);
        let mut all = places;
        all.sort_unstable();
        assert_eq!(all, (0..128).collect::<Vec<_>>(), "no block is left out");
    }

    #[test]
    fn a_group_that_does_not_fit_its_row_stands_in_the_next() {
        let superblock = superblock(40, 10);
        let mut filling = Filling::new(&superblock, Lsn(8 * BLOCK));
        assert_eq!(filling.take(&superblock, Lsn(8 * BLOCK), 3 * BLOCK), DATA_START + 10 * BLOCK);
        let after = Lsn(13 * BLOCK);
        assert_eq!(filling.row, superblock.row_of(after));
        assert_eq!(filling.after(&superblock, after, 7 * BLOCK), Lsn(20 * BLOCK));
        let elsewhere = header(Lsn(10 * BLOCK), 3, DATA_START + 20 * BLOCK);
        assert_eq!(superblock.after(&elsewhere), None, "the group fits its own row");
    }

    #[test]
    fn the_last_row_ends_with_the_ring() {
        let superblock = superblock(45, 10);
        let last = superblock.row_of(Lsn((45 + 42) * BLOCK));
        let place = DATA_START + 40 * BLOCK;
        assert_eq!(last, Row { start: Lsn(85 * BLOCK), place, bytes: 5 * BLOCK });
        assert_eq!(superblock.row_of(last.end()).place, DATA_START);
        // A group longer than the row begins at its start and continues around the end of the ring.
        fill(&superblock, Lsn(40 * BLOCK), &[7, 3, 1]);
    }

    proptest! {
        #[test]
        fn groups_stand_where_a_reader_looks_and_do_not_overlap(
            ring in 16u64..300,
            part in 4u64..80,
            head in 0u64..1000,
            groups in prop::collection::vec(1u64..12, 1..100),
        ) {
            let superblock = superblock(ring, (ring / part).max(1) as u32);
            let most = ring / 4;
            let groups: Vec<u64> = groups.into_iter().map(|blocks| blocks.min(most)).collect();
            fill(&superblock, Lsn(head * BLOCK), &groups);
        }

        #[test]
        fn any_header_is_placed_or_rejected(
            lsn in 0u64..1 << 63,
            bytes in 64u32..=GROUP_BYTES_MAX as u32,
            place in any::<u64>(),
            row_blocks in 1u32..1000,
        ) {
            let superblock = superblock(4000, row_blocks);
            let place = DATA_START + place % superblock.data_bytes();
            let header = GroupHeader { bytes, ..header(Lsn(lsn), 1, place) };
            if let Some(after) = superblock.after(&header) {
                prop_assert!(after.0 > lsn);
            }
        }
    }
}
