//! Whether attaching files to the lane has paid off, so that programs that lose by it attach later.
//!
//! Putting a description into the lane and taking it out again costs about as much as five writes by the kernel. It pays if the description
//! is then used at least [`LONG`] times there. Two things are kept about that, in memory shared with the processes
//! forked since the first connection:
//!
//! - for each file, how often it was put into the lane since a description of it was last used [`LONG`] times;
//! - for all files together, an average: the share of descriptions put into the lane that were used fewer times.
//!
//! From these follows the *level* of a file: a description of it is used `2^level` times as often by the kernel before
//! it is put into the lane. Files that were never put there have the level of the average. A description counts as
//! short from the beginning and as long once it was used [`LONG`] times, so that processes that end without closing
//! their files, or are killed, are counted correctly.
//!
//! Files may share a place; then they share a level. Only speed depends on a level.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::sys;

/// Uses in the lane that pay for putting a description there.
pub(crate) const LONG: u32 = 8;
/// After this many more uses it has paid again.
pub(crate) const AGAIN: u32 = 64;
/// The greatest level.
const LEVEL_MAX: u32 = 5;

/// Places for files, and before them one for the average.
const PLACES: usize = 4096;
/// What the average tends to if no description is ever used much.
const SCALE: u32 = 1 << 12;
/// The average is above this if fewer than one in six descriptions is used much.
const SELDOM: u32 = SCALE / 4 * 3;
/// The level of files that were never in the lane while the average is above [`SELDOM`].
const SELDOM_LEVEL: u32 = 4;

static MEMORY: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Makes the memory, if there is none yet. Without it, every level is 0.
pub(crate) fn begin() {
    if MEMORY.load(Ordering::Acquire).is_null()
        && let Ok(memory) = sys::shared_memory(PLACES * size_of::<AtomicU32>())
    {
        MEMORY.store(memory.cast(), Ordering::Release);
    }
}

/// Replaces the shared memory by private zeros.
pub(crate) fn unmap() -> io::Result<()> {
    let memory = MEMORY.load(Ordering::Acquire);
    if memory.is_null() {
        return Ok(());
    }
    sys::replace_by_zeros(memory.cast(), PLACES * size_of::<AtomicU32>())
        .map_err(|errno| io::Error::from_raw_os_error(errno.0))
}

/// The place of a file, by its inode number.
pub(crate) fn place(inode: u64) -> u32 {
    let mixed = inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    1 + mixed as u32 % (PLACES as u32 - 1)
}

/// The level of the file at a place: 0 to 5.
pub(crate) fn level(place: u32) -> u32 {
    let (Some(file), Some(average)) = (word(place), word(0)) else { return 0 };
    match file.load(Ordering::Relaxed) {
        0 if average.load(Ordering::Relaxed) > SELDOM => SELDOM_LEVEL,
        0 => 0,
        // Whether the first time paid off is known only at the second.
        times => (times - 1).min(LEVEL_MAX),
    }
}

/// A description of the file was put into the lane.
pub(crate) fn attached(place: u32) {
    let (Some(file), Some(average)) = (word(place), word(0)) else { return };
    // Need not be exact when several processes count at once.
    let times = file.load(Ordering::Relaxed);
    file.store((times + 1).min(LEVEL_MAX + 1), Ordering::Relaxed);
    let before = average.load(Ordering::Relaxed).min(SCALE);
    average.store(before + (SCALE - before) / 8, Ordering::Relaxed);
}

/// A description of the file was used [`LONG`] times in the lane, for the `first` time or [`AGAIN`].
#[cold]
pub(crate) fn used_long(place: u32, first: bool) {
    let (Some(file), Some(average)) = (word(place), word(0)) else { return };
    // The next one is put there as early as possible.
    file.store(1, Ordering::Relaxed);
    if first {
        let before = average.load(Ordering::Relaxed).min(SCALE);
        average.store(before - before / 4, Ordering::Relaxed);
    }
}

fn word(place: u32) -> Option<&'static AtomicU32> {
    let memory = MEMORY.load(Ordering::Acquire);
    if memory.is_null() {
        return None;
    }
    // SAFETY: `begin` mapped PLACES words, all zero, for good.
    Some(unsafe { &*memory.add(place as usize % PLACES) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, since the memory is the process's.
    #[test]
    fn levels_follow_from_how_files_were_used() {
        begin();
        let files: Vec<u32> = (1..=200).map(|inode| place(inode * 7919)).collect();
        assert!(files.iter().all(|place| (1..PLACES as u32).contains(place)));
        let (hot, short) = (PLACES as u32 - 1, PLACES as u32 - 2);
        assert_eq!((level(hot), level(short)), (0, 0), "no file has a history yet");

        // A file that is used briefly each time: the first time is free, then the level rises to its bound.
        let levels: Vec<u32> = (0..9)
            .map(|_| {
                attached(short);
                level(short)
            })
            .collect();
        assert_eq!(levels, [0, 1, 2, 3, 4, 5, 5, 5, 5]);

        // No description was ever used much: files that were never in the lane get a high level, too.
        for _ in 0..20 {
            attached(short);
        }
        assert_eq!(level(hot), SELDOM_LEVEL);

        // A file that is used much keeps level 0, whatever the other files do.
        for _ in 0..10 {
            attached(hot);
            used_long(hot, true);
            attached(hot);
            used_long(hot, false);
        }
        assert_eq!(level(hot), 0);
        assert_eq!(level(short), LEVEL_MAX);
        let unknown = files.iter().copied().find(|place| ![hot, short].contains(place)).unwrap();
        assert_eq!(level(unknown), 0, "every other description was used much");

        unmap().unwrap();
        assert_eq!(level(short), 0);
    }
}
