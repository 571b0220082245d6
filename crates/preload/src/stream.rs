//! Writes the buffer of a stdio stream by the door of a session ([`crate::session`]) before fflush(3) or fclose(3) does. The C library's own write cannot be
//! interposed, and would be stopped.
//!
//! The buffer is found in `struct _IO_FILE` (bits/types/struct_FILE.h), whose layout is part of glibc's binary interface because macros for putc(3)
//! used it. A stream whose state is not a plain, writable buffer of bytes without a known position is left to the C library.
//!
//! Invariants:
//! - a stream is read and changed only under its lock (flockfile(3));
//! - bytes that were written here are removed from the buffer; all others stay in it, in order;
//! - after an error the stream is as the C library leaves it: the error is set (ferror(3)), and the buffer is empty.

use std::ffi::{c_char, c_int, c_void};

use libc::FILE;

use crate::session::{self, Written};

unsafe extern "C" {
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
}

/// The beginning of `struct _IO_FILE`.
#[repr(C)]
struct Stream {
    flags: c_int,
    read_ptr: *mut c_char,
    read_end: *mut c_char,
    read_base: *mut c_char,
    write_base: *mut c_char,
    write_ptr: *mut c_char,
    write_end: *mut c_char,
    buf_base: *mut c_char,
    buf_end: *mut c_char,
    saved: [*mut c_char; 3],
    markers: *mut c_void,
    chain: *mut c_void,
    fileno: c_int,
    flags2: c_int,
    old_offset: libc::off_t,
    column: u16,
    vtable_offset: i8,
    short_buffer: c_char,
    lock: *mut c_void,
    offset: i64,
    wide: [*mut c_void; 4],
    size: usize,
    mode: c_int,
}

const _: () = assert!(std::mem::offset_of!(Stream, mode) == 192);

/// In the upper half of `flags`: `_IO_MAGIC` of glibc.
const MAGIC: c_int = 0xfbad_u32.cast_signed() << 16;
const MAGIC_MASK: c_int = 0xffff_u32.cast_signed() << 16;
/// `_IO_LINE_BUF`, `_IO_UNBUFFERED`.
const BY_LINES_OR_NOT: c_int = 0x202;
/// `_IO_ERR_SEEN`, `_IO_CURRENTLY_PUTTING`.
const HAS_FAILED: c_int = 0x20;
const IS_WRITTEN: c_int = 0x800;

impl Stream {
    /// The length of the buffer's content, if it may be written here.
    fn buffered(&self) -> Option<usize> {
        let is_known = self.flags & MAGIC_MASK == MAGIC
            && self.flags & IS_WRITTEN != 0
            // Of bytes, and not of wide characters.
            && self.mode <= 0
            // Without a known position, and with nothing read before.
            && self.offset < 0
            && self.read_end == self.write_base
            && self.fileno >= 0
            // Set to lines after it was written to: the C library repairs its end when it writes the buffer.
            && (self.flags & BY_LINES_OR_NOT == 0 || self.write_end <= self.write_base)
            && !self.write_base.is_null();
        let len = self.write_ptr.addr().checked_sub(self.write_base.addr())?;
        (is_known && len > 0).then_some(len)
    }

    /// Writes the buffer if that need not wait. `false`: the write has failed, and `errno` is set.
    fn write(&mut self) -> bool {
        let Some(len) = self.buffered() else { return true };
        // SAFETY: the buffer is the stream's.
        match unsafe { session::write_buffered(self.fileno, self.write_base.cast(), len) } {
            Written::Begun(0) => true,
            Written::Begun(done) => {
                // SAFETY: `done` is at most `len`, and the buffer has as many bytes.
                unsafe { self.write_base.copy_from(self.write_base.add(done), len - done) };
                self.write_ptr = self.write_base.wrapping_add(len - done);
                true
            }
            Written::Done(result) => {
                self.write_ptr = self.write_base;
                if result < 0 {
                    self.flags |= HAS_FAILED;
                }
                result >= 0
            }
        }
    }
}

/// Writes a stream's buffer if that need not be stopped; otherwise the C library writes it. `false`: the write has failed, and `errno` is set.
///
/// # Safety
/// It is a stream, or null.
pub(crate) unsafe extern "C" fn write_buffered(stream: *mut FILE) -> bool {
    if stream.is_null() || !session::is_member() {
        return true;
    }
    // SAFETY: it is a stream, and its lock is held while it is looked at.
    unsafe {
        flockfile(stream);
        let result = (*stream.cast::<Stream>()).write();
        funlockfile(stream);
        result
    }
}
