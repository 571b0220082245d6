//! `weir-bench run fsync`: what an fsync costs on emulated disks, for ext4 and for Weir without and
//! with its redo log, side by side: writers that sync every write, and the recorded traces with
//! their fsyncs.

use std::path::PathBuf;

use clap::Args;

use crate::disk::Model;
use crate::error::Result;
use crate::mount::weir_program;
use crate::nbw::command::Place;
use crate::nbw::perform::{self, Suite};
use crate::nbw::plan::Cell;
use crate::nbw::profile::Form;
use crate::nbw::results::{Experiment, Profile, Results};
use crate::nbw::table;
use crate::report::machine;
use crate::stage::{Contestant, Fetch, Run};
use crate::workload::{Mobibench, SyncedWrites, Trace, Workload};

/// The name of the suite in its JSON.
const SUITE: &str = "fsync";

/// Bytes of a synced write.
const IO_BYTES: u64 = 2048;

/// What an fsync costs on emulated disks: ext4 by the kernel, and Weir without and with its redo
/// log, in the same memory, on the same disk, in turn. Needs root. Ends with zero only if every byte
/// was found right.
#[derive(Args)]
pub struct Arguments {
    /// Three rounds of three seconds each; what there is.
    #[arg(long)]
    quick: bool,
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
        let profile = profile();
        let disks =
            if self.place.disk.is_empty() { vec![Model::Hdd, Model::Ssd] } else { self.place.disk };
        let cells: Vec<Cell> = disks.iter().flat_map(|&disk| cells(disk, &profile)).collect();
        let mut results = Results {
            suite: SUITE.into(),
            command: super::command_line(),
            machine: machine(),
            profile,
            weir: super::identity(&weir)?,
            complete: false,
            took_seconds: 0.0,
            cases: Vec::new(),
        };
        if let Some(path) = &self.json {
            results.save(path)?;
        }
        let disk_bytes =
            cells.iter().map(|cell| perform::disk_bytes(cell, &results.profile)).max().unwrap_or(0);
        let run = Run::new(&self.place.dir, disk_bytes)?;
        let whole = cells.iter().map(|cell| cell.name.clone()).collect();
        let suite = Suite { weir, run, cells, whole, json: self.json };
        suite.perform(&mut results)?;
        println!("\n{}", table::table(&results));
        Ok(())
    }
}

fn profile() -> Profile {
    let quick = Form::Quick.profile();
    Profile { seconds: 3.0, rounds: 3, trace_seconds: 8.0, trace_rounds: 1, ..quick }
}

fn cells(disk: Model, profile: &Profile) -> Vec<Cell> {
    let contestants = vec![Contestant::Ext4, Contestant::Weir(Fetch::Auto), Contestant::WeirLog];
    let mut cells = Vec::new();
    for threads in [1, 8] {
        cells.push(Cell {
            name: format!("{disk}/synced-write/{IO_BYTES}/{threads}"),
            experiment: Experiment::Personality,
            label: format!("synced-write-{threads}"),
            disk,
            size_bytes: IO_BYTES,
            memory_bytes: profile.memory_bytes,
            workload: Workload::SyncedWrites(SyncedWrites {
                threads,
                io_bytes: IO_BYTES,
                file_bytes: profile.file_bytes,
                seconds: profile.seconds,
                seed: 0x73_796e_6365,
            }),
            contestants: contestants.clone(),
            rounds: profile.rounds,
            seconds: profile.seconds,
        });
    }
    for trace in Trace::ALL {
        cells.push(Cell {
            name: format!("{disk}/trace/{trace}"),
            experiment: Experiment::Trace,
            label: trace.to_string(),
            disk,
            size_bytes: 0,
            memory_bytes: profile.memory_bytes,
            workload: Workload::Mobibench(Mobibench {
                trace,
                fsync: true,
                seconds: profile.trace_seconds,
            }),
            contestants: contestants.clone(),
            rounds: profile.trace_rounds,
            seconds: profile.trace_seconds,
        });
    }
    cells
}
