//! `weir-bench run awol`: AWOL's evaluation (paper 002, section 5) on emulated disks: readers and
//! writers side by side, by ext4, by Weir with write-back at fixed shares of memory, and by Weir
//! with write-back that adapts.
//!
//! `plan` says what is run at which size, `judge` shows what was found and holds it against the
//! goals, with `ratios` and `optimum`; `sweep` is the settings that are gone through, `over_time` how
//! a load went, `macrobench` the two loads of whole programs. The other workloads are
//! [`crate::workload::SideBySide`]'s.

pub mod judge;
pub mod macrobench;
pub mod optimum;
pub mod over_time;
pub mod plan;
pub mod ratios;
pub mod sweep;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use self::sweep::Sweep;
use crate::disk::Model;
use crate::error::{Error, Result};
use crate::mount::{run, weir_program};
use crate::nbw::command::Place;
use crate::nbw::names::each_once;
use crate::nbw::plan::Filter;
use crate::nbw::run::run_whole;
use crate::stage::{Contestant, Fetch, WriteBack};

/// The name of the suite in its JSON.
pub const SUITE: &str = "awol";

/// AWOL's evaluation on emulated disks: ext4 by the kernel, and Weir with static and with adaptive
/// write-back, in the same memory, on the same disk, in turn. Needs root. Ends with zero only if
/// every byte was found right.
#[derive(Args)]
pub struct Arguments {
    /// One round of ten seconds on the hard disk and five elsewhere, at most ten minutes in all,
    /// instead of three rounds, and whole programs besides.
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains one of these, such as 'zrzw' or 'hdd/srsw'; 'macro' for a build
    /// and a database, which '--quick' leaves out otherwise.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// The C sources that are built ('--only macro', and the long form): an archive that
    /// 'scripts/setup bench' fetched, by default where it puts it.
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
    /// The contestants beside ext4.
    #[arg(long, value_name = "WHO", value_delimiter = ',', default_value = "static,adaptive")]
    contestants: Vec<Weir>,
    /// Instead, go through the values of a setting of write-back, on the workloads that the paper
    /// has for it. 'report' adds what is found to the report of a run without.
    #[arg(long, value_name = "SETTING", conflicts_with = "contestants")]
    sweep: Option<Sweep>,
    #[command(flatten)]
    place: Place,
    /// Keep the results here, case by case as they come.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Weir, one way or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Weir {
    /// `--write-back static`.
    Static,
    /// `--write-back adaptive`.
    Adaptive,
    /// As it is by default; also a weir that has no such option.
    Plain,
}

impl Weir {
    fn contestant(self) -> Contestant {
        match self {
            Weir::Static => Contestant::WeirWriteBack(WriteBack::Static),
            Weir::Adaptive => Contestant::WeirWriteBack(WriteBack::Adaptive),
            Weir::Plain => Contestant::Weir(Fetch::Auto),
        }
    }
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        let weir = weir_program(self.place.weir)?;
        let weirs = match self.sweep {
            Some(sweep) => sweep.contestants(),
            None => self.contestants.iter().map(|who| who.contestant()).collect(),
        };
        let contestants = each_once(std::iter::once(Contestant::Ext4).chain(weirs));
        require_options(&weir, &contestants)?;
        let disks =
            if self.place.disk.is_empty() { vec![Model::Hdd, Model::Ssd] } else { self.place.disk };
        let filter = Filter { disks, names: self.only };
        let profile = plan::profile(self.quick, self.sweep);
        let mut cells = plan::cells(&profile, &contestants, self.sweep, &filter);
        let mut passed_over = Vec::new();
        if self.sweep.is_none() && macrobench::is_wanted(self.quick, &filter) {
            let sources = self.sources.unwrap_or_else(macrobench::default_sources);
            let (more, why) = macrobench::cells(&profile, &contestants, &sources, &filter);
            cells.extend(more);
            passed_over = why;
        }
        passed_over.iter().for_each(|why| println!("{why}"));
        if cells.is_empty() {
            return Err(Error::no_such_case(SUITE));
        }
        let (dir, over_time) = (self.place.dir, has_option(&help(&weir)?, "--record"));
        let results = run_whole(SUITE, profile, cells, weir, &dir, self.json, over_time)?;
        print!("\n{}", judge::tables(&results));
        passed_over.iter().for_each(|why| println!("{why}"));
        print!("\n{}", judge::verdict(&results));
        Ok(())
    }
}

/// Fails, saying what to do, if `weir` lacks an option that one of `contestants` is mounted with.
fn require_options(weir: &Path, contestants: &[Contestant]) -> Result<()> {
    let help = help(weir)?;
    let options = contestants.iter().flat_map(|who| who.mount_options().unwrap_or_default());
    for option in options {
        let name = option.split('=').next().unwrap_or_default();
        if !has_option(&help, name) {
            return Err(Error::Missing {
                what: format!("{} has no option '{name}'", weir.display()),
                remedy: "give a weir that has it, or compare only '--contestants plain'".into(),
            });
        }
    }
    Ok(())
}

/// The manual of `weir mount`.
fn help(weir: &Path) -> Result<String> {
    let help = run(Command::new(weir).args(["mount", "--help"]))?;
    Ok(String::from_utf8_lossy(&help.stdout).into_owned())
}

/// Whether a manual has that option, as a word: the names of some begin like those of others.
fn has_option(help: &str, name: &str) -> bool {
    help.split_whitespace().any(|word| word.trim_end_matches(',') == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_weir_without_the_option_is_refused_and_what_to_do_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let weir = directory.path().join("weir");
        let script = |help: &str| {
            fs::write(&weir, format!("#!/bin/sh\necho '--fetch POLICY --log PLACE {help}'\n"))
                .unwrap();
            fs::set_permissions(&weir, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let plain = [Contestant::Ext4, Weir::Plain.contestant()];
        let adaptive = [Contestant::Ext4, Weir::Adaptive.contestant()];
        script("--write-back-interval DURATION");
        require_options(&weir, &plain).unwrap();
        let said = require_options(&weir, &adaptive).unwrap_err().to_string();
        assert!(said.contains("no option '--write-back'") && said.contains("plain"), "{said}");
        script("--write-back POLICY");
        require_options(&weir, &adaptive).unwrap();
        assert!(require_options(&weir, &Sweep::DirtyMax.contestants()).is_err());
    }
}
