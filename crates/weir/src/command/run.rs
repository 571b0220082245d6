//! `weir run`: runs a program that reads and writes files of mounts by memory shared with the daemon.
//!
//! Without a report the program replaces this process, and keeps its exit status, signals and terminal. With a report
//! this process waits for it. With `--sync external` it is the front of a session.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cli::{RunArguments, SyncMode};
use crate::failure::{Failure, one_line};
use crate::run::outcome::{cannot_run, status_code};
use crate::run::program::{self, Program};
use crate::run::tally::TallyFile;
use crate::run::{external, forward, ignored, report};

/// The library's file name.
const LIBRARY: &str = "libweir_preload.so";
/// Environment variable with the library's path, which replaces the search.
const LIBRARY_VARIABLE: &str = "WEIR_PRELOAD";

/// Runs a program, with the library preloaded if possible.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let [name, rest @ ..] = &arguments.command[..] else {
        return Err(Failure::Usage("name a program; see 'weir run --help'".to_owned()));
    };
    if arguments.group.is_some() && arguments.sync == SyncMode::Kernel {
        return Err(Failure::Usage(
            "--group joins sessions: give --sync external or --sync every-write, too".to_owned(),
        ));
    }
    let program = program::find(name)?;
    let library = library()?;
    if arguments.sync != SyncMode::Kernel {
        let mut command = command(&program, name, rest);
        command.env("LD_PRELOAD", preloaded(&library, std::env::var_os("LD_PRELOAD")));
        return external::run(command, name, arguments);
    }
    if let Some(reason) = program.ignores_preload() {
        let name = one_line(&name.to_string_lossy());
        eprintln!("weir: {name} is {reason}: it uses mounts by the kernel alone");
    }
    let mut command = command(&program, name, rest);
    command.env("LD_PRELOAD", preloaded(&library, std::env::var_os("LD_PRELOAD")));
    if arguments.report.is_none() && !arguments.report_json {
        return Err(cannot_run(name, command.exec()));
    }
    let tally = TallyFile::create().map_err(|error| {
        Failure::Refused(format!("cannot make a file for the report's counters: {error}"))
    })?;
    command.env(TallyFile::variable(), tally.path());
    let status = forward::run(&mut command).map_err(|error| cannot_run(name, error))?;
    report::print(&tally, arguments, &arguments.command, status_code(status))?;
    Ok(ExitCode::from(status_code(status)))
}

fn command(program: &Program, name: &OsStr, rest: &[OsString]) -> Command {
    let mut command = Command::new(program.path());
    command.arg0(name).args(rest);
    ignored::restore_in(&mut command);
    command
}

/// The library comes first: its calls then reach the libraries preloaded before.
fn preloaded(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

/// Path of the library: from the environment, beside this command, or where it is installed.
pub(super) fn library() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    let places = match named {
        Some(named) => vec![named],
        None => {
            let own = std::env::current_exe().and_then(std::fs::canonicalize).map_err(|error| {
                Failure::Refused(format!("cannot find out where this command is: {error}"))
            })?;
            let directory = own.parent().unwrap_or(Path::new("/"));
            vec![directory.join(LIBRARY), directory.join("../lib/weir").join(LIBRARY)]
        }
    };
    let Some(found) = places.iter().find(|place| place.is_file()) else {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        return Err(Failure::Refused(format!(
            "{LIBRARY} is not there: looked for {}; install it, or name it in {LIBRARY_VARIABLE}",
            places.join(" and ")
        )));
    };
    let path = std::fs::canonicalize(found).unwrap_or_else(|_| found.clone());
    // ld.so(8) treats both as separators.
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\n' | b'\t')) {
        return Err(Failure::Refused(format!(
            "{} cannot be preloaded: its path has a space or a colon; install it elsewhere, or name a copy in \
             {LIBRARY_VARIABLE}",
            path.display()
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_preloads_come_after_the_library() {
        let library = Path::new("/lib/w.so");
        assert_eq!(preloaded(library, None), "/lib/w.so");
        assert_eq!(preloaded(library, Some("".into())), "/lib/w.so");
        assert_eq!(preloaded(library, Some("a.so b.so".into())), "/lib/w.so:a.so b.so");
    }
}
