//! What programs do, and the answers they get.

use weir_engine::{Durability, FreezeEnd, FreezeScope, Outcome, Reply, RequestId};
use weir_names::tree::{Attributes, Change, Kind, Moment, Refused};
use weir_names::{NodeId, Place};

use super::broken::Broken;
use super::life::{Flight, Life, Waiting, file_id, mode};
use super::seen::Replaced;
use super::tally::Tally;
use super::undo::Undo;
use crate::crash::edit::Edit;
use crate::rng::Rng;

/// Most nodes: with this many, programs make no others.
const NODES_MAX: usize = 24;
/// Longest file, bytes.
const FILE_BYTES_MAX: u64 = 12 << 10;
const S_IFIFO: u32 = 0o010_000;

/// The bytes of write `nth`: never zero, and at each offset different from those of the next 255 writes.
fn bytes_of(nth: u64, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64)
        .map(|at| ((nth * 7 + at * 31 + at / 255) % 255) as u8 + 1)
        .collect()
}

/// Choices.
impl Life {
    fn directory(&self, rng: &mut Rng) -> NodeId {
        let seen = self.seen.now();
        let all = seen.inodes().filter(|&node| {
            node != NodeId::PARKING && seen.is_directory(node) && seen.is_below(node, NodeId::ROOT)
        });
        let all: Vec<NodeId> = all.collect();
        *rng.pick(&all)
    }

    fn place(&self, rng: &mut Rng) -> Place {
        let name = [b'a' + rng.below(4) as u8];
        Place::new(self.directory(rng), &name).expect("it is a name")
    }

    fn taken(&self, rng: &mut Rng) -> Option<(NodeId, Place)> {
        let all: Vec<(&Place, NodeId)> = self.seen.now().entries().collect();
        if all.is_empty() {
            return None;
        }
        let &(at, node) = rng.pick(&all);
        Some((node, at.clone()))
    }

    fn file(&self, rng: &mut Rng) -> Option<NodeId> {
        let seen = self.seen.now();
        let is_file = |node: &NodeId| {
            let inode = seen.inode(*node).expect("it is listed");
            inode.kind == Kind::File
        };
        let all: Vec<NodeId> = seen.inodes().filter(is_file).collect();
        if all.is_empty() { None } else { Some(*rng.pick(&all)) }
    }

    fn kind(rng: &mut Rng) -> Kind {
        match rng.below(10) {
            0..3 => Kind::Directory,
            3 => Kind::Symlink((*rng.pick(&[&b"one"[..], b"../two"])).into()),
            4 => Kind::Special { file_type: S_IFIFO, device: 0 },
            _ => Kind::File,
        }
    }

    fn some_change(&mut self, rng: &mut Rng) -> Option<Change> {
        Some(match rng.below(16) {
            0..5 if self.seen.now().inodes().count() < NODES_MAX => {
                let at = self.place(rng);
                let node = NodeId(self.engine.new_node()?);
                let attributes =
                    Attributes { uid: Some(0), gid: Some(0), ..mode(0o400 + rng.below(0o400)) };
                Change::Make { node, at, kind: Life::kind(rng), attributes }
            }
            5 => Change::Link { node: self.taken(rng)?.0, at: self.place(rng) },
            6..8 => {
                let (node, at) = self.taken(rng)?;
                Change::Remove { node, at }
            }
            8..12 => {
                let (node, from) = self.taken(rng)?;
                let to = if rng.chance(400) { self.taken(rng)?.1 } else { self.place(rng) };
                // RENAME_NOREPLACE, now and then: then it is refused if there is something.
                let replaced = self.seen.now().get(&to).filter(|_| !rng.chance(100));
                Change::Rename { node, from, to, replaced }
            }
            12 => Change::Exchange { one: self.taken(rng)?, other: self.taken(rng)? },
            _ => {
                let node = self.taken(rng)?.0;
                let attributes = match rng.below(3) {
                    0 => mode(rng.below(0o1000)),
                    1 => Attributes {
                        uid: Some(rng.below(5) as u32),
                        gid: Some(rng.below(5) as u32),
                        ..Attributes::default()
                    },
                    // Changes of its entries change the time of a directory, which is not modelled.
                    _ if self.seen.now().is_directory(node) => mode(rng.below(0o1000)),
                    _ => {
                        let seconds = rng.below(1 << 30) as i64;
                        let mtime = Some(Moment { seconds, nanoseconds: 0 });
                        Attributes { mtime, ..Attributes::default() }
                    }
                };
                Change::Set { node, attributes }
            }
        })
    }
}

/// Calls.
impl Life {
    pub(super) fn operate(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        tally.operations += 1;
        match rng.below(100) {
            0..52 => match self.some_change(rng) {
                Some(change) => self.change(change, tally),
                None => Ok(()),
            },
            52..70 => self.write(rng, tally),
            70..75 => self.truncate(rng, tally),
            75..89 => self.sync(rng, tally),
            89..91 => self.sync_all(tally),
            91..95 => self.forget(rng),
            95 => self.rest(rng, tally),
            _ => self.read_names(rng),
        }
    }

    fn change(&mut self, change: Change, tally: &mut Tally) -> Result<(), Broken> {
        // To exchange a name with itself does nothing; the tree is not asked for it.
        if let Change::Exchange { one, other } = &change
            && one.0 == other.0
        {
            return Ok(());
        }
        if self.loses_used_file(&change) || !self.answers_agree(&change)? {
            return Ok(());
        }
        let Change::Rename { node, replaced: Some(replaced), .. } = &change else {
            return self.do_change(change, 0, tally);
        };
        let Some(history) = self.seen.histories.get(node).filter(|_| node != replaced) else {
            return self.do_change(change, 0, tally);
        };
        // The data of a file that is about to take another's name comes before that.
        let (node, position) = (*node, history.position() - usize::from(self.busy.contains(node)));
        self.attach(node);
        let file = file_id(node);
        if self.breaks(Undo::DataFirst) || self.engine.log_data(file, self.now) {
            return self.do_change(change, position, tally);
        }
        self.tell(|| format!("a sync before {change:?}"));
        let request = self.request(Waiting::First { change, position });
        let outcome = self.engine.sync(request, file, Durability::Data, self.now);
        self.answered(request, outcome, tally)
    }

    /// Whether a call succeeds, for which the tree and a plain file system must give the same answer.
    fn answers_agree(&mut self, change: &Change) -> Result<bool, Broken> {
        for at in change.names() {
            if self.seen.now().inode(at.parent()).is_some() {
                self.load_above(at.parent());
            }
        }
        // Names that are not known count, and what is in a directory that goes.
        let about = change.mentioned();
        if about.iter().any(|&node| self.seen.now().names_of(node).nth(1).is_some()) {
            self.load_all();
        }
        for node in about {
            self.load_for(node);
            self.load(node);
        }
        let (seen, tree) = (self.seen.check(change), self.tree.check(change));
        if tree == Err(Refused::Unknown) {
            // The call waits until home has answered; here it is not made.
            return Ok(false);
        }
        if seen.is_ok() != tree.is_ok() {
            let what = format!("{change:?}: a plain file system says {seen:?}, the tree {tree:?}");
            return Err(self.wrong_answer(what));
        }
        Ok(seen.is_ok())
    }

    fn wrong_answer(&self, what: String) -> Broken {
        Broken::Answer { what, told: self.told() }
    }

    /// A change that is permitted. If it lets a file take another's name, `position` says how much of the file comes first.
    fn do_change(
        &mut self,
        change: Change,
        position: usize,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        let Some(lsn) = self.append(&change) else { return self.commit(tally) };
        self.tree.apply(change.clone(), lsn);
        self.seen.did(&change, lsn);
        self.timeline.names_changed();
        tally.changes += 1;
        let moment = self.seen.moment();
        self.tell(|| format!("{moment}: {change:?} at LSN {lsn}"));
        match change {
            Change::Make { node, kind: Kind::File, .. } => {
                let file = file_id(node);
                self.seen.histories.insert(node, crate::crash::history::History::new(&[]));
                self.timeline.file(node, &[]);
                let home = weir_engine::HomeAttributes {
                    size: 0,
                    dense: true,
                    write_unit: 512,
                    readable: true,
                };
                self.engine.attach(file, home);
                self.engine.set_unbound(file);
                self.unbound.insert(node);
                self.engine.made_as(file, node.0);
            }
            Change::Rename { node, replaced: Some(replaced), .. } if node != replaced => {
                if self.seen.histories.contains_key(&node) {
                    self.seen.replaced.push(Replaced { moment, node, position });
                }
                self.lost_name(replaced);
            }
            Change::Remove { node, .. } => self.lost_name(node),
            _ => {}
        }
        Ok(())
    }

    /// Whether a file would lose its last name that a program has open, as far as a request is under way: files without a
    /// name are not modelled.
    fn loses_used_file(&self, change: &Change) -> bool {
        let (Change::Remove { node, .. } | Change::Rename { replaced: Some(node), .. }) = change
        else {
            return false;
        };
        let is_last = self.seen.now().names_of(*node).nth(1).is_none();
        is_last && self.waiting.values().any(|waiting| waiting.is_about(*node))
            || self.busy.contains(node)
    }

    fn lost_name(&mut self, node: NodeId) {
        if self.seen.now().names_of(node).next().is_none() {
            if self.unbound.remove(&node) {
                // It never will be at home. Requests for it end.
                self.engine.bound(file_id(node), self.now);
            }
            self.engine.discard(file_id(node));
            self.engine.detach(file_id(node), self.now);
        }
    }

    fn write(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        let Some(node) = self.file(rng).filter(|node| !self.busy.contains(node)) else {
            return Ok(());
        };
        self.load_for(node);
        let size = self.seen.histories[&node].content().len() as u64;
        let offset =
            if rng.chance(400) { size.min(FILE_BYTES_MAX) } else { rng.below(FILE_BYTES_MAX) };
        let len = *rng.pick(&[1, 64, 200, 512, 4096]);
        let durability = if rng.chance(60) { Durability::All } else { Durability::None };
        self.write_at(node, offset, len, durability, tally)
    }

    fn write_at(
        &mut self,
        node: NodeId,
        offset: u64,
        len: usize,
        durability: Durability,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        self.attach(node);
        self.writes += 1;
        let data = bytes_of(self.writes, offset, len);
        let history = self.seen.histories.get_mut(&node).expect("it is a file");
        history.did(Edit::Write { offset: offset as usize, bytes: data.clone() });
        let position = (durability != Durability::None).then_some(history.position());
        self.timeline.edits(node, &history.content());
        self.tell(|| format!("write of {len} bytes to {node:?} at {offset}, {durability:?}"));
        self.busy.insert(node);
        let request = self.request(Waiting::Write { node, position });
        let outcome =
            self.engine.write(request, file_id(node), offset, &data, durability, self.now);
        self.answered(request, outcome, tally)
    }

    fn truncate(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        let Some(node) = self.file(rng).filter(|node| !self.busy.contains(node)) else {
            return Ok(());
        };
        self.load_for(node);
        self.attach(node);
        let size = if rng.chance(500) { 0 } else { rng.below(FILE_BYTES_MAX) as usize };
        let history = self.seen.histories.get_mut(&node).expect("it is a file");
        let before = history.content().len();
        let version = history.did(Edit::Size(size));
        self.timeline.edits(node, &history.content());
        self.tell(|| format!("truncation of {node:?} from {before} to {size}"));
        self.busy.insert(node);
        let request = self.request(Waiting::Size { node, size, version });
        let scope = FreezeScope::resizing(size as u64);
        match self.engine.freeze(request, file_id(node), scope, self.now) {
            Outcome::Pending => Ok(()),
            Outcome::Done(result) => self.take(request, Reply::Frozen(result), tally),
        }
    }

    fn load_for(&mut self, node: NodeId) {
        let at = self.seen.now().names_of(node).next().map(Place::parent);
        if let Some(directory) = at {
            self.load_above(directory);
        }
    }

    /// fsync(2) of a file, or of a directory.
    fn sync(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        let moment = self.seen.moment();
        if let Some(node) = self.file(rng).filter(|_| rng.chance(750)) {
            self.load_for(node);
            return self.sync_file(node, tally);
        }
        self.tell(|| "fsync of a directory".to_owned());
        let called = self.timeline.called();
        let request = self.request(Waiting::Sync { moment, called, file: None });
        if self.breaks(Undo::Acknowledgement) {
            return self.take(request, Reply::Synced(Ok(())), tally);
        }
        let outcome = self.engine.commit_names(request, self.now);
        self.answered(request, outcome, tally)
    }

    fn sync_file(&mut self, node: NodeId, tally: &mut Tally) -> Result<(), Broken> {
        let moment = self.seen.moment();
        self.attach(node);
        let position =
            self.seen.histories[&node].position() - usize::from(self.busy.contains(&node));
        self.tell(|| format!("fsync of {node:?}"));
        let called = self.timeline.called();
        let request = self.request(Waiting::Sync { moment, called, file: Some((node, position)) });
        if self.breaks(Undo::Acknowledgement) {
            return self.take(request, Reply::Synced(Ok(())), tally);
        }
        let outcome = self.engine.sync(request, file_id(node), Durability::All, self.now);
        self.answered(request, outcome, tally)
    }

    /// sync(2): of each file, and of names.
    fn sync_all(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        let is_file = |node: &NodeId| self.seen.histories.contains_key(node);
        let files: Vec<NodeId> = self.seen.now().inodes().filter(is_file).collect();
        for node in files {
            if self.engine.is_attached(file_id(node)) {
                self.sync_file(node, tally)?;
            }
        }
        let (moment, called) = (self.seen.moment(), self.timeline.called());
        let request = self.request(Waiting::Sync { moment, called, file: None });
        let outcome = self.engine.commit_names(request, self.now);
        self.answered(request, outcome, tally)
    }

    /// The kernel forgets inodes, and the daemon names.
    fn forget(&mut self, rng: &mut Rng) -> Result<(), Broken> {
        if let Some(node) = self.file(rng)
            && !self.busy.contains(&node)
            && !self.waiting.values().any(|waiting| waiting.is_about(node))
        {
            self.tell(|| format!("{node:?} is forgotten"));
            self.engine.detach(file_id(node), self.now);
        }
        let directory = self.directory(rng);
        if self.tree.forget_clean(directory) {
            self.tell(|| format!("the names in {directory:?} are forgotten"));
        }
        Ok(())
    }

    /// Names lead to what they should, as far as the tree knows them.
    fn read_names(&mut self, rng: &mut Rng) -> Result<(), Broken> {
        let directory = self.directory(rng);
        self.load_above(directory);
        let seen: Vec<(Vec<u8>, NodeId)> =
            self.seen.now().list(directory).map(|(at, node)| (at.name().to_vec(), node)).collect();
        let mut found: Vec<(Vec<u8>, NodeId)> =
            self.tree.list(directory, 0).map(|(_, name, node)| (name.to_vec(), node)).collect();
        found.sort();
        match !self.tree.is_complete(directory) || seen == found {
            true => Ok(()),
            false => Err(self
                .wrong_answer(format!("{directory:?} is listed as {found:?} instead of {seen:?}"))),
        }
    }
}

/// Answers.
impl Life {
    pub(super) fn answered(
        &mut self,
        request: RequestId,
        outcome: Outcome<()>,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        match outcome {
            Outcome::Done(result) => self.take(request, Reply::Synced(result), tally),
            Outcome::Pending => Ok(()),
        }
    }

    /// A request was answered.
    pub(super) fn take(
        &mut self,
        request: RequestId,
        reply: Reply,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        let is_fine = match &reply {
            Reply::Written(result) | Reply::Synced(result) | Reply::Frozen(result) => {
                result.is_ok()
            }
            Reply::Read(result) => result.is_ok(),
        };
        let waiting = self.waiting.remove(&request).expect("a request is answered once");
        match waiting {
            Waiting::Write { node, position } => {
                self.busy.remove(&node);
                if let Some(position) = position.filter(|_| is_fine) {
                    tally.syncs += 1;
                    let history = self.seen.histories.get_mut(&node).expect("it is a file");
                    history.wrote_durably(position);
                }
                if position.is_none() && !is_fine {
                    // There was no room for it.
                    self.seen.histories.get_mut(&node).expect("it is a file").withdraw();
                    self.timeline.withdraw(node);
                } else {
                    self.timeline.edited(node, position.is_some() && is_fine);
                }
            }
            Waiting::Sync { moment, called, file } if is_fine => {
                tally.syncs += 1;
                self.timeline.synced(called);
                self.seen.promised = self.seen.promised.max(moment);
                // What is synced of a file without a name was dropped with its last name.
                let file = file.filter(|(node, _)| self.seen.now().inode(*node).is_some());
                if let Some((node, position)) = file {
                    self.seen.histories.get_mut(&node).expect("it is a file").synced(position);
                }
                self.tell(|| format!("a sync is acknowledged, of the moment {moment}"));
            }
            Waiting::Sync { .. } => tally.failed_syncs += 1,
            Waiting::Commit => {
                if !is_fine {
                    return Err(self.wrong_answer(format!("the log failed: {reply:?}")));
                }
                self.committed();
            }
            Waiting::Size { node, size, version } if is_fine => {
                self.fly(Flight::Sized { node, size, version, at_home: false });
            }
            Waiting::Size { node, .. } => {
                self.busy.remove(&node);
                self.seen.histories.get_mut(&node).expect("it is a file").withdraw();
                self.timeline.withdraw(node);
            }
            Waiting::First { change, position } => {
                // Another program may have been first.
                if is_fine && !self.loses_used_file(&change) && self.answers_agree(&change)? {
                    self.do_change(change, position, tally)?;
                }
            }
            Waiting::Flush { id, command } => {
                if let weir_names::tree::Command::Rename { node, .. } = &command
                    && is_fine
                {
                    let end = FreezeEnd { discard: None, size: None, written: false };
                    self.engine.thaw(file_id(*node), end, self.now);
                }
                self.start_command(id, command);
            }
        }
        Ok(())
    }
}

impl Waiting {
    fn is_about(&self, of: NodeId) -> bool {
        match self {
            Waiting::Write { node, .. } | Waiting::Size { node, .. } => *node == of,
            Waiting::Sync { file, .. } => file.is_some_and(|(node, _)| node == of),
            Waiting::First { change, .. } => change.mentioned().contains(&of),
            Waiting::Commit => false,
            Waiting::Flush { command, .. } => command.touches().any(|node| node == of),
        }
    }
}
