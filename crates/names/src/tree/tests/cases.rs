//! Single sequences in which a name or an attribute could be lost.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::*;
use crate::way::Place;

fn at(name: &str) -> Place {
    Place::new(NodeId::ROOT, name.as_bytes()).unwrap()
}

fn mode(mode: u32) -> Attributes {
    Attributes { mode: Some(mode), ..Attributes::default() }
}

const F: NodeId = NodeId(5);
const N: NodeId = NodeId(6);

/// A tree of which one file is known, `f`.
fn tree() -> Tree {
    let mut tree = Tree::new(Lsn(1));
    tree.introduce(F, Kind::File);
    tree.found(&at("f"), Some(F));
    tree.listed(NodeId::ROOT);
    tree
}

fn make(name: &str) -> Change {
    Change::Make { node: N, at: at(name), kind: Kind::File, attributes: mode(0o600) }
}

/// Executes everything: a home that does what it is told. Answers looks with `there`.
fn bring_home(tree: &mut Tree, upto: u64, there: impl Fn(&Place) -> AtHome) -> Vec<Command> {
    tree.committed(Lsn(upto));
    let mut executed = Vec::new();
    while let Some((id, command)) = tree.next_command() {
        let answer = match &command {
            Command::Look { at } => Answer::Found(there(at)),
            Command::Make { .. } => Answer::Made(Lsn(upto - 1)),
            _ => Answer::Done,
        };
        tree.ended(id, Ok(answer));
        executed.push(command);
        assert!(executed.len() < 100, "it ends: {executed:?}");
    }
    tree.check_invariants();
    executed
}

fn nothing(_: &Place) -> AtHome {
    AtHome::Nothing
}

#[test]
fn a_name_that_is_not_settled_is_not_forgotten() {
    let mut tree = tree();
    tree.apply(make("a"), Lsn(8));
    bring_home(&mut tree, 16, nothing);
    assert!(tree.begin_home_sync());
    tree.forget(&at("a"));
    assert_eq!(tree.look_up(NodeId::ROOT, b"a"), Some(Some(N)));
    tree.home_synced(false);
    let again = bring_home(&mut tree, 16, |_| AtHome::Node(N));
    assert!(!again.iter().any(|command| matches!(command, Command::Unlink { .. })), "{again:?}");
    assert_eq!(tree.look_up(NodeId::ROOT, b"a"), Some(Some(N)));
}

#[test]
fn attributes_that_are_not_home_keep_their_node() {
    let mut tree = tree();
    tree.apply(Change::Set { node: F, attributes: mode(0o600) }, Lsn(8));
    tree.forget(&at("f"));
    assert!(!tree.let_go(F));
    let set = Command::Set { node: F, attributes: mode(0o600), xattrs: Xattrs::new() };
    assert_eq!(bring_home(&mut tree, 16, nothing), [set]);
}

#[test]
fn a_directory_with_entries_that_are_known_is_not_forgotten() {
    let mut tree = Tree::new(Lsn(1));
    tree.introduce(F, Kind::Directory);
    tree.found(&at("f"), Some(F));
    let below = Place::new(F, b"below").unwrap();
    tree.introduce(N, Kind::Directory);
    tree.found(&below, Some(N));
    tree.forget(&at("f"));
    assert_eq!(tree.look_up(NodeId::ROOT, b"f"), Some(Some(F)));
    let to = Place::new(N, b"x").unwrap();
    let rename = Change::Rename { node: F, from: at("f"), to: to.clone(), replaced: None };
    tree.found(&to, None);
    assert_eq!(tree.check(&rename), Err(Refused::BelowItself));
}

#[test]
fn a_failed_sync_brings_back_the_latest_attributes() {
    for second_is_home in [true, false] {
        let mut tree = tree();
        tree.apply(Change::Set { node: F, attributes: mode(0o644) }, Lsn(8));
        bring_home(&mut tree, 16, nothing);
        assert!(tree.begin_home_sync());
        tree.apply(Change::Set { node: F, attributes: mode(0o600) }, Lsn(16));
        tree.committed(Lsn(24));
        let (id, _) = tree.next_command().unwrap();
        if second_is_home {
            tree.ended(id, Ok(Answer::Done));
            tree.home_synced(false);
        } else {
            tree.home_synced(false);
            tree.ended(id, Err(HomeError::Refused(28)));
            tree.retry();
        }
        let set = Command::Set { node: F, attributes: mode(0o600), xattrs: Xattrs::new() };
        assert_eq!(bring_home(&mut tree, 24, nothing), [set]);
        assert!(tree.begin_home_sync());
        tree.home_synced(true);
        assert_eq!(tree.needed_from(), None);
    }
}

#[test]
fn a_late_answer_does_not_bring_a_removed_name_back() {
    let mut tree = Tree::new(Lsn(1));
    tree.introduce(F, Kind::File);
    tree.found(&at("f"), Some(F));
    tree.apply(Change::Remove { node: F, at: at("f") }, Lsn(8));
    bring_home(&mut tree, 16, nothing);
    tree.found(&at("f"), Some(F));
    assert_eq!(tree.look_up(NodeId::ROOT, b"f"), Some(None));
}

#[test]
fn a_directory_that_home_lost_is_reported_and_not_linked() {
    let mut tree = Tree::new(Lsn(1));
    tree.introduce(F, Kind::Directory);
    tree.found(&at("d"), Some(F));
    tree.listed(NodeId::ROOT);
    tree.apply(Change::Rename { node: F, from: at("d"), to: at("e"), replaced: None }, Lsn(8));
    tree.committed(Lsn(16));
    let (id, _) = tree.next_command().unwrap();
    tree.ended(id, Err(HomeError::Changed));
    let looks = bring_home(&mut tree, 16, nothing);
    assert!(looks.iter().all(|command| matches!(command, Command::Look { .. })), "{looks:?}");
    assert_eq!(tree.refused().count(), 1);
    assert!(tree.needed_from().is_some(), "the log keeps it");
}

#[test]
fn a_home_that_changes_under_every_command_is_not_asked_for_ever() {
    let mut tree = tree();
    tree.apply(make("a"), Lsn(8));
    tree.committed(Lsn(16));
    let mut commands = 0;
    while let Some((id, command)) = tree.next_command() {
        let result = match command {
            Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
            _ => Err(HomeError::Changed),
        };
        tree.ended(id, result);
        commands += 1;
        assert!(commands < 20, "it ends");
    }
    assert_eq!(tree.refused().count(), 1);
    tree.retry();
    bring_home(&mut tree, 16, nothing);
    assert_eq!(tree.dirty(), 0);
}

#[test]
fn the_links_of_a_file_cost_no_more_the_more_there_are() {
    const LINKS: u64 = LINKS_MAX as u64 - 1;
    let mut tree = tree();
    let name = |n: u64| at(&format!("link-{n}"));
    let bring_all = |tree: &mut Tree, upto| {
        tree.committed(Lsn(upto));
        let mut commands = 0;
        while let Some((id, _)) = tree.next_command() {
            tree.ended(id, Ok(Answer::Done));
            commands += 1;
        }
        commands
    };
    for n in 0..LINKS {
        tree.apply(Change::Link { node: F, at: name(n) }, Lsn(8 + n));
    }
    assert_eq!(tree.check(&Change::Link { node: F, at: at("g") }), Err(Refused::TooManyLinks));
    assert_eq!(bring_all(&mut tree, 1 << 20), LINKS);
    assert_eq!(tree.links(F), Links { wanted: LINKS_MAX, home: LINKS_MAX });
    for n in 0..LINKS {
        tree.apply(Change::Remove { node: F, at: name(n) }, Lsn((1 << 20) + n));
    }
    assert_eq!(bring_all(&mut tree, 1 << 21), LINKS);
    assert_eq!(tree.links(F), Links { wanted: 1, home: 1 });
    assert!(tree.begin_home_sync());
    tree.home_synced(true);
    tree.check_invariants();
}

#[test]
fn a_log_that_contradicts_itself_is_refused() {
    let directory = |node, at| Change::Make {
        node,
        at,
        kind: Kind::Directory,
        attributes: Attributes::default(),
    };
    let mut tree = Tree::recovering(Lsn(100));
    tree.replay(directory(F, at("d")), Lsn(8)).unwrap();
    tree.replay(directory(N, Place::new(F, b"e").unwrap()), Lsn(16)).unwrap();
    let to = Place::new(N, b"x").unwrap();
    let below = Change::Rename { node: F, from: at("d"), to, replaced: None };
    assert_eq!(tree.replay(below, Lsn(24)), Err(ReplayError::TwoPlaces(F)));
    let second = Change::Link { node: F, at: at("second") };
    assert_eq!(tree.replay(second, Lsn(24)), Err(ReplayError::TwoPlaces(F)));
    assert!(tree.replay(directory(NodeId::PARKING, at("p")), Lsn(24)).is_err());
    assert!(tree.replay(directory(NodeId::ROOT, at("r")), Lsn(24)).is_err());
}
