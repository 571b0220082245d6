//! What every workload can do with its files.

use std::path::Path;
use std::process::Command;

use super::outcome::Outcome;
use crate::error::Result;

/// A workload on files of its own.
pub trait Job {
    /// What its files take up, in bytes, about.
    fn file_bytes(&self) -> u64;

    /// Makes its files in `home`, durable. Whatever of them is there is made anew.
    fn prepare(&self, home: &Path) -> Result<()>;

    /// Runs it on the prepared files in `directory`. What it reads is compared outside of the timed
    /// sections: [`Error::Different`](crate::error::Error::Different) if it is neither what was
    /// prepared nor what this run wrote there, or older than what it wrote last.
    fn run(&self, directory: &Path) -> Result<Outcome>;

    /// Compares every byte of the files in `home` with what a run with this `outcome` leaves:
    /// [`Error::Different`](crate::error::Error::Different) with the first that differs. Everything
    /// the run wrote must be home.
    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()>;

    /// Undoes what a run with this `outcome` changed, durably: as [`Job::prepare`], only sooner. A run
    /// that failed has no outcome; then prepare. Unless overridden, a run changes nothing.
    fn reset(&self, _home: &Path, _outcome: &Outcome) -> Result<()> {
        Ok(())
    }
}

/// A program, run by another command unless that is empty.
pub fn command_under(under: &[String], program: &Path) -> Command {
    match under {
        [] => Command::new(program),
        [first, words @ ..] => {
            let mut command = Command::new(first);
            command.args(words).arg(program);
            command
        }
    }
}
