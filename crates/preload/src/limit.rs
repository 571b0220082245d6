//! Whether the process may make files as large as it likes (setrlimit(2), RLIMIT_FSIZE). If it may not, the kernel
//! enforces that: its writes go by the kernel.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

static IS_LIMITED: AtomicBool = AtomicBool::new(false);

/// Asks for the limit.
pub(crate) fn update() {
    let limit = sys::limit(libc::RLIMIT_FSIZE);
    IS_LIMITED.store(limit != Ok(libc::RLIM_INFINITY), Ordering::Relaxed);
}

/// Whether there was a limit when it was last asked for.
#[inline]
pub(crate) fn is_limited() -> bool {
    IS_LIMITED.load(Ordering::Relaxed)
}
