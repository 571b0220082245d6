//! The daemon's end of the control socket.
//!
//! Owns the socket file, from [`Server::bind`] until it is dropped. Each connection has a thread
//! while its request is read; the answer may come later, from any thread.

#![allow(unsafe_code, reason = "getsockopt(2) with a process that may be 0 has no safe form")]

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::conversation::{Deadline, Within};
use super::place;
use super::protocol::{self, Reply, Request};
use crate::mounts::Device;

/// Connections whose request is being read, at most.
const READING_MAX: usize = 64;
/// Others wait in the meantime.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a client may take to send its request, or to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A bound control socket.
pub struct Server {
    listener: Option<UnixListener>,
    _place: SocketPlace,
}

/// The socket's file. The kernel reuses a mount's device number as soon as the mount is gone, which is
/// before this daemon has ended; the name may then belong to another daemon. So names are taken over
/// under a lock on their directory, and each daemon removes only the file that it made. By the name of its process the daemon is
/// found nevertheless.
struct SocketPlace {
    directory: PathBuf,
    path: PathBuf,
    by_process: PathBuf,
    identity: Option<Identity>,
}

/// Distinguishes a file from a later one with the same inode number.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

impl SocketPlace {
    fn lock(&self) -> io::Result<File> {
        let directory = File::open(&self.directory)?;
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
        Ok(directory)
    }

    /// Takes the name over from the daemon that had it: the device number now belongs to this mount.
    fn bind(&mut self) -> io::Result<UnixListener> {
        let _lock = self.lock()?;
        remove_dead(&self.directory);
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&self.path)?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o600))?;
        // One of a dead process may be left.
        let _ = fs::remove_file(&self.by_process);
        fs::hard_link(&self.path, &self.by_process)?;
        self.identity = Some(identity(&self.path)?);
        Ok(listener)
    }
}

impl Drop for SocketPlace {
    fn drop(&mut self) {
        let Ok(_lock) = self.lock() else { return };
        if self.identity.is_some() && identity(&self.path).ok() == self.identity {
            let _ = fs::remove_file(&self.path);
        }
        let _ = fs::remove_file(&self.by_process);
    }
}

/// Removes what daemons left that were killed. With the lock, so that nobody is about to listen.
fn remove_dead(directory: &Path) {
    let sockets = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let sockets = sockets.collect::<Vec<_>>();
    // Its change time is another one when one of its names is gone.
    let inode = |path: &PathBuf| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    let mut dead = Vec::new();
    for socket in &sockets {
        // A daemon in another PID namespace has its number there: it answers.
        let is_gone = place::process(socket).is_some_and(|process| !is_there(process));
        if is_gone && is_refused(socket) {
            dead.extend(inode(socket));
        }
    }
    for socket in sockets {
        if inode(&socket).is_ok_and(|inode| dead.contains(&inode)) {
            let _ = fs::remove_file(socket);
        }
    }
}

fn is_there(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Whether nobody listens. A socket whose queue is full is listened to.
fn is_refused(socket: &Path) -> bool {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (Ok(made), Ok(address)) = (made, SocketAddrUnix::new(socket)) else { return false };
    connect(&made, &address) == Err(rustix::io::Errno::CONNREFUSED)
}

/// Where the answer to one request goes.
pub struct Responder(UnixStream);

impl Responder {
    /// Answers. A client that has closed the connection is ignored.
    pub fn send(self, reply: &Reply) {
        if let Err(error) = protocol::send(&self.0, reply) {
            tracing::debug!("cannot answer on the control socket: {error}");
        }
    }

    /// The process that asks, as this one's PID namespace numbers it; 0 if it is not in that.
    pub fn peer(&self) -> u32 {
        process_of_peer(self.0.as_fd())
    }

    /// Answers. The connection goes on.
    ///
    /// # Errors
    /// The client cannot be answered.
    pub fn send_and_go_on(self, reply: &Reply) -> io::Result<Connection> {
        protocol::send(&self.0, reply)?;
        Ok(Connection(self.0))
    }

    /// Answers, and gives the client a descriptor. The connection goes on.
    ///
    /// # Errors
    /// The client cannot be answered.
    pub fn send_with(self, reply: &Reply, descriptor: BorrowedFd<'_>) -> io::Result<Connection> {
        protocol::send_with(self.0.as_fd(), reply, descriptor)?;
        Ok(Connection(self.0))
    }
}

/// The process at the other end of a connection, as this one's PID namespace numbers it; 0 if it is not in that.
pub fn process_of_peer(connection: BorrowedFd<'_>) -> u32 {
    // Not by rustix: its numbers of processes are never 0.
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the value has as many bytes as the call may write.
    let asked = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    if asked == 0 { u32::try_from(peer.pid).unwrap_or(0) } else { 0 }
}

/// A connection that goes on after the answer.
pub struct Connection(UnixStream);

impl Connection {
    /// Waits until the client has closed it, or has ended.
    pub fn wait_for_end(mut self) {
        let mut unasked = [0; 64];
        if self.0.set_read_timeout(None).is_err() {
            return;
        }
        loop {
            match self.0.read(&mut unasked) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    }
}

impl Server {
    /// Creates the socket for the mount with this device number.
    pub fn bind(device: Device) -> io::Result<Server> {
        Server::bind_in(place::directory()?, device, std::process::id())
    }

    fn bind_in(directory: PathBuf, device: Device, process: u32) -> io::Result<Server> {
        let path = directory.join(place::socket_name(device));
        let by_process = directory.join(place::process_name(process));
        let mut place = SocketPlace { directory, path, by_process, identity: None };
        let listener = place.bind()?;
        Ok(Server { listener: Some(listener), _place: place })
    }

    /// Answers requests with `handle`, on the server's own threads, until the process ends.
    pub fn start(
        &mut self,
        handle: impl Fn(Request, Responder) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let listener = self.listener.take().expect("a server is started once");
        let handle = Arc::new(handle);
        thread::Builder::new().name("control".into()).spawn(move || accept(&listener, &handle))?;
        Ok(())
    }
}

fn accept<H>(listener: &UnixListener, handle: &Arc<H>)
where
    H: Fn(Request, Responder) + Send + Sync + 'static,
{
    let reading = Arc::new(AtomicUsize::new(0));
    loop {
        let connection = match listener.accept() {
            Ok((connection, _)) => connection,
            Err(error) => {
                // Most likely out of descriptors for a moment.
                tracing::warn!("control socket: {error}");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        while reading.load(Ordering::Relaxed) >= READING_MAX {
            thread::sleep(PAUSE);
        }
        reading.fetch_add(1, Ordering::Relaxed);
        let (handle, count) = (handle.clone(), reading.clone());
        let started = thread::Builder::new().name("control-request".into()).spawn(move || {
            if let Err(error) = answer(connection, &*handle) {
                tracing::debug!("control socket: {error}");
            }
            count.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            reading.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn answer(connection: UnixStream, handle: &impl Fn(Request, Responder)) -> io::Result<()> {
    connection.set_write_timeout(Some(PATIENCE))?;
    let peer = rustix::net::sockopt::socket_peercred(&connection)?;
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    match protocol::receive(Within::new(&connection, Deadline::within(PATIENCE))) {
        Ok(request) => handle(request, Responder(connection)),
        Err(error) => {
            let message = format!("the daemon does not understand the request: {error}");
            Responder(connection).send(&Reply::Failed { message });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::Status;

    const DEVICE: Device = Device { major: 0, minor: 4711 };

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-server-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn ask(directory: &Path, line: &[u8]) -> io::Result<Reply> {
        use std::io::Write;
        let mut connection = UnixStream::connect(directory.join(place::socket_name(DEVICE)))?;
        connection.write_all(line)?;
        protocol::receive(&connection)
    }

    #[test]
    fn requests_are_answered_and_invalid_ones_are_refused() {
        let directory = scratch("answers");
        let mut server = Server::bind_in(directory.clone(), DEVICE, std::process::id()).unwrap();
        server
            .start(|request, responder| {
                responder.send(&match request {
                    Request::Status => Reply::Status { status: Box::<Status>::default() },
                    Request::Sync => Reply::Done,
                    _ => return,
                });
            })
            .unwrap();
        assert!(matches!(ask(&directory, b"{}\n").unwrap(), Reply::Failed { .. }));
        assert!(matches!(ask(&directory, b"\xff\xfe\n").unwrap(), Reply::Failed { .. }));
        assert_eq!(ask(&directory, b"{\"request\":\"sync\"}\n").unwrap(), Reply::Done);
        assert!(ask(&directory, b"{\"request\":\"unmount\",\"force\":false}\n").is_err());
        assert!(matches!(
            ask(&directory, b"{\"request\":\"status\"}\n").unwrap(),
            Reply::Status { .. }
        ));
        drop(server);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_killed_daemons_left_is_removed_and_nothing_else() {
        let directory = scratch("dead");
        // No process has such a number (proc_sys_kernel(5), pid_max).
        let (dead, alive) = (1 << 23, std::process::id());
        for (device, process) in [("0:7", dead), ("0:8", dead + 1)] {
            let by_process = directory.join(place::process_name(process));
            drop(UnixListener::bind(&by_process).unwrap());
            fs::hard_link(by_process, directory.join(format!("{device}.sock"))).unwrap();
        }
        drop(UnixListener::bind(directory.join(place::process_name(alive))).unwrap());
        let elsewhere = UnixListener::bind(directory.join(place::process_name(dead + 2))).unwrap();
        let server = Server::bind_in(directory.clone(), DEVICE, 1).unwrap();
        let mut left = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>();
        left.sort();
        let mut wanted =
            [1, alive, dead + 2].map(place::process_name).into_iter().collect::<Vec<_>>();
        wanted.push(place::socket_name(DEVICE));
        wanted.sort();
        assert_eq!(left, wanted);
        drop((server, elsewhere));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_name_taken_over_is_not_removed() {
        let directory = scratch("takeover");
        let earlier = Server::bind_in(directory.clone(), DEVICE, 1).unwrap();
        let later = Server::bind_in(directory.clone(), DEVICE, 2).unwrap();
        assert!(UnixStream::connect(directory.join(place::process_name(1))).is_ok());
        drop(earlier);
        assert!(UnixStream::connect(directory.join(place::socket_name(DEVICE))).is_ok());
        drop(later);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir_all(directory).unwrap();
    }
}
