//! Tries the disk, and does a plan's calls on it directly and through Weir.
//!
//! Bounds: the disk's figures take a second at most and 8 MiB, a plan some seconds and what its own bounds allow, each of its
//! four copies, and the redo logs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use weir_advise::plan::{Measured, Plan};
use weir_advise::prediction::{Disk, Way, WayCosts};

use super::replay::Outcome;
use super::scratch::{Mounted, Scratch, prepare};

/// The file that the disk is measured with.
const DISK_BYTES: usize = 8 << 20;
/// How long each figure of the disk is measured.
const DISK_TIME: Duration = Duration::from_millis(250);
const PAGE: usize = 4096;
/// How long the plan is done directly; through Weir it gets several times as long.
const DIRECT_MS: u64 = 800;
const WEIR_MS: u64 = 4000;
/// Programs that are started to see what that takes.
const STARTS: u32 = 10;

/// What was tried.
pub struct Tried {
    /// The disk.
    pub disk: Disk,
    /// The plan directly.
    pub direct: Option<Measured>,
    /// Each way, or why it could not be tried.
    pub ways: Vec<(Way, Result<WayCosts, String>)>,
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Measures the disk below a directory.
pub fn disk(directory: &Path) -> io::Result<Disk> {
    let path = directory.join("disk");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    let bytes = vec![0x5a_u8; 1 << 20];
    let begun = Instant::now();
    for piece in 0..DISK_BYTES >> 20 {
        file.write_all_at(&bytes, (piece << 20) as u64)?;
    }
    file.sync_data()?;
    let write_rate = DISK_BYTES as f64 / begun.elapsed().as_secs_f64().max(1e-6);
    // A full-period generator over the file's pages: no page twice.
    let pages = DISK_BYTES / PAGE;
    let mut page = 1;
    let mut next = || {
        page = (page * 5 + 1) % pages;
        (page * PAGE) as u64
    };
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
    let mut buffer = [0; PAGE];
    let read_us = mean(pages / 2, || file.read_exact_at(&mut buffer, next()))?;
    let sync_us = mean(pages / 2, || {
        file.write_all_at(&buffer, next())?;
        file.sync_data()
    })?;
    drop(file);
    fs::remove_file(&path)?;
    Ok(Disk { read_us, sync_us, write_rate })
}

fn mean(most: usize, mut call: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let begun = Instant::now();
    let mut calls = 0;
    while calls < most && (begun.elapsed() < DISK_TIME || calls < 3) {
        call()?;
        calls += 1;
    }
    Ok(micros(begun.elapsed()) / calls as f64)
}

/// Does a plan in each way.
pub struct Trial<'a> {
    /// This program.
    pub weir: PathBuf,
    /// On the program's disk.
    pub scratch: &'a Scratch,
    /// Not on it, for the plan, results and mount points.
    pub aside: &'a Scratch,
    /// What is done.
    pub plan: &'a Plan,
    /// Where it is written for the processes that do it.
    pub plan_path: PathBuf,
    /// Whether the program starts others.
    pub starts: bool,
}

/// One doing, and what the process that did it took beside it.
struct Done {
    outcome: Outcome,
    outside_us: f64,
}

impl Trial<'_> {
    /// Directly, then each way.
    pub fn all(&self, disk: Disk) -> Tried {
        let direct = match self.direct() {
            Ok(direct) => direct,
            Err(why) => {
                let ways = Way::ALL.map(|way| (way, Err(why.clone())));
                return Tried { disk, direct: None, ways: ways.into() };
            }
        };
        let ways = Way::ALL.map(|way| (way, self.way(way, &direct)));
        Tried { disk, direct: Some(direct.outcome.measured), ways: ways.into() }
    }

    fn direct(&self) -> Result<Done, String> {
        let home = self.home("direct")?;
        let done = self.replay(&[], &home, usize::MAX, DIRECT_MS, "direct");
        let removed = fs::remove_dir_all(&home).map_err(|error| error.to_string());
        done.and_then(|done| removed.map(|()| done))
    }

    fn home(&self, name: &str) -> Result<PathBuf, String> {
        let made =
            self.scratch.directory(name).and_then(|home| prepare(self.plan, &home).map(|()| home));
        made.map_err(|error| {
            format!("cannot prepare {}: {error}", self.scratch.path().join(name).display())
        })
    }

    fn way(&self, way: Way, direct: &Done) -> Result<WayCosts, String> {
        let (name, order, prefix): (_, &[&str], &[&str]) = match way {
            Way::Mount => ("mount", &[], &[]),
            Way::Run => ("run", &[], &["run", "--"]),
            Way::Session => ("session", &["--order", "all"], &["run", "--sync", "external", "--"]),
        };
        let home = self.home(name)?;
        let mountpoint = self.aside.directory(name).map_err(|error| error.to_string())?;
        let options = [&["--log-size", "32M"], order].concat();
        let mounted = Mounted::new(&self.weir, &home, &mountpoint, &options)?;
        let done = self.replay(prefix, &mountpoint, direct.outcome.measured.steps, WEIR_MS, name);
        drop(mounted);
        fs::remove_dir_all(&home)
            .map_err(|error| format!("cannot remove {}: {error}", home.display()))?;
        let done = done?;
        Ok(WayCosts {
            start_us: (done.outcome.start_us - direct.outcome.start_us).max(0.0),
            once_us: (done.outside_us - direct.outside_us).max(0.0),
            measured: done.outcome.measured,
        })
    }

    fn replay(
        &self,
        prefix: &[&str],
        directory: &Path,
        steps: usize,
        limit_ms: u64,
        name: &str,
    ) -> Result<Done, String> {
        let result = self.aside.path().join(format!("{name}.json"));
        let mut command = Command::new(&self.weir);
        if !prefix.is_empty() {
            command.args(prefix).arg(&self.weir);
        }
        command.arg("advise-replay").arg(&self.plan_path).arg(directory).arg(&result);
        command.args(["--steps", &steps.to_string(), "--milliseconds", &limit_ms.to_string()]);
        command.args(["--starts", &(if self.starts { STARTS } else { 0 }).to_string()]);
        // Its output goes to a process outside of a session, as the program's does.
        let begun = Instant::now();
        super::scratch::run(command.stdout(Stdio::piped()))?;
        let whole_us = micros(begun.elapsed());
        let text = fs::read(&result).map_err(|error| error.to_string())?;
        let outcome: Outcome = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let outside_us = (whole_us - outcome.inside_us).max(0.0);
        Ok(Done { outcome, outside_us })
    }
}

/// Writes a plan for the processes that do it.
pub fn write_plan(plan: &Plan, path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    serde_json::to_writer(io::BufWriter::new(file), plan).map_err(io::Error::from)
}
