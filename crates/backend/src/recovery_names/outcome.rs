//! What becomes of a recovery of names: what is left and why, and who is in the way.

use std::collections::HashMap;
use std::io;

use weir_log::Lsn;
use weir_names::NodeId;
use weir_names::tree::HomeError;

use super::executor::Counts;

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
    /// What it is about, or its directory, is not where it was.
    #[error("home does not have it, or its directory, where it was")]
    Moved,
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

/// What became of the names that a log speaks of.
#[derive(Debug)]
pub struct RecoveredNames {
    /// What was not done. The log is to be kept while there is anything.
    pub left: Vec<LeftName>,
    /// Names that somebody else took.
    pub conflicts: Vec<NameConflict>,
    /// What was done.
    pub counts: Counts,
    pub(crate) identities: HashMap<NodeId, Vec<u8>>,
}

impl RecoveredNames {
    /// Which inode of home a node of the log is: for records of data that were logged before home had the file. `None` if
    /// home does not have it. If its last name was removed, that inode is gone.
    pub fn identity_of(&self, node: NodeId) -> Option<&[u8]> {
        self.identities.get(&node).map(Vec::as_slice)
    }
}

/// Why something is left that home refused.
pub(crate) fn reason(error: HomeError) -> LeftReason {
    match error {
        HomeError::Refused(code) => LeftReason::Refused(code),
        HomeError::NotEmpty => LeftReason::Refused(libc::ENOTEMPTY),
        HomeError::Changed | HomeError::Gone | HomeError::NoExchange => LeftReason::Moved,
    }
}
