//! `weir-bench disk check`: a model, measured from outside with fio, against its parameters.
//!
//! Latencies are medians where the model's are constant, so that a program that is kept from the
//! processor now and then does not hide them; a measurement that is off is made again, and said so.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use weir_drive::arm;
use weir_drive::parameters::{self, Ns, SECOND, time_at};
use weir_drive::simulate::{Load, requests_a_second};

use super::{Disk, Model};
use crate::cleanup;
use crate::error::{Doing, Error, Result};
use crate::mount::run as run_program;
use crate::workload::{fio_job, require_fio};
use crate::workspace::Workspace;

/// The size of the disk that is measured: many times any cache.
const BYTES: u64 = 1 << 30;
/// How far a figure may be from its prediction.
const TOLERANCE: f64 = 0.10;
const TRIES: usize = 3;

/// What is read from fio's report.
#[derive(Clone, Copy)]
enum Figure {
    /// Bytes a second, in MB/s.
    Bandwidth,
    /// Requests a second.
    Rate,
    /// Mean time of a request, us.
    Mean,
    /// Median time of a request, us.
    Median,
    /// Mean time of a sync, us.
    MeanSync,
    /// Median time of a sync, us.
    MedianSync,
    /// Median time of a write and the sync after it, us.
    MedianBoth,
}

impl Figure {
    fn unit(self) -> &'static str {
        match self {
            Figure::Bandwidth => "MB/s",
            Figure::Rate => "/s",
            _ => "us",
        }
    }
}

/// One measurement and its prediction.
struct Trial {
    name: &'static str,
    /// fio's options besides those that all have.
    options: &'static [&'static str],
    figure: Figure,
    expected: f64,
    /// Anything below the expectation is right, too: the way to the disk takes what it takes.
    at_most: bool,
}

/// Measures `model` on a disk made in `dir`; an error if a figure is not as predicted.
pub fn run(model: Model, dir: &Path) -> Result<()> {
    cleanup::watch_signals().doing("watch signals for", dir)?;
    require_fio()?;
    let space = Workspace::new(dir, BYTES)?;
    let disk = Disk::start(model, &space.path().join("image"), BYTES, &space.directory("disk")?)?;
    disk.set_paced(false)?;
    fill(disk.device())?;
    println!("{:34} {:>12} {:>12} {:>8}", format!("model '{model}'"), "predicted", "measured", "");
    let mut wrong = 0;
    for trial in trials(model) {
        wrong += usize::from(!attempt(&disk, &trial)?);
    }
    disk.stop()?;
    if wrong == 0 {
        return Ok(());
    }
    Err(Error::Missing {
        what: format!("{wrong} figures are not within 10 % of what the model predicts"),
        remedy: "run it again while nothing else runs on this machine".into(),
    })
}

/// Writes the whole disk once: a hole in its image would take the host its time to fill, in the
/// middle of a measurement.
fn fill(device: &Path) -> Result<()> {
    let mut device_file = OpenOptions::new().write(true).open(device).doing("open", device)?;
    let zeroes = vec![0; 1 << 20];
    for _ in 0..BYTES >> 20 {
        device_file.write_all(&zeroes).doing("fill", device)?;
    }
    device_file.sync_all().doing("fill", device)
}

/// Measures until it is right, at most [`TRIES`] times, and prints the last; whether it was right.
fn attempt(disk: &Disk, trial: &Trial) -> Result<bool> {
    let mut tries = 0;
    loop {
        tries += 1;
        // The arm at rest, the cache empty.
        disk.set_paced(false)?;
        disk.set_paced(true)?;
        let measured = measure(disk.device(), trial)?;
        disk.set_paced(false)?;
        let off = measured / trial.expected - 1.0;
        let right = off <= TOLERANCE && (trial.at_most || off >= -TOLERANCE);
        if !right && tries < TRIES {
            continue;
        }
        let (unit, expected) = (trial.figure.unit(), trial.expected);
        let bound = if trial.at_most { "<= " } else { "" };
        println!(
            "{:34} {:>12} {:>12} {:>8} {}{}",
            trial.name,
            format!("{bound}{expected:.*} {unit}", digits(expected)),
            format!("{measured:.*} {unit}", digits(measured)),
            format!("{:+.1} %", off * 100.0),
            if right { "ok" } else { "OFF" },
            if tries > 1 { format!(" (measured {tries} times)") } else { String::new() },
        );
        return Ok(right);
    }
}

fn digits(value: f64) -> usize {
    if value < 1000.0 { 1 } else { 0 }
}

fn measure(device: &Path, trial: &Trial) -> Result<f64> {
    let mut fio = Command::new("fio");
    fio.args(["--name=check", "--direct=1", "--ioengine=libaio", "--output-format=json"])
        .args(["--time_based", "--norandommap", "--size=100%", "--group_reporting"])
        .arg(format!("--filename={}", device.display()))
        .args(trial.options);
    let job = fio_job(&run_program(&mut fio)?.stdout)?;
    read_figure(&job, trial.figure).ok_or_else(|| {
        Error::answer("fio", format!("the figure of '{}' is not in its report", trial.name))
    })
}

fn read_figure(job: &Value, figure: Figure) -> Option<f64> {
    let kind = if job["write"]["total_ios"].as_u64()? > 0 { "write" } else { "read" };
    let us = |value: &Value| value.as_f64().map(|ns| ns / 1000.0);
    let median = || us(&job[kind]["clat_ns"]["percentile"]["50.000000"]);
    let median_sync = || us(&job["sync"]["lat_ns"]["percentile"]["50.000000"]);
    match figure {
        Figure::Bandwidth => job[kind]["bw_bytes"].as_f64().map(|rate| rate / 1e6),
        Figure::Rate => job[kind]["iops"].as_f64(),
        Figure::Mean => us(&job[kind]["lat_ns"]["mean"]),
        Figure::Median => median(),
        Figure::MeanSync => us(&job["sync"]["lat_ns"]["mean"]),
        Figure::MedianSync => median_sync(),
        Figure::MedianBoth => Some(median()? + median_sync()?),
    }
}

const READ_ON: &[&str] = &["--rw=read", "--bs=128k", "--iodepth=8", "--runtime=3"];
const WRITE_ON: &[&str] =
    &["--rw=write", "--bs=128k", "--iodepth=8", "--ramp_time=1", "--runtime=3"];
// With an asynchronous engine a time would not be from call to return.
const READ_ONE: &[&str] = &["--ioengine=psync", "--rw=randread", "--bs=4k", "--runtime=6"];
const READ_ONE_SHORT: &[&str] = &["--ioengine=psync", "--rw=randread", "--bs=4k", "--runtime=2"];
const READ_16: &[&str] = &["--rw=randread", "--bs=4k", "--iodepth=16", "--runtime=3"];
const READ_32: &[&str] = &["--rw=randread", "--bs=4k", "--iodepth=32", "--runtime=4"];
const WRITE_16: &[&str] = &["--rw=randwrite", "--bs=4k", "--iodepth=16", "--runtime=3"];
const WRITE_32: &[&str] =
    &["--rw=randwrite", "--bs=4k", "--iodepth=32", "--ramp_time=2", "--runtime=4"];
// A few at a time, with time to drain between: what is measured is the buffer, not the medium.
const WRITE_INTO_BUFFER: &[&str] = &[
    "--ioengine=psync",
    "--rw=randwrite",
    "--bs=4k",
    "--thinktime=18ms",
    "--thinktime_blocks=56",
    "--runtime=2",
];
// With an asynchronous engine fio counts the write's time as the sync's.
const SYNC: &[&str] =
    &["--ioengine=psync", "--rw=randwrite", "--bs=4k", "--fsync=1", "--runtime=5"];

/// What the load of [`READ_32`], [`WRITE_32`] and so on gives by the model.
fn predicted(model: Model, writes: bool, depth: usize) -> f64 {
    let load = Load { writes, depth, ramp: 2 * SECOND, span: 8 * SECOND };
    requests_a_second(model, BYTES, load)
}

fn trials(model: Model) -> Vec<Trial> {
    let trial =
        |name, options, figure, expected| Trial { name, options, figure, expected, at_most: false };
    match model {
        Model::Hdd => {
            use parameters::hdd::*;
            let rate = TRANSFER as f64 / 1e6;
            let access = us(arm::mean_seek(BYTES) + REVOLUTION / 2 + time_at(TRANSFER, 4096));
            let reads = predicted(model, false, QUEUE);
            let writes = predicted(model, true, QUEUE);
            let cache = "write 4K into the cache";
            let cached = trial(cache, WRITE_INTO_BUFFER, Figure::Median, access / 10.0);
            vec![
                trial("sequential read", READ_ON, Figure::Bandwidth, rate),
                trial("sequential write", WRITE_ON, Figure::Bandwidth, rate),
                trial("random read 4K", READ_ONE, Figure::Mean, access),
                trial("random reads, queue of 32", READ_32, Figure::Rate, reads),
                Trial { at_most: true, ..cached },
                trial("random writes, queue of 32", WRITE_32, Figure::Rate, writes),
                trial("flush after a write of 4K", SYNC, Figure::MeanSync, access),
            ]
        }
        Model::Ssd => {
            use parameters::ssd::*;
            let mbs = |rate: u64| rate as f64 / 1e6;
            let written = us(SECOND / WRITES_A_SECOND);
            vec![
                trial("sequential read", READ_ON, Figure::Bandwidth, mbs(READ_RATE)),
                trial("sequential write", WRITE_ON, Figure::Bandwidth, mbs(WRITE_RATE)),
                trial("random read 4K", READ_ONE_SHORT, Figure::Median, us(READ)),
                trial("random reads, queue of 32", READ_32, Figure::Rate, READS_A_SECOND as f64),
                trial("write 4K into the buffer", WRITE_INTO_BUFFER, Figure::Median, us(WRITE)),
                trial("random writes, queue of 32", WRITE_32, Figure::Rate, WRITES_A_SECOND as f64),
                trial("write 4K and flush", SYNC, Figure::MedianBoth, written),
            ]
        }
        Model::Remote => {
            use parameters::remote::*;
            let line = RATE as f64 / 1e6;
            let one = us(ROUND_TRIP + time_at(RATE, 4096));
            let reads = predicted(model, false, 16);
            let writes = predicted(model, true, 16);
            vec![
                trial("sequential read", READ_ON, Figure::Bandwidth, line),
                trial("sequential write", WRITE_ON, Figure::Bandwidth, line),
                trial("random read 4K", READ_ONE_SHORT, Figure::Median, one),
                trial("random reads, queue of 16", READ_16, Figure::Rate, reads),
                trial("random write 4K", WRITE_INTO_BUFFER, Figure::Median, one),
                trial("random writes, queue of 16", WRITE_16, Figure::Rate, writes),
                trial("flush", SYNC, Figure::MedianSync, us(ROUND_TRIP)),
            ]
        }
        Model::None => Vec::new(),
    }
}

fn us(time: Ns) -> f64 {
    time as f64 / 1000.0
}
