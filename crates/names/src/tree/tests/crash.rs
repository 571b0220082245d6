//! Crashes at any moment, of recoveries too: names are as of one moment afterwards.

use std::collections::HashMap;

use weir_log::{Lsn, Record};

use super::live::Scene;
use super::model::{FileSystem, Random, change, seeds};
use crate::identity::NodeId;
use crate::tree::*;
use crate::way::Place;

/// The bytes of records of a group: of nodes that home had when it was appended, then of a change, if there is one.
type Logged = (Lsn, Vec<u8>);

/// What is logged: which inodes of home nodes are, and a change.
fn records(named: &[(NodeId, Kind, NodeId)], change: Option<&Change>) -> Vec<u8> {
    let identities: Vec<_> = named.iter().map(|(.., inode)| inode.0.to_le_bytes()).collect();
    let nodes = named.iter().zip(&identities);
    let nodes = nodes.map(|((node, kind, _), identity)| node_record(*node, kind, identity));
    // As in the smallest log.
    let change = change.map(|change| change.record(16 << 10));
    nodes.chain(change).flat_map(|record| Record::Name(record.unwrap()).to_bytes()).collect()
}

fn inode_of(identity: &[u8]) -> NodeId {
    NodeId(u64::from_le_bytes(identity.try_into().unwrap()))
}

/// What a log says.
fn read(log: &[Logged]) -> LoggedNames {
    let mut names = LoggedNames::default();
    for (lsn, bytes) in log {
        let mut at = 0;
        while at < bytes.len() {
            let (record, len) = Record::decode(&bytes[at..]).unwrap();
            let Record::Name(record) = record else { panic!("{record} is none of names") };
            names.add(*lsn, &record).unwrap();
            at += len;
        }
    }
    names
}

/// A machine that loses its power: the log's durable part stays, and of what home did since it was synced last any part
/// that can have happened without the rest.
struct Machine {
    scene: Scene,
    log: Vec<Logged>,
    /// What programs saw after each record.
    seen: Vec<(Lsn, FileSystem)>,
    settled: FileSystem,
    unsettled: Vec<Command>,
    /// Records before it are gone.
    tail: Lsn,
    syncing: Option<usize>,
}

/// Whether home can do this now: what it would refuse after it lost something before.
fn is_possible(home: &FileSystem, command: &Command) -> bool {
    let there = |at: &Place| home.inodes.contains_key(&at.parent());
    match command {
        Command::Look { .. } => false,
        Command::Make { node, at, .. } => {
            there(at) && home.get(at).is_none() && !home.inodes.contains_key(node)
        }
        Command::Link { node, at } => {
            there(at) && home.get(at).is_none() && home.entries.values().any(|other| other == node)
        }
        Command::Rename { node, from, to, replacing } => {
            there(to)
                && home.get(from) == Some(*node)
                && home.get(to) == *replacing
                && !home.is_below(to.parent(), *node)
        }
        Command::Exchange { one, other } => {
            let mut after = home.clone();
            home.get(&one.1) == Some(one.0) && home.get(&other.1) == Some(other.0) && {
                after.take(&one.1);
                after.take(&other.1);
                after.put(&one.1, other.0);
                after.put(&other.1, one.0);
                [one.0, other.0].into_iter().all(|node| {
                    after.is_below(node, NodeId::ROOT) || after.is_below(node, NodeId::PARKING)
                })
            }
        }
        Command::Unlink { node, at } => home.get(at) == Some(*node),
        Command::RemoveDirectory { node, at } => {
            home.get(at) == Some(*node) && home.is_empty(*node)
        }
        Command::Set { node, .. } => home.inodes.contains_key(node),
    }
}

impl Machine {
    fn new(seed: u64) -> Machine {
        let mut scene = Scene::new(seed);
        scene.tree.listed(NodeId::ROOT);
        let settled = scene.home.clone();
        let seen = vec![(Lsn(0), scene.seen.clone())];
        let (log, unsettled) = (Vec::new(), Vec::new());
        Machine { scene, log, seen, settled, unsettled, tail: Lsn(0), syncing: None }
    }

    fn change(&mut self) {
        let scene = &mut self.scene;
        let Some(wanted) = scene.some_change() else { return };
        let is_directory = |node: &NodeId| scene.seen.inodes[node].0.is_directory();
        let skipped = match &wanted {
            Change::Exchange { one, other } => one.1 == other.1,
            Change::Link { node, .. } => is_directory(node),
            Change::Rename { node, replaced, .. } => *replaced == Some(*node),
            _ => false,
        };
        if skipped || change(&mut scene.seen, &wanted).is_err() {
            return;
        }
        scene.lsn += 8;
        let lsn = Lsn(scene.lsn);
        let bound = wanted.mentioned().into_iter().filter(|&node| scene.tree.is_bound(node));
        let named: Vec<_> =
            bound.map(|node| (node, scene.tree.kind(node).unwrap().clone(), node)).collect();
        self.log.push((lsn, records(&named, Some(&wanted))));
        scene.tree.apply(wanted, lsn);
        self.seen.push((lsn, scene.seen.clone()));
    }

    fn end_some_command(&mut self) {
        let scene = &mut self.scene;
        if scene.under_way.is_empty() {
            return;
        }
        let nth = scene.random.below(scene.under_way.len());
        let (id, command) = scene.under_way.swap_remove(nth);
        let mut result = scene.home.execute(&command);
        if let Command::Make { node, kind, .. } = &command {
            scene.lsn += 8;
            let lsn = Lsn(scene.lsn);
            self.log.push((lsn, records(&[(*node, kind.clone(), *node)], None)));
            result = Ok(Answer::Made(lsn));
        }
        self.unsettled.push(command);
        scene.tree.ended(id, result);
    }

    fn step(&mut self) {
        match self.scene.random.below(12) {
            0..5 => self.change(),
            5 => {
                let upto = self.scene.random.below(40) as u64;
                self.scene.tree.committed(Lsn((self.scene.lsn + 1).saturating_sub(upto).max(1)));
            }
            6 | 7 => self.scene.take_commands(6),
            8 => match self.syncing.take() {
                None => {
                    self.scene.tree.begin_home_sync();
                    self.syncing = Some(self.unsettled.len());
                }
                Some(upto) => {
                    for command in self.unsettled.drain(..upto) {
                        self.settled.execute(&command).unwrap();
                    }
                    self.scene.tree.home_synced(true);
                }
            },
            9 => {
                let durable = self.scene.tree.durable;
                let needed =
                    self.scene.tree.needed_from().map_or(durable, |from| from.min(durable));
                self.tail = self.tail.max(needed);
            }
            _ => self.end_some_command(),
        }
    }

    /// What home has after a crash.
    fn home_after_crash(
        random: &mut Random,
        settled: &FileSystem,
        unsettled: &[Command],
    ) -> FileSystem {
        let mut home = settled.clone();
        let loses = random.below(4);
        for command in unsettled {
            if (loses == 0 || !random.one_in(loses + 1)) && is_possible(&home, command) {
                home.execute(command).unwrap();
            }
        }
        home
    }

    /// Crashes, recovers, perhaps crashes in the middle of that, and compares.
    fn crash(mut self, seed: u64) {
        let durable = self.scene.tree.durable;
        // More may have been written than was known to be durable.
        let upto = durable.0 + self.scene.random.below(24) as u64;
        let mut log: Vec<_> = self
            .log
            .iter()
            .filter(|(lsn, ..)| self.tail <= *lsn && lsn.0 < upto)
            .cloned()
            .collect();
        let (_, wanted) = self.seen.iter().rev().find(|(lsn, _)| lsn.0 < upto).unwrap();
        let unsettled = std::mem::take(&mut self.unsettled);
        let mut home = Machine::home_after_crash(&mut self.scene.random, &self.settled, &unsettled);
        for cut in [true, false] {
            let settled = home.clone();
            let recovery = Recovery::new(&mut log, &mut home);
            let executed = recovery.run(&mut self.scene.random, cut);
            home = match cut {
                true => Machine::home_after_crash(&mut self.scene.random, &settled, &executed),
                false => home,
            };
        }
        assert_eq!(home.picture(), wanted.picture(), "seed {seed}, log up to {upto}");
        assert!(home.is_empty(NodeId::PARKING), "nothing stays parked");
    }
}

/// Which inode of home each node is: those that home had have the number of their node.
#[derive(Default)]
struct Inodes(HashMap<NodeId, NodeId>);

impl Inodes {
    fn of(&self, node: NodeId) -> NodeId {
        self.0.get(&node).copied().unwrap_or(node)
    }

    fn at(&self, at: &Place) -> Place {
        let parked = at.parent() == NodeId::PARKING;
        let parent = if parked { NodeId::PARKING } else { self.of(at.parent()) };
        Place::new(parent, at.name()).unwrap()
    }

    /// The command in home's numbers.
    fn translate(&self, command: &Command) -> Command {
        match command.clone() {
            Command::Look { at } => Command::Look { at: self.at(&at) },
            Command::Make { node, at, kind, attributes, xattrs } => {
                Command::Make { node: self.of(node), at: self.at(&at), kind, attributes, xattrs }
            }
            Command::Link { node, at } => Command::Link { node: self.of(node), at: self.at(&at) },
            Command::Rename { node, from, to, replacing } => Command::Rename {
                node: self.of(node),
                from: self.at(&from),
                to: self.at(&to),
                replacing: replacing.map(|node| self.of(node)),
            },
            Command::Exchange { one, other } => Command::Exchange {
                one: (self.of(one.0), self.at(&one.1)),
                other: (self.of(other.0), self.at(&other.1)),
            },
            Command::Unlink { node, at } => {
                Command::Unlink { node: self.of(node), at: self.at(&at) }
            }
            Command::RemoveDirectory { node, at } => {
                Command::RemoveDirectory { node: self.of(node), at: self.at(&at) }
            }
            Command::Set { node, attributes, xattrs } => {
                Command::Set { node: self.of(node), attributes, xattrs }
            }
        }
    }
}

/// Recovers home by a log.
struct Recovery<'a> {
    tree: Tree,
    home: &'a mut FileSystem,
    /// Identities that home gives meanwhile are added.
    log: &'a mut Vec<Logged>,
    end: u64,
    /// The node of each inode of home whose identity is known.
    node_of: HashMap<NodeId, NodeId>,
    inodes: Inodes,
    next_inode: u64,
    /// In home's numbers.
    executed: Vec<Command>,
}

impl<'a> Recovery<'a> {
    /// Replays the log.
    fn new(log: &'a mut Vec<Logged>, home: &'a mut FileSystem) -> Recovery<'a> {
        let end = log.last().map_or(8, |(lsn, ..)| lsn.0 + 8);
        let next_inode = home.inodes.keys().map(|inode| inode.0).max().unwrap().max(1 << 20);
        let mut recovery = Recovery {
            tree: Tree::recovering(Lsn(end)),
            home,
            log,
            end,
            node_of: HashMap::from([(NodeId::ROOT, NodeId::ROOT)]),
            inodes: Inodes::default(),
            next_inode,
            executed: Vec::new(),
        };
        recovery.replay();
        recovery.find_parked();
        recovery
    }

    /// Home may have lost what it had when it was logged.
    fn replay(&mut self) {
        let names = read(self.log);
        let is_there =
            |identity: &[u8]| self.home.entries.values().any(|there| *there == inode_of(identity));
        for (node, identity) in names.inodes() {
            let inode = inode_of(identity);
            self.inodes.0.insert(node, inode);
            if !names.makes(node) || is_there(identity) {
                self.node_of.insert(inode, node);
            }
        }
        names.replay(&mut self.tree, is_there).unwrap();
    }

    /// What is parked is found by its name.
    fn find_parked(&mut self) {
        let parked = self.home.entries.iter().filter(|((parent, _), _)| *parent == NodeId::PARKING);
        let parked = parked.map(|((_, name), inode)| (Tree::node_parked_as(name).unwrap(), *inode));
        for (node, inode) in parked.collect::<Vec<_>>() {
            let Some(kind) = self.tree.kind(node).cloned() else {
                let at = Tree::parking(node);
                self.home.take(&at);
                self.executed.push(Command::Unlink { node: inode, at });
                continue;
            };
            if !self.tree.is_bound(node) {
                let named = self.name(node, kind, inode);
                self.tree.adopt(node, named);
            }
            self.tree.found_parked(node);
        }
    }

    /// Records which inode a node is.
    fn name(&mut self, node: NodeId, kind: Kind, inode: NodeId) -> Lsn {
        let lsn = Lsn(self.end);
        self.end += 8;
        self.log.push((lsn, records(&[(node, kind, inode)], None)));
        self.node_of.insert(inode, node);
        self.inodes.0.insert(node, inode);
        lsn
    }

    fn execute(&mut self, command: &Command) -> Result<Answer, HomeError> {
        let made = match command {
            Command::Make { node, kind, .. } => {
                self.next_inode += 1;
                Some(self.name(*node, kind.clone(), NodeId(self.next_inode)))
            }
            _ => None,
        };
        let there = self.inodes.translate(command);
        let result = self.home.execute(&there);
        self.executed.push(there);
        match (command, result, made) {
            (_, Ok(_), Some(named)) => Ok(Answer::Made(named)),
            (Command::Look { at }, Ok(Answer::Found(AtHome::Node(inode))), _) => {
                Ok(Answer::Found(AtHome::Node(self.recognize(at, inode))))
            }
            (_, result, _) => result,
        }
    }

    /// Which node an inode is that was found at a place.
    fn recognize(&mut self, at: &Place, inode: NodeId) -> NodeId {
        if let Some(&node) = self.node_of.get(&inode) {
            return node;
        }
        let kind = self.home.inodes[&inode].0.clone();
        match self.tree.adoptable(at, &kind) {
            Adoption::Node(node) => {
                let named = self.name(node, kind, inode);
                self.tree.adopt(node, named);
                node
            }
            Adoption::Surplus => {
                self.next_inode += 1;
                let node = NodeId(self.next_inode);
                self.tree.introduce_surplus(node, kind);
                self.inodes.0.insert(node, inode);
                self.node_of.insert(inode, node);
                node
            }
            Adoption::Foreign => panic!("nobody else makes anything here"),
        }
    }

    /// Brings home what the log says, or some of it if it is `cut`. What was executed.
    fn run(mut self, random: &mut Random, cut: bool) -> Vec<Command> {
        let mut in_flight = Vec::new();
        while !(cut && random.one_in(20)) {
            while in_flight.len() < 8
                && let Some(command) = self.tree.next_command()
            {
                in_flight.push(command);
            }
            if self.tree.durable.0 < self.end && (in_flight.is_empty() || random.one_in(4)) {
                self.tree.committed(Lsn(self.end));
                continue;
            }
            if in_flight.is_empty() {
                break;
            }
            let nth = random.below(in_flight.len());
            let (id, command) = in_flight.swap_remove(nth);
            let result = self.execute(&command);
            self.tree.ended(id, result);
        }
        let durable = self.tree.durable;
        self.log.retain(|(lsn, ..)| *lsn < durable);
        if !cut {
            self.tree.check_invariants();
            let left = (self.tree.dirty(), self.tree.refused().count());
            assert_eq!(left, (0, 0), "all is home: {:?}", self.tree.queue);
        }
        self.executed
    }
}

#[test]
fn after_any_crash_names_are_as_of_one_moment() {
    for seed in seeds(4_000) {
        let mut machine = Machine::new(seed);
        let steps = 20 + machine.scene.random.below(120);
        for _ in 0..steps {
            machine.step();
        }
        machine.crash(seed);
    }
}
