//! The daemon's end of the control socket.
//!
//! Owns the socket file, from [`Server::bind`] until it is dropped. Each connection has a thread
//! for as long as its request is read; the answer may come later, from any thread.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::place;
use super::protocol::{self, Reply, Request};
use crate::mounts::Device;

/// Connections whose request is being read, at most.
const READING_MAX: usize = 16;
/// How long a client may take to say what it wants, or to listen.
const PATIENCE: Duration = Duration::from_secs(5);

/// A bound control socket.
pub struct Server {
    listener: Option<UnixListener>,
    path: PathBuf,
}

/// Where the answer to one request goes.
pub struct Responder(UnixStream);

impl Responder {
    /// Answers. A client that has gone away is no concern of the daemon.
    pub fn send(self, reply: &Reply) {
        if let Err(error) = protocol::send(&self.0, reply) {
            tracing::debug!("cannot answer on the control socket: {error}");
        }
    }
}

impl Server {
    /// Creates the socket for the mount with this device number.
    pub fn bind(device: Device) -> io::Result<Server> {
        let path = place::directory()?.join(place::socket_name(device));
        // Left by a daemon that died: the number is ours now, so nobody listens there.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let server = Server { listener: Some(listener), path };
        fs::set_permissions(&server.path, fs::Permissions::from_mode(0o600))?;
        Ok(server)
    }

    /// Starts to answer with `handle`, on threads of the server's own, to the end of the process.
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

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
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
                // Out of descriptors, most likely: they come back.
                tracing::warn!("control socket: {error}");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if reading.fetch_add(1, Ordering::Relaxed) >= READING_MAX {
            reading.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
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
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let peer = rustix::net::sockopt::socket_peercred(&connection)?;
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    match protocol::receive(&connection) {
        Ok(request) => handle(request, Responder(connection)),
        Err(error) => {
            let message = format!("the daemon does not understand the request: {error}");
            Responder(connection).send(&Reply::Failed { message });
        }
    }
    Ok(())
}
