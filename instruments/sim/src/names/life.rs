//! Programs, the tree of names, the engine with its log, and home under both, from one crash to the next.
//!
//! It joins the tree and the engine as the mount does (`weir_fuse::write_behind`): a change is appended to the log and then
//! applied to the tree; home is given it when the log has it durably; what home has made is named by the log before anything
//! goes into it; a sync of home settles names. No threads, no I/O, no clock but the simulation's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use weir_engine::{
    Config, Engine, FetchPolicy, FileId, FramePool, HomeAttributes, Order, Outcome, PAGE_BYTES,
    RecordOf, RequestId, Time, WriteBackPolicy,
};
use weir_log::{Commit, DATA_START, Lsn, NODE_FIRST, Record, Superblock, Writer};
use weir_names::tree::{
    Attributes, Change, Command, CommandId, HomeError, Kind, Tree, node_record,
};
use weir_names::{NodeId, Place};

use super::broken::Broken;
use super::home::{Covered, Home, Refusal};
use super::inodes::{Inodes, identity};
use super::plan::Plan;
use super::seen::Seen;
use super::tally::Tally;
use super::timeline::Timeline;
use super::undo::Undo;
use crate::crash::log_disk::LogDisk;
use crate::rng::Rng;

/// A change waits no longer than that to be durable, as in the mount.
const COMMIT_AGE: Duration = Duration::from_millis(500);

/// Changes and calls that a failure tells.
const TOLD: usize = 40;

/// Something under way.
pub(super) enum Flight {
    /// A command of the engine for a file.
    Data {
        command: weir_engine::Command,
        inode: NodeId,
        change: u64,
        covered: (Vec<u64>, u64),
    },
    Log {
        io: weir_engine::IoId,
        commit: Commit,
    },
    ReadLog {
        io: weir_engine::IoId,
        places: Vec<u64>,
    },
    SyncHome {
        io: weir_engine::IoId,
        covered: Covered,
    },
    Redo {
        node: NodeId,
        identity: Box<[u8]>,
        from: Superblock,
        until: Lsn,
        refused: Vec<Lsn>,
    },
    /// A file is frozen to get a size. `at_home`: home has it.
    Sized {
        node: NodeId,
        size: usize,
        version: u32,
        at_home: bool,
    },
    /// A command of the tree; what home answered, when it did it.
    Names {
        id: CommandId,
        command: Command,
        answer: Option<Result<(), HomeError>>,
    },
    /// A sync of home that settles names.
    Settle {
        covered: Covered,
    },
}

/// A request that the engine answers later.
#[derive(Debug)]
pub(super) enum Waiting {
    Write {
        node: NodeId,
        position: Option<usize>,
    },
    Sync {
        moment: usize,
        /// When it began in the one order.
        called: u64,
        file: Option<(NodeId, usize)>,
    },
    Commit,
    Size {
        node: NodeId,
        size: usize,
        version: u32,
    },
    /// A file's data before its new name, which replaces another.
    First {
        change: Change,
        position: usize,
    },
    /// The same at home: the data of the command's file.
    Flush {
        id: CommandId,
        command: Command,
    },
}

/// What home has made, and the log is to name durably before anything goes into it.
pub(super) struct Made {
    pub(super) id: CommandId,
    pub(super) node: NodeId,
    pub(super) named: Lsn,
}

/// The devices, the tree and the engine above them, and what programs saw.
pub(super) struct Life {
    pub(super) plan: Plan,
    pub(super) home: Home,
    pub(super) inodes: Inodes,
    pub(super) log_disk: LogDisk,
    pub(super) tree: Tree,
    pub(super) engine: Engine,
    pub(super) seen: Seen,
    /// The same in one order.
    pub(super) timeline: Timeline,
    pub(super) now: Time,
    pub(super) flight: BTreeMap<u64, Flight>,
    next_flight: u64,
    next_request: u64,
    pub(super) waiting: BTreeMap<RequestId, Waiting>,
    /// Files with a change under way.
    pub(super) busy: BTreeSet<NodeId>,
    /// Files that home does not have, or that the log does not name yet. The tree does not tell: it forgets names that are home
    /// while a file is used.
    pub(super) unbound: BTreeSet<NodeId>,
    /// Sizes that files are to have when home has them, each with the change that gave it.
    pub(super) sizes: BTreeMap<NodeId, (usize, u32)>,
    /// Commands of which the tree is told when the log has what they made.
    pub(super) made: Vec<Made>,
    /// Since when a record of names waits to be durable.
    pub(super) uncommitted: Option<Time>,
    pub(super) committing: bool,
    pub(super) settling: bool,
    /// What programs gave, at the latest, of what home has under a name.
    pub(super) entry_versions: BTreeMap<Place, usize>,
    /// Whether syncs of home fail, in thousandths.
    pub(super) failing: u32,
    /// Whether home begins to refuse for a while at a command, in thousandths.
    pub(super) refusing: u32,
    pub(super) writes: u64,
    pub(super) crashes: u64,
    pub(super) tail: Lsn,
    told: VecDeque<String>,
}

impl Life {
    /// An empty home and an empty log.
    pub(super) fn first(plan: &Plan, rng: &mut Rng) -> Life {
        let superblock = Superblock {
            log: [7; 16],
            mount: [8; 16],
            bytes: DATA_START + *rng.pick(&[128 << 10, 256 << 10, 1 << 20]),
            generation: 1,
            checkpoint: Lsn(0),
            clean: false,
            row_blocks: *rng.pick(&[1, 1, 5]),
            nodes: NODE_FIRST,
            features: 0,
        };
        Life::begin(Home::new(), LogDisk::default(), superblock, plan.clone(), 0, rng)
    }

    /// Home as a recovery left it, and a log that begins anew.
    pub(super) fn begin(
        mut home: Home,
        mut log_disk: LogDisk,
        superblock: Superblock,
        plan: Plan,
        writes: u64,
        rng: &mut Rng,
    ) -> Life {
        let block = superblock.encode();
        log_disk.write(&Commit { blocks: vec![block], pieces: vec![(superblock.own_place(), 1)] });
        let mut config = Config {
            memory_bytes_max: Config::MEMORY_BYTES_MIN,
            patch_bytes_max: 4 << 20,
            fetch_policy: *rng.pick(&FetchPolicy::ALL),
            dirty_expire: Duration::from_millis(rng.between(5, 2000)),
            rotational: rng.chance(300),
            write_back: *rng.pick(&WriteBackPolicy::ALL),
            ..Config::default()
        };
        config.undone.supersede = plan.undone.contains(&Undo::Supersede);
        config.undone.cut = plan.undone.contains(&Undo::Cut);
        if plan.order == Order::All {
            config.order = Order::All;
            config.commit_age = Duration::from_millis(rng.between(5, 3000));
        }
        config.undone.ahead = plan.undone.contains(&Undo::Ahead);
        config.undone.moment = plan.undone.contains(&Undo::Moment);
        config.undone.home_sync = plan.undone.contains(&Undo::HomeSync);
        let frames = (config.memory_bytes_max / PAGE_BYTES as u64) as u32 + 512;
        let pool = FramePool::new(frames).expect("memory for the frames");
        let mut engine = Engine::new(config, pool).expect("the configuration is valid");
        engine.start_log(Writer::new(superblock));
        (home.refusal, home.settled) = (None, 0);
        home.inodes_max = match rng.below(4) {
            0 => home.seen.inodes().count() + rng.between(3, 12) as usize,
            _ => usize::MAX,
        };
        let tree = Tree::new(engine.names_durable());
        let mut life = Life {
            home,
            inodes: Inodes::default(),
            log_disk,
            tree,
            engine,
            seen: Seen::new(super::plain::Plain::new()),
            timeline: Timeline::default(),
            now: Time::from_nanos(1_000_000_000),
            flight: BTreeMap::new(),
            next_flight: 0,
            next_request: 0,
            waiting: BTreeMap::new(),
            busy: BTreeSet::new(),
            unbound: BTreeSet::new(),
            sizes: BTreeMap::new(),
            made: Vec::new(),
            uncommitted: None,
            committing: false,
            settling: false,
            entry_versions: BTreeMap::new(),
            failing: *rng.pick(&[0, 0, 0, 250]),
            refusing: *rng.pick(&[0, 0, 15]),
            writes,
            crashes: 0,
            tail: Lsn(0),
            told: VecDeque::new(),
            plan,
        };
        life.number_all();
        life
    }

    /// What programs see first is what home has.
    fn number_all(&mut self) {
        let inodes: Vec<NodeId> =
            self.home.seen.inodes().filter(|&inode| inode > NodeId::ROOT).collect();
        for inode in inodes {
            let node = self.engine.new_node().expect("a new log has numbers");
            self.inodes.put(NodeId(node), inode);
        }
        self.seen = Seen::new(
            self.home
                .seen
                .renumbered(|inode| self.inodes.node(inode).expect("it was numbered just now")),
        );
        // A recovery made all removals durable.
        let seen = &self.home.seen;
        self.home.files.retain(|&inode, _| seen.inode(inode).is_some());
        for (&inode, file) in &mut self.home.files {
            let history = file.begin_history();
            let node = self.inodes.node(inode).expect("it was numbered just now");
            self.timeline.file(node, &history.content());
            self.seen.histories.insert(node, history);
        }
    }

    pub(super) fn breaks(&self, rule: Undo) -> bool {
        self.plan.undone.contains(&rule)
    }

    /// Notes what happens, for the message of a failure.
    pub(super) fn tell(&mut self, what: impl FnOnce() -> String) {
        let what = what();
        if self.plan.print {
            println!("{what}");
        }
        if self.told.len() == TOLD {
            self.told.pop_front();
        }
        self.told.push_back(what);
    }

    pub(super) fn told(&self) -> String {
        self.told.iter().map(|line| format!("\n  {line}")).collect()
    }

    pub(super) fn request(&mut self, waiting: Waiting) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.waiting.insert(request, waiting);
        request
    }

    pub(super) fn fly(&mut self, flight: Flight) {
        self.next_flight += 1;
        self.flight.insert(self.next_flight, flight);
    }

    /// Performs operations, with crashes on copies of the devices.
    pub(super) fn live(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        for _ in 0..self.plan.operations {
            self.now = self.now + Duration::from_micros(rng.below(40_000));
            self.operate(rng, tally)?;
            self.drain(tally)?;
            self.maybe_cut(rng, tally)?;
            for _ in 0..rng.below(7) {
                self.work(rng, tally)?;
                self.maybe_cut(rng, tally)?;
            }
            if self.engine.next_tick(self.now).is_some_and(|due| due <= self.now) {
                self.engine.tick(self.now);
                self.drain(tally)?;
            }
            self.engine.check_invariants();
            self.tree.check_invariants();
        }
        Ok(())
    }

    /// One thing that the daemon or a device does.
    fn work(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        let is_due = self.uncommitted.is_some_and(|since| self.now.since(since) >= COMMIT_AGE);
        if is_due || self.uncommitted.is_some() && rng.chance(60) {
            self.commit(tally)?;
        }
        match rng.below(10) {
            0 if rng.chance(250) || self.engine.log_wants_room() => self.begin_settling(),
            0 if rng.chance(100) => self.tree.retry(),
            1..=3 => self.begin_command(rng, tally)?,
            _ => self.end_one(rng, tally)?,
        }
        self.let_go();
        self.drain(tally)
    }

    /// All records of names are to be durable.
    pub(super) fn commit(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        if self.committing {
            return Ok(());
        }
        (self.committing, self.uncommitted) = (true, None);
        let request = self.request(Waiting::Commit);
        match self.engine.commit_names(request, self.now) {
            Outcome::Pending => Ok(()),
            Outcome::Done(result) => self.take(request, weir_engine::Reply::Synced(result), tally),
        }
    }

    /// The log is durable up to where it says so.
    pub(super) fn committed(&mut self) {
        self.committing = false;
        self.tree.committed(self.engine.names_durable());
    }

    pub(super) fn need(&mut self, from: Option<Lsn>) {
        let from = from.filter(|_| !self.breaks(Undo::Tail));
        self.engine.names_need(from, self.now);
    }

    pub(super) fn begin_settling(&mut self) {
        if self.settling {
            return;
        }
        if self.tree.begin_home_sync() {
            self.settling = true;
            let covered = self.home.begin_sync();
            self.fly(Flight::Settle { covered });
        } else {
            self.need(self.tree.needed_from());
        }
    }

    /// What no name leads to any more is forgotten.
    fn let_go(&mut self) {
        for node in self.tree.take_unneeded() {
            self.tree.let_go(node);
        }
    }

    /// A record of names was appended.
    pub(super) fn appended(&mut self, lsn: Lsn) -> Lsn {
        self.uncommitted.get_or_insert(self.now);
        if self.breaks(Undo::WriteAhead) {
            self.tree.committed(Lsn(lsn.0 + 1));
        }
        lsn
    }

    /// Whether the log names what home has made, and the tree does not know yet.
    fn is_named(&self, node: NodeId) -> bool {
        !self.breaks(Undo::NameAtOnce) && self.made.iter().any(|made| made.node == node)
    }

    /// Appends a change; `None` if the log has no room now.
    pub(super) fn append(&mut self, change: &Change) -> Option<Lsn> {
        let named: Vec<(NodeId, Kind, [u8; 8])> = change
            .mentioned()
            .into_iter()
            .filter(|&node| self.tree.is_bound(node) || self.is_named(node))
            .map(|node| {
                let kind = self.tree.kind(node).expect("it is mentioned").clone();
                let inode = self.inodes.of(node).expect("home has it");
                (node, kind, identity(inode))
            })
            .collect();
        let named = named.iter().map(|(node, kind, identity)| {
            Record::Name(node_record(*node, kind, identity).expect("it is plain"))
        });
        let named: Vec<Record<'_>> = named.collect();
        let record = change.record(self.engine.group_bytes_max()).expect("it is short");
        let lsn = self
            .engine
            .log_names(&named, &Record::Name(record), RecordOf::Program, self.now)
            .ok()?;
        Some(self.appended(lsn))
    }

    /// The tree is told what home has in a directory, unless it knows.
    pub(super) fn load(&mut self, directory: NodeId) {
        if self.tree.is_complete(directory) || !self.tree.is_bound(directory) {
            return;
        }
        let Some(inode) = self.inodes.of(directory) else { return };
        let listed = self.home.seen.list(inode);
        let listed: Vec<(Box<[u8]>, NodeId)> =
            listed.map(|(at, inode)| (at.name().into(), inode)).collect();
        for (name, inode) in listed {
            let node = self.inodes.node(inode).expect("all inodes are numbered");
            if self.tree.kind(node).is_none() {
                let kind = self.home.seen.inode(inode).expect("it was listed").kind.clone();
                self.tree.introduce(node, kind);
            }
            let at = Place::new(directory, &name).expect("home lists names");
            self.tree.found(&at, Some(node));
        }
        self.tree.listed(directory);
    }

    /// The same of a directory and those above it, for programs.
    pub(super) fn load_above(&mut self, directory: NodeId) {
        let mut above = vec![directory];
        while let Some(&last) = above.last()
            && let Some(at) = self.seen.now().names_of(last).next()
        {
            above.push(at.parent());
        }
        above.into_iter().rev().for_each(|directory| self.load(directory));
    }

    pub(super) fn load_all(&mut self) {
        let mut all = VecDeque::from([NodeId::ROOT]);
        while let Some(directory) = all.pop_front() {
            self.load(directory);
            let below = self.seen.now().list(directory).map(|(_, node)| node);
            let below: Vec<NodeId> =
                below.filter(|&node| self.seen.now().is_directory(node)).collect();
            all.extend(below);
        }
    }

    /// A file is used.
    pub(super) fn attach(&mut self, node: NodeId) {
        let file = file_id(node);
        if self.engine.is_attached(file) {
            return self.engine_attach_again(file);
        }
        if self.unbound.contains(&node) {
            return self.attach_unbound(node);
        }
        let Some(inode) = self.inodes.of(node) else { return };
        self.engine.attach(file, self.attributes_of(inode));
        self.engine.identify(file, &identity(inode));
    }

    /// A file that home does not have, or that the log does not name yet, as [`weir_shard`] attaches it.
    fn attach_unbound(&mut self, node: NodeId) {
        let file = file_id(node);
        let size = self.sizes.get(&node).map_or(0, |&(size, _)| size as u64);
        let home = HomeAttributes { size, dense: true, write_unit: 512, readable: true };
        self.engine.attach(file, home);
        self.engine.set_unbound(file);
        self.engine.made_as(file, node.0);
        if self.made.iter().any(|made| made.node == node)
            && let Some(inode) = self.inodes.of(node)
        {
            self.engine.identify(file, &identity(inode));
        }
    }

    fn engine_attach_again(&mut self, file: FileId) {
        // A detach that waits is cancelled.
        let size = self.engine.size(file).unwrap_or(0);
        let home = HomeAttributes { size, dense: true, write_unit: 512, readable: true };
        self.engine.attach(file, home);
    }

    fn attributes_of(&self, inode: NodeId) -> HomeAttributes {
        let size = self.home.files[&inode].content().len() as u64;
        HomeAttributes { size, dense: true, write_unit: 512, readable: true }
    }

    /// Home refuses from now on, for a while or for good.
    pub(super) fn maybe_refuse(&mut self, rng: &mut Rng) {
        if self.home.refusal.is_none() && rng.chance(self.refusing) {
            self.home.refusal = Some(Refusal::some(rng.chance(150), rng));
        }
    }
}

pub(super) fn file_id(node: NodeId) -> FileId {
    FileId(node.0)
}

pub(super) fn mode(mode: u64) -> Attributes {
    Attributes { mode: Some(mode as u32), ..Attributes::default() }
}
