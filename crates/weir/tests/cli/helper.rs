//! Mounting with mount(8), and from fstab(5).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use crate::scene::{
    Scene, assert_refused, assert_silent_success, complaints, fuse, needs, needs_root, wait_until,
};

/// Runs a shell script with `weir` installed as by `make install`, in a mount name space of its own, and
/// returns its standard output and error.
fn installed(scene: &Scene, script: &str) -> Output {
    let bin = scene.directory.join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_weir"), bin.join("weir")).unwrap();
    // mount(8) gives its helper a clean environment, so only the default directories are used.
    let script =
        format!("set -e; mount --bind bin /usr/local/sbin; mount -t tmpfs none /var/log; {script}");
    let mut command = scene.program_as("unshare", None);
    command.args(["--mount", "sh", "-c", &script]).output().unwrap()
}

/// The JSON that a script printed; standard error must be empty.
fn status_in(output: &Output) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints(&said).is_empty(), "{}: {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn can_mount() -> bool {
    let fuse3 = Path::new("/sbin/mount.fuse3").exists();
    if !fuse3 {
        eprintln!("skipped: /sbin/mount.fuse3 is missing");
    }
    fuse() && needs_root() && needs("mount") && needs("unshare") && fuse3
}

#[test]
fn mount_8_mounts_by_type() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new("mount8");
    let output = installed(
        &scene,
        "mount -t fuse.weir source mount \
         -o memory=32M,fetch=async-fg,nofail,_netdev,noatime,x-test=1; \
         weir status --json mount; echo away > mount/file; umount mount",
    );
    let status = status_in(&output);
    assert_eq!(status["stats"]["memory_bytes_max"], 32 << 20);
    assert_eq!(status["fetch_policy"], "async-fg");
    wait_until("everything is home", || scene.is_unlocked());
    assert_eq!(scene.at_home(), "away\n");
}

#[test]
fn fstab_lines_work() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new("fstab");
    let line = format!(
        "{} {} fuse.weir noauto,ro,allow_other,memory=32M,x-systemd.automount,comment=mine 0 0\n",
        scene.source.display(),
        scene.mountpoint.display()
    );
    fs::write(scene.directory.join("fstab"), line).unwrap();
    let script = "mount --fstab fstab $PWD/mount; weir status --json mount; weir umount mount";
    let status = status_in(&installed(&scene, script));
    assert_eq!(status["read_only"], true);
    assert_eq!(status["stats"]["memory_bytes_max"], 32 << 20);
    assert!(scene.is_unlocked());
}

#[test]
fn mount_8_passes_the_error_on() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new("mount8-error");
    let output = installed(&scene, "mount -t fuse.weir gone mount");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("weir: SOURCE"), "{output:?}");
    assert!(scene.is_unlocked());
}

#[test]
fn links_named_after_mount_work_as_its_helper() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("link");
    for name in ["mount.weir", "mount.fuse.weir"] {
        let link = scene.directory.join(name);
        symlink(env!("CARGO_BIN_EXE_weir"), &link).unwrap();
        let run = |arguments: &[&str]| {
            let mut command = scene.program_as(&link, None);
            command.args([&scene.source, &scene.mountpoint]).args(arguments).output().unwrap()
        };
        assert_refused(&run(&["-o", "rw,nonsense"]), 2, &["'nonsense'"]);
        // Fake (-f): everything is checked, nothing is done.
        assert_silent_success(&run(&["-f", "-o", "rw"]));
        assert!(!scene.is_mounted());
        // Sloppy (-s): unknown options are ignored.
        assert_silent_success(&run(&["-sn", "-t", "fuse.weir", "-o", "rw,nonsense,memory=32M"]));
        assert_eq!(scene.status()["stats"]["memory_bytes_max"], 32 << 20);
        assert_silent_success(&scene.umount(&[]));
    }
}
