//! `weir recover` and `weir log`: a redo log without a mount.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use weir_backend::{Lefts, LogFile, OpenLogError};
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

/// Shows a log.
pub fn show(arguments: &LogArguments) -> Result<ExitCode, Failure> {
    let path = match arguments.path.is_dir() {
        true => source::log_path(&arguments.path),
        false => arguments.path.clone(),
    };
    let log = LogFile::open_to_look(&path).map_err(refused)?;
    let superblock = log.superblock(None).map_err(refused)?;
    print(&header(&path, &superblock))?;
    let mut reader = &log;
    let mut scan = Scan::new(&mut reader, superblock);
    loop {
        match scan.next_group().map_err(refused)? {
            Ok(group) => {
                print(&group_text(&group))?;
                if let Err((lsn, error)) = group.records() {
                    let place = group.place(lsn);
                    return Err(refused(format!("at byte {place} (LSN {lsn}): {error}")));
                }
                scan.recycle(group);
            }
            Err(end) => {
                let torn = if end.torn { ", where a group was begun and is not whole" } else { "" };
                print(&format!("end at LSN {}{torn}\n", end.lsn))?;
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

fn group_text(group: &Group) -> String {
    let header = &group.header;
    let mut text = format!(
        "group {} at byte {}: {} records, {} bytes, durable before {}\n",
        header.lsn, header.place, header.records, header.bytes, header.durable
    );
    for (lsn, record) in group.records().into_iter().flatten() {
        let _ = match record {
            Record::File { file, identity } => {
                let handle: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(text, "  {lsn} file {file} is {handle}")
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
