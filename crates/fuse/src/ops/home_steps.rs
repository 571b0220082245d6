//! What home does to names where handles do not last: the log says it first ([`crate::write_behind`], `steps`).
//!
//! After an error that does not say whether home did it (a connection was lost), home is looked at before anything else is
//! done to the same names: if the old name is gone, or the new one there, it was done. Recovery decides in the same way.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use weir_backend::home_names::open_to_write;
use weir_names::tree::{Answer, Attributes, Command, CommandId, HomeError, Kind, Xattrs};
use weir_names::{NodeId, Place};

use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::write_behind::{Made, Move, Refusal, Stage, Step, WriteBehind};

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
fn is_unsure(error: HomeError) -> bool {
    matches!(error, HomeError::Refused(code) if UNSURE.contains(&code))
}

/// What is to be done of a command before home is asked for it.
enum Begun {
    /// The log is to be durable up to this step.
    Step(Step),
    /// Nothing.
    Nothing,
    /// It was done before.
    Done,
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
        let of = Move::of(&command);
        let begun = of.map_or(Ok(Begun::Nothing), |of| self.begin_move(behind, &of));
        match begun {
            Ok(Begun::Nothing) => self.end_command(behind, id, &command, None),
            Ok(Begun::Step(step)) => {
                let fs = Arc::clone(self);
                // If the log fails, home gets it without.
                self.shard.commit_names_later(move |_| {
                    let behind = fs.write_behind.as_ref().expect("it is what steps");
                    behind.stepped(id, command, step);
                });
            }
            Ok(Begun::Done) => self.end_found(behind, id, &command),
            Ok(Begun::Full) => {
                // Whoever frees the log may be this thread.
                behind.resume(id, command);
                behind.wait_for_log();
            }
            Err(error) => behind.ended(id, Err(error), Duration::ZERO),
        }
    }

    /// Begins what home is to do to names. What it may have done before is found out first.
    fn begin_move(self: &Arc<Self>, behind: &WriteBehind, of: &Move) -> Result<Begun, HomeError> {
        loop {
            match behind.begin_step(&self.inodes, of) {
                Ok(Some(step)) => return Ok(Begun::Step(step)),
                Ok(None) => return Ok(Begun::Nothing),
                Err(Refusal::NotLogged) => return Err(HomeError::Refused(libc::EIO)),
                Err(Refusal::Full) => return Ok(Begun::Full),
                Err(Refusal::Unsure(step)) => {
                    let is_same = step.of == *of;
                    match self.was_done(&step) {
                        Ok(true) => {
                            behind.end_step(&step, Stage::Done);
                            if is_same {
                                return Ok(Begun::Done);
                            }
                            // The tree knows another home.
                            return Err(HomeError::Changed);
                        }
                        Ok(false) => {
                            behind.end_step(&step, Stage::Undone);
                        }
                        Err(error) => {
                            behind.step_is_unsure(step);
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
        match (&step.of.from, &step.of.to) {
            (Some(from), _) => is_there(from).map(|is_there| !is_there),
            (None, Some(to)) => is_there(to),
            (None, None) => Ok(false),
        }
    }

    /// Ends a command that home did before, when its answer was lost.
    fn end_found(self: &Arc<Self>, behind: &WriteBehind, id: CommandId, command: &Command) {
        let Command::Make { node, at, kind, attributes, xattrs } = command else {
            return behind.ended(id, Ok(Answer::Done), Duration::ZERO);
        };
        match self.find_made(*node, at, kind, attributes, xattrs) {
            Ok(made) => self.name_in_log(behind, id, made, None, Duration::ZERO),
            Err(error) => behind.ended(id, Err(error), Duration::ZERO),
        }
    }

    /// What home made before.
    fn find_made(
        self: &Arc<Self>,
        node: NodeId,
        at: &Place,
        kind: &Kind,
        attributes: &Attributes,
        xattrs: &Xattrs,
    ) -> Result<Made, HomeError> {
        let refused = |errno: Errno| HomeError::Refused(errno.code());
        let inode = self.inode(node).map_err(refused)?;
        let directory = self.directory_of(at)?;
        let entry = directory.at(at)?;
        let path = self.home.open_place(entry.directory, entry.name.as_bytes());
        let path = path.map_err(|error| refused(error.into()))?;
        let data = match kind {
            Kind::File => Some(open_to_write(path.as_fd())),
            _ => None,
        };
        let data = data.transpose().map_err(|error| refused(error.into()))?;
        let looked = self.home.look_at(path.as_fd(), at.parent(), entry.name);
        let looked = looked.map_err(|error| refused(error.into()))?;
        let (at, kind) = (at.clone(), kind.clone());
        let (attributes, xattrs) = (*attributes, xattrs.clone());
        Ok(Made { inode, at, kind, attributes, xattrs, looked, path, data })
    }

    /// Logs what became of a step.
    pub(crate) fn end_step(
        &self,
        behind: &WriteBehind,
        step: Option<Step>,
        result: Result<(), HomeError>,
    ) {
        let Some(step) = step else { return };
        match result {
            Ok(()) => drop(behind.end_step(&step, Stage::Done)),
            Err(error) if is_unsure(error) => behind.step_is_unsure(step),
            Err(_) => drop(behind.end_step(&step, Stage::Undone)),
        }
    }

    /// Does something to a name at home at once, `of` says what. Where handles do not last and names are logged, the log says
    /// it first.
    pub(crate) fn step_at_once<T>(
        self: &Arc<Self>,
        of: Option<&Move>,
        change: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let stepped = self.write_behind.as_ref().zip(of.filter(|of| self.is_stepped(of)));
        let Some((behind, of)) = stepped else { return change() };
        let step = loop {
            match self.begin_move(behind, of).map_err(Errno::from)? {
                Begun::Step(step) => break Some(step),
                Begun::Nothing => break None,
                Begun::Full => behind.wait_for_log(),
                // It was done when the program was told that it had failed.
                Begun::Done => return Err(HomeError::Changed.into()),
            }
        };
        if step.is_some() {
            let (sender, committed) = channel();
            self.shard.commit_names_later(move |result| sender.send(result).unwrap_or(()));
            // If the log fails, home gets it without.
            let _ = committed.recv();
        }
        let changed = change();
        let result = changed.as_ref().map(drop);
        self.end_step(behind, step, result.map_err(|errno| HomeError::Refused(errno.code())));
        changed
    }

    /// Whether the log has said where home has something that is moved, so that it must say this, too.
    pub(crate) fn is_stepped(&self, of: &Move) -> bool {
        let behind = self.write_behind.as_ref().filter(|_| self.shard.finds_by_number());
        behind.is_some_and(|behind| behind.knows_place_of(&self.inodes, of))
    }
}
