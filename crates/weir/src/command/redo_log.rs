//! `weir recover` and `weir log`: a redo log without a mount.

mod explain;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;

use weir_backend::{LogFile, LogPlace, Look, without_void};
use weir_log::{Group, Record, Report, Scan, Superblock};

use crate::bucket::Bucket;
use crate::cli::{LogArguments, RecoverArguments};
use crate::command::progress::Progress;
use crate::daemon::DaemonError;
use crate::failure::Failure;
use crate::log_place::{self, Logs};
use crate::mounts::MountTable;
use crate::source::{self, Source};

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::Refused(error.to_string())
}

/// Replays a log to its SOURCE.
pub fn recover(arguments: &RecoverArguments) -> Result<ExitCode, Failure> {
    let Some(bucket) = Bucket::named(&arguments.source, &arguments.bucket) else {
        return recover_to(&arguments.source, arguments);
    };
    let mut served = bucket.start().map_err(DaemonError::from)?;
    served.listen().map_err(DaemonError::from)?;
    let outcome = recover_to(served.directory(), arguments)?;
    served.end().map_err(DaemonError::from)?;
    Ok(outcome)
}

fn recover_to(directory: &Path, arguments: &RecoverArguments) -> Result<ExitCode, Failure> {
    let mounts = MountTable::read().map_err(refused)?;
    let source = Source::open(directory, &mounts).map_err(DaemonError::from)?;
    let lock = source.lock(Path::new("(recovery)"), false).map_err(DaemonError::from)?;
    let logs = Logs::new(&source, lock.own());
    let dry = arguments.dry_run;
    let named = arguments.log.as_deref();
    let named = named.filter(|path| !source::is_log_path(source.path(), path));
    let progress = Progress::of_recovery(logs.progress());
    let mut brought = match arguments.force {
        true => None,
        false => logs.bring_home(named, dry).map_err(refused)?,
    };
    if let (None, Some(path)) = (&brought, named) {
        brought = logs.recover_named(path, arguments.force, dry).map_err(refused)?;
        if brought.is_none() {
            return Err(refused(format!("there is no log at {}", path.display())));
        }
    }
    drop(progress);
    match &brought {
        Some(brought) => {
            print(&describe(&brought.report, dry))?;
            print(&brought.told.iter().map(|told| format!("{told}\n")).collect::<String>())?;
            if dry {
                let place = LogPlace::at(&brought.path);
                let log = place.and_then(|place| LogFile::open_to_look(&place)).map_err(refused)?;
                print(&by_file(&log, source.as_fd())?)?;
            }
        }
        None => print("there is no log: nothing to recover\n")?,
    }
    if !dry {
        logs.give_back_reserved();
    }
    if !dry && !arguments.force && source.is_writable() {
        logs.put_away().map_err(refused)?;
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
        text.push_str("the last group is incomplete: it was never acknowledged\n");
    }
    text
}

/// What recovery would do to each file in a log, one line each.
fn by_file(log: &LogFile, source: BorrowedFd<'_>) -> Result<String, Failure> {
    let Some(superblock) = log.superblock().map_err(refused)? else { return Ok(String::new()) };
    let superblock = without_void(source, superblock).map_err(refused)?;
    let mut reader = log;
    let explained = explain::read(&mut reader, superblock).map_err(refused)?;
    let mut look = Look::new(source, &superblock).map_err(refused)?;
    Ok(explained.lines(&mut look).iter().map(|line| format!("  {line}\n")).collect())
}

/// The directory of a log's files, open, if it is known.
fn served(arguments: &LogArguments) -> Option<File> {
    let named = arguments.source.as_deref();
    let source = named.or_else(|| match arguments.path.is_dir() {
        true => Some(arguments.path.as_path()),
        false => explain::source_of(&arguments.path),
    });
    File::open(source?).ok()
}

/// Shows a log, or makes an empty one.
pub fn show(arguments: &LogArguments) -> Result<ExitCode, Failure> {
    if arguments.format {
        return format(&arguments.path, arguments.force);
    }
    let path = match arguments.path.is_dir() {
        true => {
            let mounts = MountTable::read().map_err(refused)?;
            let source = Source::open(&arguments.path, &mounts).map_err(DaemonError::from)?;
            log_place::find(&source).map_err(refused)?
        }
        false => arguments.path.clone(),
    };
    let log = LogPlace::at(&path).and_then(|place| LogFile::open_to_look(&place));
    let log = log.map_err(refused)?;
    let superblock = log.superblock().map_err(refused)?;
    let superblock =
        superblock.ok_or_else(|| refused(format!("{} is blank: no log", path.display())))?;
    print(&header(&path, &superblock))?;
    let source = served(arguments);
    let look = source.as_ref().map(|source| Look::new(source.as_fd(), &superblock));
    let mut look = look.transpose().map_err(refused)?;
    let mut reader = &log;
    let mut scan = Scan::new(&mut reader, superblock);
    // The first record that cannot be read: recovery would refuse the log.
    let mut failed = None;
    loop {
        match scan.next_group().map_err(refused)? {
            Ok(group) => {
                print(&group_text(&group, look.as_mut()))?;
                if let Err(error) = group.records() {
                    failed.get_or_insert(error);
                }
                scan.recycle(group);
            }
            Err(end) => {
                let torn = if end.torn { ", where an incomplete group begins" } else { "" };
                print(&format!("end at LSN {}{torn}\n", end.lsn))?;
                if let Some(error) = failed {
                    return Err(refused(error));
                }
                if let Some(source) = &source {
                    print("recovery would, file by file:\n")?;
                    print(&by_file(&log, source.as_fd())?)?;
                }
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// Makes an empty log of a file or device. Overwrites other contents only with `force`.
fn format(path: &Path, force: bool) -> Result<ExitCode, Failure> {
    let opened = LogPlace::at(path).and_then(|place| LogFile::open(&place)).map_err(refused)?;
    let log = opened.ok_or_else(|| {
        let path = path.display();
        refused(format!("there is nothing at {path}: 'weir mount --log {path}' makes a log there"))
    })?;
    match log.superblock() {
        _ if force => log.erase().map_err(refused)?,
        Ok(None) => {}
        Ok(Some(superblock)) => {
            let held = match superblock.clean {
                true => "",
                false => {
                    ", and may hold synced data that is not in SOURCE yet: run 'weir recover' first"
                }
            };
            let path = path.display();
            return Err(refused(format!("{path} is a log already{held}; --force erases it")));
        }
        Err(error) => return Err(refused(error)),
    }
    log.format(weir_backend::NOBODY).map_err(refused)?;
    Ok(ExitCode::SUCCESS)
}

fn header(path: &Path, superblock: &Superblock) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let rows = match superblock.row_blocks {
        1 => "groups one after the other".to_owned(),
        blocks => format!("rows of {blocks} blocks"),
    };
    format!(
        "log {}\n  name {}\n  SOURCE {}\n  {} bytes, {}, generation {}, checkpoint {}, next node {}{}\n",
        path.display(),
        hex(&superblock.log),
        hex(&superblock.mount),
        superblock.bytes,
        rows,
        superblock.generation,
        superblock.checkpoint,
        superblock.unused_node(),
        if superblock.clean { ", clean: nothing is replayed" } else { "" }
    )
}

fn group_text(group: &Group, mut look: Option<&mut Look>) -> String {
    let header = &group.header;
    let mut text = format!(
        "group {} at byte {}: {} records, {} bytes, durable before {}\n",
        header.lsn, header.place, header.records, header.bytes, header.durable
    );
    for (lsn, record) in group.contents() {
        let name = match (&record, look.as_deref_mut()) {
            (Ok(Record::File { identity, .. }), Some(look)) => {
                format!(": {}", explain::name(look, identity))
            }
            _ => String::new(),
        };
        let _ = match record {
            Ok(record) => writeln!(text, "  {lsn} {record}{name}"),
            Err(error) => writeln!(text, "  {lsn} {error}"),
        };
    }
    text
}

/// Prints; a reader that closes the pipe early is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(|error| refused(format!("cannot write the answer: {error}"))),
    }
}
