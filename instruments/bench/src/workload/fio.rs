//! fio: 4 KiB reads and writes at random, half and half, by one of its engines.
//!
//! What fio writes has no meaning here, and its file is only known to keep its size: that its writes arrive is for the
//! end-to-end tests, which have fio verify them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::Display;

use crate::cold::make_file;
use crate::error::{Doing, Error, Result};
use crate::mount::{require_program, run};
use crate::page::PAGE;
use crate::workload::job::Job;
use crate::workload::outcome::{ALL, ClassOutcome, Outcome};
use crate::workload::slots::PREPARED_SEED;

/// Requests that libaio has under way.
const DEPTH: u32 = 16;

/// How fio does its I/O, by its own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// pread(2) and pwrite(2), through the page cache.
    Psync,
    /// lseek(2), read(2) and write(2), through the page cache.
    Sync,
    /// io_submit(2), with O_DIRECT.
    Libaio,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fio {
    /// The engine.
    pub engine: Engine,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// For how long.
    pub seconds: f64,
}

/// Fails, saying what to do, where there is no fio.
pub fn require() -> Result<()> {
    require_program("fio", "fio")
}

impl Job for Fio {
    fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        make_file(&file(home), PREPARED_SEED, self.file_bytes / PAGE)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut command = Command::new("fio");
        command
            .args(["--name=mix", "--rw=randrw", "--bs=4k", "--randseed=7", "--time_based"])
            .args(["--fallocate=none", "--output-format=json", "--group_reporting"])
            .arg(format!("--ioengine={}", self.engine))
            .arg(format!("--filename={}", file(directory).display()))
            .arg(format!("--size={}", self.file_bytes))
            .arg(format!("--runtime={:.0}ms", self.seconds * 1e3));
        match self.engine {
            // What is read before is in memory.
            Engine::Psync | Engine::Sync => command.arg("--pre_read=1"),
            Engine::Libaio => command.args(["--direct=1", &format!("--iodepth={DEPTH}")]),
        };
        outcome(&run(&mut command)?.stdout)
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let path = file(home);
        let found = path.metadata().doing("look at", &path)?.len();
        if found == self.file_bytes {
            return Ok(());
        }
        let (path, wanted) = (path.display(), self.file_bytes);
        Err(Error::Different(format!("{path} has {found} bytes instead of {wanted}")))
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("fio.data")
}

/// What fio's JSON, before which it may say something, has of its one job.
pub fn job(said: &[u8]) -> Result<Value> {
    let begin = said.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let mut value: Value =
        serde_json::from_slice(&said[begin..]).map_err(|error| Error::answer("fio", error))?;
    Ok(value["jobs"][0].take())
}

fn outcome(said: &[u8]) -> Result<Outcome> {
    let unclear = |why: String| Error::answer("fio", why);
    let job = job(said)?;
    let class = |name: &str| -> Result<ClassOutcome> {
        let part = &job[name];
        let number = |value: &Value| value.as_f64().filter(|number| *number >= 0.0);
        let us = |value: &Value| number(value).unwrap_or(0.0) / 1e3;
        let ops_per_s = number(&part["iops"]).ok_or_else(|| unclear(format!("no {name}.iops")))?;
        let percentile = |which: &str| us(&part["clat_ns"]["percentile"][which]);
        Ok(ClassOutcome {
            class: name.into(),
            ops: part["total_ios"].as_u64().unwrap_or(0),
            ops_per_s,
            mean_us: us(&part["clat_ns"]["mean"]),
            p50_us: percentile("50.000000"),
            p99_us: percentile("99.000000"),
            max_us: us(&part["clat_ns"]["max"]),
        })
    };
    let (read, write) = (class("read")?, class("write")?);
    if read.ops + write.ops == 0 {
        return Err(unclear("it did nothing".into()));
    }
    let all = ClassOutcome {
        class: ALL.into(),
        ops: read.ops + write.ops,
        ops_per_s: read.ops_per_s + write.ops_per_s,
        mean_us: (read.mean_us * read.ops as f64 + write.mean_us * write.ops as f64)
            / (read.ops + write.ops) as f64,
        p50_us: read.p50_us.max(write.p50_us),
        p99_us: read.p99_us.max(write.p99_us),
        max_us: read.max_us.max(write.max_us),
    };
    Ok(Outcome {
        seconds: job["job_runtime"].as_f64().unwrap_or(0.0) / 1e3,
        done: vec![read.ops, write.ops],
        classes: vec![read, write, all],
        ..Outcome::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_says_is_understood() {
        let said = br#"fio: a note
{"jobs": [{"job_runtime": 1000,
  "read": {"iops": 10.5, "total_ios": 10, "io_bytes": 40960, "clat_ns": {"mean": 2000.0, "max": 9000,
           "percentile": {"50.000000": 1500, "99.000000": 8000}}},
  "write": {"iops": 20.0, "total_ios": 20, "io_bytes": 81920, "clat_ns": {"mean": 5000.0, "max": 7000,
           "percentile": {"50.000000": 4000, "99.000000": 6000}}}}]}"#;
        let outcome = outcome(said).unwrap();
        let all = outcome.class("all").unwrap();
        assert_eq!((all.ops, all.ops_per_s), (30, 30.5));
        assert!((all.mean_us - 4.0).abs() < 1e-9);
        assert_eq!(outcome.class("write").unwrap().p50_us, 4.0);
        assert!(super::outcome(b"nothing").is_err());
    }
}
