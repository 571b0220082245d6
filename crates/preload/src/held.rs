//! Signals beside calls that the fence of a session stops ([`crate::session`]).
//!
//! A stopped call waits for the supervisor. A signal that arrives before the supervisor has seen the call ends that wait (seccomp_unotify(2)): the call
//! is not made, and it fails with EINTR if the signal's handler was set without SA_RESTART. The kernel itself lets no signal interrupt most of these calls, and
//! programs are not prepared for that: after close(2) they take the descriptor for closed, and after exit_group(2) the C library executes an
//! instruction that ends the process by a signal. So signals with such handlers are held back during such a call, or the call is repeated. All others
//! arrive as they do without a session.
//!
//! Owns: which signals have, or had, such a handler. Handlers that are set by a system call of the program's own are not known.
//!
//! Invariants:
//! - calls that a signal may interrupt without a session (a write to a pipe, a lock that is waited for) are not made here;
//! - nothing is changed in processes that belong to no session.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::session::Path;
use crate::sys::{self, Errno};

static IS_FENCED: AtomicBool = AtomicBool::new(false);

/// The signals of which a handler was set without SA_RESTART, a bit each. None is removed: a child of vfork(2) changes its own handlers, but this memory
/// is its parent's, too.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// Signals that a fault of the thread itself causes.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// Their numbers are 1 to this one.
const SIGNALS: c_int = 64;

/// The process belongs to a session: its calls may be stopped.
pub(crate) fn begin() {
    IS_FENCED.store(true, Ordering::Relaxed);
}

/// A handler without SA_RESTART is about to be set for a signal.
pub(crate) fn interrupts(signal: c_int) {
    if (1..=SIGNALS).contains(&signal) && !FAULTS.contains(&signal) {
        INTERRUPTING.fetch_or(1 << (signal - 1), Ordering::Relaxed);
    }
}

/// The signals to be held back; 0: none, or the process belongs to no session.
#[inline]
fn interrupting() -> u64 {
    if IS_FENCED.load(Ordering::Relaxed) { INTERRUPTING.load(Ordering::Relaxed) } else { 0 }
}

/// Makes a call during which such signals are held back.
#[inline]
pub(crate) fn hold<T>(call: impl FnOnce() -> T) -> T {
    hold_if(|| true, call)
}

/// The same if the descriptor is a regular file's or a directory's.
#[inline]
pub(crate) fn hold_on_file<T>(fd: c_int, call: impl FnOnce() -> T) -> T {
    hold_if(|| sys::place(fd).is_ok_and(sys::Place::is_file), call)
}

/// The same if the path names nothing yet, or a regular file or a directory: opening a FIFO or a terminal may wait.
#[inline]
pub(crate) fn hold_at_file<T>(Path(at, path): Path, call: impl FnOnce() -> T) -> T {
    let waits_for_nobody = || match sys::place_at(at, path, 0) {
        Ok(place) => place.is_file(),
        Err(Errno(errno)) => errno == libc::ENOENT,
    };
    hold_if(waits_for_nobody, call)
}

#[inline]
fn hold_if<T>(holds: impl FnOnce() -> bool, call: impl FnOnce() -> T) -> T {
    let signals = interrupting();
    if signals == 0 || !holds() {
        return call();
    }
    // No destructor restores the signals: a thread may be cancelled in the call.
    let Ok(signals) = sys::hold_signals(signals) else { return call() };
    let result = call();
    sys::set_signals(signals);
    result
}

/// Holds back such signals from now on: the process ends.
pub(crate) fn hold_to_the_end() {
    let signals = interrupting();
    if signals != 0 {
        // If it fails, they arrive.
        let _ = sys::hold_signals(signals);
    }
}

/// Makes a call that returns -1 and sets `errno`, and repeats it as long as a signal interrupts it. For calls that must be made with the thread's own
/// signals: a signal that is sent, a program that is executed.
#[inline]
pub(crate) fn repeat(mut call: impl FnMut() -> c_int) -> c_int {
    loop {
        let result = call();
        if result != -1 || interrupting() == 0 || sys::errno() != libc::EINTR {
            return result;
        }
    }
}

/// The same for calls that return the error number.
#[inline]
pub(crate) fn repeat_returned(mut call: impl FnMut() -> c_int) -> c_int {
    loop {
        let result = call();
        if result != libc::EINTR || interrupting() == 0 {
            return result;
        }
    }
}

/// exit(3) ends with a call of the C library's own, in which signals cannot be held back. So from here on they interrupt no call.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

#[cfg(not(test))]
extern "C" fn end() {
    let signals = interrupting();
    for signal in (1..=SIGNALS).filter(|signal| signals >> (signal - 1) & 1 != 0) {
        sys::restart_after(signal);
    }
}
