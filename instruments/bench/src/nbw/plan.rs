//! What is to be run, in order: cells, each one workload on one disk with one size of memory, for
//! several contestants.
//!
//! Cells that share a stage (the same disk, memory and files) stand together.

use strum::VariantArray;

use crate::disk::Model;
use crate::nbw::profile::Form;
use crate::nbw::results::{Experiment, Profile};
use crate::stage::Contestant;
use crate::workload::{FileServer, Kind, Mix, Mobibench, Personality, Trace, Workload};

/// The seed of everything a load draws.
const SEED: u64 = 0x6e62_7731;
/// Threads of the file server.
const THREADS: u32 = 8;

/// One row of figures: a workload, run by every contestant in turn, `rounds` times.
#[derive(Clone)]
pub struct Cell {
    /// See [`crate::nbw::results::Case::name`].
    pub name: String,
    /// As there.
    pub experiment: Experiment,
    /// As there.
    pub label: String,
    /// The disk.
    pub disk: Model,
    /// Bytes of one operation; 0 where they differ.
    pub size_bytes: u64,
    /// Memory of a contestant.
    pub memory_bytes: u64,
    /// The load.
    pub workload: Workload,
    /// Whom to run it for; the first is ext4.
    pub contestants: Vec<Contestant>,
    /// How often.
    pub rounds: u32,
    /// Length of one load, seconds.
    pub seconds: f64,
}

impl Cell {
    /// Whether both run on the same disk, memory and files.
    pub fn shares_stage(&self, other: &Cell) -> bool {
        (self.disk, self.memory_bytes) == (other.disk, other.memory_bytes)
            && self.workload.shares_files_with(&other.workload)
    }

    /// Loads it runs.
    pub fn loads(&self) -> u32 {
        self.rounds * self.contestants.len() as u32
    }
}

/// What of the plan is wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these disks, all if empty.
    pub disks: Vec<Model>,
    /// Only cells whose name contains one of these, all if empty.
    pub names: Vec<String>,
}

impl Filter {
    /// Whether `cell` is.
    pub fn wants(&self, cell: &Cell) -> bool {
        let disk = self.disks.is_empty() || self.disks.contains(&cell.disk);
        let name = self.names.is_empty() || self.names.iter().any(|part| cell.name.contains(part));
        disk && name
    }
}

/// The cells of a form.
pub fn cells(form: Form, profile: &Profile, filter: &Filter) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &disk in form.disks() {
        personalities(form, profile, disk, &mut cells);
        file_server(form, profile, disk, &mut cells);
        traces(form, profile, disk, &mut cells);
    }
    memory(form, profile, &mut cells);
    cells.retain(|cell| filter.wants(cell));
    cells
}

fn personality(profile: &Profile, kind: Kind, io_bytes: u64) -> Workload {
    Workload::Personality(Personality {
        kind,
        io_bytes,
        file_bytes: profile.file_bytes,
        seconds: profile.seconds,
        seed: SEED,
    })
}

fn contestants_of(form: Form, kind: Kind) -> Vec<Contestant> {
    match kind {
        Kind::RandomWrite => form.random_writers(),
        Kind::SequentialWrite | Kind::RandomReadwrite => form.writers(),
        Kind::SequentialRead | Kind::RandomRead => form.readers(),
    }
}

fn personalities(form: Form, profile: &Profile, disk: Model, cells: &mut Vec<Cell>) {
    for &kind in Kind::VARIANTS {
        for &size_bytes in form.sizes() {
            cells.push(Cell {
                name: format!("{disk}/{kind}/{size_bytes}"),
                experiment: Experiment::Personality,
                label: kind.to_string(),
                disk,
                size_bytes,
                memory_bytes: profile.memory_bytes,
                workload: personality(profile, kind, size_bytes),
                contestants: contestants_of(form, kind),
                rounds: profile.rounds,
                seconds: profile.seconds,
            });
        }
    }
}

/// Figure 11: 2 KiB on the hard disk.
fn memory(form: Form, profile: &Profile, cells: &mut Vec<Cell>) {
    const SIZE_BYTES: u64 = 2048;
    let kinds: &[Kind] = match form {
        Form::Quick => &[Kind::RandomWrite],
        Form::Paper => &[Kind::RandomWrite, Kind::RandomReadwrite],
    };
    for &gib in form.memory_gib() {
        let memory_bytes = (gib << 30) / u64::from(profile.scale);
        for &kind in kinds {
            cells.push(Cell {
                name: format!("hdd/memory/{kind}/{SIZE_BYTES}/{gib}G"),
                experiment: Experiment::Memory,
                label: kind.to_string(),
                disk: Model::Hdd,
                size_bytes: SIZE_BYTES,
                memory_bytes,
                workload: personality(profile, kind, SIZE_BYTES),
                contestants: form.variants(),
                rounds: profile.rounds,
                seconds: profile.seconds,
            });
        }
    }
}

/// What a file server on the disk is asked for. The paper's had 500 a second on a hard disk with
/// memory for most of its files; here most of what is read must come from the disk, and an arm
/// gives about a hundred reads a second.
fn offered_per_s(disk: Model) -> f64 {
    match disk {
        Model::Hdd => 120.0,
        Model::Ssd | Model::Remote | Model::None => 1200.0,
    }
}

fn file_server(form: Form, profile: &Profile, disk: Model, cells: &mut Vec<Cell>) {
    let mixes: &[Mix] = match form {
        Form::Quick => &[Mix::STANDARD, Mix::MORE_WRITES],
        Form::Paper => &[Mix::STANDARD, Mix::NO_WRITES, Mix::NO_READS, Mix::MORE_WRITES],
    };
    for &mix in mixes {
        cells.push(Cell {
            name: format!("{disk}/file-server/{mix}"),
            experiment: Experiment::FileServer,
            label: mix.to_string(),
            disk,
            size_bytes: 0,
            memory_bytes: profile.memory_bytes,
            workload: Workload::FileServer(FileServer {
                mix,
                offered_per_s: offered_per_s(disk),
                threads: THREADS,
                file_set_bytes: profile.file_bytes,
                seconds: profile.file_server_seconds,
                seed: SEED,
            }),
            contestants: form.variants(),
            rounds: profile.file_server_rounds,
            seconds: profile.file_server_seconds,
        });
    }
}

fn traces(form: Form, profile: &Profile, disk: Model, cells: &mut Vec<Cell>) {
    for &trace in Trace::VARIANTS {
        for fsync in [true, false] {
            let label = if fsync { trace.to_string() } else { format!("{trace}-no-fsync") };
            cells.push(Cell {
                name: format!("{disk}/trace/{label}"),
                experiment: Experiment::Trace,
                label,
                disk,
                size_bytes: 0,
                memory_bytes: profile.memory_bytes,
                workload: Workload::Mobibench(Mobibench {
                    trace,
                    fsync,
                    seconds: profile.trace_seconds,
                }),
                contestants: form.readers(),
                rounds: profile.trace_rounds,
                seconds: profile.trace_seconds,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_the_first_contestant_is_the_baseline() {
        for form in [Form::Quick, Form::Paper] {
            let cells = cells(form, &form.profile(), &Filter::default());
            let names: HashSet<_> = cells.iter().map(|cell| &cell.name).collect();
            assert_eq!(names.len(), cells.len());
            assert!(cells.iter().all(|cell| cell.contestants[0] == Contestant::Ext4));
        }
    }

    #[test]
    fn a_filter_leaves_only_what_it_names() {
        let form = Form::Paper;
        let filter = Filter { disks: vec![Model::Ssd], names: vec!["random-write/".into()] };
        let cells = cells(form, &form.profile(), &filter);
        assert_eq!(cells.len(), form.sizes().len());
        assert!(cells.iter().all(|cell| cell.name.starts_with("ssd/random-write/")));
    }

    #[test]
    fn loads_are_about_half_of_the_quick_forms_eight_minutes() {
        let form = Form::Quick;
        let cells = cells(form, &form.profile(), &Filter::default());
        let seconds: f64 = cells.iter().map(|cell| f64::from(cell.loads()) * cell.seconds).sum();
        assert!(seconds < 260.0, "{seconds}");
    }
}
