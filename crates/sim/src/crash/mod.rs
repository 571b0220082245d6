//! Power cuts: the real engine and its redo log on devices that forget what was not made durable.
//!
//! Programs write, truncate, punch and sync a few files. At every request to a device, and at the
//! end of every one, the power is cut in thought: what is durable stays, of the rest each sector of
//! 512 bytes is there or not, by chance. The log is then replayed to what is left (and that, too, is
//! cut at any of its writes and begun again), and the files are compared with what programs were
//! promised: synced bytes exact, others old or new.
//!
//! At the end of a life the power is cut in earnest: the next one goes on with what was recovered.

mod edit;
mod files;
mod history;
mod log_disk;
mod programs;

use crate::rng::Rng;

pub use history::Broken;
pub use programs::Life;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Power cuts that were recovered from.
    pub cuts: u64,
    /// Of these, cuts during recovery.
    pub recovery_cuts: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Syncs that were acknowledged.
    pub syncs: u64,
    /// Groups the engines logged.
    pub groups: u64,
    /// Times the log's tail went on.
    pub checkpoints: u64,
    /// Pages whose patches left memory for the log.
    pub spilled: u64,
    /// Reads of the log that brought some back.
    pub log_reads: u64,
}

impl Tally {
    /// Counts another run's.
    pub fn add(&mut self, other: &Tally) {
        self.cuts += other.cuts;
        self.recovery_cuts += other.recovery_cuts;
        self.bytes += other.bytes;
        self.syncs += other.syncs;
        self.groups += other.groups;
        self.checkpoints += other.checkpoints;
        self.spilled += other.spilled;
        self.log_reads += other.log_reads;
    }
}

/// Some lives of one set of files under one seed, with so many operations each. Each device request
/// is followed by a cut in `sparse` cases.
///
/// # Errors
/// What was promised and not kept, with the seed's place of it.
pub fn run(seed: u64, lives: u32, operations: u32, sparse: u64) -> Result<Tally, Broken> {
    let mut rng = Rng::new(seed);
    let mut tally = Tally::default();
    let mut life = Life::first(&mut rng);
    for _ in 0..lives {
        life.live(operations, sparse, &mut rng, &mut tally)?;
        life = life.reborn(&mut rng, &mut tally)?;
    }
    Ok(tally)
}
