//! All that the advice says: what `--json` prints, and what summary and page show.

use serde::Serialize;

use crate::class::Class;
use crate::footprint::Footprint;
use crate::prediction::Disk;
use crate::verdict::Verdict;

/// A file system that was used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Used {
    /// Where it is mounted.
    pub mount_point: String,
    /// Its type.
    pub kind: String,
    /// Calls on its files.
    pub calls: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Changes of names and attributes.
    pub names: u64,
    /// Time in them, microseconds.
    pub waited_us: f64,
}

/// What calls of a class take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassCosts {
    /// The class.
    pub class: Class,
    /// Calls of the program.
    pub calls: u64,
    /// Calls that were done again.
    pub sampled: u64,
    /// Directly, and in each way, microseconds; `None` if there was none.
    pub direct_us: Option<f64>,
    /// On a mount.
    pub mount_us: Option<f64>,
    /// Under `weir run`.
    pub run_us: Option<f64>,
    /// In a session.
    pub session_us: Option<f64>,
}

/// The advice.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of the weir that made it.
    pub weir_version: String,
    /// The command, or the trace.
    pub subject: String,
    /// The program's exit status, 128 and the signal's number if it was killed. `None` for a recorded trace.
    pub exit_status: Option<u8>,
    /// The directory that the advice is about.
    pub source: String,
    /// What it is on.
    pub source_kind: String,
    /// What was recorded, microseconds.
    pub recorded_us: f64,
    /// How long it takes without the recorder, about.
    pub alone_us: f64,
    /// Calls that were recorded.
    pub calls: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Programs that were started.
    pub starts: u64,
    /// File systems, the most used first.
    pub file_systems: Vec<Used>,
    /// What the program asks below `source`.
    pub footprint: Footprint,
    /// The disk below `source`.
    pub disk: Disk,
    /// Calls that were done again, and those that there were.
    pub sample: (u64, u64),
    /// What each class of calls takes.
    pub costs: Vec<ClassCosts>,
    /// The time that the recorder is taken for, of the recorded time.
    pub recorder_share: f64,
    /// Processor time of the program in user mode, microseconds.
    pub user_us: f64,
    /// What is said of each way.
    pub verdicts: Vec<Verdict>,
    /// Ways that could not be tried, and why.
    pub untried: Vec<(String, String)>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// Bytes for people.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.5 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A number with commas.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in percent.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0%".to_owned() } else { format!("{:.0}%", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!(
            (bytes(512), bytes(1536), bytes(200 << 20)),
            ("512 B".into(), "1.5 KiB".into(), "200 MiB".into())
        );
        assert_eq!(
            (count(7), count(1234), count(1_234_567)),
            ("7".into(), "1,234".into(), "1,234,567".into())
        );
        assert_eq!((percent(1, 3), percent(0, 0)), ("33%".into(), "0%".into()));
    }
}
