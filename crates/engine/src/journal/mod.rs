//! The journal as the engine uses it: files are its holders.
//!
//! Owns what concerns files: which pages have records, which commands and syncs wait for records, which files are to be
//! written home from the log, and the cost of groups. `weir_journal` owns retention, the groups and the tail; it does
//! not know files.
//!
//! Invariants:
//! - a command on the log in flight is one of `group`, `superblock` and `home`;
//! - once a write of the log has failed, nothing is appended any more.

pub(crate) mod at_home;
pub(crate) mod behind;
pub(crate) mod logged;
pub(crate) mod names;
pub(crate) mod recorded;
pub(crate) mod refused;
pub(crate) mod settled;

use std::collections::{BTreeSet, VecDeque};

use weir_journal::{AfterLsn, Journal};
use weir_log::{Lsn, Record, Writer};

use crate::cache::file::File;
use crate::command::IoId;
use crate::device::cost_model::CostModel;
use crate::error::ErrorKind;
use crate::journal::at_home::AtHome;
use crate::journal::behind::Behind;
use crate::journal::logged::Logged;
use crate::journal::names::Names;
use crate::journal::recorded::Recorded;
use crate::journal::refused::Refused;
use crate::place::FileIx;
use crate::time::Time;

/// The log of one engine.
pub(crate) struct FileJournal {
    /// Retention, the log's content, and how far it is durable.
    pub(crate) shared: Journal<FileIx>,
    pub(crate) failed: Option<ErrorKind>,
    pub(crate) recorded: Recorded,
    /// Files for which home may have lost data that is in the log.
    pub(crate) repairs: BTreeSet<FileIx>,
    /// Frozen files that are being written from the log, and those that wait for that.
    pub(crate) redos: usize,
    pub(crate) redos_next: VecDeque<FileIx>,
    /// Files that were changed and that a commit of everything does not make durable: the log does not serve them, or home is ahead of it.
    pub(crate) not_served: BTreeSet<FileIx>,
    /// Commands that wait until the records superseding older ones are durable.
    pub(crate) behind: Behind,
    /// Syncs that wait for a record to be durable.
    pub(crate) waiting: AfterLsn<(FileIx, u64)>,
    /// Records of names, and who waits for them.
    pub(crate) names: Names,
    /// Files that are being detached and whose checkpoint is to be retried.
    pub(crate) leaving: BTreeSet<FileIx>,
    /// Files with sizes that home refused, whose checkpoint made no record of these void; it is begun again at `void_at`.
    pub(crate) voiding: BTreeSet<FileIx>,
    pub(crate) void_at: Time,
    /// The commands in flight: a group, a superblock, and a sync of home as a whole.
    pub(crate) group: Option<IoId>,
    pub(crate) superblock: Option<IoId>,
    pub(crate) home: Option<IoId>,
    /// What the log does not know of home.
    pub(crate) at_home: AtHome,
    /// Blocks of the group in flight, and when it was sent.
    pub(crate) group_sent: (usize, Time),
    /// Since when something is not logged that is to be; `None` if nothing is, or if not everything is to be logged.
    pub(crate) unlogged_since: Option<Time>,
    /// The cost model of groups.
    pub(crate) cost: CostModel,
    /// Number of events in which home became newer than the records of a file.
    pub(crate) ahead_events: u64,
    /// No checkpoint is tried before this time.
    pub(crate) retry_at: Time,
    /// Home refuses what would free the log.
    pub(crate) refused: Option<Refused>,
}

impl FileJournal {
    /// Bytes that stay free for records which are needed to bring names home, so that the log can be freed of names. A group may lose
    /// most of a row.
    pub(crate) fn reserved_for_home(&self) -> usize {
        /// The share of the log.
        const SHARE: u64 = 8;
        match self.names.last {
            Some(_) => {
                let writer = self.shared.writer();
                let share = writer.capacity_bytes() / SHARE;
                (share + (2 * writer.lost_bytes_max()).min(share)) as usize
            }
            None => 0,
        }
    }

    /// Whether `bytes` bytes are free for data that supersedes records and then goes home, which frees the log: half of what is
    /// reserved stays for names.
    pub(crate) fn has_space_to_supersede(&self, bytes: u64) -> bool {
        self.shared.has_space(bytes + self.reserved_for_home() as u64 / 2)
    }

    /// The journal of a log in which nothing is to be replayed.
    pub(crate) fn new(writer: Writer) -> FileJournal {
        FileJournal {
            recorded: Recorded::new(writer.capacity_bytes(), writer.position()),
            shared: Journal::new(writer),
            failed: None,
            repairs: BTreeSet::new(),
            redos: 0,
            redos_next: VecDeque::new(),
            not_served: BTreeSet::new(),
            behind: Behind::default(),
            waiting: AfterLsn::default(),
            names: Names::default(),
            leaving: BTreeSet::new(),
            voiding: BTreeSet::new(),
            void_at: Time::ZERO,
            group: None,
            superblock: None,
            home: None,
            at_home: AtHome::default(),
            group_sent: (0, Time::ZERO),
            unlogged_since: None,
            cost: CostModel::new(1, 1),
            ahead_events: 0,
            retry_at: Time::ZERO,
            refused: None,
        }
    }

    /// Appends a record about a file to the open group. There must be room for it and for the file's name.
    pub(crate) fn append(&mut self, file: &mut File, record: &Record<'_>) -> Lsn {
        let node = file.logged.node();
        let Logged { identity, named_in, .. } = &mut file.logged;
        let name = Record::File { file: node, identity };
        self.shared.append(named_in, &name, record)
    }

    /// Whether records can still be added.
    pub(crate) fn is_usable(&self) -> bool {
        self.shared.is_usable()
    }
}
