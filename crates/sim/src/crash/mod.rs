//! Power cuts: the real engine and its redo log on devices that forget what was not made durable.
//!
//! Programs write, rewrite, truncate, extend, punch and sync a few files, and now and then nobody does anything for
//! a minute or two. At every request to a device, and at the end of every one, the power is cut in thought: what is durable
//! stays, of the rest each sector of 512 bytes is there or not, by chance. Or the daemon is killed in thought, and home keeps
//! all that it was given. The log is then replayed to what is left (and that, too, is stopped at any of its writes and
//! begun again), and the files are compared:
//!
//! - what was acknowledged as synced is there;
//! - home has not gone back: no byte and no size is older than what home had, after a power cut what it had durable;
//! - nothing is invented: every byte is one that was written there since, or zero where a cut or a hole is;
//! - all of that again after a power cut that follows recovery at once.
//!
//! In a third of the lives syncs of home fail now and then, as Linux lets them fail: some of what was not durable is
//! dropped, the error is told once, and the next sync succeeds. In a sixth the log fails once and for good: what was synced
//! before is still there, though home may go back to that.
//!
//! At the end of a life it crashes in earnest: the next one goes on with what was recovered.
//!
//! The model (`history`, `files`, `edit`) knows nothing of the log: it has a number for every change to a file, and for every
//! byte at home the number of the change that it is of.

mod broken;
mod edit;
mod files;
mod history;
mod life;
mod log_disk;
mod undo;

use crate::rng::Rng;

pub use broken::{Broken, Crash};
pub use life::Life;
pub use undo::Undo;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Power cuts and kills that were recovered from.
    pub cuts: u64,
    /// Of these, those that stopped a recovery.
    pub recovery_cuts: u64,
    /// Of these, kills of the daemon.
    pub kills: u64,
    /// Of these, those after a rest.
    pub idle_cuts: u64,
    /// Of these, those with homes that fail.
    pub failing_cuts: u64,
    /// Files that were removed.
    pub removals: u64,
    /// Stretches in which nothing was asked for.
    pub rests: u64,
    /// Syncs that were answered by an error.
    pub failed_syncs: u64,
    /// Syncs of home that failed.
    pub failed_home_syncs: u64,
    /// Times that what the log held of a file was written home from there.
    pub redos: u64,
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
        self.kills += other.kills;
        self.idle_cuts += other.idle_cuts;
        self.failing_cuts += other.failing_cuts;
        self.removals += other.removals;
        self.rests += other.rests;
        self.failed_syncs += other.failed_syncs;
        self.failed_home_syncs += other.failed_home_syncs;
        self.redos += other.redos;
        self.bytes += other.bytes;
        self.syncs += other.syncs;
        self.groups += other.groups;
        self.checkpoints += other.checkpoints;
        self.spilled += other.spilled;
        self.log_reads += other.log_reads;
    }

    fn count(&mut self, crash: Crash) {
        self.cuts += 1;
        self.kills += u64::from(!crash.power);
        self.idle_cuts += u64::from(crash.idle);
        self.failing_cuts += u64::from(crash.failing);
    }
}

/// What is run under each seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Lives of one set of files.
    pub lives: u32,
    /// Operations in each.
    pub operations: u32,
    /// Each device request is followed by a crash in one of so many cases.
    pub sparse: u64,
    /// Fixes that the engine does without.
    pub undone: Vec<Undo>,
    /// Files are logged; or else every sync brings them home.
    pub logged: bool,
    /// Syncs of home fail in some lives.
    pub homes_fail: bool,
    /// The log fails in some lives.
    pub logs_fail: bool,
}

impl Plan {
    /// With all fixes, a log, and homes that fail now and then.
    pub fn new(lives: u32, operations: u32, sparse: u64) -> Plan {
        Plan {
            lives,
            operations,
            sparse,
            undone: Vec::new(),
            logged: true,
            homes_fail: true,
            logs_fail: true,
        }
    }
}

/// Runs a plan under one seed, and counts what happened, also up to where it failed.
///
/// # Errors
/// What was promised and not kept.
pub fn run(seed: u64, plan: &Plan, tally: &mut Tally) -> Result<(), Broken> {
    let mut rng = Rng::new(seed);
    let mut life = Life::first(plan, &mut rng);
    for _ in 0..plan.lives {
        life.live(plan.operations, plan.sparse, &mut rng, tally)?;
        life = life.reborn(&mut rng, tally)?;
    }
    Ok(())
}
