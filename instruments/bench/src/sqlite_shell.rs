//! SQLite's own shell, told what to do through pipes.
//!
//! It prints a line after what it was told, so that its end is known and can be timed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Doing, Error, Result};
use crate::mount::require_program;

/// What the shell prints when it is done.
pub const DONE: &str = "-- weir-bench: done --";

/// Fails, saying what to do, where there is no shell.
pub fn require() -> Result<()> {
    require_program("sqlite3", "sqlite3")
}

/// Makes a database by some statements, durable; what is there of one of that name is removed.
pub fn make_database(path: &Path, sql: &str) -> Result<()> {
    for end in ["", "-journal", "-wal", "-shm"] {
        let mut left = path.as_os_str().to_owned();
        left.push(end);
        let left = PathBuf::from(left);
        if left.exists() {
            fs::remove_file(&left).doing("remove", &left)?;
        }
    }
    let mut shell = Shell::start(path)?;
    shell.tell(sql)?;
    shell.end()?;
    [path, path.parent().unwrap_or(path)].into_iter().try_for_each(|durable| {
        File::open(durable).and_then(|file| file.sync_all()).doing("sync", durable)
    })
}

/// A running shell with a database open.
pub struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts it on a database.
    pub fn start(path: &Path) -> Result<Shell> {
        let program = Path::new("sqlite3");
        let mut child = Command::new(program)
            .args(["-batch", "-bail", "-init", "/dev/null"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .doing("run", program)?;
        let stdin = child.stdin.take().expect("asked for a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("asked for a pipe"));
        Ok(Shell { child, stdin, stdout })
    }

    /// Has it run some statements to their end; what it printed.
    pub fn tell(&mut self, sql: &str) -> Result<String> {
        let told = writeln!(self.stdin, "{sql}\n.print {DONE}").and_then(|()| self.stdin.flush());
        let mut said = String::new();
        let mut line = String::new();
        while told.is_ok() {
            line.clear();
            match self.stdout.read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) if line.trim_end() == DONE => return Ok(said),
                Ok(_) => said += &line,
            }
        }
        Err(self.failure())
    }

    /// [`Error::Different`] unless SQLite finds the database at `path`, which it has open, sound.
    pub fn check_integrity(&mut self, path: &Path) -> Result<()> {
        let said = self.tell("PRAGMA integrity_check;")?;
        if said.trim() == "ok" {
            return Ok(());
        }
        let first = said.lines().next().unwrap_or("nothing");
        Err(Error::Different(format!("integrity check of {}: {first}", path.display())))
    }

    /// Has it run a script of `count` transactions with [`DONE`] printed after each, and tells `note` how long
    /// each of them took, from the end of the one before.
    pub fn run_script(
        &mut self,
        script: &Path,
        count: u64,
        mut note: impl FnMut(Duration),
    ) -> Result<()> {
        let mut last = Instant::now();
        let told = writeln!(self.stdin, ".read {}", script.display());
        if told.and_then(|()| self.stdin.flush()).is_err() {
            return Err(self.failure());
        }
        let mut line = String::new();
        for _ in 0..count {
            line.clear();
            match self.stdout.read_line(&mut line) {
                Ok(_) if line.trim_end() == DONE => {
                    let now = Instant::now();
                    note(now - last);
                    last = now;
                }
                _ => return Err(self.failure()),
            }
        }
        Ok(())
    }

    /// Closes the database and ends it.
    pub fn end(mut self) -> Result<()> {
        let told = writeln!(self.stdin, ".quit").and_then(|()| self.stdin.flush());
        match (told, self.child.wait()) {
            (Ok(()), Ok(status)) if status.success() => Ok(()),
            _ => Err(self.failure()),
        }
    }

    fn failure(&mut self) -> Error {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        let status = self.child.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        Error::Command {
            command: "sqlite3".into(),
            status,
            said: said.trim().lines().next().unwrap_or("it said nothing").to_owned(),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Already over unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
