//! The memory available: the smaller of RAM and the cgroup's limit, and the default of `--memory`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::mounts::MountTable;

/// Smallest default: a smaller cache is not worth a daemon.
pub const DEFAULT_BYTES_MIN: u64 = 64 << 20;
/// Largest default; more has to be asked for.
pub const DEFAULT_BYTES_MAX: u64 = 4 << 30;

/// The default of `--memory`: an eighth of what this process may use, within
/// [`DEFAULT_BYTES_MIN`] and [`DEFAULT_BYTES_MAX`].
pub fn default_memory_bytes() -> u64 {
    default_of(usable_bytes())
}

fn default_of(usable: Option<u64>) -> u64 {
    usable
        .map_or(DEFAULT_BYTES_MIN, |bytes| (bytes / 8).clamp(DEFAULT_BYTES_MIN, DEFAULT_BYTES_MAX))
}

/// Bytes this process may use; `None` if neither RAM nor a limit can be read.
fn usable_bytes() -> Option<u64> {
    let ram = fs::read_to_string("/proc/meminfo").ok().and_then(|text| ram_bytes(&text));
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = MountTable::read().unwrap_or_default();
    [ram, cgroup_bytes(&cgroups, &mounts)].into_iter().flatten().min()
}

/// `MemTotal` of /proc/meminfo.
fn ram_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The tightest memory limit among the cgroups this process is in and all their ancestors,
/// cgroups(7), version 1 and 2.
fn cgroup_bytes(cgroups: &str, mounts: &MountTable) -> Option<u64> {
    let mut limit: Option<u64> = None;
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (fs_type, file) = if controllers.is_empty() {
            ("cgroup2", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("cgroup", "memory.limit_in_bytes")
        } else {
            continue;
        };
        for mount in mounts.iter().filter(|mount| mount.fs_type == fs_type) {
            let memory = mount.super_options.split(',').any(|option| option == "memory");
            if fs_type == "cgroup2" || memory {
                let found = tightest(&mount.mount_point, &mount.root, Path::new(path), file);
                limit = [limit, found].into_iter().flatten().min();
            }
        }
    }
    limit
}

/// The smallest limit in `file`, from a group up to the root of the mounted hierarchy.
fn tightest(mount_point: &Path, root: &Path, group: &Path, file: &str) -> Option<u64> {
    // In a container the mount may show only a part of the hierarchy: the path below it counts.
    let below = group.strip_prefix(root).or_else(|_| group.strip_prefix("/")).unwrap_or(group);
    let mut directory: PathBuf = mount_point.join(below);
    let mut limit: Option<u64> = None;
    loop {
        let found = fs::read_to_string(directory.join(file)).ok();
        let bytes = found.and_then(|text| text.trim().parse::<u64>().ok());
        limit = [limit, bytes].into_iter().flatten().min();
        if directory == mount_point || !directory.pop() || !directory.starts_with(mount_point) {
            return limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_within_bounds() {
        assert_eq!(default_of(Some(8 << 30)), 1 << 30);
        assert_eq!(default_of(Some(256 << 20)), 64 << 20);
        assert_eq!(default_of(Some(1 << 40)), 4 << 30);
        assert_eq!(default_of(None), 64 << 20);
        let memory = default_memory_bytes();
        assert!((DEFAULT_BYTES_MIN..=DEFAULT_BYTES_MAX).contains(&memory));
    }

    #[test]
    fn reads_meminfo() {
        assert_eq!(ram_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(ram_bytes("MemFree: 1 kB\n"), None);
        assert_eq!(ram_bytes("MemTotal: lots\n"), None);
    }

    /// Builds a hierarchy in a scratch directory and the mount table that shows it.
    fn hierarchy(name: &str, fs_type: &str, options: &str) -> (PathBuf, MountTable) {
        let top = std::env::temp_dir().join(format!("weir-cgroup-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(top.join("a/b")).unwrap();
        let line = format!("30 1 0:30 / {} rw - {fs_type} cgroup {options}\n", top.display());
        (top.clone(), MountTable::parse(line.as_bytes()))
    }

    #[test]
    fn version_2_takes_the_tightest_ancestor() {
        let (top, mounts) = hierarchy("v2", "cgroup2", "rw");
        fs::write(top.join("a/memory.max"), "1073741824\n").unwrap();
        fs::write(top.join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_bytes("0::/a/b\n", &mounts), Some(1 << 30));
        assert_eq!(cgroup_bytes("0::/\n", &mounts), None);
        assert_eq!(cgroup_bytes("0::/gone/away\n", &mounts), None);
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn version_1_reads_the_memory_controller_only() {
        let (top, mounts) = hierarchy("v1", "cgroup", "rw,memory");
        fs::write(top.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        fs::write(top.join("a/b/memory.limit_in_bytes"), "536870912\n").unwrap();
        assert_eq!(cgroup_bytes("5:cpu:/a\n4:memory:/a/b\n", &mounts), Some(512 << 20));
        assert_eq!(cgroup_bytes("5:cpu:/a/b\n", &mounts), None);
        assert_eq!(cgroup_bytes("garbage\n\n4:memory\n", &mounts), None);
        fs::remove_dir_all(top).unwrap();
    }
}
