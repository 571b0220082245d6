//! A counted handle to one page of memory.

#![allow(unsafe_code)] // Memory that the kernel and other processes read cannot be lent without it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use weir_lane::board::{Board, Change};
use weir_lane::prefetch;

use crate::arena::Arena;
use crate::page::PAGE_BYTES;

/// A counted handle to one page of memory, aligned to the page size.
pub struct Frame {
    arena: Arc<Arena>,
    index: u32,
}

impl Frame {
    /// Takes over the only reference to a frame that was just handed out.
    #[inline]
    pub(crate) fn new(arena: Arc<Arena>, index: u32) -> Frame {
        Frame { arena, index }
    }

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

    /// As [`Frame::bytes_mut`], for a frame that may be published: the board tells readers of the change.
    #[inline]
    pub fn change(&mut self) -> Option<Changing<'_>> {
        if !self.is_unique() {
            return None;
        }
        let change = self.board().and_then(|board| board.change(self.index));
        // SAFETY: as in `bytes_mut`: the result borrows this handle mutably. Concurrent readers are other
        // processes, or read like them (with `racing` copies).
        let bytes = unsafe { &mut *self.arena.address(self.index).cast() };
        Some(Changing { bytes, _change: change })
    }

    /// The board on which this frame may be published.
    #[inline]
    pub fn board(&self) -> Option<&Board> {
        self.arena.lane.as_ref().map(|lane| &*lane.board)
    }

    /// `len` bytes from `start` on will be written soon: prefetches the first 256. The processor prefetches the
    /// others by itself; a whole page is written past the cache, and not prefetched.
    #[inline]
    pub fn prefetch(&self, start: usize, len: usize) {
        let asked = if len == PAGE_BYTES { 0 } else { len.min(256) };
        for line in (start..start + asked).step_by(64) {
            prefetch::write(self.arena.address(self.index).wrapping_add(line));
        }
        if let Some(board) = self.board() {
            board.prefetch(self.index);
        }
    }

    /// Its number in the pool.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether no other handle shares this frame.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.arena.is_unique(self.index)
    }

    /// The frame's address, for a device that reads from it or, if this handle is the only one,
    /// writes to it. Valid while a handle is held.
    pub fn as_ptr(&self) -> *mut u8 {
        self.arena.address(self.index)
    }
}

/// A frame's bytes while they change.
pub struct Changing<'a> {
    bytes: &'a mut [u8; PAGE_BYTES],
    _change: Option<Change<'a>>,
}

impl Deref for Changing<'_> {
    type Target = [u8; PAGE_BYTES];

    fn deref(&self) -> &[u8; PAGE_BYTES] {
        self.bytes
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut [u8; PAGE_BYTES] {
        self.bytes
    }
}

impl Clone for Frame {
    #[inline]
    fn clone(&self) -> Frame {
        self.arena.hold(self.index);
        Frame { arena: Arc::clone(&self.arena), index: self.index }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        self.arena.release(self.index);
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({})", self.index)
    }
}
