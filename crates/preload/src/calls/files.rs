//! Calls that open descriptors: the number may have an old entry in the table, if it was closed by a call that this library
//! does not see.

use std::ffi::{c_char, c_int, c_uint};

use libc::{FILE, sockaddr, socklen_t};

use super::data::may_be_cancelled;
use super::interpose;
use crate::session::Path;
use crate::{session, stream, sys, table};

interpose! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int as next {
        may_be_cancelled!();
        if let Some(opened) = by_door(libc::AT_FDCWD, path, flags, mode) {
            return opened;
        }
        table::opened(next(path, flags, mode))
    }

    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int as next {
        may_be_cancelled!();
        if let Some(opened) = by_door(libc::AT_FDCWD, path, flags, mode) {
            return opened;
        }
        table::opened(next(path, flags, mode))
    }

    fn __open_2(path: *const c_char, flags: c_int) -> c_int as next {
        table::opened(next(path, flags))
    }

    fn __open64_2(path: *const c_char, flags: c_int) -> c_int as next {
        table::opened(next(path, flags))
    }

    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int as next {
        may_be_cancelled!();
        if let Some(opened) = by_door(at, path, flags, mode) {
            return opened;
        }
        table::opened(next(at, path, flags, mode))
    }

    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int as next {
        may_be_cancelled!();
        if let Some(opened) = by_door(at, path, flags, mode) {
            return opened;
        }
        table::opened(next(at, path, flags, mode))
    }

    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int as next {
        table::opened(next(at, path, flags))
    }

    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int as next {
        table::opened(next(at, path, flags))
    }

    fn creat(path: *const c_char, mode: c_uint) -> c_int as next {
        table::opened(next(path, mode))
    }

    fn creat64(path: *const c_char, mode: c_uint) -> c_int as next {
        table::opened(next(path, mode))
    }

    fn mkstemp(template: *mut c_char) -> c_int as next {
        table::opened(next(template))
    }

    fn mkstemp64(template: *mut c_char) -> c_int as next {
        table::opened(next(template))
    }

    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int as next {
        table::opened(next(template, flags))
    }

    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int as next {
        table::opened(next(template, flags))
    }

    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int as next {
        table::opened(next(template, suffix))
    }

    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int as next {
        table::opened(next(template, suffix, flags))
    }

    fn pipe(ends: *mut c_int) -> c_int as next {
        both_opened(ends, next(ends))
    }

    fn pipe2(ends: *mut c_int, flags: c_int) -> c_int as next {
        both_opened(ends, next(ends, flags))
    }

    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int as next {
        both_opened(ends, next(domain, kind, protocol, ends))
    }

    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int as next {
        table::opened(next(domain, kind, protocol))
    }

    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int as next {
        table::opened(next(fd, address, len))
    }

    fn accept4(
        fd: c_int,
        address: *mut sockaddr,
        len: *mut socklen_t,
        flags: c_int,
    ) -> c_int as next {
        table::opened(next(fd, address, len, flags))
    }

    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE as next {
        stream_opened(next(path, mode))
    }

    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE as next {
        stream_opened(next(path, mode))
    }

    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE as next {
        stream_closing(stream);
        stream_opened(next(path, mode, stream))
    }

    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE as next {
        stream_closing(stream);
        stream_opened(next(path, mode, stream))
    }

    fn fflush(stream: *mut FILE) -> c_int as next {
        if stream_written(stream) { next(stream) } else { libc::EOF }
    }

    fn fclose(stream: *mut FILE) -> c_int as next {
        let is_written = stream_written(stream);
        let errno = sys::errno();
        stream_closing(stream);
        let result = next(stream);
        if is_written {
            return result;
        }
        sys::set_errno(errno);
        libc::EOF
    }

    // Its result is the program's status, and says nothing of what could not be written.
    fn pclose(stream: *mut FILE) -> c_int as next {
        stream_written(stream);
        stream_closing(stream);
        next(stream)
    }
}

/// Makes or cuts a file by the door of the session; `None`: the call is to be made as ever.
fn by_door(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> Option<c_int> {
    // Without one of them the filter lets it pass. A file without a name is made in what the path names, not beside it.
    if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return None;
    }
    let arguments = |[Path(directory, name)]: [Path; 1]| {
        // A symbolic link that comes there meanwhile is not followed.
        let is_held = (directory, name) != (at, path);
        let flags = if is_held { flags | libc::O_NOFOLLOW } else { flags };
        [directory as usize, name.addr(), flags as usize, mode as usize, 0, 0]
    };
    // SAFETY: the arguments are the program's.
    let opened = unsafe { session::names(libc::SYS_openat, [Path(at, path)], arguments) };
    opened.map(|opened| table::opened(opened as c_int))
}

fn both_opened(ends: *const c_int, result: c_int) -> c_int {
    if result == 0 {
        // SAFETY: the call just filled both.
        let (first, second) = unsafe { (*ends, *ends.add(1)) };
        table::opened(first);
        table::opened(second);
    }
    result
}

fn stream_opened(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: the call just opened it.
        table::opened(unsafe { libc::fileno(stream) });
    }
    stream
}

/// Writes what a stream has buffered by the door of the session; `false`: that has failed, as fflush(3).
fn stream_written(stream: *mut FILE) -> bool {
    // SAFETY: the program vouches that it is a stream, or null.
    unsafe { stream::write_buffered(stream) }
}

/// The stream's descriptor is about to be closed, inside the C library.
fn stream_closing(stream: *mut FILE) {
    if !stream.is_null() {
        // SAFETY: the program vouches that it is a stream. The next call sets `errno`.
        table::closing(unsafe { libc::fileno(stream) });
    }
}
