//! `--record FILE`: the engine's figures over time, for plots and for diagnosis.
//!
//! A record is lines of JSON. The first is its header: the version of the format, the mount, and the name,
//! unit and kind of each figure. Each other line is one sample of the engine: when the mount answers, then
//! each second (or each `--write-back-interval`), and when the mount ends. The names are those of `weir status
//! --json`, which has no `clean_pages`.
//!
//! Owns the file and the thread that writes it.
//!
//! Invariants: a record has whole lines and at most [`BYTES_MAX`]; only its own thread waits for its disk, and
//! the end of the mount for at most a moment; an error ends the record and not the mount.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use weir_engine::Stats;

/// The first bytes of every record.
const BEGINNING: &[u8] = b"{\"weir_record\":";
/// The format's version. Added figures do not change it.
const VERSION: u32 = 1;
/// A record ends at this size: a week of seconds.
const BYTES_MAX: u64 = 512 << 20;
/// How long the end of a mount waits for the last line.
const PATIENCE: Duration = Duration::from_secs(1);

/// A figure of each line.
#[derive(Serialize)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    /// `now`, or `total` for a count since the mount began.
    kind: &'static str,
    #[serde(skip)]
    of: fn(&Stats) -> u64,
}

macro_rules! figures {
    (@of clean_pages) => { clean_pages };
    (@of $name:ident) => { |stats| stats.$name };
    ($($kind:ident $unit:literal: $($name:ident)+;)+) => {
        [$($(Figure {
            name: stringify!($name),
            unit: $unit,
            kind: stringify!($kind),
            of: figures!(@of $name),
        },)+)+]
    };
}

/// The figures of each line after `t_ms`, in this order.
const FIGURES: &[Figure] = &figures! {
    now "pages":
        watermark_high_pages watermark_low_pages watermark_max_pages pressure_pages
        dirty_bound_pages cache_pages dirty_memory_pages dirty_pages clean_pages patched_pages
        spilled_pages;
    now "pages in the last sampling interval": dirtied_last_interval cleaned_last_interval;
    now "requests":
        fetches_in_flight destages_in_flight sync_requests_waiting async_requests_waiting queue_depth;
    now "writers": writers_waiting;
    total "pages":
        dirtied_pages cleaned_pages read_hits read_misses ghost_hits ghost_misses fetched_pages
        evictions;
    total "requests":
        writes reads fetch_commands destage_commands destages_aged destages_pressed destages_synced
        destages_along windows;
    total "bytes": destage_bytes;
    total "writes": writers_paced writers_throttled writers_blocked_fetch;
};

/// Frames without dirty data; an estimate while pages are both in memory and spilled.
fn clean_pages(stats: &Stats) -> u64 {
    let elsewhere = stats.patched_pages + stats.spilled_pages;
    stats.frames.saturating_sub(stats.dirty_pages.saturating_sub(elsewhere))
}

/// The mount that is recorded.
pub struct Subject<'a> {
    /// SOURCE, canonical.
    pub source: &'a Path,
    /// MOUNTPOINT, canonical.
    pub mountpoint: &'a Path,
    /// The write-back policy's name.
    pub write_back: &'static str,
    /// The sampling interval.
    pub interval: Duration,
}

#[derive(Serialize)]
struct Header<'a> {
    weir_record: u32,
    weir_version: &'a str,
    source: String,
    mountpoint: String,
    write_back: &'a str,
    interval_ms: u128,
    page_bytes: usize,
    /// The start of `t_ms`, in milliseconds since the epoch, and by CLOCK_MONOTONIC.
    began_unix_ms: u128,
    began_monotonic_ns: u128,
    figures: &'a [Figure],
}

/// A record that cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot record to {}: {why}", path.display())]
pub struct RecordError {
    path: PathBuf,
    why: String,
}

/// A record with its header written.
pub struct Record {
    path: PathBuf,
    file: File,
    bytes: u64,
    began: Instant,
    interval: Duration,
}

/// A record under way. It ends when this is dropped.
pub struct Recording {
    over: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Record {
    /// Begins a record in a new file, or in place of another record.
    pub fn begin(path: &Path, subject: &Subject<'_>) -> Result<Record, RecordError> {
        let fail = |why: String| RecordError { path: path.to_owned(), why };
        let place = real(path).map_err(|error| fail(error.to_string()))?;
        for (name, directory) in [("SOURCE", subject.source), ("MOUNTPOINT", subject.mountpoint)] {
            if place.starts_with(directory) {
                return Err(fail(format!("it lies in {name}; give a file elsewhere")));
            }
        }
        let file = open(path).map_err(|error| fail(error.to_string()))?;
        let taken = is_something_else(&file).map_err(|error| fail(error.to_string()))?;
        if let Some(taken) = taken {
            return Err(fail(format!("it is {taken}; give another name")));
        }
        let (began, interval) = (Instant::now(), subject.interval);
        let mut record = Record { path: path.to_owned(), file, bytes: 0, began, interval };
        let begun = record.file.set_len(0).and_then(|()| record.append(&header(subject)?));
        begun.map(|()| record).map_err(|error| fail(error.to_string()))
    }

    /// Samples `look` now and then at each interval, on a thread of its own.
    pub fn start(mut self, look: impl Fn() -> Stats + Send + 'static) -> io::Result<Recording> {
        let (over, is_over) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel::<()>();
        thread::Builder::new().name("record".into()).spawn(move || {
            let goes_on = self.note(&look());
            drop(begin);
            if goes_on {
                self.keep(&look, &is_over);
            }
            drop(end);
        })?;
        // Nothing is ever sent. Only the thread waits for a disk that does not answer.
        let _ = begun.recv_timeout(PATIENCE);
        Ok(Recording { over: Some(over), ended })
    }

    fn keep(mut self, look: &impl Fn() -> Stats, is_over: &Receiver<()>) {
        let mut due = Instant::now() + self.interval;
        loop {
            let pause = due.saturating_duration_since(Instant::now());
            let over = is_over.recv_timeout(pause) != Err(RecvTimeoutError::Timeout);
            if !self.note(&look()) || over {
                return;
            }
            // After a suspension one sample is enough.
            due = (due + self.interval).max(Instant::now());
        }
    }

    /// Appends a sample. If that fails, logs it and returns false: the record has ended.
    fn note(&mut self, stats: &Stats) -> bool {
        let line = line(self.began.elapsed(), stats);
        let noted = self.append(&line);
        if let Err(error) = &noted {
            let path = self.path.display();
            tracing::warn!("the record in {path} ends here, the mount goes on: {error}");
        }
        noted.is_ok()
    }

    /// Appends a line, or none of it.
    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.bytes + line.len() as u64 > BYTES_MAX {
            return Err(io::Error::other("it has reached its largest size"));
        }
        let written = self.file.write_all(line.as_bytes());
        if written.is_err() {
            let _ = self.file.set_len(self.bytes);
        }
        self.bytes += line.len() as u64;
        written
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        drop(self.over.take());
        // Only the thread waits for a disk that does not answer.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// The path without links, of a file that may not exist.
fn real(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(path.parent().unwrap_or(Path::new("/")).canonicalize()?.join(name))
        }
        found => found,
    }
}

/// Opens the file; does not wait for the other end if it is a pipe.
fn open(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

/// Describes the file if it is neither empty nor a record.
fn is_something_else(file: &File) -> io::Result<Option<&'static str>> {
    if !file.metadata()?.is_file() {
        return Ok(Some("no regular file"));
    }
    let mut found = Vec::new();
    file.take(BEGINNING.len() as u64).read_to_end(&mut found)?;
    Ok((!found.is_empty() && found != BEGINNING).then_some("there already, and no record"))
}

fn header(subject: &Subject<'_>) -> io::Result<String> {
    let monotonic = clock_gettime(ClockId::Monotonic);
    let header = Header {
        weir_record: VERSION,
        weir_version: env!("CARGO_PKG_VERSION"),
        source: subject.source.to_string_lossy().into_owned(),
        mountpoint: subject.mountpoint.to_string_lossy().into_owned(),
        write_back: subject.write_back,
        interval_ms: subject.interval.as_millis(),
        page_bytes: weir_engine::PAGE_BYTES,
        began_unix_ms: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis()),
        began_monotonic_ns: monotonic.tv_sec as u128 * 1_000_000_000 + monotonic.tv_nsec as u128,
        figures: FIGURES,
    };
    Ok(serde_json::to_string(&header)? + "\n")
}

fn line(since: Duration, stats: &Stats) -> String {
    let mut line = format!("{{\"t_ms\":{}", since.as_millis());
    for figure in FIGURES {
        // Writing to a String cannot fail.
        let _ = write!(line, ",\"{}\":{}", figure.name, (figure.of)(stats));
    }
    line + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::Value;

    /// A directory with `source` and `mount` in it, removed on drop.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().canonicalize().unwrap();
            let path = path.join(format!("weir-record-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            for inside in ["source", "mount"] {
                fs::create_dir_all(path.join(inside)).unwrap();
            }
            Place(path)
        }

        fn begin(&self, name: &str) -> Result<Record, RecordError> {
            let subject = Subject {
                source: &self.0.join("source"),
                mountpoint: &self.0.join("mount"),
                write_back: "adaptive",
                interval: Duration::from_millis(5),
            };
            Record::begin(&self.0.join(name), &subject)
        }

        fn refused(&self, name: &str, why: &str) {
            let said = self.begin(name).map(drop).unwrap_err().to_string();
            assert!(said.contains(name) && said.contains(why), "{said}");
        }

        fn lines(&self, name: &str) -> Vec<Value> {
            let text = fs::read_to_string(self.0.join(name)).unwrap();
            assert!(text.ends_with('\n'));
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn stats() -> Stats {
        let dirty =
            Stats { dirty_pages: 7, patched_pages: 3, spilled_pages: 1, ..Stats::default() };
        Stats { frames: 13, watermark_high_pages: 40, dirtied_pages: 9, ..dirty }
    }

    #[test]
    fn records_are_read_back() {
        let place = Place::new("whole");
        for _ in 0..2 {
            let recording = place.begin("r.jsonl").unwrap().start(stats).unwrap();
            thread::sleep(Duration::from_millis(30));
            drop(recording);
        }
        let lines = place.lines("r.jsonl");
        let (header, lines) = lines.split_first().unwrap();
        assert_eq!((&header["weir_record"], &header["interval_ms"]), (&1.into(), &5.into()));
        assert!(lines.len() >= 2, "one at the beginning, one at the end: {}", lines.len());
        for two in lines.windows(2) {
            assert!(two[0]["t_ms"].as_u64() <= two[1]["t_ms"].as_u64());
        }
        let figures = header["figures"].as_array().unwrap();
        let last = lines.last().unwrap().as_object().unwrap();
        assert_eq!(last.len(), 1 + figures.len());
        assert!(figures.iter().all(|figure| last.contains_key(figure["name"].as_str().unwrap())));
        let expected = [("watermark_high_pages", 40), ("dirtied_pages", 9), ("clean_pages", 10)];
        for (name, value) in expected {
            assert_eq!(last[name], value, "{name}");
        }
    }

    #[test]
    fn only_files_of_its_own_are_written() {
        let place = Place::new("refused");
        fs::write(place.0.join("letter"), "dear").unwrap();
        symlink(place.0.join("source/new"), place.0.join("link")).unwrap();
        fs::write(place.0.join("source/new"), "").unwrap();
        place.refused("letter", "no record");
        place.refused("source", "lies in SOURCE");
        place.refused("source/r", "lies in SOURCE");
        place.refused("mount/r", "lies in MOUNTPOINT");
        place.refused("link", "lies in SOURCE");
        place.refused("gone/r", "No such file");
        fs::create_dir(place.0.join("directory")).unwrap();
        place.refused("directory", "directory");
        assert_eq!(fs::read(place.0.join("letter")).unwrap(), b"dear");
    }

    #[test]
    fn a_full_record_has_whole_lines() {
        let place = Place::new("long");
        let mut record = place.begin("r.jsonl").unwrap();
        record.append("{}\n").unwrap();
        record.bytes = BYTES_MAX;
        assert!(record.append("{\"cut\":1}\n").is_err());
        assert_eq!(place.lines("r.jsonl").len(), 2);
    }
}
