//! Whether a read saw the newest write: checked after a load, from what reads saw during it.
//!
//! Owns a bounded sample of a reader's reads. It keeps no record of writes: their order follows
//! from their numbers.
//!
//! Invariant: a sample of bounded size, evenly spread over the load, however long it is.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::workload::slots::Slots;

const READS_MAX: usize = 1 << 18;

/// One read, as far as it matters. 12 bytes, because the log is part of the load's memory.
#[derive(Clone, Copy)]
struct Seen {
    slot: u32,
    /// The number of the write whose bytes it saw plus one, or 0 for what was prepared.
    saw: u32,
    /// Writes that had ended when the read began: it may not see less than these.
    ended: u32,
}

/// Reads of one load.
pub struct ReadLog {
    reads: Vec<Seen>,
    max: usize,
    /// One read in this many is kept.
    stride: u64,
    count: u64,
}

impl ReadLog {
    /// An empty log.
    pub fn new() -> ReadLog {
        ReadLog { reads: Vec::new(), max: READS_MAX, stride: 1, count: 0 }
    }

    /// Adds a read of `slot` that saw write number `saw - 1`, or what was prepared if that is 0,
    /// and began when the first `ended` writes had ended.
    pub fn note(&mut self, slot: u64, saw: u64, ended: u64) {
        let kept = self.count.is_multiple_of(self.stride);
        self.count += 1;
        if !kept {
            return;
        }
        // Beyond 32 bits nothing can be said; a load gets nowhere near.
        let narrow = |number| u32::try_from(number).ok();
        if let (Some(slot), Some(saw), Some(ended)) = (narrow(slot), narrow(saw), narrow(ended)) {
            self.reads.push(Seen { slot, saw, ended });
        }
        if self.reads.len() >= self.max {
            let mut keep = false;
            self.reads.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
        }
    }

    /// [`Error::Different`] if a read saw something older than a write to the same slot that had
    /// ended before the read began.
    pub fn check(&self, slots: Slots) -> Result<()> {
        let mut by_slot: HashMap<u32, Vec<Seen>> = HashMap::new();
        for read in &self.reads {
            by_slot.entry(read.slot).or_default().push(*read);
        }
        let ended = self.reads.iter().map(|read| read.ended).max().unwrap_or(0);
        for write in 0..ended {
            let Some(reads) = by_slot.get(&(slots.of_write(u64::from(write)) as u32)) else {
                continue;
            };
            if let Some(read) = reads.iter().find(|read| read.saw <= write && write < read.ended) {
                return Err(Error::Different(format!(
                    "a read of slot {} saw {}, when write number {write} of that slot had ended",
                    read.slot,
                    match read.saw.checked_sub(1) {
                        Some(saw) => format!("write number {saw}"),
                        None => "what was prepared".into(),
                    }
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: Slots = Slots { io_bytes: 4096, file_bytes: 8 * 4096, random: false, seed: 1 };

    #[test]
    fn an_old_value_is_right_until_a_newer_write_has_ended() {
        let check = |saw, ended| {
            let mut log = ReadLog::new();
            log.note(3, saw, ended);
            log.check(SLOTS)
        };
        // Slot 3 is written by writes 3, 11, 19, ...
        assert!(check(0, 3).is_ok());
        assert!(check(0, 4).is_err(), "prepared content after write 3 had ended");
        assert!(check(4, 11).is_ok());
        assert!(check(4, 12).is_err(), "write 3 after write 11 had ended");
        assert!(check(12, 4).is_ok(), "a write under way may be seen");
    }

    #[test]
    fn the_log_is_bounded_and_reaches_to_the_end() {
        let mut log = ReadLog { max: 100, ..ReadLog::new() };
        for read in 0..10_000 {
            log.note(read, 0, 0);
        }
        assert!(log.reads.len() < 100);
        assert_eq!(log.reads[0].slot, 0);
        assert!(log.reads.last().unwrap().slot > 9_700);
        let gaps: Vec<_> = log.reads.windows(2).map(|two| two[1].slot - two[0].slot).collect();
        assert!(gaps.iter().all(|gap| *gap == gaps[0]), "{gaps:?}");
    }
}
