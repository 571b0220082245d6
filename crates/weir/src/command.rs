//! The commands, each from its arguments to its exit status.

mod advise;
mod ask;
mod dashboard;
mod doctor;
mod documents;
mod mount;
mod progress;
mod redo_log;
mod remount;
mod run;
mod top;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::failure::Failure;

/// Runs the command that the command line names.
pub fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => ask::umount(&arguments),
        Command::Sync(arguments) => ask::sync(&arguments),
        Command::Status(arguments) => ask::status(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Dashboard(arguments) => dashboard::run(&arguments),
        Command::Recover(arguments) => redo_log::recover(&arguments),
        Command::Log(arguments) => redo_log::show(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Documents(arguments) => documents::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::AdviseReplay(arguments) => advise::replay(&arguments),
    }
}
