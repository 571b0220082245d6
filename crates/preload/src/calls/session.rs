//! Calls that are of interest in sessions ([`crate::session`]), most of them there alone: they send, change names, or signal.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use libc::{pid_t, sockaddr, socklen_t, timespec};

use super::data::{pthread_testcancel, rest};
use super::interpose;
use crate::held::{hold, repeat};
use crate::session::{self, Path, Written};
use crate::{data, leave, sys};

/// Makes a call that changes what paths name by the door, and returns its result.
macro_rules! by_door {
    ($number:expr, $paths:expr, $arguments:expr) => {
        // SAFETY: the arguments are the program's.
        if let Some(result) = unsafe { session::names($number, $paths, $arguments) } {
            return result as c_int;
        }
    };
}

const HERE: c_int = libc::AT_FDCWD;

/// The arguments of a call with a directory and a name, and a number.
fn one(number: c_int) -> impl Fn([Path; 1]) -> [usize; 6] {
    move |[Path(at, name)]| [at as usize, name.addr(), number as usize, 0, 0, 0]
}

/// Those of a call with two of both.
fn two([Path(at, from), Path(into, to)]: [Path; 2]) -> [usize; 6] {
    [at as usize, from.addr(), into as usize, to.addr(), 0, 0]
}

/// The arguments of symlinkat(2).
fn with_target(target: *const c_char) -> impl Fn([Path; 1]) -> [usize; 6] {
    move |[Path(at, name)]| [target.addr(), at as usize, name.addr(), 0, 0, 0]
}

interpose! {
    fn send(fd: c_int, from: *const c_void, len: usize, flags: c_int) -> isize as next {
        // SAFETY: the arguments are the program's.
        let sent = unsafe {
            pthread_testcancel();
            session::send(fd, from, len, flags, [0; 2])
        };
        match sent {
            Written::Done(result) => result,
            Written::Begun(done) => {
                rest(done, next(fd, from.wrapping_byte_add(done), len - done, flags))
            }
        }
    }

    fn sendto(
        fd: c_int,
        from: *const c_void,
        len: usize,
        flags: c_int,
        to: *const sockaddr,
        to_len: socklen_t,
    ) -> isize as next {
        // SAFETY: the arguments are the program's.
        let sent = unsafe {
            pthread_testcancel();
            session::send(fd, from, len, flags, [to.addr(), to_len as usize])
        };
        match sent {
            Written::Done(result) => result,
            Written::Begun(done) => {
                rest(done, next(fd, from.wrapping_byte_add(done), len - done, flags, to, to_len))
            }
        }
    }

    // libaio's: it returns a negative error number, and does no more than the system call.
    fn io_submit(context: usize, count: c_long, list: *const usize) -> c_int as next {
        leave::before_submit(count, list);
        // SAFETY: the arguments are the program's.
        let submitted = unsafe { session::submit(context, count, list) };
        submitted.unwrap_or_else(|| hold(|| sys::submit(context, count, list))) as c_int
    }

    fn unlink(path: *const c_char) -> c_int as next {
        by_door!(libc::SYS_unlinkat, [Path(HERE, path)], one(0));
        hold(|| next(path))
    }

    fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int as next {
        by_door!(libc::SYS_unlinkat, [Path(at, path)], one(flags));
        hold(|| next(at, path, flags))
    }

    fn rmdir(path: *const c_char) -> c_int as next {
        by_door!(libc::SYS_unlinkat, [Path(HERE, path)], one(libc::AT_REMOVEDIR));
        hold(|| next(path))
    }

    fn mkdir(path: *const c_char, mode: c_uint) -> c_int as next {
        by_door!(libc::SYS_mkdirat, [Path(HERE, path)], one(mode as c_int));
        hold(|| next(path, mode))
    }

    fn mkdirat(at: c_int, path: *const c_char, mode: c_uint) -> c_int as next {
        by_door!(libc::SYS_mkdirat, [Path(at, path)], one(mode as c_int));
        hold(|| next(at, path, mode))
    }

    fn rename(from: *const c_char, to: *const c_char) -> c_int as next {
        by_door!(libc::SYS_renameat, [Path(HERE, from), Path(HERE, to)], two);
        hold(|| next(from, to))
    }

    fn link(from: *const c_char, to: *const c_char) -> c_int as next {
        by_door!(libc::SYS_linkat, [Path(HERE, from), Path(HERE, to)], two);
        hold(|| next(from, to))
    }

    fn renameat(at: c_int, from: *const c_char, into: c_int, to: *const c_char) -> c_int as next {
        by_door!(libc::SYS_renameat, [Path(at, from), Path(into, to)], two);
        hold(|| next(at, from, into, to))
    }

    fn renameat2(
        at: c_int,
        from: *const c_char,
        into: c_int,
        to: *const c_char,
        flags: c_uint,
    ) -> c_int as next {
        let with_flags = |paths| {
            let [at, from, into, to, ..] = two(paths);
            [at, from, into, to, flags as usize, 0]
        };
        by_door!(libc::SYS_renameat2, [Path(at, from), Path(into, to)], with_flags);
        hold(|| next(at, from, into, to, flags))
    }

    fn linkat(
        at: c_int,
        from: *const c_char,
        into: c_int,
        to: *const c_char,
        flags: c_int,
    ) -> c_int as next {
        // With AT_SYMLINK_FOLLOW it may be linked from elsewhere, with AT_EMPTY_PATH there is no name.
        if flags == 0 {
            by_door!(libc::SYS_linkat, [Path(at, from), Path(into, to)], two);
        }
        hold(|| next(at, from, into, to, flags))
    }

    fn symlink(target: *const c_char, path: *const c_char) -> c_int as next {
        by_door!(libc::SYS_symlinkat, [Path(HERE, path)], with_target(target));
        hold(|| next(target, path))
    }

    fn symlinkat(target: *const c_char, at: c_int, path: *const c_char) -> c_int as next {
        by_door!(libc::SYS_symlinkat, [Path(at, path)], with_target(target));
        hold(|| next(target, at, path))
    }

    fn futimens(fd: c_int, times: *const timespec) -> c_int as next {
        // The C library refuses AT_FDCWD, which would name the working directory.
        if fd < 0 {
            return next(fd, times);
        }
        // SAFETY: the arguments are the program's.
        let done =
            unsafe { session::on_file(libc::SYS_utimensat, fd, [0, times.addr(), 0, 0, 0]) };
        done.map_or_else(|| hold(|| next(fd, times)), |result| result as c_int)
    }

    fn fsetxattr(
        fd: c_int,
        name: *const c_char,
        value: *const c_void,
        len: usize,
        flags: c_int,
    ) -> c_int as next {
        let rest = [name.addr(), value.addr(), len, flags as usize, 0];
        // SAFETY: the arguments are the program's.
        let done = unsafe { session::on_file(libc::SYS_fsetxattr, fd, rest) };
        done.map_or_else(|| hold(|| next(fd, name, value, len, flags)), |result| result as c_int)
    }

    fn ftruncate(fd: c_int, len: i64) -> c_int as next {
        data::before_truncate(fd);
        // SAFETY: the arguments are numbers.
        let done = unsafe {
            session::on_file(libc::SYS_ftruncate, fd, [len as usize, 0, 0, 0, 0])
        };
        done.map_or_else(|| hold(|| next(fd, len)), |result| result as c_int)
    }

    fn ftruncate64(fd: c_int, len: i64) -> c_int as next {
        data::before_truncate(fd);
        // SAFETY: the arguments are numbers.
        let done = unsafe {
            session::on_file(libc::SYS_ftruncate, fd, [len as usize, 0, 0, 0, 0])
        };
        done.map_or_else(|| hold(|| next(fd, len)), |result| result as c_int)
    }

    fn fchmod(fd: c_int, mode: c_uint) -> c_int as next {
        // SAFETY: the arguments are numbers.
        let done =
            unsafe { session::on_file(libc::SYS_fchmod, fd, [mode as usize, 0, 0, 0, 0]) };
        done.map_or_else(|| hold(|| next(fd, mode)), |result| result as c_int)
    }

    fn fchown(fd: c_int, user: c_uint, group: c_uint) -> c_int as next {
        // SAFETY: the arguments are numbers.
        let done = unsafe {
            session::on_file(libc::SYS_fchown, fd, [user as usize, group as usize, 0, 0, 0])
        };
        done.map_or_else(|| hold(|| next(fd, user, group)), |result| result as c_int)
    }

    fn kill(process: pid_t, signal: c_int) -> c_int as next {
        let arguments = [process as usize, signal as usize, 0, 0, 0, 0];
        // SAFETY: the arguments are numbers.
        let done = unsafe { session::if_nothing_is_promised(libc::SYS_kill, arguments) };
        done.map_or_else(|| repeat(|| next(process, signal)), |result| result as c_int)
    }
}
