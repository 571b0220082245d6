//! Commands whose answer was lost: home may have done them.
//!
//! Such a command stays under way, so that no other command is planned for its names and nodes; what programs change there
//! meanwhile goes home after it. Syncs that wait for it fail with the error. After [`Tree::retry`] the caller looks at
//! home and ends the command ([`Tree::ended`] if it was done, [`Tree::was_not_done`] if not), or, if home does not answer,
//! says once more that its answer is lost.

use crate::identity::NodeId;
use crate::tree::command::{Command, HomeError};
use crate::tree::command_id::CommandId;
use crate::tree::part::Part;
use crate::tree::state::Tree;
use crate::tree::write_back::concerned;
use crate::way::Place;

impl Tree {
    /// Home may have done a command, or may not: see the module.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn answer_lost(&mut self, id: CommandId, error: HomeError) {
        let of = &self.in_flight[&id];
        let (command, part) = (of.command.clone(), of.part.clone());
        self.lost_answers.insert(id, error);
        self.doubted.insert(id);
        self.refuse(&command, &part, error);
    }

    /// Home did not do a command whose answer was lost.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn was_not_done(&mut self, id: CommandId) {
        self.end(id, None);
    }

    /// Whether no command is being carried out; some may be in doubt.
    pub fn is_idle(&self) -> bool {
        self.in_flight.len() == self.lost_answers.len()
    }

    /// Home refused a command.
    pub(crate) fn refuse(&mut self, command: &Command, part: &Part, error: HomeError) {
        self.queue.refuse(part.clone(), error);
        // Of a name that moves, two directories are told.
        for place in concerned(command).0.into_iter().flatten() {
            if self.entry(place).is_some_and(|entry| entry.is_dirty()) {
                self.queue.reports.refused(&Part::Entry(place.clone()), error);
            }
        }
    }

    /// Why a command on a node is in doubt.
    pub(crate) fn lost_answer_of(&self, node: NodeId) -> Option<HomeError> {
        self.lost_answer(|command| concerned(command).1.contains(&Some(node)))
    }

    /// Why a command on a name is in doubt.
    pub(crate) fn lost_answer_at(&self, at: &Place) -> Option<HomeError> {
        self.lost_answer(|command| concerned(command).0.contains(&Some(at)))
    }

    /// A directory, this one or above it, of which it is not known where home has it.
    pub(crate) fn lost_answer_above(&self, directory: NodeId) -> Option<NodeId> {
        if self.doubted.is_empty() {
            return None;
        }
        let above = |node: &NodeId| Some(self.nodes.get(node)?.places.home().next()?.parent());
        std::iter::successors(Some(directory), above)
            .take_while(|&node| node != NodeId::ROOT)
            .find(|&node| self.is_doubted(node))
    }

    fn is_doubted(&self, node: NodeId) -> bool {
        let mut commands = self.doubted.iter().map(|id| &self.in_flight[id].command);
        commands.any(|command| concerned(command).1.contains(&Some(node)))
    }

    fn lost_answer(&self, is_meant: impl Fn(&Command) -> bool) -> Option<HomeError> {
        let mut lost = self.lost_answers.iter();
        lost.find(|(id, _)| is_meant(&self.in_flight[id].command)).map(|(_, &error)| error)
    }
}
