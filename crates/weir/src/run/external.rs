//! `weir run --sync external` and `--sync every-write`: runs a program as a session ([`weir_session`]).
//!
//! Two processes: the *front*, which the caller started, forwards signals and ends with the program's status; the *supervisor*
//! answers the session's calls. Members that outlive the program keep the supervisor, and the front ends without them. If the supervisor
//! dies, the front kills the session.

#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

use serde::{Deserialize, Serialize};
use weir_session::{Counts, Event, FindMounts, Joined, Mount, Ordered, Promised};

use crate::cli::{RunArguments, SyncMode};
use crate::control::client::Daemon;
use crate::control::protocol::{Reply, Request, Status};
use crate::failure::Failure;
use crate::mounts::{self, Device, MountTable};
use crate::run::outcome::{cannot_run, status_code};
use crate::run::{forward, report};

/// What the supervisor tells the front, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    Started { process: u32 },
    NoFence { errno: i32 },
    CannotBegin { why: String },
    CannotRun { errno: i32 },
    Ended { status: i32, report: Report },
    Failed { message: String },
}

/// What a session did, for `--report`.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    weir_version: String,
    command: Vec<String>,
    exit_status: u8,
    stopped_calls: u64,
    promises: u64,
    commits: Commits,
    waits: Waits,
    syncs_done_at_once: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Commits {
    for_output: u64,
    by_time: u64,
    at_end: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Waits {
    count: u64,
    by_call: BTreeMap<String, u64>,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

/// Runs the command as a session, and reports if that is wanted.
pub fn run(command: Command, name: &OsStr, arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let refused = |error: io::Error| Failure::Refused(format!("cannot begin a session: {error}"));
    // If the supervisor dies, its orphans become children of the front, which kills them.
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))
        .map_err(|errno| refused(errno.into()))?;
    let held = forward::hold().map_err(refused)?;
    let (front, back) = UnixStream::pair().map_err(refused)?;
    // SAFETY: no other thread runs in this process.
    match unsafe { libc::fork() } {
        -1 => Err(refused(io::Error::last_os_error())),
        0 => {
            drop(front);
            supervise(command, arguments, back, &held)
        }
        _ => {
            drop(back);
            wait(front, name, arguments, &held)
        }
    }
}

/// The front: waits for the end of the program, and for what it was promised.
fn wait(
    from: UnixStream,
    name: &OsStr,
    arguments: &RunArguments,
    held: &forward::Held,
) -> Result<ExitCode, Failure> {
    for line in BufReader::new(from).lines() {
        let message = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        match message {
            Some(Message::Started { process }) => held.forward_to(process),
            Some(Message::NoFence { errno }) => return Err(no_fence(errno)),
            Some(Message::CannotBegin { why }) => {
                return Err(Failure::Refused(format!("cannot begin a session: {why}")));
            }
            Some(Message::CannotRun { errno }) => {
                return Err(cannot_run(name, io::Error::from_raw_os_error(errno)));
            }
            Some(Message::Ended { status, report }) => {
                held.forward_to_nobody();
                if arguments.report.is_some() || arguments.report_json {
                    report::deliver(arguments, &report.text(report::is_json(arguments)))?;
                }
                return Ok(ExitCode::from(status_code(ExitStatus::from_raw(status))));
            }
            Some(Message::Failed { message }) => {
                held.forward_to_nobody();
                return Err(Failure::Broken(message));
            }
            None => break,
        }
    }
    held.forward_to_nobody();
    weir_session::kill_descendants();
    Err(Failure::Broken(
        "the supervisor of the session has died, and the session was killed: what was synced and followed by output is \
         durable, what was synced after the last output may not be"
            .to_owned(),
    ))
}

fn no_fence(errno: i32) -> Failure {
    let error = io::Error::from_raw_os_error(errno);
    Failure::Refused(match errno {
        libc::EBUSY => {
            "cannot begin a session inside another one: leave out --sync external".to_owned()
        }
        libc::EINVAL | libc::ENOSYS => {
            format!(
                "this kernel cannot stop the calls of a session ({error}): --sync external needs Linux 5.19"
            )
        }
        _ => format!("cannot stop the calls of a session: {error}"),
    })
}

/// The supervisor's process; it ends with the last member.
fn supervise(
    mut command: Command,
    arguments: &RunArguments,
    mut to: UnixStream,
    held: &forward::Held,
) -> ! {
    held.restore_in(&mut command);
    held.release();
    let words = arguments
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>();
    let tell = |event| {
        let message = Message::of(event, &words);
        let mut line =
            serde_json::to_vec(&message).expect("plain structures of strings and numbers");
        line.push(b'\n');
        // If the front was killed, nobody listens.
        let _ = to.write_all(&line);
    };
    let promised = match arguments.sync {
        SyncMode::EveryWrite => Promised::Changes,
        SyncMode::External | SyncMode::Kernel => Promised::Syncs,
    };
    let result = forward::survive_stops()
        .and_then(|()| weir_session::run(command, Box::new(DaemonsOfMounts), promised, tell));
    // The front reads the end of the connection as the end of the supervisor.
    std::process::exit(i32::from(result.is_err()))
}

impl Message {
    fn of(event: Event, command: &[String]) -> Message {
        let number = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        match event {
            Event::Started(process) => Message::Started { process },
            Event::NoFence(error) => Message::NoFence { errno: number(&error) },
            Event::CannotBegin(why) => Message::CannotBegin { why },
            Event::CannotRun(error) => Message::CannotRun { errno: number(&error) },
            Event::Ended { status, counts, fallbacks } => Message::Ended {
                status: status.into_raw(),
                report: Report::new(command, status_code(status), &counts, fallbacks),
            },
            Event::Failed { mount, error } => Message::Failed {
                message: format!(
                    "what was synced on {} cannot be made durable ({error}), and the session was killed: nothing has left it \
                     since; what was synced before the last output is durable",
                    mount.path.display()
                ),
            },
        }
    }
}

impl Report {
    fn new(command: &[String], exit_status: u8, counts: &Counts, fallbacks: Vec<String>) -> Report {
        let waits = &counts.waits_us;
        Report {
            weir_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.to_vec(),
            exit_status,
            stopped_calls: counts.calls,
            promises: counts.promises,
            commits: Commits {
                for_output: counts.commits_for_output,
                by_time: counts.commits_by_time,
                at_end: counts.commits_at_end,
            },
            waits: Waits {
                count: waits.len(),
                by_call: counts.waited.clone(),
                p50_us: waits.value_at_quantile(0.5),
                p99_us: waits.value_at_quantile(0.99),
                max_us: waits.max(),
            },
            syncs_done_at_once: fallbacks,
        }
    }

    fn text(&self, is_json: bool) -> String {
        if is_json {
            return serde_json::to_string_pretty(self).expect("plain structures") + "\n";
        }
        let Report { promises, commits, waits, .. } = self;
        let mut text = format!(
            "weir run: {} (status {})\n  {promises} syncs returned at once, {} commits: {} for output, {} after 5 s, {} at the end\n  \
             {} calls were stopped\n  {} calls waited for a commit: half of them up to {} µs, 99 % up to {}, the longest {}\n",
            self.command.join(" "),
            self.exit_status,
            commits.for_output + commits.by_time + commits.at_end,
            commits.for_output,
            commits.by_time,
            commits.at_end,
            self.stopped_calls,
            waits.count,
            waits.p50_us,
            waits.p99_us,
            waits.max_us,
        );
        let by_call = waits.by_call.iter().map(|(what, count)| format!("{count} {what}"));
        if !waits.by_call.is_empty() {
            text.push_str(&format!("  of these: {}\n", by_call.collect::<Vec<_>>().join("; ")));
        }
        for reason in &self.syncs_done_at_once {
            text.push_str(&format!("  syncs were done at once: {reason}\n"));
        }
        text
    }
}

/// Asks the daemons.
struct DaemonsOfMounts;

impl FindMounts for DaemonsOfMounts {
    fn of_device(&self, (major, minor): (u32, u32)) -> Mount {
        let table = MountTable::read().unwrap_or_default();
        match table.of_device(Device { major, minor }) {
            Some(mount) if mount.is_weir() => judge(mount),
            _ => Mount::Other,
        }
    }

    fn all(&self) -> Vec<Mount> {
        let table = MountTable::read().unwrap_or_default();
        table.weir().into_iter().map(judge).collect()
    }

    fn join(&self, mount: &Ordered, promised: Promised) -> io::Result<Joined> {
        let (major, minor) = mount.device;
        let table = MountTable::read()?;
        let mount = table.of_device(Device { major, minor }).ok_or(io::ErrorKind::NotFound)?;
        let daemon = Daemon::connect(mount).map_err(io::Error::other)?;
        let (connection, memory) = daemon.begin_session(promised == Promised::Changes)?;
        Ok(Joined { connection, memory })
    }
}

fn judge(mount: &mounts::Mount) -> Mount {
    let at = mount.mount_point.display();
    match status(mount) {
        Ok(status) if status.order == "all" => Mount::Ordered(Ordered {
            device: (mount.device.major, mount.device.minor),
            path: mount.mount_point.clone(),
        }),
        Ok(_) => Mount::Unordered(format!("{at} is mounted without --order all")),
        Err(NoStatus::Never(reason)) => Mount::Unordered(format!("{at}: {reason}")),
        Err(NoStatus::NotNow(reason)) => Mount::Unknown(format!("{at}: {reason}")),
    }
}

/// Why a daemon does not say how it is mounted.
enum NoStatus {
    /// It cannot be asked from here.
    Never(String),
    /// It was asked, and did not answer.
    NotNow(String),
}

fn status(mount: &mounts::Mount) -> Result<Status, NoStatus> {
    let daemon = Daemon::connect(mount).map_err(|error| NoStatus::Never(error.to_string()))?;
    if is_from_here(daemon.pid()) {
        // Its answer would be stopped, and wait for this process.
        return Err(NoStatus::Never("its daemon is in the session".to_owned()));
    }
    match daemon.ask_briefly(&Request::Status) {
        Ok(Reply::Status { status }) => Ok(*status),
        Ok(_) => Err(NoStatus::NotNow("its daemon does not say".to_owned())),
        Err(error) => Err(NoStatus::NotNow(error.to_string())),
    }
}

/// Whether a process comes from this one.
fn is_from_here(process: u32) -> bool {
    let mut at = process;
    while at > 1 {
        if at == std::process::id() {
            return true;
        }
        let status = std::fs::read_to_string(format!("/proc/{at}/status")).unwrap_or_default();
        let parent =
            status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        at = parent.unwrap_or(0);
    }
    false
}
