//! What two answers of a daemon say together: rates over the time between them, and on which files requests waited.
//!
//! Invariant: counters that went back, or another process, are a restart, over which there are no rates. A file's counters may
//! restart alone, since the daemon's account of files is bounded.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_engine::PAGE_BYTES;

use crate::control::protocol::{BucketReport, LateReport, SlowFileReport, Status};

/// Shown of a page.
pub(super) const fn page_bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_BYTES as u64)
}

/// A daemon's answer, and when it came.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) status: Box<Status>,
}

/// What happened each second between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) writes: f64,
    pub(super) write_bytes: f64,
    pub(super) reads: f64,
    pub(super) read_bytes: f64,
    pub(super) syncs: f64,
    pub(super) requests: f64,
    pub(super) fetched_pages: f64,
    pub(super) fetches_waited: f64,
    pub(super) fetches_avoided: f64,
    pub(super) home_requests: f64,
    pub(super) home_bytes: f64,
    pub(super) log_groups: f64,
    pub(super) log_bytes: f64,
    pub(super) lane_writes: f64,
    /// Of a bucket; 0 where SOURCE is a directory.
    pub(super) bucket_requests: f64,
    pub(super) bucket_bytes: f64,
    pub(super) writers_blocked_fetch: f64,
    pub(super) writers_throttled: f64,
    pub(super) writers_paced: f64,
    pub(super) session_waits: f64,
}

/// How requests on one file waited: between two samples, and since the daemon accounts the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct FileWaits {
    /// Its path below the mount, or its number if that is not known.
    pub(super) name: String,
    /// Late answers that came, each second.
    pub(super) answers: f64,
    /// How long the requests that they answer had waited, nanoseconds a second.
    pub(super) waited_ns: f64,
    /// The same since the daemon accounts the file, by kind of request.
    pub(super) write: Late,
    pub(super) read: Late,
    pub(super) sync: Late,
    /// Requests that wait now, and how long the oldest has waited.
    pub(super) waiting: u64,
    pub(super) oldest_ns: u64,
}

/// Late answers of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Late {
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
}

impl From<LateReport> for Late {
    fn from(from: LateReport) -> Late {
        let LateReport { count, total_ns, max_ns } = from;
        Late { count, total_ns, max_ns }
    }
}

impl FileWaits {
    pub(super) fn total_ns(&self) -> u64 {
        let kinds = [self.write, self.read, self.sync];
        kinds.iter().fold(0, |sum, kind| kind.total_ns.saturating_add(sum))
    }

    pub(super) fn max_ns(&self) -> u64 {
        self.write.max_ns.max(self.read.max_ns).max(self.sync.max_ns).max(self.oldest_ns)
    }
}

/// How long passed between two samples; `None` if the daemon is another one, or the clock went back.
fn seconds(before: &Sample, after: &Sample) -> Option<f64> {
    let (from, to) = (&before.status, &after.status);
    // The daemon's clock: an answer may come late.
    let by_daemon = Duration::from_millis(to.uptime_ms.checked_sub(from.uptime_ms)?);
    let passed =
        if by_daemon.is_zero() { after.at.checked_duration_since(before.at)? } else { by_daemon };
    (from.pid == to.pid && !passed.is_zero()).then_some(passed.as_secs_f64())
}

/// The rates between two samples; `None` across a restart.
pub(super) fn rates(before: &Sample, after: &Sample) -> Option<Rates> {
    let seconds = seconds(before, after)?;
    let (from, to) = (&before.status, &after.status);
    let all_requests = |status: &Status| status.requests.values().sum::<u64>();
    let posted = |status: &Status| status.lane.map_or(0, |lane| lane.posted_writes);
    // It is not told while the program that serves it does not answer.
    let of_bucket = |count: fn(&BucketReport) -> u64| {
        let counts = from.bucket.as_ref().zip(to.bucket.as_ref());
        let counts = counts.map(|(from, to)| count(to).saturating_sub(count(from)));
        counts.unwrap_or_default() as f64 / seconds
    };
    // A session that ended takes its counts along.
    let waits = |status: &Status| status.sessions.iter().map(|of| of.waits.count).sum::<u64>();
    let session_waits = waits(to).saturating_sub(waits(from));
    let rate = |from: u64, to: u64| Some(to.checked_sub(from)? as f64 / seconds);
    let (s, t) = (&from.stats, &to.stats);
    Some(Rates {
        writes: rate(s.writes, t.writes)?,
        write_bytes: rate(s.write_bytes, t.write_bytes)?,
        reads: rate(s.reads, t.reads)?,
        read_bytes: rate(s.read_bytes, t.read_bytes)?,
        syncs: rate(from.latency.sync.count, to.latency.sync.count)?,
        requests: rate(all_requests(from), all_requests(to))?,
        fetched_pages: rate(s.fetched_pages, t.fetched_pages)?,
        fetches_waited: rate(s.fetches_waited, t.fetches_waited)?,
        fetches_avoided: rate(s.fetches_avoided, t.fetches_avoided)?,
        home_requests: rate(s.destage_commands, t.destage_commands)?,
        home_bytes: rate(s.destage_bytes, t.destage_bytes)?,
        log_groups: rate(s.log_groups, t.log_groups)?,
        log_bytes: rate(s.log_bytes, t.log_bytes)?,
        lane_writes: rate(posted(from), posted(to))?,
        bucket_requests: of_bucket(|bucket| bucket.count("requests")),
        bucket_bytes: of_bucket(BucketReport::bytes),
        writers_blocked_fetch: rate(s.writers_blocked_fetch, t.writers_blocked_fetch)?,
        writers_throttled: rate(s.writers_throttled, t.writers_throttled)?,
        writers_paced: rate(s.writers_paced, t.writers_paced)?,
        session_waits: session_waits as f64 / seconds,
    })
}

/// The files on which requests waited: first those on which they did so between the samples, or do so now, then those on which
/// they waited before.
pub(super) fn slow_files(before: Option<&Sample>, after: &Sample) -> Vec<FileWaits> {
    let interval = before.and_then(|before| Some((before, seconds(before, after)?)));
    let known: HashMap<u64, &SlowFileReport> = interval
        .iter()
        .flat_map(|(before, _)| &before.status.slow_files)
        .map(|file| (file.node, file))
        .collect();
    let mut files: Vec<FileWaits> = after
        .status
        .slow_files
        .iter()
        .map(|file| {
            let mut waits = FileWaits {
                name: file.path.clone().unwrap_or_else(|| format!("node {}", file.node)),
                write: file.write.into(),
                read: file.read.into(),
                sync: file.sync.into(),
                waiting: file.waiting,
                oldest_ns: file.oldest_ns,
                ..FileWaits::default()
            };
            let Some((_, seconds)) = interval else { return waits };
            let of = |file: &SlowFileReport| {
                let kinds = [file.write, file.read, file.sync];
                let count: u64 = kinds.iter().map(|kind| kind.count).sum();
                (count, kinds.iter().map(|kind| kind.total_ns).sum::<u64>())
            };
            let (count, total_ns) = of(file);
            let (count_before, total_before) =
                known.get(&file.node).map_or((0, 0), |file| of(file));
            // If its counters are less it left the account and came back.
            let is_same = count_before <= count && total_before <= total_ns;
            let (count_before, total_before) =
                if is_same { (count_before, total_before) } else { (0, 0) };
            waits.answers = (count - count_before) as f64 / seconds;
            waits.waited_ns = (total_ns - total_before) as f64 / seconds;
            waits
        })
        .collect();
    files.sort_by_key(|file| {
        let now = (file.waited_ns as u64).saturating_add(file.oldest_ns);
        Reverse((now, file.total_ns()))
    });
    files
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::control::protocol::{PercentilesReport, SessionReport, SessionWaitsReport};

    /// A daemon's answer `uptime_ms` after its mount.
    pub(in super::super) fn sample(uptime_ms: u64, change: impl FnOnce(&mut Status)) -> Sample {
        let mut status = Status { pid: 7, uptime_ms, ..Status::default() };
        change(&mut status);
        Sample { at: Instant::now(), status: Box::new(status) }
    }

    /// A file on which `count` writes waited.
    pub(in super::super) fn slow(
        node: u64,
        path: &str,
        count: u64,
        total_ns: u64,
    ) -> SlowFileReport {
        SlowFileReport {
            node,
            path: (!path.is_empty()).then(|| path.to_owned()),
            write: LateReport { count, total_ns, max_ns: total_ns },
            ..SlowFileReport::default()
        }
    }

    #[test]
    fn rates_are_by_the_daemons_clock() {
        let before = sample(1000, |status| {
            status.stats.writes = 10;
            status.requests.insert("write".to_owned(), 5);
        });
        let after = sample(3000, |status| {
            status.stats.writes = 30;
            status.stats.write_bytes = 8192;
            status.requests.insert("write".to_owned(), 6);
            status.requests.insert("read".to_owned(), 3);
            status.latency.sync = PercentilesReport { count: 1, ..PercentilesReport::default() };
        });
        let rates = rates(&before, &after).unwrap();
        assert_eq!((rates.writes, rates.write_bytes), (10.0, 4096.0));
        assert_eq!((rates.requests, rates.syncs, rates.reads), (2.0, 0.5, 0.0));
    }

    #[test]
    fn over_a_restart_there_are_no_rates() {
        let before = sample(5000, |status| status.stats.writes = 10);
        let younger = sample(1000, |status| status.stats.writes = 20);
        let other = sample(6000, |status| (status.pid, status.stats.writes) = (8, 20));
        let less = sample(6000, |status| status.stats.writes = 9);
        for after in [younger, other, less] {
            assert_eq!(rates(&before, &after), None);
        }
        let same = sample(6000, |status| status.stats.writes = 10);
        assert_eq!(rates(&before, &same).unwrap().writes, 0.0);
    }

    #[test]
    fn a_session_that_ended_is_no_restart() {
        let session = |count| SessionReport {
            waits: SessionWaitsReport { count, ..SessionWaitsReport::default() },
            ..SessionReport::default()
        };
        let before = sample(1000, |status| status.sessions = vec![session(10), session(1)]);
        let after = sample(2000, |status| status.sessions = vec![session(3)]);
        assert_eq!(rates(&before, &after).unwrap().session_waits, 0.0);
    }

    #[test]
    fn files_are_ordered_by_what_waited_last() {
        let before = sample(1000, |status| {
            status.slow_files = vec![slow(1, "old", 100, 9_000), slow(2, "again", 50, 8_000)];
        });
        let after = sample(3000, |status| {
            status.slow_files = vec![
                slow(1, "old", 100, 9_000),
                slow(2, "again", 4, 600),
                slow(3, "", 2, 500),
                SlowFileReport { waiting: 2, oldest_ns: 7_000, ..slow(4, "stuck", 0, 0) },
            ];
        });
        let files = slow_files(Some(&before), &after);
        let shown: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.waited_ns)).collect();
        assert_eq!(shown, [("stuck", 0.0), ("again", 300.0), ("node 3", 250.0), ("old", 0.0)]);
        assert_eq!((files[1].answers, files[1].total_ns()), (2.0, 600));
        assert_eq!((files[0].waiting, files[0].max_ns()), (2, 7_000));
        let first = slow_files(None, &after);
        assert_eq!((first[1].name.as_str(), first[1].waited_ns), ("old", 0.0));
    }
}
