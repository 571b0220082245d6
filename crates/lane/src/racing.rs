//! Copying bytes that another process may be writing at the same time.
//!
//! In Rust's memory model an ordinary read that races with such a write is undefined behaviour, even if the
//! bytes are discarded when the write is noticed. So the loads are in `asm!`, of which the compiler assumes
//! only that the destination is written: the copied bytes are whatever the loads return. On other
//! architectures, and under Miri, each byte is an atomic load.
//!
//! All reads of payloads, and of frames that other processes write, use this module (docs/decisions/0005).

#![allow(unsafe_code)] // Shared memory cannot be read without it.

/// Copies `len` bytes. Each byte is a value that its address held at some moment of the call; different bytes may
/// be from different moments.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes, and they must not overlap. No other
/// thread may write `to` during the call.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: by this function's contract.
    unsafe {
        copy_by_instructions(from, to, len);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for at in 0..len {
        use std::sync::atomic::{AtomicU8, Ordering};
        // SAFETY: by this function's contract; a byte is aligned.
        unsafe {
            *to.add(at) = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed)
        };
    }
}

/// From this length on `rep movsb` is faster than vectors: 41 instead of 69 ns for a cached page.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_BYTES_MIN: usize = 512;

/// # Safety
/// As for [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_by_instructions(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::asm;
    use std::arch::x86_64::__m128i;

    /// Copies four vectors of 16 bytes at an offset.
    macro_rules! line {
        ($at:expr) => {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                "movdqu [{to} + 32], {c}",
                "movdqu [{to} + 48], {d}",
                from = in(reg) from.wrapping_add($at),
                to = in(reg) to.wrapping_add($at),
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags)
            )
        };
    }
    /// Copies one register's bytes at an offset.
    macro_rules! piece {
        ($load:literal, $class:ident, $type:ty, $at:expr) => {{
            let piece: $type;
            asm!(
                $load,
                from = in(reg) from.wrapping_add($at),
                piece = out($class) piece,
                options(nostack, preserves_flags, readonly)
            );
            to.wrapping_add($at).cast::<$type>().write_unaligned(piece);
        }};
    }
    // The last piece may overlap the one before: those bytes are copied twice.
    // SAFETY: for every piece, offset plus length is at most `len`.
    unsafe {
        if len >= STRING_BYTES_MIN {
            // The direction flag is clear (System V ABI, 3.2.1).
            asm!(
                "rep movsb",
                inout("rsi") from => _,
                inout("rdi") to => _,
                inout("rcx") len => _,
                options(nostack, preserves_flags)
            );
        } else if len >= 64 {
            let mut at = 0;
            while at + 64 <= len {
                line!(at);
                at += 64;
            }
            if at < len {
                line!(len - 64);
            }
        } else if len >= 16 {
            let mut at = 0;
            while at + 16 <= len {
                piece!("movdqu {piece}, [{from}]", xmm_reg, __m128i, at);
                at += 16;
            }
            if at < len {
                piece!("movdqu {piece}, [{from}]", xmm_reg, __m128i, len - 16);
            }
        } else if len >= 8 {
            piece!("mov {piece}, [{from}]", reg, u64, 0);
            piece!("mov {piece}, [{from}]", reg, u64, len - 8);
        } else {
            for at in 0..len {
                piece!("mov {piece}, byte ptr [{from}]", reg_byte, u8, at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_and_no_other_is_touched() {
        let from: Vec<u8> = (0..1300_usize).map(|at| (at * 7 / 3) as u8 | 1).collect();
        for start in [0, 1, 5, 15] {
            for len in (0..=300).chain([511, 512, 513, 1023, 1200]) {
                let mut to = vec![0_u8; 1220];
                // SAFETY: both buffers are longer than that.
                unsafe { copy(from.as_ptr().add(start), to.as_mut_ptr().add(3), len) };
                assert_eq!(to[3..3 + len], from[start..start + len]);
                assert!(to[..3].iter().chain(&to[3 + len..]).all(|byte| *byte == 0));
            }
        }
    }

    /// Under Miri, too, where ordinary reads beside another thread's writes are errors.
    #[test]
    fn each_byte_copied_during_a_write_is_an_old_or_a_new_one() {
        use std::sync::atomic::{AtomicU8, Ordering};
        const LEN: usize = 100;
        let shared: [AtomicU8; LEN] = std::array::from_fn(|_| AtomicU8::new(1));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for value in [2, 3] {
                    shared.iter().for_each(|byte| byte.store(value, Ordering::Relaxed));
                }
            });
            let mut copied = [0; LEN];
            // SAFETY: both have that length, and no other thread writes `copied`.
            unsafe { copy(shared.as_ptr().cast(), copied.as_mut_ptr(), LEN) };
            assert!(copied.iter().all(|byte| (1..=3).contains(byte)));
            writer.join().unwrap();
        });
    }
}
