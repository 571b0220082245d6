//! What somebody else did at home, while mounted or before a recovery.

use weir_log::Lsn;

use super::cases::{F, N, at, bring_home, make, mode, nothing, touches};
use crate::identity::NodeId;
use crate::tree::*;
use crate::way::Place;

#[test]
fn what_somebody_else_linked_twice_is_foreign_under_both_names() {
    for is_directory in [false, true] {
        let theirs = NodeId(7);
        let kind = if is_directory { Kind::Directory } else { Kind::File };
        let mut tree = Tree::new(Lsn(1));
        tree.introduce(F, Kind::File);
        tree.found(&at("b"), Some(F));
        tree.listed(NodeId::ROOT);
        tree.apply(make("a"), Lsn(8));
        let removed = Change::Remove { node: F, at: at("b") };
        tree.apply(removed, Lsn(16));
        tree.committed(Lsn(24));
        let mut commands = Vec::new();
        while let Some((id, command)) = tree.next_command() {
            let result = match &command {
                Command::Make { at: made, .. } if *made == at("a") => Err(HomeError::Changed),
                Command::Unlink { .. } => Err(HomeError::Changed),
                Command::Look { at: looked } => {
                    // Whoever looks introduces what is new as foreign.
                    let is_new = tree.kind(theirs).is_none();
                    if is_new {
                        tree.introduce_foreign(theirs, kind.clone());
                    }
                    // A directory has one name: it is moved when it was seen.
                    let is_there = is_new || !is_directory || *looked == at("b");
                    let there = AtHome::Node(theirs);
                    Ok(Answer::Found(if is_there { there } else { AtHome::Nothing }))
                }
                Command::Make { .. } => Ok(Answer::Made(Lsn(20))),
                _ => Ok(Answer::Done),
            };
            commands.push(command);
            tree.ended(id, result);
            tree.check_invariants();
            assert!(commands.len() < 20, "it ends: {commands:?}");
        }
        assert_eq!((tree.take_conflicts().len(), tree.dirty()), (2, 0));
        let touched = commands.iter().any(|command| touches(command, theirs));
        assert!(!touched, "{commands:?}");
        assert_eq!(tree.look_up(NodeId::ROOT, b"b"), Some(Some(theirs)));
        assert_eq!(tree.look_up(NodeId::ROOT, b"a"), Some((!is_directory).then_some(theirs)));
    }
}

#[test]
fn a_directory_in_which_somebody_else_put_something_comes_back() {
    for is_replaced in [false, true] {
        let mut tree = Tree::new(Lsn(1));
        let (theirs, below) = (NodeId(8), Place::new(F, b"below").unwrap());
        tree.introduce(F, Kind::Directory);
        tree.found(&at("d"), Some(F));
        tree.introduce(N, Kind::Directory);
        tree.found(&below, Some(N));
        [NodeId::ROOT, F, N].into_iter().for_each(|directory| tree.listed(directory));
        tree.apply(Change::Remove { node: N, at: below.clone() }, Lsn(8));
        tree.apply(Change::Remove { node: F, at: at("d") }, Lsn(16));
        if is_replaced {
            let (node, kind, attributes) = (NodeId(9), Kind::File, mode(0o600));
            tree.apply(Change::Make { node, at: at("d"), kind, attributes }, Lsn(24));
        }
        tree.committed(Lsn(32));
        let mut commands = Vec::new();
        while let Some((id, command)) = tree.next_command() {
            let result = match &command {
                Command::RemoveDirectory { .. } => Err(HomeError::NotEmpty),
                Command::Make { .. } => Ok(Answer::Made(Lsn(24))),
                other => panic!("{other:?}"),
            };
            tree.ended(id, result);
            commands.push(command);
            assert!(commands.len() < 4, "it ends: {commands:?}");
        }
        tree.check_invariants();
        assert_eq!(tree.look_up(NodeId::ROOT, b"d"), Some(Some(F)), "the one above, too");
        assert_eq!(tree.look_up(F, b"below"), Some(Some(N)));
        assert!(!tree.is_complete(N), "home is asked what is there");
        assert_eq!(tree.look_up(N, b"theirs"), None);
        let beside = at("d.weir-conflict-1");
        let kept = is_replaced.then(|| beside.clone());
        let conflicts =
            [Conflict { at: below.clone(), kept: None }, Conflict { at: at("d"), kept }];
        assert_eq!(tree.take_conflicts(), conflicts);
        assert_eq!((tree.dirty(), tree.refused().count()), (0, 0));
        // A program may remove it after what is in it.
        tree.introduce(theirs, Kind::File);
        tree.found(&Place::new(N, b"theirs").unwrap(), Some(theirs));
        assert_eq!(tree.check(&Change::Remove { node: N, at: below }), Err(Refused::NotEmpty));
    }
}

#[test]
fn a_directory_comes_back_if_somebody_took_a_name_in_it_that_was_removed() {
    let (file, theirs, inside) = (NodeId(8), NodeId(9), Place::new(F, b"file").unwrap());
    let mut tree = Tree::new(Lsn(1));
    for (node, at, kind) in [(F, at("d"), Kind::Directory), (file, inside.clone(), Kind::File)] {
        tree.introduce(node, kind);
        tree.found(&at, Some(node));
    }
    [NodeId::ROOT, F].into_iter().for_each(|directory| tree.listed(directory));
    tree.apply(Change::Remove { node: file, at: inside.clone() }, Lsn(8));
    tree.apply(Change::Remove { node: F, at: at("d") }, Lsn(16));
    tree.committed(Lsn(24));
    while let Some((id, command)) = tree.next_command() {
        let result = match command {
            Command::Unlink { .. } => Err(HomeError::Changed),
            Command::Look { .. } => {
                tree.introduce_foreign(theirs, Kind::File);
                Ok(Answer::Found(AtHome::Node(theirs)))
            }
            other => panic!("{other:?}"),
        };
        tree.ended(id, result);
        tree.check_invariants();
    }
    assert_eq!((tree.dirty(), tree.is_nameless(F)), (0, false));
    assert_eq!(tree.look_up(NodeId::ROOT, b"d"), Some(Some(F)));
    assert_eq!(tree.look_up(F, b"file"), Some(Some(theirs)));
}

#[test]
fn a_name_that_is_given_up_leads_to_what_home_has() {
    let replaced = NodeId(7);
    let mut tree = Tree::recovering(Lsn(100));
    for node in [F, replaced] {
        tree.introduce(node, Kind::File);
    }
    let (from, to) = (at("f"), at("g"));
    let rename = Change::Rename { node: F, from, to: to.clone(), replaced: Some(replaced) };
    tree.replay(rename, Lsn(8)).unwrap();
    tree.committed(Lsn(100));
    while let Some((id, command)) = tree.next_command() {
        let result = match &command {
            Command::Look { at } if *at == to => Ok(Answer::Found(AtHome::Node(replaced))),
            Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
            // It is gone, and nothing was removed for it.
            Command::Link { node: F, at } if at.parent() == NodeId::PARKING => Err(HomeError::Gone),
            other => panic!("{other:?}"),
        };
        tree.ended(id, result);
    }
    assert_eq!(tree.refused().collect::<Vec<_>>(), [(&Part::Entry(to.clone()), HomeError::Gone)]);
    tree.give_up(&to, AtHome::Node(replaced));
    assert_eq!(bring_home(&mut tree, 100, nothing), []);
    assert_eq!((tree.dirty(), tree.look_up(to.parent(), to.name())), (0, Some(Some(replaced))));
}

#[test]
fn a_directory_that_is_gone_is_made_again_with_what_is_to_be_in_it() {
    let (below, moved, lost) =
        (Place::new(F, b"below").unwrap(), Place::new(F, b"moved").unwrap(), at("lost"));
    let file = NodeId(7);
    let mut tree = Tree::recovering(Lsn(100));
    tree.introduce(F, Kind::Directory);
    tree.introduce(file, Kind::File);
    let (kind, attributes) = (Kind::File, mode(0o600));
    tree.replay(Change::Make { node: N, at: below, kind, attributes }, Lsn(8)).unwrap();
    let from = at("file");
    let rename = Change::Rename { node: file, from: from.clone(), to: moved, replaced: None };
    tree.replay(rename, Lsn(16)).unwrap();
    tree.committed(Lsn(100));
    while let Some((id, command)) = tree.next_command() {
        tree.ended(
            id,
            match &command {
                Command::Look { at } if *at == from => Ok(Answer::Found(AtHome::Node(file))),
                Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
                _ => Err(HomeError::Changed),
            },
        );
    }
    assert_eq!(tree.refused().count(), 2);
    tree.make_elsewhere(F, &lost, Lsn(100));
    let commands = bring_home(&mut tree, 120, nothing);
    assert!(matches!(&commands[..2], [Command::Look { .. }, Command::Make { node: F, .. }]));
    assert_eq!((tree.dirty(), tree.refused().count()), (0, 0));
    assert_eq!(tree.home_place(F), Some(lost));
    assert_eq!([N, file].map(|node| tree.home_place(node).unwrap().parent()), [F, F]);
}

#[test]
fn a_directory_that_somebody_moved_and_moved_back_gets_its_new_name() {
    let mut tree = Tree::new(Lsn(1));
    tree.introduce(F, Kind::Directory);
    tree.found(&at("d"), Some(F));
    tree.listed(NodeId::ROOT);
    tree.apply(Change::Rename { node: F, from: at("d"), to: at("e"), replaced: None }, Lsn(8));
    tree.committed(Lsn(16));
    for is_back in [false, false, true, true] {
        while let Some((id, command)) = tree.next_command() {
            let result = match command {
                Command::Rename { .. } if is_back => Ok(Answer::Done),
                Command::Rename { .. } => Err(HomeError::Changed),
                Command::Look { at: of } if of == at("d") && is_back => {
                    Ok(Answer::Found(AtHome::Node(F)))
                }
                Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
                other => panic!("{other:?}"),
            };
            tree.ended(id, result);
            tree.check_invariants();
        }
        if !is_back {
            assert_eq!(tree.refused().count(), 1);
        }
        tree.retry();
    }
    assert_eq!((tree.dirty(), tree.refused().count()), (0, 0));
    assert_eq!(tree.look_up(NodeId::ROOT, b"e"), Some(Some(F)));
    assert_eq!(tree.look_up(NodeId::ROOT, b"d"), Some(None));
}

/// A log has a directory without a name although home has it, if it got another name for what somebody else put there.
fn replayed_into_a_directory_without_a_name() -> Tree {
    let (theirs, inside) = (NodeId(8), Place::new(F, b"file").unwrap());
    let mut tree = Tree::recovering(Lsn(100));
    tree.introduce(F, Kind::Directory);
    tree.introduce(N, Kind::File);
    tree.introduce(theirs, Kind::File);
    tree.replay(Change::Rename { node: F, from: at("e"), to: at("d"), replaced: None }, Lsn(8))
        .unwrap();
    tree.replay(Change::Link { node: N, at: inside }, Lsn(16)).unwrap();
    let rename = Change::Rename { node: theirs, from: at("d"), to: at("moved"), replaced: None };
    tree.replay(rename, Lsn(24)).unwrap();
    tree.committed(Lsn(100));
    tree
}

#[test]
fn a_recovery_looks_at_names_in_a_directory_that_has_another_name_than_the_log_knows() {
    let (moved, foreign) = (NodeId(8), NodeId(9));
    let (inside, beside) = (Place::new(F, b"file"), Place::new(F, b"file.weir-conflict-1"));
    let (inside, beside) = (inside.unwrap(), beside.unwrap());
    let mut tree = replayed_into_a_directory_without_a_name();
    let mut commands = Vec::new();
    while let Some((id, command)) = tree.next_command() {
        let result = match &command {
            Command::Look { at: looked } if *looked == inside => {
                tree.introduce_foreign(foreign, Kind::File);
                Ok(Answer::Found(AtHome::Node(foreign)))
            }
            Command::Look { at: looked } if *looked == at("moved") => {
                Ok(Answer::Found(AtHome::Node(moved)))
            }
            Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
            Command::Link { at, .. } if *at == inside => Err(HomeError::Changed),
            Command::Link { .. } => Ok(Answer::Done),
            other => panic!("{other:?}"),
        };
        tree.ended(id, result);
        tree.check_invariants();
        commands.push(command);
        assert!(commands.len() < 20, "it ends: {commands:?}");
    }
    let kept = Some(beside.clone());
    assert_eq!(tree.take_conflicts(), [Conflict { at: inside, kept }]);
    assert_eq!(commands.last(), Some(&Command::Link { node: N, at: beside }));
    assert_eq!((tree.dirty(), tree.refused().count()), (0, 0));
}

#[test]
fn what_cannot_be_put_into_a_directory_that_is_gone_is_tried_twice() {
    let mut tree = replayed_into_a_directory_without_a_name();
    let mut links = 0;
    while let Some((id, command)) = tree.next_command() {
        let result = match &command {
            Command::Look { at } if at.parent() == F => Err(HomeError::Changed),
            Command::Look { at: looked } if *looked == at("moved") => {
                Ok(Answer::Found(AtHome::Node(NodeId(8))))
            }
            Command::Look { .. } => Ok(Answer::Found(AtHome::Nothing)),
            Command::Link { .. } => {
                links += 1;
                Err(HomeError::Changed)
            }
            other => panic!("{other:?}"),
        };
        tree.ended(id, result);
        tree.check_invariants();
        assert!(links < 10, "it ends");
    }
    let refused = (Part::Entry(Place::new(F, b"file").unwrap()), HomeError::Changed);
    let left: Vec<_> = tree.refused().map(|(part, error)| (part.clone(), error)).collect();
    assert_eq!((links, left), (2, vec![refused]));
}
