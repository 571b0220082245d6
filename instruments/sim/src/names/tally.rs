//! What a run did, counted.

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Crashes that were recovered from.
    pub cuts: u64,
    /// Of these, kills of the daemon.
    pub kills: u64,
    /// Recoveries, whole ones and those that were cut.
    pub recoveries: u64,
    /// Recoveries that were cut.
    pub recovery_cuts: u64,
    /// Recoveries of a home that refused something.
    pub refused_recoveries: u64,
    /// Commands for home that recoveries executed.
    pub recovered: u64,
    /// Calls of programs.
    pub operations: u64,
    /// Of these, changes of names and attributes that succeeded.
    pub changes: u64,
    /// Commands for home of the mounts' trees.
    pub commands: u64,
    /// Commands that home refused.
    pub refused: u64,
    /// Syncs that were acknowledged.
    pub syncs: u64,
    /// Syncs that were answered by an error.
    pub failed_syncs: u64,
    /// Syncs of home that failed.
    pub failed_home_syncs: u64,
    /// Files written home from the log.
    pub redos: u64,
    /// Times that everything was home, and was compared.
    pub rests: u64,
    /// Changes that a sync had covered when a crash came, all of which were there after it.
    pub kept: u64,
    /// Files compared after crashes.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    /// Counts another run's.
    pub fn add(&mut self, other: &Tally) {
        for (mine, other) in self.all_mut().into_iter().zip(other.clone().all_mut()) {
            *mine += *other;
        }
    }

    fn all_mut(&mut self) -> [&mut u64; 18] {
        let Tally {
            cuts,
            kills,
            recoveries,
            recovery_cuts,
            refused_recoveries,
            recovered,
            operations,
            changes,
            commands,
            refused,
            syncs,
            failed_syncs,
            failed_home_syncs,
            redos,
            rests,
            kept,
            files,
            bytes,
        } = self;
        [
            cuts,
            kills,
            recoveries,
            recovery_cuts,
            refused_recoveries,
            recovered,
            operations,
            changes,
            commands,
            refused,
            syncs,
            failed_syncs,
            failed_home_syncs,
            redos,
            rests,
            kept,
            files,
            bytes,
        ]
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} cuts: {} power cuts and {} kills; {} recoveries, of which {} were cut and {} met a home that \
             refused, with {} commands; {} calls, {} changes of names, {} commands for home, {} refused; {} \
             acknowledged syncs, {} failed ones, {} failed syncs of home, {} redos, {} rests; {} promised \
             changes, {} files and {} bytes compared",
            self.cuts,
            self.cuts - self.kills,
            self.kills,
            self.recoveries,
            self.recovery_cuts,
            self.refused_recoveries,
            self.recovered,
            self.operations,
            self.changes,
            self.commands,
            self.refused,
            self.syncs,
            self.failed_syncs,
            self.failed_home_syncs,
            self.redos,
            self.rests,
            self.kept,
            self.files,
            self.bytes
        )
    }
}
