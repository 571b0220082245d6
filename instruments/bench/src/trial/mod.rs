//! Programs that the end-to-end tests of the lane run: one to be killed in the middle of its work, and some that do
//! what no program of ours does.

mod adversary;
mod writer;

use clap::Subcommand;

use crate::error::Result;

/// Which.
#[derive(Subcommand)]
pub enum Trial {
    /// Write numbered records to FILE until it is killed or a write fails, and say on standard output which are
    /// written: eight bytes each.
    Writer(writer::Arguments),
    /// Be a client of the lane that keeps to nothing.
    Adversary(adversary::Arguments),
}

/// Runs it.
pub fn run(trial: Trial) -> Result<()> {
    match trial {
        Trial::Writer(arguments) => arguments.run(),
        Trial::Adversary(arguments) => arguments.run(),
    }
}
