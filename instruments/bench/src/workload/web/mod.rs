//! A web server's mix: clients ask for pages, each of some files, and with one of ten requests add a record to a file, which the server
//! syncs before it replies. Each client waits a moment between two requests.
//!
//! `site` is what the files hold, and `server` the server: `weir-bench web-server`, a process of its own. What is asked for follows
//! from the client's number and the request's, so the records that must be there afterwards are known.

mod server;
mod site;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use self::site::{FILES_A_PAGE, PAGES, RECORD_BYTES, page, record, records, write_files};
use crate::content::Random;
use crate::error::{Doing, Error, Result};
use crate::soon::soon;
use crate::threads::at_once;
use crate::workload::job::{Job, command_under};
use crate::workload::outcome::{Class, Outcome, Tally};
use crate::workload::tree::{remove, sync};

pub use server::serve;

const SEED: u64 = 0x7765_6200;
/// One of so many requests adds a record.
const REQUESTS_A_POST: u64 = 10;
/// The longest that a client waits between two requests.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// How long a server may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Web {
    /// Clients at once.
    pub clients: u64,
    /// Requests of each.
    pub requests: u64,
    /// The command that the server is run by; empty: itself.
    pub server_under: Vec<String>,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Request {
    Get { page: u64 },
    Post { client: u64, number: u64 },
}

impl Web {
    fn client(&self, port: u16, client: u64) -> Result<Tally> {
        let mut connection = Connection::open(port)?;
        let mut tally = Tally::new();
        let start = Instant::now();
        for number in 0..self.requests {
            let (request, pause) = request(client, number);
            let before = Instant::now();
            let reply = connection.ask(request)?;
            let latency = before.elapsed();
            match request {
                Request::Get { page: number } => {
                    if reply != page(number) {
                        let said = format!("page {number} is not as it was prepared");
                        return Err(Error::Different(said));
                    }
                    tally.note(Class::Read, latency);
                }
                Request::Post { .. } => tally.note(Class::Write, latency),
            }
            thread::sleep(pause);
        }
        tally.seconds = start.elapsed().as_secs_f64();
        Ok(tally)
    }
}

/// A client's request, and how long it waits after the reply.
fn request(client: u64, number: u64) -> (Request, Duration) {
    let mut random = Random::of(SEED + client, number);
    let request = if random.below(REQUESTS_A_POST) == 0 {
        Request::Post { client, number }
    } else {
        Request::Get { page: random.below(PAGES) }
    };
    (request, Duration::from_micros(random.below(PAUSE_MAX.as_micros() as u64)))
}

impl Job for Web {
    fn file_bytes(&self) -> u64 {
        PAGES * FILES_A_PAGE * site::FILE_BYTES_MAX + self.clients * self.requests * RECORD_BYTES
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let place = place(home);
        remove(&place)?;
        fs::create_dir(&place).doing("create", &place)?;
        write_files(&place)?;
        sync(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let server = Server::start(&place(directory), &self.server_under)?;
        let port = server.port;
        let clients = (0..self.clients).map(|client| move || self.client(port, client));
        let tallies = at_once(clients)?;
        server.end()?;
        Ok(Outcome::new(&tallies, vec![self.requests; self.clients as usize], 0))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        let mut wanted = Vec::new();
        for (client, requests) in (0..).zip(&outcome.done) {
            let posts = (0..*requests).map(|number| request(client, number).0);
            wanted.extend(posts.filter_map(|request| match request {
                Request::Post { client, number } => Some(record(client, number)),
                Request::Get { .. } => None,
            }));
        }
        let path = records(&place(home));
        let text = fs::read_to_string(&path).doing("read", &path)?;
        let mut found: Vec<&str> = text.split_inclusive('\n').collect();
        wanted.sort_unstable();
        found.sort_unstable();
        if found == wanted {
            return Ok(());
        }
        let (path, found, wanted) = (path.display(), found.len(), wanted.len());
        Err(Error::Different(format!("{path} has {found} records, and not the {wanted} posted")))
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let path = records(&place(home));
        fs::write(&path, "").doing("write", &path)?;
        sync(home)
    }
}

fn place(directory: &Path) -> PathBuf {
    directory.join("web")
}

/// A server, killed when this goes.
struct Server {
    child: Child,
    /// It ends when this is closed.
    stdin: Option<ChildStdin>,
    port: u16,
}

impl Server {
    fn start(directory: &Path, under: &[String]) -> Result<Server> {
        let own = std::env::current_exe().doing("find", Path::new("this program"))?;
        let mut child = command_under(under, &own)
            // With whatever it is run by.
            .process_group(0)
            .arg("web-server")
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .doing("run", &own)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("asked for a pipe");
        let mut server = Server { child, stdin, port: 0 };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).doing("listen to", &own)?;
        let port = line.trim().parse();
        server.port = port.map_err(|_| Error::answer("weir-bench web-server", line))?;
        Ok(server)
    }

    /// Has it end, and waits for that.
    fn end(mut self) -> Result<()> {
        drop(self.stdin.take());
        soon(PATIENCE, || !matches!(self.child.try_wait(), Ok(None)));
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            _ => Err(Error::answer("weir-bench web-server", "it does not end well")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already over unless something failed.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// A client's connection to the server.
struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(port: u16) -> Result<Connection> {
        let server = Path::new("the web server");
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).doing("connect to", server)?;
        stream.set_nodelay(true).doing("set up the connection to", server)?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// The reply's content.
    fn ask(&mut self, request: Request) -> Result<Vec<u8>> {
        let asked = match request {
            Request::Get { page } => format!("GET /{page} HTTP/1.1\r\n\r\n"),
            Request::Post { client, number } => format!("POST /{client}/{number} HTTP/1.1\r\n\r\n"),
        };
        let server = Path::new("the web server");
        self.stream.get_mut().write_all(asked.as_bytes()).doing("talk to", server)?;
        let mut head = Vec::new();
        while head.last().is_none_or(|line: &String| !line.trim_end().is_empty()) {
            let mut line = String::new();
            if self.stream.read_line(&mut line).doing("listen to", server)? == 0 {
                return Err(Error::answer("the web server", "it closed the connection"));
            }
            head.push(line);
        }
        let length = head.iter().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.and_then(|length| length.trim().parse().ok());
        match (head[0].trim_end(), length) {
            ("HTTP/1.1 200 OK", Some(length)) => {
                let mut content = vec![0; length];
                self.stream.read_exact(&mut content).doing("listen to", server)?;
                Ok(content)
            }
            (said, _) => Err(Error::answer("the web server", format!("{said} to {asked:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    #[test]
    fn one_of_ten_requests_is_a_post() {
        let posts =
            (0..1000).filter(|number| matches!(request(3, *number).0, Request::Post { .. }));
        assert!((60..150).contains(&posts.count()));
    }

    /// By a server in this process: the test's own program has no 'web-server'.
    #[test]
    fn what_is_posted_is_kept_and_what_is_missing_is_found() {
        let web = Web { clients: 2, requests: 40, server_under: Vec::new() };
        let home = Scratch::new(&Workload::Web(web.clone()));
        let port = server::start(&place(&home)).unwrap();
        let clients = (0..web.clients).map(|client| {
            let web = &web;
            move || web.client(port, client)
        });
        let tallies = at_once(clients).unwrap();
        let outcome = Outcome::new(&tallies, vec![web.requests; 2], 0);
        assert_eq!(outcome.class("all").unwrap().ops, 80);
        web.verify(&home, &outcome).unwrap();
        web.reset(&home, &outcome).unwrap();
        assert_different(web.verify(&home, &outcome), "has 0 records");
    }
}
