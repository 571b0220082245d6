//! `--record`: the contents of a record, and that it does not disturb the mount.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::scene::{Scene, assert_refused, assert_silent_success, fuse, wait_until};
use crate::trouble::limit_files;

/// The header and the other lines.
fn read(path: &Path) -> (Value, Vec<Value>) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

#[test]
fn a_mount_is_recorded_from_its_beginning_to_its_end() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("record");
    scene.mount(&["--write-back=adaptive", "--write-back-interval=20ms", "--record", "r.jsonl"]);
    for number in 0..20 {
        fs::write(scene.mountpoint.join(format!("{number}")), vec![7u8; 1 << 20]).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    assert_silent_success(&scene.umount(&[]));
    let (header, lines) = read(&scene.directory.join("r.jsonl"));
    assert_eq!(header["weir_record"], 1);
    assert_eq!(header["write_back"], "adaptive");
    assert_eq!(header["source"], scene.source.to_str().unwrap());
    assert!(lines.len() >= 8, "{} lines", lines.len());
    let of = |line: &Value, name: &str| line[name].as_u64().expect(name);
    let (first, last) = (&lines[0], lines.last().unwrap());
    assert_eq!(of(first, "dirtied_pages"), 0);
    assert_eq!(of(last, "dirtied_pages"), 20 * 256);
    assert_eq!(of(last, "cleaned_pages"), 20 * 256, "all is home when the mount ends");
    assert_eq!(of(last, "dirty_pages"), 0);
    assert!(lines.iter().any(|line| of(line, "dirty_memory_pages") > 0));
    for line in &lines {
        assert!(of(line, "watermark_low_pages") <= of(line, "watermark_high_pages"));
        assert!(of(line, "watermark_high_pages") <= of(line, "watermark_max_pages"));
    }
}

#[test]
fn a_record_that_cannot_be_made_is_reported_before_mounting() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("record-refused");
    fs::write(scene.directory.join("letter"), "dear").unwrap();
    for (path, why) in [
        ("letter", "no record"),
        ("source/r.jsonl", "lies in SOURCE"),
        ("gone/r.jsonl", "No such file or directory"),
        ("/dev/null", "no regular file"),
    ] {
        assert_refused(&scene.try_mount(&["--record", path]), 1, &["cannot record to", path, why]);
        assert!(!scene.is_mounted() && scene.is_unlocked());
    }
    assert_refused(&scene.try_mount(&["--record="]), 2, &["--record"]);
    assert_refused(&scene.try_mount(&["-o", "record=r"]), 2, &["'record'", "absolute"]);
}

#[test]
fn a_record_without_room_ends_and_the_mount_continues() {
    if !fuse() {
        return;
    }
    let scene = Scene::new("record-full");
    let record = scene.directory.join("r.jsonl");
    scene.mount(&["--write-back=adaptive", "--write-back-interval=10ms", "--record", "r.jsonl"]);
    let bytes = fs::metadata(&record).unwrap().len() + 3000;
    limit_files(scene.daemon(), Some(bytes));
    let warnings = || {
        let log = fs::read_to_string(scene.log()).unwrap();
        log.lines().filter(|line| line.contains("the record in")).count()
    };
    wait_until("the record has ended", || warnings() > 0);
    let (_, lines) = read(&record);
    limit_files(scene.daemon(), None);
    fs::write(scene.mountpoint.join("file"), "written\n").unwrap();
    thread::sleep(Duration::from_millis(50));
    assert_silent_success(&scene.umount(&[]));
    assert_eq!(scene.at_home(), "written\n");
    assert_eq!(warnings(), 1);
    assert_eq!(read(&record).1.len(), lines.len(), "whole lines, and none after its end");
}
