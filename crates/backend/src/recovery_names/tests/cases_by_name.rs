//! One thing at a time, where nodes are found by their names.

use std::os::unix::fs::{MetadataExt, symlink};

use weir_log::{Home, Stage};

use weir_names::tree::Step;

use super::logs::Log;
use super::*;
use crate::identity::as_path;
use crate::recovery::Recovered;

const BEGUN: Stage = Stage::Begun;

fn root(name: &str) -> Option<Place> {
    Some(at(1, name))
}

impl Source {
    /// Files with these paths, each with its path as content; what ends with a slash is a directory.
    fn with(paths: &[&str]) -> Option<Source> {
        let source = Source::new()?;
        for path in paths {
            match path.strip_suffix('/') {
                Some(directory) => fs::create_dir(source.path(directory)).unwrap(),
                None => fs::write(source.path(path), path).unwrap(),
            }
        }
        Some(source)
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }
}

fn path_of(recovered: &RecoveredNames, node: u64) -> Option<&Path> {
    as_path(recovered.identity_of(NodeId(node))?)
}

#[test]
fn a_log_that_only_says_where_nodes_are_has_their_paths() {
    let Some(source) = Source::with(&["dir/", "dir/file", "other"]) else { return };
    let log = Log::default()
        .placed(10, Kind::Directory, at(1, "dir"))
        .placed(11, Kind::File, at(10, "file"))
        .placed(12, Kind::File, at(1, "other"))
        // Another node has its name now.
        .placed(13, Kind::File, at(1, "other"));
    let recovered = log.recover_all(&source);
    assert_eq!(recovered.counts, Counts::default());
    assert_eq!(path_of(&recovered, 11), Some(Path::new("dir/file")));
    assert_eq!(
        (path_of(&recovered, 12), path_of(&recovered, 13)),
        (None, Some(Path::new("other")))
    );
    assert!(!source.path(".weir/recovered").exists());
}

#[test]
fn home_says_whether_steps_were_done_from_the_topmost_directory_down() {
    // What was moved: nothing, the directory, the file in it, both.
    for moved in 0..4 {
        let Some(source) = Source::with(&["dir/", "dir/file"]) else { return };
        if moved & 2 > 0 {
            fs::rename(source.path("dir/file"), source.path("dir/moved")).unwrap();
        }
        if moved & 1 > 0 {
            fs::rename(source.path("dir"), source.path("to")).unwrap();
        }
        // Below the directory, and the step of what is below comes first.
        let log = Log::default()
            .placed(10, Kind::Directory, at(1, "dir"))
            .placed(11, Kind::File, at(10, "file"))
            .rename(11, at(10, "file"), at(10, "moved"), None)
            .rename(10, at(1, "dir"), at(1, "to"), None)
            .step(BEGUN, 11, Some(at(10, "file")), Some(at(10, "moved")))
            .step(BEGUN, 10, root("dir"), root("to"));
        let recovered = log.recover_all(&source);
        assert_eq!(source.names("."), ["to"], "{moved}");
        assert_eq!(
            (source.names("to"), source.content("to/moved")),
            (vec!["moved".to_owned()], "dir/file".to_owned())
        );
        assert_eq!(path_of(&recovered, 11), Some(Path::new("to/moved")));
        assert_eq!(recovered.counts.renamed, 2 - (moved as u32).count_ones() as usize);
    }
}

#[test]
fn what_is_parked_is_the_node_of_its_name_whatever_is_in_it() {
    // Where node 10 is: in its old place, parked, or in its new place, where node 11 was.
    for is_now in ["old", ".weir/parked/node-a", "new"] {
        let Some(source) = Source::with(&["old", "new"]) else { return };
        fs::create_dir(source.path(".weir/parked")).unwrap();
        fs::rename(source.path("old"), source.path(is_now)).unwrap();
        let mut log = Log::default()
            .placed(10, Kind::File, at(1, "old"))
            .placed(11, Kind::File, at(1, "new"))
            .rename(10, at(1, "old"), at(1, "new"), Some(11))
            .step(BEGUN, 10, root("old"), None);
        if is_now != "old" {
            log = log.step(Stage::Done, 10, root("old"), None).step(BEGUN, 10, None, root("new"));
        }
        log.recover_all(&source);
        assert_eq!(source.names("."), ["new"], "{is_now}");
        assert_eq!(source.content("new"), "old");
        assert!(source.names(".weir/parked").is_empty());
    }
    // The log does not have any more where it was.
    for is_begun in [false, true] {
        let Some(source) = Source::with(&[]) else { return };
        fs::create_dir(source.path(".weir/parked")).unwrap();
        fs::write(source.path(".weir/parked/node-a"), "kept").unwrap();
        let mut log = Log::default().rename(10, at(1, "old"), at(1, "new"), None);
        if is_begun {
            log = log.step(BEGUN, 10, None, root("new"));
        }
        let recovered = log.recover_by(&source, Finding::Names);
        assert_eq!(
            (source.names("."), source.content("new")),
            (vec!["new".to_owned()], "kept".to_owned())
        );
        assert_eq!(path_of(&recovered, 10), Some(Path::new("new")));
    }
}

#[test]
fn what_is_parked_and_not_known_is_removed_only_if_nothing_is_in_it() {
    let Some(source) = Source::with(&[]) else { return };
    fs::create_dir(source.path(".weir/parked")).unwrap();
    for (name, content) in
        [("node-b", ""), ("node-c", "content"), ("left-1", ""), ("unlogged-node-a", "")]
    {
        fs::write(source.path(".weir/parked").join(name), content).unwrap();
    }
    let log = Log::default().make(10, at(1, "file"), Kind::File);
    log.recover_by(&source, Finding::Names);
    assert_eq!(source.names(".weir/parked"), ["left-1", "left-2", "left-3"]);
}

#[test]
fn many_names_cost_few_durable_writes() {
    let Some(source) = Source::in_memory() else { return };
    let mut log = Log::default().step(Stage::Undone, 10, None, root("dir"));
    log = log.make(10, at(1, "dir"), Kind::Directory);
    for node in 100..1100 {
        log = log.make(node, at(10, &format!("file-{node}")), Kind::File);
    }
    let recovered = log.recover_all(&source);
    assert_eq!(recovered.counts.made, 1001);
    let note = fs::read_to_string(source.path(".weir/recovered")).unwrap();
    // The directory, the files, and what the looks before them let through.
    let writes = note.lines().filter(|line| line.starts_with("end")).count();
    assert!(writes <= 12, "{writes}");
}

#[test]
fn a_link_was_made_if_its_name_is_there() {
    for is_done in [false, true] {
        let Some(source) = Source::with(&["file"]) else { return };
        if is_done {
            fs::hard_link(source.path("file"), source.path("link")).unwrap();
        }
        let log = Log::default()
            .placed(10, Kind::File, at(1, "file"))
            .change(Change::Link { node: NodeId(10), at: at(1, "link") })
            .step(BEGUN, 10, None, root("link"))
            .remove(10, at(1, "file"));
        log.recover_all(&source);
        assert_eq!(
            (source.names("."), source.content("link")),
            (vec!["link".to_owned()], "file".to_owned())
        );
        assert_eq!(fs::metadata(source.path("link")).unwrap().nlink(), 1);
    }
}

#[test]
fn what_was_made_and_not_noted_is_taken_over_if_it_is_empty() {
    let Some(source) = Source::with(&[]) else { return };
    fs::write(source.path("file"), "").unwrap();
    let log = Log::default()
        .make(10, at(1, "file"), Kind::File)
        .step(BEGUN, 10, None, root("file"))
        .make(11, at(1, "dir"), Kind::Directory)
        .step(BEGUN, 11, None, root("dir"))
        .make(12, at(11, "in"), Kind::File);
    let made = source.metadata("file").ino();
    let recovered = log.recover_all(&source);
    assert_eq!((recovered.counts.made, source.metadata("file").ino()), (2, made));
    assert_eq!(source.metadata("file").mode() & 0o777, 0o640);
    // Now something is in it.
    fs::write(source.path("file"), "content").unwrap();
    assert_eq!(log.recover_all(&source).counts.made, 0);
    assert_eq!(source.content("file"), "content");
}

#[test]
fn what_somebody_else_put_there_stays_in_later_recoveries_too() {
    let Some(source) = Source::with(&["made", "placed/", "placed/theirs"]) else { return };
    symlink("..", source.path("link")).unwrap();
    let log = Log::default()
        .make(10, at(1, "made"), Kind::File)
        .step(BEGUN, 10, None, root("made"))
        // Not what the log says it is.
        .placed(11, Kind::File, at(1, "placed"))
        .remove(11, at(1, "placed"))
        .placed(12, Kind::Directory, at(1, "link"))
        .make(13, at(12, "in"), Kind::File)
        .remove(13, at(12, "in"));
    for _ in 0..3 {
        let recovered = log.recover(&source);
        let mut conflicts: Vec<_> = recovered.conflicts.iter().map(|of| &of.path[..]).collect();
        conflicts.sort_unstable();
        assert_eq!(conflicts, ["made", "placed"]);
        assert_eq!(source.names("."), ["link", "made", "made.weir-conflict-1", "placed"]);
        assert_eq!(
            (source.content("made"), source.content("placed/theirs")),
            ("made".to_owned(), "placed/theirs".to_owned())
        );
        assert_eq!(path_of(&recovered, 10), Some(Path::new("made.weir-conflict-1")));
        fs::write(source.path("made.weir-conflict-1"), "ours").unwrap();
    }
}

#[test]
fn no_step_is_done_that_the_note_has_no_room_for() {
    let Some(source) = Source::with(&["old", "moved"]) else { return };
    let log = Log::default()
        .placed(9, Kind::File, at(1, "old"))
        .placed(8, Kind::File, at(1, "moved"))
        .make(10, at(1, "dir"), Kind::Directory)
        .rename(8, at(1, "moved"), at(10, "moved"), None)
        .remove(9, at(1, "old"));
    let home = HomeNames::new(source.fd.as_fd()).unwrap();
    let (records, end) = (log.0.clone(), log.end());
    let mut recovery = Recovery::new(source.fd.as_fd(), &home, &LOG, records, end, None).unwrap();
    recovery.note.is_full = true;
    recovery.run(usize::MAX).unwrap();
    let recovered = recovery.finish().unwrap();
    let left =
        LeftName { path: ".weir/recovered".to_owned(), reason: LeftReason::Refused(libc::ENOSPC) };
    assert!(recovered.left.contains(&left), "{:?}", recovered.left);
    assert_eq!(source.names("."), ["moved", "old"]);
    assert_eq!(path_of(&recovered, 8), Some(Path::new("moved")));
    log.recover_all(&source);
    assert_eq!(
        (source.names("."), source.content("dir/moved")),
        (vec!["dir".to_owned()], "moved".to_owned())
    );
}

#[test]
fn a_path_that_is_too_long_leaves_the_file() {
    let Some(source) = Source::with(&[]) else { return };
    let name = "x".repeat(250);
    let mut log = Log::default();
    for node in 10..30 {
        let parent = if node == 10 { 1 } else { node - 1 };
        log = log.make(node, at(parent, &name), Kind::Directory);
    }
    log = log.make(30, at(29, "file"), Kind::File).step(Stage::Undone, 30, None, root("file"));
    let recovered = log.recover_all(&source);
    let mut files = Recovered::new(source.fd.as_fd(), Default::default()).unwrap();
    let error = files.open(recovered.identity_of(NodeId(30)).unwrap()).unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
    assert!(files.is_of_one_file(&error));
}

#[test]
fn records_say_how_nodes_are_found_and_not_the_file_system() {
    let Some(source) = Source::with(&["file"]) else { return };
    let (with, without) = (source.fd.as_fd(), fs::File::open("/proc").unwrap());
    let finding = |source, log: &Log, noted: &[Noted]| finding_of(source, &log.0, noted);
    let known = Log::default().known(10, Kind::File, source.handle("file"));
    let placed = Log::default().placed(10, Kind::File, at(1, "file"));
    let neither = Log::default().make(10, at(1, "new"), Kind::File);
    let step = Step { node: NodeId(10), from: None, to: root("new") };
    let (step, inode) = (Noted::Step(step, BEGUN), Noted::Inode(NodeId(10), vec![1]));
    for (source, log, noted, found) in [
        (with, &known, None, Some(Finding::Handles)),
        (with, &placed, None, Some(Finding::Names)),
        (with, &neither, None, Some(Finding::Handles)),
        (with, &neither, Some(&step), Some(Finding::Names)),
        (without.as_fd(), &known, None, None),
        (without.as_fd(), &placed, None, Some(Finding::Names)),
        (without.as_fd(), &neither, None, Some(Finding::Names)),
        (without.as_fd(), &neither, Some(&inode), None),
    ] {
        let result = finding(source, log, noted.map_or(&[], std::slice::from_ref));
        match found {
            Some(found) => assert_eq!(result.unwrap(), found),
            None => assert!(matches!(result, Err(NamesRecoveryError::NoHandles))),
        }
    }
    let both = known.placed(11, Kind::File, at(1, "file"));
    assert!(matches!(finding(with, &both, &[]), Err(NamesRecoveryError::Damaged { .. })));
    assert!(matches!(finding(with, &placed, &[inode]), Err(NamesRecoveryError::Damaged { .. })));
}
