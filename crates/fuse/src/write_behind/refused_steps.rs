//! Steps that home refused, and that it will be asked for again: in the log they stay begun, so that asking again and again does
//! not fill it. Recovery looks what home has, and finds that they were not done.
//!
//! Not so where something is in the way of a new name: recovery might take that for what the step was to bring there.

use std::time::{Duration, Instant};

use weir_log::Stage;
use weir_names::tree::{HomeError, Step, Tree};

use crate::inodes::Inodes;
use crate::write_behind::log::{NamesLog, Unlogged};
use crate::write_behind::moves::Begun;
use crate::write_behind::state::{RETRY, State, WriteBehind};

/// A refused step that no command has repeated for this long ends as not done.
const UNWANTED: Duration = Duration::from_secs(6 * RETRY.as_secs());

/// Whether a step may stay begun that home answered with this error.
pub(crate) fn stays_begun(step: &Step, error: HomeError) -> bool {
    matches!(error, HomeError::Refused(_)) || step.to.is_none()
}

impl NamesLog {
    /// A step that home refused before, and that is to be done again as it was: it is begun yet. What else was begun of its names or
    /// its node is ended.
    pub(super) fn begin_again(
        &mut self,
        tree: &Tree,
        inodes: &Inodes,
        step: &Step,
    ) -> Result<Option<Begun>, Unlogged> {
        while let Some((nth, begun)) = self.refused_about(step) {
            let is_same =
                begun.step == *step && !self.failed && self.is_said_so(tree, inodes, &begun);
            if !is_same {
                self.end(&begun, Stage::Undone)?;
            }
            self.placed().refused.swap_remove(nth);
            if is_same {
                return Ok(Some(begun));
            }
        }
        Ok(None)
    }

    fn refused_about(&mut self, step: &Step) -> Option<(usize, Begun)> {
        let refused = self.placed().refused.iter().map(|(begun, _)| begun).enumerate();
        let mut about = refused.filter(|(_, begun)| begun.concerns(step));
        about.next().map(|(nth, begun)| (nth, begun.clone()))
    }

    /// Whether a step's nodes have the numbers that they had when it was begun.
    fn is_said_so(&self, tree: &Tree, inodes: &Inodes, begun: &Begun) -> bool {
        let both = begun.step.names().zip(begun.numbered.names());
        let names_are = |(at, numbered): (&weir_names::Place, &weir_names::Place)| {
            self.find(tree, inodes, at.parent()) == Some(numbered.parent())
        };
        both.into_iter().all(names_are)
            && self.numbers.get(&begun.step.node) == Some(&begun.numbered.node.0)
    }

    /// Refused steps are ended, those that are meant, with the log's numbers.
    pub(super) fn end_refused(&mut self, is_meant: impl Fn(&Step) -> bool) -> Result<(), Unlogged> {
        let is_meant = |(begun, _): &(Begun, Instant)| is_meant(&begun.numbered);
        while let Some(nth) = self.placed().refused.iter().position(is_meant) {
            let begun = self.placed().refused[nth].0.clone();
            self.end(&begun, Stage::Undone)?;
            self.placed().refused.swap_remove(nth);
        }
        Ok(())
    }

    /// Steps that are not wanted any more are ended, as far as there is room.
    fn end_unwanted(&mut self) {
        let old = |(_, since): &(Begun, Instant)| since.elapsed() > UNWANTED;
        while let Some(nth) = self.placed().refused.iter().position(old) {
            let begun = self.placed().refused[nth].0.clone();
            if self.end(&begun, Stage::Undone).is_err() {
                return;
            }
            self.placed().refused.swap_remove(nth);
        }
    }
}

impl WriteBehind {
    /// Home refused a step, for now ([`stays_begun`]).
    pub(crate) fn refuse_step(&self, begun: Begun) {
        let mut state = self.lock();
        if let Some(by_path) = state.log.as_mut().and_then(|log| log.by_path.as_mut()) {
            by_path.refused.push((begun, Instant::now()));
        }
    }
}

impl State {
    /// Home is tried again.
    pub(super) fn retry(&mut self) {
        self.tree.retry();
        self.doubts.retry();
        self.end_unwanted_steps();
    }

    fn end_unwanted_steps(&mut self) {
        if let Some(log) = self.log.as_mut().filter(|log| log.by_path.is_some()) {
            log.end_unwanted();
        }
    }
}
