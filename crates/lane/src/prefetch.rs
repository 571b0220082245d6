//! Prefetching: fetching cache lines from another CPU, or from memory, is most of what a small write costs.

#![allow(unsafe_code)] // A prefetch is an instruction.

/// Prefetches the cache line at an address that will be read. Any address is allowed: a prefetch does not fault.
#[inline(always)]
pub fn read(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Prefetches the cache line at an address that will be written: the line is invalidated in other CPUs at once.
#[inline(always)]
pub fn write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above; processors without the instruction ignore it. The intrinsic would prefetch for reading in builds
    // for the baseline processor.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
