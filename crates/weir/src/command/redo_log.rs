//! `weir recover` and `weir log`: a redo log without a mount.

mod explain;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;

use weir_backend::{Lefts, LogFile, Look, OpenLogError, without_void};
use weir_log::{Group, Record, Report, Scan, Superblock};

use crate::cli::{LogArguments, RecoverArguments};
use crate::daemon::DaemonError;
use crate::failure::Failure;
use crate::mounts::MountTable;
use crate::source::{self, Source};

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::Refused(error.to_string())
}

/// Replays a log to its SOURCE.
pub fn recover(arguments: &RecoverArguments) -> Result<ExitCode, Failure> {
    let mounts = MountTable::read().map_err(refused)?;
    let source = Source::open(&arguments.source, &mounts).map_err(DaemonError::from)?;
    let lock = source.lock(Path::new("(recovery)")).map_err(DaemonError::from)?;
    let path = arguments.log.clone().unwrap_or_else(|| source::log_path(source.path()));
    let Some(log) = LogFile::open(&path).map_err(refused)? else {
        let named = arguments.log.is_some();
        drop(lock);
        if named {
            return Err(refused(format!("there is no log at {}", path.display())));
        }
        print("there is no log: nothing to recover\n")?;
        return Ok(ExitCode::SUCCESS);
    };
    let report = weir_backend::recover(&log, source.as_fd(), arguments.dry_run);
    let report = report.map_err(refused)?;
    print(&describe(&report, arguments.dry_run))?;
    if arguments.dry_run {
        let superblock = log.superblock(None).map_err(refused)?;
        print(&by_file(&log, superblock, source.as_fd())?)?;
    }
    if !report.left.is_empty() {
        return Err(refused(OpenLogError::Left { path, left: Lefts(report.left) }));
    }
    if !arguments.dry_run && arguments.log.is_none() {
        source::remove_log(source.path());
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(report: &Report, dry: bool) -> String {
    let Report { groups, applied, applied_bytes, void, gone, files, .. } = report;
    let would = if dry { "would be " } else { "" };
    let mut text = format!(
        "{applied} records with {applied_bytes} bytes {would}brought home to {files} files, from \
         {groups} groups\n"
    );
    if *void > 0 {
        let _ = writeln!(text, "{void} records are void: newer data is home");
    }
    if *gone > 0 {
        let _ = writeln!(text, "{gone} records are about files that are gone");
    }
    if report.torn {
        text.push_str("the last group was not whole: it was never acknowledged\n");
    }
    text
}

/// What recovery would do to each file that a log names, a line each.
fn by_file(
    log: &LogFile,
    superblock: Superblock,
    source: BorrowedFd<'_>,
) -> Result<String, Failure> {
    let superblock = without_void(source, superblock);
    let mut reader = log;
    let explained = explain::read(&mut reader, superblock).map_err(refused)?;
    let mut look = Look::new(source, &superblock).map_err(refused)?;
    Ok(explained.lines(&mut look).iter().map(|line| format!("  {line}\n")).collect())
}

/// The directory whose files a log is about, open, if it is known.
fn served(arguments: &LogArguments) -> Option<File> {
    let named = arguments.source.as_deref();
    let source = named.or_else(|| match arguments.path.is_dir() {
        true => Some(arguments.path.as_path()),
        false => explain::source_of(&arguments.path),
    });
    File::open(source?).ok()
}

/// Shows a log.
pub fn show(arguments: &LogArguments) -> Result<ExitCode, Failure> {
    let path = match arguments.path.is_dir() {
        true => source::log_path(&arguments.path),
        false => arguments.path.clone(),
    };
    let log = LogFile::open_to_look(&path).map_err(refused)?;
    let superblock = log.superblock(None).map_err(refused)?;
    print(&header(&path, &superblock))?;
    let source = served(arguments);
    let look = source.as_ref().map(|source| Look::new(source.as_fd(), &superblock));
    let mut look = look.transpose().map_err(refused)?;
    let mut reader = &log;
    let mut scan = Scan::new(&mut reader, superblock);
    loop {
        match scan.next_group().map_err(refused)? {
            Ok(group) => {
                print(&group_text(&group, look.as_mut()))?;
                if let Err((lsn, error)) = group.records() {
                    let place = group.place(lsn);
                    return Err(refused(format!("at byte {place} (LSN {lsn}): {error}")));
                }
                scan.recycle(group);
            }
            Err(end) => {
                let torn = if end.torn { ", where a group was begun and is not whole" } else { "" };
                print(&format!("end at LSN {}{torn}\n", end.lsn))?;
                if let Some(source) = &source {
                    print("recovery would, file by file:\n")?;
                    print(&by_file(&log, superblock, source.as_fd())?)?;
                }
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

fn header(path: &Path, superblock: &Superblock) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let rows = match superblock.row_blocks {
        1 => "groups one after the other".to_owned(),
        blocks => format!("rows of {blocks} blocks"),
    };
    format!(
        "log {}\n  name {}\n  mount {}\n  {} bytes, {}, generation {}, checkpoint {}{}\n",
        path.display(),
        hex(&superblock.log),
        hex(&superblock.mount),
        superblock.bytes,
        rows,
        superblock.generation,
        superblock.checkpoint,
        if superblock.clean { ", clean: nothing is replayed" } else { "" }
    )
}

fn group_text(group: &Group, mut look: Option<&mut Look>) -> String {
    let header = &group.header;
    let mut text = format!(
        "group {} at byte {}: {} records, {} bytes, durable before {}\n",
        header.lsn, header.place, header.records, header.bytes, header.durable
    );
    for (lsn, record) in group.records().into_iter().flatten() {
        let _ = match record {
            Record::File { file, identity } => {
                let handle: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
                let name = look.as_deref_mut().map(|look| explain::name(look, identity));
                let name = name.map_or(String::new(), |name| format!(": {name}"));
                writeln!(text, "  {lsn} file {file} is {handle}{name}")
            }
            Record::Write { file, offset, data } => {
                writeln!(text, "  {lsn} file {file} write {} bytes at {offset}", data.len())
            }
            Record::Truncate { file, size } => {
                writeln!(text, "  {lsn} file {file} truncate to {size}")
            }
            Record::Revoke { file, before } => {
                writeln!(text, "  {lsn} file {file} revoke before {before}")
            }
        };
    }
    text
}

/// Prints, and ends in peace when nobody reads on.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(|error| refused(format!("cannot write the answer: {error}"))),
    }
}
