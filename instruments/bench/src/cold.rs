//! Files on the disk: making them, and taking them out of the kernel's page cache.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rustix::fs::{Advice, fadvise, statvfs};

use crate::error::{Doing, Result};
use crate::page::PAGE;
use crate::workload::Prepared;

/// Makes a file of `pages` pages of the content of `seed`, durable on the disk.
pub fn make_file(path: &Path, seed: u64, pages: u64) -> Result<()> {
    let file = File::create(path).doing("create", path)?;
    Prepared::new(seed).write(&file, path, 0, pages * PAGE)?;
    file.sync_all().doing("sync", path)
}

/// Takes a file's pages out of the page cache of the file system it is read through.
pub fn drop_cached(path: &Path) -> Result<()> {
    let file = OpenOptions::new().read(true).open(path).doing("open", path)?;
    file.sync_all().doing("sync", path)?;
    fadvise(&file, 0, None, Advice::DontNeed).doing("drop from the page cache", path)
}

/// As [`drop_cached`] for some files, and, where the caller may, everything clean the machine has
/// cached: that also takes the file system's own block maps, as after a restart.
pub fn make_cold(paths: &[&Path]) -> Result<()> {
    for path in paths {
        drop_cached(path)?;
    }
    drop_machine_caches();
    Ok(())
}

/// Drops everything clean that the machine has cached, names and attributes too, where the caller may: root alone.
pub fn drop_machine_caches() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

/// Bytes this process caused to be read from a disk so far (proc(5), /proc/pid/io).
pub fn disk_bytes_read() -> u64 {
    fs::read_to_string("/proc/self/io")
        .ok()
        .and_then(|io| io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()))
        .unwrap_or(0)
}

/// Bytes an ordinary user may still write to the file system of `path`.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let stat = statvfs(path).doing("look up free space of", path)?;
    Ok(stat.f_bavail * stat.f_frsize)
}
