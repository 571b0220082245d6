//! What becomes of a recovery of names: what is left and why, and who is in the way.

use std::collections::{HashMap, HashSet};
use std::{fmt, io};

use weir_log::Lsn;
use weir_names::NodeId;
use weir_names::tree::HomeError;

use super::executor::Counts;

/// Sentences about names.
const TOLD_MAX: usize = 100;

/// Paths in one sentence.
const NAMED_MAX: usize = 10;

/// Why names cannot be recovered at all. Nothing is lost: the log has them.
#[derive(Debug, thiserror::Error)]
pub enum NamesRecoveryError {
    /// Its records contradict each other.
    #[error("the log is damaged: the record at {lsn} cannot be: {why}")]
    Damaged {
        /// The record.
        lsn: Lsn,
        /// What is wrong.
        why: String,
    },
    /// The log knows nodes by their file handles, and SOURCE's file system has none that last.
    #[error(
        "the log knows files by their file handles, and the file system that SOURCE is on now has none that last: \
         recover where SOURCE was when the log was written"
    )]
    NoHandles,
    /// A system call failed that concerns all names.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> NamesRecoveryError {
    move |source| NamesRecoveryError::System { doing, source }
}

/// The record at this position cannot be.
pub(crate) fn damaged(lsn: Lsn, why: impl std::fmt::Display) -> NamesRecoveryError {
    NamesRecoveryError::Damaged { lsn, why: why.to_string() }
}

/// Something that is not as the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftName {
    /// The path in SOURCE.
    pub path: String,
    /// Why.
    pub reason: LeftReason,
}

/// Why something is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftReason {
    /// Home refused it.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// SOURCE was changed while it was recovered.
    #[error("another program changed it in SOURCE during the recovery")]
    Changed,
    /// It waits for something else that is left.
    #[error("it depends on something else that was not done")]
    Waits,
}

/// A name that somebody else took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    /// The path in SOURCE of what somebody else put there, and which stays.
    pub path: String,
    /// The path of what was wanted there; `None` if the name was to be removed.
    pub kept: Option<String>,
}

impl fmt::Display for NameConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        write!(f, "{path} was put into SOURCE by another program, and ")?;
        match &self.kept {
            Some(kept) => write!(f, "stays as it is; what the log has is {kept}"),
            None => write!(f, "is not removed"),
        }
    }
}

/// What was not done, and never will be: somebody else removed or moved what it is about. Paths are in SOURCE.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenUp {
    /// What a name is to lead to is gone.
    #[error("{0} is missing: another program removed that file or directory from SOURCE")]
    Name(String),
    /// What a name is to lead to is elsewhere, and stays there.
    #[error("{path} is {now}: another program moved it there in SOURCE")]
    Moved {
        /// What the log says.
        path: String,
        /// Where it is.
        now: String,
    },
    /// Attributes of something that is gone.
    #[error("the mode, owner or times of {0} were not set: it is not in SOURCE any more")]
    Attributes(String),
}

/// A directory that was kept though it was not where the log has it. Paths are in SOURCE.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeptDirectory {
    /// It was removed, and made again: what the log has of it is there.
    #[error(
        "another program removed a directory from SOURCE: what was put into it through the mount is in {0}"
    )]
    MadeAgain(String),
    /// It was to be removed, and somebody else put something into it.
    #[error(
        "a directory that was removed through the mount is {0}: another program put something into it"
    )]
    NotEmpty(String),
}

/// What became of the names that a log speaks of.
#[derive(Debug)]
pub struct RecoveredNames {
    /// What was not done. The log is to be kept while there is anything.
    pub left: Vec<LeftName>,
    /// Names that somebody else took.
    pub conflicts: Vec<NameConflict>,
    /// What will not be done.
    pub given_up: Vec<GivenUp>,
    /// Directories with another name than the log says.
    pub kept: Vec<KeptDirectory>,
    /// Paths of what SOURCE had and was missing, and was made again with what the log has of it.
    pub made_again: Vec<String>,
    /// What was done.
    pub counts: Counts,
    pub(crate) identities: HashMap<NodeId, Vec<u8>>,
    /// Identities of inodes that recoveries of this log made.
    pub(crate) made: HashSet<Vec<u8>>,
}

impl RecoveredNames {
    /// What people are to know: how SOURCE differs from what was seen through the mount, each in a sentence.
    pub fn told(&self) -> Vec<String> {
        let conflicts = self.conflicts.iter().map(ToString::to_string);
        let kept = self.kept.iter().map(ToString::to_string);
        let given_up = self.given_up.iter().map(ToString::to_string);
        let mut told: Vec<String> = conflicts.chain(kept).chain(given_up).collect();
        if told.len() > TOLD_MAX {
            let more = told.len() - TOLD_MAX;
            told.truncate(TOLD_MAX);
            told.push(format!("and {more} more names that another program changed in SOURCE"));
        }
        if !self.made_again.is_empty() {
            let named = self.made_again[..self.made_again.len().min(NAMED_MAX)].join(", ");
            let more = match self.made_again.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            told.push(format!(
                "missing in SOURCE, which had them, and made again with what the log has: {named}{more}"
            ));
        }
        told
    }

    /// Which inode of home a node of the log is: for records of data that were logged before home had the file. `None` if
    /// home does not have it. If its last name was removed, that inode is gone.
    pub fn identity_of(&self, node: NodeId) -> Option<&[u8]> {
        self.identities.get(&node).map(Vec::as_slice)
    }

    /// Whether this is the identity of what recovery made, though the log may have another inode of that identity, which home
    /// lost: some file systems (xfs) give a number and its generation again after a power cut.
    pub(crate) fn is_of_another(&self, lost: &[u8]) -> bool {
        self.made.contains(lost)
    }
}

/// Why something is left that home refused.
pub(crate) fn reason(error: HomeError) -> LeftReason {
    match error {
        HomeError::Refused(code) => LeftReason::Refused(code),
        HomeError::NotEmpty => LeftReason::Refused(libc::ENOTEMPTY),
        HomeError::Changed | HomeError::Gone | HomeError::NoExchange => LeftReason::Changed,
    }
}
