//! What a note says of the time after the log had failed.

use std::collections::HashSet;

use weir_log::Stage;
use weir_names::{NodeId, Place};

use super::note::Noted;

/// What became of nodes after the log had failed, as far as the log does not say it.
#[derive(Debug, Default)]
pub(super) struct SinceFailure {
    /// Where nodes were then.
    pub(super) was: Vec<(NodeId, Place)>,
    /// Names under which home may have got them since.
    pub(super) may: Vec<(NodeId, Place)>,
    /// Nodes that were removed since.
    pub(super) removed: Vec<NodeId>,
}

/// What a note says since the log failed.
pub(super) fn since_failure(noted: &[Noted]) -> &[Noted] {
    let failed = noted.iter().rposition(|line| *line == Noted::Failed);
    failed.map_or(&[], |at| &noted[at + 1..])
}

/// The nodes of which steps say where home had them, before they are changed by any. `logged` are those that the log speaks of.
pub(super) fn places_before(noted: &[Noted], logged: &HashSet<NodeId>) -> Vec<(NodeId, Place)> {
    let mut changed = HashSet::new();
    let mut places = Vec::new();
    for line in since_failure(noted) {
        let Noted::Step(step, stage) = line else { continue };
        match (stage, &step.from, &step.to) {
            (Stage::Done, None, Some(at)) if !changed.contains(&step.node) => {
                if !logged.contains(&step.node) {
                    places.push((step.node, at.clone()));
                }
            }
            _ => drop(changed.insert(step.node)),
        }
    }
    places
}

/// The nodes that steps are about.
pub(super) fn nodes_of_steps(noted: &[Noted]) -> HashSet<NodeId> {
    let nodes = since_failure(noted).iter().filter_map(|line| match line {
        Noted::Step(step, _) => Some(step.node),
        _ => None,
    });
    nodes.collect()
}
