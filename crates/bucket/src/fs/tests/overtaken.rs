//! Something begins with what is known of a file, and before it ends the file is another.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use super::crashes::Wreck;
use super::*;

fn opened(system: &FileSystem, name: &str, content: &[u8]) -> u64 {
    let id = file(system, name);
    system.write(id, 0, content).unwrap();
    system.sync_file(id).unwrap();
    id
}

fn set_mode(system: &FileSystem, id: u64, mode: u32) {
    let mode = Some(mode);
    system.set_attributes(id, NewAttributes { mode, ..Default::default() }).unwrap();
}

/// Content is kept here since the bucket did not take it. Then the bucket has more of it, and a crash takes the note about that.
#[test]
fn content_that_was_kept_is_not_taken_for_newer_than_the_object() {
    let (memory, state, system) = fixture();
    let id = opened(&system, "f", &[1; 100]);
    system.write(id, 100, &[2; 10]).unwrap();
    memory.fail(|_, _| Some(Failure::Before));
    system.sync_file(id).unwrap_err();
    system.keep_content(id).unwrap();
    memory.fail(|_, _| None);
    system.write(id, 110, &[3; 90]).unwrap();
    // While it is uploaded, attributes are set, which are pending after the crash.
    let durable = Arc::new(Mutex::new(0));
    let (at_upload, of) = (durable.clone(), system.clone());
    memory.fail(move |kind, key| {
        if ["put", "complete"].contains(&kind) && key == "pre/f" {
            set_mode(&of, id, 0o600);
            *at_upload.lock().unwrap() = of.state.durable_bytes();
        }
        None
    });
    system.sync_file(id).unwrap();
    memory.fail(|_, _| None);
    let content = [vec![1; 100], vec![2; 10], vec![3; 90]].concat();
    assert_eq!(memory.objects()["pre/f"], content);
    let durable = *durable.lock().unwrap();
    let wreck = Wreck::of(&memory, state.path(), Some(durable));
    let system = wreck.start();
    system.sync_below(ROOT).unwrap();
    assert_eq!(wreck.memory.objects()["pre/f"], content);
    assert_eq!(system.lookup(ROOT, "f").unwrap().attributes.mode, 0o600);
}

/// The answer is about the object before it was written anew.
#[test]
fn a_late_answer_takes_nothing_back() {
    let (memory, state) = (Arc::new(Memory::new(16)), tempfile::tempdir().unwrap());
    let system = open(&memory, state.path(), Duration::ZERO);
    let id = opened(&system, "f", &[1; 100]);
    let asked = Arc::new(AtomicU64::new(0));
    let heads = asked.clone();
    memory.fail(move |kind, _| {
        let is_first = kind == "head" && heads.fetch_add(1, Relaxed) == 0;
        is_first.then_some(Failure::Late(Duration::from_millis(500)))
    });
    std::thread::scope(|scope| {
        scope.spawn(|| system.open(id).unwrap());
        while asked.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        system.write(id, 100, &[2; 100]).unwrap();
        system.sync_file(id).unwrap();
    });
    assert_eq!(system.attributes(id).unwrap().size, 200);
    system.write(id, 200, &[3; 100]).unwrap();
    system.sync_file(id).unwrap();
    assert_eq!(memory.objects()["pre/f"], [vec![1; 100], vec![2; 100], vec![3; 100]].concat());
    assert_eq!(system.happened().conflicts, 0);
}

/// Attributes of a link are set by somebody who needs not wait until its target was read, and that fails.
#[test]
fn a_link_whose_target_is_not_known_keeps_it() {
    for crash in [false, true] {
        let (memory, state, mut system) = fixture();
        let user = [("mode".to_owned(), "41471".to_owned())].into();
        let properties = Properties { user, ..Properties::default() };
        let target = b"where \xff it leads".to_vec();
        memory.put("pre/l", target.clone(), &properties, &Condition::None).unwrap();
        let id = system.entries(ROOT).unwrap()[0].id;
        system.tree().nodes.get_mut(&id).unwrap().known = false;
        let of = system.clone();
        memory.fail(move |kind, _| {
            (kind == "get").then(|| {
                let uid = Some(7);
                of.set_attributes(id, NewAttributes { uid, ..Default::default() }).unwrap();
                Failure::Before
            })
        });
        system.lookup(ROOT, "l").unwrap_err();
        memory.fail(|_, _| None);
        if crash {
            system = Wreck::of(&memory, state.path(), None).start_on(&memory);
        }
        system.sync_below(ROOT).unwrap();
        assert_eq!(memory.objects()["pre/l"], target, "{crash}");
        let stat = system.lookup(ROOT, "l").unwrap();
        assert_eq!((stat.attributes.kind, stat.attributes.uid), (Kind::Symlink, 7));
        assert_eq!(system.target(stat.id).unwrap(), String::from_utf8_lossy(&target));
    }
}
