//! `weir run --sync external` and `--sync every-write`: runs a program as a session ([`weir_session`]).
//!
//! Two processes: the *front*, which the caller started, forwards signals and ends with the program's status; the *supervisor*
//! answers the session's calls, or is the root of a tree in the session of a group ([`crate::run::group`]). Members that outlive the program
//! keep the supervisor, and the front ends without them. If the supervisor dies, the front kills the session.

#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

use weir_session::{FindMounts, Joined, Mount, Ordered, Promised};

use crate::cli::{RunArguments, SyncMode};
use crate::control::client::Daemon;
use crate::control::protocol::{Reply, Request, Status};
use crate::failure::Failure;
use crate::mounts::{self, Device, MountTable};
use crate::run::front::{Front, Message};
use crate::run::group::{self, Host, Place};
use crate::run::group_name::Name;
use crate::run::outcome::{cannot_run, status_code};
use crate::run::{forward, report};

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
    to: UnixStream,
    held: &forward::Held,
) -> ! {
    held.restore_in(&mut command);
    held.release();
    let words = arguments
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>();
    let front = Arc::new(Front::new(to));
    let promised = match arguments.sync {
        SyncMode::EveryWrite => Promised::Changes,
        SyncMode::External | SyncMode::Kernel => Promised::Syncs,
    };
    if !weir_session::sees_itself() {
        front.tell(&Message::CannotBegin { why: "/proc is of another PID namespace".to_owned() });
        std::process::exit(0);
    }
    let result = forward::survive_stops().and_then(|()| {
        let Some(name) = &arguments.group else {
            let tell = |event| front.tell(&Message::of(event, &words, None));
            let finder = Box::new(DaemonsOfMounts { group: None });
            return weir_session::run(command, finder, promised, drop, tell);
        };
        match group::enter(name, promised) {
            Ok(Place::First(listener)) => {
                supervise_group(command, name, listener, promised, &words, &front)
            }
            Ok(Place::Member(membership)) => group::run_member(command, membership, &words, &front),
            Err(why) => {
                front.tell(&Message::CannotBegin { why });
                Ok(())
            }
        }
    });
    if result.is_err() {
        weir_session::kill_descendants();
    }
    // The front reads the end of the connection as the end of the supervisor.
    std::process::exit(i32::from(result.is_err()))
}

/// As the first of a group.
fn supervise_group(
    command: Command,
    name: &Name,
    listener: UnixListener,
    promised: Promised,
    words: &[String],
    front: &Front,
) -> io::Result<()> {
    let host = Arc::new(Host::new(name)?);
    let finder = Box::new(DaemonsOfMounts { group: Some(Arc::clone(&host)) });
    let open = |group| {
        if let Err(error) = host.open(listener, group) {
            eprintln!("weir: nobody can join group {name}: {error}");
        }
    };
    weir_session::run(command, finder, promised, open, |event| {
        let message = Message::of(event, words, Some(name));
        if let Message::Failed { message } = &message {
            host.tell_of_failure(message);
        }
        front.tell(&message);
    })
}

/// Asks the daemons.
struct DaemonsOfMounts {
    group: Option<Arc<Host>>,
}

impl DaemonsOfMounts {
    fn judge(&self, mount: &mounts::Mount) -> Mount {
        let at = mount.mount_point.display();
        match self.status(mount) {
            Ok(status) if status.order == "all" => Mount::Ordered(Ordered {
                device: (mount.device.major, mount.device.minor),
                path: mount.mount_point.clone(),
            }),
            Ok(_) => Mount::Unordered(format!("{at} is mounted without --order all")),
            Err(NoStatus::Never(reason)) => Mount::Unordered(format!("{at}: {reason}")),
            Err(NoStatus::NotNow(reason)) => Mount::Unknown(format!("{at}: {reason}")),
        }
    }

    fn status(&self, mount: &mounts::Mount) -> Result<Status, NoStatus> {
        let daemon =
            Daemon::connect_by_socket(mount).map_err(|error| NoStatus::Never(error.to_string()))?;
        if self.is_member(daemon.pid()) {
            // Its answer would be stopped, and wait for this process.
            return Err(NoStatus::Never("its daemon is in the session".to_owned()));
        }
        match daemon.ask_briefly(&Request::Status) {
            Ok(Reply::Status { status }) => Ok(*status),
            Ok(_) => Err(NoStatus::NotNow("its daemon does not say".to_owned())),
            Err(error) => Err(NoStatus::NotNow(error.to_string())),
        }
    }

    /// Whether a process comes from this one, or from one that has joined it.
    fn is_member(&self, process: u32) -> bool {
        let mut at = process;
        while at > 1 {
            let has_joined = self.group.as_ref().is_some_and(|group| group.has_root(at));
            if at == std::process::id() || has_joined {
                return true;
            }
            let status = std::fs::read_to_string(format!("/proc/{at}/status")).unwrap_or_default();
            let parent =
                status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
            at = parent.unwrap_or(0);
        }
        false
    }
}

/// Why a daemon does not say how it is mounted.
enum NoStatus {
    /// It cannot be asked from here.
    Never(String),
    /// It was asked, and did not answer.
    NotNow(String),
}

impl FindMounts for DaemonsOfMounts {
    fn of_device(&self, (major, minor): (u32, u32)) -> Mount {
        let table = MountTable::read().unwrap_or_default();
        match table.of_device(Device { major, minor }) {
            Some(mount) if mount.is_weir() => self.judge(mount),
            _ => Mount::Other,
        }
    }

    fn all(&self) -> Vec<Mount> {
        let table = MountTable::read().unwrap_or_default();
        table.weir().into_iter().map(|mount| self.judge(mount)).collect()
    }

    fn join(&self, mount: &Ordered, promised: Promised) -> io::Result<Joined> {
        let (major, minor) = mount.device;
        let table = MountTable::read()?;
        let mount = table.of_device(Device { major, minor }).ok_or(io::ErrorKind::NotFound)?;
        let daemon = Daemon::connect_by_socket(mount).map_err(io::Error::other)?;
        let group = self.group.as_ref().map(|group| group.secret().to_owned());
        let (connection, memory) = daemon.begin_session(promised == Promised::Changes, group)?;
        Ok(Joined { connection, memory })
    }
}
