//! The journal: what the redo log holds, what of it is needed, and how far it is durable.
//!
//! Owns the log's writer, the group under way, the segments that files need and thereby the place the tail may go on
//! to, and who waits for which position. Does not own what records mean: the events append them.
//!
//! Invariants:
//! - a file stands in `held` under the first segment that its contents need (`retention`), and the tail never passes
//!   that;
//! - one group is under way at a time;
//! - once a write of the log has failed, nothing is appended any more.

pub(crate) mod behind;
pub(crate) mod logged;
pub(crate) mod recorded;
pub(crate) mod retention;
pub(crate) mod settled;

use std::collections::BTreeSet;

use weir_log::{Lsn, Record, Writer};

use crate::cache::file::File;
use crate::command::IoId;
use crate::device::cost_model::CostModel;
use crate::error::ErrorKind;
use crate::journal::behind::Behind;
use crate::journal::recorded::Recorded;
use crate::journal::retention::{Counts, LogSegment, Segments};
use crate::place::FileIx;
use crate::time::Time;

/// The log's share that is left for records that void what must not be replayed.
const SLACK_SHARE: u64 = 16;

/// The log of one engine.
pub(crate) struct Journal {
    pub(crate) writer: Writer,
    /// Files for which home may have lost data that is in the log.
    pub(crate) repairs: BTreeSet<FileIx>,
    pub(crate) failed: Option<ErrorKind>,
    pub(crate) segments: Segments,
    pub(crate) recorded: Recorded,
    /// Commands that wait until the records superseding older ones are durable.
    pub(crate) behind: Behind,
    pub(crate) held: BTreeSet<(LogSegment, FileIx)>,
    /// What files need that are gone from the engine, and perhaps not yet from home.
    pub(crate) orphans: Counts,
    /// Of these, those that the sync of home under way frees.
    pub(crate) orphans_syncing: Counts,
    /// Files on their way out of the engine whose checkpoint is to be tried again.
    pub(crate) leaving: BTreeSet<FileIx>,
    /// Syncs that wait for a position to be durable.
    pub(crate) waiting: Vec<(Lsn, FileIx, u64)>,
    pub(crate) group: Option<IoId>,
    /// Its blocks, and when it was sent.
    pub(crate) group_sent: (usize, Time),
    /// What groups have cost.
    pub(crate) pace: CostModel,
    pub(crate) superblock: Option<IoId>,
    pub(crate) home: Option<IoId>,
    /// Events by which home went past the records of a file.
    pub(crate) ahead_events: u64,
    pub(crate) closing: bool,
    /// No checkpoint is tried before.
    pub(crate) retry_at: Time,
}

impl Journal {
    /// The first segment that is needed.
    pub(crate) fn first_needed(&self) -> Option<LogSegment> {
        let held = self.held.first().map(|&(segment, _)| segment);
        [held, self.orphans.first(), self.orphans_syncing.first()].into_iter().flatten().min()
    }

    /// Where the tail may go on to.
    pub(crate) fn needed_from(&self) -> Lsn {
        let durable = self.writer.durable();
        self.first_needed().map_or(durable, |segment| self.segments.start(segment).min(durable))
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.group.is_some() || self.superblock.is_some() || self.home.is_some()
    }

    /// Appends a record about a file to the open group, which names the file first if it does not yet.
    /// There is room for both.
    pub(crate) fn append(&mut self, file: &mut File, record: &Record<'_>) -> Lsn {
        let head = self.writer.head();
        if file.logged.named_in != Some(head) {
            let name = Record::File { file: file.logged.node(), identity: &file.logged.identity };
            self.writer.append(&name).expect("room was looked for");
            file.logged.named_in = Some(head);
        }
        self.writer.append(record).expect("room was looked for")
    }

    /// Records can still be added to it.
    pub(crate) fn is_usable(&self) -> bool {
        self.failed.is_none() && !self.closing
    }

    /// Whether `bytes` bytes are free, plus a reserve for records that void others.
    pub(crate) fn has_space(&self, bytes: u64) -> bool {
        self.writer.has_space(bytes + self.writer.capacity_bytes() / SLACK_SHARE)
    }

    /// More than half of the log is used, so it is to be freed.
    pub(crate) fn is_half_full(&self) -> bool {
        self.writer.used_bytes() > self.writer.capacity_bytes() / 2
    }

    /// The file that needs the first needed segment, if the engine still has the file.
    pub(crate) fn first_holder(&self) -> Option<FileIx> {
        let &(segment, file) = self.held.first()?;
        (self.first_needed() == Some(segment)).then_some(file)
    }

    /// The open group is long enough to be sent although no sync waits for it, so that the next sync finds
    /// room.
    pub(crate) fn is_open_group_long(&self) -> bool {
        let bytes = (self.writer.position().0 - self.writer.head().0) as usize;
        bytes >= self.writer.group_bytes_max() / 4
    }
}
