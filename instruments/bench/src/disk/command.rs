//! `weir-bench disk`: emulated disks by hand.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::Subcommand;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use super::image::MappedImage;
use super::server::{self, Station};
use super::{Counts, Disk, MOUNTPOINT, Model, attach, check, control};
use crate::cleanup;
use crate::error::{Doing, Error, Result};

/// What to do with an emulated disk.
#[derive(Subcommand)]
pub enum DiskTask {
    /// Measure a model with fio and hold it against its parameters.
    Check {
        /// The model.
        #[arg(long, value_enum)]
        model: Model,
        /// Where to work. A directory of its own is made in it and removed at the end.
        #[arg(long, value_name = "WORKDIR", default_value = ".")]
        dir: PathBuf,
    },
    /// Hold an emulated disk until Ctrl-C.
    Run {
        /// Which storage it behaves like.
        #[arg(long, value_enum)]
        model: Model,
        /// The size of the disk, in bytes or with K, M, G or T (powers of 1024).
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        size: u64,
        /// Where its content is kept. Made if it is not there.
        #[arg(long, value_name = "FILE")]
        image: PathBuf,
        /// Where its mount and its control socket go.
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
    /// Print what a running disk did, as JSON.
    Stat {
        /// The disk's directory.
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
    /// Cut the power of a running disk: it fails everything until 'restore', and what was not
    /// flushed is kept, lost or torn.
    Cut {
        /// The disk's directory.
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
        /// Decides which writes are lost.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Switch the power of a disk on again. Unmount what is on it first.
    Restore {
        /// The disk's directory.
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
    /// Serve an image as the file of an emulated disk; 'run' and the benchmarks start this.
    #[command(hide = true)]
    Serve {
        /// Which storage it behaves like.
        #[arg(long, value_enum)]
        model: Model,
        /// Its size.
        #[arg(long)]
        bytes: u64,
        /// Where its content is kept.
        #[arg(long)]
        image: PathBuf,
        /// Where its mount and its control socket go.
        #[arg(long)]
        dir: PathBuf,
    },
}

/// Does it.
pub fn run(task: DiskTask) -> Result<()> {
    match task {
        DiskTask::Check { model, dir } => check::run(model, &dir),
        DiskTask::Run { model, size, image, dir } => hold(model, size, &image, &dir),
        DiskTask::Stat { dir } => {
            let counts = control::counts(&dir)?;
            print(&Stat { depth_mean: counts.depth_mean(), counts })
        }
        DiskTask::Cut { dir, seed } => print(&control::power_cut(&dir, seed)?),
        DiskTask::Restore { dir } => {
            let file = dir.canonicalize().doing("find", &dir)?.join(MOUNTPOINT).join(server::FILE);
            let device = attach::device_of(&file).ok_or_else(|| Error::Missing {
                what: format!("no emulated disk runs in {}", dir.display()),
                remedy: "give the directory that 'disk run' was given".into(),
            })?;
            super::restore(&device, &dir)
        }
        DiskTask::Serve { model, bytes, image, dir } => serve(model, bytes, &image, &dir),
    }
}

/// What 'disk stat' prints.
#[derive(Serialize)]
struct Stat {
    #[serde(flatten)]
    counts: Counts,
    depth_mean: f64,
}

fn print(what: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string_pretty(what)
        .map_err(|error| Error::answer("the disk's server", error))?;
    println!("{line}");
    Ok(())
}

fn hold(model: Model, bytes: u64, image: &Path, directory: &Path) -> Result<()> {
    cleanup::watch_signals().doing("watch signals for", directory)?;
    fs::create_dir_all(directory).doing("create", directory)?;
    let disk = Disk::start(model, image, bytes, directory)?;
    println!(
        "{} is a disk of model '{model}' with {} MiB, served by process {}. Ctrl-C ends it.",
        disk.device().display(),
        bytes >> 20,
        disk.server_pid()
    );
    loop {
        thread::park();
    }
}

fn serve(model: Model, bytes: u64, image: &Path, directory: &Path) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(image).doing("open", image)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(Error::Missing {
            what: format!("another emulated disk uses {}", image.display()),
            remedy: "stop it, or give another image".into(),
        });
    }
    be_a_disk();
    let _awake = keep_processors_awake();
    let mapped = MappedImage::new(file, bytes).doing("map", image)?;
    let station = Arc::new(Station::new(model, bytes, Box::new(mapped)));
    control::listen(directory, station.clone()).doing("make a control socket in", directory)?;
    let mountpoint = directory.join(MOUNTPOINT);
    server::serve(&station, &mountpoint).doing("serve an emulated disk on", &mountpoint)
}

/// prctl(2); the libc crate has not got it.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// What a process that stands for hardware asks of the kernel. Where one is refused, the disk works
/// all the same, less exactly.
fn be_a_disk() {
    // SAFETY: prctl(2) with these options takes integers only, and changes this process alone.
    unsafe {
        // Writing back what is dirty must not wait for this process, which writes it.
        libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
        // Deadlines are microseconds apart. Threads started from here on inherit it.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
    }
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter is live and of the right type; 0 is this thread, whose later ones
    // inherit the policy. A drive does not wait for a processor that its host keeps busy.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &parameter) };
}

/// Asks that idle processors answer at once for as long as the file is open (the kernel's PM QoS,
/// Documentation/power/pm_qos_interface): they poll instead of halting. Without it the disk works,
/// less exactly.
fn keep_processors_awake() -> Option<File> {
    let mut latency = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok()?;
    latency.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(latency)
}

/// Bytes, with an optional suffix.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        other => return Err(format!("'{other}' is no unit: use K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is no size"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("8g"), Ok(8 << 30));
        for bad in ["", "G", "-1", "1X", "99999999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
