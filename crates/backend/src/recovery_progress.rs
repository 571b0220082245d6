//! The progress of a recovery: bytes done and bytes in all, shown to the user by `weir recover`.
//!
//! Counts the bytes of the log that were read: a replay reads the log twice, first to learn what it holds, then to bring the data home.
//! Between the two the names are brought home. So the second reading tells how much is left.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use weir_log::ReadLog;

use crate::log_file::LogFile;

const READING: u8 = 0;
const NAMES: u8 = 1;
const DATA: u8 = 2;

/// What a recovery does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// Reads the log.
    Reading,
    /// Brings names and attributes home.
    Names,
    /// Brings data home; this many bytes of the log are left. At 0 it is being made durable.
    Data {
        /// Bytes of the log.
        left: u64,
    },
}

/// How far a recovery is. Shared by the recovery and who looks.
#[derive(Debug, Default)]
pub struct RecoveryProgress {
    phase: AtomicU8,
    first: AtomicU64,
    second: AtomicU64,
}

impl RecoveryProgress {
    /// What it does now.
    pub fn now(&self) -> RecoveryPhase {
        match self.phase.load(Ordering::Relaxed) {
            READING => RecoveryPhase::Reading,
            NAMES => RecoveryPhase::Names,
            _ => {
                let (all, done) =
                    (self.first.load(Ordering::Relaxed), self.second.load(Ordering::Relaxed));
                RecoveryPhase::Data { left: all.saturating_sub(done) }
            }
        }
    }

    pub(crate) fn names_begin(&self) {
        self.phase.store(NAMES, Ordering::Relaxed);
    }

    pub(crate) fn data_begins(&self) {
        self.phase.store(DATA, Ordering::Relaxed);
    }

    fn has_read(&self, bytes: usize) {
        let counter = match self.phase.load(Ordering::Relaxed) {
            READING => &self.first,
            _ => &self.second,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A log whose reading is counted.
pub(crate) struct Counted<'a> {
    pub(crate) log: &'a LogFile,
    pub(crate) progress: &'a RecoveryProgress,
}

impl ReadLog for Counted<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.progress.has_read(buffer.len());
        self.log.read(offset, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_reading_tells_what_is_left() {
        let progress = RecoveryProgress::default();
        progress.has_read(100);
        assert_eq!(progress.now(), RecoveryPhase::Reading);
        progress.names_begin();
        assert_eq!(progress.now(), RecoveryPhase::Names);
        progress.data_begins();
        assert_eq!(progress.now(), RecoveryPhase::Data { left: 100 });
        progress.has_read(70);
        assert_eq!(progress.now(), RecoveryPhase::Data { left: 30 });
        progress.has_read(70);
        assert_eq!(progress.now(), RecoveryPhase::Data { left: 0 });
    }
}
