//! The ways in which a mount ends: in each of them everything is home.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::scene::{
    Scene, assert_refused, assert_silent_success, fuse, needs, needs_root, runs, signal, wait_until,
};

#[test]
fn signals_write_home_and_unmount() {
    if !fuse() {
        return;
    }
    for ending in [Signal::TERM, Signal::INT, Signal::HUP] {
        let scene = Scene::new("signal");
        scene.mount(&["--dirty-expire", "1h"]);
        let daemon = scene.daemon();
        fs::write(scene.mountpoint.join("file"), "away\n").unwrap();
        signal(daemon, ending);
        wait_until("the daemon ends", || !runs(daemon));
        assert!(!scene.is_mounted() && scene.is_unlocked());
        assert_eq!(scene.at_home(), "away\n");
    }
}

#[test]
fn unmounting_by_hand_brings_everything_home() {
    if !fuse() {
        return;
    }
    for program in [&["umount"][..], &["fusermount3", "-u"]] {
        if !needs(program[0]) || (program[0] == "umount" && !needs_root()) {
            continue;
        }
        let scene = Scene::new("by-hand");
        scene.mount(&["--dirty-expire", "1h"]);
        let daemon = scene.daemon();
        fs::write(scene.mountpoint.join("file"), "away\n").unwrap();
        // A child that another test forks holds the file for a moment, too.
        wait_until("it is unmounted", || {
            let mut command = Command::new(program[0]);
            command.args(&program[1..]).arg(&scene.mountpoint).output().unwrap().status.success()
        });
        wait_until("the daemon ends", || !runs(daemon));
        assert!(scene.is_unlocked());
        assert_eq!(scene.at_home(), "away\n");
    }
}

/// The kernel gives the number of a mount that has ended to the next one.
#[test]
fn a_mount_that_has_the_number_of_one_that_has_ended_stays() {
    if !fuse() || !needs_root() || !needs("umount") {
        return;
    }
    let (ended, next) = (Scene::new("ended"), Scene::new("next"));
    // The mount table shows them alike.
    ended.mount(&["-o", "fsname=data"]);
    let daemon = ended.daemon();
    signal(daemon, Signal::STOP);
    let unmounted = Command::new("umount").arg("-l").arg(&ended.mountpoint).status().unwrap();
    assert!(unmounted.success());
    next.mount(&["-o", "fsname=data"]);
    // The daemon is told to end before it sees that its mount has.
    signal(daemon, Signal::TERM);
    signal(daemon, Signal::CONT);
    wait_until("the daemon ends", || !runs(daemon));
    assert!(next.is_mounted());
    assert_silent_success(&next.umount(&[]));
}

#[test]
fn a_mount_in_use_stays_and_its_user_is_named() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("busy");
    scene.mount(&[]);
    let mut open = File::create(scene.mountpoint.join("file")).unwrap();
    open.write_all(b"first\n").unwrap();
    let own = format!("({})", std::process::id());
    let place = scene.mountpoint.to_str().unwrap();
    assert_refused(&scene.umount(&[]), 1, &[place, "in use by", &own, "--force"]);
    assert!(scene.is_mounted());
    assert_eq!(scene.at_home(), "first\n", "written home all the same");
    open.write_all(b"second\n").unwrap();
    drop(open);
    assert_silent_success(&scene.umount(&[]));
    assert_eq!(scene.at_home(), "first\nsecond\n");
}

#[test]
fn force_unmounts_what_is_in_use_and_loses_nothing_that_can_go_home() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("force");
    scene.mount(&["--dirty-expire", "1h"]);
    let daemon = scene.daemon();
    let mut open = File::create(scene.mountpoint.join("file")).unwrap();
    open.write_all(b"first\n").unwrap();
    assert_silent_success(&scene.umount(&["--force"]));
    assert!(!runs(daemon) && !scene.is_mounted() && scene.is_unlocked());
    assert_eq!(scene.at_home(), "first\n");
    assert!(open.write_all(b"second\n").is_err());
}

#[test]
fn a_signal_detaches_what_is_in_use_and_waits_for_the_last_close() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("drain");
    scene.mount(&["--dirty-expire", "1h"]);
    let daemon = scene.daemon();
    let mut open = File::create(scene.mountpoint.join("file")).unwrap();
    open.write_all(b"first\n").unwrap();
    signal(daemon, Signal::TERM);
    wait_until("it is detached", || !scene.is_mounted());
    assert!(runs(daemon) && !scene.is_unlocked());
    open.write_all(b"second\n").unwrap();
    drop(open);
    wait_until("the daemon ends", || !runs(daemon));
    assert!(scene.is_unlocked());
    assert_eq!(scene.at_home(), "first\nsecond\n");
}

#[test]
fn a_second_signal_ends_it_with_everything_home() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("second-signal");
    scene.mount(&["--dirty-expire", "1h"]);
    let daemon = scene.daemon();
    let mut open = File::create(scene.mountpoint.join("file")).unwrap();
    signal(daemon, Signal::TERM);
    wait_until("it is detached", || !scene.is_mounted());
    open.write_all(b"late\n").unwrap();
    signal(daemon, Signal::TERM);
    wait_until("the daemon ends", || !runs(daemon));
    assert!(scene.is_unlocked());
    assert_eq!(scene.at_home(), "late\n");
    assert!(open.write_all(b"too late\n").is_err());
}

#[test]
fn a_dead_daemon_is_reported_and_its_mount_can_be_removed() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("dead");
    scene.mount(&[]);
    let daemon = scene.daemon();
    signal(daemon, Signal::KILL);
    wait_until("the daemon ends", || !runs(daemon));
    assert!(scene.is_mounted());
    let place = scene.mountpoint.to_str().unwrap();
    assert_refused(&scene.weir(&["status", place]), 1, &[place, "has died", "weir umount"]);
    assert_refused(&scene.weir(&["sync", place]), 1, &["has died"]);
    assert_refused(&scene.try_mount(&[]), 1, &["MOUNTPOINT", "already a weir mount"]);
    assert_refused(&scene.umount(&[]), 1, &["unmounted", "had died"]);
    assert!(!scene.is_mounted());
    // The lock was released by the holder's death.
    scene.mount(&[]);
    assert_silent_success(&scene.umount(&[]));
    assert!(scene.is_unlocked());
}

#[test]
fn a_daemon_that_dies_during_a_request_is_reported_as_dead() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("dies");
    scene.mount(&[]);
    let daemon = scene.daemon();
    // The kernel answers from its caches even when no daemon serves the mount any more.
    fs::metadata(&scene.mountpoint).unwrap();
    signal(daemon, Signal::STOP);
    let mut asking = scene.command();
    asking.args(["status", "mount"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let asking = asking.spawn().unwrap();
    // A request that comes too late gets the same answer.
    thread::sleep(Duration::from_millis(300));
    signal(daemon, Signal::KILL);
    assert_refused(&asking.wait_with_output().unwrap(), 1, &["mount", "has died", "weir umount"]);
    assert_refused(&scene.umount(&[]), 1, &["unmounted", "had died"]);
}

#[test]
fn a_lost_control_socket_is_not_reported_as_a_dead_daemon() {
    if !fuse() || !needs_root() {
        return;
    }
    let scene = Scene::new("socket");
    scene.mount(&["--dirty-expire", "1h"]);
    let daemon = scene.daemon();
    fs::write(scene.mountpoint.join("file"), "away\n").unwrap();
    let device = fs::metadata(&scene.mountpoint).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::remove_file(format!("/run/weir/{major}:{minor}.sock")).unwrap();
    assert_refused(&scene.umount(&[]), 1, &["control socket", "is gone", "fusermount3 -u"]);
    assert!(runs(daemon) && scene.is_mounted());
    wait_until("it is unmounted", || {
        let mut command = Command::new("umount");
        command.arg(&scene.mountpoint).output().unwrap().status.success()
    });
    wait_until("the daemon ends", || !runs(daemon));
    assert_eq!(scene.at_home(), "away\n");
}

#[test]
fn two_concurrent_unmounts_both_get_the_right_answer() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("umount-twice");
    for round in 0..5 {
        scene.mount(&["--dirty-expire", "1h"]);
        let text = format!("round {round}\n");
        fs::write(scene.mountpoint.join("file"), &text).unwrap();
        let outputs: Vec<_> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..3).map(|_| scope.spawn(|| scene.umount(&[]))).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert!(!scene.is_mounted() && scene.is_unlocked());
        assert_eq!(scene.at_home(), text);
        assert!(outputs.iter().any(|output| output.status.success()), "{outputs:?}");
        for output in outputs.iter().filter(|output| !output.status.success()) {
            // The mount is already gone.
            assert_refused(output, 1, &[scene.mountpoint.to_str().unwrap()]);
        }
    }
}
