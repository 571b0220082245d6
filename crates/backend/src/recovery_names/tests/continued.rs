//! Recoveries from a log that had failed, and that its mount went on with in SOURCE.

use weir_log::{Identity, Record, Superblock};

use super::*;
use crate::recovery_names::note::{Continuation, continuation};
use crate::recovery_names::replayed::ReplayedNames;

/// Where the log had failed.
const FROM: Lsn = Lsn(0x30);

pub(super) fn superblock(log: Identity, generation: u64) -> Superblock {
    Superblock {
        log,
        mount: [2; 16],
        bytes: weir_log::DATA_START + (1 << 20),
        generation,
        checkpoint: Lsn(0),
        clean: false,
        row_blocks: 1,
        nodes: weir_log::NODE_FIRST,
        features: 0,
    }
}

fn make(node: u64, name: &str) -> Change {
    let (node, at) = (NodeId(node), at(1, name));
    Change::Make { node, at, kind: Kind::File, attributes: attributes(0o600) }
}

fn rename(node: u64, from: &str, to: &str, replaced: Option<u64>) -> Change {
    let (from, to, replaced) = (at(1, from), at(1, to), replaced.map(NodeId));
    Change::Rename { node: NodeId(node), from, to, replaced }
}

fn bytes(change: &Change) -> Vec<u8> {
    Record::Name(change.record(1 << 20).unwrap()).to_bytes()
}

fn go_on(
    source: &Source,
    continuation: &mut Continuation,
    changes: &[(Lsn, Change)],
) -> io::Result<()> {
    let records = changes.iter().map(|(lsn, change)| (*lsn, bytes(change))).collect();
    continuation.add(source.fd.as_fd(), &LOG, (5, FROM), records)
}

/// Recovers from a log with these changes whose superblock has this generation.
fn recover(
    source: &Source,
    (log, generation): (Identity, u64),
    changes: &[(u64, Change)],
) -> RecoveredNames {
    let mut names = ReplayedNames::new(&superblock(log, generation), source.fd.as_fd()).unwrap();
    for (lsn, change) in changes {
        names.add_logged(Lsn(*lsn), &change.record(1 << 20).unwrap()).unwrap();
    }
    names.recover(source.fd.as_fd(), Lsn(0x40)).unwrap();
    names.take_recovered().unwrap()
}

/// The last change is in the log, although it was not known to be written.
fn logged() -> [(u64, Change); 3] {
    [(0x10, make(10, "one")), (0x20, make(11, "two")), (0x30, rename(10, "one", "lost", None))]
}

#[test]
fn what_a_mount_went_on_with_comes_after_what_was_durable() {
    let Some(source) = Source::new() else { return };
    let mut continuation = Continuation::default();
    let first = [(Lsn(0x30), rename(10, "one", "three", None)), (Lsn(0x31), make(12, "four"))];
    go_on(&source, &mut continuation, &first).unwrap();
    go_on(&source, &mut continuation, &[(Lsn(0x41), rename(12, "four", "two", Some(11)))]).unwrap();
    let recovered = recover(&source, (LOG, 5), &logged());
    assert!(recovered.left.is_empty() && recovered.told().is_empty(), "{recovered:?}");
    assert_eq!(source.names("."), ["three", "two"]);
    assert_eq!(recovered.identity_of(NodeId(12)), Some(&source.handle("two")[..]));
    // It may be cut and done again.
    let again = recover(&source, (LOG, 5), &logged());
    let Counts { made, removed, renamed, .. } = again.counts;
    assert_eq!((made, removed, renamed, again.left), (0, 0, 0, vec![]));
}

#[test]
fn a_log_that_only_went_on_is_recovered_too() {
    let Some(source) = Source::new() else { return };
    go_on(&source, &mut Continuation::default(), &[(Lsn(0x30), make(10, "one"))]).unwrap();
    recover(&source, (LOG, 5), &[]);
    assert_eq!(source.names("."), ["one"]);
}

#[test]
fn what_went_on_is_of_one_log_and_of_one_use_of_it() {
    for (log, generation) in [([8; 16], 5), (LOG, 6)] {
        let Some(source) = Source::new() else { return };
        go_on(&source, &mut Continuation::default(), &[(Lsn(0x30), make(12, "three"))]).unwrap();
        recover(&source, (log, generation), &logged());
        assert_eq!(source.names("."), ["lost", "two"]);
    }
}

#[test]
fn what_could_not_be_written_may_be_written_again() {
    let Some(source) = Source::new() else { return };
    let mut going_on = Continuation::default();
    let read = || {
        let continued = continuation(source.fd.as_fd(), &superblock(LOG, 5)).unwrap();
        continued.map(|continued| (continued.from, continued.records.len()))
    };
    let one = [(Lsn(0x30), make(10, "one"))];
    fs::create_dir(source.path(".weir/recovered.new")).unwrap();
    go_on(&source, &mut going_on, &one).unwrap_err();
    assert_eq!(read(), None);
    fs::remove_dir(source.path(".weir/recovered.new")).unwrap();
    go_on(&source, &mut going_on, &one).unwrap();
    assert_eq!(read(), Some((FROM, 1)));
    // A write that was cut.
    let mut text = fs::read(source.path(".weir/recovered")).unwrap();
    text.extend_from_slice(b"record 31 00");
    fs::write(source.path(".weir/recovered"), &text).unwrap();
    assert_eq!(read(), Some((FROM, 1)));
    going_on.is_torn = true;
    go_on(&source, &mut going_on, &[(Lsn(0x31), make(11, "two"))]).unwrap();
    assert_eq!(read(), Some((FROM, 2)));
}

#[test]
fn what_is_no_record_of_names_is_damage() {
    let Some(source) = Source::new() else { return };
    let truncate = Record::Truncate { file: 10, size: 0 }.to_bytes();
    for bytes in [vec![], vec![0; 40], truncate] {
        let mut continuation = Continuation::default();
        continuation.add(source.fd.as_fd(), &LOG, (5, FROM), vec![(Lsn(0x30), bytes)]).unwrap();
        let mut names = ReplayedNames::new(&superblock(LOG, 5), source.fd.as_fd()).unwrap();
        let recovered = names.recover(source.fd.as_fd(), Lsn(0x40));
        assert!(matches!(recovered, Err(NamesRecoveryError::Damaged { .. })), "{recovered:?}");
    }
}
