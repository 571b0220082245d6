//! Keeps the allocator from holding on to memory: what the daemon is allowed is for its cache.

#![allow(unsafe_code, reason = "mallopt(3) has no safe form")]

/// Arenas of the allocator. Each keeps free memory of its own, so with one a thread the daemon
/// would hold far more than it uses; the data path hardly allocates, so they are not fought over.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;
/// Free memory at the top of the heap above this goes back to the kernel.
#[cfg(target_env = "gnu")]
const TRIM_BYTES: libc::c_int = 1 << 20;
/// Blocks from this size on are mapped on their own and unmapped when freed. Said explicitly, for
/// otherwise glibc raises it to the largest block freed so far.
#[cfg(target_env = "gnu")]
const MMAP_BYTES: libc::c_int = 256 << 10;

/// Bounds what the allocator keeps. To be called while the process has one thread.
#[cfg(target_env = "gnu")]
pub fn bound() {
    for (parameter, value) in [
        (libc::M_ARENA_MAX, ARENAS_MAX),
        (libc::M_TRIM_THRESHOLD, TRIM_BYTES),
        (libc::M_MMAP_THRESHOLD, MMAP_BYTES),
    ] {
        // SAFETY: takes two integers; concurrent use is ruled out, there is one thread.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Other C libraries keep little by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn bound() {}
