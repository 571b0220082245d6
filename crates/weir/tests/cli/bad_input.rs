//! Invalid input: one line on standard error, the right exit status, and nothing changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::scene::{Scene, assert_refused, fuse, needs, needs_root};

/// `weir mount` with these arguments is refused and changes nothing.
fn refused(scene: &Scene, arguments: &[&str], status: i32, parts: &[&str]) {
    let before = scene.snapshot();
    let output = scene.command().arg("mount").args(arguments).output().unwrap();
    assert_refused(&output, status, parts);
    assert_eq!(scene.snapshot(), before, "{arguments:?}");
}

#[test]
fn source_must_be_a_directory() {
    let scene = Scene::new("source-kind");
    refused(&scene, &["gone", "mount"], 1, &["SOURCE", "gone", "does not exist"]);
    refused(&scene, &["source/file", "mount"], 1, &["SOURCE", "file", "not a directory"]);
    refused(&scene, &["source/file/x", "mount"], 1, &["not a directory"]);
    symlink("loop", scene.directory.join("loop")).unwrap();
    refused(&scene, &["loop", "mount"], 1, &["SOURCE", "loop"]);
    refused(&scene, &["", "mount"], 2, &["SOURCE"]);
}

#[test]
fn source_must_be_permitted() {
    if !needs_root() {
        return;
    }
    let scene = Scene::ordinary("source-denied");
    fs::set_permissions(&scene.source, fs::Permissions::from_mode(0o000)).unwrap();
    refused(&scene, &["source", "mount"], 1, &["SOURCE", "permission denied"]);
    // Neither reading names nor searching alone is enough.
    for mode in [0o400, 0o100] {
        fs::set_permissions(&scene.source, fs::Permissions::from_mode(mode)).unwrap();
        refused(&scene, &["source", "mount"], 1, &["SOURCE", "permission denied"]);
    }
    fs::set_permissions(&scene.source, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn mountpoint_must_be_an_empty_directory() {
    let scene = Scene::new("mountpoint-kind");
    fs::create_dir_all(scene.directory.join("full/inside")).unwrap();
    refused(&scene, &["source", "gone"], 1, &["MOUNTPOINT", "gone", "does not exist"]);
    refused(&scene, &["source", "source/file"], 1, &["MOUNTPOINT", "not a directory"]);
    refused(&scene, &["source", "full"], 1, &["MOUNTPOINT", "full", "not empty"]);
    refused(&scene, &["source", ""], 2, &["MOUNTPOINT"]);
}

#[test]
fn source_and_mountpoint_may_not_contain_each_other() {
    let scene = Scene::new("nesting");
    fs::create_dir_all(scene.directory.join("source/below/deep")).unwrap();
    symlink("source/below", scene.directory.join("link")).unwrap();
    refused(&scene, &["source", "source"], 1, &["same directory"]);
    refused(&scene, &["source", "./source/../source/"], 1, &["same directory"]);
    refused(&scene, &["source/below", "link"], 1, &["same directory"]);
    refused(&scene, &["source", "source/below/deep"], 1, &["lies inside SOURCE"]);
    refused(&scene, &["source", "link"], 1, &["lies inside SOURCE"]);
    refused(&scene, &["source/below", "source"], 1, &["lies inside MOUNTPOINT"]);
    refused(&scene, &["link", "source"], 1, &["lies inside MOUNTPOINT"]);
    refused(&scene, &["/", "mount"], 1, &["lies inside SOURCE /"]);
}

#[test]
fn sizes_and_durations_are_strict() {
    let scene = Scene::new("sizes");
    for size in ["", "lots", "-1", "1.5G", "64MB", "0x10", "64 M", "99999999999999999999G"] {
        let flag = format!("--memory={size}");
        refused(&scene, &["source", "mount", &flag], 2, &["--memory"]);
        let flag = format!("--patch-memory={size}");
        refused(&scene, &["source", "mount", &flag], 2, &["--patch-memory"]);
        let option = format!("memory={size}");
        refused(&scene, &["source", "mount", "-o", &option], 2, &["'memory'"]);
    }
    refused(&scene, &["source", "mount", "--memory=1M"], 2, &["1 MiB is too small", "16 MiB"]);
    let unused = ["source", "mount", "--write-back=static", "--dirty-max=30"];
    refused(&scene, &unused, 2, &["--dirty-max is for adaptive write-back"]);
    refused(&scene, &["source", "mount", "--memory=0"], 2, &["too small"]);
    let patch = ["source", "mount", "--memory=64M", "--patch-memory=40M"];
    refused(&scene, &patch, 2, &["40 MiB is too large", "at most 32 MiB"]);
    for age in ["", "5", "soon", "-1s", "1ms", "2d", "25h"] {
        let flag = format!("--dirty-expire={age}");
        refused(&scene, &["source", "mount", &flag], 2, &["--dirty-expire"]);
    }
    refused(&scene, &["source", "mount", "--fetch=never"], 2, &["'never'", "async-bg, lazy"]);
    refused(&scene, &["source", "mount", "-o", "fetch=never"], 2, &["'never'"]);
    refused(&scene, &["source", "mount", "--log-level=loud"], 2, &["'loud'"]);
    refused(
        &scene,
        &["source", "mount", "--write-back=eager"],
        2,
        &["'eager'", "static or adaptive"],
    );
    refused(
        &scene,
        &["source", "mount", "-o", "write_back=eager"],
        2,
        &["'write_back'", "'eager'"],
    );
    for interval in ["", "1", "9ms", "61s", "often"] {
        let flag = format!("--write-back-interval={interval}");
        refused(&scene, &["source", "mount", &flag], 2, &["--write-back-interval"]);
    }
    for percent in ["", "0", "51", "400", "0.4", "many"] {
        let flag = format!("--dirty-max={percent}");
        refused(&scene, &["source", "mount", &flag], 2, &["--dirty-max"]);
    }
}

#[test]
fn unknown_options_are_refused() {
    let scene = Scene::new("options");
    refused(&scene, &["source", "mount", "--nonsense"], 2, &["'--nonsense'", "--help"]);
    refused(&scene, &["source", "mount", "--memmory=1G"], 2, &["similar", "'--memory'"]);
    refused(&scene, &["source", "mount", "-o", "ro,nonsense"], 2, &["'nonsense'", "--help"]);
    refused(&scene, &["source", "mount", "-o", "uid=0"], 2, &["'uid'", "not supported"]);
    refused(&scene, &["source", "mount", "-o", "nonempty"], 2, &["'nonempty'"]);
    refused(&scene, &["source", "mount", "-o", "ro=1"], 2, &["'ro'", "no value"]);
    refused(&scene, &["source", "mount", "third"], 2, &["'third'"]);
    refused(&scene, &["source"], 2, &["SOURCE is missing", "/etc/weir.toml"]);
    refused(&scene, &[], 2, &["MOUNTPOINT"]);
}

#[test]
fn unknown_commands_are_refused() {
    let scene = Scene::new("commands");
    assert_refused(&scene.weir::<&str>(&[]), 2, &["no command", "--help"]);
    assert_refused(&scene.weir(&["dance"]), 2, &["'dance'"]);
    assert_refused(&scene.weir(&["umont", "x"]), 2, &["'umount'"]);
    assert_refused(&scene.weir(&["umount"]), 2, &["MOUNTPOINT"]);
    assert_refused(&scene.weir(&["sync", "a", "b"]), 2, &["'b'"]);
    assert_refused(&scene.weir(&["status", "--xml"]), 2, &["'--xml'"]);
}

#[test]
fn other_paths_than_weir_mounts_are_refused() {
    let scene = Scene::new("not-mounted");
    for command in ["umount", "sync", "status"] {
        assert_refused(
            &scene.weir(&[command, "source"]),
            1,
            &["source", "neither in a weir mount"],
        );
        assert_refused(&scene.weir(&[command, "gone"]), 1, &["gone", "No such file"]);
    }
}

#[test]
fn invalid_configuration_is_refused() {
    let scene = Scene::new("bad-config");
    let path = scene.directory.join("weir.toml");
    fs::write(&path, "# fine\nmemory = \"64M\"\nmemmory = \"64M\"\n").unwrap();
    let arguments = ["source", "mount", "--config", "weir.toml"];
    refused(&scene, &arguments, 2, &["weir.toml:3: unknown key 'memmory'"]);
    fs::write(&path, "[mount.\"/elsewhere\"]\nfetch = \"never\"\n").unwrap();
    refused(&scene, &arguments, 2, &["weir.toml:2: ", "'never'"]);
    fs::remove_file(&path).unwrap();
    refused(&scene, &arguments, 1, &["weir.toml", "cannot read"]);
    fs::write(scene.configuration(), "fetch = 1\n").unwrap();
    refused(&scene, &["source", "mount"], 2, &["config/weir/config.toml:1: 'fetch'"]);
}

#[test]
fn a_log_that_cannot_be_written_is_an_error_if_asked_for() {
    let scene = Scene::new("bad-log");
    let arguments = ["source", "mount", "--log-file", "source/file/log"];
    if fuse() {
        refused(&scene, &arguments, 1, &["cannot write the log", "source/file/log"]);
    }
}

#[test]
fn source_cannot_be_mounted_twice() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("twice");
    let other = scene.directory.join("other");
    fs::create_dir(&other).unwrap();
    scene.mount(&[]);
    let daemon = scene.daemon().as_raw_nonzero().to_string();
    let parts = ["SOURCE", "already mounted", scene.mountpoint.to_str().unwrap(), &daemon];
    refused(&scene, &["source", "other"], 1, &parts);
    refused(&scene, &["--read-only", "source", "other"], 1, &parts);
    refused(&scene, &["source", "mount"], 1, &["MOUNTPOINT", "already a weir mount"]);
    refused(&scene, &["mount", "other"], 1, &["SOURCE", "lies in the weir mount"]);
    // The first mount is not disturbed.
    assert_eq!(fs::read_to_string(scene.mountpoint.join("file")).unwrap(), "home\n");
    assert!(scene.umount(&[]).status.success());
}

#[test]
fn a_bind_mount_of_source_is_recognised() {
    if !needs_root() {
        return;
    }
    let scene = Scene::new("bind");
    let alias = scene.directory.join("alias");
    fs::create_dir(&alias).unwrap();
    fs::create_dir(scene.source.join("below")).unwrap();
    rustix::mount::mount_bind(&scene.source, &alias).unwrap();
    let check = std::panic::catch_unwind(|| {
        refused(&scene, &["source", "alias"], 1, &["same directory"]);
        refused(&scene, &["source", "alias/below"], 1, &["lies inside SOURCE"]);
        refused(&scene, &["alias/below", "source"], 1, &["lies inside MOUNTPOINT"]);
    });
    rustix::mount::unmount(&alias, rustix::mount::UnmountFlags::DETACH).unwrap();
    check.unwrap();
}

#[test]
fn a_missing_device_is_named() {
    if !needs_root() || !needs("unshare") {
        return;
    }
    let scene = Scene::new("no-device");
    let script =
        "mount -t tmpfs none /dev && mknod /dev/null c 1 3 && exec \"$0\" mount source mount";
    let before = scene.snapshot();
    let mut command: Command = scene.program_as("unshare", None);
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_weir")]);
    let output = command.output().unwrap();
    assert_refused(&output, 1, &["/dev/fuse is missing", "modprobe fuse"]);
    assert_eq!(scene.snapshot(), before);
}

#[test]
fn an_ordinary_user_needs_the_helper_and_permission() {
    if !fuse() || !needs_root() {
        return;
    }
    let scene = Scene::ordinary("helper");
    let before = scene.snapshot();
    let mut command = scene.command();
    let output = command.args(["mount", "source", "mount"]).env("PATH", "/nonexistent").output();
    assert_refused(&output.unwrap(), 1, &["fusermount3 is missing", "install"]);
    assert_eq!(scene.snapshot(), before);
    let conf = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !conf.lines().any(|line| line.trim() == "user_allow_other") && needs("fusermount3") {
        let expected = ["allow_other is not permitted", "user_allow_other", "/etc/fuse.conf"];
        refused(&scene, &["source", "mount", "--allow-other"], 1, &expected);
        refused(&scene, &["source", "mount", "-o", "allow_other"], 1, &expected);
    }
    fs::set_permissions(&scene.mountpoint, fs::Permissions::from_mode(0o555)).unwrap();
    refused(&scene, &["source", "mount"], 1, &["MOUNTPOINT", "permission denied"]);
}

#[test]
fn names_that_would_break_the_line_are_escaped() {
    let scene = Scene::new("newline");
    refused(&scene, &["a\nb\u{1b}[31m", "mount"], 1, &["a\\nb\\u{1b}[31m", "does not exist"]);
}
