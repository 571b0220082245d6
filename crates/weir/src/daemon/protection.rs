//! What the kernel is to know of a process that holds what everybody has written.
//!
//! Both settings need CAP_SYS_RESOURCE, which root has; without it the daemon goes on as any other
//! process.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// As low as it goes without making the process immune: a daemon that eats all memory by a defect
/// can still be ended, last of all.
const OOM_SCORE_ADJUSTMENT: &str = "-900";

const OOM_SCORE_ADJUSTMENT_FILE: &str = "/proc/self/oom_score_adj";

/// Set once this process asked to be spared.
static SPARED: AtomicBool = AtomicBool::new(false);

/// Has the out-of-memory killer take others first, unless somebody has chosen this process's score.
/// What is dirty in memory belongs to all who use the mount, and is lost with the daemon.
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

/// Gives a process that this one has started the score that others have: it holds nothing.
pub fn do_not_spare(child: u32) {
    if SPARED.load(Ordering::Relaxed) {
        // It may have ended.
        let _ = fs::write(format!("/proc/{child}/oom_score_adj"), "0");
    }
}

/// Tells the kernel that file systems depend on this process (PR_SET_IO_FLUSHER, prctl(2)): memory
/// that it asks for while it writes home is not got by writing to mounts, its own among them, and it is
/// slowed down by the devices it writes to alone. To be called before threads are started, which
/// inherit it.
pub fn set_io_flusher() {
    if let Err(errno) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("the kernel is not told that file systems depend on the daemon: {errno}");
    }
}
