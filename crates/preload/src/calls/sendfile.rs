//! sendfile(2), which a session refuses to pipes and sockets ([`crate::session::refuses_pages`]): then the bytes are copied.

use std::ffi::c_int;

use super::interpose;
use crate::sys::{self, Errno, Result};
use crate::{leave, session};

interpose! {
    fn sendfile(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize as next {
        leave::transfer(from);
        let sent = next(to, from, at, len);
        if sent >= 0 || !session::refuses_pages(to) {
            return sent;
        }
        // SAFETY: the place is the program's.
        unsafe { copy(to, from, at, len) }
    }

    fn sendfile64(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize as next {
        leave::transfer(from);
        let sent = next(to, from, at, len);
        if sent >= 0 || !session::refuses_pages(to) {
            return sent;
        }
        // SAFETY: the place is the program's.
        unsafe { copy(to, from, at, len) }
    }
}

/// Bytes that are copied at a time, aligned for files opened with O_DIRECT.
#[repr(C, align(4096))]
struct Piece([u8; 16 << 10]);

/// sendfile(2) by reading and writing.
///
/// # Safety
/// `at` is an address of the program's, or null.
unsafe fn copy(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize {
    // SAFETY: by this function's contract; `errno` is the thread's own.
    unsafe {
        copied(to, from, at, len).unwrap_or_else(|Errno(errno)| {
            *libc::__errno_location() = errno;
            -1
        })
    }
}

/// # Safety
/// As for [`copy`].
unsafe fn copied(to: c_int, from: c_int, at: *mut i64, len: usize) -> Result<isize> {
    // The kernel checks the descriptors and the address, and waits for room in a pipe; nothing is sent.
    // SAFETY: it checks the address.
    unsafe { sys::sendfile(to, from, at, 0) }?;
    let invalid = Errno(libc::EINVAL);
    if isize::try_from(len).is_err() || sys::place(from)?.is_directory() {
        return Err(invalid);
    }
    let position = || sys::lseek(from, 0, libc::SEEK_CUR).map_err(|_| invalid);
    // SAFETY: the kernel has just read and written the place.
    let begin = if at.is_null() { position()? } else { unsafe { at.read() }.cast_unsigned() };
    let sent = match sys::place(to)?.is_pipe() {
        true => fill_pipe(to, from, begin, len)?,
        false => send(from, begin, len, |piece| sys::write_some(to, piece))?,
    };
    let end = begin + sent as u64;
    if at.is_null() {
        sys::lseek(from, end.cast_signed(), libc::SEEK_SET)?;
    } else {
        // SAFETY: as above.
        unsafe { at.write(end.cast_signed()) };
    }
    Ok(sent as isize)
}

/// Sends what there is room for, at least something, as sendfile(2) does with a pipe.
fn fill_pipe(to: c_int, from: c_int, begin: u64, len: usize) -> Result<usize> {
    // A page has room in a pipe that can be written to; of FIFOs with a name the kernel does not say what they take at once.
    const PAGE: usize = 4096;
    match send(from, begin, len, |piece| sys::write_at_once(to, piece)) {
        Err(Errno(libc::EOPNOTSUPP)) => {
            send(from, begin, len.min(PAGE), |piece| sys::write_some(to, piece))
        }
        sent => sent,
    }
}

/// Reads from `begin` on, and writes by `write` until it writes less than it gets. An error after something was written is left for the next call.
fn send(
    from: c_int,
    begin: u64,
    len: usize,
    write: impl Fn(&[u8]) -> Result<usize>,
) -> Result<usize> {
    // sendfile(2): more is not sent by a call.
    let len = len.min(0x7fff_f000);
    let mut piece = Piece([0; _]);
    let mut sent = 0;
    while sent < len {
        let wanted = piece.0.len().min(len - sent);
        let done = match sys::pread(from, &mut piece.0[..wanted], begin + sent as u64) {
            Ok(0) => break,
            Ok(read) => write(&piece.0[..read]).map(|written| (read, written)),
            Err(error) => Err(error),
        };
        match done {
            Ok((read, written)) => {
                sent += written;
                if written < read {
                    break;
                }
            }
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}
