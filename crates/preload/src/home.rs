//! Which process this memory belongs to.
//!
//! A child of fork(2) has a copy of everything, and must not use its parent's rings; a child of vfork(2) has the
//! parent's memory itself, but descriptors of its own, and must not change what is said of the parent's. The
//! first is told by a page that the kernel wipes on fork, however it is called; the second by getpid(2), asked
//! where the table of descriptors is about to change.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weir_lane::owner;

use crate::{lock, report, sys};

/// Alone on its page.
#[repr(C, align(4096))]
struct Page {
    /// 0: not known yet in this process.
    process: AtomicU32,
    /// The thread that makes the memory its process's own.
    adopter: AtomicU32,
    /// What it is called to the daemon; 0: nothing yet.
    number: AtomicU32,
    /// Its PID namespace; 0: not known, or not yet.
    namespace: AtomicU32,
}

static PAGE: Page = Page {
    process: AtomicU32::new(0),
    adopter: AtomicU32::new(0),
    number: AtomicU32::new(0),
    namespace: AtomicU32::new(0),
};
thread_local! {
    /// A child of vfork(2) uses this thread, and has changed descriptors. Constant at first and without a destructor.
    static IS_GUEST: Cell<bool> = const { Cell::new(false) };
}

/// Counts forks on the way from the program's first process to this one: rings taken before the last are others'.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Whether forks are noticed.
static IS_WIPED: AtomicBool = AtomicBool::new(false);

/// Called when the library is loaded.
pub(crate) fn begin() {
    let wiped = sys::wipe_on_fork((&raw const PAGE).cast(), size_of::<Page>());
    IS_WIPED.store(wiped.is_ok(), Ordering::Relaxed);
    PAGE.process.store(sys::getpid(), Ordering::Relaxed);
}

/// Whether forks are noticed; without that nothing enters the lane.
pub(crate) fn notices_forks() -> bool {
    IS_WIPED.load(Ordering::Relaxed)
}

/// Makes the memory this process's own, if it was forked and nobody has done so yet.
#[inline]
pub(crate) fn settle() {
    if PAGE.process.load(Ordering::Acquire) == 0 {
        adopt();
    }
}

/// Which of the processes that came one from the other by fork(2) this is.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this process was forked since the program began, or the library was loaded.
#[inline]
pub(crate) fn was_forked() -> bool {
    settle();
    generation() != 0
}

/// A number that no other process of the program has, also where processes are numbered anew (pid_namespaces(7)); not 0.
pub(crate) fn number() -> u32 {
    settle();
    let number = PAGE.number.load(Ordering::Relaxed);
    if number != 0 {
        return number;
    }
    let made = sys::random().unwrap_or_else(|_| sys::getpid()).max(1);
    match PAGE.number.compare_exchange(0, made, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => made,
        Err(first) => first,
    }
}

/// The PID namespace of this process ([`owner::namespace`]). A child of clone(2) may be in another one than
/// its parent.
pub(crate) fn namespace() -> u32 {
    settle();
    let known = PAGE.namespace.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let namespace = owner::namespace();
    PAGE.namespace.store(namespace, Ordering::Relaxed);
    namespace
}

/// Whether it was forked and nobody has made it its own yet.
pub(crate) fn is_fresh() -> bool {
    PAGE.process.load(Ordering::Relaxed) == 0
}

#[cold]
fn adopt() {
    // Whoever calls first, which need not be the thread that forked; the others wait, but not a handler for the thread below
    // it.
    if PAGE
        .adopter
        .compare_exchange(0, sys::gettid(), Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        let adopter = PAGE.adopter.load(Ordering::Relaxed);
        while adopter != sys::gettid() && PAGE.process.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        return;
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    lock::unlock();
    let process = sys::getpid();
    report::restart(process);
    PAGE.process.store(process, Ordering::Release);
}

/// Whether the running process is the one the memory belongs to, and no child of vfork(2). If it is not, the
/// thread goes by the kernel until it is.
pub(crate) fn is_ours() -> bool {
    settle();
    let ours = PAGE.process.load(Ordering::Relaxed) == sys::getpid();
    if !ours {
        set_guest(true);
    }
    ours
}

/// A child of vfork(2) that runs in this thread's place changed descriptors, or is gone again.
pub(crate) fn set_guest(is_guest: bool) {
    IS_GUEST.set(is_guest);
}

/// Whether what the table says may not hold, because a child of vfork(2) is running.
#[inline]
pub(crate) fn is_guest() -> bool {
    if !IS_GUEST.get() {
        return false;
    }
    let is_guest = !is_ours();
    set_guest(is_guest);
    is_guest
}
