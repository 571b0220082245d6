//! One preallocated file as a row of slots of one I/O size: which slot an operation goes to, what
//! stands there after a number of writes, and putting back what was prepared.
//!
//! Owns the order of operations: reads and writes are numbered from 0 each, and everything follows
//! from a number. Bytes after the last whole slot are never touched.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::content::Random;
use crate::error::{Doing, Error, Result};
use crate::page::{PAGE, PAGE_BYTES};
use crate::workload::prepared::{Prepared, compare};
use crate::workload::stamp::Stamps;

/// The seed of the prepared content. It is the same for all loads, so that they can share a file.
pub const PREPARED_SEED: u64 = 0x7072_6570;
/// Tells the sequence of reads from that of writes.
const READS: u64 = 0x7265_6164;

/// What is run on the file.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// Bytes of a slot, and of an operation.
    pub io_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Whether slots are drawn at random, uniformly over the file, or taken from the start on and,
    /// after the last, from the start again.
    pub random: bool,
    /// What the draws and the written bytes follow from.
    pub seed: u64,
}

impl Slots {
    /// How many there are.
    pub fn count(self) -> u64 {
        self.file_bytes / self.io_bytes
    }

    /// Where write number `write` goes.
    pub fn of_write(self, write: u64) -> u64 {
        self.of(self.seed, write)
    }

    /// Where read number `read` goes.
    pub fn of_read(self, read: u64) -> u64 {
        self.of(self.seed ^ READS, read)
    }

    fn of(self, seed: u64, operation: u64) -> u64 {
        if self.random {
            Random::of(seed, operation).below(self.count())
        } else {
            operation % self.count()
        }
    }

    /// The offset of a slot.
    pub fn offset(self, slot: u64) -> u64 {
        slot * self.io_bytes
    }

    /// What the writes put there.
    pub fn stamps(self) -> Stamps {
        Stamps::new(self.seed)
    }

    /// For each slot the number of its last write plus one, or 0, after the first `writes` writes.
    fn last_writes(self, writes: u64) -> Result<Vec<u32>> {
        let mut last = vec![0; self.count() as usize];
        for write in 0..writes {
            let number = u32::try_from(write + 1).map_err(|_| {
                Error::answer("the load", format!("{writes} writes are more than can be checked"))
            })?;
            last[self.of_write(write) as usize] = number;
        }
        Ok(last)
    }

    /// Compares every byte of the file with what `writes` writes leave there.
    pub fn verify(self, path: &Path, writes: u64) -> Result<()> {
        self.verify_last(path, &self.last_writes(writes)?)
    }

    /// The same, by each slot's last write: its number plus one, or 0 where there was none.
    pub fn verify_last(self, path: &Path, last: &[u32]) -> Result<()> {
        let mut prepared = Prepared::new(PREPARED_SEED);
        let mut slot_bytes = vec![0; self.io_bytes as usize];
        let expect = |page: u64, bytes: &mut [u8; PAGE_BYTES]| {
            bytes.copy_from_slice(prepared.page(page));
            for slot in self.slots_in(page) {
                if let Some(write) = last[slot as usize].checked_sub(1) {
                    self.stamps().fill(u64::from(write), &mut slot_bytes);
                    overlay(bytes, page * PAGE, &slot_bytes, self.offset(slot));
                }
            }
        };
        compare(path, self.file_bytes, expect, |byte| self.describe(path, byte, last))
    }

    /// The slots that lie in a page, in part at least.
    fn slots_in(self, page: u64) -> std::ops::Range<u64> {
        let end = ((page + 1) * PAGE).div_ceil(self.io_bytes).min(self.count());
        (page * PAGE / self.io_bytes).min(end)..end
    }

    /// What is wrong with the slot at `byte`, for a person.
    fn describe(self, path: &Path, byte: u64, last: &[u32]) -> String {
        let slot = byte / self.io_bytes;
        let wanted = match last.get(slot as usize).copied() {
            None | Some(0) => "it was never written".to_owned(),
            Some(write) => format!("its last write is number {}", write - 1),
        };
        let mut found = vec![0; self.io_bytes as usize];
        let read =
            File::open(path).and_then(|file| file.read_exact_at(&mut found, self.offset(slot)));
        let write = self.stamps().write_of(&found);
        let holds = if read.is_err() {
            "cannot be read".to_owned()
        } else if Prepared::new(PREPARED_SEED).matches(self.offset(slot), &found) {
            "holds what was prepared".to_owned()
        } else if last.get(slot as usize).is_some_and(|last| write < u64::from(*last)) {
            format!("begins like write number {write}")
        } else {
            "begins like no write there".to_owned()
        };
        format!("slot {slot} of {} bytes {holds}; {wanted}", self.io_bytes)
    }

    /// Writes what was prepared over each page that `writes` writes changed, and syncs the file.
    pub fn reset(self, path: &Path, writes: u64) -> Result<()> {
        self.reset_last(path, &self.last_writes(writes)?)
    }

    /// The same, by each slot's last write.
    pub fn reset_last(self, path: &Path, last: &[u32]) -> Result<()> {
        let mut changed = vec![false; self.file_bytes.div_ceil(PAGE) as usize];
        for (slot, _) in (0..).zip(last).filter(|(_, last)| **last > 0) {
            let start = self.offset(slot);
            let end = (start + self.io_bytes).div_ceil(PAGE);
            changed[(start / PAGE) as usize..end as usize].fill(true);
        }
        let file = OpenOptions::new().write(true).open(path).doing("open", path)?;
        let mut prepared = Prepared::new(PREPARED_SEED);
        let mut page = 0;
        for run in changed.chunk_by(|one, other| one == other) {
            let end = ((page + run.len() as u64) * PAGE).min(self.file_bytes);
            if run[0] {
                prepared.write(&file, path, page * PAGE, end - page * PAGE)?;
            }
            page += run.len() as u64;
        }
        file.sync_all().doing("sync", path)
    }
}

/// Copies the part of `from` (which stands at `from_offset` of a file) that lies in `page` (which
/// stands at `page_offset`) into it.
fn overlay(page: &mut [u8; PAGE_BYTES], page_offset: u64, from: &[u8], from_offset: u64) {
    let start = page_offset.max(from_offset);
    let end = (page_offset + PAGE).min(from_offset + from.len() as u64);
    if start < end {
        let length = (end - start) as usize;
        page[(start - page_offset) as usize..][..length]
            .copy_from_slice(&from[(start - from_offset) as usize..][..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: Slots = Slots { io_bytes: 1536, file_bytes: 10 * PAGE, random: true, seed: 3 };

    #[test]
    fn slots_of_a_page_include_those_that_cross_its_ends() {
        assert_eq!(SLOTS.slots_in(0), 0..3);
        assert_eq!(SLOTS.slots_in(1), 2..6);
        assert_eq!(SLOTS.slots_in(9), 24..26, "the file's end is not a whole slot");
        let large = Slots { io_bytes: 2 * PAGE, ..SLOTS };
        assert_eq!(large.slots_in(3), 1..2);
    }

    #[test]
    fn the_order_follows_from_the_numbers_and_covers_the_file() {
        let mut seen = [0; 26];
        for write in 0..2000 {
            seen[SLOTS.of_write(write) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (30..160).contains(count)), "{seen:?}");
        let differ = (0..100).filter(|n| SLOTS.of_write(*n) != SLOTS.of_read(*n)).count();
        assert!(differ > 80, "reads and writes in step");
        let sequential = Slots { random: false, ..SLOTS };
        assert_eq!((sequential.of_write(25), sequential.of_write(26)), (25, 0));
    }

    #[test]
    fn overlays_only_what_is_in_the_page() {
        let mut page = [0; PAGE_BYTES];
        overlay(&mut page, PAGE, &[7; 10], PAGE - 4);
        assert_eq!((page[5], page[6]), (7, 0));
        overlay(&mut page, PAGE, &[8; 10], 2 * PAGE - 1);
        assert_eq!((page[PAGE_BYTES - 2], page[PAGE_BYTES - 1]), (0, 8));
        overlay(&mut page, PAGE, &[9; 10], 5 * PAGE);
        assert!(!page.contains(&9));
    }
}
