//! 1 MiB sequential reads and writes: Weir against a plain passthrough, with the directory itself
//! for reference.
//!
//! Each round mounts anew, so that "cold" is cold everywhere: the mount's page cache, Weir's frames
//! or the page cache of home, and the disk's own file system maps stay as they are on all sides.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::cold::{drop_cached, make_cold, make_file};
use crate::error::{Doing, Result};
use crate::measure::{median, turn};
use crate::mount::{PassthroughMount, WeirMount};
use crate::page::PAGE;
use crate::report::Report;
use crate::workspace::Workspace;

const FILE_MIB: usize = 256;
const REQUEST_BYTES: usize = 1 << 20;
const ROUNDS: u32 = 5;

/// What is measured of a side: as results name it, and as a person reads it.
pub const RATES: [(&str, &str); 6] = [
    ("read_cold", "read, cold"),
    ("read_warm", "read, in the mount's page cache"),
    ("read_behind", "read, in memory behind the mount"),
    ("write", "write"),
    ("write_close", "write, close"),
    ("write_fsync_close", "write, fsync, close"),
];

/// MiB a second of one side in one round, or the medians of some, each of [`RATES`].
type Rates = [f64; RATES.len()];

#[derive(Clone, Copy)]
enum Side {
    Weir,
    Passthrough,
    Directory,
}

const SIDES: [Side; 3] = [Side::Weir, Side::Passthrough, Side::Directory];

/// Runs it.
pub fn run(weir: &Path, dir: &Path, report: &mut Report) -> Result<()> {
    println!("1 MiB sequential, {FILE_MIB} MiB files ({ROUNDS} rounds, sides in turn), MiB/s");
    let space = Workspace::new(dir, 8 * (FILE_MIB << 20) as u64)?;
    let roots = [space.directory("source")?, space.directory("passed")?, space.directory("plain")?];
    for root in &roots {
        make_file(&root.join("data"), 41, (FILE_MIB << 20) as u64 / PAGE)?;
    }
    let mut rounds: [Vec<Rates>; 3] = Default::default();
    for round in 0..ROUNDS {
        for side in turn(round, SIDES.len()) {
            make_cold(&[&roots[side].join("data")])?;
            let mountpoint = space.path().join("mount");
            let rates = match SIDES[side] {
                Side::Weir => {
                    let mount = WeirMount::start(weir, &roots[side], &mountpoint, &[])?;
                    let rates = measure(mount.path())?;
                    mount.unmount()?;
                    rates
                }
                Side::Passthrough => {
                    let mount = PassthroughMount::start(&roots[side], &mountpoint)?;
                    measure(mount.path())?
                }
                Side::Directory => measure(&roots[side])?,
            };
            rounds[side].push(rates);
        }
    }
    let [weir, passed, plain] = rounds.each_ref().map(|rounds| medians(rounds));
    println!("  {:<34}{:>10}{:>13}{:>11}", "", "Weir", "passthrough", "directory");
    for (at, (_, name)) in RATES.iter().enumerate() {
        println!("  {name:<34}{:>10.0}{:>13.0}{:>11.0}", weir[at], passed[at], plain[at]);
    }
    let [weir_rounds, passed_rounds, plain_rounds] =
        rounds.each_ref().map(|rounds| rounds.iter().map(named).collect::<Vec<_>>());
    report.figures(
        "sequential_1_mib",
        json!({
            "file_mib": FILE_MIB, "unit": "MiB/s",
            "weir": named(&weir), "passthrough": named(&passed), "directory": named(&plain),
            "rounds": {
                "weir": weir_rounds, "passthrough": passed_rounds, "directory": plain_rounds,
            },
        }),
    );
    for (rate, name) in [
        ("read_cold", "sequential read, cold, against the passthrough"),
        ("read_warm", "sequential read, warm, against the passthrough"),
        ("write_close", "sequential write and close, against the passthrough"),
        ("write_fsync_close", "... write, fsync and close"),
    ] {
        report.at_least(name, named(&weir)[rate] / named(&passed)[rate], 0.8, "x");
    }
    Ok(())
}

fn medians(rounds: &[Rates]) -> Rates {
    std::array::from_fn(|at| median(&rounds.iter().map(|rates| rates[at]).collect::<Vec<_>>()))
}

fn named(rates: &Rates) -> BTreeMap<&'static str, f64> {
    RATES.iter().map(|(name, _)| *name).zip(*rates).collect()
}

/// Everything on one side, under `root`, where `data` is cold.
fn measure(root: &Path) -> Result<Rates> {
    let data = root.join("data");
    let read_cold = read(&data)?;
    let read_warm = read(&data)?;
    // Of the directory itself this is a second cold read.
    drop_cached(&data)?;
    let read_behind = read(&data)?;
    let new = root.join("new");
    // Memory the kernel has not handed out for a while is slow to come by the first time.
    write(&new, true)?;
    let (_, write_fsync_close) = write(&new, true)?;
    let (write, write_close) = write(&new, false)?;
    Ok([read_cold, read_warm, read_behind, write, write_close, write_fsync_close])
}

fn read(path: &Path) -> Result<f64> {
    let mut buffer = vec![0; REQUEST_BYTES];
    let start = Instant::now();
    let mut file = File::open(path).doing("open", path)?;
    for _ in 0..FILE_MIB {
        file.read_exact(&mut buffer).doing("read", path)?;
    }
    Ok(rate(start))
}

/// Writes a new file and removes it; the rates of the writes alone and of everything up to close.
fn write(path: &Path, sync: bool) -> Result<(f64, f64)> {
    let buffer = vec![0x5a; REQUEST_BYTES];
    let start = Instant::now();
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).doing("create", path)?;
    for _ in 0..FILE_MIB {
        file.write_all(&buffer).doing("write", path)?;
    }
    let written = rate(start);
    if sync {
        file.sync_all().doing("sync", path)?;
    }
    drop(file);
    let closed = rate(start);
    fs::remove_file(path).doing("remove", path)?;
    Ok((written, closed))
}

fn rate(start: Instant) -> f64 {
    FILE_MIB as f64 / start.elapsed().as_secs_f64()
}
