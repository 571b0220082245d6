//! `weir-bench relay`: what sshfs runs in the place of ssh. It starts an SFTP server, and passes on what goes either way
//! after a delay, like a network of some latency and no bound of its own on throughput.
//!
//! Each direction has two threads and a queue between them: one reads, and notes when each piece is due; the other waits
//! until then and writes. So pieces are under way at the same time, in order, each for the whole delay.
//!
//! Invariant: what was read is written, all of it and before the end of the stream is passed on.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use crate::error::{Doing, Result};

/// Bytes of the largest piece.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces under way: a bound on memory that is met only by a reader that does not keep up.
const PIECES: usize = 1024;

/// A network between standard input and output and a server.
#[derive(clap::Args)]
pub struct Arguments {
    /// Delay in each direction, microseconds.
    #[arg(long, value_name = "N")]
    delay_us: u64,
    /// The directory that the server begins in.
    #[arg(long, value_name = "DIRECTORY")]
    directory: PathBuf,
    /// The SFTP server.
    #[arg(long, value_name = "PROGRAM")]
    server: PathBuf,
    /// What ssh would be told; of no use here.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _for_ssh: Vec<String>,
}

impl Arguments {
    /// Relays until both directions have ended.
    pub fn run(self) -> Result<()> {
        let delay = Duration::from_micros(self.delay_us);
        // The threads inherit it. The kernel's default would add up to a tenth of a usual delay.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut child = Command::new(&self.server)
            .arg("-d")
            .arg(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .doing("run", &self.server)?;
        let to_server = child.stdin.take().expect("asked for a pipe");
        let from_server = child.stdout.take().expect("asked for a pipe");
        // Files of their own: the standard library's would look for the ends of lines.
        let input = File::from(
            io::stdin().as_fd().try_clone_to_owned().doing("use the input of", &self.server)?,
        );
        let output = File::from(
            io::stdout().as_fd().try_clone_to_owned().doing("use the output of", &self.server)?,
        );
        // A server that ends while nothing comes from sshfs is not waited for: this process is over with it.
        thread::spawn(move || pass_on(input, to_server, delay));
        let passed = pass_on(from_server, output, delay);
        child.wait().doing("wait for", &self.server)?;
        passed.doing("pass on the answers of", &self.server)
    }
}

/// A piece of a stream, and when it is due.
struct Piece {
    bytes: Vec<u8>,
    due: Instant,
}

/// Writes all of `from` to `to`, each byte `delay` after it came; returns at the end of the stream.
pub fn pass_on(mut from: impl Read, to: impl Write + Send, delay: Duration) -> io::Result<()> {
    let (sender, receiver) = sync_channel::<Piece>(PIECES);
    thread::scope(|scope| {
        let writer = scope.spawn(move || -> io::Result<()> {
            let mut to = to;
            for piece in receiver {
                thread::sleep(piece.due.saturating_duration_since(Instant::now()));
                to.write_all(&piece.bytes)?;
            }
            to.flush()
        });
        let mut buffer = vec![0; PIECE_BYTES];
        let read = loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => break Err(error),
            };
            let piece = Piece { bytes: buffer[..count].to_vec(), due: Instant::now() + delay };
            if sender.send(piece).is_err() {
                // The writer has failed, and says why.
                break Ok(());
            }
        };
        drop(sender);
        writer.join().expect("the writer does not panic").and(read)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, pipe};

    /// A relay under way, and both its ends.
    fn relayed(delay: Duration) -> (PipeWriter, PipeReader, thread::JoinHandle<io::Result<()>>) {
        let (from, near) = pipe().unwrap();
        let (far, to) = pipe().unwrap();
        (near, far, thread::spawn(move || pass_on(from, to, delay)))
    }

    #[test]
    fn pieces_arrive_in_order_and_none_before_its_delay() {
        let delay = Duration::from_millis(20);
        let (mut near, mut far, relay) = relayed(delay);
        let sender = thread::spawn(move || {
            let mut sent = Vec::new();
            for number in 0..50_u8 {
                sent.push(Instant::now());
                near.write_all(&[number]).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        let mut came = Vec::new();
        let mut byte = [0];
        while far.read(&mut byte).unwrap() > 0 {
            came.push((byte[0], Instant::now()));
        }
        let sent = sender.join().unwrap();
        relay.join().unwrap().unwrap();
        assert!(came.iter().map(|(number, _)| *number).eq(0..50), "{came:?}");
        for ((number, came), sent) in came.iter().zip(sent) {
            assert!(*came >= sent + delay, "piece {number} came after {:?}", *came - sent);
        }
    }

    /// Were a piece sent only when the one before it has arrived, this would take more than 20 s.
    #[test]
    fn the_delay_does_not_bound_the_throughput() {
        let (mut near, mut far, relay) = relayed(Duration::from_millis(40));
        let block: Vec<u8> = (0..PIECE_BYTES).map(|at| (at % 251) as u8).collect();
        let wanted = block.clone();
        let start = Instant::now();
        let sender = thread::spawn(move || (0..512).for_each(|_| near.write_all(&block).unwrap()));
        let mut found = vec![0; PIECE_BYTES];
        for number in 0..512 {
            far.read_exact(&mut found).unwrap();
            assert!(found == wanted, "block {number} differs");
        }
        let took = start.elapsed();
        sender.join().unwrap();
        relay.join().unwrap().unwrap();
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[test]
    fn the_end_comes_after_the_last_byte() {
        let (mut near, mut far, relay) = relayed(Duration::from_millis(30));
        let start = Instant::now();
        near.write_all(b"the last").unwrap();
        drop(near);
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"the last");
        assert!(start.elapsed() >= Duration::from_millis(30));
        relay.join().unwrap().unwrap();
    }

    #[test]
    fn a_receiver_that_is_gone_ends_it() {
        let (mut near, far, relay) = relayed(Duration::ZERO);
        drop(far);
        // The first is read and cannot be written; the next finds the writer gone.
        while near.write_all(b"nobody").is_ok() {}
        assert!(relay.join().unwrap().is_err());
    }
}
