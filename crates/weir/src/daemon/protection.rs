//! Tells the kernel that this process holds data of all users of the mount.
//!
//! Both settings need CAP_SYS_RESOURCE, which root has; without it the daemon runs as an ordinary
//! process.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Low, but not immune: a daemon that uses up all memory because of a defect can still be killed,
/// as the last process.
const OOM_SCORE_ADJUSTMENT: &str = "-900";

const OOM_SCORE_ADJUSTMENT_FILE: &str = "/proc/self/oom_score_adj";

/// Set when this process lowered its score.
static SPARED: AtomicBool = AtomicBool::new(false);

/// Makes the out-of-memory killer choose other processes first, unless the administrator has set
/// this process's score. Dirty data in memory belongs to all users of the mount, and is lost with
/// the daemon.
pub fn spare_from_oom_killer() {
    let chosen = fs::read_to_string(OOM_SCORE_ADJUSTMENT_FILE);
    if !chosen.is_ok_and(|chosen| chosen.trim() == "0") {
        return;
    }
    match fs::write(OOM_SCORE_ADJUSTMENT_FILE, OOM_SCORE_ADJUSTMENT) {
        Ok(()) => SPARED.store(true, Ordering::Relaxed),
        Err(error) => tracing::debug!("the out-of-memory killer may take the daemon: {error}"),
    }
}

/// Resets the score of a child process: it holds no data.
pub fn do_not_spare(child: u32) {
    if SPARED.load(Ordering::Relaxed) {
        // The child may have ended.
        let _ = fs::write(format!("/proc/{child}/oom_score_adj"), "0");
    }
}

/// Tells the kernel that file systems depend on this process (PR_SET_IO_FLUSHER, prctl(2)). While
/// it writes home, its memory allocations do not write to file systems, so they cannot wait for its
/// own mount; and it is throttled only by the devices it writes to. Call it before threads are
/// started, which inherit the setting.
pub fn set_io_flusher() {
    if let Err(errno) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("cannot tell the kernel that file systems depend on the daemon: {errno}");
    }
}
