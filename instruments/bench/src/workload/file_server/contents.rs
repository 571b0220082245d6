//! What one thread's files hold after a number of its operations: the model that reads are compared
//! with during a load and files after it.
//!
//! Owns no bytes but the numbers and extents of writes; the bytes follow from them.

use std::collections::{BTreeMap, BTreeSet};

use crate::content::Random;
use crate::workload::file_server::set::{MODE, Share};
use crate::workload::file_server::stream::{Extent, Operation, Stream};
use crate::workload::prepared::Prepared;
use crate::workload::stamp::Stamps;

/// The model. Operations are applied in their order.
pub struct Contents {
    stamps: Stamps,
    applied: u64,
    /// By file: the numbers and places of its writes, in their order.
    writes: BTreeMap<u32, Vec<(u64, Extent)>>,
    /// Files whose mode was set.
    modes: BTreeMap<u32, u32>,
    /// Files made and not removed: directory and number.
    made: BTreeSet<(u32, u32)>,
}

impl Contents {
    /// As prepared. Written bytes follow from `seed` and `thread`.
    pub fn new(seed: u64, thread: u32) -> Contents {
        let seed = Random::of(seed, u64::from(thread) | 1 << 40).next();
        Contents {
            stamps: Stamps::new(seed),
            applied: 0,
            writes: BTreeMap::new(),
            modes: BTreeMap::new(),
            made: BTreeSet::new(),
        }
    }

    /// After the first `operations` of `stream`, which must be at its start.
    pub fn after(mut self, mut stream: Stream<'_>, operations: u64) -> Contents {
        for _ in 0..operations {
            self.apply(stream.next());
        }
        self
    }

    /// The next operation of the stream is done.
    pub fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Write(extent) => {
                self.writes.entry(extent.file).or_default().push((self.applied, extent));
            }
            Operation::SetAttr(file, mode) => {
                self.modes.insert(file, mode);
            }
            Operation::Create(directory, number) => {
                self.made.insert((directory, number));
            }
            Operation::Remove(directory, number) => {
                self.made.remove(&(directory, number));
            }
            _ => {}
        }
        self.applied += 1;
    }

    /// Fills `bytes` with what the next operation writes, if it is a write.
    pub fn next_write(&self, bytes: &mut [u8]) {
        self.stamps.fill(self.applied, bytes);
    }

    /// What a part of a file holds.
    pub fn bytes(&self, share: &Share, part: Extent) -> Vec<u8> {
        let mut bytes = vec![0; part.length as usize];
        Prepared::new(share.seed(part.file)).copy(u64::from(part.offset), &mut bytes);
        let part_end = part.offset + part.length;
        for (write, extent) in self.writes.get(&part.file).into_iter().flatten() {
            let start = part.offset.max(extent.offset);
            let end = part_end.min(extent.offset + extent.length);
            if start < end {
                let mut written = vec![0; extent.length as usize];
                self.stamps.fill(*write, &mut written);
                let length = (end - start) as usize;
                bytes[(start - part.offset) as usize..][..length]
                    .copy_from_slice(&written[(start - extent.offset) as usize..][..length]);
            }
        }
        bytes
    }

    /// A file's mode.
    pub fn mode(&self, file: u32) -> u32 {
        self.modes.get(&file).copied().unwrap_or(MODE)
    }

    /// Every part that was written, by file.
    pub fn written(&self) -> impl Iterator<Item = (u32, impl Iterator<Item = Extent>)> {
        self.writes.iter().map(|(file, writes)| (*file, writes.iter().map(|(_, extent)| *extent)))
    }

    /// Files whose mode was set.
    pub fn moded(&self) -> impl Iterator<Item = u32> {
        self.modes.keys().copied()
    }

    /// Files the load made and did not remove: directory and number.
    pub fn made(&self) -> impl Iterator<Item = (u32, u32)> {
        self.made.iter().copied()
    }
}
