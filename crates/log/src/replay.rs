//! Replay: what the log says is done to the files again.
//!
//! In two passes, because a revoke concerns what comes before it: the first reads everything and
//! learns what is void, the second applies the rest in order. Each step sets bytes or a size to
//! what the log says, so replay may be interrupted anywhere and done again from its start.
//!
//! Memory is that of one group and one entry for each file named in the log.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::Lsn;
use crate::record::Record;
use crate::scan::{End, Group, ReadLog, Scan, ScanError};
use crate::superblock::Superblock;

/// The files a log is replayed to.
pub trait Home {
    /// One of them, open for writing.
    type File;
    /// Why something could not be done, for people.
    type Error: std::error::Error;

    /// Opens the file a [`Record::File`] names; `None` if it is gone.
    fn open(&mut self, identity: &[u8]) -> Result<Option<Self::File>, Self::Error>;

    /// Writes at `offset`; the file grows if need be.
    fn write(&mut self, file: &Self::File, offset: u64, data: &[u8]) -> Result<(), Self::Error>;

    /// Gives the file a size.
    fn truncate(&mut self, file: &Self::File, size: u64) -> Result<(), Self::Error>;

    /// Makes all of it durable.
    fn sync(&mut self, file: &Self::File) -> Result<(), Self::Error>;
}

/// Why a log was not replayed. The log is as it was, and can be replayed again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError<E: std::error::Error> {
    /// The log itself.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The files.
    #[error("cannot replay the record at LSN {lsn}: {source}")]
    Home {
        /// The record.
        lsn: Lsn,
        /// What went wrong.
        source: E,
    },
    /// The files, when all of them had been written.
    #[error("cannot make what was replayed durable: {0}")]
    Sync(E),
    /// A record about a file that its group does not name.
    #[error(
        "the log is damaged: the record at LSN {0} is about a file that its group does not name"
    )]
    Unnamed(Lsn),
}

/// What a replay found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Groups in the log.
    pub groups: u64,
    /// Records that were applied, or would have been.
    pub applied: u64,
    /// Bytes in them.
    pub applied_bytes: u64,
    /// Records that later ones made void.
    pub void: u64,
    /// Records of files that are gone.
    pub gone: u64,
    /// Files that were changed.
    pub files: u64,
    /// Where the log ends.
    pub end: Lsn,
    /// A group was begun there that is not whole: it was never acknowledged.
    pub torn: bool,
}

/// Replays a log to `home`; without one only says what it would do.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay<R: ReadLog, H: Home>(
    log: &mut R,
    superblock: Superblock,
    home: Option<&mut H>,
) -> Result<Report, ReplayError<H::Error>> {
    let mut report = Report { end: superblock.checkpoint, ..Report::default() };
    if superblock.clean {
        return Ok(report);
    }
    let mut revoked: BTreeMap<Vec<u8>, Lsn> = BTreeMap::new();
    let end = each_group(log, superblock, |group| {
        report.groups += 1;
        each_record(group, |lsn, identity, record| {
            if let Record::Revoke { before, .. } = *record {
                // Never what comes after it, whatever it says.
                let before = before.min(lsn);
                let known = revoked.entry(identity.to_vec()).or_default();
                *known = before.max(*known);
            }
            Ok(())
        })
    })?;
    (report.end, report.torn) = (end.lsn, end.torn);
    let is_void = |identity: &[u8], lsn| revoked.get(identity).is_some_and(|&before| lsn < before);
    let Some(home) = home else {
        let mut files = BTreeSet::new();
        each_group(log, superblock, |group| {
            each_record(group, |lsn, identity, record| {
                report.count(record, is_void(identity, lsn), || {
                    files.insert(identity.to_vec());
                });
                Ok(())
            })
        })?;
        report.files = files.len() as u64;
        return Ok(report);
    };
    let mut files: BTreeMap<Vec<u8>, Option<H::File>> = BTreeMap::new();
    each_group(log, superblock, |group| {
        each_record(group, |lsn, identity, record| {
            let failed = |source| ReplayError::Home { lsn, source };
            let void = is_void(identity, lsn);
            if void || matches!(record, Record::File { .. } | Record::Revoke { .. }) {
                report.count(record, void, || {});
                return Ok(());
            }
            if !files.contains_key(identity) {
                files.insert(identity.to_vec(), home.open(identity).map_err(failed)?);
            }
            let Some(file) = &files[identity] else {
                report.gone += 1;
                return Ok(());
            };
            match *record {
                Record::Write { offset, data, .. } => home.write(file, offset, data),
                Record::Truncate { size, .. } => home.truncate(file, size),
                Record::File { .. } | Record::Revoke { .. } => Ok(()),
            }
            .map_err(failed)?;
            report.count(record, false, || {});
            Ok(())
        })
    })?;
    for file in files.values().flatten() {
        home.sync(file).map_err(ReplayError::Sync)?;
        report.files += 1;
    }
    Ok(report)
}

impl Report {
    fn count(&mut self, record: &Record<'_>, void: bool, applied: impl FnOnce()) {
        let bytes = match record {
            Record::File { .. } | Record::Revoke { .. } => return,
            Record::Truncate { .. } => 0,
            Record::Write { data, .. } => data.len() as u64,
        };
        if void {
            self.void += 1;
        } else {
            self.applied += 1;
            self.applied_bytes += bytes;
            applied();
        }
    }
}

fn each_group<R: ReadLog, E: std::error::Error>(
    log: &mut R,
    superblock: Superblock,
    mut each: impl FnMut(&Group) -> Result<(), Broken<E>>,
) -> Result<End, ReplayError<E>> {
    let mut scan = Scan::new(log, superblock);
    loop {
        match scan.next_group()? {
            Err(end) => return Ok(end),
            Ok(group) => {
                each(&group).map_err(|broken| match broken {
                    Broken::Replay(error) => error,
                    Broken::Record(lsn, error) => {
                        let place = group.place(lsn);
                        ScanError::Record { lsn, place, error }.into()
                    }
                })?;
                scan.recycle(group);
            }
        }
    }
}

/// Why a group was not gone through.
enum Broken<E: std::error::Error> {
    Replay(ReplayError<E>),
    Record(Lsn, crate::record::RecordError),
}

/// Goes through a group's records with the identities of the files they are about.
fn each_record<E: std::error::Error>(
    group: &Group,
    mut each: impl FnMut(Lsn, &[u8], &Record<'_>) -> Result<(), ReplayError<E>>,
) -> Result<(), Broken<E>> {
    let records = group.records().map_err(|(lsn, error)| Broken::Record(lsn, error))?;
    let mut named: HashMap<u64, &[u8]> = HashMap::new();
    for (lsn, record) in &records {
        if let Record::File { file, identity } = record {
            named.insert(*file, identity);
        }
        let Some(identity) = named.get(&record.file()) else {
            return Err(Broken::Replay(ReplayError::Unnamed(*lsn)));
        };
        each(*lsn, identity, record).map_err(Broken::Replay)?;
    }
    Ok(())
}
