//! Single sequences in which a name or an attribute could be lost.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::*;
use crate::way::Place;

pub(super) fn at(name: &str) -> Place {
    Place::new(NodeId::ROOT, name.as_bytes()).unwrap()
}

pub(super) fn mode(mode: u32) -> Attributes {
    Attributes { mode: Some(mode), ..Attributes::default() }
}

pub(super) const F: NodeId = NodeId(5);
pub(super) const N: NodeId = NodeId(6);

/// A tree of which one file is known, `f`.
fn tree() -> Tree {
    let mut tree = Tree::new(Lsn(1));
    tree.introduce(F, Kind::File);
    tree.found(&at("f"), Some(F));
    tree.listed(NodeId::ROOT);
    tree
}

pub(super) fn make(name: &str) -> Change {
    Change::Make { node: N, at: at(name), kind: Kind::File, attributes: mode(0o600) }
}

/// Executes everything: a home that does what it is told. Answers looks with `there`.
pub(super) fn bring_home(
    tree: &mut Tree,
    upto: u64,
    there: impl Fn(&Place) -> AtHome,
) -> Vec<Command> {
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

pub(super) fn nothing(_: &Place) -> AtHome {
    AtHome::Nothing
}

#[test]
fn where_home_counts_no_links_names_of_a_file_with_several_are_not_forgotten() {
    for remembers in [false, true] {
        let mut tree = tree();
        if remembers {
            tree.remember_links();
        }
        tree.introduce(N, Kind::File);
        tree.changed_at_home(&at("one"), Some(N));
        tree.apply(Change::Link { node: F, at: at("g") }, Lsn(2));
        bring_home(&mut tree, 3, nothing);
        assert!(tree.begin_home_sync());
        tree.home_synced(true);
        assert!(tree.forget_clean(NodeId::ROOT));
        let expected = remembers.then_some(Some(F));
        assert_eq!(
            ["f", "g"].map(|name| tree.look_up(NodeId::ROOT, name.as_bytes())),
            [expected; 2]
        );
        assert_eq!(tree.look_up(NodeId::ROOT, b"one"), None);
        tree.check_invariants();
    }
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
fn where_home_keeps_what_it_could_not_sync_the_next_sync_settles_it() {
    let mut tree = tree();
    tree.apply(make("a"), Lsn(8));
    bring_home(&mut tree, 16, nothing);
    assert!(tree.begin_home_sync());
    tree.home_kept();
    let again = bring_home(&mut tree, 16, nothing);
    assert!(again.is_empty(), "{again:?}");
    assert_eq!(tree.needed_from(), Some(Lsn(8)));
    assert!(tree.begin_home_sync());
    tree.home_synced(true);
    assert_eq!(tree.needed_from(), None);
    tree.check_invariants();
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

/// The next command finds home changed, and home has this under the name when it is asked.
fn find_changed(tree: &mut Tree, upto: u64, at: &Place, there: AtHome) {
    tree.committed(Lsn(upto));
    let (id, _) = tree.next_command().unwrap();
    tree.ended(id, Err(HomeError::Changed));
    let (id, command) = tree.next_command().unwrap();
    assert_eq!(command, Command::Look { at: at.clone() });
    tree.ended(id, Ok(Answer::Found(there)));
}

pub(super) fn touches(command: &Command, file: NodeId) -> bool {
    match command {
        Command::Unlink { node, .. } | Command::RemoveDirectory { node, .. } => *node == file,
        Command::Rename { node, replacing, .. } => *node == file || *replacing == Some(file),
        Command::Exchange { one, other } => one.0 == file || other.0 == file,
        _ => false,
    }
}

#[test]
fn a_file_that_somebody_moved_onto_a_name_of_ours_stays_there() {
    let mut tree = tree();
    tree.apply(make("b"), Lsn(8));
    find_changed(&mut tree, 16, &at("b"), AtHome::Node(F));
    let kept = at("b.weir-conflict-1");
    let conflict = Conflict { at: at("b"), kept: Some(kept.clone()) };
    assert_eq!(tree.take_conflicts(), [conflict]);
    let commands = bring_home(&mut tree, 16, nothing);
    assert!(!commands.iter().any(|command| touches(command, F)), "{commands:?}");
    assert_eq!(tree.look_up(NodeId::ROOT, b"b"), Some(Some(F)));
    assert_eq!(tree.look_up(NodeId::ROOT, kept.name()), Some(Some(N)));
    assert_eq!(tree.look_up(NodeId::ROOT, b"f"), None, "home is asked what became of its name");
    assert_eq!((tree.dirty(), tree.home_place(F)), (0, Some(at("b"))));
}

#[test]
fn a_file_that_somebody_moved_onto_a_name_that_we_remove_stays_there() {
    let mut tree = Tree::new(Lsn(1));
    for (node, name) in [(F, "f"), (N, "n")] {
        tree.introduce(node, Kind::File);
        tree.found(&at(name), Some(node));
    }
    tree.apply(Change::Remove { node: N, at: at("n") }, Lsn(8));
    find_changed(&mut tree, 16, &at("n"), AtHome::Node(F));
    assert_eq!(tree.take_conflicts(), [Conflict { at: at("n"), kept: None }]);
    assert_eq!(bring_home(&mut tree, 16, nothing), []);
    assert_eq!(tree.look_up(NodeId::ROOT, b"n"), Some(Some(F)));
    assert_eq!(tree.look_up(NodeId::ROOT, b"f"), None);
}

#[test]
fn a_file_that_was_removed_here_and_moved_at_home_stays() {
    let mut tree = tree();
    tree.apply(make("b"), Lsn(8));
    tree.apply(Change::Remove { node: F, at: at("f") }, Lsn(16));
    find_changed(&mut tree, 16, &at("b"), AtHome::Node(F));
    tree.committed(Lsn(24));
    // The removal finds that the name is gone.
    while let Some((id, command)) = tree.next_command() {
        let result = match &command {
            Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
            Command::Make { .. } => Ok(Answer::Made(Lsn(16))),
            Command::Unlink { at: name, .. } if *name == at("f") => Err(HomeError::Changed),
            other => panic!("{other:?}"),
        };
        tree.ended(id, result);
    }
    tree.check_invariants();
    assert_eq!(tree.look_up(NodeId::ROOT, b"b"), Some(Some(F)));
    assert_eq!((tree.look_up(NodeId::ROOT, b"f"), tree.dirty()), (Some(None), 0));
}

#[test]
fn what_home_refused_of_a_new_file_is_not_put_over_what_was_set_since() {
    let mut tree = tree();
    let attributes = Attributes { uid: Some(7), ..mode(0o600) };
    let (kind, at) = (Kind::File, at("n"));
    tree.apply(Change::Make { node: N, at, kind, attributes }, Lsn(8));
    tree.committed(Lsn(16));
    let (id, command) = tree.next_command().unwrap();
    assert!(matches!(command, Command::Make { .. }));
    tree.apply(Change::Set { node: N, attributes: mode(0o640) }, Lsn(24));
    tree.committed(Lsn(32));
    tree.left_unset(N, attributes, Xattrs::new());
    tree.ended(id, Ok(Answer::Made(Lsn(16))));
    tree.check_invariants();
    assert_eq!(tree.overlay(N).unwrap(), Attributes { uid: Some(7), ..mode(0o640) });
    let needs = tree.needed_from();
    assert_eq!(needs, Some(Lsn(8)), "the log has the owner there");
    let executed = bring_home(&mut tree, 40, nothing);
    let set = Attributes { uid: Some(7), ..mode(0o640) };
    assert_eq!(executed, [Command::Set { node: N, attributes: set, xattrs: Xattrs::new() }]);
    assert!(tree.begin_home_sync());
    tree.home_synced(true);
    assert_eq!((tree.dirty(), tree.needed_from()), (0, None));
}

#[test]
fn a_file_that_we_move_to_a_name_is_not_foreign_there() {
    let mut tree = tree();
    tree.apply(Change::Rename { node: F, from: at("f"), to: at("g"), replaced: None }, Lsn(8));
    tree.committed(Lsn(16));
    let (id, _) = tree.next_command().unwrap();
    tree.ended(id, Err(HomeError::Changed));
    let there = |place: &Place| {
        if *place == at("g") { AtHome::Node(F) } else { AtHome::Nothing }
    };
    bring_home(&mut tree, 16, there);
    assert_eq!((tree.take_conflicts(), tree.dirty()), (vec![], 0));
    assert_eq!(tree.look_up(NodeId::ROOT, b"f"), Some(None));
    assert_eq!(tree.look_up(NodeId::ROOT, b"g"), Some(Some(F)));
}

#[test]
fn a_directory_that_somebody_moved_onto_a_name_of_ours_has_one_name() {
    for is_renamed in [false, true] {
        let mut tree = Tree::new(Lsn(1));
        tree.introduce(F, Kind::Directory);
        tree.found(&at("d"), Some(F));
        tree.listed(NodeId::ROOT);
        tree.apply(make("b"), Lsn(8));
        tree.committed(Lsn(16));
        let (id, _) = tree.next_command().unwrap();
        if is_renamed {
            let (from, to) = (at("d"), at("e"));
            tree.apply(Change::Rename { node: F, from, to, replaced: None }, Lsn(16));
        }
        tree.ended(id, Err(HomeError::Changed));
        let (id, _) = tree.next_command().unwrap();
        tree.ended(id, Ok(Answer::Found(AtHome::Node(F))));
        let commands = bring_home(&mut tree, 24, nothing);
        tree.check_invariants();
        let removes = |command: &Command| matches!(command, Command::RemoveDirectory { .. });
        assert!(!commands.iter().any(removes), "{commands:?}");
        let wanted: Vec<_> = tree.wanted_places(F).cloned().collect();
        if is_renamed {
            // It goes to where a program moved it.
            let (from, to) = (at("b"), at("e"));
            let rename = Command::Rename { node: F, from, to, replacing: None };
            assert!(commands.contains(&rename), "{commands:?}");
            assert_eq!(wanted, [at("e")]);
            assert_eq!(tree.look_up(NodeId::ROOT, b"b"), Some(Some(N)));
        } else {
            assert_eq!(wanted, [at("b")]);
            assert_eq!(tree.look_up(NodeId::ROOT, b"d"), None);
        }
        assert_eq!(tree.dirty(), 0);
    }
}

#[test]
fn a_new_file_that_home_lost_is_made_again_as_it_was() {
    let mut tree = tree();
    tree.apply(make("a"), Lsn(8));
    bring_home(&mut tree, 16, nothing);
    let owner = Attributes { uid: Some(7), ..Attributes::default() };
    tree.apply(Change::Set { node: N, attributes: owner }, Lsn(16));
    bring_home(&mut tree, 24, nothing);
    tree.apply(Change::Link { node: N, at: at("second") }, Lsn(24));
    bring_home(&mut tree, 32, nothing);
    assert!(tree.begin_home_sync());
    tree.apply(Change::Set { node: N, attributes: mode(0o640) }, Lsn(32));
    tree.home_synced(false);
    assert_eq!(tree.needed_from(), Some(Lsn(8)));
    tree.committed(Lsn(40));
    let mut made = Vec::new();
    while let Some((id, command)) = tree.next_command() {
        let result = match &command {
            Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
            Command::Set { .. } if made.is_empty() => Err(HomeError::Gone),
            Command::Make { attributes, .. } => {
                made.push(*attributes);
                Ok(Answer::Made(Lsn(39)))
            }
            Command::Link { node: N, .. } => Ok(Answer::Done),
            other => panic!("{other:?}"),
        };
        tree.ended(id, result);
        tree.check_invariants();
    }
    assert_eq!(made, [Attributes { uid: Some(7), ..mode(0o640) }]);
    assert_eq!((tree.dirty(), tree.links(N)), (0, Links { wanted: 2, home: 2 }));
    assert!(tree.begin_home_sync());
    tree.home_synced(true);
    assert_eq!(tree.needed_from(), None);
}

#[test]
fn a_new_directory_that_home_lost_is_made_again_with_all_that_is_in_it() {
    for looks_below_first in [false, true] {
        let mut tree = tree();
        let (below, deep) = (NodeId(8), NodeId(9));
        let make =
            |node, at| Change::Make { node, at, kind: Kind::Directory, attributes: mode(0o700) };
        let place = |directory, name: &[u8]| Place::new(directory, name).unwrap();
        tree.apply(make(N, at("d")), Lsn(8));
        tree.apply(make(below, place(N, b"below")), Lsn(16));
        let (from, to) = (at("f"), place(N, b"f"));
        tree.apply(Change::Rename { node: F, from, to, replaced: None }, Lsn(24));
        tree.apply(make(deep, place(below, b"deep")), Lsn(24));
        bring_home(&mut tree, 32, nothing);
        assert_eq!(tree.dirty(), 0);
        assert!(tree.begin_home_sync());
        tree.home_synced(false);
        let mut made = Vec::new();
        let mut held = Vec::new();
        while let Some((id, command)) = tree.next_command() {
            let is_lost = |at: &Place| at.parent() != NodeId::ROOT && !made.contains(&at.parent());
            let result = match &command {
                Command::Look { at: name } if is_lost(name) => Err(HomeError::Changed),
                Command::Look { at: name } if *name == at("f") => {
                    Ok(Answer::Found(AtHome::Node(F)))
                }
                Command::Look { at: name }
                    if *name == at("d") && looks_below_first && held.is_empty() =>
                {
                    held.push(id);
                    continue;
                }
                Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
                Command::Set { node, .. } if !made.contains(node) => Err(HomeError::Gone),
                Command::Make { node, at, .. } => {
                    assert!(!is_lost(at));
                    made.push(*node);
                    Ok(Answer::Made(Lsn(31)))
                }
                _ => Ok(Answer::Done),
            };
            tree.ended(id, result);
            tree.check_invariants();
        }
        if let Some(id) = held.pop() {
            tree.ended(id, Ok(Answer::Found(AtHome::Nothing)));
            made.clear();
            let commands = bring_home(&mut tree, 32, |place| {
                if *place == at("f") { AtHome::Node(F) } else { AtHome::Nothing }
            });
            made.extend(commands.iter().filter_map(|command| match command {
                Command::Make { node, .. } => Some(*node),
                _ => None,
            }));
        }
        assert_eq!(made, [N, below, deep]);
        assert_eq!((tree.dirty(), tree.refused().count()), (0, 0));
        assert_eq!(tree.home_place(F), Some(place(N, b"f")));
        assert!(tree.begin_home_sync());
        tree.home_synced(true);
        assert_eq!(tree.needed_from(), None);
    }
}

#[test]
fn what_home_has_had_durably_is_not_made_again() {
    let mut tree = tree();
    tree.apply(make("a"), Lsn(8));
    bring_home(&mut tree, 16, nothing);
    assert!(tree.begin_home_sync());
    tree.home_synced(true);
    // Somebody removes it at home.
    tree.apply(Change::Rename { node: N, from: at("a"), to: at("b"), replaced: None }, Lsn(16));
    tree.committed(Lsn(24));
    let mut commands = Vec::new();
    while let Some((id, command)) = tree.next_command() {
        let result = match command {
            Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
            _ => Err(HomeError::Changed),
        };
        tree.ended(id, result);
        commands.push(command);
        assert!(commands.len() < 20, "it ends: {commands:?}");
    }
    assert!(!commands.iter().any(|command| matches!(command, Command::Make { .. })));
    assert_eq!(tree.refused().count(), 1);
}

#[test]
fn a_name_that_waits_in_a_directory_does_not_wait_after_the_directory_is_removed() {
    let (file, inside) = (NodeId(8), Place::new(F, b"file").unwrap());
    let mut tree = Tree::new(Lsn(1));
    for (node, at, kind) in [(F, at("d"), Kind::Directory), (file, inside.clone(), Kind::File)] {
        tree.introduce(node, kind);
        tree.found(&at, Some(node));
    }
    [NodeId::ROOT, F].into_iter().for_each(|directory| tree.listed(directory));
    let rename = Change::Rename { node: file, from: inside, to: at("x"), replaced: None };
    tree.apply(rename, Lsn(8));
    let (one, other) = ((file, at("x")), (F, at("d")));
    tree.apply(Change::Exchange { one, other }, Lsn(16));
    tree.committed(Lsn(24));
    // The directory's own move waits, and the file waits for its name.
    let commands = std::iter::from_fn(|| tree.next_command()).collect::<Vec<_>>();
    tree.apply(Change::Remove { node: F, at: at("x") }, Lsn(24));
    for (id, _) in commands {
        tree.ended(id, Err(HomeError::Refused(13)));
    }
    tree.retry();
    bring_home(&mut tree, 32, nothing);
    assert_eq!((tree.dirty(), tree.home_place(file)), (0, Some(at("d"))));
}

#[test]
fn a_new_directory_gets_its_time_after_its_entries() {
    let mut tree = Tree::new(Lsn(1));
    tree.listed(NodeId::ROOT);
    let time = Moment { seconds: 1_000_000_000, nanoseconds: 0 };
    let attributes = mode(0o700);
    tree.apply(Change::Make { node: F, at: at("d"), kind: Kind::Directory, attributes }, Lsn(8));
    let below = Place::new(F, b"below").unwrap();
    tree.apply(Change::Make { node: N, at: below, kind: Kind::File, attributes }, Lsn(16));
    let attributes = Attributes { mtime: Some(time), ..Attributes::default() };
    tree.apply(Change::Set { node: F, attributes }, Lsn(24));
    let commands = bring_home(&mut tree, 32, nothing);
    let xattrs = Xattrs::new();
    assert_eq!(commands.last(), Some(&Command::Set { node: F, attributes, xattrs }));
    let made = commands.iter().filter(|command| matches!(command, Command::Make { .. }));
    assert_eq!((commands.len(), made.count(), tree.dirty()), (3, 2, 0));
    // A failed sync brings it back after what is in it.
    assert!(tree.begin_home_sync());
    tree.home_synced(false);
    let again = bring_home(&mut tree, 40, |_| AtHome::Nothing);
    let is_time = |command: &Command| matches!(command, Command::Set { node: F, attributes, .. } if attributes.mtime == Some(time));
    assert!(is_time(again.last().unwrap()), "{again:?}");
    assert!(tree.begin_home_sync());
    tree.home_synced(true);
    tree.check_nothing_is_remembered();
}

#[test]
fn a_replayed_rename_of_a_file_onto_its_other_name_does_nothing() {
    let mut tree = Tree::recovering(Lsn(100));
    tree.introduce(F, Kind::File);
    tree.replay(Change::Link { node: F, at: at("b") }, Lsn(8)).unwrap();
    let (from, to) = (at("a"), at("b"));
    let rename = Change::Rename { node: F, from: from.clone(), to: to.clone(), replaced: Some(F) };
    tree.replay(rename, Lsn(16)).unwrap();
    let exchange = Change::Exchange { one: (F, from), other: (F, to) };
    tree.replay(exchange, Lsn(24)).unwrap();
    assert_eq!(tree.wanted_places(F).collect::<Vec<_>>(), [&at("b")]);
    let commands = bring_home(&mut tree, 100, |place| match place {
        place if *place == at("b") => AtHome::Nothing,
        _ => AtHome::Node(F),
    });
    assert!(!commands.iter().any(|command| matches!(command, Command::Unlink { .. })));
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
