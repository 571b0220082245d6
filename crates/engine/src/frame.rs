//! Page frames: a bounded pool of page-aligned memory, and counted handles to it.
//!
//! Owns the memory. A [`Frame`] that is the only handle to its memory may be written; a shared one
//! may only be read. That is how a destage and a read's answer can use a frame outside the engine's
//! lock while the engine goes on: to change a shared frame it takes a new one first.
//!
//! Invariants:
//! - a frame's reference count is the number of [`Frame`] handles to it; at zero it is on the free
//!   list exactly once, and nothing refers to its memory;
//! - memory is written only through `&mut Frame` with a reference count of one;
//! - the memory stays mapped until the last handle and the pool are dropped.
//!
//! Lock order: the free list's lock is taken last and nothing is called under it.

#![allow(unsafe_code)] // An arena shared with the kernel's I/O cannot be written without it.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::PAGE_BYTES;

struct Arena {
    base: NonNull<u8>,
    frames: u32,
    references: Box<[AtomicU32]>,
    free: Mutex<FreeList>,
    /// Frames handed out. Lowered only after the frame is on the free list, so that what this
    /// says is free can be taken.
    in_use: AtomicU32,
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
        // SAFETY: `base` and the length are those of the mapping made in `FramePool::new`; every
        // handle holds an `Arc<Arena>`, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len_bytes()) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Arena {
    fn len_bytes(&self) -> usize {
        self.frames as usize * PAGE_BYTES
    }

    fn address(&self, index: u32) -> *mut u8 {
        assert!(index < self.frames);
        // SAFETY: the index is below the number of frames, so the result lies in the mapping.
        unsafe { self.base.as_ptr().add(index as usize * PAGE_BYTES) }
    }
}

/// A bounded set of frames. Cheap to clone: clones share the frames.
#[derive(Clone)]
pub struct FramePool {
    arena: Arc<Arena>,
}

impl FramePool {
    /// Maps memory for `frames` frames. It becomes resident only as frames are first used.
    ///
    /// # Errors
    /// What mmap(2) says when the address space cannot be had.
    pub fn new(frames: u32) -> io::Result<FramePool> {
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
        // A first touch costs a page fault, which costs more than filling the page: have one for
        // 2 MiB. Frames are handed out from one end and used again last in, first out, so little
        // is resident that is not in use. Without huge pages (EINVAL) all works the same.
        // SAFETY: the range is the mapping just made; the advice changes nothing of its content.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("mmap returned a null mapping"))?;
        let references = (0..frames).map(|_| AtomicU32::new(0)).collect();
        let free = Mutex::new(FreeList { returned: Vec::new(), untouched: 0 });
        let in_use = AtomicU32::new(0);
        Ok(FramePool { arena: Arc::new(Arena { base, frames, references, free, in_use }) })
    }

    /// Takes a free frame. Its content is whatever it last held. `None` if all are in use.
    pub fn take(&self) -> Option<Frame> {
        let index = {
            let mut free = self.arena.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.returned.pop() {
                Some(index) => index,
                None if free.untouched < self.arena.frames => {
                    free.untouched += 1;
                    free.untouched - 1
                }
                None => return None,
            }
        };
        self.arena.in_use.fetch_add(1, Ordering::Relaxed);
        let before = self.arena.references[index as usize].swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a free frame is referred to by nobody");
        Some(Frame { arena: Arc::clone(&self.arena), index })
    }

    /// Frames in all.
    pub fn capacity(&self) -> u32 {
        self.arena.frames
    }

    /// Frames not in use. If one thread alone takes frames, it can take this many.
    pub fn free(&self) -> u32 {
        self.arena.frames - self.arena.in_use.load(Ordering::Acquire)
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePool({} of {} free)", self.free(), self.capacity())
    }
}

/// A counted handle to one page of memory, aligned to the page size.
pub struct Frame {
    arena: Arc<Arena>,
    index: u32,
}

impl Frame {
    /// The page's bytes.
    pub fn bytes(&self) -> &[u8; PAGE_BYTES] {
        // SAFETY: the memory is mapped, initialised (zero or written before), and nobody writes it
        // while this handle is borrowed: writing needs `&mut` to the only handle.
        unsafe { &*self.arena.address(self.index).cast() }
    }

    /// The page's bytes for writing, or `None` while another handle shares them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8; PAGE_BYTES]> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: as in `bytes`; this is the only handle and it is borrowed mutably.
        Some(unsafe { &mut *self.arena.address(self.index).cast() })
    }

    /// Whether no other handle shares this frame.
    pub fn is_unique(&self) -> bool {
        if self.arena.references[self.index as usize].load(Ordering::Relaxed) != 1 {
            return false;
        }
        // Pairs with the release in `drop`: whatever other holders did to the memory is over.
        fence(Ordering::Acquire);
        true
    }

    /// The frame's address, for a device that reads from it or, if this handle is the only one,
    /// writes to it. Valid while a handle is held.
    pub fn as_ptr(&self) -> *mut u8 {
        self.arena.address(self.index)
    }
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        let before = self.arena.references[self.index as usize].fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "frame reference count overflow");
        Frame { arena: Arc::clone(&self.arena), index: self.index }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.arena.references[self.index as usize].fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            let mut free = self.arena.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.returned.push(self.index);
            drop(free);
            self.arena.in_use.fetch_sub(1, Ordering::Release);
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({})", self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_frame_cannot_be_written() {
        let pool = FramePool::new(2).unwrap();
        let mut frame = pool.take().unwrap();
        frame.bytes_mut().unwrap()[7] = 9;
        let shared = frame.clone();
        assert!(frame.bytes_mut().is_none());
        assert_eq!(shared.bytes()[7], 9);
        drop(shared);
        assert!(frame.bytes_mut().is_some());
    }

    #[test]
    fn frames_come_back_when_their_last_handle_goes() {
        let pool = FramePool::new(2).unwrap();
        let first = pool.take().unwrap();
        let second = pool.take().unwrap();
        assert!(pool.take().is_none());
        let shared = second.clone();
        drop(second);
        assert!(pool.take().is_none());
        drop(shared);
        drop(first);
        assert_eq!(pool.free(), 2);
        assert_eq!(pool.take().unwrap().as_ptr() as usize % PAGE_BYTES, 0);
    }
}
