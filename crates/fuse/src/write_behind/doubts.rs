//! Steps of which it is not known whether home did them: the answer was lost.
//!
//! Each is found out when home is tried again, whether somebody waits for it or not, and before another step of its names or of
//! its node begins. Until then the log is needed from its record on.
//!
//! Owns which there are, and which are being found out. Does not own how ([`crate::ops::home_steps`]).

use std::time::Instant;

use weir_names::tree::{Command, CommandId, Step};

use crate::write_behind::moves::Begun;

/// A step that home may have done.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    pub(crate) begun: Begun,
    /// The command that it is a step of, which ends when this is known. `None`: a program was told that its call failed.
    pub(crate) of: Option<(CommandId, Command)>,
    /// Since when.
    pub(crate) since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Until home is tried again.
    Waits,
    /// A thread is to find it out.
    Due,
    /// A thread does.
    Asked,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<(Doubt, Stage)>);

/// What a step has to wait for.
pub(super) enum Before {
    /// This is to be found out first.
    Ask(Box<Doubt>),
    /// Somebody else finds it out, now or when home is tried again.
    Wait,
}

impl Doubts {
    /// It was not found out, or not asked for yet.
    pub(super) fn keep(&mut self, doubt: Doubt) {
        self.settle(&doubt.begun);
        self.0.push((doubt, Stage::Waits));
    }

    /// It is known.
    pub(super) fn settle(&mut self, begun: &Begun) {
        self.0.retain(|(doubt, _)| doubt.begun.lsn != begun.lsn);
    }

    /// Home is tried again.
    pub(super) fn retry(&mut self) {
        let waiting = self.0.iter_mut().filter(|(_, stage)| *stage == Stage::Waits);
        waiting.for_each(|(_, stage)| *stage = Stage::Due);
    }

    /// One was not found out: those that wait for it are not, either. Their commands.
    pub(super) fn give_up_held(&mut self) -> Vec<CommandId> {
        if !self.any_moved() {
            return Vec::new();
        }
        let due =
            self.0.iter_mut().filter(|(doubt, stage)| *stage == Stage::Due && !is_moved(doubt));
        let held = due.map(|(doubt, stage)| {
            *stage = Stage::Waits;
            doubt.of.as_ref().map(|(id, _)| *id)
        });
        held.flatten().collect()
    }

    fn any_moved(&self) -> bool {
        self.0.iter().any(|(doubt, _)| is_moved(doubt))
    }

    /// One to be found out now. What is below a directory has another name if that was moved: directories come first.
    pub(super) fn next_due(&mut self) -> Option<Doubt> {
        let any_moved = self.any_moved();
        let mut due = self.0.iter_mut().filter(|(_, stage)| *stage == Stage::Due);
        let (doubt, stage) = due.find(|(doubt, _)| !any_moved || is_moved(doubt))?;
        *stage = Stage::Asked;
        Some(doubt.clone())
    }

    /// What a step has to wait for that is to begin.
    pub(super) fn before(&mut self, step: &Step) -> Option<Before> {
        let (doubt, stage) = self.0.iter_mut().find(|(doubt, _)| doubt.begun.concerns(step))?;
        if *stage == Stage::Asked || doubt.of.is_some() {
            // A program waits.
            if *stage == Stage::Waits {
                *stage = Stage::Due;
            }
            return Some(Before::Wait);
        }
        *stage = Stage::Asked;
        Some(Before::Ask(Box::new(doubt.clone())))
    }
}

/// Whether it is about a directory that may have another name now, or none.
fn is_moved(doubt: &Doubt) -> bool {
    doubt.begun.is_of_directory() && doubt.begun.step.from.is_some()
}
