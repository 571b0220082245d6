//! `weir run --report`: counts of reads and writes by the lane and by the kernel, with reasons.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use weir_lane::tally::{Count, Fallback, Program, Tally};

use crate::cli::RunArguments;
use crate::failure::Failure;
use crate::quantity::Size;
use crate::run::tally::TallyFile;

/// Counts of all processes of one name.
#[derive(Clone, Debug, Default, Serialize)]
struct Line {
    processes: u64,
    files_in_lane: u64,
    lane: Counts,
    kernel: Counts,
    lane_appends: u64,
    syncs: u64,
    kernel_reads_because: BTreeMap<&'static str, u64>,
    kernel_writes_because: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
}

/// The whole report.
#[derive(Debug, Serialize)]
struct Report {
    weir_version: &'static str,
    command: Vec<String>,
    exit_status: u8,
    total: Line,
    programs: BTreeMap<String, Line>,
}

/// Prints the report to its destination.
pub fn print(
    file: &TallyFile,
    arguments: &RunArguments,
    command: &[OsString],
    exit_status: u8,
) -> Result<(), Failure> {
    let report = gather(&file.tally, command, exit_status);
    let text = if is_json(arguments) { json(&report) } else { render(&report) };
    deliver(arguments, &text)
}

/// Whether the report is to be JSON.
pub fn is_json(arguments: &RunArguments) -> bool {
    let path = arguments.report.as_ref().and_then(Option::as_deref);
    arguments.report_json
        || path.and_then(Path::extension).is_some_and(|extension| extension == "json")
}

/// Writes a report where it is wanted.
pub fn deliver(arguments: &RunArguments, text: &str) -> Result<(), Failure> {
    match arguments.report.as_ref().and_then(Option::as_deref) {
        Some(path) => std::fs::write(path, text).map_err(|error| {
            Failure::Refused(format!("cannot write the report to {}: {error}", path.display()))
        }),
        None => {
            // If standard error is closed, no report is wanted.
            let _ = io::stderr().write_all(text.as_bytes());
            Ok(())
        }
    }
}

fn gather(tally: &Tally, command: &[OsString], exit_status: u8) -> Report {
    let mut programs = BTreeMap::<String, Line>::new();
    let mut total = Line::default();
    for program in tally.programs() {
        let name = String::from_utf8_lossy(&program.name()).into_owned();
        programs.entry(name).or_default().add(program);
        total.add(program);
    }
    let command = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Report { weir_version: env!("CARGO_PKG_VERSION"), command, exit_status, total, programs }
}

impl Line {
    fn add(&mut self, program: &Program) {
        self.processes += u64::from(program.processes());
        self.files_in_lane += program.count(Count::Attached);
        self.lane.reads += program.count(Count::LaneReads);
        self.lane.read_bytes += program.count(Count::LaneReadBytes);
        self.lane.writes += program.count(Count::LaneWrites);
        self.lane.write_bytes += program.count(Count::LaneWriteBytes);
        self.lane_appends += program.count(Count::LaneAppends);
        self.kernel.read_bytes += program.count(Count::KernelReadBytes);
        self.kernel.write_bytes += program.count(Count::KernelWriteBytes);
        self.syncs += program.count(Count::Syncs);
        for fallback in Fallback::ALL {
            let (reads, writes) = (program.kernel_reads(fallback), program.kernel_writes(fallback));
            self.kernel.reads += reads;
            self.kernel.writes += writes;
            if reads != 0 {
                *self.kernel_reads_because.entry(key(fallback)).or_default() += reads;
            }
            if writes != 0 {
                *self.kernel_writes_because.entry(key(fallback)).or_default() += writes;
            }
        }
    }
}

fn json(report: &Report) -> String {
    serde_json::to_string_pretty(report).expect("plain structures of strings and numbers") + "\n"
}

fn render(report: &Report) -> String {
    let mut text =
        format!("weir run: {} (status {})\n", report.command.join(" "), report.exit_status);
    if report.programs.is_empty() {
        text.push_str("  no program read or wrote a file on a FUSE mount by a covered call\n");
        return text;
    }
    if report.programs.len() > 1 {
        render_line(&mut text, "in total", &report.total);
    }
    for (name, line) in &report.programs {
        render_line(&mut text, name, line);
    }
    text
}

fn render_line(text: &mut String, name: &str, line: &Line) {
    let processes = match line.processes {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    let _ = writeln!(text, "{name}: {processes}, {} files in the lane", line.files_in_lane);
    let render_counts = |text: &mut String, label: &str, counts: &Counts, more: &str| {
        let _ = writeln!(
            text,
            "  {label:<10} {} reads ({}), {} writes ({}){more}",
            counts.reads,
            Size(counts.read_bytes),
            counts.writes,
            Size(counts.write_bytes)
        );
    };
    let appends = match line.lane_appends {
        0 => String::new(),
        count => format!(", {count} of them appended"),
    };
    render_counts(text, "by lane", &line.lane, &appends);
    render_counts(text, "by kernel", &line.kernel, "");
    for (label, because) in
        [("reads", &line.kernel_reads_because), ("writes", &line.kernel_writes_because)]
    {
        let mut reasons: Vec<_> = because.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (reason, count) in reasons {
            let _ = writeln!(text, "    {count} {label}: {}", described(reason));
        }
    }
    if line.syncs != 0 {
        let _ = writeln!(text, "  syncs      {}", line.syncs);
    }
}

/// A reason's name in JSON, and its text.
fn words(fallback: Fallback) -> (&'static str, &'static str) {
    match fallback {
        Fallback::Early => ("early", "the file had not been used often enough for the lane"),
        Fallback::Refused => ("refused", "the mount has no lane, or not for this file or process"),
        Fallback::Absent => ("absent", "not all of the pages were in memory"),
        Fallback::Pending => ("pending", "a write to one of the pages was pending"),
        Fallback::Mode => ("mode", "the file is also used by other programs, or by the kernel"),
        Fallback::End => ("end", "past the end of the file"),
        Fallback::Reserved => ("reserved", "past what is reserved for the file"),
        Fallback::Full => ("full", "the ring was full"),
        Fallback::Large => ("large", "more bytes than the lane takes at once"),
        Fallback::Synchronous => ("synchronous", "opened with O_SYNC or O_DSYNC"),
        Fallback::Direct => ("direct", "opened with O_DIRECT"),
        Fallback::Mapped => ("mapped", "the file is mapped"),
        Fallback::Passed => ("passed", "the descriptor was passed on to another program"),
        Fallback::Gone => ("gone", "the daemon is gone"),
        Fallback::NoRing => ("no_ring", "more threads than there are rings"),
        Fallback::Nested => {
            ("nested", "in a signal handler inside a write, or in a child of vfork")
        }
        Fallback::Limited => ("limited", "the process has a limit on the size of files"),
        Fallback::Order => ("order", "in a session, another program wrote by the lane at the time"),
        Fallback::Special => ("special", "flags, sizes or offsets that only the kernel handles"),
    }
}

fn key(fallback: Fallback) -> &'static str {
    words(fallback).0
}

fn described(key: &str) -> &'static str {
    let fallback = Fallback::ALL.into_iter().find(|fallback| words(*fallback).0 == key);
    fallback.map_or("", |fallback| words(fallback).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let file = TallyFile::create().unwrap();
        let name = *b"cp\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let place = file.tally.take(1, name, |_| true);
        place.add(Count::Attached, 1);
        place.add(Count::LaneWrites, 7);
        place.add(Count::LaneWriteBytes, 4096);
        place.add_kernel_write(Fallback::Early, 100);
        place.add_kernel_write(Fallback::Full, 100);
        place.add_kernel_write(Fallback::Full, 100);
        file.tally.take(2, name, |_| true).add_kernel_read(Fallback::End, 10);
        gather(&file.tally, &["cp".into(), "a".into()], 0)
    }

    #[test]
    fn processes_of_a_name_are_one() {
        let report = report();
        let line = &report.programs["cp"];
        assert_eq!((line.processes, line.kernel.writes, line.kernel.reads), (2, 3, 1));
        assert_eq!(report.total.kernel.write_bytes, 300);
        let json: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        assert_eq!(json["programs"]["cp"]["kernel_writes_because"]["full"], 2);
    }

    #[test]
    fn the_most_frequent_reason_comes_first() {
        let text = render(&report());
        let full = text.find("2 writes: the ring was full").unwrap();
        assert!(
            full < text.find("1 writes: the file had not been used often enough").unwrap(),
            "{text}"
        );
        assert!(text.starts_with("weir run: cp a (status 0)\ncp: 2 processes, 1 files"), "{text}");
    }

    #[test]
    fn each_reason_has_its_own_text() {
        let keys: std::collections::BTreeSet<_> = Fallback::ALL.into_iter().map(key).collect();
        assert_eq!(keys.len(), Fallback::ALL.len());
        assert!(Fallback::ALL.into_iter().all(|fallback| !described(key(fallback)).is_empty()));
    }
}
