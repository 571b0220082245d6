//! Copying whole pages past the processor's caches: the copied page is most likely not read soon, and with streaming
//! stores the replaced page need not be read from memory first.

#![allow(unsafe_code)] // Stores past the cache are instructions.

use crate::PAGE_BYTES;

/// Copies a page. The copy is ordered with earlier and later stores as an ordinary copy is.
#[inline]
pub fn copy_page(to: &mut [u8; PAGE_BYTES], from: &[u8; PAGE_BYTES]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if to.as_ptr().cast::<std::arch::x86_64::__m128i>().is_aligned() {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        let (mut to, mut from) =
            (to.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        // Without the fences, streaming stores may become visible before earlier stores, and after later ones.
        // SAFETY: every processor of this architecture has the instruction.
        unsafe { _mm_sfence() };
        for _ in 0..PAGE_BYTES / 64 {
            // SAFETY: four vectors per iteration stay within both pages, and `to` is aligned for them.
            unsafe {
                let line = [0, 1, 2, 3].map(|part| _mm_loadu_si128(from.add(part)));
                for (part, vector) in line.into_iter().enumerate() {
                    _mm_stream_si128(to.add(part), vector);
                }
                (to, from) = (to.add(4), from.add(4));
            }
        }
        // SAFETY: as above.
        unsafe { _mm_sfence() };
        return;
    }
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_wherever_it_lies() {
        let mut bytes = vec![0_u8; 2 * PAGE_BYTES + 32];
        for start in [0, 1, 7, 16, 31] {
            let from: [u8; PAGE_BYTES] = std::array::from_fn(|at| (at * 7 / 3 + start) as u8);
            bytes.fill(0xa5);
            let to = &mut bytes[start..start + PAGE_BYTES];
            copy_page(to.try_into().unwrap(), &from);
            assert_eq!(bytes[start..start + PAGE_BYTES], from);
            assert!(bytes[..start].iter().all(|byte| *byte == 0xa5));
            assert!(bytes[start + PAGE_BYTES..].iter().all(|byte| *byte == 0xa5));
        }
    }
}
