//! What a run of the suite found: the JSON that `weir-bench run nbw --json` writes and
//! `weir-bench report` reads.
//!
//! Everything the report needs is in it, each repetition too, so that figures can be made again
//! from the committed file.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::VariantArray;

use crate::disk::Model;
use crate::error::{Doing, Error, Result};
use crate::json;
use crate::stage::LOG_BYTES;

/// The name of the suite in its JSON.
pub const SUITE: &str = "nbw";

/// One run, or what of it is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Which it is: [`SUITE`] or another that keeps its results alike.
    pub suite: String,
    /// The command that made it.
    pub command: String,
    /// What it ran on.
    pub machine: Value,
    /// The sizes and times it ran with.
    pub profile: Profile,
    /// What `weir --version` said, and a checksum of the program.
    pub weir: String,
    /// Whether every case of the profile is in.
    pub complete: bool,
    /// Seconds the whole run took, all its parts.
    pub took_seconds: f64,
    /// One for each contestant in each experiment.
    pub cases: Vec<Case>,
}

/// Sizes and times of a run. The paper's are divided by `scale` alike, memory, file and time, so
/// that the proportions between them, which set the result, stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// `quick` or `paper`.
    pub name: String,
    /// What the paper's sizes and times were divided by.
    pub scale: u32,
    /// Bytes of the preallocated file of the personalities; 5 GB in the paper.
    pub file_bytes: u64,
    /// Memory of a contestant, bytes; 4 GB in the paper.
    pub memory_bytes: u64,
    /// Of it for patches, bytes; 64 MB in the paper.
    pub patch_bytes: u64,
    /// Size of the redo log of the contestant that has one, bytes. Runs of before it was stated had
    /// Weir's default.
    #[serde(default = "default_log_bytes")]
    pub log_bytes: u64,
    /// Length of one personality's run, seconds; 60 in the paper.
    pub seconds: f64,
    /// Length of one file-server run, seconds.
    pub file_server_seconds: f64,
    /// How much of each trace is replayed, seconds of its own time.
    pub trace_seconds: f64,
    /// Repetitions of each personality; 3 in the paper.
    pub rounds: u32,
    /// Repetitions of the file server.
    pub file_server_rounds: u32,
    /// Repetitions of each trace; 5 in the paper.
    pub trace_rounds: u32,
    /// The files of [`Experiment::SideBySide`], in a run that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side_by_side: Option<Sizes>,
}

/// The files and times of [`Experiment::SideBySide`]. It is AWOL's sizes, not NBW's, that are divided
/// by [`Profile::scale`]: the files, but for `sequential_bytes`, and the 2 GB of memory.
/// [`Profile::seconds`] is for the hard disk; on others a load has half of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    /// Each file that is read or written at random or by Zipf's law; 1 GB in the paper.
    pub file_bytes: u64,
    /// Each file that is read or written in order by one reader or writer; 1 GB in the paper. It is
    /// more than memory and not scaled, so that one pass lasts.
    pub sequential_bytes: u64,
    /// The least and the greatest file of clients that come and go; 100 and 512 MB in the paper.
    pub variable_bytes: [u64; 2],
    /// The mean time between their comings and goings.
    pub change_seconds: f64,
    /// What everything that is drawn follows from.
    pub seed: u64,
}

fn default_log_bytes() -> u64 {
    LOG_BYTES
}

/// Which part of the paper's evaluation, or of what goes beyond it, a case belongs to; in the order
/// they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Filebench personalities over I/O sizes: Figure 10.
    Personality,
    /// The same at 2 KiB over memory sizes: Figure 11.
    Memory,
    /// The file-server mix: Figure 12.
    FileServer,
    /// Trace replay: Figure 13.
    Trace,
    /// Small random writes until the redo log is full, and after.
    Spill,
    /// AWOL's readers and writers (paper 002).
    SideBySide,
    /// The same over the values of one setting of write-back.
    Setting,
    /// AWOL's macro-benchmarks: a build, and a database.
    Macro,
}

impl Experiment {
    /// Whether it is of AWOL's evaluation, and not of NBW's.
    pub fn is_awols(self) -> bool {
        matches!(self, Experiment::SideBySide | Experiment::Setting | Experiment::Macro)
    }
}

/// One contestant in one experiment: medians over its repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Unique but for the contestant: `hdd/random-write/128`, `hdd/memory/random-write/2048/64M`,
    /// `ssd/file-server/no-reads`, `hdd/facebook/no-fsync`.
    pub name: String,
    /// Which part of the evaluation.
    pub experiment: Experiment,
    /// The personality (`random-write`), the mix (`18-10-72` as reads, writes, others in percent)
    /// or the trace (`facebook`, `facebook-no-fsync`).
    pub workload: String,
    /// The disk's model.
    pub disk: Model,
    /// Bytes of one operation; 0 where they differ.
    pub size_bytes: u64,
    /// Memory of the contestant, bytes.
    pub memory_bytes: u64,
    /// `ext4` or `weir-` and the fetch policy.
    pub contestant: String,
    /// Operations a second, all classes.
    pub ops_per_s: f64,
    /// Mean latency of all operations, microseconds.
    pub mean_us: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, microseconds.
    pub p99_us: f64,
    /// Page fetches by Weir; 0 for ext4, whose fetches are device reads.
    pub fetches: u64,
    /// Writes that waited for a fetch or for memory, by Weir's count; 0 for ext4, which does not
    /// count them.
    pub blocked_writes: u64,
    /// Requests the emulated disk served during the load.
    pub device_reads: u64,
    /// As above.
    pub device_writes: u64,
    /// Against ext4 in the same round, median over the rounds: of operations a second for the
    /// personalities, of reads a second, or writes where nobody reads, for readers and writers side
    /// by side, of the mean latency otherwise. Above 1 is better than ext4 in any case.
    pub ratio_to_blocking: f64,
    /// The least and the most of that ratio among the rounds.
    pub ratio_spread: [f64; 2],
    /// What the run could reach at most, operations a second, where patch memory and the device's
    /// fetch rate set a bound; random-write personalities only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_ops_per_s: Option<f64>,
    /// Until the redo log was full, and after: [`Experiment::Spill`], for contestants with a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
    /// What the disk had to do in all: AWOL's experiments only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_use: Option<DiskUse>,
    /// Latencies by class of operation.
    pub classes: Vec<Class>,
    /// Each repetition.
    pub rounds: Vec<Round>,
}

/// The latencies of one class of operations: `read`, `write`, `sync`, `other`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Its name.
    pub class: String,
    /// Operations of the median round.
    pub ops: u64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Median, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Longest, microseconds; runs of before it was kept have none.
    #[serde(default)]
    pub max_us: f64,
    /// ext4's mean over this one's, median over the rounds: above 1 is better than ext4.
    pub ratio_to_blocking: f64,
}

/// What a load cost the disk, with what was not home yet when the load was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Bytes read during the load.
    pub read_bytes: f64,
    /// Bytes written during the load.
    pub written_bytes: f64,
    /// Requests that wrote after the load what it had left.
    pub left_writes: f64,
    /// Bytes of these.
    pub left_bytes: f64,
    /// All requests, those after the load too, for 1000 operations of programs.
    pub requests_a_thousand: f64,
}

impl Class {
    /// What a load of readers and writers is judged by: its reads, and its writes where it has none.
    pub fn leading(classes: &[Class]) -> Option<&Class> {
        classes.iter().find(|class| class.class == "read").or(classes.first())
    }
}

/// A load in two parts: until the redo log was full, and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// From the start until the log was full, or to the end if it never was.
    pub until_full: Phase,
    /// The rest, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Phase>,
    /// What the rest could reach at most, operations a second, where the disk sets a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_bound_ops_per_s: Option<f64>,
}

/// One part of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Its length.
    pub seconds: f64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Against ext4's operations a second over the whole of the same round.
    pub ratio_to_blocking: f64,
}

/// A moment of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Seconds since the load began.
    pub seconds: f64,
    /// Writes a second since the step before.
    pub writes_per_s: f64,
    /// What the redo log held, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_used_bytes: Option<u64>,
}

/// A load over its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Requests to the disk.
    pub requests: Vec<Requests>,
    /// What Weir recorded of itself; nothing for ext4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
}

/// Requests to the disk from the one before until `seconds` after the beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// As above.
    pub seconds: f64,
    /// Reads a second.
    pub reads_per_s: f64,
    /// Writes a second.
    pub writes_per_s: f64,
}

/// Weir's write-back `seconds` after the beginning of a load. Rates are of the time since the moment
/// before; shares are of the memory for pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// As above.
    pub seconds: f64,
    /// h(t), percent.
    pub high_percent: f64,
    /// l(t), percent.
    pub low_percent: f64,
    /// h_max(t), percent.
    pub max_percent: f64,
    /// Where writers begin to be paced, percent.
    pub pressure_percent: f64,
    /// Dirty, percent.
    pub dirty_percent: f64,
    /// Clean, percent.
    pub clean_percent: f64,
    /// Patched pages.
    pub patched_pages: u64,
    /// d(t): pages written that were clean, a second.
    pub dirtied_per_s: f64,
    /// c(t): pages that came home, a second.
    pub cleaned_per_s: f64,
    /// Pages of reads found in memory, percent; none where nobody read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_percent: Option<f64>,
    /// Pages found in the ghost hit cache, a second.
    pub ghost_hits_per_s: f64,
    /// Pages found in the ghost miss cache, a second.
    pub ghost_misses_per_s: f64,
    /// Requests that wrote home, a second.
    pub destages_per_s: f64,
    /// Requests that fetched, a second.
    pub fetches_per_s: f64,
    /// Requests that write home, under way.
    pub destages_in_flight: u64,
    /// Writes that made the next one wait, a second.
    pub paced_per_s: f64,
}

/// One repetition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// Seconds the load took.
    pub seconds: f64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Mean latency, microseconds.
    pub mean_us: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Counts as in [`Case`].
    pub fetches: u64,
    /// As above.
    pub blocked_writes: u64,
    /// As above.
    pub device_reads: u64,
    /// As above.
    pub device_writes: u64,
    /// Requests that moved the arm; 0 where there is none.
    pub device_seeks: u64,
    /// By class; `ratio_to_blocking` is against ext4 in this round.
    pub classes: Vec<Class>,
    /// As [`Case::ratio_to_blocking`], of this round.
    pub ratio_to_blocking: f64,
    /// As [`Case::phases`], of this round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
    /// As [`Case::disk_use`], of this round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_use: Option<DiskUse>,
    /// The load over time: [`Experiment::Spill`] only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The load over time: AWOL's experiments, the first repetition only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_time: Option<Curves>,
}

impl Results {
    /// Reads what a run wrote, of whichever suite that keeps its results like this.
    pub fn load(path: &Path) -> Result<Results> {
        let text = fs::read(path).doing("read", path)?;
        let results: Results = serde_json::from_slice(&text).map_err(|error| Error::Missing {
            what: format!("{} holds no results of such a suite ({error})", path.display()),
            remedy: "give the file that 'weir-bench run nbw --json FILE' wrote, or 'run awol'"
                .into(),
        })?;
        Ok(results)
    }

    /// Writes it so that a crash leaves the file as it was before or as it is now.
    pub fn save(&self, path: &Path) -> Result<()> {
        json::save(path, self)
    }

    /// The case of that name and contestant.
    pub fn find(&self, name: &str, contestant: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.name == name && case.contestant == contestant)
    }
}
