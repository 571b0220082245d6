//! `weir-bench`: the demo, the benchmarks, and the passthrough they compare with.
//!
//! Never linked into `weir`: everything but the engine's own figures is measured through the `weir`
//! command, as its users would meet it.

mod cleanup;
mod cold;
mod content;
mod demo;
mod disk;
mod document;
mod engine;
mod error;
mod fuse;
mod measure;
mod memory;
mod mount;
mod mount_table;
#[expect(dead_code, reason = "for the suite nbw and its report")]
mod nbw;
mod passthrough;
mod plot;
mod report;
mod stage;
mod tables;
mod updates;
#[expect(dead_code, reason = "the suite nbw prepares and verifies")]
mod workload;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::error::{Doing, Result};
use crate::report::Report;

/// Bytes in a page, here as in the engine.
const PAGE_BYTES: usize = weir_engine::PAGE_BYTES;

/// Demo and benchmarks of Weir.
#[derive(Parser)]
#[command(name = "weir-bench", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Show what Weir does: the same programs straight on a directory and through a mount of it,
    /// then every byte compared.
    Demo {
        /// The weir program; by default the one beside this program, or on PATH.
        #[arg(long, value_name = "PATH")]
        weir: Option<PathBuf>,
        /// Where to work. A directory of its own is made in it and removed at the end.
        #[arg(long, value_name = "WORKDIR")]
        dir: PathBuf,
    },
    /// Run benchmarks and hold the figures against the goals.
    Run {
        /// Which.
        #[arg(value_enum, default_value_t = Which::All)]
        which: Which,
        /// The weir program; by default the one beside this program, or on PATH.
        #[arg(long, value_name = "PATH")]
        weir: Option<PathBuf>,
        /// Where to work, on the disk to be measured. A directory of its own is made in it and
        /// removed at the end.
        #[arg(long, value_name = "WORKDIR", default_value = ".")]
        dir: PathBuf,
        /// Also write the results here.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Seconds of load in the memory benchmark.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        memory_seconds: u64,
    },
    /// Print the tables of docs/RESULTS.md from what 'run --json' wrote.
    Tables {
        /// The results.
        results: PathBuf,
    },
    /// Write plots and the tables of RESULTS.md from what 'run nbw --json' wrote.
    Report {
        /// The results.
        results: PathBuf,
        /// The directory of the documents.
        #[arg(long, value_name = "DIR", default_value = "docs")]
        out: PathBuf,
    },
    /// Emulated disks: a block device that behaves like a hard disk, a flash drive or remote storage.
    #[command(subcommand)]
    Disk(disk::command::DiskTask),
    /// Remove what killed runs left: mounts, loop devices, cgroups, processes, directories. Runs
    /// that are going on, and everything else, are left alone.
    Clean {
        /// Only of runs that worked here; also a directory left by a killed demo or benchmark.
        #[arg(long, value_name = "WORKDIR")]
        dir: Option<PathBuf>,
    },
    /// Put up a stage, begin a round, dirty some pages and wait to be killed: for tests.
    #[command(hide = true)]
    Hold {
        /// The weir program; by default the one beside this program, or on PATH.
        #[arg(long, value_name = "PATH")]
        weir: Option<PathBuf>,
        /// Where to work.
        #[arg(long, value_name = "WORKDIR")]
        dir: PathBuf,
        /// The disk.
        #[arg(long, value_enum, default_value_t = disk::Model::None)]
        disk: disk::Model,
        /// Who: ext4, or weir- and a fetch policy.
        #[arg(long, default_value = "weir-lazy")]
        contestant: String,
    },
    /// Serve SOURCE on MOUNTPOINT with a plain FUSE passthrough, the benchmarks' baseline.
    Passthrough {
        /// The directory to serve.
        source: PathBuf,
        /// Where.
        mountpoint: PathBuf,
    },
    /// Run the workload that stands, as JSON, on standard input, on its files in DIRECTORY, and
    /// print its outcome as JSON. Benchmarks start it inside a contestant's memory cgroup.
    #[command(hide = true)]
    Load {
        /// Where the prepared files are.
        directory: PathBuf,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Engine,
    Fuse,
    Memory,
    All,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if cleanup::interrupted() => loop {
            // The signal thread is putting things right and will end the process.
            std::thread::park();
        },
        Err(error) => {
            eprintln!("weir-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Demo { weir, dir } => {
            cleanup::watch_signals().doing("watch signals for", &dir)?;
            demo::run(&mount::weir_program(weir)?, &dir)
        }
        Task::Run { which, weir, dir, json, memory_seconds } => {
            cleanup::watch_signals().doing("watch signals for", &dir)?;
            let weir = mount::weir_program(weir)?;
            let wanted = |one| which == one || which == Which::All;
            let mut report = Report::default();
            if wanted(Which::Engine) {
                engine::run(&mut report)?;
            }
            if wanted(Which::Fuse) {
                fuse::run(&weir, &dir, &mut report)?;
            }
            if wanted(Which::Memory) {
                memory::run(&weir, &dir, Duration::from_secs(memory_seconds), &mut report)?;
            }
            report.print_goals();
            match json {
                Some(path) => report.save(&path),
                None => Ok(()),
            }
        }
        Task::Tables { results } => tables::print(&results),
        Task::Report { results, out } => {
            for path in document::report(&results, &out)? {
                println!("{}", path.display());
            }
            Ok(())
        }
        Task::Disk(task) => disk::command::run(task),
        Task::Clean { dir } => stage::clean::run(dir.as_deref()),
        Task::Hold { weir, dir, disk, contestant } => {
            cleanup::watch_signals().doing("watch signals for", &dir)?;
            stage::hold::run(mount::weir_program(weir)?, &dir, disk, &contestant)
        }
        Task::Passthrough { source, mountpoint } => {
            passthrough::serve(&source, &mountpoint).doing("mount a passthrough on", &mountpoint)
        }
        Task::Load { directory } => workload::load(&directory),
    }
}
