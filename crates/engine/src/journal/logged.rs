//! The journal's state of one file: its records in the log.

use weir_journal::{Journal, Named, Retention, Segment};
use weir_log::Lsn;

use crate::place::FileIx;

/// A file's records in the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logged {
    /// How recovery finds the file; empty if it is not to be logged.
    pub(crate) identity: Box<[u8]>,
    /// Its number in the log, after it was identified.
    node: Option<u64>,
    /// Recovery finds the file by its number while it has no identity: records of names say which file that is.
    by_number: bool,
    /// The log's records of names make the file.
    made_by_names: bool,
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
    /// The file's log retention: the segments that the tail must not pass.
    pub(crate) retention: Retention,
    /// A size is in the log that home does not have yet.
    pub(crate) resizing: Option<Resizing>,
    /// The records of sizes that home refused, and that no revoke has made void yet.
    pub(crate) refused_sizes: Vec<Lsn>,
    /// The repair under way writes its records before this position.
    pub(crate) redone_until: Lsn,
    /// A full sync is in progress to free the log.
    pub(crate) checkpointing: bool,
    /// A sync of home alone is in progress to free the log.
    pub(crate) freeing: bool,
    /// Only data that supersedes the file's records is logged, because its name is changing.
    pub(crate) paused: bool,
}

impl Logged {
    /// The file's number in the log. The file must have been identified.
    pub(crate) fn node(&self) -> u64 {
        self.node.expect("only a file that was identified is logged")
    }

    /// Records before this position are void, or not in the log any more.
    pub(crate) fn void_before(&mut self, before: Lsn) {
        self.refused_sizes.retain(|&lsn| lsn >= before);
    }

    /// Whether recovery finds the file.
    pub(crate) fn is_identified(&self) -> bool {
        self.by_number || !self.identity.is_empty()
    }

    /// Whether the file's name and attributes are in the log.
    pub(crate) fn is_made_by_names(&self) -> bool {
        self.made_by_names
    }

    /// Records of names make the file.
    pub(crate) fn made_by_names(&mut self) {
        self.made_by_names = true;
    }

    /// Recovery finds the file by this number.
    pub(crate) fn number(&mut self, node: u64) {
        assert!(self.node.is_none_or(|known| known == node), "a file has one number");
        (self.node, self.by_number, self.paused) = (Some(node), true, false);
    }

    /// Sets how recovery finds the file. A file that gets no number is not logged.
    pub(crate) fn identify(&mut self, identity: &[u8], journal: &mut Journal<FileIx>) {
        self.node = self.node.or_else(|| journal.new_node());
        self.identity = if self.node.is_some() { identity.into() } else { Box::default() };
        self.named_in = Named::default();
        self.paused = false;
    }
}

/// A size that is in the log before home has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resizing {
    /// Its record.
    pub(crate) lsn: Lsn,
    /// The segment of its record.
    pub(crate) segment: Segment,
}

/// The state of the log at the beginning of a file's full sync.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    /// The file's records before this position will be void.
    pub(crate) before: Lsn,
    /// The group that was open, or the next one: later records are not before it.
    pub(crate) group: Lsn,
    /// The value of [`Logged::ahead`] at that time.
    pub(crate) ahead: u64,
}
