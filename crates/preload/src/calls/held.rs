//! Calls that are made beside signals ([`crate::held`]), and those that say which signals interrupt.

use std::ffi::{c_char, c_int, c_void};

use libc::{
    FILE, dev_t, gid_t, id_t, key_t, mode_t, pid_t, sighandler_t, sigval, sockaddr, socklen_t,
    timespec, timeval, uid_t, utimbuf,
};

use super::interpose;
use crate::held::{hold, hold_if, interrupts, may_have_interrupted, repeat};
use crate::sys;

/// Defines calls during which signals are held back.
macro_rules! interpose_held {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        interpose! {$(
            fn $name($($argument: $type),*) -> $result as next {
                hold(|| next($($argument),*))
            }
        )*}
    };
}

interpose_held! {
    fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int;
    fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int;
    fn fchownat(at: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int;
    fn chmod(path: *const c_char, mode: mode_t) -> c_int;
    fn lchmod(path: *const c_char, mode: mode_t) -> c_int;
    fn fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int;
    fn utime(path: *const c_char, times: *const utimbuf) -> c_int;
    fn utimes(path: *const c_char, times: *const timeval) -> c_int;
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int;
    fn futimes(fd: c_int, times: *const timeval) -> c_int;
    fn futimesat(at: c_int, path: *const c_char, times: *const timeval) -> c_int;
    fn utimensat(at: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int;
    fn truncate(path: *const c_char, len: i64) -> c_int;
    fn truncate64(path: *const c_char, len: i64) -> c_int;
    fn fallocate(fd: c_int, mode: c_int, offset: i64, len: i64) -> c_int;
    fn fallocate64(fd: c_int, mode: c_int, offset: i64, len: i64) -> c_int;
    fn posix_fallocate(fd: c_int, offset: i64, len: i64) -> c_int;
    fn posix_fallocate64(fd: c_int, offset: i64, len: i64) -> c_int;
    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    fn mknodat(at: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    fn __xmknod(version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int;
    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int;
    fn mkfifoat(at: c_int, path: *const c_char, mode: mode_t) -> c_int;
    fn mkdtemp(template: *mut c_char) -> *mut c_char;
    fn remove(path: *const c_char) -> c_int;
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: usize, flags: c_int) -> c_int;
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: usize, flags: c_int) -> c_int;
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int;
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    fn shmget(key: key_t, len: usize, flags: c_int) -> c_int;
    fn shmctl(id: c_int, command: c_int, buffer: *mut c_void) -> c_int;
    fn semget(key: key_t, count: c_int, flags: c_int) -> c_int;
    fn semctl(id: c_int, number: c_int, command: c_int, argument: usize) -> c_int;
    fn msgget(key: key_t, flags: c_int) -> c_int;
    fn msgctl(id: c_int, command: c_int, buffer: *mut c_void) -> c_int;
    fn setpriority(which: c_int, who: id_t, priority: c_int) -> c_int;
    fn nice(by: c_int) -> c_int;
    fn sync() -> ();
    fn syncfs(fd: c_int) -> c_int;
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn listen(fd: c_int, waiting: c_int) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, len: socklen_t) -> c_int;
}

interpose! {
    fn flock(fd: c_int, operation: c_int) -> c_int as next {
        let is_at_once = || operation & (libc::LOCK_NB | libc::LOCK_UN) != 0;
        hold_if(is_at_once, || next(fd, operation))
    }

    fn lockf(fd: c_int, operation: c_int, len: i64) -> c_int as next {
        hold_if(|| operation != libc::F_LOCK, || next(fd, operation, len))
    }

    fn lockf64(fd: c_int, operation: c_int, len: i64) -> c_int as next {
        hold_if(|| operation != libc::F_LOCK, || next(fd, operation, len))
    }

    fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int as next {
        let waits_for_nobody =
            || sys::place(fd).is_ok_and(|place| place.is_file() || place.is_pipe_or_socket());
        hold_if(waits_for_nobody, || next(fd, request, argument))
    }

    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int as next {
        loop {
            let connected = hold_if(|| sys::connects_at_once(fd), || next(fd, address, len));
            // A program takes an interrupted connect(2) for one that is under way.
            let is_interrupted = connected == -1 && sys::errno() == libc::EINTR;
            if !is_interrupted || !may_have_interrupted() || !sys::is_closed_tcp(fd) {
                return connected;
            }
        }
    }

    fn tmpfile() -> *mut FILE as next {
        hold(next)
    }

    fn tmpfile64() -> *mut FILE as next {
        hold(next)
    }

    fn raise(signal: c_int) -> c_int as next {
        repeat(|| next(signal))
    }

    fn killpg(group: pid_t, signal: c_int) -> c_int as next {
        repeat(|| next(group, signal))
    }

    fn tgkill(process: pid_t, thread: pid_t, signal: c_int) -> c_int as next {
        repeat(|| next(process, thread, signal))
    }

    fn sigqueue(process: pid_t, signal: c_int, value: sigval) -> c_int as next {
        repeat(|| next(process, signal, value))
    }

    fn sigaction(
        signal: c_int,
        action: *const libc::sigaction,
        before: *mut libc::sigaction,
    ) -> c_int as next {
        note(signal, action);
        next(signal, action, before)
    }

    fn __sigaction(
        signal: c_int,
        action: *const libc::sigaction,
        before: *mut libc::sigaction,
    ) -> c_int as next {
        note(signal, action);
        next(signal, action, before)
    }

    // The C library's signal(3) sets SA_RESTART until this is called.
    fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int as next {
        if interrupt != 0 {
            interrupts(signal);
        }
        next(signal, interrupt)
    }

    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t as next {
        interrupts(signal);
        next(signal, handler)
    }

    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t as next {
        interrupts(signal);
        next(signal, handler)
    }

    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t as next {
        interrupts(signal);
        next(signal, handler)
    }
}

/// The handler of a signal is about to be set.
fn note(signal: c_int, action: *const libc::sigaction) {
    // SAFETY: the program vouches that it is one, or null.
    if let Some(action) = unsafe { action.as_ref() }
        && action.sa_flags & libc::SA_RESTART == 0
        && !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
    {
        interrupts(signal);
    }
}
