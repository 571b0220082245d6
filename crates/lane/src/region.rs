//! A client's region: what it and the daemon both write.
//!
//! Layout: `Head`, then [`PENDING`] counters, then one mark per frame, then [`RINGS`] of `RingHead`, then the
//! rings' bytes. The memory is sparse: an unused ring takes none.

#![allow(unsafe_code)] // Shared memory cannot be had without it.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::PAGE_BYTES;
use crate::doorbell::Doorbell;
use crate::memory::{self, Access, Memory};
use crate::owner::Owner;
use crate::resident::{Part, Resident, Windows};
use crate::ring::{Ends, HEAD_BYTES, RING_BYTES, distance};
use crate::wire::VERSION;
use crate::write_sequence::WriteSequence;

/// Rings in a region: the number of threads of a client that can post at once.
pub const RINGS: usize = if cfg!(miri) { 4 } else { 64 };
/// Counters of pending writes, shared by pages whose hash is equal.
pub const PENDING: usize = 4096;

/// The region's beginning.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Head {
    pub(crate) version: AtomicU32,
    pub(crate) frames: AtomicU32,
    /// Not 0 once the daemon has closed this region.
    closed: Line32,
    /// A bit for each ring that ever had an owner: the others are empty.
    rings: Line64,
    pub(crate) writes: WriteSequence,
    pub(crate) ends: FileEnds,
    pub(crate) doorbell: Doorbell,
}

/// Posted writes that move a file's end, of all files.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FileEnds {
    /// Bytes of appends posted and not yet in a file's size.
    pub(crate) appending: AtomicU64,
    /// Writes at an offset, posted and not yet in a file's size, that ended past it.
    pub(crate) extending: AtomicU32,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Line32(AtomicU32);

#[derive(Debug)]
#[repr(C, align(64))]
struct Line64(AtomicU64);

/// A ring's words.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct RingHead {
    pub(crate) ends: Ends,
    /// The thread that owns the ring, as an [`Owner`]; 0 if none.
    owner: Line64,
}

/// An entry's head, as laid out in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EntryHead {
    /// Its number in the order of the client's writes.
    pub sequence: u64,
    /// Where in the file, bytes. Unused for [`Kind::Append`].
    pub offset: u64,
    /// The open description that it is written by: the number from [`crate::wire::Attachment`].
    pub description: u32,
    /// Bytes of payload.
    pub len: u32,
    /// A [`Kind`].
    pub kind: u32,
    /// [`EXTENDS`], or 0.
    pub flags: u32,
}

const _: () = assert!(size_of::<EntryHead>() == HEAD_BYTES);

/// Of an entry: a [`Kind::Write`] that ended past the file's size when it was posted.
pub const EXTENDS: u32 = 1;

/// What a region's counters hold of a write while it is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// A write at an offset.
    Write {
        /// The file's place on the board; `None` if it is no longer known.
        slot: Option<u32>,
        /// In the file, bytes. `offset + len` does not overflow.
        offset: u64,
        /// Bytes.
        len: usize,
        /// Whether it ended past the file's size.
        extends: bool,
    },
    /// An append, and its length in bytes.
    Append(usize),
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Nothing: the rest of the ring before its end.
    Filler = 0,
    /// A write at an offset.
    Write = 1,
    /// A write at the end that the file has when the write is applied.
    Append = 2,
}

/// A client's region, mapped.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    frames: u32,
    /// Where [`RingHead`]s begin.
    rings_at: usize,
    /// Where rings' bytes begin.
    bytes_at: usize,
    /// Counts the pages resident in the daemon; `None` in the client.
    resident: Option<Windows>,
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
    /// Shared memory could not be made or mapped.
    pub fn create(frames: u32) -> io::Result<(Region, OwnedFd)> {
        let fd = memory::create("weir-lane", len_bytes(frames))?;
        let mut region =
            Region::over(Memory::map(&fd, len_bytes(frames), Access::ReadWrite)?, frames);
        region.count_in(&Arc::default());
        region.head().version.store(VERSION, Ordering::Relaxed);
        region.head().frames.store(frames, Ordering::Relaxed);
        Ok((region, fd))
    }

    /// Adds this region's pages that are resident in this process, the daemon, to a sum over several regions.
    pub fn count_in(&mut self, sum: &Arc<Resident>) {
        let windows = Windows::new(self.memory.len(), self.bytes_at, Arc::clone(sum));
        windows.touch(0..size_of::<Head>());
        self.resident = Some(windows);
    }

    /// Bytes of a region besides its rings, for a board of `frames` frames: counters, and marks of what the
    /// client read. They do not depend on what the client posts.
    pub fn fixed_bytes(frames: u32) -> usize {
        bytes_at(frames)
    }

    /// Daemon: bytes of a ring were read; `from` and `to` are positions in the ring.
    #[inline]
    pub(crate) fn touch_ring(&self, ring: usize, from: u64, to: u64) {
        let Some(resident) = &self.resident else { return };
        let (start, len) = (self.bytes_at + ring * RING_BYTES, distance(from, to) as usize);
        let from = (from % RING_BYTES as u64) as usize;
        // The head of the next entry was read too.
        let end = from + len + HEAD_BYTES;
        resident.touch(start + from..start + end.min(RING_BYTES));
        if end > RING_BYTES {
            resident.touch(start..start + (end - RING_BYTES).min(from));
        }
    }

    /// Daemon: the words that tell what is posted were read.
    #[inline]
    pub(crate) fn touch_words(&self) {
        let Some(resident) = &self.resident else { return };
        resident.touch(0..MARKS_AT);
        resident.touch(self.rings_at..self.bytes_at);
    }

    /// Unmaps a part of the region from this process, so that it is no longer resident. Nothing posted is
    /// lost.
    ///
    /// # Errors
    /// That of madvise(2).
    pub(crate) fn leave_memory(&self, part: Part) -> io::Result<()> {
        let counted = self.resident.as_ref().and_then(|resident| resident.forget(part));
        counted.map_or(Ok(()), |bytes| self.memory.unmap_pages(bytes))
    }

    /// Maps a region as its client.
    ///
    /// # Errors
    /// That of mmap(2); `InvalidData` if the region is of another version.
    pub fn map(fd: BorrowedFd<'_>, frames: u32) -> io::Result<Region> {
        let region = Region::over(Memory::map(fd, len_bytes(frames), Access::ReadWrite)?, frames);
        let head = region.head();
        let is_known = head.version.load(Ordering::Relaxed) == VERSION
            && head.frames.load(Ordering::Relaxed) == frames;
        if !is_known {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a lane of another version"));
        }
        Ok(region)
    }

    /// See [`crate::client::Client::unmap`].
    pub(crate) fn unmap(&self) -> io::Result<()> {
        self.memory.replace_by_zeros(Access::ReadWrite)
    }

    fn over(memory: Memory, frames: u32) -> Region {
        assert!(memory.len() >= len_bytes(frames));
        let (rings_at, bytes_at) = (rings_at(frames), bytes_at(frames));
        Region { memory, frames, rings_at, bytes_at, resident: None }
    }

    /// Both sides of a region, in this process's heap.
    #[cfg(test)]
    pub(crate) fn heap(frames: u32) -> (Region, Region) {
        let memory = Memory::heap(len_bytes(frames));
        (Region::over(memory.again(), frames), Region::over(memory, frames))
    }

    /// All its bytes.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
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
        unsafe { &*self.memory.base().add(self.rings_at).cast::<RingHead>().add(ring) }
    }

    /// Where a ring's bytes are: [`RING_BYTES`] of them.
    #[inline]
    pub(crate) fn ring_bytes(&self, ring: usize) -> *mut u8 {
        assert!(ring < RINGS);
        // SAFETY: inside, by the layout and the check.
        unsafe { self.memory.base().add(self.bytes_at + ring * RING_BYTES) }
    }

    /// The counter of writes pending to a page of a file in the lane.
    #[inline]
    pub(crate) fn pending(&self, slot: u32, page: u64) -> &AtomicU32 {
        let key = page.wrapping_add(u64::from(slot) << 40);
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let counter = (mixed >> (u64::BITS - PENDING.ilog2())) as usize;
        // SAFETY: as in `ring`; a counter is below PENDING.
        unsafe { &*self.memory.base().add(PENDING_AT).cast::<AtomicU32>().add(counter) }
    }

    /// Client: counts a write as pending. Call before it is posted.
    #[inline]
    pub(crate) fn note(&self, noted: Noted) {
        let ends = &self.head().ends;
        match noted {
            Noted::Write { slot, offset, len, extends } => {
                if let Some(slot) = slot {
                    for page in pages_of(offset, len) {
                        self.pending(slot, page).fetch_add(1, Ordering::AcqRel);
                    }
                }
                if extends {
                    ends.extending.fetch_add(1, Ordering::AcqRel);
                }
            }
            Noted::Append(len) => {
                ends.appending.fetch_add(len as u64, Ordering::AcqRel);
            }
        }
    }

    /// Counts a write as pending no more: it was applied, or never posted. Counters that a client corrupted, or left
    /// behind when it was killed, wrap or stay: that client's reads and appends then go by the kernel.
    #[inline]
    pub(crate) fn settle(&self, noted: Noted) {
        // Release: a client that finds the write no longer pending sees its effect on frames and on the file's size.
        let ends = &self.head().ends;
        match noted {
            Noted::Write { slot, offset, len, extends } => {
                if let Some(slot) = slot {
                    for page in pages_of(offset, len) {
                        self.pending(slot, page).fetch_sub(1, Ordering::AcqRel);
                    }
                }
                if extends {
                    ends.extending.fetch_sub(1, Ordering::AcqRel);
                }
            }
            Noted::Append(len) => {
                ends.appending.fetch_sub(len as u64, Ordering::AcqRel);
            }
        }
    }

    /// Client: changes the ring's owner from `from` to `to`, if `from` owns it.
    pub(crate) fn change_owner(&self, ring: usize, from: Owner, to: Owner) -> bool {
        let owner = &self.ring(ring).owner.0;
        let changed = owner
            .compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if changed && to != Owner::NONE {
            self.ring(ring).ends.mark_as_used();
            // Before anything is published in the ring: the server looks only at rings whose bit is set. Sequentially
            // consistent for the doorbell.
            self.head().rings.0.fetch_or(1 << ring, Ordering::SeqCst);
        }
        changed
    }

    /// The owner of a ring.
    pub(crate) fn owner(&self, ring: usize) -> Owner {
        Owner::from_word(self.ring(ring).owner.0.load(Ordering::Acquire))
    }

    /// Server: the rings in which something may be, as bits.
    #[inline]
    pub(crate) fn rings_used(&self) -> u64 {
        self.head().rings.0.load(Ordering::SeqCst)
    }

    /// Whether a thread owns a ring here, by the client's own word.
    pub fn has_thread(&self, thread: Owner) -> bool {
        self.touch_words();
        thread.tid() != 0 && (0..RINGS).any(|ring| self.owner(ring) == thread)
    }

    fn mark(&self, frame: u32) -> &AtomicU8 {
        assert!(frame < self.frames);
        // SAFETY: as in `ring`.
        unsafe { &*self.memory.base().add(MARKS_AT + frame as usize).cast() }
    }

    /// Marks a frame as read.
    #[inline]
    pub fn set_referenced(&self, frame: u32) {
        let mark = self.mark(frame);
        if mark.load(Ordering::Relaxed) == 0 {
            mark.store(1, Ordering::Relaxed);
        }
    }

    /// Whether a frame was read since this was last asked.
    pub(crate) fn take_referenced(&self, frame: u32) -> bool {
        if let Some(resident) = &self.resident {
            let at = MARKS_AT + frame as usize;
            resident.touch(at..at + 1);
        }
        let mark = self.mark(frame);
        mark.load(Ordering::Relaxed) != 0 && mark.swap(0, Ordering::Relaxed) != 0
    }

    /// Daemon: a post that began before this call fails to publish after it ([`crate::server::Inbox::revoke`]).
    pub fn revoke(&self) {
        (0..RINGS).for_each(|ring| self.ring(ring).ends.revoke());
    }

    /// Daemon: posts that begin after this call fail. [`crate::server::Inbox::revoke`] must follow, for posts that
    /// began before; then one more scan takes out the rest.
    pub fn close(&self) {
        self.head().closed.0.store(1, Ordering::Release);
    }

    /// Whether the daemon closed it.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.head().closed.0.load(Ordering::Acquire) != 0
    }
}

/// The pages that a range of a file touches.
#[inline]
fn pages_of(offset: u64, len: usize) -> Range<u64> {
    let page = PAGE_BYTES as u64;
    offset / page..(offset + len as u64).div_ceil(page)
}

const _: () = assert!(PENDING.is_power_of_two() && RINGS <= u64::BITS as usize);
