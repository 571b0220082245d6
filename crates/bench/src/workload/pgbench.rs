//! PostgreSQL's own benchmark, pgbench, with fsync as it is by default: transactions like those of
//! TPC-B by some clients for a time.
//!
//! PostgreSQL refuses to run as root, so all of it runs as the user `postgres` of its package. A
//! cluster is prepared once and copied for each run. In a run the server is started, every page of the
//! accounts read once, pgbench run, and the server stopped without a checkpoint, as by a crash. So what
//! is verified is what the write-ahead log holds: that the sums of all balances and of the history are
//! equal, and that each transaction that pgbench saw committed is in the history.
//!
//! The server listens in the abstract namespace (unix(7)), which leaves no socket behind.

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::syncfs;
use serde::{Deserialize, Serialize};

use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Error, Result};
use crate::mount::run;
use crate::workload::outcome::{Class, Outcome, Tally};

/// Whose servers they are.
const USER: &str = "postgres";
/// Where the packages of Debian and others have the programs, by version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// A step of pgbench's scale, MiB: 100,000 accounts and their index.
const SCALE_MIB: u64 = 15;
/// A cluster with nothing of it, its write-ahead log included.
const CLUSTER_MIB: u64 = 160;
/// What differs from PostgreSQL's defaults: its memory, which is a part of the contestant's, and no
/// checkpoints in its log, which is on the disk that is measured.
const SETTINGS: &str = "
listen_addresses = ''
max_connections = 20
shared_buffers = 16MB
max_wal_size = 128MB
log_checkpoints = off
";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pgbench {
    /// Clients at once.
    pub clients: u32,
    /// pgbench's scale: so many branches, and 100,000 accounts for each.
    pub scale: u32,
    /// For how long.
    pub seconds: u64,
}

/// Fails, saying what to do, where there is no PostgreSQL.
pub fn require() -> Result<()> {
    Postgres::find().map(drop)
}

impl Pgbench {
    /// What its files take up, bytes, about: the cluster and its prepared copy.
    pub fn file_bytes(&self) -> u64 {
        (2 * (u64::from(self.scale) * SCALE_MIB + CLUSTER_MIB)) << 20
    }

    /// See [`crate::workload::Workload::prepare`].
    pub fn prepare(&self, home: &Path) -> Result<()> {
        let postgres = Postgres::find()?;
        let directory = directory(home);
        remove(&directory)?;
        fs::create_dir(&directory).doing("create", &directory)?;
        chown(&directory, Some(postgres.uid), Some(postgres.gid)).doing("give", &directory)?;
        let cluster = directory.join("prepared");
        run(postgres
            .command("initdb")
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&cluster))?;
        let settings = cluster.join("postgresql.conf");
        let text = fs::read_to_string(&settings).doing("read", &settings)?;
        fs::write(&settings, text + SETTINGS).doing("write", &settings)?;
        let server = Server::start(&postgres, &cluster, "-c fsync=off")?;
        let scale = self.scale.to_string();
        run(server.client("pgbench").args(["--initialize", "--quiet", "--scale", &scale]))?;
        server.stop("fast")?;
        self.copy(home)
    }

    /// See [`crate::workload::Workload::run`].
    pub fn run(&self, directory_shown: &Path) -> Result<Outcome> {
        let postgres = Postgres::find()?;
        let server = Server::start(&postgres, &cluster(directory_shown), "")?;
        for warm in [
            "SELECT sum(abalance) FROM pgbench_accounts",
            "SET enable_seqscan = off; SELECT count(*) FROM pgbench_accounts WHERE aid > 0",
        ] {
            run(server.client("psql").args(["-X", "-q", "-A", "-t", "-c", warm]))?;
        }
        let notes = Notes::new(&postgres)?;
        let clients = self.clients.to_string();
        let output = run(server
            .client("pgbench")
            .args(["--no-vacuum", "--client", &clients, "--jobs"])
            .arg(self.clients.min(2).to_string())
            .arg(format!("--time={}", self.seconds))
            .args(["--log", "--log-prefix"])
            .arg(notes.prefix()))?;
        server.stop("immediate")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let per_second = transactions_per_second(&said).ok_or_else(|| Error::Answer {
            from: "pgbench",
            why: "it does not tell transactions a second".into(),
        })?;
        let (mut tally, done) = notes.tally()?;
        // Without the time it took to connect.
        tally.seconds = done as f64 / per_second;
        Ok(Outcome::new(&[tally], vec![done], 0))
    }

    /// See [`crate::workload::Workload::verify`].
    pub fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        let said = Postgres::find()?.ask_alone(
            &cluster(home),
            "SELECT concat_ws(' ', (SELECT count(*) FROM pgbench_history), \
             (SELECT coalesce(sum(delta), 0) FROM pgbench_history), \
             (SELECT sum(abalance) FROM pgbench_accounts), \
             (SELECT sum(tbalance) FROM pgbench_tellers), \
             (SELECT sum(bbalance) FROM pgbench_branches)) AS found;",
        )?;
        check(&said, outcome.done.iter().sum())
    }

    /// See [`crate::workload::Workload::reset`].
    pub fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        self.copy(home)
    }

    /// Makes the cluster of a run from the prepared one, durable.
    fn copy(&self, home: &Path) -> Result<()> {
        let (from, to) = (directory(home).join("prepared"), cluster(home));
        remove(&to)?;
        run(Command::new("cp").arg("-a").args([&from, &to]))?;
        let opened = fs::File::open(&to).doing("open", &to)?;
        syncfs(&opened).doing("sync", &to)
    }
}

fn directory(home: &Path) -> PathBuf {
    home.join("pgbench")
}

fn cluster(home: &Path) -> PathBuf {
    directory(home).join("cluster")
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() { fs::remove_dir_all(path).doing("remove", path) } else { Ok(()) }
}

/// [`Error::Different`] unless the four sums that the history and the balances come to are equal, and
/// at least `committed` transactions are in the history.
fn check(said: &str, committed: u64) -> Result<()> {
    let found = answer(said).ok_or_else(|| Error::Answer {
        from: "postgres --single",
        why: said.trim().lines().last().unwrap_or("it said nothing").to_owned(),
    })?;
    let numbers: Vec<i64> = found.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [count, delta, accounts, tellers, branches] => {
            if [accounts, tellers, branches] != [delta; 3] {
                return Err(Error::Different(format!(
                    "pgbench's history comes to {delta}, its accounts to {accounts}, its tellers to \
                     {tellers} and its branches to {branches}"
                )));
            }
            if (count as u64) < committed {
                return Err(Error::Different(format!(
                    "{committed} transactions of pgbench were committed and {count} are there"
                )));
            }
            Ok(())
        }
        _ => Err(Error::Answer { from: "postgres --single", why: found.to_owned() }),
    }
}

/// What a stand-alone backend shows as ` 1: found = "..."`.
fn answer(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.split_once("found = \"")?.1.split('"').next())
}

/// Of `tps = 123.4 (without initial connection time)`.
fn transactions_per_second(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split(' ').next()?.parse().ok().filter(|per_second| *per_second > 0.0)
}

/// An installed PostgreSQL and the user it runs as.
struct Postgres {
    programs: PathBuf,
    uid: u32,
    gid: u32,
}

impl Postgres {
    fn find() -> Result<Postgres> {
        let missing = |what: &str| Error::Missing {
            what: what.to_owned(),
            remedy: "run 'scripts/setup bench', or install the package 'postgresql'".into(),
        };
        let programs = newest_programs(Path::new(PROGRAMS))
            .ok_or_else(|| missing("PostgreSQL is not installed"))?;
        let users = fs::read_to_string("/etc/passwd").doing("read", Path::new("/etc/passwd"))?;
        let (uid, gid) = user(&users, USER)
            .ok_or_else(|| missing("there is no user 'postgres' for PostgreSQL to run as"))?;
        Ok(Postgres { programs, uid, gid })
    }

    /// One of its programs, as its user; nothing of this process's environment matters to it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // Its user need not be able to enter the present directory.
        command.uid(self.uid).gid(self.gid).current_dir("/").env_clear().env("LC_ALL", "C");
        command.env("PATH", "/usr/bin:/bin").env("PGUSER", USER).env("PGDATABASE", USER);
        command
    }

    /// Stops the server of a cluster, and waits for its end.
    fn stop(&self, cluster: &Path, mode: &str) -> Command {
        let mut command = self.command("pg_ctl");
        command.args(["stop", "--wait", "--silent", "--mode", mode, "-D"]).arg(cluster);
        command
    }

    /// What a server without clients answers to one statement. It recovers the cluster first.
    fn ask_alone(&self, cluster: &Path, sql: &str) -> Result<String> {
        let mut command = self.command("postgres");
        command.args(["--single", "-c", "log_min_messages=error", "-D"]).arg(cluster).arg(USER);
        let program = PathBuf::from(command.get_program());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().doing("run", &program)?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that ended before it read says why by its status.
            let _ = writeln!(stdin, "{sql}");
        }
        let output = child.wait_with_output().doing("wait for", &program)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.trim().lines().last().unwrap_or("it said nothing");
        Err(Error::Different(format!("PostgreSQL cannot open {}: {why}", cluster.display())))
    }
}

/// The programs of the newest version below `root`.
fn newest_programs(root: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(root).ok()?.flatten().map(|entry| entry.path());
    let with_programs = versions.filter(|path| path.join("bin/pgbench").is_file());
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        name.parse::<f64>().ok().map(|version| (version * 10.0) as u64)
    };
    with_programs.max_by_key(number).map(|path| path.join("bin"))
}

/// The user's and the group's number of a user, from the lines of passwd(5).
fn user(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let mut numbers = fields.skip(1).map(|field| field.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    })
}

/// A running server. It is stopped when this goes, or on a signal; if all else fails with its memory
/// group.
struct Server<'a> {
    postgres: &'a Postgres,
    cluster: PathBuf,
    socket: String,
    undo: Undo,
}

impl<'a> Server<'a> {
    fn start(postgres: &'a Postgres, cluster: &Path, options: &str) -> Result<Server<'a>> {
        let socket = format!("@weir-bench-{}", std::process::id());
        let log = cluster.join("server.log");
        let undo = {
            let mut stop = postgres.stop(cluster, "immediate");
            undo(move || drop(stop.output()))
        };
        let started = run(postgres
            .command("pg_ctl")
            .args(["start", "--wait", "--silent", "--timeout=60", "-D"])
            .arg(cluster)
            .arg("-l")
            .arg(&log)
            .args(["-o", &format!("-k {socket} {options}")]));
        // Even if it was not in time it may be running.
        let server = Server { postgres, cluster: cluster.to_owned(), socket, undo };
        match started {
            Ok(_) => Ok(server),
            Err(error) => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last = said.trim().lines().last().unwrap_or("nothing").to_owned();
                Err(Error::Missing {
                    what: format!("PostgreSQL does not start ({error}); it logged '{last}'"),
                    remedy: format!("let the user '{USER}' enter {}", cluster.display()),
                })
            }
        }
    }

    /// A program that talks to it.
    fn client(&self, program: &str) -> Command {
        let mut command = self.postgres.command(program);
        command.env("PGHOST", &self.socket);
        command
    }

    fn stop(self, mode: &str) -> Result<()> {
        run(&mut self.postgres.stop(&self.cluster, mode))?;
        self.undo.disarm();
        Ok(())
    }
}

/// Where pgbench notes each transaction, away from the disk that is measured. It is gone when this
/// is.
struct Notes(PathBuf);

impl Notes {
    fn new(postgres: &Postgres) -> Result<Notes> {
        let path = std::env::temp_dir().join(format!("weir-bench-pgbench-{}", std::process::id()));
        remove(&path)?;
        fs::create_dir(&path).doing("create", &path)?;
        let notes = Notes(path);
        chown(&notes.0, Some(postgres.uid), Some(postgres.gid)).doing("give", &notes.0)?;
        Ok(notes)
    }

    fn prefix(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The latencies of all transactions, and how many there were.
    fn tally(&self) -> Result<(Tally, u64)> {
        let (mut tally, mut count) = (Tally::new(), 0);
        for entry in fs::read_dir(&self.0).doing("read", &self.0)?.flatten() {
            let text = fs::read_to_string(entry.path()).doing("read", &entry.path())?;
            for latency in text.lines().filter_map(latency) {
                tally.note(Class::Transaction, latency, 0);
                count += 1;
            }
        }
        Ok((tally, count))
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The third field of a line of pgbench's log, microseconds.
fn latency(line: &str) -> Option<Duration> {
    line.split(' ').nth(2)?.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    const SAID: &str = "backend> \t 1: found\t(typeid = 25)\n\t----\n\t 1: found = \"";

    #[test]
    fn sums_that_differ_and_lost_transactions_are_found() {
        let said = |numbers: &str| format!("{SAID}{numbers}\"\t(typeid = 25)\n\t----\n");
        check(&said("12 -50 -50 -50 -50"), 12).unwrap();
        check(&said("13 7 7 7 7"), 12).unwrap();
        assert_different(check(&said("12 7 7 7 8"), 12), "its branches to 8");
        assert_different(check(&said("11 7 7 7 7"), 12), "11 are there");
        assert!(check("nothing of the kind", 0).is_err());
        assert!(check(&said("1 2"), 0).is_err());
    }

    #[test]
    fn what_programs_say_is_understood() {
        let said = "latency average = 1 ms\ntps = 812.503 (without initial connection time)\n";
        assert_eq!(transactions_per_second(said), Some(812.503));
        assert_eq!(transactions_per_second("tps = 0 (\n"), None);
        assert_eq!(latency("0 199 2241 0 1175850568 995598"), Some(Duration::from_micros(2241)));
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:,,,:/var:/bin/sh\n";
        assert_eq!(user(users, "postgres"), Some((101, 104)));
        assert_eq!(user(users, "post"), None);
    }
}
