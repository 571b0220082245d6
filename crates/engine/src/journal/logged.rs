//! What is known of one file's records in the log.

use weir_journal::{Journal, Named, Retention};
use weir_log::Lsn;

use crate::place::FileIx;

/// What the engine knows of a file's records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logged {
    /// How recovery finds the file; empty if it is not to be logged.
    pub(crate) identity: Box<[u8]>,
    /// Its number in the log, once it was identified.
    node: Option<u64>,
    /// The group that names the file, by its position.
    pub(crate) named_in: Named,
    /// The group of the first record that no revoke made void. The tail may have passed it.
    pub(crate) first: Option<Lsn>,
    /// The last record that changes the file.
    pub(crate) last_change: Option<Lsn>,
    /// The last record of all.
    pub(crate) last: Option<Lsn>,
    /// The last record that revokes others.
    pub(crate) revoked: Option<Lsn>,
    /// No record that may be replayed writes past this byte.
    pub(crate) end: u64,
    /// The last event in which home became newer than the records, because it was changed without Weir. 0 if
    /// home is not newer.
    pub(crate) ahead: u64,
    /// What of it keeps the tail where it is.
    pub(crate) retention: Retention,
    /// A full sync is under way to free the log.
    pub(crate) checkpointing: bool,
    /// A sync of home alone is.
    pub(crate) freeing: bool,
    /// Only what supersedes its records is logged: its name is changing.
    pub(crate) paused: bool,
}

impl Logged {
    /// The file's number in the log. It was identified.
    pub(crate) fn node(&self) -> u64 {
        self.node.expect("only a file that was identified is logged")
    }

    /// Says how recovery finds the file. A file that gets no number is not logged.
    pub(crate) fn identify(&mut self, identity: &[u8], journal: &mut Journal<FileIx>) {
        self.node = self.node.or_else(|| journal.new_node());
        self.identity = if self.node.is_some() { identity.into() } else { Box::default() };
        self.named_in = Named::default();
        self.paused = false;
    }
}

/// Where a full sync of a file began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    /// What is before this position will be void.
    pub(crate) before: Lsn,
    /// The group that was open, or the next one: what came since is not before it.
    pub(crate) group: Lsn,
    /// What was the last event by which home was ahead.
    pub(crate) ahead: u64,
}
