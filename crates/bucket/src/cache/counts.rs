//! What a cache counts, and how it is told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// What was found and what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheCounts {
    /// Units that were found.
    pub hits: u64,
    /// Units that were not.
    pub misses: u64,
    /// What all units take on the disk, bytes.
    pub bytes: u64,
    /// Units that were fetched and not kept: the disk had no room, or was too slow.
    pub skipped: u64,
    /// Units that were not as they had been written.
    pub damaged: u64,
}

/// The same, as they are counted.
#[derive(Debug, Default)]
#[allow(missing_docs)] // They are those of CacheCounts.
pub struct Counts {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub bytes: AtomicU64,
    pub skipped: AtomicU64,
    pub damaged: AtomicU64,
    pub told_of_fault: AtomicBool,
}

impl Counts {
    /// As they are now.
    pub fn now(&self) -> CacheCounts {
        CacheCounts {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
        }
    }
}

/// Says something to who watches the program.
pub fn say(words: &str) {
    eprintln!("weir-bucket: {words}");
}
