//! `weir top --once`: two samples an interval apart, and what they say together, as text or JSON.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::asking;
use super::columns::Column;
use super::figures;
use super::sample::{FileWaits, Rates, page_bytes};
use super::watched::Watched;
use crate::control::protocol::{LatencyReport, SessionReport, WaitingReport};
use crate::failure::pretty_json;
use crate::mounts::{Mount, shown};

/// Files named of a mount in the text.
const FILES_SHOWN: usize = 5;

/// What `--json` prints of a mount.
#[derive(Debug, Serialize)]
struct Report<'a> {
    mountpoint: &'a str,
    source: &'a str,
    /// Why the daemon does not answer; the rest is then missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_answer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    sampled: Option<Sampled<'a>>,
}

#[derive(Debug, Serialize)]
struct Sampled<'a> {
    pid: u32,
    uptime_ms: u64,
    interval_ms: u64,
    /// Each second; `None` if the mount was made during the interval.
    rates: Option<&'a Rates>,
    dirty_bytes: u64,
    watermark_low_bytes: u64,
    watermark_high_bytes: u64,
    patch_bytes: u64,
    names_pending: Option<u64>,
    log_used_bytes: u64,
    log_capacity_bytes: u64,
    writers_waiting: u64,
    waiting: Option<WaitingReport>,
    latency: LatencyReport,
    sessions: &'a [SessionReport],
    slow_files: &'a [FileWaits],
}

/// What was sampled, and whether every daemon answered.
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) all_answered: bool,
}

/// Samples these mounts twice, an interval apart. Those of other users are left out.
pub(super) fn run(
    mounts: &[Mount],
    interval: Duration,
    is_json: bool,
    is_for_one: bool,
) -> Outcome {
    let mut all: Vec<Watched> = mounts.iter().map(Watched::new).collect();
    let began = Instant::now();
    take(&mut all, mounts);
    thread::sleep(interval.saturating_sub(began.elapsed()));
    take(&mut all, mounts);
    let now = Instant::now();
    all.retain(|of| is_for_one || !of.is_denied);
    all.sort_by(|one, other| one.key.cmp(&other.key));
    let all_answered = all.iter().all(|of| of.trouble(now).is_none() && !of.is_denied);
    let text = if is_json { json(&all, interval, is_for_one) } else { text(&all, now) };
    Outcome { text, all_answered }
}

fn take(all: &mut [Watched], mounts: &[Mount]) {
    for (of, (at, answer)) in all.iter_mut().zip(asking::ask_once(mounts)) {
        of.take(at, answer);
    }
}

fn json(all: &[Watched], interval: Duration, is_for_one: bool) -> String {
    let points: Vec<_> = all.iter().map(|of| shown(&of.key.mountpoint)).collect();
    let reports: Vec<Report<'_>> = all
        .iter()
        .zip(&points)
        .map(|(of, point)| Report {
            mountpoint: point,
            source: &of.source,
            no_answer: of.reason(),
            sampled: sampled(of, interval),
        })
        .collect();
    match (is_for_one, reports.first()) {
        (true, Some(report)) => pretty_json(report),
        _ => pretty_json(&reports),
    }
}

fn sampled<'a>(of: &'a Watched, interval: Duration) -> Option<Sampled<'a>> {
    let status = of.status().filter(|_| of.reason().is_none())?;
    let stats = &status.stats;
    Some(Sampled {
        pid: status.pid,
        uptime_ms: status.uptime_ms,
        interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
        rates: of.rates.as_ref(),
        dirty_bytes: page_bytes(stats.dirty_memory_pages),
        watermark_low_bytes: page_bytes(stats.watermark_low_pages),
        watermark_high_bytes: page_bytes(stats.watermark_high_pages),
        patch_bytes: stats.patch_bytes,
        names_pending: status.names.as_ref().map(|names| names.pending),
        log_used_bytes: stats.log_used_bytes,
        log_capacity_bytes: stats.log_capacity_bytes,
        writers_waiting: stats.writers_waiting,
        waiting: status.waiting,
        latency: status.latency,
        sessions: &status.sessions,
        slow_files: &of.files,
    })
}

/// A table of the mounts, then their slowest files.
fn text(all: &[Watched], now: Instant) -> String {
    if all.is_empty() {
        return "no weir mounts\n".to_owned();
    }
    let longest = all.iter().map(|of| figures::width(&of.name())).max().unwrap_or(0);
    let for_name = longest.max(Column::Mount.columns());
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |cells: Vec<String>| {
        let _ = writeln!(text, "{}", cells.join(" ").trim_end());
    };
    let titles = Column::ALL.iter().map(|&column| match column {
        Column::Mount => figures::left(column.title(), for_name),
        _ => figures::right(column.title(), column.columns()),
    });
    line(titles.collect());
    for of in all {
        let name = figures::left(&of.name(), for_name);
        match of.reason() {
            Some(reason) => line(vec![name, figures::name(reason)]),
            None => {
                let mut cells = vec![name];
                for column in Column::ALL.iter().skip(1) {
                    cells.push(figures::right(&column.text(of), column.columns()));
                }
                cells.extend(of.state(now));
                line(cells);
            }
        }
    }
    let slow = all
        .iter()
        .filter(|of| of.reason().is_none())
        .flat_map(|of| of.files.iter().take(FILES_SHOWN).map(move |file| (of.name(), file)));
    let slow: Vec<(String, &FileWaits)> = slow.collect();
    if !slow.is_empty() {
        line(Vec::new());
        let titles = [("WAIT/s", 7), ("LATE/s", 7), ("LONGEST", 7), ("ALL", 7), ("NOW", 5)];
        let titles = titles.map(|(title, columns)| figures::right(title, columns));
        line([&titles[..], &["SLOWEST FILE".to_owned()]].concat());
    }
    for (mount, file) in slow {
        line(vec![
            figures::right(&figures::time(file.waited_ns as u64), 7),
            figures::right(&figures::count(file.answers), 7),
            figures::right(&figures::time(file.max_ns()), 7),
            figures::right(&figures::time(file.total_ns()), 7),
            figures::right(&file.waiting.to_string(), 5),
            format!("{mount}/{}", figures::name(&file.name)),
        ]);
    }
    text
}

impl Watched {
    /// Why there is no answer.
    fn reason(&self) -> Option<&str> {
        if self.is_denied {
            return Some("another user's");
        }
        self.trouble(Instant::now()).map(|(reason, _)| reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::top::asking::Answer;
    use crate::command::top::sample::tests::{sample, slow};
    use crate::command::top::watched::tests::mount;

    fn watched(point: &str, writes: u64) -> Watched {
        let mut of = Watched::new(&mount(point, 1));
        for second in [1, 2] {
            let answer = sample(second * 1000, |status| {
                status.stats.writes = writes * second;
                status.slow_files = vec![slow(5, "a\nb", second, second * 3_000_000)];
            });
            of.take(Instant::now(), Answer::Status(answer.status));
        }
        of
    }

    #[test]
    fn each_mount_and_each_slow_file_has_a_line() {
        let mut silent = watched("/mnt/b", 7);
        silent.take(Instant::now(), Answer::None("no answer".to_owned()));
        let shown = text(&[watched("/mnt/a", 1500), silent], Instant::now());
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("MOUNT       WR/s WRITE/s"), "{shown}");
        assert!(lines[1].starts_with("/mnt/a      1.5k       0"), "{shown}");
        assert_eq!(lines[2], "/mnt/b     no answer");
        assert_eq!(lines[4], " WAIT/s  LATE/s LONGEST     ALL   NOW SLOWEST FILE");
        assert_eq!(lines[5], "    3ms       1     6ms     6ms     0 /mnt/a/a\\nb");
        assert_eq!(lines.len(), 6, "{shown}");
        assert_eq!(text(&[], Instant::now()), "no weir mounts\n");
    }

    #[test]
    fn json_is_an_object_of_one_mount_and_an_array_of_all() {
        let interval = Duration::from_millis(1500);
        let all = [watched("/mnt/a", 10)];
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let one = parse(&json(&all, interval, true));
        assert_eq!(one["rates"]["writes"], 10.0);
        assert_eq!(one["slow_files"][0]["name"], "a\nb");
        assert_eq!(one["interval_ms"], 1500);
        let mut silent = watched("/mnt/b", 7);
        silent.take(Instant::now(), Answer::None("no answer".to_owned()));
        let all = parse(&json(&[silent], interval, false));
        assert_eq!(all[0]["no_answer"], "no answer");
        assert_eq!(all[0].get("rates"), None);
    }
}
