//! Does the calls of a plan in a directory, and measures each: a process of its own, since it is run under `weir run`, too.
//!
//! Calls go through the C library where programs' calls do, so that the library of `weir run` sees them. A call that fails is
//! counted as failed, and its time is included.
//!
//! All paths are relative: the process is in the directory, which is this user's alone, and a plan whose paths lead out of it
//! is refused ([`Plan::check`]). The only symbolic links in it are made here, and lead to a name beside them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl};
use rustix::fs::RawDir;
use serde::{Deserialize, Serialize};
use weir_advise::call::{What, flags};
use weir_advise::plan::{Measured, Plan, Prepared, Step};

use super::beneath;
use crate::cli::ReplayArguments;
use crate::failure::Failure;

/// Most handles that are open at a time.
const HANDLES_MAX: usize = 600;
const BUFFER_BYTES: usize = 1 << 20;
const ENTRIES_BYTES: usize = 32 << 10;

/// What is written to the result.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The calls.
    pub measured: Measured,
    /// Starting and ending a program, microseconds.
    pub start_us: f64,
}

/// Does the plan.
pub fn run(arguments: &ReplayArguments) -> Result<ExitCode, Failure> {
    let refused = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
        Failure::Refused(format!("cannot {what} {}: {error}", path.display()))
    };
    let text =
        fs::read(&arguments.plan).map_err(|error| refused("read", &arguments.plan, &error))?;
    let plan: Plan =
        serde_json::from_slice(&text).map_err(|error| refused("read", &arguments.plan, &error))?;
    plan.check().map_err(|path| {
        let what = format!("the path '{}' leads out of the directory", path.escape_default());
        refused("do", &arguments.plan, &what)
    })?;
    beneath::open_private(&arguments.directory)
        .and_then(|directory| Ok(rustix::process::fchdir(directory)?))
        .map_err(|error| refused("use", &arguments.directory, &error))?;
    let mut replay = Replay::new();
    replay.warm(&plan.prepared);
    let limit = Duration::from_millis(arguments.milliseconds);
    let measured = replay.all(&plan.steps[..plan.steps.len().min(arguments.steps)], limit);
    let start_us = starts(arguments.starts);
    let outcome = Outcome { measured, start_us };
    let text = serde_json::to_vec(&outcome)
        .map_err(|error| refused("write", &arguments.result, &error))?;
    fs::write(&arguments.result, text)
        .map_err(|error| refused("write", &arguments.result, &error))?;
    Ok(ExitCode::SUCCESS)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// What starting a program takes, on average.
fn starts(count: u32) -> f64 {
    let begun = Instant::now();
    let mut done = 0;
    for _ in 0..count {
        let status = Command::new("true").stdin(Stdio::null()).stdout(Stdio::null()).status();
        done += u32::from(status.is_ok());
    }
    if done == 0 { 0.0 } else { micros(begun.elapsed()) / f64::from(done) }
}

struct Replay {
    handles: HashMap<u32, File>,
    buffer: Vec<u8>,
    entries: Vec<MaybeUninit<u8>>,
}

impl Replay {
    fn new() -> Replay {
        let buffer = (0..BUFFER_BYTES).map(|at| (at % 251) as u8).collect();
        Replay {
            handles: HashMap::new(),
            buffer,
            entries: vec![MaybeUninit::uninit(); ENTRIES_BYTES],
        }
    }

    /// Reads what is to be in memory. A file that cannot be read stays as it is.
    fn warm(&mut self, prepared: &[Prepared]) {
        for one in prepared.iter().filter(|one| !one.cold && !one.directory && !one.data.is_empty())
        {
            let Ok(file) = options(0).open(&one.path) else { continue };
            for (begin, end) in &one.data {
                let _ = transfer(&file, &mut self.buffer, *begin, end - begin, None, false);
            }
        }
    }

    fn all(&mut self, steps: &[Step], limit: Duration) -> Measured {
        let mut measured = Measured::default();
        let begun = Instant::now();
        for step in steps {
            self.ready(step);
            think(Duration::from_micros(step.think_us.into()));
            let before = Instant::now();
            let done = self.step(step, begun + limit);
            let after = Instant::now();
            let cost = measured.costs.entry(step.class).or_default();
            cost.calls += 1;
            cost.total_us += micros(after - before);
            measured.steps += 1;
            let is_missing = step.what == What::Open && step.handle.is_none();
            measured.failed += u64::from(done.is_err() && !is_missing && step.what != What::Stat);
            if after - begun > limit {
                break;
            }
        }
        measured.total_us = micros(begun.elapsed());
        measured
    }

    /// Opens what was opened before the plan begins. Not measured.
    fn ready(&mut self, step: &Step) {
        let Some(handle) = step.handle else { return };
        if matches!(step.what, What::Open | What::Close) || self.handles.contains_key(&handle) {
            return;
        }
        let opened =
            options(0).write(true).open(&step.path).or_else(|_| options(0).open(&step.path));
        if let Ok(file) = opened {
            self.keep(handle, file);
        }
    }

    fn keep(&mut self, handle: u32, file: File) {
        if self.handles.len() >= HANDLES_MAX {
            self.handles.clear();
        }
        self.handles.insert(handle, file);
    }

    fn handle(&self, step: &Step) -> io::Result<&File> {
        let found = step.handle.and_then(|handle| self.handles.get(&handle));
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn step(&mut self, step: &Step, until: Instant) -> io::Result<()> {
        match step.what {
            What::Open => {
                let file = open(&step.path, step.flags)?;
                if let Some(handle) = step.handle {
                    self.keep(handle, file);
                }
            }
            What::Close if step.flags & flags::LAST != 0 => {
                let closed = step.handle.and_then(|handle| self.handles.remove(&handle));
                drop(closed.ok_or(io::ErrorKind::NotFound)?);
            }
            What::Close => drop(self.handle(step)?.try_clone()?),
            What::Read | What::Write | What::Map => {
                let mut buffer = std::mem::take(&mut self.buffer);
                let is_write = step.what == What::Write;
                let done = self.handle(step).and_then(|file| {
                    transfer(file, &mut buffer, step.offset, step.length, Some(until), is_write)
                });
                self.buffer = buffer;
                done?;
            }
            What::Sync if step.flags & flags::DATA != 0 => self.handle(step)?.sync_data()?,
            What::Sync => self.handle(step)?.sync_all()?,
            What::Truncate => match self.handle(step) {
                Ok(file) => file.set_len(step.length)?,
                Err(_) => OpenOptions::new()
                    .write(true)
                    .custom_flags(libc::O_NOFOLLOW)
                    .open(&step.path)?
                    .set_len(step.length)?,
            },
            What::Allocate => {
                let keep = step.flags & flags::DATA != 0;
                let mode = if keep {
                    FallocateFlags::FALLOC_FL_KEEP_SIZE
                } else {
                    FallocateFlags::empty()
                };
                fallocate(self.handle(step)?, mode, step.offset as i64, step.length as i64)?;
            }
            What::List => {
                let mut entries = std::mem::take(&mut self.entries);
                let listed =
                    self.handle(step).map(|file| RawDir::new(file, &mut entries).next().is_some());
                self.entries = entries;
                listed?;
            }
            What::Lock => {
                let kind =
                    if step.flags & flags::RELEASE != 0 { libc::F_UNLCK } else { libc::F_WRLCK };
                let whence = libc::SEEK_SET as i16;
                let lock = libc::flock {
                    l_type: kind as i16,
                    l_whence: whence,
                    l_start: 0,
                    l_len: 0,
                    l_pid: 0,
                };
                fcntl(self.handle(step)?, FcntlArg::F_SETLK(&lock))?;
            }
            What::Output => {
                let mut out = io::stdout().lock();
                out.write_all(&self.buffer[..(step.length as usize).clamp(1, BUFFER_BYTES)])?;
                out.flush()?;
            }
            What::Stat if step.handle.is_some() => {
                self.handle(step)?.metadata()?;
            }
            _ => self.name(step)?,
        }
        Ok(())
    }

    fn name(&self, step: &Step) -> io::Result<()> {
        let path = Path::new(&step.path);
        match step.what {
            What::Stat => {
                fs::symlink_metadata(path)?;
            }
            What::Attributes => {
                let mode = if path.is_dir() { 0o755 } else { 0o644 };
                fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            }
            What::ReadAttribute => {
                rustix::fs::getxattr(path, "user.weir-advise", &mut [0_u8; 16])?;
            }
            What::ReadLink => drop(fs::read_link(path)?),
            What::MakeDirectory => fs::create_dir(path)?,
            What::RemoveDirectory => fs::remove_dir(path)?,
            What::Unlink => fs::remove_file(path)?,
            What::Rename => fs::rename(path, &step.to)?,
            What::Link => fs::hard_link(path, &step.to)?,
            What::SymbolicLink => std::os::unix::fs::symlink("target", path)?,
            _ => {}
        }
        Ok(())
    }
}

/// Keeps the processor busy, as the program does between its calls.
fn think(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Opens for reading, and no symbolic link.
fn options(flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags | libc::O_NOFOLLOW);
    options
}

fn open(path: &str, bits: u16) -> io::Result<File> {
    let is = |flag: u16| bits & flag != 0;
    let mut custom = 0;
    if is(flags::SYNCHRONOUS) {
        custom |= libc::O_SYNC;
    }
    if is(flags::DIRECTORY) {
        custom |= libc::O_DIRECTORY;
    }
    let mut options = options(custom);
    options.write(is(flags::WRITE));
    if is(flags::WRITE) {
        let exclusive = is(flags::CREATE) && is(flags::EXCLUSIVE);
        options.create(is(flags::CREATE)).create_new(exclusive).truncate(is(flags::TRUNCATE));
    }
    options.open(path)
}

/// Reads or writes all of a range, as far as there is one, and time.
fn transfer(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    length: u64,
    until: Option<Instant>,
    is_write: bool,
) -> io::Result<()> {
    let (mut at, mut left) = (offset, length);
    loop {
        let piece = left.min(buffer.len() as u64) as usize;
        let moved = match is_write {
            true => file.write_at(&buffer[..piece], at)?,
            false => file.read_at(&mut buffer[..piece], at)?,
        };
        at += moved as u64;
        left -= moved as u64;
        let late = left > 0 && until.is_some_and(|until| Instant::now() > until);
        if left == 0 || moved == 0 || late {
            return Ok(());
        }
    }
}
