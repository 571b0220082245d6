//! Changes of names in the redo log (decision 0023).
//!
//! A change is appended to the log under the lock of the tree, just before it is applied: so the log has the changes in
//! the order in which programs saw them, among the data that files have in it. Nodes have numbers of their own there,
//! which are never given twice; home's inode numbers are. Those that home has are named by their handles in each group that
//! mentions them; where handles do not last, the log says where home has them ([`super::steps`]).
//!
//! Home is given a change after it is durable, half a second after it was made or when somebody waits for home: what is
//! made, renamed and removed within that time costs home less. A sync of home as a whole then *settles* what home has, so that the log is not needed for it.
//!
//! After the log has failed it goes on in SOURCE until all that it has is home ([`super::continued`]); no sync succeeds until then.
//!
//! Owns the nodes' numbers in the log, and when it is committed and home settled. Does not own the log's records
//! ([`weir_names::tree`]) nor its space (the engine).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use weir_engine::{NotLogged, RecordOf};
use weir_log::{Lsn, NameRecord, Record, Stage};
use weir_names::tree::{Change, Kind, Tree, node_record};
use weir_names::{NodeId, Way};
use weir_shard::Shard;

use crate::inode::DataNode;
use crate::inodes::Inodes;
use crate::write_behind::continued::{Continued, Said, Undurable};
use crate::write_behind::known_names::keeps_a_name;
use crate::write_behind::moves::ByPath;

/// What the log needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogJob {
    /// Make durable what was logged.
    Commit,
    /// The same, where a failed log goes on.
    Continue,
    /// Sync home as a whole.
    Settle,
}

/// Inodes that are remembered before it is asked which of them need not be.
const INODES_MIN: usize = 4096;

/// The log of names.
pub(super) struct NamesLog {
    pub(super) shard: Arc<Shard>,
    /// The numbers in the log of nodes that the tree knows.
    pub(super) numbers: HashMap<NodeId, u64>,
    /// Those of inodes of home that records name which may be replayed: an inode has one number there, however often the
    /// tree forgets it in between.
    pub(super) inodes: HashMap<Vec<u8>, Numbered>,
    /// When there are more than that, those are looked for that no record names any more.
    inodes_max: usize,
    /// The last record, or where the log began.
    pub(super) last: Lsn,
    /// Since when a change waits to be committed.
    pub(super) uncommitted: Option<Instant>,
    /// Somebody waits for that.
    pub(super) is_awaited: bool,
    pub(super) committing: bool,
    pub(super) settling: bool,
    pub(super) settled: Instant,
    pub(super) failed: bool,
    /// The last record of a change.
    pub(super) last_change: Option<Lsn>,
    /// Where handles do not last.
    pub(super) by_path: Option<ByPath>,
    /// Records that are in the log and may not be durable.
    pub(super) undurable: VecDeque<Undurable>,
    /// After it has failed, until nothing of it is to be replayed.
    pub(super) continued: Option<Continued>,
}

/// An inode of home in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered {
    pub(super) number: u64,
    /// The last record that names it.
    pub(super) last: Lsn,
}

/// A change is not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlogged {
    /// There is no room now.
    Full,
    /// It has no record.
    Never,
    /// The log has failed.
    Failed,
}

impl From<NotLogged> for Unlogged {
    fn from(error: NotLogged) -> Unlogged {
        match error {
            NotLogged::Full => Unlogged::Full,
            NotLogged::TooLong => Unlogged::Never,
            NotLogged::Closed => Unlogged::Failed,
        }
    }
}

impl NamesLog {
    pub(super) fn new(shard: Arc<Shard>) -> NamesLog {
        NamesLog {
            last: shard.names_durable(),
            last_change: None,
            by_path: shard.finds_by_number().then(ByPath::default),
            shard,
            numbers: HashMap::new(),
            inodes: HashMap::new(),
            inodes_max: INODES_MIN,
            uncommitted: None,
            is_awaited: false,
            committing: false,
            settling: false,
            settled: Instant::now(),
            failed: false,
            undurable: VecDeque::new(),
            continued: None,
        }
    }

    /// The log has failed, and goes on in SOURCE. Up to where it is durable.
    pub(super) fn fail(&mut self) -> Lsn {
        let durable = self.shard.names_durable();
        self.failed = true;
        // What follows is not durable yet: its positions come after the end of the last group, which is after its last record.
        self.last = self.last.max(durable);
        let undurable = std::mem::take(&mut self.undurable);
        self.continued = Some(Continued::new(durable, self.last, undurable));
        durable
    }

    /// Whether changes have records: in the log, or where it goes on.
    pub(super) fn is_recorded(&self) -> bool {
        !self.failed || self.continued.is_some()
    }

    /// The log is needed for changes of names from there on. To be called under the tree's lock.
    pub(super) fn need(&self, from: Option<Lsn>) {
        if self.failed {
            let Some(continued) = &self.continued else { return self.shard.names_need(None) };
            return self.shard.names_need(continued.needed_from(from));
        }
        let kept = self.by_path.as_ref().and_then(ByPath::kept_from);
        self.shard.names_need(from.into_iter().chain(kept).min());
    }

    /// The number of a node in the log.
    pub(super) fn number(&mut self, inodes: &Inodes, node: NodeId) -> Option<u64> {
        if node == NodeId::ROOT {
            return Some(NodeId::ROOT.0);
        }
        let number = match self.known_number(inodes, node) {
            Some(known) => known,
            None => self.shard.new_node()?,
        };
        self.numbers.insert(node, number);
        Some(number)
    }

    /// The number of a node other than the root that has one in the log.
    fn known_number(&self, inodes: &Inodes, node: NodeId) -> Option<u64> {
        if let Some(&number) = self.numbers.get(&node) {
            return Some(number);
        }
        match self.by_path {
            // Its data is in the log under that number.
            Some(_) => inodes.get(node)?.file()?.log_node(),
            None => Some(self.inodes.get(&identity(inodes, node)?)?.number),
        }
    }

    /// The number under which a node is parked at home: recovery finds it by that. A log that is not replayed any more gives none for
    /// that, so that a node is not parked under one name and looked for under another.
    pub(super) fn parked_number(&mut self, inodes: &Inodes, node: NodeId) -> Option<u64> {
        if self.is_recorded() {
            return self.number(inodes, node);
        }
        let known = self.known_number(inodes, node)?;
        self.numbers.insert(node, known);
        Some(known)
    }

    /// A record names an inode.
    fn named(&mut self, identity: Vec<u8>, number: u64, last: Lsn) {
        // A failed log is not freed.
        let last = if self.failed { Lsn(u64::MAX) } else { last };
        self.inodes.insert(identity, Numbered { number, last });
        if self.inodes.len() > self.inodes_max {
            let tail = self.shard.log_tail();
            self.inodes.retain(|_, inode| inode.last >= tail);
            self.inodes_max = INODES_MIN.max(2 * self.inodes.len());
        }
    }

    /// The tree does not know a node any more.
    pub(super) fn let_go(&mut self, node: NodeId) {
        self.numbers.remove(&node);
    }

    /// Appends a change.
    pub(super) fn append(
        &mut self,
        tree: &Tree,
        inodes: &Inodes,
        change: &Change,
    ) -> Result<Lsn, Unlogged> {
        if !self.is_recorded() {
            return Err(Unlogged::Failed);
        }
        let at_home: Vec<NodeId> =
            change.mentioned().into_iter().filter(|&node| tree.is_bound(node)).collect();
        if self.by_path.is_some() {
            // Recovery would not find what this is about.
            let about = match change {
                Change::Link { node, .. }
                | Change::Set { node, .. }
                | Change::SetXattr { node, .. } => Some(node),
                _ => None,
            };
            if let Some(node) = about
                && at_home.contains(node)
                && !keeps_a_name(tree, inodes, *node)
                && inodes.get(*node).is_some_and(|inode| !inode.is_nameless())
            {
                return Err(Unlogged::Never);
            }
            for &node in &at_home {
                self.say_where(tree, inodes, node)?;
            }
            for at in change.names() {
                self.say_what_is_at(tree, inodes, at)?;
            }
        }
        let numbered = change.renumbered(|node| self.number(inodes, node).map(NodeId));
        let numbered = numbered.ok_or(Unlogged::Failed)?;
        let record = numbered.record(self.shard.group_bytes_max()).map_err(|_| Unlogged::Never)?;
        if self.by_path.is_some() {
            let lsn = self.append_record(&[], &Record::Name(record), Said::of(change))?;
            let by_path = self.by_path.as_mut().expect("handles do not last");
            numbered.mentioned().into_iter().for_each(|node| by_path.places.mentioned(node, lsn));
            return Ok(self.changed(lsn));
        }
        let mut named = Vec::new();
        for node in at_home {
            let kind = tree.kind(node).ok_or(Unlogged::Never)?;
            let identity = identity(inodes, node).ok_or(Unlogged::Never)?;
            let number = self.number(inodes, node).ok_or(Unlogged::Failed)?;
            named.push((NodeId(number), kind, identity));
        }
        let lsn = self.append_named(&named, &Record::Name(record), Said::of(change))?;
        for (number, _, identity) in named {
            self.named(identity, number.0, lsn);
        }
        Ok(self.changed(lsn))
    }

    /// Appends which inode of home a node is.
    pub(super) fn append_identity(
        &mut self,
        inodes: &Inodes,
        node: NodeId,
        kind: &Kind,
        identity: &[u8],
    ) -> Result<Lsn, Unlogged> {
        let number = self.number(inodes, node).ok_or(Unlogged::Failed)?;
        let name = node_record(NodeId(number), kind, identity).map_err(|_| Unlogged::Never)?;
        let record = Record::Name(name);
        let lsn = match self.continued {
            Some(_) => self.append_record(&[], &record, Said::OfHome)?,
            None => {
                let inode = inodes.get(node);
                let home = inode.as_ref().and_then(|inode| inode.file());
                let lsn =
                    self.shard.log_inode(node.file(), home.map(Arc::as_ref), identity, &name)?;
                self.undurable.push_back(Undurable::new(lsn, &[], &record, Said::OfHome));
                lsn
            }
        };
        self.named(identity.to_vec(), number, lsn);
        Ok(self.of_home(lsn))
    }

    fn append_named(
        &mut self,
        named: &[(NodeId, &Kind, Vec<u8>)],
        record: &Record<'_>,
        said: Said,
    ) -> Result<Lsn, Unlogged> {
        let mut names = Vec::with_capacity(named.len());
        for (number, kind, identity) in named {
            let name = node_record(*number, kind, identity).map_err(|_| Unlogged::Never)?;
            names.push(Record::Name(name));
        }
        self.append_record(&names, record, said)
    }

    /// Appends a record, and before it those of `named` which say what inodes it speaks of.
    pub(super) fn append_record(
        &mut self,
        named: &[Record<'_>],
        record: &Record<'_>,
        said: Said,
    ) -> Result<Lsn, Unlogged> {
        let Some(continued) = &mut self.continued else {
            let of = match (said, record) {
                (Said::Change { .. }, _) => RecordOf::Program,
                (Said::OfHome, Record::Name(NameRecord::Step { stage, .. }))
                    if *stage != Stage::Begun =>
                {
                    RecordOf::HomeDid
                }
                (Said::OfHome, _) if self.by_path.as_ref().is_some_and(|of| of.is_alone) => {
                    RecordOf::HomeBeginsAlone
                }
                (Said::OfHome, _) => RecordOf::HomeBegins,
            };
            let lsn = self.shard.log_names(named, record, of)?;
            self.undurable.push_back(Undurable::new(lsn, named, record, said));
            return Ok(lsn);
        };
        let lsn = match said {
            Said::Change { .. } => Lsn(self.last.0 + 1),
            Said::OfHome => self.last,
        };
        continued.add(Undurable::new(lsn, named, record, said));
        Ok(lsn)
    }

    /// The log is durable up to a position.
    pub(super) fn is_durable_to(&mut self, durable: Lsn) {
        while self.undurable.front().is_some_and(|record| record.lsn() < durable) {
            self.undurable.pop_front();
        }
    }

    /// A record of what home has was appended. Gives a position that is durable when it is: where the log goes on, what is of home is
    /// durable before what was changed earlier.
    pub(super) fn of_home(&mut self, lsn: Lsn) -> Lsn {
        match self.continued {
            Some(_) => Lsn(0),
            None => self.appended(lsn),
        }
    }

    /// A record was appended that is to be durable soon.
    pub(super) fn appended(&mut self, lsn: Lsn) -> Lsn {
        self.last = lsn;
        self.uncommitted.get_or_insert_with(Instant::now);
        lsn
    }

    fn changed(&mut self, lsn: Lsn) -> Lsn {
        self.last_change = Some(lsn);
        self.appended(lsn)
    }
}

/// How recovery finds an inode that home has: by its handle.
pub(super) fn identity(inodes: &Inodes, node: NodeId) -> Option<Vec<u8>> {
    match inodes.way(node)? {
        (_, Way::Handle(handle)) => {
            Some([&handle.kind().to_le_bytes()[..], handle.bytes()].concat())
        }
        (_, Way::Place(_)) => None,
    }
}

/// What became of a change that was to be logged.
pub(super) enum Logged {
    /// It has this place in the order.
    At(Lsn),
    /// The log has no room: to be tried again.
    Full,
    /// It cannot be logged, and is for home at once.
    ForHome,
}
