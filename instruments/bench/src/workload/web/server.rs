//! A small web server: `GET /PAGE` is answered with what the page's files hold, and `POST /CLIENT/NUMBER` once its record is appended and
//! synced. A thread for each connection; connections stay until the client closes them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use super::site::{PAGES, files, record, records};
use crate::error::{Doing, Result};

/// `weir-bench web-server DIRECTORY`: prints its port, and serves until its standard input ends.
pub fn serve(directory: &Path) -> Result<()> {
    println!("{}", start(directory)?);
    let ended = io::stdin().read_to_end(&mut Vec::new());
    ended.map(drop).doing("read", Path::new("standard input"))
}

/// Serves as long as this process is there. The port.
pub fn start(directory: &Path) -> Result<u16> {
    let site = Site::open(directory)?;
    let all = Path::new("127.0.0.1");
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("listen on", all)?;
    let port = listening.local_addr().doing("listen on", all)?.port();
    thread::spawn(move || {
        for stream in listening.incoming().flatten() {
            let site = Arc::clone(&site);
            // A client that is gone needs no reply.
            thread::spawn(move || drop(site.answer(stream)));
        }
    });
    Ok(port)
}

/// What is served.
struct Site {
    directory: PathBuf,
    records: File,
}

impl Site {
    fn open(directory: &Path) -> Result<Arc<Site>> {
        let path = records(directory);
        let records = OpenOptions::new().append(true).open(&path).doing("open", &path)?;
        Ok(Arc::new(Site { directory: directory.to_owned(), records }))
    }

    /// Answers all requests of a connection.
    fn answer(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        while let Some(asked) = request(&mut stream)? {
            let reply = match self.reply(&asked) {
                Some(Ok(content)) => {
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
                    [head.into_bytes(), content].concat()
                }
                Some(Err(_)) => empty("500 Internal Server Error"),
                None => empty("400 Bad Request"),
            };
            stream.get_mut().write_all(&reply)?;
        }
        Ok(())
    }

    /// The content that a request line asks for; `None` if it asks for nothing that there is.
    fn reply(&self, asked: &str) -> Option<io::Result<Vec<u8>>> {
        let mut words = asked.split(' ');
        let (method, path) = (words.next()?, words.next()?.strip_prefix('/')?);
        match method {
            "GET" => {
                let page = path.parse().ok().filter(|page| *page < PAGES)?;
                let contents: io::Result<Vec<_>> =
                    files(&self.directory, page).map(fs::read).collect();
                Some(contents.map(|contents| contents.concat()))
            }
            "POST" => {
                let (client, number) = path.split_once('/')?;
                let record = record(client.parse().ok()?, number.parse().ok()?);
                let mut records = &self.records;
                let kept = records.write_all(record.as_bytes()).and_then(|()| records.sync_data());
                Some(kept.map(|()| Vec::new()))
            }
            _ => None,
        }
    }
}

fn empty(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// The first line of the next request, whose other lines are skipped; `None` at the end of the connection.
fn request(stream: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut first = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim_end().is_empty() {
            return Ok(first);
        }
        first.get_or_insert_with(|| line.trim_end().to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_one_after_the_other() {
        let mut stream = &b"GET /1 HTTP/1.1\r\nHost: here\r\n\r\nPOST /2/3 HTTP/1.1\r\n\r\nGET"[..];
        assert_eq!(request(&mut stream).unwrap().as_deref(), Some("GET /1 HTTP/1.1"));
        assert_eq!(request(&mut stream).unwrap().as_deref(), Some("POST /2/3 HTTP/1.1"));
        assert_eq!(request(&mut stream).unwrap(), None);
    }
}
