//! What home does to names where handles do not last: the log says it first ([`crate::write_behind`], `steps`).
//!
//! After an error that does not say whether home did it (a connection was lost), home is looked at when it is tried again,
//! and before anything else is done to the same names: if the old name is gone, or the new one there, it was done.
//! Recovery decides in the same way.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use weir_backend::home_names::{IsThere, open_to_write};
use weir_names::tree::{Answer, Command, CommandId, HomeError, Kind, Step, Tree};
use weir_names::{NodeId, Place};

use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::ops::names_home::Making;
use crate::write_behind::{Begun, Doubt, Made, Refusal, Stage, WriteBehind, stays_begun};

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

/// A cache before home says no longer than this what was. That of sshfs has 20 s (`dcache_timeout`).
const CACHED_MAX: Duration = Duration::from_secs(30);

/// How long home is asked again for a file that it has moved, if it answers otherwise.
const REACHED_MAX: Duration = Duration::from_secs(300);

/// Whether home may have done what it answered with this error.
pub(crate) fn is_unsure(error: HomeError) -> bool {
    matches!(error, HomeError::Refused(code) if UNSURE.contains(&code))
}

/// Whether it is to be found out if home did a step that it answered with this error. Without names there is nothing that the log
/// has to say of it, and nobody would ask.
fn is_lost(begun: &Begun, error: HomeError) -> bool {
    is_unsure(error) && begun.step.names().next().is_some()
}

fn stage_of(was_done: bool) -> Stage {
    if was_done { Stage::Done } else { Stage::Undone }
}

fn was_not_done(behind: &WriteBehind, begun: &Begun, id: CommandId) {
    behind.end_step(begun, Stage::Undone);
    behind.was_not_done(id);
}

/// What home has of a command that it did.
enum Found {
    /// What it was to make.
    Made(Box<Made>),
    /// Something else is under the name.
    Foreign,
    /// It makes nothing.
    Done,
}

/// What is to be done of a step before home is asked for it.
enum Before {
    /// The log is to be durable up to its record.
    Commit(Begun),
    /// Nothing.
    Nothing,
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
            Ok(Before::Full) => {
                // Whoever frees the log may be this thread.
                behind.resume(id, command);
                behind.wait_for_log();
            }
            Err(error) => {
                tracing::debug!("home is not asked for {command:?}: {error}");
                self.ended(behind, id, Err(error), Duration::ZERO);
            }
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
                Err(refusal @ (Refusal::NotLogged | Refusal::InDoubt)) => {
                    tracing::debug!("{step:?} is not begun: {refusal:?}");
                    return Err(HomeError::Refused(libc::EIO));
                }
                Err(Refusal::Full) => return Ok(Before::Full),
                Err(Refusal::Doubt(doubt)) => match self.was_done(&doubt) {
                    Ok(true) => {
                        if let Err(error) = self.was_done_at_once(&doubt) {
                            self.answer_lost(behind, *doubt, error);
                            return Err(error);
                        }
                        behind.end_step(&doubt.begun, Stage::Done);
                        // The tree knows another home.
                        return Err(HomeError::Changed);
                    }
                    Ok(false) => drop(behind.end_step(&doubt.begun, Stage::Undone)),
                    Err(error) => {
                        self.answer_lost(behind, *doubt, error);
                        return Err(error);
                    }
                },
            }
        }
    }

    /// Finds out whether home did a step whose answer was lost.
    pub(crate) fn find_out(self: &Arc<Self>, behind: &WriteBehind, doubt: Doubt) {
        let Doubt { begun, of, .. } = &doubt;
        let was_done = self.was_done(&doubt);
        tracing::debug!("home did {:?}: {was_done:?}", begun.step);
        match (was_done, of) {
            (Ok(true), Some((id, command))) => match self.found(command, doubt.since) {
                Ok(Found::Made(made)) => {
                    self.name_in_log(behind, *id, *made, Some(begun.clone()), Duration::ZERO);
                }
                Ok(Found::Done) => {
                    behind.end_step(begun, Stage::Done);
                    self.ended(behind, *id, Ok(Answer::Done), Duration::ZERO);
                }
                // Somebody else's: home will say so when it is asked to make ours.
                Ok(Found::Foreign) => was_not_done(behind, begun, *id),
                Err(error) => {
                    tracing::debug!("what home made is not found: {error}");
                    self.answer_lost(behind, doubt, error);
                }
            },
            (Ok(false), Some((id, _))) => was_not_done(behind, begun, *id),
            (Ok(true), None) => {
                if let Err(error) = self.was_done_at_once(&doubt) {
                    return self.answer_lost(behind, doubt, error);
                }
                behind.end_step(begun, Stage::Done);
            }
            (Ok(false), None) => drop(behind.end_step(begun, Stage::Undone)),
            // Home answers, and does not find it where it should be: its directory may be gone.
            (Err(error), of) if !is_unsure(error) && doubt.since.elapsed() > CACHED_MAX => {
                behind.end_step(begun, Stage::Undone);
                if let Some((id, _)) = of {
                    self.ended(behind, *id, Err(HomeError::Changed), Duration::ZERO);
                }
            }
            (Err(error), _) => self.answer_lost(behind, doubt, error),
        }
    }

    /// Whether home did a step, by the names that are there.
    fn was_done(self: &Arc<Self>, doubt: &Doubt) -> Result<bool, HomeError> {
        let is_there = |at: &Place| {
            let directory = self.directory_of(at)?;
            let entry = directory.at(at)?;
            let is_there = self.home.is_there(entry.directory, entry.name);
            is_there.map_err(|error| HomeError::Refused(Errno::from(error).code()))
        };
        let step = &doubt.begun.step;
        match (&step.from, &step.to) {
            (Some(from), to) => match is_there(from)? {
                IsThere::No => Ok(true),
                IsThere::Yes => Ok(false),
                IsThere::Perhaps if doubt.since.elapsed() > CACHED_MAX => Ok(false),
                // What is in a cache may be gone; what is not there is not there.
                IsThere::Perhaps => match to.as_ref().map(is_there).transpose()? {
                    Some(IsThere::No) => Ok(false),
                    _ => Err(HomeError::Refused(libc::EIO)),
                },
            },
            // What is made has no other name.
            (None, Some(to)) if matches!(&doubt.of, Some((_, Command::Make { .. }))) => {
                Ok(is_there(to)? != IsThere::No)
            }
            // It may have been parked, and its name another one's.
            (None, Some(to)) => {
                let is_parked = is_there(&Tree::parking(step.node))? != IsThere::No;
                Ok(!is_parked && is_there(to)? != IsThere::No)
            }
            (None, None) => Ok(false),
        }
    }

    /// Home did a step whose command has ended.
    ///
    /// # Errors
    /// As [`FileSystem::reach_moved`].
    fn was_done_at_once(self: &Arc<Self>, doubt: &Doubt) -> Result<(), HomeError> {
        match &doubt.begun.step {
            Step { node, from: Some(_), to: Some(to) } => {
                self.reach_moved(*node, to, doubt.since)?;
            }
            Step { node, from: Some(from), to: None } => self.lost_at_home(*node, from),
            Step { from: None, .. } => {}
        }
        Ok(())
    }

    /// Takes what home has under a node's new name for it; `since`: since when it is not known what home did.
    ///
    /// # Errors
    /// Home does not answer again: it is to be asked later.
    fn reach_moved(
        self: &Arc<Self>,
        node: NodeId,
        to: &Place,
        since: Instant,
    ) -> Result<(), HomeError> {
        match self.was_moved(node, to) {
            Err(error) if is_unsure(error) && since.elapsed() < REACHED_MAX => Err(error),
            Err(error) => {
                tracing::warn!("{node:?} is not reached by its new name {to:?}: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// What a command that home did has left there.
    fn found(self: &Arc<Self>, command: &Command, since: Instant) -> Result<Found, HomeError> {
        match command {
            Command::Rename { node, to, replacing, .. } => {
                self.reach_moved(*node, to, since)?;
                if let Some(replaced) = replacing {
                    self.lost_at_home(*replaced, to);
                }
            }
            Command::Unlink { node, at } | Command::RemoveDirectory { node, at } => {
                self.lost_at_home(*node, at);
            }
            _ => {}
        }
        let Some(making) = Making::of(command) else { return Ok(Found::Done) };
        if !self.is_as_made(making)? {
            return Ok(Found::Foreign);
        }
        let data = match making.kind {
            Kind::File => Some(self.open_made(making.at)?),
            _ => None,
        };
        self.made_at_home(making, data).map(|made| Found::Made(Box::new(made)))
    }

    /// Whether what home has under a name can be what it was asked to make there.
    pub(super) fn is_as_made(self: &Arc<Self>, making: Making<'_>) -> Result<bool, HomeError> {
        let directory = self.directory_of(making.at)?;
        let entry = directory.at(making.at)?;
        let path = self.home.open_place(entry.directory, entry.name.as_bytes());
        let looked =
            path.and_then(|path| self.home.look_at(path.as_fd(), making.at.parent(), entry.name));
        let status = match looked {
            Ok(looked) => looked.status,
            Err(error) => return Err(HomeError::Refused(Errno::from(error).code())),
        };
        let file_type = status.mode & libc::S_IFMT;
        Ok(match making.kind {
            Kind::File => file_type == libc::S_IFREG && status.size == 0,
            Kind::Directory => file_type == libc::S_IFDIR,
            Kind::Symlink(target) => {
                file_type == libc::S_IFLNK && status.size == target.len() as u64
            }
            Kind::Special { file_type: made, .. } => file_type == *made,
        })
    }

    /// Opens a file that home made before.
    fn open_made(self: &Arc<Self>, at: &Place) -> Result<OwnedFd, HomeError> {
        let directory = self.directory_of(at)?;
        let entry = directory.at(at)?;
        let path = self.home.open_place(entry.directory, entry.name.as_bytes());
        let data = path.and_then(|path| open_to_write(path.as_fd()));
        data.map_err(|error| HomeError::Refused(Errno::from(error).code()))
    }

    /// A command ends whose step was begun, if the log says so; or it is found out later whether home did it.
    pub(crate) fn end_begun(
        &self,
        behind: &WriteBehind,
        (id, command): (CommandId, &Command),
        begun: Option<Begun>,
        result: Result<Answer, HomeError>,
        took: Duration,
    ) {
        match (begun, result) {
            (Some(begun), Err(error)) if is_lost(&begun, error) => {
                let of = Some((id, command.clone()));
                return self.answer_lost(behind, Doubt { begun, of, since: Instant::now() }, error);
            }
            (Some(begun), Err(error)) if stays_begun(&begun.step, error) => {
                behind.refuse_step(begun)
            }
            (Some(begun), result) => drop(behind.end_step(&begun, stage_of(result.is_ok()))),
            (None, _) => {}
        }
        self.ended(behind, id, result, took);
    }

    /// It is not known whether home did a step.
    fn answer_lost(&self, behind: &WriteBehind, doubt: Doubt, error: HomeError) {
        self.note_refusal(behind.answer_lost(doubt, error));
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
        let Some(begun) = begun else { return changed };
        let error = changed.as_ref().err().map(|errno| HomeError::Refused(errno.code()));
        match error.filter(|&error| is_lost(&begun, error)) {
            Some(error) => {
                self.answer_lost(behind, Doubt { begun, of: None, since: Instant::now() }, error)
            }
            None => drop(behind.end_step(&begun, stage_of(changed.is_ok()))),
        }
        changed
    }

    /// Whether the log has said where home has something that is moved, so that it must say this, too.
    pub(crate) fn is_stepped(&self, step: &Step) -> bool {
        let behind = self.write_behind.as_ref().filter(|_| self.shard.finds_by_number());
        behind.is_some_and(|behind| behind.knows_place_of(&self.inodes, step))
    }
}
