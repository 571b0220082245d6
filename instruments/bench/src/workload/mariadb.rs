//! MariaDB with InnoDB as it is by default, which syncs its log at each commit: some clients, each with transactions of an
//! update and an insert, told to MariaDB's own client through pipes.
//!
//! A data directory is prepared once and copied for each run. The server is killed when the clients are done, so what is
//! verified is what its log holds: that each client's transactions are all in the history, and that the balances are the sums
//! of their deltas, both known from the transactions' numbers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::content::Random;
use crate::error::{Doing, Error, Result};
use crate::mount::{require_program, run};
use crate::soon::soon;
use crate::threads::at_once;
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome, Tally};
use crate::workload::tree::{remove, sync};

const SEED: u64 = 0x6d61_7269;
const ACCOUNTS: u64 = 1000;
/// What a prepared data directory takes, bytes, about.
const DATA_BYTES: u64 = 80 << 20;
/// What a transaction adds to files, bytes, about.
const TRANSACTION_BYTES: u64 = 500;
/// How long a server may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
const SCHEMA: &str = "CREATE DATABASE bank; USE bank; \
    CREATE TABLE account(id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=InnoDB; \
    CREATE TABLE history(client INT, number INT, account INT, delta INT, PRIMARY KEY(client, number)) ENGINE=InnoDB;";
/// What a client says after each transaction.
const DONE: &str = "done";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mariadb {
    /// Clients at once.
    pub clients: u64,
    /// Transactions of each.
    pub transactions: u64,
}

/// Fails, saying what to do, where there is no MariaDB.
pub fn require() -> Result<()> {
    require_program("mariadbd", "mariadb-server-core")?;
    require_program("mariadb-install-db", "mariadb-server-core")?;
    require_program("mariadb", "mariadb-client-core")
}

impl Mariadb {
    fn client(&self, server: &Server, client: u64) -> Result<Tally> {
        let mut shell = Shell::start(server)?;
        let mut tally = Tally::new();
        let start = Instant::now();
        for number in 0..self.transactions {
            let (account, delta) = transaction(client, number);
            let before = Instant::now();
            shell.tell(&format!(
                "START TRANSACTION; UPDATE account SET balance = balance + {delta} WHERE id = {account}; \
                 INSERT INTO history VALUES({client}, {number}, {account}, {delta}); COMMIT; SELECT '{DONE}';"
            ))?;
            tally.note(Class::Transaction, before.elapsed());
        }
        tally.seconds = start.elapsed().as_secs_f64();
        Ok(tally)
    }
}

impl Job for Mariadb {
    fn file_bytes(&self) -> u64 {
        2 * DATA_BYTES + self.clients * self.transactions * TRANSACTION_BYTES
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let directory = place(home);
        remove(&directory)?;
        fs::create_dir(&directory).doing("create", &directory)?;
        let data = prepared(home);
        run(Command::new("mariadb-install-db")
            .args(["--no-defaults", "--user=root", "--skip-test-db"])
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--datadir={}", data.display())))?;
        let server = Server::start(&data)?;
        server.ask(SCHEMA)?;
        server.ask(&format!(
            "USE bank; INSERT INTO account SELECT seq, 0 FROM seq_1_to_{ACCOUNTS}"
        ))?;
        server.end()?;
        copy(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let server = Server::start(&used(directory))?;
        let clients = (0..self.clients).map(|client| {
            let server = &server;
            move || self.client(server, client)
        });
        let tallies = at_once(clients)?;
        // Killed, as by a crash.
        drop(server);
        Ok(Outcome::new(&tallies, vec![self.transactions; self.clients as usize], 0))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        let server = Server::start(&used(home))?;
        let said = server.ask(
            "SELECT (SELECT count(*) FROM bank.history), (SELECT sum(delta * number) FROM bank.history), \
             (SELECT sum(balance * id) FROM bank.account)",
        )?;
        server.end()?;
        let (mut count, mut deltas, mut balances) = (0, 0, 0);
        for (client, transactions) in (0..).zip(&outcome.done) {
            for number in 0..*transactions {
                let (account, delta) = transaction(client, number);
                count += 1;
                deltas += delta * number as i64;
                balances += delta * account as i64;
            }
        }
        let wanted = format!("{count}\t{deltas}\t{balances}");
        if said.trim() == wanted {
            return Ok(());
        }
        let (data, said) = (used(home), said.trim().to_owned());
        Err(Error::Different(format!("{} sums up to {said} instead of {wanted}", data.display())))
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        copy(home)
    }
}

/// The account that a transaction changes, and by how much.
fn transaction(client: u64, number: u64) -> (u64, i64) {
    let mut random = Random::of(SEED + client, number);
    (1 + random.below(ACCOUNTS), 1 + random.below(5000) as i64)
}

fn place(directory: &Path) -> PathBuf {
    directory.join("mariadb")
}

fn prepared(directory: &Path) -> PathBuf {
    place(directory).join("prepared")
}

/// A run's data.
fn used(directory: &Path) -> PathBuf {
    place(directory).join("data")
}

/// Makes a run's data from what was prepared, durable.
fn copy(home: &Path) -> Result<()> {
    let to = used(home);
    remove(&to)?;
    run(Command::new("cp").arg("-a").args([&prepared(home), &to]))?;
    sync(&to)
}

/// Where a server has its socket and its temporary files, away from the disk that is measured. It is gone when this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("weir-bench-mariadb-{}", std::process::id()));
        remove(&path)?;
        fs::create_dir(&path).doing("create", &path)?;
        Ok(Scratch(path))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server, killed when this goes.
struct Server {
    child: Child,
    scratch: Scratch,
    data: PathBuf,
}

impl Server {
    fn start(data: &Path) -> Result<Server> {
        let scratch = Scratch::new()?;
        let program = Path::new("mariadbd");
        let shown = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let child = Command::new(program)
            .process_group(0)
            .args(["--no-defaults", "--user=root", "--skip-networking"])
            .args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"])
            .args([shown("datadir", data), shown("tmpdir", &scratch.0)])
            .args([
                shown("socket", &scratch.socket()),
                shown("log-error", &data.join("server.log")),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .doing("run", program)?;
        let mut server = Server { child, scratch, data: data.to_owned() };
        let deadline = Instant::now() + PATIENCE;
        while server.ask("SELECT 1").is_err() {
            let ended = server.child.try_wait().doing("wait for", program)?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(server.failed("it does not answer"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"]);
        command.arg("--socket").arg(self.scratch.socket());
        command
    }

    fn ask(&self, sql: &str) -> Result<String> {
        let output = run(self.client().args(["--execute", sql]))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Ends it with everything written.
    fn end(mut self) -> Result<()> {
        self.ask("SHUTDOWN")?;
        soon(PATIENCE, || !matches!(self.child.try_wait(), Ok(None)));
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            _ => Err(self.failed("it does not end well")),
        }
    }

    fn failed(&mut self, why: &str) -> Error {
        let status = self.child.try_wait().ok().flatten();
        let log = fs::read_to_string(self.data.join("server.log")).unwrap_or_default();
        let last = log.trim().lines().last().unwrap_or("nothing");
        Error::Command {
            command: format!("mariadbd --datadir={}", self.data.display()),
            status: status.map_or("still running".into(), |status| status.to_string()),
            said: format!("{why}; it logged '{last}'"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// MariaDB's client, connected for as long as this is there.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Shell {
    fn start(server: &Server) -> Result<Shell> {
        let mut child = server
            .client()
            .args(["--unbuffered", "--database=bank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .doing("run", Path::new("mariadb"))?;
        let stdin = child.stdin.take().expect("asked for a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("asked for a pipe"));
        Ok(Shell { child, stdin, stdout })
    }

    /// Has it run statements of which the last selects [`DONE`].
    fn tell(&mut self, sql: &str) -> Result<()> {
        let mut line = String::new();
        writeln!(self.stdin, "{sql}")
            .and_then(|()| self.stdout.read_line(&mut line))
            .doing("talk to", Path::new("mariadb"))?;
        if line.trim_end() == DONE {
            return Ok(());
        }
        Err(Error::answer("mariadb", format!("'{}' after '{sql}'", line.trim_end())))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch as Home, assert_different};

    /// Passes over itself where there is no MariaDB.
    #[test]
    fn missing_transactions_are_found() {
        if require().is_err() {
            return;
        }
        let workload = Workload::Mariadb(Mariadb { clients: 2, transactions: 20 });
        let home = Home::new(&workload);
        let outcome = workload.run(&home).unwrap();
        assert_eq!(outcome.class("transaction").unwrap().ops, 40);
        workload.verify(&home, &outcome).unwrap();
        let server = Server::start(&used(&home)).unwrap();
        server.ask("DELETE FROM bank.history WHERE client = 1 AND number = 19").unwrap();
        server.end().unwrap();
        assert_different(workload.verify(&home, &outcome), "sums up to 39");
        workload.reset(&home, &outcome).unwrap();
        assert_different(workload.verify(&home, &outcome), "sums up to 0");
    }
}
