//! On which file systems a program's files are, and which directory the advice is about.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use weir_advise::call::{Event, Group, What};
use weir_advise::footprint::Recorder;
use weir_advise::report::Used;
use weir_advise::trace::Trace;

use crate::mounts::{Mount, MountTable};

/// File systems without files of a program.
const PSEUDO: [&str; 14] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "securityfs",
    "debugfs",
    "tracefs",
    "bpf",
    "mqueue",
    "configfs",
    "pstore",
    "efivarfs",
];
/// A directory is entered while it has this share of the calls.
const SHARE: f64 = 0.8;

/// Whether it has files that Weir could serve.
pub fn has_files(mount: &Mount) -> bool {
    !PSEUDO.contains(&mount.fs_type.as_str())
}

/// The path of an event, if it is one of the machine.
pub fn path<'a>(trace: &'a Trace, event: &Event) -> Option<&'a Path> {
    let path = trace.paths.get(event.path?);
    (path.starts_with(b"/") && event.what != What::Output)
        .then(|| Path::new(OsStr::from_bytes(path)))
}

/// The file systems by time in their calls and by calls, the most used first.
pub fn used(trace: &Trace, table: &MountTable, recorder: Recorder) -> Vec<Used> {
    let mut found: BTreeMap<PathBuf, Used> = BTreeMap::new();
    for event in &trace.events {
        let Some(mount) = path(trace, event).and_then(|path| table.containing(path)) else {
            continue;
        };
        if !has_files(mount) {
            continue;
        }
        let used = found.entry(mount.mount_point.clone()).or_insert_with(|| Used {
            mount_point: mount.mount_point.display().to_string(),
            kind: mount.fs_type.clone(),
            calls: 0,
            read_bytes: 0,
            written_bytes: 0,
            syncs: 0,
            names: 0,
            waited_us: 0.0,
        });
        used.calls += 1;
        used.waited_us += recorder.own_us(event);
        match event.group() {
            Group::Reads if !event.failed => {
                used.read_bytes = used.read_bytes.saturating_add(event.length)
            }
            Group::Writes if event.what == What::Write && !event.failed => {
                used.written_bytes = used.written_bytes.saturating_add(event.length);
            }
            Group::Syncs => used.syncs += 1,
            Group::Names => used.names += 1,
            _ => {}
        }
    }
    let mut found: Vec<Used> = found.into_values().collect();
    found.sort_by(|one, other| {
        other.waited_us.total_cmp(&one.waited_us).then(other.calls.cmp(&one.calls))
    });
    found
}

/// The directory, there now, with most of the calls that change files; or read them, if none is changed.
pub fn source(trace: &Trace, table: &MountTable) -> Option<PathBuf> {
    [true, false].into_iter().find_map(|changes| most_used(trace, table, changes))
}

fn most_used(trace: &Trace, table: &MountTable, changes: bool) -> Option<PathBuf> {
    let mut files: BTreeMap<&Path, u64> = BTreeMap::new();
    for event in trace.events.iter().filter(|event| !event.failed) {
        let is_change = matches!(event.group(), Group::Writes | Group::Syncs | Group::Names);
        if is_change != changes || (!changes && event.group() != Group::Reads) {
            continue;
        }
        let Some(path) = path(trace, event) else { continue };
        if table.containing(path).is_some_and(has_files) {
            *files.entry(path).or_default() += 1;
        }
    }
    let total: u64 = files.values().sum();
    let mut directory = PathBuf::from("/");
    loop {
        let mut below: BTreeMap<PathBuf, u64> = BTreeMap::new();
        for (path, calls) in files.iter().filter(|(path, _)| path.starts_with(&directory)) {
            let next = path.strip_prefix(&directory).ok().and_then(|rest| rest.components().next());
            if let Some(next) = next {
                *below.entry(directory.join(next)).or_default() += calls;
            }
        }
        let most = below.into_iter().max_by_key(|(_, calls)| *calls);
        match most {
            Some((next, calls)) if calls as f64 >= total as f64 * SHARE && next.is_dir() => {
                directory = next
            }
            _ => break,
        }
    }
    (total > 0 && directory != Path::new("/")).then_some(directory)
}
