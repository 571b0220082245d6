//! Logs that contradict themselves: an error, or something that ends; never a panic.

use super::model::Random;
use super::*;

fn recover(
    source: &Source,
    records: Vec<NameRecord>,
) -> Result<RecoveredNames, NamesRecoveryError> {
    let home = HomeNames::new(source.fd.as_fd()).unwrap();
    let end = Lsn(8 * (records.len() as u64 + 1));
    let records: Vec<_> = (1..).map(|nth| Lsn(8 * nth)).zip(records).collect();
    let mut recovery =
        Recovery::new(source.fd.as_fd(), &home, &LOG, records, end, Some(Finding::Handles))?;
    recovery.run(usize::MAX)?;
    recovery.finish()
}

#[test]
fn records_that_cannot_be_are_an_error() {
    let Some(source) = Source::in_memory() else { return };
    fs::create_dir(source.path("dir")).unwrap();
    let make = |node: u64, at: Place, kind: Kind| {
        NameRecord::Change(Change::Make {
            node: NodeId(node),
            at,
            kind,
            attributes: attributes(0o700),
        })
    };
    let rename = |node: u64, from: Place, to: Place| {
        let node = NodeId(node);
        NameRecord::Change(Change::Rename { node, from, to, replaced: None })
    };
    let remove = |node: u64, at| NameRecord::Change(Change::Remove { node: NodeId(node), at });
    let known = |node: u64, identity: &[u8]| {
        let identity = identity.to_vec();
        NameRecord::Known { node: NodeId(node), kind: Kind::Directory, identity }
    };
    let set = |attributes| NameRecord::Change(Change::Set { node: NodeId(9), attributes });
    let dir = |node, at| make(node, at, Kind::Directory);
    let nanoseconds = 0x3fff_ffff;
    let omit = Attributes { mtime: Some(Moment { seconds: 0, nanoseconds }), ..attributes(0) };
    let regular = Kind::Special { file_type: libc::S_IFREG, device: 0 };
    let cases = [
        vec![dir(9, at(1, "a")), dir(9, at(1, "b"))],
        vec![dir(9, at(9, "a"))],
        vec![dir(0, at(1, "a"))],
        vec![dir(1, at(1, "a"))],
        vec![dir(u64::MAX, at(1, "a"))],
        vec![dir(9, at(0, "a"))],
        vec![dir(9, at(1, ".weir"))],
        vec![make(9, at(1, "a"), regular)],
        vec![make(9, at(1, "a"), Kind::File), dir(10, at(9, "a"))],
        vec![remove(1, at(1, "a"))],
        vec![remove(9, at(1, ".weir"))],
        vec![rename(1, at(1, "a"), at(1, "b"))],
        vec![rename(9, at(1, "a"), at(1, "a"))],
        vec![rename(9, at(1, ".weir"), at(1, "a"))],
        vec![dir(9, at(1, "a")), rename(9, at(1, "a"), at(9, "b"))],
        vec![dir(9, at(1, "a")), rename(9, at(1, "other"), at(1, "b"))],
        vec![dir(9, at(1, "a")), dir(10, at(9, "b")), rename(9, at(1, "a"), at(10, "c"))],
        vec![set(omit)],
        vec![known(1, &source.handle("dir"))],
        vec![known(0, &source.handle("dir"))],
        vec![known(9, b"path/etc")],
        vec![known(9, b"")],
    ];
    for (nth, records) in cases.into_iter().enumerate() {
        let shown = format!("{nth}: {records:?}");
        let error = recover(&source, records).expect_err(&shown);
        assert!(matches!(error, NamesRecoveryError::Damaged { .. }), "{shown}: {error}");
        let nothing_new = fs::read_dir(source.path("")).unwrap().count() == 2;
        assert!(nothing_new, "{shown}");
    }
}

/// Any change of a few nodes and names.
pub(super) fn some_change(random: &mut Random) -> Change {
    let node = |random: &mut Random| NodeId(random.below(9) as u64);
    let place = |random: &mut Random| {
        let directory = NodeId(1 + random.below(8) as u64);
        Place::new(directory, &[b'a' + random.below(3) as u8]).unwrap()
    };
    let attributes = attributes(0o700);
    match random.below(8) {
        0..3 => {
            let kind = match random.below(3) {
                0 => Kind::File,
                _ => Kind::Directory,
            };
            Change::Make { node: node(random), at: place(random), kind, attributes }
        }
        3 => Change::Link { node: node(random), at: place(random) },
        4 => Change::Remove { node: node(random), at: place(random) },
        5 => {
            let replaced = random.one_in(2).then(|| node(random));
            let (node, from, to) = (node(random), place(random), place(random));
            Change::Rename { node, from, to, replaced }
        }
        6 => Change::Exchange {
            one: (node(random), place(random)),
            other: (node(random), place(random)),
        },
        _ => Change::Set { node: node(random), attributes },
    }
}

#[test]
fn a_recovery_ends_whatever_the_records_say() {
    let mut ended = 0;
    for seed in 0..2000 {
        let Some(source) = Source::in_memory() else { return };
        let random = &mut Random(seed);
        let mut records = Vec::new();
        for (name, node) in [("a", 5), ("b", 6), ("c", 7)] {
            fs::create_dir(source.path(name)).unwrap();
            fs::create_dir(source.path(name).join("a")).unwrap();
            let name = if random.one_in(2) { name.to_owned() } else { format!("{name}/a") };
            let identity = source.handle(&name);
            records.push(NameRecord::Known { node: NodeId(node), kind: Kind::Directory, identity });
        }
        // A record that cannot be ends the replay; those that can be are kept.
        for _ in 0..12 {
            records.push(NameRecord::Change(some_change(random)));
            if Recovery::new(
                source.fd.as_fd(),
                &HomeNames::new(source.fd.as_fd()).unwrap(),
                &LOG,
                (1..).map(|nth| Lsn(8 * nth)).zip(records.clone()).collect(),
                Lsn(1000),
                Some(Finding::Handles),
            )
            .is_err()
            {
                records.pop();
            }
        }
        let recovered = recover(&source, records).unwrap();
        ended += usize::from(recovered.left.is_empty());
    }
    assert!(ended > 0, "some of them are no damage");
}
