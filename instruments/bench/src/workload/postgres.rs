//! PostgreSQL, as loads use it: a cluster prepared once and copied for each run, a server, pgbench with its
//! notes of each transaction, and what a cluster says of itself after a crash.
//!
//! PostgreSQL refuses to run as root, so all of it runs as the user `postgres` of its package. The server
//! listens in the abstract namespace (unix(7)), which leaves no socket behind.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::User;

use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Error, Result};
use crate::mount::run;
use crate::workload::job::command_under;
use crate::workload::outcome::{Class, Tally};
use crate::workload::tree::{remove, sync};

/// Whose servers they are.
const USER: &str = "postgres";
/// Where the packages of Debian and others have the programs, by version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// A cluster with nothing in it, its write-ahead log included, bytes.
pub const CLUSTER_BYTES: u64 = 160 << 20;
/// What differs from PostgreSQL's defaults: its memory, which is a part of the contestant's, and no
/// checkpoints in its log, which is on the disk that is measured.
const SETTINGS: &str = "
listen_addresses = ''
max_connections = 20
shared_buffers = 16MB
max_wal_size = 128MB
log_checkpoints = off
";

/// Fails, saying what to do, where there is no PostgreSQL.
pub fn require() -> Result<()> {
    Postgres::find().map(drop)
}

/// The number of the user that servers run as.
pub fn owner() -> Result<u32> {
    Ok(Postgres::find()?.uid)
}

/// The clusters of one load: as it was prepared, and the one that a run uses.
pub struct Clusters {
    directory: PathBuf,
}

impl Clusters {
    /// Those in a directory of that name.
    pub fn new(home: &Path, name: &str) -> Clusters {
        Clusters { directory: home.join(name) }
    }

    /// The run's.
    pub fn used(&self) -> PathBuf {
        self.directory.join("cluster")
    }

    /// Makes them: an empty cluster with more `settings`, in which `fill` is done.
    pub fn make(&self, settings: &str, fill: impl FnOnce(&Server<'_>) -> Result<()>) -> Result<()> {
        let postgres = Postgres::find()?;
        remove(&self.directory)?;
        fs::create_dir(&self.directory).doing("create", &self.directory)?;
        chown(&self.directory, Some(postgres.uid), Some(postgres.gid))
            .doing("give", &self.directory)?;
        let cluster = self.prepared();
        run(postgres
            .command("initdb")
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&cluster))?;
        let path = cluster.join("postgresql.conf");
        let text = fs::read_to_string(&path).doing("read", &path)?;
        fs::write(&path, text + SETTINGS + settings).doing("write", &path)?;
        let server = Server::start(&postgres, &cluster, "-c fsync=off", &[])?;
        fill(&server)?;
        server.stop("fast")?;
        self.copy()
    }

    /// Makes the cluster of a run from the prepared one, durable.
    pub fn copy(&self) -> Result<()> {
        let to = self.used();
        remove(&to)?;
        run(Command::new("cp").arg("-a").args([&self.prepared(), &to]))?;
        sync(&to)
    }

    /// What a query for one text, called `found`, answers without a server; the run's cluster is
    /// recovered first.
    pub fn ask(&self, sql: &str) -> Result<String> {
        let said = Postgres::find()?.ask_alone(&self.used(), sql)?;
        answer(&said).map(str::to_owned).ok_or_else(|| unclear(&said))
    }

    fn prepared(&self) -> PathBuf {
        self.directory.join("prepared")
    }
}

/// An answer that cannot be read.
pub fn unclear(said: &str) -> Error {
    let why = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
    Error::answer("postgres --single", why)
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
pub struct Postgres {
    programs: PathBuf,
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// The newest.
    pub fn find() -> Result<Postgres> {
        let missing = |what: &str| Error::Missing {
            what: what.to_owned(),
            remedy: "run 'scripts/setup bench', or install the package 'postgresql'".into(),
        };
        let programs = newest_programs(Path::new(PROGRAMS))
            .ok_or_else(|| missing("PostgreSQL is not installed"))?;
        let user = User::from_name(USER).doing("look up users in", Path::new("/etc/passwd"))?;
        let user =
            user.ok_or_else(|| missing("there is no user 'postgres' for PostgreSQL to run as"))?;
        Ok(Postgres { programs, uid: user.uid.as_raw(), gid: user.gid.as_raw() })
    }

    /// One of its programs, as its user; nothing of this process's environment matters to it.
    fn command(&self, program: &str) -> Command {
        self.command_under(&[], program)
    }

    /// The same, by another command.
    fn command_under(&self, under: &[String], program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = if under.is_empty() {
            let mut command = Command::new(program);
            command.uid(self.uid).gid(self.gid);
            command
        } else {
            let mut command = command_under(under, Path::new("setpriv"));
            let (user, group) = (self.uid.to_string(), self.gid.to_string());
            command.args(["--reuid", &user, "--regid", &group, "--clear-groups"]).arg(program);
            command
        };
        // Its user need not be able to enter the present directory.
        command.current_dir("/").env_clear().env("LC_ALL", "C");
        command.env("PATH", "/usr/bin:/bin").env("PGUSER", USER).env("PGDATABASE", USER);
        // But for the library that this process itself runs with, and what it is told.
        command.envs(preloaded());
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

/// What of the environment a preloaded library is known and told by.
fn preloaded() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| name == "LD_PRELOAD" || name.as_encoded_bytes().starts_with(b"WEIR_"))
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

/// A running server. It is stopped when this goes, or on a signal; if all else fails with its memory
/// group.
pub struct Server<'a> {
    postgres: &'a Postgres,
    cluster: PathBuf,
    socket: String,
    undo: Undo,
}

impl<'a> Server<'a> {
    /// Starts one on a cluster, by the command `under`, as this process's user, unless that is empty.
    pub fn start(
        postgres: &'a Postgres,
        cluster: &Path,
        options: &str,
        under: &[String],
    ) -> Result<Server<'a>> {
        let socket = format!("@weir-bench-{}", std::process::id());
        let log = cluster.join("server.log");
        let undo = {
            let mut stop = postgres.stop(cluster, "immediate");
            undo(move || drop(stop.output()))
        };
        let started = run(postgres
            .command_under(under, "pg_ctl")
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

    /// Its cluster.
    pub fn cluster(&self) -> &Path {
        &self.cluster
    }

    /// A program that talks to it.
    pub fn client(&self, program: &str) -> Command {
        let mut command = self.postgres.command(program);
        command.env("PGHOST", &self.socket);
        command
    }

    /// Stops it: `fast`, or `immediate` as by a crash.
    pub fn stop(self, mode: &str) -> Result<()> {
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

    /// Every transaction that was done: the script it was, from 0 on, and how long it took.
    fn transactions(&self) -> Result<Vec<(usize, Duration)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.0).doing("read", &self.0)?.flatten() {
            let text = fs::read_to_string(entry.path()).doing("read", &entry.path())?;
            all.extend(text.lines().filter_map(transaction));
        }
        Ok(all)
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Of a line of pgbench's log the third field, microseconds, and the fourth.
fn transaction(line: &str) -> Option<(usize, Duration)> {
    let mut fields = line.split(' ').skip(2);
    let time = fields.next()?.parse().ok().map(Duration::from_micros)?;
    Some((fields.next()?.parse().ok()?, time))
}

/// What pgbench did.
pub struct Done {
    /// Every transaction: its script, from 0 on, and how long it took.
    pub transactions: Vec<(usize, Duration)>,
    /// How long all of it took, without connecting.
    pub seconds: f64,
}

impl Done {
    /// The transactions, each of the class that its script is of.
    pub fn tally(&self, class: impl Fn(usize) -> Class) -> Tally {
        let mut tally = Tally::new();
        self.transactions.iter().for_each(|(script, time)| tally.note(class(*script), *time));
        tally.seconds = self.seconds;
        tally
    }
}

impl Server<'_> {
    /// Runs pgbench with some more arguments.
    pub fn pgbench(&self, clients: u32, seconds: u64, arguments: &[String]) -> Result<Done> {
        let notes = Notes::new(self.postgres)?;
        let output = run(self
            .client("pgbench")
            .args(["--no-vacuum", "--client", &clients.to_string(), "--jobs"])
            .arg(clients.min(2).to_string())
            .arg(format!("--time={seconds}"))
            .args(["--log", "--log-prefix"])
            .arg(notes.prefix())
            .args(arguments))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let per_second = transactions_per_second(&said)
            .ok_or_else(|| Error::answer("pgbench", "it does not tell transactions a second"))?;
        let transactions = notes.transactions()?;
        let seconds = transactions.len() as f64 / per_second;
        Ok(Done { transactions, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_is_understood() {
        let said = "latency average = 1 ms\ntps = 812.503 (without initial connection time)\n";
        assert_eq!(transactions_per_second(said), Some(812.503));
        assert_eq!(transactions_per_second("tps = 0 (\n"), None);
        let line = "0 199 2241 3 1175850568 995598";
        assert_eq!(transaction(line), Some((3, Duration::from_micros(2241))));
        assert_eq!(transaction("0 199 failed 0 1175850568 995598"), None);
        let said =
            "backend> \t 1: found\t(typeid = 25)\n\t----\n\t 1: found = \"1 2\"\t(typeid = 25)\n";
        assert_eq!(answer(said), Some("1 2"));
        assert!(answer("nothing of the kind").is_none());
    }
}
