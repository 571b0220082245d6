//! `weir umount`, `weir sync` and `weir status`: commands that ask a daemon.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use weir_control::file_state;

use crate::cli::{StatusArguments, SyncArguments, UmountArguments};
use crate::command::progress::Progress;
use crate::control::client::{self, ControlError, Daemon};
use crate::control::protocol::{Reply, Request, RequestsReport, Status};
use crate::failure::{Failure, one_line, pretty_json};
use crate::metrics::{self, Silent};
use crate::mounts::{self, Mount, MountTable};
use crate::status;
use crate::unmount::{self, How, UnmountError};

/// Writes everything home and unmounts.
pub fn umount(arguments: &UmountArguments) -> Result<ExitCode, Failure> {
    let mount = client::find(&arguments.mountpoint)?;
    let mut daemon = match Daemon::connect(&mount) {
        Err(ControlError::Dead(_)) => return Err(remove_dead(&mount)),
        daemon => daemon?,
    };
    if daemon.is_elsewhere() {
        leave(&mount, &daemon, arguments.force)?;
        // A connection serves one request. The mount may have ended when it was unmounted in this namespace.
        match Daemon::connect(&mount) {
            Ok(again) if again.is_same(&daemon) => daemon = again,
            // It is there, and may serve other namespaces for ever.
            Err(error @ ControlError::Conversation { .. }) => return Err(error.into()),
            // Its socket is gone. What others have put in the places of sockets does not matter.
            Ok(_) | Err(_) => {
                daemon.wait_for_end();
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    let progress = Progress::of(&mount);
    let reply = match daemon.ask(&Request::Unmount { force: arguments.force }) {
        Err(ControlError::Dead(_)) => return Err(remove_dead(&mount)),
        reply => reply?,
    };
    check_done(reply, &mount)?;
    daemon.wait_for_end();
    drop(progress);
    Ok(ExitCode::SUCCESS)
}

/// Unmounts in this process's mount namespace, which the daemon cannot do.
fn leave(mount: &Mount, daemon: &Daemon, force: bool) -> Result<(), Failure> {
    if let (Reply::Failed { message }, false) = (daemon.ask(&Request::Sync)?, force) {
        return Err(Failure::Refused(format!("still mounted: {message}")));
    }
    let how = if force { How::Detach } else { How::Idle };
    match unmount::unmount(&mount.mount_point, how) {
        Ok(()) | Err(UnmountError::NotMounted) => Ok(()),
        Err(error) => {
            let path = mount.mount_point.display();
            let users = unmount::users(&mount.mount_point).join(", ");
            let by = if users.is_empty() { users } else { format!(" by {users}") };
            Err(Failure::Refused(format!("cannot unmount {path}: {error}{by}")))
        }
    }
}

/// Unmounts a mount whose daemon has died. Always returns a failure: data that was not home is lost.
fn remove_dead(mount: &Mount) -> Failure {
    let path = mount.mount_point.display();
    match unmount::unmount(&mount.mount_point, How::Detach) {
        Ok(()) | Err(UnmountError::NotMounted) => Failure::Refused(format!(
            "unmounted {path}, but its daemon had died: what it had not written home is lost"
        )),
        Err(error) => Failure::Refused(format!(
            "the daemon of {path} has died, and the mount cannot be removed: {error}"
        )),
    }
}

/// Writes everything home.
pub fn sync(arguments: &SyncArguments) -> Result<ExitCode, Failure> {
    let mount = client::find(&arguments.mountpoint)?;
    let daemon = Daemon::connect(&mount)?;
    let progress = Progress::of(&mount);
    let reply = daemon.ask(&Request::Sync);
    drop(progress);
    check_done(reply?, &mount)?;
    Ok(ExitCode::SUCCESS)
}

/// What a daemon answers when it has done something.
fn check_done(reply: Reply, mount: &Mount) -> Result<(), Failure> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Failed { message } => Err(Failure::Refused(message)),
        Reply::Status { .. } | Reply::Session => {
            let path = mounts::shown(&mount.mount_point);
            Err(Failure::Refused(format!(
                "the daemon of {path} does not say that it is done: is it another version?"
            )))
        }
    }
}

/// Shows one file, one mount or all of them.
pub fn status(arguments: &StatusArguments) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.path {
        let mount = client::find(path)?;
        if !arguments.requests
            && !arguments.prometheus
            && let Some(state) = state_of(path, &mount)?
        {
            let shown = path.display();
            print(&match arguments.json {
                true => {
                    pretty_json(&serde_json::json!({ "path": shown.to_string(), "state": state }))
                }
                false => one_line(&format!("{shown}: {state}")) + "\n",
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let status = match status_of(&mount) {
            Err(failure) if arguments.prometheus => {
                print(&metrics::render(&[], &[silent(&mount)]))?;
                return Err(failure);
            }
            status => status?,
        };
        let text = match (arguments.requests, arguments.json) {
            _ if arguments.prometheus => metrics::render(&[status], &[]),
            (false, false) => status::render(&status),
            (false, true) => pretty_json(&status),
            (true, false) => status::render_requests(&status),
            (true, true) => pretty_json(&RequestsReport::from(&status)),
        };
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let table = MountTable::read().map_err(ControlError::Table)?;
    let (mut statuses, mut silent_ones) = (Vec::new(), Vec::new());
    let mut outcome = ExitCode::SUCCESS;
    for mount in table.weir() {
        match status_of(mount) {
            Ok(status) => statuses.push(status),
            // This user may not see it.
            Err(Failure::Control(ControlError::Denied { .. })) => {}
            // Show the other mounts.
            Err(failure) => {
                silent_ones.push(silent(mount));
                outcome = failure.report();
            }
        }
    }
    statuses.extend(client::unmounted(&table).into_iter().map(|(_, status)| status));
    let text = match (arguments.requests, arguments.json) {
        _ if arguments.prometheus => metrics::render(&statuses, &silent_ones),
        (false, false) => status::render_all(&statuses),
        (false, true) => pretty_json(&statuses),
        (true, false) => status::render_all_requests(&statuses),
        (true, true) => pretty_json(&statuses.iter().map(RequestsReport::from).collect::<Vec<_>>()),
    };
    print(&text)?;
    Ok(outcome)
}

/// How far a file is on its way home, as its attribute says; `None` of a directory, and of what is not in the mount.
fn state_of(path: &Path, mount: &Mount) -> Result<Option<String>, Failure> {
    // The mount point is not touched: a daemon that hangs would hang this, too.
    if mounts::absolute(path).is_ok_and(|path| path == mount.mount_point) {
        return Ok(None);
    }
    let failed = |error: io::Error| Failure::Refused(format!("{}: {error}", path.display()));
    let file = match path.canonicalize() {
        Ok(file) if file.starts_with(&mount.mount_point) => file,
        Ok(_) => return Ok(None),
        // The daemon is gone, or serves nobody any more: asking it tells more.
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let kind = file.metadata().map_err(failed)?.file_type();
    if kind.is_dir() {
        return Ok(None);
    }
    if !kind.is_file() {
        let path = path.display();
        return Err(Failure::Refused(format!("{path} is neither a file nor a directory")));
    }
    match file_state::read(&file) {
        Ok(Some(state)) => Ok(Some(state)),
        Ok(None) => Err(Failure::Refused(format!(
            "the daemon of {} does not tell of single files: is it another version?",
            mount.mount_point.display()
        ))),
        Err(error) => Err(failed(error.into())),
    }
}

/// A mount whose daemon did not answer, for metrics.
fn silent(mount: &Mount) -> Silent {
    Silent { mountpoint: mounts::shown(&mount.mount_point), source: mounts::shown(&mount.source) }
}

fn status_of(mount: &Mount) -> Result<Status, Failure> {
    match Daemon::connect(mount)?.ask(&Request::Status)? {
        Reply::Status { status } => Ok(*status),
        Reply::Failed { message } => Err(Failure::Refused(message)),
        Reply::Done | Reply::Session => Err(unexpected(&mount.mount_point)),
    }
}

fn unexpected(mountpoint: &Path) -> Failure {
    let path = mountpoint.display();
    Failure::Refused(format!("the daemon of {path} gave no status: is it another version?"))
}

/// Prints; a reader that closes the pipe early is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Refused(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
