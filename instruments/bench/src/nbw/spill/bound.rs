//! How fast small random writes could be at most once the redo log is full.
//!
//! From then on a patch is accepted only when one has gone home, and patches go home by sweeps: the
//! log is read, the file is read and written, each once, in the order of its blocks. So in the time
//! of a sweep as many writes are accepted as patches went home with it, and at most everything that
//! log and patch memory hold goes:
//!
//! ```text
//! patches a sweep = log / (I/O size + 32 B) + patch memory / (I/O size + 152 B)
//! sweep           = (log read + file read + file written) at the drive's sequential rate
//!                   + one positioning for each MiB of these
//! bound           = patches a sweep / sweep
//! ```
//!
//! It is a bound from above, for it leaves out that what is written meanwhile has to be appended to
//! the log by the same arm. It is none for a file of which a sweep's patches leave most untouched.

use crate::disk::{Model, pass};
use crate::nbw::bound::PATCH_OVERHEAD_BYTES;

/// What a patch takes in the log beyond its bytes: its record's header.
const RECORD_OVERHEAD_BYTES: u64 = 32;
/// How much is moved between two positionings.
const RUN_BYTES: u64 = 1 << 20;

/// What the bound follows from, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// One write.
    pub io: u64,
    /// The file.
    pub file: u64,
    /// Patch memory.
    pub patches: u64,
    /// The log.
    pub log: u64,
}

impl Sizes {
    fn patches_a_sweep(self) -> u64 {
        self.log / (self.io + RECORD_OVERHEAD_BYTES)
            + self.patches / (self.io + PATCH_OVERHEAD_BYTES)
    }

    /// `None` where the disk sets no bound.
    fn sweep_seconds(self, model: Model) -> Option<f64> {
        let (read, written) = (self.log + self.file, self.file);
        pass::seconds(model, read, written, (read + written).div_ceil(RUN_BYTES))
    }

    /// Operations a second; `None` where the disk sets no bound.
    pub fn ops_per_s(self, model: Model) -> Option<f64> {
        Some(self.patches_a_sweep() as f64 / self.sweep_seconds(model)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { io: 512, file: 1 << 30, patches: 16 << 20, log: 128 << 20 };

    #[test]
    fn a_sweep_takes_home_what_log_and_memory_hold() {
        assert_eq!(SIZES.patches_a_sweep(), 246_723 + 25_266);
        assert_eq!(Sizes { log: 0, ..SIZES }.patches_a_sweep(), 25_266);
    }

    #[test]
    fn a_sweep_passes_the_log_once_and_the_file_twice() {
        // 2176 MiB at 113 MB/s are 20.2 s, and 2176 positionings of 6.17 ms are 13.4 s.
        let sweep = SIZES.sweep_seconds(Model::Hdd).unwrap();
        assert!((sweep - 33.6).abs() < 0.1, "{sweep}");
        let bound = SIZES.ops_per_s(Model::Hdd).unwrap();
        assert!((bound - 271_989.0 / sweep).abs() < 1e-6, "{bound}");
        assert_eq!(SIZES.ops_per_s(Model::None), None);
    }
}
