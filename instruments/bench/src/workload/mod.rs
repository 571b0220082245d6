//! What is run on a contestant's files, and how it is known afterwards that every byte is right.
//!
//! A [`Workload`] prepares its files at home, straight on the disk's file system; is run in the
//! directory where a contestant shows them, by a child process (`weir-bench load`) that can be put
//! in a memory cgroup; and then compares what is at home with what the run must have left there.
//! Nothing here knows of Weir: all of it works on any directory.
//!
//! Invariants: the same workload does the same operations in the same order on each contestant,
//! only how many it gets through differs; what an operation writes follows from the seed and the
//! operation's number, so a load keeps no record but how many operations were done; nothing but
//! system calls on the files is timed.

mod build;
mod calls;
mod commits;
mod dpkg;
mod file_server;
mod fio;
mod git_tree;
mod inserts;
mod job;
mod mariadb;
mod mobibench;
mod outcome;
mod personality;
mod pgbench;
mod postgres;
mod postmark;
mod prepared;
mod read_log;
mod redis;
#[cfg(test)]
pub mod scratch;
mod script;
mod side_by_side;
mod slots;
mod small_file;
mod sqlite;
mod stamp;
mod synced_writes;
mod timeline;
mod tpcc;
pub mod tree;
mod web;

use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};

pub use build::{Build, require as require_build};
pub use calls::{Call, Calls, Where};
pub use commits::Commits;
pub use dpkg::{Dpkg, require as require_dpkg};
pub use file_server::{FileServer, Mix};
pub use fio::{Engine, Fio, job as fio_job, require as require_fio};
pub use git_tree::{GitTree, git, require as require_git, tree as git_tree, verify as verify_git};
pub use inserts::{Inserts, Journal};
pub use job::Job;
pub use job::command_under;
pub use mariadb::{Mariadb, require as require_mariadb};
pub use mobibench::{Mobibench, Trace};
pub use outcome::{ALL, Class, ClassOutcome, Outcome, Tally};
pub use personality::{FILE as PERSONALITY_FILE, Kind, Personality};
pub use pgbench::Pgbench;
pub use postgres::{owner as postgres_owner, require as require_postgres};
pub use postmark::Postmark;
pub use prepared::{Prepared, compare};
pub use redis::{Redis, require as require_redis};
pub use script::{Script, require as require_script};
pub use side_by_side::{Access, SideBySide, WORKLOADS};
pub use slots::{PREPARED_SEED, Slots};
pub use small_file::{small_content, verify_small};
pub use sqlite::Sqlite;
pub use synced_writes::SyncedWrites;
pub use timeline::{Timeline, monotonic_ns};
pub use tpcc::{Tpcc, WAREHOUSE_BYTES};
pub use web::{Web, serve as serve_web};

/// Something to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// One of Filebench's micro-benchmarks on one large file.
    Personality(Personality),
    /// A file server's mix of operations at a fixed rate.
    FileServer(FileServer),
    /// A trace of a mobile application.
    Mobibench(Mobibench),
    /// Writers that sync every write.
    SyncedWrites(SyncedWrites),
    /// Small transactions of SQLite.
    Sqlite(Sqlite),
    /// PostgreSQL's own benchmark.
    Pgbench(Pgbench),
    /// Readers and writers, each with files of its own.
    SideBySide(SideBySide),
    /// A C project, unpacked and built.
    Build(Build),
    /// TPC-C's transactions on PostgreSQL.
    Tpcc(Tpcc),
    /// One call, again and again.
    Calls(Calls),
    /// Transactions of SQLite that add rows.
    Inserts(Inserts),
    /// fio's mix of random reads and writes.
    Fio(Fio),
    /// Redis with its append-only file.
    Redis(Redis),
    /// What git finds changed in a tree of many files.
    GitTree(GitTree),
    /// git commits.
    Commits(Commits),
    /// A script that changes settings.
    Script(Script),
    /// A pool of small files.
    Postmark(Postmark),
    /// Small transactions of MariaDB.
    Mariadb(Mariadb),
    /// Packages unpacked by dpkg.
    Dpkg(Dpkg),
    /// A web server's mix.
    Web(Web),
}

impl Workload {
    /// Whether both start from the very same files, so that one's [`Job::prepare`] does for
    /// the other.
    pub fn shares_files_with(&self, other: &Workload) -> bool {
        match (self, other) {
            (Workload::Personality(one), Workload::Personality(other)) => {
                one.file_bytes == other.file_bytes
            }
            (Workload::FileServer(one), Workload::FileServer(other)) => {
                one.shares_files_with(other)
            }
            (Workload::Mobibench(one), Workload::Mobibench(other)) => one.trace == other.trace,
            (Workload::SyncedWrites(one), Workload::SyncedWrites(other)) => {
                (one.threads, one.file_bytes) == (other.threads, other.file_bytes)
            }
            (Workload::Sqlite(_), Workload::Sqlite(_)) => true,
            (Workload::Pgbench(one), Workload::Pgbench(other)) => one.scale == other.scale,
            (Workload::SideBySide(one), Workload::SideBySide(other)) => {
                one.shares_files_with(other)
            }
            (Workload::Build(one), Workload::Build(other)) => one == other,
            (Workload::Tpcc(one), Workload::Tpcc(other)) => one.warehouses == other.warehouses,
            (Workload::Calls(one), Workload::Calls(other)) => one.shares_files_with(other),
            (Workload::Inserts(one), Workload::Inserts(other)) => one.journal == other.journal,
            (Workload::Fio(one), Workload::Fio(other)) => one.file_bytes == other.file_bytes,
            (Workload::Redis(_), Workload::Redis(_)) => true,
            (Workload::GitTree(one), Workload::GitTree(other)) => one.files == other.files,
            (Workload::Commits(_), Workload::Commits(_))
            | (Workload::Script(_), Workload::Script(_))
            | (Workload::Postmark(_), Workload::Postmark(_))
            | (Workload::Mariadb(_), Workload::Mariadb(_))
            | (Workload::Web(_), Workload::Web(_)) => true,
            (Workload::Dpkg(one), Workload::Dpkg(other)) => one == other,
            _ => false,
        }
    }

    /// Whether some of it is done by another user than the one who mounts.
    pub fn is_of_another_user(&self) -> bool {
        matches!(self, Workload::Pgbench(_) | Workload::Tpcc(_))
    }

    /// The same with its server run by this command, and its clients not; `None` if it has no server.
    pub fn with_server_under(&self, command: &[String]) -> Option<Workload> {
        let server_under = command.to_vec();
        match self {
            Workload::Redis(job) => Some(Workload::Redis(Redis { server_under, ..job.clone() })),
            Workload::Pgbench(job) => {
                Some(Workload::Pgbench(Pgbench { server_under, ..job.clone() }))
            }
            Workload::Web(job) => Some(Workload::Web(Web { server_under, ..job.clone() })),
            _ => None,
        }
    }

    /// What its processes take of a contestant's memory, bytes, that is not to be counted on for files.
    pub fn process_bytes(&self) -> u64 {
        match self {
            Workload::Build(_) => build::PROCESS_BYTES,
            Workload::Tpcc(_) => tpcc::PROCESS_BYTES,
            _ => 0,
        }
    }
}

/// All a workload does is its kind's.
impl Deref for Workload {
    type Target = dyn Job;

    fn deref(&self) -> &(dyn Job + 'static) {
        match self {
            Workload::Personality(job) => job,
            Workload::FileServer(job) => job,
            Workload::Mobibench(job) => job,
            Workload::SyncedWrites(job) => job,
            Workload::Sqlite(job) => job,
            Workload::Pgbench(job) => job,
            Workload::SideBySide(job) => job,
            Workload::Build(job) => job,
            Workload::Tpcc(job) => job,
            Workload::Calls(job) => job,
            Workload::Inserts(job) => job,
            Workload::Fio(job) => job,
            Workload::Redis(job) => job,
            Workload::GitTree(job) => job,
            Workload::Commits(job) => job,
            Workload::Script(job) => job,
            Workload::Postmark(job) => job,
            Workload::Mariadb(job) => job,
            Workload::Dpkg(job) => job,
            Workload::Web(job) => job,
        }
    }
}

/// A run, to be compared with what it left.
#[derive(Serialize, Deserialize)]
pub struct Ran {
    /// What was run.
    pub workload: Workload,
    /// What it said of itself.
    pub outcome: Outcome,
}

/// `weir-bench check DIRECTORY`: reads a run as JSON from standard input, compares the files in the directory with
/// what it must have left there, and writes `true` to standard output.
pub fn check(directory: &Path) -> Result<()> {
    let ran: Ran = serde_json::from_str(&input(directory)?).map_err(|error| {
        Error::answer(
            "the one who started the check",
            format!("its standard input is no run ({error})"),
        )
    })?;
    ran.workload.verify(directory, &ran.outcome)?;
    println!("true");
    Ok(())
}

fn input(directory: &Path) -> Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).doing("read the workload for", directory)?;
    Ok(text)
}

/// `weir-bench load DIRECTORY`: reads a workload as JSON from standard input, runs it, and writes
/// its [`Outcome`] as JSON to standard output.
pub fn load(directory: &Path) -> Result<()> {
    let workload: Workload = serde_json::from_str(&input(directory)?).map_err(|error| {
        Error::answer(
            "the one who started the load",
            format!("its standard input is no workload ({error})"),
        )
    })?;
    let outcome = workload.run(directory)?;
    serde_json::to_writer(io::stdout(), &outcome)
        .map_err(io::Error::from)
        .doing("write the outcome of", directory)?;
    println!();
    Ok(())
}
