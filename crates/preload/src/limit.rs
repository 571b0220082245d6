//! Whether the process has a limit on the size of files (setrlimit(2), RLIMIT_FSIZE). If it has, its writes go by the
//! kernel, which enforces the limit.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

static IS_LIMITED: AtomicBool = AtomicBool::new(false);

/// Reads the limit.
pub(crate) fn update() {
    let limit = sys::limit(libc::RLIMIT_FSIZE);
    IS_LIMITED.store(limit != Ok(libc::RLIM_INFINITY), Ordering::Relaxed);
}

/// Whether there was a limit when it was last read.
#[inline]
pub(crate) fn is_limited() -> bool {
    IS_LIMITED.load(Ordering::Relaxed)
}
