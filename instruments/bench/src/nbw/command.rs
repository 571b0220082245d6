//! The command line of `weir-bench run nbw`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::disk::Model;
use crate::error::{Error, Result};
use crate::mount::weir_program;
use crate::nbw::perform::Suite;
use crate::nbw::plan::{self, Filter};
use crate::nbw::profile::Form;
use crate::nbw::results::{Results, SUITE};
use crate::nbw::run::{begin, place};
use crate::nbw::{goals, table};

/// What a run on emulated disks runs on.
#[derive(Args)]
pub struct Place {
    /// Only these disks.
    #[arg(long, value_name = "MODEL", value_delimiter = ',')]
    pub disk: Vec<Model>,
    /// The weir program; by default the one beside this program, or on PATH.
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Where to work. A directory of its own is made in it and removed at the end.
    #[arg(long, value_name = "WORKDIR", default_value = ".")]
    pub dir: PathBuf,
}

/// NBW's evaluation on emulated disks: ext4 by the kernel and Weir, in the same memory, on the same
/// disk, in turn. Needs root. Ends with zero only if every byte was found right.
#[derive(Args)]
pub struct Arguments {
    /// A look at every part, in at most eight minutes; the default.
    #[arg(long, conflicts_with = "paper")]
    quick: bool,
    /// The whole of the paper's evaluation; takes an hour and more.
    #[arg(long)]
    paper: bool,
    /// Only cases whose name contains one of these, such as 'random-write/128' or 'file-server'.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// Keep the results here, case by case as they come. If it holds a part of the same run, only
    /// the rest is run.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Arguments {
    /// Runs the suite, or the rest of it if the file for results holds a part; prints the table and the goals.
    pub fn run(self) -> Result<()> {
        let form = if self.paper { Form::Paper } else { Form::Quick };
        let filter = Filter { disks: self.place.disk, names: self.only };
        let weir = weir_program(self.place.weir)?;
        let profile = form.profile();
        let cells = plan::cells(form, &profile, &filter);
        if cells.is_empty() {
            return Err(Error::no_such_case(SUITE));
        }
        let fresh = begin(SUITE, profile, &weir)?;
        let mut results = match &self.json {
            Some(path) => resume(path, fresh)?,
            None => fresh,
        };
        let run = place(&self.place.dir, &cells, &results.profile)?;
        let whole = plan::cells(form, &results.profile, &Filter::default());
        let whole = whole.into_iter().map(|cell| cell.name).collect();
        let suite = Suite { weir, run, cells, whole, json: self.json, over_time: false };
        suite.perform(&mut results)?;
        println!("\n{}\nGoals, Weir's default policy", table::table(&results));
        for goal in goals::goals(&results) {
            println!("  {goal}");
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::sample;
    use std::fs;

    fn results(complete: bool) -> Results {
        Results { profile: Form::Quick.profile(), complete, ..sample::results() }
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
