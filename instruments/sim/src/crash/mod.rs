//! Power cuts: the real engine and its redo log on devices that forget what was not made durable.
//!
//! Programs write, rewrite, truncate, extend, punch and sync a few files, and are idle for a minute or two
//! now and then. At every request to a device, and at its completion, the devices are copied and the power is
//! cut there: durable data stays, and each other sector of 512 bytes is kept or lost at random. Or the daemon
//! is killed, and home keeps everything written to it. The log is then replayed to what is left (the replay,
//! too, is stopped at a write and begun again), and the files are compared:
//!
//! - what was acknowledged as synced is there;
//! - home has not gone back: no byte and no size is older than what home had, or after a power cut had
//!   durable;
//! - nothing is invented: every byte was written there since, or is zero because of a cut or a hole;
//! - the same holds after a power cut directly after recovery.
//!
//! In a third of the lives syncs of home fail now and then, as on Linux: some of what was not durable is
//! dropped, the error is reported once, and the next sync succeeds. In a sixth the log fails once and for
//! good: what was synced before is still there, though home may go back to it.
//!
//! At the end of a life the devices themselves crash, and the next life goes on with what was recovered.
//!
//! The model (`history`, `files`, `edit`) knows nothing of the log: it numbers every change to a file, and
//! knows for every byte at home which change it is from.

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
    /// Crashes that were recovered from.
    pub cuts: u64,
    /// Crashes during recovery.
    pub recovery_cuts: u64,
    /// Kills of the daemon.
    pub kills: u64,
    /// Crashes after a rest.
    pub idle_cuts: u64,
    /// Crashes in lives with failing homes.
    pub failing_cuts: u64,
    /// Files that were removed.
    pub removals: u64,
    /// Periods without requests.
    pub rests: u64,
    /// Syncs that were answered by an error.
    pub failed_syncs: u64,
    /// Syncs of home that failed.
    pub failed_home_syncs: u64,
    /// Files written home from the log.
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

/// A run under one seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of lives of one set of files.
    pub lives: u32,
    /// Operations in each.
    pub operations: u32,
    /// On average, one of this many device requests is followed by a crash.
    pub sparse: u64,
    /// Safeguards that are switched off in the engine.
    pub undone: Vec<Undo>,
    /// Files are logged; otherwise every sync brings them home.
    pub logged: bool,
    /// Syncs of home fail in some lives.
    pub homes_fail: bool,
    /// The log fails in some lives.
    pub logs_fail: bool,
}

impl Plan {
    /// With all safeguards, a log, and homes that fail now and then.
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

/// Runs a plan under one seed. The counts include what happened before a failure.
///
/// # Errors
/// The violated promise, if there is one.
pub fn run(seed: u64, plan: &Plan, tally: &mut Tally) -> Result<(), Broken> {
    let mut rng = Rng::new(seed);
    let mut life = Life::first(plan, &mut rng);
    for _ in 0..plan.lives {
        life.live(plan.operations, plan.sparse, &mut rng, tally)?;
        life = life.reborn(&mut rng, tally)?;
    }
    Ok(())
}
