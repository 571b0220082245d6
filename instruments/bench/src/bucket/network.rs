//! The network between the store and who mounts it: a port of this machine that passes everything on, late, and counts it.
//!
//! Each connection is two relays ([`crate::names::relay::pass_on`]), one a direction, and so has a latency and no bound on throughput.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::thread::set_current_timer_slack;

use super::http::Requests;
use crate::error::{Doing, Result};
use crate::names::relay::pass_on;

/// What has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In both directions.
    pub bytes: u64,
    /// Requests that began.
    pub requests: u64,
}

#[derive(Default)]
struct Passed {
    bytes: AtomicU64,
    requests: AtomicU64,
    is_over: AtomicBool,
}

/// A way to one port, until this goes.
pub struct Network {
    port: u16,
    passed: Arc<Passed>,
}

impl Network {
    /// To the server at this port, with `delay` in each direction.
    pub fn start(server: u16, delay: Duration) -> Result<Network> {
        let what = Path::new("127.0.0.1");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("listen on", what)?;
        let port = listener.local_addr().doing("listen on", what)?.port();
        let passed = Arc::new(Passed::default());
        let shared = Arc::clone(&passed);
        let accept = move || {
            // The connections' threads inherit it.
            let _ = set_current_timer_slack(NonZeroU64::new(1));
            for client in listener.incoming() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server));
                if let (Ok(client), Ok(server)) = (client, server) {
                    // Whoever cannot be connected sees the end of its connection.
                    let _ = connect(client, server, delay, &shared);
                }
            }
        };
        thread::Builder::new().name("network".into()).spawn(accept).doing("start", what)?;
        Ok(Network { port, passed })
    }

    /// Where it takes connections.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { bytes: load(&self.passed.bytes), requests: load(&self.passed.requests) }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.passed.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that takes connections.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn connect(
    client: TcpStream,
    server: TcpStream,
    delay: Duration,
    passed: &Arc<Passed>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, from_server) = (client.try_clone()?, server.try_clone()?);
    let asked =
        Counted { from: from_client, passed: Arc::clone(passed), requests: Some(Requests::new()) };
    let answered = Counted { from: from_server, passed: Arc::clone(passed), requests: None };
    thread::Builder::new()
        .name("requests".into())
        .spawn(move || pass_on(asked, Sending(server), delay))?;
    thread::Builder::new()
        .name("answers".into())
        .spawn(move || pass_on(answered, Sending(client), delay))?;
    Ok(())
}

/// A direction's beginning.
struct Counted {
    from: TcpStream,
    passed: Arc<Passed>,
    requests: Option<Requests>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.passed.bytes.fetch_add(count as u64, Ordering::Relaxed);
        if let Some(requests) = &mut self.requests {
            let heads = requests.take(&buffer[..count]);
            self.passed.requests.fetch_add(heads, Ordering::Relaxed);
        }
        Ok(count)
    }
}

/// A direction's end, which passes on that nothing more comes.
struct Sending(TcpStream);

impl io::Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::time::Instant;

    #[test]
    fn what_passes_is_late_whole_and_counted() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let answers = thread::spawn(move || {
            let (mut client, _) = server.accept().unwrap();
            let mut asked = Vec::new();
            client.read_to_end(&mut asked).unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            asked
        });
        let network = Network::start(port, Duration::from_millis(20)).unwrap();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, network.port())).unwrap();
        let begun = Instant::now();
        let asked = b"PUT /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n";
        client.write_all(asked).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(40), "{:?}", begun.elapsed());
        assert_eq!(answers.join().unwrap(), asked);
        let bytes = (asked.len() + answer.len()) as u64;
        assert_eq!(network.counts(), Counts { bytes, requests: 2 });
    }
}
