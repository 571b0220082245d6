//! `weir-bench run fsync`: what an fsync costs on emulated disks, for ext4 and for Weir without and
//! with its redo log, side by side: writers that sync every write, the recorded traces with their
//! fsyncs, SQLite and PostgreSQL.

use std::path::PathBuf;

use clap::Args;
use strum::VariantArray;

use crate::disk::Model;
use crate::error::{Error, Result};
use crate::mount::weir_program;
use crate::nbw::command::Place;
use crate::nbw::goals::{Goal, SLOWER, Unit, worst};
use crate::nbw::names::DEFAULT;
use crate::nbw::plan::{Cell, Filter};
use crate::nbw::profile::Form;
use crate::nbw::results::{Case, Experiment, Profile, Results};
use crate::nbw::run::run_whole;
use crate::nbw::table;
use crate::sqlite_shell;
use crate::stage::{Contestant, Fetch};
use crate::workload::{
    Mobibench, Pgbench, Sqlite, SyncedWrites, Trace, Workload, require_postgres,
};

/// The name of the suite in its JSON.
const SUITE: &str = "fsync";

/// Bytes of a synced write.
const IO_BYTES: u64 = 2048;
/// Clients of pgbench.
const CLIENTS: [u32; 2] = [1, 4];
/// pgbench's scale: 65 MB of accounts, about a third of a contestant's memory.
const SCALE: u32 = 5;
/// How much longer than the other loads pgbench runs: its first transactions are not like the rest.
const PGBENCH_SECONDS_MORE: u64 = 2;
/// The seed of what is written where.
const SEED: u64 = 0x73_796e_6365;

/// What databases are to reach on the hard disk, times ext4.
const DATABASE_ON_HDD: f64 = 1.5;

/// What an fsync costs on emulated disks: ext4 by the kernel, and Weir without and with its redo
/// log, in the same memory, on the same disk, in turn. Needs root. Ends with zero only if every byte
/// was found right.
#[derive(Args)]
pub struct Arguments {
    /// Two rounds of two seconds instead of three of three, at most eight minutes in all.
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains one of these, such as 'synced-write' or 'hdd/pgbench'.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// Keep the results here, case by case as they come.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        let weir = weir_program(self.place.weir)?;
        let profile = profile(self.quick);
        let disks =
            if self.place.disk.is_empty() { vec![Model::Hdd, Model::Ssd] } else { self.place.disk };
        let filter = Filter { disks, names: self.only };
        let (cells, passed_over) = plan(&profile, &filter);
        if cells.is_empty() {
            return Err(nothing_to_run(&passed_over));
        }
        for why in &passed_over {
            println!("{why}");
        }
        let results = run_whole(SUITE, profile, cells, weir, &self.place.dir, self.json, false)?;
        println!("\n{}", table::table(&results));
        for why in &passed_over {
            println!("{why}");
        }
        println!("Goals for databases, Weir with its log");
        for goal in goals(&results) {
            println!("  {goal}");
        }
        Ok(())
    }
}

fn profile(quick: bool) -> Profile {
    let full = Profile {
        name: "full".into(),
        seconds: 3.0,
        rounds: 3,
        trace_seconds: 8.0,
        trace_rounds: 1,
        ..Form::Quick.profile()
    };
    if !quick {
        return full;
    }
    Profile { name: "quick".into(), seconds: 2.0, rounds: 2, trace_seconds: 5.0, ..full }
}

fn nothing_to_run(passed_over: &[String]) -> Error {
    if !passed_over.is_empty() {
        return Error::Missing { what: "nothing is left".into(), remedy: passed_over.join("; ") };
    }
    Error::no_such_case(SUITE)
}

/// The cells, and why databases that are not installed are passed over.
fn plan(profile: &Profile, filter: &Filter) -> (Vec<Cell>, Vec<String>) {
    let mut cells = Vec::new();
    for &disk in &filter.disks {
        synced_writes(disk, profile, &mut cells);
        traces(disk, profile, &mut cells);
        sqlite(disk, profile, &mut cells);
        pgbench(disk, profile, &mut cells);
    }
    cells.retain(|cell| filter.wants(cell));
    let mut passed_over = Vec::new();
    for (installed, part) in
        [(sqlite_shell::require(), "/sqlite"), (require_postgres(), "/pgbench")]
    {
        let wanted = cells.iter().any(|cell| cell.name.contains(part));
        if let Err(why) = installed
            && wanted
        {
            cells.retain(|cell| !cell.name.contains(part));
            passed_over.push(format!("passed over: {}: {why}", &part[1..]));
        }
    }
    (cells, passed_over)
}

/// One case for ext4 and for Weir without and with its log.
fn cell(
    disk: Model,
    profile: &Profile,
    (name, label, size_bytes): (String, String, u64),
    workload: Workload,
) -> Cell {
    Cell {
        name: format!("{disk}/{name}"),
        experiment: Experiment::Personality,
        label,
        disk,
        size_bytes,
        memory_bytes: profile.memory_bytes,
        workload,
        contestants: vec![Contestant::Ext4, Contestant::Weir(Fetch::Auto), Contestant::WeirLog],
        rounds: profile.rounds,
        seconds: profile.seconds,
    }
}

fn synced_writes(disk: Model, profile: &Profile, cells: &mut Vec<Cell>) {
    for threads in [1, 8] {
        let name = format!("synced-write/{IO_BYTES}/{threads}");
        let label = format!("synced-write-{threads}");
        let workload = Workload::SyncedWrites(SyncedWrites {
            threads,
            io_bytes: IO_BYTES,
            file_bytes: profile.file_bytes,
            seconds: profile.seconds,
            seed: SEED,
        });
        cells.push(cell(disk, profile, (name, label, IO_BYTES), workload));
    }
}

fn traces(disk: Model, profile: &Profile, cells: &mut Vec<Cell>) {
    for &trace in Trace::VARIANTS {
        let seconds = profile.trace_seconds;
        let workload = Workload::Mobibench(Mobibench { trace, fsync: true, seconds });
        let label = trace.to_string();
        let name = format!("trace/{label}");
        cells.push(Cell {
            experiment: Experiment::Trace,
            rounds: profile.trace_rounds,
            seconds,
            ..cell(disk, profile, (name, label, 0), workload)
        });
    }
}

/// So many transactions that ext4 has some seconds to do.
fn sqlite(disk: Model, profile: &Profile, cells: &mut Vec<Cell>) {
    let per_second = match disk {
        Model::Hdd => 15.0,
        Model::Ssd | Model::Remote | Model::None => 300.0,
    };
    let transactions = (per_second * profile.seconds) as u64;
    let workload = Workload::Sqlite(Sqlite { transactions, seed: SEED });
    cells.push(cell(disk, profile, ("sqlite".into(), "sqlite".into(), 0), workload));
}

fn pgbench(disk: Model, profile: &Profile, cells: &mut Vec<Cell>) {
    for clients in CLIENTS {
        let seconds = profile.seconds as u64 + PGBENCH_SECONDS_MORE;
        let workload =
            Workload::Pgbench(Pgbench { clients, scale: SCALE, seconds, server_under: Vec::new() });
        let named = (format!("pgbench/{clients}"), format!("pgbench-{clients}"), 0);
        let seconds = seconds as f64;
        cells.push(Cell { seconds, ..cell(disk, profile, named, workload) });
    }
}

/// The goals for the databases, held against Weir with its log; beside it Weir without.
fn goals(results: &Results) -> Vec<Goal> {
    let database = |case: &&Case| case.workload == "sqlite" || case.workload.starts_with("pgbench");
    let measure = |who: &str, disks: &[Model]| {
        let cases = results.cases.iter().filter(|case| case.contestant == who);
        let cases = cases.filter(|case| disks.contains(&case.disk)).filter(database);
        worst(cases.map(|case| (case.name.clone(), case.ratio_to_blocking)))
    };
    let log = Contestant::WeirLog.name();
    let goal = |name: &str, need: f64, disks: &[Model]| Goal {
        name: name.into(),
        need,
        unit: Unit::Times,
        measured: measure(&log, disks),
        best: measure(DEFAULT, disks).map(|measured| (DEFAULT.to_owned(), measured)),
    };
    vec![
        goal("hdd, databases", DATABASE_ON_HDD, &[Model::Hdd]),
        goal("no database slower than ext4", SLOWER, &[Model::Hdd, Model::Ssd, Model::Remote]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::sample;

    #[test]
    fn what_shares_files_stands_together_and_names_are_unique() {
        let filter = Filter { disks: vec![Model::Hdd, Model::Ssd], names: Vec::new() };
        let (cells, _) = plan(&profile(true), &filter);
        let mut names: Vec<_> = cells.iter().map(|cell| &cell.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cells.len());
        let filter = Filter { names: vec!["ssd/trace".into()], ..filter };
        assert_eq!(plan(&profile(false), &filter).0.len(), Trace::VARIANTS.len());
    }

    #[test]
    fn databases_are_held_against_the_log_and_each_by_its_worst() {
        let mut results = sample::results();
        results.cases.truncate(4);
        results.cases.remove(2);
        for (case, (who, ratio)) in
            results.cases.iter_mut().zip([("ext4", 1.0), ("weir-log", 1.4), ("weir-auto", 0.9)])
        {
            case.workload = "pgbench-4".into();
            (case.contestant, case.ratio_to_blocking) = (who.into(), ratio);
        }
        let goals = goals(&results);
        assert_eq!(goals.iter().map(Goal::reached).collect::<Vec<_>>(), [Some(false), Some(true)]);
        let shown = goals[0].to_string();
        assert!(shown.contains("1.400 x") && shown.contains("weir-auto 0.900 x"), "{shown}");
    }
}
