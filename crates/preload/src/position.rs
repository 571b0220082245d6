//! Positions of descriptions opened with O_APPEND.
//!
//! After a write with O_APPEND the position is at the end of what was written. Where that is, is not known when
//! an append is only posted; so the kernel's position is set when somebody asks for it (lseek(2), read(2)), or
//! closes the description, or gives it to another program: to the end of the file as it is then.
//!
//! That a position is to be set is noted in memory shared with the processes forked since the first description was
//! put into the lane, by the daemon's number of the description. A process forked before that, and sharing the description,
//! finds the position set later than it should.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::sys;

/// Places for notes; descriptions whose place is taken append by the kernel.
const PLACES: usize = 4096;

static NOTES: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Makes the memory for notes. False if there is none.
pub(crate) fn begin() -> bool {
    if !NOTES.load(Ordering::Acquire).is_null() {
        return true;
    }
    let Ok(memory) = sys::shared_memory(PLACES * size_of::<AtomicU32>()) else { return false };
    NOTES.store(memory.cast(), Ordering::Release);
    true
}

fn place(description: u32) -> Option<&'static AtomicU32> {
    let notes = NOTES.load(Ordering::Acquire);
    if notes.is_null() {
        return None;
    }
    // SAFETY: `begin` mapped so many, all zero, for good.
    Some(unsafe { &*notes.add(description as usize % PLACES) })
}

/// As noted: never 0.
fn number(description: u32) -> u32 {
    description.wrapping_add(1).max(1)
}

/// Notes that the position is to be set. False if there is no room for that.
#[inline]
pub(crate) fn note(description: u32) -> bool {
    let Some(place) = place(description) else { return false };
    let number = number(description);
    if place.load(Ordering::Relaxed) == number {
        return true;
    }
    let noted = place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
    noted.is_ok() || noted == Err(number)
}

/// Sets the position, if it is to be set.
#[inline]
pub(crate) fn settle(fd: c_int, description: u32) {
    let is_stale = |place: &AtomicU32| place.load(Ordering::Relaxed) == number(description);
    if let Some(place) = place(description).filter(|place| is_stale(place)) {
        set(fd, place);
    }
}

#[cold]
fn set(fd: c_int, place: &AtomicU32) {
    // Before the size is asked for: an append from then on notes it anew.
    place.store(0, Ordering::SeqCst);
    if let Ok(size) = sys::served_size(fd) {
        let _ = sys::lseek(fd, size as i64, libc::SEEK_SET);
    }
}
