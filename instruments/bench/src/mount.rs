//! The two file systems under test: Weir, driven by its command, and the plain passthrough.
//!
//! Owns what it mounts: a mount is gone when its guard is, or when a signal ends the program.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Error, Result};
use crate::mount_table::mount_at;
use crate::soon::soon;

/// Fails, saying what to do, where nothing can be mounted through FUSE.
pub fn require_fuse() -> Result<()> {
    let device = Path::new("/dev/fuse");
    let missing = |what: &str, remedy: &str| Error::Missing {
        what: what.to_owned(),
        remedy: remedy.to_owned(),
    };
    match fs::OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(missing(
                "FUSE is missing (no /dev/fuse)",
                "run 'modprobe fuse' as root, or start the container with '--device /dev/fuse \
                 --cap-add SYS_ADMIN'",
            ));
        }
        Err(error) => {
            return Err(missing(
                &format!("FUSE cannot be used (/dev/fuse: {error})"),
                "run as root, or as a user who may open /dev/fuse",
            ));
        }
    }
    if !rustix::process::geteuid().is_root() && find_program("fusermount3").is_none() {
        return Err(missing(
            "fusermount3 is missing, and only root can mount without it",
            "install the package 'fuse3'",
        ));
    }
    Ok(())
}

/// The weir program: the one given, or the one beside this program, or the one on PATH.
pub fn weir_program(given: Option<PathBuf>) -> Result<PathBuf> {
    let missing = |what: String| Error::Missing {
        what,
        remedy: "build it with 'cargo build --release', or give its path with '--weir'".into(),
    };
    if let Some(path) = given {
        return match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(path),
            _ => Err(missing(format!("there is no weir program at {}", path.display()))),
        };
    }
    let own = std::env::current_exe().doing("find", Path::new("this program"))?;
    let beside = own.with_file_name("weir");
    if beside.is_file() {
        return Ok(beside);
    }
    find_program("weir").ok_or_else(|| {
        missing(format!("there is no weir program beside {} or on PATH", own.display()))
    })
}

/// Fails, saying what to do, where a program of a package is not installed.
pub fn require_program(program: &str, package: &str) -> Result<()> {
    find_program(program).map(drop).ok_or_else(|| Error::Missing {
        what: format!("{program} is not installed"),
        remedy: format!("run 'scripts/setup bench', or install the package '{package}'"),
    })
}

/// Where a program is, by PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// Whether something is mounted on `mountpoint` itself. Asks the kernel's table: whether a mount
/// whose daemon is gone can be looked at, and with what error, depends on the moment.
fn is_mounted(mountpoint: &Path) -> bool {
    let (Some(parent), Some(name)) = (mountpoint.parent(), mountpoint.file_name()) else {
        return true;
    };
    parent.canonicalize().is_ok_and(|parent| mount_at(&parent.join(name)).is_some())
}

/// Takes a mount away without asking its daemon, now or as soon as nobody uses it.
pub fn force_unmount(mountpoint: &Path) {
    if !is_mounted(mountpoint) {
        return;
    }
    let flags = rustix::mount::UnmountFlags::DETACH;
    if rustix::mount::unmount(mountpoint, flags).is_err() {
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(mountpoint).output();
    }
}

/// Runs a program to its end; an error, with the last line it said, unless it succeeds.
pub fn run(command: &mut Command) -> Result<Output> {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output().doing("run", &program)?;
    if output.status.success() {
        return Ok(output);
    }
    Err(failed(command, &output))
}

fn failed(command: &Command, output: &Output) -> Error {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let said = String::from_utf8_lossy(&output.stderr);
    Error::Command {
        command: words.join(" "),
        status: output.status.to_string(),
        said: said.trim().lines().last().unwrap_or("it said nothing").to_owned(),
    }
}

/// A directory served by `weir mount`.
pub struct WeirMount {
    weir: PathBuf,
    mountpoint: PathBuf,
    undo: Undo,
}

impl WeirMount {
    /// Mounts `source` on `mountpoint` with some more arguments of `weir mount`. The daemon's messages go to `mountpoint.log`, beside
    /// it, and so are removed with the directory that both are in.
    pub fn start(weir: &Path, source: &Path, mountpoint: &Path, options: &[&str]) -> Result<Self> {
        WeirMount::start_by(weir, source, mountpoint, options, |_| Ok(()))
    }

    /// As [`WeirMount::start`]; `prepare` may change how the command, and with it the daemon, runs.
    pub fn start_by(
        weir: &Path,
        source: &Path,
        mountpoint: &Path,
        options: &[&str],
        prepare: impl FnOnce(&mut Command) -> Result<()>,
    ) -> Result<Self> {
        fs::create_dir_all(mountpoint).doing("create", mountpoint)?;
        let undo = {
            let (weir, mountpoint) = (weir.to_owned(), mountpoint.to_owned());
            undo(move || {
                if is_mounted(&mountpoint) {
                    let _ = Command::new(&weir).arg("umount").arg(&mountpoint).output();
                }
                force_unmount(&mountpoint);
            })
        };
        let mut command = Command::new(weir);
        command.arg("mount").args(options);
        if !options.iter().any(|option| option.starts_with("--log-file")) {
            let mut messages = mountpoint.as_os_str().to_owned();
            messages.push(".log");
            command.arg("--log-file").arg(messages);
        }
        command.arg(source).arg(mountpoint);
        prepare(&mut command)?;
        run(&mut command)?;
        Ok(WeirMount { weir: weir.to_owned(), mountpoint: mountpoint.to_owned(), undo })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// What `weir status --json` says now.
    pub fn status(&self) -> Result<Status> {
        let output = run(self.command().args(["status", "--json"]).arg(&self.mountpoint))?;
        serde_json::from_slice(&output.stdout)
            .map(Status)
            .map_err(|error| Error::answer("weir status --json", error))
    }

    fn command(&self) -> Command {
        Command::new(&self.weir)
    }

    /// Writes everything home.
    pub fn sync(&self) -> Result<()> {
        run(self.command().arg("sync").arg(&self.mountpoint)).map(drop)
    }

    /// The daemon's process number.
    pub fn pid(&self) -> Result<u64> {
        self.status()?.get("pid")
    }

    /// Writes everything home and unmounts; an error if anything failed.
    pub fn unmount(self) -> Result<()> {
        run(self.command().arg("umount").arg(&self.mountpoint))?;
        self.undo.disarm();
        Ok(())
    }
}

/// A snapshot of a mount's counters.
pub struct Status(Value);

impl Status {
    /// The object under `key`, as a type that has some of its fields.
    pub fn part<T: DeserializeOwned>(&self, key: &str) -> Result<T> {
        T::deserialize(&self.0[key])
            .map_err(|error| Error::answer("weir status --json", format!("{key}: {error}")))
    }

    /// The number under `key`, at whatever depth it stands.
    pub fn get(&self, key: &str) -> Result<u64> {
        find(&self.0, key)
            .and_then(Value::as_u64)
            .ok_or_else(|| Error::answer("weir status --json", format!("it has no number '{key}'")))
    }
}

fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(key).or_else(|| fields.values().find_map(|field| find(field, key)))
        }
        Value::Array(items) => items.iter().find_map(|item| find(item, key)),
        _ => None,
    }
}

/// A directory served by this program's own plain FUSE passthrough, in a process of its own.
pub struct PassthroughMount {
    mountpoint: PathBuf,
    _undo: Undo,
}

impl PassthroughMount {
    /// Mounts `source` on `mountpoint`.
    pub fn start(source: &Path, mountpoint: &Path) -> Result<Self> {
        fs::create_dir_all(mountpoint).doing("create", mountpoint)?;
        let own = std::env::current_exe().doing("find", Path::new("this program"))?;
        let child = Command::new(&own)
            .arg("passthrough")
            .args([source, mountpoint])
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .doing("run", &own)?;
        let child = Arc::new(Mutex::new(child));
        let undo = {
            let (child, mountpoint) = (child.clone(), mountpoint.to_owned());
            undo(move || {
                force_unmount(&mountpoint);
                reap(&mut child.lock().unwrap_or_else(PoisonError::into_inner));
            })
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_mounted(mountpoint) {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = child.try_wait().doing("wait for", &own)?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(Error::Command {
                    command: "weir-bench passthrough".into(),
                    status: ended.map_or("no answer in 10 s".into(), |status| status.to_string()),
                    said: "it did not mount".into(),
                });
            }
            drop(child);
            thread::sleep(Duration::from_millis(10));
        }
        Ok(PassthroughMount { mountpoint: mountpoint.to_owned(), _undo: undo })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }
}

/// Waits for a server whose mount was taken away; ends it if it stays.
fn reap(child: &mut Child) {
    if soon(Duration::from_secs(2), || !matches!(child.try_wait(), Ok(None))) {
        return;
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_at_any_depth() {
        let status = Status(serde_json::json!({"a": {"b": [{"writes": 3}]}, "pid": 7}));
        assert_eq!(status.get("writes").unwrap(), 3);
        assert_eq!(status.get("pid").unwrap(), 7);
        assert!(status.get("reads").is_err());
    }
}
