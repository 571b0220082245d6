//! The memory a call reads into or writes from, in pieces (readv(2)).

use std::ffi::c_void;
use std::slice;

use libc::iovec;

use crate::sys;

/// Most pieces in a call.
const PIECES_MAX: usize = libc::UIO_MAXIOV as usize;
/// Most bytes the kernel takes in one call.
const BYTES_MAX: usize = 0x7fff_f000;

/// Pieces, and their total length, which is not 0.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'a> {
    pieces: &'a [iovec],
    len: usize,
}

/// One piece.
pub(crate) fn one(address: *const c_void, len: usize) -> iovec {
    iovec { iov_base: address.cast_mut(), iov_len: len }
}

impl<'a> Pieces<'a> {
    /// `None` for calls that are left to the kernel: no bytes, too many bytes, or too many pieces.
    ///
    /// # Safety
    /// If the kernel allows `count` pieces, `pieces` must point to that many, valid for `'a`.
    #[inline]
    pub(crate) unsafe fn new(pieces: *const iovec, count: usize) -> Option<Pieces<'a>> {
        if count == 0 || count > PIECES_MAX || pieces.is_null() {
            return None;
        }
        // SAFETY: by this function's contract.
        let pieces = unsafe { slice::from_raw_parts(pieces, count) };
        let mut len = 0_usize;
        for piece in pieces {
            len = len.checked_add(piece.iov_len)?;
        }
        (len != 0 && len <= BYTES_MAX).then_some(Pieces { pieces, len })
    }

    /// Bytes of all of them: from 1 to 2^31 less a page.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The pieces, for a system call.
    pub(crate) fn as_slice(&self) -> &'a [iovec] {
        self.pieces
    }

    /// Reads a byte of each page, as a copy would: what is not mapped ends the program.
    pub(crate) fn touch(&self) {
        let page = sys::page_bytes();
        for piece in self.pieces.iter().filter(|piece| piece.iov_len > 0) {
            let first = piece.iov_base.cast::<u8>();
            let mut at = 0;
            while at < piece.iov_len {
                // SAFETY: inside the piece, which the program says is valid.
                unsafe { first.add(at).read_volatile() };
                at += page - first.wrapping_add(at).addr() % page;
            }
        }
    }

    /// Copies all of them to `out`.
    ///
    /// # Safety
    /// `out` has room for [`Pieces::len`] bytes, and the pieces are valid for reads.
    #[inline]
    pub(crate) unsafe fn copy_to(&self, out: *mut u8) {
        let mut at = 0;
        for piece in self.pieces {
            // SAFETY: by this function's contract; `at` is the length of the pieces before.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.iov_base.cast(), out.add(at), piece.iov_len)
            };
            at += piece.iov_len;
        }
    }
}
