//! What home does to names where handles do not last: the log says it first ([`crate::write_behind`], `steps`).
//!
//! After an error that does not say whether home did it (a connection was lost), home is looked at before anything else is
//! done to the same names: if the old name is gone, or the new one there, it was done. Recovery decides in the same way.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use weir_backend::home_names::open_to_write;
use weir_log::Lsn;
use weir_names::tree::{Answer, Command, CommandId, HomeError, Kind, Step, Tree};
use weir_names::{NodeId, Place};

use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::ops::names_home::Making;
use crate::write_behind::{Begun, Refusal, Stage, WriteBehind};

/// Errors after which home may have done what it was asked for.
const UNSURE: [i32; 10] = [
    libc::EIO,
    libc::EINTR,
    libc::ENOTCONN,
    libc::ECONNRESET,
    libc::ECONNABORTED,
    libc::ECONNREFUSED,
    libc::ETIMEDOUT,
    libc::EPIPE,
    libc::ESHUTDOWN,
    libc::EHOSTUNREACH,
];

/// Whether home may have done what it answered with this error.
pub(crate) fn is_unsure(error: HomeError) -> bool {
    matches!(error, HomeError::Refused(code) if UNSURE.contains(&code))
}

/// What is to be done of a step before home is asked for it.
enum Before {
    /// The log is to be durable up to its record.
    Commit(Begun),
    /// Nothing.
    Nothing,
    /// It was done before: the position of the record that says so, unless the log has failed.
    Done(Option<Lsn>),
    /// The log has no room for it.
    Full,
}

impl FileSystem {
    /// Has home do what a command says, when the log says so durably, if it has to.
    pub(crate) fn begin_command(
        self: &Arc<Self>,
        behind: &WriteBehind,
        id: CommandId,
        command: Command,
    ) {
        let replaced = match &command {
            Command::Rename { replacing, .. } => *replacing,
            _ => None,
        };
        let before = Step::of(&command)
            .map_or(Ok(Before::Nothing), |step| self.begin_step(behind, &step, replaced));
        match before {
            Ok(Before::Nothing) => self.end_command(behind, id, &command, None),
            Ok(Before::Commit(begun)) => {
                self.when_logged(move |behind| behind.stepped(id, command, begun));
            }
            Ok(Before::Done(lsn)) => self.end_found(behind, id, &command, lsn),
            Ok(Before::Full) => {
                // Whoever frees the log may be this thread.
                behind.resume(id, command);
                behind.wait_for_log();
            }
            Err(error) => self.ended(behind, id, Err(error), Duration::ZERO),
        }
    }

    /// Begins what home is to do to names. What it may have done before is found out first.
    fn begin_step(
        self: &Arc<Self>,
        behind: &WriteBehind,
        step: &Step,
        replaced: Option<NodeId>,
    ) -> Result<Before, HomeError> {
        loop {
            match behind.begin_step(&self.inodes, step, replaced) {
                Ok(Some(begun)) => return Ok(Before::Commit(begun)),
                Ok(None) => return Ok(Before::Nothing),
                Err(Refusal::NotLogged) => return Err(HomeError::Refused(libc::EIO)),
                Err(Refusal::Full) => return Ok(Before::Full),
                Err(Refusal::Unsure(unsure)) => {
                    match self.was_done(&unsure.step) {
                        Ok(true) => {
                            let lsn = behind.end_step(&unsure, Stage::Done);
                            if unsure.step == *step {
                                return Ok(Before::Done(lsn));
                            }
                            // The tree knows another home.
                            return Err(HomeError::Changed);
                        }
                        Ok(false) => {
                            behind.end_step(&unsure, Stage::Undone);
                        }
                        Err(error) => {
                            behind.step_is_unsure(unsure);
                            return Err(error);
                        }
                    }
                }
            }
        }
    }

    /// Whether home did a step, by the names that are there.
    fn was_done(self: &Arc<Self>, step: &Step) -> Result<bool, HomeError> {
        let is_there = |at: &Place| {
            let directory = self.directory_of(at)?;
            let entry = directory.at(at)?;
            self.home
                .has_name(entry.directory, entry.name)
                .map_err(|error| HomeError::Refused(Errno::from(error).code()))
        };
        match (&step.from, &step.to) {
            (Some(from), _) => is_there(from).map(|is_there| !is_there),
            // It may have been parked, and its name another one's.
            (None, Some(to)) => Ok(!is_there(&Tree::parking(step.node))? && is_there(to)?),
            (None, None) => Ok(false),
        }
    }

    /// Ends a command that home did before, when its answer was lost.
    fn end_found(
        self: &Arc<Self>,
        behind: &WriteBehind,
        id: CommandId,
        command: &Command,
        lsn: Option<Lsn>,
    ) {
        let Some(making) = Making::of(command) else {
            return self.ended(behind, id, Ok(Answer::Done), Duration::ZERO);
        };
        let data = match making.kind {
            Kind::File => self.open_made(making.at).map(Some),
            _ => Ok(None),
        };
        let made = data.and_then(|data| self.made_at_home(making, data));
        match made {
            Ok(made) => self.finish_when_named(behind, id, made, lsn, Duration::ZERO),
            Err(error) => self.ended(behind, id, Err(error), Duration::ZERO),
        }
    }

    /// Opens a file that home made before.
    fn open_made(self: &Arc<Self>, at: &Place) -> Result<OwnedFd, HomeError> {
        let directory = self.directory_of(at)?;
        let entry = directory.at(at)?;
        let path = self.home.open_place(entry.directory, entry.name.as_bytes());
        let data = path.and_then(|path| open_to_write(path.as_fd()));
        data.map_err(|error| HomeError::Refused(Errno::from(error).code()))
    }

    /// Logs what became of a step.
    pub(crate) fn end_step(
        &self,
        behind: &WriteBehind,
        begun: Option<Begun>,
        result: Result<(), HomeError>,
    ) {
        let Some(begun) = begun else { return };
        match result {
            Ok(()) => drop(behind.end_step(&begun, Stage::Done)),
            // Without names there is nothing that the log has to say of it, and nobody would ask.
            Err(error) if is_unsure(error) && begun.step.names().next().is_some() => {
                behind.step_is_unsure(begun);
            }
            Err(_) => drop(behind.end_step(&begun, Stage::Undone)),
        }
    }

    /// Does a step at home at once; `replaced` is what home has under the new name. Where handles do not last and names are
    /// logged, the log says it first.
    pub(crate) fn step_at_once<T>(
        self: &Arc<Self>,
        step: Option<&Step>,
        replaced: Option<NodeId>,
        change: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let stepped = self.write_behind.as_ref().zip(step.filter(|step| self.is_stepped(step)));
        let Some((behind, step)) = stepped else {
            if let Some(behind) = &self.write_behind {
                behind.continue_log()?;
            }
            return change();
        };
        let begun = loop {
            match self.begin_step(behind, step, replaced).map_err(Errno::from)? {
                Before::Commit(begun) => break Some(begun),
                Before::Nothing => break None,
                Before::Full => behind.wait_for_log_of_home()?,
                // It was done when the program was told that it had failed.
                Before::Done(_) => return Err(HomeError::Changed.into()),
            }
        };
        if begun.is_some() {
            let (sender, committed) = channel();
            self.when_logged(move |_| sender.send(()).unwrap_or(()));
            let _ = committed.recv();
        }
        if let Err(error) = behind.continue_log() {
            if let Some(begun) = begun {
                behind.end_step(&begun, Stage::Undone);
            }
            return Err(error.into());
        }
        let changed = change();
        let result = changed.as_ref().map(drop);
        self.end_step(behind, begun, result.map_err(|errno| HomeError::Refused(errno.code())));
        changed
    }

    /// Whether the log has said where home has something that is moved, so that it must say this, too.
    pub(crate) fn is_stepped(&self, step: &Step) -> bool {
        let behind = self.write_behind.as_ref().filter(|_| self.shard.finds_by_number());
        behind.is_some_and(|behind| behind.knows_place_of(&self.inodes, step))
    }
}
