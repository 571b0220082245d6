//! The third scene: a program that syncs, in a session (`weir run --sync external`), on an emulated hard disk. SQLite adds rows and
//! prints a line after each commit, straight on the directory and then in a session on a mount. Then the daemon is killed in the
//! middle of it.
//!
//! This process is the observer outside the session: each line that it has read must be in the database afterwards.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Error, Result};
use crate::measure::show_count;
use crate::mount::{WeirMount, force_unmount, run as run_to_end};
use crate::sqlite_shell::{self, Shell};
use crate::stage::{
    Emulated, Process, Run, Served, require as require_disks, require_root, wait_for_end,
};

use super::figures::{Outcome, Pair, Shown, Unit};
use super::hard_disk::hard_disk;

const TITLE: &str = "3. A program that syncs: SQLite in a session";

/// Rows of either side at most, and how long the side without Weir may take: a hard disk commits some 25 a second.
const ROWS_MAX: u64 = 500;
const TIME: Duration = Duration::from_secs(3);
/// Lines that are read before the daemon is killed, and rows that the program would add if it were not.
const LINES_BEFORE_KILL: u64 = 100;
const ROWS_OF_KILLED: u64 = 50_000;
/// How long a line, or the end of a process, may take.
const PATIENCE: Duration = Duration::from_secs(20);
const SPACE_BYTES: u64 = 256 << 20;

/// Runs it with its files in `dir`.
pub fn run(weir: &Path, dir: &Path) -> Result<Outcome> {
    if let Err(error) = require(weir) {
        return Ok(Outcome::LeftOut { title: TITLE.into(), why: error.to_string() });
    }
    let space = Run::new(dir, SPACE_BYTES)?;
    let disk = hard_disk(&space)?;
    let on_disk = |name: &str| {
        let path = disk.mountpoint().join(name);
        fs::create_dir(&path).doing("create", &path).map(|()| path)
    };
    let scene = Scene {
        weir,
        space: &space,
        disk: &disk,
        plain: on_disk("plain")?.join("rows.db"),
        source: on_disk("source")?,
        work: space.directory("work")?,
    };
    scene.run().map(Outcome::Shown)
}

fn require(weir: &Path) -> Result<()> {
    // One order of everything needs files by handle, which the kernel gives root alone.
    require_root("this scene")?;
    require_disks()?;
    sqlite_shell::require()?;
    // Where the kernel cannot stop calls (seccomp), this fails and says so.
    run_to_end(Command::new(weir).args(["run", "--sync", "external", "--", "true"])).map(drop)
}

struct Scene<'a> {
    weir: &'a Path,
    space: &'a Run,
    disk: &'a Emulated,
    /// The database of the side without Weir.
    plain: PathBuf,
    /// What Weir serves.
    source: PathBuf,
    /// Where scripts and reports are.
    work: PathBuf,
}

impl Scene<'_> {
    fn run(&self) -> Result<Shown> {
        let begin = Instant::now();
        let home = self.source.join("rows.db");
        for database in [&self.plain, &home] {
            sqlite_shell::make_database(
                database,
                "CREATE TABLE entry(id INTEGER PRIMARY KEY, text TEXT);",
            )?;
        }
        self.disk.make_cold()?;
        let paced = self.disk.pace()?;
        let mut printed = Vec::new();
        let straight = self.straight(&mut printed)?;
        let rows = printed.len() as u64;
        check(&self.plain, &printed)?;

        let served = Served::start(
            self.space.ledger(),
            self.weir,
            &self.source,
            &self.space.directory("mount")?,
            &["--order", "all"],
            |_| Ok(()),
        )?;
        let mount = served.mount();
        printed.clear();
        let report = self.work.join("report.json");
        let session = self.session(mount, 1..rows + 1, &report, &mut printed)?;
        let said = fs::read(&report).doing("read", &report)?;
        let said: Value = serde_json::from_slice(&said)
            .map_err(|error| Error::answer("weir run --report", error))?;
        let count = |place: &str| {
            said.pointer(place)
                .and_then(Value::as_u64)
                .ok_or_else(|| Error::answer("weir run --report", format!("it has no {place}")))
        };

        self.kill_in_the_middle(mount, rows + 1..rows + 1 + ROWS_OF_KILLED, &mut printed)?;
        force_unmount(mount.path());
        drop(served);
        drop(paced);
        run_to_end(Command::new(self.weir).arg("recover").arg(&self.source))?;
        let kept = check(&home, &printed)?;
        Ok(Shown {
            title: TITLE.into(),
            what: format!(
                "SQLite adds {} rows, each in a transaction that it syncs, and prints a line after each. Under 'weir run --sync external' a \
                 sync returns at once, and a printed line waits until all that was synced before it is durable.",
                show_count(rows)
            ),
            pairs: vec![
                Pair::new("rows", Unit::PerSecond, straight, session),
                Pair::new(
                    "times that the program waited for the disk",
                    Unit::Count,
                    count("/promises")? as f64,
                    count("/commits/for_output")? as f64,
                ),
            ],
            proof: format!(
                "Then the daemon was killed (kill -9) in the middle of it, and SOURCE recovered. All {} lines that were printed are in \
                 the database, which has {} rows.",
                show_count(printed.len() as u64),
                show_count(kept)
            ),
            took: begin.elapsed(),
        })
    }

    /// Rows per second without Weir, for [`TIME`] at most.
    fn straight(&self, printed: &mut Vec<u64>) -> Result<f64> {
        let script = self.script(1..ROWS_MAX + 1)?;
        let start = Instant::now();
        let mut program = Program::start(Command::new("sqlite3"), &self.plain, &script)?;
        while let Some(row) = program.row()? {
            printed.push(row);
            if start.elapsed() > TIME {
                // What it goes on to print until it is killed is no part of the figure.
                return Ok(printed.len() as f64 / start.elapsed().as_secs_f64());
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        program.end()?;
        Ok(printed.len() as f64 / seconds)
    }

    /// Rows per second in a session.
    fn session(
        &self,
        mount: &WeirMount,
        rows: Range<u64>,
        report: &Path,
        printed: &mut Vec<u64>,
    ) -> Result<f64> {
        let count = (rows.end - rows.start) as f64;
        let mut command = self.in_session();
        command.arg(format!("--report={}", report.display()));
        let start = Instant::now();
        let mut program = self.start(command, mount, rows)?;
        while let Some(row) = program.row()? {
            printed.push(row);
        }
        let seconds = start.elapsed().as_secs_f64();
        program.end()?;
        Ok(count / seconds)
    }

    /// Runs the program in a session and kills the daemon once it has printed some lines; also adds what it has printed until
    /// its end.
    fn kill_in_the_middle(
        &self,
        mount: &WeirMount,
        rows: Range<u64>,
        printed: &mut Vec<u64>,
    ) -> Result<()> {
        let pid = u32::try_from(mount.pid()?).ok().and_then(Process::with_pid);
        let daemon =
            pid.ok_or_else(|| Error::answer("weir status --json", "there is no such process"))?;
        let kill_at = printed.len() as u64 + LINES_BEFORE_KILL;
        let mut program = self.start(self.in_session(), mount, rows)?;
        while let Some(row) = program.row()? {
            printed.push(row);
            if printed.len() as u64 == kill_at {
                daemon.kill();
            }
        }
        if program.end().is_ok() {
            return Err(Error::Different("the program went on without its mount".into()));
        }
        if wait_for_end(&[daemon], PATIENCE).is_empty() {
            return Ok(());
        }
        Err(Error::Missing {
            what: "the killed daemon does not end".into(),
            remedy: "look what it waits for".into(),
        })
    }

    fn in_session(&self) -> Command {
        let mut command = Command::new(self.weir);
        command.args(["run", "--sync", "external"]);
        command
    }

    fn start(&self, mut command: Command, mount: &WeirMount, rows: Range<u64>) -> Result<Program> {
        let script = self.script(rows)?;
        command.args(["--", "sqlite3"]);
        Program::start(command, &mount.path().join("rows.db"), &script)
    }

    /// A script that adds these rows, each in a transaction of its own, and prints their numbers.
    fn script(&self, rows: Range<u64>) -> Result<PathBuf> {
        let path = self.work.join(format!("from-{}.sql", rows.start));
        let mut sql = String::from("PRAGMA synchronous = FULL;\n");
        for row in rows {
            // A String takes whatever is written to it.
            let _ = writeln!(
                sql,
                "INSERT INTO entry VALUES({row}, printf('%.100c', 'x'));\n.print {row}"
            );
        }
        fs::write(&path, sql).doing("write", &path)?;
        Ok(path)
    }
}

/// SQLite's shell at a script, and the numbers that it prints.
struct Program {
    child: Child,
    rows: Receiver<u64>,
    _undo: Undo,
}

impl Program {
    /// Starts it by `command`, which may put it into a session.
    fn start(mut command: Command, database: &Path, script: &Path) -> Result<Program> {
        let name = PathBuf::from(command.get_program());
        let mut child = command
            .args(["-batch", "-bail", "-init", "/dev/null"])
            .arg(database)
            .stdin(File::open(script).doing("open", script)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .doing("run", &name)?;
        let process = Process::with_pid(child.id());
        let undo = undo(move || {
            process.map(Process::kill);
        });
        let lines = BufReader::new(child.stdout.take().expect("asked for a pipe")).lines();
        let (tell, rows) = channel();
        thread::spawn(move || {
            let numbers = lines.map_while(|line| line.ok()?.parse().ok());
            // The receiver goes when nobody wants to know more.
            for row in numbers {
                if tell.send(row).is_err() {
                    return;
                }
            }
        });
        Ok(Program { child, rows, _undo: undo })
    }

    /// The next row that it prints; `None` at its end.
    fn row(&mut self) -> Result<Option<u64>> {
        match self.rows.recv_timeout(PATIENCE) {
            Ok(row) => Ok(Some(row)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(Error::Command {
                command: "sqlite3".into(),
                status: format!("no line in {} s", PATIENCE.as_secs()),
                said: "it said nothing".into(),
            }),
        }
    }

    /// Waits for its end; an error unless it did all that it was told.
    fn end(&mut self) -> Result<()> {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        let status = self.child.wait().doing("wait for", Path::new("sqlite3"))?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Command {
            command: "sqlite3".into(),
            status: status.to_string(),
            said: said.trim().lines().next().unwrap_or("it said nothing").to_owned(),
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Already over unless something failed, or nothing more was wanted of it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks a database and that it has each of the rows that were printed; how many rows it has.
fn check(database: &Path, printed: &[u64]) -> Result<u64> {
    let mut shell = Shell::start(database)?;
    shell.check_integrity(database)?;
    let said = shell.tell("SELECT id FROM entry;")?;
    shell.end()?;
    let kept: BTreeSet<u64> = said.lines().filter_map(|line| line.parse().ok()).collect();
    match printed.iter().find(|row| !kept.contains(row)) {
        None => Ok(kept.len() as u64),
        Some(row) => Err(Error::Different(format!(
            "row {row} was printed and is not in {}, which has {} rows",
            database.display(),
            kept.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes over itself where there is no sqlite3.
    #[test]
    fn a_printed_row_that_is_missing_is_found() {
        if sqlite_shell::require().is_err() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("rows.db");
        let sql = "CREATE TABLE entry(id INTEGER PRIMARY KEY, text TEXT);
                   INSERT INTO entry VALUES(1, 'x'), (2, 'x'), (4, 'x');";
        sqlite_shell::make_database(&database, sql).unwrap();
        assert_eq!(check(&database, &[1, 2]).unwrap(), 3);
        let Err(Error::Different(what)) = check(&database, &[1, 2, 3]) else { panic!("not found") };
        assert!(what.starts_with("row 3 was printed"), "{what}");
    }
}
