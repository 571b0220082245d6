//! Runs a cell: sides take turns from round to round, each from nothing in memory, and after each round what they left
//! at home is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::home::Home;
use super::plan::Cell;
use super::side::Side;
use super::tree::compare;
use crate::error::{Doing, Error, Result};
use crate::lane::results::{Case, Figure};
use crate::measure::turn;
use crate::memory::peak_resident_mib;
use crate::stage::{Run, Served};
use crate::workload::Outcome;
use crate::workload::tree::{remove, sync};

/// Where the sides of a home work, and what Weir is.
pub struct Stand<'a> {
    /// The run.
    pub run: &'a Run,
    /// The home.
    pub home: &'a Home,
    /// What it is called.
    pub home_name: String,
    /// The weir program.
    pub weir: &'a Path,
    /// How mounts get their requests.
    pub transport: &'a str,
    /// Where Weir's mounts and their logs are.
    pub work: PathBuf,
}

/// What one turn of one side found.
struct Turn {
    outcome: Outcome,
    /// Seconds from the end of the job until all was home.
    after_seconds: f64,
    daemon: Option<Daemon>,
}

/// What is seen of the daemon at the end of a turn, before it ends.
struct Daemon {
    peak_mib: f64,
    descriptors: u64,
}

/// All rounds of a cell; the cases, one a class.
pub fn rounds(stand: &Stand<'_>, sides: &[Side], cell: &Cell, count: u32) -> Result<Vec<Case>> {
    let case = |(suffix, _): &(&str, &str)| {
        let name = format!("{}/{}{suffix}", stand.home_name, cell.name);
        let case = Case::new(name, Figure::Mean, sides.iter().map(|side| side.name));
        Case { files: Some(cell.files), ..case }
    };
    let mut cases: Vec<Case> = cell.classes.iter().map(case).collect();
    for round in 0..count {
        let mut outcomes = Vec::new();
        for side in turn(round, sides.len()) {
            let turn = stand.turn(sides[side], cell)?;
            for (case, (_, class)) in cases.iter_mut().zip(cell.classes) {
                let round = case.note(side, &turn.outcome, class, turn.after_seconds)?;
                round.daemon_peak_mib = turn.daemon.as_ref().map(|daemon| daemon.peak_mib);
                round.daemon_descriptors = turn.daemon.as_ref().map(|daemon| daemon.descriptors);
            }
            outcomes.push((side, turn.outcome));
        }
        stand.judge(sides, cell, &outcomes)?;
    }
    Ok(cases)
}

impl Stand<'_> {
    /// One turn of one side. Only the job, and bringing home what it left, are at the home's pace.
    fn turn(&self, side: Side, cell: &Cell) -> Result<Turn> {
        let at_home = self.home.files().join(side.name);
        remove(&at_home)?;
        fs::create_dir(&at_home).doing("create", &at_home)?;
        cell.job.prepare(&at_home)?;
        self.home.make_cold()?;
        let shown = self.home.shown().join(side.name);
        let Some(options) = side.mount else {
            let pace = self.home.pace()?;
            let outcome = cell.job.run(&shown)?;
            let after_seconds = seconds(|| sync(&shown))?;
            drop(pace);
            return Ok(Turn { outcome, after_seconds, daemon: None });
        };
        let weir = self.mount(&shown, options)?;
        let pace = self.home.pace()?;
        let outcome = cell.job.run(weir.mount().path())?;
        let after_seconds = seconds(|| weir.mount().sync())?;
        drop(pace);
        let daemon = Some(Daemon::look(weir.mount().pid()?)?);
        weir.unmount()?;
        Ok(Turn { outcome, after_seconds, daemon })
    }

    fn mount(&self, source: &Path, options: &[&str]) -> Result<Served> {
        let log = format!("--log-file={}", self.work.join("weir.log").display());
        let options = [&["--transport", self.transport, &log], options].concat();
        let mountpoint = self.work.join("mount");
        Served::start(self.run.ledger(), self.weir, source, &mountpoint, &options, |_| Ok(()))
    }

    /// Fails unless what each side left at home is what its job leaves, and the same as what the first side left. What
    /// all of them left is removed then.
    fn judge(&self, sides: &[Side], cell: &Cell, outcomes: &[(usize, Outcome)]) -> Result<()> {
        self.home.make_cold()?;
        let files = self.home.files();
        let place = |side: usize| files.join(sides[side].name);
        for (side, _) in outcomes.iter().filter(|(side, _)| *side != 0) {
            compare(&place(0), &place(*side), cell.rules).map_err(|error| match error {
                Error::Different(what) => Error::Different(format!(
                    "{}/{} of {} and {}: {what}",
                    self.home_name, cell.name, sides[0].name, sides[*side].name
                )),
                other => other,
            })?;
        }
        for (side, outcome) in outcomes {
            cell.job.verify(&place(*side), outcome)?;
            remove(&place(*side))?;
        }
        Ok(())
    }
}

impl Daemon {
    fn look(pid: u64) -> Result<Daemon> {
        let path = PathBuf::from(format!("/proc/{pid}/fd"));
        let descriptors = fs::read_dir(&path).doing("read", &path)?.count() as u64;
        Ok(Daemon { peak_mib: peak_resident_mib(pid)?, descriptors })
    }
}

fn seconds(act: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    act()?;
    Ok(start.elapsed().as_secs_f64())
}
