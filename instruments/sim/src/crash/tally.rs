//! What a run did, counted.

use super::broken::Crash;

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
    /// Times that all files were synced once home worked again.
    pub later_syncs: u64,
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
        self.later_syncs += other.later_syncs;
        self.redos += other.redos;
        self.bytes += other.bytes;
        self.syncs += other.syncs;
        self.groups += other.groups;
        self.checkpoints += other.checkpoints;
        self.spilled += other.spilled;
        self.log_reads += other.log_reads;
    }

    pub(super) fn count(&mut self, crash: Crash) {
        self.cuts += 1;
        self.kills += u64::from(!crash.power);
        self.idle_cuts += u64::from(crash.idle);
        self.failing_cuts += u64::from(crash.failing);
    }
}
