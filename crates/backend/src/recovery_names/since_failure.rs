//! What a note says of the time after the log had failed.

use std::collections::{HashMap, HashSet};

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
    pub(super) removed: HashSet<NodeId>,
    /// Names that some of these had.
    pub(super) left: HashSet<Place>,
}

/// What a note says since the log failed.
pub(super) fn since_failure(noted: &[Noted]) -> &[Noted] {
    let failed = noted.iter().rposition(|line| *line == Noted::Failed);
    failed.map_or(&[], |at| &noted[at + 1..])
}

/// Steps that say where home had nodes when the log failed, and the nodes that steps changed or replaced after that.
fn beginning(noted: &[Noted]) -> (Vec<(NodeId, Place)>, HashSet<NodeId>) {
    let mut changed = HashSet::new();
    let mut places = Vec::new();
    let mut last = HashMap::new();
    for line in since_failure(noted) {
        let Noted::Step(step, stage) = line else { continue };
        if let Some(to) = &step.to
            && let Some(replaced) = last.insert(to, step.node).filter(|node| *node != step.node)
        {
            changed.insert(replaced);
        }
        match (stage, &step.from, &step.to) {
            (Stage::Done, None, Some(at)) if !changed.contains(&step.node) => {
                places.push((step.node, at.clone()));
            }
            _ => drop(changed.insert(step.node)),
        }
    }
    (places, changed)
}

/// Where home had nodes before they were changed by any step, as the note says it. Of those that are in `logged`, since the log
/// speaks of them, only those that steps changed.
pub(super) fn places_before(noted: &[Noted], logged: &HashSet<NodeId>) -> Vec<(NodeId, Place)> {
    let (mut places, changed) = beginning(noted);
    places.retain(|(node, at)| {
        at.parent() != NodeId::PARKING && (changed.contains(node) || !logged.contains(node))
    });
    places
}

/// The nodes that steps changed.
pub(super) fn nodes_of_steps(noted: &[Noted]) -> HashSet<NodeId> {
    beginning(noted).1
}

/// The nodes that home had at some time, as the steps say.
pub(super) fn nodes_at_home(noted: &[Noted]) -> HashSet<NodeId> {
    let nodes = since_failure(noted).iter().filter_map(|line| match line {
        Noted::Step(step, Stage::Done) if step.to.is_some() => Some(step.node),
        _ => None,
    });
    nodes.collect()
}
