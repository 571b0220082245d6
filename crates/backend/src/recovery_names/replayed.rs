//! The names and files of SOURCE as a log is replayed to them: names are collected, and recovered before the first file is
//! opened.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::Timespec;
use weir_log::{
    Entry, Home, Identity, Lsn, NameRecord as Record, Record as Logged, RecordError, Superblock,
};
use weir_names::tree::{Attributes, Change, Moment, Step, kind_at_home};
use weir_names::{NodeId, Place};

use crate::identity;
use crate::recovery::{Recovered, RecoveryError};
use crate::recovery_names::note::{Continued, continuation};
use crate::recovery_names::outcome::damaged;
use crate::recovery_names::{NameRecord, NamesRecoveryError, RecoveredNames, recover_names};
use crate::recovery_progress::RecoveryProgress;

/// The names of a log that is replayed.
#[derive(Debug)]
pub(super) struct ReplayedNames {
    log: Identity,
    /// If the log failed, what its mount went on with in SOURCE.
    continued: Option<Continued>,
    records: Vec<(Lsn, NameRecord)>,
    /// The node of each inode that the log names.
    nodes: HashMap<Vec<u8>, NodeId>,
    /// The modification times that programs set, by node, and by what home finds a file by when names were recovered. The log
    /// has another one if the file was written afterwards.
    mtimes: HashMap<NodeId, Moment>,
    mtimes_at_home: HashMap<Vec<u8>, Moment>,
    recovered: Option<RecoveredNames>,
}

impl ReplayedNames {
    /// Those of the log with this superblock.
    ///
    /// # Errors
    /// Those of reading what is noted in `.weir` of a log that failed.
    pub(super) fn new(
        superblock: &Superblock,
        source: BorrowedFd<'_>,
    ) -> io::Result<ReplayedNames> {
        Ok(ReplayedNames {
            log: superblock.log,
            // What is clean may have failed before, and its note be damaged.
            continued: if superblock.clean { None } else { continuation(source, superblock)? },
            records: Vec::new(),
            nodes: HashMap::new(),
            mtimes: HashMap::new(),
            mtimes_at_home: HashMap::new(),
            recovered: None,
        })
    }

    /// The next record of the log.
    ///
    /// # Errors
    /// What is out of range in it.
    pub(super) fn add_logged(&mut self, lsn: Lsn, record: &Record<'_>) -> Result<(), RecordError> {
        // The write of its group failed, and may have reached the disk nevertheless: the note has it once more.
        match self.continued.as_ref().is_some_and(|continued| lsn >= continued.from) {
            true => Ok(()),
            false => self.add(lsn, record),
        }
    }

    /// Adds what a mount whose log failed went on with, after the log, which ends at `end`. Where all of it ends.
    ///
    /// # Errors
    /// It is damaged.
    fn add_continued(&mut self, end: Lsn) -> Result<Lsn, NamesRecoveryError> {
        let Some(continued) = self.continued.take() else { return Ok(end) };
        let mut end = end;
        for (lsn, bytes) in continued.records {
            let added = match Logged::decode(&bytes) {
                Ok((Logged::Name(record), _)) => self.add(lsn, &record),
                Ok(_) => Err(RecordError::Nonsense("kind")),
                Err(error) => Err(error),
            };
            added.map_err(|error| damaged(lsn, error.to_string()))?;
            end = end.max(Lsn(lsn.0.saturating_add(1)));
        }
        Ok(end)
    }

    fn add(&mut self, lsn: Lsn, record: &Record<'_>) -> Result<(), RecordError> {
        if let Record::Node { node, file_type, identity } = *record {
            let (node, kind, identity) = (NodeId(node), kind_at_home(file_type), identity.to_vec());
            self.nodes.insert(identity.clone(), node);
            self.records.push((lsn, NameRecord::Known { node, kind, identity }));
        }
        if let Record::Place { node, file_type, at } = *record {
            let (node, kind, at) = (NodeId(node), kind_at_home(file_type), place(at)?);
            self.records.push((lsn, NameRecord::Placed { node, kind, at }));
        }
        if let Record::Step { node, stage, from, to } = *record {
            let (from, to) = (from.map(place).transpose()?, to.map(place).transpose()?);
            let step = Step { node: NodeId(node), from, to };
            self.records.push((lsn, NameRecord::Step { step, stage }));
        }
        if let Some(change) = Change::of_record(record)? {
            if let Change::Set { node, attributes: Attributes { mtime: Some(mtime), .. } } = change
            {
                self.mtimes.insert(node, mtime);
            }
            self.records.push((lsn, NameRecord::Change(change)));
        }
        Ok(())
    }

    /// All records of the log were added, which ends at `end`: makes SOURCE's names so.
    ///
    /// # Errors
    /// Those of [`recover_names`].
    pub(super) fn recover(
        &mut self,
        source: BorrowedFd<'_>,
        end: Lsn,
    ) -> Result<(), NamesRecoveryError> {
        let end = self.add_continued(end)?;
        if self.records.is_empty() {
            return Ok(());
        }
        let recovered = recover_names(source, &self.log, std::mem::take(&mut self.records), end)?;
        tracing::info!("names recovered: {:?}", recovered.counts);
        let identity = |node| Some(recovered.identity_of(node)?.to_vec());
        let mtimes = std::mem::take(&mut self.mtimes).into_iter();
        self.mtimes_at_home =
            mtimes.filter_map(|(node, mtime)| Some((identity(node)?, mtime))).collect();
        self.recovered = Some(recovered);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn take_recovered(&mut self) -> Option<RecoveredNames> {
        self.recovered.take()
    }

    /// Which inode of home a node is. A path may lead to another file when the next recovery goes on where this one ended: so
    /// where files are found by their paths, the node's number is the identity here.
    fn identity_of(&self, node: u64) -> Option<Vec<u8>> {
        let identity = self.recovered.as_ref()?.identity_of(NodeId(node))?;
        Some(match identity::as_path(identity) {
            Some(_) => identity::of_node(node),
            None => identity.to_vec(),
        })
    }

    /// What home finds a file by that has this identity; `None` if home does not have it.
    fn at_home<'a>(&'a self, identity: &'a [u8]) -> Option<&'a [u8]> {
        match identity::as_node(identity) {
            Some(node) => self.recovered.as_ref()?.identity_of(NodeId(node)),
            None => Some(identity),
        }
    }

    /// The identity that an inode has now that home had lost; empty if home does not have it, and another inode has its
    /// identity now.
    pub(super) fn made_again_as(&self, identity: &[u8]) -> Option<Vec<u8>> {
        let recovered = self.recovered.as_ref()?;
        let node = self.nodes.get(identity);
        match node.and_then(|node| recovered.identity_of(*node)) {
            Some(now) => (now != identity).then(|| now.to_vec()),
            None => recovered.is_of_another(identity).then(Vec::new),
        }
    }

    /// What people are to know of what was recovered, in sentences.
    fn told(&self) -> Vec<String> {
        self.recovered.as_ref().map(RecoveredNames::told).unwrap_or_default()
    }

    /// What was not done, in words.
    fn left(&self) -> Vec<String> {
        let left = self.recovered.iter().flat_map(|recovered| &recovered.left);
        left.map(|left| format!("{}: {}", left.path, left.reason)).collect()
    }
}

/// The names and files of SOURCE.
#[derive(Debug)]
pub(crate) struct Replayed {
    source: OwnedFd,
    names: ReplayedNames,
    files: Recovered,
    progress: Arc<RecoveryProgress>,
}

impl Replayed {
    /// Those of the log with this superblock; `source` is open for reading, and `files` are below it.
    ///
    /// # Errors
    /// EMFILE; those of reading what is noted in `.weir` of a log that failed.
    pub(crate) fn new(
        superblock: &Superblock,
        source: BorrowedFd<'_>,
        files: Recovered,
        progress: Arc<RecoveryProgress>,
    ) -> io::Result<Replayed> {
        let names = ReplayedNames::new(superblock, source)?;
        Ok(Replayed { source: source.try_clone_to_owned()?, names, files, progress })
    }

    /// How SOURCE differs from what was seen through the mount, since somebody else changed it, in sentences.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let mut told = self.names.told();
        told.extend(self.files.told());
        told
    }
}

fn place(at: Entry<'_>) -> Result<Place, RecordError> {
    Place::new(NodeId(at.directory), at.name).ok_or(RecordError::Nonsense("name"))
}

fn names_failed(doing: &'static str, source: io::Error) -> RecoveryError {
    RecoveryError::new(doing, "the names in the log".to_owned(), source)
}

impl Home for Replayed {
    type File = <Recovered as Home>::File;
    type Error = RecoveryError;

    const TAKES_NAMES: bool = true;

    fn name(&mut self, lsn: Lsn, record: &Record<'_>) -> Result<(), RecoveryError> {
        let added = self.names.add_logged(lsn, record);
        added.map_err(|error| names_failed("read", io::Error::other(error)))
    }

    fn names_end(&mut self, end: Lsn) -> Result<(), RecoveryError> {
        self.progress.names_begin();
        let recovered = self.names.recover(self.source.as_fd(), end);
        self.progress.data_begins();
        recovered.map_err(|error| names_failed("recover", io::Error::other(error)))
    }

    fn names_left(&self) -> Vec<String> {
        self.names.left()
    }

    fn identity_of(&self, node: u64) -> Option<Vec<u8>> {
        self.names.identity_of(node)
    }

    fn made_again_as(&self, identity: &[u8]) -> Option<Vec<u8>> {
        self.names.made_again_as(identity)
    }

    fn open(&mut self, identity: &[u8]) -> Result<Option<Self::File>, RecoveryError> {
        let Some(at_home) = self.names.at_home(identity) else { return Ok(None) };
        let opened = self.files.open(at_home)?;
        if let (Some(file), Some(mtime)) = (opened, self.names.mtimes_at_home.get(at_home)) {
            let mtime = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() };
            self.files.set_mtime(file, mtime);
        }
        Ok(opened)
    }

    fn write(&mut self, file: &Self::File, offset: u64, data: &[u8]) -> Result<(), RecoveryError> {
        self.files.write(file, offset, data)
    }

    fn truncate(&mut self, file: &Self::File, size: u64) -> Result<(), RecoveryError> {
        self.files.truncate(file, size)
    }

    fn sync(&mut self, file: &Self::File) -> Result<(), RecoveryError> {
        self.files.sync(file)
    }

    fn is_of_one_file(&self, error: &RecoveryError) -> bool {
        self.files.is_of_one_file(error)
    }

    fn is_done(&self, identity: &[u8]) -> bool {
        self.files.is_done(identity)
    }
}
