//! The table from descriptors to descriptions.
//!
//! A descriptor is examined at its first read or write, by one statx(2) that sends the file system no request. Every
//! call that closes or replaces descriptors clears their entries, before and after the call; at worst a descriptor is
//! examined twice.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::description::{self, Description};
use crate::{device, home, position, sys};

/// Higher descriptors are left to the kernel.
const DESCRIPTORS: usize = 1 << 20;

/// Not examined yet.
const UNKNOWN: u32 = 0;
/// No regular file on a FUSE mount.
const PLAIN: u32 = 1;
/// A socket of this library's.
const OURS: u32 = 2;
/// Entries from here on are a description's place, plus this.
const FIRST: u32 = 3;

/// Untouched pages of the table take no memory.
static TABLE: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(UNKNOWN) }; DESCRIPTORS];
/// Every descriptor that ever had an entry is below it.
static USED: AtomicU32 = AtomicU32::new(0);

fn entry(fd: c_int) -> Option<&'static AtomicU32> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Whether a descriptor is known not to be of a file that can be in the lane.
#[inline]
pub(crate) fn is_plain(fd: c_int) -> bool {
    entry(fd).is_none_or(|entry| matches!(entry.load(Ordering::Relaxed), PLAIN | OURS))
}

/// Whether it is a socket of this library's.
pub(crate) fn is_ours(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| entry.load(Ordering::Relaxed) == OURS)
}

/// The description of a descriptor, if the descriptor was examined.
#[inline]
pub(crate) fn known(fd: c_int) -> Option<&'static Description> {
    let place = entry(fd)?.load(Ordering::Acquire).checked_sub(FIRST)?;
    Some(description::at(place))
}

/// The description of a descriptor, which is examined if it was not yet.
#[inline]
pub(crate) fn find(fd: c_int) -> Option<&'static Description> {
    let entry = entry(fd)?;
    match entry.load(Ordering::Acquire) {
        UNKNOWN => examine(fd, entry),
        PLAIN | OURS => None,
        number => Some(description::at(number - FIRST)),
    }
}

#[cold]
fn examine(fd: c_int, entry: &AtomicU32) -> Option<&'static Description> {
    if !home::is_ours() {
        return None;
    }
    let file = sys::identity(fd).ok()?;
    let device = if file.is_regular { device::of(fd, file.device) } else { None };
    // The size may be old: then the description enters the lane earlier or later than it should.
    let place = device.and_then(|device| description::take(device, file.inode, file.size == 0));
    let number = place.map_or(PLAIN, |place| place + FIRST);
    USED.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    let noted = entry.compare_exchange(UNKNOWN, number, Ordering::AcqRel, Ordering::Acquire);
    if noted.is_err() {
        // Another thread was quicker.
        if let Some(place) = place {
            description::at(place).drop_one();
        }
        return known(fd);
    }
    place.map(description::at)
}

/// The descriptor is about to be closed or replaced.
pub(crate) fn closing(fd: c_int) {
    if let Some((client, file)) = known(fd).and_then(Description::attached) {
        if !home::is_ours() {
            return;
        }
        // Even if this is the process's last descriptor of it: another process may share the description.
        position::set_if_noted(fd, client, file);
    }
    forget(fd);
}

/// Clears the descriptor's entry.
pub(crate) fn forget(fd: c_int) {
    let Some(entry) = entry(fd) else { return };
    match entry.load(Ordering::Acquire) {
        UNKNOWN | OURS => {}
        _ if home::is_ours() => replace(entry, UNKNOWN),
        _ => {}
    }
}

/// Replaces an entry; the description of the old entry has one descriptor less.
fn replace(entry: &AtomicU32, number: u32) {
    let before = entry.swap(number, Ordering::AcqRel);
    if let Some(place) = before.checked_sub(FIRST) {
        description::at(place).drop_one();
    }
}

/// A call opened or received the descriptor: an old entry of its number is cleared.
#[inline]
pub(crate) fn opened(fd: c_int) -> c_int {
    if entry(fd).is_some_and(|entry| entry.load(Ordering::Relaxed) != UNKNOWN) {
        forget(fd);
    }
    fd
}

/// `new` is a duplicate of `old`. Returns the description if a child of vfork(2) duplicated it: the caller must take it out
/// of the lane ([`crate::leave::duplicated`]).
pub(crate) fn duplicated(old: c_int, new: c_int) -> Option<&'static Description> {
    opened(new);
    let (description, entry) = (known(old)?, entry(new)?);
    if !home::is_ours() {
        return Some(description);
    }
    let before = self::entry(old)?;
    description.share();
    USED.fetch_max(new as u32 + 1, Ordering::Relaxed);
    replace(entry, before.load(Ordering::Acquire));
    None
}

/// The descriptor's description is the known one at `place`.
pub(crate) fn unite(fd: c_int, place: u32) {
    if let Some(entry) = entry(fd) {
        description::at(place).share();
        replace(entry, place + FIRST);
    }
}

/// The descriptor is a socket of this library's: the program may not close it.
pub(crate) fn claim(fd: c_int) -> bool {
    let Some(entry) = entry(fd) else { return false };
    USED.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    replace(entry, OURS);
    true
}

/// The descriptor is no socket of this library's any more.
pub(crate) fn disclaim(fd: c_int) {
    if let Some(entry) = entry(fd) {
        let _ = entry.compare_exchange(OURS, UNKNOWN, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Whether any descriptor ever had an entry.
pub(crate) fn has_noted() -> bool {
    USED.load(Ordering::Relaxed) != 0
}

/// The descriptors from `first` to `last` that have an entry.
pub(crate) fn noted(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let end = USED.load(Ordering::Relaxed).min(last.saturating_add(1));
    (first..end)
        .filter(|fd| TABLE[*fd as usize].load(Ordering::Relaxed) != UNKNOWN)
        .map(|fd| fd as c_int)
}
