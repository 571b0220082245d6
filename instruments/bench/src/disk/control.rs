//! The control socket of a disk's server: one JSON object a line, a request and its answer.
//!
//! The socket lies in the disk's directory, and is reached through a descriptor of that directory,
//! because the name of a Unix socket is short and a path need not be.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_drive::{Counts, Lost, Ways};

use super::server::Station;
use crate::error::{Doing, Error, Result};

/// The socket's name in the disk's directory.
pub const SOCKET: &str = "control";

/// How long an answer may take: draining writes back no more than a cache.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Ask {
    /// The totals.
    Counts,
    /// Delays or none; either way drained first.
    SetPaced {
        /// Whether there are delays.
        on: bool,
    },
    /// A delay of its own for each request while the model has none.
    Delay {
        /// Nanoseconds.
        ns: u64,
    },
    /// Takes the times of the way to the disk and back off the delays.
    SetWays {
        /// For each kind of request.
        ways: Ways,
    },
    /// A power cut.
    PowerCut {
        /// Decides what of the unflushed writes is lost.
        seed: u64,
    },
    /// Power on again.
    Restore,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// The totals.
    Counts(Counts),
    /// What the power cut did.
    Lost(Lost),
    /// It is done.
    Done,
    /// It is not.
    Failed(String),
}

/// The name of a file in an open directory, short whatever the directory's path.
fn short_name(directory: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

/// Answers clients of the socket in `directory` from a thread of its own, until the process ends.
pub fn listen(directory: &Path, station: Arc<Station>) -> io::Result<()> {
    let directory = File::open(directory)?;
    let path = short_name(&directory, SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    thread::Builder::new().name("control".into()).spawn(move || {
        for client in listener.incoming().flatten() {
            // One client at a time, one question each: a client that is gone is no concern here.
            let _ = answer(&client, &station);
        }
    })?;
    Ok(())
}

fn answer(client: &UnixStream, station: &Station) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line)?;
    let said = match serde_json::from_str(&line) {
        Ok(Ask::Counts) => Said::Counts(station.counts()),
        Ok(Ask::SetPaced { on }) => outcome(station.set_paced(on)),
        Ok(Ask::PowerCut { seed }) => match station.power_cut(seed) {
            Ok(lost) => Said::Lost(lost),
            Err(error) => Said::Failed(error.to_string()),
        },
        Ok(Ask::Delay { ns }) => {
            station.delay(ns);
            Said::Done
        }
        Ok(Ask::SetWays { ways }) => {
            station.set_ways(ways);
            Said::Done
        }
        Ok(Ask::Restore) => outcome(station.restore()),
        Err(error) => Said::Failed(format!("cannot understand the request: {error}")),
    };
    let mut line = serde_json::to_vec(&said)?;
    line.push(b'\n');
    (&*client).write_all(&line)
}

fn outcome(result: io::Result<()>) -> Said {
    match result {
        Ok(()) => Said::Done,
        Err(error) => Said::Failed(error.to_string()),
    }
}

/// The totals of the disk in `directory`.
pub fn counts(directory: &Path) -> Result<Counts> {
    match ask(directory, Ask::Counts)? {
        Said::Counts(counts) => Ok(counts),
        other => Err(unexpected(&other)),
    }
}

/// Cuts the power of the disk in `directory`.
pub fn power_cut(directory: &Path, seed: u64) -> Result<Lost> {
    match ask(directory, Ask::PowerCut { seed })? {
        Said::Lost(lost) => Ok(lost),
        other => Err(unexpected(&other)),
    }
}

/// Has the disk in `directory` do what has no other answer than that it is done.
pub fn order(directory: &Path, order: Ask) -> Result<()> {
    match ask(directory, order)? {
        Said::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(said: &Said) -> Error {
    Error::answer("the disk's server", format!("it said {said:?}"))
}

fn ask(directory: &Path, ask: Ask) -> Result<Said> {
    let opened = File::open(directory).doing("open", directory)?;
    let line = exchange(&short_name(&opened, SOCKET), ask)
        .doing("talk to the server of a disk in", directory)?;
    match serde_json::from_str(&line) {
        Ok(Said::Failed(why)) => Err(Error::answer("the disk's server", why)),
        Ok(said) => Ok(said),
        Err(error) => Err(Error::answer("the disk's server", error)),
    }
}

fn exchange(socket: &Path, ask: Ask) -> io::Result<String> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(&ask)?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_of_json_and_read_back() {
        let ask = Ask::SetPaced { on: true };
        let line = serde_json::to_string(&ask).unwrap();
        assert_eq!(line, r#"{"command":"set-paced","on":true}"#);
        assert_eq!(serde_json::from_str::<Ask>(&line).unwrap(), ask);
        let said = Said::Counts(Counts { reads: 3, ..Counts::default() });
        let line = serde_json::to_string(&said).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Said>(&line).unwrap(), said);
    }
}
