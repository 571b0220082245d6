//! Who is told what home refused.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::*;
use crate::way::Place;

const D: NodeId = NodeId(4);
const F: NodeId = NodeId(5);
const N: NodeId = NodeId(6);
const NO_ACCESS: HomeError = HomeError::Refused(13);
const NO_SPACE: HomeError = HomeError::Refused(28);

fn within(directory: NodeId, name: &str) -> Place {
    Place::new(directory, name.as_bytes()).unwrap()
}

fn at(name: &str) -> Place {
    within(NodeId::ROOT, name)
}

fn make(node: NodeId, at: Place, kind: Kind) -> Change {
    Change::Make { node, at, kind, attributes: Attributes::default() }
}

/// A tree without a log, of which a directory and a file are known: `d` and `f`.
fn tree() -> Tree {
    let mut tree = Tree::without_log();
    for (node, name, kind) in [(D, "d", Kind::Directory), (F, "f", Kind::File)] {
        tree.introduce(node, kind);
        tree.found(&at(name), Some(node));
    }
    tree.listed(NodeId::ROOT);
    tree.listed(D);
    tree
}

/// Home refuses all that there is to do.
fn refuse(tree: &mut Tree, error: HomeError) {
    while let Some((id, _)) = tree.next_command() {
        tree.ended(id, Err(error));
    }
}

/// It is tried again, and home does it.
fn bring_home(tree: &mut Tree) {
    tree.retry();
    while let Some((id, command)) = tree.next_command() {
        let answer = match &command {
            Command::Make { .. } => Answer::Made(Lsn(0)),
            _ => Answer::Done,
        };
        tree.ended(id, Ok(answer));
    }
    assert!(tree.queue.reports.is_empty());
}

#[test]
fn each_refusal_is_reported_once_to_each_description() {
    let mut tree = tree();
    let (mut first, mut other) = (tree.refusal_cursor(), tree.refusal_cursor());
    tree.apply(make(N, at("n"), Kind::File), Lsn(8));
    assert_eq!(tree.take_refusal(N, &mut first), None, "home was not asked");
    refuse(&mut tree, NO_ACCESS);
    let mut unrelated = tree.refusal_cursor();
    assert_eq!(tree.take_refusal(F, &mut unrelated), None);
    let mut opened = tree.refusal_cursor();
    tree.retry();
    assert_eq!(tree.take_refusal(N, &mut opened), Some(NO_ACCESS), "also while it is tried");
    assert_eq!(tree.take_refusal(N, &mut first), Some(NO_ACCESS));
    assert_eq!(tree.take_refusal_in(NodeId::ROOT), Some(NO_ACCESS));
    refuse(&mut tree, NO_ACCESS);
    for cursor in [&mut opened, &mut first] {
        assert_eq!(tree.take_refusal(N, cursor), None);
    }
    assert_eq!(tree.take_refusal_in(NodeId::ROOT), None);
    let mut late = tree.refusal_cursor();
    assert_eq!(tree.take_refusal(N, &mut late), None, "somebody was told before");
    assert_eq!(tree.take_refusal(N, &mut other), Some(NO_ACCESS), "it was open before");
    // Another reason, and another change, are news.
    tree.retry();
    refuse(&mut tree, NO_SPACE);
    let mode = Attributes { mode: Some(0o600), ..Attributes::default() };
    for error in [NO_SPACE, NO_ACCESS] {
        for cursor in [&mut first, &mut late] {
            assert_eq!(tree.take_refusal(N, cursor), Some(error));
            assert_eq!(tree.take_refusal(N, cursor), None);
        }
        assert_eq!(tree.take_refusal_in(NodeId::ROOT), Some(error));
        tree.apply(Change::Rename { node: N, from: at("n"), to: at("m"), replaced: None }, Lsn(16));
        tree.apply(Change::Rename { node: N, from: at("m"), to: at("n"), replaced: None }, Lsn(16));
        refuse(&mut tree, NO_ACCESS);
    }
    tree.take_refusal(N, &mut first);
    bring_home(&mut tree);
    assert_eq!(tree.take_refusal(N, &mut other), None, "home has it");
    assert_eq!(tree.take_refusal_in(NodeId::ROOT), None);
    tree.apply(Change::Set { node: N, attributes: mode }, Lsn(24));
    refuse(&mut tree, NO_ACCESS);
    assert_eq!(tree.take_refusal(N, &mut first), Some(NO_ACCESS));
    assert_eq!(tree.take_refusal_in(NodeId::ROOT), None, "its names are there");
}

#[test]
fn both_directories_of_a_rename_are_told_and_what_waits_for_a_refused_change_is_not() {
    let mut tree = tree();
    let mut cursor = tree.refusal_cursor();
    let to = within(D, "f");
    tree.apply(Change::Rename { node: F, from: at("f"), to, replaced: None }, Lsn(8));
    refuse(&mut tree, NO_ACCESS);
    assert_eq!(tree.take_refusal(F, &mut cursor), Some(NO_ACCESS));
    assert_eq!(tree.take_refusal_in(D), Some(NO_ACCESS));
    assert_eq!(tree.take_refusal_in(NodeId::ROOT), Some(NO_ACCESS));
    bring_home(&mut tree);
    let new = NodeId(9);
    tree.apply(make(new, at("new"), Kind::Directory), Lsn(16));
    tree.apply(make(N, within(new, "n"), Kind::File), Lsn(16));
    refuse(&mut tree, NO_ACCESS);
    assert_eq!(tree.take_refusal(N, &mut cursor), None, "its directory was refused");
    assert_eq!(tree.take_refusal_in(new), Some(NO_ACCESS));
    assert_eq!(tree.take_refusal_in(new), None);
    assert_eq!(tree.take_refusal_in(NodeId::ROOT), Some(NO_ACCESS));
}
