//! Calls that open descriptors: the number may have an old entry in the table, if it was closed by a call that this library
//! does not see.

use std::ffi::{c_char, c_int, c_uint};

use libc::{FILE, sockaddr, socklen_t};

use super::data::may_be_cancelled;
use super::interpose;
use crate::held::{hold, hold_at_file, hold_if, may_have_interrupted};
use crate::session::Path;
use crate::{session, stream, sys, table};

interpose! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int as next {
        may_be_cancelled!();
        if let Some(opened) = by_door(libc::AT_FDCWD, path, flags, mode) {
            return opened;
        }
        opened(Path(libc::AT_FDCWD, path), flags, || next(path, flags, mode))
    }

    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int as next {
        may_be_cancelled!();
        if let Some(opened) = by_door(libc::AT_FDCWD, path, flags, mode) {
            return opened;
        }
        opened(Path(libc::AT_FDCWD, path), flags, || next(path, flags, mode))
    }

    fn __open_2(path: *const c_char, flags: c_int) -> c_int as next {
        opened(Path(libc::AT_FDCWD, path), flags, || next(path, flags))
    }

    fn __open64_2(path: *const c_char, flags: c_int) -> c_int as next {
        opened(Path(libc::AT_FDCWD, path), flags, || next(path, flags))
    }

    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int as next {
        may_be_cancelled!();
        if let Some(opened) = by_door(at, path, flags, mode) {
            return opened;
        }
        opened(Path(at, path), flags, || next(at, path, flags, mode))
    }

    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int as next {
        may_be_cancelled!();
        if let Some(opened) = by_door(at, path, flags, mode) {
            return opened;
        }
        opened(Path(at, path), flags, || next(at, path, flags, mode))
    }

    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int as next {
        opened(Path(at, path), flags, || next(at, path, flags))
    }

    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int as next {
        opened(Path(at, path), flags, || next(at, path, flags))
    }

    fn creat(path: *const c_char, mode: c_uint) -> c_int as next {
        opened(Path(libc::AT_FDCWD, path), libc::O_CREAT, || next(path, mode))
    }

    fn creat64(path: *const c_char, mode: c_uint) -> c_int as next {
        opened(Path(libc::AT_FDCWD, path), libc::O_CREAT, || next(path, mode))
    }

    fn mkstemp(template: *mut c_char) -> c_int as next {
        table::opened(hold(|| next(template)))
    }

    fn mkstemp64(template: *mut c_char) -> c_int as next {
        table::opened(hold(|| next(template)))
    }

    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int as next {
        table::opened(hold(|| next(template, flags)))
    }

    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int as next {
        table::opened(hold(|| next(template, flags)))
    }

    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int as next {
        table::opened(hold(|| next(template, suffix)))
    }

    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int as next {
        table::opened(hold(|| next(template, suffix, flags)))
    }

    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int as next {
        table::opened(hold(|| next(template, suffix)))
    }

    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int as next {
        table::opened(hold(|| next(template, suffix, flags)))
    }

    fn pipe(ends: *mut c_int) -> c_int as next {
        both_opened(ends, hold(|| next(ends)))
    }

    fn pipe2(ends: *mut c_int, flags: c_int) -> c_int as next {
        both_opened(ends, hold(|| next(ends, flags)))
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
        stream_opened(stream_by(path, mode, || next(path, mode)))
    }

    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE as next {
        stream_opened(stream_by(path, mode, || next(path, mode)))
    }

    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE as next {
        stream_emptied(stream);
        stream_closing(stream);
        let call = || next(path, mode, stream);
        stream_opened(if is_of_file(stream) { stream_by(path, mode, call) } else { call() })
    }

    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE as next {
        stream_emptied(stream);
        stream_closing(stream);
        let call = || next(path, mode, stream);
        stream_opened(if is_of_file(stream) { stream_by(path, mode, call) } else { call() })
    }

    fn fflush(stream: *mut FILE) -> c_int as next {
        if stream_written(stream) { on_stream(stream, || next(stream)) } else { libc::EOF }
    }

    // Another thread may have the stream's lock.
    fn fflush_unlocked(stream: *mut FILE) -> c_int as next {
        on_stream(stream, || next(stream))
    }

    fn fclose(stream: *mut FILE) -> c_int as next {
        let is_written = stream_written(stream);
        let errno = sys::errno();
        stream_closing(stream);
        let result = on_stream(stream, || next(stream));
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

/// A call that opens a path; the filter stops it if it may make or cut a file.
fn opened(path: Path, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let makes =
        flags & (libc::O_CREAT | libc::O_TRUNC) != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    table::opened(if makes { hold_at_file(path, call) } else { call() })
}

/// A call that opens a stream by a path and a mode.
fn stream_by(
    path: *const c_char,
    mode: *const c_char,
    call: impl FnOnce() -> *mut FILE,
) -> *mut FILE {
    // SAFETY: the program vouches that it is a string, or null.
    let makes = !mode.is_null() && matches!(unsafe { *mode }.cast_unsigned(), b'w' | b'a');
    if makes { hold_at_file(Path(libc::AT_FDCWD, path), call) } else { call() }
}

/// What a stream has buffered for a file is written before the stream gets another file: the C library does not report that it failed.
fn stream_emptied(stream: *mut FILE) {
    if may_have_interrupted() && is_of_file(stream) {
        // SAFETY: this library's own; the program vouches that it is a stream.
        unsafe { fflush(stream) };
    }
}

/// A call that may write what a stream has buffered.
fn on_stream(stream: *mut FILE, call: impl FnOnce() -> c_int) -> c_int {
    hold_if(|| is_of_file(stream), call)
}

/// Whether a stream is a regular file's, and not one in memory or of a pipe.
fn is_of_file(stream: *mut FILE) -> bool {
    let errno = sys::errno();
    // SAFETY: the program vouches that it is a stream, or null.
    let fd = if stream.is_null() { -1 } else { unsafe { libc::fileno(stream) } };
    sys::set_errno(errno);
    sys::place(fd).is_ok_and(sys::Place::is_file)
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
