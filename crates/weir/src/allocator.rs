//! Bounds the free memory that the allocator keeps: the daemon's memory is for its cache.

#![allow(unsafe_code, reason = "mallopt(3) has no safe form")]

/// Arenas of the allocator. Each keeps free memory of its own, so one per thread would hold far more
/// than the daemon uses. The data path hardly allocates, so few arenas cause no contention.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;
/// Free memory at the top of the heap above this goes back to the kernel.
#[cfg(target_env = "gnu")]
const TRIM_BYTES: libc::c_int = 1 << 20;
/// Blocks from this size on are mapped separately and unmapped when freed. Set explicitly: by
/// default glibc raises it to the largest block freed so far.
#[cfg(target_env = "gnu")]
const MMAP_BYTES: libc::c_int = 256 << 10;

/// Bounds what the allocator keeps. Call it while the process has one thread.
#[cfg(target_env = "gnu")]
pub fn bound() {
    for (parameter, value) in [
        (libc::M_ARENA_MAX, ARENAS_MAX),
        (libc::M_TRIM_THRESHOLD, TRIM_BYTES),
        (libc::M_MMAP_THRESHOLD, MMAP_BYTES),
    ] {
        // SAFETY: takes two integers; there is one thread, so no concurrent use.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Other C libraries keep little.
#[cfg(not(target_env = "gnu"))]
pub fn bound() {}
