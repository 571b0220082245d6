//! Parts that are to be looked at: now, when the log is durable further, when something about a node changed, or when home
//! is tried again.
//!
//! A part may be queued more than once. The planner decides when it is taken, and may find that nothing is to be done.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::command::HomeError;
use crate::tree::part::Part;
use crate::tree::reports::Reports;
use crate::way::Place;

/// What is to be looked at now.
#[derive(Debug, PartialEq, Eq)]
enum Ready {
    One(Part),
    /// All that waited for this node when something about it changed.
    Woken(NodeId),
}

/// Why home refused a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) error: HomeError,
    /// The number of the last [`Queue::retry`] before it.
    pub(crate) retry: u64,
}

/// The parts that are not known to be as they should be.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ready: VecDeque<Ready>,
    uncommitted: BTreeMap<Lsn, Vec<Part>>,
    /// Parts that wait for a node.
    waiting: HashMap<NodeId, BTreeSet<Part>>,
    /// Parts that waited for a node about which something changed.
    woken: HashMap<NodeId, BTreeSet<Part>>,
    refused: BTreeMap<Part, Refusal>,
    /// What of this, and of what is being tried again, is to be reported.
    pub(crate) reports: Reports,
    /// How often what was refused was looked at again.
    retries: u64,
    /// Parts that somebody waits for: they come before others.
    urgent: BTreeSet<Part>,
    /// Everything before this position is durable.
    durable: Lsn,
}

impl Queue {
    /// Is to be looked at now.
    pub(crate) fn push(&mut self, part: Part) {
        let is_urgent = !self.urgent.is_empty() && self.urgent.contains(&part);
        let part = Ready::One(part);
        if is_urgent {
            self.ready.push_front(part);
        } else if self.ready.back() != Some(&part) {
            self.ready.push_back(part);
        }
    }

    /// Somebody waits for this: it comes before others until it is as it should be.
    pub(crate) fn urge(&mut self, part: Part) {
        if self.urgent.insert(part.clone()) {
            self.ready.push_front(Ready::One(part));
        }
    }

    /// Was changed at a position. If home refused it, home is asked again.
    pub(crate) fn changed(&mut self, lsn: Lsn, part: Part) {
        self.ask_again(&part);
        self.wait_for_commit(lsn, part);
    }

    /// Is to be looked at when a position is durable.
    pub(crate) fn wait_for_commit(&mut self, lsn: Lsn, part: Part) {
        if lsn < self.durable {
            return self.push(part);
        }
        self.uncommitted.entry(lsn).or_default().push(part);
    }

    /// Is to be looked at when something about a node changes.
    pub(crate) fn wait_for(&mut self, node: NodeId, part: Part) {
        self.waiting.entry(node).or_default().insert(part);
    }

    /// A command is under way on a node: whatever waits for it, and was to be looked at again, waits for the end of that.
    /// So a file with many links costs one look for each link, and not one for all others, too.
    pub(crate) fn wait_for_end(&mut self, node: NodeId, part: Part) {
        let mut waiting = self.woken.remove(&node).unwrap_or_default();
        waiting.insert(part);
        add(&mut self.waiting, node, waiting);
    }

    /// Home refused it: it is not looked at before [`Queue::retry`] or another change.
    pub(crate) fn refuse(&mut self, part: Part, error: HomeError) {
        self.urgent.remove(&part);
        self.reports.refused(&part, error);
        self.refused.insert(part, Refusal { error, retry: self.retries });
    }

    /// Everything before this position is durable.
    pub(crate) fn commit(&mut self, durable: Lsn) {
        self.durable = durable;
        let later = self.uncommitted.split_off(&durable);
        let committed = std::mem::replace(&mut self.uncommitted, later);
        committed.into_values().flatten().for_each(|part| self.push(part));
    }

    /// What waits until a position is durable is looked at now, too.
    pub(crate) fn look_at_uncommitted(&mut self) {
        let waiting: Vec<Part> = self.uncommitted.values().flatten().cloned().collect();
        waiting.into_iter().for_each(|part| self.push(part));
    }

    /// Something about a node changed.
    pub(crate) fn wake(&mut self, node: NodeId) {
        let Some(mut woken) = self.waiting.remove(&node) else { return };
        let urgent = woken.intersection(&self.urgent).cloned().collect::<Vec<_>>();
        for part in urgent {
            woken.remove(&part);
            self.push(part);
        }
        if !woken.is_empty() && add(&mut self.woken, node, woken) {
            self.ready.push_back(Ready::Woken(node));
        }
    }

    /// What home refused is looked at again.
    pub(crate) fn retry(&mut self) {
        self.retries += 1;
        self.ready.extend(std::mem::take(&mut self.refused).into_keys().map(Ready::One));
    }

    /// Home may not refuse a part as it is now.
    pub(crate) fn ask_again(&mut self, part: &Part) {
        self.refused.remove(part);
        self.reports.forget(part);
    }

    /// A part is as it should be, or is not there any more.
    pub(crate) fn settle(&mut self, part: &Part) {
        self.ask_again(part);
        self.urgent.remove(part);
    }

    /// The next part to be looked at.
    pub(crate) fn pop(&mut self) -> Option<Part> {
        loop {
            let Some(ready) = self.ready.pop_front() else {
                if self.uncommitted.is_empty() && self.waiting.is_empty() {
                    // There is nothing that something could come before.
                    self.urgent.clear();
                }
                return None;
            };
            let Some(part) = self.part_of(ready) else { continue };
            if !self.refused.contains_key(&part) {
                return Some(part);
            }
        }
    }

    fn part_of(&mut self, ready: Ready) -> Option<Part> {
        let node = match ready {
            Ready::One(part) => return Some(part),
            Ready::Woken(node) => node,
        };
        let woken = self.woken.get_mut(&node)?;
        let part = woken.pop_first();
        if woken.is_empty() {
            self.woken.remove(&node);
        } else {
            self.ready.push_front(Ready::Woken(node));
        }
        part
    }

    /// The number of the last [`Queue::retry`]; 0 before the first.
    pub(crate) fn retries(&self) -> u64 {
        self.retries
    }

    /// Whether parts wait for the log.
    pub(crate) fn has_uncommitted(&self) -> bool {
        !self.uncommitted.is_empty()
    }

    /// What home refused, and why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&Part, Refusal)> {
        self.refused.iter().map(|(part, &refusal)| (part, refusal))
    }

    /// Whether home refused anything.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Why home refused a part, if it did.
    pub(crate) fn refusal(&self, part: &Part) -> Option<HomeError> {
        self.refused.get(part).map(|refusal| refusal.error)
    }

    /// Why home refused an entry of a directory, if it did.
    pub(crate) fn refused_in(&self, directory: NodeId) -> Option<HomeError> {
        // Entries stand in the order of their directories and names.
        let first = Place::new(directory, &[1]).expect("the first of all names");
        let (part, refusal) = self.refused.range(Part::Entry(first)..).next()?;
        matches!(part, Part::Entry(at) if at.parent() == directory).then_some(refusal.error)
    }

    /// All parts that stand here.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        let uncommitted = self.uncommitted.values().flatten();
        let waiting = self.waiting.values().chain(self.woken.values()).flatten();
        let ready = self.ready.iter().filter_map(|ready| match ready {
            Ready::One(part) => Some(part),
            Ready::Woken(_) => None,
        });
        ready.chain(uncommitted).chain(waiting).chain(self.refused.keys())
    }
}

/// Adds parts to those of a node. Says whether it had none.
fn add(to: &mut HashMap<NodeId, BTreeSet<Part>>, node: NodeId, mut parts: BTreeSet<Part>) -> bool {
    let known = to.entry(node).or_default();
    let had_none = known.is_empty();
    if known.len() < parts.len() {
        std::mem::swap(known, &mut parts);
    }
    known.extend(parts);
    had_none
}
