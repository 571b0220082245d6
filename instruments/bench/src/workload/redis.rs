//! Redis with its append-only file, synced every second as it is by default or before each answer, and redis-benchmark's SETs.
//!
//! What the server held when the load was over, by its own digest of all keys, is what a server that starts on the
//! files at home must hold.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::mount::{require_program, run};
use crate::soon::soon;
use crate::workload::job::{Job, command_under};
use crate::workload::outcome::{ALL, ClassOutcome, Outcome};
use crate::workload::tree::{remove, sync};

/// Bytes of a value.
const VALUE_BYTES: u32 = 100;
/// Keys.
const KEYS: u32 = 100_000;
/// What one SET adds to the file, bytes, about.
const ENTRY_BYTES: u64 = 160;
/// How long a server may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Redis {
    /// SETs.
    pub requests: u64,
    /// Clients at once.
    pub clients: u32,
    /// When the file is synced: `everysec`, `always`.
    pub append_fsync: String,
    /// The command that the server is run by; empty: itself.
    pub server_under: Vec<String>,
}

/// Fails, saying what to do, where there is no Redis.
pub fn require() -> Result<()> {
    ["redis-server", "redis-cli", "redis-benchmark"]
        .into_iter()
        .try_for_each(|program| require_program(program, "redis-server"))
}

impl Job for Redis {
    fn file_bytes(&self) -> u64 {
        2 * self.requests * ENTRY_BYTES
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let directory = place(home);
        remove(&directory)?;
        fs::create_dir(&directory).doing("create", &directory)?;
        sync(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let server = Server::start(&place(directory), &self.append_fsync, &self.server_under)?;
        let start = Instant::now();
        let said = run(Command::new("redis-benchmark")
            .arg("-s")
            .arg(&server.socket)
            .args(["-t", "set", "--csv", "-c", &self.clients.to_string()])
            .args(["-n", &self.requests.to_string(), "-d", &VALUE_BYTES.to_string()])
            .args(["-r", &KEYS.to_string()]))?;
        let seconds = start.elapsed().as_secs_f64();
        let class = parse(&String::from_utf8_lossy(&said.stdout), self.requests)?;
        let digest = server.digest()?;
        server.end()?;
        let all = ClassOutcome { class: ALL.into(), ..class.clone() };
        Ok(Outcome { seconds, classes: vec![class, all], done: digest, ..Outcome::default() })
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        let server = Server::start(&place(home), &self.append_fsync, &[])?;
        let digest = server.digest()?;
        server.end()?;
        if digest == outcome.done {
            return Ok(());
        }
        let place = place(home);
        let (found, wanted) = (&digest, &outcome.done);
        Err(Error::Different(format!(
            "the keys in {} have the digest {found:x?} instead of {wanted:x?}",
            place.display()
        )))
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        self.prepare(home)
    }
}

fn place(directory: &Path) -> PathBuf {
    directory.join("redis")
}

/// Of `"test","rps","avg_latency_ms","min","p50","p95","p99","max"` the line of the SETs.
fn parse(said: &str, requests: u64) -> Result<ClassOutcome> {
    let line = said.lines().find(|line| line.starts_with("\"SET\""));
    let fields = line.unwrap_or_default().split(',').skip(1);
    let numbers: Vec<f64> =
        fields.filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    let [ops_per_s, mean_ms, _, p50_ms, _, p99_ms, max_ms] = numbers[..] else {
        let why = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
        return Err(Error::answer("redis-benchmark", why));
    };
    Ok(ClassOutcome {
        class: "set".into(),
        ops: requests,
        ops_per_s,
        mean_us: mean_ms * 1e3,
        p50_us: p50_ms * 1e3,
        p99_us: p99_ms * 1e3,
        max_us: max_ms * 1e3,
    })
}

/// A server, killed when this goes.
struct Server {
    child: Child,
    socket: PathBuf,
    directory: PathBuf,
}

impl Server {
    fn start(directory: &Path, append_fsync: &str, under: &[String]) -> Result<Server> {
        let socket =
            std::env::temp_dir().join(format!("weir-bench-redis-socket-{}", std::process::id()));
        let program = Path::new("redis-server");
        let mut command = command_under(under, program);
        let child = command
            // With whatever it is run by.
            .process_group(0)
            .args(["--port", "0", "--save", "", "--appendonly", "yes", "--loglevel", "warning"])
            .args(["--appendfsync", append_fsync, "--enable-debug-command", "local", "--dir"])
            .arg(directory)
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .doing("run", program)?;
        let mut server = Server { child, socket, directory: directory.to_owned() };
        let deadline = Instant::now() + PATIENCE;
        while !server.ask(&["PING"]).is_ok_and(|said| said.trim() == "PONG") {
            let ended = server.child.try_wait().doing("wait for", program)?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(server.failed("it does not answer"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        let output = run(command.arg("-s").arg(&self.socket).args(words))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Of all keys and values, in numbers.
    fn digest(&self) -> Result<Vec<u64>> {
        let said = self.ask(&["DEBUG", "DIGEST"])?;
        let said = said.trim();
        let digits = said.as_bytes().chunks(10).map(|chunk| std::str::from_utf8(chunk).ok());
        let numbers = digits.map(|digits| u64::from_str_radix(digits?, 16).ok());
        let numbers: Option<Vec<u64>> = numbers.collect();
        numbers
            .filter(|numbers| numbers.len() == 4)
            .ok_or_else(|| Error::answer("redis-cli DEBUG DIGEST", said.to_owned()))
    }

    /// Has it write and sync its file, and waits for its end.
    fn end(mut self) -> Result<()> {
        // It answers by closing the connection.
        let _ = self.ask(&["SHUTDOWN"]);
        soon(PATIENCE, || !matches!(self.child.try_wait(), Ok(None)));
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            _ => Err(self.failed("it does not end well")),
        }
    }

    fn failed(&mut self, said: &str) -> Error {
        let status = self.child.try_wait().ok().flatten();
        Error::Command {
            command: format!("redis-server --dir {}", self.directory.display()),
            status: status.map_or("still running".into(), |status| status.to_string()),
            said: said.into(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already over unless something failed.
        if let Ok(None) = self.child.try_wait() {
            let group = Pid::from_child(&self.child);
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    #[test]
    fn what_the_benchmark_says_is_understood() {
        let said = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                    \"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"60386.47\",\"0.100\",\"0.024\",\"0.095\",\"0.191\",\"0.263\",\"0.855\"\n";
        let class = parse(said, 1000).unwrap();
        assert_eq!((class.ops, class.ops_per_s, class.p50_us), (1000, 60386.47, 95.0));
        assert!(parse("", 1).is_err());
    }

    /// Passes over itself where there is no Redis.
    #[test]
    fn keys_that_differ_are_found() {
        if require().is_err() {
            return;
        }
        let workload = Workload::Redis(Redis {
            requests: 500,
            clients: 8,
            append_fsync: "always".into(),
            server_under: vec!["env".into()],
        });
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        workload.verify(&home, &outcome).unwrap();
        let server = Server::start(&place(&home), "everysec", &[]).unwrap();
        server.ask(&["SET", "another", "value"]).unwrap();
        server.end().unwrap();
        assert_different(workload.verify(&home, &outcome), "have the digest");
    }
}
