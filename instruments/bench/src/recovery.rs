//! `weir-bench run recovery`: how long `weir recover` takes, and how much memory, when the daemon
//! died with a full redo log.
//!
//! The log is filled by random writes that cross pages of a file much larger than memory, an fsync
//! after each of some hundred, as fast as they go; the daemon is killed with SIGKILL when the log is
//! nearly full, or as full as it ever gets. Everything was synced then, so every byte of the file is
//! compared with what was written. On this machine's own disk.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::cold::{make_cold, make_file};
use crate::error::{Doing, Error, Result};
use crate::measure::median;
use crate::memory::peak_resident_mib;
use crate::mount::{WeirMount, force_unmount, require_fuse, weir_program};
use crate::own_disk::OwnDisk;
use crate::page::PAGE;
use crate::report::Report;
use crate::stage::{Process, wait_for_end};
use crate::workload::{PREPARED_SEED, Slots};
use crate::workspace::Workspace;

const FILE_BYTES: u64 = 2 << 30;
/// Bytes of a write: two in three cross into the next page.
const IO_BYTES: u64 = 3072;
/// Writes to an fsync: 768 KiB. Above 1 MiB a sync brings the file home instead of logging it.
const WRITES_A_SYNC: u64 = 256;
/// `--memory`, and of it for patches: enough that nothing goes home for want of memory.
const MEMORY: [&str; 2] = ["--memory=1G", "--patch-memory=512M"];
/// The log is full at this share of its capacity.
const FULL_SHARE: f64 = 0.9;
/// How long to wait for that.
const FILL_TIME: Duration = Duration::from_secs(60);
/// The least a log must hold for the figure to mean anything, share of its capacity.
const FILLED_SHARE_MIN: f64 = 0.3;
/// How long a killed daemon may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The logs, MiB: the last is the one the goals are about, the first shows what size does.
const LOGS_MIB: [u64; 2] = [64, 256];
/// What recovery may take, seconds.
const SECONDS_MAX: f64 = 10.0;

/// How long recovery takes, and how much memory, when the daemon was killed with a full redo log, on
/// this machine's own disk.
#[derive(Args)]
pub struct Arguments {
    /// One round instead of three.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    own: OwnDisk,
}

/// One recovery.
#[derive(Clone, Debug, Serialize)]
struct Recovery {
    /// Size of the log.
    log_mib: u64,
    /// What it held when the daemon was killed.
    used_mib: f64,
    /// Writes since the mount.
    writes: u64,
    /// What filling it took.
    fill_seconds: f64,
    /// What `weir recover` took, from its start to its end.
    seconds: f64,
    /// VmHWM of `weir recover`, read every millisecond.
    peak_resident_mib: f64,
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        require_fuse()?;
        let weir = weir_program(self.own.weir)?;
        let rounds = if self.quick { 1 } else { 3 };
        println!("Recovery ({IO_BYTES} B writes over {} GiB, fsynced)", FILE_BYTES >> 30);
        let logs_bytes = LOGS_MIB.iter().max().copied().unwrap_or(0) << 20;
        let space = Workspace::new(&self.own.dir, FILE_BYTES + logs_bytes)?;
        let source = space.directory("source")?;
        let place = Place { weir, source, mountpoint: space.path().join("mount") };
        let mut all = Vec::new();
        for log_mib in LOGS_MIB {
            for round in 0..rounds {
                let recovery = place.round(log_mib, round)?;
                println!(
                    "  log of {log_mib} MiB, {:.0} MiB used after {:.1} s: recovered in {:.2} s, \
                     peak {:.0} MiB, every byte right",
                    recovery.used_mib,
                    recovery.fill_seconds,
                    recovery.seconds,
                    recovery.peak_resident_mib
                );
                all.push(recovery);
            }
        }
        let report = judge(&all);
        self.own.json.as_ref().map_or(Ok(()), |path| report.save(path))
    }
}

/// The goals, held against the medians of the largest log's recoveries.
fn judge(all: &[Recovery]) -> Report {
    let log_mib = all.iter().map(|recovery| recovery.log_mib).max().unwrap_or(0);
    let of = |get: fn(&Recovery) -> f64| {
        let largest = all.iter().filter(|recovery| recovery.log_mib == log_mib);
        median(&largest.map(get).collect::<Vec<_>>())
    };
    println!("Goals");
    let mut report = Report::default();
    report.figures("recovery", all);
    report.at_most("recovery of a full log", of(|one| one.seconds), SECONDS_MAX, "s");
    report.at_most(
        "recovery: peak memory, against the log's size",
        of(|one| one.peak_resident_mib),
        log_mib as f64,
        "MiB",
    );
    report
}

/// Where it is done.
struct Place {
    weir: PathBuf,
    source: PathBuf,
    mountpoint: PathBuf,
}

impl Place {
    fn file(&self) -> PathBuf {
        self.source.join("data")
    }

    fn round(&self, log_mib: u64, round: u64) -> Result<Recovery> {
        make_file(&self.file(), PREPARED_SEED, FILE_BYTES / PAGE)?;
        make_cold(&[&self.file()])?;
        let slots = Slots {
            io_bytes: IO_BYTES,
            file_bytes: FILE_BYTES,
            random: true,
            seed: 0x7265_636f + round,
        };
        let started = Instant::now();
        let (writes, used_bytes) = self.fill(log_mib, slots)?;
        let fill_seconds = started.elapsed().as_secs_f64();
        make_cold(&[&self.file()])?;
        let (seconds, peak_resident_mib) = self.recover()?;
        slots.verify(&self.file(), writes)?;
        Ok(Recovery {
            log_mib,
            used_mib: used_bytes as f64 / f64::from(1 << 20),
            writes,
            fill_seconds,
            seconds,
            peak_resident_mib,
        })
    }

    /// Writes until the log is full and kills the daemon; how many writes there were, all synced,
    /// and what the log held, bytes.
    fn fill(&self, log_mib: u64, slots: Slots) -> Result<(u64, u64)> {
        let log_size = format!("--log-size={log_mib}M");
        // Nothing goes home for its age: it is for want of room that a log is emptied.
        let options = ["--config=/dev/null", "--log=source", "--dirty-expire=24h"];
        let options = [&options[..], &MEMORY, &[&log_size]].concat();
        let mount = WeirMount::start(&self.weir, &self.source, &self.mountpoint, &options)?;
        let pid = u32::try_from(mount.pid()?).ok().and_then(Process::with_pid);
        let daemon =
            pid.ok_or_else(|| Error::answer("weir status --json", "there is no such process"))?;
        let filled = self.write(&mount, slots);
        daemon.kill();
        let left = wait_for_end(&[daemon], PATIENCE);
        force_unmount(&self.mountpoint);
        drop(mount);
        let (writes, used, capacity) = filled?;
        if !left.is_empty() {
            return Err(Error::Missing {
                what: "the killed daemon does not end".into(),
                remedy: "look what it waits for".into(),
            });
        }
        if (used as f64) < capacity as f64 * FILLED_SHARE_MIN {
            return Err(Error::Missing {
                what: format!("the log of {log_mib} MiB did not fill: {} MiB", used >> 20),
                remedy: "run this on a disk that is slower than this program".into(),
            });
        }
        Ok((writes, used))
    }

    /// The number of writes, what the log held after them and what it can hold, bytes.
    fn write(&self, mount: &WeirMount, slots: Slots) -> Result<(u64, u64, u64)> {
        let path = mount.path().join("data");
        let file = OpenOptions::new().write(true).open(&path).doing("open", &path)?;
        let mut bytes = vec![0; slots.io_bytes as usize];
        let deadline = Instant::now() + FILL_TIME;
        let mut writes = 0;
        let mut filling = Filling::default();
        loop {
            for write in writes..writes + WRITES_A_SYNC {
                slots.stamps().fill(write, &mut bytes);
                file.write_all_at(&bytes, slots.offset(slots.of_write(write)))
                    .doing("write", &path)?;
            }
            file.sync_data().doing("sync", &path)?;
            writes += WRITES_A_SYNC;
            let status = mount.status()?;
            let (used, capacity) =
                (status.get("log_used_bytes")?, status.get("log_capacity_bytes")?);
            if filling.is_full(used, capacity) || Instant::now() > deadline {
                return Ok((writes, used, capacity));
            }
        }
    }

    /// Seconds and peak memory, MiB, of `weir recover`.
    fn recover(&self) -> Result<(f64, f64)> {
        let started = Instant::now();
        let mut child = Command::new(&self.weir)
            .arg("recover")
            .arg(&self.source)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .doing("run", &self.weir)?;
        let mut peak_mib: f64 = 0.0;
        let status = loop {
            // A process that has just ended has no memory to tell of.
            peak_mib = peak_mib.max(peak_resident_mib(u64::from(child.id())).unwrap_or(0.0));
            if let Some(status) = child.try_wait().doing("wait for", &self.weir)? {
                break status;
            }
            thread::sleep(Duration::from_millis(1));
        };
        let seconds = started.elapsed().as_secs_f64();
        if status.success() {
            return Ok((seconds, peak_mib));
        }
        Err(Error::Command {
            command: "weir recover".into(),
            status: status.to_string(),
            said: "what it said stands above".into(),
        })
    }
}

/// Tells when a log is as full as it gets: Weir may begin to empty it before it is full.
#[derive(Default)]
struct Filling {
    /// The most it held, bytes.
    most: u64,
    /// Whether it was half emptied since.
    fell: bool,
}

impl Filling {
    /// Whether a log that holds `used` of `capacity` bytes is nearly full, or, after it was emptied
    /// once, nearly as full as it was before.
    fn is_full(&mut self, used: u64, capacity: u64) -> bool {
        self.most = self.most.max(used);
        self.fell |= used < self.most / 2;
        let crest = if self.fell { self.most } else { capacity };
        used as f64 >= crest as f64 * FULL_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_emptied_early_is_full_at_its_crest() {
        let full = |used: &[u64]| {
            let mut filling = Filling::default();
            used.iter().position(|used| filling.is_full(*used, 100))
        };
        assert_eq!(full(&[10, 50, 89, 90]), Some(3));
        assert_eq!(full(&[10, 50, 40, 50, 20, 40, 46]), Some(6));
        assert_eq!(full(&[10, 50, 30, 50]), None);
    }

    fn recovery(log_mib: u64, seconds: f64) -> Recovery {
        Recovery {
            log_mib,
            used_mib: 1.0,
            writes: 1,
            fill_seconds: 1.0,
            seconds,
            peak_resident_mib: 300.0,
        }
    }

    #[test]
    fn goals_are_held_against_the_medians_of_the_largest_log() {
        let all = [recovery(64, 90.0), recovery(256, 3.0), recovery(256, 99.0), recovery(256, 5.0)];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recovery.json");
        judge(&all).save(&path).unwrap();
        let saved: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(saved["goals"][0]["measured"], 5.0);
        assert_eq!(saved["goals"][0]["reached"], true);
        assert_eq!(saved["goals"][1]["reached"], false);
        assert_eq!(saved["figures"]["recovery"].as_array().unwrap().len(), 4);
    }
}
