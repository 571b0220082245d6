//! A small HTTP/1.1 server for `weir mount --metrics` and `weir dashboard`: GET and HEAD, one request for each connection.
//!
//! Owns the listening socket, its connections and the one thread that serves them all by poll(2). Does not own what is
//! answered: that is a function, which must answer soon, since all clients wait for it. `connection` has the bytes of one
//! connection, `address` the addresses that people write, `hosts` which names a client may call the server by, `client` whose
//! program a client is.
//!
//! Invariants: at most [`CONNECTIONS_MAX`] connections, each with at most `connection::HEAD_BYTES_MAX` bytes of a request
//! and one answer, and each ends within seconds, whatever its client does. If there are more, the oldest one ends, unless
//! it has just begun: then the others wait. No client can make the thread wait.

mod address;
pub mod client;
mod connection;
mod hosts;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use address::{AddressError, ListenAddress};
pub use connection::{Request, Response};
pub use hosts::Hosts;

use connection::{Connection, Next};

/// Connections at once, at most.
const CONNECTIONS_MAX: usize = 64;

/// A connection is not ended for a newer one before this: so long it takes a client at most to send a request at once.
const PROTECTED: Duration = Duration::from_millis(200);

/// Connections that are accepted before the others are served again.
const ACCEPTED_AT_ONCE: usize = 8;

/// Pause after an error that would come again at once, such as too few descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Why nothing listens at an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}{}", hint(error))]
pub struct ListenError {
    address: SocketAddr,
    error: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": another program listens there: give another port",
        io::ErrorKind::AddrNotAvailable => {
            ": this machine has no such address: give one of its own"
        }
        io::ErrorKind::PermissionDenied => ": give a port from 1024 on",
        _ => "",
    }
}

/// Whether only programs of this machine reach an address; also an IPv4 address that is written as one of IPv6.
pub fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// A socket that listens; connections wait until it is served.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

/// A server on a thread of its own. It ends when this is dropped, which waits for nothing.
#[derive(Debug)]
pub struct Serving(#[expect(dead_code, reason = "its end is what the thread looks at")] UnixStream);

impl Listener {
    /// Listens at `address`; with port 0, at a free port.
    pub fn bind(address: ListenAddress) -> Result<Listener, ListenError> {
        let ListenAddress(address) = address;
        let bind = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok(Listener { socket, address })
        };
        bind().map_err(|error| ListenError { address, error })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on a thread of its own, called `name`.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(
        self,
        name: &str,
        hosts: Hosts,
        answer: impl FnMut(&Request<'_>) -> Response + Send + 'static,
    ) -> io::Result<Serving> {
        let (end, seen_by_thread) = UnixStream::pair()?;
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            self.serve(Some(&seen_by_thread), hosts, answer);
        })?;
        Ok(Serving(end))
    }

    /// Serves on this thread until the other end of `end` is closed, or for ever.
    pub fn serve(
        self,
        end: Option<&UnixStream>,
        hosts: Hosts,
        mut answer: impl FnMut(&Request<'_>) -> Response,
    ) {
        let mut connections: Vec<Connection> = Vec::new();
        let mut paused_until: Option<Instant> = None;
        loop {
            let now = Instant::now();
            connections.retain(|connection| connection.deadline() > now);
            paused_until = paused_until.filter(|until| *until > now);
            let full = connections.first().filter(|_| connections.len() >= CONNECTIONS_MAX);
            let protected = full.map(|oldest| oldest.began() + PROTECTED);
            let pause =
                paused_until.into_iter().chain(protected).max().filter(|until| *until > now);
            let ready = match self.wait(end, &connections, pause) {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    tracing::warn!("the HTTP server on {} cannot wait: {errno}", self.address);
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if ready.end {
                return;
            }
            let mut flags = ready.connections.iter();
            connections.retain_mut(|connection| {
                let idle = flags.next().is_none_or(|flags| flags.is_empty());
                idle || connection.advance(hosts, &mut answer) == Next::Wait
            });
            if ready.listener
                && let Err(error) = self.accept(&mut connections)
            {
                tracing::debug!("the HTTP server on {} cannot accept: {error}", self.address);
                paused_until = Some(Instant::now() + PAUSE);
            }
        }
    }

    /// Waits until something can be done, or the first deadline.
    fn wait(
        &self,
        end: Option<&UnixStream>,
        connections: &[Connection],
        paused_until: Option<Instant>,
    ) -> Result<Ready, Errno> {
        let deadlines = connections.iter().map(Connection::deadline);
        let timeout = deadlines.chain(paused_until).min().map(until);
        let accepting = if paused_until.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut polled = vec![PollFd::new(&self.socket, accepting)];
        polled.extend(end.map(|end| PollFd::new(end, PollFlags::IN)));
        let first = polled.len();
        polled.extend(connections.iter().map(|of| PollFd::new(of.socket(), of.awaits())));
        poll(&mut polled, timeout.as_ref())?;
        Ok(Ready {
            listener: !polled[0].revents().is_empty(),
            end: end.is_some() && !polled[1].revents().is_empty(),
            connections: polled[first..].iter().map(PollFd::revents).collect(),
        })
    }

    fn accept(&self, connections: &mut Vec<Connection>) -> io::Result<()> {
        for _ in 0..ACCEPTED_AT_ONCE {
            let is_full = connections.len() >= CONNECTIONS_MAX;
            if is_full && connections[0].began().elapsed() < PROTECTED {
                return Ok(());
            }
            match self.socket.accept() {
                Ok((socket, client)) => {
                    if is_full {
                        connections.remove(0);
                    }
                    connections.push(Connection::new(socket, client)?);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    // The client has gone already.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// What can go on.
struct Ready {
    listener: bool,
    end: bool,
    connections: Vec<PollFlags>,
}

fn until(deadline: Instant) -> Timespec {
    // A millisecond more: a wait that ends just before the deadline would be followed by another one.
    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
    Timespec { tv_sec: left.as_secs().min(3600) as i64, tv_nsec: i64::from(left.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn serve(
        answer: impl FnMut(&Request<'_>) -> Response + Send + 'static,
    ) -> (SocketAddr, Serving) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        (address, listener.start("test", Hosts::AddressesOnly, answer).unwrap())
    }

    fn talk(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(request).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    fn hello(request: &Request<'_>) -> Response {
        match request.path {
            "/hello" => Response::new(200, "text/plain", "dear\n"),
            _ => Response::not_found(),
        }
    }

    #[test]
    fn requests_are_answered() {
        let (address, _serving) = serve(hello);
        let got = talk(address, b"GET /hello?x=1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\ndear\n"), "{got}");
        assert!(got.contains("\r\nContent-Length: 5\r\n") && got.contains("\r\nDate: "), "{got}");
        let got = talk(address, b"HEAD /hello HTTP/1.1\r\nHost: [::1]\r\n\r\n");
        assert!(got.contains("\r\nContent-Length: 5\r\n") && got.ends_with("\r\n\r\n"), "{got}");
        let got = talk(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 404 "), "{got}");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let (address, _serving) = serve(hello);
        let long = format!("GET /hello HTTP/1.1\r\nHost: {}", "x".repeat(9000));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
        for (request, status) in [
            ("POST /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
            ("GET /hello HTTP/1.1\r\n\r\n", "400"),
            ("GET /hello HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "400"),
            ("GET /hello HTTP/1.1\r\nHost: evil.example:9337\r\n\r\n", "421"),
            ("\x16\x03\x01\x02\r\n\r\n", "400"),
            (&long, "431"),
            (&many, "431"),
        ] {
            let got = talk(address, request.as_bytes());
            assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {got}");
        }
    }

    #[test]
    fn clients_that_say_nothing_hold_nobody_up() {
        let (address, serving) = serve(hello);
        let mut silent: Vec<TcpStream> = Vec::new();
        for _ in 0..3 * CONNECTIONS_MAX {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"GET /hel").unwrap();
            silent.push(client);
        }
        let got = talk(address, b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        assert!(got.ends_with("dear\n"), "{got}");
        // The oldest had to go.
        silent[0].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(!matches!(silent[0].read(&mut [0]), Ok(1..)));
        drop(serving);
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_ok() {
            assert!(Instant::now() < until, "it still listens");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn addresses_of_this_machine_are_local_however_they_are_written() {
        for (address, local) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("[::ffff:192.0.2.1]:1", false),
            ("[::]:1", false),
            ("0.0.0.0:1", false),
        ] {
            assert_eq!(is_local(address.parse().unwrap()), local, "{address}");
        }
    }

    #[test]
    fn a_port_in_use_is_named() {
        let first = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let again = Listener::bind(ListenAddress(first.address())).unwrap_err().to_string();
        let wanted = format!("cannot listen on {}: ", first.address());
        assert!(again.starts_with(&wanted) && again.contains("another program"), "{again}");
    }
}
