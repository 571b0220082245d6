//! sendfile(2), which a session refuses to pipes and sockets ([`crate::session::refuses_pages`]): then the bytes are copied.

use std::ffi::c_int;

use super::interpose;
use crate::sys::{self, Errno, Memory, Result};
use crate::{leave, session};

interpose! {
    fn sendfile(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize as next {
        // SAFETY: the place is the program's.
        unsafe { sent(to, from, at, len, next) }
    }

    fn sendfile64(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize as next {
        // SAFETY: the place is the program's.
        unsafe { sent(to, from, at, len, next) }
    }
}

/// sendfile(2) by `next`, or by copying where a session refuses it.
///
/// # Safety
/// `at` is an address of the program's, or null.
unsafe fn sent(
    to: c_int,
    from: c_int,
    at: *mut i64,
    len: usize,
    next: impl FnOnce(c_int, c_int, *mut i64, usize) -> isize,
) -> isize {
    leave::transfer(from);
    let errno = sys::errno();
    let sent = next(to, from, at, len);
    if sent >= 0 || !session::refuses_pages(to) {
        return sent;
    }
    // SAFETY: by this function's contract.
    unsafe { copy(to, from, at, len, errno) }
}

/// Bytes that are copied at a time: as many as the kernel sends at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes that a pipe takes without waiting if it is ready to be written to (poll(2)).
const PAGE_BYTES: usize = 4096;

/// sendfile(2) by reading and writing. Success leaves `errno` as it was.
///
/// # Safety
/// `at` is an address of the program's, or null.
unsafe fn copy(to: c_int, from: c_int, at: *mut i64, len: usize, errno: c_int) -> isize {
    // SAFETY: by this function's contract.
    let (result, errno) = match unsafe { copied(to, from, at, len) } {
        Ok(sent) => (sent, errno),
        Err(Errno(errno)) => (-1, errno),
    };
    sys::set_errno(errno);
    result
}

/// # Safety
/// As for [`copy`].
unsafe fn copied(to: c_int, from: c_int, at: *mut i64, len: usize) -> Result<isize> {
    // The program's stack may be small, and files opened with O_DIRECT need an aligned address.
    let mut memory = Memory::new(PIECE_BYTES)?;
    loop {
        // The kernel checks the descriptors and the address, and waits for room in a pipe; nothing is sent.
        // SAFETY: it checks the address.
        unsafe { sys::sendfile(to, from, at, 0) }?;
        // SAFETY: the kernel has just read and written the place.
        let sent = unsafe { send_from(to, from, at, len, &mut memory) };
        // Somebody else took the room.
        if sent != Err(Errno(libc::EAGAIN)) || is_non_blocking(to)? {
            return sent;
        }
    }
}

fn is_non_blocking(fd: c_int) -> Result<bool> {
    Ok(sys::fcntl(fd, libc::F_GETFL, 0)? & libc::O_NONBLOCK != 0)
}

/// # Safety
/// `at` can be read and written, or is null.
unsafe fn send_from(
    to: c_int,
    from: c_int,
    at: *mut i64,
    len: usize,
    memory: &mut Memory,
) -> Result<isize> {
    let invalid = Errno(libc::EINVAL);
    if isize::try_from(len).is_err() || sys::place(from)?.is_directory() {
        return Err(invalid);
    }
    let position = || sys::lseek(from, 0, libc::SEEK_CUR).map_err(|_| invalid);
    // SAFETY: by this function's contract.
    let begin = if at.is_null() { position()? } else { unsafe { at.read() }.cast_unsigned() };
    let sent = match sys::place(to)?.is_pipe() {
        true => fill_pipe(to, from, begin, len, memory)?,
        false => send(from, begin, len, memory, |piece| sys::write_some(to, piece))?,
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
fn fill_pipe(to: c_int, from: c_int, begin: u64, len: usize, memory: &mut Memory) -> Result<usize> {
    match send(from, begin, len, memory, |piece| sys::write_at_once(to, piece)) {
        // The kernel does not do that with FIFOs that have a name.
        Err(Errno(libc::EOPNOTSUPP)) => {
            send(from, begin, len, memory, |piece| fill_fifo(to, piece))
        }
        sent => sent,
    }
}

fn fill_fifo(to: c_int, piece: &[u8]) -> Result<usize> {
    let mut written = 0;
    for part in piece.chunks(PAGE_BYTES) {
        if !sys::is_ready_to_write(to)? {
            break;
        }
        written += match sys::write_some(to, part) {
            Err(error) if written == 0 => return Err(error),
            some => some.unwrap_or(0),
        };
    }
    match written {
        0 => Err(Errno(libc::EAGAIN)),
        written => Ok(written),
    }
}

/// Reads from `begin` on, and writes by `write` until it writes less than it gets. An error after something was written is left for the next call.
fn send(
    from: c_int,
    begin: u64,
    len: usize,
    memory: &mut Memory,
    write: impl Fn(&[u8]) -> Result<usize>,
) -> Result<usize> {
    // sendfile(2): more is not sent by a call.
    let len = len.min(0x7fff_f000);
    let mut sent = 0;
    while sent < len {
        let wanted = PIECE_BYTES.min(len - sent);
        let done = match memory.read(from, wanted, begin + sent as u64) {
            Ok([]) => break,
            Ok(piece) => write(piece).map(|written| (piece.len(), written)),
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
