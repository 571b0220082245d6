//! The same as in `crash`, where nodes are found by their names: a mount that logs places and steps as LOG_FORMAT says, with
//! steps under way when it is cut, and files with content. All of it is on file systems with handles, which are not used.

use std::collections::{HashMap, HashSet};

use weir_log::Stage;
use weir_names::tree::{Answer, Command, CommandId, Standing, Step};

use super::logs::gone_on;
use super::model::{Model, compare, picture_of};
use super::programs::{Programs, nodes_of, seeds};
use super::*;

/// A mount of which little is left but the tree and the log.
struct Mount<'a> {
    programs: Programs,
    source: &'a Source,
    home: &'a HomeNames,
    tree: Tree,
    executor: Executor<'a>,
    log: Vec<(Lsn, NameRecord)>,
    /// What programs saw after each record.
    seen_at: Vec<(Lsn, Model)>,
    lsn: u64,
    durable: u64,
    /// Records before it are gone.
    tail: Lsn,
    /// Names of nodes that the log has since the tail.
    placed: HashSet<(NodeId, Place)>,
    under_way: Vec<(CommandId, Command)>,
    /// Files that have content, which is their number.
    written: HashSet<NodeId>,
    /// From here on the log says that home has a node.
    named: HashMap<NodeId, u64>,
}

impl<'a> Mount<'a> {
    fn new(seed: u64, source: &'a Source, home: &'a HomeNames) -> Mount<'a> {
        let inodes = Inodes::new(source.fd.as_fd(), home, Finding::Names).unwrap();
        let mut tree = Tree::new(Lsn(1));
        tree.listed(NodeId::ROOT);
        let programs = Programs::new(seed, source);
        Mount {
            source,
            home,
            tree,
            executor: Executor::new(home, inodes, Lsn(0)),
            seen_at: vec![(Lsn(0), programs.seen.clone())],
            programs,
            log: Vec::new(),
            lsn: 1,
            durable: 1,
            tail: Lsn(0),
            placed: HashSet::new(),
            under_way: Vec::new(),
            written: HashSet::new(),
            named: HashMap::new(),
        }
    }

    fn push(&mut self, record: NameRecord) -> Lsn {
        self.lsn += 8;
        self.log.push((Lsn(self.lsn), record));
        self.seen_at.push((Lsn(self.lsn), self.programs.seen.clone()));
        Lsn(self.lsn)
    }

    fn places(&mut self, node: NodeId) -> Vec<Place> {
        let whereabouts = self.executor.inodes.whereabouts().unwrap();
        whereabouts.places(node).filter(|at| at.parent() != NodeId::PARKING).cloned().collect()
    }

    fn kind_at_home(&self, node: NodeId) -> Kind {
        match self.tree.kind(node).unwrap() {
            Kind::Symlink(_) => Kind::Symlink(Box::default()),
            kind => kind.clone(),
        }
    }

    fn log_place(&mut self, node: NodeId, at: Place) -> Lsn {
        let kind = self.kind_at_home(node);
        self.push(NameRecord::Placed { node, kind, at })
    }

    /// Logs where home has nodes, and the directories above them, unless the log has it.
    fn log_places(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes {
            if node == NodeId::ROOT || !self.tree.is_bound(node) {
                continue;
            }
            for at in self.places(node) {
                self.log_places([at.parent()]);
                if self.placed.insert((node, at.clone())) {
                    let kind = self.kind_at_home(node);
                    self.log.push((Lsn(self.lsn + 8), NameRecord::Placed { node, kind, at }));
                }
            }
        }
    }

    /// What home has under the names that are about to change, and the nodes that are spoken of.
    fn log_places_of(&mut self, names: &[&Place], nodes: Vec<NodeId>) {
        let whereabouts = self.executor.inodes.whereabouts().unwrap();
        let there: Vec<NodeId> = names.iter().filter_map(|at| whereabouts.node_at(at)).collect();
        let above: Vec<NodeId> = names.iter().map(|at| at.parent()).collect();
        self.log_places(nodes.into_iter().chain(there).chain(above));
    }

    fn change(&mut self) {
        let Some(change) = self.programs.change() else { return };
        let names: Vec<&Place> = match &change {
            Change::Make { at, .. } | Change::Link { at, .. } | Change::Remove { at, .. } => {
                vec![at]
            }
            Change::Rename { from, to, .. } => vec![from, to],
            Change::Exchange { one, other } => vec![&one.1, &other.1],
            Change::Set { .. } | Change::SetXattr { .. } => vec![],
        };
        self.log_places_of(&names, nodes_of(&change));
        let lsn = self.push(NameRecord::Change(change.clone()));
        self.tree.apply(change, lsn);
    }

    fn log_step(&mut self, step: &Step, stage: Stage) -> Lsn {
        if stage == Stage::Begun {
            let names: Vec<&Place> = step.from.iter().chain(&step.to).collect();
            self.log_places_of(&names, vec![step.node]);
        }
        self.push(NameRecord::Step { step: step.clone(), stage })
    }

    /// Takes commands up: what home is to do is durable before it may do it.
    fn begin_some(&mut self, most: usize) {
        for _ in 0..most {
            let Some((id, command)) = self.tree.next_command() else { break };
            if let Some(step) = Step::of(&command) {
                self.log_step(&step, Stage::Begun);
            }
            self.under_way.push((id, command));
        }
        self.commit(self.lsn + 1);
    }

    fn end_one(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let nth = self.programs.random.below(self.under_way.len());
        let (id, command) = self.under_way.swap_remove(nth);
        let step = Step::of(&command);
        if let Some(step) = &step
            && self.programs.random.one_in(12)
        {
            return self.fail(id, step);
        }
        // The step's end is what names a node.
        self.executor.end = Lsn(self.lsn + 8);
        let mut result = self.executor.execute(&mut self.tree, &command);
        self.executor.take_unnoted();
        if let (Some(step), Ok(_)) = (&step, &result) {
            // Sometimes it is found out only later that it was done.
            let named = match &step.to {
                Some(to) if self.programs.random.one_in(8) => self.log_place(step.node, to.clone()),
                _ => self.log_step(step, Stage::Done),
            };
            if let (Ok(answer), Command::Make { node, .. }) = (&mut result, &command) {
                *answer = Answer::Made(named);
                self.named.insert(*node, named.0);
            }
        }
        let is_gone = result == Err(HomeError::Gone);
        let is_set = matches!(command, Command::Set { .. });
        let is_exchange = result == Err(HomeError::NoExchange);
        assert!(result.is_ok() || is_gone && is_set || is_exchange, "{command:?}: {result:?}");
        self.tree.ended(id, result);
    }

    /// Home does not do something: it says so, or it is found out afterwards.
    fn fail(&mut self, id: CommandId, step: &Step) {
        if self.programs.random.one_in(2) {
            self.log_step(step, Stage::Undone);
        } else if let Some(at) = &step.from {
            self.log_place(step.node, at.clone());
        }
        self.tree.ended(id, Err(HomeError::Refused(libc::EIO)));
        self.tree.retry();
    }

    /// A file gets its content, if that may go home.
    fn write_some(&mut self) {
        let may = |(node, named): (&NodeId, &u64)| (*named < self.durable).then_some(*node);
        let mut nodes: Vec<NodeId> = self.named.iter().filter_map(may).collect();
        nodes.sort_unstable();
        nodes.retain(|node| self.tree.kind(*node) == Some(&Kind::File));
        if nodes.is_empty() {
            return;
        }
        let node = nodes[self.programs.random.below(nodes.len())];
        let identity = self.executor.inodes.lasting_identity(node);
        if let Some(path) = identity.as_deref().and_then(crate::identity::as_path)
            && self.under_way.iter().all(|(_, command)| Step::of(command).is_none())
        {
            write(&self.source.path(path), node);
            self.written.insert(node);
        }
    }

    fn commit(&mut self, upto: u64) {
        self.durable = self.durable.max(upto);
        self.tree.committed(Lsn(self.durable));
    }

    fn bring_home(&mut self) {
        while self.tree.dirty() > 0 || !self.under_way.is_empty() {
            self.commit(self.lsn + 1);
            self.begin_some(usize::MAX);
            while !self.under_way.is_empty() {
                self.end_one();
            }
        }
        assert_eq!(self.tree.standing(NodeId::ROOT), Standing::Home);
        assert_eq!(self.executor.finish_directories(), []);
        self.commit(self.lsn + 1);
        self.tree.begin_home_sync();
        self.tree.home_synced(true);
        self.tail = self.tree.needed_from().unwrap_or(Lsn(self.durable));
        self.placed.clear();
    }

    fn step(&mut self) {
        match self.programs.random.below(26) {
            0..12 => self.change(),
            12..14 => {
                let back = self.programs.random.below(60) as u64;
                self.commit((self.lsn + 1).saturating_sub(back));
            }
            14 if self.programs.random.one_in(2) => self.bring_home(),
            14..17 => self.write_some(),
            17..20 => {
                let most = 1 + self.programs.random.below(6);
                self.begin_some(most);
            }
            _ => self.end_one(),
        }
    }

    fn recovery(&self, log: &[(Lsn, NameRecord)], end: Lsn) -> Recovery<'a> {
        let source = self.source.fd.as_fd();
        Recovery::new(source, self.home, &LOG, log.to_vec(), end, Some(Finding::Names)).unwrap()
    }

    /// Home did some of what it was doing, and nobody was told.
    fn cut_commands(&mut self) {
        while let Some((_, command)) = self.under_way.pop() {
            if Step::of(&command).is_some() && self.programs.random.one_in(2) {
                let _ = self.executor.execute(&mut self.tree, &command);
            }
        }
    }

    fn crash(mut self, seed: u64) {
        self.cut_commands();
        // More may have been written than was known to be durable.
        let upto = self.durable + self.programs.random.below(24) as u64;
        let is_there = |lsn: &Lsn| self.tail <= *lsn && lsn.0 < upto;
        let log: Vec<_> = self.log.iter().filter(|(lsn, _)| is_there(lsn)).cloned().collect();
        let log = gone_on(log, &mut self.programs.random);
        let wanted = self.seen_at.iter().rev().find(|(lsn, _)| lsn.0 < upto).unwrap().1.clone();
        let what = format!("seed {seed}, log from {} up to {upto}", self.tail.0);
        for _ in 0..self.programs.random.below(5) {
            let commands = self.programs.random.below(40);
            let mut recovery = self.recovery(&log, Lsn(upto));
            let is_whole = recovery.run(commands).unwrap();
            if is_whole && self.programs.random.one_in(2) {
                // The bytes of some files are written before the next cut.
                let recovered = recovery.finish().unwrap();
                self.write_recovered(&wanted, &recovered, 2, &what);
            }
        }
        let mut recovery = self.recovery(&log, Lsn(upto));
        assert!(recovery.run(usize::MAX).unwrap());
        recovery.tree.check_invariants();
        let recovered = recovery.finish().unwrap();
        assert_eq!((&recovered.left, &recovered.conflicts), (&vec![], &vec![]), "{what}");
        compare(picture_of(&self.source.path("")), &wanted.picture(), &what);
        let parked = fs::read_dir(self.source.path(".weir/parked"));
        assert_eq!(parked.map_or(0, Iterator::count), 0, "{what}: nothing stays parked");
        for node in nodes_in(&log) {
            let Some(path) = wanted.path(node) else { continue };
            let identity = recovered.identity_of(node);
            let identity = identity.unwrap_or_else(|| panic!("{what}: {path}, {node:?}"));
            let found = self.source.path(crate::identity::as_path(identity).unwrap());
            assert_eq!(inode_of(&found), inode_of(&self.source.path(&path)), "{what}: {path}");
        }
        self.write_recovered(&wanted, &recovered, 1, &what);
        self.check_content(&wanted, &what);
    }

    /// Recovery writes the data of files: of every file if `one_in` is 1, otherwise of one file in `one_in`, chosen at random.
    fn write_recovered(
        &mut self,
        wanted: &Model,
        recovered: &RecoveredNames,
        one_in: usize,
        what: &str,
    ) {
        for (&node, inode) in &wanted.inodes {
            let Some(identity) = recovered.identity_of(node) else { continue };
            if inode.kind != Kind::File || !self.programs.random.one_in(one_in) {
                continue;
            }
            let path = self.source.path(crate::identity::as_path(identity).unwrap());
            let before = fs::read_to_string(&path).unwrap();
            assert!(before.is_empty() || before == content(node), "{what}: {node:?} is {path:?}");
            if wanted.path(node).is_some() {
                write(&path, node);
                self.written.insert(node);
            }
        }
    }

    fn check_content(&self, wanted: &Model, what: &str) {
        for &node in wanted.inodes.keys() {
            let Some(path) = wanted.path(node) else { continue };
            if wanted.inodes[&node].kind == Kind::File {
                let found = fs::read_to_string(self.source.path(&path)).unwrap();
                let is_written = self.written.contains(&node);
                let expected = if is_written { content(node) } else { String::new() };
                assert_eq!(found, expected, "{what}: {path}");
            }
        }
    }
}

/// The nodes that a log makes, or says where they are.
fn nodes_in(log: &[(Lsn, NameRecord)]) -> HashSet<NodeId> {
    let nodes = log.iter().filter_map(|(_, record)| match record {
        NameRecord::Change(Change::Make { node, .. }) | NameRecord::Placed { node, .. } => {
            Some(*node)
        }
        _ => None,
    });
    nodes.collect()
}

fn content(node: NodeId) -> String {
    format!("node {}", node.0)
}

/// Leaves permissions and times as they are.
fn write(path: &Path, node: NodeId) {
    let status = fs::symlink_metadata(path).unwrap();
    assert!(status.is_file(), "{path:?} is node {node:?}");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(path, content(node)).unwrap();
    fs::set_permissions(path, status.permissions()).unwrap();
    fs::File::open(path).unwrap().set_modified(status.modified().unwrap()).unwrap();
}

fn inode_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).unwrap().ino()
}

fn crash_on(source: impl Fn() -> Option<Source>, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let Some(source) = source() else { return };
        let home = HomeNames::new(source.fd.as_fd()).unwrap();
        let mut mount = Mount::new(seed, &source, &home);
        let steps = 20 + mount.programs.random.below(120);
        for _ in 0..steps {
            mount.step();
        }
        mount.crash(seed);
    }
}

#[test]
fn after_any_crash_names_attributes_and_content_are_as_of_one_moment_without_handles() {
    crash_on(Source::in_memory, seeds(400));
}

#[test]
fn the_same_on_a_disk_without_handles() {
    crash_on(Source::new, seeds(8));
}
