//! Home refuses writes: the error is reported, the data is kept and tried again, and dropped only by
//! `--force`.
//!
//! The daemon's limit on file sizes makes home refuse what lies past it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::scene::{
    Scene, assert_refused, assert_silent_success, fuse, needs, runs, signal, wait_until,
};

const BEYOND: u64 = 1 << 20;

/// A mount with a dirty page that cannot go home.
fn stuck(name: &str) -> Scene {
    let scene = Scene::new(name);
    let file = File::options().write(true).open(scene.source.join("file")).unwrap();
    file.write_all_at(&[b'h'; 8192], BEYOND).unwrap();
    drop(file);
    scene.mount(&["--dirty-expire", "1h"]);
    let file = File::options().write(true).open(scene.mountpoint.join("file")).unwrap();
    file.write_all_at(&[b'a'; 4096], BEYOND).unwrap();
    limit_files(scene.daemon(), Some(4096));
    scene
}

pub fn limit_files(daemon: Pid, bytes: Option<u64>) {
    let maximum = rustix::process::getrlimit(Resource::Fsize).maximum;
    prlimit(Some(daemon), Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

fn is_home(scene: &Scene) -> bool {
    fs::read(scene.source.join("file")).unwrap()[usize::try_from(BEYOND).unwrap()] == b'a'
}

#[test]
fn umount_and_sync_say_what_is_not_home_and_succeed_when_it_is() {
    if !fuse() {
        return;
    }
    let scene = stuck("stuck");
    let daemon = scene.daemon();
    let parts = ["4 KiB", "in file, could not be written home", "kept"];
    assert_refused(&scene.weir(&["sync", "mount"]), 1, &parts);
    assert_refused(&scene.umount(&[]), 1, &["still mounted", "4 KiB", "could not be written home"]);
    assert!(scene.is_mounted() && runs(daemon) && !is_home(&scene));
    let status = scene.status();
    assert!(status["stats"]["destage_errors"].as_u64().unwrap() >= 1);
    assert_eq!(status["stats"]["dirty_pages"], 1);
    limit_files(daemon, None);
    assert_silent_success(&scene.umount(&[]));
    assert!(is_home(&scene));
}

#[test]
fn force_says_what_is_lost() {
    if !fuse() {
        return;
    }
    let scene = stuck("forced-loss");
    let daemon = scene.daemon();
    assert_refused(&scene.umount(&["--force"]), 1, &["by force", "4 KiB", "in file, is lost"]);
    wait_until("the daemon ends", || !runs(daemon));
    assert!(!scene.is_mounted() && !is_home(&scene));
    assert!(fs::read_to_string(scene.log()).unwrap().contains("is lost"));
    // The redo log stays for the next mount: it may hold what was synced and is not home.
    assert!(!scene.source.join(".weir/lock").exists() && scene.source.join(".weir/log").exists());
    scene.mount(&[]);
    assert_silent_success(&scene.umount(&[]));
    assert!(scene.is_unlocked());
}

#[test]
fn signals_do_not_lose_what_cannot_go_home() {
    if !fuse() {
        return;
    }
    let scene = stuck("signalled-stuck");
    let daemon = scene.daemon();
    let logged = |text: &str| fs::read_to_string(scene.log()).unwrap().matches(text).count();
    signal(daemon, Signal::TERM);
    wait_until("it says so", || logged("still mounted") == 1);
    signal(daemon, Signal::TERM);
    wait_until("it says so again", || logged("still mounted") == 2);
    assert!(runs(daemon) && scene.is_mounted());
    assert_eq!(scene.status()["stopping"], true);
    // A failed attempt does not cancel the signal.
    assert_refused(&scene.umount(&[]), 1, &["still mounted"]);
    limit_files(daemon, None);
    wait_until("the daemon ends by itself", || !runs(daemon));
    assert!(is_home(&scene) && scene.is_unlocked() && !scene.is_mounted());
}

#[test]
fn unmounted_by_hand_it_stays_locked_until_everything_is_home() {
    if !fuse() {
        return;
    }
    let scene = stuck("by-hand-stuck");
    let daemon = scene.daemon();
    if !needs("fusermount3") {
        return;
    }
    wait_until("it is unmounted", || {
        let mut unmount = scene.program_as("fusermount3", None);
        unmount.args(["-u", "mount"]).output().unwrap().status.success()
    });
    wait_until("it says so", || {
        fs::read_to_string(scene.log()).unwrap().contains("unmounted, but")
    });
    assert!(runs(daemon) && !scene.is_unlocked());
    // A mount waits for a daemon that makes progress, not for one that fails.
    let refused = scene.try_mount(&[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("waiting for process") && said.contains("cannot write home"), "{said}");
    limit_files(daemon, None);
    wait_until("the daemon ends by itself", || !runs(daemon));
    assert!(is_home(&scene) && scene.is_unlocked());
}
