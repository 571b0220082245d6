//! Mount namespaces besides this process's own that still show a mount.
//!
//! The kernel ends a FUSE mount when the last namespace has let go of it. A mount is private to
//! `unshare --mount`, containers and services with a namespace of their own: what is unmounted here
//! stays mounted there. Reads /proc alone and touches no mounted file system.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::Path;

use crate::mounts::{Device, Mount, MountTable};

/// One process of a namespace that shows the mount, to name the namespace by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process number, as this process sees it.
    pub pid: u32,
    /// The command's name.
    pub name: String,
    /// Where the mount is in its namespace.
    pub mount_point: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.pid)
    }
}

/// The namespaces besides our own that show the Weir mount with this device number, each by its
/// lowest process number. Namespaces whose processes this user may not look at are left out, and
/// those without a process.
pub fn holders(device: Device) -> Vec<Holder> {
    holders_where(|mount| mount.device == device)
}

/// The same for the Weir mounts that `wanted` chooses.
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
        // A process with another root directory sees a part of its namespace's mounts: the next
        // one may see more.
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

/// What tells one mount namespace from all others.
fn namespace(process: &Path) -> Option<OsString> {
    Some(fs::read_link(process.join("ns/mnt")).ok()?.into_os_string())
}

/// Whether a process has this process's mount namespace; true if that cannot be found out.
pub fn is_ours(pid: u32) -> bool {
    let other = namespace(&Path::new("/proc").join(pid.to_string()));
    other.is_none() || other == namespace(Path::new("/proc/self"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_holds_nothing_from_itself() {
        assert!(is_ours(std::process::id()));
        let nowhere = Device { major: 0, minor: u32::MAX };
        assert_eq!(holders(nowhere), []);
        assert!(processes().contains(&std::process::id()));
    }
}
