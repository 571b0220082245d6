//! Any changes, with commands that end in any order, refusals and failing syncs: home becomes what programs see.

use std::collections::{HashMap, HashSet};

use weir_log::Lsn;

use super::model::{FileSystem, Random, change, seeds};
use crate::identity::NodeId;
use crate::tree::*;
use crate::way::Place;

pub(super) struct Scene {
    pub(super) random: Random,
    pub(super) tree: Tree,
    pub(super) seen: FileSystem,
    pub(super) home: FileSystem,
    pub(super) lsn: u64,
    pub(super) next_node: u64,
    pub(super) under_way: Vec<(CommandId, Command)>,
    /// Commands whose answer was lost, with whether home did them.
    in_doubt: Vec<(CommandId, Option<Answer>)>,
    /// What home had when it was synced last.
    settled: FileSystem,
    /// What it did since.
    executed: Vec<Command>,
}

impl Scene {
    pub(super) fn new(seed: u64) -> Scene {
        Scene {
            random: Random(seed),
            tree: Tree::new(Lsn(1)),
            seen: FileSystem::new(),
            home: FileSystem::new(),
            lsn: 1,
            next_node: 100,
            under_way: Vec::new(),
            in_doubt: Vec::new(),
            settled: FileSystem::new(),
            executed: Vec::new(),
        }
    }

    fn directory(&mut self) -> NodeId {
        let alive = |node: &NodeId| {
            self.seen.inodes[node].0.is_directory() && self.seen.is_below(*node, NodeId::ROOT)
        };
        let directories: Vec<NodeId> = self.seen.inodes.keys().copied().filter(alive).collect();
        directories[self.random.below(directories.len())]
    }

    fn place(&mut self) -> Place {
        let directory = self.directory();
        let name = [b'a' + self.random.below(4) as u8];
        Place::new(directory, &name).unwrap()
    }

    /// A place that leads to something, if one is found soon.
    fn taken(&mut self) -> Option<(NodeId, Place)> {
        for _ in 0..8 {
            let at = self.place();
            if let Some(node) = self.seen.get(&at) {
                return Some((node, at));
            }
        }
        None
    }

    pub(super) fn some_change(&mut self) -> Option<Change> {
        let mode = |random: &mut Random| Attributes {
            mode: Some(random.below(512) as u32),
            ..Attributes::default()
        };
        Some(match self.random.below(12) {
            0..4 => {
                let kind = match self.random.below(3) {
                    0 => Kind::Directory,
                    1 => Kind::Symlink(b"target"[..].into()),
                    _ => Kind::File,
                };
                self.next_node += 1;
                let attributes = mode(&mut self.random);
                Change::Make { node: NodeId(self.next_node), at: self.place(), kind, attributes }
            }
            4 => {
                let (node, _) = self.taken()?;
                Change::Link { node, at: self.place() }
            }
            5..7 => {
                let (node, at) = self.taken()?;
                Change::Remove { node, at }
            }
            7..10 => {
                let (node, from) = self.taken()?;
                let to = self.place();
                let replaced = self.seen.get(&to);
                Change::Rename { node, from, to, replaced }
            }
            10 => Change::Exchange { one: self.taken()?, other: self.taken()? },
            _ => {
                let (node, _) = self.taken()?;
                Change::Set { node, attributes: mode(&mut self.random) }
            }
        })
    }

    fn make_some_change(&mut self) {
        let Some(wanted) = self.some_change() else { return };
        if let Change::Exchange { one, other } = &wanted
            && one.1 == other.1
        {
            return;
        }
        if let Change::Link { node, .. } = &wanted
            && self.seen.inodes[node].0.is_directory()
        {
            assert_eq!(self.tree.check(&wanted), Err(Refused::DirectoryLink));
            return;
        }
        let checked = self.tree.check(&wanted);
        assert_eq!(checked, change(&mut self.seen, &wanted), "{wanted:?}");
        if checked.is_ok() {
            self.lsn += 8;
            self.tree.apply(wanted, Lsn(self.lsn));
        }
    }

    pub(super) fn take_commands(&mut self, most: usize) {
        while self.under_way.len() < most
            && let Some(command) = self.tree.next_command()
        {
            self.under_way.push(command);
        }
    }

    fn end_some_command(&mut self, refusals: usize) {
        if self.under_way.is_empty() {
            return;
        }
        let nth = self.random.below(self.under_way.len());
        let (id, command) = self.under_way.swap_remove(nth);
        let result = match refusals > 0 && self.random.one_in(refusals) {
            true => Err(HomeError::Refused(28)),
            false => self.home.try_to_execute(&command),
        };
        if result.is_ok() && !matches!(command, Command::Look { .. }) {
            self.executed.push(command.clone());
        }
        // Whether it was done or refused, its answer may be lost.
        let lost = Step::of(&command).is_some() && refusals > 0 && self.random.one_in(refusals);
        if lost {
            self.tree.answer_lost(id, HomeError::Refused(5));
            return self.in_doubt.push((id, result.ok()));
        }
        self.tree.ended(id, result);
    }

    /// Home is tried again. Of some that are in doubt it is known afterwards whether they were done.
    fn retry(&mut self, is_known: bool) {
        self.tree.retry();
        for (id, was_done) in std::mem::take(&mut self.in_doubt) {
            if is_known || self.random.one_in(2) {
                match was_done {
                    Some(answer) => self.tree.ended(id, Ok(answer)),
                    None => self.tree.was_not_done(id),
                }
            } else {
                self.tree.answer_lost(id, HomeError::Refused(5));
                self.in_doubt.push((id, was_done));
            }
        }
    }

    fn compare_seen(&self) {
        for ((parent, name), node) in &self.seen.entries {
            assert_eq!(self.tree.look_up(*parent, name), Some(Some(*node)));
        }
        let mut listed = 0;
        for &node in self.seen.inodes.keys() {
            listed += self.tree.list(node, 0).count();
        }
        assert_eq!(listed, self.seen.entries.len(), "a listing has what is there and no more");
        // Home shows what it did already when its answer was lost.
        if self.in_doubt.is_empty() {
            self.compare_attributes();
        }
    }

    /// What home says of each node, with what the tree lays over it, is what programs are to see.
    fn compare_attributes(&self) {
        let links = |system: &FileSystem| {
            let mut links = HashMap::new();
            for node in system.entries.values() {
                *links.entry(*node).or_insert(0_usize) += 1;
            }
            links
        };
        let subdirectories = |system: &FileSystem, node: NodeId| {
            let below = system.entries.iter().filter(|((parent, _), _)| *parent == node);
            below.filter(|(_, child)| system.inodes[child].0.is_directory()).count()
        };
        let (seen, home) = (links(&self.seen), links(&self.home));
        for (&node, &links_seen) in &seen {
            let (kind, wanted) = &self.seen.inodes[&node];
            let mut attributes = self.home.inodes.get(&node).map(|of| of.1).unwrap_or_default();
            attributes.overlay(&self.tree.overlay(node).unwrap_or_default());
            assert_eq!(attributes, *wanted, "{node:?}");
            let place = self.tree.home_place(node);
            assert_eq!(place.is_some(), home.contains_key(&node));
            assert!(place.is_none_or(|place| self.home.get(&place) == Some(node)));
            if kind.is_directory() {
                let (wanted, at_home) = self.tree.subdirectories(node);
                let shown = subdirectories(&self.home, node) + wanted - at_home;
                assert_eq!(shown, subdirectories(&self.seen, node));
            } else {
                let Links { wanted, home: at_home } = self.tree.links(node);
                let links = home.get(&node).copied().unwrap_or_default() + wanted - at_home;
                assert_eq!(links, links_seen, "{node:?}");
            }
        }
    }

    /// What stands at home is at home.
    fn compare_standing(&self) {
        for (at, &node) in &self.seen.entries {
            let at = Place::new(at.0, &at.1).unwrap();
            let standing = self.tree.standing(node);
            if standing == Standing::Home {
                assert_eq!(self.home.get(&at), Some(node));
                assert_eq!(self.home.inodes[&node].1, self.seen.inodes[&node].1);
                assert!(self.home.is_below(node, NodeId::ROOT));
                assert_eq!(self.tree.standing_of(&at), Standing::Home);
            }
            if self.tree.queue.has_refused() {
                self.tree.standing_of_entries(node);
            } else {
                assert!(!matches!(standing, Standing::Refused(_)));
            }
        }
        for node in self.seen.inodes.keys() {
            if self.seen.is_below(*node, NodeId::ROOT)
                && self.tree.standing_of_entries(*node) == Standing::Home
            {
                let names = |system: &FileSystem| {
                    let entries = system.entries.clone().into_iter();
                    entries.filter(|((parent, _), _)| parent == node).collect::<Vec<_>>()
                };
                assert_eq!(names(&self.seen), names(&self.home));
            }
        }
    }

    fn bring_home(&mut self) {
        self.tree.committed(Lsn(self.lsn + 1));
        for tries in 0.. {
            assert!(tries < 2_000, "it ends: {:?}", self.tree.queue);
            self.retry(true);
            self.take_commands(8);
            if self.under_way.is_empty() {
                break;
            }
            self.end_some_command(0);
        }
        self.tree.check_invariants();
        assert_eq!(self.tree.dirty(), 0, "all is home: {:?}", self.tree.queue);
        assert!(self.tree.queue.reports.is_empty(), "all is home: {:?}", self.tree.queue);
        assert_eq!(self.home.picture(), self.seen.picture());
        assert!(self.home.is_empty(NodeId::PARKING), "nothing stays parked");
        for node in self.seen.entries.values().chain([&NodeId::ROOT]) {
            assert_eq!(self.tree.standing(*node), Standing::Home);
            assert_eq!(self.tree.standing_of_entries(*node), Standing::Home);
        }
    }

    /// Lets go what no name leads to, as a kernel that forgets at once would. What nothing is remembered of afterwards.
    fn let_go_unneeded(&mut self) {
        for node in self.tree.take_unneeded() {
            assert!(self.tree.let_go(node));
            assert!(!self.seen.is_below(node, NodeId::ROOT), "{node:?} has a name");
        }
    }
}

/// How a random test goes.
#[derive(Clone, Copy)]
struct Course {
    steps: usize,
    /// One command in so many is refused.
    refusals: usize,
    has_log: bool,
}

fn run(seed: u64, course: Course) {
    let mut scene = Scene::new(seed);
    if !course.has_log {
        scene.tree = Tree::without_log();
    }
    // The root is known whole.
    scene.tree.listed(NodeId::ROOT);
    scene.tree.exchanges = seed.is_multiple_of(2);
    for _ in 0..course.steps {
        match scene.random.below(12) {
            0..5 => scene.make_some_change(),
            5 if course.has_log => {
                let upto = scene.random.below(40) as u64;
                let durable = Lsn((scene.lsn + 1).saturating_sub(upto).max(1));
                scene.tree.committed(durable);
            }
            5 | 6 => {
                scene.take_commands(1 + (seed % 7) as usize);
            }
            7 => scene.retry(false),
            8 => {
                if let Some((node, _)) = scene.taken() {
                    scene.tree.urge(node);
                }
            }
            9 => scene.let_go_unneeded(),
            _ => scene.end_some_command(course.refusals),
        }
        scene.tree.check_invariants();
        if scene.random.one_in(16) {
            scene.compare_seen();
            scene.compare_standing();
        }
    }
    scene.bring_home();
    if course.has_log && scene.tree.begin_home_sync() {
        // The log is needed until home was synced.
        assert!(scene.tree.needed_from().is_some());
        scene.tree.home_synced(true);
    }
    assert_eq!(scene.tree.needed_from(), None);
    scene.let_go_unneeded();
    scene.let_go_unneeded();
    scene.tree.check_nothing_is_remembered();
    let seen: HashSet<NodeId> = scene.seen.entries.values().copied().collect();
    assert_eq!(scene.tree.len(), seen.len() + 1, "only what has a name is known");
}

#[test]
fn whatever_is_changed_home_becomes_what_programs_see() {
    for seed in seeds(3_000) {
        run(seed, Course { steps: 140, refusals: 0, has_log: true });
    }
}

#[test]
fn what_home_refuses_is_brought_home_later() {
    for seed in seeds(1_500) {
        run(seed, Course { steps: 140, refusals: 3, has_log: true });
    }
}

#[test]
fn without_a_log_home_becomes_what_programs_see_and_nothing_is_remembered() {
    for seed in seeds(2_000) {
        let refusals = if seed.is_multiple_of(3) { 3 } else { 0 };
        run(seed, Course { steps: 140, refusals, has_log: false });
    }
}

#[test]
fn a_failed_sync_of_home_makes_nothing_clean() {
    for seed in seeds(500) {
        let mut scene = Scene::new(seed);
        scene.tree.listed(NodeId::ROOT);
        for _ in 0..30 {
            scene.make_some_change();
        }
        scene.bring_home();
        let needed = scene.tree.needed_from();
        if !scene.tree.begin_home_sync() {
            continue;
        }
        scene.tree.home_synced(false);
        assert_eq!(scene.tree.needed_from(), needed);
        assert!(scene.tree.dirty() > 0);
        scene.bring_home();
        assert!(scene.tree.begin_home_sync());
        scene.tree.home_synced(true);
        assert_eq!(scene.tree.needed_from(), None);
    }
}

/// A sync fails, and home has what it had at some moment before: whatever it did since then is lost.
#[test]
fn what_home_loses_is_brought_home_again() {
    for seed in seeds(1_000) {
        let mut scene = Scene::new(seed);
        scene.tree.listed(NodeId::ROOT);
        scene.tree.exchanges = seed.is_multiple_of(2);
        for round in 0..3 {
            for _ in 0..20 {
                scene.make_some_change();
                scene.take_commands(4);
                scene.end_some_command(0);
            }
            let syncs = round == 1 && scene.random.one_in(2);
            scene.bring_home();
            scene.tree.begin_home_sync();
            if syncs {
                scene.tree.home_synced(true);
                scene.executed.clear();
                scene.settled = scene.home.clone();
                continue;
            }
            // More may be changed, and reach home, while the sync is under way.
            if scene.random.one_in(2) {
                (0..4).for_each(|_| scene.make_some_change());
            }
            if scene.random.one_in(2) {
                scene.bring_home();
            }
            let kept = scene.random.below(scene.executed.len() + 1);
            scene.executed.truncate(kept);
            scene.home = scene.settled.clone();
            for command in &scene.executed {
                scene.home.try_to_execute(command).unwrap();
            }
            scene.tree.home_synced(false);
            // What the first sync did not cover is not settled by the next one either.
            scene.tree.begin_home_sync();
            scene.tree.home_synced(false);
            for (parent, name) in scene.home.entries.keys() {
                if *parent == NodeId::PARKING {
                    scene.tree.found_parked(Tree::node_parked_as(name).unwrap());
                }
            }
            scene.tree.check_invariants();
            scene.bring_home();
            assert_eq!(scene.tree.take_conflicts(), []);
        }
        if scene.tree.begin_home_sync() {
            scene.tree.home_synced(true);
        }
        assert_eq!(scene.tree.needed_from(), None);
    }
}

#[test]
fn what_was_made_and_removed_meanwhile_costs_home_nothing() {
    let mut tree = Tree::new(Lsn(1));
    tree.listed(NodeId::ROOT);
    let at = |directory: u64, name: &str| Place::new(NodeId(directory), name.as_bytes()).unwrap();
    let make = |node: u64, at, kind| Change::Make {
        node: NodeId(node),
        at,
        kind,
        attributes: Attributes::default(),
    };
    tree.apply(make(5, at(1, "directory"), Kind::Directory), Lsn(8));
    tree.apply(make(6, at(5, "file"), Kind::File), Lsn(16));
    tree.apply(Change::Remove { node: NodeId(6), at: at(5, "file") }, Lsn(24));
    tree.apply(Change::Remove { node: NodeId(5), at: at(1, "directory") }, Lsn(32));
    tree.committed(Lsn(40));
    assert_eq!(tree.next_command(), None);
    assert!(tree.let_go(NodeId(6)) && tree.let_go(NodeId(5)));
    assert_eq!((tree.dirty(), tree.len()), (0, 1));
}

#[test]
fn a_new_file_takes_an_old_ones_name_by_one_rename() {
    let mut tree = Tree::new(Lsn(1));
    let at = |name: &str| Place::new(NodeId::ROOT, name.as_bytes()).unwrap();
    tree.introduce(NodeId(5), Kind::File);
    tree.found(&at("notes"), Some(NodeId(5)));
    tree.listed(NodeId::ROOT);
    let (node, kind, attributes) = (NodeId(6), Kind::File, Attributes::default());
    tree.apply(Change::Make { node, at: at("notes.new"), kind, attributes }, Lsn(8));
    let (from, to) = (at("notes.new"), at("notes"));
    tree.apply(Change::Rename { node, from, to, replaced: Some(NodeId(5)) }, Lsn(16));
    assert_eq!(tree.next_command(), None, "nothing is durable");
    tree.committed(Lsn(24));
    let (id, command) = tree.next_command().unwrap();
    assert!(matches!(command, Command::Make { ref at, .. } if at.parent() == NodeId::PARKING));
    tree.ended(id, Ok(Answer::Made(Lsn(24))));
    let (id, command) = tree.next_command().unwrap();
    let replacing = Some(NodeId(5));
    assert_eq!(
        command,
        Command::Rename { node, from: Tree::parking(node), to: at("notes"), replacing }
    );
    tree.ended(id, Ok(Answer::Done));
    assert_eq!((tree.next_command(), tree.dirty()), (None, 0));
}

#[test]
fn names_are_checked_as_linux_checks_them() {
    let mut tree = Tree::new(Lsn(1));
    let at = |directory: u64, name: &[u8]| Place::new(NodeId(directory), name).unwrap();
    let make = |node: u64, at| Change::Make {
        node: NodeId(node),
        at,
        kind: Kind::File,
        attributes: Attributes::default(),
    };
    assert_eq!(tree.check(&make(5, at(1, b"a"))), Err(Refused::Unknown), "home is to be asked");
    tree.found(&at(1, b"a"), None);
    assert_eq!(tree.look_up(NodeId::ROOT, b"a"), Some(None));
    assert_eq!(tree.look_up(NodeId::ROOT, b"b"), None);
    tree.apply(make(5, at(1, b"a")), Lsn(8));
    assert_eq!(tree.check(&make(6, at(1, b"a"))), Err(Refused::Exists));
    assert_eq!(tree.check(&make(6, at(5, b"x"))), Err(Refused::NotDirectory));
    assert_eq!(tree.check(&make(6, at(77, b"x"))), Err(Refused::Nothing));
    assert_eq!(tree.check(&make(6, at(1, &[b'n'; 256]))), Err(Refused::NameTooLong));
}

/// Home has something under a name that was thought to be free.
#[test]
fn what_somebody_else_made_at_home_stays_and_ours_is_beside_it() {
    let mut tree = Tree::new(Lsn(1));
    tree.listed(NodeId::ROOT);
    let at = |name: &str| Place::new(NodeId::ROOT, name.as_bytes()).unwrap();
    let (ours, theirs) = (NodeId(5), NodeId(6));
    let attributes = Attributes::default();
    tree.apply(Change::Make { node: ours, at: at("notes"), kind: Kind::File, attributes }, Lsn(8));
    tree.committed(Lsn(16));
    let (id, _) = tree.next_command().unwrap();
    tree.ended(id, Err(HomeError::Changed));
    let (id, command) = tree.next_command().unwrap();
    assert_eq!(command, Command::Look { at: at("notes") });
    tree.introduce_foreign(theirs, Kind::File);
    tree.ended(id, Ok(Answer::Found(AtHome::Node(theirs))));
    assert_eq!(tree.look_up(NodeId::ROOT, b"notes"), Some(Some(theirs)));
    let beside = at("notes.weir-conflict-1");
    let conflict = Conflict { at: at("notes"), kept: Some(beside.clone()) };
    assert_eq!(tree.take_conflicts(), [conflict]);
    let (id, command) = tree.next_command().unwrap();
    assert!(matches!(command, Command::Make { ref at, node, .. } if *at == beside && node == ours));
    tree.ended(id, Ok(Answer::Made(Lsn(16))));
    assert_eq!((tree.next_command(), tree.dirty()), (None, 0));
    // A program that sees it may remove it.
    tree.apply(Change::Remove { node: theirs, at: at("notes") }, Lsn(24));
    tree.committed(Lsn(32));
    let (_, command) = tree.next_command().unwrap();
    assert_eq!(command, Command::Unlink { node: theirs, at: at("notes") });
}

#[test]
fn an_entry_costs_little() {
    assert!(
        size_of::<crate::tree::entry::Entry>() <= 88,
        "{}",
        size_of::<crate::tree::entry::Entry>()
    );
    assert!(
        size_of::<crate::tree::node::Node>() <= 320,
        "{}",
        size_of::<crate::tree::node::Node>()
    );
}
