//! The status of mounts as metrics, in Prometheus' text format (version 0.0.4 of its exposition formats).
//!
//! `families` says which metrics there are and what each has of a status; `text` writes the format. Names follow Prometheus'
//! conventions: `weir_`, the unit in the name and always a base unit (bytes, seconds), `_total` for what only grows.
//!
//! Does not own how the text is delivered: `weir status --prometheus` prints it, and a daemon serves it (`daemon/scraped`).
//!
//! Invariants: a family is written once, with all mounts' samples; no two samples have the same name and labels, whatever daemons
//! say: of two the first is written, and a comment tells of the other. A metric keeps its name and
//! meaning: dashboards and alerts of others depend on it.

mod families;
mod text;

use std::collections::BTreeSet;

use crate::control::protocol::Status;

use families::FAMILIES;
use text::{Kind, Samples, labels};

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A mount whose daemon does not answer.
pub struct Silent {
    /// MOUNTPOINT.
    pub mountpoint: String,
    /// SOURCE.
    pub source: String,
}

/// The metrics of mounts: of those that answer, their status; of the others, that they do not.
pub fn render(statuses: &[Status], silent: &[Silent]) -> String {
    let mut seen = BTreeSet::new();
    let mut is_new = |labels: &String| seen.insert(labels.clone());
    let of =
        |mountpoint: &str, source: &str| labels(&[("mountpoint", mountpoint), ("source", source)]);
    let mounts = statuses.iter().map(|status| (of(&status.mountpoint, &status.source), status));
    let mut out = String::new();
    let mut is_first = |labels: &String| {
        let is_first = is_new(labels);
        if !is_first {
            text::warn("left out: another mount has these labels", labels, &mut out);
        }
        is_first
    };
    let mounts: Vec<_> = mounts.filter(|(labels, _)| is_first(labels)).collect();
    let silent = silent.iter().map(|mount| of(&mount.mountpoint, &mount.source));
    let silent: Vec<_> = silent.filter(is_first).collect();

    let mut up = Samples::new("weir_up");
    mounts.iter().for_each(|(labels, _)| up.of_mount(labels).add(&[], 1_u64));
    silent.iter().for_each(|labels| up.of_mount(labels).add(&[], 0_u64));
    up.write(Kind::Gauge, "Whether the mount's daemon answers.", &mut out);
    for family in FAMILIES {
        let mut samples = Samples::new(family.name);
        for (labels, status) in &mounts {
            (family.take)(status, samples.of_mount(labels));
        }
        samples.write(family.kind, family.help, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{
        LaneReport, LatencyReport, NamesReport, PercentilesReport, SessionReport, StatsReport,
    };

    fn busy(mountpoint: &str) -> Status {
        let write = PercentilesReport {
            count: 4,
            sum_ns: 5_000_000_000,
            p50_ns: 1500,
            max_ns: 2_000_000_000,
            ..PercentilesReport::default()
        };
        Status {
            weir_version: "1.2.3".into(),
            mountpoint: mountpoint.into(),
            source: "/srv/a \"b\"\\c\nd".into(),
            requests: [("lookup".to_owned(), 7), ("write".to_owned(), 9)].into(),
            stats: StatsReport {
                write_bytes: u64::MAX,
                dirty_pages: 3,
                oldest_dirty_ms: 1500,
                log_capacity_bytes: 1 << 20,
                log_errors: 1,
                ..StatsReport::default()
            },
            latency: LatencyReport { write, ..LatencyReport::default() },
            lane: Some(LaneReport { posted_writes: 5, ..LaneReport::default() }),
            names: Some(NamesReport { pending: 2, refused: 1, ..NamesReport::default() }),
            sessions: vec![SessionReport {
                supervisor: 11,
                promises: 3,
                ..SessionReport::default()
            }],
            ..Status::default()
        }
    }

    #[test]
    fn samples_have_the_statuss_values_in_base_units() {
        let text = render(&[busy("/m")], &[]);
        let of = "mountpoint=\"/m\",source=\"/srv/a \\\"b\\\"\\\\c\\nd\"";
        for line in [
            format!("weir_up{{{of}}} 1"),
            format!("weir_written_bytes_total{{{of}}} 18446744073709551615"),
            format!("weir_dirty_bytes{{{of}}} 12288"),
            format!("weir_oldest_dirty_seconds{{{of}}} 1.5"),
            format!("weir_fuse_requests_total{{{of},kind=\"lookup\"}} 7"),
            format!(
                "weir_request_duration_seconds{{{of},operation=\"write\",quantile=\"0.5\"}} 0.0000015"
            ),
            format!("weir_request_duration_seconds{{{of},operation=\"write\",quantile=\"1\"}} 2"),
            format!("weir_request_duration_seconds_sum{{{of},operation=\"write\"}} 5"),
            format!("weir_request_duration_seconds_count{{{of},operation=\"write\"}} 4"),
            // Nothing was read: there are no quantiles.
            format!(
                "weir_request_duration_seconds{{{of},operation=\"read\",quantile=\"0.5\"}} NaN"
            ),
            format!("weir_log_failed{{{of}}} 1"),
            format!("weir_lane_posted_writes_total{{{of}}} 5"),
            format!("weir_names_refused{{{of}}} 1"),
            format!("weir_session_promises_total{{{of},session=\"11\",promise=\"syncs\"}} 3"),
        ] {
            assert!(text.lines().any(|got| got == line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_a_mount_does_not_have_is_left_out() {
        let plain = Status { mountpoint: "/m".into(), ..Status::default() };
        let text = render(&[plain], &[]);
        for absent in ["weir_log_used_bytes", "weir_lane", "weir_names", "weir_session_promises"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        assert!(text.contains("\nweir_sessions{"), "{text}");
    }

    #[test]
    fn control_characters_in_labels_are_escaped() {
        let mut status = busy("/m\u{1b}[2J\t\u{9b}");
        status.weir_version = "1\r\u{1b}".into();
        status.requests = [("a\u{0}".to_owned(), 1)].into();
        let text = render(&[status], &[]);
        assert!(text.contains("mountpoint=\"/m\\\\u{1b}[2J\\\\t\\\\u{9b}\""), "{text}");
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }

    #[test]
    fn sessions_of_one_number_do_not_spoil_the_others() {
        let of = |supervisor, every_write| SessionReport {
            supervisor,
            every_write,
            ..SessionReport::default()
        };
        let sessions = vec![of(7, false), of(7, true), of(7, false), of(0, true), of(0, true)];
        let text = render(&[Status { sessions, ..busy("/m") }], &[]);
        let with = |labels: &str| {
            let start = "weir_session_promises_total{";
            text.lines().filter(|line| line.starts_with(start) && line.contains(labels)).count()
        };
        assert_eq!(with("session=\"7\",promise=\"syncs\""), 1, "{text}");
        assert_eq!(with("session=\"7\",promise=\"changes\""), 1, "{text}");
        assert_eq!(with("session=\"0\""), 1, "{text}");
        assert!(text.contains("# weir: left out"), "{text}");
    }

    #[test]
    fn families_come_once_and_samples_are_unique() {
        let silent =
            |mountpoint: &str| Silent { mountpoint: mountpoint.into(), source: "/s".into() };
        let statuses = [busy("/a"), busy("/b"), busy("/a")];
        let text = render(&statuses, &[silent("/c"), silent("/c")]);
        let mut samples = BTreeSet::new();
        let mut types = BTreeSet::new();
        let mut left_out = 0;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(types.insert(rest.split(' ').next().unwrap().to_owned()), "{line}");
            } else if line.starts_with("# weir: left out: another mount has these labels") {
                left_out += 1;
            } else if !line.starts_with('#') {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(samples.insert(sample.to_owned()), "{line}");
            }
        }
        assert_eq!(left_out, 2);
        assert!(text.contains("weir_up{mountpoint=\"/c\",source=\"/s\"} 0\n"), "{text}");
        assert!(render(&[], &[]).is_empty());
    }

    #[test]
    fn names_follow_the_conventions() {
        for family in FAMILIES {
            let name = family.name;
            assert!(name.starts_with("weir_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{name}");
        }
    }
}
