//! What a round did over its time: what the disk was asked for, looked at each second, and what Weir
//! recorded of itself (`weir mount --record`).
//!
//! Both are on the machine's monotonic clock. Owns neither the disk nor the record.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::disk::{Counts, Disk};
use crate::error::{Doing, Error, Result};
use crate::threads;
use crate::workload::monotonic_ns;

/// How long to wait between two looks at the disk.
const INTERVAL: Duration = Duration::from_secs(1);
/// The version of records that is understood.
const VERSION: u32 = 1;

/// What was seen over the time of a round's closure.
#[derive(Clone, Debug, Default)]
pub struct OverTime {
    /// When the closure began, by [`monotonic_ns`].
    pub began_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Requests to the disk since then.
    pub disk: Vec<(u64, Counts)>,
    /// Weir's record of the whole mount; `None` for other contestants.
    pub weir: Vec<Look>,
}

/// A line of a record: some of its figures. Counts are over the life of the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Look {
    /// When, by [`monotonic_ns`].
    #[serde(skip)]
    pub at_ns: u64,
    /// The same, milliseconds after the record's beginning.
    pub t_ms: u64,
    /// h(t), pages, as those up to `cleaned_pages`.
    pub watermark_high_pages: u64,
    /// l(t).
    pub watermark_low_pages: u64,
    /// h_max(t).
    pub watermark_max_pages: u64,
    /// Where writers begin to be paced.
    pub pressure_pages: u64,
    /// Memory for pages.
    pub cache_pages: u64,
    /// What of it is dirty.
    pub dirty_memory_pages: u64,
    /// What of it is clean.
    pub clean_pages: u64,
    /// Pages that are patched.
    pub patched_pages: u64,
    /// Pages written by programs that were clean.
    pub dirtied_pages: u64,
    /// Such pages that came home.
    pub cleaned_pages: u64,
    /// Pages of reads found in memory.
    pub read_hits: u64,
    /// And not.
    pub read_misses: u64,
    /// Of the hits, those in the ghost hit cache.
    pub ghost_hits: u64,
    /// Of the misses, those in the ghost miss cache.
    pub ghost_misses: u64,
    /// Requests that wrote home.
    pub destage_commands: u64,
    /// Requests that fetched.
    pub fetch_commands: u64,
    /// Requests that write home, under way.
    pub destages_in_flight: u64,
    /// Writes that made the next one wait.
    pub writers_paced: u64,
}

#[derive(Deserialize)]
struct Header {
    weir_record: u32,
    began_monotonic_ns: u64,
}

/// Does `act`, and looks at the disk meanwhile. If the disk does not answer because it is gone, whatever comes next
/// fails.
pub fn watched<T>(disk: &Disk, act: impl FnOnce() -> T) -> (T, OverTime) {
    let began_ns = monotonic_ns();
    let look = || Some((monotonic_ns(), disk.counts().ok()?));
    let (value, seen) = threads::watched(INTERVAL, look, act);
    (value, OverTime { began_ns, ended_ns: monotonic_ns(), disk: seen, weir: Vec::new() })
}

/// Reads a record.
pub fn read(record: &Path) -> Result<Vec<Look>> {
    let text = fs::read_to_string(record).doing("read", record)?;
    looks(&text).map_err(|error| {
        Error::answer("weir mount --record", format!("{}: {error}", record.display()))
    })
}

fn looks(text: &str) -> std::result::Result<Vec<Look>, String> {
    let mut lines = text.lines();
    let header: Header = parsed(lines.next().unwrap_or_default())?;
    if header.weir_record != VERSION {
        return Err(format!("it is of version {}", header.weir_record));
    }
    let look = |line| {
        let look: Look = parsed(line)?;
        Ok(Look { at_ns: header.began_monotonic_ns + look.t_ms * 1_000_000, ..look })
    };
    lines.map(look).collect()
}

fn parsed<'a, T: Deserialize<'a>>(line: &'a str) -> std::result::Result<T, String> {
    serde_json::from_str(line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"weir_record":1,"began_monotonic_ns":5000000,"novelty":[]}"#;

    fn line(t_ms: u64, high: u64) -> String {
        let names = "watermark_low_pages watermark_max_pages pressure_pages cache_pages \
                     dirty_memory_pages clean_pages patched_pages dirtied_pages cleaned_pages \
                     read_hits read_misses ghost_hits ghost_misses destage_commands fetch_commands \
                     destages_in_flight writers_paced novelty";
        let others: String =
            names.split_whitespace().map(|name| format!(",\"{name}\":1")).collect();
        format!("{{\"t_ms\":{t_ms},\"watermark_high_pages\":{high}{others}}}")
    }

    #[test]
    fn a_record_is_on_the_machines_clock() {
        let found = looks(&format!("{HEADER}\n{}\n{}\n", line(0, 7), line(20, 8))).unwrap();
        let seen: Vec<_> =
            found.iter().map(|look| (look.at_ns, look.watermark_high_pages)).collect();
        assert_eq!(seen, [(5_000_000, 7), (25_000_000, 8)]);
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        assert!(looks("").is_err());
        assert!(looks(&HEADER.replace(":1,", ":2,")).unwrap_err().contains("version 2"));
        assert!(looks(&format!("{HEADER}\n{{\"t_ms\":1}}\n")).is_err());
    }
}
