//! The memory of frames, their reference counts, and which of them are free.
//!
//! Owns the memory: private to the process, or shared with programs that may read it (`Lane`). A frame is known
//! here by its number; [`crate::Frame`] is a counted handle to one.
//!
//! Invariants:
//! - a number that was handed out before is on the free list exactly once while its count is zero;
//! - handing out and taking back make no system call.
//!
//! Lock order: the free list's lock is taken last and nothing is called under it.

#![allow(unsafe_code)] // Mapped memory shared with the kernel's I/O cannot be written without it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use weir_lane::board::Board;
use weir_lane::memory::{self, Access, HUGE_BYTES, Memory};

use crate::page::PAGE_BYTES;

/// Number of frames populated by one madvise(2). It takes two thirds of the time of page faults (1.4 against
/// 2.0 us a page on a virtual machine). By default (shmem_enabled is off) shared memory gets no huge pages by
/// itself, and a [`crate::Preparer`] may make them too late.
const PREPARED_AT_ONCE: u32 = 16;
/// Number of frames to populate ahead of use: as many as the largest request takes.
const PREPARED_AHEAD: u32 = 256;

pub(crate) const FRAMES_IN_HUGE: u32 = (HUGE_BYTES / PAGE_BYTES) as u32;

pub(crate) struct Arena {
    base: NonNull<u8>,
    pub(crate) frames: u32,
    pub(crate) lane: Option<Lane>,
    references: Box<[AtomicU32]>,
    free: Mutex<FreeList>,
    /// Frames handed out. Lowered only after the frame is on the free list, so that every frame counted as free
    /// can be taken.
    in_use: AtomicU32,
}

/// The parts of an arena that programs may read.
pub(crate) struct Lane {
    pub(crate) board: Arc<Board>,
    pub(crate) fd: OwnedFd,
    /// The arena's memory.
    pub(crate) memory: Arc<Memory>,
    /// Channel to the [`crate::Preparer`], if there is one: stretches whose frames will be handed out soon.
    pub(crate) coming: OnceLock<mpsc::Sender<usize>>,
    /// Frames from here on were never handed out: a copy of `untouched` that is read without its lock.
    handed_out: AtomicU32,
    /// Frames below this are populated, or a thread is populating them.
    prepared: AtomicU32,
}

/// Frames never handed out lie above `untouched`, so that memory becomes resident only as needed.
struct FreeList {
    returned: Vec<u32>,
    untouched: u32,
}

// SAFETY: the arena's memory is reached only through `Frame` handles, whose rules (module header)
// make every access either shared and read-only or exclusive; the rest is atomics and a mutex.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.lane.is_some() {
            return; // `Memory` unmaps itself.
        }
        // SAFETY: `base` and the length are those of the mapping made in `Arena::private`; every
        // handle holds an `Arc<Arena>`, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len_bytes()) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Arena {
    /// See [`crate::FramePool::new`].
    pub(crate) fn private(frames: u32) -> io::Result<Arena> {
        assert!(frames > 0);
        let len = frames as usize * PAGE_BYTES;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice aliases
        // nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // A first touch costs a page fault, which takes longer than filling the page; a huge page has one for 2
        // MiB. Frames are handed out from one end and reused last in, first out, so little memory is resident
        // without being in use. Without huge pages (EINVAL) only the speed differs.
        // SAFETY: the range is the mapping just made; the advice changes nothing of its content.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("mmap returned a null mapping"))?;
        Ok(Arena::over(base, frames, None))
    }

    /// See [`crate::FramePool::shared`].
    pub(crate) fn shared(frames: u32) -> io::Result<Arena> {
        assert!(frames > 0);
        let len = frames as usize * PAGE_BYTES;
        let fd = memory::create("weir-frames", len)?;
        let mapped = Memory::map(&fd, len, Access::ReadWrite)?;
        // Programs get the descriptor read-only, but could reopen the memory for writing through /proc.
        memory::seal_writes(fd.as_fd())?;
        let base = NonNull::new(mapped.base()).expect("a mapping is not at null");
        let (memory, coming) = (Arc::new(mapped), OnceLock::new());
        let board = Arc::new(Board::new(frames)?);
        let (handed_out, prepared) = (AtomicU32::new(0), AtomicU32::new(0));
        let lane = Lane { board, fd, memory, coming, handed_out, prepared };
        Ok(Arena::over(base, frames, Some(lane)))
    }

    fn over(base: NonNull<u8>, frames: u32, lane: Option<Lane>) -> Arena {
        let references = (0..frames).map(|_| AtomicU32::new(0)).collect();
        let free =
            Mutex::new(FreeList { returned: Vec::with_capacity(frames as usize), untouched: 0 });
        Arena { base, frames, lane, references, free, in_use: AtomicU32::new(0) }
    }

    /// Hands out a free frame, with one reference to it; `None` if all are in use.
    #[inline]
    pub(crate) fn take(&self) -> Option<u32> {
        let index = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.returned.pop() {
                Some(index) => index,
                None if free.untouched < self.frames => {
                    free.untouched += 1;
                    if let Some(lane) = &self.lane {
                        lane.handed_out.store(free.untouched, Ordering::Relaxed);
                    }
                    free.untouched - 1
                }
                None => return None,
            }
        };
        self.in_use.fetch_add(1, Ordering::Relaxed);
        let before = self.references[index as usize].swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a free frame has no reference");
        Some(index)
    }

    /// Adds a reference.
    #[inline]
    pub(crate) fn hold(&self, index: u32) {
        let before = self.references[index as usize].fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "frame reference count overflow");
    }

    /// Drops a reference; the frame is free after the last one.
    #[inline]
    pub(crate) fn release(&self, index: u32) {
        if self.references[index as usize].fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.returned.push(index);
            drop(free);
            self.in_use.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether a frame has exactly one reference.
    #[inline]
    pub(crate) fn is_unique(&self, index: u32) -> bool {
        if self.references[index as usize].load(Ordering::Relaxed) != 1 {
            return false;
        }
        // Pairs with the release in `release`: accesses by former holders happen before.
        fence(Ordering::Acquire);
        true
    }

    /// Frames not in use.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.frames - self.in_use.load(Ordering::Acquire)
    }

    /// Whether frames that are handed out soon are not populated yet.
    #[inline]
    pub(crate) fn is_unprepared(&self, lane: &Lane) -> bool {
        lane.prepared.load(Ordering::Relaxed) < self.wanted(lane)
    }

    fn len_bytes(&self) -> usize {
        self.frames as usize * PAGE_BYTES
    }

    /// See [`crate::FramePool::prepare`].
    #[cold]
    pub(crate) fn prepare(&self, lane: &Lane) {
        loop {
            let wanted = self.wanted(lane);
            let begin = lane.prepared.load(Ordering::Relaxed);
            if begin >= wanted {
                return;
            }
            let end = self.frames.min(begin + PREPARED_AT_ONCE);
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            if lane.prepared.compare_exchange(begin, end, success, failure).is_err() {
                continue;
            }
            if begin.is_multiple_of(FRAMES_IN_HUGE)
                && let Some(coming) = lane.coming.get()
            {
                // The receiver may have stopped because there are no huge pages.
                let _ = coming.send(begin as usize * PAGE_BYTES + HUGE_BYTES);
            }
            let len = (end - begin) as usize * PAGE_BYTES;
            // SAFETY: the range lies in the mapping; the advice does not change its content. Where the kernel
            // refuses it (before Linux 5.14), pages are populated by faults.
            let _ = unsafe { madvise(self.address(begin).cast(), len, Advice::LinuxPopulateWrite) };
        }
    }

    /// The frame up to which to populate.
    #[inline]
    fn wanted(&self, lane: &Lane) -> u32 {
        self.frames.min(lane.handed_out.load(Ordering::Relaxed).saturating_add(PREPARED_AHEAD))
    }

    #[inline]
    pub(crate) fn address(&self, index: u32) -> *mut u8 {
        assert!(index < self.frames);
        // SAFETY: the index is below the number of frames, so the result lies in the mapping.
        unsafe { self.base.as_ptr().add(index as usize * PAGE_BYTES) }
    }
}
