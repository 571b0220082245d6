//! One thing at a time.

use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::continued::superblock;
use super::logs::Log;
use super::*;
use crate::recovery_names::replayed::ReplayedNames;

fn special(file_type: u32) -> Kind {
    Kind::Special { file_type, device: 0 }
}

#[test]
fn everything_is_made_with_its_attributes() {
    let Some(source) = Source::new() else { return };
    let late = Attributes { mode: Some(0o500), ..attributes(0) };
    let value = Some(b"value"[..].into());
    let xattr = Change::SetXattr { node: NodeId(10), name: b"user.weir"[..].into(), value };
    let log = Log::default()
        .make(10, at(1, "file"), Kind::File)
        .make_with(11, at(1, "dir"), Kind::Directory, late)
        .make(12, at(11, "below"), Kind::Directory)
        .make_with(13, at(12, "suid"), Kind::File, attributes(0o4755))
        .make(14, at(1, "link"), Kind::Symlink(b"no/where"[..].into()))
        .make(15, at(1, "fifo"), special(libc::S_IFIFO))
        .make(16, at(1, "socket"), special(libc::S_IFSOCK))
        .change(Change::Link { node: NodeId(10), at: at(12, "second") })
        .change(xattr);
    let recovered = log.recover_all(&source);
    assert_eq!(source.names("."), ["dir", "fifo", "file", "link", "socket"]);
    for (name, mode) in
        [("file", 0o640), ("dir", 0o500), ("dir/below", 0o750), ("dir/below/suid", 0o4755)]
    {
        let made = source.metadata(name);
        let is_old = (made.mtime(), made.mtime_nsec()) == (1_000_000_000, 5);
        // Of a directory that got entries later it is not known.
        assert_eq!((made.mode() & 0o7777, is_old), (mode, !made.is_dir()), "{name}");
    }
    assert_eq!(fs::read_link(source.path("link")).unwrap(), Path::new("no/where"));
    assert_eq!(source.metadata("link").mtime(), 1_000_000_000);
    assert!(source.metadata("fifo").file_type().is_fifo());
    assert!(source.metadata("socket").file_type().is_socket());
    assert_eq!(source.metadata("dir/below/second").ino(), source.metadata("file").ino());
    let mut value = [0; 16];
    match rustix::fs::getxattr(source.path("file"), "user.weir", &mut value[..]) {
        Ok(len) => assert_eq!(&value[..len], b"value"),
        Err(error) => assert_eq!(error, rustix::io::Errno::OPNOTSUPP),
    }
    assert_eq!(recovered.identity_of(NodeId(10)), Some(&source.handle("file")[..]));
    assert_eq!((recovered.counts.made, recovered.counts.renamed), (7, 1));
}

#[test]
fn names_of_what_home_has_are_moved_exchanged_and_removed() {
    let Some(source) = Source::new() else { return };
    for name in ["a", "b", "c", "d"] {
        fs::write(source.path(name), name).unwrap();
    }
    for name in ["one", "two", "gone"] {
        fs::create_dir(source.path(name)).unwrap();
    }
    fs::write(source.path("one/in"), "in one").unwrap();
    let known = |log: Log, node, kind, name| log.known(node, kind, source.handle(name));
    let mut log = Log::default();
    for (node, name) in [(10, "a"), (11, "b"), (12, "c"), (13, "d")] {
        log = known(log, node, Kind::File, name);
    }
    for (node, name) in [(20, "one"), (21, "two"), (22, "gone")] {
        log = known(log, node, Kind::Directory, name);
    }
    let exchange = |one: (u64, Place), other: (u64, Place)| {
        let (one, other) = ((NodeId(one.0), one.1), (NodeId(other.0), other.1));
        Change::Exchange { one, other }
    };
    let log = log
        .rename(10, at(1, "a"), at(1, "b"), Some(11))
        .change(exchange((12, at(1, "c")), (13, at(1, "d"))))
        .change(exchange((20, at(1, "one")), (21, at(1, "two"))))
        .rename(20, at(1, "two"), at(21, "deep"), None)
        .change(Change::Remove { node: NodeId(22), at: at(1, "gone") });
    log.recover_all(&source);
    assert_eq!(source.names("."), ["b", "c", "d", "one"]);
    let content = |name| fs::read_to_string(source.path(name)).unwrap();
    assert_eq!([content("b"), content("c"), content("d")], ["a", "d", "c"]);
    assert_eq!(content("one/deep/in"), "in one");
}

#[test]
fn what_is_parked_is_put_into_its_place_or_removed() {
    let Some(source) = Source::new() else { return };
    let parked = source.path(".weir/parked");
    fs::create_dir(&parked).unwrap();
    fs::write(source.path("target"), "old").unwrap();
    fs::write(parked.join("node-a"), "").unwrap();
    fs::write(parked.join("node-b"), "of home").unwrap();
    fs::write(parked.join("node-c"), "").unwrap();
    fs::create_dir(parked.join("node-d")).unwrap();
    let log = Log::default()
        .known(11, Kind::File, source.handle(".weir/parked/node-b"))
        .known(14, Kind::File, source.handle("target"))
        .make(10, at(1, "new"), Kind::File)
        .rename(10, at(1, "new"), at(1, "target"), Some(14))
        .rename(11, at(1, "before"), at(1, "after"), None);
    let made = source.metadata(".weir/parked/node-a").ino();
    let recovered = log.recover_all(&source);
    assert_eq!(source.names("."), ["after", "target"]);
    assert!(source.names(".weir/parked").is_empty());
    assert_eq!((source.metadata("target").ino(), recovered.counts.made), (made, 0));
    assert_eq!(fs::read_to_string(source.path("after")).unwrap(), "of home");
}

#[test]
fn what_is_parked_and_has_data_is_kept_unless_it_is_known() {
    let Some(source) = Source::new() else { return };
    let parked = source.path(".weir/parked");
    fs::create_dir(&parked).unwrap();
    fs::write(source.path("target"), "old").unwrap();
    // The log has failed before it had the identity of the first, and it does not know the second.
    fs::write(parked.join("node-a"), "of a file that was made").unwrap();
    fs::write(parked.join("node-c"), "not logged").unwrap();
    fs::write(parked.join("unlogged-node-a"), "").unwrap();
    let log = Log::default()
        .known(14, Kind::File, source.handle("target"))
        .make(10, at(1, "new"), Kind::File)
        .rename(10, at(1, "new"), at(1, "target"), Some(14));
    let recovered = log.recover_all(&source);
    assert_eq!((source.names("."), recovered.counts.made), (vec!["target".to_owned()], 1));
    let kept = source.names(".weir/parked");
    assert_eq!(kept, ["left-1", "left-2", "left-3"]);
    let content = |name: &String| fs::read_to_string(parked.join(name)).unwrap();
    let mut contents: Vec<String> = kept.iter().map(content).collect();
    contents.sort();
    assert_eq!(contents, ["", "not logged", "of a file that was made"]);
}

#[test]
fn what_somebody_else_put_there_stays_and_ours_goes_beside_it() {
    let Some(source) = Source::new() else { return };
    fs::write(source.path("file"), "theirs").unwrap();
    symlink("elsewhere", source.path("dir")).unwrap();
    let log = Log::default()
        .make(10, at(1, "file"), Kind::File)
        .make(11, at(1, "dir"), Kind::Directory)
        .make(12, at(11, "in"), Kind::File);
    let recovered = log.recover(&source);
    let conflict = |name: &str| NameConflict {
        path: name.to_owned(),
        kept: Some(format!("{name}.weir-conflict-1")),
    };
    let mut conflicts = recovered.conflicts;
    conflicts.sort_by(|one, other| other.path.cmp(&one.path));
    assert_eq!(conflicts, [conflict("file"), conflict("dir")]);
    assert_eq!(recovered.left, []);
    assert_eq!(fs::read_to_string(source.path("file")).unwrap(), "theirs");
    assert!(source.metadata("dir").is_symlink());
    assert_eq!(source.names("dir.weir-conflict-1"), ["in"]);
    // Done again, what is beside theirs is known.
    fs::write(source.path("file.weir-conflict-1"), "ours").unwrap();
    let again = log.recover(&source);
    assert_eq!((again.conflicts.len(), again.counts.made, again.left), (2, 0, vec![]));
    assert_eq!(source.names(".").len(), 4);
    assert!(!source.path("elsewhere").exists());
}

#[test]
fn what_home_refuses_is_left_with_the_reason_and_the_rest_is_done() {
    let Some(source) = Source::new() else { return };
    fs::create_dir(source.path("locked")).unwrap();
    let locked = fs::File::open(source.path("locked")).unwrap();
    let long = "x".repeat(255);
    let log = Log::default()
        .known(10, Kind::Directory, source.handle("locked"))
        .make(11, at(10, "dir"), Kind::Directory)
        .make(12, at(11, "in"), Kind::File)
        .make(13, at(1, "other"), Kind::File)
        .make(14, at(1, &format!("{long}y")), Kind::File);
    // Nobody but root may do that, and not everywhere.
    let locks = ioctl_setflags(&locked, IFlags::IMMUTABLE).is_ok();
    let recovered = log.recover(&source);
    if locks {
        ioctl_setflags(&locked, ioctl_getflags(&locked).unwrap() - IFlags::IMMUTABLE).unwrap();
    }
    let left = |path: &str, reason| LeftName { path: path.to_owned(), reason };
    let of = |path: &str| recovered.left.iter().filter(|left| left.path == path).count();
    assert!(of(&format!("{long}y")) > 0, "{:?}", recovered.left);
    assert_eq!(source.names("."), ["locked", "other"]);
    if locks {
        assert!(recovered.left.contains(&left("locked/dir", LeftReason::Refused(libc::EPERM))));
        assert!(recovered.left.contains(&left("locked/dir/in", LeftReason::Waits)));
        assert_eq!(recovered.identity_of(NodeId(12)), None);
        assert!(source.names("locked").is_empty());
        // When home does not refuse it any more, it is done.
        log.recover(&source);
        assert_eq!(source.names("locked/dir"), ["in"]);
    }
}

#[test]
fn files_outside_source_and_directories_that_are_gone_are_not_touched() {
    let Some(source) = Source::new() else { return };
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    fs::create_dir(outside.path().join("dir")).unwrap();
    fs::create_dir(source.path("vanished")).unwrap();
    let handle = |path: PathBuf| handle_of(fs::File::open(path).unwrap().as_fd()).unwrap();
    let log = Log::default()
        .known(10, Kind::File, handle(outside.path().join("file")))
        .known(11, Kind::Directory, handle(outside.path().join("dir")))
        .known(12, Kind::Directory, source.handle("vanished"))
        .change(Change::Set { node: NodeId(10), attributes: attributes(0o600) })
        .change(Change::Set { node: NodeId(11), attributes: attributes(0o700) })
        .change(Change::Link { node: NodeId(10), at: at(1, "linked") })
        .make(13, at(11, "made"), Kind::File)
        .make(14, at(12, "made"), Kind::File);
    fs::remove_dir(source.path("vanished")).unwrap();
    let recovered = log.recover(&source);
    assert_eq!(recovered.left, []);
    assert_eq!(recovered.given_up, [GivenUp::Name("linked".to_owned())]);
    // What is new in directories that are gone is kept.
    let again = |name: &str| KeptDirectory::MadeAgain(name.to_owned());
    assert_eq!(recovered.kept, [again("lost+weir-1"), again("lost+weir-2")]);
    assert_eq!(source.names("."), ["lost+weir-1", "lost+weir-2"]);
    assert_eq!(source.names("lost+weir-2"), ["made"]);
    assert_eq!(fs::read_dir(outside.path().join("dir")).unwrap().count(), 0);
    let untouched = fs::metadata(outside.path().join("file")).unwrap();
    assert_ne!(untouched.mtime(), 1_000_000_000);
    assert_eq!(untouched.nlink(), 1);
}

#[test]
fn a_deep_tree_and_many_directories_are_made_and_moved() {
    let Some(source) = Source::new() else { return };
    let mut log = Log::default();
    for node in 10..60 {
        let parent = if node == 10 { 1 } else { node - 1 };
        log = log.make(node, at(parent, "deeper"), Kind::Directory);
    }
    for node in 100..300 {
        log = log.make(node, at(59, &format!("dir-{node}")), Kind::Directory);
    }
    for node in 300..500 {
        log = log.make(node, at(node - 200, "file"), Kind::File);
    }
    log = log.rename(35, at(34, "deeper"), at(1, "moved"), None);
    let recovered = log.recover_all(&source);
    assert_eq!(recovered.counts.made, 450);
    assert_eq!(source.names("."), ["deeper", "moved"]);
    let deepest = format!("moved{}", "/deeper".repeat(24));
    assert_eq!(source.names(&deepest).len(), 200);
    assert_eq!(source.names(&format!("{deepest}/dir-299")), ["file"]);
}

#[test]
fn a_home_without_its_own_directory_or_with_a_damaged_note_says_so() {
    let Some(source) = Source::new() else { return };
    fs::write(source.path(".weir/recovered"), "nonsense\n").unwrap();
    let log = Log::default().make(10, at(1, "file"), Kind::File);
    let recover = || {
        recover_names(source.fd.as_fd(), &LOG, log.0.clone(), log.end()).map_err(|e| e.to_string())
    };
    let error = recover().unwrap_err();
    assert!(error.contains(".weir/recovered") && error.contains("damaged"), "{error}");
    assert!(source.names(".").is_empty());
    fs::remove_dir_all(source.path(".weir")).unwrap();
    let error = recover().unwrap_err();
    assert!(error.contains(".weir/recovered"), "{error}");
}

#[test]
fn what_a_recovery_made_is_known_when_it_has_content() {
    let Some(source) = Source::new() else { return };
    let log =
        Log::default().make(10, at(1, "file"), Kind::File).make(11, at(1, "dir"), Kind::Directory);
    assert_eq!(log.recover_all(&source).counts.made, 2);
    // The data that the log has is written; then the recovery is cut.
    fs::write(source.path("file"), "content").unwrap();
    fs::write(source.path("dir/below"), "").unwrap();
    assert_eq!(log.recover_all(&source).counts.made, 0);
    // Another log knows nothing of it.
    let other = recover_names(source.fd.as_fd(), &[8; 16], log.0.clone(), log.end()).unwrap();
    assert_eq!((other.conflicts.len(), other.counts.made), (2, 2));
    forget_recovered_names(source.fd.as_fd()).unwrap();
    assert!(source.names(".weir").is_empty());
}

#[test]
fn what_home_lost_is_not_what_got_its_identity() {
    let Some(source) = Source::new() else { return };
    // Home had the file 10 and lost it, though the log says which inode it was. An earlier recovery made the file 11, which home
    // gave that inode's identity, and was cut.
    fs::write(source.path("new"), "").unwrap();
    let identity = source.handle("new");
    let (mut note, _) = Note::read(source.fd.as_fd(), LOG).unwrap();
    note.add(&[Noted::Inode(NodeId(11), identity.clone())]).unwrap();
    let log = Log::default()
        .make(10, at(1, "old"), Kind::File)
        .known(10, Kind::File, identity.clone())
        .remove(10, at(1, "old"))
        .make(11, at(1, "new"), Kind::File);
    let recovered = log.recover_all(&source);
    assert_eq!(source.names("."), ["new"]);
    assert_eq!(recovered.identity_of(NodeId(10)), None);
    assert_eq!(recovered.identity_of(NodeId(11)), Some(&identity[..]));
    assert!(recovered.is_of_another(&identity));
    // Of a file that has its own name yet, what it had is not in the other one.
    let log = Log::default()
        .make(10, at(1, "old"), Kind::File)
        .known(10, Kind::File, identity.clone())
        .make(11, at(1, "new"), Kind::File);
    let recovered = log.recover_all(&source);
    assert_eq!(source.names("."), ["new", "old"]);
    assert_eq!(recovered.identity_of(NodeId(10)), Some(&source.handle("old")[..]));
    assert_eq!(recovered.identity_of(NodeId(11)), Some(&identity[..]));
    assert_eq!(source.handle("new"), identity);
}

#[test]
fn what_got_the_identity_of_a_file_whose_node_the_log_does_not_name_is_another_file() {
    let Some(source) = Source::new() else { return };
    // The log has data of a file, and is not kept for its name any more. Home lost the file. An earlier recovery made the file 11, which
    // home gave the same identity, and was cut.
    fs::write(source.path("new"), "").unwrap();
    let identity = source.handle("new");
    let (mut note, _) = Note::read(source.fd.as_fd(), LOG).unwrap();
    note.add(&[Noted::Inode(NodeId(11), identity.clone())]).unwrap();
    let mut names = ReplayedNames::new(&superblock(LOG, 1), source.fd.as_fd()).unwrap();
    let (node, at, kind) = (NodeId(11), at(1, "new"), Kind::File);
    let make = Change::Make { node, at, kind, attributes: attributes(0o600) };
    names.add_logged(Lsn(0x10), &make.record(1 << 20).unwrap()).unwrap();
    names.recover(source.fd.as_fd(), Lsn(0x20)).unwrap();
    assert_eq!(names.made_again_as(&identity), Some(vec![]));
    fs::write(source.path("known"), "").unwrap();
    assert_eq!(names.made_again_as(&source.handle("known")), None);
    assert_eq!(names.made_again_as(b""), None);
}

#[test]
fn nothing_goes_into_what_the_note_has_no_room_for() {
    let Some(source) = Source::new() else { return };
    fs::write(source.path("old"), "").unwrap();
    let log = Log::default()
        .known(9, Kind::File, source.handle("old"))
        .make(10, at(1, "dir"), Kind::Directory)
        .make(11, at(10, "file"), Kind::File)
        .change(Change::Remove { node: NodeId(9), at: at(1, "old") });
    let home = HomeNames::new(source.fd.as_fd()).unwrap();
    let (records, end) = (log.0.clone(), log.end());
    let mut recovery =
        Recovery::new(source.fd.as_fd(), &home, &LOG, records, end, Some(Finding::Handles))
            .unwrap();
    recovery.note.is_full = true;
    recovery.run(usize::MAX).unwrap();
    let recovered = recovery.finish().unwrap();
    let full = LeftReason::Refused(libc::ENOSPC);
    let note = LeftName { path: ".weir/recovered".to_owned(), reason: full };
    assert!(recovered.left.contains(&note), "{:?}", recovered.left);
    assert!(recovered.left.iter().any(|left| left.path == "dir/file"), "{:?}", recovered.left);
    assert_eq!((recovered.identity_of(NodeId(10)), source.names("dir").len()), (None, 0));
    assert_eq!(source.names("."), ["dir"]);
    // When there is room, the directory is found, and goes on to be used.
    assert_eq!(log.recover_all(&source).counts.made, 1);
    assert_eq!(source.names("dir"), ["file"]);
}

#[test]
fn what_may_have_been_made_for_several_files_is_given_to_none() {
    let Some(source) = Source::new() else { return };
    let unknown = Attributes { mtime: None, ..attributes(0o640) };
    // The first file at the name: home made it with a time and an extended attribute, and the log does not say which inode it is.
    let log = Log::default()
        .make(10, at(1, "name"), Kind::File)
        .change(Change::SetXattr {
            node: NodeId(10),
            name: b"user.weir"[..].into(),
            value: Some(b"of the first"[..].into()),
        })
        .make_with(11, at(1, "new"), Kind::File, unknown)
        .rename(11, at(1, "new"), at(1, "name"), Some(10));
    fs::write(source.path("name"), "").unwrap();
    let first = fs::File::open(source.path("name")).unwrap();
    let is_set = match rustix::fs::fsetxattr(
        &first,
        "user.weir",
        b"of the first",
        rustix::fs::XattrFlags::empty(),
    ) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error, rustix::io::Errno::OPNOTSUPP);
            false
        }
    };
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    first.set_modified(old).unwrap();
    let recovered = log.recover_all(&source);
    assert_eq!(source.names("."), ["name"]);
    let made = source.metadata("name");
    assert_ne!(made.modified().unwrap(), old);
    assert_eq!(made.mode() & 0o7777, 0o640);
    if is_set {
        let found = rustix::fs::getxattr(source.path("name"), "user.weir", &mut [0; 16][..]);
        assert_eq!(found, Err(rustix::io::Errno::NODATA));
    }
    assert_eq!(recovered.identity_of(NodeId(11)), Some(&source.handle("name")[..]));
}

#[test]
fn what_is_given_to_no_file_loses_its_other_names_too() {
    let Some(source) = Source::new() else { return };
    // Home has the second file under both its names, and the log does not say which inode it is.
    fs::write(source.path("name"), "").unwrap();
    fs::hard_link(source.path("name"), source.path("second")).unwrap();
    let log = Log::default()
        .make(10, at(1, "name"), Kind::File)
        .remove(10, at(1, "name"))
        .make(11, at(1, "name"), Kind::File)
        .change(Change::Link { node: NodeId(11), at: at(1, "second") });
    let recovered = log.recover_all(&source);
    assert_eq!(source.names("."), ["name", "second"]);
    assert_eq!(source.handle("name"), source.handle("second"));
    assert_eq!(recovered.identity_of(NodeId(11)), Some(&source.handle("name")[..]));
}
