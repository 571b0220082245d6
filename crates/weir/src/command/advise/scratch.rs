//! The scratch directories: one beside the program's files, for what is tried on their disk, and one for what is not.
//!
//! Both are removed, and what is mounted is unmounted, whatever happens in between; signals to end are noted meanwhile
//! ([`forward`]). What a killed `weir advise` left is removed by the next one in the same directory: each holds a lock of its
//! scratch directory (flock(2)) while it lives.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Advice, FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use weir_advise::plan::{Plan, Prepared};

use super::beneath;
use crate::mounts::{Mount, MountTable};
use crate::run::forward;

const PIECE: usize = 1 << 20;
const PREFIX: &str = ".weir-advise-";

/// A directory that is removed at the end.
pub struct Scratch {
    parent: OwnedFd,
    name: OsString,
    path: PathBuf,
    /// Taken when it is removed.
    directory: Option<OwnedFd>,
}

/// A directory in it.
pub struct Place {
    /// Where it is, for a mount.
    pub path: PathBuf,
    /// It.
    pub directory: OwnedFd,
}

impl Scratch {
    /// Makes one in a directory, and removes there what a killed `weir advise` left.
    ///
    /// # Errors
    /// Other users may change the directory, or one above it.
    pub fn new(within: &Path) -> io::Result<Scratch> {
        let within = std::fs::canonicalize(within)?;
        let parent = beneath::trusted(&within)?;
        remove_left(&parent, &within);
        let mut number = 0;
        loop {
            let name = OsString::from(format!("{PREFIX}{}-{number}", std::process::id()));
            match beneath::make_private(&parent, &name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => {
                    number += 1;
                }
                Err(error) => return Err(error),
                Ok(directory) => {
                    // Where a file system has no locks, the process number alone tells.
                    let _ = flock(&directory, FlockOperation::NonBlockingLockExclusive);
                    let path = within.join(&name);
                    return Ok(Scratch { parent, name, path, directory: Some(directory) });
                }
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn opened(&self) -> &OwnedFd {
        self.directory.as_ref().expect("only drop takes it")
    }

    /// Whether its file system has at least this many free bytes and files. False if that is unknown.
    pub fn has_room(&self, bytes: u64, files: u64) -> bool {
        rustix::fs::fstatvfs(self.opened()).is_ok_and(|room| {
            // Without a number of files there is no bound on it.
            let has_files = room.f_files == 0 || room.f_favail >= files;
            has_files && room.f_bavail.saturating_mul(room.f_frsize) >= bytes
        })
    }

    /// Makes a directory in it.
    pub fn directory(&self, name: &str) -> io::Result<Place> {
        let directory = beneath::make_private(self.opened(), OsStr::new(name))?;
        Ok(Place { path: self.path.join(name), directory })
    }

    /// Removes a directory in it.
    pub fn remove(&self, name: &str, place: Place) -> io::Result<()> {
        beneath::remove(self.opened(), OsStr::new(name), place.directory)
    }

    /// Makes a file in it, or an empty one of one that is there.
    pub fn create(&self, name: &str) -> io::Result<File> {
        beneath::create(self.opened(), name)
    }

    /// Opens a file in it.
    pub fn open(&self, name: &str) -> io::Result<File> {
        beneath::open(self.opened(), name, OFlags::RDONLY, 0).map(File::from)
    }

    /// Removes a file in it.
    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.opened(), name, rustix::fs::AtFlags::empty())?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(directory) = self.directory.take() else { return };
        if let Err(error) = beneath::remove(&self.parent, &self.name, directory) {
            warn(&format!("cannot remove {}: {error}; remove it", self.path.display()));
        }
    }
}

/// Says what the user should know, if anybody reads it.
pub fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "weir: warning: {text}");
}

/// Removes the scratch directories of processes that were killed.
fn remove_left(parent: &OwnedFd, within: &Path) {
    // A directory that cannot be listed may still be one in which directories are made.
    let Ok(listed) = beneath::open(parent, ".", OFlags::DIRECTORY, 0) else { return };
    for name in beneath::names(&listed).unwrap_or_default() {
        let name = beneath::name(&name);
        let Some(directory) = left(parent, &name) else { continue };
        let path = within.join(&name);
        unmount_below(&path);
        match beneath::remove(parent, &name, directory) {
            Ok(()) => warn(&format!(
                "removed {}, which a weir advise that was killed left",
                path.display()
            )),
            Err(error) => warn(&format!(
                "{} was left by a weir advise that was killed, and cannot be removed: {error}; remove it",
                path.display()
            )),
        }
    }
}

/// A scratch directory of this user whose process has ended.
fn left(parent: &OwnedFd, name: &OsStr) -> Option<OwnedFd> {
    let (process, _) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    let process = Pid::from_raw(process.parse().ok().filter(|process| *process > 0)?)?;
    if test_kill_process(process) != Err(Errno::SRCH) {
        return None;
    }
    let directory = beneath::open(parent, name, OFlags::DIRECTORY, 0).ok()?;
    // Of another process number namespace, it may live.
    let free = flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok();
    (free && beneath::is_private(&directory).unwrap_or(false)).then_some(directory)
}

/// Unmounts what is mounted in a directory, or serves one in it.
fn unmount_below(path: &Path) {
    let Ok(table) = MountTable::read() else { return };
    let is_left = |mount: &&Mount| {
        mount.is_weir() && (mount.mount_point.starts_with(path) || mount.source.starts_with(path))
    };
    let Ok(weir) = std::env::current_exe() else { return };
    for mount in table.iter().filter(is_left) {
        unmount(&weir, &mount.mount_point);
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
        if forward::noted().is_some() {
            return Err(INTERRUPTED.to_owned());
        }
        let mut command = Command::new(weir);
        let log = mountpoint.with_extension("log");
        // What the machine's configuration says of mounts is not for this one.
        command.args(["mount", "--config", "/dev/null"]).args(options);
        command.arg("--log-file").arg(log).arg(home).arg(mountpoint);
        // To its end in any case, so that it is known whether there is a mount.
        line_of(forward::output(&mut command, false))?;
        Ok(Mounted { weir: weir.to_owned(), mountpoint: mountpoint.to_owned() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.weir, &self.mountpoint);
    }
}

fn unmount(weir: &Path, mountpoint: &Path) {
    let umount = |force: &[&str]| {
        let mut command = Command::new(weir);
        line_of(forward::output(command.arg("umount").args(force).arg(mountpoint), false))
    };
    if let Err(error) = umount(&[]).or_else(|_| umount(&["--force"])) {
        warn(&format!("cannot unmount {}: {error}", mountpoint.display()));
    }
}

/// Why something was not done.
pub const INTERRUPTED: &str = "it was interrupted";

/// Runs a command of ours, which a signal to end ends; its error is the line it prints.
pub fn run(command: &mut Command) -> Result<(), String> {
    let done = line_of(forward::output(command, true));
    if forward::noted().is_some() { Err(INTERRUPTED.to_owned()) } else { done }
}

fn line_of(output: io::Result<std::process::Output>) -> Result<(), String> {
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
    let line = line.strip_prefix("weir: ").unwrap_or(line);
    Err(if line.is_empty() { output.status.to_string() } else { line.to_owned() })
}

/// Makes what a plan needs below a directory, durable, and out of memory where it was not in memory.
pub fn prepare(plan: &Plan, root: &OwnedFd) -> io::Result<()> {
    let bytes: Vec<u8> = (0..PIECE).map(|at| (at % 253) as u8).collect();
    let mut cold = Vec::new();
    for one in &plan.prepared {
        if forward::noted().is_some() {
            return Err(io::Error::other(INTERRUPTED));
        }
        if one.directory {
            beneath::make_directories(root, &one.path)?;
            continue;
        }
        let (parent, _) = beneath::split(&one.path);
        beneath::make_directories(root, parent)?;
        make(one, root, &bytes)?;
        if one.cold && !one.data.is_empty() {
            cold.push(&one.path);
        }
    }
    rustix::fs::syncfs(root)?;
    for path in cold {
        let file = beneath::open(root, path, OFlags::RDONLY, 0)?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn make(one: &Prepared, root: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let file = beneath::create(root, &one.path)?;
    // Its end is set afterwards: writes that extend a file give it larger pieces of memory (folios), as most files in memory have, and a
    // small write to a larger one takes longer.
    for (begin, end) in &one.data {
        let mut at = *begin;
        while at < *end {
            let piece = (end - at).min(bytes.len() as u64) as usize;
            file.write_all_at(&bytes[..piece], at)?;
            at += piece as u64;
        }
    }
    file.set_len(one.size)
}
