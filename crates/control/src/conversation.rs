//! Talking over a Unix socket with one deadline for everything: connecting, sending and receiving.
//!
//! The time-outs of a socket bound each call, and so a peer that sends a byte now and then has no bound. Here each call gets the
//! time that is left of the whole conversation.
//!
//! Does not own what is said ([`super::protocol`]), nor who is believed ([`super::client`]).

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// When a conversation is given up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// This long from now.
    pub fn within(time: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(time))
    }

    /// Never: the answer takes as long as it takes.
    pub const NEVER: Deadline = Deadline(None);

    /// The time that is left; `None` if there is no end.
    ///
    /// # Errors
    /// Nothing is left.
    fn left(self) -> io::Result<Option<Duration>> {
        let Some(at) = self.0 else { return Ok(None) };
        let left = at.saturating_duration_since(Instant::now());
        // The kernel takes a time-out of less than a microsecond for none.
        if left < Duration::from_micros(1) { Err(late()) } else { Ok(Some(left)) }
    }

    /// Waits until a descriptor can be read.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`]; or poll(2) failed.
    pub fn wait_to_read(self, from: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            let left = self.left()?.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            match rustix::event::poll(&mut [PollFd::new(&from, PollFlags::IN)], left.as_ref()) {
                Ok(0) => return Err(late()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it took too long")
}

/// Connects to a listening socket.
///
/// # Errors
/// Those of socket(2) and connect(2); or [`io::ErrorKind::TimedOut`] if the listener's queue stays full.
pub fn connect_within(path: &Path, deadline: Deadline) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    loop {
        // connect(2) waits for room in the listener's queue, no longer than this (unix(7) has it for sending; so it is for connecting).
        set_socket_timeout(&made, Timeout::Send, deadline.left()?)?;
        match connect(&made, &address) {
            Ok(()) => return Ok(made.into()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(late()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A connection of which each read and write has the time that is left. After that they fail with [`io::ErrorKind::TimedOut`].
pub struct Within<'a> {
    connection: &'a UnixStream,
    deadline: Deadline,
}

impl<'a> Within<'a> {
    /// Of this connection.
    pub fn new(connection: &'a UnixStream, deadline: Deadline) -> Within<'a> {
        Within { connection, deadline }
    }
}

fn or_late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { late() } else { error }
}

impl Read for Within<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.deadline.wait_to_read(self.connection.as_fd())?;
        self.connection.read(bytes)
    }
}

impl Write for Within<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.set_write_timeout(self.deadline.left()?)?;
        self.connection.write(bytes).map_err(or_late)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use super::*;
    use crate::protocol::{self, Reply};

    const SHORT: Duration = Duration::from_millis(300);
    /// What the machine may be busy with, in addition.
    const SLACK: Duration = Duration::from_secs(20);

    fn scratch(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("weir-talk-{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_peer_that_trickles_ends_with_the_deadline() {
        let (here, there) = UnixStream::pair().unwrap();
        let trickle = thread::spawn(move || {
            while (&there).write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        let answer: io::Result<Reply> =
            protocol::receive(Within::new(&here, Deadline::within(SHORT)));
        assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= SHORT && began.elapsed() < SLACK);
        drop(here);
        trickle.join().unwrap();
    }

    #[test]
    fn a_peer_that_trickles_beside_descriptors_ends_with_the_deadline() {
        let (here, there) = UnixStream::pair().unwrap();
        let trickle = thread::spawn(move || {
            while (&there).write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let answer: io::Result<(Reply, _)> =
            protocol::receive_with(here.as_fd(), Deadline::within(SHORT));
        assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(here);
        trickle.join().unwrap();
    }

    #[test]
    fn a_peer_that_reads_nothing_ends_with_the_deadline() {
        let (here, _there) = UnixStream::pair().unwrap();
        let mut within = Within::new(&here, Deadline::within(SHORT));
        let sent = within.write_all(&vec![b'x'; 64 << 20]);
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_full_queue_is_not_waited_for_for_ever() {
        let path = scratch("full");
        let listener = UnixListener::bind(&path).unwrap();
        // The standard library's queue is long; this listener's has one place.
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let began = Instant::now();
        let full = loop {
            match connect_within(&path, Deadline::within(SHORT)) {
                Ok(connection) => waiting.push(connection),
                Err(error) => break error,
            }
            assert!(waiting.len() < 10);
        };
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < SLACK);
        drop(waiting);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn without_a_deadline_answers_are_waited_for() {
        let (here, there) = UnixStream::pair().unwrap();
        let answers = thread::spawn(move || {
            thread::sleep(SHORT);
            protocol::send(&there, &Reply::Done).unwrap();
        });
        let reply: Reply = protocol::receive(Within::new(&here, Deadline::NEVER)).unwrap();
        assert_eq!(reply, Reply::Done);
        answers.join().unwrap();
    }
}
