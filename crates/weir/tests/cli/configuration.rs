//! Configuration files, and which setting overrides which.

use std::fs;

use crate::scene::{Scene, assert_silent_success, fuse};

#[test]
fn the_command_line_overrides_the_table_which_overrides_the_file() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("layers");
    let text = format!(
        "log-file = \"{}\"\nfetch = \"lazy\"\nmemory = \"32M\"\npatch-memory = \"4M\"\n\
         [mount.\"{}\"]\nmemory = \"48M\"\npatch-memory = \"6M\"\n\
         [mount.\"/elsewhere\"]\nfetch = \"blocking\"\n",
        scene.log().display(),
        scene.mountpoint.display()
    );
    fs::write(scene.configuration(), &text).unwrap();
    scene.mount(&["--patch-memory", "8M"]);
    let status = scene.status();
    assert_eq!(status["fetch_policy"], "lazy");
    assert_eq!(status["stats"]["memory_bytes_max"], 48 << 20);
    assert_eq!(status["stats"]["patch_bytes_max"], 8 << 20);
    assert_silent_success(&scene.umount(&[]));
    // Another file instead.
    fs::write(scene.directory.join("mine.toml"), "options = \"memory=40M,ro\"\n").unwrap();
    scene.mount(&["--config", "mine.toml", "-o", "rw", "--log-file", "other.log"]);
    let status = scene.status();
    assert_eq!(status["fetch_policy"], "auto");
    assert_eq!(status["stats"]["memory_bytes_max"], 40 << 20);
    assert_eq!(status["read_only"], false);
    assert_eq!(status["write_back"], "adaptive");
    assert_silent_success(&scene.umount(&[]));
}

#[test]
fn adaptive_write_back_is_the_default_and_shown() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("adaptive");
    scene.mount(&["--write-back-interval=50ms", "--dirty-max=30"]);
    for number in 0..50 {
        let name = scene.mountpoint.join(format!("file {number}"));
        fs::write(&name, vec![7u8; 1 << 20]).unwrap();
        assert_eq!(fs::read(name).unwrap().len(), 1 << 20);
    }
    let status = scene.status();
    assert_eq!(status["write_back"], "adaptive");
    let stats = &status["stats"];
    let count = |name: &str| stats[name].as_u64().expect(name);
    assert!(count("dirtied_pages") >= 50 * 256);
    assert!(count("watermark_low_pages") <= count("watermark_high_pages"));
    assert!(count("watermark_high_pages") <= count("watermark_max_pages"));
    assert!(count("watermark_max_pages") <= count("cache_pages") * 30 / 100);
    assert!(count("pressure_pages") <= count("dirty_bound_pages"));
    assert!(count("memory_bytes") <= count("memory_bytes_max"));
    assert_silent_success(&scene.umount(&[]));
}

#[test]
fn every_command_has_help() {
    let scene = Scene::new("help");
    for command in ["mount", "umount", "sync", "status"] {
        let output = scene.weir(&[command, "--help"]);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for part in ["EXAMPLES:", "EXIT STATUS:", &format!("Usage: weir {command}")] {
            assert!(text.contains(part), "{command}: no {part}");
        }
    }
    let text = String::from_utf8(scene.weir(&["--help"]).stdout).unwrap();
    assert!(text.contains("FILES:"));
    let version = scene.weir(&["--version"]);
    assert_eq!(version.stdout, format!("weir {}\n", env!("CARGO_PKG_VERSION")).into_bytes());
}
