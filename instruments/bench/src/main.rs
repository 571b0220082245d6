//! `weir-bench`: the demo, the benchmarks, and the passthrough they compare with.
//!
//! Never linked into `weir`: everything but the engine's own figures is measured through the `weir`
//! command, as its users would meet it.

mod awol_sim;
mod bucket;
mod cleanup;
mod cold;
mod content;
mod demo;
mod disk;
mod document;
mod engine;
mod error;
mod external;
mod form;
mod fuse;
mod fuse_server;
mod json;
mod lane;
mod measure;
mod memory;
mod mount;
mod mount_table;
mod names;
mod nbw;
mod own_disk;
mod page;
mod passthrough;
mod picture;
mod plot;
mod recovery;
mod report;
mod soon;
mod sqlite_shell;
mod stage;
mod tables;
mod threads;
mod trial;
mod updates;
mod workload;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use strum::VariantArray;

use crate::error::{Doing, Result};
use crate::own_disk::OwnDisk;
use crate::report::Report;

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
        /// Only this scene.
        #[arg(long)]
        scene: Option<demo::Scene>,
    },
    /// Run benchmarks and hold the figures against the goals.
    #[command(subcommand)]
    Run(Suite),
    /// Print the tables of docs/results/engine.md from what 'run --json' wrote.
    Tables {
        /// The results.
        results: PathBuf,
    },
    /// Write the plots and tables of docs/results from what 'run nbw --json', 'run awol --json'
    /// or 'run lane --json' wrote.
    Report {
        /// The results.
        results: PathBuf,
        /// Results of other runs of the same suite, of other cases: those of 'run awol --sweep'.
        #[arg(long, value_name = "FILE", value_delimiter = ',')]
        add: Vec<PathBuf>,
        /// The directory of the documents.
        #[arg(long, value_name = "DIR", default_value = "docs/results")]
        out: PathBuf,
    },
    /// Draw docs/results.svg, the picture of the README, from the bold figures of docs/RESULTS.md.
    Picture(picture::Arguments),
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
        /// The contestant: ext4, or weir- and a fetch policy.
        #[arg(long, default_value = "weir-lazy")]
        contestant: String,
    },
    /// Serve SOURCE on MOUNTPOINT with a plain FUSE passthrough, the benchmarks' baseline.
    Passthrough {
        /// The directory to serve.
        source: PathBuf,
        /// The directory to mount it on.
        mountpoint: PathBuf,
    },
    /// The network between sshfs and an SFTP server: sshfs starts this in the place of ssh.
    #[command(hide = true)]
    Relay(names::relay::Arguments),
    /// Programs for the tests of the lane.
    #[command(hide = true, subcommand)]
    Trial(trial::Trial),
    /// Read a run as JSON from standard input, and compare the files in DIRECTORY with what it must
    /// have left there.
    #[command(hide = true)]
    Check {
        /// Where the files are.
        directory: PathBuf,
    },
    /// Read a workload as JSON from standard input, run it on its files in DIRECTORY, and print its
    /// outcome as JSON. Benchmarks start it inside a contestant's memory cgroup.
    #[command(hide = true)]
    Load {
        /// Where the prepared files are.
        directory: PathBuf,
    },
    /// Serve a site's pages and take its records on a port of its own, which it prints, until standard input ends.
    #[command(hide = true)]
    WebServer {
        /// Where the site's files are.
        directory: PathBuf,
    },
}

#[derive(Subcommand)]
enum Suite {
    /// The engine alone: what a small write costs it.
    Engine(Local),
    /// Weir, a passthrough and the directory itself, on this machine's own disk.
    Fuse(Local),
    /// Memory of the daemon under load.
    Memory(Local),
    /// The three suites engine, fuse and memory.
    All(Local),
    Nbw(nbw::command::Arguments),
    Fsync(nbw::synced::Arguments),
    Spill(nbw::spill::Arguments),
    Awol(nbw::awol::Arguments),
    AwolSim(awol_sim::Arguments),
    Recovery(recovery::Arguments),
    Lane(lane::Arguments),
    Names(names::Arguments),
    Sync(external::Arguments),
    Bucket(bucket::Arguments),
}

/// One of the benchmarks on this machine's own disk.
#[derive(Clone, Copy, VariantArray)]
enum Benchmark {
    Engine,
    Fuse,
    Memory,
}

/// What the benchmarks on this machine's own disk take.
#[derive(clap::Args)]
struct Local {
    #[command(flatten)]
    own: OwnDisk,
    /// Seconds of load in the memory benchmark.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    memory_seconds: u64,
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
        Task::Demo { weir, dir, scene } => {
            cleanup::watch_signals().doing("watch signals for", &dir)?;
            demo::run(&mount::weir_program(weir)?, &dir, scene)
        }
        Task::Run(suite) => {
            cleanup::watch_signals().doing("watch signals for", Path::new("this program"))?;
            match suite {
                Suite::Engine(local) => local.run(&[Benchmark::Engine]),
                Suite::Fuse(local) => local.run(&[Benchmark::Fuse]),
                Suite::Memory(local) => local.run(&[Benchmark::Memory]),
                Suite::All(local) => local.run(Benchmark::VARIANTS),
                Suite::Nbw(arguments) => arguments.run(),
                Suite::Fsync(arguments) => arguments.run(),
                Suite::Spill(arguments) => arguments.run(),
                Suite::Awol(arguments) => arguments.run(),
                Suite::AwolSim(arguments) => arguments.run(),
                Suite::Recovery(arguments) => arguments.run(),
                Suite::Lane(arguments) => arguments.run(),
                Suite::Names(arguments) => arguments.run(),
                Suite::Sync(arguments) => arguments.run(),
                Suite::Bucket(arguments) => arguments.run(),
            }
        }
        Task::Tables { results } => tables::print(&results),
        Task::Report { results, add, out } => {
            for path in document::report(&results, &add, &out)? {
                println!("{}", path.display());
            }
            Ok(())
        }
        Task::Picture(arguments) => arguments.run(),
        Task::Disk(task) => disk::command::run(task),
        Task::Clean { dir } => stage::clean::run(dir.as_deref()),
        Task::Hold { weir, dir, disk, contestant } => {
            cleanup::watch_signals().doing("watch signals for", &dir)?;
            stage::hold::run(mount::weir_program(weir)?, &dir, disk, &contestant)
        }
        Task::Passthrough { source, mountpoint } => {
            passthrough::serve(&source, &mountpoint).doing("mount a passthrough on", &mountpoint)
        }
        Task::Relay(arguments) => arguments.run(),
        Task::Trial(trial) => trial::run(trial),
        Task::Check { directory } => workload::check(&directory),
        Task::Load { directory } => workload::load(&directory),
        Task::WebServer { directory } => workload::serve_web(&directory),
    }
}

impl Local {
    fn run(self, benchmarks: &[Benchmark]) -> Result<()> {
        let weir = mount::weir_program(self.own.weir)?;
        let mut report = Report::default();
        for benchmark in benchmarks {
            match benchmark {
                Benchmark::Engine => engine::run(&mut report),
                Benchmark::Fuse => fuse::run(&weir, &self.own.dir, &mut report),
                Benchmark::Memory => {
                    let time = Duration::from_secs(self.memory_seconds);
                    memory::run(&weir, &self.own.dir, time, &mut report)
                }
            }?;
        }
        report.print_goals();
        self.own.json.as_ref().map_or(Ok(()), |path| report.save(path))
    }
}
