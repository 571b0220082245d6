//! The clients' end of the control socket: finds the daemon of a path, and asks it.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::PidfdFlags;

use super::place;
use super::protocol::{self, Reply, Request, Status};
use crate::mounts::{self, Device, Mount, MountTable};
use crate::namespaces;

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

fn is_of(mount: &Mount, path: &Path) -> bool {
    mount.mount_point == path || mount.source == path
}

/// Mounts of this user that are gone, in every mount namespace, and whose daemons still bring things home; with their status.
pub fn unmounted(table: &MountTable) -> Vec<(Mount, Status)> {
    unmounted_but(table, &HashSet::new())
}

/// As [`unmounted`]. These processes are known to serve mounts that are there, and are not asked.
pub fn unmounted_but(table: &MountTable, serving: &HashSet<u32>) -> Vec<(Mount, Status)> {
    let uid = rustix::process::geteuid().as_raw();
    let sockets = place::candidates(uid).into_iter().filter_map(|directory| {
        Some(std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()))
    });
    let gone = sockets.flatten().filter_map(|socket| {
        let pid = place::process(&socket).filter(|pid| !serving.contains(pid))?;
        let status = ask_for_status(&UnixStream::connect(&socket).ok()?)?;
        let is_it = |mount: &Mount| mount.is_weir() && mount.source == Path::new(&status.source);
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
    let own = rustix::process::geteuid();
    let sockets = place::candidates(own.as_raw()).into_iter().filter_map(|directory| {
        Some(std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()))
    });
    let connection = sockets.flatten().find_map(|path| {
        let connection = UnixStream::connect(path).ok()?;
        let peer = rustix::net::sockopt::socket_peercred(&connection).ok()?;
        (peer.pid.as_raw_nonzero().get().unsigned_abs() == pid).then_some(connection)
    })?;
    ask_for_status(&connection)
}

/// The status of a daemon that answers soon.
fn ask_for_status(connection: &UnixStream) -> Option<Status> {
    connection.set_read_timeout(Some(PROGRESS_TIMEOUT)).ok()?;
    protocol::send(connection, &Request::Status).ok()?;
    match protocol::receive(connection).ok()? {
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
        Daemon::connect_or(mount, |point| matches!(rustix::fs::stat(point), Err(Errno::NOTCONN)))
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
        for directory in place::candidates(owner) {
            match UnixStream::connect(directory.join(&name)) {
                Ok(connection) => return Daemon::believe(connection, owner, mount),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = true,
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
        Err(ControlError::Unreachable(path()))
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
        self.connection
            .set_read_timeout(Some(STATUS_TIMEOUT))
            .and_then(|()| protocol::send(&self.connection, &Request::Status))
            .and_then(|()| protocol::receive(&self.connection))
            .map_err(|error| self.broken_off(error))
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
        self.connection
            .set_read_timeout(timeout)
            .and_then(|()| protocol::send(&self.connection, request))
            .and_then(|()| protocol::receive(&self.connection))
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
        self.connection.set_read_timeout(Some(BRIEF_TIMEOUT))?;
        protocol::send(&self.connection, &Request::Session { every_write, group })?;
        match protocol::receive_with(self.connection.as_fd())? {
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
        self.connection.set_read_timeout(Some(BRIEF_TIMEOUT))?;
        protocol::send(&self.connection, &Request::JoinSession { group })?;
        match protocol::receive(&self.connection)? {
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
