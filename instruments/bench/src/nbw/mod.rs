//! NBW's evaluation (papers 000 and 001, section 6) on emulated disks: the kernel's ext4, whose
//! small writes wait for their pages, and Weir in front of the same ext4, side by side.
//!
//! `profile` says how much is run, `plan` what, `perform` runs it, `summary` makes figures of it,
//! `results` is the JSON they are kept in, `bound` what could be reached at most, `goals` what was
//! to be reached, `table` what is printed.

pub mod awol;
mod bound;
pub mod command;
pub mod goals;
pub mod names;
mod perform;
pub mod plan;
mod profile;
mod progress;
pub mod results;
#[cfg(test)]
pub mod sample;
pub mod spill;
pub mod summary;
pub mod synced;
pub mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Doing, Error, Result};
use crate::nbw::perform::Suite;
use crate::nbw::plan::{Cell, Filter};
use crate::nbw::profile::Form;
use crate::nbw::results::{Profile, Results, SUITE};
use crate::report::machine;
use crate::stage::Run;

/// What the command line asks for.
pub struct Options {
    /// How much of it.
    pub form: Form,
    /// Which part of it.
    pub filter: Filter,
    /// The weir program.
    pub weir: PathBuf,
    /// Where to work.
    pub dir: PathBuf,
    /// Where the results go.
    pub json: Option<PathBuf>,
}

/// Runs the suite, or the rest of it if `json` holds a part; prints the table and the goals.
pub fn run(options: Options) -> Result<()> {
    let profile = options.form.profile();
    let cells = plan::cells(options.form, &profile, &options.filter);
    if cells.is_empty() {
        return Err(Error::Missing {
            what: "nothing of the suite has that disk and name".into(),
            remedy: "see 'weir-bench run nbw --help'".into(),
        });
    }
    let fresh = begin(SUITE, profile, &options.weir)?;
    let mut results = match &options.json {
        Some(path) => resume(path, fresh)?,
        None => fresh,
    };
    let run = place(&options.dir, &cells, &results.profile)?;
    let whole = plan::cells(options.form, &results.profile, &Filter::default());
    let whole = whole.into_iter().map(|cell| cell.name).collect();
    let Options { weir, json, .. } = options;
    let suite = Suite { weir, run, cells, whole, json, over_time: false };
    suite.perform(&mut results)?;
    println!("\n{}\nGoals, Weir's default policy", table::table(&results));
    for goal in goals::goals(&results) {
        println!("  {goal}");
    }
    Ok(())
}

/// Runs all of another suite's plan, from its beginning.
fn run_whole(
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
fn begin(suite: &str, profile: Profile, weir: &Path) -> Result<Results> {
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
fn place(dir: &Path, cells: &[Cell], profile: &Profile) -> Result<Run> {
    let disk_bytes = cells.iter().map(|cell| perform::disk_bytes(cell, profile)).max();
    Run::new(dir, disk_bytes.unwrap_or(0))
}

/// What `path` already holds of the same run, else `fresh`.
fn resume(path: &Path, fresh: Results) -> Result<Results> {
    if !path.exists() {
        // Found out now, not after the first hour.
        fresh.save(path)?;
        return Ok(fresh);
    }
    let refuse = |why: &str| {
        Err(Error::Missing {
            what: format!("{} {why}", path.display()),
            remedy: "remove it, or give another file".into(),
        })
    };
    let found = Results::load(path)?;
    if found.suite != fresh.suite {
        return refuse("holds a run of another suite");
    }
    if found.profile != fresh.profile {
        return refuse("holds a run of other sizes or times");
    }
    if found.weir != fresh.weir {
        return refuse("holds a run of another weir");
    }
    if found.complete {
        return refuse("holds a finished run");
    }
    Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn results(complete: bool) -> Results {
        Results {
            suite: SUITE.into(),
            command: "weir-bench run nbw".into(),
            machine: serde_json::Value::Null,
            profile: Form::Quick.profile(),
            weir: "weir 1".into(),
            complete,
            took_seconds: 1.0,
            cases: Vec::new(),
        }
    }

    #[test]
    fn a_part_of_the_same_run_is_gone_on_with_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.json");
        resume(&path, results(false)).unwrap();
        let part = Results { took_seconds: 5.0, ..results(false) };
        part.save(&path).unwrap();
        assert_eq!(resume(&path, results(false)).unwrap().took_seconds, 5.0);
        let other = Results { weir: "weir 2".into(), ..results(false) };
        assert!(resume(&path, other).is_err());
        let other = Results { profile: Form::Paper.profile(), ..results(false) };
        assert!(resume(&path, other).is_err());
        results(true).save(&path).unwrap();
        assert!(resume(&path, results(false)).is_err());
        fs::write(&path, "{}").unwrap();
        assert!(resume(&path, results(false)).is_err());
    }
}
