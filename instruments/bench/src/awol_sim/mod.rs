//! `weir-bench run awol-sim`: the workloads and sizes of `run awol` in virtual time ([`weir_sim::policy`]), so
//! that a change of policy is judged in seconds, without root, mounts or disks.

mod processors;
mod replacement;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use weir_engine::WriteBackPolicy;
use weir_sim::policy::{self, Class, Outcome, Setup};

use self::processors::on_all_processors;
use crate::disk::Model;
use crate::error::{Error, Result};
use crate::json;
use crate::measure::{show_count, show_us};
use crate::nbw::awol::plan;
use crate::nbw::plan::{Cell, Filter};
use crate::nbw::table::aligned;
use crate::report::number;
use crate::stage::{self, WriteBack};
use crate::workload::{SideBySide, Workload};

/// The workloads of 'run awol' in virtual time: the engine is real, drives and programs are models. The same
/// options give the same figures on every machine.
#[derive(Args)]
pub struct Arguments {
    /// Only these disks.
    #[arg(long, value_name = "MODEL", value_delimiter = ',', default_value = "hdd,ssd")]
    disk: Vec<Model>,
    /// Only cases whose name contains one of these, such as 'zrzw' or 'hdd/srsw'.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// The write-back policies to run.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "static,adaptive")]
    policy: Vec<WriteBack>,
    /// Virtual seconds of a load.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Instead, compare two policies of replacement, the engine's and S3-FIFO, on the pages that the
    /// workloads and MobiBench's traces refer to.
    #[arg(long, conflicts_with_all = ["disk", "policy"])]
    replacement: bool,
    /// Keep everything here, with what was sampled every second.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn engines(policy: WriteBack) -> WriteBackPolicy {
    match policy {
        WriteBack::Static => WriteBackPolicy::Static,
        WriteBack::Adaptive => WriteBackPolicy::Adaptive,
    }
}

fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give 0.1 to 3600 seconds".into()),
    }
}

/// One line of the table.
#[derive(Serialize)]
struct Case {
    name: String,
    policy: &'static str,
    outcome: Outcome,
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        if self.replacement {
            let lines = replacement::compare(&self.only, self.seconds)?;
            print!("{}", aligned(&replacement::rows(&lines)));
            return self.save(&lines);
        }
        let cases = self.simulate()?;
        print!("{}", aligned(&rows(&cases)));
        self.save(&cases)
    }

    fn save(&self, figures: &impl Serialize) -> Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        json::save(path, figures)
    }

    fn simulate(&self) -> Result<Vec<Case>> {
        let filter = Filter { disks: self.disk.clone(), names: self.only.clone() };
        let profile = plan::profile(true, None);
        let mut runs = Vec::new();
        for cell in plan::cells(&profile, &[], None, &filter) {
            let Workload::SideBySide(load) = &cell.workload else { continue };
            let load = SideBySide { seconds: self.seconds, ..load.clone() };
            for &policy in &self.policy {
                runs.push((cell.name.clone(), setup(&cell, &load, profile.patch_bytes, policy)));
            }
        }
        if runs.is_empty() {
            return Err(Error::no_such_case("awol-sim"));
        }
        on_all_processors(&runs, |(name, setup)| simulate(name, setup)).into_iter().collect()
    }
}

fn setup(cell: &Cell, load: &SideBySide, patch_bytes: u64, policy: WriteBack) -> Setup {
    let memory_bytes = stage::engine_bytes(cell.memory_bytes);
    Setup {
        load: load.clone(),
        model: cell.disk,
        engine: policy::engine(engines(policy), cell.disk, memory_bytes, patch_bytes),
        trouble: None,
    }
}

fn simulate(name: &str, setup: &Setup) -> Result<Case> {
    let outcome = policy::run(setup).map_err(|error| Error::Engine(error.to_string()))?;
    Ok(Case { name: name.to_owned(), policy: setup.engine.write_back.name(), outcome })
}

fn rows(cases: &[Case]) -> Vec<Vec<String>> {
    let head = [
        "case",
        "policy",
        "reads/s",
        "p50",
        "p99",
        "hits",
        "writes/s",
        "p99",
        "max",
        "disk reads",
        "writes",
        "seeks",
        "paced",
        "blocked",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for Case { name, policy, outcome } in cases {
        let (reads, writes, device) = (&outcome.reads, &outcome.writes, &outcome.device);
        let hits = reads.as_ref().map(|_| format!("{:.1} %", 100.0 * outcome.hit_rate));
        rows.push(vec![
            name.clone(),
            (*policy).to_owned(),
            show(reads, |reads| number(reads.rate)),
            show(reads, |reads| show_us(reads.p50_us)),
            show(reads, |reads| show_us(reads.p99_us)),
            hits.unwrap_or_else(|| "-".into()),
            show(writes, |writes| number(writes.rate)),
            show(writes, |writes| show_us(writes.p99_us)),
            show(writes, |writes| show_us(writes.longest_us)),
            show_count(device.reads),
            show_count(device.writes),
            show_count(device.seeks),
            show_count(outcome.writers_paced),
            show_count(outcome.writers_blocked),
        ]);
    }
    rows
}

fn show(class: &Option<Class>, figure: impl Fn(&Class) -> String) -> String {
    class.as_ref().map_or_else(|| "-".into(), figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn cases(options: &[&str]) -> Result<Vec<Case>> {
        let line = ["run"].iter().chain(options);
        Line::try_parse_from(line).expect("a command line").arguments.simulate()
    }

    #[test]
    fn every_workload_has_its_lines_and_the_figures_are_the_same_again() {
        let options = ["--disk", "ssd", "--seconds", "0.2"];
        let first = cases(&options).unwrap();
        assert_eq!(first.len(), 14, "seven workloads by two policies");
        for case in &first {
            assert!(case.outcome.writes.is_some(), "{}", case.name);
            assert_eq!(case.outcome.reads.is_none(), case.name.contains("/nr"), "{}", case.name);
        }
        let again = cases(&options).unwrap();
        assert!(first.iter().zip(&again).all(|(one, other)| one.outcome == other.outcome));
        let rows = rows(&first);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    }

    #[test]
    fn a_case_that_is_not_there_is_said_so() {
        let said = cases(&["--only", "xrxw"]).err().expect("there is none").to_string();
        assert!(said.contains("--help"), "{said}");
        assert!(Line::try_parse_from(["run", "--seconds", "0"]).is_err());
    }
}
