//! How a round went over time: its steps and, for contestants with a log, its two phases.

use super::bound::Sizes;
use super::phases;
use super::watch::Reading;
use crate::nbw::plan::Cell;
use crate::nbw::results::{Profile, Round};
use crate::workload::Outcome;

/// `round` with how it went over time: its steps and, for contestants with a log, its two phases.
pub fn over_time(
    round: Round,
    outcome: &Outcome,
    log: &[Reading],
    cell: &Cell,
    profile: &Profile,
) -> Round {
    let Some(writes) = &outcome.writes_over_time else { return round };
    let sizes = Sizes {
        io: cell.size_bytes,
        file: profile.file_bytes,
        patches: profile.patch_bytes,
        log: profile.log_bytes,
    };
    let mut phases = phases::split(writes, outcome.seconds, log);
    if let Some(phases) = &mut phases {
        phases.after_bound_ops_per_s = sizes.ops_per_s(cell.disk);
    }
    Round { phases, steps: phases::steps(writes, outcome.seconds, log), ..round }
}
