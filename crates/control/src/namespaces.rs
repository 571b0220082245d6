//! Other mount namespaces that still have a mount.
//!
//! The kernel ends a FUSE mount when the last namespace has released it. `unshare --mount`,
//! containers and services have namespaces of their own: a mount that is unmounted here stays
//! mounted there. Reads only /proc and accesses no mounted file system.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::Path;

use crate::mounts::{Mount, MountTable};

/// One process of a namespace that has the mount, as the namespace's representative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process number in this process's PID namespace.
    pub pid: u32,
    /// The command's name.
    pub name: String,
    /// The mount point in its namespace.
    pub mount_point: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.pid)
    }
}

/// Other namespaces that have one of the Weir mounts selected by `wanted`, each represented by its
/// lowest process number. Leaves out namespaces whose processes this user may not inspect, and
/// those without processes.
pub fn holders_where(wanted: impl Fn(&Mount) -> bool) -> Vec<Holder> {
    let own = namespace(Path::new("/proc/self"));
    let mut known: BTreeSet<OsString> = own.into_iter().collect();
    let mut holders = Vec::new();
    for pid in processes() {
        let process = Path::new("/proc").join(pid.to_string());
        let Some(namespace) = namespace(&process) else { continue };
        if known.contains(&namespace) {
            continue;
        }
        let Ok(table) = fs::read(process.join("mountinfo")) else { continue };
        let table = MountTable::parse(&table);
        // A process with another root directory sees only some of its namespace's mounts: the next
        // process may see more.
        let Some(mount) = table.iter().find(|mount| mount.is_weir() && wanted(mount)) else {
            continue;
        };
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let (name, mount_point) = (name.trim().to_owned(), mount.mount_point.display().to_string());
        holders.push(Holder { pid, name, mount_point });
        known.insert(namespace);
    }
    holders
}

/// Process numbers, ascending.
fn processes() -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Identifies a mount namespace.
fn namespace(process: &Path) -> Option<OsString> {
    Some(fs::read_link(process.join("ns/mnt")).ok()?.into_os_string())
}

/// Whether a process is in this process's mount namespace; true if that cannot be determined.
pub fn is_ours(pid: u32) -> bool {
    let other = namespace(&Path::new("/proc").join(pid.to_string()));
    other.is_none() || other == namespace(Path::new("/proc/self"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::Device;

    #[test]
    fn the_own_namespace_is_not_listed() {
        assert!(is_ours(std::process::id()));
        let nowhere = Device { major: 0, minor: u32::MAX };
        assert_eq!(holders_where(|mount| mount.device == nowhere), []);
        assert!(processes().contains(&std::process::id()));
    }
}
