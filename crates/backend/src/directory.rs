//! Executes device commands on the files of one directory tree.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_engine::{Command, Completion, IoId};

use crate::home_file::HomeFile;

/// Where a [`Directory`] delivers completions.
pub trait Sink: Send + Sync {
    /// Takes the completions out of `completions`, which is not empty. Called on the back end's
    /// own threads, under no lock of the back end; it may execute further commands.
    fn completed(&self, completions: &mut Vec<(IoId, Completion)>);
}

/// How data is transferred, chosen by the back end itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// io_uring.
    Ring,
    /// Blocking calls on worker threads: io_uring is not to be had.
    Threads,
}

/// The back end of one SOURCE: an io_uring, its completion thread, and a few workers.
pub struct Directory {}

impl Directory {
    /// Sets up the transfers for the files below `source`. Nothing runs before
    /// [`Directory::start`].
    ///
    /// # Errors
    /// Too few resources for a ring and for threads alike.
    pub fn new(source: BorrowedFd<'_>) -> io::Result<Directory> {
        let _ = source;
        todo!()
    }

    /// Starts the threads. Completions go to `sink` until [`Directory::shutdown`].
    ///
    /// # Errors
    /// What thread creation says.
    pub fn start(&self, sink: Arc<dyn Sink>) -> io::Result<()> {
        let _ = sink;
        todo!()
    }

    /// Whether files are transferred with `O_DIRECT`, as far as is known by now.
    pub fn is_direct(&self) -> bool {
        todo!()
    }

    /// How data is transferred.
    pub fn method(&self) -> Method {
        todo!()
    }

    /// Starts every command, emptying `commands`. Those that were executed at once, in this
    /// thread, are answered in `done`; all others through the sink. Never waits for a transfer.
    pub fn execute(
        &self,
        commands: &mut Vec<(Command, Arc<HomeFile>)>,
        done: &mut Vec<(IoId, Completion)>,
    ) {
        let _ = (commands, done);
        todo!()
    }

    /// Waits for what is under way, stops the threads and forgets the sink. Commands given later
    /// are not executed. Idempotent.
    pub fn shutdown(&self) {
        todo!()
    }
}
