//! On which file systems a program's files are, and which directory the advice is about.
//!
//! Invariant: a path that is in no mount of the table is in the root directory, on an unknown file system that has files. The table
//! lacks the root where that is no mount point: in a chroot.

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
/// The type of a file system that is not in the table.
pub const UNKNOWN: &str = "unknown";
/// A directory is entered while it has this share of the calls.
const SHARE: f64 = 0.8;

/// Whether it has files that Weir could serve.
fn has_files(mount: &Mount) -> bool {
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
        let Some(path) = path(trace, event) else { continue };
        let mount = table.containing(path);
        if !mount.is_none_or(has_files) {
            continue;
        }
        let (mount_point, kind) = mount.map_or((Path::new("/"), UNKNOWN), |mount| {
            (mount.mount_point.as_path(), mount.fs_type.as_str())
        });
        let used = found.entry(mount_point.to_owned()).or_insert_with(|| Used {
            mount_point: mount_point.display().to_string(),
            kind: kind.to_owned(),
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
        if table.containing(path).is_none_or(has_files) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const IN_A_CHROOT: &[u8] = b"66 45 0:41 / /proc rw,relatime - proc proc rw\n";

    /// Writes to `/proc/self/comm` and, four times as often, to a file in `directory`.
    fn writes_in(directory: &Path) -> Trace {
        let mut trace = Trace::default();
        let file = directory.join("file");
        let own = trace.paths.intern(file.as_os_str().as_bytes());
        let pseudo = trace.paths.intern(b"/proc/self/comm");
        for path in [own, own, pseudo, own, own] {
            let write = Event::new(0, 1, What::Write);
            trace.events.push(Event { path: Some(path), length: 10, ..write });
        }
        trace
    }

    #[test]
    fn the_root_of_a_chroot_has_files() {
        let table = MountTable::parse(IN_A_CHROOT);
        let directory = std::env::temp_dir().canonicalize().unwrap();
        let trace = writes_in(&directory);
        assert_eq!(source(&trace, &table), Some(directory));
        let used: Vec<_> = used(&trace, &table, Recorder::default())
            .into_iter()
            .map(|used| (used.mount_point, used.kind, used.written_bytes))
            .collect();
        assert_eq!(used, [("/".to_owned(), UNKNOWN.to_owned(), 40)]);
    }
}
