//! Replay: applies the log's records to the files.
//! Replay scans the log twice, because a revoke record concerns the records before it. The first scan finds the
//! void records, the second applies the others in order. Each step sets bytes or a size as recorded, so an
//! interrupted replay can be repeated from its start.
//!
//! Bytes that a later truncation cuts off are not written: other files may have their space since.
//!
//! Records of names are handed on in the first scan, which changes nothing, so that names can be brought home
//! before the first file is opened. No revoke concerns them. A [`Home`] that does not take them has the log refused.
//!
//! A file that cannot be brought up to date does not stop the others: it is skipped and reported, and its
//! records stay needed ([`Report::left`]).
//!
//! Memory is that of one group, and one entry for each file named in the log and for each of its revocations and truncations.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::Lsn;
use crate::name_record::NameRecord;
use crate::record::Record;
use crate::scan::{End, Group, ReadLog, Scan, ScanError};
use crate::superblock::Superblock;

/// The files a log is replayed to.
pub trait Home {
    /// One of them, open for writing.
    type File;
    /// Why something could not be done, for people.
    type Error: std::error::Error;

    /// Whether it takes records of names. A log to be replayed that has some is refused otherwise
    /// ([`ReplayError::Names`]), before anything is changed.
    const TAKES_NAMES: bool = false;

    /// A record of names, in the log's order. Nothing is to be changed yet: the rest of the log may be damaged.
    fn name(&mut self, _lsn: Lsn, _record: &NameRecord<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// All records of names were handed on, and the log ends at `end`. The first file is opened after this.
    fn names_end(&mut self, _end: Lsn) -> Result<(), Self::Error> {
        Ok(())
    }

    /// What of the names could not be done, in words; asked after [`Home::names_end`]. The log is still needed for it.
    fn names_left(&self) -> Vec<String> {
        Vec::new()
    }

    /// Which file a node is that records of names made, and that no record identifies since; asked after
    /// [`Home::names_end`]. `None` if there is no such file.
    fn identity_of(&self, _node: u64) -> Option<Vec<u8>> {
        None
    }

    /// The identity that a file has now, if it is another one: home had lost the file, and recovery of names made it again; or
    /// home made it once more, because nothing could go into the inode that the log had named.
    /// Empty if it is gone and recovery of names made another file, which got its identity. Asked after [`Home::names_end`].
    fn made_again_as(&self, _identity: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Opens the file a [`Record::File`] names; `None` if it is gone.
    fn open(&mut self, identity: &[u8]) -> Result<Option<Self::File>, Self::Error>;

    /// Writes at `offset`; the file grows if need be.
    fn write(&mut self, file: &Self::File, offset: u64, data: &[u8]) -> Result<(), Self::Error>;

    /// Gives the file a size.
    fn truncate(&mut self, file: &Self::File, size: u64) -> Result<(), Self::Error>;

    /// Makes all of it durable.
    fn sync(&mut self, file: &Self::File) -> Result<(), Self::Error>;

    /// Whether an error concerns one file only, so that replay continues with the others.
    fn is_of_one_file(&self, _error: &Self::Error) -> bool {
        false
    }

    /// Whether an earlier replay of the same log already brought the file up to date, durably. It is then
    /// skipped: SOURCE may have been changed since.
    fn is_done(&self, _identity: &[u8]) -> bool {
        false
    }

    /// Whether home refused the new size that the record at this position has. Then the record is void.
    fn is_refused(&self, _lsn: Lsn) -> bool {
        false
    }

    /// The log has a record about this file; `is_void` if a later record made it void. Called for each record
    /// in order, before it is applied or skipped: for reports.
    fn note_record(&mut self, _identity: &[u8], _is_void: bool) {}
}

/// A file that a replay could not bring up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its identity in the log.
    pub identity: Vec<u8>,
    /// Its records that are not void: they stay in the log.
    pub needed: Needed,
    /// Why, for messages.
    pub why: String,
}

/// Records that are to be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Their number.
    pub records: u64,
    /// Bytes in them.
    pub bytes: u64,
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
    /// The two scans of the log differed.
    #[error("the log is damaged: it ended at LSN {first}, and then at LSN {second}")]
    Differs {
        /// The end found in the first scan.
        first: Lsn,
        /// The end found in the second scan.
        second: Lsn,
    },
    /// A record about a file that its group does not name.
    #[error(
        "the log is damaged: the record at LSN {0} is about a file that its group does not name"
    )]
    Unnamed(Lsn),
    /// The log has records of names, and the [`Home`] does not take them.
    #[error(
        "the log holds changes of names (a record of kind {kind} at byte {place}, LSN {lsn}), which this Weir \
         does not recover: a newer Weir wrote it; recover with that one"
    )]
    Names {
        /// Of the first such record.
        lsn: Lsn,
        /// Byte of the log.
        place: u64,
        /// Its kind.
        kind: u8,
    },
}

/// What a replay found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Groups in the log.
    pub groups: u64,
    /// Records that were applied, or would have been.
    pub applied: u64,
    /// Bytes in them.
    pub applied_bytes: u64,
    /// Records that later ones made void.
    pub void: u64,
    /// Records of files that no longer exist.
    pub gone: u64,
    /// Files that were changed.
    pub files: u64,
    /// Files that could not be changed: the log is still needed for them.
    pub left: Vec<Left>,
    /// Identities of files that no longer need the log; empty unless something is left.
    pub done: Vec<Vec<u8>>,
    /// Records of names.
    pub names: u64,
    /// Names that could not be brought home, each with the reason: the log is still needed for them.
    pub names_left: Vec<String>,
    /// Where the log ends.
    pub end: Lsn,
    /// An incomplete group begins there: it was never acknowledged.
    pub torn: bool,
}

/// Replays a log to `home`; without `home`, only reports what it would do.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay<R: ReadLog, H: Home>(
    log: &mut R,
    superblock: Superblock,
    home: Option<&mut H>,
) -> Result<Report, ReplayError<H::Error>> {
    replay_before(log, superblock, Lsn(u64::MAX), home)
}

/// Replays what a log has before a position, which may be that of a log that is being written: nothing is concluded from what
/// stands after it. The log ends there, or where it ends if that is before ([`Report::end`]).
///
/// # Errors
/// See [`ReplayError`].
pub fn replay_before<R: ReadLog, H: Home>(
    log: &mut R,
    superblock: Superblock,
    before: Lsn,
    mut home: Option<&mut H>,
) -> Result<Report, ReplayError<H::Error>> {
    let mut report = Report { end: superblock.checkpoint, ..Report::default() };
    if superblock.clean {
        return Ok(report);
    }
    let mut revokes: Vec<(u64, Vec<u8>, Lsn)> = Vec::new();
    let mut truncations: Vec<(u64, Vec<u8>, Cut)> = Vec::new();
    let mut refused: BTreeSet<Lsn> = BTreeSet::new();
    let mut named: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut nodes = Nodes::default();
    let end = each_group(log, superblock, before, |group| {
        report.groups += 1;
        let records = group.records()?;
        report.names += hand_names_on(group, &records, home.as_deref_mut())?;
        each_record(&records, &Nodes::default(), |lsn, identity, record| {
            if let Record::File { file, .. } = *record {
                nodes.found(file, identity);
                if !named.contains(identity) {
                    named.insert(identity.to_vec());
                }
            }
            if let Record::Revoke { file, before } = *record {
                // A revoke record voids earlier records only, whatever LSN it holds.
                revokes.push((file, identity.to_vec(), before.min(lsn)));
            }
            if let Record::Truncate { file, size } = *record {
                match home.as_deref().is_some_and(|home| home.is_refused(lsn)) {
                    true => drop(refused.insert(lsn)),
                    false => truncations.push((file, identity.to_vec(), Cut { lsn, size })),
                }
            }
            Ok(())
        })?;
        for (_, record) in &records {
            if let Record::Name(NameRecord::Node { node, identity, .. }) = *record {
                nodes.found(node, identity);
            }
        }
        Ok(())
    })?;
    (report.end, report.torn) = (end.lsn, end.torn);
    if let Some(home) = home.as_deref_mut() {
        let failed = |source| ReplayError::Home { lsn: end.lsn, source };
        home.names_end(end.lsn).map_err(failed)?;
        report.names_left = home.names_left();
        nodes.ask(&*home, &named);
    }
    let mut revoked: BTreeMap<Vec<u8>, Lsn> = BTreeMap::new();
    for (node, identity, before) in revokes {
        let known = revoked.entry(nodes.identity(node, &identity).to_vec()).or_default();
        *known = before.max(*known);
    }
    let mut cuts: HashMap<Vec<u8>, Cuts> = HashMap::new();
    for (node, identity, cut) in truncations {
        cuts.entry(nodes.identity(node, &identity).to_vec()).or_default().push(cut);
    }
    let named: BTreeSet<Vec<u8>> = nodes.files(named);
    let is_void = |identity: &[u8], lsn| {
        refused.contains(&lsn) || revoked.get(identity).is_some_and(|&before| lsn < before)
    };
    let is_done = |identity: &[u8]| home.as_ref().is_some_and(|home| home.is_done(identity));
    let done: BTreeSet<Vec<u8>> = named.into_iter().filter(|identity| is_done(identity)).collect();
    let is_void = |identity: &[u8], lsn| is_void(identity, lsn) || done.contains(identity);
    let Some(home) = home else {
        let mut files = BTreeSet::new();
        each_group(log, superblock, report.end, |group| {
            each_record(&group.records()?, &nodes, |lsn, identity, record| {
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
    // The records applied to each file: still needed if a later step fails for the file.
    let mut applied_to: BTreeMap<Vec<u8>, Needed> = BTreeMap::new();
    let mut left: BTreeMap<Vec<u8>, Left> = BTreeMap::new();
    let again = each_group(log, superblock, report.end, |group| {
        each_record(&group.records()?, &nodes, |lsn, identity, record| {
            let failed = |source| ReplayError::Home { lsn, source };
            let is_change = !matches!(record, Record::File { .. } | Record::Revoke { .. });
            let void = is_void(identity, lsn);
            home.note_record(identity, is_change && void);
            if void || !is_change {
                report.count(record, void, || {});
                return Ok(());
            }
            if let Some(left) = left.get_mut(identity) {
                left.needed.count(record);
                return Ok(());
            }
            let leave = |mut needed: Needed, why: &H::Error| {
                needed.count(record);
                Left { identity: identity.to_vec(), needed, why: why.to_string() }
            };
            if identity.is_empty() {
                report.gone += 1;
                return Ok(());
            }
            if !files.contains_key(identity) {
                let opened = match home.open(identity) {
                    Err(error) if home.is_of_one_file(&error) => {
                        left.insert(identity.to_vec(), leave(Needed::default(), &error));
                        return Ok(());
                    }
                    opened => opened.map_err(failed)?,
                };
                files.insert(identity.to_vec(), opened);
                applied_to.insert(identity.to_vec(), Needed::default());
            }
            let Some(file) = &files[identity] else {
                report.gone += 1;
                return Ok(());
            };
            let applied = match *record {
                Record::Write { offset, data, .. } => {
                    let end = cuts.get(identity).map_or(u64::MAX, |cuts| cuts.least_after(lsn));
                    let kept = end.saturating_sub(offset).min(data.len() as u64) as usize;
                    if kept > 0 { home.write(file, offset, &data[..kept]) } else { Ok(()) }
                }
                Record::Truncate { size, .. } => home.truncate(file, size),
                Record::File { .. } | Record::Revoke { .. } | Record::Name(_) => Ok(()),
            };
            let needed = applied_to.get_mut(identity).expect("it was counted when it was opened");
            match applied {
                Err(error) if home.is_of_one_file(&error) => {
                    left.insert(identity.to_vec(), leave(*needed, &error));
                }
                applied => {
                    applied.map_err(failed)?;
                    needed.count(record);
                    report.count(record, false, || {});
                }
            }
            Ok(())
        })
    })?;
    if again.lsn != report.end {
        return Err(ReplayError::Differs { first: report.end, second: again.lsn });
    }
    for (identity, file) in &files {
        let Some(file) = file.as_ref().filter(|_| !left.contains_key(identity)) else { continue };
        match home.sync(file) {
            Err(error) if home.is_of_one_file(&error) => {
                let (needed, why) = (applied_to[identity], error.to_string());
                let identity = identity.clone();
                left.insert(identity.clone(), Left { identity, needed, why });
            }
            synced => {
                synced.map_err(ReplayError::Sync)?;
                report.files += 1;
            }
        }
    }
    if !left.is_empty() || !report.names_left.is_empty() {
        let all = files.into_keys().chain(done);
        report.done = all.filter(|identity| !left.contains_key(identity)).collect();
        report.left = left.into_values().collect();
    }
    Ok(report)
}

/// A truncation in the log.
#[derive(Clone, Copy, Debug)]
struct Cut {
    lsn: Lsn,
    size: u64,
}

/// A file's truncations, except those to a size that a later one does not exceed. So their sizes ascend.
#[derive(Debug, Default)]
struct Cuts(Vec<Cut>);

impl Cuts {
    /// Adds one that follows the others in the log.
    fn push(&mut self, cut: Cut) {
        while self.0.pop_if(|earlier| earlier.size >= cut.size).is_some() {}
        self.0.push(cut);
    }

    /// The least size that the file is given after a position.
    fn least_after(&self, lsn: Lsn) -> u64 {
        let next = self.0.partition_point(|cut| cut.lsn <= lsn);
        self.0.get(next).map_or(u64::MAX, |cut| cut.size)
    }
}

impl Needed {
    fn count(&mut self, record: &Record<'_>) {
        self.records += 1;
        if let Record::Write { data, .. } = record {
            self.bytes += data.len() as u64;
        }
    }
}

impl Report {
    fn count(&mut self, record: &Record<'_>, void: bool, applied: impl FnOnce()) {
        let bytes = match record {
            Record::File { .. } | Record::Revoke { .. } | Record::Name(_) => return,
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

/// Scans the log's groups that begin before a position. Returns how the log ended, if before that.
fn each_group<R: ReadLog, E: std::error::Error>(
    log: &mut R,
    superblock: Superblock,
    before: Lsn,
    mut each: impl FnMut(&Group) -> Result<(), ReplayError<E>>,
) -> Result<End, ReplayError<E>> {
    let mut scan = Scan::new(log, superblock);
    while scan.position() < before {
        match scan.next_group()? {
            Err(end) => return Ok(end),
            Ok(group) => {
                each(&group)?;
                scan.recycle(group);
            }
        }
    }
    Ok(End { lsn: scan.position(), torn: false })
}

/// Hands a group's records of names on, or refuses the log if there are some and nobody takes them. Returns their number.
fn hand_names_on<H: Home>(
    group: &Group,
    records: &[(Lsn, Record<'_>)],
    mut home: Option<&mut H>,
) -> Result<u64, ReplayError<H::Error>> {
    let mut names = 0;
    for &(lsn, ref record) in records {
        let Record::Name(name) = record else { continue };
        if !H::TAKES_NAMES {
            let (place, kind) = (group.place(lsn), record.kind());
            return Err(ReplayError::Names { lsn, place, kind });
        }
        if let Some(home) = home.as_deref_mut() {
            home.name(lsn, name).map_err(|source| ReplayError::Home { lsn, source })?;
        }
        names += 1;
    }
    Ok(names)
}

/// Which files nodes are. A file that records of names make has no identity in the groups that were written before home had
/// it: its node's number alone says which it is.
#[derive(Debug, Default)]
struct Nodes {
    /// Nodes for which a group has no identity, with the one that is found elsewhere.
    without: BTreeMap<u64, Option<Vec<u8>>>,
    /// Identities of nodes, the last one of each.
    identities: HashMap<u64, Vec<u8>>,
    /// Files that were made again, or are gone: their identities in the log, and now.
    made_again: HashMap<Vec<u8>, Vec<u8>>,
}

impl Nodes {
    /// A record says which file a node is, or that this is not known yet.
    fn found(&mut self, node: u64, identity: &[u8]) {
        if identity.is_empty() {
            self.without.insert(node, None);
        } else if self.identities.get(&node).is_none_or(|known| known != identity) {
            self.identities.insert(node, identity.to_vec());
        }
    }

    /// All records were seen: names are at home.
    fn ask(&mut self, home: &impl Home, named: &BTreeSet<Vec<u8>>) {
        for (&node, identity) in &mut self.without {
            // What recovery made comes before what the log says: home may have lost that.
            let logged = || {
                let logged = self.identities.get(&node)?;
                Some(home.made_again_as(logged).unwrap_or_else(|| logged.clone()))
            };
            *identity = home.identity_of(node).or_else(logged);
        }
        self.identities.clear();
        for identity in named {
            if let Some(now) = home.made_again_as(identity) {
                self.made_again.insert(identity.clone(), now);
            }
        }
    }

    /// The identity of a node for which its group has this one; empty if there is no such file.
    fn identity<'a>(&'a self, node: u64, identity: &'a [u8]) -> &'a [u8] {
        if identity.is_empty() {
            return self.without.get(&node).and_then(Option::as_deref).unwrap_or_default();
        }
        self.made_again.get(identity).map_or(identity, Vec::as_slice)
    }

    /// The files with these identities in the log, and those for which no group has one.
    fn files(&self, named: BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
        let named = named.iter().map(|identity| self.identity(0, identity).to_vec());
        let made = self.without.values().flatten().cloned();
        named.chain(made).filter(|identity| !identity.is_empty()).collect()
    }
}

/// Goes through those of a group's records that are about files, with the files' identities: empty for a file that there is
/// not.
fn each_record<E: std::error::Error>(
    records: &[(Lsn, Record<'_>)],
    nodes: &Nodes,
    mut each: impl FnMut(Lsn, &[u8], &Record<'_>) -> Result<(), ReplayError<E>>,
) -> Result<(), ReplayError<E>> {
    let mut named: HashMap<u64, &[u8]> = HashMap::new();
    for (lsn, record) in records {
        match record {
            Record::Name(_) => continue,
            Record::File { file, identity } => {
                named.insert(*file, identity);
            }
            _ => {}
        }
        let Some(&identity) = named.get(&record.file()) else {
            return Err(ReplayError::Unnamed(*lsn));
        };
        let identity = nodes.identity(record.file(), identity);
        each(*lsn, identity, record)?;
    }
    Ok(())
}
