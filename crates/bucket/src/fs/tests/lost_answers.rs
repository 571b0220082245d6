//! Answers that are lost, one at a time: what was asked for was done or not, is found out, and is nobody else's change.

use super::*;
use crate::store::Condition;

/// A file with content that is in the bucket, closed.
fn synced(system: &FileSystem, name: &str, content: &[u8]) -> u64 {
    let id = file(system, name);
    system.write(id, 0, content).unwrap();
    system.sync_file(id).unwrap();
    system.release(id);
    id
}

fn set_mode(system: &FileSystem, id: u64, mode: u32) {
    let mode = Some(mode);
    system.set_attributes(id, NewAttributes { mode, ..Default::default() }).unwrap();
}

/// Content and mode of a name in the root, if it is there.
fn shown(system: &FileSystem, name: &str) -> Option<(Vec<u8>, u32)> {
    let stat = match system.lookup(ROOT, name) {
        Ok(stat) => stat,
        Err(Error::NotFound) => return None,
        Err(error) => panic!("{name}: {error}"),
    };
    Some((system.read(stat.id, 0, 10_000).unwrap().into(), stat.attributes.mode))
}

/// Requests of a kind are carried out without an answer, and nobody is told of what they did.
fn lose(memory: &Memory, lost: &'static str) {
    memory.fail(move |kind, _| match kind {
        "head" => Some(Failure::Before),
        kind => (kind == lost).then_some(Failure::After),
    });
}

fn answer(memory: &Memory) {
    memory.fail(|_, _| None);
}

/// The program is killed and started again.
fn restarted(memory: &Arc<Memory>, state: &tempfile::TempDir) -> Arc<FileSystem> {
    open(memory, state.path(), Duration::from_secs(1000))
}

#[test]
fn a_request_that_was_done_succeeds() {
    let (memory, _state, system) = fixture();
    synced(&system, "a", b"one");
    synced(&system, "b", b"two");
    memory.fail(|kind, _| ["put", "copy", "delete"].contains(&kind).then_some(Failure::After));
    system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap();
    assert_eq!((shown(&system, "a"), shown(&system, "b").unwrap().0), (None, b"one".to_vec()));
    system.unlink(ROOT, "b").unwrap();
    let id = file(&system, "c");
    system.write(id, 0, b"three").unwrap();
    system.sync_file(id).unwrap();
    assert_eq!(memory.objects().into_keys().collect::<Vec<_>>(), ["pre/c"]);
    let counts = system.store.counts().now();
    // Each was asked for once: the object tells the rest.
    assert_eq!((counts.copy, counts.delete), (1, 2), "{counts:?}");
}

/// A store that is asked again to end an upload may say that it is done while it is under way yet.
#[test]
fn a_sync_returns_when_the_object_is_there() {
    let content = |byte: u8| vec![byte; 100];
    for (requests, is_made) in [(0, true), (3, true), (u32::MAX, false)] {
        let (memory, _state, system) = fixture();
        let id = synced(&system, "f", &content(1));
        system.open(id).unwrap();
        system.write(id, 0, &content(2)).unwrap();
        memory.fail(move |kind, key| {
            (kind == "complete" && key == "pre/f").then_some(Failure::UnderWay(requests))
        });
        let answer = system.sync_file(id);
        assert_eq!(answer.is_ok(), is_made, "{answer:?}");
        let there = if is_made { content(2) } else { content(1) };
        assert_eq!(memory.objects()["pre/f"], there);
        memory.fail(|_, _| None);
        system.sync_file(id).unwrap();
        assert_eq!(memory.objects()["pre/f"], content(2));
        assert_eq!(system.happened().conflicts, 0);
    }
}

/// Somebody else's object is not waited for, as if it were the former one.
#[test]
fn an_object_of_somebody_else_is_not_taken_for_the_one_that_is_made() {
    let (memory, _state, system) = fixture();
    let id = synced(&system, "f", &[1; 100]);
    system.open(id).unwrap();
    system.write(id, 0, &[2; 100]).unwrap();
    memory.put("pre/f", vec![3; 100], &Properties::default(), &Condition::None).unwrap();
    memory.fail(|kind, key| {
        (kind == "complete" && key == "pre/f").then_some(Failure::UnderWay(u32::MAX))
    });
    system.sync_file(id).unwrap();
    let objects = memory.objects();
    assert_eq!((objects.len(), objects["pre/f"][0]), (2, 3));
    assert!(objects.iter().any(|(key, bytes)| key.contains("weir-conflict") && bytes[0] == 2));
}

/// A file that was replaced by a rename that was done, as nobody knows, had attributes that were not in the bucket.
#[test]
fn a_rename_in_doubt_is_no_change_of_somebody_else() {
    for crash in [false, true] {
        let (memory, state, mut system) = fixture();
        synced(&system, "a", b"content of a");
        let b = synced(&system, "b", b"b");
        set_mode(&system, b, 0o600);
        lose(&memory, "copy");
        system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap_err();
        answer(&memory);
        if crash {
            system = restarted(&memory, &state);
        }
        let a = Some((b"content of a".to_vec(), 0o644));
        assert_eq!((shown(&system, "a"), shown(&system, "b")), (a.clone(), a.clone()), "{crash}");
        system.sync_below(ROOT).unwrap();
        assert_eq!((shown(&system, "a"), shown(&system, "b")), (a.clone(), a.clone()), "{crash}");
        assert_eq!(system.happened().conflicts, 0);
        // Asked for again it succeeds.
        system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap();
        assert_eq!((shown(&system, "a"), shown(&system, "b")), (None, a), "{crash}");
        assert_eq!(memory.objects().len(), 1);
    }
}

#[test]
fn a_rename_in_doubt_that_was_not_done_takes_nothing() {
    for crash in [false, true] {
        let (memory, state, mut system) = fixture();
        synced(&system, "a", b"content of a");
        let b = synced(&system, "b", b"b");
        set_mode(&system, b, 0o600);
        memory.fail(|kind, _| ["head", "copy"].contains(&kind).then_some(Failure::Before));
        system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap_err();
        answer(&memory);
        if crash {
            system = restarted(&memory, &state);
        }
        let b = Some((b"b".to_vec(), 0o600));
        assert_eq!(shown(&system, "b"), b);
        system.sync_below(ROOT).unwrap();
        assert_eq!(shown(&system, "b"), b);
        assert_eq!(shown(&system, "a"), Some((b"content of a".to_vec(), 0o644)));
    }
}

/// A copy under a name that was free is removed before anything is uploaded there, and is not shown.
#[test]
fn a_rename_in_doubt_leaves_no_copy() {
    let (memory, _state, system) = fixture();
    synced(&system, "a", b"content of a");
    lose(&memory, "copy");
    system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap_err();
    answer(&memory);
    assert_eq!(shown(&system, "b"), None);
    synced(&system, "b", b"other");
    assert_eq!(memory.objects()["pre/b"], b"other");
    assert_eq!((memory.objects().len(), system.happened().conflicts), (2, 0));
}

/// An object that is not the copy is somebody else's: both are kept.
#[test]
fn what_others_wrote_meanwhile_is_theirs() {
    let (memory, _state, system) = fixture();
    synced(&system, "a", b"content of a");
    let b = synced(&system, "b", b"b");
    system.write(b, 0, b"ours").unwrap();
    lose(&memory, "copy");
    system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap_err();
    answer(&memory);
    memory.put("pre/b", b"theirs".to_vec(), &Default::default(), &Condition::None).unwrap();
    system.sync_below(ROOT).unwrap();
    assert_eq!(memory.objects()["pre/b"], b"theirs");
    assert_eq!(memory.objects().values().filter(|bytes| *bytes == b"ours").count(), 1);
    assert_eq!(system.happened().conflicts, 1);
}

/// A file whose removal was done, as nobody knows, is not made anew with zeros where the object had bytes.
#[test]
fn a_removal_in_doubt_is_finished() {
    for crash in [false, true] {
        let (memory, state, mut system) = fixture();
        let id = synced(&system, "f", &[7; 300]);
        system.write(id, 100, b"patch").unwrap();
        // An upload failed before: the content is kept on this machine.
        memory.fail(|_, _| Some(Failure::Before));
        system.sync_file(id).unwrap_err();
        answer(&memory);
        system.keep_content(id).unwrap();
        let mut heads = 0;
        memory.fail(move |kind, _| {
            heads += u32::from(kind == "head");
            // The first one is about the upload.
            match kind {
                "delete" => Some(Failure::After),
                "head" if heads > 1 => Some(Failure::Before),
                _ => None,
            }
        });
        system.unlink(ROOT, "f").unwrap_err();
        answer(&memory);
        if crash {
            system = restarted(&memory, &state);
        }
        system.sync_below(ROOT).unwrap();
        assert_eq!(shown(&system, "f"), None, "{crash}");
        assert!(memory.objects().is_empty(), "{crash}");
        assert_eq!(system.happened().conflicts, 0);
        assert_eq!(restarted(&memory, &state).entries(ROOT).unwrap(), []);
    }
}

#[test]
fn a_directory_whose_removal_was_in_doubt_stays_if_something_is_made_in_it() {
    let (memory, state, system) = fixture();
    let made = Made { kind: Kind::Directory, mode: 0o700, uid: 0, gid: 0, target: None };
    let id = system.make(ROOT, "d", made, false).unwrap().id;
    system.sync_below(ROOT).unwrap();
    lose(&memory, "delete");
    system.rmdir(ROOT, "d").unwrap_err();
    let made = Made { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None };
    system.make(id, "f", made, false).unwrap();
    answer(&memory);
    assert_eq!(system.lookup(ROOT, "d").unwrap().attributes.mode, 0o700);
    system.sync_below(ROOT).unwrap();
    system.unlink(id, "f").unwrap();
    let system = restarted(&memory, &state);
    assert_eq!(system.lookup(ROOT, "d").unwrap().attributes.mode, 0o700);
}

/// What an open file is read from, once it has no name, is not where it is uploaded while it still has one.
#[test]
fn an_open_file_that_is_not_replaced_or_removed_after_all_keeps_its_key() {
    let fails: [fn(&FileSystem) -> Result<()>; 2] =
        [|system| system.rename((ROOT, "a"), (ROOT, "b"), true), |system| system.unlink(ROOT, "b")];
    for fail in fails {
        let (memory, state, system) = fixture();
        synced(&system, "a", b"content of a");
        let b = synced(&system, "b", b"content of b");
        system.open(b).unwrap();
        memory.fail(|kind, key| {
            let fails = (kind == "copy" && key == "pre/b") || kind == "delete";
            fails.then_some(Failure::Before)
        });
        fail(&system).unwrap_err();
        answer(&memory);
        system.write(b, 0, b"CONTENT").unwrap();
        system.sync_file(b).unwrap();
        assert_eq!(shown(&restarted(&memory, &state), "b").unwrap().0, b"CONTENT of b");
    }
}

/// A directory that was to be replaced, and was not, is still there, as it was.
#[test]
fn an_empty_directory_that_is_not_replaced_stays() {
    let (memory, state, system) = fixture();
    let made = |mode| Made { kind: Kind::Directory, mode, uid: 0, gid: 0, target: None };
    let from = system.make(ROOT, "from", made(0o755), false).unwrap().id;
    system.make(ROOT, "to", made(0o700), false).unwrap();
    let file = Made { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None };
    system.make(from, "f", file, false).unwrap();
    system.sync_below(ROOT).unwrap();
    memory.fail(|kind, key| {
        (kind == "copy" && key.ends_with("/f") || kind == "delete_many").then_some(Failure::Before)
    });
    system.rename((ROOT, "from"), (ROOT, "to"), true).unwrap_err();
    answer(&memory);
    for _ in 0..2 {
        assert_eq!(system.lookup(ROOT, "to").unwrap().attributes.mode, 0o700);
        assert_eq!(system.lookup(from, "f").unwrap().attributes.mode, 0o644);
        let _ = system.finish_leftovers();
        system.sync_below(ROOT).unwrap();
    }
    let system = restarted(&memory, &state);
    let to = system.lookup(ROOT, "to").unwrap();
    assert_eq!(to.attributes.mode, 0o700);
    assert_eq!(system.entries(to.id).unwrap(), []);
}

#[test]
fn a_file_without_a_name_is_not_uploaded() {
    let (memory, _state, system) = fixture();
    let id = file(&system, "f");
    system.unlink(ROOT, "f").unwrap();
    system.write(id, 0, b"of nobody").unwrap();
    system.sync_file(id).unwrap();
    assert!(memory.objects().is_empty());
    // Another file of that name is another file.
    synced(&system, "f", b"new");
    assert_eq!((system.entries(ROOT).unwrap().len(), system.happened().conflicts), (1, 0));
    assert_eq!(system.read(id, 0, 100).unwrap(), &b"of nobody"[..]);
}

#[test]
fn a_file_without_a_name_is_read_when_its_directory_is_gone() {
    let (_memory, _state, system) = fixture();
    let made = Made { kind: Kind::Directory, mode: 0o700, uid: 0, gid: 0, target: None };
    let directory = system.make(ROOT, "d", made, false).unwrap().id;
    let made = Made { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None };
    let id = system.make(directory, "f", made, true).unwrap().id;
    system.write(id, 0, b"content").unwrap();
    system.unlink(directory, "f").unwrap();
    system.rmdir(ROOT, "d").unwrap();
    system.forget(directory, 1);
    assert_eq!(system.read(id, 0, 100).unwrap(), &b"content"[..]);
    system.release(id);
}

#[test]
fn a_link_that_could_not_be_read_is_read_again() {
    let (memory, state, system) = fixture();
    let target = Some("x/y".to_owned());
    let made = Made { kind: Kind::Symlink, mode: 0o777, uid: 0, gid: 0, target: target.clone() };
    system.make(ROOT, "l", made, false).unwrap();
    system.sync_below(ROOT).unwrap();
    let system = restarted(&memory, &state);
    memory.fail(|kind, _| (kind == "get").then_some(Failure::Before));
    system.lookup(ROOT, "l").unwrap_err();
    answer(&memory);
    let id = system.lookup(ROOT, "l").unwrap().id;
    assert_eq!(system.target(id).ok(), target);
}
