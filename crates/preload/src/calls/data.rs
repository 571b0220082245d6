//! Reading and writing, and what makes written data durable.

use std::ffi::{c_int, c_uint, c_void};

use libc::iovec;
use weir_lane::tally::Count;

use super::interpose;
use crate::held::{hold, hold_on_file};
use crate::outcome::Outcome;
use crate::session::{self, Written};
use crate::{data, leave, pieces, report, table};

unsafe extern "C-unwind" {
    /// Declared so that a thread may be cancelled in it.
    pub(super) fn pthread_testcancel();
}

/// Does a read or write of `pieces` by the lane and returns its result, or evaluates to the outcome if the kernel must do
/// the call.
macro_rules! by_lane {
    ($call:path, $fd:expr, $pieces:expr, $count:expr, $offset:expr) => {{
        // SAFETY: the program vouches for the pieces, as it does to the kernel.
        let outcome = unsafe {
            // The call is a cancellation point, also when the lane does it.
            pthread_testcancel();
            $call($fd, $pieces, $count, $offset)
        };
        match outcome.returned() {
            Some(result) => return result,
            None => outcome,
        }
    }};
}

/// A call that may be made by the door is a cancellation point.
macro_rules! may_be_cancelled {
    () => {
        if $crate::session::is_member() {
            // SAFETY: it takes nothing.
            unsafe { $crate::calls::data::pthread_testcancel() };
        }
    };
}
pub(super) use may_be_cancelled;

/// Does a write by the lane or, in a session, by its door, and returns its result, or evaluates to the lane's outcome if the kernel must do the call.
macro_rules! by_lane_or_door {
    ($fd:expr, $pieces:expr, $count:expr, $offset:expr, $number:expr, $rest:expr) => {{
        let outcome = if table::is_plain($fd) {
            Outcome::NOT_OURS
        } else {
            by_lane!(data::write, $fd, $pieces, $count, $offset)
        };
        if session::is_member() {
            // SAFETY: the arguments are the program's.
            let result = unsafe {
                pthread_testcancel();
                session::on_file($number, $fd, $rest)
            };
            if let Some(result) = result {
                return written_by_kernel(outcome, result);
            }
        }
        outcome
    }};
}

#[inline]
fn read_by_kernel(outcome: Outcome, result: isize) -> isize {
    report::kernel_read(outcome.fallback(), result);
    result
}

#[inline]
fn written_by_kernel(outcome: Outcome, result: isize) -> isize {
    report::kernel_write(outcome.fallback(), result);
    result
}

interpose! {
    fn read(fd: c_int, to: *mut c_void, len: usize) -> isize as next {
        if table::is_plain(fd) {
            return next(fd, to, len);
        }
        let outcome = by_lane!(data::read, fd, &pieces::one(to, len), 1, None);
        read_by_kernel(outcome, next(fd, to, len))
    }

    fn __read_chk(fd: c_int, to: *mut c_void, len: usize, room: usize) -> isize as next {
        if table::is_plain(fd) || len > room {
            return next(fd, to, len, room);
        }
        let outcome = by_lane!(data::read, fd, &pieces::one(to, len), 1, None);
        read_by_kernel(outcome, next(fd, to, len, room))
    }

    fn pread(fd: c_int, to: *mut c_void, len: usize, at: i64) -> isize as next {
        if table::is_plain(fd) {
            return next(fd, to, len, at);
        }
        let outcome = by_lane!(data::read, fd, &pieces::one(to, len), 1, Some(&at));
        read_by_kernel(outcome, next(fd, to, len, at))
    }

    fn pread64(fd: c_int, to: *mut c_void, len: usize, at: i64) -> isize as next {
        if table::is_plain(fd) {
            return next(fd, to, len, at);
        }
        let outcome = by_lane!(data::read, fd, &pieces::one(to, len), 1, Some(&at));
        read_by_kernel(outcome, next(fd, to, len, at))
    }

    fn __pread_chk(fd: c_int, to: *mut c_void, len: usize, at: i64, room: usize) -> isize as next {
        if table::is_plain(fd) || len > room {
            return next(fd, to, len, at, room);
        }
        let outcome = by_lane!(data::read, fd, &pieces::one(to, len), 1, Some(&at));
        read_by_kernel(outcome, next(fd, to, len, at, room))
    }

    fn __pread64_chk(fd: c_int, to: *mut c_void, len: usize, at: i64, room: usize) -> isize as next {
        if table::is_plain(fd) || len > room {
            return next(fd, to, len, at, room);
        }
        let outcome = by_lane!(data::read, fd, &pieces::one(to, len), 1, Some(&at));
        read_by_kernel(outcome, next(fd, to, len, at, room))
    }

    fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> isize as next {
        if table::is_plain(fd) {
            return next(fd, pieces, count);
        }
        let outcome = by_lane!(data::read, fd, pieces, count as usize, None);
        read_by_kernel(outcome, next(fd, pieces, count))
    }

    fn preadv(fd: c_int, pieces: *const iovec, count: c_int, at: i64) -> isize as next {
        if table::is_plain(fd) {
            return next(fd, pieces, count, at);
        }
        let outcome = by_lane!(data::read, fd, pieces, count as usize, Some(&at));
        read_by_kernel(outcome, next(fd, pieces, count, at))
    }

    fn preadv64(fd: c_int, pieces: *const iovec, count: c_int, at: i64) -> isize as next {
        if table::is_plain(fd) {
            return next(fd, pieces, count, at);
        }
        let outcome = by_lane!(data::read, fd, pieces, count as usize, Some(&at));
        read_by_kernel(outcome, next(fd, pieces, count, at))
    }

    fn preadv2(fd: c_int, pieces: *const iovec, count: c_int, at: i64, flags: c_int) -> isize as next {
        if table::is_plain(fd) || flags != 0 {
            return next(fd, pieces, count, at, flags);
        }
        // -1 means at the position.
        let place = Some(&at).filter(|at| **at != -1);
        let outcome = by_lane!(data::read, fd, pieces, count as usize, place);
        read_by_kernel(outcome, next(fd, pieces, count, at, flags))
    }

    fn preadv64v2(fd: c_int, pieces: *const iovec, count: c_int, at: i64, flags: c_int) -> isize as next {
        if table::is_plain(fd) || flags != 0 {
            return next(fd, pieces, count, at, flags);
        }
        let place = Some(&at).filter(|at| **at != -1);
        let outcome = by_lane!(data::read, fd, pieces, count as usize, place);
        read_by_kernel(outcome, next(fd, pieces, count, at, flags))
    }

    fn write(fd: c_int, from: *const c_void, len: usize) -> isize as next {
        let outcome = if table::is_plain(fd) {
            Outcome::NOT_OURS
        } else {
            by_lane!(data::write, fd, &pieces::one(from, len), 1, None)
        };
        if session::is_member() {
            // SAFETY: the arguments are the program's.
            let written = unsafe {
                pthread_testcancel();
                session::write(fd, from, len)
            };
            return match written {
                Written::Done(result) => written_by_kernel(outcome, result),
                Written::Begun(done) => {
                    let left = from.wrapping_byte_add(done);
                    rest(done, hold_on_file(fd, || next(fd, left, len - done)))
                }
            };
        }
        written_by_kernel(outcome, hold_on_file(fd, || next(fd, from, len)))
    }

    fn pwrite(fd: c_int, from: *const c_void, len: usize, at: i64) -> isize as next {
        let (pieces, rest) = (pieces::one(from, len), [from.addr(), len, at as usize, 0, 0]);
        let outcome = by_lane_or_door!(fd, &pieces, 1, Some(&at), libc::SYS_pwrite64, rest);
        written_by_kernel(outcome, hold_on_file(fd, || next(fd, from, len, at)))
    }

    fn pwrite64(fd: c_int, from: *const c_void, len: usize, at: i64) -> isize as next {
        let (pieces, rest) = (pieces::one(from, len), [from.addr(), len, at as usize, 0, 0]);
        let outcome = by_lane_or_door!(fd, &pieces, 1, Some(&at), libc::SYS_pwrite64, rest);
        written_by_kernel(outcome, hold_on_file(fd, || next(fd, from, len, at)))
    }

    fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> isize as next {
        let rest = [pieces.addr(), count as usize, 0, 0, 0];
        let outcome =
            by_lane_or_door!(fd, pieces, count as usize, None, libc::SYS_writev, rest);
        written_by_kernel(outcome, hold_on_file(fd, || next(fd, pieces, count)))
    }

    fn pwritev(fd: c_int, pieces: *const iovec, count: c_int, at: i64) -> isize as next {
        let rest = [pieces.addr(), count as usize, at as usize, 0, 0];
        let outcome =
            by_lane_or_door!(fd, pieces, count as usize, Some(&at), libc::SYS_pwritev, rest);
        written_by_kernel(outcome, hold_on_file(fd, || next(fd, pieces, count, at)))
    }

    fn pwritev64(fd: c_int, pieces: *const iovec, count: c_int, at: i64) -> isize as next {
        let rest = [pieces.addr(), count as usize, at as usize, 0, 0];
        let outcome =
            by_lane_or_door!(fd, pieces, count as usize, Some(&at), libc::SYS_pwritev, rest);
        written_by_kernel(outcome, hold_on_file(fd, || next(fd, pieces, count, at)))
    }

    fn pwritev2(fd: c_int, pieces: *const iovec, count: c_int, at: i64, flags: c_int) -> isize as next {
        if table::is_plain(fd) || flags != 0 {
            if flags & libc::RWF_APPEND != 0 {
                leave::before_append(fd);
            }
            return hold_on_file(fd, || next(fd, pieces, count, at, flags));
        }
        let place = Some(&at).filter(|at| **at != -1);
        let outcome = by_lane!(data::write, fd, pieces, count as usize, place);
        written_by_kernel(outcome, hold_on_file(fd, || next(fd, pieces, count, at, flags)))
    }

    fn pwritev64v2(fd: c_int, pieces: *const iovec, count: c_int, at: i64, flags: c_int) -> isize as next {
        if table::is_plain(fd) || flags != 0 {
            if flags & libc::RWF_APPEND != 0 {
                leave::before_append(fd);
            }
            return hold_on_file(fd, || next(fd, pieces, count, at, flags));
        }
        let place = Some(&at).filter(|at| **at != -1);
        let outcome = by_lane!(data::write, fd, pieces, count as usize, place);
        written_by_kernel(outcome, hold_on_file(fd, || next(fd, pieces, count, at, flags)))
    }

    fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64 as next {
        let (mut offset, mut whence) = (offset, whence);
        data::before_seek(fd, &mut offset, &mut whence);
        data::after_seek(fd, next(fd, offset, whence))
    }

    fn lseek64(fd: c_int, offset: i64, whence: c_int) -> i64 as next {
        let (mut offset, mut whence) = (offset, whence);
        data::before_seek(fd, &mut offset, &mut whence);
        data::after_seek(fd, next(fd, offset, whence))
    }

    // The daemon applies what was posted before it serves any of these.

    fn fsync(fd: c_int) -> c_int as next {
        may_be_cancelled!();
        if let Some(result) = session::sync(fd) {
            return result;
        }
        synced(fd);
        hold(|| next(fd))
    }

    fn fdatasync(fd: c_int) -> c_int as next {
        may_be_cancelled!();
        if let Some(result) = session::sync(fd) {
            return result;
        }
        synced(fd);
        hold(|| next(fd))
    }

    fn copy_file_range(
        from: c_int,
        from_at: *mut i64,
        to: c_int,
        to_at: *mut i64,
        len: usize,
        flags: c_uint,
    ) -> isize as next {
        leave::transfer(from);
        may_be_cancelled!();
        let call = [from as usize, from_at.addr(), to as usize, to_at.addr(), len, flags as usize];
        // SAFETY: the arguments are the program's.
        match unsafe { session::into_file(libc::SYS_copy_file_range, to, call) } {
            Some(result) => result,
            None => hold(|| next(from, from_at, to, to_at, len, flags)),
        }
    }

    fn splice(
        from: c_int,
        from_at: *mut i64,
        to: c_int,
        to_at: *mut i64,
        len: usize,
        flags: c_uint,
    ) -> isize as next {
        leave::transfer(from);
        next(from, from_at, to, to_at, len, flags)
    }

    fn sync_file_range(fd: c_int, offset: i64, len: i64, flags: c_uint) -> c_int as next {
        synced(fd);
        hold(|| next(fd, offset, len, flags))
    }
}

/// The result of a write of which a part was done before the rest was written, with this result.
pub(super) fn rest(done: usize, result: isize) -> isize {
    match result {
        _ if done == 0 => result,
        ..0 => done as isize,
        more => done as isize + more,
    }
}

fn synced(fd: c_int) {
    if table::known(fd).is_some() {
        report::add(Count::Syncs, 1);
    }
}
