//! What stops a demo or a benchmark, as one line for a person: what was tried, on what, why it
//! failed and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a path failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A program that was started ended badly.
    #[error("'{command}' failed ({status}): {said}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// The last of its standard error.
        said: String,
    },
    /// Something this needs is not there.
    #[error("{what}: {remedy}")]
    Missing {
        /// What is not there.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// The two sides, or what is on the disk and what was written, differ.
    #[error("DIFFERENT: {0}")]
    Different(String),
    /// A program answered something this cannot read.
    #[error("cannot understand what {from} answered: {why}")]
    Answer {
        /// Who answered.
        from: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The engine refused a configuration of a benchmark.
    #[error("the engine refused the benchmark's configuration: {0}")]
    Engine(String),
}

impl Error {
    /// Who answered something this cannot read, and what is wrong with it.
    pub fn answer(from: &'static str, why: impl ToString) -> Error {
        Error::Answer { from, why: why.to_string() }
    }

    /// The names that were asked for are none of the suite's.
    pub fn no_such_case(suite: &str) -> Error {
        Error::Missing {
            what: "nothing of the suite has that disk and name".into(),
            remedy: format!("see 'weir-bench run {suite} --help'"),
        }
    }
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds what was tried, and on what, to a failed system call.
pub trait Doing<T> {
    /// As above; `what` is a verb phrase that fits after "cannot".
    fn doing(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::Io { what, path: path.to_owned(), source: error.into() })
    }
}
