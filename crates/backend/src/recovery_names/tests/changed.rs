//! Somebody else changed SOURCE between the crash and the recovery.

use std::collections::BTreeMap;

use super::logs::Log;
use super::*;

fn made_again(name: &str) -> KeptDirectory {
    KeptDirectory::MadeAgain(name.to_owned())
}

/// All files below a directory, with their contents; directories end with `/`.
fn files(at: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut below = vec![at.to_owned()];
    while let Some(directory) = below.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(at).unwrap().to_str().unwrap().to_owned();
            if name == ".weir" {
                continue;
            }
            if path.is_dir() {
                files.insert(format!("{name}/"), String::new());
                below.push(path);
            } else {
                files.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    files
}

/// Recovers; what is left afterwards is nothing.
fn recover(source: &Source, log: &Log) -> RecoveredNames {
    let recovered = log.recover(source);
    assert_eq!(recovered.left, [], "{recovered:?}");
    recovered
}

#[test]
fn what_is_new_in_a_directory_that_is_gone_is_kept() {
    let Some(source) = Source::new() else { return };
    fs::create_dir(source.path("gone")).unwrap();
    fs::write(source.path("gone/old"), "").unwrap();
    fs::write(source.path("moves"), "moved into it").unwrap();
    fs::create_dir(source.path("lost+weir-1")).unwrap();
    fs::write(source.path("lost+weir-1/of"), "an earlier crash").unwrap();
    let log = Log::default()
        .known(10, Kind::Directory, source.handle("gone"))
        .known(11, Kind::File, source.handle("moves"))
        .known(12, Kind::File, source.handle("gone/old"))
        .make(13, at(10, "dir"), Kind::Directory)
        .make(14, at(13, "below"), Kind::File)
        .rename(11, at(1, "moves"), at(10, "moved"), None)
        .rename(12, at(10, "old"), at(10, "older"), None)
        .make(15, at(10, "passing"), Kind::File)
        .change(Change::Remove { node: NodeId(15), at: at(10, "passing") });
    fs::remove_dir_all(source.path("gone")).unwrap();
    let wanted = |text: &str| text.to_owned();
    for _ in 0..2 {
        let recovered = recover(&source, &log);
        assert_eq!(recovered.kept, [made_again("lost+weir-2")]);
        let given_up = [GivenUp::Name(wanted("lost+weir-2/older"))];
        assert_eq!((&recovered.given_up[..], &recovered.conflicts), (&given_up[..], &vec![]));
        let found = files(&source.path("lost+weir-2"));
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["dir/", "dir/below", "moved"]);
        assert_eq!(found["moved"], "moved into it");
        assert_eq!(source.names("."), ["lost+weir-1", "lost+weir-2"]);
        assert!(recovered.identity_of(NodeId(14)).is_some());
    }
    let mode = fs::metadata(source.path("lost+weir-2")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "who might see it before is not known");
}

#[test]
fn directories_that_are_gone_are_made_again_where_the_log_has_them() {
    let Some(source) = Source::new() else { return };
    fs::create_dir_all(source.path("above/dir")).unwrap();
    fs::create_dir_all(source.path("empty")).unwrap();
    let log = Log::default()
        .known(10, Kind::Directory, source.handle("above"))
        .known(11, Kind::Directory, source.handle("above/dir"))
        .known(12, Kind::Directory, source.handle("empty"))
        .rename(11, at(10, "dir"), at(10, "renamed"), None)
        .make(13, at(11, "file"), Kind::File)
        .rename(12, at(1, "empty"), at(1, "nothing"), None);
    fs::remove_dir_all(source.path("above")).unwrap();
    fs::remove_dir_all(source.path("empty")).unwrap();
    let recovered = recover(&source, &log);
    let names: Vec<String> = files(&source.path("")).into_keys().collect();
    assert_eq!(names, ["lost+weir-1/", "lost+weir-1/renamed/", "lost+weir-1/renamed/file"]);
    let kept = [made_again("lost+weir-1"), made_again("lost+weir-1/renamed")];
    assert_eq!(recovered.kept, kept);
    assert_eq!(recovered.given_up, [GivenUp::Name("nothing".to_owned())]);
}

#[test]
fn what_somebody_moved_stays_and_what_is_new_goes_there() {
    let Some(source) = Source::new() else { return };
    for name in ["dir", "elsewhere"] {
        fs::create_dir(source.path(name)).unwrap();
    }
    for name in ["file", "unchanged"] {
        fs::write(source.path(name), name).unwrap();
    }
    let log = Log::default()
        .known(10, Kind::Directory, source.handle("dir"))
        .known(11, Kind::File, source.handle("file"))
        .known(12, Kind::File, source.handle("unchanged"))
        .rename(10, at(1, "dir"), at(1, "renamed"), None)
        .make(13, at(10, "new"), Kind::File)
        .change(Change::Set { node: NodeId(11), attributes: attributes(0o604) })
        .change(Change::Remove { node: NodeId(12), at: at(1, "unchanged") });
    fs::rename(source.path("dir"), source.path("elsewhere/moved")).unwrap();
    fs::rename(source.path("file"), source.path("elsewhere/file")).unwrap();
    fs::rename(source.path("unchanged"), source.path("elsewhere/unchanged")).unwrap();
    let recovered = recover(&source, &log);
    let names: Vec<String> = files(&source.path("")).into_keys().collect();
    let here = ["elsewhere/", "elsewhere/file", "elsewhere/moved/", "elsewhere/moved/new"];
    assert_eq!(names[..4], here);
    assert_eq!(names[4..], ["elsewhere/unchanged"]);
    let (path, now) = ("renamed".to_owned(), "elsewhere/moved".to_owned());
    assert_eq!(recovered.given_up, [GivenUp::Moved { path, now }]);
    assert_eq!(source.metadata("elsewhere/file").permissions().mode() & 0o777, 0o604);
    assert_eq!(recovered.kept, []);
}

#[test]
fn a_file_that_somebody_took_out_of_a_directory_that_is_gone_stays_where_it_is() {
    let Some(source) = Source::new() else { return };
    fs::create_dir(source.path("dir")).unwrap();
    fs::write(source.path("dir/file"), "content").unwrap();
    let log = Log::default()
        .known(10, Kind::Directory, source.handle("dir"))
        .known(11, Kind::File, source.handle("dir/file"))
        .rename(11, at(10, "file"), at(10, "renamed"), None);
    fs::rename(source.path("dir/file"), source.path("theirs")).unwrap();
    fs::remove_dir(source.path("dir")).unwrap();
    let recovered = recover(&source, &log);
    assert_eq!((source.names("."), &recovered.kept[..]), (vec!["theirs".to_owned()], &[][..]));
    assert!(matches!(&recovered.given_up[..], [GivenUp::Moved { .. }]), "{recovered:?}");
}

#[test]
fn what_was_to_be_replaced_by_something_that_is_gone_stays() {
    let Some(source) = Source::new() else { return };
    for name in ["new", "old", "linked", "target"] {
        fs::write(source.path(name), name).unwrap();
    }
    let log = Log::default()
        .known(10, Kind::File, source.handle("new"))
        .known(11, Kind::File, source.handle("old"))
        .known(12, Kind::File, source.handle("linked"))
        .known(13, Kind::File, source.handle("target"))
        .rename(10, at(1, "new"), at(1, "old"), Some(11))
        .change(Change::Link { node: NodeId(12), at: at(1, "temporary") })
        .rename(12, at(1, "temporary"), at(1, "target"), Some(13));
    fs::remove_file(source.path("new")).unwrap();
    let recovered = recover(&source, &log);
    assert_eq!(recovered.given_up, [GivenUp::Name("old".to_owned())]);
    let found = files(&source.path(""));
    let found: Vec<(&str, &str)> = found.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert_eq!(found, [("linked", "linked"), ("old", "old"), ("target", "linked")]);
    assert!(source.names(".weir/parked").is_empty());
}

#[test]
fn attributes_of_what_is_gone_are_reported_unless_the_log_removes_it() {
    let Some(source) = Source::new() else { return };
    for name in ["one", "other"] {
        fs::write(source.path(name), "").unwrap();
    }
    let set = |node| Change::Set { node: NodeId(node), attributes: attributes(0o600) };
    let log = Log::default()
        .known(10, Kind::File, source.handle("one"))
        .known(11, Kind::File, source.handle("other"))
        .change(set(10))
        .change(set(11))
        .change(Change::Remove { node: NodeId(11), at: at(1, "other") });
    for name in ["one", "other"] {
        fs::remove_file(source.path(name)).unwrap();
    }
    let recovered = recover(&source, &log);
    let [GivenUp::Attributes(path)] = &recovered.given_up[..] else { panic!("{recovered:?}") };
    assert_eq!(path, "a file whose name is not known");
    assert_eq!(recovered.told().len(), 1);
}

#[test]
fn what_the_log_makes_and_home_does_not_have_any_more_is_made_again_and_reported() {
    let Some(source) = Source::new() else { return };
    for name in ["one", "other", "passing"] {
        fs::write(source.path(name), "").unwrap();
    }
    let mut log = Log::default();
    for (node, name) in [(10, "one"), (11, "other"), (12, "passing")] {
        log = log.make(node, at(1, name), Kind::File).known(node, Kind::File, source.handle(name));
    }
    let log = log.change(Change::Remove { node: NodeId(12), at: at(1, "passing") });
    for name in ["one", "passing"] {
        fs::remove_file(source.path(name)).unwrap();
    }
    let recovered = recover(&source, &log);
    assert_eq!((recovered.made_again.join(" "), recovered.told().len()), ("one".to_owned(), 1));
    assert_eq!(source.names("."), ["one", "other"]);
}

#[test]
fn a_parked_directory_into_which_somebody_put_something_is_kept() {
    let Some(source) = Source::new() else { return };
    fs::create_dir_all(source.path(".weir/parked/node-a")).unwrap();
    fs::write(source.path(".weir/parked/node-a/theirs"), "theirs").unwrap();
    let log = Log::default()
        .known(10, Kind::Directory, source.handle(".weir/parked/node-a"))
        .change(Change::Remove { node: NodeId(10), at: at(1, "dir") });
    let recovered = recover(&source, &log);
    assert_eq!(recovered.kept, [KeptDirectory::NotEmpty("lost+weir-1".to_owned())]);
    assert_eq!(source.names("lost+weir-1"), ["theirs"]);
    assert!(source.names(".weir/parked").is_empty());
}

#[test]
fn names_in_a_directory_that_has_another_name_than_the_log_knows_are_looked_at() {
    for finding in [Finding::Handles, Finding::Walk] {
        let Some(source) = Source::new() else { return };
        // The mount gave it this name, since somebody else had put a file there, which was renamed afterwards.
        fs::create_dir(source.path("dir.weir-conflict-1")).unwrap();
        fs::write(source.path("dir.weir-conflict-1/taken"), "theirs").unwrap();
        fs::write(source.path("moved"), "moved").unwrap();
        fs::write(source.path("file"), "ours").unwrap();
        let log = Log::default()
            .make(10, at(1, "dir"), Kind::Directory)
            .known(10, Kind::Directory, source.handle("dir.weir-conflict-1"))
            .known(11, Kind::File, source.handle("moved"))
            .known(12, Kind::File, source.handle("file"))
            .rename(12, at(1, "file"), at(10, "taken"), None)
            .rename(11, at(1, "dir"), at(1, "moved"), None);
        let recovered = log.recover_by(&source, finding);
        assert_eq!((&recovered.left, &recovered.given_up), (&vec![], &vec![]));
        let found = files(&source.path(""));
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, text)| (&**name, &**text)).collect();
        let expected = [
            ("dir.weir-conflict-1/", ""),
            ("dir.weir-conflict-1/taken", "theirs"),
            ("dir.weir-conflict-1/taken.weir-conflict-1", "ours"),
            ("moved", "moved"),
        ];
        assert_eq!(found, expected);
        assert_eq!(recovered.conflicts.len(), 1, "{recovered:?}");
    }
}

/// A default ACL by which a group may do everything, as the attribute has it (acl(5)).
fn default_acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (4, 7, u32::MAX), (8, 7, 77), (16, 7, u32::MAX), (32, 5, u32::MAX)];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    acl
}

#[test]
fn nothing_is_inherited_that_the_log_does_not_have() {
    let Some(source) = Source::new() else { return };
    fs::create_dir(source.path("dir")).unwrap();
    fs::set_permissions(source.path("dir"), fs::Permissions::from_mode(0o2770)).unwrap();
    let acl = |path: &str, kind| {
        let name = format!("system.posix_acl_{kind}");
        rustix::fs::getxattr(source.path(path), name, &mut [0; 64])
    };
    let name = "system.posix_acl_default";
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(source.path("dir"), name, &default_acl(), flags) {
        return println!("not checked: no ACLs underneath: {error}");
    }
    // Made by a mount that did no more then: the log names one, and not yet the others.
    for name in ["adopted", "known"] {
        fs::write(source.path(format!("dir/{name}")), "").unwrap();
        assert!(acl(&format!("dir/{name}"), "access").is_ok(), "it was inherited");
    }
    fs::create_dir(source.path("dir/adopted-dir")).unwrap();
    assert!(acl("dir/adopted-dir", "default").is_ok());
    let log = Log::default()
        .known(10, Kind::Directory, source.handle("dir"))
        .make(11, at(10, "file"), Kind::File)
        .make(12, at(10, "directory"), Kind::Directory)
        .make(13, at(12, "below"), Kind::Directory)
        .make(14, at(10, "adopted"), Kind::File)
        .make(15, at(10, "known"), Kind::File)
        .known(15, Kind::File, source.handle("dir/known"))
        .make(16, at(10, "adopted-dir"), Kind::Directory);
    log.recover_all(&source);
    let wanted = [
        ("file", 0o640),
        ("directory", 0o750),
        ("directory/below", 0o750),
        ("adopted", 0o640),
        ("known", 0o640),
        ("adopted-dir", 0o750),
    ];
    for (name, mode) in wanted {
        let name = format!("dir/{name}");
        for kind in ["access", "default"] {
            assert_eq!(acl(&name, kind), Err(rustix::io::Errno::NODATA), "{name}: {kind}");
        }
        let found = source.metadata(&name).permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{name}: {found:o}");
    }
    assert!(acl("dir", "default").is_ok());
}

#[test]
fn a_recovery_of_what_is_gone_may_be_cut_anywhere() {
    for finding in [|| Finding::Handles, || Finding::Walk] as [fn() -> Finding; 2] {
        for cut in 0..40 {
            let Some(source) = Source::in_memory() else { return };
            fs::create_dir_all(source.path("one/two")).unwrap();
            let log = Log::default()
                .known(10, Kind::Directory, source.handle("one"))
                .known(11, Kind::Directory, source.handle("one/two"))
                .make(12, at(11, "dir"), Kind::Directory)
                .make(13, at(12, "file"), Kind::File)
                .make(14, at(10, "file"), Kind::File);
            fs::remove_dir_all(source.path("one")).unwrap();
            let home = HomeNames::new(source.fd.as_fd()).unwrap();
            let begin = || {
                let records = log.0.clone();
                Recovery::new(source.fd.as_fd(), &home, &LOG, records, log.end(), Some(finding()))
            };
            begin().unwrap().run(cut).unwrap();
            let mut recovery = begin().unwrap();
            recovery.run(usize::MAX).unwrap();
            recovery.tree.check_invariants();
            let recovered = recovery.finish().unwrap();
            let what = format!("cut after {cut} commands: {recovered:?}");
            assert_eq!((recovered.left, recovered.given_up), (vec![], vec![]), "{what}");
            assert_eq!(recovered.kept.len(), 2, "{what}");
            let names: Vec<String> = files(&source.path("")).into_keys().collect();
            assert_eq!(names.len(), 5, "{what}: {names:?}");
            for name in ["dir/", "dir/file", "file"] {
                assert!(names.iter().any(|path| path.ends_with(name)), "{what}: {names:?}");
            }
        }
    }
}
