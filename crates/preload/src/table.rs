//! Which description each descriptor is of.
//!
//! A descriptor is looked at when it is first read or written, by one statx(2) that sends its file system no request.
//! Every call that closes or replaces descriptors forgets what was known of them, before and after, so that at worst
//! something is looked at twice.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::description::{self, Description};
use crate::{device, home, position, sys};

/// Descriptors above are the kernel's.
const DESCRIPTORS: usize = 1 << 20;

/// Not looked at yet.
const UNKNOWN: u32 = 0;
/// No regular file on a FUSE mount.
const PLAIN: u32 = 1;
/// A socket of this library's.
const OURS: u32 = 2;
/// The first number that is a description's place, plus this.
const FIRST: u32 = 3;

/// Pages of it that nobody uses take no memory.
static TABLE: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(UNKNOWN) }; DESCRIPTORS];
/// Descriptors ever noted are below it.
static USED: AtomicU32 = AtomicU32::new(0);

fn entry(fd: c_int) -> Option<&'static AtomicU32> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Whether a descriptor is known to be nothing for the lane.
#[inline]
pub(crate) fn is_plain(fd: c_int) -> bool {
    entry(fd).is_none_or(|entry| matches!(entry.load(Ordering::Relaxed), PLAIN | OURS))
}

/// Whether it is a socket of ours.
pub(crate) fn is_ours(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| entry.load(Ordering::Relaxed) == OURS)
}

/// The description of a descriptor, if it was looked at.
#[inline]
pub(crate) fn known(fd: c_int) -> Option<&'static Description> {
    let place = entry(fd)?.load(Ordering::Acquire).checked_sub(FIRST)?;
    Some(description::at(place))
}

/// The description of a descriptor, which is looked at if it was not.
#[inline]
pub(crate) fn find(fd: c_int) -> Option<&'static Description> {
    let entry = entry(fd)?;
    match entry.load(Ordering::Acquire) {
        UNKNOWN => look(fd, entry),
        PLAIN | OURS => None,
        number => Some(description::at(number - FIRST)),
    }
}

#[cold]
fn look(fd: c_int, entry: &AtomicU32) -> Option<&'static Description> {
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
        // The last of this process perhaps, but another one may have the description, too.
        position::settle(fd, client, file);
    }
    forget(fd);
}

/// Nothing is known of the descriptor any more.
pub(crate) fn forget(fd: c_int) {
    let Some(entry) = entry(fd) else { return };
    match entry.load(Ordering::Acquire) {
        UNKNOWN | OURS => {}
        _ if home::is_ours() => replace(entry, UNKNOWN),
        _ => {}
    }
}

/// Puts a number in place of what is there, whose description has one descriptor less.
fn replace(entry: &AtomicU32, number: u32) {
    let before = entry.swap(number, Ordering::AcqRel);
    if let Some(place) = before.checked_sub(FIRST) {
        description::at(place).drop_one();
    }
}

/// What opened or received a descriptor returned it: what was known of its number is void.
#[inline]
pub(crate) fn opened(fd: c_int) -> c_int {
    if entry(fd).is_some_and(|entry| entry.load(Ordering::Relaxed) != UNKNOWN) {
        forget(fd);
    }
    fd
}

/// `new` is a duplicate of `old`. The description if it was duplicated by a child of vfork(2), and is to be passed
/// on ([`crate::leave::duplicated`]).
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

/// The descriptor is of another description, one that is known.
pub(crate) fn unite(fd: c_int, place: u32) {
    if let Some(entry) = entry(fd) {
        description::at(place).share();
        replace(entry, place + FIRST);
    }
}

/// The descriptor is a socket of ours: the program may not close it.
pub(crate) fn claim(fd: c_int) -> bool {
    let Some(entry) = entry(fd) else { return false };
    USED.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    replace(entry, OURS);
    true
}

/// It is no socket of ours any more.
pub(crate) fn disclaim(fd: c_int) {
    if let Some(entry) = entry(fd) {
        let _ = entry.compare_exchange(OURS, UNKNOWN, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Whether any descriptor is known.
pub(crate) fn has_noted() -> bool {
    USED.load(Ordering::Relaxed) != 0
}

/// The descriptors from `first` to `last` of which something is known.
pub(crate) fn noted(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let end = USED.load(Ordering::Relaxed).min(last.saturating_add(1));
    (first..end)
        .filter(|fd| TABLE[*fd as usize].load(Ordering::Relaxed) != UNKNOWN)
        .map(|fd| fd as c_int)
}
