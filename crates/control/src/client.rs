//! The clients' end of the control socket: finds the daemon of a path, and asks it.
//!
//! Invariants:
//! - a socket is looked for only in a directory that its user alone can enter, and nothing is sent to a listener, or believed of
//!   it, before the kernel has said that its user is the mount's or root;
//! - connecting has a deadline, and so has each question but those whose answer may take as long as it takes. A peer's answer has
//!   a bound ([`protocol`]).

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::PidfdFlags;
use serde::de::DeserializeOwned;

use super::conversation::{Deadline, Within, connect_within};
use super::place::{self, Trust};
use super::protocol::{self, Reply, Request, Status};
use crate::mounts::{self, Device, Mount, MountTable};
use crate::namespaces;

/// How long a daemon may take to be connected to, and to take a request. A stopped one lets the kernel take connections until its queue
/// is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a daemon may take to send its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// As above, if others wait in the meantime.
const BRIEF_TIMEOUT: Duration = Duration::from_secs(3);

/// As above, for a daemon whose end is awaited and which need not answer.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for a process to end after it hung up.
const END_TIMEOUT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Why a daemon could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The mount table cannot be read.
    #[error("cannot read the mount table: {0}")]
    Table(io::Error),
    /// The path cannot be looked up.
    #[error("{}: {error}: name the mount point, or a path in the mount", path.display())]
    Path {
        /// As given.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The path is in no Weir mount.
    #[error(
        "{} is neither in a weir mount nor the SOURCE of one: 'weir status' lists those there are",
        .0.display()
    )]
    NotMounted(PathBuf),
    /// The mount exists, but its daemon has died.
    #[error(
        "the daemon of {} has died: 'weir umount' or 'umount' removes the mount; \
         what it had not written home is lost", .0.display()
    )]
    Dead(PathBuf),
    /// The mount answers, but its daemon's socket does not.
    #[error(
        "the control socket of {} is gone: unmount with 'fusermount3 -u' or 'umount', which \
         brings everything home as well", .0.display()
    )]
    Unreachable(PathBuf),
    /// The mount belongs to another user.
    #[error("the mount {} belongs to user {owner}: ask as that user or as root", path.display())]
    Denied {
        /// The mount point.
        path: PathBuf,
        /// The mount's user.
        owner: u32,
    },
    /// Another process listens in the daemon's place.
    #[error("the control socket of {} belongs to user {uid}, not to its daemon", path.display())]
    Impostor {
        /// The mount point.
        path: PathBuf,
        /// The user of that process.
        uid: u32,
    },
    /// The daemon's directory is not one that only its user can enter.
    #[error("the control socket of {} is not used: {} {why}", path.display(), directory.display())]
    Exposed {
        /// The mount point.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The conversation failed.
    #[error("the daemon of {} did not answer: {error}", path.display())]
    Conversation {
        /// The mount point.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The Weir mount that `path` is in, or whose SOURCE it is, or whose mount point or SOURCE it was if the mount is gone and its
/// daemon still brings things home. Does not access mounts if the name alone identifies one.
pub fn find(path: &Path) -> Result<Mount, ControlError> {
    let table = MountTable::read().map_err(ControlError::Table)?;
    let fault = |error| ControlError::Path { path: path.to_owned(), error };
    let clean = mounts::absolute(path).map_err(fault)?;
    let by_name = |path: &Path| {
        let inside = table.containing(path).filter(|mount| mount.is_weir());
        inside.or_else(|| table.of_source(path)).cloned()
    };
    if let Some(mount) = by_name(&clean) {
        return Ok(mount);
    }
    let canonical = path.canonicalize().map_err(fault)?;
    let is_it = |mount: &Mount| [&clean, &canonical].into_iter().any(|path| is_of(mount, path));
    by_name(&canonical)
        .or_else(|| unmounted(&table).into_iter().map(|(mount, _)| mount).find(is_it))
        .ok_or_else(|| ControlError::NotMounted(path.to_owned()))
}

/// Whether a daemon whose mount is gone says that it was at `path`, or of it.
fn is_of(mount: &Mount, path: &Path) -> bool {
    let text = mounts::shown(path);
    [&mount.mount_point, &mount.source].into_iter().any(|of| mounts::shown(of) == text)
}

/// Mounts of this user that are gone, in every mount namespace, and whose daemons still bring things home; with their status.
pub fn unmounted(table: &MountTable) -> Vec<(Mount, Status)> {
    unmounted_but(table, &HashSet::new())
}

/// As [`unmounted`]. These processes are known to serve mounts that are there, and are not asked.
pub fn unmounted_but(table: &MountTable, serving: &HashSet<u32>) -> Vec<(Mount, Status)> {
    let uid = rustix::process::geteuid().as_raw();
    let gone = own_sockets().into_iter().filter_map(|socket| {
        let pid = place::process(&socket).filter(|pid| !serving.contains(pid))?;
        let deadline = Deadline::within(PROGRESS_TIMEOUT);
        let (connection, _) = connect_to_own(&socket, deadline)?;
        let status = ask_for_status(&connection, deadline)?;
        let is_it = |mount: &Mount| {
            mount.is_weir()
                && mounts::shown(&mount.source) == status.source
                && mount.may_serve(&mount.source)
        };
        if table.iter().any(is_it) || !namespaces::holders_where(is_it).is_empty() {
            return None;
        }
        let mount = Mount {
            device: Device { major: 0, minor: 0 },
            root: "/".into(),
            mount_point: status.mountpoint.clone().into(),
            options: String::new(),
            fs_type: mounts::FS_TYPE.to_owned(),
            source: status.source.clone().into(),
            super_options: format!("user_id={uid}"),
            former_of: Some(pid),
        };
        Some((mount, status))
    });
    gone.collect()
}

/// The status of process `pid`, if it is a daemon of this user and answers.
pub fn status_of_process(pid: u32) -> Option<Status> {
    let deadline = Deadline::within(PROGRESS_TIMEOUT);
    let connection = own_sockets().into_iter().find_map(|path| {
        let (connection, peer) = connect_to_own(&path, deadline)?;
        (peer == pid).then_some(connection)
    })?;
    ask_for_status(&connection, deadline)
}

/// The sockets in this user's directories, as far as nobody else can have put them there.
fn own_sockets() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let directories = place::candidates(uid).into_iter();
    let trusted = directories.filter(|directory| place::trust(directory, uid) == Trust::Trusted);
    let entries = trusted.filter_map(|directory| std::fs::read_dir(directory).ok()).flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// A connection to a daemon of this user or root, and its process.
fn connect_to_own(socket: &Path, deadline: Deadline) -> Option<(UnixStream, u32)> {
    let connection = connect_within(socket, deadline).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&connection).ok()?;
    let is_believed = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    is_believed.then(|| (connection, peer.pid.as_raw_nonzero().get().unsigned_abs()))
}

/// The status of a daemon that answers soon.
fn ask_for_status(connection: &UnixStream, deadline: Deadline) -> Option<Status> {
    protocol::send(Within::new(connection, deadline), &Request::Status).ok()?;
    match protocol::receive(Within::new(connection, deadline)).ok()? {
        Reply::Status { status } => Some(*status),
        _ => None,
    }
}

/// A connection to a mount's daemon.
pub struct Daemon {
    connection: UnixStream,
    mountpoint: PathBuf,
    device: Device,
    pid: u32,
    process: Option<OwnedFd>,
}

impl Daemon {
    /// Connects to the daemon that serves `mount`.
    pub fn connect(mount: &Mount) -> Result<Daemon, ControlError> {
        // A look at another user's mount may wait for ever, if its daemon does not answer.
        Daemon::connect_or(mount, |point| {
            mount.is_trusted() && matches!(rustix::fs::stat(point), Err(Errno::NOTCONN))
        })
    }

    /// As [`Daemon::connect`], without a look at the mount itself, which waits for its daemon.
    pub fn connect_by_socket(mount: &Mount) -> Result<Daemon, ControlError> {
        Daemon::connect_or(mount, |_| false)
    }

    /// Where there is no socket, `is_dead` says whether the mount has lost its daemon.
    fn connect_or(
        mount: &Mount,
        is_dead: impl FnOnce(&Path) -> bool,
    ) -> Result<Daemon, ControlError> {
        let path = || mount.mount_point.clone();
        let owner = mount.owner().unwrap_or(0);
        let by_device = || place::socket_name(mount.device);
        let name = mount.former_of.map_or_else(by_device, place::process_name);
        let mut denied = false;
        let mut abandoned = false;
        let mut exposed = None;
        let deadline = Deadline::within(CONNECT_TIMEOUT);
        for directory in place::candidates(owner) {
            match place::trust(&directory, owner) {
                Trust::Trusted => {}
                Trust::Missing => continue,
                Trust::Denied => {
                    denied = true;
                    continue;
                }
                Trust::Exposed(why) => {
                    exposed = Some((directory, why));
                    continue;
                }
            }
            match connect_within(&directory.join(&name), deadline) {
                Ok(connection) => return Daemon::believe(connection, owner, mount),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = true,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(ControlError::Conversation { path: path(), error });
                }
                Err(error) => abandoned |= error.kind() == io::ErrorKind::ConnectionRefused,
            }
        }
        let own = rustix::process::geteuid();
        if denied || (!own.is_root() && own.as_raw() != owner) {
            return Err(ControlError::Denied { path: path(), owner });
        }
        // A socket without a listener belonged to a dead daemon. A missing socket may have been removed by a person.
        if abandoned || is_dead(&mount.mount_point) {
            return Err(ControlError::Dead(path()));
        }
        Err(match exposed {
            Some((directory, why)) => ControlError::Exposed { path: path(), directory, why },
            None => ControlError::Unreachable(path()),
        })
    }

    /// Checks the listener's user, and opens a pidfd to wait for the end of its process.
    fn believe(connection: UnixStream, owner: u32, mount: &Mount) -> Result<Daemon, ControlError> {
        let (device, mountpoint) = (mount.device, mount.mount_point.clone());
        let peer = rustix::net::sockopt::socket_peercred(&connection).map_err(|errno| {
            ControlError::Conversation { path: mountpoint.clone(), error: errno.into() }
        })?;
        if !peer.uid.is_root() && peer.uid.as_raw() != owner {
            return Err(ControlError::Impostor { path: mountpoint, uid: peer.uid.as_raw() });
        }
        let process = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).ok();
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        Ok(Daemon { connection, mountpoint, device, pid, process })
    }

    /// Whether the daemon is in another mount namespace than this process: then it cannot unmount in this
    /// one.
    pub fn is_elsewhere(&self) -> bool {
        !namespaces::is_ours(self.pid)
    }

    /// Whether both connections are to the same process.
    pub fn is_same(&self, other: &Daemon) -> bool {
        self.pid == other.pid
    }

    /// The daemon's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Asks for the status. The answer is the message as it was sent, with what this version does not know.
    pub fn ask_for_message(&self) -> Result<serde_json::Value, ControlError> {
        self.converse(&Request::Status, Some(STATUS_TIMEOUT))
    }

    /// Asks and waits for the answer: briefly for a status, otherwise until everything has been written
    /// home.
    pub fn ask(&self, request: &Request) -> Result<Reply, ControlError> {
        self.ask_within(request, matches!(request, Request::Status).then_some(STATUS_TIMEOUT))
    }

    /// Asks a daemon that need not answer, since others wait meanwhile.
    pub fn ask_briefly(&self, request: &Request) -> Result<Reply, ControlError> {
        self.ask_within(request, Some(BRIEF_TIMEOUT))
    }

    /// Asks, and waits for the answer no longer than this.
    pub fn ask_within(
        &self,
        request: &Request,
        timeout: Option<Duration>,
    ) -> Result<Reply, ControlError> {
        self.converse(request, timeout)
    }

    /// Sends a request and receives the answer to it, within this time. Without one only the answer may take as long as it takes.
    fn converse<T: DeserializeOwned>(
        &self,
        request: &Request,
        timeout: Option<Duration>,
    ) -> Result<T, ControlError> {
        let of = &self.connection;
        let to_send = Deadline::within(timeout.unwrap_or(CONNECT_TIMEOUT));
        let to_receive = if timeout.is_some() { to_send } else { Deadline::NEVER };
        protocol::send(Within::new(of, to_send), request)
            .and_then(|()| protocol::receive(Within::new(of, to_receive)))
            .map_err(|error| self.broken_off(error))
    }

    /// Begins a session of the processes that come from this one, as long as the connection is open: the connection, and the memory in which
    /// promises are counted. Processes that know `group` may join it.
    ///
    /// # Errors
    /// The daemon's reason; or it cannot be asked, or is of a version without sessions.
    pub fn begin_session(
        self,
        every_write: bool,
        group: Option<String>,
    ) -> io::Result<(OwnedFd, OwnedFd)> {
        let deadline = Deadline::within(BRIEF_TIMEOUT);
        let request = Request::Session { every_write, group };
        protocol::send(Within::new(&self.connection, deadline), &request)?;
        match protocol::receive_with(self.connection.as_fd(), deadline)? {
            (Reply::Session, Some(memory)) => Ok((self.connection.into(), memory)),
            (Reply::Failed { message }, _) => Err(io::Error::other(message)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Has what comes from this process belong to a session, as long as the connection is open.
    ///
    /// # Errors
    /// As above.
    pub fn join_session(self, group: String) -> io::Result<OwnedFd> {
        let deadline = Deadline::within(BRIEF_TIMEOUT);
        protocol::send(Within::new(&self.connection, deadline), &Request::JoinSession { group })?;
        match protocol::receive(Within::new(&self.connection, deadline))? {
            Reply::Done => Ok(self.connection.into()),
            Reply::Failed { message } => Err(io::Error::other(message)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The meaning of a connection that closes before the answer. A daemon that ends in order unmounts first.
    fn broken_off(&self, error: io::Error) -> ControlError {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let path = self.mountpoint.clone();
        // With a cause: a whole line that ends too soon to be a message.
        let hung_up = matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
            && error.get_ref().is_none();
        let is_mounted =
            || MountTable::read().is_ok_and(|table| table.of_device(self.device).is_some());
        if hung_up && self.has_ended(Some(&END_TIMEOUT)) && is_mounted() {
            return ControlError::Dead(path);
        }
        ControlError::Conversation { path, error }
    }

    /// Waits until the daemon's process has ended: only then is SOURCE unlocked.
    pub fn wait_for_end(self) {
        self.has_ended(None);
    }

    /// Whether the process has ended, or does so in time.
    fn has_ended(&self, timeout: Option<&Timespec>) -> bool {
        // The process ended before a pidfd could be opened.
        let Some(process) = &self.process else { return true };
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut ended, timeout) {
                Err(Errno::INTR) => {}
                result => return result.is_ok_and(|ready| ready > 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_any_mount_are_named() {
        assert!(matches!(find(Path::new("/proc")), Err(ControlError::NotMounted(_))));
        assert!(matches!(find(Path::new("/nonexistent/x")), Err(ControlError::Path { .. })));
        assert!(matches!(find(Path::new("")), Err(ControlError::Path { .. })));
    }
}
