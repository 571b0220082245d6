//! A client's region: what it and the daemon both write.
//!
//! Layout: [`Head`], then [`PENDING`] counters, then one mark per frame, then [`RINGS`] of [`RingHead`], then the
//! rings' bytes. The memory is sparse: a ring nobody used takes none.

#![allow(unsafe_code)] // Shared memory cannot be had without it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::PAGE_BYTES;
use crate::board::{VERSION, take_mark};
use crate::client::pages_of;
use crate::memory::{self, Access, Memory};
use crate::ring::{Ends, HEAD_BYTES, RING_BYTES};

/// Rings in a region: so many threads of a client can post at once.
pub const RINGS: usize = 64;
/// Counters of pending writes, shared by pages whose hash is equal.
pub const PENDING: usize = 4096;

/// The region's beginning.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Head {
    pub(crate) version: AtomicU32,
    pub(crate) frames: AtomicU32,
    /// Not 0 once the daemon takes nothing from this region any more.
    pub(crate) closed: Line32,
    /// The next write's stamp: writes of all threads are taken in this order.
    pub(crate) stamp: Line64,
    /// Bytes of appends posted and not yet in a file's size.
    pub(crate) appending: Line64,
    /// Whether the daemon looks by itself: [`ASLEEP`], [`AWAKE`] or [`RUNG`].
    pub(crate) bell: Line32,
}

/// The daemon sleeps until it is woken.
pub(crate) const ASLEEP: u32 = 0;
/// The daemon looks again within its interval.
pub(crate) const AWAKE: u32 = 1;
/// Somebody is waking the daemon.
pub(crate) const RUNG: u32 = 2;

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line32(pub(crate) AtomicU32);

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line64(pub(crate) AtomicU64);

/// A ring's words.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct RingHead {
    pub(crate) ends: Ends,
    /// The thread that has it (gettid(2)); 0 if nobody.
    pub(crate) owner: Line32,
}

/// An entry's head, as it lies in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EntryHead {
    /// Its place among the client's writes.
    pub stamp: u64,
    /// Where in the file, bytes. Of no meaning for [`Kind::Append`].
    pub offset: u64,
    /// The open description it is written by: what the daemon called it when it was attached.
    pub description: u32,
    /// Bytes of payload.
    pub len: u32,
    /// A [`Kind`].
    pub kind: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<EntryHead>() == HEAD_BYTES);

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Nothing: the rest of the ring before its end.
    Filler = 0,
    /// A write at an offset.
    Write = 1,
    /// A write at the end the file has when its turn comes.
    Append = 2,
}

/// A client's region, mapped.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    frames: u32,
}

const PENDING_AT: usize = size_of::<Head>();
const MARKS_AT: usize = PENDING_AT + PENDING * size_of::<AtomicU32>();

fn rings_at(frames: u32) -> usize {
    (MARKS_AT + frames as usize).next_multiple_of(PAGE_BYTES)
}

fn bytes_at(frames: u32) -> usize {
    (rings_at(frames) + RINGS * size_of::<RingHead>()).next_multiple_of(PAGE_BYTES)
}

fn len_bytes(frames: u32) -> usize {
    bytes_at(frames) + RINGS * RING_BYTES
}

impl Region {
    /// A new region, and its descriptor, for the client to have.
    ///
    /// # Errors
    /// What making and mapping shared memory says.
    pub fn create(frames: u32) -> io::Result<(Region, OwnedFd)> {
        let fd = memory::create("weir-lane", len_bytes(frames))?;
        let region = Region::of(fd.as_fd(), frames)?;
        region.head().version.store(VERSION, Ordering::Relaxed);
        region.head().frames.store(frames, Ordering::Relaxed);
        Ok((region, fd))
    }

    /// The client's side of one.
    ///
    /// # Errors
    /// What mmap(2) says; `InvalidData` if it is of another version.
    pub fn map(fd: BorrowedFd<'_>, frames: u32) -> io::Result<Region> {
        let region = Region::of(fd, frames)?;
        if region.head().version.load(Ordering::Relaxed) != VERSION {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a lane of another version"));
        }
        Ok(region)
    }

    fn of(fd: BorrowedFd<'_>, frames: u32) -> io::Result<Region> {
        let memory = Memory::map(fd, len_bytes(frames), Access::ReadWrite)?;
        Ok(Region { memory, frames })
    }

    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: atomics alone.
        unsafe { &*self.memory.base().cast() }
    }

    #[inline]
    pub(crate) fn ring(&self, ring: usize) -> &RingHead {
        assert!(ring < RINGS);
        // SAFETY: atomics alone; inside, by the layout and the check.
        unsafe { &*self.memory.base().add(rings_at(self.frames)).cast::<RingHead>().add(ring) }
    }

    /// Where a ring's bytes are: [`RING_BYTES`] of them.
    #[inline]
    pub(crate) fn ring_bytes(&self, ring: usize) -> *mut u8 {
        assert!(ring < RINGS);
        // SAFETY: inside, by the layout and the check.
        unsafe { self.memory.base().add(bytes_at(self.frames) + ring * RING_BYTES) }
    }

    /// The counter of writes pending to a page of a file in the lane.
    #[inline]
    pub(crate) fn pending(&self, slot: u32, page: u64) -> &AtomicU32 {
        let key = page.wrapping_add(u64::from(slot) << 40);
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let counter = (mixed >> 48) as usize % PENDING;
        // SAFETY: as in `ring`.
        unsafe { &*self.memory.base().add(PENDING_AT).cast::<AtomicU32>().add(counter) }
    }

    /// A write is pending no more: applied, or never posted. `None` for the end of the file.
    pub(crate) fn settle(&self, slot: u32, offset: Option<u64>, len: usize) {
        match offset {
            Some(offset) => {
                for page in pages_of(offset, len) {
                    self.pending(slot, page).fetch_sub(1, Ordering::AcqRel);
                }
            }
            None => {
                self.head().appending.0.fetch_sub(len as u64, Ordering::AcqRel);
            }
        }
    }

    fn mark(&self, frame: u32) -> &AtomicU8 {
        assert!(frame < self.frames);
        // SAFETY: as in `ring`.
        unsafe { &*self.memory.base().add(MARKS_AT + frame as usize).cast() }
    }

    /// Notes that a frame was read.
    #[inline]
    pub fn set_referenced(&self, frame: u32) {
        let mark = self.mark(frame);
        if mark.load(Ordering::Relaxed) == 0 {
            mark.store(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn take_referenced(&self, frame: u32) -> bool {
        take_mark(self.mark(frame))
    }

    /// Whether a thread of the client has a ring.
    pub fn has_thread(&self, tid: u32) -> bool {
        (0..RINGS).any(|ring| self.ring(ring).owner.0.load(Ordering::Relaxed) == tid)
    }

    /// Daemon: nothing is taken from this region any more.
    pub fn close(&self) {
        self.head().closed.0.store(1, Ordering::Release);
    }

    /// Whether the daemon takes nothing from it any more.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.head().closed.0.load(Ordering::Acquire) != 0
    }
}
