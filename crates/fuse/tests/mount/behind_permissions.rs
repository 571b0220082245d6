//! Names that do not wait for home (`--names behind`): permissions are those of the time of the call, whatever their directory
//! or home has when home gets them. And inode numbers.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};

use crate::Test;
use crate::attributes::default_acl;
use crate::behind::{Held, bring_home, bring_names_home, eventually, mounted};
use crate::faults::set_immutable;
use crate::fixture::open;

pub const TESTS: &[Test] = &[
    ("behind_a_default_acl_is_not_for_what_was_there", a_default_acl_is_not_for_what_was_there),
    ("behind_set_group_id_is_not_for_what_was_there", set_group_id_is_not_for_what_was_there),
    (
        "behind_what_is_made_at_home_gets_the_directory_s_new_mode",
        what_is_made_at_home_gets_the_directory_s_new_mode,
    ),
    ("behind_a_write_takes_set_user_id_that_home_lacks", a_write_takes_set_user_id_that_home_lacks),
    ("behind_a_directory_has_its_last_mode", a_directory_has_its_last_mode),
    ("behind_an_acl_of_a_mode_is_a_mode", an_acl_of_a_mode_is_a_mode),
    ("behind_inode_numbers_are_kept", inode_numbers_are_kept),
];

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn a_default_acl_is_not_for_what_was_there() {
    let fixture = mounted();
    for turn in 0..5 {
        let directory = format!("dir-{turn}");
        fs::create_dir(fixture.at(&directory)).unwrap();
        for number in 0..200 {
            let at = fixture.at(&directory).join(number.to_string());
            match number % 2 {
                0 => drop(File::create(&at).unwrap()),
                _ => fs::create_dir(&at).unwrap(),
            }
        }
        let flags = XattrFlags::empty();
        let set =
            setxattr(fixture.at(&directory), "system.posix_acl_default", &default_acl(), flags);
        if let Err(error) = set {
            return println!("    (not checked: no ACLs underneath: {error})");
        }
        fs::create_dir(fixture.at(&directory).join("after")).unwrap();
        bring_home(&fixture);
        let acl = |name: &str, kind| {
            let path = fixture.home(&directory).join(name);
            getxattr(path, format!("system.posix_acl_{kind}"), &mut [0; 64])
        };
        for number in 0..200 {
            let name = number.to_string();
            for kind in ["access", "default"] {
                let found = acl(&name, kind);
                assert!(
                    found == Err(rustix::io::Errno::NODATA),
                    "{directory}/{name}: {kind} {found:?}"
                );
            }
            let expected = if number % 2 == 0 { 0o644 } else { 0o755 };
            assert_eq!(
                mode_of(&fixture.home(&directory).join(&name)),
                expected,
                "{directory}/{name}"
            );
        }
        assert!(acl("after", "default").is_ok());
    }
}

fn what_is_made_at_home_gets_the_directory_s_new_mode() {
    let fixture = mounted();
    for turn in 0..5 {
        let directory = fixture.at(&format!("dir-{turn}"));
        fs::create_dir(&directory).unwrap();
        let acl = default_acl();
        let set = setxattr(&directory, "system.posix_acl_default", &acl, XattrFlags::empty());
        if let Err(error) = set {
            return println!("    (not checked: no ACLs underneath: {error})");
        }
        // The new mode has to wait for its turn.
        for number in 0..500 {
            File::create(fixture.at(&format!("{turn}-{number}"))).unwrap();
        }
        chown(&directory, None, Some(77)).unwrap();
        set_mode(&directory, 0o2755);
        fs::create_dir(directory.join("dir")).unwrap();
        File::create(directory.join("file")).unwrap();
        let made = |name: &str| fs::metadata(directory.join(name)).unwrap();
        assert_eq!(made("dir").mode() & 0o2000, 0o2000, "turn {turn}");
        assert_eq!((made("dir").gid(), made("file").gid()), (77, 77), "turn {turn}");
    }
}

fn set_group_id_is_not_for_what_was_there() {
    let fixture = mounted();
    let Some(held) = Held::new(&fixture) else { return };
    let make = |name: &str| {
        fs::create_dir(held.at(name)).unwrap();
        fs::create_dir(held.at(name).join("dir")).unwrap();
        File::create(held.at(name).join("file")).unwrap();
    };
    fs::create_dir(held.at("loses")).unwrap();
    chown(held.at("loses"), None, Some(77)).unwrap();
    set_mode(&held.at("loses"), 0o2755);
    fs::create_dir(held.at("loses/dir")).unwrap();
    File::create(held.at("loses/file")).unwrap();
    make("gets");
    chown(held.at("gets"), None, Some(77)).unwrap();
    set_mode(&held.at("gets"), 0o2755);
    set_mode(&held.at("loses"), 0o755);
    let home = held.release();
    let found =
        |name: &str| (mode_of(&home.join(name)), fs::metadata(home.join(name)).unwrap().gid());
    assert_eq!(
        (found("gets"), found("gets/dir"), found("gets/file")),
        ((0o2755, 77), (0o755, 0), (0o644, 0))
    );
    assert_eq!(
        (found("loses"), found("loses/dir"), found("loses/file")),
        ((0o755, 77), (0o2755, 77), (0o644, 77))
    );
}

fn a_write_takes_set_user_id_that_home_lacks() {
    let fixture = mounted();
    fs::write(fixture.at("file"), b"content").unwrap();
    set_mode(&fixture.at("file"), 0o777);
    bring_home(&fixture);
    // Stays open at home, where it could not be opened for writing any more.
    let file = open(&fixture.at("file"));
    file.write_all_at(b"C", 0).unwrap();
    bring_home(&fixture);
    if !set_immutable(&fixture.home("file"), true) {
        return println!("    (not checked: the file system underneath knows no immutable files)");
    }
    set_mode(&fixture.at("file"), 0o4777);
    assert!(bring_names_home(&fixture).is_err());
    assert_eq!(mode_of(&fixture.at("file")), 0o4777);
    let written = fixture.stranger("printf c | dd of=file bs=1 conv=notrunc 2>/dev/null");
    let shown = mode_of(&fixture.at("file"));
    assert!(set_immutable(&fixture.home("file"), false));
    assert!(written);
    assert_eq!(shown, 0o777);
    eventually(|| bring_names_home(&fixture));
    file.sync_all().unwrap();
    bring_home(&fixture);
    assert_eq!(mode_of(&fixture.home("file")), 0o777);
    // One that home does not have.
    let Some(held) = Held::new(&fixture) else { return };
    File::create(held.at("file")).unwrap();
    set_mode(&held.at("file"), 0o777);
    set_mode(&held.at("file"), 0o4777);
    assert!(fixture.stranger("printf c | dd of=held/waits/file bs=1 conv=notrunc 2>/dev/null"));
    assert_eq!(mode_of(&held.at("file")), 0o777);
    assert_eq!(mode_of(&held.release().join("file")), 0o777);
}

fn a_directory_has_its_last_mode() {
    let fixture = mounted();
    for turn in 0..200 {
        let directory = format!("dir-{turn}");
        let at = fixture.at(&directory);
        fs::create_dir_all(at.join("sub")).unwrap();
        if turn % 2 == 0 {
            bring_home(&fixture);
        }
        set_mode(&at, 0o700);
        fs::remove_dir(at.join("sub")).unwrap();
        set_mode(&at, 0o750);
        bring_home(&fixture);
        assert_eq!((mode_of(&at), mode_of(&fixture.home(&directory))), (0o750, 0o750), "{turn}");
    }
}

const ACCESS_ACL: &str = "system.posix_acl_access";

/// u::rwx,u:12:r--,g::rwx,m::rwx,o::---
fn acl_with_a_user() -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, identity: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &identity.to_le_bytes()].concat()
    };
    let mut acl = default_acl();
    acl.splice(12..12, entry(2, 4, 12));
    let others = acl.len() - 8;
    acl.splice(others..others, entry(0x10, 7, u32::MAX));
    acl
}

fn an_acl_of_a_mode_is_a_mode() {
    let fixture = mounted();
    let acl = |path: &Path| getxattr(path, ACCESS_ACL, &mut [0; 64]);
    let set_acl = |path: &Path, acl: &[u8]| setxattr(path, ACCESS_ACL, acl, XattrFlags::empty());
    File::create(fixture.at("listed")).unwrap();
    if let Err(error) = set_acl(&fixture.at("listed"), &acl_with_a_user()) {
        return println!("    (not checked: no ACLs underneath: {error})");
    }
    assert!(acl(&fixture.home("listed")).is_ok());
    // It takes the place of the former, at home.
    set_acl(&fixture.at("listed"), &default_acl()).unwrap();
    assert_eq!(acl(&fixture.home("listed")), Err(rustix::io::Errno::NODATA));
    assert_eq!(mode_of(&fixture.home("listed")), 0o770);

    let Some(held) = Held::new(&fixture) else { return };
    File::create(held.at("file")).unwrap();
    fs::create_dir(held.at("dir")).unwrap();
    chown(held.at("dir"), Some(12), Some(34)).unwrap();
    set_mode(&held.at("dir"), 0o3755);
    for name in ["file", "dir"] {
        set_acl(&held.at(name), &default_acl()).unwrap();
        assert_eq!(acl(&held.at(name)), Err(rustix::io::Errno::NODATA));
        removexattr(held.at(name), "system.posix_acl_default").unwrap();
    }
    let modes = |at: &dyn Fn(&str) -> PathBuf| (mode_of(&at("file")), mode_of(&at("dir")));
    assert_eq!(modes(&|name| held.at(name)), (0o770, 0o3770));
    let home = held.release();
    assert_eq!(modes(&|name| home.join(name)), (0o770, 0o3770));
}

fn inode_numbers_are_kept() {
    let fixture = mounted();
    fs::create_dir(fixture.at("dir")).unwrap();
    fs::write(fixture.at("dir/file"), b"content").unwrap();
    let number = |name: &str| fs::metadata(fixture.at(name)).unwrap().ino();
    let before = (number("dir"), number("dir/file"));
    for _ in 0..2 {
        bring_home(&fixture);
        // The kernel forgets what it does not use.
        let dropped =
            Command::new("sh").args(["-c", "sync; echo 2 > /proc/sys/vm/drop_caches"]).status();
        assert!(dropped.unwrap().success());
        assert_eq!((number("dir"), number("dir/file")), before);
        assert_eq!(fs::read(fixture.at("dir/file")).unwrap(), b"content");
    }
}
