//! The load: this program again, as a child inside a contestant's memory group.
//!
//! The workload goes in as JSON on standard input, the outcome comes out as JSON on standard
//! output, and standard error is passed through. The child is killed if it takes too long, if a
//! signal ends the run, and by the kernel if the run is killed.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cgroup::Group;
use super::process::Process;
use crate::cleanup::undo;
use crate::error::{Doing, Error, Result};

/// This program, even if its file was replaced since it started.
const OWN: &str = "/proc/self/exe";

/// Runs `workload` on `directory` in `group` for at most `limit`. What it makes for itself it makes in
/// `scratch`, where it is cleared away even if the load is killed.
pub fn run<W: Serialize, O: DeserializeOwned>(
    group: &Group,
    directory: &Path,
    scratch: &Path,
    workload: &W,
    limit: Duration,
) -> Result<O> {
    let mut command = Command::new(OWN);
    command.arg0("weir-bench").arg("load").arg(directory).env("TMPDIR", scratch);
    group.admit(&mut command)?;
    run_by(&mut command, workload, limit)
}

/// The same by a command that comes to `weir-bench load DIRECTORY`, in whatever way.
pub fn run_by<W: Serialize, O: DeserializeOwned>(
    command: &mut Command,
    workload: &W,
    limit: Duration,
) -> Result<O> {
    let input =
        serde_json::to_vec(workload).map_err(|error| Error::answer("the JSON writer", error))?;
    let output = answer(command, input, limit)?;
    serde_json::from_slice(&output).map_err(|error| Error::answer("weir-bench load", error))
}

/// Gives a child its input and returns what it printed, once it has ended well.
fn answer(command: &mut Command, input: Vec<u8>, limit: Duration) -> Result<Vec<u8>> {
    let own = Path::new(OWN);
    end_with_this_thread(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().doing("run", own)?;
    let process = Process::with_pid(child.id());
    let killed_by_signal = undo(move || {
        process.map(Process::kill);
    });
    let given = give(&mut child, &input);
    let output = take(&mut child, limit);
    if output.is_none() {
        let _ = child.kill();
    }
    let status = child.wait().doing("wait for", own)?;
    killed_by_signal.disarm();
    match output {
        None => Err(failed(format!("no end after {} s", limit.as_secs()))),
        Some(output) if status.success() => {
            given.doing("give its workload to", own)?;
            output.doing("read the answer of", own)
        }
        Some(_) => Err(failed(ending(status))),
    }
}

/// Has the kernel kill the child when the thread that starts it ends.
fn end_with_this_thread(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one prctl(2) and allocates nothing.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

fn give(child: &mut Child, input: &[u8]) -> io::Result<()> {
    // Closed at the end of this function, which is the end of the input.
    child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input))
}

/// What the child prints until it closes its output; `None` if it has not after `limit`.
fn take(child: &mut Child, limit: Duration) -> Option<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    let mut stdout = child.stdout.take()?;
    thread::spawn(move || {
        let mut output = Vec::new();
        let read = stdout.read_to_end(&mut output).map(|_| output);
        // Nobody receives it when it is too late.
        let _ = sender.send(read);
    });
    match receiver.recv_timeout(limit) {
        Ok(output) => Some(output),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Err(io::Error::other("its reader died"))),
    }
}

fn ending(status: ExitStatus) -> String {
    status
        .signal()
        .map_or_else(|| status.to_string(), |signal| format!("killed by signal {signal}"))
}

fn failed(status: String) -> Error {
    Error::Command {
        command: "weir-bench load".into(),
        status,
        said: "what it said stands above".into(),
    }
}
