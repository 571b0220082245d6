//! The scratch directories: one beside the program's files, for what is tried on their disk, and one for what is not.
//!
//! Both are removed, and what is mounted is unmounted, whatever happens in between.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::Advice;
use weir_advise::plan::{Plan, Prepared};

const PIECE: usize = 1 << 20;

/// A directory that is removed at the end.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one in a directory.
    pub fn new(within: &Path) -> io::Result<Scratch> {
        let mut number = 0;
        loop {
            let path = within.join(format!(".weir-advise-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => {
                    number += 1
                }
                done => return done.map(|()| Scratch { path }),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory in it.
    pub fn directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("weir: warning: cannot remove {}: {error}; remove it", self.path.display());
        }
    }
}

/// A mount that is unmounted at the end.
pub struct Mounted {
    weir: PathBuf,
    mountpoint: PathBuf,
}

impl Mounted {
    /// Mounts `home` at `mountpoint`.
    pub fn new(
        weir: &Path,
        home: &Path,
        mountpoint: &Path,
        options: &[&str],
    ) -> Result<Mounted, String> {
        let mut command = Command::new(weir);
        let log = mountpoint.with_extension("log");
        command.arg("mount").args(options).arg("--log-file").arg(log).arg(home).arg(mountpoint);
        run(&mut command)?;
        Ok(Mounted { weir: weir.to_owned(), mountpoint: mountpoint.to_owned() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let umount = |force: &[&str]| {
            let mut command = Command::new(&self.weir);
            run(command.arg("umount").args(force).arg(&self.mountpoint))
        };
        if let Err(error) = umount(&[]).or_else(|_| umount(&["--force"])) {
            eprintln!("weir: warning: cannot unmount {}: {error}", self.mountpoint.display());
        }
    }
}

/// Runs a command of ours; its error is the line it prints.
pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
    let line = line.strip_prefix("weir: ").unwrap_or(line);
    Err(if line.is_empty() { output.status.to_string() } else { line.to_owned() })
}

/// Makes what a plan needs below a directory, durable, and out of memory where it was not in memory.
pub fn prepare(plan: &Plan, root: &Path) -> io::Result<()> {
    let bytes: Vec<u8> = (0..PIECE).map(|at| (at % 253) as u8).collect();
    let mut cold = Vec::new();
    for one in &plan.prepared {
        let path = root.join(&one.path);
        if one.directory {
            fs::create_dir_all(&path)?;
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = make(one, &path, &bytes)?;
        if one.cold && !one.data.is_empty() {
            cold.push(path);
        }
        drop(file);
    }
    let directory = File::open(root)?;
    rustix::fs::syncfs(&directory)?;
    for path in cold {
        rustix::fs::fadvise(&File::open(path)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn make(one: &Prepared, path: &Path, bytes: &[u8]) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.set_len(one.size)?;
    for (begin, end) in &one.data {
        let mut at = *begin;
        while at < *end {
            let piece = (end - at).min(bytes.len() as u64) as usize;
            file.write_all_at(&bytes[..piece], at)?;
            at += piece as u64;
        }
    }
    Ok(file)
}
