//! Positions of descriptions opened with O_APPEND.
//!
//! After a write with O_APPEND the position is at the end of the written bytes. When an append is posted, that end is
//! not known yet. So the kernel's position is set later, to the end that the file has then: when a call needs the
//! position (lseek(2), read(2)), closes the description, or passes it to another program.
//!
//! A position that is still to be set is noted in memory shared with the processes forked since the first description
//! was put into the lane, by client and number of the description. A process that was forked before that and shares the
//! description may see the position change late.

use std::ffi::c_int;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use weir_lane::client::Attached;

use crate::sys;

/// Places for notes; descriptions whose place is taken append by the kernel.
const PLACES: usize = 4096;

static NOTES: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Makes the memory for notes. False if there is none.
pub(crate) fn begin() -> bool {
    if !NOTES.load(Ordering::Acquire).is_null() {
        return true;
    }
    let Ok(memory) = sys::shared_memory(PLACES * size_of::<AtomicU64>()) else { return false };
    NOTES.store(memory.cast(), Ordering::Release);
    true
}

/// Replaces the shared notes by private zeros.
pub(crate) fn unmap() -> io::Result<()> {
    let notes = NOTES.load(Ordering::Acquire);
    if notes.is_null() {
        return Ok(());
    }
    sys::replace_by_zeros(notes.cast(), PLACES * size_of::<AtomicU64>())
        .map_err(|errno| io::Error::from_raw_os_error(errno.0))
}

fn place(number: u64) -> Option<&'static AtomicU64> {
    let notes = NOTES.load(Ordering::Acquire);
    if notes.is_null() {
        return None;
    }
    // SAFETY: `begin` mapped PLACES words, all zero, for good.
    Some(unsafe { &*notes.add(number as usize % PLACES) })
}

/// The note for a description: never 0.
fn number(client: usize, file: Attached) -> u64 {
    (client as u64 + 1) << 32 | u64::from(file.description)
}

/// Notes that the position is to be set. False if there is no room for the note.
#[inline]
pub(crate) fn note(client: usize, file: Attached) -> bool {
    let number = number(client, file);
    let Some(place) = place(number) else { return false };
    if place.load(Ordering::Relaxed) == number {
        return true;
    }
    let noted = place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
    noted.is_ok() || noted == Err(number)
}

/// Sets the position, if a note says that it is to be set.
#[inline]
pub(crate) fn set_if_noted(fd: c_int, client: usize, file: Attached) {
    let number = number(client, file);
    if let Some(place) = place(number).filter(|place| place.load(Ordering::Relaxed) == number) {
        set(fd, place);
    }
}

#[cold]
fn set(fd: c_int, place: &AtomicU64) {
    // Before the size is read: a later append makes a new note.
    place.store(0, Ordering::SeqCst);
    set_to_end(fd);
}

/// Sets the position to where the file ends.
#[cold]
pub(crate) fn set_to_end(fd: c_int) {
    if let Ok(size) = sys::served_size(fd) {
        let _ = sys::lseek(fd, size as i64, libc::SEEK_SET);
    }
}

/// The number belongs to a new description, which does not append: removes the note of a process that was killed.
pub(crate) fn forget(client: usize, file: Attached) {
    let number = number(client, file);
    if let Some(place) = place(number) {
        let _ = place.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
