//! Where home has each node, as a log says it that does not know inodes again: under which names.
//!
//! A *place* record says that home has a node under a name. A *step* is what home is made to do to a node's names: it is begun,
//! and then it is done or not done ([LOG_FORMAT](../../../../docs/LOG_FORMAT.md), "Where nodes are, without handles"). The
//! records are replayed here in the log's order, and after them the steps of earlier recoveries. What is only begun at the end is
//! *pending*: home says whether it was done ([`Inodes::settle_steps`](super::inodes::Inodes::settle_steps)).
//!
//! Owns no system call.
//!
//! Invariants:
//! - a name leads to one node at most; a directory has one name at most;
//! - no two pending steps are about the same name.

use std::collections::{HashMap, HashSet};

use rustix::fs::FileType;
use weir_log::Stage;
use weir_names::tree::Step;
use weir_names::{NodeId, Place, Places};

/// A step that is begun.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) step: Step,
    /// The node was not at home before: it is made by this.
    pub(crate) makes: bool,
}

/// Where nodes are: see the module.
#[derive(Debug, Default)]
pub(crate) struct Whereabouts {
    places: Places,
    types: HashMap<NodeId, FileType>,
    pending: Vec<Pending>,
    /// Nodes that the log makes.
    made: HashSet<NodeId>,
    /// Nodes that home had, as a record says.
    was_at_home: HashSet<NodeId>,
}

/// What is known now.
impl Whereabouts {
    pub(crate) fn node_at(&self, at: &Place) -> Option<NodeId> {
        self.places.node_at(at)
    }

    /// The names of a node at home, in order.
    pub(crate) fn places(&self, node: NodeId) -> impl Iterator<Item = &Place> {
        self.places.of(node)
    }

    pub(crate) fn is_parked(&self, node: NodeId) -> bool {
        self.places(node).any(|at| at.parent() == NodeId::PARKING)
    }

    /// Whether home has a node, or had it.
    pub(crate) fn was_at_home(&self, node: NodeId) -> bool {
        !self.made.contains(&node) || self.was_at_home.contains(&node)
    }

    /// All nodes that home has under a name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.places.nodes()
    }

    pub(crate) fn file_type(&self, node: NodeId) -> Option<FileType> {
        self.types.get(&node).copied()
    }

    /// What a node is, if that is not known yet.
    pub(crate) fn is_of_type(&mut self, node: NodeId, file_type: FileType) {
        self.types.entry(node).or_insert(file_type);
    }

    /// The log makes a node.
    pub(crate) fn is_made(&mut self, node: NodeId, file_type: FileType) {
        self.made.insert(node);
        self.types.insert(node, file_type);
    }

    /// Home has a node under a name now, and nothing else there.
    pub(crate) fn put(&mut self, node: NodeId, at: &Place) {
        if self.file_type(node) == Some(FileType::Directory) {
            self.places.remove(node);
        }
        self.places.put(node, at);
    }

    /// Home does not have a node under a name.
    pub(crate) fn take(&mut self, node: NodeId, at: &Place) {
        self.places.take(node, at);
    }

    /// Home has nothing that is known under a name.
    pub(crate) fn vacate(&mut self, at: &Place) {
        self.places.vacate(at);
    }
}

/// What the records say, in their order.
impl Whereabouts {
    /// Home had a node under a name when this was logged.
    pub(crate) fn replay_place(&mut self, node: NodeId, at: &Place) {
        let is_directory = self.file_type(node) == Some(FileType::Directory);
        let mut done = Vec::new();
        self.pending.retain(|Pending { step, .. }| {
            let is_same = step.node == node;
            let (is_old, is_new) = (step.from.as_ref() == Some(at), step.to.as_ref() == Some(at));
            if is_new && is_same || is_old && !is_same {
                done.push(step.clone());
            }
            // Another name of a file says nothing of a step that does not concern it.
            let is_ended = is_new || is_old || is_same && is_directory;
            !is_ended
        });
        done.iter().for_each(|step| self.apply(step));
        self.was_at_home.insert(node);
        self.put(node, at);
    }

    pub(crate) fn replay_step(&mut self, step: &Step, stage: Stage) {
        let known = self.pending.iter().position(|pending| pending.step == *step);
        match (stage, known) {
            // It is begun once more.
            (Stage::Begun, Some(_)) | (Stage::Undone, None) => {}
            (Stage::Begun, None) => {
                self.end_before(step);
                let makes = step.from.is_none() && !self.was_at_home(step.node);
                self.pending.push(Pending { step: step.clone(), makes });
            }
            (Stage::Undone, Some(nth)) => drop(self.pending.remove(nth)),
            (Stage::Done, known) => {
                match known {
                    Some(nth) => drop(self.pending.remove(nth)),
                    None => self.end_before(step),
                }
                self.apply(step);
            }
        }
    }

    /// What home was made to do after the pending steps about the same names. Each of those was known to be done or not, or no
    /// other would have been begun; it was done if the node has its new name now.
    fn end_before(&mut self, next: &Step) {
        let ended = self.pending.extract_if(.., |pending| pending.step.meets(next));
        let is_done =
            |step: &Step| step.node == next.node && next.from.is_some() && next.from == step.to;
        let done = ended.map(|pending| pending.step).filter(is_done).collect::<Vec<_>>();
        done.iter().for_each(|step| self.apply(step));
    }

    /// A step was done.
    pub(crate) fn apply(&mut self, step: &Step) {
        self.was_at_home.insert(step.node);
        if let Some(from) = &step.from {
            self.take(step.node, from);
        }
        if let Some(to) = &step.to {
            self.put(step.node, to);
        }
    }

    /// The steps that are begun and not known to be done or not, in order. They are not pending any more.
    pub(crate) fn take_pending(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> Place {
        Place::new(NodeId::ROOT, name.as_bytes()).unwrap()
    }

    fn step(node: u64, from: &str, to: &str) -> Step {
        let name = |name: &str| (!name.is_empty()).then(|| at(name));
        Step { node: NodeId(node), from: name(from), to: name(to) }
    }

    /// Node 7 is a file "a", node 8 a directory "d".
    fn some() -> Whereabouts {
        let mut all = Whereabouts::default();
        all.is_of_type(NodeId(7), FileType::RegularFile);
        all.is_of_type(NodeId(8), FileType::Directory);
        all.replay_place(NodeId(7), &at("a"));
        all.replay_place(NodeId(8), &at("d"));
        all
    }

    fn names(all: &Whereabouts, node: u64) -> Vec<Place> {
        all.places(NodeId(node)).cloned().collect()
    }

    #[test]
    fn a_step_counts_when_it_is_done_and_takes_the_name_from_what_had_it() {
        let mut all = some();
        all.replay_step(&step(7, "", "b"), Stage::Begun);
        all.replay_step(&step(7, "", "b"), Stage::Begun);
        assert_eq!(names(&all, 7), [at("a")]);
        all.replay_step(&step(7, "", "b"), Stage::Done);
        assert_eq!((names(&all, 7), all.take_pending().len()), (vec![at("a"), at("b")], 0));
        all.replay_step(&step(9, "", "c"), Stage::Done);
        all.replay_step(&step(9, "c", "b"), Stage::Done);
        assert_eq!((names(&all, 7), names(&all, 9)), (vec![at("a")], vec![at("b")]));
        all.replay_step(&step(9, "b", ""), Stage::Begun);
        all.replay_step(&step(9, "b", ""), Stage::Undone);
        assert_eq!((names(&all, 9), all.take_pending().len()), (vec![at("b")], 0));
        all.replay_step(&step(8, "", "e"), Stage::Done);
        assert_eq!((names(&all, 8), all.node_at(&at("d"))), (vec![at("e")], None));
    }

    #[test]
    fn a_place_says_whether_a_pending_step_was_done() {
        for (node, name, has, pending) in [
            (7, "b", vec![at("b")], 0),
            (7, "a", vec![at("a")], 0),
            (9, "b", vec![at("a")], 0),
            (9, "a", vec![at("b")], 0),
            (7, "c", vec![at("a"), at("c")], 1),
            (9, "c", vec![at("a")], 1),
        ] {
            let mut all = some();
            all.replay_step(&step(7, "a", "b"), Stage::Begun);
            all.replay_place(NodeId(node), &at(name));
            let found = (names(&all, 7), all.take_pending().len());
            assert_eq!(found, (has, pending), "node {node} is {name}");
        }
        let mut all = some();
        all.replay_step(&step(8, "d", "e"), Stage::Begun);
        all.replay_place(NodeId(8), &at("f"));
        assert_eq!((names(&all, 8), all.take_pending().len()), (vec![at("f")], 0));
    }

    #[test]
    fn a_step_says_whether_the_one_before_it_about_the_same_name_was_done() {
        for (next, has) in [
            (step(7, "b", "c"), at("b")),
            (step(7, "a", "c"), at("a")),
            (step(9, "c", "a"), at("a")),
            (step(9, "", "b"), at("a")),
        ] {
            let mut all = some();
            all.replay_step(&step(7, "a", "b"), Stage::Begun);
            all.replay_step(&next, Stage::Begun);
            assert_eq!((names(&all, 7), all.take_pending().len()), (vec![has], 1), "{next:?}");
        }
    }

    #[test]
    fn the_first_new_name_of_a_node_that_the_log_makes_is_where_it_is_made() {
        let mut all = some();
        all.is_made(NodeId(9), FileType::RegularFile);
        for (step, stage) in [
            (step(9, "", "b"), Stage::Begun),
            (step(9, "", "c"), Stage::Done),
            (step(9, "", "e"), Stage::Begun),
            (step(7, "", "f"), Stage::Begun),
        ] {
            all.replay_step(&step, stage);
        }
        let makes: Vec<bool> = all.take_pending().iter().map(|pending| pending.makes).collect();
        assert_eq!(makes, [true, false, false]);
    }
}
