//! Counters for `weir run --report`. Nothing is counted unless the environment names the file for the counters.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use weir_lane::tally::{Count, Fallback, Program, Tally, VARIABLE};

use crate::sys;

/// Mapped once, by the thread that sets `IS_BEGUN`; never dropped.
struct Mapped(UnsafeCell<MaybeUninit<Tally>>);

// SAFETY: written by one thread, before `PROGRAM` is set, and then only shared.
unsafe impl Sync for Mapped {}

static MAPPED: Mapped = Mapped(UnsafeCell::new(MaybeUninit::uninit()));
static IS_BEGUN: AtomicBool = AtomicBool::new(false);
/// This process's place, if it counts.
static PROGRAM: AtomicPtr<Program> = AtomicPtr::new(ptr::null_mut());

/// The first file on a FUSE mount was found: starts counting, if the environment asks for it.
pub(crate) fn begin() {
    if IS_BEGUN.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the name ends with a zero; the value is used before the program can change it again.
    let path = unsafe {
        let path = libc::getenv(VARIABLE.as_ptr());
        if path.is_null() {
            return;
        }
        CStr::from_ptr(path)
    };
    let Ok(fd) = sys::open(path, libc::O_RDWR | libc::O_NOFOLLOW) else { return };
    // SAFETY: opened just now, and open until it is closed below.
    let tally = Tally::map(unsafe { BorrowedFd::borrow_raw(fd) });
    sys::close(fd);
    if let Ok(tally) = tally {
        // SAFETY: `IS_BEGUN` was set by this thread, and no thread reads `MAPPED` before `PROGRAM` is set.
        let tally = unsafe { (*MAPPED.0.get()).write(tally) };
        take(tally, sys::getpid());
    }
}

/// In a forked child: takes a place of its own.
pub(crate) fn restart(process: u32) {
    if program().is_some() {
        // SAFETY: it was written before `PROGRAM` was set, and stays.
        take(unsafe { (*MAPPED.0.get()).assume_init_ref() }, process);
    }
}

fn take(tally: &'static Tally, process: u32) {
    let mut name = [0; 16];
    if let Ok(fd) = sys::open(c"/proc/self/comm", libc::O_RDONLY) {
        let _ = sys::read(fd, &mut name);
        sys::close(fd);
    }
    let mut short = [0; 15];
    let letters = name.iter().take_while(|letter| !matches!(letter, 0 | b'\n'));
    for (to, from) in short.iter_mut().zip(letters) {
        *to = *from;
    }
    let program = tally.take(process, short, sys::is_alive);
    PROGRAM.store(ptr::from_ref(program).cast_mut(), Ordering::Release);
}

/// This process's place, if it counts.
#[inline]
pub(crate) fn program() -> Option<&'static Program> {
    // SAFETY: null, or a place in the mapping, which stays mapped; atomics alone.
    unsafe { PROGRAM.load(Ordering::Acquire).as_ref() }
}

/// Adds to a counter, if this process counts.
#[inline]
pub(crate) fn add(count: Count, by: u64) {
    if let Some(program) = program() {
        program.add(count, by);
    }
}

/// A read went by the kernel, with this result.
#[inline]
pub(crate) fn kernel_read(fallback: Option<Fallback>, result: isize) {
    if let (Some(fallback), Some(program)) = (fallback, program()) {
        program.add_kernel_read(fallback, result.max(0) as u64);
    }
}

/// A write went by the kernel, with this result.
#[inline]
pub(crate) fn kernel_write(fallback: Option<Fallback>, result: isize) {
    if let (Some(fallback), Some(program)) = (fallback, program()) {
        program.add_kernel_write(fallback, result.max(0) as u64);
    }
}
