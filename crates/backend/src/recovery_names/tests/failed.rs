//! Recoveries from a log that had failed: home has what the log does not say.

use weir_log::Stage;
use weir_names::tree::Step;

use super::logs::Log;
use super::*;

const NAMES: [&str; 3] = ["one", "two", "three"];

/// The log renames three files to [`NAMES`], nodes 10 to 12. Home has the first two under each other's names, by renames that
/// were not logged, and the third one parked.
fn exchanged(source: &Source) {
    fs::create_dir(source.path(".weir/parked")).unwrap();
    for (name, content) in [("two", "one"), ("one", "two"), (".weir/parked/node-c", "three")] {
        fs::write(source.path(name), content).unwrap();
    }
}

fn renamed(mut log: Log) -> Log {
    for (nth, name) in NAMES.into_iter().enumerate() {
        log = log.rename(10 + nth as u64, at(1, &format!("old-{name}")), at(1, name), None);
    }
    log
}

fn note(source: &Source, lines: &[Noted]) {
    let mut note = NoteOfFailure::default();
    note.write(source.fd.as_fd(), &LOG, &lines[..1], true).unwrap();
    note.write(source.fd.as_fd(), &LOG, &lines[1..], false).unwrap();
}

fn step(stage: Stage, node: u64, from: Option<&str>, to: Option<&str>) -> Noted {
    let place = |name: Option<&str>| name.map(|name| at(1, name));
    Noted::Step(Step { node: NodeId(node), from: place(from), to: place(to) }, stage)
}

/// An inode under a name in SOURCE itself.
fn moved(identity: &[u8], name: &str) -> Moved {
    let (identity, name) = (identity.to_vec(), name.as_bytes().to_vec());
    Moved { identity, directory: Vec::new(), name }
}

fn contents(source: &Source) -> Vec<(String, String)> {
    let names = source.names(".").into_iter();
    names.map(|name| (name.clone(), fs::read_to_string(source.path(name)).unwrap())).collect()
}

fn as_logged() -> Vec<(String, String)> {
    ["one", "three", "two"].map(|name| (name.to_owned(), name.to_owned())).to_vec()
}

#[test]
fn what_was_moved_after_the_log_failed_goes_where_the_log_has_it() {
    for is_noted in [true, false] {
        let Some(source) = Source::new() else { return };
        exchanged(&source);
        let paths = ["two", "one", ".weir/parked/node-c"];
        let known = paths.iter().zip(10..).fold(Log::default(), |log, (path, node)| {
            log.known(node, Kind::File, source.handle(path))
        });
        let log = renamed(known);
        if is_noted {
            note(&source, &[Noted::Failed, Noted::Inode(NodeId(77), source.handle("one"))]);
            log.recover_all(&source);
            assert_eq!(contents(&source), as_logged());
        } else {
            // Somebody else may have done it.
            assert_eq!(log.recover(&source).conflicts.len(), 2);
        }
    }
}

#[test]
fn the_note_of_a_failed_log_says_where_nodes_are() {
    let Some(source) = Source::new() else { return };
    exchanged(&source);
    // The log says where they were before.
    let old = NAMES.iter().zip(10..).fold(Log::default(), |log, (name, node)| {
        log.placed(node, Kind::File, at(1, &format!("old-{name}")))
    });
    let log = renamed(old).step(Stage::Begun, 10, Some(at(1, "old-one")), Some(at(1, "one"))).step(
        Stage::Done,
        11,
        Some(at(1, "old-two")),
        Some(at(1, "two")),
    );
    note(
        &source,
        &[
            Noted::Failed,
            step(Stage::Done, 10, None, Some("one")),
            step(Stage::Done, 11, None, Some("two")),
            step(Stage::Done, 12, None, Some("three")),
            step(Stage::Begun, 12, Some("three"), None),
            step(Stage::Done, 12, Some("three"), None),
            step(Stage::Done, 11, Some("two"), Some("three")),
            step(Stage::Begun, 10, Some("one"), Some("two")),
            step(Stage::Done, 10, Some("one"), Some("two")),
            step(Stage::Begun, 11, Some("three"), Some("one")),
        ],
    );
    let recovered = log.recover_by(&source, Finding::Names);
    assert_eq!((recovered.left, recovered.conflicts), (vec![], vec![]));
    assert_eq!(contents(&source), as_logged());
}

#[test]
fn what_has_no_other_place_by_the_log_is_set_aside() {
    let Some(source) = Source::new() else { return };
    // The log sets something of node 10 and renames node 11; then 10 was renamed to the name of 11, and 11 elsewhere.
    fs::write(source.path("name"), "ten").unwrap();
    fs::write(source.path("elsewhere"), "eleven").unwrap();
    let log = Log::default()
        .known(10, Kind::File, source.handle("name"))
        .known(11, Kind::File, source.handle("elsewhere"))
        .change(Change::Set { node: NodeId(10), attributes: attributes(0o600) })
        .rename(11, at(1, "old"), at(1, "name"), None);
    note(&source, &[Noted::Failed]);
    let recovered = log.recover(&source);
    assert_eq!((recovered.conflicts.len(), recovered.set_aside.len()), (0, 1));
    let found = contents(&source);
    assert!(found.contains(&("name".to_owned(), "eleven".to_owned())), "{found:?}");
    assert!(found.contains(&("name.weir-conflict-1".to_owned(), "ten".to_owned())), "{found:?}");
}

#[test]
fn what_was_made_after_the_log_failed_is_known_by_the_note() {
    let Some(source) = Source::new() else { return };
    fs::write(source.path("file"), "content").unwrap();
    let log = Log::default().make(10, at(1, "file"), Kind::File);
    note(&source, &[Noted::Failed, Noted::Inode(NodeId(10), source.handle("file"))]);
    let recovered = log.recover_all(&source);
    assert_eq!(recovered.counts.made, 0);
    assert_eq!(recovered.identity_of(NodeId(10)), Some(&source.handle("file")[..]));
}

#[test]
fn after_an_error_the_note_is_written_anew() {
    let Some(source) = Source::new() else { return };
    let mut note = NoteOfFailure::default();
    let write = |note: &mut NoteOfFailure, node, anew| {
        let lines = [Noted::Failed, Noted::Inode(NodeId(node), vec![1])];
        note.write(source.fd.as_fd(), &LOG, &lines, anew)
    };
    let read = || Note::read(source.fd.as_fd(), LOG).unwrap().1;
    write(&mut note, 10, true).unwrap();
    write(&mut note, 11, false).unwrap();
    assert_eq!(read().len(), 4);
    fs::create_dir(source.path(".weir/recovered.new")).unwrap();
    write(&mut note, 12, true).unwrap_err();
    assert_eq!(read().len(), 4);
    fs::remove_dir(source.path(".weir/recovered.new")).unwrap();
    write(&mut note, 13, true).unwrap();
    assert_eq!(read(), [Noted::Failed, Noted::Inode(NodeId(13), vec![1])]);
}

/// Home had `old` when the log failed, of which the log says nothing; it was exchanged with, or moved over, what the log has as `name`,
/// or parked.
#[test]
fn what_the_log_does_not_speak_of_goes_back_to_where_it_was() {
    for (content, is_now) in
        [("", "name"), ("old", "name"), ("", ".weir/parked/unlogged-node-5"), ("old", "new")]
    {
        let Some(source) = Source::new() else { return };
        fs::create_dir(source.path(".weir/parked")).unwrap();
        fs::write(source.path(is_now), content).unwrap();
        fs::write(source.path("moved"), "logged").unwrap();
        let log = Log::default().make(10, at(1, "name"), Kind::File).known(
            10,
            Kind::File,
            source.handle("moved"),
        );
        let (old, logged) = (source.handle(is_now), source.handle("moved"));
        note(
            &source,
            &[
                Noted::Failed,
                Noted::Was(moved(&logged, "name")),
                Noted::May(moved(&logged, "moved")),
                Noted::Was(moved(&old, "old")),
                Noted::May(moved(&old, "name")),
                Noted::May(moved(&old, "new")),
            ],
        );
        // It may be cut anywhere.
        for commands_max in 0..4 {
            let home = HomeNames::new(source.fd.as_fd()).unwrap();
            let (records, end) = (log.0.clone(), log.end());
            let mut recovery =
                Recovery::new(source.fd.as_fd(), &home, &LOG, records, end, None).unwrap();
            recovery.run(commands_max).unwrap();
        }
        log.recover_all(&source);
        let expected = [("name", "logged"), ("old", content)];
        let expected = expected.map(|(name, content)| (name.to_owned(), content.to_owned()));
        assert_eq!(contents(&source), expected, "{content:?} is at {is_now}");
        assert_eq!(source.handle("old"), old);
        assert!(source.names(".weir/parked").is_empty());
    }
}

#[test]
fn by_their_names_too_and_what_was_removed_stays_so() {
    let Some(source) = Source::new() else { return };
    fs::create_dir(source.path(".weir/parked")).unwrap();
    for (name, content) in [
        ("name", "old"),
        ("c", "logged"),
        ("again", "new"),
        ("over", "old-2"),
        (".weir/parked/node-1e/", ""),
        (".weir/parked/node-1e/below", "below"),
    ] {
        match name.strip_suffix('/') {
            Some(directory) => fs::create_dir(source.path(directory)).unwrap(),
            None => fs::write(source.path(name), content).unwrap(),
        }
    }
    let log = Log::default()
        .placed(10, Kind::File, at(1, "before"))
        .rename(10, at(1, "before"), at(1, "name"), None)
        .placed(11, Kind::File, at(1, "x"))
        .rename(11, at(1, "x"), at(1, "again"), None)
        .placed(12, Kind::File, at(1, "y"))
        .rename(12, at(1, "y"), at(1, "over"), None);
    note(
        &source,
        &[
            Noted::Failed,
            step(Stage::Done, 10, None, Some("name")),
            step(Stage::Done, 11, None, Some("again")),
            step(Stage::Done, 20, None, Some("old")),
            step(Stage::Begun, 10, Some("name"), Some("c")),
            step(Stage::Done, 10, Some("name"), Some("c")),
            step(Stage::Begun, 20, Some("old"), Some("name")),
            step(Stage::Done, 20, Some("old"), Some("name")),
            step(Stage::Done, 30, None, Some("directory")),
            step(Stage::Begun, 30, Some("directory"), None),
            step(Stage::Begun, 11, Some("again"), None),
            step(Stage::Done, 11, Some("again"), None),
            // Node 12 was replaced.
            step(Stage::Done, 12, None, Some("over")),
            step(Stage::Done, 50, None, Some("old-2")),
            step(Stage::Begun, 50, Some("old-2"), Some("over")),
            step(Stage::Done, 50, Some("old-2"), Some("over")),
            step(Stage::Begun, 40, None, Some("again")),
            step(Stage::Done, 40, None, Some("again")),
        ],
    );
    let recovered = log.recover_by(&source, Finding::Names);
    assert_eq!((recovered.left, recovered.conflicts), (vec![], vec![]));
    let found = |name: &str| fs::read_to_string(source.path(name)).unwrap();
    assert_eq!(source.names("."), ["again", "directory", "name", "old", "over"]);
    assert_eq!(
        ["again", "name", "old", "over", "directory/below"].map(found),
        ["new", "logged", "old", "old-2", "below"]
    );
}

#[test]
fn what_replaced_something_that_is_gone_stays() {
    let Some(source) = Source::new() else { return };
    fs::write(source.path("gone"), "").unwrap();
    fs::write(source.path("name"), "old").unwrap();
    let (gone, old) = (source.handle("gone"), source.handle("name"));
    let log = Log::default().known(10, Kind::File, gone.clone()).rename(
        10,
        at(1, "before"),
        at(1, "name"),
        None,
    );
    fs::remove_file(source.path("gone")).unwrap();
    let lines = [
        Noted::Failed,
        Noted::Was(moved(&old, "old")),
        Noted::Was(moved(&gone, "name")),
        Noted::May(moved(&old, "name")),
    ];
    note(&source, &lines);
    let recovered = log.recover(&source);
    assert_eq!((recovered.left, recovered.conflicts), (vec![], vec![]));
    assert_eq!(contents(&source), [("name".to_owned(), "old".to_owned())]);
}

fn done(node: u64, from: Option<Place>, to: Option<Place>) -> Noted {
    Noted::Step(Step { node: NodeId(node), from, to }, Stage::Done)
}

#[test]
fn a_directory_goes_back_from_a_name_below_what_the_log_moves_into_it() {
    let Some(source) = Source::new() else { return };
    // The log moves b into a. Then b was moved out again, a file in it removed, and a moved to the name of that.
    fs::create_dir_all(source.path("elsewhere/x")).unwrap();
    let log = Log::default()
        .placed(10, Kind::Directory, at(1, "a"))
        .placed(11, Kind::Directory, at(1, "b"))
        .placed(12, Kind::File, at(11, "x"))
        .rename(11, at(1, "b"), at(10, "b"), None);
    note(
        &source,
        &[
            Noted::Failed,
            done(10, None, Some(at(1, "a"))),
            done(11, None, Some(at(1, "b"))),
            done(12, None, Some(at(11, "x"))),
            done(11, Some(at(1, "b")), Some(at(10, "b"))),
            done(11, Some(at(10, "b")), Some(at(1, "elsewhere"))),
            done(12, Some(at(11, "x")), None),
            done(10, Some(at(1, "a")), Some(at(11, "x"))),
        ],
    );
    let recovered = log.recover_by(&source, Finding::Names);
    assert!(recovered.left.is_empty() && recovered.told().is_empty(), "{recovered:?}");
    assert_eq!((source.names("."), source.names("a")), (vec!["a".into()], vec!["b".to_owned()]));
    assert!(source.names("a/b").is_empty());
}

#[test]
fn what_came_after_the_log_failed_makes_room_for_what_goes_back() {
    for finding in [Finding::Names, Finding::Handles] {
        let Some(source) = Source::new() else { return };
        fs::write(source.path("other"), "old").unwrap();
        fs::write(source.path("name"), "new").unwrap();
        let (old, new) = (source.handle("other"), source.handle("name"));
        let log = match finding {
            Finding::Names => Log::default().placed(10, Kind::File, at(1, "name")),
            _ => Log::default().known(10, Kind::File, old.clone()),
        };
        let by_name = [
            done(10, None, Some(at(1, "name"))),
            done(10, Some(at(1, "name")), Some(at(1, "other"))),
            step(Stage::Begun, 20, None, Some("name")),
            done(20, None, Some(at(1, "name"))),
        ];
        let by_handle = [
            Noted::Was(moved(&old, "name")),
            Noted::May(moved(&old, "other")),
            Noted::Inode(NodeId(20), new),
        ];
        let lines = if finding == Finding::Names { &by_name[..] } else { &by_handle[..] };
        note(&source, &[&[Noted::Failed], lines].concat());
        let recovered = log.recover_by(&source, finding);
        let aside = ("name.weir-conflict-1".to_owned(), "new".to_owned());
        assert_eq!(contents(&source), [("name".to_owned(), "old".to_owned()), aside]);
        assert!(recovered.conflicts.is_empty() && recovered.set_aside.len() == 1);
        log.recover_by(&source, finding);
        assert_eq!(contents(&source).len(), 2);
    }
}

#[test]
fn a_directory_that_was_removed_after_the_log_failed_is_made_again_for_what_goes_back() {
    for finding in [Finding::Names, Finding::Handles] {
        let Some(source) = Source::new() else { return };
        fs::create_dir_all(source.path("d/empty")).unwrap();
        fs::write(source.path("moved"), "x").unwrap();
        let [directory, empty, file] = ["d", "d/empty", "moved"].map(|path| source.handle(path));
        fs::remove_dir(source.path("d/empty")).unwrap();
        fs::remove_dir(source.path("d")).unwrap();
        let log = match finding {
            Finding::Names => Log::default()
                .placed(10, Kind::Directory, at(1, "d"))
                .placed(11, Kind::File, at(10, "x"))
                .placed(12, Kind::Directory, at(10, "empty")),
            _ => Log::default()
                .known(10, Kind::Directory, directory.clone())
                .known(11, Kind::File, file.clone())
                .known(12, Kind::Directory, empty.clone())
                .rename(11, at(10, "y"), at(10, "x"), None),
        };
        let by_name = [
            done(10, None, Some(at(1, "d"))),
            done(11, None, Some(at(10, "x"))),
            done(12, None, Some(at(10, "empty"))),
            done(11, Some(at(10, "x")), Some(at(1, "moved"))),
            done(12, Some(at(10, "empty")), None),
            done(10, Some(at(1, "d")), None),
        ];
        let by_handle = [Noted::May(moved(&file, "moved")), Noted::Was(moved(&directory, "d"))];
        let lines = if finding == Finding::Names { &by_name[..] } else { &by_handle[..] };
        note(&source, &[&[Noted::Failed], lines].concat());
        log.recover_by(&source, finding);
        assert_eq!(
            (source.names("."), source.names("d")),
            (vec!["d".into()], vec!["x".to_owned()])
        );
        assert_eq!(fs::read_to_string(source.path("d/x")).unwrap(), "x");
    }
}

#[test]
fn what_took_the_name_of_what_is_gone_has_no_other_name() {
    for is_done in [true, false] {
        let Some(source) = Source::new() else { return };
        fs::write(source.path("target"), "new").unwrap();
        // The log renames it, which home may not have done before it replaced the target.
        let log = Log::default()
            .placed(10, Kind::File, at(1, "made"))
            .placed(11, Kind::File, at(1, "target"))
            .rename(10, at(1, "made"), at(1, "new"), None);
        let from = if is_done { "new" } else { "made" };
        let mut lines = vec![
            Noted::Failed,
            done(10, None, Some(at(1, "made"))),
            done(11, None, Some(at(1, "target"))),
        ];
        if is_done {
            lines.push(done(10, Some(at(1, "made")), Some(at(1, "new"))));
        }
        lines.push(done(10, Some(at(1, from)), Some(at(1, "target"))));
        note(&source, &lines);
        let recovered = log.recover_by(&source, Finding::Names);
        assert!(recovered.left.is_empty() && recovered.told().is_empty(), "{recovered:?}");
        assert_eq!(contents(&source), [("target".to_owned(), "new".to_owned())]);
    }
}
