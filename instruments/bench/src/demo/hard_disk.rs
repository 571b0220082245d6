//! The hard disk of the scenes that have one.

use crate::disk::Model;
use crate::error::Result;
use crate::stage::{Emulated, Run};

/// Its image takes as much of the real disk as is written.
const BYTES: u64 = 1 << 30;

/// An emulated hard disk with an empty ext4, as long as the run goes on.
pub fn hard_disk(run: &Run) -> Result<Emulated> {
    Emulated::start(run.ledger(), Model::Hdd, BYTES, None, &run.directory("hard-disk")?)
}
