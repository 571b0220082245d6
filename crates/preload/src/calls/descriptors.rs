//! What duplicates, closes and changes descriptors.

use std::ffi::{c_int, c_long, c_uint, c_void};

use super::credentials::outside;
use super::data::may_be_cancelled;
use super::interpose;
use crate::held::{hold, repeat};
use crate::{connection, description, leave, position, session, sys, table};

interpose! {
    fn close(fd: c_int) -> c_int as next {
        if table::is_ours(fd) {
            return not_open();
        }
        table::closing(fd);
        may_be_cancelled!();
        let closed = session::close(fd).unwrap_or_else(|| match sys::lingers(fd) {
            // A signal ends the waiting of one that was made, without an error.
            true => repeat(|| next(fd)),
            false => hold(|| next(fd)),
        });
        table::opened(fd);
        closed
    }

    fn dup(old: c_int) -> c_int as next {
        duplicate(old, next(old))
    }

    fn dup2(old: c_int, new: c_int) -> c_int as next {
        if old != new {
            make_room(new);
            return duplicate(old, hold(|| next(old, new)));
        }
        next(old, new)
    }

    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int as next {
        if old != new {
            make_room(new);
            return duplicate(old, hold(|| next(old, new, flags)));
        }
        next(old, new, flags)
    }

    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int as next {
        if matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW) {
            may_be_cancelled!();
        }
        if let Some(result) = lock_by_door(fd, command, argument) {
            return result;
        }
        let given = before_fcntl(fd, command, argument);
        let call = || next(fd, command, given);
        after_fcntl(fd, command, argument, if is_at_once(command) { hold(call) } else { call() })
    }

    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int as next {
        if matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW) {
            may_be_cancelled!();
        }
        if let Some(result) = lock_by_door(fd, command, argument) {
            return result;
        }
        let given = before_fcntl(fd, command, argument);
        let call = || next(fd, command, given);
        after_fcntl(fd, command, argument, if is_at_once(command) { hold(call) } else { call() })
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int as next {
        let closes = flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0;
        // The ranges between this library's sockets.
        let mut from = first;
        while closes && let Some(ours) = ours_in(from, last) {
            if ours > from {
                forget_range(from, ours - 1);
                let closed = hold(|| next(from, ours - 1, flags));
                if closed != 0 {
                    return closed;
                }
            }
            if ours == last {
                return 0;
            }
            from = ours + 1;
        }
        if closes {
            forget_range(from, last);
        }
        hold(|| next(from, last, flags))
    }

    fn closefrom(first: c_int) -> () as next {
        let first = first.max(0) as c_uint;
        // SAFETY: this library's own.
        unsafe { close_range(first, c_uint::MAX, 0) };
    }

    fn syscall(
        number: c_long,
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
    ) -> c_long as next {
        // SAFETY: this library's own, called as the kernel would be.
        unsafe {
            match number {
                libc::SYS_close => close(a as c_int).into(),
                libc::SYS_dup => dup(a as c_int).into(),
                libc::SYS_dup2 => dup2(a as c_int, b as c_int).into(),
                libc::SYS_dup3 => dup3(a as c_int, b as c_int, c as c_int).into(),
                libc::SYS_fcntl => fcntl(a as c_int, b as c_int, c).into(),
                libc::SYS_close_range => close_range(a as c_uint, b as c_uint, c as c_int).into(),
                libc::SYS_lseek => super::data::lseek(a as c_int, b as i64, c as c_int),
                libc::SYS_mmap => {
                    let (access, flags, fd) = (c as c_int, d as c_int, e as c_int);
                    super::memory::mmap(a as *mut c_void, b, access, flags, fd, f as i64) as c_long
                }
                libc::SYS_execve | libc::SYS_execveat => {
                    leave::before_program();
                    next(number, a, b, c, d, e, f)
                }
                libc::SYS_copy_file_range | libc::SYS_splice => {
                    leave::transfer(a as c_int);
                    next(number, a, b, c, d, e, f)
                }
                libc::SYS_pwritev2 => {
                    if f as c_int & libc::RWF_APPEND != 0 {
                        leave::before_append(a as c_int);
                    }
                    next(number, a, b, c, d, e, f)
                }
                libc::SYS_io_submit => {
                    leave::before_submit(b as c_long, c as *const usize);
                    next(number, a, b, c, d, e, f)
                }
                libc::SYS_sendfile => {
                    leave::transfer(b as c_int);
                    next(number, a, b, c, d, e, f)
                }
                _ if changes_credentials(number) => outside!(next(number, a, b, c, d, e, f)),
                _ => next(number, a, b, c, d, e, f),
            }
        }
    }
}

/// A lock. Where the call would wait it is not made here: the thread could not be cancelled.
fn lock_by_door(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    let at_once = match command {
        libc::F_SETLK | libc::F_SETLKW => libc::F_SETLK,
        libc::F_OFD_SETLK | libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
        _ => return None,
    };
    match session::lock(fd, at_once, argument)? as c_int {
        -1 if command != at_once && is_taken() => None,
        result => Some(result),
    }
}

/// Whether a command of fcntl(2) is one that is stopped, and waits for nobody.
fn is_at_once(command: c_int) -> bool {
    matches!(
        command,
        libc::F_SETLK
            | libc::F_OFD_SETLK
            | libc::F_SETLEASE
            | libc::F_SETOWN
            | F_SETSIG
            | F_SETOWN_EX
    )
}

/// asm-generic/fcntl.h.
const F_SETSIG: c_int = 10;
/// As above.
const F_SETOWN_EX: c_int = 15;

/// Whether the last call failed since another process has a lock.
fn is_taken() -> bool {
    // SAFETY: the thread's own.
    matches!(unsafe { *libc::__errno_location() }, libc::EAGAIN | libc::EACCES)
}

/// See [`crate::credentials`].
fn changes_credentials(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setreuid
            | libc::SYS_setresuid
            | libc::SYS_setfsuid
            | libc::SYS_setgid
            | libc::SYS_setregid
            | libc::SYS_setresgid
            | libc::SYS_setfsgid
            | libc::SYS_setgroups
            | libc::SYS_capset
            | libc::SYS_chroot
            | libc::SYS_unshare
            | libc::SYS_setns
            | libc::SYS_landlock_restrict_self
    )
}

/// The descriptor is this library's: to the program it is not open.
fn not_open() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = libc::EBADF };
    -1
}

/// The number is about to be reused for another file.
fn make_room(fd: c_int) {
    if table::is_ours(fd) {
        connection::evade(fd);
    }
    table::closing(fd);
}

fn duplicate(old: c_int, new: c_int) -> c_int {
    if new >= 0 {
        leave::duplicated(old, new);
    }
    new
}

fn ours_in(first: c_uint, last: c_uint) -> Option<c_uint> {
    table::noted(first, last).find(|fd| table::is_ours(*fd)).map(|fd| fd as c_uint)
}

fn forget_range(first: c_uint, last: c_uint) {
    for fd in table::noted(first, last) {
        table::closing(fd);
    }
}

/// The argument for the kernel's call.
fn before_fcntl(fd: c_int, command: c_int, argument: usize) -> usize {
    if command == libc::F_SETFL
        && let Some(description) = table::known(fd)
    {
        leave::before_flags(fd, description);
        if description.flags() & description::BYPASSES == 0 {
            return argument;
        }
        if let Some((client, file)) = description.attached() {
            // While it still appends.
            position::set_if_noted(fd, client, file);
        }
        return argument | libc::O_DIRECT as usize;
    }
    argument
}

/// The result for the program.
fn after_fcntl(fd: c_int, command: c_int, argument: usize, result: c_int) -> c_int {
    if result < 0 {
        return result;
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate(fd, result),
        libc::F_SETFL => {
            if let Some(description) = table::known(fd)
                && description.flags() & description::BYPASSES != 0
            {
                description.set_open_flags(argument as c_int);
            }
            result
        }
        libc::F_GETFL => match table::known(fd).map(description::Description::flags) {
            Some(flags)
                if flags & (description::BYPASSES | description::SHOWS_DIRECT)
                    == description::BYPASSES =>
            {
                result & !libc::O_DIRECT
            }
            _ => result,
        },
        _ => result,
    }
}

/// The C library replaced the first three descriptors, by a terminal's or the null device's.
pub(super) fn standard_replaced() {
    for fd in 0..3 {
        table::forget(fd);
    }
}
