//! One mount as it is watched: its last two samples, what they say together, and the course of its dirty memory.
//!
//! Invariants: at most [`HISTORY_MAX`] points of the course are kept, and those of one daemon only.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::asking::{Answer, Key};
use super::figures;
use super::sample::{self, FileWaits, Rates, Sample, page_bytes};
use crate::control::protocol::Status;
use crate::mounts::{Mount, shown};

/// Points of the course that are kept: more than any terminal shows.
const HISTORY_MAX: usize = 2000;

/// Dirty memory at one moment, and the watermarks between which it is written home. Bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) at: Instant,
    pub(super) dirty: u64,
    pub(super) low: u64,
    pub(super) high: u64,
}

/// A mount, and what is known of it.
pub(super) struct Watched {
    pub(super) key: Key,
    pub(super) source: String,
    now: Option<Sample>,
    /// Over the time between the last two samples.
    pub(super) rates: Option<Rates>,
    pub(super) files: Vec<FileWaits>,
    pub(super) history: VecDeque<Point>,
    /// Since when there is no answer, and why.
    trouble: Option<(Instant, String)>,
    /// It is another user's.
    pub(super) is_denied: bool,
}

impl Watched {
    pub(super) fn new(mount: &Mount) -> Watched {
        Watched {
            key: Key::of(mount),
            source: shown(&mount.source),
            now: None,
            rates: None,
            files: Vec::new(),
            history: VecDeque::new(),
            trouble: None,
            is_denied: false,
        }
    }

    /// Takes an answer that came at `at`.
    pub(super) fn take(&mut self, at: Instant, answer: Answer) {
        match answer {
            Answer::Denied => self.is_denied = true,
            Answer::None(reason) => {
                let since = self.trouble.as_ref().map_or(at, |(since, _)| *since);
                self.trouble = Some((since, reason));
            }
            Answer::Status(status) => {
                self.trouble = None;
                let now = Sample { at, status };
                self.rates = self.now.as_ref().and_then(|before| sample::rates(before, &now));
                if self.rates.is_none() {
                    self.history.clear();
                }
                self.files = sample::slow_files(self.now.as_ref(), &now);
                if self.history.len() == HISTORY_MAX {
                    self.history.pop_front();
                }
                let stats = &now.status.stats;
                self.history.push_back(Point {
                    at,
                    dirty: page_bytes(stats.dirty_memory_pages),
                    low: page_bytes(stats.watermark_low_pages),
                    high: page_bytes(stats.watermark_high_pages),
                });
                self.now = Some(now);
            }
        }
    }

    /// Its mount point, on one line.
    pub(super) fn name(&self) -> String {
        figures::name(&shown(&self.key.mountpoint))
    }

    /// The last answer.
    pub(super) fn status(&self) -> Option<&Status> {
        self.now.as_ref().map(|sample| &*sample.status)
    }

    /// Why there is no answer, and for how long; `None` if it answers.
    pub(super) fn trouble(&self, now: Instant) -> Option<(&str, Duration)> {
        let (since, reason) = self.trouble.as_ref()?;
        Some((reason, now.saturating_duration_since(*since)))
    }

    /// In a word or two: what is special about it.
    pub(super) fn state(&self, now: Instant) -> Option<String> {
        if let Some((reason, since)) = self.trouble(now) {
            return Some(format!("{reason} for {}", figures::age(since)));
        }
        let status = match self.status() {
            None => return Some("asked".to_owned()),
            Some(status) => status,
        };
        if self.key.former_of.is_some() {
            Some("unmounted, brings data home".to_owned())
        } else if status.stopping {
            Some("ending".to_owned())
        } else if status.stats.log_errors > 0 {
            Some("the log failed".to_owned())
        } else {
            None
        }
    }

    /// Requests that wait now, as far as the daemon says.
    pub(super) fn waiting(&self) -> Option<u64> {
        let waiting = self.status()?.waiting?;
        Some(waiting.writes + waiting.reads + waiting.syncs + waiting.others)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::command::top::sample::tests::sample;
    use crate::mounts::Device;

    pub(in super::super) fn mount(point: &str, minor: u32) -> Mount {
        Mount {
            device: Device { major: 0, minor },
            root: "/".into(),
            mount_point: point.into(),
            options: String::new(),
            fs_type: crate::mounts::FS_TYPE.to_owned(),
            source: format!("/srv{point}").into(),
            super_options: String::new(),
            former_of: None,
        }
    }

    #[test]
    fn the_course_is_of_one_daemon_and_bounded() {
        let mut of = Watched::new(&mount("/mnt", 1));
        let at = Instant::now();
        let mut answer = |uptime_ms, writes| {
            let sample = sample(uptime_ms, |status| status.stats.writes = writes);
            of.take(at, Answer::Status(sample.status));
            (of.history.len(), of.rates.map(|rates| rates.writes))
        };
        assert_eq!(answer(1000, 5), (1, None));
        assert_eq!(answer(2000, 9), (2, Some(4.0)));
        assert_eq!(answer(500, 0), (1, None), "it was mounted again");
        for second in 1..3000 {
            answer(second * 1000, second);
        }
        assert_eq!(answer(3_000_000, 3000), (HISTORY_MAX, Some(1.0)));
    }

    #[test]
    fn silence_is_counted_from_its_beginning() {
        let mut of = Watched::new(&mount("/mnt", 1));
        let at = Instant::now();
        let later = |seconds| at + Duration::from_secs(seconds);
        assert_eq!(of.state(at).as_deref(), Some("asked"));
        of.take(at, Answer::Status(sample(1000, |_| {}).status));
        assert_eq!(of.state(at), None);
        of.take(later(2), Answer::None("no answer".to_owned()));
        of.take(later(4), Answer::None("no answer".to_owned()));
        assert_eq!(of.state(later(7)).as_deref(), Some("no answer for 5s"));
        of.take(later(8), Answer::Status(sample(9000, |status| status.stopping = true).status));
        assert_eq!(of.state(later(8)).as_deref(), Some("ending"));
    }
}
