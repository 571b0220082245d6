//! What the owner of a tree asks it.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::*;
use crate::way::Place;

const D: NodeId = NodeId(4);
const F: NodeId = NodeId(5);
const N: NodeId = NodeId(6);

fn within(directory: NodeId, name: &str) -> Place {
    Place::new(directory, name.as_bytes()).unwrap()
}

fn at(name: &str) -> Place {
    within(NodeId::ROOT, name)
}

fn mode(mode: u32) -> Attributes {
    Attributes { mode: Some(mode), ..Attributes::default() }
}

fn make(node: NodeId, at: Place, kind: Kind) -> Change {
    Change::Make { node, at, kind, attributes: mode(0o600) }
}

/// A tree without a log, of which one file is known, `f`.
fn tree() -> Tree {
    tree_of(&[])
}

/// The same with these, too.
fn tree_of(known: &[(NodeId, Place, Kind)]) -> Tree {
    let mut tree = Tree::without_log();
    let file = (F, at("f"), Kind::File);
    for (node, at, kind) in known.iter().chain([&file]) {
        tree.introduce(*node, kind.clone());
        tree.found(at, Some(*node));
    }
    let directories = known.iter().filter(|(_, _, kind)| kind.is_directory());
    for directory in directories.map(|(node, ..)| *node).chain([NodeId::ROOT]) {
        tree.listed(directory);
    }
    tree
}

fn done(tree: &mut Tree) -> Option<Command> {
    let (id, command) = tree.next_command()?;
    let answer = match &command {
        Command::Make { .. } => Answer::Made(Lsn(0)),
        _ => Answer::Done,
    };
    tree.ended(id, Ok(answer));
    Some(command)
}

fn bring_home(tree: &mut Tree) -> usize {
    let commands = std::iter::from_fn(|| done(tree)).take(1_000).count();
    tree.check_invariants();
    assert_eq!(tree.needed_from(), None);
    commands
}

fn refuse(tree: &mut Tree) -> Command {
    let (id, command) = tree.next_command().unwrap();
    tree.ended(id, Err(HomeError::Refused(13)));
    command
}

#[test]
fn what_is_on_its_way_home_is_seen() {
    let mut tree = tree();
    assert_eq!(tree.overlay(F), None);
    let owner = Attributes { uid: Some(7), ..Attributes::default() };
    tree.apply(Change::Set { node: F, attributes: mode(0o640) }, Lsn(8));
    let xattr = |name: &str, value: Option<&[u8]>| Change::SetXattr {
        node: F,
        name: name.as_bytes().into(),
        value: value.map(Into::into),
    };
    tree.apply(xattr("user.a", Some(b"1")), Lsn(8));
    let (id, _) = tree.next_command().unwrap();
    assert_eq!(tree.overlay(F), Some(mode(0o640)), "home does not have it yet");
    assert_eq!(tree.overlay_xattr(F, b"user.a"), Some(Some(&b"1"[..])));
    tree.apply(Change::Set { node: F, attributes: owner }, Lsn(16));
    tree.apply(xattr("user.b", None), Lsn(16));
    let both = Attributes { uid: Some(7), ..mode(0o640) };
    assert_eq!(tree.overlay(F), Some(both));
    assert_eq!(tree.overlay_xattr(F, b"user.b"), Some(None), "removed");
    assert_eq!(tree.overlay_xattr(F, b"user.c"), None, "as home says");
    assert_eq!(tree.overlay_xattrs(F).len(), 2);
    tree.ended(id, Ok(Answer::Done));
    assert_eq!(tree.overlay(F), Some(owner), "home says the rest");
    assert_eq!(tree.overlay_xattr(F, b"user.a"), None);
    bring_home(&mut tree);
    assert_eq!((tree.overlay(F), tree.overlay_xattr(F, b"user.b")), (None, None));
    // A rename that is under way is none of its attributes.
    tree.apply(Change::Rename { node: F, from: at("f"), to: at("g"), replaced: None }, Lsn(24));
    let _rename = tree.next_command().unwrap();
    assert_eq!(tree.overlay(F), None);
}

#[test]
fn links_and_subdirectories_are_counted_here_and_at_home() {
    let mut tree = tree();
    assert_eq!(tree.links(F), Links { wanted: 1, home: 1 });
    tree.apply(Change::Link { node: F, at: at("second") }, Lsn(8));
    assert_eq!(tree.links(F), Links { wanted: 2, home: 1 });
    tree.apply(Change::Remove { node: F, at: at("f") }, Lsn(16));
    assert_eq!(tree.links(F), Links { wanted: 1, home: 1 });
    tree.apply(make(D, at("d"), Kind::Directory), Lsn(24));
    assert_eq!(tree.subdirectories(NodeId::ROOT), (1, 0));
    assert_eq!((tree.links(N), tree.subdirectories(N)), (Links::default(), (0, 0)));
    bring_home(&mut tree);
    assert_eq!(tree.links(F), Links { wanted: 1, home: 1 });
    assert_eq!(tree.subdirectories(NodeId::ROOT), (1, 1));
    assert_eq!((tree.home_place(F), tree.home_place(D)), (Some(at("second")), Some(at("d"))));
}

#[test]
fn a_node_has_a_place_at_home_while_it_is_parked() {
    let mut tree = tree();
    tree.apply(make(N, at("n"), Kind::File), Lsn(8));
    assert_eq!(tree.home_place(N), None);
    let over = Change::Rename { node: N, from: at("n"), to: at("f"), replaced: Some(F) };
    tree.apply(over, Lsn(16));
    done(&mut tree).unwrap();
    assert_eq!(tree.home_place(N), Some(Tree::parking(N)));
    assert_eq!(tree.home_place_beside(N, &at("n")), Some(Tree::parking(N)), "where it is reached");
    assert_eq!(tree.home_place_beside(N, &Tree::parking(N)), None);
    assert_eq!(tree.home_place_beside(F, &at("f")), None);
    assert_eq!(tree.links(N), Links { wanted: 1, home: 1 });
    assert_eq!(tree.standing(N), Standing::Pending);
    bring_home(&mut tree);
    assert_eq!((tree.home_place(N), tree.home_place(F)), (Some(at("f")), None));
    assert_eq!(tree.take_unneeded(), [F], "no name leads to it");
    assert!(!tree.is_needed(F) && tree.is_needed(N) && tree.let_go(F));
}

#[test]
fn a_file_stands_as_what_it_depends_on_stands() {
    let mut tree = tree();
    tree.apply(make(D, at("d"), Kind::Directory), Lsn(8));
    let below = within(D, "below");
    tree.apply(make(N, below.clone(), Kind::File), Lsn(8));
    let standings =
        |tree: &Tree| [tree.standing(N), tree.standing_of(&below), tree.standing_of_entries(D)];
    assert_eq!(standings(&tree), [Standing::Pending; 3]);
    refuse(&mut tree);
    let refused = Standing::Refused(HomeError::Refused(13));
    assert_eq!(tree.next_command(), None);
    assert_eq!(standings(&tree), [refused; 3], "its directory is refused");
    assert_eq!(tree.standing_of_entries(NodeId::ROOT), refused);
    assert_eq!(tree.standing(F), Standing::Home, "it is elsewhere");
    tree.retry();
    done(&mut tree).unwrap();
    assert_eq!(tree.standing(D), Standing::Home);
    assert_eq!(standings(&tree), [Standing::Pending; 3]);
    bring_home(&mut tree);
    assert_eq!(standings(&tree), [Standing::Home; 3]);
    tree.apply(Change::Set { node: N, attributes: mode(0) }, Lsn(16));
    assert_eq!(tree.standing(N), Standing::Pending);
    assert_eq!(tree.standing_of(&below), Standing::Home, "the name is there");
}

/// A sync begins: home is asked again for what it refused. What the sync waits for.
fn sync(tree: &mut Tree, lsn: u64) -> Until {
    let until = Until { lsn: Lsn(lsn), retry: tree.retries() + 1 };
    tree.retry();
    until
}

#[test]
fn a_sync_is_told_of_a_refusal_when_everything_was_tried() {
    let refused = Standing::Refused(HomeError::Refused(13));
    let mut tree = tree();
    assert_eq!(sync(&mut tree, 0), Until { lsn: Lsn(0), retry: 1 });
    tree.apply(make(D, at("d"), Kind::Directory), Lsn(8));
    tree.apply(make(N, within(D, "below"), Kind::File), Lsn(8));
    tree.apply(Change::Set { node: F, attributes: mode(0o640) }, Lsn(16));
    let until = sync(&mut tree, 16);
    assert!(matches!(refuse(&mut tree), Command::Make { .. }));
    assert_eq!(tree.standing_until(until), Standing::Pending, "the rest is not home");
    assert!(matches!(done(&mut tree), Some(Command::Set { .. })));
    assert_eq!(tree.standing_until(until), Standing::Pending, "there may be more to do");
    assert_eq!(tree.next_command(), None);
    assert_eq!(tree.standing_until(until), refused);
    // The next one has it tried again.
    let next = sync(&mut tree, 16);
    assert_eq!(tree.standing_until(next), Standing::Pending);
    refuse(&mut tree);
    assert_eq!(tree.next_command(), None);
    assert_eq!(tree.standing_until(next), refused);
    let last = sync(&mut tree, 16);
    bring_home(&mut tree);
    assert_eq!(tree.standing_until(last), Standing::Home);
}

#[test]
fn a_sync_is_told_of_a_refusal_while_others_go_on() {
    let mut tree = tree();
    tree.apply(make(N, at("n"), Kind::File), Lsn(8));
    let until = sync(&mut tree, 8);
    let mut under_way = None;
    for lsn in 9..20 {
        tree.apply(Change::Set { node: F, attributes: mode(lsn) }, Lsn(lsn.into()));
        let (id, command) = tree.next_command().unwrap();
        if matches!(command, Command::Make { .. }) {
            tree.ended(id, Err(HomeError::Refused(13)));
            continue;
        }
        // Something is always under way.
        if let Some(before) = under_way.replace(id) {
            tree.ended(before, Ok(Answer::Done));
        }
        break;
    }
    assert!(under_way.is_some());
    assert_eq!((tree.next_command(), tree.refused().count()), (None, 1));
    assert_eq!(tree.standing_until(until), Standing::Pending, "something is under way");
    tree.retry();
    assert_eq!(tree.standing_until(until), Standing::Pending);
    refuse(&mut tree);
    assert_eq!(tree.standing_until(until), Standing::Refused(HomeError::Refused(13)));
}

#[test]
fn a_sync_is_not_told_of_what_was_refused_of_later_changes() {
    let mut tree = Tree::new(Lsn(8));
    for (node, name) in [(D, "d"), (F, "f")] {
        tree.introduce(node, if node == D { Kind::Directory } else { Kind::File });
        tree.found(&at(name), Some(node));
    }
    tree.apply(Change::Set { node: F, attributes: mode(0o640) }, Lsn(8));
    let until = sync(&mut tree, 8);
    tree.apply(Change::Set { node: D, attributes: mode(0o750) }, Lsn(16));
    tree.committed(Lsn(17));
    while let Some((id, command)) = tree.next_command() {
        let is_later = matches!(command, Command::Set { node: D, .. });
        tree.ended(id, if is_later { Err(HomeError::Refused(13)) } else { Ok(Answer::Done) });
    }
    assert_eq!(tree.refused().count(), 1);
    assert_eq!(tree.standing_until(until), Standing::Pending, "it is not settled");
    assert!(tree.begin_home_sync());
    assert_eq!((tree.next_command(), tree.standing_until(until)), (None, Standing::Pending));
    tree.home_synced(true);
    assert_eq!(tree.standing_until(until), Standing::Home);
}

#[test]
fn a_sync_is_told_what_a_change_waits_for_that_was_made_later() {
    let mut tree = tree_of(&[(D, at("d"), Kind::Directory), (N, at("n"), Kind::Directory)]);
    let to = within(D, "n");
    tree.apply(Change::Rename { node: N, from: at("n"), to, replaced: None }, Lsn(8));
    let until = sync(&mut tree, 8);
    tree.apply(Change::Rename { node: D, from: at("d"), to: at("e"), replaced: None }, Lsn(16));
    // A directory is moved only to where its new parent is at its place.
    let command = refuse(&mut tree);
    assert!(matches!(command, Command::Rename { node: D, .. }), "{command:?}");
    assert_eq!(tree.next_command(), None);
    assert_eq!(tree.standing_until(until), Standing::Refused(HomeError::Refused(13)));
}

#[test]
fn what_waits_for_something_refused_elsewhere_is_refused() {
    let file = NodeId(7);
    let (from, to) = (within(D, "g"), within(N, "g"));
    let mut tree = tree_of(&[
        (D, at("d"), Kind::Directory),
        (N, at("e"), Kind::Directory),
        (file, from.clone(), Kind::File),
    ]);
    tree.apply(Change::Rename { node: file, from, to, replaced: None }, Lsn(8));
    refuse(&mut tree);
    assert_eq!(tree.next_command(), None);
    let refused = Standing::Refused(HomeError::Refused(13));
    assert_eq!(tree.standing_of_entries(D), refused, "the name there goes with the rename");
    assert_eq!(tree.standing_of_entries(N), refused);
    assert_eq!(tree.standing(D), Standing::Home);
}

#[test]
fn a_refused_removal_deep_below_is_found() {
    let file = NodeId(7);
    let mut tree = tree_of(&[
        (D, at("d"), Kind::Directory),
        (N, within(D, "e"), Kind::Directory),
        (file, within(N, "file"), Kind::File),
    ]);
    let removals = [(file, within(N, "file")), (N, within(D, "e")), (D, at("d"))];
    for (node, at) in removals {
        tree.apply(Change::Remove { node, at }, Lsn(8));
    }
    assert!(matches!(refuse(&mut tree), Command::Unlink { .. }));
    assert_eq!(tree.next_command(), None);
    let refused = Standing::Refused(HomeError::Refused(13));
    assert_eq!(tree.standing_of(&at("d")), refused);
    assert_eq!(tree.standing_of_entries(NodeId::ROOT), refused);
}

#[test]
fn a_search_for_what_was_refused_ends_where_names_wait_in_a_circle() {
    let mut tree = tree_of(&[(N, at("n"), Kind::File)]);
    tree.apply(Change::Exchange { one: (F, at("f")), other: (N, at("n")) }, Lsn(8));
    tree.apply(make(D, at("d"), Kind::Directory), Lsn(8));
    while let Some((id, command)) = tree.next_command() {
        let made = matches!(command, Command::Make { .. });
        let result = if made { Err(HomeError::Refused(13)) } else { Err(HomeError::NoExchange) };
        tree.ended(id, result);
        if made {
            break;
        }
    }
    assert_eq!(tree.refused().count(), 1);
    assert_eq!(tree.standing(F), Standing::Pending);
}

#[test]
fn a_file_that_was_removed_before_home_had_it_waits_for_nothing() {
    let mut tree = tree();
    tree.apply(make(N, at("n"), Kind::File), Lsn(8));
    tree.apply(Change::Remove { node: N, at: at("n") }, Lsn(8));
    assert_eq!(bring_home(&mut tree), 0);
    assert_eq!(tree.standing(N), Standing::Home);
    assert_eq!(tree.take_unneeded(), [N]);
}

#[test]
fn what_somebody_waits_for_comes_before_everything_else() {
    let mut tree = tree();
    let file = |n: u64| make(NodeId(100 + n), at(&format!("file-{n}")), Kind::File);
    (0..500).for_each(|n| tree.apply(file(n), Lsn(8)));
    tree.apply(make(D, at("d"), Kind::Directory), Lsn(8));
    tree.apply(make(N, within(D, "n"), Kind::File), Lsn(8));
    tree.apply(Change::Set { node: N, attributes: mode(0) }, Lsn(8));
    tree.urge(N);
    let mut commands = 0;
    while tree.standing(N) == Standing::Pending {
        done(&mut tree).unwrap();
        commands += 1;
        assert!(commands < 4, "it does not wait for the others");
    }
    assert_eq!(tree.standing(N), Standing::Home);
    assert_eq!(bring_home(&mut tree), 500);
}

#[test]
fn a_directory_that_is_clean_is_forgotten_and_its_nodes_may_go() {
    let mut tree = tree();
    tree.apply(make(N, at("n"), Kind::File), Lsn(8));
    assert!(!tree.forget_clean(NodeId::ROOT), "something in it is not home");
    bring_home(&mut tree);
    assert!(tree.forget_clean(NodeId::ROOT));
    assert!(!tree.is_complete(NodeId::ROOT));
    assert_eq!(tree.look_up(NodeId::ROOT, b"f"), None);
    assert_eq!(tree.take_unneeded(), [F, N]);
    assert!(tree.let_go(F) && tree.let_go(N));
    assert_eq!(tree.len(), 1);
    assert!(!tree.forget_clean(F), "no directory");
}

#[test]
fn forgetting_a_directory_keeps_what_is_known_by_its_names_alone() {
    let mut tree = tree_of(&[(D, at("d"), Kind::Directory)]);
    tree.apply(make(N, within(D, "n"), Kind::File), Lsn(8));
    assert!(tree.forget_clean(NodeId::ROOT));
    assert_eq!(tree.look_up(NodeId::ROOT, b"d"), Some(Some(D)));
    assert_eq!(tree.look_up(NodeId::ROOT, b"f"), None);
    assert!(!tree.forget_clean(D));
}

#[test]
fn without_a_log_nothing_is_remembered_of_what_is_home() {
    let mut tree = tree();
    for _ in 0..100 {
        tree.apply(make(N, at("n"), Kind::File), Lsn(8));
        tree.apply(Change::Set { node: F, attributes: mode(0o600) }, Lsn(8));
        bring_home(&mut tree);
        tree.apply(Change::Remove { node: N, at: at("n") }, Lsn(8));
        bring_home(&mut tree);
        assert_eq!(tree.take_unneeded(), [N]);
        assert!(tree.let_go(N));
        tree.check_nothing_is_remembered();
        assert!(!tree.begin_home_sync(), "there is nothing to settle");
        tree.home_synced(true);
    }
    assert_eq!(tree.len(), 2);
}

#[test]
fn an_open_file_without_a_name_is_made_parked_and_unlinked() {
    let mut tree = tree();
    tree.apply(make(N, at("n"), Kind::File), Lsn(8));
    tree.apply(Change::Remove { node: N, at: at("n") }, Lsn(16));
    tree.hold_nameless(N, Kind::File, None, Lsn(24));
    assert_eq!(tree.standing(N), Standing::Pending, "its data has no place yet");
    tree.apply(Change::Set { node: N, attributes: mode(0o640) }, Lsn(32));
    let (id, command) = tree.next_command().unwrap();
    assert!(matches!(command, Command::Make { at, .. } if at == Tree::parking(N)));
    // Home has the mode that it is made with, and gets the later one.
    tree.apply(Change::Set { node: N, attributes: mode(0o604) }, Lsn(40));
    tree.ended(id, Ok(Answer::Made(Lsn(0))));
    assert_eq!(tree.overlay(N), Some(mode(0o604)));
    let parked = Tree::parking(N);
    assert_eq!(done(&mut tree), Some(Command::Unlink { node: N, at: parked }));
    let set = Command::Set { node: N, attributes: mode(0o604), xattrs: Xattrs::new() };
    assert_eq!(done(&mut tree), Some(set));
    bring_home(&mut tree);
    assert_eq!(tree.standing(N), Standing::Home);
    assert_eq!((tree.take_unneeded(), tree.let_go(N), tree.kind(N)), (vec![N], true, None));
}

#[test]
fn what_is_refused_of_a_file_without_a_name_is_kept_until_it_is_closed() {
    for is_known in [true, false] {
        let mut tree = tree();
        if is_known {
            tree.apply(make(N, at("n"), Kind::File), Lsn(8));
            tree.apply(Change::Remove { node: N, at: at("n") }, Lsn(16));
        }
        tree.hold_nameless(N, Kind::File, Some(mode(0o640)), Lsn(24));
        assert!(matches!(refuse(&mut tree), Command::Make { .. }));
        assert_eq!(done(&mut tree), None);
        assert_eq!(tree.standing(N), Standing::Refused(HomeError::Refused(13)));
        assert_eq!((tree.refused().count(), tree.take_unneeded()), (1, vec![]));
        assert!(tree.release_nameless(N) && !tree.release_nameless(N));
        bring_home(&mut tree);
        assert_eq!((tree.refused().count(), tree.dirty()), (0, 0));
        assert_eq!((tree.take_unneeded(), tree.let_go(N)), (vec![N], true));
        tree.check_invariants();
    }
}

#[test]
fn links_change_while_a_file_is_made_and_while_it_gets_a_name_but_not_while_it_is_set() {
    let mut tree = tree();
    let under_way = |tree: &mut Tree, answer| {
        let (id, _) = tree.next_command().unwrap();
        let are_changing = tree.are_links_changing(N);
        tree.ended(id, Ok(answer));
        assert!(!tree.are_links_changing(N));
        are_changing
    };
    tree.apply(make(N, at("n"), Kind::File), Lsn(8));
    assert!(under_way(&mut tree, Answer::Made(Lsn(0))));
    tree.apply(Change::Link { node: N, at: at("link") }, Lsn(16));
    assert!(under_way(&mut tree, Answer::Done));
    tree.apply(Change::Set { node: N, attributes: mode(0o640) }, Lsn(24));
    assert!(!under_way(&mut tree, Answer::Done));
}

#[test]
fn what_was_removed_while_home_refused_it_is_not_refused() {
    let mut tree = tree();
    tree.apply(make(N, at("n"), Kind::File), Lsn(8));
    let (id, _) = tree.next_command().unwrap();
    tree.apply(Change::Remove { node: N, at: at("n") }, Lsn(16));
    tree.ended(id, Err(HomeError::Refused(13)));
    assert_eq!(tree.refused().count(), 0);
    bring_home(&mut tree);
    assert_eq!((tree.dirty(), tree.standing_of(&at("n"))), (0, Standing::Home));
}
