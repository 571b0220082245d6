//! Runs a plan from its beginning, and says what it ran on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::perform::{self, Suite};
use super::plan::Cell;
use super::results::{Profile, Results};
use crate::error::{Doing, Result};
use crate::report::machine;
use crate::stage::Run;

/// Runs all of another suite's plan, from its beginning.
pub fn run_whole(
    suite: &str,
    profile: Profile,
    cells: Vec<Cell>,
    weir: PathBuf,
    dir: &Path,
    json: Option<PathBuf>,
    over_time: bool,
) -> Result<Results> {
    let mut results = begin(suite, profile, &weir)?;
    if let Some(path) = &json {
        // Found out now whether it can be written, not after the first minutes.
        results.save(path)?;
    }
    let run = place(dir, &cells, &results.profile)?;
    let whole = cells.iter().map(|cell| cell.name.clone()).collect();
    Suite { weir, run, cells, whole, json, over_time }.perform(&mut results)?;
    Ok(results)
}

/// Results of a suite of which nothing has been run.
pub fn begin(suite: &str, profile: Profile, weir: &Path) -> Result<Results> {
    Ok(Results {
        suite: suite.into(),
        command: command_line(),
        machine: machine(),
        profile,
        weir: identity(weir)?,
        complete: false,
        took_seconds: 0.0,
        cases: Vec::new(),
    })
}

/// A place below `dir` with room for the largest disk of a plan.
pub fn place(dir: &Path, cells: &[Cell], profile: &Profile) -> Result<Run> {
    let disk_bytes = cells.iter().map(|cell| perform::disk_bytes(cell, profile)).max();
    Run::new(dir, disk_bytes.unwrap_or(0))
}

/// The version of a weir and a checksum of the program.
pub fn identity(weir: &Path) -> Result<String> {
    let output = Command::new(weir).arg("--version").output().doing("run", weir)?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut checksum = flate2::Crc::new();
    checksum.update(&fs::read(weir).doing("read", weir)?);
    Ok(format!("{version}, CRC-32 {:08x}", checksum.sum()))
}

/// The command as a person would type it: the program by its name alone.
pub fn command_line() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("weir-bench".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
