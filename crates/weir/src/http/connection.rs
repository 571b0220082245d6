//! One connection: a request is read, answered, and the connection ends.
//!
//! Owns the socket and the bytes that came or are to go. Never waits: it does what can be done now, and says what it waits
//! for and until when.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::PollFlags;

use super::hosts::Hosts;

/// Longest request, headers included.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// How long a client may take to send its request.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take to receive the answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to end the connection, and how much it may send until then. Data that is never read would make the
/// kernel drop the answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const DISCARDED_MAX: usize = 64 << 10;

/// A request for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The path, without a query.
    pub path: &'a str,
    /// The client's address.
    pub client: SocketAddr,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    status: u16,
    content_type: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: Cow<'static, str>,
}

impl Response {
    /// An answer with a body.
    pub fn new(
        status: u16,
        content_type: &'static str,
        body: impl Into<Cow<'static, str>>,
    ) -> Response {
        Response { status, content_type, headers: &[], body: body.into() }
    }

    /// The same with further headers.
    pub fn with(self, headers: &'static [(&'static str, &'static str)]) -> Response {
        Response { headers, ..self }
    }

    /// There is nothing at this path.
    pub fn not_found() -> Response {
        Response::refusal(404, "there is nothing here\n")
    }

    /// The request is refused.
    pub fn refusal(status: u16, why: &'static str) -> Response {
        Response::new(status, "text/plain; charset=utf-8", why)
    }

    fn into_bytes(self, is_head: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Internal Server Error",
        };
        let mut head = format!(
            "HTTP/1.1 {} {reason}\r\nDate: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
            self.status,
            httpdate::fmt_http_date(SystemTime::now()),
            self.content_type,
            self.body.len()
        );
        if self.status == 405 {
            head.push_str("Allow: GET, HEAD\r\n");
        }
        for (name, value) in self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        if !is_head {
            head.push_str(&self.body);
        }
        head.into_bytes()
    }
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for [`Connection::awaits`].
    Wait,
    /// It is over.
    Over,
}

#[derive(Debug)]
enum State {
    /// The request comes.
    Reading(Vec<u8>),
    /// The answer goes.
    Writing { bytes: Vec<u8>, sent: usize },
    /// The client ends the connection.
    Closing { discarded: usize },
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    client: SocketAddr,
    state: State,
    began: Instant,
    deadline: Instant,
}

impl Connection {
    /// Begins to read a request.
    pub fn new(socket: TcpStream, client: SocketAddr) -> io::Result<Connection> {
        socket.set_nonblocking(true)?;
        let began = Instant::now();
        let deadline = began + READ_TIMEOUT;
        Ok(Connection { socket, client, state: State::Reading(Vec::new()), began, deadline })
    }

    /// When it was accepted.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// When it is to be ended, whatever it waits for.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Its socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// What it waits for.
    pub fn awaits(&self) -> PollFlags {
        match self.state {
            State::Writing { .. } => PollFlags::OUT,
            State::Reading(_) | State::Closing { .. } => PollFlags::IN,
        }
    }

    /// Does what can be done now.
    pub fn advance(
        &mut self,
        hosts: Hosts,
        answer: &mut impl FnMut(&Request<'_>) -> Response,
    ) -> Next {
        match self.try_to_advance(hosts, answer) {
            Ok(next) => next,
            Err(error) if is_passing(&error) => Next::Wait,
            Err(_) => Next::Over,
        }
    }

    fn try_to_advance(
        &mut self,
        hosts: Hosts,
        answer: &mut impl FnMut(&Request<'_>) -> Response,
    ) -> io::Result<Next> {
        if let State::Reading(head) = &mut self.state {
            let mut bytes = [0; 2048];
            // It is answered when it is that long, so there is room.
            let room = HEAD_BYTES_MAX.saturating_sub(head.len()).min(bytes.len());
            let got = self.socket.read(&mut bytes[..room])?;
            head.extend_from_slice(&bytes[..got]);
            let Some(bytes) = respond(head, self.client, hosts, answer) else {
                return Ok(if got == 0 { Next::Over } else { Next::Wait });
            };
            self.state = State::Writing { bytes, sent: 0 };
            self.deadline = Instant::now() + WRITE_TIMEOUT;
        }
        if let State::Writing { bytes, sent } = &mut self.state {
            while *sent < bytes.len() {
                match self.socket.write(&bytes[*sent..])? {
                    0 => return Ok(Next::Over),
                    count => *sent += count,
                }
            }
            self.socket.shutdown(Shutdown::Write)?;
            self.state = State::Closing { discarded: 0 };
            self.deadline = Instant::now() + CLOSE_TIMEOUT;
        }
        let State::Closing { discarded } = &mut self.state else { return Ok(Next::Wait) };
        let got = self.socket.read(&mut [0; 2048])?;
        *discarded += got;
        Ok(if got == 0 || *discarded > DISCARDED_MAX { Next::Over } else { Next::Wait })
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The bytes of the answer to a request; `None` if it is not complete.
fn respond(
    head: &[u8],
    client: SocketAddr,
    hosts: Hosts,
    answer: &mut impl FnMut(&Request<'_>) -> Response,
) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let refusal = match request.parse(head) {
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Some(Response::refusal(431, "the request is too long\n"))
        }
        Ok(httparse::Status::Complete(_)) => None,
        Err(_) => Some(Response::refusal(400, "this is no HTTP request\n")),
    };
    if let Some(refusal) = refusal {
        return Some(refusal.into_bytes(false));
    }
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let is_head = method == "HEAD";
    let mut named =
        request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = named.next().and_then(|header| std::str::from_utf8(header.value).ok());
    let response = match host {
        None => Response::refusal(400, "the request has no Host header\n"),
        Some(_) if named.next().is_some() => {
            Response::refusal(400, "the request has two Host headers\n")
        }
        Some(host) if !hosts.allow(host) => Response::refusal(
            421,
            "use the address of this server, or localhost: other names are refused, since pages of other sites could \
             take them\n",
        ),
        Some(_) if method != "GET" && !is_head => {
            Response::refusal(405, "only GET and HEAD are answered\n")
        }
        Some(_) => answer(&Request { path: target.split('?').next().unwrap_or_default(), client }),
    };
    Some(response.into_bytes(is_head))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>, text in "(GET|HEAD|/|\\?| |HTTP/1.1|\r\n|Host:|localhost|:|a){0,20}") {
            let client = SocketAddr::from(([127, 0, 0, 1], 1));
            let mut answer = |_: &Request<'_>| Response::not_found();
            let _ = respond(&bytes, client, Hosts::AddressesOnly, &mut answer);
            let _ = respond(text.as_bytes(), client, Hosts::Any, &mut answer);
        }
    }
}
