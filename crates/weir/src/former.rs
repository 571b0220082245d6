//! The former daemon of SOURCE, whose mount is gone and which still writes the last data home.
//!
//! umount(8) returns when the kernel has released the mount; the daemon keeps SOURCE locked until
//! everything is home. A mount of the same SOURCE waits for that. It does not wait if SOURCE is
//! still mounted, in whatever mount namespace.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use weir_engine::PAGE_BYTES;

use crate::control::client;
use crate::control::protocol::{NamesReport, Status};
use crate::failure::{Failure, one_line};
use crate::holder::{Holder, unmounted_holder};
use crate::shell_word::word;

/// How often to check whether the daemon has ended.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to wait before a message: most daemons have little left, and one that is just starting
/// has its mount by then.
const SILENCE: Duration = Duration::from_millis(500);
/// Interval of the progress messages.
const PROGRESS: Duration = Duration::from_secs(5);

/// Waits until no daemon without a mount of `source` keeps it locked. Reports on standard error
/// which process it waits for. Can be interrupted with ^C: nothing is changed here.
///
/// # Errors
/// The former daemon fails to write home, so its end cannot be awaited.
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
                "weir: waiting for process {pid}, which still writes home what was written to {}, \
                 where it is no longer mounted; press ^C to stop waiting",
                one_line(&mountpoint.to_string_lossy())
            );
        }
        // A daemon that does not answer may still make progress.
        if let Some(Status { stats, names, .. }) = client::status_of_process(pid) {
            if let Some(NamesReport { refused: refused @ 1.., .. }) = names {
                let argument = word(&source);
                let source = source.display();
                return Err(Failure::Refused(format!(
                    "SOURCE {source} is locked by process {pid}, which cannot make {refused} changes of names or attributes in \
                     SOURCE of {}, where it is no longer mounted: see 'weir status {argument}' and make them possible, or end it by \
                     'weir umount --force {argument}'; then try again",
                    mountpoint.display()
                )));
            }
            let errors = stats.destage_errors + stats.sync_errors;
            if errors > *errors_before.get_or_insert(errors) {
                return Err(Failure::Refused(format!(
                    "SOURCE {} is locked by process {pid}, which cannot write home what was written to \
                     {}, where it is no longer mounted: make room or repair the disk (the error is in \
                     the process's log), then try again",
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

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::holder::holder;

    #[test]
    fn the_holder_has_the_lock_file_open() {
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
        fs::remove_file(&lock).unwrap();
        mknodat(CWD, &lock, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(holder(&source), None, "nobody writes to it");
        fs::remove_dir_all(source).unwrap();
    }
}
