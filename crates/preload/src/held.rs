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
//! - calls that wait for others, and that a signal interrupts without a session (a write to a pipe, a lock that is waited for), are not made here; calls that rarely do are (for a lease,
//!   for a server's file system, an allocation on tmpfs), and such a signal's handler is then late;
//! - nothing is changed in processes that belong to no session.

use std::ffi::{c_int, c_void};
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::session::Path;
use crate::sys::{self, Errno};

static IS_FENCED: AtomicBool = AtomicBool::new(false);

/// The signals of which a handler was set without SA_RESTART, a bit each. None is removed: a child of vfork(2) changes its own handlers, but this memory
/// is its parent's, too. Whether there is such a handler now, the kernel is asked.
static SET: AtomicU64 = AtomicU64::new(0);

/// Signals that a fault of the thread itself causes.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// Those that programs can have handlers of; numbers 32 and 33 are the C library's own, and not delayed.
const SIGNALS: [RangeInclusive<c_int>; 2] = [1..=31, 34..=64];

/// The process belongs to a session: its calls may be stopped.
pub(crate) fn begin() {
    IS_FENCED.store(true, Ordering::Relaxed);
    begin_end();
}

/// A handler without SA_RESTART is about to be set for a signal.
pub(crate) fn interrupts(signal: c_int) {
    let is_known = SIGNALS.iter().any(|signals| signals.contains(&signal));
    if is_known && !FAULTS.contains(&signal) {
        SET.fetch_or(bit(signal), Ordering::Relaxed);
    }
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The signals that have, or had, such a handler; 0: none, or the process belongs to no session.
#[inline]
fn noted() -> u64 {
    if IS_FENCED.load(Ordering::Relaxed) { SET.load(Ordering::Relaxed) } else { 0 }
}

/// The signals to be held back, which have such a handler now.
#[inline]
fn interrupting() -> u64 {
    let set = noted();
    if set == 0 { 0 } else { handled_now(set) }
}

#[cold]
fn handled_now(set: u64) -> u64 {
    let signals = SIGNALS.into_iter().flatten().filter(|signal| set & bit(*signal) != 0);
    signals.filter(|signal| sys::interrupts(*signal)).map(bit).fold(0, |one, other| one | other)
}

/// Whether a signal may have interrupted a call that was stopped: its handler may be another one by now.
pub(crate) fn may_have_interrupted() -> bool {
    noted() != 0
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

/// The same if the path names nothing yet, a regular file, a directory or a device like /dev/null: opening a FIFO or a terminal may wait.
#[inline]
pub(crate) fn hold_at_file<T>(Path(at, path): Path, call: impl FnOnce() -> T) -> T {
    let waits_for_nobody = || match sys::place_at(at, path, 0) {
        Ok(place) => place.is_file() || place.is_memory(),
        Err(Errno(errno)) => errno == libc::ENOENT,
    };
    hold_if(waits_for_nobody, call)
}

/// The same if `holds` says so; it is asked only if there is such a signal.
#[inline]
pub(crate) fn hold_if<T>(holds: impl FnOnce() -> bool, call: impl FnOnce() -> T) -> T {
    let signals = interrupting();
    if signals == 0 || !holds() {
        return call();
    }
    // No destructor restores the signals: a thread may be cancelled in the call.
    let Ok(signals) = sys::hold_signals(signals) else { return call() };
    let result = call();
    // Handlers run in between.
    let errno = sys::errno();
    sys::set_signals(signals);
    sys::set_errno(errno);
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
        if result != -1 || sys::errno() != libc::EINTR || noted() == 0 {
            return result;
        }
    }
}

/// The last call of exit(3) is the C library's own, in which signals cannot be held back: from here on they interrupt no call. To be called when the
/// library is loaded: what is noted before the program begins is done after the destructors of all libraries.
fn begin_end() {
    unsafe extern "C" {
        fn __cxa_atexit(
            function: extern "C" fn(*mut c_void),
            argument: *mut c_void,
            library: *mut c_void,
        ) -> c_int;
    }
    extern "C" fn end(_: *mut c_void) {
        let signals = interrupting();
        let held = SIGNALS.into_iter().flatten().filter(|signal| signals & bit(*signal) != 0);
        held.for_each(sys::restart_after);
    }
    // Of no library: the one that ends first would be asked for it. If it fails, signals interrupt as before.
    // SAFETY: the function takes what is given, and this library is never unloaded.
    unsafe { __cxa_atexit(end, ptr::null_mut(), ptr::null_mut()) };
}
