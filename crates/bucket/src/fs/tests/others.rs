//! Objects of other programs: what is done here beside them, or left over, takes none of them away.

use std::sync::Mutex;

use super::crashes::Wreck;
use super::*;

fn put(memory: &Memory, key: &str, content: &[u8]) {
    memory.put(key, content.to_vec(), &Properties::default(), &Condition::None).unwrap();
}

fn synced(system: &FileSystem, name: &str, content: &[u8]) -> u64 {
    let id = file(system, name);
    system.write(id, 0, content).unwrap();
    system.sync_file(id).unwrap();
    system.release(id);
    id
}

/// What a crash before the first request of a kind leaves, once that was made.
fn crash_at(
    memory: &Arc<Memory>,
    state: &tempfile::TempDir,
    kind: &'static str,
) -> Arc<Mutex<Option<Wreck>>> {
    let wreck = Arc::new(Mutex::new(None));
    let (found, bucket, path) = (wreck.clone(), memory.clone(), state.path().to_owned());
    memory.fail(move |asked, _| {
        if asked == kind {
            found.lock().unwrap().get_or_insert_with(|| Wreck::of(&bucket, &path, None));
        }
        None
    });
    wreck
}

/// What another machine finds.
fn names_elsewhere(memory: &Arc<Memory>) -> Vec<String> {
    let state = tempfile::tempdir().unwrap();
    let other = open(memory, state.path(), Duration::ZERO);
    other.entries(ROOT).unwrap().into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_directory_stays_when_its_last_object_goes() {
    let (memory, _state, system) = fixture();
    put(&memory, "pre/d/x", b"x");
    put(&memory, "pre/d/y", b"y");
    let d = system.lookup(ROOT, "d").unwrap().id;
    // A name that the bucket does not have yet is in it meanwhile.
    let made = Made { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None };
    system.make(d, ".lock", made, false).unwrap();
    system.unlink(d, "x").unwrap();
    system.rename((d, "y"), (ROOT, "y"), true).unwrap();
    system.unlink(d, ".lock").unwrap();
    system.sync_below(ROOT).unwrap();
    assert_eq!(names_elsewhere(&memory), ["d", "y"]);
}

#[test]
fn a_marker_that_has_content_keeps_it() {
    let (memory, _state, system) = fixture();
    put(&memory, "pre/e/", b"content");
    let e = system.lookup(ROOT, "e").unwrap().id;
    let mode = Some(0o700);
    let set = || system.set_attributes(e, NewAttributes { mode, ..Default::default() }).unwrap();
    set();
    system.sync_below(ROOT).unwrap();
    assert_eq!(memory.objects()["pre/e/"], b"content", "it was not listed yet");
    let own = system.lookup(e, "weir%=").unwrap().id;
    assert_eq!(system.read(own, 0, 10).unwrap(), &b"content"[..]);
    system.tree().nodes.get_mut(&e).unwrap().attributes.mode = 0;
    set();
    system.sync_below(ROOT).unwrap();
    assert_eq!(memory.objects()["pre/e/"], b"content");
    let head = Store::head(&*memory, "pre/e/").unwrap();
    assert_eq!(head.properties.user.get("mode").map(String::as_str), Some("16832"));
    // Another program writes other content there.
    put(&memory, "pre/e/", b"other content");
    system.tree().nodes.get_mut(&e).unwrap().attributes.mode = 0;
    set();
    system.sync_below(ROOT).unwrap();
    assert_eq!(memory.objects()["pre/e/"], b"other content");
    system.tree().nodes.get_mut(&e).unwrap().entries.listed = None;
    // Without it the directory stays.
    system.unlink(e, "weir%=").unwrap();
    system.sync_below(ROOT).unwrap();
    assert_eq!(memory.objects(), [("pre/e/".to_owned(), Vec::new())].into());
}

/// The bytes of a directory's marker are two nodes here, and one object.
#[test]
fn a_marker_that_has_content_is_known_after_a_start_and_under_both_names() {
    let (memory, state, mut system) = fixture();
    put(&memory, "pre/e/", b"content");
    let set = |system: &FileSystem| {
        let e = system.lookup(ROOT, "e").unwrap().id;
        let own = system.lookup(e, "weir%=").unwrap().id;
        let mode = Some(0o700);
        system.set_attributes(e, NewAttributes { mode, ..Default::default() }).unwrap();
        own
    };
    set(&system);
    let wreck = Wreck::of(&memory, state.path(), None);
    system = wreck.start_on(&memory);
    system.sync_below(ROOT).unwrap();
    assert_eq!(memory.objects()["pre/e/"], b"content");
    system.lookup(ROOT, "e").unwrap();
    let id = system.tree().child(ROOT, "e").unwrap();
    system.tree().nodes.get_mut(&id).unwrap().attributes.mode = 0;
    let own = set(&system);
    system.sync_below(ROOT).unwrap();
    // The other node knows what the directory's upload made.
    system.open(own).unwrap();
    system.write(own, 7, b", and more").unwrap();
    system.sync_file(own).unwrap();
    assert_eq!(memory.objects(), [("pre/e/".into(), b"content, and more".to_vec())].into());
    assert_eq!(system.happened().conflicts, 0);
}

#[test]
fn a_directory_stays_when_all_below_is_removed_and_it_had_no_marker() {
    let (memory, _state, system) = fixture();
    put(&memory, "pre/d/s/x", b"x");
    put(&memory, "pre/f/s/x", b"x");
    let below = |name: &str| {
        let parent = system.lookup(ROOT, name).unwrap().id;
        let sub = system.lookup(parent, "s").unwrap().id;
        system.unlink(sub, "x").unwrap();
        parent
    };
    let d = below("d");
    system.rmdir(d, "s").unwrap();
    let f = below("f");
    system.rename((f, "s"), (ROOT, "s"), true).unwrap();
    system.sync_below(ROOT).unwrap();
    assert_eq!(names_elsewhere(&memory), ["d", "f", "s"]);
}

#[test]
fn a_directory_stays_when_a_new_file_that_replaced_its_only_object_is_renamed_and_removed() {
    let (memory, _state, system) = fixture();
    put(&memory, "pre/p/A", b"A");
    let p = system.lookup(ROOT, "p").unwrap().id;
    let made = Made { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None };
    system.make(p, "T", made, false).unwrap();
    system.rename((p, "T"), (p, "A"), true).unwrap();
    system.rename((p, "A"), (p, "B"), true).unwrap();
    system.unlink(p, "B").unwrap();
    system.sync_below(ROOT).unwrap();
    assert_eq!(names_elsewhere(&memory), ["p"]);
}

/// What is pending of the content of a directory's marker is no file in the directory's place.
#[test]
fn pending_content_of_a_marker_is_that_after_a_start() {
    let (memory, state, system) = fixture();
    put(&memory, "pre/d/", b"content");
    put(&memory, "pre/d/x", b"x");
    let d = system.lookup(ROOT, "d").unwrap().id;
    for name in ["weir%=", "x"] {
        let id = system.lookup(d, name).unwrap().id;
        let mode = Some(0o600);
        system.set_attributes(id, NewAttributes { mode, ..Default::default() }).unwrap();
    }
    let wreck = Wreck::of(&memory, state.path(), None);
    let system = wreck.start();
    system.sync_below(ROOT).unwrap();
    let objects = [("pre/d/".into(), b"content".to_vec()), ("pre/d/x".into(), b"x".to_vec())];
    assert_eq!(wreck.memory.objects(), objects.into());
    let d = system.lookup(ROOT, "d").unwrap();
    assert_eq!(d.attributes.kind, Kind::Directory);
    for name in ["weir%=", "x"] {
        assert_eq!(system.lookup(d.id, name).unwrap().attributes.mode, 0o600, "{name}");
    }
}

/// A crash while the content of a marker, the last object of its directory, is moved away.
#[test]
fn a_rename_of_a_markers_content_that_a_crash_cut_moves_nothing_else() {
    for kind in ["copy", "delete"] {
        let (memory, state, system) = fixture();
        put(&memory, "pre/d/", b"content");
        put(&memory, "pre/e/y", b"y");
        let d = system.lookup(ROOT, "d").unwrap().id;
        let e = system.lookup(ROOT, "e").unwrap().id;
        let wreck = crash_at(&memory, &state, kind);
        system.rename((d, "weir%="), (e, "x"), true).unwrap();
        let wreck = wreck.lock().unwrap().take().unwrap();
        wreck.start().sync_below(ROOT).unwrap();
        let objects = wreck.memory.objects();
        let keys: Vec<&str> = objects.keys().map(String::as_str).collect();
        assert_eq!(keys, ["pre/d/", "pre/e/x", "pre/e/y"], "{kind}");
        assert_eq!((&objects["pre/d/"][..], &objects["pre/e/x"][..]), (&b""[..], &b"content"[..]));
    }
}

/// The end of a rename could not be noted. Once it can, all goes on, and a start finds nothing to be done.
#[test]
fn a_rename_whose_end_could_not_be_noted_is_noted_later() {
    let (memory, state, system) = fixture();
    synced(&system, "a", b"content");
    let id = synced(&system, "b", b"other");
    let failed = crate::fs::tree::Move {
        from: "a".into(),
        to: "b".into(),
        etag: None,
        replaced: None,
        room: 0,
        failed: true,
        copied: None,
    };
    system.state.append(&[failed.noted(1000)]).unwrap();
    system.tree().moves.insert(1000, failed);
    system.open(id).unwrap();
    system.write(id, 0, b"OTHER").unwrap();
    system.sync_file(id).unwrap_err();
    system.finish_leftovers().unwrap();
    system.sync_file(id).unwrap();
    let wreck = Wreck::of(&memory, state.path(), None);
    wreck.start().sync_below(ROOT).unwrap();
    let objects = [("pre/a".into(), b"content".to_vec()), ("pre/b".into(), b"OTHER".to_vec())];
    assert_eq!(wreck.memory.objects(), objects.into());
}

/// The store is away after the objects of a directory were copied.
#[test]
fn little_is_asked_for_again_and_again_about_what_a_rename_left() {
    let (memory, _state, system) = fixture();
    for number in 0..40 {
        put(&memory, &format!("pre/a/{number}"), b"content");
    }
    memory.fail(|kind, _| kind.starts_with("delete").then_some(Failure::Before));
    system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap();
    assert_eq!(system.tree().leftovers.len(), 40);
    memory.fail(|_, _| Some(Failure::Before));
    let before = system.store.counts().now().requests;
    let _ = system.finish_leftovers();
    let asked = system.store.counts().now().requests - before;
    assert!(asked <= 3, "{asked} requests");
    memory.fail(|_, _| None);
    let _ = system.finish_leftovers();
    assert_eq!((system.tree().leftovers.len(), memory.objects().len()), (0, 40));
}

/// s3fs keeps all metadata of an object that it appends to, also the identity of our write.
#[test]
fn an_object_with_our_identity_may_be_somebody_elses() {
    for crash in [false, true] {
        let (memory, state, mut system) = fixture();
        let id = synced(&system, "f", b"ours");
        let head = Store::head(&*memory, "pre/f").unwrap();
        system.open(id).unwrap();
        system.write(id, 4, b" again").unwrap();
        memory
            .put("pre/f", b"ours, and theirs".to_vec(), &head.properties, &Condition::None)
            .unwrap();
        if crash {
            system.keep_content(id).unwrap();
            system = Wreck::of(&memory, state.path(), None).start_on(&memory);
        }
        system.sync_below(ROOT).unwrap();
        let objects = memory.objects();
        assert_eq!(objects["pre/f"], b"ours, and theirs", "{crash}");
        let beside = objects.iter().find(|(key, _)| key.contains("f.weir-conflict-"));
        assert_eq!(beside.unwrap().1, b"ours again", "{crash}");
        assert_eq!(system.happened().conflicts, 1);
    }
}

/// The old object of a rename could not be removed, and somebody else has written there since.
#[test]
fn what_a_rename_left_is_removed_unless_it_is_another_by_now() {
    for (crash, by_others) in [(false, false), (false, true), (true, false), (true, true)] {
        let (memory, state, mut system) = fixture();
        synced(&system, "a", b"content");
        memory.fail(|kind, _| kind.starts_with("delete").then_some(Failure::Before));
        system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap();
        memory.fail(|_, _| None);
        if by_others {
            put(&memory, "pre/a", b"theirs");
        }
        if crash {
            system = Wreck::of(&memory, state.path(), None).start_on(&memory);
        }
        let _ = system.finish_leftovers();
        let found: Vec<String> = memory.objects().into_keys().collect();
        let wanted: &[&str] = if by_others { &["pre/a", "pre/b"] } else { &["pre/b"] };
        assert_eq!(found, wanted, "{crash}");
        assert!(system.tree().leftovers.is_empty());
    }
}

/// A crash in the midst of a rename, and others write at either end before the next start.
#[test]
fn a_rename_that_a_crash_cut_takes_nothing_of_others() {
    for kind in ["copy", "delete"] {
        for theirs in ["pre/a", "pre/b", ""] {
            let (memory, state, system) = fixture();
            synced(&system, "a", b"content of a");
            synced(&system, "b", b"content of b");
            let wreck = crash_at(&memory, &state, kind);
            system.rename((ROOT, "a"), (ROOT, "b"), true).unwrap();
            let wreck = wreck.lock().unwrap().take().unwrap();
            if !theirs.is_empty() {
                put(&wreck.memory, theirs, b"theirs");
            }
            let system = wreck.start();
            system.sync_below(ROOT).unwrap();
            let objects = wreck.memory.objects();
            match theirs {
                "" => assert_eq!(objects, [("pre/b".into(), b"content of a".to_vec())].into()),
                _ => assert_eq!(objects[theirs], b"theirs", "{kind} {theirs}"),
            }
            // What somebody else has not written over is under either name.
            let is_there = objects.values().any(|bytes| bytes == b"content of a");
            assert!(
                is_there || theirs == "pre/a" && kind == "copy",
                "{kind} {theirs}: {objects:?}"
            );
        }
    }
}
