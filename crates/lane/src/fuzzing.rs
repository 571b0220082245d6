//! For fuzzing alone: a region as a client sees it that keeps to nothing.

#![allow(unsafe_code)] // Shared memory cannot be written without it.

use std::sync::atomic::AtomicU64;

use crate::memory::Memory;
use crate::owner::Owner;
use crate::region::{EntryHead, Region};
use crate::ring::RING_BYTES;

/// Reads and writes anything in a region, at any time. Nobody else uses it meanwhile.
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

    /// The rings that anybody ever had, as bits.
    pub fn rings_used(&self) -> u64 {
        self.0.rings_used()
    }

    /// Gives a ring to a thread, whoever has it.
    pub fn use_ring(&self, ring: usize, tid: u32) {
        self.0.change_owner(ring, self.0.owner(ring), Owner::new(1, tid));
    }

    /// The position up to which entries are said to be published.
    pub fn tail(&self, ring: usize) -> u64 {
        self.0.ring(ring).ends.tail()
    }

    /// Says so; above a position's bits is the generation.
    pub fn set_tail(&self, ring: usize, tail: u64) {
        self.0.ring(ring).ends.set_tail(tail);
    }

    /// Up to where the server said that it took out.
    pub fn released(&self, ring: usize) -> u64 {
        self.0.ring(ring).ends.released()
    }

    /// What stands in a ring where an entry may begin.
    pub fn entry(&self, ring: usize, at: usize) -> EntryHead {
        // SAFETY: `entry_at` is inside and aligned; any bytes are an entry's head.
        unsafe { self.entry_at(ring, at).read() }
    }

    /// Puts it there.
    pub fn put_entry(&self, ring: usize, at: usize, entry: EntryHead) {
        // SAFETY: as above, and nobody else uses the region.
        unsafe { self.entry_at(ring, at).write(entry) };
    }

    fn entry_at(&self, ring: usize, at: usize) -> *mut EntryHead {
        assert!(at.is_multiple_of(size_of::<EntryHead>()) && at < RING_BYTES);
        self.0.ring_bytes(ring).wrapping_add(at).cast()
    }

    /// A ring's bytes.
    pub fn bytes(&self, ring: usize, at: usize, len: usize) -> Vec<u8> {
        assert!(at <= RING_BYTES && len <= RING_BYTES - at);
        // SAFETY: inside the ring, and nobody else uses the region.
        unsafe { std::slice::from_raw_parts(self.0.ring_bytes(ring).add(at), len) }.to_vec()
    }

    /// Puts bytes there.
    pub fn fill(&self, ring: usize, at: usize, len: usize, byte: u8) {
        assert!(at <= RING_BYTES && len <= RING_BYTES - at);
        // SAFETY: as above.
        unsafe { self.0.ring_bytes(ring).add(at).write_bytes(byte, len) };
    }
}
