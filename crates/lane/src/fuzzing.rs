//! For fuzzing only: a region as seen by a client that follows no rules.

#![allow(unsafe_code)] // Shared memory cannot be written without it.

use std::sync::atomic::AtomicU64;

use crate::memory::Memory;
use crate::owner::Owner;
use crate::region::{EntryHead, Region};
use crate::ring::RING_BYTES;

/// Reads and writes anything in a region, at any time. No other thread uses the region meanwhile.
#[derive(Debug)]
pub struct Hostile<'a>(pub &'a Region);

impl Hostile<'_> {
    /// All its bytes.
    pub fn memory(&self) -> &Memory {
        self.0.memory()
    }

    /// A word of it. `at` is a multiple of 8 inside.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside, aligned, and an atomic.
        unsafe { self.memory().at(at) }
    }

    /// The next sequence number.
    pub fn next_sequence(&self) -> u64 {
        self.0.head().writes.next()
    }

    /// Sets it.
    pub fn set_next_sequence(&self, next: u64) {
        self.0.head().writes.set(next);
    }

    /// The rings that ever had an owner, as bits.
    pub fn rings_used(&self) -> u64 {
        self.0.rings_used()
    }

    /// Gives a ring to a thread, whatever owner it has.
    pub fn use_ring(&self, ring: usize, tid: u32) {
        self.0.change_owner(ring, self.0.owner(ring), Owner::new(1, tid));
    }

    /// The ring's tail: the position up to which entries are published.
    pub fn tail(&self, ring: usize) -> u64 {
        self.0.ring(ring).ends.tail()
    }

    /// Sets the tail; the bits above the position are the generation.
    pub fn set_tail(&self, ring: usize, tail: u64) {
        self.0.ring(ring).ends.set_tail(tail);
    }

    /// The position up to which the server has released the ring.
    pub fn released(&self, ring: usize) -> u64 {
        self.0.ring(ring).ends.released()
    }

    /// The entry's head at `at` in a ring, where an entry may begin.
    pub fn entry(&self, ring: usize, at: usize) -> EntryHead {
        // SAFETY: `entry_at` is inside and aligned; any bytes are an entry's head.
        unsafe { self.entry_at(ring, at).read() }
    }

    /// Writes an entry's head there.
    pub fn put_entry(&self, ring: usize, at: usize, entry: EntryHead) {
        // SAFETY: as above, and no other thread uses the region.
        unsafe { self.entry_at(ring, at).write(entry) };
    }

    fn entry_at(&self, ring: usize, at: usize) -> *mut EntryHead {
        assert!(at.is_multiple_of(size_of::<EntryHead>()) && at < RING_BYTES);
        self.0.ring_bytes(ring).wrapping_add(at).cast()
    }

    /// A ring's bytes.
    pub fn bytes(&self, ring: usize, at: usize, len: usize) -> Vec<u8> {
        assert!(at <= RING_BYTES && len <= RING_BYTES - at);
        // SAFETY: inside the ring, and no other thread uses the region.
        unsafe { std::slice::from_raw_parts(self.0.ring_bytes(ring).add(at), len) }.to_vec()
    }

    /// Fills bytes of a ring with `byte`.
    pub fn fill(&self, ring: usize, at: usize, len: usize, byte: u8) {
        assert!(at <= RING_BYTES && len <= RING_BYTES - at);
        // SAFETY: as above.
        unsafe { self.0.ring_bytes(ring).add(at).write_bytes(byte, len) };
    }
}
