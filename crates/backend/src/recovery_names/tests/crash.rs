//! Random changes, of which home does some; a crash at any moment, and crashes of the recovery; then names and attributes are
//! as they were at one moment. Home loses nothing here: the tests of the tree do that.

use super::logs::gone_on;
use super::model::{Model, compare, picture_of};
use super::programs::{Programs, nodes_of, seeds};
use super::*;

/// A mount of which little is left but the tree and the log.
struct Machine<'a> {
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
}

impl<'a> Machine<'a> {
    fn new(seed: u64, source: &'a Source, home: &'a HomeNames) -> Machine<'a> {
        let inodes = Inodes::new(source.fd.as_fd(), home, Finding::Handles).unwrap();
        let mut tree = Tree::new(Lsn(1));
        tree.listed(NodeId::ROOT);
        let programs = Programs::new(seed, source);
        Machine {
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
        }
    }

    fn change(&mut self) {
        let Some(change) = self.programs.change() else { return };
        self.lsn += 8;
        let lsn = Lsn(self.lsn);
        for node in nodes_of(&change) {
            if self.tree.is_bound(node) && node != NodeId::ROOT {
                self.log_known(lsn, node);
            }
        }
        self.log.push((lsn, NameRecord::Change(change.clone())));
        self.seen_at.push((lsn, self.programs.seen.clone()));
        self.tree.apply(change, lsn);
    }

    fn log_known(&mut self, lsn: Lsn, node: NodeId) {
        let kind = self.tree.kind(node).unwrap().clone();
        let identity = self.executor.inodes.identity(node).unwrap().to_vec();
        self.log.push((lsn, NameRecord::Known { node, kind, identity }));
    }

    fn execute_some(&mut self, most: usize) {
        for _ in 0..most {
            let Some((id, command)) = self.tree.next_command() else { return };
            self.executor.end = Lsn(self.lsn + 8);
            let result = self.executor.execute(&mut self.tree, &command);
            for node in self.executor.take_unnoted().iter().filter_map(Noted::named) {
                self.log_known(Lsn(self.lsn + 8), node);
            }
            self.lsn = self.executor.end.0 - 8;
            // A file is gone with its last name, whatever of its attributes was not set yet.
            let is_gone = result == Err(HomeError::Gone);
            let is_set = matches!(command, weir_names::tree::Command::Set { .. });
            assert!(result.is_ok() || is_gone && is_set, "{command:?}: {result:?}");
            self.tree.ended(id, result);
        }
    }

    fn commit(&mut self, upto: u64) {
        self.durable = self.durable.max(upto);
        self.tree.committed(Lsn(self.durable));
    }

    fn step(&mut self) {
        match self.programs.random.below(24) {
            0..12 => self.change(),
            12..15 => {
                let back = self.programs.random.below(60) as u64;
                self.commit((self.lsn + 1).saturating_sub(back));
            }
            15 => {
                // Everything goes home, and the log is not needed any more.
                while self.tree.dirty() > 0 {
                    self.commit(self.lsn + 1);
                    self.execute_some(usize::MAX);
                }
                assert_eq!(self.executor.finish_directories(), []);
                self.tree.begin_home_sync();
                self.tree.home_synced(true);
                self.tail = self.tree.needed_from().unwrap_or(Lsn(self.durable));
            }
            _ => {
                let most = 1 + self.programs.random.below(6);
                self.execute_some(most);
            }
        }
    }

    fn recovery(&mut self, log: &[(Lsn, NameRecord)], end: Lsn) -> Recovery<'a> {
        let finding = match self.programs.random.one_in(3) {
            true => Finding::Walk,
            false => Finding::Handles,
        };
        let source = self.source.fd.as_fd();
        Recovery::new(source, self.home, &LOG, log.to_vec(), end, Some(finding)).unwrap()
    }

    /// Crashes, recovers, perhaps crashes in the middle of that, and compares.
    fn crash(mut self, seed: u64) {
        // More may have been written than was known to be durable.
        let upto = self.durable + self.programs.random.below(24) as u64;
        let is_there = |lsn: &Lsn| self.tail <= *lsn && lsn.0 < upto;
        let log: Vec<_> = self.log.iter().filter(|(lsn, _)| is_there(lsn)).cloned().collect();
        let log = gone_on(log, &mut self.programs.random);
        let wanted = self.seen_at.iter().rev().find(|(lsn, _)| lsn.0 < upto).unwrap();
        let (model, wanted) = (wanted.1.clone(), wanted.1.picture());
        for _ in 0..self.programs.random.below(4) {
            let commands = self.programs.random.below(40);
            let mut recovery = self.recovery(&log, Lsn(upto));
            recovery.run(commands).unwrap();
        }
        let mut recovery = self.recovery(&log, Lsn(upto));
        assert!(recovery.run(usize::MAX).unwrap());
        recovery.tree.check_invariants();
        let recovered = recovery.finish().unwrap();
        let what = format!("seed {seed}, log up to {upto}");
        assert_eq!((&recovered.left, &recovered.conflicts), (&vec![], &vec![]), "{what}");
        compare(picture_of(&self.source.path("")), &wanted, &what);
        let parked = fs::read_dir(self.source.path(".weir/parked"));
        assert_eq!(parked.map_or(0, Iterator::count), 0, "{what}: nothing stays parked");
        let made = log.iter().filter_map(|(_, record)| match record {
            NameRecord::Change(Change::Make { node, .. }) => Some(*node),
            _ => None,
        });
        for node in made {
            let Some(path) = model.path(node) else { continue };
            let identity = self.source.handle(&path);
            assert_eq!(recovered.identity_of(node), Some(&identity[..]), "{what}: {path}");
        }
    }
}

/// What somebody else does.
impl Machine<'_> {
    /// Paths in SOURCE, Weir's own left out; those of directories only.
    fn paths(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let root = self.source.path("");
        let (mut all, mut directories) = (Vec::new(), vec![root.clone()]);
        let mut below = vec![root.clone()];
        while let Some(directory) = below.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path == root.join(".weir") {
                    continue;
                }
                if fs::symlink_metadata(&path).unwrap().is_dir() {
                    directories.push(path.clone());
                    below.push(path.clone());
                }
                all.push(path);
            }
        }
        (all, directories)
    }

    /// Removes, moves and makes something in SOURCE. Returns the contents of what was made and is there.
    fn interfere(&mut self) -> Vec<String> {
        let mut made = Vec::new();
        for nth in 0..1 + self.programs.random.below(6) {
            let (all, directories) = self.paths();
            let into = directories[self.programs.random.below(directories.len())].clone();
            let into =
                into.join(format!("{}", (b'a' + self.programs.random.below(4) as u8) as char));
            let some =
                (!all.is_empty()).then(|| all[self.programs.random.below(all.len())].clone());
            match (self.programs.random.below(3), some) {
                (0, Some(path)) if fs::symlink_metadata(&path).unwrap().is_dir() => {
                    fs::remove_dir_all(path).unwrap();
                }
                (0, Some(path)) => fs::remove_file(path).unwrap(),
                (1, Some(path)) => drop(fs::rename(path, into)),
                _ if fs::symlink_metadata(&into).is_err() => {
                    made.push(format!("theirs {nth}"));
                    fs::write(into, made.last().unwrap()).unwrap();
                }
                _ => {}
            }
        }
        let contents = self.contents();
        made.retain(|made| contents.contains(made));
        made
    }

    fn contents(&self) -> Vec<String> {
        let is_file = |path: &PathBuf| fs::symlink_metadata(path).unwrap().is_file();
        let files = self.paths().0.into_iter().filter(is_file);
        files.map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    /// Crashes, and is recovered after somebody else changed SOURCE: nothing keeps the log, what is theirs stays, and every
    /// file that the log makes is there if it was not there to be removed.
    fn crash_and_interfere(mut self, seed: u64) {
        let upto = self.durable;
        let is_there = |lsn: &Lsn| self.tail <= *lsn && lsn.0 < upto;
        let log: Vec<_> = self.log.iter().filter(|(lsn, _)| is_there(lsn)).cloned().collect();
        let seen = self.seen_at.iter().rev().find(|(lsn, _)| lsn.0 < upto).unwrap().1.clone();
        let theirs = self.interfere();
        for is_cut in [true, true, false] {
            let mut recovery = self.recovery(&log, Lsn(upto));
            let most = if is_cut { self.programs.random.below(40) } else { usize::MAX };
            recovery.run(most).unwrap();
            if is_cut {
                continue;
            }
            recovery.tree.check_invariants();
            let recovered = recovery.finish().unwrap();
            let what = format!("seed {seed}, log up to {upto}: {recovered:?}");
            assert_eq!(recovered.left, [], "{what}");
            let contents = self.contents();
            assert!(theirs.iter().all(|made| contents.contains(made)), "{what}");
            let parked = fs::read_dir(self.source.path(".weir/parked"));
            assert_eq!(parked.map_or(0, Iterator::count), 0, "{what}: nothing stays parked");
            let made = log.iter().filter_map(|(_, record)| match record {
                NameRecord::Change(Change::Make { node, .. }) => Some(*node),
                _ => None,
            });
            for node in made.filter(|node| seen.path(*node).is_some()) {
                let identity = recovered.identity_of(node).unwrap_or_else(|| panic!("{what}"));
                let kind = &seen.inodes[&node].kind;
                let is_there = self.executor.inodes.is_there(identity, kind).unwrap();
                assert!(is_there, "{what}: {node:?}");
            }
        }
    }
}

fn machine_of<'a>(seed: u64, source: &'a Source, home: &'a HomeNames) -> Machine<'a> {
    let mut machine = Machine::new(seed, source, home);
    let steps = 20 + machine.programs.random.below(100);
    for _ in 0..steps {
        machine.step();
    }
    machine
}

fn crash_on(source: impl Fn() -> Option<Source>, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let Some(source) = source() else { return };
        let home = HomeNames::new(source.fd.as_fd()).unwrap();
        machine_of(seed, &source, &home).crash(seed);
    }
}

#[test]
fn whatever_somebody_else_did_nothing_keeps_the_log_and_nothing_of_theirs_is_lost() {
    for seed in seeds(400) {
        let Some(source) = Source::in_memory() else { return };
        let home = HomeNames::new(source.fd.as_fd()).unwrap();
        machine_of(seed, &source, &home).crash_and_interfere(seed);
    }
}

#[test]
fn after_any_crash_names_and_attributes_are_as_of_one_moment() {
    crash_on(Source::in_memory, seeds(400));
}

#[test]
fn the_same_on_a_disk() {
    crash_on(Source::new, seeds(8));
}
