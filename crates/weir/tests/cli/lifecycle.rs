//! A mount from beginning to end, and what the commands show of it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use rustix::process::{Pid, Signal};

use crate::scene::{
    Scene, assert_refused, assert_silent_success, fuse, needs_root, runs, signal, wait_until,
};

#[test]
fn mount_write_status_sync_umount() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("whole-life");
    scene.mount(&["--memory", "64M", "--fetch", "lazy", "--dirty-expire", "1h"]);
    assert!(scene.is_mounted());
    let file = scene.mountpoint.join("file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "home\n");
    assert!(!scene.mountpoint.join(".weir").exists());
    fs::write(&file, "away\n").unwrap();

    let status = scene.status();
    assert_eq!(status["source"], scene.source.to_str().unwrap());
    assert_eq!(status["mountpoint"], scene.mountpoint.to_str().unwrap());
    assert_eq!(status["fetch_policy"], "lazy");
    assert_eq!(status["read_only"], false);
    assert_eq!(status["stats"]["memory_bytes_max"], 64 << 20);
    assert_eq!(status["stats"]["patch_bytes_max"], 16 << 20);
    assert_eq!(status["stats"]["dirty_pages"], 1);
    assert!(status["latency"]["write"]["count"].as_u64().unwrap() >= 1);
    assert!(status["resident_bytes"].as_u64().unwrap() > 0);

    let below = scene.mountpoint.join("file");
    assert_silent_success(&scene.weir(&["sync".as_ref(), below.as_os_str()]));
    assert_eq!(scene.at_home(), "away\n");
    assert_eq!(scene.status()["stats"]["dirty_pages"], 0);

    fs::write(&file, "at last\n").unwrap();
    let daemon = scene.daemon();
    assert_silent_success(&scene.umount(&[]));
    assert!(!runs(daemon) && !scene.is_mounted() && scene.is_unlocked());
    assert_eq!(scene.at_home(), "at last\n");
    assert_eq!(fs::read_dir(&scene.mountpoint).unwrap().count(), 0);
    assert_refused(&scene.umount(&[]), 1, &["neither in a weir mount"]);
    // It can be mounted again.
    scene.mount(&[]);
    assert_silent_success(&scene.umount(&[]));
}

#[test]
fn status_of_a_file_tells_how_far_it_is() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("state");
    let log = scene.directory.join("log");
    scene.mount(&["--log", log.to_str().unwrap(), "--dirty-expire", "1h"]);
    let path = scene.mountpoint.join("file");
    let shown = |path: &Path| {
        let output = scene.weir(&["status".as_ref(), path.as_os_str()]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let is = |state| assert_eq!(shown(&path), format!("{}: {state}\n", path.display()));
    is("home");
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"away", 0).unwrap();
    is("dirty");
    // A first sync may go home, with what else is to be synced there.
    file.sync_all().unwrap();
    file.write_all_at(b"gone", 0).unwrap();
    file.sync_all().unwrap();
    is("logged");
    file.write_all_at(b"more", 4).unwrap();
    is("dirty");
    let as_json = scene.weir(&["status".as_ref(), "--json".as_ref(), path.as_os_str()]);
    let told: serde_json::Value = serde_json::from_slice(&as_json.stdout).unwrap();
    assert_eq!((&told["state"], &told["path"]), (&"dirty".into(), &path.to_str().unwrap().into()));
    assert_silent_success(&scene.weir(&["sync", "mount"]));
    is("home");
    assert!(shown(&scene.mountpoint).contains("fetch policy"));
    symlink("file", scene.mountpoint.join("link")).unwrap();
    assert!(shown(&scene.mountpoint.join("link")).ends_with("link: home\n"));
    let missing = scene.mountpoint.join("missing");
    let missing = scene.weir(&["status".as_ref(), missing.as_os_str()]);
    assert_refused(&missing, 1, &["missing", "No such file"]);
}

#[test]
fn status_for_people_is_a_table() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("table");
    scene.mount(&[]);
    let output = scene.weir(&["status", "mount"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for row in ["source", "fetch policy", "memory", "dirty", "fetches avoided", "latency"] {
        assert!(text.lines().any(|line| line.trim().starts_with(row)), "{row}: {text}");
    }
}

#[test]
fn status_of_all_is_an_array() {
    if !fuse() {
        return;
    }
    let (one, other) = (Scene::new("all-one"), Scene::new("all-other"));
    one.mount(&[]);
    other.mount(&[]);
    let output = one.weir(&["status", "--json"]);
    let statuses: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for scene in [&one, &other] {
        let place = scene.mountpoint.to_str().unwrap();
        let of_it = |status: &&serde_json::Value| status["mountpoint"] == place;
        assert_eq!(statuses.as_array().unwrap().iter().filter(of_it).count(), 1);
    }
}

#[test]
fn requests_of_the_kernel_are_counted() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("requests");
    scene.mount(&[]);
    fs::create_dir(scene.mountpoint.join("directory")).unwrap();
    let place = scene.mountpoint.to_str().unwrap();
    let output = scene.weir(&["status", "--requests", "--json", place]);
    let counted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&counted["mountpoint"], &counted["requests"]["mkdir"]), (&place.into(), &1.into()));
    assert!(counted["total"].as_u64().unwrap() >= 2 && counted["stats"].is_null(), "{counted}");
    let text = scene.weir(&["status", "--requests", place]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().any(|line| line.split_whitespace().eq(["mkdir", "1"])), "{text}");
}

#[test]
fn relative_paths_links_and_odd_names_work() {
    if !fuse() {
        return;
    }
    let mut scene = Scene::new("odd names");
    let source = scene.directory.join("so urce, é\\");
    fs::rename(&scene.source, &source).unwrap();
    symlink("so urce, é\\", scene.directory.join("link")).unwrap();
    scene.source = source;
    assert_silent_success(&scene.weir(&["mount", "./link", "mount/../mount"]));
    assert_eq!(scene.status()["source"], scene.source.to_str().unwrap());
    fs::write(scene.mountpoint.join("file"), "away\n").unwrap();
    assert_silent_success(&scene.weir(&["umount", "mount/."]));
    assert_eq!(scene.at_home(), "away\n");
}

#[test]
fn a_read_only_mount_refuses_changes() {
    if !fuse() {
        return;
    }
    for arguments in [&["--read-only"][..], &["-o", "ro"]] {
        let scene = Scene::new("read-only");
        scene.mount(arguments);
        assert_eq!(scene.status()["read_only"], true);
        let error = fs::write(scene.mountpoint.join("file"), "x").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(fs::read_to_string(scene.mountpoint.join("file")).unwrap(), "home\n");
        assert_silent_success(&scene.umount(&[]));
        assert_eq!(scene.at_home(), "home\n");
    }
}

#[test]
fn a_source_that_is_read_only_can_be_mounted_and_locks() {
    if !fuse() || !needs_root() {
        return;
    }
    let scene = Scene::new("frozen");
    rustix::mount::mount_bind(&scene.source, &scene.source).unwrap();
    let frozen = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(&scene.source, frozen, "").unwrap();
    let check = std::panic::catch_unwind(|| {
        fs::create_dir(scene.directory.join("other")).unwrap();
        scene.mount(&["--read-only"]);
        let again = scene.weir(&["mount", "--read-only", "source", "other"]);
        assert_refused(&again, 1, &["already mounted"]);
        assert_eq!(fs::read_to_string(scene.mountpoint.join("file")).unwrap(), "home\n");
        assert_silent_success(&scene.umount(&[]));
    });
    rustix::mount::unmount(&scene.source, rustix::mount::UnmountFlags::DETACH).unwrap();
    check.unwrap();
}

#[test]
fn a_mount_that_was_moved_is_unmounted_where_it_is() {
    if !fuse() || !needs_root() {
        return;
    }
    let scene = Scene::new("moved");
    let places = scene.directory.join("places");
    let (first, second) = (places.join("first"), places.join("second"));
    fs::create_dir_all(&first).unwrap();
    fs::create_dir_all(&second).unwrap();
    // A mount below a shared one cannot be moved.
    rustix::mount::mount_bind(&places, &places).unwrap();
    let check = std::panic::catch_unwind(|| {
        let private = rustix::mount::MountPropagationFlags::PRIVATE;
        rustix::mount::mount_change(&places, private).unwrap();
        assert_silent_success(&scene.weir(&["mount", "source", "places/first"]));
        fs::write(first.join("file"), "changed\n").unwrap();
        rustix::mount::mount_move(&first, &second).unwrap();
        assert_eq!(fs::read_to_string(second.join("file")).unwrap(), "changed\n");
        assert_silent_success(&scene.weir(&["umount", "places/second"]));
        assert_eq!(scene.at_home(), "changed\n");
        assert!(!second.join("file").exists());
    });
    rustix::mount::unmount(&places, rustix::mount::UnmountFlags::DETACH).unwrap();
    check.unwrap();
}

#[test]
fn the_foreground_logs_to_the_terminal_and_ends_with_the_mount() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("foreground");
    let mut command = scene.command();
    fs::remove_file(scene.configuration()).unwrap();
    command.args(["mount", "--foreground", "source", "mount"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("mounted") && first.contains("INFO"), "{first}");
    fs::write(scene.mountpoint.join("file"), "away\n").unwrap();
    signal(Pid::from_child(&child), Signal::INT);
    assert!(child.wait().unwrap().success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(rest.iter().any(|line| line.contains("everything is home")), "{rest:?}");
    assert!(!scene.is_mounted() && scene.is_unlocked());
    assert_eq!(scene.at_home(), "away\n");
}

#[test]
fn the_daemon_releases_terminal_and_directory() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("detached");
    // output() returns only when no process holds the pipes any more; in mount() it did.
    scene.mount(&[]);
    let daemon = scene.daemon().as_raw_nonzero();
    let link = |name: &str| fs::read_link(format!("/proc/{daemon}/{name}")).unwrap();
    assert_eq!(link("cwd"), std::path::Path::new("/"));
    assert_eq!(link("fd/0"), std::path::Path::new("/dev/null"));
    assert_eq!(link("fd/1"), std::path::Path::new("/dev/null"));
    assert_eq!(link("fd/2"), scene.log());
    let stat = fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!(fields[3], daemon.to_string(), "leads its own session");
}

#[test]
fn the_default_log_is_named_after_the_mount_point() {
    if !fuse() || !needs_root() {
        return;
    }
    let scene = Scene::ordinary("default-log");
    fs::remove_file(scene.configuration()).unwrap();
    assert_silent_success(&scene.weir(&["mount", "source", "mount"]));
    let logs: Vec<_> =
        fs::read_dir(scene.directory.join("state/weir")).unwrap().map(|log| log.unwrap()).collect();
    assert_eq!(logs.len(), 1);
    let name = logs[0].file_name().into_string().unwrap();
    assert!(name.ends_with("-mount.log"), "{name}");
    assert!(fs::read_to_string(logs[0].path()).unwrap().contains("mounted"));
    assert_silent_success(&scene.umount(&[]));
}

#[test]
fn of_two_concurrent_mounts_one_succeeds() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("race");
    for round in 0..5 {
        let places: Vec<_> = (0..4)
            .map(|index| {
                let place = scene.directory.join(format!("place-{round}-{index}"));
                fs::create_dir(&place).unwrap();
                place
            })
            .collect();
        let outputs: Vec<_> = thread::scope(|scope| {
            let runs: Vec<_> = places
                .iter()
                .map(|place| {
                    let scene = &scene;
                    scope.spawn(move || {
                        let mut command = scene.command();
                        command.arg("mount").arg(&scene.source).arg(place).output().unwrap()
                    })
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        let mut won = Vec::new();
        for (place, output) in places.iter().zip(&outputs) {
            if output.status.success() {
                won.push(place);
            } else {
                assert_refused(output, 1, &["already mounted"]);
            }
        }
        assert_eq!(won.len(), 1, "{outputs:?}");
        assert_silent_success(&scene.weir(&["umount".as_ref(), won[0].as_os_str()]));
        wait_until("the lock is let go", || scene.is_unlocked());
    }
}
