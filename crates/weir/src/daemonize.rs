//! Going into the background: the command returns when the mount answers, and not before.
//!
//! The process forks before any thread exists. The child becomes the daemon and reports through a
//! pipe, exactly once: ready, perhaps with a warning, or one line that says why not. The parent exits
//! with that, or says how the child died if it reported nothing.

#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;

use rustix::process::{Pid, WaitOptions, WaitStatus};

/// Why there is no daemon in the background.
#[derive(Debug, thiserror::Error)]
pub enum StartFailure {
    /// The child reported an error.
    #[error("{message}")]
    Reported {
        /// Its one line.
        message: String,
        /// Its exit status.
        status: u8,
    },
    /// The child died without a report.
    #[error("the daemon died before the mount answered ({0}); its log may tell why")]
    Died(String),
    /// The child could not be started.
    #[error("cannot start the daemon: {0}")]
    Fork(#[from] io::Error),
}

impl StartFailure {
    /// The exit status that goes with it.
    pub fn exit_status(&self) -> u8 {
        match self {
            StartFailure::Reported { status, .. } => *status,
            StartFailure::Died(_) | StartFailure::Fork(_) => 1,
        }
    }
}

/// The two processes after the fork.
pub enum Side {
    /// The command, which waits for the outcome.
    Command(Outcome),
    /// The daemon, which must report it.
    Daemon(Report),
}

/// The command's end.
pub struct Outcome {
    pipe: PipeReader,
    child: Pid,
}

/// The daemon's end.
pub struct Report {
    pipe: PipeWriter,
}

/// First byte of a report that the mount answers; a warning may follow.
const READY: u8 = b'+';
/// First byte of a report of a failure; the exit status and the message follow.
const FAILED: u8 = b'-';

/// Forks. The daemon's side is in a session of its own, without a terminal, in `/`.
///
/// Call it while the process has one thread.
pub fn fork() -> Result<Side, StartFailure> {
    assert_eq!(threads(), 1, "fork() after a thread was started");
    let (reader, writer) = io::pipe()?;
    // SAFETY: this is the only thread, so no other thread holds a lock, and the child may continue
    // as the parent would.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            drop(reader);
            let report = Report { pipe: writer };
            match leave() {
                Ok(()) => Ok(Side::Daemon(report)),
                Err(error) => {
                    report.failed(1, &StartFailure::Fork(error).to_string());
                    std::process::exit(1);
                }
            }
        }
        child => {
            drop(writer);
            let child = Pid::from_raw(child).expect("fork gives the parent a positive number");
            Ok(Side::Command(Outcome { pipe: reader, child }))
        }
    }
}

/// Leaves the session, the directory and the terminal of the parent.
fn leave() -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    Ok(())
}

/// Number of threads of this process; 1 if /proc is not readable.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

impl Outcome {
    /// Waits for the daemon's report; returns the warning that came with a success.
    pub fn wait(mut self) -> Result<Option<String>, StartFailure> {
        let mut report = Vec::new();
        self.pipe.read_to_end(&mut report)?;
        match report.split_first() {
            Some((&READY, warning)) => {
                let warning = String::from_utf8_lossy(warning).into_owned();
                Ok((!warning.is_empty()).then_some(warning))
            }
            Some((&FAILED, [status, message @ ..])) => Err(StartFailure::Reported {
                message: String::from_utf8_lossy(message).into_owned(),
                status: *status,
            }),
            _ => Err(StartFailure::Died(self.cause_of_death())),
        }
    }

    fn cause_of_death(&self) -> String {
        let status = loop {
            match rustix::process::waitpid(Some(self.child), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(Some((_, status))) => break Some(status),
                Ok(None) | Err(_) => break None,
            }
        };
        describe(status)
    }
}

fn describe(status: Option<WaitStatus>) -> String {
    match status {
        Some(status) if status.terminating_signal().is_some() => {
            format!("signal {}", status.terminating_signal().unwrap_or_default())
        }
        Some(status) => format!("exit status {}", status.exit_status().unwrap_or_default()),
        None => "cause unknown".to_owned(),
    }
}

impl Report {
    /// Reports that the mount answers. An error means that the command was interrupted and no longer
    /// waits.
    pub fn ready(self, warning: Option<&str>) -> io::Result<()> {
        let mut report = vec![READY];
        report.extend_from_slice(warning.unwrap_or_default().as_bytes());
        self.send(&report)
    }

    /// Reports that the mount failed, and exits.
    pub fn failed(self, status: u8, message: &str) {
        let mut report = vec![FAILED, status];
        report.extend_from_slice(message.as_bytes());
        // If the command is gone, the report is lost.
        let _ = self.send(&report);
    }

    fn send(mut self, report: &[u8]) -> io::Result<()> {
        self.pipe.write_all(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a report through a pipe and reads it at the other end, without another process.
    fn told(send: impl FnOnce(Report)) -> Result<Option<String>, StartFailure> {
        let (reader, writer) = io::pipe().unwrap();
        send(Report { pipe: writer });
        Outcome { pipe: reader, child: Pid::from_raw(i32::MAX).unwrap() }.wait()
    }

    #[test]
    fn reports_of_success_and_failure_arrive() {
        assert_eq!(told(|report| report.ready(None).unwrap()).unwrap(), None);
        let warned = told(|report| report.ready(Some("no log")).unwrap()).unwrap();
        assert_eq!(warned.as_deref(), Some("no log"));
        match told(|report| report.failed(2, "no such thing")) {
            Err(StartFailure::Reported { message, status: 2 }) => {
                assert_eq!(message, "no such thing");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn silence_is_a_death() {
        assert!(matches!(told(drop), Err(StartFailure::Died(_))));
        assert!(told(drop).unwrap_err().to_string().contains("died before the mount answered"));
    }
}
