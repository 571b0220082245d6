//! What a trace's files hold, and whether they are there, at any point of a replay: the model that
//! reads are compared with during it and files after it.
//!
//! Invariant: operations on one file are done in the trace's order, so there is one answer.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::content::Random;
use crate::workload::mobibench::plan::{Action, Plan};
use crate::workload::prepared::Prepared;
use crate::workload::stamp::Stamps;

const SEED: u64 = 0x6d6f_6269;

/// The model of a whole plan.
pub struct Contents<'a> {
    plan: &'a Plan,
    stamps: Stamps,
    /// By file: its changes, each with the number of its operation, in their order.
    changes: Vec<Vec<(usize, Change)>>,
}

#[derive(Clone, Copy)]
enum Change {
    /// Opened so that it is there, and empty if so asked for.
    Opened {
        create: bool,
        truncate: bool,
    },
    Written {
        offset: u64,
        length: u64,
    },
    Unlinked,
}

impl<'a> Contents<'a> {
    /// The model of `plan`.
    pub fn new(plan: &'a Plan) -> Contents<'a> {
        let mut changes = vec![Vec::new(); plan.files.len()];
        for (number, operation) in plan.operations.iter().enumerate() {
            let change = match operation.action {
                Action::Open { flags, .. } => {
                    Change::Opened { create: flags.create, truncate: flags.truncate }
                }
                Action::Write { offset, length, .. } => Change::Written { offset, length },
                Action::Unlink => Change::Unlinked,
                _ => continue,
            };
            changes[operation.file].push((number, change));
        }
        Contents { plan, stamps: Stamps::new(SEED), changes }
    }

    /// Fills `bytes` with what the write that is operation number `operation` puts there.
    pub fn fill(&self, operation: usize, bytes: &mut [u8]) {
        self.stamps.fill(operation as u64, bytes);
    }

    /// What a file's prepared content follows from.
    pub fn seed(file: usize) -> u64 {
        Random::of(SEED, file as u64).next()
    }

    /// How many bytes a file has before operation number `before`, or `None` if it is not there.
    pub fn size(&self, file: usize, before: usize) -> Option<u64> {
        let mut size = self.plan.files[file].prepared;
        for change in self.changes_before(file, before) {
            size = match change {
                (_, Change::Opened { truncate: true, .. }) => Some(0),
                (_, Change::Opened { create: true, .. }) => Some(size.unwrap_or(0)),
                (_, Change::Opened { .. }) => size,
                (_, Change::Written { offset, length }) => {
                    size.map(|size| size.max(offset + length))
                }
                (_, Change::Unlinked) => None,
            };
        }
        size
    }

    /// What a read of `part` of a file sees before operation number `before`: less than asked for
    /// where the file ends.
    pub fn bytes(&self, file: usize, before: usize, part: Range<u64>) -> Vec<u8> {
        let size = self.size(file, before).unwrap_or(0);
        let end = part.end.min(size).max(part.start);
        let mut bytes = vec![0; (end - part.start) as usize];
        let prepared = self.plan.files[file].prepared.unwrap_or(0).min(end);
        if part.start < prepared {
            let length = (prepared - part.start) as usize;
            Prepared::new(Self::seed(file)).copy(part.start, &mut bytes[..length]);
        }
        for (number, change) in self.changes_before(file, before) {
            match *change {
                Change::Opened { truncate: true, .. } | Change::Unlinked => bytes.fill(0),
                Change::Opened { .. } => {}
                Change::Written { offset, length } => {
                    let (from, to) = (offset.max(part.start), (offset + length).min(end));
                    if from < to {
                        let mut written = vec![0; length as usize];
                        self.fill(*number, &mut written);
                        bytes[(from - part.start) as usize..(to - part.start) as usize]
                            .copy_from_slice(
                                &written[(from - offset) as usize..(to - offset) as usize],
                            );
                    }
                }
            }
        }
        bytes
    }

    /// The files that the operations below `before` change.
    pub fn changed(&self, before: usize) -> BTreeSet<usize> {
        (0..self.changes.len())
            .filter(|file| self.changes_before(*file, before).next().is_some())
            .collect()
    }

    fn changes_before(&self, file: usize, before: usize) -> impl Iterator<Item = &(usize, Change)> {
        self.changes[file].iter().take_while(move |(number, _)| *number < before)
    }
}
