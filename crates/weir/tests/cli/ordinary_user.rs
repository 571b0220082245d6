//! A mount by an ordinary user.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::Signal;

use crate::scene::{
    ORDINARY, Scene, assert_refused, assert_silent_success, fuse, needs, needs_root, runs, signal,
    wait_until,
};

fn playable() -> bool {
    fuse() && needs_root() && needs("fusermount3")
}

/// Runs a line of shell as that user.
fn shell(scene: &Scene, user: u32, line: &str) -> std::process::Output {
    scene.program_as("sh", Some(user)).args(["-c", line]).output().unwrap()
}

#[test]
fn an_ordinary_user_can_mount_use_and_unmount() {
    if !playable() {
        return;
    }
    let scene = Scene::ordinary("user-life");
    scene.mount(&["--memory", "32M", "--dirty-expire", "1h"]);
    let output =
        shell(&scene, ORDINARY, "cat mount/file && echo away > mount/file && mkdir mount/d");
    assert_eq!((output.stdout, output.stderr), (b"home\n".to_vec(), Vec::new()));
    assert_eq!(scene.status()["stats"]["dirty_pages"], 1);
    let daemon = scene.daemon();
    let owner = fs::metadata(format!("/proc/{}", daemon.as_raw_nonzero())).unwrap().uid();
    assert_eq!(owner, ORDINARY);
    assert_silent_success(&scene.weir(&["sync", "mount"]));
    assert_eq!(scene.at_home(), "away\n");
    assert_silent_success(&scene.umount(&[]));
    assert!(!runs(daemon) && scene.is_unlocked());
    assert_eq!(fs::metadata(scene.source.join("d")).unwrap().uid(), ORDINARY);
}

#[test]
fn a_users_daemon_ends_with_sigterm() {
    if !playable() {
        return;
    }
    let scene = Scene::ordinary("user-signal");
    scene.mount(&["--dirty-expire", "1h"]);
    let daemon = scene.daemon();
    assert_silent_success(&shell(&scene, ORDINARY, "echo away > mount/file"));
    signal(daemon, Signal::TERM);
    wait_until("the daemon ends", || !runs(daemon));
    assert!(!scene.is_mounted() && scene.is_unlocked());
    assert_eq!(scene.at_home(), "away\n");
}

#[test]
fn root_may_ask_a_users_daemon_and_other_users_may_not() {
    if !playable() {
        return;
    }
    let scene = Scene::ordinary("user-others");
    scene.mount(&[]);
    let ask = |user: Option<u32>, command: &str| {
        scene.command_as(user).arg(command).arg(&scene.mountpoint).output().unwrap()
    };
    let own = scene.mountpoint.to_str().unwrap();
    for command in ["status", "sync", "umount"] {
        let output = ask(Some(ORDINARY - 1), command);
        assert_refused(&output, 1, &[own, &format!("belongs to user {ORDINARY}")]);
    }
    let all = scene.command_as(Some(ORDINARY - 1)).args(["status", "--json"]).output().unwrap();
    assert!(all.status.success());
    assert!(!String::from_utf8(all.stdout).unwrap().contains(own), "another user's mount is shown");
    assert!(ask(None, "status").status.success());
    assert_silent_success(&ask(None, "sync"));
    assert_silent_success(&ask(None, "umount"));
    assert!(!scene.is_mounted() && scene.is_unlocked());
}

#[test]
fn a_users_mount_in_use_stays() {
    if !playable() {
        return;
    }
    let scene = Scene::ordinary("user-busy");
    scene.mount(&[]);
    let mut holder = scene.program_as("sh", Some(ORDINARY));
    let mut holder = holder.args(["-c", "exec 9< mount/file; exec sleep 60"]).spawn().unwrap();
    let held = format!("/proc/{}/fd/9", holder.id());
    wait_until("it is in use", || fs::symlink_metadata(&held).is_ok());
    let refused = scene.umount(&[]);
    let user = format!("({})", holder.id());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_refused(&refused, 1, &["in use by", &user]);
    assert_silent_success(&scene.umount(&[]));
}

#[test]
fn a_user_can_mount_a_source_that_is_only_readable() {
    if !playable() {
        return;
    }
    let scene = Scene::ordinary("user-foreign");
    std::os::unix::fs::chown(&scene.source, Some(0), Some(0)).unwrap();
    let other = scene.directory.join("other");
    fs::create_dir(&other).unwrap();
    scene.mount(&[]);
    let output = shell(&scene, ORDINARY, "cat mount/file");
    assert_eq!(output.stdout, b"home\n");
    assert!(scene.is_unlocked(), "nothing can be created there");
    let second = scene.command_as(None).args(["mount", "source", "other"]).output().unwrap();
    assert_refused(&second, 1, &["already mounted"]);
    assert_silent_success(&scene.umount(&[]));
}

#[test]
fn odd_names_reach_the_helper_unharmed() {
    if !playable() {
        return;
    }
    let mut scene = Scene::ordinary("user-odd-names");
    let source = scene.directory.join("a, b=c\\d é");
    fs::rename(&scene.source, &source).unwrap();
    scene.source = source;
    scene.mount(&["-o", "noexec,noatime"]);
    assert_eq!(scene.status()["source"], scene.source.to_str().unwrap());
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains("user-odd-names")).unwrap();
    assert!(line.contains("a,\\040b=c\\134d\\040é"), "{line}");
    for option in ["nosuid", "nodev", "noexec", "noatime", "user_id=65534"] {
        assert!(line.contains(option), "{option}: {line}");
    }
    assert_silent_success(&scene.umount(&[]));
}
