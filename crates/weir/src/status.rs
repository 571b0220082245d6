//! The status as text.
//!
//! Invariant: what a daemon says is another user's text: each row is printed on one line, with control characters escaped.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::time::Duration;

use weir_engine::WriteBackPolicy;

use crate::control::protocol::{
    BucketCacheReport, BucketReport, NamesReport, PercentilesReport, RequestsReport, SessionReport,
    Status,
};
use crate::failure::one_line;
use crate::quantity::Size;

/// `1 page`, `2 pages`.
fn pages(count: u64) -> String {
    if count == 1 { "1 page".to_owned() } else { format!("{count} pages") }
}

/// A session of programs.
fn session(session: &SessionReport) -> String {
    let SessionReport { supervisor, every_write, promises, pending, .. } = session;
    let what = if *every_write { "changes" } else { "syncs" };
    let state = if *pending { ", not all durable" } else { "" };
    format!("process {supervisor}: {promises} {what} promised{state}")
}

/// Its commits, in two lines.
fn session_commits(session: &SessionReport) -> [String; 2] {
    let of = &session.commits;
    let (output, syncs, others) = (of.for_output, of.by_syncs, of.for_outsiders);
    [
        format!("{output} for output, {syncs} by syncs, {others} for others"),
        format!("{} for judging, {} after 5 s, {} at ends", of.for_judging, of.by_time, of.at_end),
    ]
}

/// How long what left it waited.
fn session_waits(session: &SessionReport) -> String {
    let of = &session.waits;
    let [p50, p99, max] = [of.p50_us, of.p99_us, of.max_us].map(|us| time(us.saturating_mul(1000)));
    format!("{}, half up to {p50}, 99 % up to {p99}, longest {max}", of.count)
}

/// What a bucket was asked for.
fn bucket(report: &BucketReport) -> String {
    let mut kinds: Vec<(&str, u64)> = report.kinds().collect();
    kinds.sort_by_key(|&(name, count)| (Reverse(count), name));
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
        .collect();
    format!(
        "{} requests ({}), {} failed, {} up, {} down",
        report.count("requests"),
        kinds.join(", "),
        report.count("failed"),
        Size(report.count("bytes_up")),
        Size(report.count("bytes_down")),
    )
}

/// What it lacks.
fn uploads(report: &BucketReport) -> String {
    let files = &report.files;
    let lost =
        if files.lease_lost { "; another machine has the prefix, nothing is uploaded" } else { "" };
    format!(
        "{} files pending ({}), {} uploads failed, {} conflicts{lost}",
        files.pending_nodes,
        Size(files.pending_bytes),
        files.uploads_failed,
        files.conflicts
    )
}

/// What it was not asked for again.
fn bucket_cache(cache: &BucketCacheReport) -> String {
    let mut line =
        format!("{} units found, {} not, {} kept", cache.hits, cache.misses, Size(cache.bytes));
    for (count, what) in [(cache.skipped, "not taken"), (cache.damaged, "damaged")] {
        if count > 0 {
            let _ = write!(line, ", {count} {what}");
        }
    }
    line
}

/// The lane's clients.
fn lane(status: &Status) -> String {
    let Some(lane) = &status.lane else { return "off".to_owned() };
    format!(
        "{} programs, {} files, {} writes posted ({}), {} leases granted, {} revoked",
        lane.clients,
        lane.files,
        lane.posted_writes,
        Size(lane.posted_bytes),
        lane.granted,
        lane.revoked
    )
}

/// Bytes of a page.
const PAGE_BYTES: u64 = weir_engine::PAGE_BYTES as u64;

/// Several mounts, one below the other.
pub fn render_all(statuses: &[Status]) -> String {
    if statuses.is_empty() {
        return "no weir mounts\n".to_owned();
    }
    statuses.iter().map(render).collect::<Vec<_>>().join("\n")
}

/// The request counts of several mounts, one below the other.
pub fn render_all_requests(statuses: &[Status]) -> String {
    if statuses.is_empty() {
        return "no weir mounts\n".to_owned();
    }
    statuses.iter().map(render_requests).collect::<Vec<_>>().join("\n")
}

/// How many requests of each kind the kernel sent to one mount, the most frequent first.
pub fn render_requests(status: &Status) -> String {
    let report = RequestsReport::from(status);
    let mut rows: Vec<(&str, u64)> =
        report.requests.iter().map(|(name, &count)| (name.as_str(), count)).collect();
    rows.sort_by_key(|&(name, count)| (Reverse(count), name));
    let rows = rows.into_iter().map(|(name, count)| (one_line(name), count));
    let mut rows: Vec<(String, u64)> = rows.collect();
    rows.extend(
        [("total", report.total), ("notifications", report.notifications)]
            .map(|(name, count)| (name.to_owned(), count)),
    );
    let mut text = one_line(&report.mountpoint) + "\n";
    for (name, count) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<18}{count:>12}");
    }
    text
}

/// One mount.
pub fn render(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_status(&mut text, status);
    text
}

fn write_status(out: &mut String, status: &Status) -> fmt::Result {
    let stats = &status.stats;
    writeln!(out, "{}", one_line(&status.mountpoint))?;
    let mut row = |name: &str, value: String| writeln!(out, "  {name:<18}{}", one_line(&value));
    row("source", status.source.clone())?;
    row("daemon", daemon(status))?;
    row("front end", front_end(status))?;
    row("back end", back_end(status))?;
    if !status.metrics.is_empty() {
        row("metrics", format!("http://{}/metrics", status.metrics))?;
    }
    if let Some(report) = &status.bucket {
        row("bucket", bucket(report))?;
        row("uploads", uploads(report))?;
        if let Some(cache) = &report.cache {
            row("bucket cache", bucket_cache(cache))?;
        }
    }
    row("fetch policy", status.fetch_policy.clone())?;
    row(
        "memory",
        format!(
            "{} of {} ({} resident)",
            Size(stats.memory_bytes),
            Size(stats.memory_bytes_max),
            Size(status.resident_bytes)
        ),
    )?;
    row("dirty", dirty(status))?;
    row("write-back", write_back(status))?;
    if status.write_back == ADAPTIVE {
        row("last interval", rates(status))?;
        row("ghost caches", ghosts(status))?;
        row("paced", format!("{} writes", stats.writers_paced))?;
    }
    row(
        "patched",
        format!(
            "{}, {} of {} patch memory",
            pages(stats.patched_pages),
            Size(stats.patch_bytes),
            Size(stats.patch_bytes_max)
        ),
    )?;
    row("writes", format!("{} ({})", stats.writes, Size(stats.write_bytes)))?;
    row(
        "reads",
        format!(
            "{} ({}), {}",
            stats.reads,
            Size(stats.read_bytes),
            hits(stats.read_hits, stats.read_misses)
        ),
    )?;
    row(
        "fetched",
        format!(
            "{} ({} waited for, {} read ahead), {} in flight",
            pages(stats.fetched_pages),
            stats.fetches_waited,
            stats.readahead_pages,
            stats.fetches_in_flight
        ),
    )?;
    row("fetches avoided", pages(stats.fetches_avoided))?;
    row(
        "writers",
        format!(
            "{} blocked by a fetch, {} throttled, {} waiting",
            stats.writers_blocked_fetch, stats.writers_throttled, stats.writers_waiting
        ),
    )?;
    row(
        "written home",
        format!(
            "{} in {} requests, {} in flight",
            Size(stats.destage_bytes),
            stats.destage_commands,
            stats.destages_in_flight
        ),
    )?;
    row(
        "of these",
        format!(
            "{} by age, {} under pressure, {} by syncs, {} in passing",
            stats.destages_aged,
            stats.destages_pressed,
            stats.destages_synced,
            stats.destages_along
        ),
    )?;
    row(
        "queue",
        format!(
            "{} waited for, {} others, depth {}, {} joined",
            stats.sync_requests_waiting,
            stats.async_requests_waiting,
            stats.queue_depth,
            stats.requests_joined
        ),
    )?;
    row("log", log(status))?;
    row("lane", lane(status))?;
    for of in &status.sessions {
        row("session", session(of))?;
        let [commits, more] = session_commits(of);
        row("  commits", commits)?;
        row("", more)?;
        row("  waits", session_waits(of))?;
    }
    if let Some(names) = &status.names {
        row("names", pending_names(names))?;
        row("conflicts", conflicts(names))?;
    }
    row("errors", errors(status))?;
    writeln!(
        out,
        "  {:<18}{:>12}{:>10}{:>10}{:>10}{:>10}",
        "latency", "count", "p50", "p99", "p99.9", "max"
    )?;
    for (name, latency) in [
        ("write", &status.latency.write),
        ("read", &status.latency.read),
        ("sync", &status.latency.sync),
    ] {
        write_latency(out, name, latency)?;
    }
    Ok(())
}

fn daemon(status: &Status) -> String {
    let uptime = Duration::from_millis(status.uptime_ms);
    let stopping = if status.stopping { ", stopping" } else { "" };
    format!("process {}, up {}, weir {}{stopping}", status.pid, age(uptime), status.weir_version)
}

fn front_end(status: &Status) -> String {
    match status.transport.as_str() {
        "io-uring" => "FUSE over io_uring".to_owned(),
        _ => "FUSE over /dev/fuse".to_owned(),
    }
}

fn back_end(status: &Status) -> String {
    let direct = if status.direct { "direct" } else { "buffered" };
    let by = if status.transfer == "ring" { "io_uring" } else { &status.transfer };
    let read_only = if status.read_only { ", read-only" } else { "" };
    format!("{direct}, by {by}{read_only}")
}

fn dirty(status: &Status) -> String {
    let stats = &status.stats;
    if stats.dirty_pages == 0 {
        return "nothing".to_owned();
    }
    let oldest = Duration::from_millis(stats.oldest_dirty_ms);
    let bytes = Size(stats.dirty_pages.saturating_mul(PAGE_BYTES));
    format!("{} ({bytes}), the oldest for {}", pages(stats.dirty_pages), age(oldest))
}

const ADAPTIVE: &str = WriteBackPolicy::Adaptive.name();

/// The watermarks and the point at which writers are slowed down, as shares of the memory for pages.
fn write_back(status: &Status) -> String {
    let stats = &status.stats;
    let share = |pages: u64| percent(pages, stats.cache_pages);
    let (now, high) = (share(stats.dirty_memory_pages), share(stats.watermark_high_pages));
    if status.write_back == ADAPTIVE {
        format!(
            "at {now} of {high}, to {} (max {}, pressure {})",
            share(stats.watermark_low_pages),
            share(stats.watermark_max_pages),
            share(stats.pressure_pages)
        )
    } else {
        format!("at {now} of {high}, writers wait at {}", share(stats.dirty_bound_pages))
    }
}

fn rates(status: &Status) -> String {
    let stats = &status.stats;
    let home = stats.cleaned_last_interval;
    format!("{} dirtied, {home} written home", pages(stats.dirtied_last_interval))
}

fn ghosts(status: &Status) -> String {
    let stats = &status.stats;
    format!("{} hits, {} misses", stats.ghost_hits, stats.ghost_misses)
}

/// With one decimal.
fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    }
}

fn errors(status: &Status) -> String {
    let stats = &status.stats;
    if stats.log_errors > 0 {
        return "the log failed: no fsync succeeds; unmount, and see the daemon's log".to_owned();
    }
    if stats.fetch_errors + stats.destage_errors + stats.sync_errors + stats.log_read_errors == 0 {
        return "none".to_owned();
    }
    format!(
        "{} fetching, {} writing home, {} syncing, {} reading the log",
        stats.fetch_errors, stats.destage_errors, stats.sync_errors, stats.log_read_errors
    )
}

fn log(status: &Status) -> String {
    let stats = &status.stats;
    if stats.log_capacity_bytes == 0 {
        return "none".to_owned();
    }
    let spilled = match stats.spilled_pages {
        0 => String::new(),
        spilled => format!(", patches of {} only there", pages(spilled)),
    };
    format!(
        "{} of {} used, {} in {} writes{spilled}",
        Size(stats.log_used_bytes),
        Size(stats.log_capacity_bytes),
        Size(stats.log_bytes),
        stats.log_groups
    )
}

fn pending_names(names: &NamesReport) -> String {
    let refused = match names.refused {
        0 => String::new(),
        refused => format!(", {refused} refused by SOURCE{}", paths(&names.refused_paths, refused)),
    };
    format!("{} changes not home{refused}", names.pending)
}

/// Names that another program took in SOURCE.
fn conflicts(names: &NamesReport) -> String {
    match names.conflicts {
        0 => "none".to_owned(),
        count => format!("{count} names changed in SOURCE{}", paths(&names.conflict_paths, count)),
    }
}

/// Some of `count` paths, in brackets.
fn paths(paths: &[String], count: u64) -> String {
    let shown = paths;
    match shown.is_empty() {
        true => String::new(),
        false if (shown.len() as u64) < count => format!(" (such as {})", shown.join(", ")),
        false => format!(" ({})", shown.join(", ")),
    }
}

fn hits(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "no page looked up".to_owned(),
        // The rounding does not show in a percentage.
        all => format!("{:.1} % of pages in memory", 100.0 * hits as f64 / all as f64),
    }
}

fn write_latency(out: &mut String, name: &str, latency: &PercentilesReport) -> fmt::Result {
    write!(out, "    {name:<16}{:>12}", latency.count)?;
    for nanos in [latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.max_ns] {
        let text = if latency.count == 0 { "-".to_owned() } else { time(nanos) };
        write!(out, "{text:>10}")?;
    }
    writeln!(out)
}

/// A latency, with about two or three digits.
fn time(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// An age, in its two largest units.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{}.{} s", seconds, age.subsec_millis() / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{SessionCommitsReport, SessionWaitsReport, StatsReport};

    #[test]
    fn names_that_did_not_go_home_are_shown() {
        let shown = |names| render(&Status { names, ..Status::default() });
        assert!(!shown(None).contains("conflicts"));
        let idle = shown(Some(NamesReport::default()));
        assert!(idle.contains("0 changes not home\n") && idle.contains("none\n"), "{idle}");
        let text = shown(Some(NamesReport {
            pending: 7,
            refused: 1,
            refused_paths: vec!["dir/a: not permitted".to_owned()],
            conflicts: 9,
            conflict_paths: vec!["x".to_owned(), "y\nz".to_owned()],
        }));
        assert!(text.contains("7 changes not home, 1 refused by SOURCE (dir/a: not permitted)\n"));
        assert!(text.contains("9 names changed in SOURCE (such as x, y"), "{text}");
        assert!(!text.contains("y\nz"));
    }

    #[test]
    fn an_idle_mount_is_shown_as_idle() {
        let status = Status { mountpoint: "/mnt/a\nb".into(), ..Status::default() };
        let text = render(&status);
        assert!(text.starts_with("/mnt/a\\nb\n"));
        assert!(text.contains("front end         FUSE over /dev/fuse\n"), "{text}");
        let by_ring = Status { transport: "io-uring".into(), ..Status::default() };
        assert!(render(&by_ring).contains("front end         FUSE over io_uring\n"));
        for row in ["dirty             nothing", "errors            none", "no page looked up"] {
            assert!(text.contains(row), "{row}: {text}");
        }
        assert_eq!(render_all(&[]), "no weir mounts\n");
    }

    /// A daemon may be another user's, and its texts escapes that a terminal obeys.
    #[test]
    fn nothing_that_a_daemon_says_reaches_the_terminal_as_a_command() {
        let evil = || "x\u{1b}]0;taken\u{7}\u{9b}2J\n\ry".to_owned();
        let names = NamesReport {
            refused: 1,
            refused_paths: vec![evil()],
            conflicts: 1,
            conflict_paths: vec![evil()],
            ..NamesReport::default()
        };
        let status = Status {
            weir_version: evil(),
            source: evil(),
            mountpoint: evil(),
            fetch_policy: evil(),
            write_back: evil(),
            transfer: evil(),
            transport: evil(),
            order: evil(),
            metrics: evil(),
            requests: [(evil(), 1)].into(),
            names: Some(names),
            ..Status::default()
        };
        for text in [render(&status), render_requests(&status)] {
            let is_harmless = |letter: char| letter == '\n' || !letter.is_control();
            assert!(text.chars().all(is_harmless), "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with('y')), "{text}");
        }
    }

    #[test]
    fn requests_are_listed_with_the_most_frequent_first() {
        let requests = [("getattr", 3), ("lookup", 12), ("access", 3)];
        let requests = requests.map(|(name, count)| (name.to_owned(), count)).into();
        let status =
            Status { mountpoint: "/mnt".into(), requests, notifications: 2, ..Status::default() };
        let text = render_requests(&status);
        let rows: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            rows,
            ["/mnt", "lookup 12", "access 3", "getattr 3", "total 18", "notifications 2"]
        );
    }

    #[test]
    fn a_busy_mount_is_shown_with_units() {
        let status = Status {
            stats: StatsReport {
                dirty_pages: 256,
                oldest_dirty_ms: 65_000,
                read_hits: 3,
                read_misses: 1,
                destage_errors: 2,
                fetches_avoided: 7,
                ..StatsReport::default()
            },
            latency: crate::control::protocol::LatencyReport {
                write: PercentilesReport {
                    count: 10,
                    p50_ns: 900,
                    p99_ns: 1_500,
                    p999_ns: 25_000_000,
                    max_ns: 3_000_000_000,
                    ..PercentilesReport::default()
                },
                ..Default::default()
            },
            ..Status::default()
        };
        let text = render(&status);
        assert!(!text.contains("session"));
        let session = |every_write, pending| SessionReport {
            supervisor: 4_194_303,
            every_write,
            promises: 12_345_678,
            pending,
            commits: SessionCommitsReport {
                for_output: 12_345_678,
                for_judging: 12_345_678,
                ..SessionCommitsReport::default()
            },
            waits: SessionWaitsReport {
                count: 12_345_678,
                p50_us: 90,
                p99_us: 1500,
                max_us: 25_000,
                ..SessionWaitsReport::default()
            },
        };
        let sessions = vec![session(false, true), session(true, false)];
        let text = render(&Status { sessions, ..status });
        for part in [
            "session           process 4194303: 12345678 syncs promised, not all durable\n",
            "session           process 4194303: 12345678 changes promised\n",
            "commits         12345678 for output, 0 by syncs, 0 for others\n",
            "                  12345678 for judging, 0 after 5 s, 0 at ends\n",
            "waits           12345678, half up to 90 us, 99 % up to 1.5 ms, longest 25 ms\n",
            "256 pages (1 MiB), the oldest for 1 min 5 s",
            "75.0 % of pages",
            "2 writing home",
            "7 pages",
            "900 ns",
            "1.5 us",
            "25 ms",
            "3.0 s",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn write_back_is_shown_in_shares_of_the_memory() {
        let stats = StatsReport {
            cache_pages: 1000,
            dirty_memory_pages: 150,
            watermark_high_pages: 200,
            watermark_low_pages: 100,
            watermark_max_pages: 400,
            pressure_pages: 700,
            dirty_bound_pages: 800,
            dirtied_last_interval: 12_345_678,
            cleaned_last_interval: 12_345_678,
            writers_paced: 12_345_678,
            ghost_hits: 5,
            ghost_misses: 6,
            ..StatsReport::default()
        };
        let status = Status { write_back: "adaptive".into(), stats, ..Status::default() };
        let text = render(&status);
        for part in [
            "write-back        at 15.0 % of 20.0 %, to 10.0 % (max 40.0 %, pressure 70.0 %)",
            "12345678 pages dirtied, 12345678 written home",
            "12345678 writes",
            "5 hits, 6 misses",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let text = render(&Status { write_back: "static".into(), stats, ..Status::default() });
        assert!(text.contains("at 15.0 % of 20.0 %, writers wait at 80.0 %"), "{text}");
        assert!(!text.contains("ghost"), "{text}");
    }

    #[test]
    fn ages_have_two_units() {
        assert_eq!(age(Duration::from_millis(1_250)), "1.2 s");
        assert_eq!(age(Duration::from_secs(3_725)), "1 h 2 min");
        assert_eq!(age(Duration::from_secs(90_000)), "1 d 1 h");
    }
}
