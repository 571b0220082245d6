//! Asking for memory before it is used: where lines come from another CPU, or from far, that is most of what a small
//! write costs.

#![allow(unsafe_code)] // A prefetch is an instruction.

/// Asks for the line at an address that will be read. Nothing is read; any address will do.
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

/// The same of one that will be written: it is taken from other CPUs at once.
#[inline(always)]
pub fn write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above; processors that do not know the instruction pass over it. The intrinsic would ask for reading
    // where the build is for any processor.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
