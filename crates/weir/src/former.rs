//! The daemon of a mount that is gone, which still writes home what was written last.
//!
//! umount(8) returns when the kernel has let go of the mount; the daemon keeps SOURCE locked until
//! everything is home. Whoever mounts SOURCE again meanwhile waits for that. A SOURCE that is
//! mounted, in whatever mount namespace, is not waited for.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use weir_engine::PAGE_BYTES;

use crate::control::client;
use crate::control::protocol::Status;
use crate::failure::{Failure, one_line};
use crate::mounts::{Mount, MountTable};
use crate::namespaces;
use crate::source;

/// How often it is looked whether the daemon has ended.
const PAUSE: Duration = Duration::from_millis(20);
/// How long is waited before anything is said: most have little left, and one that is only starting
/// has its mount by then.
const SILENCE: Duration = Duration::from_millis(500);
/// How often is said how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// A daemon that holds the lock on SOURCE.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    /// Where it has SOURCE mounted, or had.
    mountpoint: PathBuf,
}

/// Waits until no daemon that has lost its mount of `source` keeps it locked; says on standard
/// error for whom it waits. Ends with the process on ^C: nothing is changed here.
///
/// # Errors
/// That daemon fails to write home, so its end cannot be waited for.
pub fn wait_for_end(source: &Path) -> Result<(), Failure> {
    let Ok(source) = source.canonicalize() else { return Ok(()) };
    let start = Instant::now();
    let mut told: Option<Instant> = None;
    let mut errors_before = None;
    while let Some(Holder { pid, mountpoint }) = unmounted_holder(&source) {
        let pause = told.map_or(SILENCE, |_| PROGRESS);
        if told.unwrap_or(start).elapsed() < pause {
            thread::sleep(PAUSE);
            continue;
        }
        if told.is_none() {
            eprintln!(
                "weir: waiting for process {pid}, which writes home what was written to {}: it is no \
                 longer mounted there; ^C gives up",
                one_line(&mountpoint.to_string_lossy())
            );
        }
        // One that does not answer may yet get on.
        if let Some(Status { stats, .. }) = client::status_of_process(pid) {
            let errors = stats.destage_errors + stats.sync_errors;
            if errors > *errors_before.get_or_insert(errors) {
                return Err(Failure::Refused(format!(
                    "SOURCE {} is locked by process {pid}, which cannot write home what was written to \
                     {}, where it is no longer mounted: make room or repair the disk, its log says what \
                     fails; then try again",
                    source.display(),
                    mountpoint.display()
                )));
            }
            if told.is_some() {
                let left = (stats.dirty_pages * PAGE_BYTES as u64).div_ceil(1 << 20);
                eprintln!("weir: still waiting for process {pid}: {left} MiB to go");
            }
        }
        told = Some(Instant::now());
    }
    Ok(())
}

/// Who has the lock on `source` without having it mounted anywhere.
fn unmounted_holder(source: &Path) -> Option<Holder> {
    let holder = holder(source)?;
    let is_it = |mount: &Mount| {
        mount.is_weir() && (mount.source == source || mount.mount_point == holder.mountpoint)
    };
    let mounted = MountTable::read().is_ok_and(|table| table.iter().any(is_it))
        || !namespaces::holders_where(is_it).is_empty();
    (!mounted).then_some(holder)
}

/// Who has the lock on `source`: the process that the lock file names, if it has that file open.
fn holder(source: &Path) -> Option<Holder> {
    let path = source.join(crate::own_directory::WEIR_DIRECTORY).join(source::LOCK_FILE);
    let mut text = String::new();
    // Bounded: the file may be anything.
    File::open(&path).and_then(|file| file.take(8192).read_to_string(&mut text)).ok()?;
    let (pid, mountpoint) = text.trim_end_matches('\n').split_once(' ')?;
    let pid: u32 = pid.parse().ok()?;
    let mut open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let has_it =
        open.any(|fd| fd.is_ok_and(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path)));
    has_it.then(|| Holder { pid, mountpoint: mountpoint.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_who_has_the_lock_file_open() {
        let source = std::env::temp_dir().join(format!("weir-former-{}", std::process::id()));
        let _ = fs::remove_dir_all(&source);
        fs::create_dir_all(source.join(".weir")).unwrap();
        let source = source.canonicalize().unwrap();
        assert_eq!(holder(&source), None);
        let lock = source.join(".weir/lock");
        fs::write(&lock, format!("{} /mnt/a b\n", std::process::id())).unwrap();
        assert_eq!(holder(&source), None, "it is not open");
        let open = File::open(&lock).unwrap();
        let expected = Holder { pid: std::process::id(), mountpoint: "/mnt/a b".into() };
        assert_eq!(holder(&source), Some(expected));
        drop(open);
        wait_for_end(&source).unwrap();
        fs::remove_dir_all(source).unwrap();
    }
}
