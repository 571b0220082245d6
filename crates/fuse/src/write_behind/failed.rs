//! Names after the log has failed: they go home without it, and what home does to them is noted in SOURCE
//! ([`weir_backend::Noted`]), until nothing in the log is to be replayed any more. A recovery from the failed log would take what
//! was moved at home for somebody else's, or one file for another, and know no inode that was made there.
//!
//! The note begins with all that recovery is to know of home at that moment. After an error it begins anew.
//!
//! Does not own what is not in the note yet ([`super::unnoted`]), nor the file ([`weir_shard::Shard::note_names`]).
//!
//! Invariant: home is given a change of a name when the note has it, as begun where names tell nodes apart.

use std::sync::PoisonError;

use weir_backend::Noted;
use weir_names::NodeId;
use weir_names::tree::{HomeError, Step};

use crate::errno::Errno;
use crate::write_behind::log::NamesLog;
use crate::write_behind::moves::Stage;
use crate::write_behind::state::WriteBehind;

impl NamesLog {
    /// Nothing is logged any more.
    pub(super) fn fail(&mut self) {
        self.failed = true;
        // Where there is no number left, none is given any more.
        self.unlogged_from = self.shard.new_node();
    }

    /// Whether what home does to names is noted.
    pub(super) fn is_noted(&self) -> bool {
        self.failed && self.shard.has_stale_log()
    }

    /// Is to be noted before home is given more.
    pub(super) fn note(&mut self, line: Noted) {
        if self.is_noted() {
            self.unnoted.add(line);
        }
    }

    /// What is to be written to the note, and whether it replaces the note.
    fn take_unnoted(&mut self) -> (Vec<Noted>, bool) {
        if let Some(lines) = self.unnoted.take() {
            return (lines, false);
        }
        // What is added while that is written comes after it.
        self.unnoted.begin();
        let mut lines = vec![Noted::Failed];
        match &self.by_path {
            Some(by_path) => {
                lines.extend(by_path.places.iter().map(|(node, _, at)| {
                    Noted::Step(Step { node, from: None, to: Some(at.clone()) }, Stage::Done)
                }));
                let begun = by_path.under_way.values();
                lines.extend(begun.map(|step| Noted::Step(step.clone(), Stage::Begun)));
            }
            None => lines.extend(self.unlogged_inodes()),
        }
        (lines, true)
    }

    /// Inodes that the log was to name when it failed, or later.
    fn unlogged_inodes(&self) -> impl Iterator<Item = Noted> {
        let durable = self.shard.names_durable();
        let unlogged = self.inodes.iter().filter(move |(_, inode)| inode.last >= durable);
        unlogged.map(|(identity, inode)| Noted::Inode(NodeId(inode.number), identity.clone()))
    }
}

impl WriteBehind {
    /// Before home is given a change of names, or something goes into what it made: if the log has failed, what was begun until
    /// now is in the note after that. Blocks while it is written.
    ///
    /// # Errors
    /// Why the note cannot be written: home must not be changed now.
    pub(crate) fn note_since_failure(&self) -> Result<(), HomeError> {
        if !self.log_has_failed() {
            return Ok(());
        }
        let _turn = self.noting.lock().unwrap_or_else(PoisonError::into_inner);
        let (shard, lines, anew) = {
            let mut state = self.lock();
            let Some(log) = state.log.as_mut().filter(|log| log.is_noted()) else { return Ok(()) };
            let (lines, anew) = log.take_unnoted();
            (log.shard.clone(), lines, anew)
        };
        if lines.is_empty() {
            return Ok(());
        }
        shard.note_names(&lines, anew).map_err(|error| {
            tracing::warn!(
                "names do not go home: cannot note in '.weir' what becomes of them: {error}"
            );
            if let Some(log) = &mut self.lock().log {
                log.unnoted.begin_anew();
            }
            HomeError::Refused(Errno::from(error).code())
        })
    }

    /// Whether what home makes is named by the log, or by the note of a log that has failed.
    pub(crate) fn names_what_is_made(&self) -> bool {
        self.lock().log.as_ref().is_some_and(|log| !log.failed || log.is_noted())
    }
}
