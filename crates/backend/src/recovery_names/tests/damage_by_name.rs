//! Places and steps that contradict each other, or what home has: an error, or something that ends; nothing outside SOURCE is
//! touched.

use std::os::unix::fs::symlink;

use weir_log::Stage;

use weir_names::tree::Step;

use super::damage::some_change;
use super::model::{Random, picture_of};
use super::programs::seeds;
use super::*;

fn recover(
    source: &Source,
    records: Vec<NameRecord>,
    commands: usize,
) -> Result<RecoveredNames, NamesRecoveryError> {
    let home = HomeNames::new(source.fd.as_fd()).unwrap();
    let end = Lsn(8 * (records.len() as u64 + 1));
    let records: Vec<_> = (1..).map(|nth| Lsn(8 * nth)).zip(records).collect();
    let finding = Some(Finding::Names);
    let mut recovery = Recovery::new(source.fd.as_fd(), &home, &LOG, records, end, finding)?;
    recovery.run(commands)?;
    recovery.finish()
}

#[test]
fn places_and_steps_that_cannot_be_are_an_error() {
    let Some(source) = Source::in_memory() else { return };
    let placed = |node: u64, at| NameRecord::Placed { node: NodeId(node), kind: Kind::File, at };
    let step = |node: u64, from: Option<Place>, to: Option<Place>| NameRecord::Step {
        step: Step { node: NodeId(node), from, to },
        stage: Stage::Begun,
    };
    for record in [
        placed(0, at(1, "a")),
        placed(1, at(1, "a")),
        placed(u64::MAX, at(1, "a")),
        placed(9, at(0, "a")),
        placed(9, at(9, "a")),
        placed(9, at(1, ".weir")),
        step(1, Some(at(1, "a")), None),
        step(9, Some(at(1, ".weir")), None),
        step(9, None, Some(at(1, ".weir"))),
        step(9, None, Some(at(9, "a"))),
        step(9, Some(at(1, "a")), Some(at(1, "a"))),
    ] {
        let shown = format!("{record:?}");
        let error = recover(&source, vec![record], usize::MAX).expect_err(&shown);
        assert!(matches!(error, NamesRecoveryError::Damaged { .. }), "{shown}: {error}");
    }
}

fn some_record(random: &mut Random) -> NameRecord {
    let place = |random: &mut Random| {
        let directory = NodeId(1 + random.below(8) as u64);
        Place::new(directory, &[b'a' + random.below(4) as u8]).unwrap()
    };
    let node = NodeId(random.below(9) as u64);
    match random.below(4) {
        0 => NameRecord::Change(some_change(random)),
        1 => {
            let kind = if random.one_in(3) { Kind::File } else { Kind::Directory };
            NameRecord::Placed { node, kind, at: place(random) }
        }
        _ => {
            let from = (!random.one_in(3)).then(|| place(random));
            let to = (!random.one_in(3)).then(|| place(random));
            let stage = Stage::ALL[random.below(3)];
            NameRecord::Step { step: Step { node, from, to }, stage }
        }
    }
}

#[test]
fn a_recovery_by_names_ends_whatever_the_records_say_and_stays_in_source() {
    let mut ended = 0;
    for seed in seeds(2000) {
        let Some(source) = Source::in_memory() else { return };
        let outside = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir(outside.path().join("a")).unwrap();
        fs::write(outside.path().join("b"), "outside").unwrap();
        let before = picture_of(outside.path());
        for name in ["a", "b"] {
            fs::create_dir(source.path(name)).unwrap();
            fs::create_dir(source.path(name).join("a")).unwrap();
            fs::write(source.path(name).join("b"), "content").unwrap();
            symlink(outside.path(), source.path(name).join("c")).unwrap();
        }
        symlink(outside.path(), source.path("c")).unwrap();
        symlink(outside.path().join("b"), source.path("d")).unwrap();
        let random = &mut Random(seed);
        let mut records = Vec::new();
        for _ in 0..16 {
            records.push(some_record(random));
            let all = (1..).map(|nth| Lsn(8 * nth)).zip(records.clone()).collect();
            let home = HomeNames::new(source.fd.as_fd()).unwrap();
            let finding = Some(Finding::Names);
            if Recovery::new(source.fd.as_fd(), &home, &LOG, all, Lsn(1000), finding).is_err() {
                records.pop();
            }
        }
        for _ in 0..random.below(3) {
            // Cut, and done again.
            let _ = recover(&source, records.clone(), random.below(20));
        }
        let recovered = recover(&source, records, usize::MAX).unwrap();
        ended += usize::from(recovered.left.is_empty());
        assert_eq!(picture_of(outside.path()), before, "seed {seed}");
    }
    assert!(ended > 0, "some of them are no damage");
}
