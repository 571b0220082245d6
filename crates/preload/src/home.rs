//! Which process this memory belongs to.
//!
//! A child of fork(2) has a copy of the memory, and must not use its parent's rings. A child of vfork(2) shares the
//! parent's memory, but has descriptors of its own, and must not change the table of the parent's descriptors. A fork is
//! detected by a page that the kernel wipes on fork, by whatever call; a child of vfork(2) by getpid(2), called before
//! the table of descriptors changes.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weir_lane::owner;

use crate::{lock, report, sys};

/// Fills a page of its own.
#[repr(C, align(4096))]
struct Page {
    /// 0: not known yet in this process.
    process: AtomicU32,
    /// The thread that adopts the memory for this process.
    adopter: AtomicU32,
    /// The process's number for the daemon; 0: none yet.
    number: AtomicU32,
    /// Its PID namespace; 0: not known yet, or cannot be known.
    namespace: AtomicU32,
}

static PAGE: Page = Page {
    process: AtomicU32::new(0),
    adopter: AtomicU32::new(0),
    number: AtomicU32::new(0),
    namespace: AtomicU32::new(0),
};
thread_local! {
    /// A child of vfork(2) runs in this thread, and has changed descriptors. Initialized by a constant and without a
    /// destructor.
    static IS_GUEST: Cell<bool> = const { Cell::new(false) };
}

/// Counts the forks between the program's first process and this one. Rings taken in an earlier generation belong to
/// another process.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Whether forks are detected.
static IS_WIPED: AtomicBool = AtomicBool::new(false);

/// Called when the library is loaded.
pub(crate) fn begin() {
    let wiped = sys::wipe_on_fork((&raw const PAGE).cast(), size_of::<Page>());
    IS_WIPED.store(wiped.is_ok(), Ordering::Relaxed);
    PAGE.process.store(sys::getpid(), Ordering::Relaxed);
}

/// Whether forks are detected; if not, nothing enters the lane.
pub(crate) fn notices_forks() -> bool {
    IS_WIPED.load(Ordering::Relaxed)
}

/// Adopts the memory for this process, if it was forked and no thread has adopted the memory yet.
#[inline]
pub(crate) fn adopt_if_forked() {
    if PAGE.process.load(Ordering::Acquire) == 0 {
        adopt();
    }
}

/// The number of forks between the program's first process and this one.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this process was forked since the program began, or the library was loaded.
#[inline]
pub(crate) fn was_forked() -> bool {
    adopt_if_forked();
    generation() != 0
}

/// A number that no other process of the program has, in any PID namespace (pid_namespaces(7)); not 0.
pub(crate) fn number() -> u32 {
    adopt_if_forked();
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
    adopt_if_forked();
    let known = PAGE.namespace.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let namespace = owner::namespace();
    PAGE.namespace.store(namespace, Ordering::Relaxed);
    namespace
}

/// Whether the process was forked and no thread has adopted the memory yet.
pub(crate) fn is_fresh() -> bool {
    PAGE.process.load(Ordering::Relaxed) == 0
}

#[cold]
fn adopt() {
    // The first caller adopts; it need not be the thread that forked. Other threads wait, except a signal handler that
    // interrupted the adopter.
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

/// Whether the running process owns the memory, and is no child of vfork(2). If not, the thread's calls go by the kernel
/// until the process that runs in it owns the memory again.
pub(crate) fn is_ours() -> bool {
    adopt_if_forked();
    let ours = PAGE.process.load(Ordering::Relaxed) == sys::getpid();
    if !ours {
        set_guest(true);
    }
    ours
}

/// Notes whether a child of vfork(2) runs in this thread and changed descriptors.
pub(crate) fn set_guest(is_guest: bool) {
    IS_GUEST.set(is_guest);
}

/// Whether the table of descriptors may be wrong, because a child of vfork(2) runs in this thread.
#[inline]
pub(crate) fn is_guest() -> bool {
    if !IS_GUEST.get() {
        return false;
    }
    let is_guest = !is_ours();
    set_guest(is_guest);
    is_guest
}
