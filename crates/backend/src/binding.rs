//! Whether a file exists at home yet, and what is kept of it until it does.
//!
//! A new file may be written and synced before it is made at home: it is *unbound*. Until it is bound, its size is
//! kept here, and so are the commands that need a file at home. A file that will never be at home is *abandoned*:
//! its commands complete without doing anything.
//!
//! Owns the file's `O_PATH` descriptor and the commands held back.
//!
//! Invariants:
//! - a file is bound at most once, and never unbound again;
//! - a command is held only while the file is unbound: one that comes during [`Binding::bind`] is either among
//!   those held or executed by the thread that brings it.
//!
//! Lock order: `kept` is taken before the lock of the file's data. The file's size is set under it, so that a
//! truncation is either kept for `bind` or made at home.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use weir_engine::{Command, Completion, IoId};

/// Whether a file exists at home.
#[derive(Debug, Default)]
pub(crate) struct Binding {
    path: OnceLock<OwnedFd>,
    kept: Mutex<Kept>,
}

/// What is kept of a file that is not at home.
#[derive(Debug, Default)]
struct Kept {
    /// Bytes the file is to have when it is made, apart from what is written to it later.
    size: u64,
    /// In the order they came.
    held: Vec<Command>,
    abandoned: bool,
}

/// What becomes of a command on a file that may be unbound.
#[derive(Debug)]
pub(crate) enum Intake {
    /// The file is at home.
    Execute(Command),
    /// It is kept until the file is bound or abandoned.
    Held,
    Done(IoId, Completion),
}

impl Binding {
    pub(crate) fn bound(path: OwnedFd) -> Binding {
        Binding { path: OnceLock::from(path), kept: Mutex::default() }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.path.get().is_some()
    }

    /// Whether the file may still be bound.
    pub(crate) fn is_unbound(&self) -> bool {
        !self.is_bound() && {
            let kept = self.lock();
            !self.is_bound() && !kept.abandoned
        }
    }

    pub(crate) fn path(&self) -> Option<BorrowedFd<'_>> {
        self.path.get().map(AsFd::as_fd)
    }

    /// Binds the file after `prepare`, which is given the size that the file is to have.
    ///
    /// # Errors
    /// ESTALE if the file was abandoned; those of `prepare`. The file is still unbound then.
    pub(crate) fn bind(
        &self,
        path: OwnedFd,
        prepare: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let kept = self.lock();
        if kept.abandoned {
            return Err(Errno::STALE.into());
        }
        assert!(!self.is_bound(), "a file is bound twice");
        prepare(kept.size)?;
        self.path.set(path).expect("files are bound under the lock");
        Ok(())
    }

    /// The file will never be at home. The ends of the commands that were held. Nothing happens if home has it by now.
    pub(crate) fn abandon(&self) -> Vec<(IoId, Completion)> {
        let mut kept = self.lock();
        if self.is_bound() {
            return Vec::new();
        }
        kept.abandoned = true;
        std::mem::take(&mut kept.held).into_iter().map(done).collect()
    }

    /// Takes the commands that were held.
    pub(crate) fn take_held(&self) -> Vec<Command> {
        std::mem::take(&mut self.lock().held)
    }

    /// Says what becomes of a command, and keeps it if it is to wait.
    pub(crate) fn take_in(&self, command: Command) -> Intake {
        if self.is_bound() {
            return Intake::Execute(command);
        }
        let mut kept = self.lock();
        if self.is_bound() {
            return Intake::Execute(command);
        }
        let waits = matches!(command, Command::Write { .. } | Command::Sync { .. });
        if waits && !kept.abandoned {
            kept.held.push(command);
            return Intake::Held;
        }
        let (io, completion) = done(command);
        Intake::Done(io, completion)
    }

    /// The size the file is to have; `None` if it is bound.
    pub(crate) fn size(&self) -> Option<u64> {
        let kept = self.lock();
        (!self.is_bound()).then_some(kept.size)
    }

    /// Keeps a size until the file is bound. False if it is bound: the size is to be set at home.
    pub(crate) fn keep_size(&self, size: u64) -> bool {
        let mut kept = self.lock();
        let keeps = !self.is_bound();
        if keeps {
            kept.size = size;
        }
        keeps
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a command on a file without anything at home.
fn done(command: Command) -> (IoId, Completion) {
    let io = command.io();
    let completion = match command {
        // The end of the file.
        Command::Fetch { frames, .. } => Completion::Fetched { frames, result: Ok(0) },
        Command::Write { .. } => Completion::Written { result: Ok(()) },
        Command::Sync { .. } => Completion::Synced { result: Ok(()) },
        Command::Reserve { .. } => Completion::Reserved { result: Ok(()) },
        Command::Map { .. } => Completion::Mapped { extents: Vec::new() },
    };
    (io, completion)
}
