//! Setuid, setgid and capabilities of files that are changed.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::Test;
use crate::faults::set_immutable;
use crate::fixture::{Fixture, open};

pub const TESTS: &[Test] = &[
    ("a_strangers_write_takes_setuid", a_strangers_write_takes_setuid),
    (
        "capabilities_of_a_user_namespace_keep_nothing",
        capabilities_of_a_user_namespace_keep_nothing,
    ),
    ("root_may_lack_the_capability_to_keep_setuid", root_may_lack_the_capability_to_keep_setuid),
    ("roots_write_keeps_setuid", roots_write_keeps_setuid),
    ("any_write_takes_capabilities", any_write_takes_capabilities),
    ("capabilities_outlive_what_was_written_before", capabilities_outlive_what_was_written_before),
    (
        "capabilities_are_not_given_before_what_was_written",
        capabilities_are_not_given_before_what_was_written,
    ),
    ("a_change_of_owner_takes_setuid", a_change_of_owner_takes_setuid),
];

fn mode(fixture: &Fixture, name: &str) -> u32 {
    let mode = fs::metadata(fixture.at(name)).unwrap().mode() & 0o7777;
    assert_eq!(fs::metadata(fixture.home(name)).unwrap().mode() & 0o7777, mode);
    mode
}

fn privileged(fixture: &Fixture, name: &str) {
    fs::write(fixture.at(name), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(fixture.at(name), fs::Permissions::from_mode(0o6777)).unwrap();
    assert_eq!(mode(fixture, name), 0o6777);
}

fn a_strangers_write_takes_setuid() {
    let fixture = Fixture::new();
    for (name, command) in [
        ("append", "echo x >> append"),
        ("overwrite", "echo x > overwrite"),
        ("truncate", "truncate -s 3 truncate"),
        ("allocate", "fallocate -l 8192 allocate"),
    ] {
        privileged(&fixture, name);
        assert!(fixture.stranger(command), "{command}");
        assert_eq!(mode(&fixture, name), 0o777, "{command}");
    }
    // And again, after it was set anew while the file was known to have none.
    privileged(&fixture, "again");
    assert!(fixture.stranger("echo x >> again"));
    privileged(&fixture, "again");
    assert!(fixture.stranger("echo x >> again"));
    assert_eq!(mode(&fixture, "again"), 0o777);
}

/// Everybody has all capabilities in a user namespace of their own, over nothing outside.
fn capabilities_of_a_user_namespace_keep_nothing() {
    let fixture = Fixture::new();
    if !fixture.stranger("unshare -Ur true") {
        return println!("    (not checked: no user namespaces)");
    }
    for (name, command) in [
        ("append", "sh -c 'echo x >> append'"),
        ("truncate", "truncate -s 3 truncate"),
        ("allocate", "fallocate -l 8192 allocate"),
        (
            "copy",
            "python3 -c 'import os; os.copy_file_range(os.open(\"allocate\", 0), os.open(\"copy\", 1), 9)'",
        ),
    ] {
        privileged(&fixture, name);
        assert!(fixture.stranger(&format!("unshare -Ur {command}")), "{command}");
        assert_eq!(mode(&fixture, name), 0o777, "{command}");
    }
}

fn root_may_lack_the_capability_to_keep_setuid() {
    let fixture = Fixture::new();
    privileged(&fixture, "truncate");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-fsetid", "truncate", "-s", "3"]);
    assert!(command.arg(fixture.at("truncate")).status().unwrap().success());
    assert_eq!(mode(&fixture, "truncate"), 0o777);
}

fn roots_write_keeps_setuid() {
    let fixture = Fixture::new();
    privileged(&fixture, "file");
    let file = open(&fixture.at("file"));
    file.write_all_at(b"x", 0).unwrap();
    file.set_len(2).unwrap();
    file.sync_all().unwrap();
    assert_eq!(mode(&fixture, "file"), 0o6777);
}

/// cap_net_raw+ep, in the form of linux/capability.h.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn capabilities_outlive_what_was_written_before() {
    let fixture = Fixture::new();
    let path = fixture.at("file");
    let file = open(&path);
    file.write_all_at(b"x", 0).unwrap();
    setxattr(&path, "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
    file.sync_all().unwrap();
    assert_eq!(getxattr(&path, "security.capability", &mut [0; 64]), Ok(20));
    assert_eq!(getxattr(fixture.home("file"), "security.capability", &mut [0; 64]), Ok(20));
}

fn capabilities_are_not_given_before_what_was_written() {
    let fixture = Fixture::new();
    let path = fixture.at("file");
    let file = open(&path);
    file.write_all_at(b"x", 0).unwrap();
    if !set_immutable(&fixture.home("file"), true) {
        println!("    (not checked: the file system underneath knows no immutable files)");
        return;
    }
    let given = setxattr(&path, "security.capability", &CAPABILITY, XattrFlags::empty());
    assert!(set_immutable(&fixture.home("file"), false));
    // Data that is refused is an access denied. Home was not asked for the attribute, which is EPERM.
    assert_eq!(given, Err(rustix::io::Errno::ACCESS));
}

fn any_write_takes_capabilities() {
    let fixture = Fixture::new();
    let path = fixture.at("file");
    let file = open(&path);
    file.write_all_at(b"x", 0).unwrap();
    setxattr(&path, "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
    assert_eq!(getxattr(&path, "security.capability", &mut [0; 64]), Ok(20));
    file.write_all_at(b"y", 0).unwrap();
    let gone = Err(rustix::io::Errno::NODATA);
    assert_eq!(getxattr(&path, "security.capability", &mut [0; 64]), gone);
    assert_eq!(getxattr(fixture.home("file"), "security.capability", &mut [0; 64]), gone);
}

fn a_change_of_owner_takes_setuid() {
    let fixture = Fixture::new();
    privileged(&fixture, "file");
    std::os::unix::fs::chown(fixture.at("file"), Some(1), Some(1)).unwrap();
    assert_eq!(mode(&fixture, "file"), 0o777);
    assert_eq!(fs::metadata(fixture.at("file")).unwrap().uid(), 1);
}
