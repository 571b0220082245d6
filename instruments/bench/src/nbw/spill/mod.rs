//! `weir-bench run spill`: small random writes to a cold file that is larger than memory, past what
//! patch memory and, in the end, the redo log hold.
//!
//! With a log Weir need not wait for the file's pages until the log is full, and after that as long
//! as sweeps take to bring home what it holds. `watch` looks at the log while the load runs, `phases`
//! parts the load where the log was full, `bound` is what the rest could reach at most, `judge` shows
//! it and holds it against the goals.

mod bound;
mod judge;
pub mod over_time;
mod phases;
pub mod watch;

use std::path::PathBuf;

use clap::Args;

use crate::disk::Model;
use crate::error::Result;
use crate::mount::weir_program;
use crate::nbw::command::Place;
use crate::nbw::plan::Cell;
use crate::nbw::profile::Form;
use crate::nbw::results::{Experiment, Profile};
use crate::nbw::run::run_whole;
use crate::stage::{Contestant, Fetch};
use crate::workload::{Kind, Personality, Workload};

/// The name of the suite in its JSON.
const SUITE: &str = "spill";
/// Bytes of a write.
const IO_BYTES: u64 = 512;
/// The size of the file over a contestant's memory.
const FILE_TO_MEMORY: u64 = 4;
/// `--patch-memory`.
const PATCH_BYTES: u64 = 16 << 20;
/// `--log-size`, in the full form.
const LOG_BYTES: u64 = 128 << 20;
/// The seed of what is written where.
const SEED: u64 = 0x7370_696c;

/// Small random writes past what patch memory and the redo log hold, on emulated disks: ext4 by the
/// kernel, and Weir without and with a redo log, in the same memory, on the same disk, in turn. Needs
/// root. Ends with zero only if every byte was found right.
#[derive(Args)]
pub struct Arguments {
    /// One round of half a minute with a quarter of the memory and of the file and half of the log,
    /// instead of three of a minute.
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
        let profile = profile(self.quick);
        let disks = if self.place.disk.is_empty() { vec![Model::Hdd] } else { self.place.disk };
        let cells: Vec<Cell> = disks.iter().map(|&disk| cell(disk, &profile)).collect();
        let results = run_whole(SUITE, profile, cells, weir, &self.place.dir, self.json, false)?;
        println!("\n{}", judge::table(&results));
        for share in judge::shares(&results) {
            println!("{share}");
        }
        println!("Goals, Weir with its log");
        for goal in judge::goals(&results) {
            println!("  {goal}");
        }
        Ok(())
    }
}

/// The quick form has less of everything, so that its seconds are several sweeps.
fn profile(quick: bool) -> Profile {
    let (name, memory_bytes, log_bytes, seconds, rounds) = match quick {
        true => ("quick", 64 << 20, LOG_BYTES / 2, 30.0, 1),
        false => ("full", 256 << 20, LOG_BYTES, 60.0, 3),
    };
    Profile {
        name: name.into(),
        scale: 1,
        file_bytes: FILE_TO_MEMORY * memory_bytes,
        memory_bytes,
        patch_bytes: PATCH_BYTES,
        log_bytes,
        seconds,
        rounds,
        ..Form::Quick.profile()
    }
}

fn cell(disk: Model, profile: &Profile) -> Cell {
    Cell {
        name: format!("{disk}/spill/{IO_BYTES}"),
        experiment: Experiment::Spill,
        label: Kind::RandomWrite.to_string(),
        disk,
        size_bytes: IO_BYTES,
        memory_bytes: profile.memory_bytes,
        workload: Workload::Personality(Personality {
            kind: Kind::RandomWrite,
            io_bytes: IO_BYTES,
            file_bytes: profile.file_bytes,
            seconds: profile.seconds,
            seed: SEED,
        }),
        contestants: vec![Contestant::Ext4, Contestant::Weir(Fetch::Auto), Contestant::WeirLog],
        rounds: profile.rounds,
        seconds: profile.seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::bound::Sizes;
    use super::*;

    #[test]
    fn both_forms_outlast_a_sweep_of_the_hard_disk() {
        for quick in [true, false] {
            let profile = profile(quick);
            assert_eq!(profile.file_bytes, 4 * profile.memory_bytes);
            let sizes = Sizes {
                io: IO_BYTES,
                file: profile.file_bytes,
                patches: profile.patch_bytes,
                log: profile.log_bytes,
            };
            let bound = sizes.ops_per_s(Model::Hdd).unwrap();
            let held = (profile.log_bytes / (IO_BYTES + 32)) as f64;
            assert!(held / bound < profile.seconds, "{bound} writes a second");
        }
    }
}
