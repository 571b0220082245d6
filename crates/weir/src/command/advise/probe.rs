//! Tries the disk, and does a plan's calls on it directly and through Weir.
//!
//! Bounds: the disk's figures take a second at most and 8 MiB, a plan some seconds and what its own bounds allow, each of its
//! four copies, and the redo logs; where there is much room, the copies of all rounds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use weir_advise::plan::{Measured, Plan};
use weir_advise::prediction::{Disk, Way, WayCosts};

use super::replay::Outcome;
use super::scratch::{Mounted, Place, Scratch, prepare};
use crate::run::forward;

/// The file that the disk is measured with.
const DISK_BYTES: usize = 8 << 20;
/// How long each figure of the disk is measured.
const DISK_TIME: Duration = Duration::from_millis(250);
const PAGE: usize = 4096;
/// How long the plan is done directly; through Weir it gets several times as long.
const DIRECT_MS: u64 = 700;
const WEIR_MS: u64 = 4000;
/// Programs that are started to see what that takes.
const STARTS: u32 = 10;
/// Rounds, and when no other one is begun.
const ROUNDS_MAX: u32 = 3;
const ROUNDS_TIME: Duration = Duration::from_millis(4000);
/// With less room than that, what a round has used is removed before the next one.
const KEPT_BYTES: u64 = 4 << 30;
const KEPT_FILES: u64 = 1 << 20;
/// Times that `true` is run in each way.
const ONCE: u32 = 4;

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
pub fn disk(scratch: &Scratch) -> io::Result<Disk> {
    let file = scratch.create("disk")?;
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
    let (read_us, read_fast_us) = timed(pages / 2, || file.read_exact_at(&mut buffer, next()))?;
    let (sync_us, _) = timed(pages / 2, || {
        file.write_all_at(&buffer, next())?;
        file.sync_data()
    })?;
    drop(file);
    scratch.remove_file("disk")?;
    Ok(Disk { read_us, read_fast_us, sync_us, write_rate })
}

/// What a call takes on average, and what a tenth of them do not exceed, microseconds.
fn timed(most: usize, mut call: impl FnMut() -> io::Result<()>) -> io::Result<(f64, f64)> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while all.len() < most
        && forward::noted().is_none()
        && (begun.elapsed() < DISK_TIME || all.len() < 3)
    {
        let before = Instant::now();
        call()?;
        all.push(micros(before.elapsed()));
    }
    if all.is_empty() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    all.sort_by(f64::total_cmp);
    Ok((all.iter().sum::<f64>() / all.len() as f64, all[all.len() / 10]))
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

/// The plan done once in each way; what starting programs takes is not yet compared.
struct Round {
    direct: WayCosts,
    ways: Vec<(Way, Result<WayCosts, String>)>,
}

impl Round {
    fn least(&mut self, other: &Round) {
        let least = |sum: &mut WayCosts, other: &WayCosts| {
            sum.measured.least(&other.measured);
            sum.start_us = sum.start_us.min(other.start_us);
            sum.once_us = sum.once_us.min(other.once_us);
        };
        least(&mut self.direct, &other.direct);
        for ((_, sum), (_, other)) in self.ways.iter_mut().zip(&other.ways) {
            if let (Ok(sum), Ok(other)) = (sum, other) {
                least(sum, other);
            }
        }
    }
}

/// What starting and ending a program takes, the least of some times.
fn once(weir: &Path, prefix: &[&str]) -> Result<f64, String> {
    let mut least = f64::INFINITY;
    for _ in 0..ONCE {
        let mut command = match prefix {
            [] => Command::new("true"),
            prefix => {
                let mut command = Command::new(weir);
                command.args(prefix).arg("true");
                command
            }
        };
        let begun = Instant::now();
        super::scratch::run(&mut command)?;
        least = least.min(micros(begun.elapsed()));
    }
    Ok(least)
}

impl Trial<'_> {
    /// Directly and each way, in turn, so that what the machine does beside disturbs all of them alike.
    pub fn all(&self, disk: Disk) -> Tried {
        let begun = Instant::now();
        let mut all = match self.round(0, None) {
            Ok(round) => round,
            Err(why) => {
                let ways = Way::ALL.map(|way| (way, Err(why.clone())));
                return Tried { disk, direct: None, ways: ways.into() };
            }
        };
        let mut rounds = 1;
        while rounds < ROUNDS_MAX && begun.elapsed() < ROUNDS_TIME {
            let Ok(round) = self.round(rounds, Some(&all)) else { break };
            all.least(&round);
            rounds += 1;
        }
        let ways = all.ways.into_iter().map(|(way, costs)| {
            let costs = costs.map(|mut costs| {
                costs.start_us = (costs.start_us - all.direct.start_us).max(0.0);
                costs.once_us = (costs.once_us - all.direct.once_us).max(0.0);
                costs
            });
            // On a mount alone the program starts as it does without Weir.
            let costs = costs.map(|costs| match way {
                Way::Mount => WayCosts { start_us: 0.0, once_us: 0.0, ..costs },
                _ => costs,
            });
            (way, costs)
        });
        Tried { disk, direct: Some(all.direct.measured), ways: ways.collect() }
    }

    fn round(&self, number: u32, before: Option<&Round>) -> Result<Round, String> {
        let name = format!("direct-{number}");
        let home = self.home(&name)?;
        let steps = before.map_or(usize::MAX, |before| before.direct.measured.steps);
        let limit_ms = if before.is_some() { WEIR_MS } else { DIRECT_MS };
        let done = self.replay(&[], &home.path, steps, limit_ms, &name);
        let left = self.leave(&name, home);
        let done = done.and_then(|done| left.map(|()| done))?;
        let steps = done.measured.steps;
        let once_us = once(&self.weir, &[])?;
        let direct = WayCosts { measured: done.measured, start_us: done.start_us, once_us };
        Ok(Round { direct, ways: Way::ALL.map(|way| (way, self.way(way, steps, number))).into() })
    }

    fn home(&self, name: &str) -> Result<Place, String> {
        let made = self
            .scratch
            .directory(name)
            .and_then(|home| prepare(self.plan, &home.directory).map(|()| home));
        made.map_err(|error| {
            format!("cannot prepare {}: {error}", self.scratch.path().join(name).display())
        })
    }

    /// What was used stays until the end if there is much room: for some seconds after files were removed, ext4 makes others slowly.
    fn leave(&self, name: &str, home: Place) -> Result<(), String> {
        if self.scratch.has_room(KEPT_BYTES, KEPT_FILES) {
            return Ok(());
        }
        let path = home.path.clone();
        self.scratch
            .remove(name, home)
            .map_err(|error| format!("cannot remove {}: {error}", path.display()))
    }

    fn way(&self, way: Way, steps: usize, number: u32) -> Result<WayCosts, String> {
        let (name, order, prefix): (_, &[&str], &[&str]) = match way {
            Way::Mount => ("mount", &[], &[]),
            Way::Run => ("run", &[], &["run", "--"]),
            Way::Session => ("session", &["--order", "all"], &["run", "--sync", "external", "--"]),
        };
        let name = format!("{name}-{number}");
        let home = self.home(&name)?;
        let mountpoint = self.aside.directory(&name).map_err(|error| error.to_string())?;
        let options = [&["--log-size", "32M"], order].concat();
        let mounted = Mounted::new(&self.weir, &home.path, &mountpoint.path, &options)?;
        let done = self.replay(prefix, &mountpoint.path, steps, WEIR_MS, &name);
        drop(mounted);
        self.leave(&name, home)?;
        let done = done?;
        let once_us = if prefix.is_empty() { 0.0 } else { once(&self.weir, prefix)? };
        Ok(WayCosts { start_us: done.start_us, once_us, measured: done.measured })
    }

    fn replay(
        &self,
        prefix: &[&str],
        directory: &Path,
        steps: usize,
        limit_ms: u64,
        name: &str,
    ) -> Result<Outcome, String> {
        let result = format!("{name}.json");
        let mut command = Command::new(&self.weir);
        if !prefix.is_empty() {
            command.args(prefix).arg(&self.weir);
        }
        command
            .arg("advise-replay")
            .arg(&self.plan_path)
            .arg(directory)
            .arg(self.aside.path().join(&result));
        command.args(["--steps", &steps.to_string(), "--milliseconds", &limit_ms.to_string()]);
        command.args(["--starts", &(if self.starts { STARTS } else { 0 }).to_string()]);
        // Its output goes to a process outside of a session, as the program's does.
        super::scratch::run(&mut command)?;
        let file = self.aside.open(&result).map_err(|error| error.to_string())?;
        serde_json::from_reader(io::BufReader::new(file)).map_err(|error| error.to_string())
    }
}

/// Writes a plan for the processes that do it.
pub fn write_plan(plan: &Plan, file: File) -> io::Result<()> {
    serde_json::to_writer(io::BufWriter::new(file), plan).map_err(io::Error::from)
}
